//! Delivered messages to several groups, about which another group may still need our state machine's result.
//!
//! The machine of a destination may wait for the results of the others. So each replica keeps a message, and its machine
//! the result, until every destination has *applied* it: all replicas of the group that count have.
//!
//! **Places say what is applied.** The ranks of two groups cannot be compared, but each message has one place: its rank in
//! the log of the lowest common ancestor (LCA) of its destinations. A group takes what one LCA has ordered in the order
//! of places. So a place for each LCA says what a group has applied. These are the group and its ancestors, and no others.
//!
//! **Invariants.** `kept` is in the order of delivery, so ranks rise. `settled`, and all places, never fall. The places of
//! our own group are those of the messages up to `settled`, which are not dropped before `settled` has reached them.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::tree::Tree;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// A delivered message to several groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMessage {
    pub message: MessageId,
    pub destinations: GroupSet,
    /// Rank in our log.
    pub rank: Rank,
    /// Rank in the log of the lowest common ancestor.
    pub place: Rank,
}

/// A message that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    shared: SharedMessage,
    lca: GroupId,
}

/// What one replica keeps, and how far each group has applied what it delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    tree: Tree,
    own: GroupId,
    kept: VecDeque<Kept>,
    /// By group, and then by LCA: the place up to which the group has applied what that one has ordered for it.
    applied: Vec<Vec<Rank>>,
    /// Our rank up to which our group has applied everything.
    settled: Rank,
    /// By group: the rank in its own log up to which it says that it has applied everything. A survivor of the group that
    /// waits for something below that may wait for results that we have dropped.
    settled_by: Vec<Rank>,
    /// By group, itself included: rank of the last message that it shares with us.
    last_with: Vec<Rank>,
    /// As leader, by group: the rank up to which it was told that we have applied everything.
    told: Vec<Rank>,
    /// Something may be dropped.
    dirty: bool,
}

impl Shared {
    /// Nothing was delivered.
    pub fn new(tree: Tree, own: GroupId) -> Self {
        let nothing = vec![Rank::NOTHING; usize::from(tree.groups())];
        Self {
            tree,
            own,
            kept: VecDeque::new(),
            applied: vec![nothing.clone(); nothing.len()],
            settled: Rank::NOTHING,
            settled_by: nothing.clone(),
            last_with: nothing.clone(),
            told: nothing,
            dirty: false,
        }
    }

    /// A message is delivered.
    pub fn deliver(&mut self, delivered: SharedMessage) {
        let SharedMessage { destinations, rank, .. } = delivered;
        if !destinations.has_several() {
            return;
        }
        for group in destinations.iter() {
            self.last_with[group.index()] = rank;
        }
        let kept = Kept { shared: delivered, lca: self.tree.lca(destinations) };
        self.kept.push_back(kept);
        // A slow replica hears that all are done with a message before it delivers that.
        if rank <= self.settled {
            self.apply(kept);
        }
    }

    /// All replicas of our group that count have applied what it delivers up to a rank.
    pub fn settle(&mut self, rank: Rank) {
        if rank <= self.settled {
            return;
        }
        let first = self.kept.partition_point(|it| it.shared.rank <= self.settled);
        let end = self.kept.partition_point(|it| it.shared.rank <= rank);
        self.settled = rank;
        for at in first..end {
            self.apply(self.kept[at]);
        }
    }

    fn apply(&mut self, Kept { shared, lca }: Kept) {
        raise(&mut self.applied[self.own.index()][lca.index()], shared.place);
        self.dirty = true;
    }

    /// The rank up to which our group is known to have applied everything.
    pub const fn settled(&self) -> Rank {
        self.settled
    }

    /// The rank in its own log up to which a group, perhaps our own, is known to have applied everything.
    pub fn settled_by(&self, group: GroupId) -> Rank {
        if group == self.own { self.settled } else { self.settled_by[group.index()] }
    }

    /// The highest rank in another group's log that something here names.
    pub fn highest_rank_of(&self, group: GroupId) -> Rank {
        let places = self.applied.iter().map(|places| places[group.index()]);
        places.max().unwrap_or_default().max(self.settled_by[group.index()])
    }

    /// Another group tells the rank in its own log up to which it has applied everything, and [its
    /// places](Self::places). Returns whether any is news.
    pub fn hear(&mut self, group: GroupId, settled: Rank, places: &[Rank]) -> bool {
        raise(&mut self.settled_by[group.index()], settled);
        let known = &mut self.applied[group.index()];
        let mut news = false;
        for (lca, place) in self.tree.ancestors(group).zip(places) {
            news |= raise(&mut known[lca.index()], *place);
        }
        self.dirty |= news;
        news
    }

