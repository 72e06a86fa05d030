//! What sessions ask that is not ordered: of whom, and again, until there is an answer.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::{POOL_MAX, SHARED_FROM, SessionKey, SessionTransport};
use crate::channel::{Channel, Kind};
use crate::ordered_window::OrderedWindow;

/// After how long a query without an answer is sent to every replica of its group, and again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Of which replica of a group something is asked that is not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Of the one that leads, when a quorum has confirmed that it does: nothing that was answered before
    /// is missing in what it says.
    Leader,
    /// Of the one that leads, while it holds a lease: the same, and nobody else need be asked.
    LeaseHolder,
    /// Of any that has a state: it may be of any age.
    Anybody,
}

impl Of {
    const fn to_byte(self) -> u8 {
        match self {
            Self::LeaseHolder => 0,
            Self::Anybody => 1,
            Self::Leader => 2,
        }
    }

    /// Splits it from the query.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (byte, rest) = bytes.split_first()?;
        let of = [Self::LeaseHolder, Self::Anybody, Self::Leader]
            .into_iter()
            .find(|of| of.to_byte() == *byte)?;
        Some((of, rest))
    }
}

/// A query of a session: what its answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryKey {
    /// Whose.
    pub session: SessionKey,
    /// Which.
    pub number: u64,
}

/// Something that was asked and has no answer.
pub(super) struct Query {
    group: GroupId,
    of: Of,
    sent_at: Duration,
    bytes: Vec<u8>,
}

/// What is known of all queries of an [`SessionTransport`]; those under way are with their sessions.
#[derive(Default)]
pub(super) struct Queries {
    /// Those that have no answer.
    under_way: usize,
    /// None of them is to be asked again before this.
    ask_next: Duration,
    /// Answers that nobody has taken yet.
    answers: VecDeque<(QueryKey, Vec<u8>)>,
}

impl Queries {
    /// For how long nothing needs to be done, if for any time at all.
    pub(super) fn wait_for(&self, longest: Duration) -> Option<Duration> {
        let longest = if self.under_way == 0 { longest } else { longest.min(ASK_AGAIN) };
        self.answers.is_empty().then_some(longest)
    }

    /// A query of the session is under way from `now` on.
    fn begin(&mut self, of: &mut OrderedWindow<Query>, number: u64, query: Query) {
        if self.under_way == 0 {
            self.ask_next = query.sent_at + ASK_AGAIN;
        }
        self.under_way += 1;
        of.push(number, query);
    }

    /// An answer is in. The first one counts. Returns of whom it is, then.
    pub(super) fn answered(
        &mut self,
        under_way: &mut OrderedWindow<Query>,
        key: QueryKey,
        answer: &[u8],
    ) -> Option<Of> {
        let Query { of, mut bytes, .. } = under_way.remove(key.number)?;
        self.under_way -= 1;
        bytes.clear();
        bytes.extend_from_slice(answer);
        self.answers.push_back((key, bytes));
        Some(of)
    }

    /// A session is over, with these queries under way.
    pub(super) fn forget_all(&mut self, session: SessionKey, under_way: &OrderedWindow<Query>) {
        self.under_way -= under_way.len();
        self.answers.retain(|(key, _)| key.session != session);
    }
}

impl<F: Fabric> SessionTransport<F> {
    /// Asks a replica of `group` something that is not ordered; it is asked again, and others are too,
    /// until the answer is [taken](Self::take_answer) or nobody [waits](Self::forget_query) for it. It
    /// is `now`.
    pub fn query(
        &mut self,
        now: Duration,
        session: SessionKey,
        group: GroupId,
        of: Of,
        query: &[u8],
    ) -> QueryKey {
        assert!(self.topology.all_groups().contains(group));
        let slot = match of {
            Of::Leader | Of::LeaseHolder => self.leaders.slot(group),
            // Each session has another that it asks first.
            Of::Anybody => (session.0 % u32::from(self.topology.replicas)) as u8,
        };
        self.query_at(now, session, ReplicaId::new(group, slot), of, query)
    }

    /// The same, of this replica first.
    pub(crate) fn query_at(
        &mut self,
        now: Duration,
        session: SessionKey,
        first: ReplicaId,
        of: Of,
        query: &[u8],
    ) -> QueryKey {
        let at = self.get(session);
        at.asked += 1;
        let key = QueryKey { session, number: at.asked };
        let mut bytes = self.pool.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&key.number.to_le_bytes());
        bytes.push(of.to_byte());
        bytes.extend_from_slice(query);
        let group = first.group;
        match self.route(session, first) {
            Some(channel) => self.endpoint.send(channel, Kind::Query, &bytes, &[]),
            None => self.ask_all(session, group, &bytes),
        }
        let query = Query { group, of, sent_at: now, bytes };
        let at = self.sessions[session.0 as usize].as_mut().expect("an open session");
        self.queries.begin(&mut at.queries, key.number, query);
        key
    }

    /// Asks every replica of a group that has taken what it was sent before.
    fn ask_all(&mut self, session: SessionKey, group: GroupId, query: &[u8]) {
        for to in self.topology.replicas_of(group) {
            if let Some(channel) = self.route(session, to)
                && self.endpoint.get(channel).is_some_and(Channel::sent_all)
            {
                self.endpoint.send(channel, Kind::Query, query, &[]);
            }
        }
    }

    /// Asks again what has no answer. Whoever led when it was asked may lead no more.
    pub(super) fn ask_again(&mut self, now: Duration) {
        if self.queries.under_way == 0 || now < self.queries.ask_next {
            return;
        }
        let mut ask_next = now + ASK_AGAIN;
        for at in 0..self.sessions.len() {
            let Some(session) = &mut self.sessions[at] else { continue };
            let mut queries = mem::take(&mut session.queries);
            for (_, query) in queries.iter_mut() {
                if now >= query.sent_at + ASK_AGAIN {
                    query.sent_at = now;
                    self.ask_all(SessionKey(at as u32), query.group, &query.bytes);
                }
                ask_next = ask_next.min(query.sent_at + ASK_AGAIN);
            }
            self.get(SessionKey(at as u32)).queries = queries;
        }
        self.queries.ask_next = ask_next;
    }

    /// An answer that is in, if there is one: to which query, and the buffer that
    /// [`give_back`](Self::give_back) takes.
    pub fn take_answer(&mut self) -> Option<(QueryKey, Vec<u8>)> {
        self.queries.answers.pop_front()
    }

    /// An answer's buffer is used again.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        if self.pool.len() < POOL_MAX && buffer.capacity() <= SHARED_FROM {
            self.pool.push(buffer);
        }
    }

    /// Nobody waits for the answer any more.
    pub fn forget_query(&mut self, key: QueryKey) {
        let Some(Some(session)) = self.sessions.get_mut(key.session.0 as usize) else { return };
        if let Some(query) = session.queries.remove(key.number) {
            self.queries.under_way -= 1;
            self.give_back(query.bytes);
        }
    }
}
