//! Reads that are not ordered: by a leader that a quorum has confirmed, or that holds a lease, or of
//! whatever state a replica has.
//!
//! A leader reads when it has delivered what anybody of its group had delivered when it was asked. It is
//! [confirmed](skein_protocol::group::GroupLog::is_confirmed) before; or it looks at its lease when it has
//! read: one that stood still in between finds it over, and reads again if it leads again. The answer rests
//! on what was delivered before, so it waits in the same gate as replies to messages do.

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::{Control, GroupEvent};
use skein_protocol::ids::SessionId;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::timestamp::Timestamp;

use super::Replica;
use crate::access::Of;
use crate::application::Application;
use crate::wiring::Wiring;

/// Reads that may wait, and how many bytes their questions may have. Who is not answered asks again.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 1 << 20;
/// After how long a read is forgotten that cannot be made, and an answer that nobody has asked for again.
const PATIENCE_MS: u64 = 1_000;
/// Answers that may wait at the gate, and their bytes. At either limit no further read is made until some
/// have left; the session asks again. One answer may exceed the limit of bytes.
const GATED_MAX: usize = 4096;
const GATED_BYTES_MAX: usize = 8 << 20;
/// No further read is made in a turn when its answers have this many bytes.
const TURN_BYTES_MAX: usize = 1 << 20;

/// A read that was asked for.
struct Asked {
    session: SessionId,
    number: u64,
    of: Of,
    /// What was in the log when it came.
    from: (u64, u64),
    /// The last of our writes to followers then.
    behind: u64,
    since_ms: u64,
    query: Vec<u8>,
}

/// An answer, until everything that it rests on was passed.
struct Answer {
    session: SessionId,
    number: u64,
    until: Timestamp,
    bytes: Vec<u8>,
}

/// Answers that wait at the gate, in the order in which they were made.
///
/// A session repeats its question every few milliseconds while it has no answer. A question whose answer
/// waits here is recognised and not read again, so the gate holds one answer to a question for however
/// long it stays closed.
///
/// Invariant: `asked` has one entry for each of `answers`, and `bytes` is the length of all of them.
#[derive(Default)]
struct Gated {
    answers: VecDeque<Answer>,
    /// When each question came last.
    asked: HashMap<(SessionId, u64), u64>,
    bytes: usize,
}

impl Gated {
    /// Whether no further read may be made, with `count` answers of `bytes` made in this turn.
    fn is_full(&self, count: usize, bytes: usize) -> bool {
        self.answers.len() + count >= GATED_MAX || self.bytes + bytes >= GATED_BYTES_MAX
    }

    /// A question came. Returns whether its answer waits here.
    fn recognises(&mut self, session: SessionId, number: u64, now_ms: u64) -> bool {
        if self.answers.is_empty() {
            return false;
        }
        let asked = self.asked.get_mut(&(session, number));
        asked.map(|asked_ms| *asked_ms = now_ms).is_some()
    }

    fn hold(&mut self, answer: Answer, now_ms: u64) {
        self.bytes += answer.bytes.len();
        let replaced = self.asked.insert((answer.session, answer.number), now_ms);
        debug_assert!(replaced.is_none(), "a question with an answer here is not read again");
        self.answers.push_back(answer);
    }

    /// Takes the first answer, if all that it rests on `has_passed`.
    fn let_out(&mut self, has_passed: impl FnOnce(Timestamp) -> bool) -> Option<Answer> {
        let answer = self.answers.pop_front_if(|answer| has_passed(answer.until))?;
        self.asked.remove(&(answer.session, answer.number));
        self.bytes -= answer.bytes.len();
        Some(answer)
    }

    fn retain(&mut self, keep: impl Fn(SessionId, u64) -> bool) {
        let Self { answers, asked, bytes } = self;
        asked.retain(|(session, _), asked_ms| keep(*session, *asked_ms));
        answers.retain(|answer| {
            let kept = asked.contains_key(&(answer.session, answer.number));
            *bytes -= if kept { 0 } else { answer.bytes.len() };
            kept
        });
    }

