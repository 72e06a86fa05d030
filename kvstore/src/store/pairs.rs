//! Pairs by number: each stays where it is until it is removed, however many others come.

use super::compact::Compact;
use crate::command::Version;

/// A key and what stands there.
pub(super) struct Pair {
    pub(super) key: Compact,
    // Boxed to its length: spare room in a million values is memory nobody asked for.
    pub(super) value: Box<[u8]>,
    pub(super) version: Version,
    /// What it adds to the store's digest: kept, so that nobody hashes a value that is overwritten.
    pub(super) sum: u64,
}

/// So many come and go together: no block is ever moved, and none is much too large.
const BLOCK: usize = 1 << 10;

#[derive(Default)]
pub(super) struct Pairs {
    blocks: Vec<Vec<Pair>>,
    /// Numbers of pairs that were removed.
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
