//! The state machine of tests with real engines.

use std::collections::HashMap;

use skein_multicast::application::{Application, Delivery, Malformed, Outbox};
use skein_protocol::ids::{GroupId, MessageId};

/// Answers with the position and the payload's length, and keeps the order.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) order: Vec<MessageId>,
    /// What each message was answered: on a crowded host leaders change, and replies get lost.
    replies: HashMap<MessageId, Vec<u8>>,
}

impl Application for Echo {
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) {
        self.order.push(delivery.message);
        let mut reply = delivery.position.to_le_bytes().to_vec();
        reply.extend_from_slice(&(delivery.payload.len() as u64).to_le_bytes());
        assert!(delivery.payload.iter().all(|b| *b == delivery.message.sequence as u8));
        out.reply(delivery.message, &reply);
        self.replies.insert(delivery.message, reply);
    }

    fn exchanged(&mut self, _: MessageId, _: GroupId, _: &[u8], _: &mut dyn Outbox) {}

    fn ready(&self) -> bool {
        true
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        out.reply(message, &self.replies[&message]);
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
