//! Payloads of messages that a replica has received or logged, and still needs.
//!
//! They are bounded. A session is not read further while it has a window of messages here. A payload too
//! large for the log waits in its session's ring while the held ones take up the budget.
//!
//! Payloads that other groups' leaders relay to a leader may exceed the budget, but not while the oldest
//! payload is kept for a follower alone; so the payloads beyond it are no more than were pending at some
//! moment. Other replicas exceed the budget only for the message that their log waits for and the messages of
//! its session in front of it, which are at most a window. Payloads of a log or a state that a replica takes over,
//! or reads from its disk, may exceed it, too.
//!
//! [Hints](hints) have what these payloads leave of the budget, and no more, those included of which not all has come:
//! they go first.

mod hints;

use skein_protocol::by_session::BySession;
use skein_protocol::check::check;
use skein_protocol::guard;
use skein_protocol::ids::{GroupSet, MessageId, SessionId};
use skein_protocol::mutants::Mutant;

use self::hints::Hints;
use crate::buffers::Buffers;
use crate::ordered_window::OrderedWindow;

/// Buffers that have grown beyond this size, in bytes, are not kept for reuse.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// A message as it was multicast.
pub(crate) struct Held {
    pub low_water: u64,
    pub destinations: GroupSet,
    pub bytes: Vec<u8>,
    /// Whether it exceeded the budget when it was received.
    beyond: bool,
}

pub(crate) struct Payloads {
    /// A session without messages here may remain, empty, until [`tidy`](Self::tidy).
    sessions: BySession<OrderedWindow<Held>>,
    len: usize,
    buffers: Buffers,
    inline_bytes_max: usize,
    /// Limit in bytes of the payloads that are too large for the log; see above for those that may exceed it.
    budget: usize,
    bytes: usize,
    large_bytes: usize,
    beyond: usize,
    /// Invariant: `large_bytes + hints.bytes() <= budget`, if there are any.
    hints: Hints,
}

impl Payloads {
    pub(crate) fn new(inline_bytes_max: usize, budget: usize) -> Self {
        Self {
            sessions: BySession::default(),
            len: 0,
            buffers: Buffers::new(BUFFER_BYTES_MAX),
            inline_bytes_max,
            budget,
            bytes: 0,
            large_bytes: 0,
            beyond: 0,
            hints: Hints::default(),
        }
    }

    /// Keeps a copy of `bytes`, unless the message is here already. Returns whether it was added.
    pub(crate) fn insert(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        bytes: &[u8],
    ) -> bool {
        let (messages, buffers) = (self.sessions.or_default(message.session), &mut self.buffers);
        let held = || {
            let bytes = buffers.copy(bytes);
            Held { low_water, destinations, bytes, beyond: false }
        };
        if !messages.insert(message.sequence, held) {
            return false;
        }
        self.len += 1;
        self.bytes += bytes.len();
        if bytes.len() > self.inline_bytes_max {
            self.large_bytes += bytes.len();
            self.drop_hint(message);
            self.make_room(0);
        }
        true
    }

    /// Keeps a copy of a message as the log has it, in place of any other payload that its session has written here.
    pub(crate) fn replace(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        bytes: &[u8],
    ) {
        let new = self.insert(message, low_water, destinations, bytes);
        let same = |held: &Held| held.bytes == bytes && held.destinations == destinations;
        if new || guard!(Mutant::PayloadNotCompared, self.get(message).is_some_and(same)) {
            return;
        }
        self.remove(message);
        self.insert(message, low_water, destinations, bytes);
    }

    /// Returns whether the message is here as the log has it, if the log has only `sum`, the [`check`] of its payload.
    pub(crate) fn holds(&self, message: MessageId, destinations: GroupSet, sum: u64) -> bool {
        let fits = |held: &Held| held.destinations == destinations && check(&held.bytes) == sum;
        self.get(message).is_some_and(|held| guard!(Mutant::PayloadNotCompared, fits(held)))
    }

