//! Shows a segment's file to a person, and verifies it.

use std::fmt;
use std::io::{self, Read};

use crate::format::{BLOCK, BlockFault, BlockHeader, BlockKind, Records, SegmentHeader};

/// Why a file could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("cannot read the file")]
    Read(#[from] io::Error),
    #[error("cannot print")]
    Print(#[from] fmt::Error),
    #[error("no segment: it has no readable header")]
    NoHeader,
    #[error(transparent)]
    Format(BlockFault),
}

/// What was found in a segment's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Blocks that follow each other from the header on.
    pub blocks: usize,
    pub records: usize,
    /// Bytes of the file up to the end of the last of them.
    pub end: u64,
    /// Sound blocks behind that: behind a tear or a damage.
    pub detached: usize,
}

/// Prints the file, a line for the segment, each group, block and record, and verifies every block.
///
/// Only the file's own header is believed: whether it is the right file under this name, and where a later
/// start cut it, is not known here.
pub fn inspect(mut file: impl Read, out: &mut impl fmt::Write) -> Result<Inspection, InspectError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let (mut offset, block, checksum, header) = header(&bytes)?;
    writeln!(
        out,
        "segment {:016x} of start {}, node {}, cluster {:032x}, {} bytes at LSN {}",
        block.sequence,
        header.start,
        header.node,
        u128::from_be_bytes(block.cluster),
        header.size,
        block.lsn
    )?;
    if header.size != bytes.len() as u64 {
        writeln!(out, "the file has {} bytes", bytes.len())?;
    }
    if let Some(cut) = header.cut {
        writeln!(
            out,
            "the log before it ends in segment {:016x} at LSN {}",
            cut.sequence, cut.lsn
        )?;
    }
    for entry in &header.table {
        write!(out, "{}: last {}, keep from {}", entry.group, entry.last, entry.keep)?;
        if let Some(damage) = entry.damage {
            write!(out, ", damaged in {:016x} at {}", damage.sequence, damage.offset)?;
        }
        writeln!(out, ", table {}", hex(&entry.bytes))?;
    }
    let base = block.lsn.0;
    let mut found = Inspection { end: offset, ..Inspection::default() };
    let mut previous = Some(checksum);
    while offset < bytes.len() as u64 {
        let here = &bytes[offset as usize..];
        let block = BlockHeader::verify(here, header.salt).ok();
        let placed = |block: &BlockHeader| block.lsn.0 == base + offset;
        let Some((block, checksum)) = block.filter(|(block, _)| placed(block)) else {
            previous = None;
            offset += BLOCK as u64;
            continue;
        };
        if previous == Some(block.previous) {
            previous = Some(checksum);
            found.blocks += 1;
            found.end = offset + u64::from(block.length);
        } else {
            write!(out, "DETACHED ")?;
            previous = None;
            found.detached += 1;
        }
        found.records += show(out, offset, &block, here)?;
        offset += u64::from(block.length);
    }
    writeln!(out, "{} blocks to {}, {} detached", found.blocks, found.end, found.detached)?;
    Ok(found)
}

/// The header from whichever copy is sound, and where the blocks begin.
fn header(bytes: &[u8]) -> Result<(u64, BlockHeader, u64, SegmentHeader), InspectError> {
    for offset in (0..=bytes.len() / 2).step_by(BLOCK) {
        let copy = &bytes[offset.min(bytes.len())..];
        let block = match BlockHeader::parse(copy) {
            Ok(block) => block,
            Err(fault @ BlockFault::Format(_)) if offset == 0 => {
                return Err(InspectError::Format(fault));
            }
            Err(_) => continue,
        };
        if block.kind != BlockKind::Header || (offset != 0 && offset != block.length as usize) {
            continue;
        }
        let Ok((_, checksum)) = BlockHeader::verify(copy, SegmentHeader::salt_of(copy)) else {
            continue;
        };
        if let Some(header) = SegmentHeader::read(&block, copy) {
            return Ok((2 * u64::from(block.length), block, checksum, header));
        }
    }
    Err(InspectError::NoHeader)
}

/// Prints a block and returns how many records it has.
fn show(
    out: &mut impl fmt::Write,
    offset: u64,
    block: &BlockHeader,
    bytes: &[u8],
) -> Result<usize, fmt::Error> {
    let (lsn, acked, length) = (block.lsn, block.acked_through, block.length);
    write!(out, "{offset:>9}: LSN {lsn}, {length} bytes, durable to {acked}")?;
    match block.kind {
        BlockKind::Link { sequence, .. } => writeln!(out, ", last; next is {sequence:016x}")?,
        BlockKind::Seal => writeln!(out, ", seal")?,
        BlockKind::Header | BlockKind::Records => writeln!(out)?,
    }
    let mut records = Records::of(block, bytes);
    let mut count = 0;
    for record in records.by_ref() {
        count += 1;
        let begins = if record.begins { ", begins" } else { "" };
        writeln!(
            out,
            "           {} {} kind {} after {}{begins}: {}",
            record.lsn,
            record.group,
            record.kind,
            record.previous,
            hex(record.bytes)
        )?;
    }
    if !records.whole() {
        writeln!(out, "           a record leaves the block")?;
    }
    Ok(count)
}

/// At most the first sixteen bytes, and how many there are.
fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::new();
    for byte in bytes.iter().take(16) {
        write!(text, "{byte:02x}").expect("strings take everything");
    }
    if bytes.len() > 16 {
        write!(text, "… ({} bytes)", bytes.len()).expect("strings take everything");
    }
    text
}
