//! Unordered reads that are under way, and the state of each.
//!
//! No I/O, like the [operations](crate::pending_operations): answers and deadlines go in; results and further queries
//! come out.
//!
//! **Invariant (one cut).** A read of several groups under leases queries each group, and once more when all have
//! answered. Values that no query found changed existed together at the moment between the two rounds
//! (`skein_kvstore::unordered_read`). If too much is written meanwhile, the transaction is ordered after all.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Refusal, Reply};
use skein_kvstore::unordered_read;
use skein_multicast::ordered_window::OrderedWindow;
use skein_multicast::session_transport::{Of, QueryKey, SessionKey};
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::mutants::{Mutant, planted};

use crate::driver::Ticket;
use crate::error::{Error, Unavailability};
use crate::pending_operations::{Finished, all};

/// Rounds of queries that a transaction over several groups may take before it is ordered after all.
const ROUNDS_MAX: u32 = 4;

/// How operations that only read are executed.
///
/// Operations that write or have guards are always ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// As strict as ordered operations. On one group, not ordered: its leader answers alone, once a quorum has
    /// confirmed that it leads. On several groups, ordered.
    #[default]
    Confirmed,
    /// Ordered like all other operations.
    Ordered,
    /// Not ordered: answered by each group's leader while it holds a lease. As strict as ordered reads if clocks keep
    /// their rates, and cheaper than confirmed ones if nodes are far apart. On several groups, one consistent cut,
    /// which takes at least two rounds of queries.
    Lease,
    /// Not ordered, and answered by any replica of each group, however lagging. Every value was written at some time,
    /// but later writes may be missing, even those of this client. Until the client that wrote a value has received its
    /// reply, a stale read may also be ahead of a read under a lease that follows it. Values of one group existed
    /// together; values of several groups may not have.
    Stale,
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Ordered => "ordered",
            Self::Lease => "lease",
            Self::Stale => "stale",
        })
    }
}

/// All unordered reads of a driver.
#[derive(Default)]
pub(crate) struct Reads {
    sessions: Vec<Session>,
    /// Number of reads under way.
    len: usize,
    /// `earliest <=` the deadline of every read.
    earliest: Option<Duration>,
}

/// Reads of one session.
#[derive(Default)]
struct Session {
    /// By ticket number.
    under_way: OrderedWindow<Read>,
    /// Purpose of each query: the number of its ticket, and the group.
    queries: OrderedWindow<(u64, GroupId)>,
}

struct Read {
    plan: Plan,
    of: Of,
    deadline: Duration,
    allowed: Duration,
    missing: GroupSet,
    /// Answers of this round, except the last one, which ends the round.
    answers: Answers,
    /// Answers of the round before.
    before: Option<Answers>,
    rounds: u32,
}

type Answers = Vec<(GroupId, Vec<u8>)>;

/// What follows from an answer.
pub(crate) enum Next {
    /// Other answers are missing, or the read has ended.
    Nothing,
    /// Its groups are to be queried once more.
    Repeat,
    /// It is ordered after all.
    Order { plan: Plan, deadline: Duration, allowed: Duration },
}

impl Reads {
    /// Number of reads under way.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of reads of a session.
    pub(crate) fn of(&self, session: SessionKey) -> usize {
        self.sessions.get(session.0 as usize).map_or(0, |session| session.under_way.len())
    }

    /// The earliest time at which [`expire`](Self::expire) may have something to do.
    pub(crate) fn earliest(&self) -> Option<Duration> {
        self.earliest
    }

    /// Adds a read, whose groups are then to be [queried](Self::ask).
    pub(crate) fn begin(
        &mut self,
        ticket: Ticket,
        plan: Plan,
        of: Of,
        deadline: Duration,
        allowed: Duration,
    ) {
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        let (missing, answers, before) = (plan.destinations(), Answers::new(), None);
        let read = Read { plan, of, deadline, allowed, missing, answers, before, rounds: 1 };
        let at = ticket.session.0 as usize;
        if self.sessions.len() <= at {
            self.sessions.resize_with(at + 1, Session::default);
        }
        self.sessions[at].under_way.push(ticket.number, read);
        self.len += 1;
    }

    /// Queries the groups of a read whose answers are missing.
    pub(crate) fn ask(
        &mut self,
        ticket: Ticket,
        mut query: impl FnMut(GroupId, Of, &[u8]) -> QueryKey,
    ) {
        let Some(session) = self.sessions.get_mut(ticket.session.0 as usize) else { return };
        let Some(read) = session.under_way.get(ticket.number) else { return };
        for group in read.missing.iter() {
            let query = query(group, read.of, read.plan.request());
            session.queries.push(query.number, (ticket.number, group));
        }
    }

    /// An answer is in: to which read, and what follows. A read that was refused for its slot map is ordered. The map that
    /// came with that refusal is not taken: a replica may show it before all groups have it, and one of those would refuse
    /// it. A refusal of an ordered message is told when all groups have the map, as every reply rests on what was before it.
    pub(crate) fn answer(
        &mut self,
        query: QueryKey,
        answer: &[u8],
        finished: &mut Finished<'_>,
    ) -> Option<(Ticket, Next)> {
        let session = self.sessions.get_mut(query.session.0 as usize)?;
        let (number, group) = session.queries.remove(query.number)?;
        let ticket = Ticket { session: query.session, number };
        let read = session.under_way.get_mut(number)?;
        read.missing = read.missing.without(group);
        if !read.missing.is_empty() {
            read.answers.push((group, answer.to_vec()));
            return Some((ticket, Next::Nothing));
        }
        let reply = read.join(group, answer);
        let by_another_map = matches!(reply, Err(Refusal::WrongEpoch { .. }));
        let over = !by_another_map && (reply.is_err() || read.is_seen(group, answer));
        if !over && !by_another_map && read.rounds < ROUNDS_MAX {
            read.rounds += 1;
            read.answers.push((group, answer.to_vec()));
            read.before = Some(std::mem::take(&mut read.answers));
            read.missing = read.plan.destinations();
            return Some((ticket, Next::Repeat));
        }
        let read = session.under_way.remove(number).expect("it was there a moment ago");
        self.len -= 1;
        if over {
            finished(ticket, reply.map_err(|why| Error::refused(why, false)));
            return Some((ticket, Next::Nothing));
        }
        let Read { plan, deadline, allowed, .. } = read;
        Some((ticket, Next::Order { plan, deadline, allowed }))
    }

