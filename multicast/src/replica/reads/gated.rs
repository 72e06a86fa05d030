//! Answers to reads that are held until their dependencies have passed.

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_protocol::ids::SessionId;
use skein_protocol::rank::Rank;

use super::TIMEOUT_MS;

/// Limits of the held answers, and of their bytes. At either limit no further read is made until some have
/// been sent; the session asks again. One answer may exceed the limit of bytes.
const GATED_MAX: usize = 4096;
const GATED_BYTES_MAX: usize = 8 << 20;

/// An answer, held until everything up to the rank `until` has passed.
pub(super) struct Answer {
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) until: Rank,
    pub(super) bytes: Vec<u8>,
}

/// The held answers, in the order in which they were made.
///
/// A session repeats a query every few milliseconds while it has no answer. A query whose answer is held here
/// is recognised and not read again, so the gate holds one answer to a query, for however long it stays
/// closed.
///
/// Invariant: `asked` has one entry for each of `answers`, and `bytes` is the length of all of them.
#[derive(Default)]
pub(super) struct Gated {
    pub(super) answers: VecDeque<Answer>,
    /// Time at which each query last came, in milliseconds.
    asked: HashMap<(SessionId, u64), u64>,
    pub(super) bytes: usize,
}

impl Gated {
    /// Returns whether no further read may be made, with `count` answers of `bytes` made in this turn.
    pub(super) fn is_full(&self, count: usize, bytes: usize) -> bool {
        self.answers.len() + count >= GATED_MAX || self.bytes + bytes >= GATED_BYTES_MAX
    }

    /// Records that a query came. Returns whether its answer is held here.
    pub(super) fn recognises(&mut self, session: SessionId, number: u64, now_ms: u64) -> bool {
        if self.answers.is_empty() {
            return false;
        }
        let asked = self.asked.get_mut(&(session, number));
        asked.map(|asked_ms| *asked_ms = now_ms).is_some()
    }

    pub(super) fn hold(&mut self, answer: Answer, now_ms: u64) {
        self.bytes += answer.bytes.len();
        let replaced = self.asked.insert((answer.session, answer.number), now_ms);
        debug_assert!(replaced.is_none(), "a question with an answer here is not read again");
        self.answers.push_back(answer);
    }

    /// Takes the first answer, if its dependency `has_passed`.
    pub(super) fn let_out(&mut self, has_passed: impl FnOnce(Rank) -> bool) -> Option<Answer> {
        let answer = self.answers.pop_front_if(|answer| has_passed(answer.until))?;
        self.asked.remove(&(answer.session, answer.number));
        self.bytes -= answer.bytes.len();
        Some(answer)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(SessionId, u64) -> bool) {
        let Self { answers, asked, bytes } = self;
        asked.retain(|(session, _), asked_ms| keep(*session, *asked_ms));
        answers.retain(|answer| {
            let kept = asked.contains_key(&(answer.session, answer.number));
            *bytes -= if kept { 0 } else { answer.bytes.len() };
            kept
        });
    }

    /// Drops the answers whose sessions have stopped asking.
    pub(super) fn expire(&mut self, now_ms: u64) {
        if !self.answers.is_empty() {
            self.retain(|_, asked_ms| now_ms <= asked_ms + TIMEOUT_MS);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
