//! A process that is stopped in the middle of a turn.
//!
//! A real process can be paused between any two of its instructions. When it resumes, everything that it has looked at
//! is out of date, and nothing shows that to it. A *look* is a read by a process of its own memory, its control
//! messages, its completions or its clock.
//!
//! In the simulator a turn happens at one moment, so the order is reversed. When a process is stopped, a copy is made
//! of everything that it can look at. In the turn in which it resumes, its first looks are served from that copy, and
//! later looks from the present state. Its posts in between leave late, as on a slow connection. The copy ends
//! with the first change that the process makes to its own memory, its grants or its connections: other processes can
//! observe these changes, and would have had to observe them earlier.

use std::collections::BTreeMap;

use super::process::Process;

/// A copy of everything that a process can look at, from the time when it was stopped.
#[derive(Debug)]
pub(super) struct Past {
    /// Time of its clock.
    pub(super) now: u64,
    regions: BTreeMap<u32, Vec<u64>>,
    /// Control messages and completions that were present and that the process has not taken yet.
    pub(super) messages: usize,
    pub(super) completions: usize,
    /// Remaining looks before the stop, and remaining looks at the clock.
    looks: u64,
    clock_looks: u64,
    /// Whether the process has looked at something.
    pub(super) begun: bool,
}

impl Past {
    pub(super) fn of(process: &Process, world: u64, (looks, clock_looks): (u64, u64)) -> Self {
        Self {
            now: process.clock.at(world),
            regions: process.regions.iter().map(|(at, it)| (at, it.words.clone())).collect(),
            messages: process.mail.len(),
            completions: process.completions.len(),
            looks,
            clock_looks,
            begun: false,
        }
    }

    /// The words of a region when the process was stopped.
    pub(super) fn words(&self, region: u32) -> &[u64] {
        self.regions.get(&region).expect("what is created or destroyed ends the copy")
    }

    /// Counts a look. Returns false if it comes after the stop.
    pub(super) fn looks(&mut self, at_clock: bool) -> bool {
        self.begun = true;
        let before = self.looks > 0 && self.clock_looks > 0;
        self.looks = self.looks.saturating_sub(1);
        self.clock_looks = self.clock_looks.saturating_sub(u64::from(at_clock));
        before
    }
}
