//! Pairs in the order of their keys: their numbers, in blocks.
//!
//! The keys themselves stand with the pairs, so that a number costs four bytes, and whoever looks for a
//! key in the order, which only new keys and ranges need, looks at some twenty pairs.

use super::compact::Compact;
use super::pairs::Pairs;

/// A block that has so many becomes two.
const BLOCK_MAX: usize = 512;

#[derive(Default)]
pub(super) struct KeyOrder {
    /// None is empty.
    blocks: Vec<Vec<u32>>,
}

impl KeyOrder {
    /// Adds a pair, whose key is not there.
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

    /// Removes a pair, which is there.
    pub(super) fn remove(&mut self, number: u32, pairs: &Pairs) {
        let (block, at) = self.place(&pairs.get(number).key, pairs);
        let removed = self.blocks[block].remove(at);
        debug_assert_eq!(removed, number, "each key has one place");
        if self.blocks[block].is_empty() {
            self.blocks.remove(block);
        }
    }

    /// The pairs from `start` on.
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

    /// Where the first pair is whose key is not below `key`, or where it would be: at the end of a block,
    /// perhaps, and in no block only if there is none.
    fn place(&self, key: &Compact, pairs: &Pairs) -> (usize, usize) {
        let of = |number: &u32| &pairs.get(*number).key;
        // The last block that does not begin above it.
        let above = self.blocks.partition_point(|numbers| of(&numbers[0]) <= key);
        let block = above.saturating_sub(1);
        let numbers = self.blocks.get(block);
        (block, numbers.map_or(0, |numbers| numbers.partition_point(|number| of(number) < key)))
    }
}
