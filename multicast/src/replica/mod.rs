//! One replica: words and bytes in, events, step, effects out.

mod admission;
mod divergence;
mod election;
mod footprint;
mod gate;
mod granting;
mod handover;
mod log;
mod orphans;
mod reach;
mod reads;
mod received;
mod recreation;
mod results;
mod said;
mod status;
mod takeover;
#[cfg(test)]
mod tests;
mod transfer;
mod words;

use crate::ordering::Links;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use skein_fabric::{Access, Fabric, FabricError, Peer, Region};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::frame::{Cursor, HEADER, PREAMBLE};
use skein_protocol::group::runs::Runs;
use skein_protocol::group::space::Space;
use skein_protocol::group::transfer::Request;
use skein_protocol::group::{Control, GroupConfig};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::message::encode_name;
use skein_protocol::ordering::{AnswerTo, Config, EffectOf, EventOf};
use skein_protocol::properties::{About, Touch};
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect, Event};
use skein_protocol::view::View;

use self::divergence::Divergence;
use self::gate::ReplyGate;
use self::granting::Answered;
use self::handover::Wish;
use self::log::Follower;
pub(crate) use self::log::untag;
use self::reads::Reads;
use self::recreation::Prepared;
use self::results::{Exchanged, ResultExchange};
use self::said::Deliveries;
use self::status::Won;
use self::transfer::StateTransfer;
use crate::application::{Application, Delivery};
use crate::batches::Batches;
use crate::channel::Kind;
use crate::config::{Topology, Tuning};
use crate::election::{Election, Granted};
use crate::payloads::Payloads;
use crate::wiring::{Column, Note, Wiring};

/// How many heartbeats candidates wait for each other, and a leader for an answer of other groups.
const PATIENCE: u64 = 4;
/// Messages delivered in one go, before the rest of the turn gets its share.
const DELIVERIES_PER_TURN: usize = 256;
/// Bytes that the state machine may touch in a turn before the next delivery waits for another one.
const WORK_PER_TURN: u64 = 4 << 20;
/// How often a follower tells what it has applied at least, while it delivers as many messages as it may lag behind.
const TOLD_PER_LAG: u64 = 8;

skein_protocol::paths! {
    /// Counts of paths taken where a replica meets its memory.
    ReplicaPaths:
    /// A follower looked at an entry that was not whole.
    torn_entry,
    /// The end of the log ring was skipped.
    padded,
    /// A message waited because the log was full.
    log_full,
    /// A message waited because its session had a window of others here.
    window_full,
    /// A message waited because a follower had yet to deliver too many.
    follower_behind,
    /// A message waited because large payloads took all of their budget.
    budget_full,
    /// Another group's result was logged.
    exchanged,
    /// A payload was sent to a replica that missed it.
    relayed,
    /// A new leader's header was not whole.
    torn_header,
    /// A grant was told again, since nothing had come of it.
    granted_again,
    /// A replica gave up an entry whose payload it lacked, because it let another lead.
    closed_while_stalled,
    /// A leader's write was denied.
    denied,
    /// A leader began to write a follower's log.
    admitted,
    /// A leader told a replica that its log does not hold what it lacks.
    behind,
    /// A leader gave up a learner that had stopped answering.
    learner_given_up,
    /// A candidate asked whoever has the best log to lead instead, since it could not take that over.
    handed_over,
    /// A follower waited for what the others did not tell any more.
    left_behind,
    /// A copied state was older than the log of the replica that asked for it.
    copy_too_old,
    /// A part of a state was given away.
    parts_given,
    /// A part of a state was taken.
    parts_taken,
    /// A copy of a state went on whose giver had been deposed, or kept its receiver waiting.
    copy_resumed,
    /// Another group's result came again.
    result_again,
    /// A result was sent again.
    result_resent,
    /// A reply waited for what it rests on.
    reply_held,
    /// A read was answered that was not ordered.
    read_answered,
    /// The answer to a read waited for what it rests on.
    read_held,
}

