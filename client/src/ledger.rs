//! Which operations each session has under way, and what is known of each.
//!
//! Arithmetic only: replies, deadlines and what was sent go in, results come out.
//! [`Driver`](crate::Driver) joins it with the multicast.
//!
//! **Invariant (exactly once).** A message's sequence number is settled only when all its groups
//! have replied, also when its caller has long been told that the outcome is unknown. Settling tells
//! the replicas that everything below needs no protection against repetition; a message that is
//! still on its way must not be told so of. A session whose window is full of such messages queues
//! what is submitted, and says so when the time allowed is over: not sent, no effect.

use std::collections::VecDeque;
use std::time::Duration;

use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Refusal, Reply};
use skein_multicast::access::SessionKey;
use skein_protocol::ids::{GroupId, GroupSet};

use crate::driver::Ticket;
use crate::error::{Error, Unavailability};

/// Called once for each operation that has come to an end.
pub(crate) type Finished<'a> = dyn FnMut(Ticket, Result<Reply, Error>) + 'a;

/// All sessions of a driver.
#[derive(Default)]
pub(crate) struct Ledger {
    sessions: Vec<Option<Session>>,
    /// No deadline of an operation is before this.
    earliest: Option<Duration>,
    counts: Counts,
}

/// What there is to look for, so that nobody looks in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Operations whose callers wait.
    pub(crate) waiting: usize,
    /// Operations that were submitted and not multicast yet.
    pub(crate) queued: usize,
    /// Sessions that are being closed.
    pub(crate) closing: usize,
}

struct Session {
    stage: Stage,
    /// What was multicast: the oldest message that is not settled, named `first`, and all later.
    sent: VecDeque<Sent>,
    first: u64,
    /// What was submitted and not multicast yet: the session is not open, or its window is full.
    queue: VecDeque<Operation>,
    /// Operations whose callers wait.
    waiting: usize,
}

/// Where a session is in its life. It only ever moves down this list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Some group has not said yet that it knows the session. What was sent now might overtake the
    /// message that opens it, and be refused.
    Opening,
    /// Operations are sent.
    Open,
    /// The groups do not take the session: nothing was or will be sent.
    Refused(Refusal),
    /// Nothing more is submitted. The last message goes out when nobody waits any more.
    Closing { deadline: Duration },
    /// The last message is out.
    Ending { deadline: Duration },
}

enum Sent {
    /// The session's first or last message: its replies move the session to its next stage.
    Control { plan: Plan, missing: GroupSet, parts: Parts },
    /// A caller waits for the replies of `missing`.
    Operation { operation: Operation, missing: GroupSet, parts: Parts },
    /// Nobody waits, but the replies of `missing` are not in.
    Abandoned { missing: GroupSet },
    /// All replies are in.
    Settled,
}

/// The replies that are in, while others are missing.
type Parts = Vec<(GroupId, Vec<u8>)>;

/// An operation whose caller waits.
struct Operation {
    ticket: Ticket,
    plan: Plan,
    deadline: Duration,
    allowed: Duration,
}

/// What a closing session needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Its last message can be sent.
    Send(SessionKey),
    /// It has been, or cannot be: forget the session.
    Forget(SessionKey),
}

impl Ledger {
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The earliest time at which [`expire`](Self::expire) may have something to do.
    pub(crate) fn earliest(&self) -> Option<Duration> {
        self.earliest
    }

    /// How many operations of the session have callers waiting, if it takes more.
    pub(crate) fn waiting(&self, key: SessionKey) -> Result<usize, Error> {
        let session = self.sessions.get(key.0 as usize).and_then(Option::as_ref);
        let session = session.ok_or(Error::Closed)?;
        match &session.stage {
            Stage::Opening | Stage::Open => Ok(session.waiting),
            Stage::Refused(refusal) => Err(Error::Refused(refusal.clone())),
            Stage::Closing { .. } | Stage::Ending { .. } => Err(Error::Closed),
        }
    }

