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

use skein_protocol::by_session::BySession;
use skein_protocol::check::check;
use skein_protocol::guard;
use skein_protocol::ids::{GroupSet, MessageId, SessionId};
use skein_protocol::mutants::Mutant;

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
    bytes: usize,
    large_bytes: usize,
    beyond: usize,
}

impl Payloads {
    pub(crate) fn new(inline_bytes_max: usize) -> Self {
        Self {
            sessions: BySession::default(),
            len: 0,
            buffers: Buffers::new(BUFFER_BYTES_MAX),
            inline_bytes_max,
            bytes: 0,
            large_bytes: 0,
            beyond: 0,
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
            let mut payloads = Payloads::new(64);
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
}
