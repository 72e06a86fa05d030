//! Payloads of messages that a replica has received or logged, and not let go of.
//!
//! Bounded: a session is not read further while it has a window of messages here, and a payload too
//! large for the log waits in its session's ring while those held take all of their budget.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use skein_protocol::ids::{GroupSet, MessageId, SessionId};

use crate::buffers::Buffers;

/// Longer ones leave no buffer for others.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// A message as it was multicast.
pub(crate) struct Held {
    pub low_water: u64,
    pub destinations: GroupSet,
    pub bytes: Vec<u8>,
}

pub(crate) struct Payloads {
    held: HashMap<MessageId, Held>,
    by_session: HashMap<SessionId, usize>,
    buffers: Buffers,
    inline_bytes_max: usize,
    bytes: usize,
    large_bytes: usize,
}

impl Payloads {
    pub(crate) fn new(inline_bytes_max: usize) -> Self {
        Self {
            held: HashMap::new(),
            by_session: HashMap::new(),
            buffers: Buffers::new(BUFFER_BYTES_MAX),
            inline_bytes_max,
            bytes: 0,
            large_bytes: 0,
        }
    }

    /// Keeps a copy of `bytes`, unless the message is here already.
    pub(crate) fn insert(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        bytes: &[u8],
    ) {
        let Entry::Vacant(place) = self.held.entry(message) else { return };
        let copy = self.buffers.copy(bytes);
        place.insert(Held { low_water, destinations, bytes: copy });
        self.bytes += bytes.len();
        if bytes.len() > self.inline_bytes_max {
            self.large_bytes += bytes.len();
        }
        *self.by_session.entry(message.session).or_default() += 1;
    }

    pub(crate) fn get(&self, message: MessageId) -> Option<&Held> {
        self.held.get(&message)
    }

    pub(crate) fn contains(&self, message: MessageId) -> bool {
        self.held.contains_key(&message)
    }

    /// Lets go of a message.
    pub(crate) fn remove(&mut self, message: MessageId) {
        let Some(held) = self.held.remove(&message) else { return };
        self.bytes -= held.bytes.len();
        if held.bytes.len() > self.inline_bytes_max {
            self.large_bytes -= held.bytes.len();
        }
        let count = self.by_session.get_mut(&message.session).expect("counted when inserted");
        *count -= 1;
        if *count == 0 {
            self.by_session.remove(&message.session);
        }
        self.buffers.keep(held.bytes);
    }

    /// Every message that is here, sorted.
    pub(crate) fn messages(&self) -> Vec<MessageId> {
        let mut messages: Vec<_> = self.held.keys().copied().collect();
        messages.sort_unstable();
        messages
    }

    /// Lets go of messages that `keep` does not want.
    pub(crate) fn retain_all(&mut self, keep: impl Fn(MessageId) -> bool) {
        for message in self.messages() {
            if !keep(message) {
                self.remove(message);
            }
        }
    }

    /// Lets go of a session's messages that `keep` does not want.
    pub(crate) fn retain(&mut self, session: SessionId, keep: impl Fn(MessageId) -> bool) {
        let gone: Vec<_> = self
            .held
            .keys()
            .filter(|message| message.session == session && !keep(**message))
            .copied()
            .collect();
        for message in gone {
            self.remove(message);
        }
    }

    /// How many of the session's messages are here.
    pub(crate) fn of_session(&self, session: SessionId) -> usize {
        self.by_session.get(&session).copied().unwrap_or(0)
    }

    /// How many messages are here.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Bytes of payloads too large for the log.
    pub(crate) const fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// Bytes of all payloads.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}