    /// A session began by multicasting `plan` as `sequence`.
    pub(crate) fn opening(&mut self, key: SessionKey, sequence: u64, plan: Plan) {
        let at = key.0 as usize;
        if self.sessions.len() <= at {
            self.sessions.resize_with(at + 1, || None);
        }
        assert!(self.sessions[at].is_none(), "a session's key is used by one session at a time");
        self.sessions[at] = Some(Session {
            stage: Stage::Opening,
            sent: VecDeque::from([Sent::control(plan)]),
            first: sequence,
            queue: VecDeque::new(),
            waiting: 0,
        });
    }

    /// Queues an operation. The session must take it: see [`waiting`](Self::waiting).
    pub(crate) fn submit(
        &mut self,
        ticket: Ticket,
        plan: Plan,
        deadline: Duration,
        allowed: Duration,
    ) {
        let session = self.sessions[ticket.session.0 as usize].as_mut().expect("asked before");
        session.queue.push_back(Operation { ticket, plan, deadline, allowed });
        session.waiting += 1;
        self.counts.waiting += 1;
        self.counts.queued += 1;
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
    }

    /// The sessions that have something to send, as far as they know.
    pub(crate) fn senders(&self) -> impl Iterator<Item = SessionKey> {
        self.sessions.iter().enumerate().filter_map(|(at, session)| {
            let session = session.as_ref()?;
            let sends = session.stage == Stage::Open && !session.queue.is_empty();
            sends.then_some(SessionKey(at as u32))
        })
    }

    /// What the session would multicast next.
    pub(crate) fn next(&self, key: SessionKey) -> Option<&Plan> {
        let session = self.sessions.get(key.0 as usize)?.as_ref()?;
        let open = session.stage == Stage::Open;
        session.queue.front().filter(|_| open).map(|operation| &operation.plan)
    }

    /// What [`next`](Self::next) named was multicast as `sequence`.
    pub(crate) fn sent(&mut self, key: SessionKey, sequence: u64) {
        let session = self.sessions[key.0 as usize].as_mut().expect("it had something to send");
        let mut operation = session.queue.pop_front().expect("it had something to send");
        operation.plan.forget_request();
        let missing = operation.plan.destinations();
        let parts = Parts::with_capacity(missing.len() - 1);
        session.push(sequence, Sent::Operation { operation, missing, parts });
        self.counts.queued -= 1;
    }

    /// Takes a group's reply. Returns whether the message is to be settled.
    pub(crate) fn reply(
        &mut self,
        key: SessionKey,
        sequence: u64,
        group: GroupId,
        bytes: &[u8],
        finished: &mut Finished<'_>,
    ) -> bool {
        let Some(Some(session)) = self.sessions.get_mut(key.0 as usize) else { return false };
        let Some(at) = sequence.checked_sub(session.first) else { return false };
        let Some(sent) = session.sent.get_mut(at as usize) else { return false };
        let (missing, parts) = match sent {
            Sent::Settled => return false,
            Sent::Abandoned { missing } => (missing, None),
            Sent::Control { missing, parts, .. } | Sent::Operation { missing, parts, .. } => {
                (missing, Some(parts))
            }
        };
        if !missing.contains(group) {
            return false;
        }
        *missing = missing.without(group);
        if !missing.is_empty() {
            if let Some(parts) = parts {
                parts.push((group, bytes.to_vec()));
            }
            return false;
        }
        match std::mem::replace(sent, Sent::Settled) {
            Sent::Operation { operation, parts, .. } => {
                session.waiting -= 1;
                self.counts.waiting -= 1;
                finished(operation.ticket, join(&operation.plan, &parts, group, bytes));
            }
            Sent::Control { plan, parts, .. } if session.stage == Stage::Opening => {
                match plan.join(all(&parts, group, bytes)) {
                    Ok(_) => session.stage = Stage::Open,
                    Err(refusal) => {
                        self.counts.waiting -= session.queue.len();
                        self.counts.queued -= session.queue.len();
                        session.waiting = 0;
                        for operation in session.queue.drain(..) {
                            finished(operation.ticket, Err(Error::Refused(refusal.clone())));
                        }
                        session.stage = Stage::Refused(refusal);
                    }
                }
            }
            Sent::Control { .. } | Sent::Abandoned { .. } | Sent::Settled => {}
        }
        session.trim();
        true
    }

