//! The committed part of a log, from the records that a disk holds of it.

use std::collections::VecDeque;

use skein_protocol::group::frame::Cursor;
use skein_protocol::mutants::{Mutant, planted};

use crate::disk::entry_index;
use crate::election::{Content, Piece};
use crate::replica::on_disk::DiskRecord;
use crate::replica::transfer::saved_end;

/// The log cannot be put together from these records: some are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap;

/// A piece, and the entry with which it is committed.
struct Held {
    index: u64,
    /// Where the log ends behind it, if it is an entry.
    end: Option<Cursor>,
    piece: Vec<u8>,
}

/// Takes the records of a group's log in their order, and hands out the committed entries from one on, with payloads and
/// with marks.
///
/// **Invariants.** Entries of `held` and `ready` are without a gap, the last one in front of `next`. Those of `ready` are
/// committed, and none of `held` is known to be.
pub(super) struct Committed {
    /// The entry to be taken next.
    next: u64,
    /// The first entry that is not known to be committed, of those that are handed out.
    uncommitted: u64,
    held: VecDeque<Held>,
    ready: VecDeque<Held>,
    ready_bytes: usize,
    /// Where the log ends that was handed out.
    end: Cursor,
}

impl Committed {
    /// The log behind `from`, where the receiver's ends.
    pub(super) const fn behind(from: Cursor) -> Self {
        Self {
            next: from.index,
            uncommitted: from.index,
            held: VecDeque::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            end: from,
        }
    }

    /// Takes the next record.
    pub(super) fn take(&mut self, kind: u8, record: &[u8]) -> Result<(), Gap> {
        match DiskRecord::decode(kind, record).ok_or(Gap)? {
            DiskRecord::Entry(bytes) => self.take_entry(kind, bytes)?,
            DiskRecord::Payload(bytes) => self.hold(None, &Piece::Payload(bytes)),
            DiskRecord::Cut { base } | DiskRecord::Ballot { base, .. } => {
                if !planted(Mutant::FedCutIgnored) {
                    self.cut(base.index);
                }
            }
            DiskRecord::Part { content: Content::Order, bytes, .. } => {
                // A state took the place of the log in front.
                let behind = saved_end(bytes).ok_or(Gap)? + 1;
                if behind > self.next {
                    return Err(Gap);
                }
                self.cut(behind);
            }
            DiskRecord::Delivered { commit, delivered, .. } => {
                self.pass(commit)?;
                if commit >= self.uncommitted.saturating_sub(1) {
                    self.mark(commit, delivered.number());
                }
            }
            DiskRecord::Began { .. } => self.cut(0),
            // A snapshot repeats what is not committed, behind a ballot.
            DiskRecord::Resumed
            | DiskRecord::Promised { .. }
            | DiskRecord::Snapshot { .. }
            | DiskRecord::SnapshotPart { .. }
            | DiskRecord::SnapshotEnd
            | DiskRecord::Earlier { .. }
            | DiskRecord::Part { .. } => {}
        }
        Ok(())
    }

    fn take_entry(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Gap> {
        let index = entry_index(kind, bytes).ok_or(Gap)?;
        if index > self.next {
            return Err(Gap);
        }
        if index == self.next {
            let position = bytes.get(16..24).ok_or(Gap)?.try_into().expect("eight bytes");
            let position = u64::from_le_bytes(position) + bytes.len() as u64;
            self.next += 1;
            self.hold(Some(Cursor { index: self.next, position }), &Piece::Entry(bytes));
        } else if self.next == self.uncommitted {
            // Payloads until now are of entries that the receiver has.
            self.held.clear();
        }
        Ok(())
    }

    fn hold(&mut self, end: Option<Cursor>, piece: &Piece<'_>) {
        let mut bytes = Vec::new();
        piece.encode(&mut bytes);
        self.held.push_back(Held { index: self.next - 1, end, piece: bytes });
    }

    /// The log is cut off from the entry `index` on. What is committed of it is written again.
    fn cut(&mut self, index: u64) {
        self.held.retain(|held| held.index < index);
        self.next = self.next.min(index.max(self.uncommitted));
    }

    /// Everything up to the entry `commit` is committed.
    fn pass(&mut self, commit: u64) -> Result<(), Gap> {
        if commit >= self.next {
            return Err(Gap);
        }
        let goes = |held: &mut Held| held.index <= commit || planted(Mutant::FedUncommitted);
        while let Some(held) = self.held.pop_front_if(goes) {
            self.ready_bytes += held.piece.len();
            self.ready.push_back(held);
        }
        self.uncommitted = self.uncommitted.max(commit + 1);
        Ok(())
    }

    /// Adds a mark, or lets the last one say it if nothing was added since.
    fn mark(&mut self, commit: u64, delivered: u64) {
        let mut piece = Vec::new();
        Piece::Mark { commit, delivered }.encode(&mut piece);
        match self.ready.back_mut() {
            Some(last) if Piece::is_mark(&last.piece) => last.piece = piece,
            _ => {
                self.ready_bytes += piece.len();
                self.ready.push_back(Held { index: commit, end: None, piece });
            }
        }
    }

    /// Bytes that can be handed out.
    pub(super) const fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Hands out the next pieces, as many as have `bytes` bytes at least, if there are so many.
    pub(super) fn part(&mut self, bytes: usize) -> Vec<u8> {
        let mut part = Vec::with_capacity(bytes.min(self.ready_bytes) + 1024);
        while part.len() < bytes
            && let Some(Held { end, piece, .. }) = self.ready.pop_front()
        {
            self.ready_bytes -= piece.len();
            self.end = end.unwrap_or(self.end);
            part.extend_from_slice(&piece);
        }
        part
    }

    /// Where the log ends that was handed out.
    pub(super) const fn end(&self) -> Cursor {
        self.end
    }
}

#[cfg(test)]
mod tests;
