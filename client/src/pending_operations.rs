//! The operations that each session has under way, and the state of each.
//!
//! No I/O: replies, deadlines and sent messages go in, results come out. [`Driver`](crate::Driver) connects it with the
//! multicast.
//!
//! **Invariant (exactly once).** A message's sequence number is settled only when all its groups have replied, even if
//! its caller has long received an unknown outcome. Settling a number lets the replicas drop the protection against
//! repetition of everything below, so a message that may still arrive must not be settled. A session whose window is
//! full of such messages queues further operations; when the time allowed is over, these end as not sent, without
//! effect.
//!
//! **The tree.** If messages are ordered along a tree, one to several groups needs all groups on its path, destinations or
//! not. It is held back while one of them is known to be without a quorum, as is one to a destination without a quorum.

use std::collections::VecDeque;
use std::time::Duration;

use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Refusal, Reply};
use skein_kvstore::slots::SlotMap;
use skein_multicast::session_transport::SessionKey;
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::tram::held_up::held_up;
use skein_protocol::tram::tree::Tree;

use crate::driver::Ticket;
use crate::error::{Error, Unavailability};

/// An operation is late for this long, at most, before its time is over.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Called once for each operation that has ended.
pub(crate) type Finished<'a> = dyn FnMut(Ticket, Result<Reply, Error>) + 'a;

/// Returns the plan for the slot map in a refusal, if the operation can be sent with that map.
pub(crate) type Again<'a> = dyn FnMut(&SlotMap, &Plan) -> Option<Plan> + 'a;

/// All sessions of a driver.
#[derive(Default)]
pub(crate) struct PendingOperations {
    sessions: Vec<Option<Session>>,
    /// The tree along which messages are ordered, if they are.
    tree: Option<Tree>,
    /// `earliest <=` the deadline of every operation whose caller waits.
    earliest: Option<Duration>,
    /// `late_first <=` the time at which each of these operations [is late](Operation::late_at).
    late_first: Option<Duration>,
    counts: Counts,
}

/// Counts of pending work, by which searches that would find nothing are skipped.
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
    /// Messages that were multicast, from the oldest that is not settled. `sent[i]` has the sequence number
    /// `first + i`.
    sent: VecDeque<Sent>,
    first: u64,
    /// Operations that were not multicast yet: the session is not open, its window is full, or a destination has no
    /// quorum.
    queue: VecDeque<Operation>,
    /// Operations whose callers wait: `queue.len() <= waiting`.
    waiting: usize,
    /// Messages below this sequence number had been sent at the last call of [`PendingOperations::stale`].
    known_until: u64,
}

/// Stage of a session. Transitions only go down this list.
enum Stage {
    /// Nothing was sent. The first message waits until all groups have a quorum: it would delay those that have one.
    New(Plan),
    /// Some group has not accepted the session yet. An operation that is sent now might overtake the message that opens
    /// the session, and be refused.
    Opening,
    /// Operations are sent.
    Open,
    /// The groups refuse the session: nothing more is sent.
    Refused(Refusal),
    /// No further operation is accepted. The last message is sent when no caller waits any more.
    Closing { deadline: Duration },
    /// The last message was sent, or none is needed.
    Ending { deadline: Duration },
}

enum Sent {
    /// The session's first or last message: its replies move the session to its next stage.
    Control { plan: Plan, missing: GroupSet, parts: Parts },
    /// A caller waits; the replies of `missing` have not arrived.
    Operation { operation: Operation, missing: GroupSet, parts: Parts },
    /// No caller waits, but the replies of `missing` have not arrived.
    Abandoned { missing: GroupSet },
    /// All replies have arrived.
    Settled,
}

/// Replies that have arrived while others are missing.
type Parts = Vec<(GroupId, Vec<u8>)>;

/// An operation whose caller waits.
struct Operation {
    ticket: Ticket,
    plan: Plan,
    deadline: Duration,
    allowed: Duration,
}

impl Operation {
    /// Time from which its groups are asked whether they serve: much of its own time is over, and enough is left.
    fn late_at(&self) -> Duration {
        self.deadline.saturating_sub(LATE_MAX.min(self.allowed / 4 * 3))
    }
}

