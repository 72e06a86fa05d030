//! Which files there are, whose they are, and what their headers say.

use super::image::Image;
use super::{RecoverError, round_up};
use crate::files::{FileName, Files, SegmentName};
use crate::format::{BLOCK, BlockFault, BlockHeader, BlockKind, SegmentHeader};
use crate::writer::Leftover;
use crate::{Lsn, Owner};

/// What is read of each segment to find its header. In bytes.
const BEGINNING_BYTES: u64 = 1 << 20;

/// A segment's header as it was read.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) header: SegmentHeader,
    /// Place of the segment's first byte.
    pub(super) base: Lsn,
    /// Checksum of the block before the segment.
    pub(super) previous: u64,
    pub(super) checksum: u64,
    pub(super) acked_through: Lsn,
    /// Where the blocks begin in the file, in bytes.
    pub(super) blocks_at: u64,
}

/// A segment that was begun.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    pub(super) length: u64,
    /// None if both copies are unreadable though blocks prove that they were written.
    pub(super) head: Option<Head>,
}

/// The files of the log, in the order of their sequences.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) segments: Vec<Segment>,
    /// Files that hold nothing: spares, and segments whose header was never durable.
    pub(super) leftovers: Vec<Leftover>,
    pub(super) sequence_max: u64,
    pub(super) start_max: u64,
}

impl Inventory {
    pub(super) fn read(files: &impl Files, owner: Owner) -> Result<Self, RecoverError> {
        let mut listed = files.list()?;
        listed.sort_unstable();
        let mut found = Self::default();
        let mut image = Image::new();
        for (file, length) in listed {
            let FileName::Segment(name) = file else {
                let FileName::Spare(number) = file else { unreachable!("the other kind") };
                found.sequence_max = found.sequence_max.max(number);
                found.leftovers.push(Leftover { file, length, unnamed: true });
                continue;
            };
            if found.segments.last().is_some_and(|last| last.name.sequence == name.sequence) {
                return Err(RecoverError::Disordered { file });
            }
            found.sequence_max = found.sequence_max.max(name.sequence);
            found.start_max = found.start_max.max(name.start);
            if length == 0 || !length.is_multiple_of(BLOCK as u64) {
                // Its header knows better how long it was.
                let whole = length / BLOCK as u64 * BLOCK as u64;
                if whole > 0 {
                    image.load(files, name, whole.min(BEGINNING_BYTES))?;
                    head(&image, owner, name, length)?;
                }
                let expected = length.next_multiple_of(BLOCK as u64).max(BLOCK as u64);
                return Err(RecoverError::Truncated { file, length, expected });
            }
            // Only where no header is at the beginning has the whole file to be searched.
            image.load(files, name, length.min(BEGINNING_BYTES))?;
            let mut head = head(&image, owner, name, length)?;
            if head.is_none() {
                image.load(files, name, length)?;
                head = self::head(&image, owner, name, length)?;
            }
            if head.is_some() || image.blocks(owner, 0, None).next().is_some() {
                found.segments.push(Segment { name, length, head });
            } else {
                // A link may name it.
                found.leftovers.push(Leftover { file, length, unnamed: false });
            }
        }
        found.check()?;
        Ok(found)
    }

    /// A place above everything that may have been written.
    pub(super) fn free_base(&self) -> Lsn {
        let mut end = 0;
        for segment in &self.segments {
            end = segment.head.as_ref().map_or(end, |head| head.base.0) + segment.length;
        }
        round_up(end)
    }

    fn check(&self) -> Result<(), RecoverError> {
        let mut heads = self
            .segments
            .iter()
            .filter_map(|segment| segment.head.as_ref().map(|head| (head.base, segment.name)));
        let Some(mut before) = heads.next() else {
            // Without a block there was nothing to lose: the log is new, and its first header tore.
            return match self.segments.first() {
                Some(segment) => {
                    Err(RecoverError::Headless { file: FileName::Segment(segment.name) })
                }
                None => Ok(()),
            };
        };
        for next in heads {
            if next.0 <= before.0 || next.1.start < before.1.start {
                return Err(RecoverError::Disordered { file: FileName::Segment(next.1) });
            }
            before = next;
        }
        Ok(())
    }
}

/// The header of a segment, from whichever copy is readable. An error if it is another segment's.
fn head(
    image: &Image,
    owner: Owner,
    name: SegmentName,
    length: u64,
) -> Result<Option<Head>, RecoverError> {
    let file = FileName::Segment(name);
    let copies = copies(image, length);
    for &(offset, parsed) in &copies {
        let Ok((block, checksum)) = BlockHeader::verify(image.from(offset), name.salt) else {
            continue;
        };
        let Some(header) = SegmentHeader::read(&parsed, image.from(offset)) else { continue };
        if block.cluster != owner.cluster {
            return Err(RecoverError::WrongCluster { file, found: block.cluster });
        }
        if header.node != owner.node {
            let (found, expected) = (header.node, owner.node);
            return Err(RecoverError::WrongNode { file, found, expected });
        }
        if block.sequence != name.sequence || header.start != name.start {
            return Err(RecoverError::Misnamed { file, sequence: block.sequence });
        }
        if header.size != length {
            return Err(RecoverError::Truncated { file, length, expected: header.size });
        }
        return Ok(Some(Head {
            header,
            base: block.lsn,
            previous: block.previous,
            checksum,
            acked_through: block.acked_through,
            blocks_at: 2 * u64::from(block.length),
        }));
    }
    // Nobody's under this name. It may be sound under another.
    if let Some((0, block)) = copies.first() {
        let salt = SegmentHeader::salt_of(image.from(0));
        if BlockHeader::verify(image.from(0), salt).is_ok() {
            return Err(if block.cluster == owner.cluster {
                RecoverError::Misnamed { file, sequence: block.sequence }
            } else {
                RecoverError::WrongCluster { file, found: block.cluster }
            });
        }
    }
    match BlockHeader::parse(image.from(0)) {
        Err(BlockFault::Format(format)) => Err(RecoverError::Format { file, format }),
        _ => Ok(None),
    }
}

/// What looks like a header and stands where a copy would: at the beginning, or right behind that.
fn copies(image: &Image, length: u64) -> Vec<(u64, BlockHeader)> {
    let places = (0..=length / 2).step_by(BLOCK);
    let parsed = places.filter_map(|offset| {
        let block = BlockHeader::parse(image.from(offset)).ok()?;
        let placed = offset == 0 || offset == u64::from(block.length);
        (block.kind == BlockKind::Header && placed).then_some((offset, block))
    });
    parsed.collect()
}
