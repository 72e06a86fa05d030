//! One replica: words and bytes in, one step of the protocol, effects out.

mod admission;
mod campaign;
mod dead_sessions;
mod divergence;
mod election;
mod feed;
mod gate;
mod granting;
mod handover;
mod inspect;
mod intake;
mod log;
mod on_disk;
mod reads;
mod received;
mod recreation;
mod replay;
mod reply_buffer;
mod results;
mod serving;
mod snapshot;
mod snapshot_pace;
mod status_words;
mod takeover;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeMap;
use std::time::Duration;

use skein_fabric::{Fabric, FabricError};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::frame::HEADER;
use skein_protocol::group::transfer::Request;
use skein_protocol::group::{Control, GroupConfig, GroupEvent};
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::message::encode_name;
use skein_protocol::ordering::{AnswerTo, Config, EffectOf, EventOf};
use skein_protocol::properties::{About, Touch};
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect, Event};
use skein_protocol::tram::tree::Tree;
use skein_protocol::view::View;

use self::campaign::Campaign;
use self::divergence::Divergence;
use self::gate::ReplyGate;
use self::intake::Intake;
pub(crate) use self::log::untag;
use self::log::{LogMemory, LogReader, LogWriter};
use self::on_disk::DiskProgress;
pub(crate) use self::on_disk::LogEnd;
pub use self::on_disk::{Described, describe, entry_index, is_of_a_state};
use self::reads::Reads;
use self::recreation::Recreations;
pub use self::replay::NotReplayed;
use self::reply_buffer::Deliveries;
use self::results::{Exchanged, ResultExchange};
use self::serving::Proof;
use self::snapshot::Snapshot;
pub(crate) use self::snapshot_pace::PART_EVERY;
use self::transfer::StateTransfer;
use crate::application::{Application, Delivery};
use crate::batches::Batches;
use crate::channel::Kind;
use crate::config::{Topology, Tuning};
use crate::election::Election;
use crate::ordering::Links;
use crate::payloads::Payloads;
use crate::replica_links::{Note, ReplicaLinks, StatusColumn};
use crate::work::Work;

/// Timeout, in heartbeats, of candidates for each other and of a leader for answers of other groups.
const TIMEOUT_HEARTBEATS: u64 = 4;
/// Messages delivered in a turn before the rest of the turn runs.
const DELIVERIES_PER_TURN: usize = 256;
/// The same for a replica with a disk that lags, and may be fed much at once. Nobody waits for it.
const DELIVERIES_PER_TURN_LAGGING: usize = 2048;
/// Bytes that the state machine may touch in a turn before further deliveries wait for the next turn.
const WORK_PER_TURN: u64 = 4 << 20;
/// Reports of its applied rank that a follower makes, at least, while it delivers as many messages as it may
/// lag behind.
const TOLD_PER_LAG: u64 = 8;

