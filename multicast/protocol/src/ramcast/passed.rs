//! What a reply may rest on: which messages have been *passed* by all who share them.
//!
//! The order of messages has no cycle, but it is not that of real time. A group may deliver a message
//! that it shares with another, which has not heard of it and puts a newer one before it, though
//! somebody was answered in between. So replies wait, and nothing else does.
//!
//! **What must hold.** A message *rests on* every message to several groups that one of its groups
//! delivers before it, and on what those rest on. A group *passes* a timestamp when everything up to
//! there that it shares, and all that this rests on, was delivered by some replica of each of its
//! destinations. What was delivered is committed there, so whatever a group is sent later it puts
//! behind. A reply leaves when its group has passed everything that it delivered before.
//!
//! A message to several groups needs less: its session waits for the answers of all of them, and each
//! says that it was delivered there. So the message itself need not be passed, only those before it.
//!
//! **How it is found out.** Of each group a replica keeps a *row* of facts: up to where some replica of
//! it has *delivered*, the *last* message of those that it shares with each other group, and up to
//! where it is known to have *passed*. Facts only grow, stay true whoever leads, and may come late,
//! twice and from anybody: leaders tell theirs, and what they were told, to the groups with which they
//! share something that is not passed. What was delivered is told at once. What is known to be passed only
//! makes walks shorter: it goes with what was delivered, or in the next tick.
//!
//! From us it is a walk to all that our messages can rest on: to the groups with which we share
//! something that is not passed, to those with which these do, and so on. Everything up to T is passed
//! here if for each pair (h, k) on that walk, over pairs that share something at or below T which is not
//! passed, k has delivered up to the last message that h shares with it, or up to T. One walk finds the
//! highest such T: however long a chain of overlapping messages is, it is passed at one look, and not a
//! message at a time.
//!
//! *Why that suffices.* Take any chain from us: m1 that we have delivered, at or below T; its
//! destination h1; m2 that h1 delivers no later than m1; and so on. By induction, the row of each h has
//! delivered up to its message: it stands in the row before as shared with h, so h has delivered up to
//! that or T, and the message is no higher than both. Hence the row of h tells of the next message,
//! which is lower still, unless that is passed, and then all that follows is. So every message of the
//! chain was delivered by each of its destinations.
//!
//! *Why nobody waits for ever.* What a group delivers is delivered by all destinations, if these have a
//! quorum; and a group with which nothing is shared at or below T holds nothing up, dead or alive.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::delivery::Pending;
use super::retained::LastWith;
use super::{Effect, PeerEffect, Ramcast, Record, Uncommitted};
use crate::bytes::{Reader, Writer};
use crate::group::on_log::OnLog as _;
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ordering::{AnswerTo, OrderingProtocol};
use crate::step::Deliver;
use crate::timestamp::Timestamp;

/// What is known of a group.
#[derive(Clone, Debug)]
struct Row {
    /// Some replica of it has delivered everything up to here. Of several groups' messages only.
    delivered: Timestamp,
    /// It is known to have passed everything up to here.
    passed: Timestamp,
    /// The last message up to `delivered`, or a later one, that it shares with each other group.
    last: LastWith,
    /// The first of those that it has not passed, or a lower timestamp.
    first: Vec<Timestamp>,
    /// The groups with which it shares one that it has not passed.
    shares: GroupSet,
}

impl Row {
    fn new(groups: u16) -> Self {
        let (delivered, passed) = (Timestamp::ZERO, Timestamp::ZERO);
        let (last, first) = (LastWith::new(groups), vec![Timestamp::ZERO; usize::from(groups)]);
        Self { delivered, passed, last, first, shares: GroupSet::EMPTY }
    }

    /// It shares messages with another group, none before `first` that it has not passed.
    fn share(&mut self, with: GroupId, first: Timestamp, last: Timestamp) {
        let at = with.index();
        self.last.raise(with, last);
        if self.last.get(with) > self.passed {
            self.shares = self.shares.with(with);
            self.first[at] = first.max(self.first[at]).max(self.passed.above());
        }
    }

    /// Returns whether that is new.
    fn pass(&mut self, timestamp: Timestamp) -> bool {
        let new = timestamp > self.passed;
        if new {
            self.passed = timestamp;
            for group in self.shares.iter() {
                if self.last.get(group) <= timestamp {
                    self.shares = self.shares.without(group);
                }
                let first = &mut self.first[group.index()];
                *first = timestamp.above().max(*first);
            }
        }
        new
    }
}

