//! Edges of the tree: what a group passes on to a child, and what it has taken from its parent.
//!
//! A group numbers what it passes on to a child when the entry is *committed*, so every later leader numbers the same.
//! A child takes number n only behind n - 1, and logs it. So a deposed leader of the parent repeats what its successor
//! says, and a child need not know the parent's ballot.
//!
//! Numbers belong to a *generation* of the parent: a group that was recreated numbers anew, from what the child had not
//! acknowledged. An edge also names the generation of the child to which it is addressed. It carries its message's
//! *place*, the rank in the log of the lowest common ancestor: a child takes nothing twice, whatever it is numbered.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::content::Content;
use super::tree::Tree;
use crate::bytes::{Reader, Writer};
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// Unacknowledged edges to a child for which a group has room. It stops ordering messages that would add to them at
/// half of that, or of the bytes of payloads for which it has room, and goes on at a quarter of both.
pub const ROOM: usize = 1024;

/// Bytes of payloads outside the log that a group has room for, of unacknowledged edges to each of its children: of what
/// a replica may hold, children that are down together take up no more than half.
pub(super) fn bytes_for_each(tree: &Tree, group: GroupId, held_bytes_max: u64) -> u64 {
    held_bytes_max / tree.children(group).len().max(1) as u64
}

/// A number of an edge, in a generation of the parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeNumber {
    pub generation: u32,
    /// From 1; 0 is in front of all edges.
    pub number: u64,
}

impl EdgeNumber {
    /// Whether `next` is the next number.
    pub fn follows(self, next: Self) -> bool {
        next.generation == self.generation && next.number == self.number + 1
    }
}

/// One thing that a parent passes on to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its number.
    pub number: EdgeNumber,
    /// The oldest number that the parent keeps.
    pub first: u64,
    /// Generation of the child for which it is meant.
    pub child_generation: u32,
    /// Rank in the log of the lowest common ancestor.
    pub place: Rank,
    pub content: Content,
}

impl Edge {
    /// No encoding is shorter.
    pub const BYTES_MIN: usize = 4 + 4 + 3 * 8 + Content::BYTES_MIN;

    /// Appends it, as it travels: behind it stands the payload.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut out = Writer(bytes);
        out.u32(self.number.generation);
        out.u32(self.child_generation);
        out.words([self.number.number, self.first, self.place.number()]);
        self.content.encode(&mut out);
    }

    /// Splits an edge from what stands behind it. `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut from = Reader(bytes);
        let (generation, child_generation) = (from.u32()?, from.u32()?);
        let [number, first, place] = from.words()?;
        let (number, place) = (EdgeNumber { generation, number }, Rank::new(place));
        let content = Content::decode(&mut from)?;
        let edge = Self { number, first, child_generation, place, content };
        (1 <= first && first <= number.number).then_some((edge, from.0))
    }
}

/// The parent's side: the table of what one child has not acknowledged.
///
/// **Invariants.** `kept` holds the edges with the numbers up to `numbered`, without a gap. `first - 1 <= sent <=
/// numbered`, where `first` is the number of the oldest that is kept, and nothing up to `acknowledged` is kept. Two replicas that have committed the same entries
/// have the same `numbered`; they may keep different suffixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Generation of the child, by the last marker that is committed here.
    pub(super) child_generation: u32,
    pub(super) numbered: u64,
    /// With places.
    pub(super) kept: VecDeque<(Rank, Content)>,
    /// Bytes of the payloads outside the log of what is kept.
    kept_bytes: u64,
    /// As leader: likewise, of what is logged for this child and not committed.
    logged_bytes: u64,
    /// Bytes of such payloads for which there is room.
    bytes_max: u64,
    /// The child holds all edges up to here. A follower may learn that before it has committed them.
    acknowledged: u64,
    /// As leader: the highest number that was sent to the child's leader.
    sent: u64,
    /// Closed for want of room, until it is reopened.
    closed: bool,
    /// Destinations that the child says are closed.
    reported: GroupSet,
}

