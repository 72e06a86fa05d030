//! Stability of entries: no group that a client asks later can still order something before a stable one.
//!
//! An order without cycles is not the order of real time. A group may deliver a message while another destination has
//! not taken it, and orders a new message in front of it, although a client has had an answer in between. So answers
//! wait; nothing else does.
//!
//! **What is told.** A word for each destination of a child's subtree, in both directions. *Up*, from child to parent:
//! of your edges through n, each with that destination is stable in my subtree. *Down*, from parent to child: of my
//! edges through n, each with that destination is stable everywhere.
//!
//! **Subtree-stable** is a committed entry whose children's Up words cover it, for each of its destinations there, if
//! every earlier entry here that shares a destination in this subtree is subtree-stable. **Stable** is one that is
//! subtree-stable and is covered by the Down words, if it came from the parent, and whose earlier entries that share a
//! destination in this subtree are stable.
//!
//! An answer to a message waits until each earlier message delivered here with a destination outside the message's is
//! stable. A client joins the answers of all destinations, so those inside need no wait. All messages delivered here
//! share our group, so the stable ones are a prefix of what is delivered, and one rank says how far that has come.
//!
//! **Invariant.** `entries` holds, in log order, the committed entries with several destinations that are not known to
//! be stable. Words never fall, in one pair of generations: a word n says "through edge n - 1", and 0 nothing.
//!
//! A message to one group is not here: it waits for nothing that the entries before it do not wait for.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::tree::Tree;
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// A committed entry that is not known to be stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstable {
    pub rank: Rank,
    /// The message, if it is delivered here.
    pub delivered: Option<MessageId>,
    pub destinations: GroupSet,
    /// Number of the edge from the parent, or 0 if it is of the parent's former generation. `None` if we ordered it.
    pub from_parent: Option<u64>,
    /// Numbers of the edges to children, or 0 for what was acknowledged in our former generation.
    pub to_children: Vec<(GroupId, u64)>,
    pub(super) in_subtree: bool,
    /// Time of its commit here.
    pub(super) since_ms: u64,
}

impl Unstable {
    /// An entry that was just committed.
    pub const fn new(
        rank: Rank,
        delivered: Option<MessageId>,
        destinations: GroupSet,
        from_parent: Option<u64>,
        to_children: Vec<(GroupId, u64)>,
    ) -> Self {
        let in_subtree = false;
        Self { rank, delivered, destinations, from_parent, to_children, in_subtree, since_ms: 0 }
    }
}

/// The stable entries of one replica, and the words that make them so.
pub struct Gate {
    tree: Tree,
    own: GroupId,
    /// By destination: our child at or above it.
    towards: Vec<Option<GroupId>>,
    pub(super) entries: VecDeque<Unstable>,
    /// By destination, as heard: from the child above it, and from our parent.
    up: Vec<u64>,
    down: Vec<u64>,
    /// By destination, as we tell: to our parent, and to the child above it.
    tells_up: Vec<u64>,
    tells_down: Vec<u64>,
    /// The last edge from our parent that is committed here, and the last one to each child, by child.
    taken: u64,
    passed_on: Vec<u64>,
    /// Rank of the first entry that is delivered here and not stable.
    pub(super) first: Option<Rank>,
    /// The destinations of the entries that are delivered here, and perhaps of some that are stable by now.
    delivered_to: GroupSet,
    /// Lists of edges of entries that are stable by now, to be used again.
    spare: Vec<Vec<(GroupId, u64)>>,
    /// Something has come in since the last [`settle`](Self::settle).
    stirred: bool,
}

impl Gate {
    /// Nothing is committed.
    pub fn new(tree: Tree, own: GroupId) -> Self {
        let words = vec![0; usize::from(tree.groups())];
        let groups = (0..tree.groups()).map(GroupId);
        Self {
            tree,
            own,
            towards: groups.map(|group| tree.child_towards(own, group)).collect(),
            entries: VecDeque::new(),
            up: words.clone(),
            down: words.clone(),
            tells_up: words.clone(),
            tells_down: words.clone(),
            taken: 0,
            passed_on: words,
            first: None,
            delivered_to: GroupSet::EMPTY,
            spare: Vec::new(),
            stirred: true,
        }
    }

    /// An entry is committed.
    pub fn commit(&mut self, entry: Unstable) {
        self.note_edges(entry.from_parent, &entry.to_children);
        if entry.destinations.has_several() {
            if entry.delivered.is_some() {
                // An answer may be asked for before the next `settle`.
                self.note_delivered(entry.rank, entry.destinations);
            }
            self.entries.push_back(entry);
        } else {
            recycle(&mut self.spare, entry.to_children);
        }
        self.stirred = true;
    }

    /// An empty list of edges for the next entry.
    pub(super) fn spare(&mut self) -> Vec<(GroupId, u64)> {
        self.spare.pop().unwrap_or_default()
    }

    /// An entry that is not stable is delivered here, behind all those noted before.
    pub(super) fn note_delivered(&mut self, rank: Rank, destinations: GroupSet) {
        self.first = self.first.or(Some(rank));
        self.delivered_to = self.delivered_to.union(destinations);
    }