skein_protocol::paths! {
    /// Counts of paths taken in a replica's driver.
    ReplicaPaths:
    /// A follower read an entry that was not whole.
    torn_entry,
    /// The end of the log ring was skipped.
    padded,
    /// A message waited because the log was full.
    log_full,
    /// A message waited because its session had a window of others here.
    window_full,
    /// A message waited because a follower had yet to deliver too many.
    follower_behind,
    /// A message waited because large payloads used up their budget.
    budget_full,
    /// Another group's result was logged.
    exchanged,
    /// A payload was sent to a replica that lacked it.
    relayed,
    /// A session's hint was the payload of an entry.
    hint_used,
    /// A new leader's header was not whole.
    torn_header,
    /// A grant was repeated, since nothing had come of it.
    granted_again,
    /// A replica dropped an entry whose payload it lacked, because it granted another replica the lead.
    closed_while_stalled,
    /// A leader's write was denied.
    denied,
    /// A leader began to write a follower's log.
    admitted,
    /// A leader reported to a replica that its log no longer holds what the replica lacks.
    behind,
    /// A leader gave up a learner that had stopped answering.
    learner_given_up,
    /// A candidate asked the replica with the best log to lead instead, since it could not take that log over.
    handed_over,
    /// A follower waited for something that the others do not send any more.
    left_behind,
    /// A copied state was older than the log of the replica that had asked for it.
    copy_too_old,
    /// A part of a state was sent.
    parts_given,
    /// A part of a state was received.
    parts_taken,
    /// A leader began to feed a follower from its disk.
    feeds,
    /// A part of a log was received.
    log_parts_taken,
    /// A follower was fed all that it lacked.
    fed,
    /// A leader's disk had no more what a follower lacked.
    feeds_cut,
    /// A copy of a state was resumed whose sender had been deposed, or had paused for its receiver.
    copy_resumed,
    /// A snapshot is on disk.
    snapshots,
    /// A start skipped a snapshot, since what it names was not there.
    snapshots_skipped,
    /// A start gave up its log, since what its snapshots name was not there.
    logs_given_up,
    /// Another group's result was received again.
    result_again,
    /// A result was sent again.
    result_resent,
    /// A leader logged that its group objects to a message.
    objected,
    /// A reply waited for its dependency.
    reply_held,
    /// An unordered read was answered.
    read_answered,
    /// The answer to a read waited for its dependency.
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
    pub incarnation: u32,
    pub memory: LogMemory,
    reader: LogReader,
    writer: LogWriter,
    campaign: Campaign,
    transfer: StateTransfer<A>,
    disk: DiskProgress,
    snapshot: Snapshot,
    recreation: Recreations,
    pub intake: Intake,
    exchange: ResultExchange,
    /// The rank that was last reported to the leader as applied by our machine; `None` if the leader was sent none.
    applied_told: Option<Rank>,
    /// Number of messages that were delivered at the last report, or check for one.
    told_after: u64,
    /// Sessions whose process died and that the group has not ended, and the number of times that each was reported.
    pub dead_sessions: BTreeMap<SessionId, u8>,
    gate: ReplyGate,
    reads: Reads,
    proof: Option<Proof>,
    divergence: Divergence,
    /// Whether something has happened to it in this turn, and whether the last turn left work.
    stirred: bool,
    left: bool,
    pub effects: Vec<EffectOf<O>>,
    deliveries: Deliveries,
    /// Messages to other groups, sent at the end of its turn.
    pub outgoing: O::Outgoing,
    pub paths: ReplicaPaths,
    pub batches: Batches,
    pub work: Work,
}

impl<A: Application, O: Links> Replica<A, O> {
    pub(crate) fn new<F: Fabric>(
        id: ReplicaId,
        incarnation: u32,
        application: A,
        links: &mut ReplicaLinks<F, O>,
        tuning: Tuning,
    ) -> Result<Self, FabricError> {
        let topology = links.layout.topology();
        let memory = LogMemory::new(tuning.log_bytes, &mut links.endpoint.fabric)?;
        let group = GroupConfig {
            me: id,
            incarnation,
            began_as: incarnation,
            replicas: topology.replicas,
            timeout_ms: TIMEOUT_HEARTBEATS * tuning.heartbeat_ms,
            beat_ms: tuning.heartbeat_ms,
            missed_max: tuning.heartbeats_missed_max,
            lease_ms: tuning.lease_ms,
            evict_after_ms: tuning.evict_after_ms,
            clock_skew_percent: tuning.clock_skew_percent,
            spread_after_ms: if topology.groups > 1 { tuning.spread_after_ms } else { 0 },
            lag_max: (tuning.log_bytes / HEADER) as u64,
            durable: links.disk.is_some(),
        };
        let (groups, fetch_after_ms) = (topology.groups, tuning.fetch_after_ms);
        let tree = links.layout.tree().unwrap_or_else(|| Tree::breadth(groups)).parents();
        let held_bytes_max = tuning.held_bytes_max as u64;
        let config = Config { group, groups, fetch_after_ms, held_bytes_max, tree };
        Ok(Self {
            id,
            core: O::new(config, View::first(topology.replicas)),
            application,
            payloads: Payloads::new(tuning.inline_bytes_max, tuning.held_bytes_max),
            tuning,
            topology,
            config,
            incarnation,
            memory,
            reader: LogReader::new(),
            writer: LogWriter::new(topology.replicas),
            campaign: Campaign::new(topology.replicas),
            transfer: StateTransfer::default(),
            disk: DiskProgress::default(),
            snapshot: Snapshot::default(),
            recreation: Recreations::default(),
            intake: Intake::default(),
            exchange: ResultExchange::new(id, topology.groups),
            applied_told: None,
            told_after: 0,
            dead_sessions: BTreeMap::new(),
            gate: ReplyGate::new(id),
            reads: Reads::default(),
            proof: None,
            divergence: Divergence::default(),
            stirred: true,
            left: true,
            effects: Vec::new(),
            deliveries: Deliveries::default(),
            outgoing: O::outgoing(id, topology.groups),
            paths: ReplicaPaths::default(),
            batches: Batches::default(),
            work: Work::default(),
        })
    }

