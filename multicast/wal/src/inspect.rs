//! A segment's file, looked at by itself: what it holds, where it ends, and what of it is damaged.
//!
//! One file proves less than a log does. [`Recovery`](crate::Recovery) reads all files of a directory, and may know that
//! a block was durable of which this file alone cannot tell.

use std::fmt;

use crate::Lsn;
use crate::files::SegmentName;
use crate::format::{
    BLOCK, BlockFault, BlockHeader, BlockKind, FORMAT, FORMAT_OLDEST, Records, SegmentHeader,
};

/// Why a file cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    #[error("it is empty: 0 bytes")]
    Empty,
    #[error("it is not a segment of a log: no header is at its beginning")]
    NotSegment,
    #[error(
        "it has format {0}, and this version reads {FORMAT_OLDEST} to {FORMAT}: inspect it with the version that wrote it"
    )]
    Format(u16),
    /// The name is a segment's, and nothing was written to it yet.
    #[error("it was prepared to be the next segment, and nothing was written to it")]
    Unbegun,
    #[error("both copies of its header are damaged, and {blocks} blocks are behind them")]
    Headless {
        /// Sound blocks of a segment of this name.
        blocks: usize,
    },
}

/// A block that is sound, and stands where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Offset in the file, in bytes.
    pub offset: u64,
    pub header: BlockHeader,
    /// It does not follow a sound block: something in front of it is torn or damaged.
    pub detached: bool,
}

/// Where the blocks of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last block names the segment in which the log goes on.
    Linked { offset: u64, sequence: u64 },
    /// Nothing of this segment stands behind the last block.
    Open { offset: u64 },
    /// A write did not reach the disk as a whole. Nobody was told of it: a start cuts the log here.
    Torn { offset: u64 },
}

/// A place at which the file is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One copy of the header is damaged.
    HeaderCopy { offset: u64 },
    /// The file is not as long as its header says.
    Length { expected: u64 },
    /// The header is that of another segment.
    Misnamed { sequence: u64 },
    /// What stood here was durable: a later block says so.
    Lost { offset: u64 },
    /// A record leaves its block, though the checksum is right: a defect of the program that wrote it.
    Record { offset: u64 },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderCopy { offset } => {
                write!(f, "the copy of the header at {offset} is damaged; the other one is whole")
            }
            Self::Length { expected } => {
                write!(f, "the file should be {expected} bytes long: it was cut short or extended")
            }
            Self::Misnamed { sequence } => {
                write!(
                    f,
                    "it is segment {sequence:016x} under another's name: files were swapped or copied"
                )
            }
            Self::Lost { offset } => write!(f, "what stood at {offset} was durable, and is lost"),
            Self::Record { offset } => write!(
                f,
                "a record of the block at {offset} is longer than the block: the program that wrote it has a defect"
            ),
        }
    }
}

/// A segment's file, read and verified.
#[derive(Debug)]
pub struct Segment<'a> {
    bytes: &'a [u8],
    /// The block that holds the header.
    pub block: BlockHeader,
    pub header: SegmentHeader,
    /// The sound blocks behind the header, in the order of the file.
    pub blocks: Vec<Placed>,
    /// Number of records in them.
    pub records: usize,
    pub end: End,
    pub faults: Vec<Fault>,
}

impl<'a> Segment<'a> {
    /// Reads and verifies a segment. A file that was renamed has no `name`, and its header is believed.
    ///
    /// # Errors
    /// If it is not a segment, or has no header by which its blocks could be read.
    pub fn read(bytes: &'a [u8], name: Option<SegmentName>) -> Result<Self, InspectError> {
        if bytes.is_empty() {
            return Err(InspectError::Empty);
        }
        let Some((at, block, checksum, header)) = header(bytes) else {
            return Err(without_header(bytes, name));
        };
        let mut faults = Vec::new();
        let other = |named: SegmentName| {
            (named.sequence, named.start, named.salt) != (block.sequence, header.start, header.salt)
        };
        let misnamed = name.is_some_and(other);
        if misnamed && at != 0 {
            // A segment that is recycled has its first block zeroed, and keeps the rest of the former one.
            return Err(without_header(bytes, name));
        }
        if misnamed {
            faults.push(Fault::Misnamed { sequence: block.sequence });
        }
        if header.size != bytes.len() as u64 {
            faults.push(Fault::Length { expected: header.size });
        }
        let mut found = Self {
            bytes,
            block,
            header,
            blocks: Vec::new(),
            records: 0,
            end: End::Open { offset: 2 * u64::from(block.length) },
            faults,
        };
        found.walk(checksum);
        let copy = if at == 0 { u64::from(block.length) } else { 0 };
        let whole = BlockHeader::verify(found.from(copy), found.header.salt).is_ok();
        // Without a block behind it, the header itself may be what tore.
        if !whole && !found.blocks.is_empty() {
            found.faults.push(Fault::HeaderCopy { offset: copy });
        }
        Ok(found)
    }

