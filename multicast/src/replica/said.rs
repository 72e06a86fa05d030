//! What the state machine said, until it is sent.

use skein_protocol::ids::{GroupSet, MessageId, SessionId};

use crate::application::{EXCHANGE_MAX, Outbox};

#[derive(Default)]
pub(super) struct Said {
    pub(super) words: Vec<Word>,
    /// The bytes of all of them, one after the other.
    pub(super) bytes: Vec<u8>,
    /// It is ours to reply: what others would reply is dropped at once.
    pub(super) replies: bool,
}

pub(super) enum Word {
    Reply { message: MessageId, len: usize },
    Exchange { message: MessageId, to: GroupSet, len: usize },
    End(SessionId),
}

impl Outbox for Said {
    fn reply(&mut self, message: MessageId, reply: &[u8]) {
        if !self.replies {
            return;
        }
        self.bytes.extend_from_slice(reply);
        self.words.push(Word::Reply { message, len: reply.len() });
    }

    fn exchange(&mut self, message: MessageId, to: GroupSet, result: &[u8]) {
        assert!(result.len() <= EXCHANGE_MAX, "results are verdicts, not data");
        self.bytes.extend_from_slice(result);
        self.words.push(Word::Exchange { message, to, len: result.len() });
    }

    fn end_session(&mut self, session: SessionId) {
        self.words.push(Word::End(session));
    }
}
