//! A cluster in miniature: cores whose events are chosen by hand, and as much of a driver as an order of events depends
//! on: logs that only the holder of a grant can write, headers, reports, adoption, and state transfer. The ordering of
//! the cores is a parameter, RamCast by default.

mod effects;
mod lead;
mod members;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::transfer::Request;
use skein_protocol::group::{Cause, GroupConfig};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::ordering::{Config, EffectOf};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;
use skein_protocol::tram::tree::Tree;

use self::node::{Header, Node};
use crate::by_hand::Answer;
use crate::played::Played;

/// The whole cluster.
pub(crate) struct Stage<O: Played = Ramcast> {
    pub(crate) nodes: BTreeMap<ReplicaId, Node<O>>,
    tree: Tree,
    count: u8,
    now_ms: u64,
    /// The last acceptance word by sender and receiver. They are sent again to a replica that comes back.
    told: BTreeMap<(ReplicaId, ReplicaId), Acceptance>,
    lost_words: BTreeSet<(ReplicaId, ReplicaId)>,
    lost_writes: BTreeSet<(ReplicaId, ReplicaId)>,
    /// What happened, in the words of the protocol.
    pub(crate) out: String,
}

pub(crate) fn replica(group: u16, slot: u8) -> ReplicaId {
    ReplicaId::new(GroupId(group), slot)
}

pub(crate) fn message(number: u64) -> MessageId {
    MessageId::new(SessionId(1), number)
}

/// Whether this core begins to send its state to an incarnation of a slot that has applied so much, and asks for any
/// state.
pub(crate) fn sends_state<O: Played>(
    core: &mut O,
    slot: u8,
    incarnation: u32,
    applied: Rank,
) -> bool {
    let needs = Some(Ballot::ZERO);
    let request = Request { slot, incarnation, needs, applied, taken: None, log: None };
    let begins = core.asked_for_state(&request, true) == Answer::Begin;
    assert_eq!(core.stops_sending(slot), begins);
    begins
}

pub(crate) fn config(me: ReplicaId, incarnation: u32, groups: u16, replicas: u8) -> Config {
    config_along(me, incarnation, &Tree::breadth(groups), replicas)
}

fn config_along(me: ReplicaId, incarnation: u32, tree: &Tree, replicas: u8) -> Config {
    let groups = tree.groups();
    let group = GroupConfig {
        me,
        incarnation,
        began_as: incarnation,
        replicas,
        timeout_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        lease_ms: 40,
        evict_after_ms: 100,
        clock_skew_percent: 10,
        // Spreading needs several groups.
        spread_after_ms: if groups > 1 { 3_000 } else { 0 },
        lag_max: 64,
        durable: false,
    };
    let (held_bytes_max, tree) = (64 << 20, tree.parents());
    Config { group, groups, fetch_after_ms: 20, held_bytes_max, tree }
}

/// The cursor behind an entry. All entries have the same length.
fn place(index: u64) -> Cursor {
    Cursor { index: index + 1, position: index * 64 }
}

impl<O: Played> Stage<O> {
    /// A cluster in which slot 0 of each group leads, and all replicas follow it.
    pub(crate) fn new(groups: u16, count: u8) -> Self {
        Self::along(&Tree::breadth(groups), count)
    }

    /// The same, with a tree for an ordering that has one.
    pub(crate) fn along(tree: &Tree, count: u8) -> Self {
        let (mut stage, groups) = (Self::unled_along(tree, count), tree.groups());
        for group in 0..groups {
            let leader = replica(group, 0);
            stage.campaign(leader, Cause::Start);
            for slot in 1..count {
                stage.ask(leader, replica(group, slot));
            }
        }
        let all: Vec<_> = stage.nodes.keys().copied().collect();
        for id in all.iter().chain(&all).copied() {
            stage.turn(id);
        }
        stage.out.clear(); // That part is the same in every scenario.
        stage
    }

