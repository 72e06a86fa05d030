//! Giving the state to a replica that has none, while the group goes on; and taking it.
//!
//! The leader copies its state machine part by part, a few each turn, with what changes meanwhile
//! copied again; when little is left it ends the copy between two deliveries, with the ordering
//! state at its commit index. From there on its log holds whatever the learner lacks, and the learner
//! is let in like any follower. A part is made only when the one before it is in the learner's ring:
//! the copy takes no memory to speak of.
//!
//! A leader that is deposed keeps the copy for a while. Where elections are frequent, the same replica often
//! leads again after a moment, and copies that began anew each time would never end. The machine has what is
//! committed, whoever leads, so the copy stays what it was: what has changed since is copied again.

use std::time::Instant;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::Applied;
use skein_protocol::group::runs::Runs;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ramcast::{Ramcast, Role, longer};

use super::Replica;
use super::results::{Given, Told};
use crate::application::Application;
use crate::election::{Content, CopyId, Election, Part, Place, Taken, cursor, place};
use crate::wiring::{Note, Wiring};

/// Bytes of a part: it travels in one frame of a ring between replicas.
const PART_BYTES: usize = 48 << 10;
/// Parts made in one turn at most.
const PARTS_PER_TURN: usize = 2;
/// How long a learner waits for the next part before it asks anew.
const PART_WAIT_MS: u64 = 300;
/// How long a follower waits for what the others have applied before it asks for their state, in
/// patiences.
const LEFT_BEHIND_PATIENCE: u64 = 10;
/// How long a learner may take nothing of a state, or of the log behind it, before it is given up.
const UNANSWERED_MS: u64 = 1_000;
/// How often a learner asks.
const ASK_EVERY_MS: u64 = 50;
/// How long a question of a learner says that it is one.
const ASKED_RECENTLY_MS: u64 = 400;

/// A life that asks for a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    incarnation: u32,
    at_ms: u64,
    /// It has no state of the group's present generation.
    blank: bool,
}

/// What a leader gives away.
pub(super) struct Teaching {
    slot: u8,
    incarnation: u32,
    pub(super) next: u64,
    pub(super) bytes: u64,
    /// So little of the state is left to send that it can end at the next moment when the machine has
    /// all results that are committed. Under load that is between two deliveries, and rarely at the
    /// end of a turn.
    pub(super) ripe: bool,
    /// Everything was sent: from here on the log is kept for it.
    done: bool,
    /// We were deposed: nothing is sent until the learner asks for the rest, and we may give it.
    paused: bool,
    pub(super) copy: CopyId,
    /// Time at which this copy began.
    began_ms: u64,
    /// Time at which the last part was sent.
    pub(super) sent_ms: u64,
    /// Copies that were begun for this learner before this one.
    times: u32,
}

impl Teaching {
    /// Whether what a learner lacks that has `taken` so much may be on its way. It asks until something is there,
    /// and where both are slow a question is read after the answer to the one before was sent: a copy that began
    /// anew each time would never end. Each time it is given longer.
    fn is_on_its_way(&self, taken: Option<Taken>, now: u64) -> bool {
        let takes = taken.is_some_and(|taken| taken.copy == self.copy);
        let since = if takes { self.sent_ms } else { self.began_ms };
        self.is_under_way() && now < since + longer(ASK_EVERY_MS, self.times)
    }

    pub(super) fn holds_log_for(&self, slot: u8) -> bool {
        self.done && self.slot == slot
    }

