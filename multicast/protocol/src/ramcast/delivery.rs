//! The pending table: which message is next.
//!
//! **Invariant.** Messages are delivered in rising final timestamps. A proposal is *proven* once f+1 replicas of its
//! group were seen to hold it: every later leader there has it too, and it never changes. A message whose proposals are
//! not all proven may end anywhere at or above the highest proven one, its *bound*. So the candidate is always the
//! message with the least bound, and it is delivered only if that bound is final. A proposal that is only announced
//! raises no bound: its group may lose it with its leader and propose the message anew, lower, and no other message may
//! have overtaken it by then.
//!
//! Only committed entries are folded in, so the table is the same at every replica that has folded the same prefix of
//! the log, and nothing has to be removed when a leader's last entries are lost. An uncommitted message ends above
//! every timestamp in the committed entries, because the clock had risen before it was proposed.
//!
//! Local timestamps rise along the log, so messages wait in a queue, and each is named by its *place* there. The
//! messages whose bound is their local timestamp come in the order of the queue: a message to this group alone, which
//! is final when it is committed, costs no search. Only the places of messages whose bound has risen above their local
//! timestamp are in a heap.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::cmp::Reverse;

use hashbrown::{HashMap, HashSet};

use self::ballots::Ballots;
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::ramcast::log::{Decision, Remote};
use crate::step::Deliver;
use crate::timestamp::Timestamp;

/// Messages committed and not delivered.
#[derive(Default)]
pub(super) struct DeliveryQueue {
    /// By local timestamp, which is log order. A message that is delivered before its predecessors leaves its place
    /// empty.
    queue: VecDeque<Option<Pending>>,
    /// The place at the queue's front.
    front: u64,
    /// No pending message before this place has its local timestamp as its bound: all of them are in the heap.
    next: u64,
    several: RefCell<Several>,
    alone: RefCell<Alone>,
    ballots: Ballots,
    /// The place at which each group's next proposal is expected: of those committed here, and of those announced.
    committed: Expected,
    heard: Expected,
    /// Places by bound at the time of the push. A stale one is pushed again when it surfaces.
    heap: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// Number of pending messages.
    len: usize,
    delivered: u64,
}

/// Places of messages to several groups. Built lazily, when a message is not at its expected place.
#[derive(Default)]
struct Several {
    places: HashMap<MessageId, u64>,
    /// All such messages before this place are in the table.
    until: u64,
}

/// Linear search is faster than the table up to this many places.
const FEW: usize = 64;

/// With assertions on, a new message is compared with this many before it: with nearly all of the table in the
/// simulator, whose logs are small.
const CHECKED: usize = 512;

/// For each group, the place after that of the message of its last proposal, or of its last run of proposals for one
/// message. Groups propose for most messages in the same order, so the next proposal is usually for that place.
struct Expected([u64; GroupSet::CAPACITY as usize]);

impl Default for Expected {
    fn default() -> Self {
        Self([0; GroupSet::CAPACITY as usize])
    }
}

/// Another group's proposal for a message: a [`Remote`] without the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) timestamp: Timestamp,
    pub(super) ballot: Ballot,
    pub(super) index: u64,
}

impl Proposal {
    pub(super) const fn group(&self) -> GroupId {
        self.timestamp.group()
    }

    /// The proposal as a [`Remote`] for that message.
    pub(super) const fn of(self, message: MessageId) -> Remote {
        let Self { timestamp, ballot, index } = self;
        Remote { message, timestamp, ballot, index }
    }
}

impl From<&Remote> for Proposal {
    fn from(&Remote { timestamp, ballot, index, .. }: &Remote) -> Self {
        Self { timestamp, ballot, index }
    }
}

/// The pending messages to this group alone. Built lazily: most are delivered before any lookup.
#[derive(Default)]
struct Alone {
    messages: HashSet<MessageId>,
    /// All such messages before this place are in the set.
    until: u64,
}

