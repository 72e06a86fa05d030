//! Which commands look at a key or write it: those that have yet to take effect, in the order of delivery.
//!
//! Keys are told apart by 64 bits of hash. Two that are alike in all of them, which nothing but malice
//! makes, are taken for one: then a command waits for one before it that it does not meet, which it may
//! always do.

use super::read_write_set::ReadWriteSet;

/// Lists of touches: a few keys a list, when as many commands are under way as there may be.
const LISTS: usize = 256;

/// Commands have numbers that rise with their places in the order.
#[derive(Clone, Copy)]
struct Touch {
    key: u64,
    number: u64,
    written: bool,
}

pub(super) struct ConflictIndex(Vec<Vec<Touch>>);

impl Default for ConflictIndex {
    fn default() -> Self {
        Self(vec![Vec::new(); LISTS])
    }
}

impl ConflictIndex {
    /// Command `number`, which is behind all before it, has yet to take effect.
    pub(super) fn add(&mut self, number: u64, read_write_set: &ReadWriteSet) {
        for touched in read_write_set.keys() {
            let touch = Touch { key: touched.hash, number, written: touched.written };
            self.0[list(touched.hash)].push(touch);
        }
    }

    /// It has.
    pub(super) fn remove(&mut self, number: u64, read_write_set: &ReadWriteSet) {
        for touched in read_write_set.keys() {
            self.0[list(touched.hash)].retain(|it| it.number != number);
        }
    }

    /// The last command before `number` that may write what one with this read_write_set looks at, or look at
    /// or write what that one may write.
    pub(super) fn last_met(&self, number: u64, read_write_set: &ReadWriteSet) -> Option<u64> {
        let met = read_write_set.keys().iter().filter_map(|touched| {
            let meets = |it: &&Touch| {
                it.key == touched.hash && it.number < number && (it.written || touched.written)
            };
            self.0[list(touched.hash)].iter().rfind(meets).map(|it| it.number)
        });
        met.max()
    }
}

fn list(hash: u64) -> usize {
    (hash % LISTS as u64) as usize
}