    /// Drops the answers whose sessions have stopped asking.
    fn expire(&mut self, now_ms: u64) {
        if !self.answers.is_empty() {
            self.retain(|_, asked_ms| now_ms <= asked_ms + PATIENCE_MS);
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[derive(Default)]
pub(super) struct Reads {
    waiting: VecDeque<Asked>,
    waiting_bytes: usize,
    /// A write to followers behind this one is to confirm us.
    to_confirm: Option<u64>,
    gated: Gated,
    /// Of one turn, until the lease was looked at again; and where each ends in `bytes`.
    made: Vec<(Asked, usize)>,
    bytes: Vec<u8>,
}

impl Reads {
    /// Whether some wait for whoever is asked like this.
    fn waits(&self, of: Of) -> bool {
        self.waiting.iter().any(|asked| asked.of == of)
    }

    fn push(&mut self, asked: Asked) {
        self.waiting_bytes += asked.query.len();
        self.waiting.push_back(asked);
    }
}

impl<A: Application> Replica<A> {
    /// A session asks for something that is not ordered.
    pub(crate) fn asked(&mut self, session: SessionId, datagram: &[u8]) {
        let Some((number, rest)) = datagram.split_first_chunk::<8>() else { return };
        let Some((of, query)) = Of::decode(rest) else { return };
        let number = u64::from_le_bytes(*number);
        let bytes = self.reads.waiting_bytes + query.len();
        let same = |asked: &Asked| (asked.session, asked.number) == (session, number);
        let mine = match of {
            Of::Anybody => !self.core.log().is_silent(),
            Of::Leader | Of::LeaseHolder => self.core.log().leads(),
        };
        let now_ms = self.core.log().now_ms();
        if !mine
            || !self.is_trusted()
            || self.reads.waiting.len() >= WAITING_MAX
            || bytes > WAITING_BYTES_MAX
            || self.reads.gated.recognises(session, number, now_ms)
            || self.reads.waiting.iter().any(same)
        {
            return;
        }
        let (from, since_ms, query) = (self.core.read_from(), now_ms, query.to_vec());
        let behind = self.writes;
        if of == Of::Leader {
            self.reads.to_confirm = Some(behind);
        }
        self.reads.push(Asked { session, number, of, from, behind, since_ms, query });
    }

    /// Has followers confirm that we lead, if that was asked since.
    pub(crate) fn seek_confirmation<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        if let Some(number) = self.reads.to_confirm.take()
            && !self.touch_followers(number, wiring)
        {
            self.reads.to_confirm = Some(number);
        }
    }

    /// Once a tick: whoever lets us in late is asked what others were.
    pub(super) fn seek_confirmation_again(&mut self) {
        self.reads.gated.expire(self.core.log().now_ms());
        if let Some(last) = self.reads.waiting.iter().rfind(|asked| asked.of == Of::Leader) {
            self.reads.to_confirm = Some(last.behind);
        }
    }

    /// Makes the reads that can be made, and sends the answers that may leave. Returns whether there
    /// were any.
    pub(crate) fn answer_reads<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        if !self.core.log().leads() {
            // Whoever leads is asked again.
            self.reads.gated.clear();
            let silent = self.core.log().is_silent();
            self.reads.waiting.retain(|asked| asked.of == Of::Anybody && !silent);
            self.count_waiting();
        }
        let mut any = self.let_out_answers(wiring);
        if self.reads.waiting.is_empty() {
            return any;
        }
        let leased = self.reads.waits(Of::LeaseHolder);
        let holds = leased && self.hold_lease(wiring);
        self.make_reads(holds);
        // What was read was read under the lease if that is good still.
        let holds = leased && self.core.log().holds_lease(wiring.port.fabric.now());
        let mut made = std::mem::take(&mut self.reads.made);
        let bytes = std::mem::take(&mut self.reads.bytes);
        let until = self.core.read_rests_on();
        let mut start = 0;
        for (asked, end) in made.drain(..) {
            let answer = &bytes[start..end];
            start = end;
            match asked.of {
                Of::Anybody => wiring.answer(asked.session, self.id, asked.number, answer),
                Of::LeaseHolder if !holds => {
                    self.reads.push(asked);
                    continue;
                }
                Of::Leader | Of::LeaseHolder => {
                    if self.core.has_passed(until) {
                        wiring.answer(asked.session, self.id, asked.number, answer);
                    } else {
                        self.paths.read_held += 1;
                        let Asked { session, number, .. } = asked;
                        let answer = Answer { session, number, until, bytes: answer.to_vec() };
                        self.reads.gated.hold(answer, self.core.log().now_ms());
                    }
                }
            }
            any = true;
            self.paths.read_answered += 1;
        }
        (self.reads.made, self.reads.bytes) = (made, bytes);
        self.reads.bytes.clear();
        any
    }

    /// Whether we hold a lease; asks for one if it is time.
    fn hold_lease<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        let now = wiring.port.fabric.now();
        self.tell_core(GroupEvent::LeaseWanted { now }, wiring);
        self.core.log().holds_lease(now)
    }