/// A committed message that is not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) message: MessageId,
    pub(super) low_water: u64,
    pub(super) destinations: GroupSet,
    /// Our group's proposal.
    pub(super) local: Timestamp,
    pub(super) index: u64,
    pub(super) time_ms: u64,
    /// Our own time when it was folded in: only to measure how long it has waited.
    pub(super) since_ms: u64,
    pub(super) inline: bool,
    bound: Timestamp,
    /// A committed entry says that the bound is final.
    decided: bool,
    /// The other groups' proposals, each of the highest ballot logged for its group. `there` is the set of these
    /// groups.
    remotes: Vec<Proposal>,
    there: GroupSet,
    /// Groups in `there` whose proposal a quorum was seen to hold, or needs none.
    proven: GroupSet,
    /// Groups in `proven` whose proposal is fixed, since the group was recreated or the message is over for it.
    /// Invariant: `pinned` ⊆ `proven` ⊆ `there`.
    pinned: GroupSet,
}

/// The message that is first in the order, as far as is known.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    bound: Timestamp,
    place: u64,
    /// Whether it is at the head of the queue; otherwise, of the heap.
    queued: bool,
}

impl Pending {
    /// A message of which only our own proposal is known. `remotes` is an empty list, for the other groups' proposals.
    #[expect(clippy::too_many_arguments, reason = "what the log says of it")]
    pub(super) fn new(
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        local: Timestamp,
        index: u64,
        time_ms: u64,
        inline: bool,
        remotes: Vec<Proposal>,
    ) -> Self {
        let bound = local;
        let (there, proven, pinned) = (GroupSet::EMPTY, GroupSet::EMPTY, GroupSet::EMPTY);
        Self {
            message,
            low_water,
            destinations,
            local,
            index,
            time_ms,
            since_ms: 0,
            inline,
            bound,
            decided: false,
            remotes,
            there,
            proven,
            pinned,
        }
    }

    /// The other groups' proposals.
    pub(super) fn remotes(&self) -> &[Proposal] {
        &self.remotes
    }

    /// The proposals for which no quorum was seen yet.
    pub(super) fn unproven(&self) -> impl Iterator<Item = &Proposal> {
        self.remotes.iter().filter(|remote| !self.proven.contains(remote.group()))
    }

    /// The other groups whose proposals are proven.
    pub(super) const fn proven(&self) -> GroupSet {
        self.proven
    }

    /// The message ends at or above this timestamp.
    pub(super) const fn bound(&self) -> Timestamp {
        self.bound
    }

    /// Whether this very proposal, or one of a later ballot, is known.
    pub(super) fn has_remote(&self, remote: &Remote) -> bool {
        let known = |known: &Proposal| known.group() == remote.group();
        let known = |it: &Proposal| known(it) && it.ballot >= remote.ballot;
        self.there.contains(remote.group()) && self.remotes.iter().any(known)
    }

    /// Takes in another group's proposal. Most are the first of their groups.
    #[inline]
    fn hear(&mut self, remote: &Remote) {
        if !remote.timestamp.is_over() && self.there.insert(remote.group()) {
            self.remotes.push(remote.into());
        } else {
            self.hear_again(remote.into());
        }
        if planted(Mutant::UnprovenRaisesBound) && !self.decided {
            let timestamps = self.remotes.iter().map(|remote| remote.timestamp);
            self.bound = timestamps.fold(self.bound, Timestamp::max);
        }
    }

    /// A proposal of a later ballot replaces one of an earlier ballot, which its own group may have lost, unless the
    /// earlier one [stays](Self::pin).
    #[cold]
    fn hear_again(&mut self, remote: Proposal) {
        let group = remote.group();
        let is_over = remote.timestamp.is_over();
        if is_over && self.proven.contains(group) || self.pin(remote) {
            return;
        }
        if is_over {
            // The group proposes nothing any more, so no quorum need be seen.
            self.remotes.retain(|old| old.group() != group);
            self.push(remote);
            self.pinned = self.pinned.with(group);
            self.proven = self.proven.with(group);
            return;
        }
        match self.remotes.iter_mut().find(|old| old.group() == group) {
            Some(old) if guard!(Mutant::OldProposalKept, old.ballot == remote.ballot) => {}
            Some(old) if self.pinned.contains(group) => {
                *old = Proposal { timestamp: old.timestamp, ..remote };
            }
            Some(old) => {
                debug_assert!(
                    !self.proven.contains(group) || old.timestamp == remote.timestamp,
                    "a proposal that a quorum holds changes"
                );
                *old = remote;
            }
            None => self.push(remote),
        }
    }

