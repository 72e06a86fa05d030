//! Membership: lost memory, state transfer, and changes of the view.

use std::collections::VecDeque;

use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::ordering::Inspect as _;
use skein_protocol::view::View;

use super::node::Node;
use super::{Stage, place};
use crate::played::Played;

impl<O: Played> Stage<O> {
    /// A replica's process is started again, without its memory.
    pub(crate) fn restart(&mut self, id: ReplicaId) {
        let incarnation = self.node(id).incarnation + 1;
        let (tree, count) = (self.tree, self.count);
        *self.node(id) = Node::new(id, incarnation, &tree, count);
        for member in self.members(id.group) {
            self.node(member).feeding.remove(&id.slot);
        }
        self.told.retain(|(by, _), _| *by != id);
        let words = self.told.iter().filter(|((_, to), _)| *to == id);
        self.node(id).words = words.map(|((by, _), word)| (*by, *word)).collect();
    }

    /// A leader transfers its state to a replica that has none, and writes its log from there on.
    pub(crate) fn transfer_state(&mut self, leader: ReplicaId, learner: ReplicaId) {
        self.give_state(leader, learner);
        self.ask(leader, learner);
    }

    /// A leader transfers its state to a replica that has none.
    pub(crate) fn give_state(&mut self, leader: ReplicaId, learner: ReplicaId) {
        let mut state = Vec::new();
        let node = self.node(leader);
        node.core.save(&mut state);
        let (commit, applied) = (node.core.log().commit_index(), node.applied);
        let mut runs = node.runs.clone();
        runs.truncate(place(commit));
        let delivered = node.delivered.clone();
        let node = self.node(learner);
        node.core.takes(&state);
        (node.runs, node.applied) = (runs, applied);
        (node.log, node.delivered) = (Vec::new(), delivered);
        (node.header, node.unread) = (None, VecDeque::new());
        self.say(format_args!("{leader} gives {learner} its state, up to {commit}"));
    }

    /// A leader logs that the present incarnation of a follower counts from here on.
    pub(crate) fn admitted(&mut self, leader: ReplicaId, follower: ReplicaId) {
        let (mut effects, incarnation) = (Vec::new(), self.node(follower).incarnation);
        self.core(leader).caught_up(follower.slot, incarnation, &mut effects);
        self.carry_out(leader, effects);
    }

    /// A leader logs that the log does not wait for a slot any more.
    pub(crate) fn evict(&mut self, leader: ReplicaId, slot: u8) -> bool {
        let mut effects = Vec::new();
        let done = self.core(leader).evicts(slot, &mut effects);
        self.carry_out(leader, effects);
        done
    }

    /// A group goes on from what one of its replicas has read. The others have lost their memory, and are given its state.
    pub(crate) fn revive(&mut self, survivor: ReplicaId) {
        let mut effects = Vec::new();
        self.read_log(survivor, &mut effects);
        let members: Vec<_> = self.members(survivor.group).collect();
        let counter_of = |id| {
            let core: &O = &self.nodes[id].core;
            core.inspect().counter_known_of(survivor.group)
        };
        let counter = members.iter().map(counter_of).max().expect("no group is empty");
        for id in members.iter().filter(|id| **id != survivor) {
            self.restart(*id);
        }
        let incarnations: Vec<_> = members.iter().map(|id| self.node(*id).incarnation).collect();
        let life = self.node(survivor).incarnation;
        let marker = Ballot::revived(counter, survivor.slot, life).expect("a generation is left");
        self.told.retain(|(by, to), _| by.group != survivor.group && to.group != survivor.group);
        let node = self.node(survivor);
        node.words.clear();
        node.feeding.clear();
        node.core.goes_on(marker, View::of(incarnations), 0);
        self.deliver(survivor);
        for id in members.iter().filter(|id| **id != survivor) {
            self.node(*id).words.clear();
            self.core(*id).waits_for_survivor(marker);
            self.give_state(survivor, *id);
        }
    }

    /// A group that is lost begins anew, with nothing, above the ballots that other groups know of.
    pub(crate) fn recreate(&mut self, group: GroupId) {
        let members: Vec<_> = self.members(group).collect();
        let others = self.nodes.iter().filter(|(id, _)| id.group != group);
        let counters = others.map(|(_, node)| node.core.inspect().counter_known_of(group));
        let counter = counters.max().unwrap_or(0);
        let (tree, count) = (self.tree, self.count);
        let incarnations: Vec<_> = members.iter().map(|id| self.node(*id).incarnation).collect();
        for id in &members {
            let incarnation = self.node(*id).incarnation;
            let core = self.core(*id).anew(View::of(incarnations.clone()), counter, 0);
            *self.node(*id) = Node { core, ..Node::new(*id, incarnation, &tree, count) };
        }
        self.told.retain(|(by, to), _| by.group != group && to.group != group);
    }
}