impl Outgoing {
    /// An empty table, with room for so many bytes of payloads.
    pub(super) fn with_room(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// As leader: notes what is logged for this child. A payload that is not in its entry counts at once, since many may
    /// be logged before the first one is committed.
    pub fn log(&mut self, content: &Content) {
        self.logged_bytes += u64::from(content.outside());
        self.closed |= self.is_half_full();
    }

    /// Something that was [logged](Self::log) is committed.
    fn commit(&mut self, content: &Content) {
        self.logged_bytes = self.logged_bytes.saturating_sub(u64::from(content.outside()));
    }

    /// As new leader: forgets what a former leader has [logged](Self::log).
    pub fn forget_logged(&mut self) {
        self.logged_bytes = 0;
        self.reopen();
    }

    /// Numbers what was committed for this child.
    pub fn push(&mut self, place: Rank, content: Content) -> u64 {
        self.numbered += 1;
        self.commit(&content);
        if self.numbered <= self.acknowledged {
            self.sent = self.numbered;
            return self.numbered;
        }
        self.kept.push_back((place, content));
        self.kept_bytes += u64::from(content.outside());
        self.closed |= self.is_half_full();
        self.numbered
    }

    /// The highest number.
    pub const fn numbered(&self) -> u64 {
        self.numbered
    }

    /// The child holds all edges up to this number.
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// As leader: the highest number that was sent to the child's leader.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// The oldest number that is kept, or the next one if there is none.
    pub fn first(&self) -> u64 {
        self.numbered - self.kept.len() as u64 + 1
    }

    /// Number of edges that the child has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.kept.len()
    }

