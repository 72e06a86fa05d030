//! What stale reads may not have seen.
//!
//! A stale read of a key may have been at any time before it was answered: at any replica, and behind any of the
//! writes that were done to the key by then. So it comes before every write of the key that was asked for later. There
//! is nothing else that it must come before, for others may be behind it.

use hashbrown::HashMap;

use super::eager::keys_of;
use super::scripts::Scripts;

/// Stale reads that are not done, by the key that they read.
#[derive(Default)]
pub(super) struct Stale {
    by_key: HashMap<u32, Reads>,
    /// Of each stale script, its key and its place among those that read it.
    homes: HashMap<u32, (u32, usize)>,
}

#[derive(Default)]
struct Reads {
    /// When each was answered, and which it is, in this order.
    all: Vec<(u64, u32)>,
    /// All before this one are done.
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

    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether a stale read of the key that is not done was answered before `invoked`. `done` tells of scripts whether
    /// they are.
    pub(super) fn is_left(&mut self, key: u32, invoked: u64, done: &[bool]) -> bool {
        let Some(Reads { all, left }) = self.by_key.get_mut(&key) else { return false };
        while all.get(*left).is_some_and(|(_, script)| done[*script as usize]) {
            *left += 1;
        }
        all.get(*left).is_some_and(|(answered, _)| *answered < invoked)
    }

    /// A script is no longer done.
    pub(super) fn undone(&mut self, script: u32) {
        if let Some((key, place)) = self.homes.get(&script)
            && let Some(reads) = self.by_key.get_mut(key)
        {
            reads.left = reads.left.min(*place);
        }
    }
}
