//! Reads that are not ordered: by a leader that a quorum has confirmed, or that holds a lease, or of
//! whatever state a replica has.
//!
//! A leader reads when it has delivered what anybody of its group had delivered when it was asked. It is
//! [confirmed](skein_protocol::ramcast::Ramcast::is_confirmed) before; or it looks at its lease when it has
//! read: one that stood still in between finds it over, and reads again if it leads again. The answer rests
//! on what was delivered before, so it waits in the same gate as replies to messages do.

use std::collections::VecDeque;

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::SessionId;
use skein_protocol::timestamp::Timestamp;

use super::Replica;
use crate::access::Of;
use crate::application::Application;
use crate::election::Election;
use crate::wiring::Wiring;

/// Reads that may wait, and how many bytes their questions may have. Who is not answered asks again.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 1 << 20;
/// After how long a read is forgotten that cannot be made.
const PATIENCE_MS: u64 = 1_000;

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

#[derive(Default)]
pub(super) struct Reads {
    waiting: VecDeque<Asked>,
    waiting_bytes: usize,
    /// A write to followers behind this one is to confirm us.
    to_confirm: Option<u64>,
    /// In the order in which they were made.
    gated: VecDeque<Answer>,
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
            Of::Anybody => !self.core.is_silent(),
            Of::Leader | Of::LeaseHolder => self.core.leads(),
        };
        if !mine
            || self.reads.waiting.len() >= WAITING_MAX
            || bytes > WAITING_BYTES_MAX
            || self.reads.waiting.iter().any(same)
        {
            return;
        }
        let (from, since_ms, query) = (self.core.read_from(), self.core.now_ms(), query.to_vec());
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
        if let Some(last) = self.reads.waiting.iter().rfind(|asked| asked.of == Of::Leader) {
            self.reads.to_confirm = Some(last.behind);
        }
    }

    /// Makes the reads that can be made, and sends the answers that may leave. Returns whether there
    /// were any.
    pub(crate) fn answer_reads<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        if self.reads_waiting() == 0 {
            return false;
        }
        if !self.core.leads() {
            // Whoever leads is asked again.
            self.reads.gated.clear();
            let silent = self.core.is_silent();
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
        let holds = leased && self.core.holds_lease(wiring.port.fabric.now());
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
                        let bytes = answer.to_vec();
                        self.reads.gated.push_back(Answer { session, number, until, bytes });
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
        if let Some(number) = self.core.ask_for_lease(now) {
            let ballot = self.core.ballot().to_word();
            for slot in self.other_slots() {
                self.ask_member(slot, &Election::Lease { ballot, number }, wiring);
            }
        }
        self.core.holds_lease(now)
    }

    /// Makes those that need not wait.
    fn make_reads(&mut self, holds: bool) {
        for _ in 0..self.reads.waiting.len() {
            let Some(asked) = self.reads.waiting.pop_front() else { break };
            self.reads.waiting_bytes -= asked.query.len();
            let ready = match asked.of {
                Of::Anybody => true,
                Of::Leader => {
                    self.core.is_confirmed(asked.behind) && self.core.has_caught_up(asked.from)
                }
                Of::LeaseHolder => holds && self.core.has_caught_up(asked.from),
            };
            if self.core.now_ms() > asked.since_ms + PATIENCE_MS {
                continue; // It is asked again, if anybody waits still.
            }
            let before = self.reads.bytes.len();
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
        while let Some(answer) =
            self.reads.gated.pop_front_if(|answer| self.core.has_passed(answer.until))
        {
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
        wiring: &mut Wiring<F>,
    ) {
        let now = wiring.port.fabric.now();
        if ballot.slot() == slot && self.core.promise_lease(ballot, now) {
            let (ballot, incarnation) = (ballot.to_word(), self.incarnation);
            let promised = Election::Promised { ballot, number, incarnation };
            self.ask_member(slot, &promised, wiring);
        }
    }

    /// Nobody waits for what a session has asked.
    pub(super) fn forget_reads(&mut self, session: SessionId) {
        self.reads.waiting.retain(|asked| asked.session != session);
        self.reads.gated.retain(|answer| answer.session != session);
        self.count_waiting();
    }

    /// Whoever leads is asked again: what waits was asked of us in a ballot that is over.
    pub(super) fn forget_led_reads(&mut self) {
        self.reads.gated.clear();
        self.reads.waiting.retain(|asked| asked.of == Of::Anybody);
        self.reads.to_confirm = None;
        self.count_waiting();
    }

    fn count_waiting(&mut self) {
        let bytes = self.reads.waiting.iter().map(|asked| asked.query.len());
        self.reads.waiting_bytes = bytes.sum();
    }

    /// Reads that wait, and answers that do.
    pub(crate) fn reads_waiting(&self) -> usize {
        self.reads.waiting.len() + self.reads.gated.len()
    }
}
