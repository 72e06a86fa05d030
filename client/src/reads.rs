//! Reads that are not ordered: which are under way, and what is known of each.
//!
//! Arithmetic only, like the [operations](crate::pending_operations): answers and deadlines go in; results, and what to
//! ask next, come out.
//!
//! **Invariant (one cut).** A transaction over several groups that is read under leases looks at each
//! group, and, when all have answered, once more: what no look found changed was so at the moment
//! between the two (`skein_kvstore::unordered_read`). If too much is written meanwhile it is ordered after all.

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

/// Looks that a transaction over several groups may take before it is ordered after all.
const ROUNDS_MAX: u32 = 4;

/// How operations that only read are done.
///
/// Whatever writes, or has guards, is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// As strict as what is ordered. Of one group, not ordered: its leader answers alone, when a quorum has
    /// confirmed that it leads. Of several groups, ordered.
    #[default]
    Confirmed,
    /// Ordered like everything else.
    Ordered,
    /// Not ordered: answered by each group's leader while it holds a lease. As strict as ordered reads, if
    /// clocks keep their rates, and cheaper than confirmed ones where nodes are far apart. Of several
    /// groups, one consistent cut, which takes two looks at each.
    Lease,
    /// Not ordered, and answered by any replica of each group, however far behind it is. What is read is
    /// something that was written; whatever was written since, by this very client too, may be missing.
    /// It may be ahead as well, of a read under a lease that follows, until whoever wrote it is answered.
    /// Several keys of one group were so together, those of several groups need not have been.
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

/// All reads of a driver that are not ordered.
#[derive(Default)]
pub(crate) struct Reads {
    sessions: Vec<Session>,
    /// How many are under way.
    len: usize,
    /// No deadline is before this.
    earliest: Option<Duration>,
}

/// Those of one session.
#[derive(Default)]
struct Session {
    /// By the numbers of their tickets.
    under_way: OrderedWindow<Read>,
    /// What each query is for: the number of a ticket, and of what group.
    queries: OrderedWindow<(u64, GroupId)>,
}

struct Read {
    plan: Plan,
    of: Of,
    deadline: Duration,
    allowed: Duration,
    missing: GroupSet,
    /// But for the last one, which ends a look.
    answers: Answers,
    /// What the look before saw.
    before: Option<Answers>,
    rounds: u32,
}

type Answers = Vec<(GroupId, Vec<u8>)>;

/// What follows from an answer.
pub(crate) enum Next {
    /// Others are missing, or nobody waits.
    Nothing,
    /// Its groups are to be asked once more.
    Repeat,
    /// It is ordered after all.
    Order { plan: Plan, deadline: Duration, allowed: Duration },
}

impl Reads {
    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of a session are.
    pub(crate) fn of(&self, session: SessionKey) -> usize {
        self.sessions.get(session.0 as usize).map_or(0, |session| session.under_way.len())
    }

    /// The earliest time at which [`expire`](Self::expire) may have something to do.
    pub(crate) fn earliest(&self) -> Option<Duration> {
        self.earliest
    }

    /// A read begins; its groups are to be [asked](Self::ask).
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

    /// Asks the groups of a read what is missing.
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

    /// An answer is in: to which read, and what follows.
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
        let over = reply.is_err() || read.is_seen(group, answer);
        if !over && read.rounds < ROUNDS_MAX {
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

    /// Ends those whose time is over, while groups `without_quorum` can answer nothing. `forget` is told
    /// of each query that nobody waits for.
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

    /// Ends all of them, or those of one session.
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
    /// Whether what was seen, this answer last, was so at one moment: in one group, or the same twice.
    /// Who may be told of whatever state does not mind.
    fn is_seen(&self, group: GroupId, last: &[u8]) -> bool {
        let once = self.answers.is_empty() || planted(Mutant::LookedAtOnce);
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

    /// What the answers come to, this one being the last.
    fn join(&self, group: GroupId, last: &[u8]) -> Result<Reply, Refusal> {
        self.plan.join(
            all(&self.answers, group, last).map(|(of, answer)| (of, unordered_read::part(answer))),
        )
    }
}