    pub(super) const fn slot(&self) -> u8 {
        self.slot
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Whether more is about to be sent.
    pub(super) const fn is_under_way(&self) -> bool {
        !self.done && !self.paused
    }
}

/// What a learner has taken so far.
pub(super) struct Taking<A> {
    application: A,
    teacher: u8,
    copy: CopyId,
    next: u64,
    pub(super) bytes: u64,
    last_ms: u64,
    machine_is_whole: bool,
    began: Instant,
}

impl<A> Taking<A> {
    /// Whether a part of that replica's state is the next of those taken here.
    fn goes_on_with(&self, from: u8, part: &Part) -> bool {
        (self.teacher, self.copy, self.next) == (from, part.copy, part.number)
    }
}

/// The ordering state, as sent.
#[derive(Serialize, Deserialize)]
struct Order {
    core: Vec<u8>,
    runs: Vec<(u64, Place)>,
    end: Place,
    payloads: Vec<Payload>,
    /// Results that the state machine was given of messages that are not over: name, group.
    heard: Vec<(u64, u64, u16)>,
    /// What the state machine exchanged and others may still need.
    results: Vec<(u64, u64, Vec<u16>, Vec<u8>)>,
    last_applied: u64,
    last_delivered: u64,
    /// What the machine has not done with: name, timestamp, what an answer rests on.
    given: Vec<(u64, u64, u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    session: u64,
    sequence: u64,
    low_water: u64,
    destinations: Vec<u16>,
    bytes: Vec<u8>,
}

fn groups(set: GroupSet) -> Vec<u16> {
    set.iter().map(|group| group.0).collect()
}

fn group_set(groups: &[u16]) -> Option<GroupSet> {
    let known = groups.iter().all(|group| *group < GroupSet::CAPACITY);
    known.then(|| groups.iter().map(|group| GroupId(*group)).collect())
}

/// What is kept of messages, in the order of their names: it is told in the same bytes each time.
pub(super) fn sorted<T>(of: &HashMap<MessageId, T>) -> impl Iterator<Item = (&MessageId, &T)> {
    let mut all: Vec<_> = of.iter().collect();
    all.sort_unstable_by_key(|(message, _)| **message);
    all.into_iter()
}

impl<A: Application> Replica<A> {
    /// A learner asks for the state, or says that it is there: one that has a state takes no other, and
    /// would not be asked to be let in as long as it is given one. One that another leader left behind, who
    /// leads no more, takes no state of ours before we have asked it to let us in.
    pub(super) fn asked_for_state(
        &mut self,
        slot: u8,
        incarnation: u32,
        needs: Option<u64>,
        applied: Applied,
        taken: Option<Taken>,
    ) {
        let at_ms = self.core.log().now_ms();
        let blank = needs == Some(Ballot::ZERO.to_word());
        self.asking[usize::from(slot)] = Some(Asking { incarnation, at_ms, blank });
        self.core.log_mut().saw_learner(slot, incarnation);
        let busy = self.teaching.as_ref().is_some_and(|teaching| teaching.slot != slot);
        let takes = needs.map(Ballot::from_word);
        let takes = takes.is_some_and(|by| by == Ballot::ZERO || by == self.core.log().ballot());
        let gives = self.core.log().seeds(slot, incarnation)
            || self.core.log().leads() && self.core.may_teach(applied);
        if !takes || busy || !self.is_trusted() || !gives {
            return; // It asks again.
        }
        let same = |it: &&Teaching| (it.slot, it.incarnation) == (slot, incarnation);
        let before = self.teaching.as_ref().filter(same);
        if before.is_some_and(|teaching| teaching.is_on_its_way(taken, at_ms)) {
            return; // It asked before that was there.
        }
        let times = before.map_or(0, |teaching| teaching.times + 1);
        self.follower_lost(slot);
        self.core.log_mut().gives_state(slot);
        let goes_on = |teaching: &&mut Teaching| {
            let has = Taken { copy: teaching.copy, next: teaching.next };
            (teaching.incarnation, Some(has)) == (incarnation, taken) && !teaching.done
        };
        if let Some(teaching) = self.teaching.as_mut().filter(goes_on) {
            (teaching.paused, teaching.sent_ms) = (false, at_ms);
            self.paths.copy_resumed += 1;
            return;
        }
        self.give_up_teaching();
        tracing::info!(replica = %self.id, slot, incarnation, "gives its state to a learner");
        self.application.begin_copy();
        self.copies += 1;
        self.teaching = Some(Teaching {
            slot,
            incarnation,
            next: 0,
            bytes: 0,
            ripe: false,
            done: false,
            paused: false,
            copy: CopyId { giver: self.incarnation, number: self.copies },
            began_ms: at_ms,
            sent_ms: at_ms,
            times,
        });
    }

    pub(super) fn stop_teaching(&mut self, slot: u8) {
        if self.teaching.as_ref().is_some_and(|teaching| teaching.slot == slot) {
            self.give_up_teaching();
        }
    }