/// One replica of one group, with its memory and its state machine.
pub(crate) struct Replica<A, O: Links> {
    pub id: ReplicaId,
    pub core: O,
    pub application: A,
    pub payloads: Payloads,
    tuning: Tuning,
    pub topology: Topology,
    config: Config,
    /// Which life this is.
    pub incarnation: u32,
    /// Our copy of the group's log.
    pub log: Region,
    /// Who may write it, and how often anybody was let.
    granted: Option<Peer>,
    grants: u64,
    /// The last grant of our log.
    answered: Option<Answered>,
    /// Whoever was let in has not begun to write, with other words than those seen before.
    awaiting: bool,
    header_seen: u64,
    /// The births of the log's entries.
    runs: Runs,
    /// Destinations of the message that our log waits for, and the check of its payload.
    lacking: (GroupSet, u64),
    /// As leader: from where on our own copy is written in our ballot.
    rewritten: Cursor,
    /// As candidate: what others reported.
    grants_received: Vec<Option<(Granted, Vec<u8>)>>,
    /// What a replica has just told us with its grant, until it is known whether that counts.
    heard_grant: Option<(Granted, Vec<u8>)>,
    transfer: StateTransfer<A>,
    /// A plan to recreate the group, and the token of the last one that was carried out.
    prepared: Option<Prepared>,
    recreated: Option<(u64, Ballot)>,
    /// A message was refused since the last tick for what is kept for followers.
    refused: bool,
    /// The length of a payload that another group's leader relayed, and that still exceeds the budget while delivered ones
    /// are kept. It is relayed again some ticks later.
    refused_relay: Option<usize>,
    /// As leader: a follower has yet to deliver so much that no session's message is taken.
    throttled: bool,
    /// Whether somebody waits for what followers do with what was appended: it is more than messages to our group alone
    /// that are in the log whole, which the leader knows to be committed when its writes complete.
    awaited: bool,
    /// Whether it led, and which payload it waited for, when sessions' rings were last looked at.
    reads_sessions: (bool, Option<MessageId>),
    /// As a new leader: sessions sent us what nobody has logged.
    unproposed: bool,
    /// When we last set out to lead, and what came of it.
    set_out_at: Option<Duration>,
    /// It was said that there is no ballot left in which we could set out.
    exhausted: bool,
    /// An operator wants us to lead.
    wish: Option<Wish>,
    won: Option<Won>,
    writes: u64,
    /// Where our log begins in our memory: what is before was part of a state.
    begun_at: Cursor,
    /// From which position on our leader has set out to write what is before.
    filled_from: Option<u64>,
    /// The last entry of our log when the followers were last written.
    written: u64,
    space: Space,
    /// Of the next entry to read, as follower.
    cursor: Cursor,
    followers: Vec<Follower>,
    /// Ends of the entries that may not be overwritten yet: index, position.
    ends: VecDeque<(u64, u64)>,
    /// The last entry whose place may be used again, and where it ends.
    pub freed_index: u64,
    freed: u64,
    freed_told: u64,
    exchange: ResultExchange,
    /// What was told last of the rank up to which our machine has applied everything.
    applied_told: Option<Rank>,
    /// So many messages were delivered when that was told, or looked at, last.
    told_after: u64,
    /// Sessions whose process died and that the group has not ended, and how often that was said.
    pub orphans: BTreeMap<SessionId, u8>,
    gate: ReplyGate,
    reads: Reads,
    divergence: Divergence,
    /// Something has happened to it in this turn; or was left by the one before.
    stirred: bool,
    left: bool,
    pub effects: Vec<EffectOf<O>>,
    deliveries: Deliveries,
    /// What it has to tell other groups at its turn's end.
    pub outgoing: O::Outgoing,
    /// So many entries of its log may be asked for by what it was told in this turn.
    pub announced: usize,
    entry: Vec<u8>,
    pub paths: ReplicaPaths,
    pub batches: Batches,
}

