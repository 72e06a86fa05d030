//! What a reply depends on: which messages have been *passed* by all groups that share them.
//!
//! The order of messages has no cycle, but it is not the order of real time. A group may deliver a message that it
//! shares with another group, while that group has not received it and orders a newer message before it, although a
//! session has received a reply in between. So replies wait; nothing else does.
//!
//! **What must hold.** A message *depends on* every message to several groups that one of its groups delivers before
//! it, and on what those depend on. A group *passes* a timestamp when everything up to there that it shares, and all
//! that this depends on, was delivered by some replica of each of its destinations. A delivered message is committed in
//! that group, so the group orders everything that it receives later behind it. A reply is sent when its group has
//! passed everything that it delivered before.
//!
//! A message to several groups needs less: its session waits for the replies of all of them, and each reply shows that
//! the message was delivered there. So the message itself need not be passed, only those before it.
//!
//! **How it is computed.** For each group a replica keeps a *row* of facts: the timestamp up to which some replica of
//! the group has *delivered*, the *last* message that the group shares with each other group, and the timestamp up to
//! which the group is known to have *passed*. Facts only grow, hold under every leader, and may arrive late, twice and
//! from any replica. Leaders send their own facts, and those that they have received, to the groups with which they
//! share something that is not passed. Deliveries are sent at once. A passed timestamp only makes walks shorter: it is
//! sent with a delivery, or in the next tick.
//!
//! A walk begins at our group and visits all groups on which our messages can depend: the groups with which we share
//! something that is not passed, those with which these do, and so on. Everything up to T is passed here if for each
//! pair (h, k) on that walk, over pairs that share something at or below T which is not passed, k has delivered up to
//! the last message that h shares with it, or up to T. One walk finds the highest such T: a chain of overlapping
//! messages of any length is passed in one walk, and not one message at a time.
//!
//! *Why that suffices.* Take any chain from our group: m1, which we have delivered, at or below T; its destination h1;
//! m2, which h1 delivers no later than m1; and so on. By induction, the row of each h shows that h has delivered up to
//! its message: the row before it shows the message as shared with h, so h has delivered up to that message or up to T,
//! and the message is no higher than either. Hence the row of h contains the next message, which is lower still, unless
//! that message is passed, and then everything after it is passed too. So every message of the chain was delivered by
//! each of its destinations.
//!
//! *Why no reply waits for ever.* What one group delivers is delivered by all destinations, if these have a quorum. A
//! group with which nothing is shared at or below T delays nothing, whether it is available or not.

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

/// The facts about one group. They only grow.
#[derive(Clone, Debug)]
struct Row {
    /// Some replica of the group has delivered every message to several groups up to here.
    delivered: Timestamp,
    /// The group is known to have passed everything up to here.
    passed: Timestamp,
    /// The last message up to `delivered`, or a later one, that the group shares with each other group.
    last: LastWith,
    /// For each other group, the first shared message that is not passed, or a lower timestamp.
    first: Vec<Timestamp>,
    /// The groups with which it shares a message that it has not passed.
    shares: GroupSet,
}

impl Row {
    fn new(groups: u16) -> Self {
        let (delivered, passed) = (Timestamp::ZERO, Timestamp::ZERO);
        let (last, first) = (LastWith::new(groups), vec![Timestamp::ZERO; usize::from(groups)]);
        Self { delivered, passed, last, first, shares: GroupSet::EMPTY }
    }

    /// Notes that the group shares messages with another, up to `last`. All of them before `first` are passed.
    fn share(&mut self, with: GroupId, first: Timestamp, last: Timestamp) {
        let at = with.index();
        self.last.raise(with, last);
        if self.last.get(with) > self.passed {
            self.shares = self.shares.with(with);
            self.first[at] = first.max(self.first[at]).max(self.passed.above());
        }
    }

    /// Raises `passed`. Returns whether it rose.
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
    /// Messages that we have delivered above `known_from` and not passed, with the other groups that share them.
    recent: VecDeque<(Timestamp, GroupSet)>,
    known_from: Timestamp,
    /// The last message to several groups that we delivered, and the timestamp up to which we had delivered before it.
    newest: Option<MessageId>,
    before: Timestamp,
    /// Nothing that is committed from now on ends at or below this.
    raised: Timestamp,
    /// For each group, the rows that have changed since they were last sent to it.
    due: Vec<GroupSet>,
    /// Those rows in `due` for which the group may wait.
    awaited: Vec<GroupSet>,
    /// `passed` of our row, as last sent to each group and to our own members.
    told: Vec<Timestamp>,
    told_members: Timestamp,
    /// Whether something was delivered since our row was last marked as changed.
    delivered: bool,
    /// `urgent`: a group may wait for a changed row. `dirty`: a walk may find something new.
    urgent: bool,
    dirty: bool,
    /// `passed` of our row at the last tick, and the time at which it was first seen, or last asked about.
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

    /// The state of a group that was recreated: whatever its former self delivered was at or below this clock, and
    /// nothing new ends there.
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

    /// Timestamp up to which our group is known to have passed everything.
    pub(super) fn by_us(&self) -> Timestamp {
        self.row(self.own).passed
    }

    /// Timestamp up to which everything must be [passed](Self::has_passed) before an answer may be sent: a reply to a
    /// message that was delivered, or the result of a read that was just made.
    pub(super) fn reply_dependency(&self, to: AnswerTo) -> Timestamp {
        // The replies of all its groups show that the last message was delivered by all of them.
        let newest = matches!(to, AnswerTo::Message(message) if self.newest == Some(message));
        if newest { self.before } else { self.row(self.own).delivered }
    }

