//! Delivered messages that are retained for other groups.
//!
//! A group that changes its leader may lose sight of another group's quorum, because the acceptance words name a ballot
//! that is over. So every replica retains what its group proposed for a message, beyond the trimming of the log and
//! beyond its own delivery, until each destination group has reported that all its replicas that count have applied it.
//! Every group applies in the order of final timestamps, so the report is one word per pair of replicas: "applied by
//! all of us, up to this timestamp".

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use hashbrown::{HashMap, HashSet};

use super::Ramcast;
use super::delivery::Pending;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::ramcast::Effect;
use crate::ramcast::log::Decision;
use crate::step::Deliver;
use crate::timestamp::Timestamp;

/// A delivered message for which another group, or a slow replica of ours, may still need something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetainedMessage {
    pub(super) message: MessageId,
    pub(super) low_water: u64,
    pub(super) destinations: GroupSet,
    /// Our group's proposal, and its index in our log.
    pub(super) local: Timestamp,
    pub(super) index: u64,
    /// Final timestamp.
    pub(super) last: Timestamp,
}

/// Delivered messages to several groups, in the order of delivery, which is the order of their final timestamps.
pub(super) struct Retained {
    messages: VecDeque<RetainedMessage>,
    ended: RefCell<Ended>,
    /// Messages whose decision this leader has logged. Once is enough, however many replicas ask.
    decided: HashSet<MessageId>,
    /// Timestamp up to which each group, including our own, has applied everything at all its replicas that count.
    settled: Vec<Timestamp>,
    /// The last message shared with each group, and the timestamp up to which we have reported to it that we are done.
    last_with: LastWith,
    told: Vec<Timestamp>,
    dirty: bool,
}

/// Final timestamps of retained messages. There are thousands while a replica makes no progress, and a new leader looks
/// up every one of them; most of the time, nobody looks up any. So the index is extended on lookup.
#[derive(Default)]
struct Ended {
    last: HashMap<MessageId, Timestamp>,
    /// Messages that end at or below this are in `last`.
    until: Timestamp,
}

/// Final timestamp of the last message shared with each group. Consecutive messages often go to the same groups: for a
/// run of these it is enough to store where the last one ended.
#[derive(Clone, Debug)]
pub(super) struct LastWith {
    of_each: Vec<Timestamp>,
    /// Destinations of the present run. `last` counts for each of them, unless `of_each` is higher.
    together: GroupSet,
    last: Timestamp,
}

impl LastWith {
    pub(super) fn new(groups: u16) -> Self {
        let of_each = vec![Timestamp::ZERO; usize::from(groups)];
        Self { of_each, together: GroupSet::EMPTY, last: Timestamp::ZERO }
    }

    /// Notes the delivery of a message to all these groups.
    pub(super) fn deliver(&mut self, groups: GroupSet, timestamp: Timestamp) {
        if groups != self.together {
            for group in self.together.iter() {
                self.raise(group, self.last);
            }
            (self.together, self.last) = (groups, Timestamp::ZERO);
        }
        self.last = timestamp.max(self.last);
    }

    /// Raises the last timestamp of one group.
    pub(super) fn raise(&mut self, group: GroupId, timestamp: Timestamp) {
        let last = &mut self.of_each[group.index()];
        *last = timestamp.max(*last);
    }

    #[inline]
    pub(super) fn get(&self, group: GroupId) -> Timestamp {
        let last = self.of_each[group.index()];
        if self.together.contains(group) { last.max(self.last) } else { last }
    }

    /// The last timestamp of each group, in group order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Timestamp> {
        (0..self.of_each.len() as u16).map(|group| self.get(GroupId(group)))
    }
}

impl Retained {
    pub(super) fn new(groups: u16) -> Self {
        let zero = vec![Timestamp::ZERO; usize::from(groups)];
        Self {
            messages: VecDeque::new(),
            ended: RefCell::default(),
            decided: HashSet::new(),
            settled: zero.clone(),
            last_with: LastWith::new(groups),
            told: zero,
            dirty: false,
        }
    }

