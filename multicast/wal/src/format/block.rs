//! A block: what is written by one write, and verified as a whole.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{BLOCK, FORMAT, FORMAT_OLDEST, put, u16_at, u32_at, u64_at};
use crate::Lsn;

const MAGIC: u32 = u32::from_le_bytes(*b"SKWB");

const AT_MAGIC: usize = 8;
const AT_FORMAT: usize = 12;
const AT_KIND: usize = 14;
const AT_CLUSTER: usize = 16;
const AT_SEQUENCE: usize = 32;
const AT_LSN: usize = 40;
const AT_PREVIOUS: usize = 48;
const AT_ACKED: usize = 56;
const AT_LENGTH: usize = 64;
const AT_USED: usize = 68;
const AT_SUCCESSOR: usize = 72;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The segment's header with the table of groups. It stands twice at the segment's beginning.
    Header,
    /// Records.
    Records,
    /// Nothing but its own header: it tells how much was durable when the log fell idle.
    Seal,
    /// The segment's last block: it names the successor by sequence and salt.
    Link { sequence: u64, salt: u64 },
}

/// The first [`BlockHeader::BYTES`] of a block, except the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub kind: BlockKind,
    pub cluster: [u8; 16],
    /// Sequence of the segment.
    pub sequence: u64,
    /// Place of the block: the segment's base plus the block's offset in the file.
    pub lsn: Lsn,
    /// Checksum of the block before it in the log.
    pub previous: u64,
    /// End of the contiguous durable prefix when the block was formed. `acked_through <= lsn`.
    pub acked_through: Lsn,
    /// Length of the block in bytes, a multiple of [`BLOCK`].
    pub length: u32,
    /// End of what is used of it, in bytes; zeroes follow. `BYTES <= used <= length`.
    pub used: u32,
}

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    #[error("no block begins here")]
    NoBlock,
    #[error("the format is {0}, and this version reads {FORMAT_OLDEST} to {FORMAT}")]
    Format(u16),
    #[error("a field is out of range")]
    Field,
    #[error("the checksum does not match")]
    Checksum,
}

impl BlockHeader {
    /// Length of a block's header in bytes. Records begin here, at a multiple of eight.
    pub const BYTES: usize = 88;

    /// Writes the header over the first bytes of `block`, whose other bytes are final, and returns the
    /// checksum. `block` is as long as the header says.
    pub(crate) fn seal(&self, block: &mut [u8], salt: u64) -> u64 {
        assert_eq!(block.len(), self.length as usize);
        let (kind, sequence, successor_salt) = match self.kind {
            BlockKind::Header => (1_u16, 0, 0),
            BlockKind::Records => (2, 0, 0),
            BlockKind::Seal => (3, 0, 0),
            BlockKind::Link { sequence, salt } => (4, sequence, salt),
        };
        put(block, AT_MAGIC, &MAGIC.to_le_bytes());
        put(block, AT_FORMAT, &FORMAT.to_le_bytes());
        put(block, AT_KIND, &kind.to_le_bytes());
        put(block, AT_CLUSTER, &self.cluster);
        put(block, AT_SEQUENCE, &self.sequence.to_le_bytes());
        put(block, AT_LSN, &self.lsn.0.to_le_bytes());
        put(block, AT_PREVIOUS, &self.previous.to_le_bytes());
        put(block, AT_ACKED, &self.acked_through.0.to_le_bytes());
        put(block, AT_LENGTH, &self.length.to_le_bytes());
        put(block, AT_USED, &self.used.to_le_bytes());
        put(block, AT_SUCCESSOR, &sequence.to_le_bytes());
        put(block, AT_SUCCESSOR + 8, &successor_salt.to_le_bytes());
        let checksum = xxh3_64_with_seed(&block[AT_MAGIC..], salt);
        put(block, 0, &checksum.to_le_bytes());
        checksum
    }

