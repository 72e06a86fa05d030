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
use skein_protocol::tram::tree::Tree;
use skein_protocol::view::View;

use super::config_along;
use crate::played::Played;

/// An entry of a log: its index, its birth, and its records.
#[derive(Clone)]
pub(super) struct Entry<R> {
    pub(super) index: u64,
    pub(super) birth: Ballot,
    pub(super) records: Vec<R>,
}

/// What a leader writes before it writes a follower's log.
pub(super) struct Header {
    pub(super) ballot: Ballot,
    pub(super) base: Cursor,
    pub(super) first: u64,
}

/// A replica with its memory.
pub(crate) struct Node<O: Played = Ramcast> {
    pub(crate) core: O,
    pub(crate) incarnation: u32,
    /// The part of its group's log that it holds, and the births of all entries.
    pub(super) log: Vec<Entry<O::Record>>,
    pub(super) runs: Runs,
    /// The ballot whose leader may write that log.
    pub(super) writer: Option<Ballot>,
    /// As candidate or leader: whether it makes others give up a live leader.
    pub(super) forced: bool,
    pub(super) header: Option<Header>,
    pub(super) unread: VecDeque<Entry<O::Record>>,
    /// As leader: the index up to which each follower's log is written.
    pub(super) feeding: BTreeMap<u8, u64>,
    /// Messages that have arrived and were not handled yet.
    pub(super) inbox: VecDeque<(MessageId, GroupSet)>,
    /// All messages that have arrived: a new leader proposes those that no leader has logged.
    pub(super) held: BTreeMap<MessageId, GroupSet>,
    /// Events of other groups that were not handled yet.
    pub(super) mail: VecDeque<O::PeerEvent>,
    pub(super) words: BTreeMap<ReplicaId, Acceptance>,
    pub(crate) applied: Rank,
    pub(crate) delivered: Vec<(u64, Rank)>,
}

impl<O: Played> Node<O> {
    pub(super) fn new(me: ReplicaId, incarnation: u32, tree: &Tree, replicas: u8) -> Self {
        Self {
            core: O::new(config_along(me, incarnation, tree, replicas), View::first(replicas)),
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

    /// Accepts an entry into the log.
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
