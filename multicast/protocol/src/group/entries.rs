//! Which entries the log has, and up to where they are committed.
//!
//! **Invariants.** `commit <= last`. `birth` never falls along the log. Nothing is committed below `first` by a count in
//! our ballot: what stands there was counted in another. The time that entries carry never falls, whoever led before.

use super::record::{GroupRecord, LogRecord};
use super::uncommitted::{Suffix, Uncommitted};
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::{Mutant, planted};

/// The log, as far as one replica has it.
pub(crate) struct Entries<R: LogRecord> {
    /// The ballot in which we log: that of the last leader whose first words we have read.
    pub(super) ballot: Ballot,
    /// Index of its first entry.
    pub(super) first: u64,
    /// The last index: appended as leader, accepted as follower.
    pub(super) last: u64,
    pub(super) commit: u64,
    /// Ballot of birth of the entry at `commit`.
    pub(super) commit_birth: Ballot,
    /// What stands behind `commit`.
    pub(super) uncommitted: Suffix<R>,
    /// Added to our time, so that what the log says never falls when the leader changes.
    time_offset: i64,
    last_time_ms: u64,
}

impl<R: LogRecord> Default for Entries<R> {
    /// No entry.
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
    /// A state that ends with the entry at `commit` is all there is.
    pub(super) fn restore(&mut self, commit: u64, birth: Ballot, time_ms: u64) {
        (self.commit, self.commit_birth, self.last) = (commit, birth, commit);
        self.last_time_ms = time_ms;
        self.first = u64::MAX;
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// The uncommitted records, in log order; of an entry of items, the one that stands for them.
    pub(crate) fn uncommitted(&self) -> impl DoubleEndedIterator<Item = &Uncommitted<R>> {
        self.entries.uncommitted.iter()
    }

    /// The items among them.
    pub(crate) fn uncommitted_items(&self) -> impl Iterator<Item = &R::Item> {
        self.entries.uncommitted.items()
    }

    /// Whether all that is logged is committed, as far as is known here.
    pub(crate) fn is_all_committed(&self) -> bool {
        self.entries.uncommitted.is_empty()
    }

    /// The highest time that an entry of the log carries.
    pub(crate) const fn last_time_ms(&self) -> u64 {
        self.entries.last_time_ms
    }

    /// As leader: the next entry's index, and the ballot and the time of its birth.
    pub(crate) fn next_entry(&mut self) -> (u64, Ballot, u64) {
        self.entries.last += 1;
        let now = self.now_ms.saturating_add_signed(self.entries.time_offset);
        self.entries.last_time_ms = self.entries.last_time_ms.max(now);
        (self.entries.last, self.entries.ballot, self.entries.last_time_ms)
    }

    /// A record has its place in the log.
    pub(crate) fn push(&mut self, entry: Uncommitted<R>) {
        self.entries.uncommitted.push(entry);
    }

    /// Items of one entry have theirs.
    pub(crate) fn push_items(
        &mut self,
        index: u64,
        birth: Ballot,
        time_ms: u64,
        items: impl Iterator<Item = R::Item>,
    ) {
        self.entries.uncommitted.push_items(index, birth, time_ms, items);
    }

    /// As follower: an entry was read, or a record of it that is not the last.
    pub(crate) fn note_accepted(&mut self, index: u64, time_ms: u64, last: bool) {
        self.entries.last_time_ms = self.entries.last_time_ms.max(time_ms);
        if last {
            self.entries.last = index;
        }
    }

    /// Everything up to `index` is committed: the records are taken one by one.
    pub(crate) fn commit_to(&mut self, index: u64) {
        self.entries.commit = index;
    }

    /// Takes the next record that is committed, if there is one.
    pub(crate) fn next_committed(&mut self) -> Option<Uncommitted<R>> {
        let entry = self.entries.uncommitted.pop_front(self.entries.commit)?;
        self.entries.commit_birth = entry.birth;
        Some(entry)
    }

    /// Takes the items of the entry whose record was taken just now.
    pub(crate) fn take_items(&mut self, take: impl FnMut(&[R::Item])) {
        self.entries.uncommitted.take_items(take);
    }

    /// A leader's first entry is committed.
    pub(crate) fn commits_new_ballot(&mut self, birth: Ballot) {
        if self.leads() && birth == self.entries.ballot {
            self.election.fruitless = 0;
            self.paths.new_ballots += 1;
        }
    }

    /// Cuts off what stands behind `index`, last first: another log was chosen. `gone` is told each record.
    pub(crate) fn truncate(&mut self, index: u64, mut gone: impl FnMut(&R)) {
        assert!(index >= self.entries.commit, "what is committed is in every log that is chosen");
        self.payloads.stalled = None;
        while let Some((entry, records)) = self.entries.uncommitted.pop_back(index) {
            self.paths.truncated += records as u64;
            gone(&entry.record);
        }
        self.entries.last = self.entries.last.min(index);
    }

    /// The leader of the ballot that we granted writes our log, behind what both have in common, which is all there is
    /// by now. Its own first entry is, or will be, `first`.
    pub(crate) fn follow(&mut self, ballot: Ballot, first: u64) {
        self.seeded = None;
        // The log is written where it ends: nobody's state is needed.
        self.transfer.receiver.drop_copy();
        self.paths.followed += u64::from(self.entries.ballot != ballot);
        self.election.fruitless = 0;
        (self.entries.ballot, self.entries.first) = (ballot, first);
    }

    /// The campaign is won, and our log is the one adopted: we log in our ballot, at times no lower than before.
    pub(crate) fn begin_to_lead(&mut self) {
        let campaign = self.election.campaign.as_ref().expect("won");
        let ballot = campaign.ballot;
        assert!(
            self.payloads.stalled.is_none() && ballot == self.election.promised,
            "the log is adopted whole"
        );
        self.role = Role::Leader;
        self.spread.lead(self.now_ms, self.config.spread_after_ms);
        self.seeded = None;
        self.transfer.receiver.catch_up();
        self.lease.clear();
        self.entries.ballot = ballot;
        self.followers.forget();
        self.progress.lead(self.config.me.slot);
        if self.entries.last_time_ms > 0 {
            let (last, now) = (self.entries.last_time_ms.cast_signed(), self.now_ms.cast_signed());
            self.entries.time_offset = last - now;
        }
        for Uncommitted { record, .. } in self.entries.uncommitted.iter() {
            let changed = match record.of_group() {
                Some(GroupRecord::Evict { slot } | GroupRecord::Join { slot, .. }) => 1 << slot,
                Some(GroupRecord::NewBallot) | None => 0,
            };
            self.members.changing |= changed;
        }
        self.paths.led += 1;
    }

    /// We lead, and our ballot's first entry stands at `index`.
    pub(crate) fn led_from(&mut self, index: u64) {
        self.entries.first = index;
    }

    /// Whether what we log, commit and acknowledge is of the ballot that we have promised ourselves to.
    pub(crate) fn keeps_ballot(&self) -> bool {
        self.election.promised == self.entries.ballot
    }

    /// Up to where the log is committed by now, if that is further than was known: the highest index that f+1 slots are
    /// known to hold in our ballot. Whoever has let another lead commits nothing until it reads that one's first words:
    /// what it logs meanwhile, its old leader has not.
    pub(crate) fn newly_committed(&mut self) -> Option<u64> {
        if !guard!(Mutant::LeftBallotCommits, self.keeps_ballot()) || self.is_all_committed() {
            return None;
        }
        let (ballot, me) = (self.entries.ballot, self.config.me.slot);
        // The leader has written all that a follower reads, and who reads it holds it.
        let mut needed = self.quorum() - 1 - usize::from(planted(Mutant::CommitWithoutQuorum));
        if me != ballot.slot() && guard!(Mutant::LearnerCountsItself, !self.is_silent()) {
            needed = needed.saturating_sub(1);
        }
        let index = super::commit::held_by(self.config.replicas, needed, |slot| match slot {
            _ if slot == ballot.slot() || slot == me => 0,
            _ if self.leads() => self.counts_on(slot),
            _ => self.accepted(slot),
        });
        let index = index.min(self.entries.last);
        let in_ballot = guard!(Mutant::CommitBelowNewBallot, index >= self.entries.first);
        if !in_ballot || index <= self.entries.commit {
            return None;
        }
        if self.leads() {
            let words = |slot: &u8| self.accepted(*slot) >= index;
            let by_words = self.others().filter(words).count();
            let by_completion = by_words + 1 < self.quorum();
            self.paths.committed_by_completion += u64::from(by_completion);
        }
        Some(index)
    }
}