    /// Ends the operations whose time is over.
    pub(crate) fn expire(&mut self, now: Duration, finished: &mut Finished<'_>) {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return;
        }
        let mut earliest: Option<Duration> = None;
        self.end(finished, |operation, sent| {
            if operation.deadline > now {
                let first = earliest.map_or(operation.deadline, |e| e.min(operation.deadline));
                earliest = Some(first);
                return None;
            }
            let after = operation.allowed;
            Some(match sent {
                Some(_) => Error::UnknownOutcome { after },
                None => Error::Unavailable { why: Unavailability::NotSent { after }, sent: false },
            })
        });
        self.earliest = earliest;
    }

    /// Ends the operations that need one of `groups`, which cannot order anything, and those that
    /// wait for their session to be opened there.
    pub(crate) fn lost(
        &mut self,
        groups: GroupSet,
        why: &Unavailability,
        finished: &mut Finished<'_>,
    ) {
        let touches = |set: GroupSet| set.iter().any(|group| groups.contains(group));
        let opening: Vec<bool> = self
            .sessions
            .iter()
            .map(|session| session.as_ref().is_some_and(|s| s.stage == Stage::Opening))
            .collect();
        self.end(finished, |operation, missing| {
            let lost = match missing {
                Some(missing) => touches(missing),
                None => {
                    touches(operation.plan.destinations())
                        || opening[operation.ticket.session.0 as usize]
                }
            };
            lost.then(|| Error::Unavailable { why: why.clone(), sent: missing.is_some() })
        });
    }

    /// Ends every operation.
    pub(crate) fn fail(&mut self, why: &Unavailability, finished: &mut Finished<'_>) {
        self.end(finished, |_, missing| {
            Some(Error::Unavailable { why: why.clone(), sent: missing.is_some() })
        });
    }

    /// The session takes nothing more; what was not sent ends here, without effect.
    pub(crate) fn close(&mut self, key: SessionKey, deadline: Duration, dropped: &mut Vec<Ticket>) {
        let Some(Some(session)) = self.sessions.get_mut(key.0 as usize) else { return };
        session.stage = match session.stage {
            Stage::Closing { .. } | Stage::Ending { .. } => return,
            Stage::Opening | Stage::Open => Stage::Closing { deadline },
            Stage::Refused(_) => Stage::Ending { deadline },
        };
        session.waiting -= session.queue.len();
        self.counts.waiting -= session.queue.len();
        self.counts.queued -= session.queue.len();
        self.counts.closing += 1;
        dropped.extend(session.queue.drain(..).map(|operation| operation.ticket));
    }

    /// What each closing session needs, if it needs something now.
    pub(crate) fn farewells(&self, now: Duration, farewells: &mut Vec<Farewell>) {
        for (at, session) in self.sessions.iter().enumerate() {
            let key = SessionKey(at as u32);
            let Some(session) = session else { continue };
            let (late, ready, next) = match session.stage {
                Stage::Opening | Stage::Open | Stage::Refused(_) => continue,
                Stage::Closing { deadline } => {
                    (now >= deadline, session.waiting == 0, Farewell::Send(key))
                }
                Stage::Ending { deadline } => (now >= deadline, true, Farewell::Forget(key)),
            };
            if late && session.waiting == 0 {
                farewells.push(Farewell::Forget(key));
            } else if ready && !session.has_control() {
                farewells.push(next);
            }
        }
    }

    /// The session's last message, `plan`, was multicast as `sequence`.
    pub(crate) fn ending(&mut self, key: SessionKey, sequence: u64, plan: Plan) {
        let session = self.sessions[key.0 as usize].as_mut().expect("it is closing");
        if let Stage::Closing { deadline } = session.stage {
            session.stage = Stage::Ending { deadline };
        }
        session.push(sequence, Sent::control(plan));
    }

    /// The session is over.
    pub(crate) fn forget(&mut self, key: SessionKey) {
        let session = self.sessions[key.0 as usize].take().expect("it was closing");
        assert!(session.waiting == 0, "everyone was told before");
        self.counts.closing -= 1;
    }

    /// The sessions that are not over.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionKey> {
        let key = |(at, session): (usize, &Option<Session>)| {
            session.as_ref().map(|_| SessionKey(at as u32))
        };
        self.sessions.iter().enumerate().filter_map(key)
    }

    /// Ends each operation for which `verdict`, given the groups whose replies are missing if it
    /// was sent, names an error. Replies that come later are still counted, and dropped.
    fn end(
        &mut self,
        finished: &mut Finished<'_>,
        mut verdict: impl FnMut(&Operation, Option<GroupSet>) -> Option<Error>,
    ) {
        for session in self.sessions.iter_mut().flatten().filter(|session| session.waiting > 0) {
            for sent in &mut session.sent {
                let Sent::Operation { operation, missing, .. } = sent else { continue };
                let (ticket, missing) = (operation.ticket, *missing);
                if let Some(error) = verdict(operation, Some(missing)) {
                    *sent = Sent::Abandoned { missing };
                    session.waiting -= 1;
                    self.counts.waiting -= 1;
                    finished(ticket, Err(error));
                }
            }
            session.queue.retain(|operation| {
                let Some(error) = verdict(operation, None) else { return true };
                session.waiting -= 1;
                self.counts.waiting -= 1;
                self.counts.queued -= 1;
                finished(operation.ticket, Err(error));
                false
            });
        }
    }
}