    /// Edges with these numbers are committed here.
    pub(super) fn note_edges(&mut self, from_parent: Option<u64>, to_children: &[(GroupId, u64)]) {
        self.taken = from_parent.unwrap_or(self.taken);
        for (child, number) in to_children {
            self.passed_on[child.index()] = *number;
        }
        self.stirred = true;
    }

    /// A child tells a word.
    pub fn hear_up(&mut self, destination: GroupId, word: u64) {
        let known = &mut self.up[destination.index()];
        self.stirred |= word > *known;
        *known = word.max(*known);
    }

    /// Our parent tells a word. Returns whether it is news.
    pub fn hear_down(&mut self, destination: GroupId, word: u64) -> bool {
        let known = &mut self.down[destination.index()];
        let news = word > *known;
        self.stirred |= news;
        *known = word.max(*known);
        news
    }

    /// A child was recreated: what its former self told may be lost.
    pub fn child_recreated(&mut self, child: GroupId) {
        for group in self.tree.below(child).iter() {
            self.up[group.index()] = 0;
        }
        self.stirred = true;
    }

    /// Our parent was recreated: its numbers begin anew. A report may leave before the next [`settle`](Self::settle), in
    /// the new generation: it says nothing of the old one's edges.
    pub fn parent_recreated(&mut self) {
        self.down.fill(0);
        self.tells_up.fill(0);
        self.taken = 0;
        for entry in &mut self.entries {
            entry.from_parent = entry.from_parent.map(|_| 0);
        }
        self.stirred = true;
    }

    /// Our group was recreated from this state: edges to `child` count anew behind the first `gone` ones.
    pub fn renumbered(&mut self, child: GroupId, gone: u64) {
        for (_, number) in
            self.entries.iter_mut().flat_map(|it| &mut it.to_children).filter(|it| it.0 == child)
        {
            *number = number.saturating_sub(gone);
        }
        let last = &mut self.passed_on[child.index()];
        *last = last.saturating_sub(gone);
        for group in self.tree.below(child).iter() {
            self.tells_down[group.index()] = 0;
        }
        self.child_recreated(child);
    }

    /// Whether something has come in since the last [`settle`](Self::settle).
    pub const fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Computes what is stable by now. Returns whether anything has come in since the last time.
    pub fn settle(&mut self) -> bool {
        if !core::mem::take(&mut self.stirred) {
            return false;
        }
        let below = self.tree.below(self.own);
        let alone = planted(Mutant::WordsWithoutEarlierEntries);
        // Destinations of earlier entries that are not subtree-stable, and not stable.
        let (mut in_subtree, mut anywhere) = (GroupSet::EMPTY, GroupSet::EMPTY);
        self.tells_up.fill(self.taken + 1);
        for (word, child) in self.tells_down.iter_mut().zip(&self.towards) {
            *word = child.map_or(0, |child| self.passed_on[child.index()] + 1);
        }
        (self.first, self.delivered_to) = (None, GroupSet::EMPTY);
        let mut entries = core::mem::take(&mut self.entries);
        entries.retain_mut(|entry| {
            let here = entry.destinations.intersection(below);
            if !entry.in_subtree {
                let waits = !alone && !here.intersection(in_subtree).is_empty();
                entry.in_subtree = !waits && self.is_covered_below(entry);
                if !entry.in_subtree {
                    in_subtree = in_subtree.union(here);
                    self.bound_up(entry, here);
                }
            }
            let waits = !alone && !here.intersection(anywhere).is_empty();
            let stable = entry.in_subtree && !waits && self.is_covered_above(entry, here);
            if !stable {
                anywhere = anywhere.union(here);
                if entry.delivered.is_some() {
                    self.note_delivered(entry.rank, entry.destinations);
                }
                if !(planted(Mutant::DownIgnoresParent) && entry.in_subtree) {
                    self.bound_down(entry);
                }
            }
            if stable {
                recycle(&mut self.spare, core::mem::take(&mut entry.to_children));
            }
            !stable
        });
        self.entries = entries;
        true
    }

    /// Whether the children's words cover the entry.
    fn is_covered_below(&self, entry: &Unstable) -> bool {
        let covers = |(child, number): &(GroupId, u64)| {
            let there = self.tree.below(*child).intersection(entry.destinations);
            there.iter().all(|group| self.up[group.index()] > *number)
        };
        guard!(Mutant::UpIgnored, entry.to_children.iter().all(covers))
    }

    /// As leader: the first message delivered here on which answers wait, the time of its commit here, and the groups of
    /// which no word has come that it is stable there. `None` if answers wait for nothing.
    pub(super) fn holds_up(&self) -> Option<(u64, MessageId, GroupSet)> {
        let mut lacks = GroupSet::EMPTY;
        let below = self.tree.below(self.own);
        for entry in &self.entries {
            let children = if entry.in_subtree { &[][..] } else { &entry.to_children };
            for (child, number) in children {
                let there = self.tree.below(*child).intersection(entry.destinations).iter();
                lacks =
                    there.filter(|it| self.up[it.index()] <= *number).fold(lacks, GroupSet::with);
            }
            let here = entry.destinations.intersection(below);
            if !self.is_covered_above(entry, here) {
                // Our parent's word is of all groups together.
                let above = entry.destinations.iter().filter(|group| !below.contains(*group));
                lacks = above.fold(lacks, GroupSet::with);
            }
            if let Some(message) = entry.delivered {
                return Some((entry.since_ms, message, lacks));
            }
        }
        None
    }

