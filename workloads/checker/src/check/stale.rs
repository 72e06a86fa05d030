//! Bounds of stale reads.
//!
//! A stale read of a key may observe any time before its answer: any replica may answer it, lagging
//! by any number of the writes so far. So it precedes every write of the key that was invoked after
//! its answer. It need not precede anything else, because other reads may be staler.

use hashbrown::HashMap;

use super::eager::keys_of;
use super::scripts::Scripts;

/// Stale reads that are not done, by key.
#[derive(Default)]
pub(super) struct Stale {
    by_key: HashMap<u32, Reads>,
    /// For each stale script, its key and its index among the reads of that key.
    homes: HashMap<u32, (u32, usize)>,
}

#[derive(Default)]
struct Reads {
    /// Time of the answer and script, sorted.
    all: Vec<(u64, u32)>,
    /// All reads before this index are done.
    left: usize,
}

impl Stale {
    pub(super) fn new(scripts: &Scripts) -> Self {
        let mut stale = Self::default();
        for (number, script) in (0..).zip(&scripts.all).filter(|(_, script)| script.stale) {
            let mut add =
                |key| stale.by_key.entry(key).or_default().all.push((script.answered, number));
            keys_of(scripts, script, &mut add);
            scripts.found_by(script).for_each(&mut add);
        }
        for (key, reads) in &mut stale.by_key {
            reads.all.sort_unstable();
            let places = reads.all.iter().zip(0..);
            stale.homes.extend(places.map(|((_, number), place)| (*number, (*key, place))));
        }
        stale
    }

    /// Whether there are no stale reads.
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether a stale read of the key that is not done was answered before `invoked`. `done` says
    /// of each script whether it is done.
    pub(super) fn is_left(&mut self, key: u32, invoked: u64, done: &[bool]) -> bool {
        let Some(Reads { all, left }) = self.by_key.get_mut(&key) else { return false };
        while all.get(*left).is_some_and(|(_, script)| done[*script as usize]) {
            *left += 1;
        }
        all.get(*left).is_some_and(|(answered, _)| *answered < invoked)
    }

    /// Notes that a script was undone.
    pub(super) fn undone(&mut self, script: u32) {
        if let Some((key, place)) = self.homes.get(&script)
            && let Some(reads) = self.by_key.get_mut(key)
        {
            reads.left = reads.left.min(*place);
        }
    }
}
