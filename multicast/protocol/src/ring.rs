//! Byte rings between one writer and one reader, in the reader's memory.
//!
//! **Invariant.** The writer never overwrites a byte that the reader has not taken: `consumed <= tail <= consumed +
//! capacity`. Both are cumulative counts of bytes since the ring was opened. Each is in a word with a single writer, so
//! a lost or repeated update does no harm. Credits that are sent as differences could be lost between two reads
//! (`docs/protocols/ramcast.md`, 7).
//!
//! The tail word makes bytes visible. It is written after them on the same connection, so no byte between the reader's
//! position and the tail is of an earlier lap.

use core::ops::Range;

use crate::mutants::{Mutant, planted};

/// Offset of a cumulative position in a ring of `capacity` bytes. The capacity is a power of two, because a division
/// would be much slower than a mask.
pub const fn offset(capacity: u64, position: u64) -> u64 {
    debug_assert!(capacity.is_power_of_two(), "the capacity is not a power of two");
    position & (capacity - 1)
}

/// Where `len` bytes from cumulative `position` are in a ring of `capacity` bytes: at most two spans.
pub fn spans(capacity: u64, position: u64, len: u64) -> [Range<usize>; 2] {
    debug_assert!(len <= capacity);
    let start = offset(capacity, position);
    let first = len.min(capacity - start);
    [start as usize..(start + first) as usize, 0..(len - first) as usize]
}

/// The writer's side of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    capacity: u64,
    tail: u64,
    consumed: u64,
}

impl Outgoing {
    /// An empty ring of `capacity` bytes.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, tail: 0, consumed: 0 }
    }

    /// Number of bytes that can be written now.
    pub fn room(&self) -> u64 {
        if planted(Mutant::RingRoomNotChecked) {
            return self.capacity;
        }
        self.capacity - (self.tail - self.consumed)
    }

    /// Size of the ring.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Cumulative position of the next byte, and the value of the tail word once everything is written.
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Reserves `len` bytes and returns the position at which they start.
    pub fn reserve(&mut self, len: u64) -> u64 {
        assert!(len <= self.room(), "the write would overtake the ring's reader");
        let at = self.tail;
        self.tail += len;
        at
    }

    /// Reads the reader's credit word. A lower value than the last is ignored.
    ///
    /// # Errors
    /// If the credit is for bytes that were never written.
    pub fn credit(&mut self, consumed: u64) -> Result<(), Nonsense> {
        if consumed > self.tail {
            return Err(Nonsense);
        }
        self.consumed = self.consumed.max(consumed);
        Ok(())
    }

    /// Whether the reader has reported that it took everything.
    pub const fn drained(&self) -> bool {
        self.consumed == self.tail
    }

    /// Follows the reader, which has replaced the drained ring by one of another size.
    pub fn resize(&mut self, capacity: u64) {
        assert!(self.drained(), "only a drained ring can be replaced");
        self.capacity = capacity;
    }
}

/// The reader's side of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    capacity: u64,
    tail: u64,
    consumed: u64,
    reported: u64,
}

/// The value of a word is one that a correct writer cannot have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