    /// Ends the reads whose time is over. Groups `without_quorum` cannot answer. Calls `forget` for each query whose
    /// read has ended.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        without_quorum: GroupSet,
        finished: &mut Finished<'_>,
        forget: &mut dyn FnMut(QueryKey),
    ) {
        let late = |read: &Read| read.deadline <= now;
        if self.earliest.is_some_and(|earliest| earliest <= now) {
            let all = self.sessions.iter().flat_map(|session| session.under_way.iter());
            let left = all.filter(|(_, read)| !late(read));
            self.earliest = left.map(|(_, read)| read.deadline).min();
            self.end(0..self.sessions.len(), finished, forget, |read| {
                let (silent, after) = (read.missing, read.allowed);
                let groups = silent.intersection(without_quorum);
                let why = if groups.is_empty() {
                    Unavailability::NotSent { after, silent }
                } else {
                    Unavailability::NoQuorum { groups, after }
                };
                late(read).then_some(Error::Unavailable { why, sent: false })
            });
        }
    }

    /// Ends all reads, or those of one session.
    pub(crate) fn fail(
        &mut self,
        session: Option<SessionKey>,
        error: &Error,
        finished: &mut Finished<'_>,
        forget: &mut dyn FnMut(QueryKey),
    ) {
        let all = self.sessions.len();
        let one = |session: SessionKey| session.0 as usize..all.min(session.0 as usize + 1);
        let sessions = session.map_or(0..all, one);
        self.end(sessions, finished, forget, |_| Some(error.clone()));
    }

    fn end(
        &mut self,
        sessions: Range<usize>,
        finished: &mut Finished<'_>,
        forget: &mut dyn FnMut(QueryKey),
        verdict: impl Fn(&Read) -> Option<Error>,
    ) {
        for at in sessions {
            let Some(Session { under_way, queries }) = self.sessions.get_mut(at) else { continue };
            let session = SessionKey(at as u32);
            under_way.retain(|number, read| {
                let ticket = Ticket { session, number };
                let Some(error) = verdict(read) else { return true };
                self.len -= 1;
                finished(ticket, Err(error));
                false
            });
            queries.retain(|number, (ticket, _)| {
                let waited_for = under_way.get(*ticket).is_some();
                if !waited_for {
                    forget(QueryKey { session, number });
                }
                waited_for
            });
        }
    }
}

impl Read {
    /// Whether the answers, `last` included, show one moment: of one group, or equal in two rounds. Stale reads need
    /// not.
    fn is_seen(&self, group: GroupId, last: &[u8]) -> bool {
        let once = self.answers.is_empty() || planted(Mutant::ReadInOneRound);
        if once || self.of == Of::Anybody {
            return true;
        }
        let Some(before) = &self.before else { return false };
        let unchanged = |(group, now)| {
            let before = before.iter().find(|(of, _)| *of == group);
            before.is_some_and(|(_, before)| unordered_read::is_unchanged(before, now))
        };
        all(&self.answers, group, last).all(unchanged)
    }

    /// The reply that the answers, `last` included, amount to.
    fn join(&self, group: GroupId, last: &[u8]) -> Result<Reply, Refusal> {
        self.plan.join(
            all(&self.answers, group, last).map(|(of, answer)| (of, unordered_read::part(answer))),
        )
    }
}

#[cfg(test)]
mod tests {
    use skein_kvstore::command::{Operation, Transaction};
    use skein_kvstore::limits::Limits;
    use skein_kvstore::slots::SlotMap;
    use skein_kvstore::wire::PartWriter;

    use super::*;

    #[test]
    fn a_read_that_is_refused_for_its_slot_map_is_ordered_as_it_is() {
        let slots = SlotMap::even(2);
        let get = Transaction::of(Operation::Get { key: b"foo".to_vec() });
        let plan = Plan::of(&get, &slots, &Limits::default()).unwrap();
        let session = SessionKey(0);
        let ticket = Ticket { session, number: 1 };
        let (deadline, allowed) = (Duration::from_secs(7), Duration::from_secs(5));
        for of in [Of::Leader, Of::LeaseHolder, Of::Anybody] {
            let mut reads = Reads::default();
            reads.begin(ticket, plan.clone(), of, deadline, allowed);
            let query = QueryKey { session, number: 1 };
            reads.ask(ticket, |_, _, _| query);
            let mut part = PartWriter::default();
            part.refused(Some(&Refusal::WrongEpoch { slots: Box::new(slots.clone()) }));
            let answer = [&7_u64.to_le_bytes(), part.bytes()].concat();
            let next = reads.answer(query, &answer, &mut |_, _| panic!("it has not ended"));
            let Some((_, Next::Order { plan: ordered, deadline: until, allowed: of_all })) = next
            else {
                panic!("it is not ordered");
            };
            assert_eq!((ordered, until, of_all), (plan.clone(), deadline, allowed));
            assert_eq!(reads.len(), 0);
        }
    }
}
