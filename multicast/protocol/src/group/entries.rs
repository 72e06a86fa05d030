//! The entries of the log, and their commit index.
//!
//! **Invariants.** `commit <= last`. `birth` never falls along the log. No entry below `first` is committed by a count
//! in our ballot: such entries were counted in an earlier one. The times of entries never fall along the log, across
//! all leaders.

use super::GroupLog;
use super::record::LogRecord;
use super::uncommitted::{Suffix, Uncommitted};
use crate::ballot::Ballot;

/// The log, as far as one replica has it.
pub(crate) struct Entries<R: LogRecord> {
    /// The ballot in which this replica logs: that of the last leader whose header it has read.
    pub(super) ballot: Ballot,
    /// Index of the first entry of `ballot`.
    pub(super) first: u64,
    /// The last index that was appended as leader, or accepted as follower.
    pub(super) last: u64,
    pub(super) commit: u64,
    /// Ballot of birth of the entry at `commit`.
    pub(super) commit_birth: Ballot,
    /// The records behind `commit`.
    pub(super) uncommitted: Suffix<R>,
    /// Added to this replica's time, so that entry times do not fall when the leader changes.
    pub(super) time_offset: i64,
    pub(super) last_time_ms: u64,
}

impl<R: LogRecord> Default for Entries<R> {
    /// The empty log.
    fn default() -> Self {
        Self {
            ballot: Ballot::ZERO,
            first: u64::MAX,
            last: 0,
            commit: 0,
            commit_birth: Ballot::ZERO,
            uncommitted: Suffix::default(),
            time_offset: 0,
            last_time_ms: 0,
        }
    }
}

impl<R: LogRecord> Entries<R> {
    /// Replaces the log by a state that ends with the entry at `commit`.
    pub(super) fn restore(&mut self, commit: u64, birth: Ballot, time_ms: u64) {
        (self.commit, self.commit_birth, self.last) = (commit, birth, commit);
        self.last_time_ms = time_ms;
        self.first = u64::MAX;
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// The uncommitted records, in log order; for an entry of items, the record that stands for them.
    pub(crate) fn uncommitted(&self) -> impl DoubleEndedIterator<Item = &Uncommitted<R>> {
        self.entries.uncommitted.iter()
    }

    /// The uncommitted items, in log order.
    pub(crate) fn uncommitted_items(&self) -> impl Iterator<Item = &R::Item> {
        self.entries.uncommitted.items()
    }

    /// Whether all logged entries are known here to be committed.
    pub fn is_all_committed(&self) -> bool {
        self.entries.uncommitted.is_empty()
    }

    /// The highest time of an entry in the log.
    pub(crate) const fn last_time_ms(&self) -> u64 {
        self.entries.last_time_ms
    }

    /// As leader: the next entry's index, and the ballot and time of its birth.
    pub(crate) fn next_entry(&mut self) -> (u64, Ballot, u64) {
        self.entries.last += 1;
        let now = self.now_ms.saturating_add_signed(self.entries.time_offset);
        self.entries.last_time_ms = self.entries.last_time_ms.max(now);
        (self.entries.last, self.entries.ballot, self.entries.last_time_ms)
    }

    /// Appends an uncommitted record.
    pub(crate) fn push(&mut self, entry: Uncommitted<R>) {
        self.entries.uncommitted.push(entry);
    }

    /// Appends uncommitted items of one entry.
    pub(crate) fn push_items(
        &mut self,
        index: u64,
        birth: Ballot,
        time_ms: u64,
        items: impl Iterator<Item = R::Item>,
    ) {
        self.entries.uncommitted.push_items(index, birth, time_ms, items);
    }

    /// As follower: an entry was read, or one of its records that is not the last.
    pub(crate) fn note_accepted(&mut self, index: u64, time_ms: u64, last: bool) {
        debug_assert_eq!(index, self.entries.last + 1, "a follower never skips an entry");
        self.entries.last_time_ms = self.entries.last_time_ms.max(time_ms);
        if last {
            self.entries.last = index;
        }
    }

    /// Takes the items of the entry whose record was taken last.
    pub(crate) fn take_items(&mut self, take: impl FnMut(&[R::Item])) {
        self.entries.uncommitted.take_items(take);
    }

    /// Cuts off the entries behind `index`, last first, because another log was adopted. It calls `gone` with each
    /// record.
    pub(crate) fn truncate(&mut self, index: u64, mut gone: impl FnMut(&R)) {
        assert!(index >= self.entries.commit, "what is committed is in every log that is chosen");
        self.payloads.stalled = None;
        while let Some((entry, records)) = self.entries.uncommitted.pop_back(index) {
            self.paths.truncated += records as u64;
            gone(&entry.record);
        }
        self.entries.last = self.entries.last.min(index);
    }
}
