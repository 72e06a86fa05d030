//! Outcome of deliveries: the state machine's output until it is sent, and replies to repeat.

use std::collections::VecDeque;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, MessageId, SessionId};
use skein_protocol::ordering::AnswerTo;
use skein_protocol::step::Event;

use super::Replica;
use crate::application::{Application, EXCHANGE_MAX, Outbox};
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// No session's message is read while this many replies are to be repeated.
pub(super) const REPEATS_MAX: usize = 1 << 10;

/// Outcome of a turn's deliveries: the messages whose replies are to be repeated, and the output of the state
/// machine's last call.
///
/// Invariants:
/// - A session's message is read only while `repeats.len() < REPEATS_MAX`.
/// - After the deliveries of a turn, `cut_short` holds if `repeats` is not empty.
#[derive(Default)]
pub(super) struct Deliveries {
    pub(super) said: ReplyBuffer,
    repeats: VecDeque<MessageId>,
    cut_short: bool,
}

impl Deliveries {
    /// Begins a turn's deliveries. If this replica does not reply, another repeats the replies that are to be
    /// repeated.
    pub(super) fn begin(&mut self, replies: bool) {
        (self.said.replies, self.cut_short) = (replies, true);
        if !replies {
            self.repeats.clear();
        }
    }

    /// Records that the state machine takes no more messages in this turn, and has no work left.
    pub(super) fn are_done(&mut self) {
        self.cut_short = false;
    }

    /// Ends a turn's deliveries. Replies that are still to be repeated wait for the next turn.
    pub(super) fn end(&mut self) {
        self.cut_short |= !self.repeats.is_empty();
    }

    /// Returns whether a turn left work to the next one.
    pub(super) const fn are_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Schedules the reply to a message that came again after it was delivered.
    pub(super) fn repeat(&mut self, message: MessageId) {
        self.repeats.push_back(message);
    }

    pub(super) fn next_repeat(&mut self) -> Option<MessageId> {
        self.repeats.pop_front()
    }

    pub(super) fn has_many_repeats(&self) -> bool {
        self.repeats.len() >= REPEATS_MAX
    }
}

/// Output of the state machine in one call.
///
/// Invariant: `bytes` is the concatenation of the replies and results in `words`, whose `len` add up to its length.
#[derive(Default)]
pub(super) struct ReplyBuffer {
    words: Vec<Word>,
    bytes: Vec<u8>,
    /// If false, replies are dropped at once.
    replies: bool,
}

enum Word {
    Reply { message: MessageId, len: usize },
    Exchange { message: MessageId, to: GroupSet, len: usize },
    End(SessionId),
}

impl Outbox for ReplyBuffer {
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

impl<A: Application, O: Links> Replica<A, O> {
    /// Sends the state machine's output as far as this replica may.
    pub(super) fn speak<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if self.deliveries.said.words.is_empty() {
            return;
        }
        let mut said = std::mem::take(&mut self.deliveries.said);
        let mut from = 0;
        for word in said.words.drain(..) {
            match word {
                Word::Reply { message, len } => {
                    let bytes = &said.bytes[from..from + len];
                    from += len;
                    // If this state is not the group's, a leader that has the group's state repeats the reply.
                    if self.is_trusted() {
                        // A delivery in flight does not depend on later deliveries.
                        let given = self.exchange.reply_dependency(message);
                        let until = given.unwrap_or_else(|| {
                            self.core.reply_dependency(AnswerTo::Message(message))
                        });
                        let (core, paths) = (&self.core, &mut self.paths);
                        self.gate.reply(message, bytes, until, core, links, paths);
                    }
                }
                Word::Exchange { message, to, len } => {
                    let bytes = &said.bytes[from..from + len];
                    from += len;
                    let to = to.without(self.id.group);
                    if self.core.log().leads() && self.is_trusted() {
                        self.exchange.outgoing.tell_later(message, to, bytes, &self.core, links);
                    }
                    self.exchange.outgoing.keep(message, to, bytes);
                }
                Word::End(session) => {
                    self.core.step(Event::SessionEnded { session }, &mut self.effects);
                    self.dead_sessions.remove(&session);
                    self.session_gone(session);
                }
            }
        }
        said.bytes.clear();
        self.deliveries.said = said;
    }
}
