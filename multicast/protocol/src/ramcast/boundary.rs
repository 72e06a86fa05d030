//! RamCast as an [`OrderingProtocol`]: routes each call to the module that answers it.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashSet;

use super::delivery::{DeliveryQueue, Lists};
use super::inspect::Inspection;
use super::log::{self, Draft};
use super::passed::Passed;
use super::quorums::Quorums;
use super::replayed::Replayed;
use super::retained::Retained;
use super::{Effect, Event, Paths, PeerEffect, PeerEvent, Ramcast, Record, leader};
use crate::ballot::Ballot;
use crate::divergence::Slots;
use crate::group::body::{Body, Contents};
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
use crate::group::{Backlog, Control, GroupLog};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::logged_set::LoggedSet;
use crate::ordering::{AnswerTo, At, Config, MessageStage, NotRestored, OrderingProtocol, Revival};
use crate::rank::Rank;
use crate::step::Deliver;
use crate::view::View;

impl OrderingProtocol for Ramcast {
    type Record = Record;
    type Body<'a> = log::Body<'a>;
    type Draft<'a> = Draft<'a>;
    type Inspection<'a> = Inspection<'a>;
    type PeerEvent = PeerEvent;
    type PeerEffect = PeerEffect;

    fn new(config: Config, view: View) -> Self {
        Self {
            config,
            log: GroupLog::new(config.group, view),
            ballots: vec![Ballot::ZERO; usize::from(config.groups)],
            clock: 0,
            quorums: Quorums::new(config.groups, &config.group),
            logged: LoggedSet::default(),
            order: DeliveryQueue::default(),
            uncommitted_multi_group: HashSet::new(),
            retained: Retained::new(config.groups),
            passed: Passed::new(config.group.me.group, config.groups),
            last_shared: 0,
            unreceived: BTreeMap::new(),
            remotes: Vec::new(),
            logged_remotes: Vec::new(),
            logged_from: 0,
            lists: Lists::default(),
            decisions: Vec::new(),
            logged_decisions: Vec::new(),
            decided_from: 0,
            asked_ms: 0,
            asking: leader::Asking::default(),
            asked: false,
            answered: false,
            replayed: Replayed::default(),
            paths: Paths::default(),
        }
    }

    fn anew(&self, view: View, ballot_counter: u32, clock: u64) -> Self {
        let passed = Passed::anew(self.group(), self.config.groups, clock);
        let log = self.log.anew(view.clone(), ballot_counter);
        Self { log, clock, passed, ..Self::new(self.config, view) }
    }

    fn save(&mut self, into: &mut Vec<u8>) {
        self.save_order(into);
    }

    fn restored(&self, saved: &[u8]) -> Result<Self, NotRestored> {
        let saved_in = self.saved_in(saved).ok_or(NotRestored::Malformed)?;
        if saved_in.generation() < self.log.promised().generation() {
            return Err(NotRestored::Outdated);
        }
        let mut restored = self.blank();
        restored.restore(saved).ok_or(NotRestored::Malformed)?;
        Ok(restored)
    }