    /// A receiver of our state that takes nothing more, or has all of it and does not let us write its log, keeps
    /// other learners from being served, and the log from being freed. If it goes on it asks anew.
    pub(super) fn give_up_unanswering(&mut self) {
        let now = self.core.log().now_ms();
        let Some(teaching) = &self.teaching else { return };
        if now < teaching.sent_ms + UNANSWERED_MS || planted(Mutant::StoppedLearnerKept) {
            return;
        }
        if !teaching.paused {
            tracing::warn!(replica = %self.id, slot = teaching.slot, "gives up a learner that does not answer");
            self.paths.learner_given_up += 1;
        }
        self.give_up_teaching();
    }

    /// We lead no more. What was given whole, whoever leads now does not know of.
    pub(super) fn pause_teaching(&mut self) {
        match &mut self.teaching {
            Some(teaching) if !teaching.done => teaching.paused = true,
            _ => self.give_up_teaching(),
        }
    }

    pub(super) fn give_up_teaching(&mut self) {
        if self.teaching.take().is_some_and(|teaching| !teaching.done) {
            self.application.give_up_copy();
        }
    }

    /// Sends the next parts of the state, if the learner has room. Returns whether there were any.
    pub(crate) fn teach<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        let mut any = false;
        for _ in 0..PARTS_PER_TURN {
            let Some(teaching) = self.teaching.as_ref().filter(|it| it.is_under_way()) else {
                break;
            };
            let to = ReplicaId::new(self.id.group, teaching.slot);
            if !wiring.has_sent_all(self.id, to) {
                break;
            }
            any = true;
            let mut part = Vec::with_capacity(PART_BYTES + 1024);
            let ripe = self.application.copy(PART_BYTES, &mut part);
            self.send_part(Content::Machine, &part, wiring);
            self.teaching.as_mut().expect("somebody is taught").ripe = ripe;
            self.finish_teaching(wiring);
        }
        any
    }

    /// Sends the last part of the state, if little is left and the machine is at the commit index. It
    /// may wait for other groups' results: they may depend on what our group commits, and that on the
    /// learner.
    pub(super) fn finish_teaching<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        let ripe = self.teaching.as_ref().is_some_and(|it| it.ripe && it.is_under_way());
        let drained =
            || self.exchanged.front().is_none_or(|e| e.index > self.core.log().commit_index());
        if !ripe || !drained() {
            return;
        }
        let mut part = Vec::new();
        self.application.finish_copy(&mut part);
        self.send_part(Content::MachineLast, &part, wiring);
        let order = self.save_order();
        self.send_part(Content::Order, &order, wiring);
        let (by, delivered) = (self.id, self.core.delivered());
        wiring.note(|| Note::Gave { by, delivered });
        self.end_teaching();
    }

    fn send_part<F: Fabric>(&mut self, content: Content, bytes: &[u8], wiring: &mut Wiring<F>) {
        let now = self.core.log().now_ms();
        let teaching = self.teaching.as_mut().expect("somebody is taught");
        let Teaching { slot, incarnation, copy, next: number, .. } = *teaching;
        teaching.next += 1;
        teaching.sent_ms = now;
        teaching.bytes += bytes.len() as u64;
        let part = Part { incarnation, copy, number, content };
        self.paths.parts_given += 1;
        self.tell_member(slot, &Election::State(part), bytes, wiring);
    }

    /// Everything was sent: asks the learner to let us write its log, and keeps ours until it has
    /// what it lacks.
    fn end_teaching(&mut self) {
        debug_assert_eq!(
            self.freed_index,
            self.core.log().commit_index(),
            "the log is kept from there on"
        );
        let freed = self.freed;
        let teaching = self.teaching.as_mut().expect("somebody is taught");
        teaching.done = true;
        self.core.log_mut().has_seeded(teaching.slot);
        let slot = usize::from(teaching.slot);
        self.followers[slot].attempt += 1;
        self.followers[slot].freed = freed;
        self.core.log_mut().ask_soon();
    }

