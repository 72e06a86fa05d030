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
        let index = if self.config.durable { self.held_on_disks() } else { self.held_in_memory() };
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

    /// The index up to which f+1 slots hold the log in memory. The leader has written everything that a follower reads,
    /// and a follower that has read an entry holds it.
    #[inline]
    fn held_in_memory(&self) -> u64 {
        let (leader, me) = (self.entries.ballot.slot(), self.config.me.slot);
        let mut needed = self.quorum() - 1 - usize::from(planted(Mutant::CommitWithoutQuorum));
        if me != leader && guard!(Mutant::LearnerCountsItself, !self.is_silent()) {
            needed = needed.saturating_sub(1);
        }
        held_by(self.config.replicas, needed, |slot| match slot {
            _ if slot == leader || slot == me => 0,
            _ if self.leads() => self.has_in_memory(slot),
            _ => self.accepted(slot),
        })
    }

    /// The index up to which our machine may receive the results of other groups that our log holds: the commit index,
    /// or, as leader of a durable cluster, the index up to which f+1 memories hold the log. A result follows from what
    /// its group has delivered, which rests on disks, and that group tells it again until all of ours have applied
    /// the message on their disks. So a loss of power loses none that counts, and a write fewer is waited for.
    pub fn results_index(&self) -> u64 {
        let commit = self.entries.commit;
        if !self.config.durable || !self.leads() || !self.keeps_ballot() {
            return commit;
        }
        let held = self.held_in_memory().min(self.entries.last);
        if held < self.entries.first { commit } else { commit.max(held) }
    }

    /// The index up to which f+1 slots hold the log on their disks, as their words say. Nobody is a holder without a
    /// word, neither the leader nor ourselves.
    #[inline(never)]
    fn held_on_disks(&self) -> u64 {
        let (leader, me) = (self.entries.ballot.slot(), self.config.me.slot);
        held_by(self.config.replicas, self.quorum(), |slot| match slot {
            _ if slot == leader && planted(Mutant::LeaderTakenForDurable) => u64::MAX,
            _ if slot == me => self.acceptance().map_or(0, |word| word.index),
            _ if planted(Mutant::CompletionTakenForDurable) => self.counts_on(slot),
            _ => self.accepted(slot),
        })
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
    #[inline]
    pub(crate) fn counts_on(&self, slot: u8) -> u64 {
        if self.config.durable && !planted(Mutant::CompletionTakenForDurable) {
            self.accepted(slot)
        } else {
            self.has_in_memory(slot)
        }
    }

    /// As leader: the index up to which that slot holds the log in its memory.
    #[inline]
    fn has_in_memory(&self, slot: u8) -> u64 {
        let accepted = self.accepted(slot);
        accepted.max(self.vouched_by_completion(slot, accepted))
    }

    /// The index up to which write completions count for a follower. They count only for an incarnation in the view,
    /// and only up to the first entry whose payload it may lack; beyond that only its acceptance word counts. A
    /// follower that has just granted our ballot may lack payloads that we have delivered and dropped: its word must
    /// first cover what was logged then.
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::super::testing::{Record, all_on_disk, append, leads, log_of, read_to};
    use super::super::{Cause, GroupConfig};
    use super::*;
    use crate::ballot::Acceptance;
    use crate::ids::ReplicaId;
    use crate::view::View;

    /// The ballot in which slot 0 leads.
    const LED: Ballot = Ballot::new(1, 0, 0);

    /// The word of `slot` covers everything in our log.
    fn acknowledged(log: &mut GroupLog<Record>, slot: u8) {
        let word = Acceptance { tag: log.ballot().tag(), index: log.last_index() };
        log.acknowledged(slot, word);
    }

    /// Slot 1 of three, which has read three entries of the leader of `LED`.
    fn follower(durable: bool) -> GroupLog<Record> {
        let mut log = log_of(3, durable);
        log.promise(LED);
        log.follow(LED, 1);
        read_to(&mut log, 3);
        log
    }

    /// The only replica of its group, as leader.
    fn alone(durable: bool) -> GroupLog<Record> {
        let me = ReplicaId { slot: 0, ..log_of(3, durable).config.me };
        let config = GroupConfig { me, replicas: 1, ..log_of(3, durable).config };
        let mut log = GroupLog::new(config, View::first(1));
        log.campaign(Cause::Start);
        log.begin_to_lead();
        let (index, birth, time_ms) = log.next_entry();
        log.push(Uncommitted { index, birth, time_ms, record: GroupRecord::NewBallot.into() });
        log.led_from(index);
        log
    }

    #[test]
    fn a_durable_leader_needs_its_own_disk_or_one_more_word() {
        let mut log = leads(log_of(5, true));
        acknowledged(&mut log, 2);
        acknowledged(&mut log, 3);
        assert_eq!(log.newly_committed(), None, "two of five hold it");
        all_on_disk(&mut log);
        assert_eq!(log.newly_committed(), Some(1));

        let mut log = leads(log_of(5, true));
        for slot in [2, 3, 4] {
            acknowledged(&mut log, slot);
        }
        assert_eq!(log.newly_committed(), Some(1), "three do, and the leader is none of them");
    }

    #[test]
    fn completed_writes_say_nothing_of_disks() {
        for durable in [false, true] {
            let mut log = leads(log_of(5, durable));
            for slot in [0, 2, 3, 4] {
                log.add_follower(slot, 0, 0);
                acknowledged(&mut log, slot);
            }
            let index = append(&mut log, Record::Message(1));
            for slot in [0, 2, 3, 4] {
                log.complete(slot, index);
            }
            all_on_disk(&mut log);
            assert_eq!(log.newly_committed(), Some(if durable { index - 1 } else { index }));
            acknowledged(&mut log, 2);
            acknowledged(&mut log, 3);
            assert_eq!(log.newly_committed(), Some(index));
        }
    }

    #[test]
    fn a_leader_gives_results_that_a_majority_holds_in_memory() {
        for durable in [false, true] {
            let mut log = leads(log_of(5, durable));
            for slot in [0, 2, 3, 4] {
                log.add_follower(slot, 0, 0);
            }
            acknowledged(&mut log, 0);
            acknowledged(&mut log, 2);
            let index = append(&mut log, Record::Message(1));
            log.complete(0, index);
            assert_eq!(log.results_index(), u64::from(durable), "two of five hold more");
            log.complete(2, index);
            assert_eq!(log.results_index(), if durable { index } else { 0 });
            assert_eq!(log.commit_index(), 0);
        }
        // Entries of earlier leaders may be cut off until a majority holds one of ours.
        assert_eq!(leads(log_of(5, true)).results_index(), 0);
        assert_eq!(alone(true).results_index(), 1);
        let mut log = follower(true);
        acknowledged(&mut log, 0);
        assert_eq!(log.results_index(), 0, "a follower waits for disks");
    }

    #[test]
    fn a_durable_follower_counts_words_alone() {
        let mut log = follower(true);
        assert_eq!(log.newly_committed(), None, "nobody has said that it holds anything");
        acknowledged(&mut log, 2);
        assert_eq!(log.newly_committed(), None, "one of three does");
        all_on_disk(&mut log);
        assert_eq!(log.newly_committed(), Some(3));

        let mut log = follower(true);
        all_on_disk(&mut log);
        assert_eq!(log.newly_committed(), None, "its leader has said nothing");
        acknowledged(&mut log, 0);
        assert_eq!(log.newly_committed(), Some(3));
    }

    #[test]
    fn one_replica_alone_needs_its_disk() {
        let mut log = alone(true);
        assert_eq!(log.newly_committed(), None);
        all_on_disk(&mut log);
        assert_eq!(log.newly_committed(), Some(1));
        assert_eq!(alone(false).newly_committed(), Some(1));
    }

    #[test]
    fn without_disks_leader_and_follower_are_implied() {
        let mut log = leads(log_of(5, false));
        acknowledged(&mut log, 2);
        assert_eq!(log.newly_committed(), None);
        acknowledged(&mut log, 3);
        assert_eq!(log.newly_committed(), Some(1));
        assert_eq!(follower(false).newly_committed(), Some(3));
    }
}