    /// Whether everything that this group has delivered up to a timestamp, and all that it depends on, was delivered by
    /// all its destinations.
    pub(super) fn has_passed(&self, timestamp: Timestamp) -> bool {
        guard!(Mutant::RepliesNotGated, timestamp <= self.by_us())
    }

    fn row(&self, group: GroupId) -> &Row {
        &self.rows[group.index()]
    }

    /// Notes that we have delivered a message to several groups.
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

    /// Marks our row as changed if something was delivered since the last call.
    fn note_delivered(&mut self) {
        if core::mem::take(&mut self.delivered) {
            self.changed(self.own, self.own);
        }
    }

    /// Notes a committed `Raise`: nothing that is logged later ends at or below the timestamp.
    pub(super) fn raise(&mut self, timestamp: Timestamp) {
        self.raised = timestamp.max(self.raised);
    }

    /// Nothing pending ends at or below the raised timestamp either: raises our row to it.
    fn stand(&mut self) {
        self.rows[self.own.index()].delivered = self.raised;
        self.changed(self.own, self.own);
    }

    /// Marks a row as changed, as reported by group `by`. Other groups may wait for the change.
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

    /// Marks whatever is due as awaited, so that it is sent now.
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

    /// All groups on which our messages can depend, and the highest T up to which everything is passed.
    ///
    /// The *level* of a group is the least T at which our messages can depend on its messages: the highest `first` on
    /// the way there. Groups are visited in the order of their levels.
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

    /// Computes up to where we have passed by now.
    fn look(&mut self) {
        if !core::mem::take(&mut self.dirty) {
            return;
        }
        // What one walk passes in other rows may let the next walk go further.
        while self.row(self.own).passed < self.row(self.own).delivered {
            let (reached, bound) = self.reach();
            if bound <= self.row(self.own).passed {
                break;
            }
            // What is passed for our group is passed for every group on which our messages can depend.
            for group in reached.iter().filter(|group| *group != self.own) {
                let row = &mut self.rows[group.index()];
                row.pass(bound.min(row.delivered));
            }
            self.pass_own(bound);
            self.mark_due(self.own, self.own);
        }
    }

    /// Raises `passed` of our row. Returns whether it rose.
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

    /// A former process of this replica knew that everything up to here was passed.
    pub(super) fn had_passed(&mut self, timestamp: Timestamp) {
        if self.pass_own(timestamp) {
            self.mark_due(self.own, self.own);
        }
    }

    /// Whether a group may wait for our row, or for one that we have received.
    fn concerns(&self, group: GroupId) -> bool {
        let (ours, theirs) = (self.row(self.own), self.row(group));
        ours.last.get(group) > self.told[group.index()] || theirs.shares.contains(self.own)
    }

    /// Takes the rows to send to a group now. Another group sends its row by itself if it shares something with the
    /// receiver that is not passed, or if the last message that it delivered went to us and to the receiver, and is the
    /// last that we share with both.
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
            // The receiver waits for none of them: they are sent with a row that is awaited, or in the next tick.
            self.due[group.index()] = rows;
            return GroupSet::EMPTY;
        }
        self.due[group.index()] = GroupSet::EMPTY;
        if rows.contains(self.own) {
            self.told[group.index()] = self.row(self.own).passed;
        }
        rows
    }

    /// As new leader: other groups may not have received what was sent to them before.
    pub(super) fn lead(&mut self) {
        self.told.fill(Timestamp::ZERO);
        self.told_members = Timestamp::ZERO;
        self.changed(self.own, self.own);
        self.stands = (self.row(self.own).passed, 0);
    }

    /// Takes in the report of a group's replica. Returns whether the replica asks for our rows; `None` if the report is
    /// malformed.
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
            // Reports about our own deliveries add nothing.
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

    /// Appends our own row, which is part of a replica's state.
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
    /// As leader, when everything that could be delivered was: sends other groups the rows for which they may wait, and
    /// computes what is passed by now. Does nothing unless some message went to several groups.
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

    /// Handles a report of a replica of another group, or of our leader. Returns whether it asks for our rows: then its
    /// group [waits for us](super::PeerEvent::Awaited).
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

    /// As leader: a group waits until we have delivered what it shares with us. If no such message is here, nor will
    /// be, that group or ours was recreated, and it has the message at a higher timestamp than we had, or alone. So we
    /// shall have delivered everything up to there, once no later leader of ours can put anything there: the `Raise`
    /// ensures that.
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

    /// Everything that could be delivered was. If nothing is pending at or below the raised timestamp, we have
    /// delivered up to it.
    pub(super) fn stand(&mut self) {
        let raised = self.passed.raised;
        if raised > self.passed.row(self.group()).delivered
            && self.order.head().is_none_or(|(bound, _)| bound > raised)
        {
            self.passed.stand();
        }
    }

    /// Appends the report of these rows.
    pub fn report_passed(&self, rows: GroupSet, asks: bool, into: &mut Vec<u8>) {
        let own = if planted(Mutant::ClockTakenForDelivered) {
            Timestamp::new(self.clock, GroupId(Timestamp::GROUPS_MAX - 1))
        } else {
            self.passed.row(self.group()).delivered
        };
        self.passed.report(rows, own, asks, into);
    }

    /// For a mutant, which takes a risen clock for progress.
    pub(super) fn clock_has_risen(&mut self) {
        if planted(Mutant::ClockTakenForDelivered) {
            self.passed.changed(self.group(), self.group());
        }
    }

    /// As leader, in each tick: sends the rows for which no group waits, so that followers and other groups learn what
    /// is over. What this leader waits for, it asks of all replicas: the leader there may not have learned that this
    /// one waits, nor this one who leads there.
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
