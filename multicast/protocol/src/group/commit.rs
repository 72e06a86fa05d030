//! Commitment: which entries f+1 replicas hold, and whose memory counts.

use core::cmp::Reverse;

use super::followers::FollowerProgress;
use super::record::{GroupRecord, LogRecord};
use super::uncommitted::Uncommitted;
use super::{GroupLog, Role, SLOTS};
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::{Mutant, planted};

/// The highest index up to which `needed` slots hold the log; unbounded if `needed` is 0.
pub(crate) fn held_by(replicas: u8, needed: usize, held: impl Fn(u8) -> u64) -> u64 {
    let mut all = [0; SLOTS];
    let all = &mut all[..usize::from(replicas)];
    match needed {
        0 => u64::MAX,
        1 => (0..replicas).map(held).max().expect("no group is empty"),
        _ => {
            (0..).zip(all.iter_mut()).for_each(|(slot, index)| *index = held(slot));
            all.sort_unstable_by_key(|index| Reverse(*index));
            all[needed - 1]
        }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// The new commit index, if it is higher than before: the highest index that f+1 slots are known to hold in our
    /// ballot. A replica that has granted another ballot commits nothing until it reads that leader's header: its old
    /// leader does not have what it logs in the meantime.
    pub(crate) fn newly_committed(&mut self) -> Option<u64> {
        if !guard!(Mutant::LeftBallotCommits, self.keeps_ballot()) || self.is_all_committed() {
            return None;
        }
        let (ballot, me) = (self.entries.ballot, self.config.me.slot);
        // The leader has written everything that a follower reads, and a follower that has read an entry holds it.
        let mut needed = self.quorum() - 1 - usize::from(planted(Mutant::CommitWithoutQuorum));
        if me != ballot.slot() && guard!(Mutant::LearnerCountsItself, !self.is_silent()) {
            needed = needed.saturating_sub(1);
        }
        let index = held_by(self.config.replicas, needed, |slot| match slot {
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

    /// Commits everything up to `index`. The records are then taken one by one.
    pub(crate) fn commit_to(&mut self, index: u64) {
        assert!(self.entries.commit <= index, "what is committed stays so");
        assert!(index <= self.entries.last, "what is committed is logged");
        self.entries.commit = index;
    }

    /// Takes the next committed record, if there is one.
    pub(crate) fn next_committed(&mut self) -> Option<Uncommitted<R>> {
        let entry = self.entries.uncommitted.pop_front(self.entries.commit)?;
        self.entries.commit_birth = entry.birth;
        Some(entry)
    }

    /// Handles a committed `NewBallot`.
    pub(crate) fn commits_new_ballot(&mut self, birth: Ballot) {
        if self.leads() && birth == self.entries.ballot {
            self.election.failed_ballots = 0;
            self.paths.new_ballots += 1;
        }
    }

    /// Whether this replica logs, commits and acknowledges in the ballot that it has promised.
    pub(crate) fn keeps_ballot(&self) -> bool {
        self.election.promised == self.entries.ballot
    }

    /// As leader: our write of the log up to `index` to the follower in `slot` is complete.
    pub(crate) fn complete(&mut self, slot: u8, index: u64) {
        if !self.leads() {
            return;
        }
        debug_assert!(index <= self.entries.last, "what is written is logged");
        let completed = &mut self.followers.completed[usize::from(slot)];
        *completed = index.max(*completed);
        let barred = self.payloads.kept.front().is_some_and(|large| large.index <= index);
        self.paths.completion_not_enough += u64::from(barred);
    }

    /// As leader: the index up to which we count on the memory of that slot.
    pub(crate) fn counts_on(&self, slot: u8) -> u64 {
        let accepted = self.accepted(slot);
        accepted.max(self.vouched_by_completion(slot, accepted))
    }

    /// The index up to which write completions count for a follower. They count only for an incarnation in the view,
    /// and only up to the first entry whose payload it may lack; beyond that only its acceptance word counts. A
    /// follower that has just granted our ballot may lack payloads that we have delivered and dropped: its word must
    /// first cover what was logged then.
    fn vouched_by_completion(&self, slot: u8, accepted: u64) -> u64 {
        let Some(FollowerProgress { incarnation, from, .. }) =
            self.followers.progress[usize::from(slot)]
        else {
            return 0;
        };
        let completed = self.followers.completed[usize::from(slot)];
        if !self.members.view.names(slot, incarnation) {
            return if planted(Mutant::CompletionOfUnnamedIncarnation) { completed } else { 0 };
        }
        if planted(Mutant::CompletionWithoutPayload) {
            return completed;
        }
        if accepted < from {
            return 0;
        }
        let barrier = self.payloads.kept.partition_point(|large| large.index <= accepted);
        self.payloads.kept.get(barrier).map_or(completed, |large| completed.min(large.index - 1))
    }

    /// Whether we are an incarnation that our group has not admitted. Then nothing that we hold counts.
    ///
    /// We are admitted once we have folded our `Join`. We are also admitted if we were [told](super::Control::Admitted)
    /// that it is committed, follow a leader of that ballot or a later one, and have it in our log. Both mean the same:
    /// f+1 other slots hold the `Join`, and our words cover it with everything before it. We write no acceptance words
    /// of an earlier ballot: there, the words of our former incarnation may be all that others have of us.
    pub fn is_silent(&self) -> bool {
        if self.role == Role::Blank || self.suspended {
            return true;
        }
        let (me, incarnation) = (self.config.me.slot, self.config.incarnation);
        if planted(Mutant::AdmittedTooEarly) {
            return self.named()[usize::from(me)] != incarnation;
        }
        !self.members.view.names(me, incarnation) && !self.holds_join()
    }

    /// Whether our log contains a `Join` of ours that is not folded here, but known to be committed.
    fn holds_join(&self) -> bool {
        let (slot, incarnation) = (self.config.me.slot, self.config.incarnation);
        let join = GroupRecord::Join { slot, incarnation };
        self.election.admitted_below.is_some_and(|ballot| self.ballot() >= ballot)
            && self.entries.uncommitted.iter().any(|entry| entry.record.of_group() == Some(join))
    }
}
