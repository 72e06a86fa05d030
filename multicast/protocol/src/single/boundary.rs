//! This ordering as an [`OrderingProtocol`]: routes each call to the module that answers it.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Body, Draft, Effect, Event, Inspection, Never, Record, Single};
use crate::ballot::Ballot;
use crate::divergence::Slots;
use crate::group::body::{Body as _, Contents};
use crate::group::on_log::OnLog as _;
use crate::group::ordering::NoOthers;
use crate::group::uncommitted::Uncommitted;
use crate::group::{Backlog, Control, GroupLog};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::logged_set::LoggedSet;
use crate::ordering::{AnswerTo, At, Config, MessageStage, NotRestored, OrderingProtocol, Revival};
use crate::rank::Rank;
use crate::step::Deliver;
use crate::view::View;

impl OrderingProtocol for Single {
    type Record = Record;
    type Body<'a> = Body<'a>;
    type Draft<'a> = Draft<'a>;
    type Inspection<'a> = Inspection<'a>;
    type PeerEvent = Never;
    type PeerEffect = Never;

    /// # Panics
    /// If there is more than one group.
    fn new(config: Config, view: View) -> Self {
        assert_eq!(config.groups, 1, "it orders the messages of one group");
        Self {
            config,
            log: GroupLog::new(config.group, view),
            logged: LoggedSet::default(),
            pending: VecDeque::new(),
            delivered: 0,
            base: 0,
            last_shared: 0,
        }
    }

    fn anew(&self, view: View, ballot_counter: u32, clock: u64) -> Self {
        let log = self.log.anew(view.clone(), ballot_counter);
        Self { log, base: clock, ..Self::new(self.config, view) }
    }

    fn save(&mut self, into: &mut Vec<u8>) {
        self.save_state(into);
    }

    fn restored(&self, saved: &[u8]) -> Result<Self, NotRestored> {
        self.with_state(saved)
    }

    fn revive(&mut self, marker: Ballot, revival: Revival) {
        match revival {
            Revival::Survivor { view, clock } => {
                self.go_on(marker, view);
                self.base = self.base.max(clock);
            }
            Revival::Other => self.suspend(marker),
        }
    }

    fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick { now_ms } => self.tick(now_ms, effects),
            Event::Received { message, low_water, outside, .. } => {
                if self.log.leads() {
                    self.receive(message, low_water, outside == 0, effects);
                } else {
                    self.unstall(message);
                }
            }
            Event::Heard(never) => match never {},
            Event::Logged { index, birth, time_ms, record, held, last } => {
                assert!(!self.log.leads(), "only the leader itself writes its log");
                assert_eq!(index, self.log.last_index() + 1, "a follower never skips an entry");
                self.take(Uncommitted { index, birth, time_ms, record }, held, last);
            }
            Event::Acknowledged { by, acceptance } => self.log.acknowledged(by.slot, acceptance),
            Event::Completed { slot, index } => self.log.complete(slot, index),
            Event::Heartbeat { slot, pulse } => self.log.saw_pulse(slot, pulse),
            Event::Applied { slot, rank } => self.log.hear_applied(slot, rank),
            Event::SessionEnded { session } => self.logged.end(session),
            Event::Denied => self.step_down(),
            Event::Group(event) => self.happens(event, effects),
            Event::TurnEnd => self.end_turn(effects),
            // There are no other groups to wait for.
            Event::Exchanged
            | Event::Settled { .. }
            | Event::Waits { .. }
            | Event::AllDelivered
            | Event::Lacked { .. } => {}
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

    fn waits_for(&self, _: GroupId) -> bool {
        !self.log.is_all_committed() || self.log.keeps_payloads()
    }

    fn hands_over(&self, lag: Slots) -> Option<u8> {
        self.log.hands_over(lag, &NoOthers)
    }

    /// A committed message is delivered at once, so a follower lacks nothing.
    fn lacks(&mut self) -> Vec<MessageId> {
        Vec::new()
    }

    /// No other group delivers what this group has delivered, so replies depend on nothing.
    fn reply_dependency(&self, _: AnswerTo) -> Rank {
        Rank::NOTHING
    }

    fn has_passed(&self, _: Rank) -> bool {
        true
    }

    fn keeps_passed(&self) -> Rank {
        Rank::NOTHING
    }

    fn had_passed(&mut self, _: Rank) {}

    /// Our log must be committed up to this index. Later entries are answered by this leader only, in our ballot.
    fn read_from(&self) -> (u64, u64) {
        (0, self.last_shared)
    }

    fn has_caught_up(&mut self, (_, shared): (u64, u64)) -> bool {
        let delivered = self.pending.front().is_none_or(|first| first.index > shared);
        self.log.commit_index() >= shared && delivered
    }

    fn log(&self) -> &GroupLog<Record> {
        &self.log
    }

    fn log_mut(&mut self) -> &mut GroupLog<Record> {
        &mut self.log
    }

    fn leader_of(&self, group: GroupId) -> ReplicaId {
        ReplicaId::new(group, self.log.ballot().slot())
    }

    fn orders(&self, destinations: GroupSet) -> bool {
        destinations.contains(self.config.group.me.group)
    }

    fn is_logged(&self, message: MessageId) -> bool {
        self.logged.contains(message)
    }

    fn stage_of(&self, message: MessageId) -> MessageStage {
        let logs = |entry: &Uncommitted<Record>| matches!(entry.record, Record::Message { message: logged, .. } if logged == message);
        match () {
            () if self.pending.iter().any(|it| it.message == message) => MessageStage::Pending,
            () if !self.logged.contains(message) => MessageStage::Unknown,
            () if self.log.uncommitted().any(logs) => MessageStage::Logged,
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