pub(super) struct Passed {
    own: GroupId,
    rows: Vec<Row>,
    /// What we have delivered behind `known_from` and not passed, with those we share it with.
    recent: VecDeque<(Timestamp, GroupSet)>,
    known_from: Timestamp,
    /// The last message to several groups that we delivered, and where the one before it ended.
    newest: Option<MessageId>,
    before: Timestamp,
    /// Nothing that is committed behind what is now ends at or below this.
    raised: Timestamp,
    /// Rows that each group has not been told since they changed.
    due: Vec<GroupSet>,
    /// Those of them that it may wait for.
    awaited: Vec<GroupSet>,
    /// Up to where each group was told that we have passed.
    told: Vec<Timestamp>,
    told_members: Timestamp,
    /// Something was delivered since it was last said.
    delivered: bool,
    /// Somebody may wait for what changed; there is something to find out.
    urgent: bool,
    dirty: bool,
    /// Up to where we had passed at the last tick, and since when.
    stands: (Timestamp, u64),
}

impl Passed {
    pub(super) fn new(own: GroupId, groups: u16) -> Self {
        let zero = vec![Timestamp::ZERO; usize::from(groups)];
        Self {
            own,
            rows: vec![Row::new(groups); usize::from(groups)],
            recent: VecDeque::new(),
            known_from: Timestamp::ZERO,
            newest: None,
            before: Timestamp::ZERO,
            raised: Timestamp::ZERO,
            due: vec![GroupSet::EMPTY; usize::from(groups)],
            awaited: vec![GroupSet::EMPTY; usize::from(groups)],
            told: zero,
            told_members: Timestamp::ZERO,
            delivered: false,
            urgent: false,
            dirty: false,
            stands: (Timestamp::ZERO, 0),
        }
    }

    /// Of a group that begins anew: whatever its former self delivered was at or below this clock, and
    /// nothing will be any more.
    pub(super) fn anew(own: GroupId, groups: u16, clock: u64) -> Self {
        let mut passed = Self::new(own, groups);
        let timestamp = Timestamp::new(clock, GroupId(Timestamp::GROUPS_MAX - 1));
        passed.rows[own.index()].delivered = timestamp;
        passed.rows[own.index()].passed = timestamp;
        (passed.before, passed.known_from) = (timestamp, timestamp);
        passed
    }

    /// The highest clock up to which any group is known to have delivered.
    pub(super) fn highest_clock(&self) -> u64 {
        self.rows.iter().map(|row| row.delivered.clock()).max().unwrap_or(0)
    }

    /// Up to where our group is known to have passed everything.
    pub(super) fn by_us(&self) -> Timestamp {
        self.row(self.own).passed
    }

    /// Up to where everything must be [passed](Self::has_passed) before an answer may go out: a reply to a message that was
    /// just delivered, or before, or a read that was just made.
    pub(super) fn reply_dependency(&self, to: AnswerTo) -> Timestamp {
        // Answers of all its groups say that the last one was delivered by all.
        let newest = matches!(to, AnswerTo::Message(message) if self.newest == Some(message));
        if newest { self.before } else { self.row(self.own).delivered }
    }

    /// Whether everything that this group has delivered up to a timestamp, and all that it rests on,
    /// was delivered by all its destinations.
    pub(super) fn has_passed(&self, timestamp: Timestamp) -> bool {
        guard!(Mutant::RepliesNotGated, timestamp <= self.by_us())
    }

    fn row(&self, group: GroupId) -> &Row {
        &self.rows[group.index()]
    }

    /// We have delivered a message to several groups.
    pub(super) fn deliver(&mut self, next: &Deliver) {
        let row = &mut self.rows[self.own.index()];
        self.newest = Some(next.message);
        self.before = row.delivered;
        let at = Timestamp::from(next.rank);
        row.delivered = at.max(row.delivered);
        let others = next.destinations.without(self.own);
        row.last.deliver(others, at);
        if at > row.passed {
            for group in others.minus(row.shares).iter() {
                row.first[group.index()] = at.max(row.first[group.index()]);
            }
            row.shares = row.shares.union(others);
            self.recent.push_back((at, others));
        }
        self.delivered = true;
    }

    /// What was delivered since the last time is news to others.
    fn note_delivered(&mut self) {
        if core::mem::take(&mut self.delivered) {
            self.changed(self.own, self.own);
        }
    }

    /// It is committed that nothing which is logged later ends at or below a timestamp.
    pub(super) fn raise(&mut self, timestamp: Timestamp) {
        self.raised = timestamp.max(self.raised);
    }

    /// Nothing that is pending ends at or below what was raised either.
    fn stand(&mut self) {
        self.rows[self.own.index()].delivered = self.raised;
        self.changed(self.own, self.own);
    }