    /// What a group proposed before it was recreated stays: some replica of ours may have seen its quorum, and
    /// delivered the message. Our log's entry of the recreated group's proposal proves the earlier one to all our
    /// replicas, because its quorum will not be seen any more. If the recreated group reports that the message is over
    /// for it, that changes nothing: it may have forgotten the message and not been done with it.
    ///
    /// Returns whether the group had proposed something before it was recreated.
    fn pin(&mut self, remote: Proposal) -> bool {
        let (group, generation) = (remote.group(), remote.ballot.generation());
        let before =
            |old: &&mut Proposal| old.group() == group && old.ballot.generation() < generation;
        let Some(old) = self.remotes.iter_mut().find(before) else { return false };
        if planted(Mutant::LostProposalReplaced) {
            return false;
        }
        *old = Proposal { timestamp: old.timestamp, ..remote };
        self.bound = self.bound.max(old.timestamp);
        self.pinned = self.pinned.with(group);
        self.proven = self.proven.with(group);
        true
    }

    /// Removes the group's proposal: no quorum held it, so it is as if it had never been received.
    fn void(&mut self, group: GroupId) {
        debug_assert!(!self.proven.contains(group), "a proposal that a quorum holds is void");
        self.remotes.retain(|remote| remote.group() != group);
        self.there = self.there.without(group);
    }

    /// Whether another proposal of the same generation may show this one to be void: it is not the report that the
    /// message is over, and is neither pinned nor overruled by a decision.
    fn may_be_void(&self, proposal: &Proposal) -> bool {
        let settled = self.decided || self.pinned.contains(proposal.group());
        !settled && !proposal.timestamp.is_over()
    }

    /// Adds a group's first proposal.
    fn push(&mut self, remote: Proposal) {
        self.there = self.there.with(remote.group());
        self.remotes.push(remote);
    }

    /// Whether a proposal of every destination group is there, proven or not.
    pub(super) fn has_all_proposals(&self) -> bool {
        self.there.with(self.local.group()).contains_all(self.destinations)
    }

    /// Whether every destination group's proposal is proven.
    pub(super) fn is_final(&self) -> bool {
        self.decided || self.proven.with(self.local.group()).contains_all(self.destinations)
    }

    /// Whether a committed entry says that no further proposal is needed.
    pub(super) const fn is_decided(&self) -> bool {
        self.decided
    }
}

/// Delivery number `number`, of a message that ends at its bound.
#[inline]
fn deliver(pending: &Pending, number: u64) -> Deliver {
    Deliver {
        message: pending.message,
        low_water: pending.low_water,
        destinations: pending.destinations,
        rank: pending.bound.into(),
        clock: pending.bound.clock(),
        position: number,
        time_ms: pending.time_ms,
    }
}

/// Empty lists of proposals, for other messages: the steady state allocates nothing.
#[derive(Default)]
pub(super) struct Lists(Vec<Vec<Proposal>>);

/// Most lists that are kept.
const LISTS_MAX: usize = 1024;

impl Lists {
    pub(super) fn take(&mut self) -> Vec<Proposal> {
        self.0.pop().unwrap_or_default()
    }

    pub(super) fn keep(&mut self, mut list: Vec<Proposal>) {
        if list.capacity() > 0 && self.0.len() < LISTS_MAX {
            list.clear();
            self.0.push(list);
        }
    }
}

impl DeliveryQueue {
    /// Our own proposal is committed.
    pub(super) fn local(&mut self, pending: Pending) {
        debug_assert!(self.is_new(pending.message), "{} is logged twice", pending.message);
        debug_assert!(self.iter().next_back().is_none_or(|last| last.local < pending.local));
        self.len += 1;
        self.queue.push_back(Some(pending));
    }

