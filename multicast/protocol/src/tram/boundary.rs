//! This ordering as an [`OrderingProtocol`]: routes each call to the module that answers it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::edges::{Children, Incoming};
use super::gate::Gate;
use super::names::Names;
use super::neighbours::Retries;
use super::pending::PendingQueue;
use super::shared::Shared;
use super::tree::Tree;
use super::waiting::Waiting;
use super::{Body, Draft, Effect, Event, Inspection, Needed, PeerEffect, PeerEvent, Record, Tram};
use crate::ballot::Ballot;
use crate::divergence::Slots;
use crate::group::body::{Body as _, Contents};
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
use crate::group::{Backlog, Control, GroupLog};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::mutants::{Mutant, planted};
use crate::ordering::{AnswerTo, At, Config, MessageStage, NotRestored, OrderingProtocol, Revival};
use crate::rank::Rank;
use crate::step::Deliver;
use crate::view::View;

impl OrderingProtocol for Tram {
    type Record = Record;
    type Body<'a> = Body<'a>;
    type Draft<'a> = Draft<'a>;
    type Inspection<'a> = Inspection<'a>;
    type PeerEvent = PeerEvent;
    type PeerEffect = PeerEffect;

    /// # Panics
    /// If the tree has another number of groups than the cluster.
    fn new(config: Config, view: View) -> Self {
        let (tree, own) = (Tree::from(&config.tree), config.group.me.group);
        assert_eq!(tree.groups(), config.groups, "the tree is of all groups");
        Self {
            config,
            log: GroupLog::new(config.group, view),
            generation: 0,
            ballots: vec![Ballot::ZERO; usize::from(config.groups)],
            logged: Names::default(),
            incoming: Incoming::new(config.groups),
            children: Children::of(&tree, own, config.held_bytes_max),
            gate: Gate::new(tree, own),
            waiting: Waiting::default(),
            pending: PendingQueue::default(),
            delivered: 0,
            shared: Shared::new(tree, own),
            newest: None,
            last_shared: 0,
            retries: Retries::new(config.groups),
            ungated: false,
            clock: 0,
            lacked: None,
            repeats: VecDeque::new(),
            stale: Vec::new(),
            tree,
        }
    }

    /// Ranks go on above those of the former group, because they name its generation, and clocks above this one.
    fn anew(&self, view: View, ballot_counter: u32, clock: u64) -> Self {
        let log = self.log.anew(view.clone(), ballot_counter);
        let counter = Ballot::recreated(ballot_counter).expect("a generation is left");
        let generation = Ballot::new(counter, 0, 0).generation();
        Self { log, generation, clock, ungated: self.ungated, ..Self::new(self.config, view) }
    }

    fn save(&mut self, into: &mut Vec<u8>) {
        self.save_state(into);
    }

    fn restored(&self, saved: &[u8]) -> Result<Self, NotRestored> {
        self.with_state(saved)
    }

    /// The survivor numbers anew what its children have not acknowledged; the others take that with its state.
    fn revive(&mut self, marker: Ballot, revival: Revival) {
        match revival {
            Revival::Survivor { view, clock } => {
                self.go_on(marker, view);
                self.clock = clock;
                self.generation = marker.generation();
                for (child, table) in self.children.iter_mut() {
                    self.gate.renumbered(child, table.renumber());
                }
            }
            Revival::Other => self.suspend(marker),
        }
    }

    fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick { now_ms } => self.tick(now_ms, effects),
            Event::Received { message, low_water, destinations, outside } => {
                if self.log.leads() {
                    self.receive(message, low_water, destinations, outside, effects);
                } else {
                    self.unstall(message);
                }
            }
            Event::Heard(PeerEvent::Passed { from, ballot, edge, sum, held }) => {
                self.hears_ballot(from.group, ballot);
                if self.log.leads() {
                    self.hear_edge(from, &edge, (sum, held), effects);
                }
            }
            Event::Exchanged => {
                assert!(self.log.leads(), "only the leader logs results");
                self.append(Record::Exchange, effects);
            }
            Event::Logged { index, birth, time_ms, record, held, last } => {
                assert!(!self.log.leads(), "only the leader itself writes its log");
                assert_eq!(index, self.log.last_index() + 1, "a follower never skips an entry");
                self.accept_record(Uncommitted { index, birth, time_ms, record }, held, last);
            }
            Event::Acknowledged { by, acceptance } => {
                if by.group == self.config.group.me.group {
                    self.log.acknowledged(by.slot, acceptance);
                }
            }
            Event::Completed { slot, index } => self.log.complete(slot, index),
            Event::Heartbeat { slot, pulse } => self.log.saw_pulse(slot, pulse),
            Event::Applied { slot, rank } => self.log.hear_applied(slot, rank),
            Event::SessionEnded { session } => self.logged.end(session),
            Event::Denied => self.step_down(),
            Event::Group(event) => self.happens(event, effects),
            Event::TurnEnd => self.end_turn(effects),
            // Other groups tell the places that they have applied: their ranks mean nothing here.
            Event::Settled { group, rank } if group == self.own() => self.shared.settle(rank),
            Event::Waits { message, heard } => self.wait_for_results(message, heard, effects),
            // A committed message is delivered at once.
            Event::Settled { .. } | Event::AllDelivered | Event::Lacked { .. } => {}
        }
    }

    fn control(&mut self, from: u8, control: Control<'_>, effects: &mut Vec<Effect>) {
        self.hear_control(from, control, effects);
    }

    fn accept(&mut self, at: At, body: &Body<'_>, held: bool, effects: &mut Vec<Effect>) {
        let At { index, birth, time_ms } = at;
        body.for_each_record(|record| {
            self.step(Event::Logged { index, birth, time_ms, record, held, last: true }, effects);
        });
    }

    fn draft<'a>(&'a self, _: u64, record: &Record, contents: Contents<'a>) -> Draft<'a> {
        Draft::of(record, contents)
    }

    fn advance_commit(&mut self) {
        if let Some(index) = self.log.newly_committed() {
            self.fold(index);
        }
    }

    fn deliver(&mut self) -> Option<Deliver> {
        if self.pending.is_empty() {
            self.advance_commit();
        }
        self.next()
    }

    fn relieve(&mut self, backlog: &Backlog<'_>, effects: &mut Vec<Effect>) {
        self.go_on_without(backlog, effects);
    }

    fn waits_for(&self, group: GroupId) -> bool {
        group == self.config.group.me.group
            && (!self.log.is_all_committed() || self.log.keeps_payloads())
    }

    fn hands_over(&self, lag: Slots) -> Option<u8> {
        self.log.hands_over(lag, &self.deliveries())
    }

    /// A committed message is delivered at once, so a follower lacks nothing.
    fn lacks(&mut self) -> Vec<MessageId> {
        Vec::new()
    }

    fn reply_dependency(&self, to: AnswerTo) -> Rank {
        let end = Rank::new(u64::MAX);
        match (to, self.newest) {
            _ if self.ungated => Rank::NOTHING,
            (AnswerTo::Message(message), Some((newest, destinations, rank)))
                if newest == message =>
            {
                self.gate.reply_dependency(destinations, rank)
            }
            // A repeated answer waits for all that was delivered when it is repeated.
            (AnswerTo::Message(_), _) => {
                self.gate.reply_dependency(GroupSet::single(self.config.group.me.group), end)
            }
            (AnswerTo::Read, _) => self.gate.read_dependency(end),
        }
    }

    fn has_passed(&self, rank: Rank) -> bool {
        self.gate.has_passed(rank)
    }

    /// A group that shares messages with us may be down when we are back, and its word with it.
    fn keeps_passed(&self) -> Rank {
        self.gate.passed(self.newest.map_or(Rank::NOTHING, |(_, _, rank)| rank))
    }

    fn had_passed(&mut self, rank: Rank) {
        self.gate.had_passed(rank);
    }

    /// Our log must be committed up to this index. Later entries are answered by this leader only, in our ballot.
    fn read_from(&self) -> (u64, u64) {
        (0, self.last_shared)
    }

    fn has_caught_up(&mut self, (_, shared): (u64, u64)) -> bool {
        let delivered = self.pending.first().is_none_or(|first| first.index > shared);
        self.log.commit_index() >= shared && delivered
    }

    fn log(&self) -> &GroupLog<Record> {
        &self.log
    }

    fn log_mut(&mut self) -> &mut GroupLog<Record> {
        &mut self.log
    }

    fn leader_of(&self, group: GroupId) -> ReplicaId {
        let own = group == self.config.group.me.group;
        let ballot = if own { self.log.ballot() } else { self.ballots[group.index()] };
        ReplicaId::new(group, ballot.slot())
    }

    fn orders(&self, destinations: GroupSet) -> bool {
        self.tree.lca(destinations) == self.own()
    }

    fn unheard_by(&self, session: SessionId) -> Vec<MessageId> {
        let mut recent = self.logged.recent();
        recent.retain(|it| it.session == session && self.stage_of(*it) == MessageStage::Delivered);
        recent
    }

    /// A message that we have is ordered again behind all that is on its way to our children, and is not while it is on its
    /// way itself.
    fn hear_lacked(&mut self, message: MessageId, destinations: GroupSet) {
        let stage = self.stage_of(message);
        let over = matches!(stage, MessageStage::Delivered | MessageStage::Pending);
        let again =
            self.log.leads() && self.orders(destinations) && over && !self.children.keep(message);
        self.lacked = again.then_some(message);
    }

    fn orders_again(&self, message: MessageId) -> bool {
        self.lacked == Some(message)
    }

    /// While no group above us was recreated, everything that is ordered comes.
    fn hands_in(&self, message: MessageId, destinations: GroupSet) -> bool {
        self.log.leads()
            && self.incoming.may_lack(self.generation)
            && destinations.contains(self.own())
            && !self.orders(destinations)
            && !self.logged.contains(message)
            && !self.waiting.has(message)
            && !planted(Mutant::LackedNotHandedIn)
    }

    fn shared_with(&self, message: MessageId) -> GroupSet {
        self.shared.destinations(message).unwrap_or(GroupSet::EMPTY)
    }

    fn knows_recreated(&self) -> bool {
        self.incoming.may_lack(self.generation)
            || self.ballots.iter().any(|ballot| ballot.generation() > 0)
    }

    fn passes_on(&self, message: MessageId) -> bool {
        let Self { children, repeats, waiting, .. } = self;
        Needed { children, repeats, waiting }.has(message) && !planted(Mutant::PayloadNotPassedOn)
    }

    fn awaits(&self, message: MessageId) -> Option<(GroupSet, u64)> {
        self.waiting.awaits(message)
    }

    fn is_waiting(&self, message: MessageId) -> bool {
        self.waiting.has(message)
    }

    fn has_untold(&self) -> bool {
        self.gate.is_stirred() || self.log.leads() && self.children.has_unsent()
    }

    fn is_logged(&self, message: MessageId) -> bool {
        self.logged.contains(message)
    }

    fn stage_of(&self, message: MessageId) -> MessageStage {
        match () {
            () if self.pending.contains(message) => MessageStage::Pending,
            () if !self.logged.contains(message) => MessageStage::Unknown,
            () if self.logged.is_uncommitted(message) => MessageStage::Logged,
            () => MessageStage::Delivered,
        }
    }

    fn has_ended(&self, session: SessionId) -> bool {
        self.logged.has_ended(session)
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }

    fn inspect(&self) -> Inspection<'_> {
        Inspection(self)
    }
}
