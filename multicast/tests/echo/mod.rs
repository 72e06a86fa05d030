//! The state machine of tests with real engines.

use std::collections::HashMap;

use skein_multicast::application::{Application, Delivery, Malformed, Outbox};
use skein_protocol::ids::{GroupId, MessageId, SessionId};

/// Answers with the position and the payload's length, and records the order.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) order: Vec<MessageId>,
    /// The reply to each message: on a busy host leaders change, and replies get lost.
    replies: HashMap<MessageId, [u8; 16]>,
    /// The parts of another's state that were restored so far.
    copied: Vec<u8>,
}

/// Bytes of a message in a copied state: session, sequence, and the reply.
const COPIED: usize = 32;

impl Application for Echo {
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) {
        self.order.push(delivery.message);
        let mut reply = [0; 16];
        reply[..8].copy_from_slice(&delivery.position.to_le_bytes());
        reply[8..].copy_from_slice(&(delivery.payload.len() as u64).to_le_bytes());
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

    fn finish_copy(&mut self, part: &mut Vec<u8>) {
        for message in &self.order {
            part.extend_from_slice(&message.session.0.to_le_bytes());
            part.extend_from_slice(&message.sequence.to_le_bytes());
            part.extend_from_slice(&self.replies[message]);
        }
    }

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, part: &[u8], last: bool) -> Result<(), Malformed> {
        self.copied.extend_from_slice(part);
        if !last {
            return Ok(());
        }
        let (messages, []) = self.copied.as_chunks::<COPIED>() else { return Err(Malformed) };
        for copied in messages {
            let ([session, sequence, ..], []) = copied.as_chunks::<8>() else {
                return Err(Malformed);
            };
            let session = SessionId(u64::from_le_bytes(*session));
            let message = MessageId::new(session, u64::from_le_bytes(*sequence));
            self.order.push(message);
            self.replies.insert(message, *copied.last_chunk().expect("two words more"));
        }
        Ok(())
    }
}
