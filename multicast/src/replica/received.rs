//! Messages that a replica receives: from their sessions, or relayed by replicas that hold them.
//!
//! **Invariant.** Replicas of a group execute the same bytes under a name, whatever its session wrote to each
//! of them: a leader logs the payload that it holds, and a follower accepts an entry with that payload alone.

use skein_fabric::Fabric;
use skein_protocol::check::check;
use skein_protocol::guard;
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::message::{Head, decode_name, encode_name};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::MessageStage;
use skein_protocol::properties::{About, Touch};
use skein_protocol::step::Event;

use super::Replica;
use crate::application::Application;
use crate::channel::Kind;
use crate::election::Election;
use crate::ordering::Links;
use crate::replica_links::{Note, ReplicaLinks};

impl<A: Application, O: Links> Replica<A, O> {
    /// Handles a relayed payload. A leader that takes no messages drops it; if a member of its group sent it,
    /// the request is from a time when this replica did not lead.
    pub(crate) fn relayed<F: Fabric>(
        &mut self,
        from: ReplicaId,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        let read = decode_name(datagram).and_then(|(name, rest)| Some((name, Head::decode(rest)?)));
        let Some((message, (head, payload))) = read else { return };
        let new = self.payloads.get(message).is_none();
        let beyond = new && self.exceeds_budget(payload.len());
        let (leads, waited_for) =
            (self.core.log().leads(), self.core.log().stalled_on() == Some(message));
        // A delivered message does not wait for this one, and its payload is dropped when the follower that
        // lacks it has it or is evicted. An undelivered message may wait for this one. This message is
        // relayed to the leader again.
        let refused = beyond && !waited_for && (!leads || self.core.log().keeps_delivered());
        if refused || planted(Mutant::HintBlocksFetch) && self.payloads.hints_fill(payload.len()) {
            self.paths.budget_full += 1;
            self.intake.refused_relay = leads.then_some(payload.len());
        } else if self.has_use_for(message, links) {
            // A node's own messages come from any of its groups, and are sent again by whoever still needs them.
            if from.group != self.id.group && !message.session.is_own() {
                self.core.hear_lacked(message, head.destinations);
            }
            self.receive(message.session, head, payload, links);
            if beyond {
                self.payloads.note_beyond(message);
            }
        }
    }

    /// Returns whether the log waits for this message of a session, or for a later one, which is behind it in
    /// the session's ring. Such a message is taken whatever the budget.
    pub(super) fn log_waits_for(&self, session: SessionId, sequence: u64) -> bool {
        let waited_for = self.core.log().stalled_on().filter(|m| m.session == session);
        waited_for.is_some_and(|m| sequence <= m.sequence)
    }

    /// Returns whether a payload of that length exceeds the budget for large payloads.
    pub(super) fn exceeds_budget(&self, len: usize) -> bool {
        let large = len > self.tuning.inline_bytes_max;
        large && self.payloads.large_bytes() + len > self.tuning.held_bytes_max
    }

    /// Returns whether a relayed message may be kept. A leader proposes it. Another replica asked for it
    /// because its log waited for it, but the log may be another by now: if the message's session has no
    /// channel here, it would be kept forever.
    fn has_use_for<F: Fabric>(&self, message: MessageId, links: &ReplicaLinks<F, O>) -> bool {
        if self.core.log().leads() {
            return self.log_has_room() && !self.intake.throttled;
        }
        let waited_for = self.core.log().stalled_on() == Some(message);
        waited_for || links.has_session(message.session, self.id)
    }

    /// Handles a message that is complete in our memory. An invalid message is dropped: it can harm only the
    /// session that sent it.
    pub(crate) fn receive<F: Fabric>(
        &mut self,
        session: SessionId,
        head: Head,
        payload: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.stir();
        let Head { sequence, low_water, destinations } = head;
        let message = MessageId::new(session, sequence);
        let lacking = self.core.log().stalled_on() == Some(message);
        let awaited = self.core.awaits(message);
        // An entry that is passed on says where its message goes.
        let is_repeat = lacking && self.reader.lacks_repeat;
        let said = if is_repeat { Some(self.reader.lacking) } else { awaited };
        let destinations = said.map_or(destinations, |(destinations, _)| destinations);
        let valid = self.is_valid(Head { destinations, ..head }, payload)
            && (destinations.contains(self.id.group)
                || self.core.orders(destinations)
                // It passes through our group.
                || lacking
                || awaited.is_some());
        if !valid {
            tracing::warn!(%message, %destinations, "dropped an invalid message");
            return;
        }
        // Only a leader needs messages of nodes themselves. A message that our log waits for may be known
        // already: the state that we began with says up to where the session has all its replies.
        let known = self.core.is_logged(message)
            && !(planted(Mutant::DuplicateExecuted) && self.payloads.get(message).is_none());
        // A group that is not the first to order it has it from its log.
        let new = (!known || self.core.orders_again(message))
            && (self.core.log().leads() || !session.is_own())
            && self.core.orders(destinations);
        if lacking
            && !guard!(
                Mutant::PayloadNotCompared,
                self.reader.lacking == (destinations, check(payload))
            )
        {
            tracing::warn!(%message, "dropped a payload that differs from the one in the log");
            return;
        }
        if awaited.is_some_and(|(_, sum)| sum != check(payload)) {
            tracing::warn!(%message, "dropped a payload that differs from the one that was passed on");
            return;
        }
        if self.core.hands_in(message, destinations) {
            self.hand_in(session, head, payload, links);
        }
        let beyond = self.exceeds_budget(payload.len()) && self.log_waits_for(session, sequence);
        if new || lacking || awaited.is_some() {
            if !self.payloads.insert(message, low_water, destinations, payload) {
                // It was here before this replica led, perhaps with other bytes: those count.
                return self.receive_held(message, links);
            }
            if beyond {
                self.payloads.note_beyond(message);
            }
        }
        self.received(message, low_water, destinations, payload.len(), links);
    }

