//! A process that is stopped in the middle of a turn.
//!
//! A real process can stand still between any two of its instructions. When it goes on, what it has looked
//! at before is old, and nobody has told it so.
//!
//! A turn here happens at once, so the order is turned round. When a process is stopped, a copy is kept of
//! all that it could look at. In the turn in which it goes on, its first looks find that copy, and the rest
//! what is there by then. What it posts in between leaves late, as on a slow connection. The copy ends with
//! the first thing that the process does to its own memory, to its grants or to its connections: others may
//! have noticed, and would have to have noticed before.

use std::collections::BTreeMap;

use super::process::Process;

/// What a process could look at when it was stopped.
#[derive(Debug)]
pub(super) struct Past {
    /// What its clock showed.
    pub(super) now: u64,
    /// Its regions, by handle.
    regions: BTreeMap<u32, Vec<u64>>,
    /// Letters and completions that were there and that it has not taken yet.
    pub(super) letters: usize,
    pub(super) completions: usize,
    /// So many looks it has before it is stopped, and so many at its clock.
    looks: u64,
    clock_looks: u64,
    /// It has looked at something.
    pub(super) begun: bool,
}

impl Past {
    pub(super) fn of(process: &Process, world: u64, (looks, clock_looks): (u64, u64)) -> Self {
        Self {
            now: process.clock.at(world),
            regions: process.regions.iter().map(|(at, it)| (at, it.words.clone())).collect(),
            letters: process.mail.len(),
            completions: process.completions.len(),
            looks,
            clock_looks,
            begun: false,
        }
    }

    /// The words of a region.
    pub(super) fn words(&self, region: u32) -> &[u64] {
        self.regions.get(&region).expect("what is created or destroyed ends the copy")
    }

    /// Takes note of a look, perhaps at the clock. False if it comes after the stop.
    pub(super) fn looks(&mut self, at_clock: bool) -> bool {
        self.begun = true;
        let before = self.looks > 0 && self.clock_looks > 0;
        self.looks = self.looks.saturating_sub(1);
        self.clock_looks = self.clock_looks.saturating_sub(u64::from(at_clock));
        before
    }
}