    fn save_order(&mut self) -> Vec<u8> {
        let mut core = Vec::new();
        self.core.save(&mut core);
        self.pass_committed();
        let end = self.commit_end();
        let mut runs = self.runs.clone();
        runs.truncate(end);
        let pending = self.payloads.messages();
        let pending = pending.into_iter().filter(|message| self.core.is_pending(*message));
        let payloads = pending.map(|message| {
            let held = self.payloads.get(message).expect("just listed");
            Payload {
                session: message.session.0,
                sequence: message.sequence,
                low_water: held.low_water,
                destinations: groups(held.destinations),
                bytes: held.bytes.clone(),
            }
        });
        let order = Order {
            core,
            runs: runs.iter().map(|(birth, first)| (birth.to_word(), place(first))).collect(),
            end: place(end),
            payloads: payloads.collect(),
            heard: sorted(&self.heard)
                .filter(|_| !planted(Mutant::HeardNotTaken))
                .flat_map(|(m, from)| from.iter().map(|g| (m.session.0, m.sequence, g.0)))
                .collect(),
            results: sorted(&self.results)
                .filter(|_| !planted(Mutant::ResultsNotTaken))
                .map(|(m, (to, result))| (m.session.0, m.sequence, groups(*to), result.to_vec()))
                .collect(),
            last_applied: self.last_applied,
            last_delivered: self.last_delivered,
            given: self.given.iter().map(Given::saved).collect(),
        };
        postcard::to_stdvec(&order).expect("plain data")
    }

    /// Whether a part of a state is here, and not all of it.
    pub(crate) const fn takes_state(&self) -> bool {
        self.taking.is_some()
    }