    /// Returns whether a session may have sent this to anybody.
    #[inline]
    pub(crate) fn is_valid(&self, head: Head, payload: &[u8]) -> bool {
        !head.destinations.is_empty()
            && self.topology.all_groups().contains_all(head.destinations)
            // No more are in flight than fit a window, which bounds the memory for a session.
            && head.sequence - head.low_water < self.tuning.window as u64
            && payload.len() <= self.tuning.payload_bytes_max
    }

    /// A session has opened a channel to us: it is sent the replies that it may have missed.
    pub(crate) fn greet(&mut self, session: SessionId) {
        for message in self.core.unheard_by(session) {
            self.stir();
            self.deliveries.repeat(message);
        }
    }

    /// Sends a message to the replicas of the group that orders it first. Its leader takes it.
    pub(crate) fn hand_in<F: Fabric>(
        &self,
        session: SessionId,
        head: Head,
        payload: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        let Some(tree) = links.layout.tree() else { return };
        let by = self.id;
        let mut bytes = links.borrow();
        let message = MessageId::new(session, head.sequence);
        encode_name(message, &mut bytes);
        head.encode(&mut bytes);
        for to in self.topology.replicas_of(tree.lca(head.destinations)) {
            let about = About::Message(message);
            links.note(|| Note::ReceivedResult(Touch { by, to, about }));
            links.send(by, to, Kind::Relay, &bytes, payload);
        }
        links.keep(bytes);
    }

    /// Handles a message that is held in our memory.
    pub(crate) fn receive_held<F: Fabric>(
        &mut self,
        message: MessageId,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let held = self.payloads.get(message).expect("it is held");
        let (low_water, destinations, len) = (held.low_water, held.destinations, held.bytes.len());
        self.received(message, low_water, destinations, len, links);
    }

    #[inline]
    fn received<F: Fabric>(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        len: usize,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let outside = self.outside(len);
        if self.core.log().stalled_on() == Some(message) {
            self.record_payload(message, links);
        }
        let event = Event::Received { message, low_water, destinations, outside };
        self.core.step(event, &mut self.effects);
        self.intake.may_log += O::entries_behind(destinations);
        self.carry_out(links);
    }

    /// Sends a payload, if we have it, to a replica that lacks it.
    pub(crate) fn fetch<F: Fabric>(
        &mut self,
        message: MessageId,
        by: ReplicaId,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let Some(held) = self.payloads.get(message) else {
            if by.group == self.id.group
                && self.core.log().leads()
                && self.core.stage_of(message) == MessageStage::Delivered
            {
                // Its payload was dropped before we led. A replica that still waits for it needs a state transfer.
                let ballot = self.core.log().ballot().to_word();
                self.ask_member(by.slot, &Election::Behind { ballot }, links);
            }
            return;
        };
        if !links.has_room_to_relay(self.id, by) {
            return;
        }
        let mut head = links.borrow();
        encode_name(message, &mut head);
        let sequence = message.sequence;
        Head { sequence, low_water: held.low_water, destinations: held.destinations }
            .encode(&mut head);
        self.paths.relayed += 1;
        let about = About::Message(message);
        links.note(|| Note::ReceivedResult(Touch { by: self.id, to: by, about }));
        links.send(self.id, by, Kind::Relay, &head, &held.bytes);
        links.keep(head);
    }

    /// Drops payloads that no replica will ask for any more, and that nothing else drops: of messages that
    /// came again when their session no longer needed them.
    pub(crate) fn drop_useless(&mut self) {
        let core = &self.core;
        self.payloads.retain_all(|message| core.may_need(message));
        self.payloads.retain_hints(|it| !core.is_logged(it) && !core.has_ended(it.session));
        self.payloads.tidy();
    }
}