    /// Whether our parent's words cover the entry.
    fn is_covered_above(&self, entry: &Unstable, here: GroupSet) -> bool {
        let covers = |number| here.iter().all(|group| self.down[group.index()] > number);
        guard!(Mutant::DownIgnored, entry.from_parent.is_none_or(covers))
    }

    /// The entry is not subtree-stable, and so bounds what we tell our parent.
    fn bound_up(&mut self, entry: &Unstable, here: GroupSet) {
        let Some(number) = entry.from_parent else { return };
        if planted(Mutant::StableWithoutSubtree)
            || planted(Mutant::UpWithoutOwnMessages) && self.is_covered_below(entry)
        {
            return;
        }
        for group in here.iter() {
            let word = &mut self.tells_up[group.index()];
            *word = number.min(*word);
        }
    }

    /// The entry is not stable, and so bounds what we tell our children.
    fn bound_down(&mut self, entry: &Unstable) {
        for (child, number) in &entry.to_children {
            for group in self.tree.below(*child).intersection(entry.destinations).iter() {
                let word = &mut self.tells_down[group.index()];
                *word = (*number).min(*word);
            }
        }
    }

    /// As leader: the word for a destination at or below our group that our parent is told.
    pub fn tells_up(&self, destination: GroupId) -> u64 {
        self.tells_up[destination.index()]
    }

    /// As leader: the word for a destination below our group that the child above it is told.
    pub fn tells_down(&self, destination: GroupId) -> u64 {
        self.tells_down[destination.index()]
    }

    /// Whether an entry waits for words of our parent or of this child.
    pub fn waits_for(&self, group: GroupId) -> bool {
        if self.tree.parent(self.own) == Some(group) {
            return self.entries.iter().any(|it| it.from_parent.is_some());
        }
        self.entries
            .iter()
            .any(|it| !it.in_subtree && it.to_children.iter().any(|to| to.0 == group))
    }

    /// Number of entries that are not known to be stable.
    pub fn unstable(&self) -> usize {
        self.entries.len()
    }

    /// The rank up to which everything must be [passed](Self::has_passed) before an answer to a message to these groups
    /// leaves, if it rests on what was delivered here below a rank. A read is like a message to our group alone.
    pub fn reply_dependency(&self, destinations: GroupSet, below: Rank) -> Rank {
        if destinations.contains_all(self.delivered_to) {
            return Rank::NOTHING;
        }
        let before = self.entries.partition_point(|it| it.rank < below);
        let rests = |it: &&Unstable| it.delivered.is_some() && !self.is_exempt(it, destinations);
        self.entries.range(..before).rev().find(rests).map_or(Rank::NOTHING, |it| it.rank)
    }

    /// Whether an answer of a message to these groups need not wait for an earlier one: the client hears from all of
    /// its destinations.
    fn is_exempt(&self, earlier: &Unstable, destinations: GroupSet) -> bool {
        let common = earlier.destinations.intersection(destinations).without(self.own);
        destinations.contains_all(earlier.destinations)
            || planted(Mutant::PassageExempt)
                && self.tree.path(destinations).contains_all(earlier.destinations)
            || planted(Mutant::SubtreeExempt)
                && self.tree.below(self.tree.lca(destinations)).contains_all(earlier.destinations)
            || planted(Mutant::CommonDestinationExempt) && !common.is_empty()
    }

    /// The last message that an unordered read rests on, if it saw all deliveries here below a rank.
    pub fn read_dependency(&self, below: Rank) -> Rank {
        if planted(Mutant::ReadsUngated) {
            return Rank::NOTHING;
        }
        self.reply_dependency(GroupSet::single(self.own), below)
    }

    /// Whether everything that our group delivers up to this rank is stable.
    pub fn has_passed(&self, rank: Rank) -> bool {
        guard!(Mutant::NotGatedAlongTree, self.first.is_none_or(|first| rank < first))
    }

    /// Drops the entries that are delivered here up to this rank: a former process of this replica knew them to be stable.
    pub(super) fn had_passed(&mut self, rank: Rank) {
        self.entries.retain(|it| it.delivered.is_none() || it.rank > rank);
        self.stirred = true;
        self.settle();
    }

    /// The rank up to which everything is passed that was delivered up to `delivered`.
    pub fn passed(&self, delivered: Rank) -> Rank {
        self.first.map_or(delivered, |first| Rank::new(first.number() - 1).min(delivered))
    }
}

/// Keeps a list's memory, if it has any.
fn recycle(spare: &mut Vec<Vec<(GroupId, u64)>>, mut list: Vec<(GroupId, u64)>) {
    if list.capacity() > 0 {
        list.clear();
        spare.push(list);
    }
}

#[cfg(test)]
mod tests;
