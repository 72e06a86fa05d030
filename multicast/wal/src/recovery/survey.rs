//! The walk over the blocks: what is there, where the log is cut, and what is damaged.

use super::RecoverError;
use super::chains::{Chains, Hole};
use super::image::Image;
use super::lineage::Run;
use super::replay::Span;
use crate::files::{FileName, Files, SegmentName};
use crate::format::{BlockHeader, BlockKind, Cut, Damage, Records};
use crate::writer::Leftover;
use crate::{Lsn, Owner};

/// Where the walk stands: before the block at `offset` of a run's segment.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    index: usize,
    base: Lsn,
    offset: u64,
    /// Checksum of the block before.
    previous: u64,
    /// The block before was the segment's last, and names the next: sequence and salt.
    link: Option<(u64, u64)>,
}

impl Cursor {
    fn lsn(&self) -> Lsn {
        Lsn(self.base.0 + self.offset)
    }
}

/// What stands behind a bad block.
struct Behind {
    /// Whether the bad block was durable.
    acked: bool,
    /// The first sound block: segment, offset, and its place.
    next: Option<(usize, u64, Lsn)>,
}

/// A walk over all runs.
pub(super) struct Survey<'a, F> {
    files: &'a F,
    owner: Owner,
    /// Prepared segments without a header: a link to one of them leads to a header that tore.
    unbegun: &'a [Leftover],
    image: Image,
    chains: Chains,
    spans: Vec<Span>,
    damages: Vec<Damage>,
    /// The successor that the last block of the log names: its sequence.
    successor: Option<u64>,
}

impl<'a, F: Files> Survey<'a, F> {
    pub(super) fn new(files: &'a F, owner: Owner, unbegun: &'a [Leftover]) -> Self {
        let (image, chains) = (Image::new(), Chains::default());
        let (spans, damages) = (Vec::new(), Vec::new());
        Self { files, owner, unbegun, image, chains, spans, damages, successor: None }
    }

    /// The segment that the last block of the log names as its successor, though the log has nothing of it.
    pub(super) fn successor(&self) -> Option<u64> {
        self.successor
    }

    pub(super) fn finish(self) -> (Chains, Vec<Span>, Vec<Damage>) {
        (self.chains, self.spans, self.damages)
    }

    /// Walks over one start and returns where it ends. None if nothing of it can be placed.
    pub(super) fn walk(&mut self, run: &Run) -> Result<Option<Cut>, RecoverError> {
        let Some(mut cursor) = self.begin(run)? else { return Ok(None) };
        loop {
            let name = run.segments[cursor.index].name;
            self.successor = cursor.link.map(|(sequence, _)| sequence);
            let cut = Cut { sequence: name.sequence, lsn: cursor.lsn(), checksum: cursor.previous };
            match run.limit {
                Some(limit) if limit == cut => return Ok(Some(cut)),
                Some(limit) if limit.lsn <= cut.lsn => {
                    let (file, offset) = (FileName::Segment(name), cursor.offset);
                    return Err(RecoverError::Diverged { file, offset });
                }
                _ => {}
            }
            let stepped = match cursor.link {
                Some(link) => self.follow(run, cursor, link)?,
                None => self.step(run, cursor)?,
            };
            cursor = match stepped {
                Some(next) => next,
                None => match self.bad(run, cursor)? {
                    Some(next) => next,
                    None => return Ok(Some(cut)),
                },
            };
        }
    }

    /// Enters the run's first segment, or the first one that can be placed.
    fn begin(&mut self, run: &Run) -> Result<Option<Cursor>, RecoverError> {
        let first = &run.segments[0];
        if first.head.is_some() {
            return self.enter(run, 0).map(Some);
        }
        // Nobody knows what its table said, or where the log was cut before it.
        let damage = Damage { sequence: first.name.sequence, offset: 0 };
        self.damages.push(damage);
        self.chains.harm_all(damage);
        for (index, segment) in run.segments.iter().enumerate().skip(1) {
            if segment.head.is_some() {
                return self.enter(run, index).map(Some);
            }
        }
        Ok(None)
    }

    /// Goes to the first block of a segment that has a header.
    fn enter(&mut self, run: &Run, index: usize) -> Result<Cursor, RecoverError> {
        let segment = &run.segments[index];
        self.image.load(self.files, segment.name, segment.length)?;
        let head = segment.head.as_ref().expect("the caller looked");
        let place = Damage { sequence: segment.name.sequence, offset: 0 };
        self.chains.table(&head.header.table, head.base, place);
        let (base, offset, previous) = (head.base, head.blocks_at, head.checksum);
        Ok(Cursor { index, base, offset, previous, link: None })
    }