impl<A: Application, O: Links> Replica<A, O> {
    pub(crate) fn new<F: Fabric>(
        id: ReplicaId,
        incarnation: u32,
        application: A,
        wiring: &mut Wiring<F, O>,
        tuning: Tuning,
    ) -> Result<Self, FabricError> {
        let topology = wiring.topology;
        let log = wiring.port.fabric.create(PREAMBLE + tuning.log_bytes, Access::Granted)?;
        let group = GroupConfig {
            me: id,
            incarnation,
            replicas: topology.replicas,
            patience_ms: PATIENCE * tuning.heartbeat_ms,
            beat_ms: tuning.heartbeat_ms,
            missed_max: tuning.heartbeats_missed_max,
            lease_ms: tuning.lease_ms,
            evict_after_ms: tuning.evict_after_ms,
            clock_skew_percent: tuning.clock_skew_percent,
            spread_after_ms: if topology.groups > 1 { tuning.spread_after_ms } else { 0 },
            lag_max: (tuning.log_bytes / HEADER) as u64,
        };
        let (groups, fetch_after_ms) = (topology.groups, tuning.fetch_after_ms);
        let config = Config { group, groups, fetch_after_ms };
        let replicas = usize::from(topology.replicas);
        Ok(Self {
            id,
            core: O::new(config, View::first(topology.replicas)),
            application,
            payloads: Payloads::new(tuning.inline_bytes_max),
            tuning,
            topology,
            config,
            incarnation,
            log,
            granted: None,
            grants: 0,
            answered: None,
            awaiting: true,
            header_seen: 0,
            runs: Runs::EMPTY,
            lacking: (GroupSet::EMPTY, 0),
            rewritten: Cursor::START,
            grants_received: vec![None; replicas],
            heard_grant: None,
            transfer: StateTransfer::default(),
            prepared: None,
            recreated: None,
            refused: false,
            refused_relay: None,
            awaited: false,
            throttled: false,
            reads_sessions: (false, None),
            unproposed: false,
            set_out_at: None,
            exhausted: false,
            wish: None,
            won: None,
            writes: 0,
            begun_at: Cursor::START,
            filled_from: None,
            written: 0,
            space: Space::new(tuning.log_bytes as u64),
            cursor: Cursor::START,
            followers: vec![Follower::default(); replicas],
            ends: VecDeque::new(),
            freed_index: 0,
            freed: 0,
            freed_told: 0,
            exchange: ResultExchange::new(id, topology.groups),
            applied_told: None,
            told_after: 0,
            orphans: BTreeMap::new(),
            gate: ReplyGate::new(id),
            reads: Reads::default(),
            divergence: Divergence::default(),
            stirred: true,
            left: true,
            effects: Vec::new(),
            deliveries: Deliveries::default(),
            outgoing: O::outgoing(id, topology.groups),
            announced: 0,
            entry: Vec::new(),
            paths: ReplicaPaths::default(),
            batches: Batches::default(),
        })
    }

    /// An event of the ordering's.
    pub(crate) fn step(&mut self, event: EventOf<O>) {
        self.core.step(event, &mut self.effects);
    }

    /// Something has happened to it, or it has done something: it has a turn.
    pub(crate) const fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether its turn may come to something.
    pub(crate) const fn is_stirred(&self) -> bool {
        self.stirred || self.left
    }

    /// Its turn is over. What it has appended since its followers were written waits for the next one,
    /// and so does what followers may have by now that a leader keeps for them.
    pub(crate) fn rest(&mut self) {
        let unwritten = self.core.log().leads() && self.written != self.core.log().last_index();
        let left = unwritten || self.core.log().keeps_payloads() || !self.effects.is_empty();
        self.left = std::mem::take(&mut self.stirred) && (left || self.deliveries.are_cut_short());
    }

    /// Takes note of the time, and does what is to be done once a tick.
    pub(crate) fn tick<F: Fabric>(&mut self, now_ms: u64, wiring: &mut Wiring<F, O>) {
        self.stir();
        self.leave_logs(wiring);
        self.core.step(Event::Tick { now_ms }, &mut self.effects);
        self.tell_applied(wiring);
        let patience_ms = self.config.group.patience_ms;
        self.exchange.ask(now_ms, patience_ms, &mut self.core, &mut self.effects);
        self.reads.tick(self.core.log().now_ms());
        self.carry_out(wiring);
        self.keep_group(wiring);
        self.compare_states(wiring);
        self.ask_for_state(wiring);
        self.let_in(wiring);
    }

