//! Our copy of the group's log: the entries that it holds, and their places in memory.

use std::collections::VecDeque;

use skein_fabric::{Fabric, FabricError, Permission, Region};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::body::{Draft, Stamp};
use skein_protocol::group::frame::{self, Cursor, Frame, PREAMBLE};
use skein_protocol::group::runs::Runs;
use skein_protocol::group::space::Space;

/// Our copy of the log.
///
/// **Invariants.**
/// - `ends` has every entry behind `freed_index`, in rising index, and none before it:
///   `ends[0].0 == freed_index + 1`, and the last one ends where `runs` does.
/// - `freed <= runs.end().position`, and `freed_index` is committed.
/// - `rewritten.position <= runs.end().position` as leader: all from `rewritten` on is written in our ballot.
/// - Memory in front of `begun_at` is no part of our log, unless all from `filled_from` on is.
pub(crate) struct LogMemory {
    pub(in crate::replica) region: Region,
    /// As leader: where the next entry goes, and what may be overwritten.
    pub(in crate::replica) space: Space,
    /// The births of the log's entries.
    pub(in crate::replica) runs: Runs,
    /// Ends of the entries that may not be overwritten yet: index, position.
    pub(in crate::replica) ends: VecDeque<(u64, u64)>,
    /// The last entry whose place may be reused, and its end.
    pub(crate) freed_index: u64,
    pub(in crate::replica) freed: u64,
    /// Where our log begins in our memory: the part before it was contained in a state.
    pub(crate) begun_at: Cursor,
    /// Position from which on our leader writes the part before `begun_at` too.
    pub(in crate::replica) filled_from: Option<u64>,
    /// As leader: from here on the log is written in our ballot.
    pub(in crate::replica) rewritten: Cursor,
    /// Scratch for the bytes of an entry.
    pub(super) entry: Vec<u8>,
}

impl LogMemory {
    /// An empty log, in a ring of so many bytes that only granted peers may write.
    pub(in crate::replica) fn new<F: Fabric>(
        bytes: usize,
        fabric: &mut F,
    ) -> Result<Self, FabricError> {
        Ok(Self {
            region: fabric.create(PREAMBLE + bytes, Permission::Granted)?,
            space: Space::new(bytes as u64),
            runs: Runs::EMPTY,
            ends: VecDeque::new(),
            freed_index: 0,
            freed: 0,
            begun_at: Cursor::START,
            filled_from: None,
            rewritten: Cursor::START,
            entry: Vec::new(),
        })
    }

    /// Continues the log behind a state, which ends where `runs` does.
    pub(in crate::replica) fn begin_behind(&mut self, runs: Runs) {
        let end = runs.end();
        self.runs = runs;
        self.ends.clear();
        (self.freed_index, self.freed) = (end.index - 1, end.position);
        self.space.resume(end, end.position);
        (self.begun_at, self.filled_from) = (end, None);
        self.rewritten = end;
    }

    /// The cursor behind an entry: the last committed one, or a later one.
    pub(in crate::replica) fn end_of(&self, index: u64) -> Cursor {
        let ends = self.ends.iter().rev();
        let end = ends.copied().find(|(of, _)| *of == index).map(|(_, position)| position);
        Cursor { index: index + 1, position: end.unwrap_or(self.freed) }
    }

    /// The cursor behind the last entry that is committed and folded.
    pub(crate) fn commit_end(&self) -> Cursor {
        Cursor { index: self.freed_index + 1, position: self.freed }
    }

    /// Adds an entry to our log, which ends at `position`.
    pub(in crate::replica) fn note(&mut self, index: u64, birth: Ballot, position: u64) {
        self.ends.push_back((index, position));
        self.runs.push(birth, position, self.freed_index);
    }

    /// Frees the entries up to `commit`, which are committed by now.
    pub(in crate::replica) fn pass_committed(&mut self, commit: u64) {
        while let Some((index, end)) = self.ends.pop_front_if(|(index, _)| *index <= commit) {
            self.freed_index = index;
            self.freed = end;
        }
    }

    /// Removes the entries behind `base`.
    pub(in crate::replica) fn cut(&mut self, base: Cursor) {
        self.runs.truncate(base);
        while self.ends.pop_back_if(|(index, _)| *index >= base.index).is_some() {}
    }

