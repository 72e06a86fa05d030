//! A record in a block: opaque bytes of a group, tied to the group's previous record.

use super::{BlockHeader, put, u16_at, u32_at, u64_at};
use crate::{Group, Lsn};

/// Flag of the record with which a group's chain begins.
pub(crate) const CHAIN_BEGINS: u8 = 1;

/// The first bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) group: Group,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) length: u32,
    pub(crate) previous: Lsn,
}

/// A record as it lies in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub group: Group,
    /// What the bytes are, for whoever appended them.
    pub kind: u8,
    /// Whether the group's chain begins here: what the group logged before is void.
    pub begins: bool,
    /// Place of the group's previous record, or [`Lsn::NONE`] for the first one.
    pub previous: Lsn,
    /// Place of this record.
    pub lsn: Lsn,
    pub bytes: &'a [u8],
}

impl RecordHead {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn put(&self, bytes: &mut [u8], at: usize) {
        put(bytes, at, &self.group.0.to_le_bytes());
        bytes[at + 2] = self.kind;
        bytes[at + 3] = self.flags;
        put(bytes, at + 4, &self.length.to_le_bytes());
        put(bytes, at + 8, &self.previous.0.to_le_bytes());
    }
}

/// How many bytes of a block a record of `length` takes. Records begin at multiples of eight.
pub(crate) const fn record_space(length: usize) -> usize {
    RecordHead::BYTES + length.next_multiple_of(8)
}

/// The records of a verified block, in order.
///
/// Ends early, and says so by [`Records::whole`], where a record leaves the block: the checksum
/// matched, so this is a bug of the writer, and no reason to panic in a reader.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    block: &'a [u8],
    lsn: Lsn,
    at: usize,
}

impl<'a> Records<'a> {
    /// The records of the block at the beginning of `bytes`, which has this header.
    pub fn of(header: &BlockHeader, bytes: &'a [u8]) -> Self {
        let used = if header.kind == super::BlockKind::Records { header.used as usize } else { 0 };
        Self { block: &bytes[..used], lsn: header.lsn, at: BlockHeader::BYTES }
    }

    /// Whether everything that the block uses was read as records.
    pub fn whole(&self) -> bool {
        self.at >= self.block.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let rest = self.block.get(self.at..)?;
        if rest.len() < RecordHead::BYTES {
            return None;
        }
        let length = u32_at(rest, 4) as usize;
        let bytes = rest.get(RecordHead::BYTES..RecordHead::BYTES.checked_add(length)?)?;
        let record = Record {
            group: Group(u16_at(rest, 0)),
            kind: rest[2],
            begins: rest[3] & CHAIN_BEGINS != 0,
            previous: Lsn(u64_at(rest, 8)),
            lsn: Lsn(self.lsn.0 + self.at as u64),
            bytes,
        };
        self.at += record_space(length);
        Some(record)
    }
}