    /// Keeps a copy of a large message as a hint, unless it is here or the payloads, and `assembling` bytes of hints of
    /// which not all has come, leave no room for it. Older hints make room. Its session has at most `window` hints here.
    /// Returns whether it is kept.
    pub(crate) fn insert_hint(
        &mut self,
        (message, low_water, destinations): (MessageId, u64, GroupSet),
        bytes: &[u8],
        window: usize,
        assembling: usize,
    ) -> bool {
        if self.large_bytes + assembling + bytes.len() > self.budget
            || self.get(message).is_some()
            || self.hints.get(message).is_some()
        {
            return false;
        }
        if let Some(earlier) = self.hints.pop_of_session(message.session, window) {
            self.recycle(earlier);
        }
        let bytes = self.buffers.copy(bytes);
        self.hints.push(message, Held { low_water, destinations, bytes, beyond: false });
        self.make_room(assembling);
        true
    }

    /// Makes room for `assembling` bytes of hints of which not all has come. The oldest of the others go. Returns false if
    /// payloads leave no room, and drops nothing then.
    pub(crate) fn make_room_for_hints(&mut self, assembling: usize) -> bool {
        let has_room = self.large_bytes + assembling <= self.budget;
        if has_room {
            self.make_room(assembling);
        }
        has_room
    }

    /// Drops the oldest hints, as long as there are too many beside `assembling` bytes of others.
    fn make_room(&mut self, assembling: usize) {
        let left = self.budget.saturating_sub(self.large_bytes + assembling);
        while let Some(oldest) = self.hints.pop_beyond(left) {
            self.recycle(oldest);
        }
    }

    /// Returns whether there is a hint that is as an entry says, and no payload: `sum` is the payload's [`check`].
    /// A hint that differs is dropped.
    pub(crate) fn has_hint(
        &mut self,
        message: MessageId,
        destinations: GroupSet,
        sum: u64,
    ) -> bool {
        let Some(hint) = self.hints.get(message) else { return false };
        let fits = hint.destinations == destinations && check(&hint.bytes) == sum;
        if guard!(Mutant::PayloadNotCompared, fits) && self.get(message).is_none() {
            return true;
        }
        self.drop_hint(message);
        false
    }

    /// Turns the hint for a message into its payload, if it is [as its entry says](Self::has_hint). Returns
    /// whether it was.
    pub(crate) fn take_hint(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        sum: u64,
    ) -> bool {
        let fits = self.has_hint(message, destinations, sum);
        if fits {
            self.use_hint(message, low_water, destinations);
        }
        fits
    }

    /// Turns the hint for a message, [if there is one](Self::has_hint), into its payload.
    pub(crate) fn use_hint(&mut self, message: MessageId, low_water: u64, destinations: GroupSet) {
        let Some(hint) = self.hints.take(message) else { return };
        let len = hint.bytes.len();
        let held = Held { low_water, destinations, ..hint };
        if self.sessions.or_default(message.session).insert(message.sequence, || held) {
            self.len += 1;
            self.bytes += len;
            self.large_bytes += len;
        }
    }

    /// Returns whether the message is here, or a hint for it.
    pub(crate) fn is_here(&self, message: MessageId) -> bool {
        self.get(message).is_some() || self.hints.get(message).is_some()
    }

    /// Drops the hint for a message.
    fn drop_hint(&mut self, message: MessageId) {
        if let Some(hint) = self.hints.take(message) {
            self.recycle(hint);
        }
    }

    /// Drops the hints for which `keep` returns false.
    pub(crate) fn retain_hints(&mut self, keep: impl Fn(MessageId) -> bool) {
        let gone: Vec<_> = self.hints.messages().filter(|message| !keep(*message)).collect();
        for message in gone {
            self.drop_hint(message);
        }
    }

    /// Number of hints.
    pub(crate) const fn hints(&self) -> usize {
        self.hints.len()
    }

    /// Bytes of all hints.
    pub(crate) const fn hint_bytes(&self) -> usize {
        self.hints.bytes()
    }