    /// The place of the segment's first byte.
    pub fn base(&self) -> Lsn {
        self.block.lsn
    }

    /// The records of a block of this segment.
    pub fn records_of(&self, block: &Placed) -> Records<'a> {
        Records::of(&block.header, self.from(block.offset))
    }

    fn from(&self, offset: u64) -> &'a [u8] {
        self.bytes.get(offset as usize..).unwrap_or_default()
    }

    /// The sound block at an offset that belongs there, and its checksum.
    fn block_at(&self, offset: u64) -> Option<(BlockHeader, u64)> {
        let found = BlockHeader::verify(self.from(offset), self.header.salt).ok();
        found.filter(|(block, _)| block.lsn.0 == self.base().0 + offset)
    }

    /// Walks over the blocks, and decides of each gap whether it tore or is damaged.
    fn walk(&mut self, header_checksum: u64) {
        let mut offset = 2 * u64::from(self.block.length);
        let (mut previous, mut gaps, mut linked) = (Some(header_checksum), Vec::new(), None);
        while offset < self.bytes.len() as u64 && linked.is_none() {
            let Some((header, checksum)) = self.block_at(offset) else {
                if previous.take().is_some() {
                    gaps.push(offset);
                }
                offset += BLOCK as u64;
                continue;
            };
            let follows = previous == Some(header.previous);
            if previous.is_some() && !follows {
                gaps.push(offset);
            }
            let block = Placed { offset, header, detached: !follows };
            let mut records = self.records_of(&block);
            self.records += records.by_ref().count();
            if !records.whole() {
                self.faults.push(Fault::Record { offset });
            }
            self.blocks.push(block);
            previous = Some(checksum);
            offset += u64::from(header.length);
            if let BlockKind::Link { sequence, .. } = header.kind {
                linked = Some(End::Linked { offset, sequence });
            }
        }
        let mut end = linked.unwrap_or(End::Open { offset });
        for gap in gaps {
            let mut behind = self.blocks.iter().skip_while(|block| block.offset < gap).peekable();
            let blocks = behind.peek().is_some();
            let place = self.base().0 + gap;
            if behind.any(|block| block.header.acked_through.0 > place) {
                self.faults.push(Fault::Lost { offset: gap });
                continue;
            }
            let torn = blocks || self.begins_block(gap);
            end = if torn { End::Torn { offset: gap } } else { End::Open { offset: gap } };
            break;
        }
        self.end = end;
    }

    /// Whether a block of this segment was begun here, and is not whole.
    fn begins_block(&self, offset: u64) -> bool {
        BlockHeader::parse(self.from(offset)).is_ok_and(|block| {
            block.sequence == self.block.sequence && block.lsn.0 == self.base().0 + offset
        })
    }
}

/// The header from whichever copy is sound: the copy's offset, its block with the checksum, and what it says.
fn header(bytes: &[u8]) -> Option<(usize, BlockHeader, u64, SegmentHeader)> {
    (0..=bytes.len() / 2).step_by(BLOCK).find_map(|offset| {
        let copy = &bytes[offset..];
        let block = BlockHeader::parse(copy).ok()?;
        let placed = offset == 0 || offset == block.length as usize;
        if block.kind != BlockKind::Header || !placed {
            return None;
        }
        let (block, checksum) = BlockHeader::verify(copy, SegmentHeader::salt_of(copy)).ok()?;
        Some((offset, block, checksum, SegmentHeader::read(&block, copy)?))
    })
}

/// What a file is in which no copy of a header is sound.
fn without_header(bytes: &[u8], name: Option<SegmentName>) -> InspectError {
    if let Err(BlockFault::Format(format)) = BlockHeader::parse(bytes) {
        return InspectError::Format(format);
    }
    let Some(name) = name else { return InspectError::NotSegment };
    let sound = (0..bytes.len()).step_by(BLOCK).filter(|&offset| {
        let block = BlockHeader::verify(&bytes[offset..], name.salt);
        block.is_ok_and(|(block, _)| block.sequence == name.sequence)
    });
    match sound.count() {
        0 => InspectError::Unbegun,
        blocks => InspectError::Headless { blocks },
    }
}
