//! Results that state machines of different groups exchange, and the deliveries that wait for them.

mod early;
mod objections;
mod outgoing;
mod parts;
mod saved;
mod waited;

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_fabric::Fabric;
use skein_protocol::backoff::longer;
use skein_protocol::guard;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::{EffectOf, MessageStage, OrderingProtocol};
use skein_protocol::rank::Rank;
use skein_protocol::results::Results;
use skein_protocol::step::Event;

use self::early::EarlyResults;
use self::objections::{LongWaited, OBJECT_AFTER_MS};
use self::outgoing::Outgoing;
use self::parts::ReceivedResult;
pub(super) use self::parts::{Exchanged, InFlightDelivery};
use self::saved::sorted;
pub(super) use self::saved::{Saved, are_groups};
use self::waited::Waited;
use super::{Replica, ReplicaPaths};
use crate::application::{Application, EXCHANGE_MAX};
use crate::operate::ResultsStatus;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Messages about which other groups' results are asked for in one tick.
const ASKED_PER_TICK: usize = 32;

/// Limit in bytes of the results that share a datagram, and the log entry of the receiver: one result of the
/// greatest length fits.
pub(super) const RESULTS_BYTES_MAX: usize = Results::len_of(EXCHANGE_MAX);

/// The exchange of results between our state machine and those of other groups.
///
/// It owns other groups' results from their log entry until our machine has them, our machine's results until
/// no other group needs them, and the deliveries in flight, which may wait for other groups' results.
///
/// Invariants:
/// - `last_applied < given[0].rank < given[1].rank < … <= last_delivered`.
/// - `objections <= exchanged.len()`.
/// - `exchanged[0].index <= exchanged[1].index <= … <= last + 1`, where `last` is the log's last index. The
///   last ones have index `last + 1` only while their entry is being appended.
pub(super) struct ResultExchange {
    pub(super) outgoing: Outgoing,
    /// Other groups' results in our log that our machine has not received yet, and our own group's objections.
    exchanged: VecDeque<Exchanged>,
    /// Number of objections in `exchanged`.
    objections: usize,
    /// Our machine has received, or may receive, the results up to this entry of the log as it is, which may not be
    /// committed.
    given_to: u64,
    early: EarlyResults,
    /// For each message that is not over, the groups whose results our machine has received.
    heard: HashMap<MessageId, GroupSet>,
    /// Deliveries in flight, in the order of delivery.
    given: VecDeque<InFlightDelivery>,
    waited: Waited,
    /// As leader: what our machine has waited for so long that others are to be [asked to object](objections).
    long_waited: Vec<LongWaited>,
    /// As leader: messages to which other groups have asked us to object.
    considered: Vec<MessageId>,
    /// The rank up to which our machine has applied everything, and the rank of the last delivery.
    last_applied: Rank,
    last_delivered: Rank,
}

impl ResultExchange {
    pub(super) fn new(by: ReplicaId, groups: u16) -> Self {
        Self {
            outgoing: Outgoing::new(by, groups),
            exchanged: VecDeque::new(),
            objections: 0,
            given_to: 0,
            early: EarlyResults::default(),
            heard: HashMap::new(),
            given: VecDeque::new(),
            waited: Waited::default(),
            long_waited: Vec::new(),
            considered: Vec::new(),
            last_applied: Rank::NOTHING,
            last_delivered: Rank::NOTHING,
        }
    }

    /// As leader: takes the new ones of another group's results for the next log entry. Returns whether there
    /// are any; if so, the entry is to be appended at once.
    fn hear<O: OrderingProtocol>(
        &mut self,
        from: GroupId,
        results: Results<'_>,
        core: &O,
        paths: &mut ReplicaPaths,
    ) -> bool {
        let (index, logged) = (core.log().last_index() + 1, self.exchanged.len());
        for (message, result) in results.iter() {
            if self.has_result(message, from, core) && !planted(Mutant::ResultGivenTwice) {
                paths.result_again += 1;
            } else {
                self.push(Exchanged { index, message, from, result: result.into() });
            }
        }
        let new = self.exchanged.len() - logged;
        paths.exchanged += new as u64;
        new > 0
    }

    /// Returns whether a group's result about a message is in our log, or is no longer needed.
    fn has_result<O: OrderingProtocol>(&self, message: MessageId, from: GroupId, core: &O) -> bool {
        let waits = |next: &Exchanged| next.message == message && next.from == from;
        let is_cut = || self.early.is_cut(message, from);
        self.exchanged.iter().any(waits) || self.is_received(message, from, core) && !is_cut()
    }

    /// Whether our machine has received a group's result about a message that is not over.
    fn has_heard(&self, message: MessageId, from: GroupId) -> bool {
        self.heard.get(&message).is_some_and(|groups| groups.contains(from))
    }

    /// Returns whether our machine has received a group's result about a message, or needs it no longer.
    fn is_received<O: OrderingProtocol>(
        &self,
        message: MessageId,
        from: GroupId,
        core: &O,
    ) -> bool {
        self.has_heard(message, from) || from != self.own() && self.is_over(message, core)
    }