/// The next message of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The session's first message.
    Opening,
    /// The operation at this index of the queue.
    Operation(usize),
}

/// The next step in closing a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionClose {
    /// Send the last message.
    Send(SessionKey),
    /// The close is complete, or late: forget the session.
    Forget(SessionKey),
}

impl PendingOperations {
    /// No sessions, in a cluster that orders along this tree, if there is one.
    pub(crate) fn along(tree: Option<&Tree>) -> Self {
        Self { tree: tree.copied(), ..Self::default() }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The earliest time at which [`expire`](Self::expire) may have something to do.
    pub(crate) fn earliest(&self) -> Option<Duration> {
        self.earliest
    }

    /// Number of the session's operations whose callers wait. Fails if the session accepts no more operations.
    pub(crate) fn waiting(&self, key: SessionKey) -> Result<usize, Error> {
        let session = self.sessions.get(key.0 as usize).and_then(Option::as_ref);
        let session = session.ok_or(Error::Closed)?;
        match &session.stage {
            Stage::New(_) | Stage::Opening | Stage::Open => Ok(session.waiting),
            Stage::Refused(refusal) => Err(Error::refused(refusal.clone(), false)),
            Stage::Closing { .. } | Stage::Ending { .. } => Err(Error::Closed),
        }
    }

    /// Adds a session whose first message is to be `plan`.
    pub(crate) fn opening(&mut self, key: SessionKey, plan: Plan) {
        let at = key.0 as usize;
        if self.sessions.len() <= at {
            self.sessions.resize_with(at + 1, || None);
        }
        assert!(self.sessions[at].is_none(), "a session's key is used by one session at a time");
        self.counts.queued += 1;
        self.sessions[at] = Some(Session {
            stage: Stage::New(plan),
            sent: VecDeque::new(),
            first: 1,
            queue: VecDeque::new(),
            waiting: 0,
            known_until: 0,
        });
    }

    /// Queues an operation. The session must accept it: see [`waiting`](Self::waiting).
    pub(crate) fn submit(
        &mut self,
        ticket: Ticket,
        plan: Plan,
        deadline: Duration,
        allowed: Duration,
    ) {
        let session = self.sessions[ticket.session.0 as usize].as_mut().expect("asked before");
        let operation = Operation { ticket, plan, deadline, allowed };
        let late_at = operation.late_at();
        session.queue.push_back(operation);
        session.waiting += 1;
        self.counts.waiting += 1;
        self.counts.queued += 1;
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        self.late_first = Some(self.late_first.map_or(late_at, |first| first.min(late_at)));
    }

    /// Sessions that may have something to send.
    pub(crate) fn senders(&self) -> impl Iterator<Item = SessionKey> {
        self.sessions.iter().enumerate().filter_map(|(at, session)| {
            let session = session.as_ref()?;
            let sends = match session.stage {
                Stage::New(_) => true,
                Stage::Open => !session.queue.is_empty(),
                _ => false,
            };
            sends.then_some(SessionKey(at as u32))
        })
    }

    /// The message that the session multicasts next, if nothing may be sent to the groups `held`.
    pub(crate) fn next(&self, key: SessionKey, held: GroupSet) -> Option<(Next, &Plan)> {
        let session = self.sessions.get(key.0 as usize)?.as_ref()?;
        let goes = |plan: &Plan| {
            held.is_empty() || needed(self.tree.as_ref(), plan).intersection(held).is_empty()
        };
        match &session.stage {
            Stage::New(plan) => goes(plan).then_some((Next::Opening, plan)),
            Stage::Open => {
                let plans = session.queue.iter().map(|operation| &operation.plan).enumerate();
                let mut places = plans.map(|(place, plan)| (Next::Operation(place), plan));
                places.find(|(_, plan)| goes(plan))
            }
            _ => None,
        }
    }

    /// Records that the message returned by [`next`](Self::next) was multicast as `sequence`.
    pub(crate) fn sent(&mut self, key: SessionKey, next: Next, sequence: u64) {
        let session = self.sessions[key.0 as usize].as_mut().expect("it had something to send");
        let sent = match next {
            Next::Opening => {
                let stage = std::mem::replace(&mut session.stage, Stage::Opening);
                let Stage::New(plan) = stage else { unreachable!("a session opens once") };
                Sent::control(plan)
            }
            Next::Operation(place) => {
                let operation = session.queue.remove(place).expect("it had something to send");
                let missing = operation.plan.destinations();
                let parts = Parts::with_capacity(missing.len() - 1);
                Sent::Operation { operation, missing, parts }
            }
        };
        session.push(sequence, sent);
        self.counts.queued -= 1;
    }

    /// Messages that had been sent at the last call of this function, and still lack replies.
    pub(crate) fn stale(&mut self, stale: &mut Vec<(SessionKey, u64)>) {
        for (at, session) in self.sessions.iter_mut().enumerate() {
            let Some(session) = session else { continue };
            let key = SessionKey(at as u32);
            for (sequence, sent) in (session.first..session.known_until).zip(&session.sent) {
                if !matches!(sent, Sent::Settled) {
                    stale.push((key, sequence));
                }
            }
            session.known_until = session.first + session.sent.len() as u64;
        }
    }

    /// Takes a group's reply. An operation that was refused because of its slot map is queued again with the plan that
    /// `again` returns. Returns whether the message is to be settled.
    pub(crate) fn reply(
        &mut self,
        key: SessionKey,
        sequence: u64,
        group: GroupId,
        bytes: &[u8],
        again: &mut Again<'_>,
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
            Sent::Operation { mut operation, parts, .. } => {
                let joined = operation.plan.join(all(&parts, group, bytes));
                let next = match &joined {
                    Err(Refusal::WrongEpoch { slots }) => again(slots, &operation.plan),
                    // Only the leader that delivered it had executed it, and that leader has been replaced.
                    Err(Refusal::Forgotten) if operation.plan.may_be_asked_again() => {
                        Some(operation.plan.clone())
                    }
                    _ => None,
                };
                if let Some(plan) = next
                    && matches!(session.stage, Stage::Open)
                {
                    operation.plan = plan;
                    session.queue.push_back(operation);
                    self.counts.queued += 1;
                    session.trim();
                    return true;
                }
                session.waiting -= 1;
                self.counts.waiting -= 1;
                if joined == Err(Refusal::SessionExpired) {
                    session.refuse(&Refusal::SessionExpired, &mut self.counts, finished);
                }
                finished(operation.ticket, joined.map_err(|why| Error::refused(why, true)));
            }
            Sent::Control { plan, parts, .. } if matches!(session.stage, Stage::Opening) => {
                match plan.join(all(&parts, group, bytes)) {
                    Ok(_) => session.stage = Stage::Open,
                    Err(refusal) => session.refuse(&refusal, &mut self.counts, finished),
                }
            }
            Sent::Control { .. } | Sent::Abandoned { .. } | Sent::Settled => {}
        }
        session.trim();
        true
    }