    pub(super) fn push(&mut self, next: &Deliver, pending: &Pending, at: Timestamp) {
        self.last_with.deliver(next.destinations, at);
        // All destinations may have reported that they are done before a slow replica delivers the message.
        self.dirty |= next.destinations.iter().all(|it| self.settled[it.index()] >= at);
        self.keep(RetainedMessage {
            message: next.message,
            low_water: next.low_water,
            destinations: next.destinations,
            local: pending.local,
            index: pending.index,
            last: at,
        });
    }

    fn keep(&mut self, retained: RetainedMessage) {
        debug_assert!(self.messages.back().is_none_or(|before| before.last < retained.last));
        self.messages.push_back(retained);
    }

    pub(super) fn settled(&mut self, group: GroupId, timestamp: Timestamp) {
        let settled = &mut self.settled[group.index()];
        self.dirty |= timestamp > *settled;
        *settled = timestamp.max(*settled);
    }

    /// Drops the messages that all destination groups, including our own, are done with.
    pub(super) fn trim(&mut self, effects: &mut Vec<Effect>) {
        if !core::mem::take(&mut self.dirty) {
            return;
        }
        let Self { messages, ended, decided, settled, .. } = self;
        let last = &mut ended.get_mut().last;
        messages.retain(|message| {
            let done = |group: GroupId| settled[group.index()] >= message.last;
            let over = message.destinations.iter().all(done);
            if over {
                last.remove(&message.message);
                decided.remove(&message.message);
                effects.push(Effect::DropResult { message: message.message });
            }
            !over
        });
    }

    /// As new leader: other groups may not have received what our predecessor reported, and decisions that we logged in
    /// an earlier ballot may no longer be in our log.
    pub(super) fn forget_told(&mut self) {
        self.told.fill(Timestamp::ZERO);
        self.decided.clear();
    }

    /// The final timestamp of a retained message, to be logged. `None` if this leader has logged it, or if the message
    /// is not retained.
    pub(super) fn decide(&mut self, message: MessageId) -> Option<Decision> {
        let timestamp = self.ended_at(message)?;
        self.decided.insert(message).then_some(Decision { message, timestamp })
    }

    /// Timestamp up to which a group has applied everything, at all its replicas that count.
    pub(super) fn settled_by(&self, group: GroupId) -> Timestamp {
        self.settled[group.index()]
    }

    /// The highest clock up to which any group has reported that it is done.
    pub(super) fn highest_clock(&self) -> u64 {
        self.settled.iter().copied().map(Timestamp::clock).max().unwrap_or(0)
    }

    /// Whether some replica of `group` may not have applied the message.
    pub(super) fn unsettled_in(&self, group: GroupId, retained: &RetainedMessage) -> bool {
        self.settled[group.index()] < retained.last
    }

    pub(super) fn get(&self, message: MessageId) -> Option<&RetainedMessage> {
        let last = self.ended_at(message)?;
        let at = self.messages.binary_search_by_key(&last, |retained| retained.last).ok()?;
        self.messages.get(at)
    }