    /// Returns whether our machine has applied the message, or the message is below its session's low-water mark.
    fn is_over<O: OrderingProtocol>(&self, message: MessageId, core: &O) -> bool {
        self.given(message).is_none() && core.stage_of(message) == MessageStage::Delivered
    }

    /// As follower: takes the results of entry `index` of the log.
    pub(super) fn logged(&mut self, index: u64, from: GroupId, results: Results<'_>) {
        for (message, result) in results.iter() {
            self.push(Exchanged { index, message, from, result: result.into() });
        }
    }

    fn push(&mut self, exchanged: Exchanged) {
        self.objections += usize::from(exchanged.from == self.own());
        self.exchanged.push_back(exchanged);
    }

    /// As leader: appends the results of entry `index`, which are the last ones, to `into`. Returns the group
    /// that they are from.
    pub(super) fn entry(&self, index: u64, into: &mut Vec<u8>) -> GroupId {
        let first = self.exchanged.partition_point(|known| known.index < index);
        for told in self.exchanged.range(first..) {
            Results::push(told.message, &told.result, into);
        }
        self.exchanged.back().expect("pushed before the step").from
    }

    /// Drops the results of the log's entries from `index` on, which are cut off.
    pub(super) fn truncate(&mut self, index: u64) {
        while let Some(last) = self.exchanged.pop_back_if(|next| next.index >= index) {
            self.objections -= usize::from(last.from == self.own());
        }
        self.early.truncate(index);
        self.given_to = self.given_to.min(index.saturating_sub(1));
    }

    /// Drops the results of a log that was replaced.
    pub(super) fn forget_logged(&mut self) {
        self.exchanged.clear();
        self.objections = 0;
        self.early = EarlyResults::default();
        self.given_to = 0;
    }

    /// Returns whether our machine has received all logged results.
    pub(super) fn is_drained(&self) -> bool {
        self.exchanged.is_empty()
    }

    /// Returns whether our machine has received all logged results up to the commit index.
    pub(super) fn is_drained_to(&self, commit: u64) -> bool {
        self.exchanged.front().is_none_or(|next| next.index > commit)
    }

    /// Takes the next logged result up to entry `index`, for our machine to receive now. One that it has received before,
    /// from an entry that was cut off, is passed over. An objection of our own group waits until it is committed.
    fn next_result<O: OrderingProtocol>(
        &mut self,
        index: u64,
        core: &O,
        paths: &mut ReplicaPaths,
    ) -> Option<Exchanged> {
        let (index, commit) = (index.max(self.given_to), core.log().commit_index());
        let own = self.own();
        let is_next =
            |next: &mut Exchanged| next.index <= if next.from == own { commit } else { index };
        while let Some(next) = self.exchanged.pop_front_if(is_next) {
            self.given_to = self.given_to.max(next.index);
            self.objections -= usize::from(next.from == own);
            self.early.note(next.index, next.message, next.from, commit);
            let is_needed = next.from == own || !self.is_over(next.message, core);
            let is_new = is_needed && self.heard.entry(next.message).or_default().insert(next.from);
            if is_new || planted(Mutant::ResultGivenTwice) {
                return Some(next);
            }
            paths.result_again += 1;
        }
        None
    }

    /// The entry up to which our machine has received the log's results.
    pub(super) const fn given_to(&self) -> u64 {
        self.given_to
    }

    /// In a process before this one, our machine had received the results up to this entry.
    pub(super) const fn had_given_to(&mut self, index: u64) {
        self.given_to = index;
    }

    /// Adds a delivery in flight: our machine receives a message whose reply depends on everything up to
    /// `reply_dependency`.
    pub(super) fn give(
        &mut self,
        message: MessageId,
        rank: Rank,
        reply_dependency: Rank,
        now_ms: u64,
    ) {
        self.given.push_back(InFlightDelivery {
            message,
            rank,
            reply_dependency,
            since_ms: now_ms,
            asked_at: now_ms,
            asked: 0,
        });
        self.last_delivered = rank;
    }

    /// The reply dependency of a delivery in flight.
    pub(super) fn reply_dependency(&self, message: MessageId) -> Option<Rank> {
        self.given(message).map(|given| given.reply_dependency)
    }

    fn given(&self, message: MessageId) -> Option<&InFlightDelivery> {
        // Usually it is the last one, or among the first.
        let last = self.given.back().filter(|given| given.message == message);
        last.or_else(|| self.given.iter().find(|given| given.message == message))
    }

    /// Ends all deliveries but the last `under_way`.
    pub(super) fn take_over(&mut self, under_way: usize) {
        while self.given.len() > under_way {
            let over = self.given.pop_front().expect("it is longer than something");
            self.last_applied = over.rank;
            if !self.heard.is_empty() {
                self.heard.remove(&over.message);
            }
        }
    }

    /// The rank up to which our machine has applied everything. With no delivery in flight, that is the rank
    /// of the last delivery.
    pub(super) fn apply(&mut self) -> Rank {
        if guard!(Mutant::AppliedTooEarly, self.given.is_empty()) {
            self.last_applied = self.last_applied.max(self.last_delivered);
        }
        self.last_applied
    }