    /// Whether [`expire`](Self::expire) may have something to do.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.earliest.is_some_and(|earliest| now >= earliest)
    }

    /// The groups for which operations that are late may wait, and the session of one of these.
    pub(crate) fn late(&mut self, now: Duration) -> Option<(SessionKey, GroupSet)> {
        if self.late_first.is_none_or(|first| first > now) {
            return None;
        }
        let mut late: Option<(SessionKey, GroupSet)> = None;
        let mut late_first: Option<Duration> = None;
        let tree = self.tree;
        self.end(&mut |_, _| (), |operation, progress| {
            let late_at = operation.late_at();
            late_first = Some(late_first.map_or(late_at, |first| first.min(late_at)));
            if late_at <= now {
                let groups = waits_for(tree.as_ref(), operation, progress);
                let (_, all) = late.get_or_insert((operation.ticket.session, GroupSet::EMPTY));
                *all = all.union(groups);
            }
            None
        });
        self.late_first = late_first;
        late.filter(|(_, groups)| !groups.is_empty())
    }

    /// Ends the operations whose time is over. Groups in `not_serving` order nothing, or answer nothing.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        not_serving: GroupSet,
        finished: &mut Finished<'_>,
    ) {
        if !self.is_due(now) {
            return;
        }
        let mut earliest: Option<Duration> = None;
        let tree = self.tree;
        self.end(finished, |operation, progress| {
            if operation.deadline > now {
                let first = earliest.map_or(operation.deadline, |e| e.min(operation.deadline));
                earliest = Some(first);
                return None;
            }
            let after = operation.allowed;
            let by = waits_for(tree.as_ref(), operation, progress).intersection(not_serving);
            let destinations = operation.plan.destinations();
            let (why, sent) = match progress {
                Progress::Sent { missing } if by.is_empty() => {
                    return Some(Error::UnknownOutcome { after, silent: missing });
                }
                Progress::Sent { .. } => {
                    let all = |tree: &Tree| held_up_by(tree, by);
                    let groups = tree.as_ref().map_or(destinations, all);
                    (Unavailability::HeldUp { by, groups, after }, true)
                }
                Progress::Queued { silent, .. } if by.is_empty() => {
                    (Unavailability::NotSent { after, silent }, false)
                }
                Progress::Queued { opening, .. } => {
                    let along = tree.as_ref().filter(|_| opening || destinations.has_several());
                    let why = match along.map(|tree| held_up_by(tree, by)) {
                        Some(groups) => Unavailability::HeldUp { by, groups, after },
                        None => Unavailability::NoQuorum { groups: by, after },
                    };
                    (why, false)
                }
            };
            Some(Error::Unavailable { why, sent })
        });
        self.earliest = earliest;
    }

    /// Ends every operation with an error.
    pub(crate) fn fail(&mut self, why: &Unavailability, finished: &mut Finished<'_>) {
        self.end(finished, |_, progress| {
            let sent = matches!(progress, Progress::Sent { .. });
            Some(Error::Unavailable { why: why.clone(), sent })
        });
    }

    /// Closes the session: it accepts nothing more, and operations that were not sent end here, without effect.
    pub(crate) fn close(&mut self, key: SessionKey, deadline: Duration, dropped: &mut Vec<Ticket>) {
        let Some(Some(session)) = self.sessions.get_mut(key.0 as usize) else { return };
        session.stage = match session.stage {
            Stage::Closing { .. } | Stage::Ending { .. } => return,
            Stage::Opening | Stage::Open => Stage::Closing { deadline },
            Stage::Refused(_) => Stage::Ending { deadline },
            Stage::New(_) => {
                self.counts.queued -= 1;
                Stage::Ending { deadline }
            }
        };
        session.waiting -= session.queue.len();
        self.counts.waiting -= session.queue.len();
        self.counts.queued -= session.queue.len();
        self.counts.closing += 1;
        dropped.extend(session.queue.drain(..).map(|operation| operation.ticket));
    }

    /// The next step of each closing session, if one can be taken now.
    pub(crate) fn session_closes(&self, now: Duration, session_closes: &mut Vec<SessionClose>) {
        for (at, session) in self.sessions.iter().enumerate() {
            let key = SessionKey(at as u32);
            let Some(session) = session else { continue };
            let (late, ready, next) = match session.stage {
                Stage::New(_) | Stage::Opening | Stage::Open | Stage::Refused(_) => continue,
                Stage::Closing { deadline } => {
                    (now >= deadline, session.waiting == 0, SessionClose::Send(key))
                }
                Stage::Ending { deadline } => (now >= deadline, true, SessionClose::Forget(key)),
            };
            if late && session.waiting == 0 {
                session_closes.push(SessionClose::Forget(key));
            } else if ready && !session.has_control() {
                session_closes.push(next);
            }
        }
    }

    /// Records that the session's last message, `plan`, was multicast as `sequence`.
    pub(crate) fn ending(&mut self, key: SessionKey, sequence: u64, plan: Plan) {
        let session = self.sessions[key.0 as usize].as_mut().expect("it is closing");
        if let Stage::Closing { deadline } = session.stage {
            session.stage = Stage::Ending { deadline };
        }
        session.push(sequence, Sent::control(plan));
    }

    /// Removes a session that is over.
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

    /// Ends each operation for which `verdict` returns an error. Replies that arrive later are still counted, and
    /// dropped.
    fn end(
        &mut self,
        finished: &mut Finished<'_>,
        mut verdict: impl FnMut(&Operation, Progress) -> Option<Error>,
    ) {
        for session in self.sessions.iter_mut().flatten().filter(|session| session.waiting > 0) {
            for sent in &mut session.sent {
                let Sent::Operation { operation, missing, .. } = sent else { continue };
                let (ticket, missing) = (operation.ticket, *missing);
                if let Some(error) = verdict(operation, Progress::Sent { missing }) {
                    *sent = Sent::Abandoned { missing };
                    session.waiting -= 1;
                    self.counts.waiting -= 1;
                    finished(ticket, Err(error));
                }
            }
            let silent = session.silent();
            let opening = matches!(session.stage, Stage::New(_) | Stage::Opening);
            session.queue.retain(|operation| {
                let Some(error) = verdict(operation, Progress::Queued { silent, opening }) else {
                    return true;
                };
                session.waiting -= 1;
                self.counts.waiting -= 1;
                self.counts.queued -= 1;
                finished(operation.ticket, Err(error));
                false
            });
        }
    }
}

