//! A segment's header: who wrote it, where the log was cut before it, and a table of the groups.

use super::{BLOCK, BlockHeader, TABLE_BYTES_MAX, put, u16_at, u32_at, u64_at};
use crate::{Group, Lsn};

const AT_NODE: usize = BlockHeader::BYTES;
const AT_ENTRIES: usize = AT_NODE + 4;
const AT_START: usize = AT_NODE + 8;
const AT_SALT: usize = AT_NODE + 16;
const AT_SIZE: usize = AT_NODE + 24;
const AT_FIRST: usize = AT_NODE + 32;
const AT_CUT: usize = AT_NODE + 40;

/// Bytes of a header block before its table.
pub(crate) const HEADER_FIXED_BYTES: usize = AT_CUT + 24;

/// Bytes of a table entry before what the group put there.
pub(crate) const ENTRY_BYTES: usize = 40;

/// Where an earlier start's log ends for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment that holds the last block.
    pub sequence: u64,
    /// End of the last block. Nothing behind it is ever read.
    pub lsn: Lsn,
    /// Checksum of the last block.
    pub checksum: u64,
}

/// A place where a file does not hold what was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Damage {
    /// Sequence of the segment.
    pub sequence: u64,
    /// Offset in its file, in bytes.
    pub offset: u64,
}

/// What a header tells of a group. It holds for everything before the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    pub group: Group,
    /// Place of the group's last record, or [`Lsn::NONE`].
    pub last: Lsn,
    /// The group needs no record before this.
    pub keep: Lsn,
    /// A record that the group needs was lost here, and the group has not begun anew since.
    pub damage: Option<Damage>,
    /// What the group wants to know before older segments are recycled. At most
    /// [`TABLE_BYTES_MAX`] bytes.
    pub bytes: Vec<u8>,
}

/// The contents of a block of kind [`Header`](super::BlockKind::Header).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub node: u32,
    pub start: u64,
    pub salt: u64,
    /// Length of the segment's file in bytes.
    pub size: u64,
    /// Whether it is the first segment of its start.
    pub first: bool,
    /// For the first segment of a start: where the log before it ends. None if there is none.
    pub cut: Option<Cut>,
    pub table: Vec<TableEntry>,
}

impl SegmentHeader {
    /// Length of a block that holds this table, in bytes.
    pub(crate) fn block_bytes(table: impl Iterator<Item = usize>) -> usize {
        let entries: usize = table.map(|length| ENTRY_BYTES + length.next_multiple_of(8)).sum();
        (HEADER_FIXED_BYTES + entries).next_multiple_of(BLOCK)
    }

    /// Writes everything but the table. `block` is zeroed.
    pub(crate) fn put_fixed(&self, block: &mut [u8], entries: usize) {
        put(block, AT_NODE, &self.node.to_le_bytes());
        put(block, AT_ENTRIES, &(entries as u32).to_le_bytes());
        put(block, AT_START, &self.start.to_le_bytes());
        put(block, AT_SALT, &self.salt.to_le_bytes());
        put(block, AT_SIZE, &self.size.to_le_bytes());
        block[AT_FIRST] = u8::from(self.first);
        if let Some(cut) = self.cut {
            put(block, AT_CUT, &cut.sequence.to_le_bytes());
            put(block, AT_CUT + 8, &cut.lsn.0.to_le_bytes());
            put(block, AT_CUT + 16, &cut.checksum.to_le_bytes());
        }
    }

    /// The salt that the header itself names, before anything was verified.
    pub(crate) fn salt_of(block: &[u8]) -> u64 {
        u64_at(block, AT_SALT)
    }

    /// Reads the contents of a verified header block. None if a field is out of range.
    pub fn read(header: &BlockHeader, block: &[u8]) -> Option<Self> {
        let used = block.get(..header.used as usize)?;
        if used.len() < HEADER_FIXED_BYTES {
            return None;
        }
        let cut = Cut {
            sequence: u64_at(used, AT_CUT),
            lsn: Lsn(u64_at(used, AT_CUT + 8)),
            checksum: u64_at(used, AT_CUT + 16),
        };
        let mut table = Vec::new();
        let mut at = HEADER_FIXED_BYTES;
        for _ in 0..u32_at(used, AT_ENTRIES) {
            let (entry, end) = TableEntry::read(used, at)?;
            table.push(entry);
            at = end;
        }
        Some(Self {
            node: u32_at(used, AT_NODE),
            start: u64_at(used, AT_START),
            salt: Self::salt_of(used),
            size: u64_at(used, AT_SIZE),
            first: used[AT_FIRST] != 0,
            cut: (cut.sequence != 0).then_some(cut),
            table,
        })
    }
}

impl TableEntry {
    /// Writes an entry at `at` and returns where it ends.
    pub(crate) fn put(
        block: &mut [u8],
        at: usize,
        (group, last, keep, damage): (Group, Lsn, Lsn, Option<Damage>),
        bytes: &[u8],
    ) -> usize {
        put(block, at, &group.0.to_le_bytes());
        put(block, at + 2, &(bytes.len() as u16).to_le_bytes());
        put(block, at + 8, &last.0.to_le_bytes());
        put(block, at + 16, &keep.0.to_le_bytes());
        let (sequence, offset) = damage.map_or((0, 0), |damage| (damage.sequence, damage.offset));
        put(block, at + 24, &sequence.to_le_bytes());
        put(block, at + 32, &offset.to_le_bytes());
        put(block, at + ENTRY_BYTES, bytes);
        at + ENTRY_BYTES + bytes.len().next_multiple_of(8)
    }

    fn read(used: &[u8], at: usize) -> Option<(Self, usize)> {
        let entry = used.get(at..at + ENTRY_BYTES)?;
        let length = usize::from(u16_at(entry, 2));
        let bytes = used.get(at + ENTRY_BYTES..at + ENTRY_BYTES + length)?;
        let damage = Damage { sequence: u64_at(entry, 24), offset: u64_at(entry, 32) };
        if length > TABLE_BYTES_MAX {
            return None;
        }
        let entry = Self {
            group: Group(u16_at(entry, 0)),
            last: Lsn(u64_at(entry, 8)),
            keep: Lsn(u64_at(entry, 16)),
            damage: (damage.sequence != 0).then_some(damage),
            bytes: bytes.to_vec(),
        };
        Some((entry, at + ENTRY_BYTES + length.next_multiple_of(8)))
    }
}