    /// The messages that an acknowledgement up to `taken` covers.
    pub fn covered(&self, taken: EdgeNumber) -> impl Iterator<Item = MessageId> + '_ {
        let count = (taken.number + 1).saturating_sub(self.first()) as usize;
        self.kept.iter().take(count).filter_map(|(_, content)| content.message())
    }

    /// Whether an edge was not sent to the child's leader.
    fn has_unsent(&self) -> bool {
        self.sent < self.numbered
    }

    /// Whether the child was sent edges that it has not acknowledged.
    pub fn is_awaited(&self) -> bool {
        self.sent >= self.first()
    }

    /// The generation of the child, by the last marker that is committed here.
    pub const fn child_generation(&self) -> u32 {
        self.child_generation
    }

    /// Whether an acknowledgement of these generations is news.
    fn accepts(&self, ours: u32, taken: EdgeNumber, child_generation: u32) -> bool {
        taken.generation == ours
            && guard!(Mutant::AckOfFormerSelf, child_generation == self.child_generation)
            && taken.number > self.acknowledged
    }

    /// The child holds all edges up to `taken`, by an acknowledgement of these generations. Returns whether that is
    /// news.
    pub fn acknowledge(&mut self, ours: u32, taken: EdgeNumber, child_generation: u32) -> bool {
        if !self.accepts(ours, taken, child_generation) {
            return false;
        }
        self.acknowledged = taken.number;
        let count = (taken.number + 1).saturating_sub(self.first()) as usize;
        let gone = self.kept.drain(..count.min(self.kept.len()));
        self.kept_bytes -= gone.map(|(_, content)| u64::from(content.outside())).sum::<u64>();
        self.sent = self.sent.max(taken.number.min(self.numbered));
        self.reopen();
        true
    }

    /// The child has a new generation: what it had acknowledged before is kept no more, and everything else is sent
    /// again.
    pub fn recreated(&mut self, generation: u32) {
        self.child_generation = generation;
        self.acknowledged = self.first() - 1;
        self.rewind();
    }

    /// Our group has a new generation: what is not acknowledged is numbered anew, from 1. Returns how many numbers the
    /// acknowledged ones had.
    pub fn renumber(&mut self) -> u64 {
        let gone = self.first() - 1;
        self.numbered = self.kept.len() as u64;
        self.acknowledged = 0;
        self.rewind();
        gone
    }

    /// Everything that is not acknowledged is to be sent again.
    pub fn rewind(&mut self) {
        if planted(Mutant::UnacknowledgedForgotten) {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.sent = self.first() - 1;
    }

    /// The next edges to send, at most so many. `ours` is our generation.
    pub fn send(&mut self, ours: u32, most: usize) -> impl Iterator<Item = Edge> + '_ {
        let first = self.first();
        let from = (self.sent + 1 - first) as usize;
        let until = self.kept.len().min(from.saturating_add(most));
        self.sent += (until - from) as u64;
        let child_generation = self.child_generation;
        (from..until).map(move |at| {
            let (place, content) = self.kept[at];
            let number = EdgeNumber { generation: ours, number: first + at as u64 };
            Edge { number, first, child_generation, place, content }
        })
    }

    /// The oldest edges that were sent and not acknowledged, at most so many.
    pub fn again(&self, ours: u32, most: usize) -> impl Iterator<Item = Edge> + '_ {
        let (first, child_generation) = (self.first(), self.child_generation);
        let sent = (self.sent + 1 - first) as usize;
        self.kept.iter().take(sent.min(most)).enumerate().map(move |(at, (place, content))| {
            let number = EdgeNumber { generation: ours, number: first + at as u64 };
            Edge { number, first, child_generation, place: *place, content: *content }
        })
    }

    /// The child says which destinations behind it are closed.
    pub fn report_closed(&mut self, closed: GroupSet) {
        self.reported = closed;
    }

    /// Whether the child has said last that a destination behind it is closed.
    pub fn has_reported_closed(&self) -> bool {
        !self.reported.is_empty()
    }

    /// The destinations of `below`, the child's subtree, to which we order no messages of our own.
    pub fn closed(&self, below: GroupSet) -> GroupSet {
        if self.closed { below } else { self.reported.intersection(below) }
    }

    fn is_half_full(&self) -> bool {
        let bytes = self.kept_bytes + self.logged_bytes;
        self.kept.len() >= ROOM / 2
            || bytes > self.bytes_max / 2 && !planted(Mutant::KeptBytesNotCounted)
    }

    fn reopen(&mut self) {
        let bytes = self.kept_bytes + self.logged_bytes;
        if self.kept.len() < ROOM / 4 && bytes <= self.bytes_max / 4 {
            self.closed = false;
        }
    }

    /// The state that goes into a snapshot.
    pub fn restore(
        bytes_max: u64,
        child_generation: u32,
        numbered: u64,
        kept: VecDeque<(Rank, Content)>,
    ) -> Self {
        let kept_bytes = kept.iter().map(|(_, content)| u64::from(content.outside())).sum();
        let room = Self::with_room(bytes_max);
        let mut restored = Self { child_generation, numbered, kept, kept_bytes, ..room };
        restored.acknowledged = restored.first() - 1;
        restored.closed = restored.is_half_full();
        restored.rewind();
        restored
    }
}

/// A child's decision about an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is the next one: log it.
    Next,
    /// It is in the log already: acknowledge again.
    Known,
    /// One before it is missing: ask for that.
    Early,
    /// It is of a former generation of the parent, or meant for our former self: ignore it.
    Former,
}

/// The child's side: what it has taken from its parent.
///
/// **Invariant.** `committed <= logged`. Every replica that has folded the same entries has the same `committed`,
/// `marked` and `places`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The last edge in committed entries.
    pub(super) committed: EdgeNumber,
    /// The last edge in the log.
    logged: EdgeNumber,
    /// The highest generation of ours whose marker is committed here.
    pub(super) marked: u32,
    /// By lowest common ancestor: the place of the last message that was taken.
    pub(super) places: Vec<Rank>,
    /// The marker of our group, or of one above it, is committed here.
    pub(super) disturbed: bool,
}