impl Incoming {
    /// An empty ring of `capacity` bytes.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, tail: 0, consumed: 0, reported: 0 }
    }

    /// Reads the writer's tail word.
    pub fn see(&mut self, tail: u64) -> Result<(), Nonsense> {
        if tail < self.tail || tail - self.consumed > self.capacity || !tail.is_multiple_of(8) {
            return Err(Nonsense);
        }
        self.tail = tail;
        Ok(())
    }

    /// Number of bytes that can be read.
    pub const fn available(&self) -> u64 {
        self.tail - self.consumed
    }

    /// Cumulative position of the next byte to read.
    pub const fn position(&self) -> u64 {
        self.consumed
    }

    /// Size of the ring.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: u64) {
        assert!(len <= self.available(), "read beyond the tail");
        self.consumed += len;
    }

    /// The credit word to write, once it is worth a write: after a quarter of the ring. So a writer that waits for at
    /// most three quarters of the ring gets that room. A side without a ring never has one to write.
    pub fn report(&mut self) -> Option<u64> {
        let worth_it = self.consumed - self.reported >= self.capacity / 4;
        (worth_it && self.unreported()).then(|| self.report_now())
    }

    /// The credit word to write now.
    pub fn report_now(&mut self) -> u64 {
        if planted(Mutant::CreditForUnread) {
            self.reported = self.consumed;
            return self.tail;
        }
        self.reported = self.consumed;
        self.consumed
    }

    /// Whether bytes were taken that were not reported to the writer.
    pub const fn unreported(&self) -> bool {
        self.reported != self.consumed
    }

    /// Replaces the drained ring by one of another size.
    pub fn resize(&mut self, capacity: u64) {
        assert!(self.available() == 0, "only a drained ring can be replaced");
        self.capacity = capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_overwritten_before_it_is_taken() {
        let (mut writer, mut reader) = (Outgoing::new(64), Incoming::new(64));
        for lap in 0..100 {
            assert_eq!(writer.reserve(40), lap * 40);
            assert_eq!(writer.room(), 24);
            reader.see(writer.tail()).unwrap();
            reader.take(40);
            writer.credit(reader.report().unwrap()).unwrap();
            assert!(writer.drained());
        }
        assert_eq!(spans(64, 40, 40), [40..64, 0..16]);
        assert_eq!(spans(64, 64, 8), [0..8, 0..0]);
    }

    #[test]
    fn nothing_is_reported_where_nothing_was_taken() {
        for capacity in [0, 64] {
            let mut reader = Incoming::new(capacity);
            assert_eq!(reader.report(), None, "a ring of {capacity} bytes");
        }
    }

    #[test]
    fn words_that_make_no_sense_are_refused() {
        let mut writer = Outgoing::new(64);
        writer.reserve(16);
        assert_eq!(writer.credit(24), Err(Nonsense), "credit for what was not written");
        writer.credit(16).unwrap();
        writer.credit(8).unwrap();
        assert!(writer.drained(), "credit is never taken back");
        let mut reader = Incoming::new(64);
        assert_eq!(reader.see(72), Err(Nonsense), "more than the ring holds");
        assert_eq!(reader.see(9), Err(Nonsense), "half a word");
        reader.see(64).unwrap();
        assert_eq!(reader.see(64), Ok(()), "the same word is read again");
        assert_eq!(reader.see(8), Err(Nonsense), "bytes taken back");
    }

    #[test]
    fn credit_is_told_once_from_a_quarter_of_the_ring_on() {
        let mut reader = Incoming::new(64);
        reader.see(64).unwrap();
        reader.take(8);
        assert_eq!((reader.report(), reader.unreported()), (None, true), "less than a quarter");
        reader.take(8);
        assert_eq!((reader.report(), reader.unreported()), (Some(16), false));
        assert_eq!(reader.report(), None, "once");
    }

    #[test]
    fn a_drained_ring_goes_on_with_another_size() {
        let (mut writer, mut reader) = (Outgoing::new(64), Incoming::new(64));
        writer.reserve(40);
        reader.see(40).unwrap();
        reader.take(40);
        writer.credit(reader.report_now()).unwrap();
        writer.resize(128);
        reader.resize(128);
        assert_eq!((writer.room(), writer.reserve(128)), (128, 40));
        assert_eq!(reader.see(168), Ok(()));
        assert_eq!(reader.available(), 128);
    }

    #[test]
    #[should_panic(expected = "only a drained ring")]
    fn a_writer_replaces_no_ring_that_is_not_drained() {
        let mut writer = Outgoing::new(64);
        writer.reserve(8);
        writer.resize(128);
    }

    #[test]
    #[should_panic(expected = "only a drained ring")]
    fn a_reader_replaces_no_ring_that_is_not_drained() {
        let mut reader = Incoming::new(64);
        reader.see(8).unwrap();
        reader.resize(128);
    }

    #[test]
    #[should_panic(expected = "overtake the ring's reader")]
    fn a_full_ring_refuses() {
        Outgoing::new(64).reserve(72);
    }
}