    /// A row has changed in a way that others may wait for, as told by group `by`.
    fn changed(&mut self, row: GroupId, by: GroupId) {
        self.mark_due(row, by);
        for (awaited, due) in self.awaited.iter_mut().zip(&self.due) {
            if due.contains(row) {
                *awaited = awaited.with(row);
            }
        }
        self.urgent = true;
        self.dirty = true;
    }

    /// Whatever is due is told now.
    fn hurry(&mut self) {
        self.urgent |= self.due.iter().any(|due| !due.is_empty());
        self.awaited.copy_from_slice(&self.due);
    }

    fn mark_due(&mut self, row: GroupId, by: GroupId) {
        for (group, due) in self.due.iter_mut().enumerate() {
            let group = GroupId(group as u16);
            if ![self.own, by, row].contains(&group) {
                *due = due.with(row);
            }
        }
    }

    /// All groups that our messages can rest on, and the highest T up to which everything is passed.
    ///
    /// The *level* of a group is the least T that is high enough for our messages to rest on its: the
    /// highest `first` on the way there. Groups are taken in the order of their levels.
    fn reach(&self) -> (GroupSet, Timestamp) {
        let mut bound = self.row(self.own).delivered;
        let mut levels = [Timestamp::ZERO; GroupSet::CAPACITY as usize];
        let mut done = GroupSet::EMPTY;
        let mut left = GroupSet::single(self.own);
        while let Some(from) = left.iter().min_by_key(|group| levels[group.index()]) {
            let level = levels[from.index()];
            if level > bound {
                break;
            }
            (left, done) = (left.without(from), done.with(from));
            let row = self.row(from);
            for to in row.shares.iter() {
                let at = level.max(row.first[to.index()]);
                let delivered = self.row(to).delivered;
                if delivered < row.last.get(to) {
                    bound = bound.min(delivered.max(at.below()));
                }
                if !done.contains(to)
                    && !planted(Mutant::ClockTakenForDelivered)
                    && !planted(Mutant::PassedByNeighboursAlone)
                    && (!left.contains(to) || at < levels[to.index()])
                {
                    levels[to.index()] = at;
                    left = left.with(to);
                }
            }
        }
        (done.iter().filter(|group| levels[group.index()] <= bound).collect(), bound)
    }

    /// Finds out up to where we have passed by now.
    fn look(&mut self) {
        if !core::mem::take(&mut self.dirty) {
            return;
        }
        // What one walk passes elsewhere may let the next one go further.
        while self.row(self.own).passed < self.row(self.own).delivered {
            let (reached, bound) = self.reach();
            if bound <= self.row(self.own).passed {
                break;
            }
            // What holds of us holds of all that ours can rest on.
            for group in reached.iter().filter(|group| *group != self.own) {
                let row = &mut self.rows[group.index()];
                row.pass(bound.min(row.delivered));
            }
            self.pass_own(bound);
            self.mark_due(self.own, self.own);
        }
    }

    /// Takes note of what we have passed. Returns whether that is new.
    fn pass_own(&mut self, timestamp: Timestamp) -> bool {
        let row = &mut self.rows[self.own.index()];
        if !row.pass(timestamp) {
            return false;
        }
        while self.recent.pop_front_if(|(at, _)| *at <= timestamp).is_some() {}
        if timestamp >= self.known_from {
            let mut left = row.shares;
            for (at, with) in &self.recent {
                if left.is_empty() {
                    break;
                }
                let here: GroupSet = with.iter().filter(|group| left.contains(*group)).collect();
                for group in here.iter() {
                    row.first[group.index()] = *at;
                    left = left.without(group);
                }
            }
        }
        true
    }

    /// Whether a group may wait for something of ours, or of what we were told.
    fn concerns(&self, group: GroupId) -> bool {
        let (ours, theirs) = (self.row(self.own), self.row(group));
        ours.last.get(group) > self.told[group.index()] || theirs.shares.contains(self.own)
    }