impl Incoming {
    /// Nothing is taken, in a cluster of so many groups.
    pub fn new(groups: u16) -> Self {
        let places = vec![Rank::NOTHING; usize::from(groups)];
        let nothing = EdgeNumber::default();
        Self { committed: nothing, logged: nothing, marked: 0, places, disturbed: false }
    }

    /// The state that was saved.
    pub fn restore(committed: EdgeNumber, marked: u32, places: Vec<Rank>, disturbed: bool) -> Self {
        let committed =
            if planted(Mutant::EdgeCountNotInState) { EdgeNumber::default() } else { committed };
        Self { committed, logged: committed, marked, places, disturbed }
    }

    /// The last edge in committed entries.
    pub const fn committed(&self) -> EdgeNumber {
        self.committed
    }

    /// The last edge in the log.
    pub const fn logged(&self) -> EdgeNumber {
        self.logged
    }

    /// Whether our group, in this generation, may order messages to several groups: it never lost its state, or has
    /// taken the marker that tells its subtree so.
    pub fn may_order(&self, generation: u32) -> bool {
        guard!(Mutant::RecreatedOrdersBeforeMarker, self.marked >= generation)
    }

    /// As leader, in this generation: what is to be done with an edge.
    pub fn judge(&self, edge: &Edge, generation: u32) -> Judgement {
        let Edge { number, first, child_generation, .. } = *edge;
        if child_generation != generation || number.generation < self.logged.generation {
            return Judgement::Former;
        }
        let mut taken = self.logged.number;
        let anew = number.generation > self.logged.generation;
        // A recreated group cannot get what its former self has acknowledged.
        if anew || self.marked < generation && first > taken + 1 {
            taken = first - 1;
        }
        match number.number {
            number if number <= taken => Judgement::Known,
            number if guard!(Mutant::EdgeGapTaken, number == taken + 1) => Judgement::Next,
            _ => Judgement::Early,
        }
    }

    /// An edge was logged.
    pub fn log(&mut self, number: EdgeNumber) {
        self.logged = number;
    }

    /// The end of the log was cut off. `last` is the last edge in the uncommitted entries that remain.
    pub fn truncate(&mut self, last: Option<EdgeNumber>) {
        self.logged = last.unwrap_or(self.committed);
    }

    /// The place of the last message that was taken from a lowest common ancestor.
    pub(super) fn place_of(&self, lca: GroupId) -> Rank {
        self.places[lca.index()]
    }

    /// Whether a place is above all that was taken from its lowest common ancestor.
    pub(super) fn is_new(&self, place: Rank, lca: GroupId) -> bool {
        place > self.places[lca.index()]
    }

    /// An edge is committed. Returns whether it brings something new: its place is above all that was taken from its
    /// lowest common ancestor.
    pub fn fold(&mut self, number: EdgeNumber, place: Rank, lca: GroupId) -> bool {
        self.committed = number;
        self.logged = self.logged.max(number);
        let new = self.is_new(place, lca);
        let last = &mut self.places[lca.index()];
        *last = place.max(*last);
        guard!(Mutant::PlacesIgnored, new)
    }

    /// The marker of our group, or of one above it, is committed.
    pub(super) const fn disturb(&mut self) {
        self.disturbed = true;
    }

    /// In this generation of our group: whether our group, or one above it, may have forgotten what others know.
    pub const fn may_lack(&self, generation: u32) -> bool {
        self.disturbed || generation > 0
    }

    /// A marker of our own group is committed.
    pub fn mark(&mut self, generation: u32) {
        self.marked = self.marked.max(generation);
    }
}

/// The tables of all children of a group.
///
/// **Invariant.** `keeping` counts, for each message, the edges that carry it in the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Children {
    tables: Vec<(GroupId, Outgoing)>,
    keeping: HashMap<MessageId, u16>,
}

impl Children {
    /// Empty tables for the children of `group`, whose replicas may hold so many bytes of payloads outside the log.
    pub fn of(tree: &Tree, group: GroupId, held_bytes_max: u64) -> Self {
        let bytes_max = bytes_for_each(tree, group, held_bytes_max);
        let children = tree.children(group).iter();
        Self::restore(children.map(|child| (child, Outgoing::with_room(bytes_max))).collect())
    }

