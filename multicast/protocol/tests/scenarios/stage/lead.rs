//! Leadership: campaigns, grants, and writes into logs.

use skein_protocol::ballot::Ballot;
use skein_protocol::group::{Cause, GroupEvent};
use skein_protocol::ids::ReplicaId;
use skein_protocol::step::Event;

use super::Stage;
use super::node::Header;
use crate::by_hand::Vote;
use crate::played::Played;

impl<O: Played> Stage<O> {
    /// A replica sets out to lead.
    pub(crate) fn campaign(&mut self, id: ReplicaId, cause: Cause) {
        self.close_log(id);
        let ballot = self.core(id).campaign(cause);
        self.say(format_args!("{id} sets out to lead in {ballot}"));
        let node = self.node(id);
        node.feeding.clear();
        node.forced = matches!(cause, Cause::Operator | Cause::Transfer | Cause::Preempted);
        node.writer = Some(ballot);
        let (incarnation, last) = (
            node.incarnation,
            (node.core.log().inspect().last_birth(), node.core.log().last_index()),
        );
        let named = node.core.log().named();
        let won = node.core.granted(id.slot, incarnation, last, named);
        assert!(won.is_none(), "nobody is a quorum");
    }

    /// A replica sets out to lead whatever the others promised, in a ballot above all their promises.
    pub(crate) fn run(&mut self, id: ReplicaId, asking: &[ReplicaId]) {
        for other in asking {
            let promised = self.core(*other).log().promised();
            self.core(id).hear_refusal(promised);
        }
        self.campaign(id, Cause::Operator);
        for other in asking {
            self.ask(id, *other);
        }
    }

    /// A candidate, or a leader, asks for the right to write another's log.
    pub(crate) fn ask(&mut self, from: ReplicaId, to: ReplicaId) {
        let core = self.core(from);
        let leads = core.log().leads();
        let (ballot, admitted) = (core.log().promised(), core.log().admitted());
        let forced = self.node(from).forced;
        self.core(to).hear_admitted(ballot, admitted[usize::from(to.slot)]);
        match self.core(to).judge(ballot, leads, forced) {
            Vote::Nothing => {
                self.say(format_args!("{to} does not answer {from}"));
            }
            Vote::Refuse => {
                let promised = self.core(to).log().promised();
                self.say(format_args!("{to} refuses {ballot}, by its promise of {promised}"));
                self.core(from).hear_refusal(promised);
            }
            Vote::GrantAgain => {
                self.close_log(to);
                self.report(to, from, ballot);
            }
            Vote::Grant => {
                self.close_log(to);
                self.core(to).let_lead(ballot);
                self.node(to).feeding.clear();
                self.report(to, from, ballot);
            }
        }
    }

    /// Revokes the right to write the log, and reads what is in it.
    pub(super) fn close_log(&mut self, id: ReplicaId) {
        let mut effects = Vec::new();
        self.node(id).writer = None;
        self.read_log(id, &mut effects);
        self.core(id).step(Event::TurnEnd, &mut effects);
        self.carry_out(id, effects);
    }

    fn report(&mut self, by: ReplicaId, to: ReplicaId, ballot: Ballot) {
        let node = self.node(by);
        node.writer = Some(ballot);
        let (birth, last, named) = (
            node.core.log().inspect().last_birth(),
            node.core.log().last_index(),
            node.core.log().named(),
        );
        let incarnation = node.incarnation;
        match birth {
            Ballot::ZERO => self.say(format_args!("{by} grants {ballot}; its log is empty")),
            _ => self.say(format_args!("{by} grants {ballot}; its log ends at {last}, of {birth}")),
        }
        if self.core(to).log().leads() {
            self.admit(to, by);
        } else if let Some(best) = self.core(to).granted(by.slot, incarnation, (birth, last), named)
        {
            self.win(to, ReplicaId::new(to.group, best));
        }
    }

    fn win(&mut self, id: ReplicaId, best: ReplicaId) {
        let mut effects = Vec::new();
        if best != id {
            self.say(format_args!("{id} takes over the log of {best}"));
            let (runs, log) = (self.nodes[&best].runs.clone(), self.nodes[&best].log.clone());
            let node = self.node(id);
            let base = node.runs.shared(&runs).expect("few leaders");
            node.core.happens(GroupEvent::CutOff { last: base.index - 1 });
            node.cut(base);
            for entry in log.into_iter().filter(|entry| entry.index >= base.index) {
                node.take(entry, &mut effects);
            }
            node.core.step(Event::TurnEnd, &mut effects);
        }
        self.core(id).begin_to_lead(&mut effects);
        self.carry_out(id, effects);
        let ballot = self.core(id).log().ballot();
        for slot in 0..self.count {
            let granter = ReplicaId::new(id.group, slot);
            if slot != id.slot && self.nodes[&granter].writer == Some(ballot) {
                self.admit(id, granter);
            }
        }
    }

    /// The leader begins to write a log that was opened to it, from where that log differs from its own.
    fn admit(&mut self, leader: ReplicaId, follower: ReplicaId) {
        let (runs, incarnation) =
            (self.nodes[&follower].runs.clone(), self.nodes[&follower].incarnation);
        let node = self.node(leader);
        let base = node.runs.shared(&runs).expect("few leaders");
        let (ballot, first) = (node.core.log().ballot(), node.core.log().first_index());
        node.core.add_follower(follower.slot, incarnation);
        node.feeding.insert(follower.slot, base.index - 1);
        if !self.lost_writes.contains(&(leader, follower)) {
            let node = self.node(follower);
            node.header = Some(Header { ballot, base, first });
            node.unread.clear();
        }
        self.write_followers(leader);
    }

    pub(super) fn write_followers(&mut self, leader: ReplicaId) {
        let node = &self.nodes[&leader];
        let (ballot, log) = (node.core.log().ballot(), node.log.clone());
        // Effects of the core may still append more.
        let last = log.last().map_or(node.core.log().last_index(), |entry| entry.index);
        for (slot, sent) in node.feeding.clone() {
            let id = ReplicaId::new(leader.group, slot);
            self.node(leader).feeding.insert(slot, last);
            let lost = self.lost_writes.contains(&(leader, id));
            let follower = self.node(id);
            if follower.writer == Some(ballot) && !lost {
                follower.unread.extend(log.iter().filter(|entry| entry.index > sent).cloned());
            }
        }
    }
}