    /// Returns whether hints alone leave no room for a payload of that length.
    pub(crate) const fn hints_fill(&self, len: usize) -> bool {
        let without = self.large_bytes + len;
        len > self.inline_bytes_max
            && without <= self.budget
            && without + self.hints.bytes() > self.budget
    }

    /// Drops the message unless it is here as the log has it. Returns whether it is.
    pub(crate) fn keep_only(
        &mut self,
        message: MessageId,
        destinations: GroupSet,
        sum: u64,
    ) -> bool {
        let holds = self.holds(message, destinations, sum);
        if !holds {
            self.remove(message);
        }
        holds
    }

    pub(crate) fn get(&self, message: MessageId) -> Option<&Held> {
        self.sessions.get(message.session)?.get(message.sequence)
    }

    /// Marks the message as beyond the budget, if it is here.
    pub(crate) fn note_beyond(&mut self, message: MessageId) {
        let messages = self.sessions.get_mut(message.session);
        let held = messages.and_then(|messages| messages.get_mut(message.sequence));
        if let Some(held) = held.filter(|held| !held.beyond) {
            held.beyond = true;
            self.beyond += 1;
        }
    }

    /// Drops a message.
    pub(crate) fn remove(&mut self, message: MessageId) {
        if let Some(held) = self.take(message) {
            self.recycle(held);
        }
    }

    /// Takes a message out. The caller gives it [back](Self::recycle) after use.
    pub(crate) fn take(&mut self, message: MessageId) -> Option<Held> {
        let held = self.sessions.get_mut(message.session)?.remove(message.sequence)?;
        self.len -= 1;
        self.bytes -= held.bytes.len();
        if held.bytes.len() > self.inline_bytes_max {
            self.large_bytes -= held.bytes.len();
        }
        self.beyond -= usize::from(held.beyond);
        Some(held)
    }

    /// Returns the buffer of a message that was taken out.
    pub(crate) fn recycle(&mut self, held: Held) {
        self.buffers.keep(held.bytes);
    }

    /// All messages, sorted.
    pub(crate) fn messages(&self) -> Vec<MessageId> {
        let of = |(session, messages): (_, &OrderedWindow<Held>)| {
            let numbers = messages.iter().map(|(number, _)| number);
            numbers.map(|number| MessageId::new(session, number)).collect::<Vec<_>>()
        };
        let mut messages: Vec<_> = self.sessions.iter().flat_map(of).collect();
        messages.sort_unstable();
        messages
    }

    /// Drops the messages for which `keep` returns false.
    pub(crate) fn retain_all(&mut self, keep: impl Fn(MessageId) -> bool) {
        for message in self.messages() {
            if !keep(message) {
                self.remove(message);
            }
        }
    }

    /// Drops a session's messages for which `keep` returns false.
    pub(crate) fn retain(&mut self, session: SessionId, keep: impl Fn(MessageId) -> bool) {
        let Some(messages) = self.sessions.get(session) else { return };
        let messages = messages.iter().map(|(number, _)| MessageId::new(session, number));
        let gone: Vec<_> = messages.filter(|message| !keep(*message)).collect();
        for message in gone {
            self.remove(message);
        }
    }

    /// Number of the session's messages.
    pub(crate) fn of_session(&self, session: SessionId) -> usize {
        self.sessions.get(session).map_or(0, OrderedWindow::len)
    }

    /// Number of messages.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Removes sessions without messages. To be called now and then, since most of them have messages again soon.
    pub(crate) fn tidy(&mut self) {
        self.sessions.retain(|messages| !messages.is_empty());
        self.hints.tidy();
    }

    /// Bytes of the payloads that are too large for the log.
    pub(crate) const fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// Number of payloads that exceeded the budget when they were received.
    pub(crate) const fn beyond(&self) -> usize {
        self.beyond
    }

    /// Bytes of all payloads.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use skein_protocol::ids::GroupId;

    use super::*;