    /// What a group is to be told now. Whoever shares something with it that is not passed tells it by
    /// itself; and so does whoever has delivered a message to us, to it and to that group, and none behind.
    fn take_owed(&mut self, group: GroupId) -> GroupSet {
        let ours = &self.row(self.own).last;
        let by_itself = |row: &GroupId| {
            let (of, theirs) = (self.row(*row), ours.get(*row));
            let last = theirs == of.delivered && theirs == ours.get(group);
            *row != self.own && (of.shares.contains(group) || last)
        };
        let (due, awaited) = (self.due[group.index()], self.awaited[group.index()]);
        let rows = due.iter().filter(|row| !by_itself(row)).collect::<GroupSet>();
        self.awaited[group.index()] = GroupSet::EMPTY;
        if !rows.iter().any(|row| awaited.contains(row)) {
            // Nobody waits for them: they go with what somebody waits for, or in the next tick.
            self.due[group.index()] = rows;
            return GroupSet::EMPTY;
        }
        self.due[group.index()] = GroupSet::EMPTY;
        if rows.contains(self.own) {
            self.told[group.index()] = self.row(self.own).passed;
        }
        rows
    }

    /// Whatever others were told before we led, they may not have heard.
    pub(super) fn lead(&mut self) {
        self.told.fill(Timestamp::ZERO);
        self.told_members = Timestamp::ZERO;
        self.changed(self.own, self.own);
        self.stands = (self.row(self.own).passed, 0);
    }

    /// Takes in what a group's replica tells. Returns whether it asks for what we know, or nothing if
    /// that makes no sense.
    fn hear(&mut self, by: GroupId, report: &[u8]) -> Option<bool> {
        let mut from = Reader(report);
        let asks = from.u8()? != 0;
        let groups = self.rows.len();
        for _ in 0..from.u16()? {
            let group = GroupId(from.u16()?);
            let delivered = Timestamp::from_word(from.u64()?);
            let passed = Timestamp::from_word(from.u64()?);
            if group.index() >= groups {
                return None;
            }
            let row = &mut self.rows[group.index()];
            // We know best what we have delivered.
            let own = group == self.own;
            let mut news = !own && delivered > row.delivered;
            if news {
                row.delivered = delivered;
            }
            for _ in 0..from.u16()? {
                let with = GroupId(from.u16()?);
                let first = Timestamp::from_word(from.u64()?);
                let last = Timestamp::from_word(from.u64()?);
                if with.index() >= groups {
                    return None;
                }
                if !own {
                    news |= last > row.last.get(with);
                    row.share(with, first, last);
                }
            }
            let passes = if own { self.pass_own(passed) } else { row.pass(passed) };
            if news {
                self.changed(group, by);
            } else if passes {
                self.mark_due(group, by);
                self.dirty = true;
            }
        }
        from.0.is_empty().then_some(asks)
    }

    fn report(&self, rows: GroupSet, own: Timestamp, asks: bool, into: &mut Vec<u8>) {
        let mut out = Writer(into);
        out.u8(u8::from(asks));
        out.u16(rows.len() as u16);
        for group in rows.iter() {
            let row = self.row(group);
            out.u16(group.0);
            out.u64(if group == self.own { own } else { row.delivered }.to_word());
            out.u64(row.passed.to_word());
            out.u16(row.shares.len() as u16);
            for with in row.shares.iter() {
                out.u16(with.0);
                out.u64(row.first[with.index()].to_word());
                out.u64(row.last.get(with).to_word());
            }
        }
    }

    /// What is part of a replica's state: our own row.
    pub(super) fn save(&self, out: &mut Writer<'_>) {
        let row = self.row(self.own);
        out.u64(row.delivered.to_word());
        out.u64(row.passed.to_word());
        for timestamp in row.last.iter() {
            out.u64(timestamp.to_word());
        }
        out.u64(self.raised.to_word());
    }

    /// Reads what [`save`](Self::save) wrote.
    pub(super) fn restore(from: &mut Reader<'_>, own: GroupId, groups: u16) -> Option<Self> {
        let mut restored = Self::new(own, groups);
        let row = &mut restored.rows[own.index()];
        row.delivered = Timestamp::from_word(from.u64()?);
        let passed = Timestamp::from_word(from.u64()?);
        for group in (0..groups).map(GroupId) {
            row.share(group, Timestamp::ZERO, Timestamp::from_word(from.u64()?));
        }
        row.pass(passed);
        restored.raised = Timestamp::from_word(from.u64()?);
        (restored.before, restored.known_from) = (row.delivered, row.delivered);
        Some(restored)
    }
}

impl Ramcast {
    /// As leader, when all was delivered that there was: tells other groups what they may wait for, and
    /// finds out what is passed by now. Nothing to do, unless some message went to several groups.
    #[inline]
    pub(super) fn pass_on(&mut self, effects: &mut Vec<Effect>) {
        if !self.log.leads() {
            return;
        }
        let own = self.group();
        self.passed.note_delivered();
        if core::mem::take(&mut self.passed.urgent) {
            for group in (0..self.config.groups).map(GroupId).filter(|group| *group != own) {
                if self.passed.due[group.index()].is_empty() || !self.passed.concerns(group) {
                    continue;
                }
                let rows = self.passed.take_owed(group);
                if !rows.is_empty() {
                    self.paths.rows_relayed += u64::from(!rows.without(own).is_empty());
                    let to = self.leader_of(group);
                    effects.push(Effect::Tell(PeerEffect::Pass { to, rows, asks: false }));
                }
            }
        }
        self.passed.look();
    }