    /// Whether a datagram of `len` bytes from a session may be read now, when `assembling` bytes
    /// of others are being put together. `sequence` says which message it is.
    pub(crate) fn admits(
        &mut self,
        session: SessionId,
        len: usize,
        assembling: usize,
        sequence: impl FnOnce() -> u64,
    ) -> bool {
        let large = len > self.tuning.inline_bytes_max;
        let budget = self.tuning.held_bytes_max;
        let within_budget = !large || self.payloads.large_bytes() + assembling + len <= budget;
        let within_window = self.payloads.of_session(session) < self.tuning.window;
        let has_room = !self.core.log().leads() || self.log_has_room();
        self.paths.budget_full += u64::from(!within_budget);
        let behind = self.core.log().leads() && self.throttled;
        self.paths.follower_behind += u64::from(behind);
        self.refused |= !within_budget || !within_window || behind;
        self.paths.window_full += u64::from(!within_window);
        self.paths.log_full += u64::from(!has_room);
        // A group that has stopped takes nothing that it would not answer, and one that has many replies to repeat
        // nothing that may ask for another.
        let repeats = self.deliveries.has_many_repeats();
        let has_room = has_room && !behind && !repeats && !self.is_stopped();
        if within_window && within_budget {
            return has_room;
        }
        // The message that the log waits for comes before any bound, and so do those of its session with
        // lower numbers, which stand before it in the ring: no more than a window. Later ones wait. The
        // session may send them for as long as the log stands, since the others of our group answer it.
        has_room && self.log_waits_for(session, sequence)
    }

    /// Whether a datagram from another replica may be read now. A fetch always may: our log can be
    /// full because the follower that asks waits for the payload, and holds everything back. And so
    /// may whatever members of our group say: it can be full because we wait for their votes.
    pub(crate) fn admits_from_replica(&self, from: GroupId, kind: Kind, len: usize) -> bool {
        // Whoever speaks for an engine may be of our group, and speaks for others.
        let proposes = kind == Kind::Propose;
        let of_ours = from == self.id.group && !proposes;
        let vital = matches!(kind, Kind::Fetch | Kind::Passed) || of_ours;
        vital || !self.core.log().leads() || self.log_has_room_for(O::entries_for(kind, len))
    }

