//! The writer: records in, writes out. It has no clock and does no I/O.
//!
//! Records of all groups are put into one *forming* block. [`Writer::next_flush`] closes it and
//! hands it out, whatever it holds: whoever has a free disk thread takes what there is, and nobody
//! waits for more. Several writes may be under way, and end in any order.
//!
//! **Invariant (durable).** [`Writer::durable`] is the end of the contiguous prefix of blocks whose
//! writes have succeeded. A record at `lsn` is durable when `lsn < durable()`.
//!
//! **Invariant (headers).** No block of a segment is written before the segment's header is, so a
//! segment that holds a valid block once had a header: without one it is damaged.
//!
//! **Invariant (recycling).** A segment goes when a header behind it is in the durable prefix whose
//! table says that no group needs anything of it.

mod blocks;
mod groups;
mod options;
mod segments;

use std::collections::VecDeque;

use blocks::Blocks;
pub(crate) use groups::GroupState;
use groups::Groups;
pub use options::{AppendError, Options};
pub(crate) use segments::{KeptSegment, Leftover};
use segments::{Open, Segments};

use crate::aligned::Aligned;
use crate::files::{FileError, FileName, SegmentName};
use crate::format::{
    BLOCK, BlockHeader, BlockKind, CHAIN_BEGINS, Cut, Damage, RecordHead, SegmentHeader,
    record_space,
};
use crate::{Group, Lsn, Owner};

/// A write to do: these bytes at this place, durable before it is called done.
#[derive(Debug)]
pub struct Flush {
    id: u64,
    file: SegmentName,
    offset: u64,
    length: usize,
    buffer: Aligned,
}

impl Flush {
    /// Numbers flushes in the order of the log.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The segment that is written.
    pub fn file(&self) -> FileName {
        FileName::Segment(self.file)
    }

    /// Where in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What to write. Aligned, and whole blocks.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[..self.length]
    }
}

/// Work on files that is not the writing of blocks; [`perform`](crate::files::perform) does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Make the file of a segment, `bytes` long and without a header, from `reuse` if given.
    Prepare { name: SegmentName, reuse: Option<FileName>, bytes: u64 },
    /// Take the name of a segment from the file of one that nobody needs: the next recovery does not read it.
    Retire { segment: SegmentName },
    /// Remove a file that nobody needs.
    Remove { file: FileName },
}

/// How much the log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Segments that cannot be recycled yet, the current one included.
    pub segments: usize,
    /// Their files' length in bytes.
    pub bytes: u64,
    /// The length of all files in bytes: of those that wait to be used again, too.
    pub files_bytes: u64,
    /// Segments recycled or removed since the start.
    pub recycled: u64,
    /// Files that wait to be used again.
    pub spares: usize,
}

/// What a start takes from the recovery before it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) owner: Owner,
    pub(crate) start: u64,
    pub(crate) sequence: u64,
    pub(crate) base: Lsn,
    pub(crate) cut: Option<Cut>,
    pub(crate) groups: Vec<GroupState>,
    pub(crate) kept: VecDeque<KeptSegment>,
    pub(crate) leftovers: Vec<Leftover>,
    pub(crate) entropy: u64,
}

/// Segments that an idle log goes on to its next segment for, so that they can be used again.
const FREED_EARLY: usize = 4;

/// Orders records into blocks and segments.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    owner: Owner,
    start: u64,
    groups: Groups,
    segments: Segments,
    blocks: Blocks,
    /// Until the first segment began: the cut that its header names.
    cut: Option<Cut>,
    begun: bool,
    failed: bool,
}

impl Writer {
    pub(crate) fn new(options: Options, origin: Origin) -> Self {
        options.check();
        let previous = origin.cut.map_or(0, |cut| cut.checksum);
        Self {
            segments: Segments::new(&options, &origin),
            blocks: Blocks::new(&options, origin.owner.cluster, origin.base, previous),
            groups: Groups::new(origin.groups, options.groups_max),
            options,
            owner: origin.owner,
            start: origin.start,
            cut: origin.cut,
            begun: false,
            failed: false,
        }
    }

