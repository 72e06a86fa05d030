//! What sessions ask that is not ordered: of whom, and again, until there is an answer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::{Access, POOL_MAX, SHARED_FROM, SessionKey};
use crate::channel::{Channel, Kind};

/// After how long a query without an answer is sent to every replica of its group, and again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Of which replica of a group something is asked that is not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Of the one that leads, while it holds a lease: nothing that was answered before is missing in
    /// what it says.
    Leader,
    /// Of any that has a state: it may be of any age.
    Anybody,
}

impl Of {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Leader => 0,
            Self::Anybody => 1,
        }
    }

    /// Splits it from the query.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (byte, rest) = bytes.split_first()?;
        let of = [Self::Leader, Self::Anybody].into_iter().find(|of| of.to_byte() == *byte)?;
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
struct Query {
    group: GroupId,
    of: Of,
    sent_at: Duration,
    bytes: Vec<u8>,
}

/// All queries of an [`Access`].
pub(super) struct Queries {
    /// Those that have no answer.
    under_way: BTreeMap<QueryKey, Query>,
    /// Answers that nobody has taken yet.
    answers: VecDeque<(QueryKey, Vec<u8>)>,
    /// The slot that last answered for each group's leader.
    leaders: Vec<u8>,
}

impl Queries {
    pub(super) fn new(groups: u16) -> Self {
        let leaders = vec![0; usize::from(groups)];
        Self { under_way: BTreeMap::new(), answers: VecDeque::new(), leaders }
    }

    /// For how long nothing needs to be done, if for any time at all.
    pub(super) fn wait_for(&self, longest: Duration) -> Option<Duration> {
        let longest = if self.under_way.is_empty() { longest } else { longest.min(ASK_AGAIN) };
        self.answers.is_empty().then_some(longest)
    }

    /// An answer is in. The first one counts.
    pub(super) fn answered(&mut self, key: QueryKey, by: ReplicaId, answer: &[u8]) {
        let Some(Query { of, mut bytes, .. }) = self.under_way.remove(&key) else { return };
        if of == Of::Leader {
            self.leaders[by.group.index()] = by.slot;
        }
        bytes.clear();
        bytes.extend_from_slice(answer);
        self.answers.push_back((key, bytes));
    }

    /// A session is over.
    pub(super) fn forget_all(&mut self, session: SessionKey) {
        self.under_way.retain(|key, _| key.session != session);
        self.answers.retain(|(key, _)| key.session != session);
    }
}

impl<F: Fabric> Access<F> {
    /// Asks a replica of `group` something that is not ordered; it is asked again, and others are too,
    /// until the answer is [taken](Self::take_answer) or nobody [waits](Self::forget_query) for it.
    pub fn query(&mut self, session: SessionKey, group: GroupId, of: Of, query: &[u8]) -> QueryKey {
        assert!(self.topology.all_groups().contains(group));
        let slot = match of {
            Of::Leader => self.queries.leaders[group.index()],
            // Each session has another that it asks first.
            Of::Anybody => (session.0 % u32::from(self.topology.replicas)) as u8,
        };
        self.query_at(session, ReplicaId::new(group, slot), of, query)
    }

    /// The same, of this replica first.
    pub(crate) fn query_at(
        &mut self,
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
            Some(channel) => self.port.send(channel, Kind::Query, &bytes, &[]),
            None => self.ask_all(session, group, &bytes),
        }
        let sent_at = self.port.fabric.now();
        self.queries.under_way.insert(key, Query { group, of, sent_at, bytes });
        key
    }

    /// Asks every replica of a group that has taken what it was sent before.
    fn ask_all(&mut self, session: SessionKey, group: GroupId, query: &[u8]) {
        for to in self.topology.replicas_of(group) {
            if let Some(channel) = self.route(session, to)
                && self.port.get(channel).is_some_and(Channel::sent_all)
            {
                self.port.send(channel, Kind::Query, query, &[]);
            }
        }
    }

    /// Asks again what has no answer. Whoever led when it was asked may lead no more.
    pub(super) fn ask_again(&mut self, now: Duration) {
        let late = |query: &Query| now >= query.sent_at + ASK_AGAIN;
        let under_way = self.queries.under_way.iter();
        let keys: Vec<_> =
            under_way.filter(|(_, query)| late(query)).map(|(key, _)| *key).collect();
        for key in keys {
            let mut query = self.queries.under_way.remove(&key).expect("just listed");
            query.sent_at = now;
            self.ask_all(key.session, query.group, &query.bytes);
            self.queries.under_way.insert(key, query);
        }
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
        if let Some(query) = self.queries.under_way.remove(&key) {
            self.give_back(query.bytes);
        }
    }
}
