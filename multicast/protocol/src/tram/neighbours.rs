//! What a group passes on and reports to its parent and to its children, and what it hears of them.
//!
//! A *report* holds facts that stay true: how far its group has taken its parent's edges, which destinations are closed,
//! and the words of the [gate](super::gate). A leader sends a report when it has news, and to all replicas of the other
//! group while it waits for an answer: their leader may have changed. Every replica learns from the reports that reach
//! it, so that it need not ask when it leads. One that has missed some, and keeps what others do not need any more, asks
//! for another: a *question*, which says nothing but whose ballot it knows.

use alloc::vec;
use alloc::vec::Vec;

use super::edges::EdgeNumber;
use super::results::{APPLIED, ASKS_APPLIED, ASKS_RESULT};
use super::{Effect, PeerEffect, Record, Tram};
use crate::backoff::longer;
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::ordering::OrderingProtocol as _;
use crate::tram::content::Content;

/// Time after which a leader sends again what was not answered.
const RETRY_MS: u64 = 2;

/// Time after which a follower asks for what its leader was told.
const ASK_MS: u64 = 20;

/// Tags of datagrams.
const REPORT: u8 = 0;
const REPORT_ASKS: u8 = 1;
const QUESTION: u8 = 2;

/// Most edges that are sent again at once.
const AGAIN_MAX: usize = 64;

/// Most edges to a child in one turn.
const TURN_MAX: usize = 256;

/// As leader: what other groups were told last, and when what they owe is asked for again.
#[derive(Default)]
pub(super) struct Retries {
    /// For each group: time of the last attempt, or of the last news from it if that is later, and number of attempts since.
    attempts: Vec<(u64, u32)>,
    /// Our last report to each group: to its leader, and to its other replicas.
    told: Vec<Vec<u8>>,
    spread: Vec<Vec<u8>>,
    /// Scratch: a report that may be told.
    report: Vec<u8>,
    /// Scratch: messages that no child is yet to acknowledge.
    over: Vec<MessageId>,
    /// By group: when it last told news of how far it has applied what it delivers, or was asked for that since, and how
    /// often it was asked.
    pub(super) applied_asked: Vec<(u64, u32)>,
    /// Our parent is to be told again what we have taken.
    pub(super) owes_parent: bool,
    /// We have asked our parent since the last tick.
    asked_parent: bool,
}

impl Retries {
    /// Nothing was told to any of so many groups.
    pub(super) fn new(groups: u16) -> Self {
        let groups = usize::from(groups);
        let reports = vec![Vec::new(); groups];
        let (told, spread) = (reports.clone(), reports);
        let attempts = vec![(0, 0); groups];
        let applied_asked = attempts.clone();
        Self { attempts, told, spread, applied_asked, ..Self::default() }
    }

    /// The group has sent news: what it still owes may be on its way.
    fn has_answered(&mut self, group: GroupId, now_ms: u64) {
        self.attempts[group.index()] = (now_ms, 0);
    }
}

impl Tram {
    /// As leader, at the end of a turn: passes on what is committed and was not sent.
    pub(super) fn pass_on(&mut self, effects: &mut Vec<Effect>) {
        let (ours, ballots) = (self.generation, &self.ballots);
        for (child, table) in self.children.iter_mut() {
            let to = ReplicaId::new(child, ballots[child.index()].slot());
            let edges = table.send(ours, TURN_MAX);
            effects.extend(edges.map(|edge| Effect::Tell(PeerEffect::Pass { to, edge })));
        }
    }

    /// As leader, at the end of a turn: reports to the leaders of our neighbours what they were not told.
    pub(super) fn tell(&mut self, news: bool, effects: &mut Vec<Effect>) {
        let owes = core::mem::take(&mut self.retries.owes_parent);
        if !news && !owes {
            return;
        }
        let mut report = core::mem::take(&mut self.retries.report);
        for group in self.neighbours().iter() {
            let to = self.leader_of(group);
            report.clear();
            self.report(to, false, &mut report);
            let is_parent = self.tree.parent(self.own()) == Some(group);
            let told = &mut self.retries.told[group.index()];
            if report != *told || owes && is_parent {
                core::mem::swap(told, &mut report);
                effects.push(Effect::Tell(PeerEffect::Report { to, asks: false }));
            }
        }
        self.retries.report = report;
    }

    fn neighbours(&self) -> GroupSet {
        let children = self.tree.children(self.own());
        self.tree.parent(self.own()).map_or(children, |parent| children.with(parent))
    }

    /// As leader: an edge from our parent is missing. Asks once until the next tick.
    pub(super) fn ask_parent(&mut self, effects: &mut Vec<Effect>) {
        let Some(parent) = self.tree.parent(self.own()) else { return };
        if !core::mem::replace(&mut self.retries.asked_parent, true) {
            let to = self.leader_of(parent);
            effects.push(Effect::Tell(PeerEffect::Report { to, asks: true }));
        }
    }

