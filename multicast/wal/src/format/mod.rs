//! What the bytes of a segment mean. `docs/storage.md` shows the same as tables.
//!
//! All numbers are little-endian. Nothing here does I/O.

mod block;
mod header;
mod record;

pub use block::{BlockFault, BlockHeader, BlockKind};
pub use header::{Cut, Damage, SegmentHeader, TableEntry};
pub use record::{Record, Records};

pub(crate) use header::{ENTRY_BYTES, HEADER_FIXED_BYTES};
pub(crate) use record::{CHAIN_BEGINS, RecordHead, record_space};

/// Every block begins at a multiple of this in its file, and is a multiple of this long. In bytes.
pub const BLOCK: usize = 4096;

/// Format written by this version.
pub const FORMAT: u16 = 1;

/// Oldest format that this version reads.
pub const FORMAT_OLDEST: u16 = 1;

/// The longest record whatever the options say, in bytes.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// The most bytes that a group's entry in the table may have.
pub const TABLE_BYTES_MAX: usize = 1024;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
