//! The state machine of simulations: checks every payload, exchanges now and then, and waits.

use std::collections::BTreeMap;

use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

use crate::application::{Application, Delivery, Malformed, Outbox};

/// The bytes that message `message` carries: its sender and its replicas know them alike.
pub(super) fn payload(message: MessageId, exchanges: bool, reply: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![u8::from(exchanges)];
    bytes.extend_from_slice(&reply.to_le_bytes());
    let word = message.session.0.rotate_left(17) ^ message.sequence;
    bytes.extend((0..len).map(|i| (word >> (i % 8 * 8)) as u8 ^ i as u8));
    bytes
}

/// What group `from` exchanges about a message.
fn result(message: MessageId, from: GroupId) -> Vec<u8> {
    let len = (message.sequence * 37 + u64::from(from.0)) % 500;
    (0..len).map(|i| (message.sequence + i) as u8 ^ from.0 as u8).collect()
}

/// One replica's machine.
pub(super) struct Machine {
    group: GroupId,
    /// A message delivered whose other groups' results are not all here.
    waiting: Option<(MessageId, GroupSet, u16)>,
    /// Results that are here, by message.
    results: BTreeMap<MessageId, GroupSet>,
    replies: BTreeMap<MessageId, u16>,
    /// The first thing that was not as it should be.
    pub(super) broken: Option<String>,
}

impl Machine {
    pub(super) fn new(group: GroupId) -> Self {
        Self {
            group,
            waiting: None,
            results: BTreeMap::new(),
            replies: BTreeMap::new(),
            broken: None,
        }
    }

    fn go_on(&mut self, out: &mut dyn Outbox) {
        let Some((message, needed, reply)) = self.waiting else { return };
        if self.results.get(&message).is_some_and(|here| here.contains_all(needed)) {
            self.results.remove(&message);
            self.waiting = None;
            self.answer(message, reply, out);
        }
    }

    fn answer(&mut self, message: MessageId, len: u16, out: &mut dyn Outbox) {
        self.replies.insert(message, len);
        out.reply(message, &vec![message.sequence as u8; usize::from(len)]);
    }
}

impl Application for Machine {
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) {
        let Delivery { message, destinations, payload: bytes, .. } = delivery;
        if message.session.is_own() {
            // A node says that a client's process has died, and whose session that was.
            let session = bytes.try_into().expect("eight bytes");
            return out.end_session(SessionId(u64::from_le_bytes(session)));
        }
        let (exchanges, reply) = (bytes[0] == 1, u16::from_le_bytes([bytes[1], bytes[2]]));
        if bytes != payload(message, exchanges, reply, bytes.len() - 3) {
            self.broken = Some(format!("{message} was delivered with another payload"));
        }
        if self.waiting.is_some() {
            self.broken = Some(format!("{message} was delivered to a machine that was not ready"));
        }
        let others = destinations.without(self.group);
        if exchanges && !others.is_empty() {
            out.exchange(message, others, &result(message, self.group));
            self.waiting = Some((message, others, reply));
            self.go_on(out);
        } else {
            self.answer(message, reply, out);
        }
    }

    fn exchanged(&mut self, message: MessageId, from: GroupId, bytes: &[u8], out: &mut dyn Outbox) {
        let here = self.results.entry(message).or_default();
        if here.contains(from) || bytes != result(message, from) {
            self.broken = Some(format!("a wrong result of {from} about {message}"));
        }
        *here = here.with(from);
        self.go_on(out);
    }

    fn ready(&self) -> bool {
        self.waiting.is_none()
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        if let Some(len) = self.replies.get(&message) {
            out.reply(message, &vec![message.sequence as u8; usize::from(*len)]);
        }
    }

    fn begin_copy(&mut self) {}

    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> bool {
        true
    }

    fn finish_copy(&mut self, _: &mut Vec<u8>) {}

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, _: &[u8], _: bool) -> Result<(), Malformed> {
        Ok(())
    }
}