impl Session {
    fn push(&mut self, sequence: u64, sent: Sent) {
        if self.sent.is_empty() {
            self.first = sequence;
        }
        assert!(
            sequence == self.first + self.sent.len() as u64,
            "a session's sequence numbers are dense"
        );
        self.sent.push_back(sent);
    }

    fn trim(&mut self) {
        while let Some(Sent::Settled) = self.sent.front() {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    fn has_control(&self) -> bool {
        self.sent.iter().any(|sent| matches!(sent, Sent::Control { .. }))
    }
}

impl Sent {
    fn control(plan: Plan) -> Self {
        let missing = plan.destinations();
        Self::Control { plan, missing, parts: Parts::new() }
    }
}

fn all<'a>(
    parts: &'a Parts,
    group: GroupId,
    bytes: &'a [u8],
) -> impl Iterator<Item = (GroupId, &'a [u8])> {
    parts.iter().map(|(group, bytes)| (*group, bytes.as_slice())).chain([(group, bytes)])
}

fn join(plan: &Plan, parts: &Parts, group: GroupId, bytes: &[u8]) -> Result<Reply, Error> {
    plan.join(all(parts, group, bytes)).map_err(|refusal| match refusal {
        Refusal::Unreadable { .. } => Error::BadReply(refusal.to_string()),
        refusal => Error::Refused(refusal),
    })
}

#[cfg(test)]
mod tests {
    use skein_kvstore::command::{Operation as Op, Transaction};
    use skein_kvstore::limits::Limits;
    use skein_kvstore::reply::Outcome;
    use skein_kvstore::slots::SlotMap;
    use skein_kvstore::wire::PartWriter;

    use super::*;

    const KEY: SessionKey = SessionKey(3);
    const ALLOWED: Duration = Duration::from_secs(5);

    type Ended = Vec<(u64, Result<Reply, Error>)>;

    struct World {
        ledger: Ledger,
        slots: SlotMap,
        tickets: u64,
        ended: Ended,
    }

    impl World {
        /// Two groups; the session's first message, 1, is out.
        fn opening() -> Self {
            let (mut ledger, slots) = (Ledger::default(), SlotMap::even(2));
            ledger.opening(KEY, 1, Plan::open(&slots));
            Self { ledger, slots, tickets: 0, ended: Vec::new() }
        }

        fn open() -> Self {
            let mut world = Self::opening();
            assert!(!world.reply(1, 0, &done(&[])) && world.reply(1, 1, &done(&[])));
            world
        }

        fn submit(&mut self, keys: &[&str], now: Duration) -> u64 {
            let get = |key: &&str| Op::Get { key: key.as_bytes().to_vec() };
            let then = keys.iter().map(get).collect();
            let transaction = Transaction { then, ..Transaction::default() };
            let plan = Plan::of(&transaction, &self.slots, &Limits::default()).unwrap();
            self.tickets += 1;
            let ticket = Ticket { session: KEY, number: self.tickets };
            self.ledger.submit(ticket, plan, now + ALLOWED, ALLOWED);
            self.tickets
        }