    /// Hands an event to the protocol.
    pub(crate) fn step(&mut self, event: EventOf<O>) {
        self.core.step(event, &mut self.effects);
    }

    /// Schedules a turn: something has happened to it, or it has done something.
    pub(crate) const fn stir(&mut self) {
        self.stirred = true;
    }

    /// Returns whether its turn may have work.
    pub(crate) const fn is_stirred(&self) -> bool {
        self.stirred || self.left
    }

    /// Ends its turn. Entries that it has appended since its followers were written wait for the next turn,
    /// and so do payloads that a leader keeps for followers which may have them by now. Returns whether other groups wait
    /// for what it tells in the next turn.
    pub(crate) fn rest(&mut self) -> bool {
        let untold = self.stirred && self.core.has_untold();
        let unwritten =
            self.core.log().leads() && self.writer.written != self.core.log().last_index();
        let left = unwritten || self.core.log().keeps_payloads() || !self.effects.is_empty();
        let left = left || untold || self.intake.has_ready || self.deliveries.are_cut_short();
        self.left = std::mem::take(&mut self.stirred) && left;
        untold
    }

    /// Handles a tick: takes the time and does the periodic work.
    pub(crate) fn tick<F: Fabric>(&mut self, now_ms: u64, links: &mut ReplicaLinks<F, O>) {
        self.stir();
        self.leave_logs(links);
        self.core.step(Event::Tick { now_ms }, &mut self.effects);
        self.record_filled(false, links);
        self.tell_applied(links);
        let timeout_ms = self.config.group.timeout_ms;
        self.exchange.ask(now_ms, timeout_ms, &mut self.core, &mut self.effects);
        self.ask_to_object(links);
        self.reads.tick(self.core.log().now_ms());
        self.carry_out(links);
        self.keep_group(links);
        self.compare_states(links);
        self.tell_core(GroupEvent::ReceiverTick { awaits_leader: self.reader.awaiting }, links);
        self.admit_caught_up(links);
    }

