//! What f+1 replicas hold: acceptance, completion, commitment, and the folding of what is committed.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::shared::SLOTS;
use super::{Fed, Ramcast, Role, Uncommitted};
use crate::ballot::{Acceptance, Ballot};
use crate::guard;
use crate::ids::{GroupId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ramcast::delivery::{Pending, Proposal};
use crate::step::Record;

impl Ramcast {
    /// Takes in an acceptance word, as [`Acknowledged`](crate::step::Event::Acknowledged) does.
    #[inline]
    pub fn acknowledged(&mut self, by: ReplicaId, acceptance: Acceptance) {
        let ordinal = self.ordinal(by);
        self.words[ordinal] = acceptance;
        self.held[by.group.index()].set((Ballot::ZERO, 0));
    }

    /// Whether an acceptance word of that group may let us go on. What it says is counted in any case,
    /// when something comes that rests on it.
    #[inline]
    pub fn waits_for(&self, group: GroupId) -> bool {
        if group == self.group() {
            return !self.suffix.is_empty() || !self.large.is_empty();
        }
        self.order.len() > 0
    }

    pub(super) fn complete(&mut self, slot: u8, index: u64) {
        if !self.leads() {
            return;
        }
        let completed = &mut self.completed[usize::from(slot)];
        *completed = index.max(*completed);
        let barred = self.large.front().is_some_and(|large| large.index <= index);
        self.paths.completion_not_enough += u64::from(barred);
    }

    /// Up to which index the word of `slot` in `group` vouches in `ballot`.
    pub(super) fn accepted(&self, group: GroupId, slot: u8, ballot: Ballot) -> u64 {
        let word = self.words[self.ordinal(ReplicaId::new(group, slot))];
        let same = guard!(Mutant::AcceptanceOfAnyBallot, word.tag == ballot.tag());
        if same { word.index } else { 0 }
    }

    /// Raises the commit index to the highest that f+1 slots of our group are known to hold in our
    /// ballot, and folds in what it passes. Whoever has let another lead commits nothing until it
    /// reads that one's first words: what it logs meanwhile, its old leader has not. A turn's end and the
    /// next delivery do it by themselves.
    pub fn advance_commit(&mut self) {
        if !guard!(Mutant::LeftBallotCommits, self.promised == self.ballot()) {
            return;
        }
        if self.suffix.is_empty() {
            return;
        }
        let (group, ballot, me) = (self.group(), self.ballot(), self.config.me.slot);
        // The leader has written all that a follower reads, and who reads it holds it.
        let mut needed = self.quorum() - 1 - usize::from(planted(Mutant::CommitWithoutQuorum));
        if me != ballot.slot() && guard!(Mutant::LearnerCountsItself, !self.is_silent()) {
            needed = needed.saturating_sub(1);
        }
        let index = self.held_by(needed, |slot| match slot {
            _ if slot == ballot.slot() || slot == me => 0,
            _ if self.leads() => self.counts_on(slot),
            _ => self.accepted(group, slot, ballot),
        });
        let index = index.min(self.last);
        let in_ballot = guard!(Mutant::CommitBelowNewBallot, index >= self.new_ballot_index);
        if in_ballot && index > self.commit {
            if self.leads() {
                let words = |slot: &u8| self.accepted(group, *slot, ballot) >= index;
                let by_words = self.others().filter(words).count();
                let by_completion = by_words + 1 < self.quorum();
                self.paths.committed_by_completion += u64::from(by_completion);
            }
            self.fold(index);
        }
    }

    /// As candidate, with the log that is adopted: everything up to `index` is committed, since a replica that
    /// granted our ballot has folded it. A log is full of what its holder does not know to be committed; one that
    /// only replicas without that knowledge campaigned for would have no room for a ballot of theirs.
    pub fn learn_committed(&mut self, index: u64) {
        let index = index.min(self.last);
        if index > self.commit {
            self.paths.learned_committed += 1;
            self.fold(index);
        }
    }

    /// As leader: up to which index we count on the memory of that slot.
    pub fn counts_on(&self, slot: u8) -> u64 {
        let accepted = self.accepted(self.group(), slot, self.ballot());
        accepted.max(self.vouched_by_completion(slot, accepted))
    }

    /// Write completions count only for a life of the follower that counts, and only up to the first
    /// entry whose payload it may lack; from there on only its word does. Whoever has just let us in
    /// may lack payloads that we have delivered and forgotten: its word must first cover what was
    /// logged then.
    fn vouched_by_completion(&self, slot: u8, accepted: u64) -> u64 {
        let Some(Fed { incarnation, from, .. }) = self.fed[usize::from(slot)] else { return 0 };
        let completed = self.completed[usize::from(slot)];
        if !self.view.names(slot, incarnation) {
            return if planted(Mutant::CompletionOfUnnamedLife) { completed } else { 0 };
        }
        if planted(Mutant::CompletionWithoutPayload) {
            return completed;
        }
        if accepted < from {
            return 0;
        }
        let barrier = self.large.partition_point(|large| large.index <= accepted);
        self.large.get(barrier).map_or(completed, |large| completed.min(large.index - 1))
    }

    /// Whether f+1 replicas of the proposing group hold the proposal, in the ballot it was made in.
    /// The announcing leader is one of them.
    #[inline]
    pub(super) fn remote_quorum(&self, remote: &Proposal) -> bool {
        let (ballot, index) = self.held[remote.group().index()].get();
        let known = ballot == remote.ballot;
        let held = if known { index } else { self.held(remote.group(), remote.ballot) };
        held >= remote.index
    }

    /// Up to which index f+1 replicas of a group hold what its leader logged in a ballot, found out anew.
    #[cold]
    fn held(&self, group: GroupId, ballot: Ballot) -> u64 {
        let known = &self.held[group.index()];
        let index = self.held_by(self.quorum() - 1, |slot| match slot {
            _ if slot == ballot.slot() => 0,
            _ => self.accepted(group, slot, ballot),
        });
        known.set((ballot, index));
        index
    }

    /// The highest index up to which so many slots of a group hold something; any, if none is needed.
    fn held_by(&self, needed: usize, held: impl Fn(u8) -> u64) -> u64 {
        let mut all = [0; SLOTS];
        let all = &mut all[..usize::from(self.config.replicas)];
        match needed {
            0 => u64::MAX,
            1 => (0..self.config.replicas).map(held).max().expect("no group is empty"),
            _ => {
                (0..).zip(all.iter_mut()).for_each(|(slot, index)| *index = held(slot));
                all.sort_unstable_by_key(|index| Reverse(*index));
                all[needed - 1]
            }
        }
    }

    /// Everything up to `index` is committed: it is part of the replicated state from here on.
    pub(super) fn fold(&mut self, index: u64) {
        self.commit = index;
        while let Some(entry) = self.suffix.pop_front(index) {
            self.commit_birth = entry.birth;
            self.fold_record(entry);
        }
    }

    fn fold_record(&mut self, entry: Uncommitted) {
        let Uncommitted { index, time_ms, record, .. } = entry;
        match record {
            Record::NewBallot => {
                if self.leads() && entry.birth == self.ballot() {
                    self.fruitless = 0;
                    self.paths.new_ballots += 1;
                }
            }
            Record::Exchange => {}
            Record::Local { message, low_water, timestamp, destinations, inline } => {
                // A message to us alone has no others' proposals.
                let shared = destinations.has_several();
                let remotes = if shared { self.lists.take() } else { Vec::new() };
                let mut pending = Pending::new(
                    message,
                    low_water,
                    destinations,
                    timestamp,
                    index,
                    time_ms,
                    inline,
                    remotes,
                );
                pending.since_ms = self.now_ms;
                self.order.local(pending);
                if shared && !self.afloat.is_empty() {
                    self.afloat.remove(&message);
                }
            }
            Record::Remote(_) => {
                let Self { order, suffix, .. } = self;
                suffix.take_proposals(|proposals| order.remotes(proposals));
            }
            Record::Decided(decision) => {
                let news = self.order.decide(decision);
                self.answered |= news && self.asked;
            }
            Record::Raise { timestamp } => self.passed.raise(timestamp),
            Record::Evict { slot } => {
                self.view.evict(slot);
                if slot == self.config.me.slot {
                    self.doubtful = u64::MAX;
                }
                self.changing &= !(1 << slot);
            }
            Record::Join { slot, incarnation } => {
                self.view.join(slot, incarnation);
                self.changing &= !(1 << slot);
                self.joins[usize::from(slot)] = index;
                // It may have told us before we knew that it counts, and tells us once.
                let fed = self.fed[usize::from(slot)];
                if fed.is_some_and(|fed| fed.told && fed.incarnation == incarnation) {
                    self.shared.told_by(slot, self.shared.applied_by(slot));
                }
                self.paths.joined += u64::from(self.leads());
                if slot == self.config.me.slot {
                    self.doubtful = index;
                }
            }
        }
    }

    /// Whether we are an incarnation that our group has not admitted: we vouch for nothing.
    ///
    /// We are admitted once we have folded our `Join`; or once we were [told](Self::hear_admitted) that it is
    /// committed, follow a leader of that ballot or a later one, and hold it in our log. Both say the same:
    /// f+1 other slots hold the `Join`, and our words cover it with all that stands before it. Words of an
    /// earlier ballot stay unsaid: there, what our former incarnation had said may be all that is known of us.
    pub fn is_silent(&self) -> bool {
        if self.role == Role::Blank || self.suspended {
            return true;
        }
        let (me, life) = (self.config.me.slot, self.config.incarnation);
        if planted(Mutant::LetInTooEarly) {
            return self.named()[usize::from(me)] != life;
        }
        !self.view.names(me, life) && !self.holds_join()
    }

    /// Whether our log holds a `Join` of ours that is not folded here, but committed as we were told.
    fn holds_join(&self) -> bool {
        let join = Record::Join { slot: self.config.me.slot, incarnation: self.config.incarnation };
        self.admitted_below.is_some_and(|ballot| self.ballot() >= ballot)
            && self.suffix.iter().any(|entry| entry.record == join)
    }
}