        fn reply(&mut self, sequence: u64, group: u16, bytes: &[u8]) -> bool {
            let ended = &mut self.ended;
            let mut finished = |ticket: Ticket, result| ended.push((ticket.number, result));
            self.ledger.reply(KEY, sequence, GroupId(group), bytes, &mut finished)
        }

        fn expire(&mut self, now: Duration) {
            let ended = &mut self.ended;
            let mut finished = |ticket: Ticket, result| ended.push((ticket.number, result));
            self.ledger.expire(now, &mut finished);
        }

        fn lost(&mut self, group: u16) {
            let ended = &mut self.ended;
            let mut finished = |ticket: Ticket, result| ended.push((ticket.number, result));
            let groups = GroupSet::single(GroupId(group));
            self.ledger.lost(groups, &Unavailability::NoQuorum { groups }, &mut finished);
        }
    }

    fn done(values: &[&[u8]]) -> Vec<u8> {
        let mut part = PartWriter::default();
        part.done(true, values.len());
        for value in values {
            let value = skein_kvstore::wire::Bytes(value);
            part.outcome(&Outcome::Value(Some((value, 7))));
        }
        part.bytes().to_vec()
    }

    fn refused(refusal: &Refusal) -> Vec<u8> {
        let mut part = PartWriter::default();
        part.refused(Some(refusal));
        part.bytes().to_vec()
    }

    // By `slots_are_those_of_redis_cluster`: the upper half of the hash slots, and the lower.
    const IN_G1: &str = "foo";
    const IN_G0: &str = "";

    #[test]
    fn nothing_is_sent_before_every_group_knows_the_session() {
        let mut world = World::opening();
        world.submit(&[IN_G1], Duration::ZERO);
        assert!(world.ledger.next(KEY).is_none());
        assert!(!world.reply(1, 1, &done(&[])));
        assert!(world.ledger.next(KEY).is_none(), "g0 has not replied");
        assert!(world.reply(1, 0, &done(&[])));
        assert!(world.ledger.next(KEY).is_some());
        assert!(world.ledger.senders().eq([KEY]));
    }

    #[test]
    fn a_session_that_is_refused_refuses() {
        let mut world = World::opening();
        world.submit(&[IN_G1], Duration::ZERO);
        let refusal = Refusal::TooManySessions { max: 1 };
        world.reply(1, 0, &refused(&refusal));
        world.reply(1, 1, &refused(&refusal));
        assert_eq!(world.ended, [(1, Err(Error::Refused(refusal.clone())))]);
        assert_eq!(world.ledger.waiting(KEY), Err(Error::Refused(refusal)));
        let mut farewells = Vec::new();
        world.ledger.close(KEY, ALLOWED, &mut Vec::new());
        world.ledger.farewells(Duration::ZERO, &mut farewells);
        assert_eq!(farewells, [Farewell::Forget(KEY)], "there is nothing to close");
    }

    #[test]
    fn a_reply_needs_every_group_once() {
        let mut world = World::open();
        world.submit(&[IN_G0, IN_G1], Duration::ZERO);
        assert_eq!(world.ledger.next(KEY).unwrap().destinations(), GroupSet::first(2));
        world.ledger.sent(KEY, 2);
        assert!(!world.reply(2, 1, &done(&[b"of g1"])));
        assert!(!world.reply(2, 1, &done(&[b"again"])), "a repeated part");
        assert!(!world.reply(9, 1, &done(&[b"of what?"])), "never sent");
        assert!(world.reply(2, 0, &done(&[b"of g0"])));
        assert!(!world.reply(2, 0, &done(&[b"of g0"])), "settled once");
        let value = |bytes: &[u8]| Outcome::Value(Some((bytes.to_vec(), 7)));
        let outcomes = vec![value(b"of g0"), value(b"of g1")];
        assert_eq!(world.ended, [(1, Ok(Reply { held: true, outcomes }))]);
        assert_eq!(world.ledger.counts(), Counts::default());
    }