    /// Reads a header without verifying the checksum. Cheap where there is no block.
    pub fn parse(bytes: &[u8]) -> Result<Self, BlockFault> {
        if bytes.len() < BLOCK || u32_at(bytes, AT_MAGIC) != MAGIC {
            return Err(BlockFault::NoBlock);
        }
        let format = u16_at(bytes, AT_FORMAT);
        if !(FORMAT_OLDEST..=FORMAT).contains(&format) {
            return Err(BlockFault::Format(format));
        }
        let kind = match u16_at(bytes, AT_KIND) {
            1 => BlockKind::Header,
            2 => BlockKind::Records,
            3 => BlockKind::Seal,
            4 => BlockKind::Link {
                sequence: u64_at(bytes, AT_SUCCESSOR),
                salt: u64_at(bytes, AT_SUCCESSOR + 8),
            },
            _ => return Err(BlockFault::Field),
        };
        let header = Self {
            kind,
            cluster: bytes[AT_CLUSTER..AT_CLUSTER + 16].try_into().expect("sixteen bytes"),
            sequence: u64_at(bytes, AT_SEQUENCE),
            lsn: Lsn(u64_at(bytes, AT_LSN)),
            previous: u64_at(bytes, AT_PREVIOUS),
            acked_through: Lsn(u64_at(bytes, AT_ACKED)),
            length: u32_at(bytes, AT_LENGTH),
            used: u32_at(bytes, AT_USED),
        };
        let whole = (header.length as usize).is_multiple_of(BLOCK);
        if !whole || (header.used as usize) < Self::BYTES || header.used > header.length {
            return Err(BlockFault::Field);
        }
        Ok(header)
    }

    /// Reads the block at the beginning of `bytes` and verifies it. Returns its checksum too.
    pub fn verify(bytes: &[u8], salt: u64) -> Result<(Self, u64), BlockFault> {
        let header = Self::parse(bytes)?;
        let block = bytes.get(..header.length as usize).ok_or(BlockFault::Field)?;
        let checksum = xxh3_64_with_seed(&block[AT_MAGIC..], salt);
        if u64_at(block, 0) != checksum {
            return Err(BlockFault::Checksum);
        }
        Ok((header, checksum))
    }

    /// The LSN at which the block ends.
    pub fn end(&self) -> Lsn {
        Lsn(self.lsn.0.saturating_add(u64::from(self.length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> (BlockHeader, Vec<u8>) {
        let header = BlockHeader {
            kind: BlockKind::Link { sequence: 9, salt: 10 },
            cluster: [7; 16],
            sequence: 8,
            lsn: Lsn(3 << 12),
            previous: 5,
            acked_through: Lsn(2 << 12),
            length: 8192,
            used: 4100,
        };
        let mut bytes = vec![1; 8192];
        header.seal(&mut bytes, 42);
        (header, bytes)
    }

    #[test]
    fn every_bit_of_a_block_is_covered_by_its_checksum_and_its_salt() {
        let (header, mut bytes) = block();
        assert_eq!(BlockHeader::verify(&bytes, 42).unwrap().0, header);
        assert_eq!(BlockHeader::verify(&bytes, 43), Err(BlockFault::Checksum));
        assert_eq!(BlockHeader::verify(&bytes[..4096], 42), Err(BlockFault::Field), "cut short");
        for bit in (0..bytes.len() * 8).step_by(3).chain(0..BlockHeader::BYTES * 8) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockHeader::verify(&bytes, 42).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let (_, mut bytes) = block();
        put(&mut bytes, AT_FORMAT, &(FORMAT + 1).to_le_bytes());
        assert_eq!(BlockHeader::verify(&bytes, 42), Err(BlockFault::Format(FORMAT + 1)));
    }

    /// Lengths are read before the checksum is known to be right, and must not lead out of the bytes.
    #[test]
    fn fields_out_of_range_are_no_block() {
        #[rustfmt::skip]
        let cases = [
            // length  used   because
            (0,        88,    "no block has no bytes"),
            (4,        88,    "shorter than the checksum"),
            (4100,     88,    "not whole blocks"),
            (12288,    88,    "longer than what is there"),
            (4096,     87,    "the header is not used"),
            (4096,     4097,  "more is used than is there"),
        ];
        for (length, used, because) in cases {
            let (_, mut bytes) = block();
            put(&mut bytes, AT_LENGTH, &u32::to_le_bytes(length));
            put(&mut bytes, AT_USED, &u32::to_le_bytes(used));
            assert_eq!(BlockHeader::verify(&bytes, 42), Err(BlockFault::Field), "{because}");
        }
    }
}
