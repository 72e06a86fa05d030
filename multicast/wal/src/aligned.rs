//! Buffers that direct I/O accepts: their address and length are multiples of [`BLOCK`].

use crate::format::BLOCK;

/// Bytes at an aligned address.
///
/// The allocation is one block longer than asked for, and the bytes begin at the first aligned
/// address in it, so no `unsafe` is needed. Invariant: `at + capacity <= memory.len()`, and
/// `memory` is never resized, so the address holds.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    at: usize,
    capacity: usize,
}

impl Aligned {
    /// A zeroed buffer of at least `bytes`, rounded up to whole blocks.
    pub fn new(bytes: usize) -> Self {
        let capacity = bytes.next_multiple_of(BLOCK);
        let memory = vec![0; capacity + BLOCK];
        let at = memory.as_ptr().align_offset(BLOCK);
        assert!(at + capacity <= memory.len(), "byte pointers can be aligned");
        Self { memory, at, capacity }
    }

    /// How many bytes fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All bytes of the buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.at..self.at + self.capacity]
    }

    /// All bytes of the buffer.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.capacity]
    }
}

/// Buffers between two uses, so that the steady state allocates none.
///
/// Invariant: `free.len() <= kept_max`.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<Aligned>,
    /// Capacity of a buffer made for an ordinary block.
    ordinary: usize,
    kept_max: usize,
}

impl Pool {
    pub(crate) fn new(ordinary: usize, kept_max: usize) -> Self {
        Self { free: Vec::with_capacity(kept_max), ordinary, kept_max }
    }

    /// A buffer of at least `bytes`. Its contents are undefined.
    pub(crate) fn take(&mut self, bytes: usize) -> Aligned {
        match self.free.iter().position(|buffer| buffer.capacity() >= bytes) {
            Some(index) => self.free.swap_remove(index),
            None => Aligned::new(bytes.max(self.ordinary)),
        }
    }

    /// Takes a buffer back. Buffers of long records are freed: they are rare and large.
    pub(crate) fn give(&mut self, buffer: Aligned) {
        if buffer.capacity() <= self.ordinary && self.free.len() < self.kept_max {
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_stays_where_it_is() {
        for bytes in [1, BLOCK, BLOCK + 1, 10 * BLOCK] {
            let buffer = Aligned::new(bytes);
            let address = buffer.bytes().as_ptr().addr();
            assert_eq!(address % BLOCK, 0);
            assert_eq!(buffer.capacity(), bytes.next_multiple_of(BLOCK));
            let moved = Box::new(buffer);
            assert_eq!(moved.bytes().as_ptr().addr(), address, "a move does not move the bytes");
        }
    }

    #[test]
    fn a_pool_keeps_ordinary_buffers_and_no_more_than_it_may() {
        let mut pool = Pool::new(BLOCK, 2);
        for blocks in [3, 1, 1, 1] {
            pool.give(Aligned::new(blocks * BLOCK));
        }
        let kept: Vec<usize> = pool.free.iter().map(Aligned::capacity).collect();
        assert_eq!(kept, [BLOCK, BLOCK]);
        assert_eq!(pool.take(2 * BLOCK).capacity(), 2 * BLOCK, "none of them is long enough");
        assert_eq!((pool.take(1).capacity(), pool.free.len()), (BLOCK, 1));
    }
}