    /// A cluster in which no replica has set out to lead.
    pub(crate) fn unled(groups: u16, count: u8) -> Self {
        Self::unled_along(&Tree::breadth(groups), count)
    }

    fn unled_along(tree: &Tree, count: u8) -> Self {
        let groups = tree.groups();
        let ids = (0..groups).flat_map(|group| (0..count).map(move |slot| replica(group, slot)));
        Self {
            nodes: ids.map(|id| (id, Node::new(id, 0, tree, count))).collect(),
            tree: *tree,
            count,
            now_ms: 0,
            told: BTreeMap::new(),
            lost_words: BTreeSet::new(),
            lost_writes: BTreeSet::new(),
            out: String::new(),
        }
    }

    pub(crate) fn node(&mut self, id: ReplicaId) -> &mut Node<O> {
        self.nodes.get_mut(&id).expect("a replica of the cluster")
    }

    pub(crate) fn core(&mut self, id: ReplicaId) -> &mut O {
        &mut self.node(id).core
    }

    /// Numbers of the messages that a replica has delivered.
    pub(crate) fn delivered(&self, id: ReplicaId) -> Vec<u64> {
        self.nodes[&id].delivered.iter().map(|(number, _)| *number).collect()
    }

    /// What happened since the last call.
    pub(crate) fn told(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn say(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{what}").expect("memory");
    }

    pub(crate) fn members(&self, group: GroupId) -> impl Iterator<Item = ReplicaId> + use<O> {
        (0..self.count).map(move |slot| ReplicaId::new(group, slot))
    }

    /// One replica's acceptance words to another are held back, until they are sent again.
    pub(crate) fn lose_words(&mut self, from: ReplicaId, to: ReplicaId) {
        self.lost_words.insert((from, to));
    }

    /// One replica's writes into another's log do not arrive.
    pub(crate) fn lose_writes(&mut self, from: ReplicaId, to: ReplicaId) {
        self.lost_writes.insert((from, to));
    }

    /// What other groups sent to a replica is lost.
    pub(crate) fn lose_mail(&mut self, to: ReplicaId) {
        self.node(to).mail.clear();
    }

    /// Words and writes arrive again, and words are sent again.
    pub(crate) fn heal(&mut self) {
        self.lost_words.clear();
        self.lost_writes.clear();
        for ((by, to), acceptance) in self.told.clone() {
            self.node(to).words.insert(by, acceptance);
        }
    }

    /// The others of its group see no more heartbeats of a replica.
    pub(crate) fn silence(&mut self, id: ReplicaId) {
        for other in self.members(id.group).filter(|other| *other != id) {
            for _ in 0..500 {
                let event = Event::Heartbeat { slot: id.slot, pulse: Pulse::Missed };
                self.core(other).step(event, &mut Vec::new());
            }
        }
    }

    /// The leader of a group, as a replica knows it.
    pub(crate) fn leader_of(&self, id: ReplicaId, group: GroupId) -> ReplicaId {
        self.nodes[&id].core.leader_of(group)
    }

    /// Another group sends an event to a replica.
    pub(crate) fn send(&mut self, to: ReplicaId, mail: O::PeerEvent) {
        self.node(to).mail.push_back(mail);
    }

    /// A session's message arrives at a replica.
    pub(crate) fn land(&mut self, id: ReplicaId, message: MessageId, destinations: GroupSet) {
        let node = self.node(id);
        node.inbox.push_back((message, destinations));
        node.held.insert(message, destinations);
    }

    /// The replica handles everything that has arrived, and ends its turn.
    pub(crate) fn turn(&mut self, id: ReplicaId) {
        let mut effects = Vec::new();
        let node = self.node(id);
        for (by, acceptance) in std::mem::take(&mut node.words) {
            node.core.step(Event::Acknowledged { by, acceptance }, &mut effects);
        }
        self.read_log(id, &mut effects);
        let node = self.node(id);
        for (message, destinations) in std::mem::take(&mut node.inbox) {
            let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
            node.core.step(received, &mut effects);
        }
        for (message, destinations) in node.held.clone() {
            if node.core.log().leads() && !node.core.is_logged(message) {
                let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
                node.core.step(received, &mut effects);
            }
        }
        for heard in std::mem::take(&mut node.mail) {
            node.core.step(Event::Heard(heard), &mut effects);
        }
        node.core.step(Event::TurnEnd, &mut effects);
        self.carry_out(id, effects);
        self.deliver(id);
    }

    pub(super) fn read_log(&mut self, id: ReplicaId, effects: &mut Vec<EffectOf<O>>) {
        let node = self.nodes.get_mut(&id).expect("a replica of the cluster");
        if let Some(Header { ballot, base, first }) = node.header.take() {
            let lost = node.core.log().last_index().saturating_sub(base.index - 1);
            node.core.begin_to_follow(ballot, base.index - 1, first);
            node.cut(base);
            if lost > 0 {
                let from = base.index;
                writeln!(self.out, "{id} cuts its log off from {from} on").expect("memory");
            }
            let (slot, rank) = (id.slot, node.applied);
            let leader = ReplicaId::new(id.group, ballot.slot());
            self.core(leader).step(Event::Applied { slot, rank }, &mut Vec::new());
        }
        let node = self.nodes.get_mut(&id).expect("a replica of the cluster");
        while let Some(entry) = node.unread.pop_front() {
            node.take(entry, effects);
        }
    }

    pub(super) fn deliver(&mut self, id: ReplicaId) {
        while let Some(next) = self.core(id).deliver() {
            let (name, at) = (next.message.sequence, O::show(next.rank));
            self.say(format_args!("{id} delivers m{name} at {at}"));
            let node = self.node(id);
            node.delivered.push((name, next.rank));
            node.applied = next.rank;
        }
    }

    /// The leader receives the completions of all its writes into its followers' logs, or learns that it is denied.
    pub(crate) fn complete(&mut self, id: ReplicaId) {
        let (ballot, feeding) = (self.core(id).log().ballot(), self.node(id).feeding.clone());
        for (slot, index) in feeding {
            let follower = ReplicaId::new(id.group, slot);
            if self.node(follower).writer == Some(ballot) {
                if !self.lost_writes.contains(&(id, follower)) {
                    self.core(id).step(Event::Completed { slot, index }, &mut Vec::new());
                }
            } else if self.core(id).log().leads() {
                self.say(format_args!("{id} is denied by {follower}, and steps down"));
                self.core(id).step(Event::Denied, &mut Vec::new());
                self.node(id).feeding.clear();
            }
        }
        self.deliver(id);
    }

    /// Time passes for all replicas but those that are `down`: each sees the others' heartbeats, and reports how far it
    /// has applied what it delivers.
    pub(crate) fn pass(&mut self, ms: u64, down: &[ReplicaId]) {
        self.now_ms += ms;
        let up: Vec<_> = self.nodes.keys().copied().filter(|id| !down.contains(id)).collect();
        for id in up.iter().copied() {
            let others: Vec<_> = self.members(id.group).filter(|other| *other != id).collect();
            for other in others {
                let (slot, rank) = (other.slot, self.nodes[&other].applied);
                let dead = down.contains(&other);
                let pulse = if dead { Pulse::Dead } else { Pulse::Beat };
                let core = self.core(id);
                core.step(Event::Heartbeat { slot, pulse }, &mut Vec::new());
                if !dead {
                    core.step(Event::Applied { slot, rank }, &mut Vec::new());
                }
            }
        }
        for id in up {
            let (now_ms, rank) = (self.now_ms, self.node(id).applied);
            let mut effects = Vec::new();
            let core = self.core(id);
            core.step(Event::Applied { slot: id.slot, rank }, &mut effects);
            core.step(Event::Tick { now_ms }, &mut effects);
            self.carry_out(id, effects);
        }
    }
}