    /// Makes those that need not wait.
    fn make_reads(&mut self, holds: bool) {
        for _ in 0..self.reads.waiting.len() {
            let Some(asked) = self.reads.waiting.pop_front() else { break };
            self.reads.waiting_bytes -= asked.query.len();
            let ready = match asked.of {
                Of::Anybody => true,
                Of::Leader => {
                    self.core.log().is_confirmed(asked.behind)
                        && self.core.has_caught_up(asked.from)
                }
                Of::LeaseHolder => holds && self.core.has_caught_up(asked.from),
            };
            if self.core.log().now_ms() > asked.since_ms + PATIENCE_MS {
                continue; // It is asked again, if anybody waits still.
            }
            let before = self.reads.bytes.len();
            let held_back = before >= TURN_BYTES_MAX
                || asked.of != Of::Anybody
                    && self.reads.gated.is_full(self.reads.made.len(), before);
            let ready = ready && !held_back;
            if ready && self.application.query(&asked.query, &mut self.reads.bytes) {
                self.reads.made.push((asked, self.reads.bytes.len()));
            } else {
                self.reads.bytes.truncate(before);
                self.reads.push(asked);
            }
        }
    }

    /// Sends what waited for others to pass what it rests on.
    fn let_out_answers<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        let mut any = false;
        while let Some(answer) = self.reads.gated.let_out(|until| self.core.has_passed(until)) {
            any = true;
            wiring.answer(answer.session, self.id, answer.number, &answer.bytes);
        }
        any
    }

    /// Our leader asks for a lease.
    pub(super) fn promise_lease<F: Fabric>(
        &mut self,
        slot: u8,
        ballot: Ballot,
        number: u64,
        wiring: &Wiring<F>,
    ) {
        // The time that the turn began at may be long ago, and before the promise was asked for.
        let now = if planted(Mutant::PromiseFromTurnsBegin) {
            wiring.began
        } else {
            wiring.port.fabric.now()
        };
        self.core.control(slot, Control::Lease { ballot, number, now }, &mut self.effects);
    }

    /// Nobody waits for what a session has asked.
    pub(super) fn forget_reads(&mut self, session: SessionId) {
        self.reads.waiting.retain(|asked| asked.session != session);
        self.reads.gated.retain(|of, _| of != session);
        self.count_waiting();
    }

    /// Whoever leads is asked again: what waits was asked of us in a ballot that is over.
    pub(super) fn forget_led_reads(&mut self) {
        self.reads.gated.clear();
        self.reads.waiting.retain(|asked| asked.of == Of::Anybody);
        self.reads.to_confirm = None;
        self.count_waiting();
    }

    /// Another replica is asked again: our state is not the group's.
    pub(super) fn forget_all_reads(&mut self) {
        self.forget_led_reads();
        self.reads.waiting.clear();
        self.count_waiting();
    }

    fn count_waiting(&mut self) {
        let bytes = self.reads.waiting.iter().map(|asked| asked.query.len());
        self.reads.waiting_bytes = bytes.sum();
    }

    /// Reads that wait, and answers that do.
    pub(crate) fn reads_waiting(&self) -> usize {
        self.reads.waiting.len() + self.reads.gated.answers.len()
    }

    /// Bytes of the answers that wait at the gate.
    #[cfg(test)]
    pub(super) fn gated_bytes(&self) -> usize {
        self.reads.gated.bytes
    }
}