    /// Everything readable was told: logs, writes and acknowledges what came together. Returns whether
    /// anything was announced to other groups.
    pub(crate) fn end_turn<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) -> bool {
        self.propose_held(wiring);
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.announced = 0;
        self.carry_out(wiring);
        let announced = O::tell_outgoing(&mut self.outgoing, wiring);
        self.write_followers(wiring);
        if self.core.log().leads() {
            self.note_failover(wiring);
        }
        announced
    }

    /// Something of another replica of our group about who leads it and who is in it. `fresh` makes
    /// an empty state machine.
    pub(crate) fn election<F: Fabric>(
        &mut self,
        from: ReplicaId,
        datagram: &[u8],
        wiring: &mut Wiring<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) {
        self.stir();
        let sane = from.group == self.id.group && from.slot < self.topology.replicas;
        let Some((election, tail)) = Election::decode(datagram).filter(|_| sane) else { return };
        match election {
            Election::Prepare(asked) => self.prepare(from.slot, &asked, wiring),
            Election::Granted(granted) => self.granted(from.slot, granted, tail, wiring),
            Election::Refused { promised } => {
                let refused = Control::Refused { promised: Ballot::from_word(promised) };
                self.core.control(from.slot, refused, &mut self.effects);
            }
            Election::Behind { ballot } => {
                self.core.log_mut().lags_behind(Ballot::from_word(ballot));
            }
            Election::Ask { incarnation, needs, applied, taken } => {
                self.asked_for_state(&Request {
                    slot: from.slot,
                    incarnation,
                    needs: needs.map(Ballot::from_word),
                    applied: Rank::new(applied),
                    taken: taken.map(Into::into),
                });
            }
            Election::Admitted { ballot, incarnation } => {
                let ballot = Ballot::from_word(ballot);
                let admitted = Control::Admitted { ballot, incarnation };
                self.core.control(from.slot, admitted, &mut self.effects);
            }
            Election::Lacks { .. } if !self.log_has_room() => {} // It asks again.
            Election::Lacks { messages } => {
                for (session, sequence) in messages {
                    if !self.log_has_room() {
                        break; // It asks again.
                    }
                    self.announced += 1;
                    let message = MessageId::new(SessionId(session), sequence);
                    self.core.step(Event::Lacked { message }, &mut self.effects);
                }
            }
            Election::Succeed { ballot } => {
                let succeed = Control::Succeed { ballot: Ballot::from_word(ballot) };
                if self.is_trusted() {
                    self.core.control(from.slot, succeed, &mut self.effects);
                }
            }
            Election::Lease { ballot, number } => {
                self.promise_lease(from.slot, Ballot::from_word(ballot), number, wiring);
            }
            Election::Promised { ballot, number, incarnation } => {
                let (ballot, now) = (Ballot::from_word(ballot), wiring.port.fabric.now());
                let promised = Control::LeasePromised { ballot, number, incarnation, now };
                self.core.control(from.slot, promised, &mut self.effects);
            }
            Election::Seeks { sessions } => self.sought(from.slot, sessions, wiring),
            Election::Sees { sessions } => self.seen(&sessions),
            Election::Digests { ballot, digests } => {
                self.hear_digests(from.slot, Ballot::from_word(ballot), &digests);
            }
            Election::Malformed { copy, incarnation } => {
                self.copy_is_malformed(from.slot, incarnation, copy);
            }
            Election::State(part) => self.take_part(from.slot, part, tail, wiring, fresh),
        }
        self.carry_out(wiring);
    }

    /// Does what the protocol asks for, in order.
    pub(crate) fn carry_out<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) {
        if self.effects.is_empty() {
            return;
        }
        self.stir();
        let mut effects = std::mem::take(&mut self.effects);
        let mut remaining = effects.iter().peekable();
        while let Some(effect) = remaining.next() {
            let by = self.id;
            match *effect {
                Effect::Group(effect) => {
                    self.carry_out_of_group(effect, wiring);
                    self.carry_out(wiring);
                }
                Effect::Append { index, time_ms, record } => {
                    let more = matches!(remaining.peek(),
                        Some(Effect::Append { index: next, .. }) if *next == index);
                    if !more {
                        self.append(wiring, index, time_ms, record);
                    }
                }
                Effect::Tell(told) => O::tell(self, told, wiring),
                Effect::Settle { group, rank } => {
                    wiring.note(|| Note::Settled {
                        by,
                        rank,
                        view: self.core.log().view().clone(),
                    });
                    let (groups, word) = (GroupSet::single(group), rank.number());
                    wiring.tell_groups(by, groups, Column::Settled, word);
                }
                Effect::Resend { message, to } => {
                    let (core, paths) = (&self.core, &mut self.paths);
                    self.exchange.outgoing.resend(message, to, core, wiring, paths);
                }
                Effect::Settled { message } => self.exchange.outgoing.settled(message),
                Effect::Acknowledge { groups, acceptance } => {
                    let (about, word) = (About::Log(acceptance), acceptance.to_word());
                    if wiring.journal.is_some() {
                        let others = groups.iter().flat_map(|it| self.topology.replicas_of(it));
                        for to in others.filter(|to| *to != by) {
                            wiring.note(|| Note::Told(Touch { by, to, about }));
                        }
                    }
                    wiring.tell_groups(by, groups, Column::Accepted, word);
                }
                Effect::Fetch { message, from } => {
                    let about = About::Message(message);
                    wiring.note(|| Note::Told(Touch { by, to: from, about }));
                    let mut bytes = wiring.borrow();
                    encode_name(message, &mut bytes);
                    wiring.ask(self.id, from, Kind::Fetch, &bytes);
                    wiring.keep(bytes);
                }
                Effect::Forget { message } => self.payloads.remove(message),
                Effect::Repeat { message } => self.deliveries.repeat(message),
            }
        }
        effects.clear();
        if self.effects.is_empty() {
            self.effects = effects; // With its memory.
        }
    }

    /// Hands to the state machine what is its turn. Returns whether there was anything.
    pub(crate) fn deliver<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) -> bool {
        let (mut any, mut delivered, mut work) = (false, 0, 0);
        self.deliveries.begin(self.core.log().leads() && self.is_trusted());
        if !self.exchange.is_drained() {
            // What was told since the turn's end may be what commits them, and a machine that waits for
            // them has nothing delivered that would find that out.
            self.core.advance_commit();
        }
        while work <= WORK_PER_TURN
            && let Some(message) = self.deliveries.next_repeat()
        {
            any = true;
            self.stir();
            self.application.repeat(message, &mut self.deliveries.said);
            self.speak(wiring);
            work += self.application.take_work();
        }
        for _ in 0..DELIVERIES_PER_TURN {
            let commit = self.core.log().commit_index();
            if self.application.go_on(&mut self.deliveries.said) {
                // One step of much that the last call has made possible.
            } else if let Some(next) = self.exchange.next_committed(commit) {
                let Exchanged { message, from, result, .. } = next;
                self.application.exchanged(message, from, &result, &mut self.deliveries.said);
            } else if self.application.ready()
                && let Some(next) = self.core.deliver()
            {
                wiring.note(|| Note::Delivered { by: self.id, deliver: next });
                let kept = self.core.log().keeps(next.message);
                let taken = if kept { None } else { self.payloads.take(next.message) };
                let held = taken.as_ref().or_else(|| self.payloads.get(next.message));
                let held = held.expect("accepted with its payload");
                let delivery = Delivery {
                    message: next.message,
                    low_water: next.low_water,
                    destinations: next.destinations,
                    clock: next.clock,
                    position: next.position,
                    time_ms: next.time_ms,
                    payload: &held.bytes,
                    answers: self.core.log().leads(),
                };
                let rests_on = self.core.rests_on(AnswerTo::Message(next.message));
                let now_ms = self.core.log().now_ms();
                self.exchange.give(next.message, next.rank, rests_on, now_ms);
                delivered += 1;
                self.application.deliver(delivery, &mut self.deliveries.said);
                if let Some(taken) = taken {
                    self.payloads.recycle(taken);
                }
                if next.message.session.is_own() {
                    let session = next.message.session;
                    self.core.step(Event::SessionEnded { session }, &mut self.effects);
                }
            } else {
                self.deliveries.are_done();
                break;
            }
            any = true;
            self.stir();
            self.speak(wiring);
            self.exchange.take_over(self.application.under_way());
            if self.core.log().sends_state().is_some() {
                self.carry_out(wiring);
                self.finish_sending(wiring);
            }
            work += self.application.take_work();
            if work > WORK_PER_TURN {
                break; // The rest is delivered in the next turn.
            }
        }
        self.deliveries.end();
        self.exchange.outgoing.tell(&self.core, wiring);
        self.carry_out(wiring);
        self.free_log(wiring);
        self.throttled = self.core.log().is_somebody_behind();
        if self.core.delivered() >= self.told_after + self.config.group.lag_max / TOLD_PER_LAG {
            self.tell_applied(wiring); // Or the leader would wait for the next tick.
        }
        self.ask_for_decisions(wiring);
        self.exchange.note_waiting(self.application.ready(), &wiring.port.fabric);
        self.batches.deliveries_per_turn.note(delivered);
        self.pass_on(wiring);
        any
    }

    /// How long the replicas of a group wait for each other.
    pub(crate) const fn patience(&self) -> Duration {
        Duration::from_millis(self.config.group.patience_ms)
    }

    /// Replicas of its group.
    pub(crate) const fn replicas(&self) -> u8 {
        self.topology.replicas
    }

    /// Bytes of the log ring.
    pub(crate) const fn log_bytes(&self) -> usize {
        self.tuning.log_bytes
    }
}