    /// The last value of [`apply`](Self::apply), or a later one if a delivery ended since.
    pub(super) const fn last_applied(&self) -> Rank {
        self.last_applied
    }

    /// The rank of the last delivery.
    pub(super) const fn last_delivered(&self) -> Rank {
        self.last_delivered
    }

    /// As leader: asks other groups for the results that our machine waits for. They may not have sent them,
    /// or have sent them to a leader that is gone.
    pub(super) fn ask<O: OrderingProtocol>(
        &mut self,
        now_ms: u64,
        timeout_ms: u64,
        core: &mut O,
        effects: &mut Vec<EffectOf<O>>,
    ) {
        if !core.log().leads() {
            return;
        }
        let own = self.own();
        for given in self.given.iter_mut().take(ASKED_PER_TICK) {
            if now_ms >= given.asked_at + longer(timeout_ms, given.asked) {
                (given.asked_at, given.asked) = (now_ms, given.asked + 1);
                let message = given.message;
                let heard = self.heard.get(&message).copied().unwrap_or_default();
                core.step(Event::Waits { message, heard }, effects);
                let has_spoken = self.outgoing.results.contains_key(&message);
                if has_spoken && now_ms >= given.since_ms + OBJECT_AFTER_MS {
                    let owe = core.shared_with(message).without(own).minus(heard);
                    self.long_waited.push((message, owe));
                }
            }
        }
        // Our machine does not wait for these, but those of the others do.
        for (message, groups) in self.early.asks(now_ms, timeout_ms) {
            let heard = GroupSet::first(GroupSet::CAPACITY).minus(groups);
            core.step(Event::Waits { message, heard }, effects);
        }
    }

    /// As new leader: resets the backoff, which earlier questions, perhaps in vain, have raised.
    pub(super) fn ask_soon(&mut self) {
        for given in &mut self.given {
            given.asked = 0;
        }
        self.early.ask_soon();
    }

    /// Forgets everything but logged results: the group begins again with an empty state.
    pub(super) fn forget(&mut self) {
        self.heard.clear();
        self.outgoing.results.clear();
        self.given.clear();
        (self.last_applied, self.last_delivered) = (Rank::NOTHING, Rank::NOTHING);
    }

    /// Records the time if our machine has begun or ceased to wait. It `is_ready` for a delivery.
    pub(super) fn note_waiting<F: Fabric>(&mut self, is_ready: bool, fabric: &F) {
        self.waited.note(!self.given.is_empty(), !is_ready, || fabric.now());
    }

    pub(super) fn status(&self) -> ResultsStatus {
        ResultsStatus {
            under_way: self.given.len() as u64,
            waited_us: self.waited.any_us(),
            stalled_us: self.waited.stalled_us(),
        }
    }

    /// The first delivery in flight.
    pub(super) fn first_given(&self) -> Option<MessageId> {
        self.given.front().map(|given| given.message)
    }

    /// A description for people to read.
    pub(super) fn describe(&self) -> String {
        let waits: Vec<_> = self.given.iter().map(|given| given.message.to_string()).collect();
        let heard: Vec<_> = sorted(&self.heard).map(|(m, of)| format!("{m} of {of}")).collect();
        let said: Vec<_> = sorted(&self.outgoing.results).map(|(m, _)| m.to_string()).collect();
        format!("waits for results about {waits:?}, has received {heard:?}, has sent {said:?}")
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Handles results of another group's state machine from that group's leader. One entry takes those that
    /// were not logged before.
    pub(crate) fn exchange<F: Fabric>(
        &mut self,
        from: GroupId,
        results: Results<'_>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if !self.core.log().leads() || results.0.len() > RESULTS_BYTES_MAX {
            return;
        }
        if from != self.id.group {
            self.log_results(from, results, links);
        }
    }

    /// As leader: logs those of a group's results that our log does not have.
    fn log_results<F: Fabric>(
        &mut self,
        from: GroupId,
        results: Results<'_>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if self.exchange.hear(from, results, &self.core, &mut self.paths) {
            self.core.step(Event::Exchanged, &mut self.effects);
            self.carry_out(links);
        }
    }

    /// Takes the next result for our machine to receive now.
    pub(super) fn next_result(&mut self) -> Option<Exchanged> {
        if self.exchange.is_drained() {
            return None;
        }
        if self.exchange.has_objection() {
            // The next delivery must not commit more than what the objection is compared with.
            self.core.advance_commit();
        }
        let index = self.core.log().results_index();
        self.exchange.next_result(index, &self.core, &mut self.paths)
    }

    /// Number of results of our machine that are kept, since another group may ask for them.
    pub(crate) fn results(&self) -> usize {
        self.exchange.outgoing.results.len()
    }
}

#[cfg(test)]
impl ResultExchange {
    /// Logged results that our machine has not received yet.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Exchanged> {
        self.exchanged.iter()
    }

    /// The last delivery in flight.
    pub(super) fn last_given(&mut self) -> &mut InFlightDelivery {
        self.given.back_mut().expect("something is in flight")
    }
}
