//! The keys that commands read or write, of commands that have not taken effect, in the order of delivery.
//!
//! Keys are compared by a 64-bit hash. Two keys with the same hash, which occur only if somebody constructs
//! them, are taken for one. A command then waits for one before it that it does not conflict with, which is
//! always safe.

use super::read_write_set::ReadWriteSet;

/// Number of lists. Each has a few keys when the maximum of commands is under way.
const LISTS: usize = 256;

/// One command's access to one key. Command numbers rise in the order of delivery.
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
    /// Adds command `number`, which has not taken effect. `number` must be above all numbers added before.
    pub(super) fn add(&mut self, number: u64, read_write_set: &ReadWriteSet) {
        for touched in read_write_set.keys() {
            let touch = Touch { key: touched.hash, number, written: touched.written };
            self.0[list(touched.hash)].push(touch);
        }
    }

    /// Removes command `number`, which has taken effect.
    pub(super) fn remove(&mut self, number: u64, read_write_set: &ReadWriteSet) {
        for touched in read_write_set.keys() {
            self.0[list(touched.hash)].retain(|it| it.number != number);
        }
    }

    /// The last command before `number` that may write a key of this read-write set, or reads a key that this
    /// set may write.
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
