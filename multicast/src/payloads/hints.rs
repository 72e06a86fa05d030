//! Hints: large payloads that sessions have written to a destination which has their message from another group.
//! This file decides in which order they go.
//!
//! A hint waits for nothing, and nothing waits for it. It goes when it is used, when the payload comes in another
//! way, or when it must make room; the oldest goes first.
//!
//! **Invariants.** `queue` has the hints in the order in which they came, and begins with one. `bytes` is their
//! length. The numbers in `sessions` are their places, counted from the first hint ever.

use std::collections::VecDeque;

use skein_protocol::by_session::BySession;
use skein_protocol::ids::{MessageId, SessionId};

use super::Held;
use crate::ordered_window::OrderedWindow;

/// Limit of the places from the oldest hint to the newest. A hint that is so old is not going to be used.
const PLACES_MAX: usize = 1 << 14;

#[derive(Default)]
pub(super) struct Hints {
    queue: VecDeque<Option<(MessageId, Held)>>,
    /// Place of the first hint in `queue`.
    first: u64,
    /// By session, and by the message's number there.
    sessions: BySession<OrderedWindow<u64>>,
    len: usize,
    bytes: usize,
}

impl Hints {
    /// Adds a hint for a message that has none.
    pub(super) fn push(&mut self, message: MessageId, held: Held) {
        let place = self.first + self.queue.len() as u64;
        self.sessions.or_default(message.session).insert(message.sequence, || place);
        self.len += 1;
        self.bytes += held.bytes.len();
        self.queue.push_back(Some((message, held)));
    }

    /// Takes out the oldest hint, if all together have more than `bytes`, or there are too many places.
    pub(super) fn pop_beyond(&mut self, bytes: usize) -> Option<Held> {
        let beyond = self.bytes > bytes || self.queue.len() > PLACES_MAX;
        let (oldest, _) = self.queue.front()?.as_ref().filter(|_| beyond)?;
        self.take(*oldest)
    }

    /// Takes out the session's hint with the lowest number, if it has `most` of them.
    pub(super) fn pop_of_session(&mut self, session: SessionId, most: usize) -> Option<Held> {
        let numbers = self.sessions.get(session).filter(|numbers| numbers.len() >= most)?;
        let (lowest, _) = numbers.iter().next()?;
        self.take(MessageId::new(session, lowest))
    }

    pub(super) fn get(&self, message: MessageId) -> Option<&Held> {
        let place = *self.sessions.get(message.session)?.get(message.sequence)?;
        let (_, held) = self.queue[(place - self.first) as usize].as_ref()?;
        Some(held)
    }

    /// Takes a hint out.
    pub(super) fn take(&mut self, message: MessageId) -> Option<Held> {
        let place = self.sessions.get_mut(message.session)?.remove(message.sequence)?;
        let (_, held) = self.queue[(place - self.first) as usize].take()?;
        self.len -= 1;
        self.bytes -= held.bytes.len();
        while self.queue.pop_front_if(|hint| hint.is_none()).is_some() {
            self.first += 1;
        }
        Some(held)
    }

    /// The messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.queue.iter().flatten().map(|(message, _)| *message)
    }

    /// Removes sessions without hints.
    pub(super) fn tidy(&mut self) {
        self.sessions.retain(|numbers| !numbers.is_empty());
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
