//! The order of the pairs by key: pair numbers in sorted blocks.
//!
//! The keys are stored with the pairs, so an entry takes four bytes. A search in the order compares about twenty keys.
//! Only new keys, deletions and ranges need one.

use super::compact::Compact;
use super::pairs::Pairs;

/// A block of this length is split in two.
const BLOCK_MAX: usize = 512;

#[derive(Default)]
pub(super) struct KeyOrder {
    /// No block is empty.
    blocks: Vec<Vec<u32>>,
}

impl KeyOrder {
    /// Adds a pair, whose key must not be present.
    pub(super) fn insert(&mut self, number: u32, pairs: &Pairs) {
        let (block, at) = self.place(&pairs.get(number).key, pairs);
        let Some(numbers) = self.blocks.get_mut(block) else {
            let mut first = Vec::with_capacity(BLOCK_MAX);
            first.push(number);
            return self.blocks.push(first);
        };
        numbers.insert(at, number);
        if numbers.len() == BLOCK_MAX {
            let mut upper = Vec::with_capacity(BLOCK_MAX);
            upper.extend(numbers.drain(BLOCK_MAX / 2..));
            self.blocks.insert(block + 1, upper);
        }
    }

    /// Removes a pair, which must be present.
    pub(super) fn remove(&mut self, number: u32, pairs: &Pairs) {
        let (block, at) = self.place(&pairs.get(number).key, pairs);
        let removed = self.blocks[block].remove(at);
        debug_assert_eq!(removed, number, "each key has one place");
        if self.blocks[block].is_empty() {
            self.blocks.remove(block);
        }
    }

    /// The pairs from `start` on, in key order.
    pub(super) fn from<'a>(
        &'a self,
        start: &Compact,
        pairs: &Pairs,
    ) -> impl Iterator<Item = u32> + use<'a> {
        let (block, at) = self.place(start, pairs);
        let (first, rest) = match self.blocks.get(block..) {
            Some([first, rest @ ..]) => (&first[at..], rest),
            _ => (&[][..], &[][..]),
        };
        first.iter().chain(rest.iter().flatten()).copied()
    }

    /// The position of the first pair whose key is at least `key`, or of the place where that pair would be: a block
    /// and an index in it. The index may be the end of the block. The block exists unless there are no blocks.
    fn place(&self, key: &Compact, pairs: &Pairs) -> (usize, usize) {
        let of = |number: &u32| &pairs.get(*number).key;
        // The last block that does not begin above `key`.
        let above = self.blocks.partition_point(|numbers| of(&numbers[0]) <= key);
        let block = above.saturating_sub(1);
        let numbers = self.blocks.get(block);
        (block, numbers.map_or(0, |numbers| numbers.partition_point(|number| of(number) < key)))
    }
}
