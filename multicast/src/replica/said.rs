//! What the state machine said, until it is sent.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, MessageId, SessionId};

use super::Replica;
use crate::application::{Application, EXCHANGE_MAX, Outbox};
use crate::wiring::Wiring;

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

impl<A: Application> Replica<A> {
    /// Sends what the state machine said, if it is ours to say.
    pub(super) fn speak<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        if self.said.words.is_empty() {
            return;
        }
        let mut said = std::mem::take(&mut self.said);
        let mut from = 0;
        for word in said.words.drain(..) {
            match word {
                Word::Reply { message, len } => {
                    let bytes = &said.bytes[from..from + len];
                    from += len;
                    self.reply(message, bytes, wiring);
                }
                Word::Exchange { message, to, len } => {
                    let bytes = &said.bytes[from..from + len];
                    from += len;
                    let to = to.without(self.id.group);
                    if self.core.log().leads() && self.is_trusted() {
                        self.tell_later(message, to, bytes, wiring);
                    }
                    // Whoever leads after us may have to say it again.
                    self.results.insert(message, (to, bytes.into()));
                }
                Word::End(session) => {
                    self.core.end_session(session);
                    self.orphans.remove(&session);
                    self.session_gone(session);
                }
            }
        }
        said.bytes.clear();
        self.said = said;
    }
}