    /// Whether a message is not among the last [`CHECKED`] that were folded in. For assertions: a comparison with all
    /// of them would take longer the more are pending.
    fn is_new(&self, message: MessageId) -> bool {
        self.iter().rev().take(CHECKED).all(|it| it.message != message)
    }

    fn at(&self, place: u64) -> Option<&Pending> {
        self.queue.get(place.checked_sub(self.front)? as usize)?.as_ref()
    }

    fn at_mut(&mut self, place: u64) -> Option<&mut Pending> {
        self.queue.get_mut(place.checked_sub(self.front)? as usize)?.as_mut()
    }

    /// Other groups' proposals are committed here.
    pub(super) fn remotes(&mut self, remotes: &[Remote]) {
        if self.ballots.expects(remotes) {
            self.take_in(remotes);
        } else {
            self.take_in_that_count(remotes);
        }
    }

    /// Takes in proposals of the expected ballots. Consecutive proposals for one message take a single search.
    #[inline]
    pub(super) fn take_in(&mut self, remotes: &[Remote]) {
        let mut rest = remotes.iter().peekable();
        while let Some(first) = rest.next() {
            let same = core::iter::from_fn(|| rest.next_if(|it| it.message == first.message));
            let expected = self.committed.0[first.group().index()];
            if let Some(place) = self.find(first.message, expected) {
                let pending = self.queue[(place - self.front) as usize].as_mut();
                let pending = pending.expect("what has a place is pending");
                self.committed.0[first.group().index()] = place + 1;
                pending.hear(first);
                same.for_each(|remote| pending.hear(remote));
            } else {
                same.for_each(drop);
            }
        }
    }

    /// A pending message to several groups for which these proposals were announced.
    pub(super) fn hear(&mut self, message: MessageId, by: &[Remote]) -> Option<&Pending> {
        let expected = by.first()?.group().index();
        let place = self.find(message, self.heard.0[expected])?;
        self.heard.0[expected] = place + 1;
        self.at(place)
    }

    /// The place of a message to several groups, which is expected at `expected`.
    #[inline]
    fn find(&self, message: MessageId, expected: u64) -> Option<u64> {
        match self.at(expected) {
            Some(pending) if pending.message == message => Some(expected),
            _ => self.place_of(message),
        }
    }

    fn place_of(&self, message: MessageId) -> Option<u64> {
        if self.queue.len() <= FEW {
            let it = |it: &Pending| it.message == message && it.destinations.has_several();
            let at = self.queue.iter().position(|place| place.as_ref().is_some_and(it))?;
            return Some(self.front + at as u64);
        }
        let Several { places, until } = &mut *self.several.borrow_mut();
        for place in self.front.max(*until)..self.front + self.queue.len() as u64 {
            if let Some(pending) = self.at(place).filter(|it| it.destinations.has_several()) {
                let before = places.insert(pending.message, place);
                assert!(before.is_none(), "{} is logged twice", pending.message);
            }
        }
        *until = self.front + self.queue.len() as u64;
        places.get(&message).copied()
    }

    /// Quorums of these groups were seen to hold their proposals for the candidate, and it ends at `bound` or above.
    /// Returns the candidate if it is plainly still next: the message behind it in the queue has a local timestamp
    /// above `bound`, and nothing in the heap has a lower bound.
    pub(super) fn prove(
        &mut self,
        candidate: &Candidate,
        groups: GroupSet,
        bound: Timestamp,
    ) -> Option<Candidate> {
        let place = candidate.place;
        let pending = self.at_mut(place).expect("candidates are pending");
        pending.proven = pending.proven.union(groups);
        pending.bound = bound;
        if !candidate.queued || !pending.is_final() {
            return None;
        }
        let behind = self.queue.get((place + 1 - self.front) as usize);
        let first = behind.is_none_or(|it| it.as_ref().is_some_and(|it| it.local > bound))
            && self.heap.peek().is_none_or(|Reverse((least, _))| *least > bound);
        first.then_some(Candidate { bound, place, queued: true })
    }

    /// Takes in a committed decision: the message's final timestamp. Returns whether that was open.
    pub(super) fn decide(&mut self, decision: Decision) -> bool {
        let Some(place) = self.place_of(decision.message) else { return false };
        let pending = self.at_mut(place).expect("what has a place is pending");
        let news = !pending.is_final();
        pending.decided = true;
        pending.bound = decision.timestamp;
        self.heap.push(Reverse((decision.timestamp, place)));
        news
    }

