//! Reads that are not ordered: which are under way, and what is known of each.
//!
//! Arithmetic only, like the [ledger](crate::ledger): answers and deadlines go in; results, and what to
//! ask next, come out.
//!
//! **Invariant (one cut).** A transaction over several groups that is read under leases looks at each
//! group, and, when all have answered, once more: what no look found changed was so at the moment
//! between the two (`skein_kvstore::look`). If too much is written meanwhile it is ordered after all.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_kvstore::look;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Refusal, Reply};
use skein_multicast::access::{Of, QueryKey, SessionKey};
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::mutants::{Mutant, planted};

use crate::driver::Ticket;
use crate::error::{Error, Unavailability};
use crate::ledger::Finished;

/// Looks that a transaction over several groups may take before it is ordered after all.
const LOOKS_MAX: u32 = 4;

/// How operations that only read are done.
///
/// Whatever writes, or has guards, is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Ordered like everything else.
    #[default]
    Ordered,
    /// Not ordered: answered by each group's leader while it holds a lease. As strict as ordered reads,
    /// and cheaper. Of several groups, one consistent cut, which takes two looks at each.
    Lease,
    /// Not ordered, and answered by any replica of each group, however far behind it is. What is read is
    /// something that was written; whatever was written since, by this very client too, may be missing.
    /// It may be ahead as well, of a read under a lease that follows, until whoever wrote it is answered.
    /// Several keys of one group were so together, those of several groups need not have been.
    Stale,
}

/// All reads of a driver that are not ordered.
#[derive(Default)]
pub(crate) struct Reads {
    under_way: BTreeMap<Ticket, Read>,
    /// What each query is for.
    queries: BTreeMap<QueryKey, (Ticket, GroupId)>,
    /// No deadline is before this.
    earliest: Option<Duration>,
}

struct Read {
    plan: Plan,
    of: Of,
    deadline: Duration,
    allowed: Duration,
    missing: GroupSet,
    answers: Answers,
    /// What the look before saw.
    before: Option<Answers>,
    looks: u32,
}

type Answers = BTreeMap<GroupId, Vec<u8>>;

/// What follows from an answer.
pub(crate) enum Next {
    /// Others are missing, or nobody waits.
    Nothing,
    /// Its groups are to be asked once more.
    Look,
    /// It is ordered after all.
    Order { plan: Plan, deadline: Duration, allowed: Duration },
}

impl Reads {
    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// How many of a session are.
    pub(crate) fn of(&self, session: SessionKey) -> usize {
        let ticket = |number| Ticket { session, number };
        self.under_way.range(ticket(0)..=ticket(u64::MAX)).count()
    }

    /// The earliest time at which [`expire`](Self::expire) may have something to do.
    pub(crate) fn earliest(&self) -> Option<Duration> {
        self.earliest
    }

    /// A read begins; its groups are to be [asked](Self::questions).
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
        let read = Read { plan, of, deadline, allowed, missing, answers, before, looks: 1 };
        self.under_way.insert(ticket, read);
    }

    /// What a read asks, of which groups.
    pub(crate) fn questions(&self, ticket: Ticket) -> Option<(&[u8], Of, GroupSet)> {
        let read = self.under_way.get(&ticket)?;
        Some((read.plan.request(), read.of, read.missing))
    }

    /// A group was asked.
    pub(crate) fn asked(&mut self, query: QueryKey, ticket: Ticket, group: GroupId) {
        self.queries.insert(query, (ticket, group));
    }

    /// An answer is in: to which read, and what follows.
    pub(crate) fn answer(
        &mut self,
        query: QueryKey,
        answer: &[u8],
        finished: &mut Finished<'_>,
    ) -> Option<(Ticket, Next)> {
        let (ticket, group) = self.queries.remove(&query)?;
        let read = self.under_way.get_mut(&ticket)?;
        read.missing = read.missing.without(group);
        read.answers.insert(group, answer.to_vec());
        if !read.missing.is_empty() {
            return Some((ticket, Next::Nothing));
        }
        if read.is_over() {
            let read = self.under_way.remove(&ticket).expect("it was there a moment ago");
            finished(ticket, read.join().map_err(|why| Error::refused(why, false)));
            return Some((ticket, Next::Nothing));
        }
        if read.looks < LOOKS_MAX {
            read.looks += 1;
            read.before = Some(std::mem::take(&mut read.answers));
            read.missing = read.plan.destinations();
            return Some((ticket, Next::Look));
        }
        let Read { plan, deadline, allowed, .. } =
            self.under_way.remove(&ticket).expect("it was there a moment ago");
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
            let left = self.under_way.values().filter(|read| !late(read));
            self.earliest = left.map(|read| read.deadline).min();
            self.end(finished, forget, |_, read| {
                let (silent, after) = (read.missing, read.allowed);
                let groups: GroupSet =
                    silent.iter().filter(|group| without_quorum.contains(*group)).collect();
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
        self.end(finished, forget, |ticket, _| {
            session.is_none_or(|session| ticket.session == session).then(|| error.clone())
        });
    }

    fn end(
        &mut self,
        finished: &mut Finished<'_>,
        forget: &mut dyn FnMut(QueryKey),
        verdict: impl Fn(Ticket, &Read) -> Option<Error>,
    ) {
        self.under_way.retain(|ticket, read| {
            let Some(error) = verdict(*ticket, read) else { return true };
            finished(*ticket, Err(error));
            false
        });
        let under_way = &self.under_way;
        self.queries.retain(|query, (ticket, _)| {
            let waited_for = under_way.contains_key(ticket);
            if !waited_for {
                forget(*query);
            }
            waited_for
        });
    }
}

impl Read {
    /// Whether what was seen is a reply: of one group, of whatever state, the same twice, or refused.
    fn is_over(&self) -> bool {
        let once = self.answers.len() == 1 || planted(Mutant::LookedAtOnce);
        if once || self.of == Of::Anybody || self.join().is_err() {
            return true;
        }
        let Some(before) = &self.before else { return false };
        self.answers.iter().all(|(group, now)| look::is_unchanged(&before[group], now))
    }

    fn join(&self) -> Result<Reply, Refusal> {
        self.plan.join(self.answers.iter().map(|(group, answer)| (*group, look::part(answer))))
    }
}