    /// Takes the block at the cursor. None if it is not the one that belongs there.
    fn step(&mut self, run: &Run, cursor: Cursor) -> Result<Option<Cursor>, RecoverError> {
        let segment = &run.segments[cursor.index];
        self.image.load(self.files, segment.name, segment.length)?;
        match self.image.block(self.owner, cursor.offset, Some(cursor.base)) {
            Some((block, checksum)) if block.previous == cursor.previous => {
                Ok(Some(self.take(segment.name, cursor, block, checksum)))
            }
            _ => Ok(None),
        }
    }

    fn take(&mut self, name: SegmentName, at: Cursor, block: BlockHeader, checksum: u64) -> Cursor {
        let place = Damage { sequence: name.sequence, offset: at.offset };
        for record in Records::of(&block, self.image.from(at.offset)) {
            self.chains.record(&record, place);
        }
        let offset = at.offset + u64::from(block.length);
        Span::extend(&mut self.spans, name, at.offset, offset);
        let link = match block.kind {
            BlockKind::Link { sequence, salt } => Some((sequence, salt)),
            BlockKind::Header | BlockKind::Records | BlockKind::Seal => None,
        };
        Cursor { offset, previous: checksum, link, ..at }
    }

    /// Goes to the segment that a link names. None if it is not there as it was named.
    fn follow(
        &mut self,
        run: &Run,
        cursor: Cursor,
        link: (u64, u64),
    ) -> Result<Option<Cursor>, RecoverError> {
        let named = run.segments.iter().position(|s| (s.name.sequence, s.name.salt) == link);
        let Some(index) = named else { return Ok(None) };
        match &run.segments[index].head {
            Some(head) if head.base == cursor.lsn() && head.previous == cursor.previous => {
                self.enter(run, index).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Decides what a bad block means. None cuts the log; otherwise the walk goes on behind it.
    fn bad(&mut self, run: &Run, at: Cursor) -> Result<Option<Cursor>, RecoverError> {
        let name = run.segments[at.index].name;
        let damage = match at.link {
            Some((sequence, _)) => Damage { sequence, offset: 0 },
            None => Damage { sequence: name.sequence, offset: at.offset },
        };
        let behind = self.behind(run, at)?;
        // A successor is there, durably, before a link names it, and no block of it before its header is.
        let begun = at.link.is_some_and(|(sequence, _)| {
            let is = |leftover: &Leftover| matches!(leftover.file, FileName::Segment(n) if n.sequence == sequence);
            !self.unbegun.iter().any(is)
        });
        if !behind.acked && !begun {
            return Ok(None);
        }
        self.damages.push(damage);
        self.chains.hole(Hole { damage, from: at.lsn() });
        let Some((index, offset, lsn)) = behind.next else { return Ok(None) };
        let segment = &run.segments[index];
        if offset == 0 && segment.head.is_some() {
            return self.enter(run, index).map(Some);
        }
        self.image.load(self.files, segment.name, segment.length)?;
        let base = Lsn(lsn.0 - offset);
        let (block, checksum) =
            self.image.block(self.owner, offset, Some(base)).expect("it was found a moment ago");
        let cursor = Cursor { index, base, offset, previous: block.previous, link: None };
        Ok(Some(self.take(segment.name, cursor, block, checksum)))
    }

    /// Looks at what is sound behind the bad block at the cursor, until it is clear that it was durable.
    fn behind(&mut self, run: &Run, at: Cursor) -> Result<Behind, RecoverError> {
        let bad = at.lsn();
        let mut behind = Behind { acked: run.limit.is_some_and(|cut| cut.lsn > bad), next: None };
        let from = if at.link.is_some() { at.index + 1 } else { at.index };
        for (index, segment) in run.segments.iter().enumerate().skip(from) {
            let mut offset = if index == at.index { at.offset } else { 0 };
            let mut base = if index == at.index { Some(at.base) } else { None };
            if let Some(head) = segment.head.as_ref().filter(|_| offset == 0) {
                behind.next.get_or_insert((index, 0, head.base));
                behind.acked |= head.acked_through > bad;
                (offset, base) = (head.blocks_at, Some(head.base));
            }
            self.image.load(self.files, segment.name, segment.length)?;
            for (offset, block, _) in self.image.blocks(self.owner, offset, base) {
                if run.limit.is_some_and(|cut| block.end() > cut.lsn) {
                    break;
                }
                behind.next.get_or_insert((index, offset, block.lsn));
                behind.acked |= block.acked_through > bad;
                if behind.acked {
                    return Ok(behind);
                }
            }
        }
        Ok(behind)
    }
}
