//! Unordered reads: at a leader that a quorum has confirmed, at a leader that holds a lease, or from whatever
//! state a replica has.
//!
//! A leader reads once it has delivered everything that any replica of its group had delivered when the read
//! came. It is [confirmed](skein_protocol::group::GroupLog::is_confirmed) before the read. Under a lease, it
//! checks the lease after the read: a leader that was suspended in between finds the lease expired, and reads
//! again if it leads again. The answer depends on what was delivered before, so it is held at a gate like the
//! replies to messages.

mod gated;

use std::collections::VecDeque;

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::{Control, GroupEvent};
use skein_protocol::ids::{ReplicaId, SessionId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::{AnswerTo, OrderingProtocol};

use self::gated::{Answer, Gated};
use super::{Replica, ReplicaPaths};
use crate::application::Application;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;
use crate::session_transport::Of;

/// Limits of the reads that wait, and of the bytes of their queries. A session without an answer asks again.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Time after which a read that cannot be made is dropped, and an answer that was not asked for again.
const TIMEOUT_MS: u64 = 1_000;
/// No further read is made in a turn whose answers have this many bytes.
const TURN_BYTES_MAX: usize = 1 << 20;

/// A session's query.
struct Asked {
    session: SessionId,
    number: u64,
    of: Of,
    /// The core's `read_from` when the query came.
    from: (u64, u64),
    /// Number of our last write to followers when the query came.
    behind: u64,
    since_ms: u64,
    query: Vec<u8>,
}

/// The reads of sessions, from the query until they are answered or dropped.
///
/// Invariants:
/// - `waiting.len() + made.len() <= WAITING_MAX`.
/// - `waiting_bytes` is the length of all queries in `waiting`, and `waiting_bytes <= WAITING_BYTES_MAX`.
/// - Between calls, `made` and `bytes` are empty. Otherwise `made[i].1 <= made[i + 1].1 <= bytes.len()`.
#[derive(Default)]
pub(super) struct Reads {
    waiting: VecDeque<Asked>,
    waiting_bytes: usize,
    /// A write to followers with a higher number than this is to confirm that we lead.
    to_confirm: Option<u64>,
    gated: Gated,
    /// The reads of one turn, until the lease was checked again, each with the end of its answer in `bytes`.
    made: Vec<(Asked, usize)>,
    bytes: Vec<u8>,
}

impl Reads {
    /// Returns whether a query of `len` bytes may wait here: it does not wait yet, and there is room.
    fn takes(&mut self, session: SessionId, number: u64, len: usize, now_ms: u64) -> bool {
        let same = |asked: &Asked| (asked.session, asked.number) == (session, number);
        self.waiting.len() < WAITING_MAX
            && self.waiting_bytes + len <= WAITING_BYTES_MAX
            && !self.gated.recognises(session, number, now_ms)
            && !self.waiting.iter().any(same)
    }

    fn ask(&mut self, asked: Asked) {
        if asked.of == Of::Leader {
            self.confirm(asked.behind);
        }
        self.push(asked);
    }

    /// Makes followers confirm that we lead, by a write with a higher number than `behind`.
    pub(super) fn confirm(&mut self, behind: u64) {
        self.to_confirm = Some(behind);
    }

    fn push(&mut self, asked: Asked) {
        self.waiting_bytes += asked.query.len();
        self.waiting.push_back(asked);
    }

    /// Returns whether reads of this kind wait.
    fn waits(&self, of: Of) -> bool {
        self.waiting.iter().any(|asked| asked.of == of)
    }

    /// Handles a tick: a follower that has granted its log late must confirm too.
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.gated.expire(now_ms);
        if let Some(last) = self.waiting.iter().rfind(|asked| asked.of == Of::Leader) {
            self.to_confirm = Some(last.behind);
        }
    }

    /// Makes the reads that need not wait. Those under a lease wait unless it `holds`.
    fn make<A: Application, O: OrderingProtocol>(
        &mut self,
        holds: bool,
        core: &mut O,
        application: &mut A,
    ) -> Result<(), A::Failure> {
        for _ in 0..self.waiting.len() {
            let Some(asked) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= asked.query.len();
            let ready = match asked.of {
                Of::Anybody | Of::Replica(_) | Of::Standing(_) => true,
                Of::Leader => {
                    core.log().is_confirmed(asked.behind) && core.has_caught_up(asked.from)
                }
                Of::LeaseHolder => holds && core.has_caught_up(asked.from),
            };
            if core.log().now_ms() > asked.since_ms + TIMEOUT_MS {
                continue; // The session asks again if it still waits.
            }
            let before = self.bytes.len();
            let held_back = before >= TURN_BYTES_MAX
                || asked.of.leads() && self.gated.is_full(self.made.len(), before);
            let ready = ready && !held_back;
            if ready && application.query(&asked.query, &mut self.bytes)? {
                self.made.push((asked, self.bytes.len()));
            } else {
                self.bytes.truncate(before);
                self.push(asked);
            }
        }
        Ok(())
    }

    /// Sends the answers to the reads that were made, or holds them until their dependencies have passed.
    /// Reads under a lease wait again unless it still `holds`. Returns whether there were any answers.
    fn answer<F: Fabric, O: Links>(
        &mut self,
        holds: bool,
        by: ReplicaId,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
        paths: &mut ReplicaPaths,
    ) -> bool {
        let mut any = false;
        let mut made = std::mem::take(&mut self.made);
        let bytes = std::mem::take(&mut self.bytes);
        let until = core.reply_dependency(AnswerTo::Read);
        let mut start = 0;
        for (asked, end) in made.drain(..) {
            let answer = &bytes[start..end];
            start = end;
            match asked.of {
                Of::Anybody | Of::Replica(_) | Of::Standing(_) => {
                    links.answer(asked.session, by, asked.number, answer);
                }
                Of::LeaseHolder if !holds => {
                    self.push(asked);
                    continue;
                }
                Of::Leader | Of::LeaseHolder => {
                    if core.has_passed(until) {
                        links.answer(asked.session, by, asked.number, answer);
                    } else {
                        paths.read_held += 1;
                        let Asked { session, number, .. } = asked;
                        let answer = Answer { session, number, until, bytes: answer.to_vec() };
                        self.gated.hold(answer, core.log().now_ms());
                    }
                }
            }
            any = true;
            paths.read_answered += 1;
        }
        (self.made, self.bytes) = (made, bytes);
        self.bytes.clear();
        any
    }

    /// Sends the held answers whose dependencies have passed. Returns whether there were any.
    fn let_out<F: Fabric, O: Links>(
        &mut self,
        by: ReplicaId,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
    ) -> bool {
        let mut any = false;
        while let Some(answer) = self.gated.let_out(|until| core.has_passed(until)) {
            any = true;
            links.answer(answer.session, by, answer.number, &answer.bytes);
        }
        any
    }

    /// Drops the queries of a session, which needs no answers any more.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.gated.retain(|of, _| of != session);
        self.retain(|asked| asked.session != session);
    }

    /// Drops what was asked of us as leader in a ballot that is over: sessions ask the new leader.
    pub(super) fn forget_led(&mut self) {
        self.drop_led(true);
        self.to_confirm = None;
    }

    /// Drops all reads, since our state is not the group's: sessions ask another replica.
    pub(super) fn forget_all(&mut self) {
        self.drop_led(false);
        self.to_confirm = None;
    }

    /// Drops reads that only a leader may answer, and the others as well unless this replica `may_answer`.
    fn drop_led(&mut self, may_answer: bool) {
        self.gated.clear();
        self.retain(|asked| may_answer && !asked.of.leads());
    }

    fn retain(&mut self, keep: impl Fn(&Asked) -> bool) {
        self.waiting.retain(keep);
        let bytes = self.waiting.iter().map(|asked| asked.query.len());
        self.waiting_bytes = bytes.sum();
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Handles a session's query.
    pub(crate) fn asked<F: Fabric>(
        &mut self,
        session: SessionId,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        let Some((number, rest)) = datagram.split_first_chunk::<8>() else { return };
        let Some((of, query)) = Of::decode(rest) else { return };
        let number = u64::from_le_bytes(*number);
        let mine = match of {
            Of::Anybody => !self.core.log().is_silent(),
            Of::Replica(slot) => slot == self.id.slot && !self.core.log().is_silent(),
            Of::Leader | Of::LeaseHolder => self.core.log().leads(),
            Of::Standing(slot) if slot == self.id.slot => {
                links.answer(session, self.id, number, &self.standing().encode());
                return;
            }
            Of::Standing(_) => false,
        };
        let since_ms = self.core.log().now_ms();
        if !mine || !self.is_trusted() || !self.reads.takes(session, number, query.len(), since_ms)
        {
            return;
        }
        let (from, behind, query) = (self.core.read_from(), self.writer.writes, query.to_vec());
        self.reads.ask(Asked { session, number, of, from, behind, since_ms, query });
    }

    /// Makes followers confirm that we lead, if a read came since that needs it.
    pub(crate) fn seek_confirmation<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if let Some(number) = self.reads.to_confirm.take()
            && !self.touch_followers(number, links)
        {
            self.reads.to_confirm = Some(number);
        }
    }

    /// Makes the reads that can be made, and sends the answers that may leave. Returns whether there were any.
    /// None of those that were made in the same turn is sent if the machine fails at one.
    pub(crate) fn answer_reads<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<bool, A::Failure> {
        if !self.core.log().leads() {
            // Sessions ask the new leader.
            self.reads.drop_led(!self.core.log().is_silent());
        }
        let any = self.reads.let_out(self.id, &self.core, links);
        if self.reads.waiting.is_empty() {
            return Ok(any);
        }
        let leased = self.reads.waits(Of::LeaseHolder);
        let holds = leased && self.hold_lease(links);
        self.reads.make(holds, &mut self.core, &mut self.application)?;
        // The reads were made under the lease if it still holds.
        let holds = leased && self.core.log().holds_lease(links.endpoint.fabric.now());
        let answered = self.reads.answer(holds, self.id, &self.core, links, &mut self.paths);
        Ok(answered || any)
    }

    /// Returns whether we hold a lease; asks for one if it is time.
    fn hold_lease<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) -> bool {
        let now = links.endpoint.fabric.now();
        self.tell_core(GroupEvent::LeaseWanted { now }, links);
        self.core.log().holds_lease(now)
    }

    /// Handles our leader's request for a lease.
    pub(super) fn promise_lease<F: Fabric>(
        &mut self,
        slot: u8,
        ballot: Ballot,
        number: u64,
        links: &ReplicaLinks<F, O>,
    ) {
        // The turn may have begun long ago, before the promise was asked for.
        let now = if planted(Mutant::PromiseFromTurnsBegin) {
            links.began
        } else {
            links.endpoint.fabric.now()
        };
        self.core.control(slot, Control::Lease { ballot, number, now }, &mut self.effects);
    }

    /// Number of reads and of answers that wait.
    pub(crate) fn reads_waiting(&self) -> usize {
        self.reads.waiting.len() + self.reads.gated.answers.len()
    }

    /// Bytes of the answers that are held at the gate.
    #[cfg(test)]
    pub(super) fn gated_bytes(&self) -> usize {
        self.reads.gated.bytes
    }
}
