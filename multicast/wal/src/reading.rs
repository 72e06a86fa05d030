//! Reading the log beside its being written: the records of the present start, from some segment on.
//!
//! What lies below the durable end stays as it is until nobody needs its segment, and then its file may be written over
//! at any time. So no block is taken on trust: it counts if it stands at its place in the segment that was named, has the
//! checksum that the segment's salt gives, and follows the block before it. Whatever else is found there is [`Gone`].
//!
//! A file that is prepared for a later segment disturbs nobody: until its header is durable, it is not begun.

use std::sync::Arc;

use crate::aligned::Aligned;
use crate::files::{FileError, FileName, Files, SegmentName};
use crate::format::{BLOCK, BlockHeader, BlockKind, Record, Records, SegmentHeader};
use crate::{Lsn, Owner};

/// Bytes that are read at once, unless a block is longer.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of a segment in which a record is looked for that tells whether the segment is old.
const LOOK_BYTES: u64 = 4 << 20;

/// How far a reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is there.
    More,
    /// Everything below the end was handed out.
    End,
}

/// The next block is not there any more, or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log cannot be read at {at}: its segment is used again, or damaged")]
pub struct Gone {
    /// Where a block ought to begin.
    pub at: Lsn,
}

/// The place of the next block.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    segment: SegmentName,
    /// Length of its file in bytes.
    length: u64,
    /// Place of its first byte.
    base: Lsn,
    /// Offset of the block in bytes. At 0 stands the header.
    offset: u64,
    /// Checksum of the block before it in the log.
    previous: u64,
}

impl Cursor {
    fn lsn(&self) -> Lsn {
        Lsn(self.base.0.saturating_add(self.offset))
    }
}

/// The segments of a start, and the bytes of one of them that were read last.
#[derive(Debug)]
struct Segments<F> {
    files: Arc<F>,
    owner: Owner,
    start: u64,
    buffer: Aligned,
    /// What the buffer holds: so many bytes of a segment from an offset on.
    held: Option<(SegmentName, u64, u64)>,
}

