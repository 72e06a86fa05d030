//! The state machine of tests with real engines.

use std::collections::HashMap;
use std::convert::Infallible;

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
    type Failure = Infallible;

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), Infallible> {
        self.order.push(delivery.message);
        let mut reply = [0; 16];
        reply[..8].copy_from_slice(&delivery.position.to_le_bytes());
        reply[8..].copy_from_slice(&(delivery.payload.len() as u64).to_le_bytes());
        assert!(delivery.payload.iter().all(|b| *b == delivery.message.sequence as u8));
        out.reply(delivery.message, &reply);
        self.replies.insert(delivery.message, reply);
        Ok(())
    }

    fn exchanged(
        &mut self,
        _: MessageId,
        _: GroupId,
        _: &[u8],
        _: &mut dyn Outbox,
    ) -> Result<(), Infallible> {
        Ok(())
    }

    fn ready(&self) -> bool {
        true
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        out.reply(message, &self.replies[&message]);
    }

    fn begin_copy(&mut self) {}

    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn finish_copy(&mut self, part: &mut Vec<u8>) -> Result<(), Infallible> {
        for message in &self.order {
            part.extend_from_slice(&message.session.0.to_le_bytes());
            part.extend_from_slice(&message.sequence.to_le_bytes());
            part.extend_from_slice(&self.replies[message]);
        }
        Ok(())
    }

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, part: &[u8], last: bool) -> Result<Result<(), Malformed>, Infallible> {
        self.copied.extend_from_slice(part);
        if !last {
            return Ok(Ok(()));
        }
        let (messages, []) = self.copied.as_chunks::<COPIED>() else {
            return Ok(Err(Malformed));
        };
        for copied in messages {
            let ([session, sequence, ..], []) = copied.as_chunks::<8>() else {
                return Ok(Err(Malformed));
            };
            let session = SessionId(u64::from_le_bytes(*session));
            let message = MessageId::new(session, u64::from_le_bytes(*sequence));
            self.order.push(message);
            self.replies.insert(message, *copied.last_chunk().expect("two words more"));
        }
        Ok(Ok(()))
    }
}