/// Progress of an operation.
#[derive(Clone, Copy)]
enum Progress {
    /// The replies of these groups are missing.
    Sent { missing: GroupSet },
    /// It was not sent. These groups have not answered earlier messages of the session.
    Queued {
        silent: GroupSet,
        /// The session's first message is among those, or was not sent either.
        opening: bool,
    },
}

/// The groups that take part in ordering an operation.
fn needed(tree: Option<&Tree>, plan: &Plan) -> GroupSet {
    let destinations = plan.destinations();
    let along = tree.filter(|_| destinations.has_several());
    along.map_or(destinations, |tree| tree.path(destinations))
}

/// The groups for which an operation may wait, if an error that names them says more than one without them: those that have not
/// answered it, or, before it was sent, what was sent before; and those from which these have their messages.
fn waits_for(tree: Option<&Tree>, operation: &Operation, progress: Progress) -> GroupSet {
    let destinations = operation.plan.destinations();
    match progress {
        // If a single group has not answered what went to it alone, that is known.
        Progress::Sent { .. } if !destinations.has_several() => GroupSet::EMPTY,
        Progress::Sent { missing } => tree.map_or(missing, |tree| tree.way(destinations, missing)),
        Progress::Queued { silent, opening } => {
            // A session's first message goes to all groups, from the root.
            let all = |tree: &Tree| tree.way(GroupSet::first(tree.groups()), silent);
            let opens = tree.filter(|_| opening).map_or(silent, all);
            needed(tree, &operation.plan).union(opens)
        }
    }
}

