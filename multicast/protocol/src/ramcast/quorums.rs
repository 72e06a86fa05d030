//! What f+1 replicas of another group hold of its leader's proposals.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use super::delivery::Proposal;
use crate::ballot::{Acceptance, Ballot};
use crate::group::GroupConfig;
use crate::group::acceptance_words::vouches;
use crate::group::commit::held_by;
use crate::ids::{GroupId, GroupSet, ReplicaId};
use crate::mutants::{Mutant, planted};

/// The acceptance words of other groups, as last read here.
pub(super) struct Quorums {
    replicas: u8,
    /// Whether words say what is on disks, and the leader holds nothing of which it has not said so.
    durable: bool,
    /// Indexed by group, then by slot.
    words: Vec<Acceptance>,
    /// For each group, the last result of [`held`](Self::held), until an acceptance word of the group changes.
    held: [Cell<(Ballot, u64)>; GroupSet::CAPACITY as usize],
}

impl Quorums {
    pub(super) fn new(groups: u16, config: &GroupConfig) -> Self {
        let GroupConfig { replicas, durable, .. } = *config;
        let words = vec![Acceptance::default(); usize::from(groups) * usize::from(replicas)];
        let held = [const { Cell::new((Ballot::ZERO, 0)) }; GroupSet::CAPACITY as usize];
        Self { replicas, durable, words, held }
    }

    /// The same words, for a replica that begins again without its log.
    pub(super) fn again(&self) -> Self {
        let held = [const { Cell::new((Ballot::ZERO, 0)) }; GroupSet::CAPACITY as usize];
        let Self { replicas, durable, .. } = *self;
        Self { replicas, durable, words: self.words.clone(), held }
    }

    fn ordinal(&self, replica: ReplicaId) -> usize {
        replica.group.index() * usize::from(self.replicas) + usize::from(replica.slot)
    }

    #[inline]
    pub(super) fn acknowledged(&mut self, by: ReplicaId, word: Acceptance) {
        let ordinal = self.ordinal(by);
        self.words[ordinal] = word;
        self.held[by.group.index()].set((Ballot::ZERO, 0));
    }

    /// Whether f+1 replicas of the proposing group hold the proposal, in the ballot it was made in.
    /// Unless disks count, the announcing leader is one of them without a word.
    #[inline]
    pub(super) fn hold(&self, remote: &Proposal) -> bool {
        let (ballot, index) = self.held[remote.group().index()].get();
        let known = ballot == remote.ballot;
        let held = if known { index } else { self.held(remote.group(), remote.ballot) };
        held >= remote.index
    }

    /// The index up to which f+1 replicas of a group hold what its leader logged in a ballot, computed anew.
    #[cold]
    fn held(&self, group: GroupId, ballot: Ballot) -> u64 {
        let implied = !self.durable || planted(Mutant::LeaderTakenForDurable);
        let others = usize::from(self.replicas) / 2;
        let first = self.ordinal(ReplicaId::new(group, 0));
        let words = &self.words[first..first + usize::from(self.replicas)];
        let said = |slot: u8| vouches(words[usize::from(slot)], ballot);
        let index = if implied {
            let of_others = |slot| if slot == ballot.slot() { 0 } else { said(slot) };
            held_by(self.replicas, others, of_others)
        } else {
            held_by(self.replicas, others + 1, said)
        };
        self.held[group.index()].set((ballot, index));
        index
    }

    /// The acceptance words of those replicas of a group that have sent one.
    pub(super) fn words_of(&self, group: GroupId) -> impl Iterator<Item = Acceptance> {
        let first = group.index() * usize::from(self.replicas);
        let words = self.words[first..first + usize::from(self.replicas)].iter().copied();
        words.filter(|word| *word != Acceptance::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::*;
    use crate::timestamp::Timestamp;

    /// The ballot in which slot 0 of group 1 leads.
    const LED: Ballot = Ballot::new(1, 0, 0);

    /// Of a replica of group 0, in a cluster of two groups of three.
    fn quorums(durable: bool) -> Quorums {
        let config = config(ReplicaId::new(GroupId(0), 1), 2, 3).group;
        Quorums::new(2, &GroupConfig { durable, ..config })
    }

    /// Group 1's proposal, at index 5 of its log.
    fn proposal() -> Proposal {
        Proposal { timestamp: Timestamp::new(3, GroupId(1)), ballot: LED, index: 5 }
    }

    /// Whether the proposal is held when these slots have said that they hold so much.
    fn held(durable: bool, words: &[(u8, u64)]) -> bool {
        let mut quorums = quorums(durable);
        for (slot, index) in words {
            let word = Acceptance { tag: LED.tag(), index: *index };
            quorums.acknowledged(ReplicaId::new(GroupId(1), *slot), word);
        }
        let again = quorums.again();
        assert_eq!(again.hold(&proposal()), quorums.hold(&proposal()));
        quorums.hold(&proposal())
    }

    #[test]
    fn without_disks_the_announcing_leader_holds_its_proposal() {
        assert!(!held(false, &[]));
        assert!(!held(false, &[(0, 9)]), "its word adds nothing");
        assert!(held(false, &[(2, 5)]));
    }

    #[test]
    fn with_disks_the_announcing_leader_holds_what_its_word_says() {
        assert!(!held(true, &[(2, 9)]));
        assert!(!held(true, &[(0, 4), (2, 5)]), "its word is of an earlier entry");
        assert!(held(true, &[(0, 5), (2, 5)]));
        assert!(held(true, &[(1, 5), (2, 9)]), "its followers' words are enough");
    }
}