    #[test]
    fn an_operation_without_a_reply_is_not_settled_until_it_has_one() {
        let mut world = World::open();
        world.submit(&[IN_G1], Duration::ZERO);
        world.ledger.sent(KEY, 2);
        world.submit(&[IN_G1], Duration::from_secs(1));
        world.expire(ALLOWED.checked_sub(Duration::from_nanos(1)).unwrap());
        assert!(world.ended.is_empty());
        world.expire(ALLOWED);
        assert_eq!(world.ended, [(1, Err(Error::UnknownOutcome { after: ALLOWED }))]);
        assert_eq!(world.ledger.earliest(), Some(Duration::from_secs(6)));
        world.expire(Duration::from_secs(6));
        let why = Unavailability::NotSent { after: ALLOWED };
        assert_eq!(world.ended[1], (2, Err(Error::Unavailable { why, sent: false })));
        assert!(world.ledger.next(KEY).is_none(), "what was given up is not sent after all");
        assert!(world.reply(2, 1, &done(&[b"late"])), "now it can be settled");
        assert_eq!(world.ended.len(), 2, "and nobody hears of it");
        assert_eq!(world.ledger.earliest(), None);
    }

    #[test]
    fn only_those_who_need_a_lost_group_are_told() {
        let mut world = World::open();
        world.submit(&[IN_G0], Duration::ZERO);
        world.submit(&[IN_G1], Duration::ZERO);
        world.submit(&[IN_G0, IN_G1], Duration::ZERO);
        for sequence in 2..=4 {
            world.ledger.sent(KEY, sequence);
        }
        world.reply(4, 1, &done(&[b"of g1"]));
        world.submit(&[IN_G1], Duration::ZERO);
        world.lost(1);
        let why = Unavailability::NoQuorum { groups: GroupSet::single(GroupId(1)) };
        let lost = |sent| Err(Error::Unavailable { why: why.clone(), sent });
        assert_eq!(world.ended, [(2, lost(true)), (4, lost(false))], "3 has its reply from g1");
        let mut opening = World::opening();
        opening.submit(&[IN_G0], Duration::ZERO);
        opening.lost(1);
        assert_eq!(opening.ended, [(1, lost(false))], "g1 must know the session first");
    }

    #[test]
    fn a_session_says_goodbye_when_nobody_waits() {
        let mut world = World::open();
        let (mut farewells, mut dropped) = (Vec::new(), Vec::new());
        world.submit(&[IN_G1], Duration::ZERO);
        world.ledger.sent(KEY, 2);
        let unsent = world.submit(&[IN_G1], Duration::ZERO);
        world.ledger.close(KEY, ALLOWED, &mut dropped);
        assert!(dropped.iter().map(|ticket| ticket.number).eq([unsent]));
        assert_eq!(world.ledger.waiting(KEY), Err(Error::Closed));
        world.ledger.farewells(Duration::ZERO, &mut farewells);
        assert_eq!(farewells, [], "somebody waits");
        world.reply(2, 1, &done(&[b"x"]));
        world.ledger.farewells(Duration::ZERO, &mut farewells);
        assert_eq!(farewells, [Farewell::Send(KEY)]);
        farewells.clear();
        world.ledger.ending(KEY, 3, Plan::close(&world.slots));
        world.ledger.farewells(Duration::ZERO, &mut farewells);
        assert_eq!(farewells, [], "not every group knows");
        world.reply(3, 0, &done(&[]));
        world.reply(3, 1, &done(&[]));
        world.ledger.farewells(Duration::ZERO, &mut farewells);
        assert_eq!(farewells, [Farewell::Forget(KEY)]);
        world.ledger.forget(KEY);
        assert_eq!(world.ledger.counts(), Counts::default());
        assert!(!world.reply(3, 0, &done(&[])), "later replies go nowhere");
    }

    #[test]
    fn a_group_that_stays_silent_does_not_keep_a_session_for_ever() {
        let mut world = World::opening();
        let mut farewells = Vec::new();
        world.ledger.close(KEY, ALLOWED, &mut Vec::new());
        world.ledger.farewells(Duration::ZERO, &mut farewells);
        assert_eq!(farewells, [], "what opens it must not come after what closes it");
        world.ledger.farewells(ALLOWED, &mut farewells);
        assert_eq!(farewells, [Farewell::Forget(KEY)]);
    }
}
