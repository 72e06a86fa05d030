//! The bounds of a log, and what is refused beyond them.

use crate::format::{
    BLOCK, BlockHeader, ENTRY_BYTES, HEADER_FIXED_BYTES, RECORD_BYTES_MAX, TABLE_BYTES_MAX,
    record_space,
};

/// Sizes and bounds of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of a segment's file in bytes, a multiple of [`BLOCK`].
    pub segment_bytes: u64,
    /// Length of the first segment of a start, so that a node that is started again and again takes little space.
    /// A multiple of [`BLOCK`], `<= segment_bytes`.
    pub first_bytes: u64,
    /// A block that holds more than one record is at most this long. In bytes, a multiple of [`BLOCK`].
    pub block_bytes_max: usize,
    /// Groups that may have records.
    pub groups_max: u16,
    /// Longest entry of a group in the table, in bytes. `<= TABLE_BYTES_MAX`.
    pub table_bytes_max: usize,
    /// Writes under way at once.
    pub in_flight_max: usize,
    /// Closed blocks that wait for a write. Beyond it, [`append`](crate::Writer::append) refuses.
    pub waiting_max: usize,
    /// Files kept for later segments. More are removed, unless the log needed them lately.
    pub spare_max: usize,
    /// Segments that there is room for. If a start finds more files, it removes those that it does not need.
    pub files_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            first_bytes: 1 << 20,
            block_bytes_max: 256 << 10,
            groups_max: 256,
            table_bytes_max: TABLE_BYTES_MAX,
            in_flight_max: 8,
            waiting_max: 8,
            spare_max: 2,
            files_max: usize::MAX,
        }
    }
}

impl Options {
    /// The longest record that a segment can take, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        let room = Self::room(self.segment_bytes, self.header_bytes_max());
        room.saturating_sub(BlockHeader::BYTES + record_space(0)).min(RECORD_BYTES_MAX) / 8 * 8
    }

    /// Length of the longest header.
    fn header_bytes_max(&self) -> usize {
        let entry = ENTRY_BYTES + self.table_bytes_max.next_multiple_of(8);
        (HEADER_FIXED_BYTES + usize::from(self.groups_max) * entry).next_multiple_of(BLOCK)
    }

    /// Bytes of a segment that records may take: two headers stand before them, and a link behind.
    fn room(segment: u64, header: usize) -> usize {
        (segment as usize).saturating_sub(2 * header + BLOCK)
    }

    /// Panics if the sizes do not fit each other. They are the program's, not the user's.
    pub(super) fn check(&self) {
        assert!(self.segment_bytes.is_multiple_of(BLOCK as u64));
        assert!(self.first_bytes.is_multiple_of(BLOCK as u64));
        assert!(self.first_bytes <= self.segment_bytes, "a first segment is a short one");
        let first = Self::room(self.first_bytes, self.header_bytes_max());
        assert!(first >= BLOCK, "a first segment is too short for its headers");
        assert!(self.block_bytes_max.is_multiple_of(BLOCK) && self.block_bytes_max > 0);
        assert!(self.table_bytes_max <= TABLE_BYTES_MAX);
        assert!(self.in_flight_max > 0 && self.waiting_max > 3, "a rotation queues three blocks");
        assert!(self.record_bytes_max() >= 1024, "segments are too short for their headers");
    }
}

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Try again when a flush was completed or a segment prepared. The record may go to another
    /// block then, so nothing is said of its place.
    #[error("the log takes no more until a write completes or a segment is prepared")]
    Busy,
    #[error("a record of {length} bytes is longer than {max}")]
    TooLong { length: usize, max: usize },
    #[error("the log has {max} groups, and takes no more")]
    TooManyGroups { max: u16 },
    /// A write failed, and nothing becomes durable any more.
    #[error("a write to the log failed")]
    Failed,
}