    /// These tables, by child in rising order.
    pub(super) fn restore(tables: Vec<(GroupId, Outgoing)>) -> Self {
        let mut keeping = HashMap::new();
        for (_, content) in tables.iter().flat_map(|(_, table)| &table.kept) {
            content.message().into_iter().for_each(|message| count(&mut keeping, message));
        }
        Self { tables, keeping }
    }

    /// The table of a child.
    pub fn get_mut(&mut self, child: GroupId) -> Option<&mut Outgoing> {
        self.tables.iter_mut().find(|(it, _)| *it == child).map(|(_, table)| table)
    }

    /// The tables, by child in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Outgoing)> {
        self.tables.iter().map(|(child, table)| (*child, table))
    }

    /// The tables, by child in rising order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (GroupId, &mut Outgoing)> {
        self.tables.iter_mut().map(|(child, table)| (*child, table))
    }

    /// [Numbers](Outgoing::push) what was committed for a child.
    ///
    /// # Panics
    /// If it is no child of ours.
    pub fn push(&mut self, child: GroupId, place: Rank, content: Content) -> u64 {
        let table = self.get_mut(child).expect("a next hop is a child");
        let kept = table.kept.len();
        let number = table.push(place, content);
        if table.kept.len() > kept {
            content.message().into_iter().for_each(|message| count(&mut self.keeping, message));
        }
        number
    }

    /// As leader: [notes](Outgoing::log) what is logged, if it has a payload outside the log.
    pub fn log(&mut self, tree: &Tree, own: GroupId, content: &Content) {
        if content.is_large() {
            for child in tree.next_hops(own, content.destinations(tree)).iter() {
                self.get_mut(child).expect("a next hop is a child").log(content);
            }
        }
    }

    /// An entry that was [logged](Self::log) is committed, and is not passed on.
    pub fn commit_stale(&mut self, tree: &Tree, own: GroupId, content: &Content) {
        for child in tree.next_hops(own, content.destinations(tree)).iter() {
            self.get_mut(child).expect("a next hop is a child").commit(content);
        }
    }

    /// A child [has](Outgoing::acknowledge) all edges up to `taken`. Returns whether that is news, and appends the messages
    /// that no child is yet to acknowledge.
    pub fn acknowledge(
        &mut self,
        child: GroupId,
        (ours, taken): (u32, EdgeNumber),
        child_generation: u32,
        over: &mut Vec<MessageId>,
    ) -> bool {
        let Self { tables, keeping } = self;
        let Some((_, table)) = tables.iter_mut().find(|(it, _)| *it == child) else { return false };
        if !table.accepts(ours, taken, child_generation) {
            return false;
        }
        over.extend(table.covered(taken).filter(|message| {
            let left = keeping.get_mut(message).map_or(0, |left| {
                *left -= 1;
                *left
            });
            left == 0 && keeping.remove(message).is_some()
        }));
        table.acknowledge(ours, taken, child_generation)
    }

    /// Whether a child is to be sent an edge.
    pub fn has_unsent(&self) -> bool {
        self.iter().any(|(_, table)| table.has_unsent())
    }

    /// Whether a child has yet to acknowledge the message.
    pub fn keep(&self, message: MessageId) -> bool {
        self.keeping.contains_key(&message)
    }

    /// The destinations behind our children to which we order no messages of our own.
    pub fn closed(&self, tree: &Tree) -> GroupSet {
        let closed = |(child, table): (GroupId, &Outgoing)| table.closed(tree.below(child));
        self.iter().map(closed).fold(GroupSet::EMPTY, GroupSet::union)
    }
}

fn count(keeping: &mut HashMap<MessageId, u16>, message: MessageId) {
    *keeping.entry(message).or_default() += 1;
}

#[cfg(test)]
mod tests;
