//! What f+1 replicas of another group hold of its leader's proposals.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use super::delivery::Proposal;
use crate::ballot::{Acceptance, Ballot};
use crate::group::acceptance_words::vouches;
use crate::group::commit::held_by;
use crate::ids::{GroupId, GroupSet, ReplicaId};

/// The acceptance words of other groups, as last read here.
pub(super) struct Quorums {
    replicas: u8,
    /// Indexed by group, then by slot.
    words: Vec<Acceptance>,
    /// For each group, the last result of [`held`](Self::held), until an acceptance word of the group changes.
    held: [Cell<(Ballot, u64)>; GroupSet::CAPACITY as usize],
}

impl Quorums {
    pub(super) fn new(groups: u16, replicas: u8) -> Self {
        let words = vec![Acceptance::default(); usize::from(groups) * usize::from(replicas)];
        let held = [const { Cell::new((Ballot::ZERO, 0)) }; GroupSet::CAPACITY as usize];
        Self { replicas, words, held }
    }

    /// The same words, for a replica that begins again without its log.
    pub(super) fn again(&self) -> Self {
        let held = [const { Cell::new((Ballot::ZERO, 0)) }; GroupSet::CAPACITY as usize];
        Self { replicas: self.replicas, words: self.words.clone(), held }
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
    /// The announcing leader is one of them.
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
        let others = usize::from(self.replicas) / 2;
        let index = held_by(self.replicas, others, |slot| match slot {
            _ if slot == ballot.slot() => 0,
            _ => vouches(self.words[self.ordinal(ReplicaId::new(group, slot))], ballot),
        });
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