    /// The final timestamp of a retained message.
    fn ended_at(&self, message: MessageId) -> Option<Timestamp> {
        let Ended { last, until } = &mut *self.ended.borrow_mut();
        let new = self.messages.partition_point(|retained| retained.last <= *until);
        last.extend(self.messages.range(new..).map(|retained| (retained.message, retained.last)));
        *until = self.messages.back().map_or(*until, |retained| retained.last.max(*until));
        last.get(&message).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RetainedMessage> {
        self.messages.iter()
    }

    pub(super) fn save(&self, out: &mut Writer<'_>) {
        out.u64(self.messages.len() as u64);
        for retained in &self.messages {
            out.message(retained.message);
            out.u64(retained.low_water);
            out.groups(retained.destinations);
            out.u64(retained.local.to_word());
            out.u64(retained.index);
            out.u64(retained.last.to_word());
        }
        for timestamp in self.settled.iter().copied().chain(self.last_with.iter()) {
            out.u64(timestamp.to_word());
        }
    }

    pub(super) fn restore(from: &mut Reader<'_>, groups: u16) -> Option<Self> {
        let mut retained = Self::new(groups);
        for _ in 0..from.u64()? {
            retained.keep(RetainedMessage {
                message: from.message()?,
                low_water: from.u64()?,
                destinations: from.groups()?,
                local: Timestamp::from_word(from.u64()?),
                index: from.u64()?,
                last: Timestamp::from_word(from.u64()?),
            });
        }
        for timestamp in &mut retained.settled {
            *timestamp = Timestamp::from_word(from.u64()?);
        }
        for group in (0..groups).map(GroupId) {
            retained.last_with.raise(group, Timestamp::from_word(from.u64()?));
        }
        retained.dirty = true;
        Some(retained)
    }
}

impl Ramcast {
    /// As leader: reports to each group that shares a message with us up to where all our replicas are done. The report
    /// never falls, though a replica may count again that did not count when it was made.
    pub(super) fn settle_own(&mut self, effects: &mut Vec<Effect>) {
        let own = self.group();
        let all = Timestamp::from(self.log.applied_by_all()).max(self.retained.settled_by(own));
        for group in (0..self.config.groups).map(GroupId) {
            let told = self.retained.told[group.index()];
            if self.retained.last_with.get(group) > told && all > told {
                self.retained.told[group.index()] = all;
                effects.push(Effect::Settle { group, rank: all.into() });
            }
        }
        if self.retained.last_with.get(own) > self.retained.settled[own.index()] {
            self.retained.settled(own, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    #[test]
    fn the_last_message_with_each_group_is_known_whatever_came_between() {
        let (one, other, both) = (GroupId(0), GroupId(1), GroupSet::first(2));
        let at = |clock| Timestamp::new(clock, one);
        let mut last_with = LastWith::new(3);
        let known =
            |last_with: &LastWith| last_with.iter().map(Timestamp::clock).collect::<Vec<_>>();
        #[rustfmt::skip]
        let delivered = [
            // to                   at   known        because
            (both,                  2,   [2, 2, 0],   "it is the first"),
            (both,                  4,   [4, 4, 0],   "it goes where the one before went"),
            (GroupSet::single(one), 6,   [6, 4, 0],   "the other keeps what it had"),
            (GroupSet::single(one), 5,   [6, 4, 0],   "a later one is known"),
            (both,                  5,   [6, 5, 0],   "a later one is known of one of them"),
        ];
        for (to, clock, clocks, because) in delivered {
            last_with.deliver(to, at(clock));
            assert_eq!(known(&last_with), clocks, "{because}");
        }
        last_with.raise(other, at(9));
        last_with.raise(one, at(1));
        assert_eq!(known(&last_with), [6, 9, 0], "what is told only raises it");
    }

    #[test]
    fn what_is_owed_is_found_until_all_are_done_with_it() {
        let message = |number| MessageId::new(SessionId(9 - number), number);
        let at = |clock| Timestamp::new(clock, GroupId(0));
        let mut retained = Retained::new(3);
        for number in 1..=6 {
            let destinations = GroupSet::single(GroupId(0)).with(GroupId(1 + (number % 2) as u16));
            let (local, last) = (at(number), at(10 * number));
            let message = message(number);
            retained.keep(RetainedMessage {
                message,
                low_water: 1,
                destinations,
                local,
                index: number,
                last,
            });
        }
        let mut effects = Vec::new();
        retained.settled(GroupId(0), at(60));
        retained.settled(GroupId(1), at(45));
        retained.trim(&mut effects);
        // The even ones go to g1, which is done with 2 and 4.
        let left: Vec<_> = (1..=6).filter(|n| retained.get(message(*n)).is_some()).collect();
        assert_eq!(left, [1, 3, 5, 6]);
        assert!(left.iter().all(|n| retained.get(message(*n)).unwrap().index == *n));
        let six = Decision { message: message(6), timestamp: at(60) };
        assert_eq!((retained.decide(message(6)), retained.decide(message(6))), (Some(six), None));
        assert_eq!(retained.decide(message(4)), None, "nobody needs it any more");
        retained.forget_told();
        assert_eq!(retained.decide(message(6)), Some(six), "the entry may be lost with its leader");
        let mut bytes = Vec::new();
        retained.save(&mut Writer(&mut bytes));
        let restored = Retained::restore(&mut Reader(&bytes), 3).unwrap();
        assert!((1..=6).all(|n| restored.get(message(n)) == retained.get(message(n))));
    }
}