/// The groups to which messages of several groups wait for those in `by`.
fn held_up_by(tree: &Tree, by: GroupSet) -> GroupSet {
    let held = held_up(tree, by).into_iter().map(|it| it.groups);
    held.fold(GroupSet::EMPTY, GroupSet::union)
}

impl Session {
    /// The groups have refused or ended the session: operations that were not sent end here.
    fn refuse(&mut self, refusal: &Refusal, counts: &mut Counts, finished: &mut Finished<'_>) {
        if !matches!(self.stage, Stage::Opening | Stage::Open) {
            return;
        }
        self.stage = Stage::Refused(refusal.clone());
        self.waiting -= self.queue.len();
        counts.waiting -= self.queue.len();
        counts.queued -= self.queue.len();
        for operation in self.queue.drain(..) {
            finished(operation.ticket, Err(Error::refused(refusal.clone(), false)));
        }
    }

    /// Groups whose replies are missing, or are needed before anything else can be sent.
    fn silent(&self) -> GroupSet {
        if let Stage::New(plan) = &self.stage {
            return plan.destinations();
        }
        let missing = |sent: &Sent| match sent {
            Sent::Control { missing, .. }
            | Sent::Operation { missing, .. }
            | Sent::Abandoned { missing } => *missing,
            Sent::Settled => GroupSet::EMPTY,
        };
        self.sent.iter().map(missing).fold(GroupSet::EMPTY, GroupSet::union)
    }

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

/// The replies that arrived before, and the last one.
pub(crate) fn all<'a>(
    parts: &'a Parts,
    group: GroupId,
    bytes: &'a [u8],
) -> impl Iterator<Item = (GroupId, &'a [u8])> {
    parts.iter().map(|(group, bytes)| (*group, bytes.as_slice())).chain([(group, bytes)])
}

#[cfg(test)]
mod tests;
