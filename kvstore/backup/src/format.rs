//! A run's bytes: a header, chunks of records, and an empty chunk at the end.
//!
//! ```text
//! header                                    chunk
//!  0 checksum  of the rest of it             0 checksum  of the rest of it
//!  8 magic     "SKEINBAK"                    8 length    of its records in bytes, u32
//! 16 format    1, u16                       12 count     of its records, u32
//! 18 group     u16                          16 records
//! 20 run       its number, u32
//! 24 backup    16 bytes
//! ```
//!
//! Checksums are xxh3-64. A chunk's is seeded with the checksum before it in the file, so the last one depends on all
//! bytes of the file and on their places. Numbers are little-endian.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Version of the format.
pub(crate) const FORMAT: u16 = 1;
pub(crate) const HEADER: usize = 40;
pub(crate) const CHUNK_HEAD: usize = 16;
/// A chunk is closed when its records have this many bytes.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// The longest chunk: one record of the longest key and value that any configuration allows.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 30;
const MAGIC: &[u8; 8] = b"SKEINBAK";

/// The identity of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) group: u16,
    pub(crate) run: u32,
    pub(crate) backup: [u8; 16],
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[8..16].copy_from_slice(MAGIC);
        bytes[16..18].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.group.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.run.to_le_bytes());
        bytes[24..].copy_from_slice(&self.backup);
        let checksum = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header, and its checksum, which seeds that of the first chunk.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<(Self, u64), NotRead> {
        let (checksum, rest) = bytes.split_first_chunk().expect("a header is longer");
        let checksum = u64::from_le_bytes(*checksum);
        if rest[..8] != MAGIC[..] {
            return Err(NotRead::Another);
        }
        let format = u16::from_le_bytes([rest[8], rest[9]]);
        if format > FORMAT {
            return Err(NotRead::Newer(format));
        }
        if checksum != xxh3_64(rest) {
            return Err(NotRead::Checksum);
        }
        let mut backup = [0; 16];
        backup.copy_from_slice(&rest[16..]);
        let group = u16::from_le_bytes([rest[10], rest[11]]);
        let run = u32::from_le_bytes([rest[12], rest[13], rest[14], rest[15]]);
        Ok((Self { group, run, backup }, checksum))
    }
}

/// Why a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// It is no run.
    Another,
    Newer(u16),
    Checksum,
}

/// Completes a chunk whose head was left free in front of its records. Returns its checksum.
pub(crate) fn seal(chunk: &mut [u8], count: u32, before: u64) -> u64 {
    let len = (chunk.len() - CHUNK_HEAD) as u32;
    chunk[8..12].copy_from_slice(&len.to_le_bytes());
    chunk[12..16].copy_from_slice(&count.to_le_bytes());
    let checksum = xxh3_64_with_seed(&chunk[8..], before);
    chunk[..8].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// The head of a chunk: checksum, length and count.
pub(crate) fn head(bytes: [u8; CHUNK_HEAD]) -> (u64, usize, u32) {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let checksum = u64::from(word(0)) | u64::from(word(4)) << 32;
    (checksum, word(8) as usize, word(12))
}

/// Whether a chunk has the checksum that its head says.
pub(crate) fn is_sound(chunk: &[u8], checksum: u64, before: u64) -> bool {
    xxh3_64_with_seed(&chunk[8..], before) == checksum
}

/// The name of a run's file.
pub(crate) fn file_name(group: u16, run: u32) -> String {
    format!("group-{group}.run-{run}")
}

/// Whether this is the name of a run's file.
pub(crate) fn is_run(name: &str) -> bool {
    let parts = name.strip_prefix("group-").and_then(|rest| rest.split_once(".run-"));
    parts.is_some_and(|(group, run)| group.parse::<u16>().is_ok() && run.parse::<u32>().is_ok())
}