    /// We begin to lead: all neighbours are asked, and told everything again.
    pub(super) fn meet_neighbours(&mut self, effects: &mut Vec<Effect>) {
        self.retries = Retries::new(self.config.groups);
        self.waiting.clear();
        for (_, table) in self.children.iter_mut() {
            table.rewind();
        }
        for group in self.neighbours().iter() {
            self.ask_all(group, effects);
        }
    }

    fn ask_all(&self, group: GroupId, effects: &mut Vec<Effect>) {
        for slot in 0..self.config.group.replicas {
            let to = ReplicaId::new(group, slot);
            effects.push(Effect::Tell(PeerEffect::Report { to, asks: true }));
        }
    }

    /// As leader, once a tick: reports to the other replicas of our neighbours what their leaders were told. Without that
    /// they would keep edges and entries for ever.
    pub(super) fn spread(&mut self, effects: &mut Vec<Effect>) {
        for group in self.neighbours().iter() {
            let leader = self.leader_of(group);
            let Retries { told, spread, .. } = &mut self.retries;
            let (told, spread) = (&told[group.index()], &mut spread[group.index()]);
            if told != spread {
                spread.clone_from(told);
                let all = (0..self.config.group.replicas).map(|slot| ReplicaId::new(group, slot));
                let others = all.filter(|to| *to != leader);
                effects
                    .extend(others.map(|to| Effect::Tell(PeerEffect::Report { to, asks: false })));
            }
        }
    }

    /// As leader, once a tick: sends again, to all replicas of a neighbour, what that has not answered.
    pub(super) fn retry(&mut self, effects: &mut Vec<Effect>) {
        self.retries.asked_parent = false;
        let now_ms = self.log.now_ms();
        for group in self.neighbours().iter() {
            let is_parent = self.tree.parent(self.own()) == Some(group);
            let table = self.children.get_mut(group);
            let (awaited, closed) =
                table.map_or((false, false), |it| (it.is_awaited(), it.has_reported_closed()));
            let blocked = is_parent && !self.incoming.may_order(self.log.ballot().generation());
            let waits = awaited || closed || blocked || self.gate.waits_for(group);
            let attempts = &mut self.retries.attempts[group.index()];
            if !waits {
                *attempts = (now_ms, 0);
                continue;
            }
            if now_ms < attempts.0 + longer(RETRY_MS, attempts.1) {
                continue;
            }
            *attempts = (now_ms, attempts.1.saturating_add(1));
            if awaited {
                self.pass_again(group, effects);
            }
            self.ask_all(group, effects);
        }
    }

    /// As follower, once a tick: asks for reports that would let it drop what it keeps.
    pub(super) fn ask_for_reports(&mut self, effects: &mut Vec<Effect>) {
        let now_ms = self.log.now_ms();
        for group in self.neighbours().iter() {
            let keeps = self.children.get_mut(group).is_some_and(|it| it.unacknowledged() > 0);
            let waits = keeps || self.gate.waits_for(group);
            let attempts = &mut self.retries.attempts[group.index()];
            if !waits {
                *attempts = (now_ms, 0);
            } else if now_ms >= attempts.0 + longer(ASK_MS, attempts.1) {
                *attempts = (now_ms, attempts.1.saturating_add(1));
                self.ask_all(group, effects);
            }
        }
    }

    /// Passes on the oldest unacknowledged edges again, to all replicas of a child.
    fn pass_again(&mut self, child: GroupId, effects: &mut Vec<Effect>) {
        let (ours, replicas) = (self.generation, self.config.group.replicas);
        let Some(table) = self.children.get_mut(child) else { return };
        for to in (0..replicas).map(|slot| ReplicaId::new(child, slot)) {
            let again = table.again(ours, AGAIN_MAX);
            effects.extend(again.map(|edge| Effect::Tell(PeerEffect::Pass { to, edge })));
        }
    }

    /// Appends our report to a replica of our parent or of a child. A follower has none, and appends a question.
    pub fn report(&self, to: ReplicaId, asks: bool, bytes: &mut Vec<u8>) {
        let mut out = Writer(bytes);
        if !self.log.leads() {
            out.u8(QUESTION);
            return out.u64(self.log.ballot().to_word());
        }
        out.u8(if asks { REPORT_ASKS } else { REPORT });
        out.u64(self.log.ballot().to_word());
        if self.tree.parent(self.own()) == Some(to.group) {
            let EdgeNumber { generation, number } = self.incoming.committed();
            out.u32(generation);
            out.u64(number);
            out.u64(self.children.closed(&self.tree).to_bits());
            for group in self.tree.below(self.own()).iter() {
                out.u64(self.gate.tells_up(group));
            }
        } else {
            let table = self.children.iter().find(|(child, _)| *child == to.group);
            out.u32(table.map_or(0, |(_, table)| table.child_generation()));
            out.u32(self.generation);
            for group in self.tree.below(to.group).iter() {
                out.u64(self.gate.tells_down(group));
            }
        }
    }

