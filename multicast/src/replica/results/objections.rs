//! Objections: the result of a group that may never have another one about a message.
//!
//! After a group was recreated, a message that was under way may be missing at one of its destinations for good, or stand there
//! behind a message that it precedes elsewhere. The machines of its other destinations then wait for a result for ever. So
//! a leader that has waited long asks, and the other group *objects*: its result is empty. Machines take that as a refusal.
//!
//! **Invariant.** A group has one result about a message. An objection is an entry of the group's own log, and no machine of
//! the group speaks of the message before it has the objection. For a leader logs one only if
//!
//! - the message is not in its log, and so is delivered because of a later entry, if ever; or
//! - its machine has all that its log holds, all of it committed, and is yet to speak of the message. Then only another
//!   group's result can let a machine with the same log speak, and that would stand behind the objection.
//!
//! A group remembers its objection to a message until that is over, and for good if it never comes. There are at most as
//! many as were under way when a group was recreated.
//!
//! **Invariant.** An objection is told, and given to the group's machines, when its entry is committed.
//!
//! A group with disks is never recreated, so nobody objects where a leader's machine may have results that a loss of power
//! cuts off.

use skein_fabric::Fabric;
use skein_protocol::guard;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::message::encode_name;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::MessageStage;
use skein_protocol::properties::{About, Touch};
use skein_protocol::results::Results;

use super::ResultExchange;
use crate::application::{Application, Speech};
use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica_links::{Note, ReplicaLinks};

/// Time after which a leader that waits for a group's result asks for an objection. Without a fault, none takes so long.
pub(super) const OBJECT_AFTER_MS: u64 = 1_000;

/// Most messages to which a leader considers to object at once. The others are asked for again.
const CONSIDERED_MAX: usize = 64;

/// The state of a group's result about a message.
enum Said {
    /// Its machine has spoken, and the result is kept.
    Spoken,
    /// It has objected.
    Objected,
    /// Its machine is done with the message, and every group that was to have the result had it.
    Over,
    /// Nothing.
    Silent,
}

impl ResultExchange {
    /// Whether a logged objection of our own group waits for our machine. What it precedes must not overtake it.
    pub(super) const fn has_objection(&self) -> bool {
        self.objections > 0
    }

    pub(super) const fn own(&self) -> GroupId {
        self.outgoing.by().group
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// As leader, once a tick: asks the groups that owe results for which our machine has waited long.
    pub(crate) fn ask_to_object<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        // Those that ask us ask again.
        self.exchange.considered.clear();
        let by = self.id;
        for (message, groups) in std::mem::take(&mut self.exchange.long_waited) {
            let mut name = links.borrow();
            encode_name(message, &mut name);
            for to in groups.iter().flat_map(|group| self.topology.replicas_of(group)) {
                let about = About::Message(message);
                links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                links.ask(by, to, Kind::Objection, &name);
            }
            links.keep(name);
        }
    }

    /// Another group's leader has waited long for our result about a message.
    pub(crate) fn asked_to_object<F: Fabric>(
        &mut self,
        from: ReplicaId,
        message: MessageId,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let others = self.topology.all_groups().without(self.id.group);
        if !others.contains(from.group)
            || !self.core.log().leads()
            || !self.is_trusted()
            || !self.core.knows_recreated()
            // Groups with disks are not recreated.
            || self.config.group.durable
            || planted(Mutant::NeverObjects)
        {
            return;
        }
        self.stir();
        match self.said_about(message) {
            Said::Spoken => {
                let (core, paths) = (&self.core, &mut self.paths);
                self.exchange.outgoing.resend(message, from.group, core, links, paths);
            }
            Said::Objected | Said::Over => {
                let mut result = links.borrow();
                Results::push(message, &[], &mut result);
                let (by, about) = (self.id, About::Message(message));
                links.note(|| Note::ReceivedResult(Touch { by, to: from, about }));
                links.send(by, from, Kind::Exchange, &result, &[]);
                links.keep(result);
            }
            Said::Silent => {
                let considered = &mut self.exchange.considered;
                if considered.len() < CONSIDERED_MAX && !considered.contains(&message) {
                    considered.push(message);
                }
            }
        }
    }

    fn said_about(&self, message: MessageId) -> Said {
        match () {
            () if self.exchange.outgoing.results.contains_key(&message) => Said::Spoken,
            () if self.exchange.has_heard(message, self.id.group) => Said::Objected,
            () if self.is_ordered(message) || self.application.speech(message) != Speech::Given => {
                Said::Silent
            }
            () => Said::Over,
        }
    }

    /// Whether the message is in our log, and not over. One that is only below its session's low-water mark is not.
    fn is_ordered(&self, message: MessageId) -> bool {
        match self.core.stage_of(message) {
            MessageStage::Unknown => false,
            MessageStage::Logged | MessageStage::Pending => true,
            MessageStage::Delivered => self.exchange.given(message).is_some(),
        }
    }

    /// At the end of a turn's deliveries: objects to the messages about which others have asked, as far as that can be.
    pub(crate) fn object<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if self.exchange.considered.is_empty() {
            return;
        }
        let mut considered = std::mem::take(&mut self.exchange.considered);
        if !self.core.log().leads() || !self.is_trusted() {
            considered.clear();
        }
        considered.retain(|message| {
            let waits = self.is_ordered(*message)
                && !guard!(Mutant::ObjectsAfterSpeaking, self.has_all());
            if !self.log_has_room() || waits {
                return true;
            }
            if matches!(self.said_about(*message), Said::Silent) && self.may_object(*message) {
                tracing::warn!(%message, "objects to a message that was under way when a group was recreated");
                let mut objection = links.borrow();
                Results::push(*message, &[], &mut objection);
                self.paths.objected += 1;
                self.log_results(self.id.group, Results(&objection), links);
                links.keep(objection);
            }
            false
        });
        self.exchange.considered = considered;
    }

    /// Whether no machine of our group can speak of the message before it has what we log next.
    fn may_object(&self, message: MessageId) -> bool {
        if !self.is_ordered(message) {
            return !self.core.is_waiting(message);
        }
        guard!(Mutant::ObjectsAfterSpeaking, self.application.speech(message) == Speech::Blocked)
    }

    /// Whether our machine has received all that our log holds, and all of that is committed.
    fn has_all(&self) -> bool {
        self.core.log().is_all_committed()
            && self.exchange.is_drained()
            && !self.deliveries.are_cut_short()
    }
}

/// A message about which our machine has waited long, with the groups that owe results.
pub(super) type LongWaited = (MessageId, GroupSet);