    /// The places up to which our group has applied everything: of the group itself, of its parent, and so on up to the
    /// root.
    pub fn places(&self) -> impl Iterator<Item = Rank> {
        let own = &self.applied[self.own.index()];
        self.tree.ancestors(self.own).map(|lca| own[lca.index()])
    }

    /// Whether a group, perhaps our own, has applied a message.
    fn has_applied(&self, group: GroupId, Kept { shared, lca }: &Kept) -> bool {
        if group == self.own {
            return shared.rank <= self.settled;
        }
        let places = &self.applied[group.index()];
        if planted(Mutant::PlacesOfAnyLca) {
            return places.iter().any(|place| *place >= shared.place);
        }
        places[lca.index()] >= shared.place
    }

    /// Drops what all destinations have applied, and calls `dropped` with each message.
    pub fn trim(&mut self, mut dropped: impl FnMut(MessageId)) {
        if !core::mem::take(&mut self.dirty) {
            return;
        }
        let mut kept = core::mem::take(&mut self.kept);
        kept.retain(|it| {
            let SharedMessage { message, destinations, rank, .. } = it.shared;
            let here = planted(Mutant::OwnAppliedIsEnough) && rank <= self.settled;
            let over = here || destinations.iter().all(|group| self.has_applied(group, it));
            if over {
                dropped(message);
            }
            !over
        });
        self.kept = kept;
    }

    /// The groups because of which we keep messages that our group has applied.
    pub fn lacks(&self) -> GroupSet {
        let mut lacks = GroupSet::EMPTY;
        for it in self.kept.iter().take_while(|it| it.shared.rank <= self.settled) {
            let others = it.shared.destinations.minus(lacks).without(self.own);
            lacks = others
                .iter()
                .filter(|group| !self.has_applied(*group, it))
                .fold(lacks, GroupSet::with);
        }
        lacks
    }

    /// As leader, whose group has applied everything up to a rank: the groups that are to be told, perhaps our own.
    pub fn take_untold(&mut self, applied: Rank) -> GroupSet {
        let all = applied.max(self.settled);
        let mut untold = GroupSet::EMPTY;
        for group in GroupSet::first(self.tree.groups()).iter() {
            let told = &mut self.told[group.index()];
            if self.last_with[group.index()] > *told && all > *told {
                *told = all;
                untold.insert(group);
            }
        }
        untold
    }

    /// As new leader: nobody may have heard what our predecessor told.
    pub fn forget_told(&mut self) {
        self.told.fill(Rank::NOTHING);
    }

    /// The destinations of a message that is kept.
    pub fn destinations(&self, message: MessageId) -> Option<GroupSet> {
        self.kept
            .iter()
            .map(|it| it.shared)
            .find(|it| it.message == message)
            .map(|it| it.destinations)
    }

    /// Number of messages that are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn save(&self, out: &mut Writer<'_>) {
        let kept = if planted(Mutant::SharedNotInState) { 0 } else { self.kept.len() };
        out.u64(kept as u64);
        for Kept { shared, .. } in self.kept.iter().take(kept) {
            out.message(shared.message);
            out.groups(shared.destinations);
            out.words([shared.rank.number(), shared.place.number()]);
        }
        out.u64(self.settled.number());
        let places = GroupSet::first(self.tree.groups()).iter().flat_map(|group| {
            let places = &self.applied[group.index()];
            self.tree.ancestors(group).map(|lca| places[lca.index()])
        });
        let ranks = self.last_with.iter().chain(&self.settled_by).copied();
        places.chain(ranks).for_each(|word| out.u64(word.number()));
    }

    pub(super) fn restore(tree: &Tree, own: GroupId, from: &mut Reader<'_>) -> Option<Self> {
        let mut shared = Self::new(*tree, own);
        for _ in 0..from.u64()? {
            let (message, destinations) = (from.message()?, from.groups()?);
            let [rank, place] = from.words()?.map(Rank::new);
            let known = GroupSet::first(tree.groups()).contains_all(destinations);
            let rises = shared.kept.back().is_none_or(|last| last.shared.rank < rank);
            (known && rises).then_some(())?;
            let lca = tree.lca(destinations);
            let kept = SharedMessage { message, destinations, rank, place };
            shared.kept.push_back(Kept { shared: kept, lca });
        }
        shared.settled = Rank::new(from.u64()?);
        for group in GroupSet::first(tree.groups()).iter() {
            for lca in tree.ancestors(group) {
                shared.applied[group.index()][lca.index()] = Rank::new(from.u64()?);
            }
        }
        for last in shared.last_with.iter_mut().chain(&mut shared.settled_by) {
            *last = Rank::new(from.u64()?);
        }
        shared.dirty = true;
        Some(shared)
    }
}

/// Raises a place. Returns whether that changes it.
fn raise(known: &mut Rank, place: Rank) -> bool {
    let news = place > *known;
    *known = place.max(*known);
    news
}

#[cfg(test)]
mod tests;