    /// Handles a report of another replica, or what it says of results. A malformed one, or a report of a
    /// group that is not our neighbour, is ignored.
    pub fn hear_report(&mut self, from: ReplicaId, report: &[u8], effects: &mut Vec<Effect>) {
        let mut reader = Reader(report);
        let head = (|| Some((reader.u8()?, Ballot::from_word(reader.u64()?))))();
        let Some((tag, ballot)) = head else { return };
        if matches!(tag, APPLIED | ASKS_APPLIED | ASKS_RESULT) {
            self.hear_of_results(from, (tag, ballot), &mut reader, effects);
            return;
        }
        if tag == QUESTION && self.neighbours().contains(from.group) {
            self.hears_ballot(from.group, ballot);
            if self.log.leads() {
                effects.push(Effect::Tell(PeerEffect::Report { to: from, asks: false }));
            }
            return;
        }
        let asks = tag == REPORT_ASKS;
        let heard = if self.tree.parent(self.own()) == Some(from.group) {
            self.hear_parent(from.group, &mut reader)
        } else {
            self.hear_child(from.group, ballot, &mut reader, effects)
        };
        if heard.is_none() {
            return;
        }
        self.hears_ballot(from.group, ballot);
        if self.log.leads() && asks {
            if let Some(table) = self.children.get_mut(from.group) {
                table.rewind();
            }
            effects.push(Effect::Tell(PeerEffect::Report { to: from, asks: false }));
        }
    }

    /// Raises the ballot that is known of another group's leaders.
    pub(super) fn hears_ballot(&mut self, group: GroupId, ballot: Ballot) {
        let known = &mut self.ballots[group.index()];
        if ballot.slot() < self.config.group.replicas {
            *known = ballot.max(*known);
        }
    }

    fn hear_parent(&mut self, parent: GroupId, from: &mut Reader<'_>) -> Option<()> {
        let (ours, generation) = (from.u32()?, from.u32()?);
        let words = words(self.tree.below(self.own()), from)?;
        // Words count in one pair of generations.
        let counts = ours == self.log.ballot().generation()
            && generation == self.incoming.committed().generation;
        let mut news = false;
        for (group, word) in words.filter(|_| counts) {
            news |= self.gate.hear_down(group, word);
        }
        if news {
            self.retries.has_answered(parent, self.log.now_ms());
        }
        Some(())
    }

    fn hear_child(
        &mut self,
        child: GroupId,
        ballot: Ballot,
        from: &mut Reader<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<()> {
        let taken = EdgeNumber { generation: from.u32()?, number: from.u64()? };
        let closed = GroupSet::from_bits(from.u64()?);
        let words = words(self.tree.below(child), from)?;
        let (ours, generation) = (self.generation, ballot.generation());
        let closed_before = self.children.closed(&self.tree);
        let mut over = core::mem::take(&mut self.retries.over);
        if self.children.acknowledge(child, (ours, taken), generation, &mut over) {
            self.retries.has_answered(child, self.log.now_ms());
        }
        // The others are dropped when they are delivered, or when all followers have them.
        let acknowledged = over.drain(..).filter(|message| !self.may_need(*message));
        effects.extend(acknowledged.map(|message| Effect::Forget { message }));
        self.retries.over = over;
        let table = self.children.get_mut(child)?;
        if generation == table.child_generation() {
            // A deposed leader may say what its successor has taken back.
            if ballot >= self.ballots[child.index()] {
                table.report_closed(closed);
            }
            for (group, word) in words.filter(|_| taken.generation == ours) {
                self.gate.hear_up(group, word);
            }
        } else if generation > table.child_generation() && self.log.leads() {
            let content = Content::Marker { group: child, generation };
            let record = Record::Ordered { content, taken: None, known: false };
            if !self.log.uncommitted().any(|entry| entry.record == record) {
                self.order(content, None, false, effects);
            }
        }
        self.retries.owes_parent |= self.children.closed(&self.tree) != closed_before;
        Some(())
    }

    /// As leader of a root that was recreated: nobody else can order its marker.
    pub(super) fn mark_root(&mut self, effects: &mut Vec<Effect>) {
        let (group, generation) = (self.own(), self.log.ballot().generation());
        let is_root = self.tree.parent(group).is_none();
        if is_root && !self.incoming.may_order(generation) {
            let content = Content::Marker { group, generation };
            self.order(content, None, false, effects);
        }
    }
}

/// Words of the groups in turn. `None` if there are too few.
fn words<'a>(
    groups: GroupSet,
    from: &'a mut Reader<'_>,
) -> Option<impl Iterator<Item = (GroupId, u64)> + 'a> {
    let enough = from.0.len() >= groups.len() * size_of::<u64>();
    enough.then(|| groups.iter().map_while(|group| Some((group, from.u64()?))))
}
