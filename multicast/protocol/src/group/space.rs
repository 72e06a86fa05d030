//! Room in a log's ring: where a leader's next entry goes, and what it may overwrite.

use crate::group::frame::{Cursor, HEADER};
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::ring;

/// The leader's account of a log ring.
///
/// **Invariant.** An entry's bytes stay until every follower has reported them free, which means committed and folded.
/// They need not be delivered: otherwise a full ring would have no room for the entries on which a delivery depends.
#[derive(Clone, Debug)]
pub struct Space {
    capacity: u64,
    /// Place of the next entry.
    pub cursor: Cursor,
    freed: u64,
}

impl Space {
    /// An empty log in a ring of `capacity` bytes.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, cursor: Cursor::START, freed: 0 }
    }

    /// Whether entries of `len` bytes in total can be appended, wherever the ring's end falls among them. `largest` is
    /// the length of the longest.
    pub fn fits(&self, len: usize, largest: usize) -> bool {
        let used = self.cursor.position - self.freed;
        guard!(Mutant::LogRoomNotChecked, used + (len + largest + HEADER) as u64 <= self.capacity)
    }

    /// The number of bytes to skip before an entry of `len` bytes, if it would straddle the ring's end.
    pub fn skip(&mut self, len: usize) -> Option<usize> {
        self.cursor.offset(self.capacity);
        let left = (self.capacity - ring::offset(self.capacity, self.cursor.position)) as usize;
        (left < len).then_some(left)
    }

    /// Continues the log at `cursor`, where another leader's ended. Everything before `freed` may be overwritten.
    pub fn resume(&mut self, cursor: Cursor, freed: u64) {
        self.cursor = cursor;
        self.freed = freed;
    }

    /// Whether the bytes from `position` on have not been overwritten, and will not be by the next `len` bytes.
    pub const fn retains(&self, position: u64, len: u64) -> bool {
        position + self.capacity >= self.cursor.position + len
    }

    /// Retains the bytes from `position` on for a follower that needs them. They are still [there](Self::retains), but
    /// may have been free: a new leader does not know at first how far the others have read.
    pub fn hold(&mut self, position: u64) {
        if !planted(Mutant::LogRoomNotHeld) {
            self.freed = self.freed.min(position);
        }
    }

    /// Frees the log up to `position`: every replica has freed it.
    pub fn free(&mut self, position: u64) {
        debug_assert!(position <= self.cursor.position);
        self.freed = self.freed.max(position);
    }

    /// Everything before this position may be overwritten.
    pub const fn freed(&self) -> u64 {
        self.freed
    }

    /// Size of the ring in bytes.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::frame::PREAMBLE;
    use std::vec;

    #[test]
    fn what_a_late_follower_has_to_read_is_not_overwritten() {
        let mut space = Space::new(4096);
        // A new leader has freed everything itself, and knows of no other replica that has not.
        space.resume(Cursor { index: 30, position: 6000 }, 6000);
        assert!(space.retains(6000 - 4096, 0) && !space.retains(6000 - 4096, 8));
        assert!(space.fits(2048, 64));
        space.hold(3000);
        assert!(!space.fits(2048, 64) && space.fits(512, 64));
        space.free(4000);
        assert!(space.fits(1024, 64));
    }

    #[test]
    fn room_is_counted_for_a_pad_and_a_header_too() {
        let space = Space::new(1 << 10);
        assert!(space.fits(512, 448), "with the header of a pad it is all of the ring");
        assert!(!space.fits(512, 456) && !space.fits(520, 448));
    }

    #[test]
    fn what_is_held_and_what_is_free_do_not_go_the_wrong_way() {
        let mut space = Space::new(4096);
        space.resume(Cursor { index: 30, position: 6000 }, 5000);
        space.free(4000);
        assert!(space.fits(2968, 64), "what is free stays so");
        space.hold(5500);
        assert!(!space.fits(2976, 64), "what was not free is not freed by whoever needs less");
    }

    #[test]
    fn entries_never_straddle_the_end_and_never_overtake_the_freed() {
        let mut space = Space::new(1 << 10);
        let mut free_later = vec![];
        for i in 0..200_usize {
            let len = HEADER + 8 * (i % 9);
            assert!(space.fits(len, len));
            if let Some(skip) = space.skip(len) {
                space.cursor.skip(skip);
            }
            let offset = space.cursor.offset(1 << 10);
            assert!(offset >= PREAMBLE && offset + len <= PREAMBLE + (1 << 10));
            space.cursor.pass(len);
            free_later.push(space.cursor.position);
            if free_later.len() > 3 {
                space.free(free_later.remove(0));
            }
        }
        assert_eq!(space.cursor.index, 201);
        assert!(!space.fits(1 << 10, 64));
    }
    #[test]
    fn an_entry_is_placed_where_the_ring_ends_if_it_just_fits() {
        const RING: u64 = 1 << 10;
        let mut space = Space::new(RING);
        let cursor = Cursor { index: 3, position: RING - HEADER as u64 };
        space.resume(cursor, cursor.position);
        assert_eq!(space.skip(HEADER), None, "it just fits");
        assert_eq!(space.skip(HEADER + 8), Some(HEADER));
    }
}