    /// As leader: appends the entry at `index`, skipping the ring's end if it does not fit there. Returns
    /// whether it skipped.
    pub(super) fn append<F: Fabric>(
        &mut self,
        index: u64,
        draft: &impl Draft,
        stamp: Stamp,
        fabric: &mut F,
    ) -> bool {
        let Self { entry, space, region, .. } = self;
        let (len, capacity) = (draft.entry_len(), space.capacity());
        entry.clear();
        let skip = space.skip(len);
        if let Some(skip) = skip {
            frame::encode_pad(space.cursor, skip, stamp.ballot, entry);
            let at = space.cursor.offset(capacity);
            fabric.copy_in(*region, at, entry);
            space.cursor.skip(skip);
            entry.clear();
        }
        assert_eq!(space.cursor.index, index, "the log is dense");
        let at = space.cursor.offset(capacity);
        draft.encode(stamp, space.cursor, entry);
        debug_assert_eq!(entry.len(), len);
        fabric.copy_in(*region, at, entry);
        space.cursor.pass(len);
        self.note(index, stamp.ballot, self.space.cursor.position);
        skip.is_some()
    }

    /// As candidate: the cursor of the next adopted entry. Writes a pad in `ballot` up to `position` if there
    /// is a gap.
    pub(in crate::replica) fn skip_to<F: Fabric>(
        &self,
        position: u64,
        ballot: Ballot,
        fabric: &mut F,
    ) -> Cursor {
        let mut at = self.runs.end();
        if position > at.position {
            let offset = at.offset(self.space.capacity());
            if at.position < position {
                let mut pad = Vec::new();
                frame::encode_pad(at, (position - at.position) as usize, ballot, &mut pad);
                fabric.copy_in(self.region, offset, &pad);
                at.position = position;
            }
        }
        at
    }

    /// Writes an entry into our memory, as written in `ballot`.
    pub(in crate::replica) fn put<F: Fabric>(
        &self,
        mut at: Cursor,
        bytes: &mut [u8],
        ballot: Ballot,
        fabric: &mut F,
    ) {
        frame::rewrite(bytes, ballot);
        let offset = at.offset(self.space.capacity());
        fabric.copy_in(self.region, offset, bytes);
    }

    /// As leader: rewrites our log from `base` on in `ballot`, our own, as followers expect it. Returns false
    /// if our memory does not reach back to there, because we received a state in place of that part.
    pub(in crate::replica) fn rewrite_from<F: Fabric>(
        &mut self,
        base: Cursor,
        ballot: Ballot,
        fabric: &mut F,
    ) -> bool {
        let (mut at, mut bytes) = (base, Vec::new());
        while at.position < self.rewritten.position {
            if !self.copy_entry(&mut at, &mut bytes, fabric) {
                return false;
            }
            let Some(frame) = Frame::parse(&bytes, at).filter(|it| self.holds(it, at.index)) else {
                return false;
            };
            let mut next = at;
            frame.step_over(&mut next, announced(&bytes));
            self.put(at, &mut bytes, ballot, fabric);
            at = next;
        }
        if base.position < self.rewritten.position {
            self.rewritten = base;
        }
        true
    }

    /// Returns whether an entry that is found in our memory at an index is the one of our log. In front of a
    /// state that was received, memory still has what stood there before, which may have been cut off.
    pub(in crate::replica) fn holds(&self, frame: &Frame<'_>, index: u64) -> bool {
        frame.is_pad() || self.runs.remembers(frame.birth, index)
    }

    /// The bytes of the entry at a cursor; of a pad, only its header.
    pub(in crate::replica) fn raw_entry<F: Fabric>(
        &self,
        at: &mut Cursor,
        fabric: &F,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.copy_entry(at, &mut bytes, fabric).then_some(bytes)
    }

    /// Replaces `bytes` by those of the entry at a cursor; of a pad, only its header. Returns whether there may be one.
    pub(super) fn copy_entry<F: Fabric>(
        &self,
        at: &mut Cursor,
        bytes: &mut Vec<u8>,
        fabric: &F,
    ) -> bool {
        let capacity = self.space.capacity();
        let offset = at.offset(capacity);
        let mut header = [0; frame::HEADER];
        fabric.copy_out(self.region, offset, &mut header);
        let Some(len) = frame::announced_len(&header, *at, capacity) else { return false };
        if frame::is_pad(&header) {
            bytes.clear();
            bytes.extend_from_slice(&header);
        } else {
            bytes.resize(len, 0);
            fabric.copy_out(self.region, offset, bytes);
        }
        true
    }
}

/// The length that an entry's header announces.
pub(in crate::replica) fn announced(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[40..44].try_into().expect("a header")) as usize
}