impl<F: Files> Segments<F> {
    /// The files of the start and their lengths in bytes, the oldest first, without those that are no whole blocks.
    fn list(&self) -> Result<Vec<(SegmentName, u64)>, FileError> {
        let whole = |length: u64| length > 0 && length.is_multiple_of(BLOCK as u64);
        let listed = self.files.list()?.into_iter();
        let mut found: Vec<_> = listed
            .filter_map(|(file, length)| match file {
                FileName::Segment(name) if name.start == self.start => Some((name, length)),
                FileName::Segment(_) | FileName::Spare(_) => None,
            })
            .filter(|&(_, length)| whole(length))
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    /// At least `least` bytes from the cursor on, and none at or above `end`. None if they cannot be read.
    fn bytes(&mut self, at: &Cursor, least: u64, end: Lsn) -> Option<&[u8]> {
        let limit = end.0.checked_sub(at.base.0)?.min(at.length);
        let room = limit.checked_sub(at.offset).filter(|room| *room >= least)?;
        let holds = |&(segment, from, length): &(SegmentName, u64, u64)| {
            segment == at.segment && at.offset >= from && at.offset + least <= from + length
        };
        if !self.held.as_ref().is_some_and(holds) {
            self.held = None;
            let length = room.min(PIECE_BYTES.max(least));
            if self.buffer.capacity() < length as usize {
                self.buffer = Aligned::new(length as usize);
            }
            let into = &mut self.buffer.bytes_mut()[..length as usize];
            self.files.read(FileName::Segment(at.segment), at.offset, into).ok()?;
            self.held = Some((at.segment, at.offset, length));
        }
        let (_, from, length) = self.held?;
        Some(&self.buffer.bytes()[(at.offset - from) as usize..length as usize])
    }

    /// Where a segment begins, as its first block says, which is to be verified yet.
    fn locate(&mut self, (segment, length): (SegmentName, u64)) -> Option<Cursor> {
        self.held = None;
        let block = &mut self.buffer.bytes_mut()[..BLOCK];
        self.files.read(FileName::Segment(segment), 0, block).ok()?;
        let header = BlockHeader::parse(block).ok()?;
        let (base, previous) = (header.lsn, header.previous);
        Some(Cursor { segment, length, base, offset: 0, previous })
    }

    /// Hands out the records of the block at the cursor, and returns the place of the next one.
    fn step(
        &mut self,
        at: Cursor,
        end: Lsn,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> Result<Cursor, Gone> {
        self.block(&at, end, visit).ok_or(Gone { at: at.lsn() })
    }

    fn block(
        &mut self,
        at: &Cursor,
        end: Lsn,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> Option<Cursor> {
        let (cluster, start, name) = (self.owner.cluster, self.start, at.segment);
        let claimed = BlockHeader::parse(self.bytes(at, BLOCK as u64, end)?).ok()?;
        // The fields first: what does not claim to be this block may say any length.
        let placed = (claimed.sequence, claimed.lsn) == (name.sequence, at.lsn());
        let follows = claimed.previous == at.previous;
        if !placed || !follows || claimed.cluster != cluster {
            return None;
        }
        let bytes = self.bytes(at, u64::from(claimed.length), end)?;
        let (block, checksum) = BlockHeader::verify(bytes, name.salt).ok()?;
        let length = u64::from(block.length);
        let next = Cursor { offset: at.offset + length, previous: checksum, ..*at };
        match block.kind {
            BlockKind::Header => {
                let header = SegmentHeader::read(&block, bytes)?;
                let ours = (header.node, header.start) == (self.owner.node, start);
                let whole = header.size == at.length && at.offset == 0;
                // Its copy stands behind it.
                (ours && whole).then_some(Cursor { offset: 2 * length, ..next })
            }
            _ if at.offset == 0 => None,
            BlockKind::Records => {
                let mut records = Records::of(&block, bytes);
                records.by_ref().for_each(|record| visit(&record));
                records.whole().then_some(next)
            }
            BlockKind::Seal => Some(next),
            BlockKind::Link { sequence, salt } => {
                let segment = SegmentName { sequence, start, salt };
                let listed = self.list().ok()?;
                let (_, length) = listed.into_iter().find(|(name, _)| *name == segment)?;
                Some(Cursor { segment, length, base: next.lsn(), offset: 0, previous: checksum })
            }
        }
    }

    /// Whether a segment, whose first block stands at the cursor, is old, if its first records tell.
    fn look(
        &mut self,
        mut at: Cursor,
        end: Lsn,
        is_old: &mut impl FnMut(&Record<'_>) -> Option<bool>,
    ) -> Result<Option<bool>, Gone> {
        let (segment, mut old) = (at.segment, None);
        while old.is_none() && at.segment == segment && at.offset < LOOK_BYTES && at.lsn() < end {
            at = self.step(at, end, &mut |record| {
                if old.is_none() {
                    old = is_old(record);
                }
            })?;
        }
        Ok(old)
    }
}

/// A walk over the blocks that the present start of a log has written, while it writes more.
///
/// It keeps no segment from being used again. It holds about a mebibyte of memory, or as much as the longest block takes.
#[derive(Debug)]
pub struct Reading<F> {
    segments: Segments<F>,
    at: Cursor,
}

impl<F: Files> Reading<F> {
    /// Begins to read what the start of this number has written below `end`, a [durable end](crate::Writer::durable) of
    /// it.
    ///
    /// `is_old` is told the first records of each segment, in their order, the newest segment first. Of a record that
    /// tells it, it says whether what is wanted may stand behind that record. The reading begins one segment in front of
    /// the newest that begins with an old record, or else with the oldest segment that can be read.
    ///
    /// # Errors
    /// If no segment of the start can be read.
    pub fn begin(
        files: Arc<F>,
        owner: Owner,
        start: u64,
        end: Lsn,
        mut is_old: impl FnMut(&Record<'_>) -> Option<bool>,
    ) -> Result<Self, Gone> {
        let buffer = Aligned::new(PIECE_BYTES as usize);
        let mut segments = Segments { files, owner, start, buffer, held: None };
        let listed = segments.list().map_err(|_| Gone { at: end })?;
        let (mut first, mut found) = (None, false);
        for name in listed.into_iter().rev() {
            let mut enter = || {
                let header = segments.locate(name).ok_or(Gone { at: end })?;
                let at = segments.step(header, end, &mut |_| ())?;
                let old = if found { None } else { segments.look(at, end, &mut is_old)? };
                Ok::<_, Gone>((header, old))
            };
            match enter() {
                Ok((header, _)) if found => {
                    first = Some(header);
                    break;
                }
                Ok((header, old)) => (first, found) = (Some(header), old == Some(true)),
                // The newest ones may not be begun.
                Err(_) if first.is_none() => {}
                Err(_) => break,
            }
        }
        let at = first.ok_or(Gone { at: end })?;
        Ok(Self { segments, at })
    }

    /// Hands out the next records, in the order of the log: those in `bytes` of it, or in one block more. None of them
    /// stands at or above `end`, a [durable end](crate::Writer::durable) of the log.
    ///
    /// # Errors
    /// If a block is not there any more, or is damaged. What was handed out before is right, and nothing follows.
    pub fn go_on(
        &mut self,
        end: Lsn,
        bytes: u64,
        mut visit: impl FnMut(&Record<'_>),
    ) -> Result<Progress, Gone> {
        let until = Lsn(self.at.lsn().0.saturating_add(bytes));
        while self.at.lsn() < end {
            if self.at.lsn() >= until {
                return Ok(Progress::More);
            }
            self.at = self.segments.step(self.at, end, &mut visit)?;
        }
        Ok(Progress::End)
    }
}
