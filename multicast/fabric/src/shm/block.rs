//! The header before the memory of every region, and the key that refers to it.
//!
//! **Invariant (fence).** `open` holds the key's generation from when the region can be reached until it is revoked or
//! destroyed. A writer copies, fences, and reads it; an owner clears it, fences, and copies what it keeps. Whichever
//! fence comes first in their total order, either the owner's copy has all of the write, or the writer finds the region
//! closed and reports `Denied`. Neither waits for the other, so a writer that is stopped or dead between the two steps
//! blocks nothing.
//!
//! **Invariant (reuse).** Memory is reused for another region only when no live process has the earlier one attached.
//! An attaching process writes its incarnation into the header, fences, and then checks that the region is still open;
//! an owner closes the region, fences, and then reads which processes are attached. So a writer that slept through the
//! end of its region writes into memory that was not reused.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::RegionKey;
use crate::memory::{Memory, WORD};

/// Bytes of the header. A multiple of a cache line, so that the region starts on one.
pub(super) const HEADER: usize = 128;

const OPEN: usize = 0;
const LEN: usize = 8;
/// The incarnation that may write; 0 for every process that has the key.
const WRITER: usize = 16;
/// Set when more processes attached than there are places.
const CROWDED: usize = 24;
const ATTACHED: usize = 32;
const ATTACHED_MAX: usize = (HEADER - ATTACHED) / WORD;

/// A region's place in a file: a header, and the bytes behind it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) memory: Arc<Memory>,
    /// Offset of the header.
    header: usize,
}

/// The fields of a [`RegionKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The owner's.
    pub(super) incarnation: u64,
    pub(super) file: u64,
    pub(super) header: u64,
    pub(super) generation: u32,
    /// In words.
    pub(super) len: u32,
}

impl Block {
    pub(super) fn new(memory: Arc<Memory>, header: usize) -> Self {
        Self { memory, header }
    }

    /// Offset of the region's bytes.
    pub(super) fn data(&self) -> usize {
        self.header + HEADER
    }

    /// Opens the region to peers. Its contents must be ready.
    pub(super) fn open(&self, generation: u32, len: usize, writer: u64) {
        self.word(LEN).store(len as u64, Ordering::Relaxed);
        self.word(WRITER).store(writer, Ordering::Relaxed);
        self.word(CROWDED).store(0, Ordering::Relaxed);
        for place in self.places() {
            place.store(0, Ordering::Relaxed);
        }
        self.word(OPEN).store(u64::from(generation), Ordering::SeqCst);
    }

    /// Closes the region to all peers, so that those that have attached it find out. What the owner copies out after
    /// this is all that will ever count.
    pub(super) fn close(&self) {
        self.word(OPEN).store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether that generation is open. A writer calls this after its bytes, and a fence.
    #[inline]
    pub(super) fn is_open(&self, generation: u32) -> bool {
        self.word(OPEN).load(Ordering::Acquire) == u64::from(generation)
    }

    /// Adds `incarnation` to the list of attached processes, unless the key is stale.
    pub(super) fn attach(&self, key: &Key, incarnation: u64) -> bool {
        let free = self.places().find(|place| {
            place.compare_exchange(0, incarnation, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        });
        if free.is_none() {
            self.word(CROWDED).store(1, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if self.is_open(key.generation) && self.word(LEN).load(Ordering::Relaxed) == key.bytes() {
            return true;
        }
        // The place may belong to another region by now, whose list must not contain us.
        if let Some(place) = free {
            let _ = place.compare_exchange(incarnation, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        false
    }

    /// Removes `incarnation` from the list, once.
    pub(super) fn detach(&self, incarnation: u64) {
        let _ = self.places().find(|place| {
            place.compare_exchange(incarnation, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        });
    }

    /// The attached incarnations; `None` if there were too many to list.
    pub(super) fn attached(&self) -> Option<impl Iterator<Item = u64> + '_> {
        let crowded = self.word(CROWDED).load(Ordering::SeqCst) != 0;
        let listed = self.places().map(|place| place.load(Ordering::SeqCst)).filter(|&who| who > 0);
        (!crowded).then_some(listed)
    }

    /// Whether a process of that incarnation may write.
    pub(super) fn may_write(&self, incarnation: u64) -> bool {
        let writer = self.word(WRITER).load(Ordering::Relaxed);
        writer == 0 || writer == incarnation
    }

    /// Whether it was granted to one process, until revoked.
    pub(super) fn is_granted(&self) -> bool {
        self.word(WRITER).load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn word(&self, field: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(self.header + field)
    }

    fn places(&self) -> impl Iterator<Item = &std::sync::atomic::AtomicU64> {
        (0..ATTACHED_MAX).map(|i| self.word(ATTACHED + i * WORD))
    }
}

impl Key {
    pub(super) fn to_bytes(self) -> RegionKey {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.file.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.header.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.generation.to_le_bytes());
        bytes[28..].copy_from_slice(&self.len.to_le_bytes());
        RegionKey(bytes)
    }

    pub(super) fn from_bytes(key: &RegionKey) -> Self {
        let word = |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("8 bytes"));
        Self {
            incarnation: word(0),
            file: word(8),
            header: word(16),
            generation: word(24) as u32,
            len: (word(24) >> 32) as u32,
        }
    }

    /// The region's length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.len) * WORD as u64
    }

    /// Whether a file of that length can hold such a region.
    pub(super) fn fits(&self, file_len: usize) -> bool {
        let end = self.header.checked_add(HEADER as u64 + self.bytes());
        self.generation != 0
            && self.header.is_multiple_of(HEADER as u64)
            && end.is_some_and(|end| end <= file_len as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let key = Key { incarnation: u64::MAX - 1, file: 7, header: 384, generation: 9, len: 3 };
        assert_eq!(Key::from_bytes(&key.to_bytes()), key);
    }

    #[test]
    fn a_block_knows_who_is_attached_until_it_is_crowded() {
        let block = Block::new(Arc::new(Memory::anonymous(4096).unwrap()), 0);
        block.open(1, 64, 0);
        let key = Key { incarnation: 1, file: 1, header: 0, generation: 1, len: 8 };
        for who in 1..=ATTACHED_MAX as u64 {
            assert!(block.attach(&key, who));
        }
        block.detach(3);
        assert_eq!(block.attached().unwrap().count(), ATTACHED_MAX - 1);
        assert!(block.attach(&key, 3) && block.attach(&key, 99));
        assert!(block.attached().is_none(), "one more than there are places for");
        block.close();
        assert!(!block.attach(&key, 5), "closed");
    }
}