    /// Number of this start. It may be told to others when [`Writer::started`] holds.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether the header of this start's first segment is durable.
    pub fn started(&self) -> bool {
        self.begun && self.segments.header_durable_once()
    }

    /// End of the contiguous durable prefix of the log.
    pub fn durable(&self) -> Lsn {
        self.blocks.durable()
    }

    /// Where the forming block begins: records at or above it are in none that was closed.
    pub(crate) fn forming(&self) -> Lsn {
        self.blocks.end()
    }

    /// Place of the current segment's first byte.
    pub(crate) fn segment_base(&self) -> Lsn {
        self.blocks.base()
    }

    /// Segments below this are not needed any more.
    pub(crate) fn recyclable(&self) -> Lsn {
        self.segments.recyclable()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Whether [`Writer::next_task`] has something.
    pub(crate) fn has_task(&self) -> bool {
        !self.failed && self.segments.has_task()
    }

    /// Whether records are durable that no block on disk says are, or an idle log would better go on to its next segment.
    pub fn unsealed(&self) -> bool {
        self.blocks.unsealed() || self.frees_many()
    }

    /// Whether many segments are not needed any more, as the next segment's header would say.
    fn frees_many(&self) -> bool {
        let needed = self.groups.needed().unwrap_or(self.blocks.base());
        self.started() && self.segments.freed_by(needed) >= FREED_EARLY
    }

    /// Whether something was appended that is not durable yet.
    pub fn busy(&self) -> bool {
        self.blocks.busy()
    }

    /// Takes a record of `group`, whose bytes are the parts one after the other.
    pub fn append(&mut self, group: Group, kind: u8, parts: &[&[u8]]) -> Result<Lsn, AppendError> {
        if self.failed {
            return Err(AppendError::Failed);
        }
        let length = parts.iter().map(|part| part.len()).sum();
        let max = self.options.record_bytes_max();
        if length > max {
            return Err(AppendError::TooLong { length, max });
        }
        self.groups.insert(group)?;
        self.make_room(record_space(length))?;
        let lsn = self.blocks.next_record();
        let chain = self.groups.get_mut(group).expect("inserted above");
        let (begins, previous) = chain.log(lsn);
        let flags = if begins { CHAIN_BEGINS } else { 0 };
        let head = RecordHead { group, kind, flags, length: length as u32, previous };
        self.blocks.put(&head, parts);
        Ok(lsn)
    }

    /// Sets what the next segment's header says of the group. It must rest on records that were
    /// appended before: the header becomes durable after them.
    pub fn table(&mut self, group: Group, bytes: &[u8]) -> Result<(), AppendError> {
        let (length, max) = (bytes.len(), self.options.table_bytes_max);
        if length > max {
            return Err(AppendError::TooLong { length, max });
        }
        self.groups.insert(group)?;
        self.groups.get_mut(group).expect("inserted above").set_table(bytes);
        Ok(())
    }

    /// The group needs no record below `lsn` any more. Takes effect with the next segment's header.
    pub fn keep_from(&mut self, group: Group, lsn: Lsn) {
        let lsn = lsn.min(self.blocks.next_record());
        if let Some(chain) = self.groups.get_mut(group) {
            chain.keep(lsn);
        }
    }

    /// The group begins anew: its next record is the first that counts. Ends its damage.
    pub fn begin(&mut self, group: Group) -> Result<(), AppendError> {
        self.groups.insert(group)?;
        self.groups.get_mut(group).expect("inserted above").begin();
        Ok(())
    }

    /// The next write, if there is something to write and a write may be begun.
    pub fn next_flush(&mut self) -> Option<Flush> {
        if self.failed {
            return None;
        }
        self.blocks.next_flush()
    }

    /// A write ended. After an error, which is handed back, the writer takes and gives nothing more.
    pub fn flushed(
        &mut self,
        flush: Flush,
        result: Result<(), FileError>,
    ) -> Result<(), FileError> {
        if result.is_err() {
            self.failed = true;
            return result;
        }
        self.blocks.done(flush);
        self.segments.durable(self.blocks.durable());
        Ok(())
    }

    /// Tells the log on disk how much of it is durable, if it does not say so yet. For an idle log:
    /// without it, a damaged last block cannot be told from a torn one. If many segments are not needed any more, goes on
    /// to the next segment instead, whose header says both. True if there is something to flush now.
    pub fn seal(&mut self) -> bool {
        if self.failed || self.blocks.busy() {
            return false;
        }
        if self.frees_many() && self.rotate().is_ok() {
            return true;
        }
        if !self.blocks.unsealed() {
            return false;
        }
        // Without room for it, the seal waits for the next segment, whose header tells as much.
        if self.blocks.room() < BLOCK && self.rotate().is_err() {
            return false;
        }
        if self.blocks.unsealed() && !self.blocks.busy() {
            self.blocks.push_empty(BlockKind::Seal);
        }
        true
    }

    /// Work on files to do now, in any thread. At most one segment is prepared at a time.
    pub fn next_task(&mut self) -> Option<Task> {
        if self.failed {
            return None;
        }
        self.segments.next_task()
    }

    /// A task ended. After "no space" it will be handed out again; any other error is handed back,
    /// and the writer takes and gives nothing more.
    pub fn performed(
        &mut self,
        task: Task,
        result: Result<(), FileError>,
    ) -> Result<(), FileError> {
        match result {
            Ok(()) => self.segments.performed(task),
            Err(error) if error.shortage().is_some() => self.segments.postpone(task),
            Err(error) => {
                self.failed = true;
                return Err(error);
            }
        }
        if !self.begun && self.segments.ready() {
            self.enter_segment(self.cut);
            self.begun = true;
        }
        Ok(())
    }

    /// There was no space for a task of a start that has not begun. Returns whether the next task needs none: the start
    /// begins in a file that an earlier one had prepared.
    pub fn begins_without_space(&mut self, task: Task) -> bool {
        let needs_new = matches!(task, Task::Prepare { reuse: None, .. });
        self.segments.postpone(task);
        needs_new && self.segments.begins_without_space()
    }

    /// The file of the segment that is written.
    pub fn current(&self) -> Option<FileName> {
        self.segments.current()
    }

    /// How much the log holds.
    pub fn sizes(&self) -> Sizes {
        self.segments.sizes()
    }

    /// Makes the forming block have room for `space` bytes of records.
    fn make_room(&mut self, space: usize) -> Result<(), AppendError> {
        if !self.begun {
            return Err(AppendError::Busy);
        }
        if self.blocks.fits(space) {
            return Ok(());
        }
        if self.blocks.waiting() + 4 > self.options.waiting_max {
            return Err(AppendError::Busy);
        }
        self.blocks.close();
        let needed = (BlockHeader::BYTES + space).next_multiple_of(BLOCK);
        if self.blocks.room() < needed {
            self.rotate()?;
        }
        self.blocks.open(needed.max(self.options.block_bytes_max.min(self.blocks.room())));
        Ok(())
    }

    /// Ends the segment with a link to its successor, and begins that with its header.
    fn rotate(&mut self) -> Result<(), AppendError> {
        let successor = self.segments.successor().ok_or(AppendError::Busy)?.name;
        let (sequence, salt) = (successor.sequence, successor.salt);
        self.blocks.push_link(BlockKind::Link { sequence, salt });
        self.enter_segment(None);
        Ok(())
    }

    fn enter_segment(&mut self, cut: Option<Cut>) {
        let first = !self.begun;
        let base = self.blocks.end();
        let Open { name, length } = self.segments.enter(base, self.groups.needed().unwrap_or(base));
        let header = SegmentHeader {
            node: self.owner.node,
            start: self.start,
            salt: name.salt,
            size: length,
            first,
            cut,
            table: Vec::new(),
        };
        self.blocks.enter(name, &header, &self.groups);
        self.segments.header_ends(self.blocks.end());
    }
}

/// Damage of a group as it is carried from header to header.
pub(crate) type CarriedDamage = Option<Damage>;