    /// As learner: asks everybody of the group for the state, until somebody who leads gives it.
    pub(crate) fn ask_for_state<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        let now = self.core.log().now_ms();
        self.notice_left_behind(now);
        let blank = self.core.log().role() == Role::Blank || self.core.log().is_suspended();
        let needs = if blank { Some(Ballot::ZERO) } else { self.behind }.map(Ballot::to_word);
        // A learner says that it is there until it is let in, whether it needs a state now or not: all
        // members count the same learners, and so agree on whether the group is lost.
        // Whoever has said that it has no state says so when it has one.
        let own = self.asking[usize::from(self.id.slot)];
        let asks = needs.is_some() || self.core.log().is_silent() || own.is_some_and(|it| it.blank);
        let takes = self.taking.as_ref().is_some_and(|taking| now < taking.last_ms + PART_WAIT_MS);
        if !asks || self.last_ask_ms.is_some_and(|last| now < last + ASK_EVERY_MS) {
            return;
        }
        self.last_ask_ms = Some(now);
        let needs = needs.filter(|_| !takes);
        let incarnation = self.incarnation;
        let asking = Asking { incarnation, at_ms: now, blank };
        self.asking[usize::from(self.id.slot)] = Some(asking);
        for slot in self.other_slots() {
            let taking = self.taking.as_ref().filter(|taking| taking.teacher == slot);
            let taken = taking.map(|it| Taken { copy: it.copy, next: it.next });
            let ask = Election::Ask { incarnation, needs, applied: self.last_applied, taken };
            self.ask_member(slot, &ask, wiring);
        }
    }

    /// A follower that has waited for long for what the others do not tell any more asks for the
    /// state like one whose log ended too early.
    fn notice_left_behind(&mut self, now: u64) {
        if self.core.log().leads() || self.behind.is_some() || !self.core.is_left_behind() {
            self.left_behind_since = None;
            return;
        }
        // One that is only slow does not stand still.
        let delivered = self.core.delivered();
        let stands = self.left_behind_since.filter(|(_, before)| *before == delivered);
        let (since, _) = *self.left_behind_since.insert(stands.unwrap_or((now, delivered)));
        let follows = self.core.log().leader().is_some() && !self.awaiting;
        if follows && now >= since + LEFT_BEHIND_PATIENCE * self.config.group.patience_ms {
            tracing::info!(replica = %self.id, "waits for what nobody tells any more");
            self.paths.left_behind += 1;
            self.behind = Some(self.core.log().promised());
        }
    }

    /// As learner: bytes of the state that we were given so far.
    pub(crate) fn taken_bytes(&self) -> Option<u64> {
        self.taking.as_ref().map(|taking| taking.bytes)
    }

    /// Whether more memories are lost than the group tolerates: so many lives ask for a state, or wait
    /// to be let in, that the view does not name; or, where nobody has a view, that have no state.
    pub(crate) fn is_lost(&self) -> bool {
        let slots = 0..self.topology.replicas;
        let lost = slots.filter(|slot| self.has_lost_its_memory(*slot)).count();
        lost > usize::from(self.topology.replicas) / 2
    }

    /// Whether a life of the slot is known that our group has not let in.
    pub(super) fn has_lost_its_memory(&self, slot: u8) -> bool {
        let (now, blank) = (self.core.log().now_ms(), self.core.log().role() == Role::Blank);
        // One whose `Join` was committed, and that has not seen it, counts: whoever has seen it says so when it
        // sets out to lead.
        let ours = slot == self.id.slot && self.core.log().is_admitted();
        let unnamed = |life: u32| blank || !ours && !self.core.log().view().names(slot, life);
        // The view of a recreated group names replicas before they have its state. Only a leader or the survivor gives
        // it to them: without either such a replica is a lost memory like any other.
        let served = self.core.log().leads() || self.core.log().leader().is_some();
        let unserved =
            |it: &Asking| it.blank && !served && !self.core.log().seeds(slot, it.incarnation);
        let asks = self.asking[usize::from(slot)].is_some_and(|asking| {
            now < asking.at_ms + ASKED_RECENTLY_MS
                && (unnamed(asking.incarnation) || unserved(&asking))
        });
        asks || self.followers[usize::from(slot)].joining.is_some_and(unnamed)
    }

    /// As learner: the next part of the state. `fresh` makes an empty state machine.
    pub(super) fn take_part<F: Fabric>(
        &mut self,
        from: u8,
        part: Part,
        bytes: &[u8],
        wiring: &mut Wiring<F>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) {
        // One that still has a log gives it up only for the leader that told it to: that leader has
        // committed all of it that ever was.
        let taught_by = |ballot: Ballot| ballot.slot() == from;
        let needs = self.core.log().role() == Role::Blank
            || self.core.log().is_suspended()
            || self.behind.is_some_and(taught_by);
        // Another election may have taken that back for the moment. What comes until its winner says it again
        // is kept, so that the copy has no gap; but it becomes our state only if we need it.
        let goes_on = self.taking.as_ref().is_some_and(|it| it.goes_on_with(from, &part));
        let gathers = goes_on && part.content != Content::Order;
        if !(needs || gathers) || part.incarnation != self.incarnation {
            return;
        }
        let now = self.core.log().now_ms();
        if part.number == 0 {
            self.taking = Some(Taking {
                application: fresh(self.id),
                teacher: from,
                copy: part.copy,
                next: 0,
                bytes: 0,
                last_ms: now,
                machine_is_whole: false,
                began: Instant::now(),
            });
        }
        let Some(taking) = &mut self.taking else { return };
        if !taking.goes_on_with(from, &part) {
            self.taking = None;
            return;
        }
        taking.next += 1;
        taking.bytes += bytes.len() as u64;
        taking.last_ms = now;
        self.core.log_mut().stand_back_until(now + PART_WAIT_MS);
        self.paths.parts_taken += 1;
        let taken = match part.content {
            Content::Machine => taking.application.restore(bytes, false).is_ok(),
            Content::MachineLast => {
                taking.machine_is_whole = true;
                taking.application.restore(bytes, true).is_ok()
            }
            Content::Order => taking.machine_is_whole && self.take_order(bytes, wiring).is_some(),
        };
        if !taken {
            tracing::error!(replica = %self.id, from, ?part,
                "a copy of the state is not what its digest says: it is refused, and its giver told");
            self.taking = None;
            let said = Election::Malformed { copy: part.copy, incarnation: self.incarnation };
            self.tell_member(from, &said, &[], wiring);
        }
    }

    /// A learner refuses a copy of our state. Either memory may have failed, and no digest tells whose: ours
    /// follows what was executed, and not what stands there now. So another of those that count is to lead, and
    /// gives its own state to both. Not twice for one learner, whose own memory may be what fails; and not while
    /// somebody else has no state, who may be the one that was told so before.
    pub(super) fn copy_is_malformed(&mut self, slot: u8, incarnation: u32, copy: CopyId) {
        let ours = |it: &Teaching| (it.slot, it.incarnation, it.copy) == (slot, incarnation, copy);
        if !self.core.log().leads() || !self.teaching.as_ref().is_some_and(ours) {
            return;
        }
        self.give_up_teaching();
        let now = self.core.log().now_ms();
        let asks = |it: u8| {
            self.asking[usize::from(it)].is_some_and(|it| now < it.at_ms + ASKED_RECENTLY_MS)
        };
        let others = self.other_slots().filter(|it| *it != slot);
        let (asking, others): (Vec<_>, Vec<_>) = others.partition(|it| asks(*it));
        if asking.is_empty() {
            self.accused_by((slot, incarnation), others.into_iter().collect());
        }
    }

    /// The copy is whole: this is our state from here on.
    fn take_order<F: Fabric>(&mut self, bytes: &[u8], wiring: &mut Wiring<F>) -> Option<()> {
        let order: Order = postcard::from_bytes(bytes).ok()?;
        if !self.core.is_current(&order.core) {
            // Of a generation that is over: our group goes on from another state.
            self.taking = None;
            return Some(());
        }
        let mut core = self.core.blank(self.config);
        core.restore(&order.core)?;
        let mut payloads = Vec::new();
        for payload in order.payloads {
            let message = MessageId::new(SessionId(payload.session), payload.sequence);
            payloads.push((
                message,
                payload.low_water,
                group_set(&payload.destinations)?,
                payload.bytes,
            ));
        }
        let mut heard = HashMap::new();
        for (session, sequence, from) in order.heard {
            let of: &mut GroupSet =
                heard.entry(MessageId::new(SessionId(session), sequence)).or_default();
            *of = of.union(group_set(&[from])?);
        }
        let mut results = Vec::new();
        for (session, sequence, to, result) in order.results {
            let message = MessageId::new(SessionId(session), sequence);
            results.push((message, (group_set(&to)?, Told::from(&result[..]))));
        }
        let runs = order.runs.iter();
        let runs = runs.map(|(birth, first)| (Ballot::from_word(*birth), cursor(*first)));
        let end = cursor(order.end);
        let runs = Runs::new(runs, end);
        let counts = self.core.log().role() != Role::Blank && !self.core.log().is_suspended();
        let more = counts && self.runs.end().index > end.index;
        if more && self.runs.shared(&runs) == Some(end) && !planted(Mutant::OlderStateTaken) {
            // Others may count on what we hold beyond: it must be in the state first.
            self.paths.copy_too_old += 1;
            self.taking = None;
            return Some(());
        }
        let taking = self.taking.take()?;
        tracing::info!(replica = %self.id, bytes = taking.bytes, index = end.index - 1,
            took = ?taking.began.elapsed(), "has the state");
        self.begin_at(core, taking.application, runs, wiring);
        for (message, low_water, destinations, bytes) in payloads {
            self.payloads.replace(message, low_water, destinations, &bytes);
        }
        self.heard = heard;
        self.results = results.into_iter().collect();
        (self.last_applied, self.last_delivered) = (order.last_applied, order.last_delivered);
        let now = self.core.log().now_ms();
        self.given = order.given.into_iter().map(|given| Given::restored(given, now)).collect();
        let core = &self.core;
        self.payloads.retain_all(|message| !core.is_known(message) || core.is_pending(message));
        self.forget_unsent(wiring);
        wiring.note_restored(self.id, self.core.delivered());
        let (by, ballot) = (self.id, self.core.log().promised());
        wiring.note(|| Note::Promised { by, ballot });
        Some(())
    }

    /// Goes on from the end of `runs` with another core and state machine than before.
    pub(super) fn begin_at<F: Fabric>(
        &mut self,
        core: Ramcast,
        application: A,
        runs: Runs,
        wiring: &mut Wiring<F>,
    ) {
        let end = runs.end();
        self.core = core;
        // What we were giving away was of another machine.
        self.teaching = None;
        self.application = application;
        // The new core has heard nothing of what others' words said to the old one.
        wiring.look_again(self.id);
        self.cursor = end;
        self.runs = runs;
        self.ends.clear();
        self.exchanged.clear();
        (self.freed_index, self.freed, self.freed_told) = (end.index - 1, end.position, 0);
        self.space.resume(end, end.position);
        (self.begun_at, self.filled_from) = (end, None);
        self.rewritten = end;
        // A leader that was let in before began where we do not stand any more: it must begin again.
        self.grants += 1;
        self.header_seen = self.header_there(&wiring.port.fabric);
        self.awaiting = true;
        self.answered = None;
        self.behind = None;
        self.state_is_new(false);
    }
}