    /// The message with the least bound: the only one that can be next.
    pub(super) fn least(&mut self) -> Option<Candidate> {
        if planted(Mutant::FirstLocalTakenForLeast) {
            let (at, first) = self.queue.iter().enumerate().find(|(_, it)| it.is_some())?;
            let (bound, place) = (first.as_ref()?.bound, self.front + at as u64);
            return Some(Candidate { bound, place, queued: false });
        }
        let queued = loop {
            let Some(place) = self.queue.get((self.next - self.front) as usize) else { break None };
            match place {
                Some(first) if first.bound == first.local => {
                    let (bound, place) = (first.bound, self.next);
                    break Some(Candidate { bound, place, queued: true });
                }
                Some(raised) => self.heap.push(Reverse((raised.bound, self.next))),
                None => {}
            }
            self.next += 1;
        };
        let heaped = loop {
            let Some(&Reverse((pushed, place))) = self.heap.peek() else { break None };
            let bound = self.at(place).map(|pending| pending.bound);
            if bound == Some(pushed) {
                break Some(Candidate { bound: pushed, place, queued: false });
            }
            self.heap.pop();
            // A bound that fell was pushed when it fell.
            if let Some(bound) = bound.filter(|bound| *bound > pushed) {
                self.heap.push(Reverse((bound, place)));
            }
        };
        match (queued, heaped) {
            (Some(queued), Some(heaped)) if heaped.bound <= queued.bound => Some(heaped),
            (queued, heaped) => queued.or(heaped),
        }
    }

    /// The least bound of any pending message, and the time since when that message waits.
    pub(super) fn head(&mut self) -> Option<(Timestamp, u64)> {
        let candidate = self.least()?;
        Some((candidate.bound, self.pending(&candidate).since_ms))
    }

    /// The least bound of any pending message: none ends below it.
    pub(super) fn least_bound(&mut self) -> Option<Timestamp> {
        self.least().map(|candidate| candidate.bound)
    }

    /// Whether the candidate is seen to overtake a message with an earlier local timestamp.
    pub(super) fn overtakes(&self, candidate: &Candidate) -> bool {
        let top = self.heap.peek().filter(|_| candidate.queued);
        top.is_some_and(|Reverse((_, place))| *place < candidate.place)
    }

    /// The candidate's entry in the table.
    pub(super) fn pending(&self, candidate: &Candidate) -> &Pending {
        self.at(candidate.place).expect("candidates are pending")
    }

    /// Delivers the first message in the log, if it goes to this group alone: whatever is behind it ends above its
    /// local timestamp, so it is next. It leaves the table.
    #[inline]
    pub(super) fn deliver_alone(&mut self) -> Option<Deliver> {
        let first = self.queue.front()?.as_ref()?;
        if first.destinations.has_several() {
            return None;
        }
        if self.front < self.alone.get_mut().until {
            self.alone.get_mut().messages.remove(&first.message);
        }
        debug_assert!(first.is_final() && first.bound == first.local);
        self.delivered += 1;
        let next = deliver(first, self.delivered);
        self.queue.pop_front();
        self.len -= 1;
        self.front += 1;
        self.skip_delivered();
        Some(next)
    }

    /// The candidate is next, and its bound is its final timestamp.
    pub(super) fn deliver(&mut self, candidate: &Candidate) -> Deliver {
        self.delivered += 1;
        let (number, pending) = (self.delivered, self.pending(candidate));
        debug_assert!(pending.is_final());
        Deliver {
            rank: candidate.bound.into(),
            clock: candidate.bound.clock(),
            ..deliver(pending, number)
        }
    }

