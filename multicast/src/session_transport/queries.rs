//! Unordered queries of sessions: sent to a replica, and repeated until there is an answer.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::{POOL_MAX, SHARED_FROM, SessionKey, SessionTransport};
use crate::channel::{Channel, Kind};
use crate::ordered_window::OrderedWindow;

/// Interval after which a query without an answer is sent again, to every replica of its group that may answer it.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The replica of a group that may answer a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The leader, once a quorum has confirmed that it leads: its answer reflects everything that was answered before.
    Leader,
    /// The leader, while it holds a lease: the same guarantee, without a confirmation.
    LeaseHolder,
    /// Any replica with a state: the answer may be of any age.
    Anybody,
    /// The replica in this slot, if it has a state: the answer may be of any age.
    Replica(u8),
    /// The replica in this slot, whatever its state. Its answer is its [`Standing`](crate::standing::Standing), and the
    /// query is empty.
    Standing(u8),
}

/// In the byte of [`Of::Replica`], beside the slot.
const ONE_REPLICA: u8 = 1 << 7;
/// In the byte of [`Of::Standing`], beside the slot.
const STANDING: u8 = 1 << 6;

impl Of {
    const fn to_byte(self) -> u8 {
        match self {
            Self::LeaseHolder => 0,
            Self::Anybody => 1,
            Self::Leader => 2,
            Self::Replica(slot) => ONE_REPLICA | slot,
            Self::Standing(slot) => STANDING | slot,
        }
    }

    /// Whether only a leader answers.
    pub(crate) const fn leads(self) -> bool {
        matches!(self, Self::Leader | Self::LeaseHolder)
    }

    /// Splits the byte from the query.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (byte, rest) = bytes.split_first()?;
        if byte & ONE_REPLICA != 0 {
            return Some((Self::Replica(byte & !ONE_REPLICA), rest));
        }
        if byte & STANDING != 0 {
            return Some((Self::Standing(byte & !STANDING), rest));
        }
        let of = [Self::LeaseHolder, Self::Anybody, Self::Leader]
            .into_iter()
            .find(|of| of.to_byte() == *byte)?;
        Some((of, rest))
    }
}

/// Identifies a query of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryKey {
    pub session: SessionKey,
    pub number: u64,
}

/// A query without an answer.
pub(super) struct Query {
    group: GroupId,
    of: Of,
    sent_at: Duration,
    bytes: Vec<u8>,
}

/// State of all queries of a [`SessionTransport`]. The sessions hold the queries in flight.
#[derive(Default)]
pub(super) struct Queries {
    /// Number of queries without an answer.
    under_way: usize,
    /// No query is repeated before this time.
    ask_next: Duration,
    /// Answers that the caller has not taken yet.
    answers: VecDeque<(QueryKey, Vec<u8>)>,
}

impl Queries {
    /// The time for which queries need no work, at most `longest`; `None` if there are answers to take.
    pub(super) fn wait_for(&self, longest: Duration) -> Option<Duration> {
        let longest = if self.under_way == 0 { longest } else { longest.min(ASK_AGAIN) };
        self.answers.is_empty().then_some(longest)
    }

    /// Adds a query of a session.
    fn begin(&mut self, of: &mut OrderedWindow<Query>, number: u64, query: Query) {
        if self.under_way == 0 {
            self.ask_next = query.sent_at + ASK_AGAIN;
        }
        self.under_way += 1;
        of.push(number, query);
    }

    /// Handles an answer. If it is the first one to its query, returns which replica was asked.
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

    /// Forgets the queries of a session that is closed.
    pub(super) fn forget_all(&mut self, session: SessionKey, under_way: &OrderedWindow<Query>) {
        self.under_way -= under_way.len();
        self.answers.retain(|(key, _)| key.session != session);
    }
}

impl<F: Fabric> SessionTransport<F> {
    /// Sends a query to a replica of `group`. It is repeated, to the others too, until the answer is
    /// [taken](Self::take_answer) or the query is [forgotten](Self::forget_query). `now` is the present time.
    pub fn query(
        &mut self,
        now: Duration,
        session: SessionKey,
        group: GroupId,
        of: Of,
        query: &[u8],
    ) -> QueryKey {
        assert!(self.layout.topology().all_groups().contains(group));
        let slot = match of {
            Of::Leader | Of::LeaseHolder => self.leaders.slot(group),
            // Sessions start with different replicas.
            Of::Anybody => (session.0 % u32::from(self.layout.topology().replicas)) as u8,
            Of::Replica(slot) | Of::Standing(slot) => slot,
        };
        self.query_at(now, session, ReplicaId::new(group, slot), of, query)
    }

    /// Like [`query`](Self::query), starting with replica `first`.
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
            None => self.ask_all(session, group, of, &bytes),
        }
        let query = Query { group, of, sent_at: now, bytes };
        let at = self.sessions[session.0 as usize].as_mut().expect("an open session");
        self.queries.begin(&mut at.queries, key.number, query);
        key
    }

    /// Sends a query to every replica of a group that may answer, if its ring has room for all that was sent before.
    fn ask_all(&mut self, session: SessionKey, group: GroupId, of: Of, query: &[u8]) {
        for to in self.layout.topology().replicas_of(group) {
            if let Of::Replica(slot) | Of::Standing(slot) = of
                && slot != to.slot
            {
                continue;
            }
            if let Some(channel) = self.route(session, to)
                && self.endpoint.get(channel).is_some_and(Channel::sent_all)
            {
                self.endpoint.send(channel, Kind::Query, query, &[]);
            }
        }
    }

    /// Repeats the queries without an answer. The replica that led when a query was sent may lead no more.
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
                    self.ask_all(SessionKey(at as u32), query.group, query.of, &query.bytes);
                }
                ask_next = ask_next.min(query.sent_at + ASK_AGAIN);
            }
            self.get(SessionKey(at as u32)).queries = queries;
        }
        self.queries.ask_next = ask_next;
    }

    /// Takes an answer, if there is one: its query, and a buffer to [give back](Self::give_back).
    pub fn take_answer(&mut self) -> Option<(QueryKey, Vec<u8>)> {
        self.queries.answers.pop_front()
    }

    /// Takes back an answer's buffer for reuse.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        if self.pool.len() < POOL_MAX && buffer.capacity() <= SHARED_FROM {
            self.pool.push(buffer);
        }
    }

    /// The replica that is taken for the leader of `group`.
    pub fn leader(&self, group: GroupId) -> ReplicaId {
        ReplicaId::new(group, self.leaders.slot(group))
    }

    /// Forgets a query whose answer is no longer needed.
    pub fn forget_query(&mut self, key: QueryKey) {
        let Some(Some(session)) = self.sessions.get_mut(key.session.0 as usize) else { return };
        if let Some(query) = session.queries.remove(key.number) {
            self.queries.under_way -= 1;
            self.give_back(query.bytes);
        }
    }
}