    fn revive(&mut self, marker: Ballot, revival: Revival) {
        match revival {
            Revival::Survivor { view, clock } => {
                self.go_on(marker, view);
                self.clock = self.clock.max(clock);
            }
            Revival::Other => self.suspend(marker),
        }
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "whoever calls it knows which event it is, and need not look"
    )]
    fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick { now_ms } => self.tick(now_ms, effects),
            Event::Received { message, low_water, destinations, outside } => {
                assert!(
                    destinations.contains(self.group()),
                    "a message not addressed to this group"
                );
                if self.log.leads() {
                    self.receive(message, low_water, destinations, outside == 0, effects);
                } else {
                    self.unstall(message);
                }
            }
            Event::Heard(PeerEvent::Announced { from, announcement }) => {
                self.hear(from, &announcement, effects);
            }
            Event::Heard(PeerEvent::Awaited { by }) => self.raise_for(by, effects),
            Event::Exchanged => {
                assert!(self.log.leads(), "only the leader logs results");
                self.append(Record::Exchange, effects);
            }
            Event::Logged { index, birth, time_ms, record, held, last } => {
                assert!(!self.log.leads(), "only the leader itself writes its log");
                assert_eq!(index, self.log.last_index() + 1, "a follower never skips an entry");
                let entry = Uncommitted { index, birth, time_ms, record };
                self.accept(entry, held, last);
            }
            Event::Acknowledged { by, acceptance } => self.acknowledged(by, acceptance),
            Event::Completed { slot, index } => self.log.complete(slot, index),
            Event::Heartbeat { slot, pulse } => {
                self.log.saw_pulse(slot, pulse);
            }
            Event::Settled { group, rank } => self.retained.settled(group, rank.into()),
            Event::Applied { slot, rank } => self.log.hear_applied(slot, rank),
            Event::Waits { message, heard } => self.wait_for_results(message, heard, effects),
            Event::AllDelivered => self.pass_on(effects),
            Event::SessionEnded { session } => self.logged.end(session),
            Event::Lacked { message } => self.decide_for_follower(message),
            Event::Denied => self.step_down(),
            Event::Group(event) => self.happens(event, effects),
            Event::TurnEnd => self.end_turn(effects),
        }
    }

    fn control(&mut self, from: u8, control: Control<'_>, effects: &mut Vec<Effect>) {
        self.hear_control(from, control, effects);
    }

    fn accept(&mut self, at: At, body: &log::Body<'_>, held: bool, effects: &mut Vec<Effect>) {
        let At { index, birth, time_ms } = at;
        let mut log = |record, last| {
            self.step(Event::Logged { index, birth, time_ms, record, held, last }, effects);
        };
        match *body {
            log::Body::Remotes(remotes) => {
                self.accept_proposals(index, birth, time_ms, remotes.iter());
            }
            log::Body::Decided(decisions) => {
                let mut decisions = decisions.iter().peekable();
                while let Some(decision) = decisions.next() {
                    log(Record::Decided(decision), decisions.peek().is_none());
                }
            }
            _ => body.for_each_record(|record| log(record, true)),
        }
    }

    fn draft<'a>(&'a self, index: u64, record: &Record, contents: Contents<'a>) -> Draft<'a> {
        match record {
            Record::Remote(_) => Draft::Remotes(self.logged_remotes(index)),
            Record::Decided(_) => Draft::Decided(self.logged_decisions(index)),
            _ => Draft::of(record, contents),
        }
    }

    fn advance_commit(&mut self) {
        if let Some(index) = self.log.newly_committed() {
            self.fold(index);
        }
    }

    fn deliver(&mut self) -> Option<Deliver> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        let before = self.log.commit_index();
        self.advance_commit();
        let next = if self.log.commit_index() > before { self.next() } else { None };
        if next.is_none() {
            self.stand();
        }
        next
    }

    fn relieve(&mut self, backlog: &Backlog<'_>, effects: &mut Vec<Effect>) {
        self.go_on_without(backlog, effects);
    }

    #[inline]
    fn waits_for(&self, group: GroupId) -> bool {
        if group == self.group() {
            return !self.log.is_all_committed() || self.log.keeps_payloads();
        }
        self.order.len() > 0
    }

    fn hands_over(&self, lag: Slots) -> Option<u8> {
        self.log.hands_over(lag, &self.deliveries())
    }

    fn lacks(&mut self) -> Vec<MessageId> {
        self.lacks_for_long()
    }

    fn reply_dependency(&self, to: AnswerTo) -> Rank {
        self.passed.reply_dependency(to).into()
    }

    fn has_passed(&self, rank: Rank) -> bool {
        self.passed.has_passed(rank.into())
    }

    fn keeps_passed(&self) -> Rank {
        self.passed.by_us().into()
    }

    fn had_passed(&mut self, rank: Rank) {
        self.passed.had_passed(rank.into());
    }

    fn read_from(&self) -> (u64, u64) {
        (self.clock, self.last_shared)
    }

    fn has_caught_up(&mut self, read_from: (u64, u64)) -> bool {
        self.has_delivered_since(read_from)
    }

    fn log(&self) -> &GroupLog<Record> {
        &self.log
    }

    fn log_mut(&mut self) -> &mut GroupLog<Record> {
        &mut self.log
    }

    fn leader_of(&self, group: GroupId) -> ReplicaId {
        ReplicaId::new(group, self.ballot_of(group).slot())
    }

    fn orders(&self, destinations: GroupSet) -> bool {
        destinations.contains(self.config.group.me.group)
    }

    fn shared_with(&self, message: MessageId) -> GroupSet {
        self.retained.get(message).map_or(GroupSet::EMPTY, |retained| retained.destinations)
    }

    fn knows_recreated(&self) -> bool {
        let others = self.ballots.iter().copied();
        others.chain([self.log.ballot()]).any(|ballot| ballot.generation() > 0)
    }

    fn is_logged(&self, message: MessageId) -> bool {
        self.logged.contains(message)
    }

    fn stage_of(&self, message: MessageId) -> MessageStage {
        let logs = |entry: &Uncommitted<Record>| entry.record.local() == Some(message);
        match () {
            () if self.order.contains(message) => MessageStage::Pending,
            () if !self.logged.contains(message) => MessageStage::Unknown,
            () if self.log.uncommitted().any(logs) => MessageStage::Logged,
            () => MessageStage::Delivered,
        }
    }

    fn has_ended(&self, session: SessionId) -> bool {
        self.logged.has_ended(session)
    }

    fn delivered(&self) -> u64 {
        self.order.delivered()
    }

    fn inspect(&self) -> Inspection<'_> {
        Inspection(self)
    }
}