    /// A replica of another group, or our leader, tells what it knows. Returns whether it asks what we
    /// know: then it [waits for us](super::PeerEvent::Awaited).
    pub fn hear_passed(
        &mut self,
        from: ReplicaId,
        report: &[u8],
        effects: &mut Vec<Effect>,
    ) -> bool {
        let asks = self.passed.hear(from.group, report) == Some(true);
        if asks {
            self.paths.asked_what_passed += 1;
            let (rows, _) = self.passed.reach();
            effects.push(Effect::Tell(PeerEffect::Pass { to: from, rows, asks: false }));
        }
        asks
    }

    /// As leader: a group waits until we have delivered what it shares with us. If there is no such
    /// message here, nor will be, the group or ours was recreated, and has it in a higher place than we
    /// had, or alone. So we shall have delivered everything up to there, once no later leader of ours
    /// can put anything there.
    pub(super) fn raise_for(&mut self, group: GroupId, effects: &mut Vec<Effect>) {
        let own = self.group();
        let (last, delivered) =
            (self.passed.row(group).last.get(own), self.passed.row(own).delivered);
        if !self.log.leads()
            || last <= delivered.max(self.passed.raised)
            || planted(Mutant::NeverRaised)
        {
            return;
        }
        let pending = |p: &Pending| p.destinations.contains(group) && p.bound() <= last;
        let logged = |entry: &Uncommitted<Record>| match entry.record {
            Record::Local { destinations, .. } => destinations.contains(group),
            Record::Raise { timestamp } => timestamp >= last,
            _ => false,
        };
        if self.order.iter().any(pending) || self.log.uncommitted().any(logged) {
            return;
        }
        self.clock = self.clock.max(last.clock());
        self.paths.raised += 1;
        self.append(Record::Raise { timestamp: last }, effects);
    }

    /// All was delivered that could be: if nothing is left at or below what was raised, that is as far
    /// as we have come.
    pub(super) fn stand(&mut self) {
        let raised = self.passed.raised;
        if raised > self.passed.row(self.group()).delivered
            && self.order.head().is_none_or(|(bound, _)| bound > raised)
        {
            self.passed.stand();
        }
    }

    /// What to tell of these groups.
    pub fn report_passed(&self, rows: GroupSet, asks: bool, into: &mut Vec<u8>) {
        let own = if planted(Mutant::ClockTakenForDelivered) {
            Timestamp::new(self.clock, GroupId(Timestamp::GROUPS_MAX - 1))
        } else {
            self.passed.row(self.group()).delivered
        };
        self.passed.report(rows, own, asks, into);
    }

    /// Our clock has risen: a mutant takes that for progress.
    pub(super) fn clock_has_risen(&mut self) {
        if planted(Mutant::ClockTakenForDelivered) {
            self.passed.changed(self.group(), self.group());
        }
    }

    /// As leader, in each tick: what nobody waits for is told now, so that followers and other groups
    /// know what is over. What we wait for is asked of everybody, for whoever leads may not know that
    /// we do, or we who leads.
    pub(super) fn settle_passed(&mut self, effects: &mut Vec<Effect>) {
        let (own, now) = (self.group(), self.log.now_ms());
        let (delivered, passed) = (self.passed.row(own).delivered, self.passed.row(own).passed);
        self.passed.hurry();
        if passed > self.passed.told_members {
            self.passed.told_members = passed;
            let rows = GroupSet::single(own);
            effects.extend(self.log.others().map(|slot| {
                let to = ReplicaId::new(own, slot);
                Effect::Tell(PeerEffect::Pass { to, rows, asks: false })
            }));
        }
        if passed >= delivered || passed != self.passed.stands.0 {
            self.passed.stands = (passed, now);
            return;
        }
        if now < self.passed.stands.1 + self.config.group.timeout_ms {
            return;
        }
        self.passed.stands.1 = now;
        let (rows, _) = self.passed.reach();
        for group in self.passed.row(own).shares.iter() {
            for slot in 0..self.config.group.replicas {
                let to = ReplicaId::new(group, slot);
                effects.push(Effect::Tell(PeerEffect::Pass { to, rows, asks: true }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