    /// Removes the candidate from the table. Returns its list of the other groups' proposals, for another message.
    pub(super) fn remove(&mut self, candidate: &Candidate) -> Vec<Proposal> {
        if !candidate.queued {
            self.heap.pop();
        }
        let place = &mut self.queue[(candidate.place - self.front) as usize];
        let pending = place.as_mut().expect("candidates are pending");
        let remotes = core::mem::take(&mut pending.remotes);
        let (alone, several) = (self.alone.get_mut(), self.several.get_mut());
        if pending.destinations.has_several() {
            if candidate.place < several.until {
                several.places.remove(&pending.message);
            }
        } else if candidate.place < alone.until {
            alone.messages.remove(&pending.message);
        }
        self.len -= 1;
        *place = None;
        self.skip_delivered();
        remotes
    }

    /// Removes empty places from the front, so that the queue begins with a pending message.
    #[inline]
    fn skip_delivered(&mut self) {
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.front += 1;
        }
        self.next = self.next.max(self.front);
    }

    /// Whether the message is pending.
    pub(super) fn contains(&self, message: MessageId) -> bool {
        if self.place_of(message).is_some() {
            return true;
        }
        let Alone { messages, until } = &mut *self.alone.borrow_mut();
        let new = until.saturating_sub(self.front) as usize;
        let alone = self.queue.range(new..).flatten().filter(|it| !it.destinations.has_several());
        messages.extend(alone.map(|pending| pending.message));
        *until = self.front + self.queue.len() as u64;
        messages.contains(&message)
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A pending message to several groups.
    pub(super) fn get(&self, message: MessageId) -> Option<&Pending> {
        self.at(self.place_of(message)?)
    }

    /// Every pending message, in log order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Pending> {
        self.queue.iter().flatten()
    }

    /// Appends the whole table, in log order.
    pub(super) fn save(&self, out: &mut Writer<'_>) {
        out.u64(self.delivered);
        self.ballots.save(out);
        out.u64(self.len() as u64);
        for pending in self.iter() {
            out.message(pending.message);
            out.u64(pending.low_water);
            out.groups(pending.destinations);
            out.u64(pending.local.to_word());
            out.u64(pending.index);
            out.u64(pending.time_ms);
            out.u64(pending.bound.to_word());
            out.u8(u8::from(pending.inline) | u8::from(pending.decided) << 1);
            out.u16(pending.remotes.len() as u16);
            for remote in &pending.remotes {
                remote.of(pending.message).encode(out);
                let group = remote.group();
                let (proven, pinned) = (pending.proven, pending.pinned);
                out.u8(u8::from(proven.contains(group)) | u8::from(pinned.contains(group)) << 1);
            }
        }
    }

    /// Reads what [`save`](Self::save) wrote.
    pub(super) fn restore(from: &mut Reader<'_>, now_ms: u64) -> Option<Self> {
        let (delivered, ballots) = (from.u64()?, Ballots::restore(from)?);
        let mut order = Self { ballots, delivered, ..Self::default() };
        for _ in 0..from.u64()? {
            let message = from.message()?;
            let (low_water, destinations) = (from.u64()?, from.groups()?);
            let local = Timestamp::from_word(from.u64()?);
            let (index, time_ms) = (from.u64()?, from.u64()?);
            let bound = Timestamp::from_word(from.u64()?);
            let flags = from.u8()?;
            let (inline, remotes) = (flags & 1 != 0, Vec::new());
            let mut pending = Pending::new(
                message,
                low_water,
                destinations,
                local,
                index,
                time_ms,
                inline,
                remotes,
            );
            pending.since_ms = now_ms;
            for _ in 0..from.u16()? {
                let remote = Remote::decode(from)?;
                let flags = from.u8()?;
                if flags & 1 != 0 {
                    pending.proven = pending.proven.with(remote.group());
                }
                if flags & 2 != 0 {
                    pending.pinned = pending.pinned.with(remote.group());
                }
                pending.push((&remote).into());
            }
            (pending.bound, pending.decided) = (bound, flags & 2 != 0);
            order.local(pending);
        }
        order.note_all_earlier();
        Some(order)
    }

    /// The oldest pending message, preceded by the time since when it waits.
    pub(super) fn oldest(&self) -> Option<(u64, MessageId)> {
        self.iter().map(|pending| (pending.since_ms, pending.message)).min()
    }
}

mod ballots;
#[cfg(test)]
mod tests;