    /// Ends the reading of a turn: logs, writes and acknowledges in one batch. Returns whether anything was
    /// announced to other groups.
    pub(crate) fn end_turn<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) -> bool {
        self.propose_held(links);
        self.intake.has_ready = O::log_ready(self, links);
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.intake.may_log = 0;
        self.carry_out(links);
        let announced = O::tell_outgoing(&mut self.outgoing, links);
        self.write_followers(links);
        if self.core.log().leads() {
            self.note_failover(links);
        }
        announced
    }

    /// Handles another replica's message about the group's leader and members. `fresh` makes an empty state machine.
    pub(crate) fn election<F: Fabric>(
        &mut self,
        from: ReplicaId,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) -> Result<(), A::Failure> {
        self.stir();
        let sane = from.group == self.id.group && from.slot < self.topology.replicas;
        let Some((election, tail)) = Election::decode(datagram).filter(|_| sane) else {
            return Ok(());
        };
        match election {
            Election::Prepare(asked) => self.prepare(from.slot, &asked, links),
            Election::Granted(granted) => self.granted(from.slot, granted, tail, links),
            Election::Refused { promised } => {
                let refused = Control::Refused { promised: Ballot::from_word(promised) };
                self.core.control(from.slot, refused, &mut self.effects);
            }
            Election::Behind { ballot } => {
                let behind = Control::Behind { ballot: Ballot::from_word(ballot) };
                self.core.control(from.slot, behind, &mut self.effects);
            }
            Election::Ask { incarnation, needs, applied, taken } => {
                let request = Request {
                    slot: from.slot,
                    incarnation,
                    needs: needs.map(Ballot::from_word),
                    applied: Rank::new(applied),
                    taken: taken.map(Into::into),
                    log: Election::log_end(tail),
                };
                let asks = Control::Asks { request, trusted: self.is_trusted() };
                self.core.control(from.slot, asks, &mut self.effects);
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
                    self.intake.may_log += 1;
                    let message = MessageId::new(SessionId(session), sequence);
                    self.core.step(Event::Lacked { message }, &mut self.effects);
                }
            }
            Election::TimeoutNow { ballot } => {
                let succeed = Control::TimeoutNow { ballot: Ballot::from_word(ballot) };
                if self.is_trusted() {
                    self.core.control(from.slot, succeed, &mut self.effects);
                }
            }
            Election::Lease { ballot, number } => {
                self.promise_lease(from.slot, Ballot::from_word(ballot), number, links);
            }
            Election::Promised { ballot, number, incarnation } => {
                let (ballot, now) = (Ballot::from_word(ballot), links.endpoint.fabric.now());
                let promised = Control::LeasePromised { ballot, number, incarnation, now };
                self.core.control(from.slot, promised, &mut self.effects);
            }
            Election::Seeks { sessions } => self.sought(from.slot, sessions, links),
            Election::Sees { sessions } => self.seen(&sessions),
            Election::Digests { ballot, digests } => {
                self.hear_digests(from.slot, Ballot::from_word(ballot), &digests);
            }
            Election::Malformed { copy, incarnation } => {
                let refused = Control::CopyRefused { incarnation, copy: copy.into() };
                self.core.control(from.slot, refused, &mut self.effects);
            }
            Election::State(part) => self.take_part(from.slot, part, tail, links, fresh)?,
            Election::Log(part) => self.take_log(from.slot, part, tail, links),
        }
        self.carry_out(links);
        Ok(())
    }

    /// Carries out the protocol's effects, in order.
    pub(crate) fn carry_out<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
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
                    self.carry_out_of_group(effect, links);
                    self.carry_out(links);
                }
                Effect::Append { index, time_ms, record } => {
                    let more = matches!(remaining.peek(),
                        Some(Effect::Append { index: next, .. }) if *next == index);
                    if !more {
                        self.append(links, index, time_ms, record);
                    }
                }
                Effect::Tell(told) => O::tell(self, told, links),
                Effect::Settle { group, rank } => {
                    links.note(|| Note::Settled { by, rank, view: self.core.log().view().clone() });
                    let (groups, word) = (GroupSet::single(group), rank.to_word());
                    links.tell_groups(by, groups, StatusColumn::Settled, word);
                }
                Effect::Resend { message, to } => {
                    let (core, paths) = (&self.core, &mut self.paths);
                    self.exchange.outgoing.resend(message, to, core, links, paths);
                }
                Effect::DropResult { message } => self.exchange.outgoing.settled(message),
                Effect::Acknowledge { groups, acceptance } => {
                    let (about, word) = (About::Log(acceptance), acceptance.to_word());
                    if links.journal.is_some() {
                        let others = groups.iter().flat_map(|it| self.topology.replicas_of(it));
                        for to in others.filter(|to| *to != by) {
                            links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                        }
                    }
                    links.tell_groups(by, groups, StatusColumn::Accepted, word);
                }
                Effect::Fetch { message, from } => {
                    let about = About::Message(message);
                    links.note(|| Note::ReceivedResult(Touch { by, to: from, about }));
                    let mut bytes = links.borrow();
                    encode_name(message, &mut bytes);
                    links.ask(self.id, from, Kind::Fetch, &bytes);
                    links.keep(bytes);
                }
                Effect::Forget { message } => self.payloads.remove(message),
                Effect::Repeat { message } => self.deliveries.repeat(message),
            }
        }
        effects.clear();
        if self.effects.is_empty() {
            self.effects = effects; // Reuses its memory.
        }
    }

    /// Hands to the state machine what is its turn. Returns whether there was anything. If the machine fails, nothing
    /// is said of what it was doing: the message is delivered, and not applied.
    pub(crate) fn deliver<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<bool, A::Failure> {
        let (mut any, mut delivered, mut work) = (false, 0, 0);
        self.deliveries.begin(self.core.log().leads() && self.is_trusted());
        if !self.exchange.is_drained() {
            // Words that arrived since the end of the turn may commit these results, and a machine that waits
            // for them delivers nothing that would find out.
            self.core.advance_commit();
        }
        while work <= WORK_PER_TURN
            && let Some(message) = self.deliveries.next_repeat()
        {
            any = true;
            self.stir();
            self.application.repeat(message, &mut self.deliveries.said);
            self.speak(links);
            work += self.application.take_work();
        }
        let lags = self.config.group.durable && self.core.log().lagging().is_some();
        let most = if lags { DELIVERIES_PER_TURN_LAGGING } else { DELIVERIES_PER_TURN };
        for _ in 0..most {
            if self.application.go_on(&mut self.deliveries.said)? {
                // One step of the work that the last call has enabled.
            } else if let Some(next) = self.next_result() {
                let Exchanged { message, from, result, .. } = next;
                self.application.exchanged(message, from, &result, &mut self.deliveries.said)?;
            } else if self.application.ready()
                && let Some(next) = self.core.deliver()
            {
                links.note(|| Note::Delivered { by: self.id, deliver: next });
                let kept = self.core.passes_on(next.message) || self.core.log().keeps(next.message);
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
                let reply_dependency = self.core.reply_dependency(AnswerTo::Message(next.message));
                let now_ms = self.core.log().now_ms();
                self.exchange.give(next.message, next.rank, reply_dependency, now_ms);
                delivered += 1;
                self.application.deliver(delivery, &mut self.deliveries.said)?;
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
            self.speak(links);
            self.exchange.take_over(self.application.under_way());
            if self.core.log().sends_state().is_some() {
                self.carry_out(links);
                self.finish_sending(links)?;
            }
            if self.snapshot.is_ripe() {
                self.finish_snapshot(links)?;
            }
            work += self.application.take_work();
            if work > WORK_PER_TURN {
                break; // The rest is delivered in the next turn.
            }
        }
        self.deliveries.end();
        self.object(links);
        self.exchange.outgoing.tell(&self.core, links);
        self.carry_out(links);
        self.free_log(links);
        self.intake.throttled = self.core.log().is_somebody_behind();
        if self.core.delivered() >= self.told_after + self.config.group.lag_max / TOLD_PER_LAG {
            self.tell_applied(links); // Otherwise the leader would wait for the next tick.
        }
        self.ask_for_decisions(links);
        self.exchange.note_waiting(self.application.ready(), &links.endpoint.fabric);
        self.batches.deliveries_per_turn.note(delivered);
        self.work.deliveries += delivered as u64;
        self.pass_on(links);
        Ok(any)
    }

    /// The timeout of the group's replicas for each other.
    pub(crate) const fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.group.timeout_ms)
    }

    /// Number of replicas of its group.
    pub(crate) const fn replicas(&self) -> u8 {
        self.topology.replicas
    }

    /// The longest payload that travels in the log.
    pub(crate) const fn inline_bytes_max(&self) -> usize {
        self.tuning.inline_bytes_max
    }

    /// The length of a payload if that is too large for the log; otherwise 0.
    pub(crate) const fn outside(&self, len: usize) -> u32 {
        if len > self.tuning.inline_bytes_max { len as u32 } else { 0 }
    }

    /// Maximum number of messages that a session has in flight.
    pub(crate) const fn window(&self) -> usize {
        self.tuning.window
    }

    /// Size of the log ring in bytes.
    pub(crate) const fn log_bytes(&self) -> usize {
        self.tuning.log_bytes
    }
}
