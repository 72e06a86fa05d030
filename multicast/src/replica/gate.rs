//! Replies that are held until their dependencies have passed: until all groups that share them have delivered them.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashSet;
use skein_fabric::Fabric;
use skein_protocol::ids::{MessageId, ReplicaId};
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;

use super::{Replica, ReplicaPaths};
use crate::application::Application;
use crate::operate::HeldStatus;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

struct Held {
    message: MessageId,
    reply: Vec<u8>,
    /// Its reply dependency: everything up to this rank must have passed.
    until: Rank,
    since: Duration,
}

/// A leader's replies that may not be sent yet, because their dependencies have not passed.
///
/// Invariants:
/// - `messages` is the set of the messages in `held`, and `messages.len() == held.len()`: there is one reply
///   to a message.
/// - `held` is in the order in which the state machine replied, and replies are sent in that order.
/// - After [`pass_on`](Self::pass_on), nothing is held unless the replica leads.
pub(super) struct ReplyGate {
    by: ReplicaId,
    held: VecDeque<Held>,
    messages: HashSet<MessageId>,
    /// Replies that were sent after they were held, and the sum of the times for which they were held.
    count: u64,
    waited: Duration,
}

impl ReplyGate {
    pub(super) fn new(by: ReplicaId) -> Self {
        let (held, messages) = (VecDeque::new(), HashSet::new());
        Self { by, held, messages, count: 0, waited: Duration::ZERO }
    }

    /// Sends a reply now, or once everything up to `until` has passed. A reply that is repeated meanwhile is
    /// held once.
    pub(super) fn reply<F: Fabric, O: Links>(
        &mut self,
        message: MessageId,
        reply: &[u8],
        until: Rank,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
        paths: &mut ReplicaPaths,
    ) {
        if core.has_passed(until) {
            return links.reply(message, self.by, reply);
        }
        if self.messages.insert(message) {
            paths.reply_held += 1;
            let since = links.endpoint.fabric.now();
            let reply = links.buffers.copy(reply);
            self.held.push_back(Held { message, reply, until, since });
        }
    }

    /// Sends the replies whose dependencies have passed, if we lead.
    pub(super) fn pass_on<F: Fabric, O: Links>(
        &mut self,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if self.held.is_empty() {
            return;
        }
        if !core.log().leads() {
            return self.clear();
        }
        let now = links.endpoint.fabric.now();
        while let Some(held) = self.held.pop_front_if(|held| core.has_passed(held.until)) {
            self.messages.remove(&held.message);
            self.count += 1;
            self.waited += now.saturating_sub(held.since);
            links.reply(held.message, self.by, &held.reply);
            links.buffers.keep(held.reply);
        }
    }

    /// Drops all replies: the next leader repeats them.
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.messages.clear();
    }

    pub(super) fn status(&self) -> HeldStatus {
        HeldStatus {
            waiting: self.held.len() as u64,
            count: self.count,
            waited_us: self.waited.as_micros() as u64,
        }
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Ends the deliveries of a turn: reports progress to other groups, and sends the replies that may be sent.
    pub(super) fn pass_on<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        self.core.step(Event::AllDelivered, &mut self.effects);
        if !self.effects.is_empty() {
            self.carry_out(links);
        }
        self.gate.pass_on(&self.core, links);
    }

    /// Number of replies that are held.
    pub(crate) fn held_replies(&self) -> usize {
        self.gate.held.len()
    }
}