    #[test]
    fn a_message_is_what_the_log_says_by_its_bytes_and_by_where_it_goes() {
        let (message, one) = (MessageId::new(SessionId(1), 1), GroupSet::single(GroupId(0)));
        let both = GroupSet::first(2);
        let held = |destinations, bytes: &[u8]| {
            let mut payloads = Payloads::new(64, 1 << 20);
            payloads.insert(message, 1, destinations, bytes);
            payloads
        };
        for (destinations, bytes, fits) in
            [(both, b"1", true), (one, b"1", false), (both, b"2", false)]
        {
            let mut payloads = held(destinations, bytes);
            assert_eq!(payloads.holds(message, both, check(b"1")), fits);
            assert_eq!(payloads.keep_only(message, both, check(b"1")), fits);
            assert_eq!(payloads.len(), usize::from(fits), "nobody takes it for the message");
            let mut payloads = held(destinations, bytes);
            payloads.replace(message, 1, both, b"1");
            let held = payloads.get(message).map(|held| (held.destinations, &held.bytes[..]));
            assert_eq!(held, Some((both, &b"1"[..])));
        }
    }

    fn named(sequence: u64) -> MessageId {
        MessageId::new(SessionId(1 + sequence % 3), sequence)
    }

    #[test]
    fn the_oldest_hints_make_room_for_payloads_and_for_later_ones() {
        let (mut payloads, both, bytes) = (Payloads::new(64, 1000), GroupSet::first(2), [7; 200]);
        let sum = check(&bytes);
        let there = |payloads: &Payloads| {
            let there = (1..=9).filter(|it| payloads.hints.get(named(*it)).is_some());
            there.collect::<Vec<_>>()
        };
        for sequence in 1..=7 {
            assert!(payloads.insert_hint((named(sequence), 1, both), &bytes, 9, 0));
            assert!(!payloads.insert_hint((named(sequence), 1, both), &bytes, 9, 0), "it is here");
        }
        assert_eq!((there(&payloads), payloads.hint_bytes()), (vec![3, 4, 5, 6, 7], 1000));
        assert!(payloads.take_hint(named(5), 2, both, sum) && payloads.hints_fill(200));
        assert_eq!(payloads.get(named(5)).map(|held| held.low_water), Some(2));
        assert_eq!((there(&payloads), payloads.large_bytes()), (vec![3, 4, 6, 7], 200));
        payloads.insert(named(8), 1, both, &bytes);
        assert_eq!((there(&payloads), payloads.large_bytes()), (vec![4, 6, 7], 400));
        assert!(!payloads.insert_hint((named(8), 1, both), &bytes, 9, 0), "its payload is here");
        payloads.insert(named(6), 1, both, &bytes);
        assert_eq!(there(&payloads), [4, 7], "6 is no hint any more, and room for itself");
        for sequence in 1..=3 {
            payloads.insert(named(sequence), 1, both, &bytes);
        }
        assert_eq!((there(&payloads), payloads.large_bytes()), (vec![], 1200));
        assert!(!payloads.insert_hint((named(9), 1, both), &bytes, 9, 0), "there is no room");
        assert_eq!((payloads.hints(), payloads.hint_bytes()), (0, 0));
    }

    #[test]
    fn hints_go_by_session_and_by_what_is_known() {
        let (mut payloads, both) = (Payloads::new(64, 1 << 20), GroupSet::first(2));
        for sequence in 1..=9 {
            payloads.insert_hint((named(sequence), 1, both), &[7; 100], 2, 0);
        }
        let left = |payloads: &Payloads| {
            let numbers = payloads.hints.messages().map(|message| message.sequence);
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(left(&payloads), [4, 5, 6, 7, 8, 9], "two of each session");
        payloads.retain_hints(|message| message.sequence % 2 == 0);
        payloads.tidy();
        assert_eq!((left(&payloads), payloads.hint_bytes()), (vec![4, 6, 8], 300));
        let message = named(6);
        assert!(!payloads.has_hint(message, GroupSet::first(3), check(&[7; 100])));
        assert_eq!(left(&payloads), [4, 8], "it goes to other groups");
    }
}
