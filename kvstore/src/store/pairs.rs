//! Storage of pairs by number. A pair is not moved in memory while it exists, however many others are added.

use super::compact::Compact;
use crate::command::Version;

/// A key, its value and its version.
pub(super) struct Pair {
    pub(super) key: Compact,
    // Allocated to the exact length: spare capacity in a million values would waste memory.
    pub(super) value: Box<[u8]>,
    pub(super) version: Version,
    /// Contribution to the store's digest, kept so that the old value need not be hashed when it is overwritten.
    pub(super) sum: u64,
}

/// Pairs per block. A block is allocated as a whole, so that pairs are not moved when others are added.
const BLOCK: usize = 1 << 10;

#[derive(Default)]
pub(super) struct Pairs {
    blocks: Vec<Vec<Pair>>,
    /// Numbers of removed pairs.
    free: Vec<u32>,
}

impl Pairs {
    pub(super) fn get(&self, number: u32) -> &Pair {
        let (block, at) = place(number);
        &self.blocks[block][at]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Pair {
        let (block, at) = place(number);
        &mut self.blocks[block][at]
    }

    pub(super) fn insert(&mut self, pair: Pair) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.get_mut(number) = pair;
            return number;
        }
        if self.blocks.last().is_none_or(|last| last.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let before = (self.blocks.len() - 1) * BLOCK;
        let last = self.blocks.last_mut().expect("just pushed");
        last.push(pair);
        u32::try_from(before + last.len() - 1).expect("so many pairs have no room in any memory")
    }

    pub(super) fn remove(&mut self, number: u32) -> Pair {
        let nothing =
            Pair { key: Compact::from(&[][..]), value: Box::default(), version: 0, sum: 0 };
        let pair = std::mem::replace(self.get_mut(number), nothing);
        self.free.push(number);
        pair
    }
}

fn place(number: u32) -> (usize, usize) {
    (number as usize / BLOCK, number as usize % BLOCK)
}
