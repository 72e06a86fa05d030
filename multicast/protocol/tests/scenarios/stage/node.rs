//! A replica of the cluster, with its memory.

use std::collections::{BTreeMap, VecDeque};

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::runs::Runs;
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId};
use skein_protocol::ordering::EffectOf;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;
use skein_protocol::view::View;

use super::config;
use crate::played::Played;

/// An entry of a log: its index, where it was born, what it says.
#[derive(Clone)]
pub(super) struct Entry<R> {
    pub(super) index: u64,
    pub(super) birth: Ballot,
    pub(super) records: Vec<R>,
}

/// With what a leader begins to write a follower's log.
pub(super) struct Header {
    pub(super) ballot: Ballot,
    pub(super) base: Cursor,
    pub(super) first: u64,
}

/// A replica with its memory.
pub(crate) struct Node<O: Played = Ramcast> {
    pub(crate) core: O,
    pub(crate) incarnation: u32,
    /// What it holds of its group's log, and the births of all of it.
    pub(super) log: Vec<Entry<O::Record>>,
    pub(super) runs: Runs,
    /// Who may write that log, and what was written and is not read.
    pub(super) writer: Option<Ballot>,
    /// As candidate or leader: whether it has others give up a leader that is well.
    pub(super) forced: bool,
    pub(super) header: Option<Header>,
    pub(super) unread: VecDeque<Entry<O::Record>>,
    /// As leader: up to where each follower's log is written.
    pub(super) feeding: BTreeMap<u8, u64>,
    /// Messages that have landed and were not told yet.
    pub(super) inbox: VecDeque<(MessageId, GroupSet)>,
    /// All that have: whoever leads after another proposes what nobody has logged.
    pub(super) held: BTreeMap<MessageId, GroupSet>,
    /// What other groups have told and it has not heard yet.
    pub(super) mail: VecDeque<O::PeerEvent>,
    pub(super) words: BTreeMap<ReplicaId, Acceptance>,
    pub(crate) applied: Rank,
    pub(crate) delivered: Vec<(u64, Rank)>,
}

impl<O: Played> Node<O> {
    pub(super) fn new(me: ReplicaId, incarnation: u32, groups: u16, replicas: u8) -> Self {
        Self {
            core: O::new(config(me, incarnation, groups, replicas), View::first(replicas)),
            incarnation,
            log: Vec::new(),
            runs: Runs::EMPTY,
            writer: None,
            forced: false,
            header: None,
            unread: VecDeque::new(),
            feeding: BTreeMap::new(),
            inbox: VecDeque::new(),
            held: BTreeMap::new(),
            mail: VecDeque::new(),
            words: BTreeMap::new(),
            applied: Rank::NOTHING,
            delivered: Vec::new(),
        }
    }

    /// Takes what stands behind its log into it.
    pub(super) fn take(&mut self, entry: Entry<O::Record>, effects: &mut Vec<EffectOf<O>>) {
        let Entry { index, birth, records } = &entry;
        for (i, record) in records.iter().enumerate() {
            let (index, birth, record) = (*index, *birth, *record);
            let last = i + 1 == records.len();
            let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last };
            self.core.step(event, effects);
        }
        self.runs.push(*birth, index * 64, self.core.log().commit_index());
        self.log.push(entry);
    }

    pub(super) fn cut(&mut self, base: Cursor) {
        self.runs.truncate(base);
        self.log.retain(|entry| entry.index < base.index);
    }
}
