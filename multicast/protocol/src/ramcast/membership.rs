//! What our group's log asks of the order between groups, and what we log for it: who is evicted, who joins.
//!
//! The group log decides all of this, and knows nothing of timestamps: to it, they are numbers that rise with what is
//! delivered.

use alloc::vec::Vec;

use super::Ramcast;
use super::delivery::Order;
use super::shared::Shared;
use crate::group::ordering::{Next, Ordering};
use crate::group::succession::is_left_behind;
use crate::group::transfer::{Answer, Request};
use crate::group::{Applied, Backlog, GroupEffect, GroupLog};
use crate::ids::GroupId;
use crate::step::{Effect, Record};
use crate::timestamp::Timestamp;

impl From<Timestamp> for Applied {
    fn from(timestamp: Timestamp) -> Self {
        Self::new(timestamp.to_word())
    }
}

impl From<Applied> for Timestamp {
    fn from(applied: Applied) -> Self {
        Self::from_word(applied.number())
    }
}

/// What our group has to deliver, and is done with.
pub(super) struct Deliveries<'a> {
    own: GroupId,
    order: &'a Order,
    shared: &'a Shared,
}

impl Ordering for Deliveries<'_> {
    fn done(&self) -> Applied {
        self.shared.settled_by(self.own).into()
    }

    fn waits_for_others_below(&self, index: u64) -> bool {
        self.order.iter().any(|it| it.destinations.has_several() && it.index < index)
    }
}

/// What waits to be delivered first.
fn waits_first(order: &mut Order) -> Option<Next> {
    let (bound, since_ms) = order.head()?;
    Some(Next { least: bound.into(), since_ms })
}

impl Ramcast {
    /// What our log asks of us.
    pub(super) const fn deliveries(&self) -> Deliveries<'_> {
        Deliveries { own: self.config.group.me.group, order: &self.order, shared: &self.shared }
    }

    /// Our log, and what it asks of us.
    const fn log_and_deliveries(&mut self) -> (&mut GroupLog<Record>, Deliveries<'_>) {
        let Self { log, order, shared, config, .. } = self;
        (log, Deliveries { own: config.group.me.group, order, shared })
    }

    /// As leader, once a tick: goes on without those that hold us up for too long, if they can be spared.
    pub fn relieve(&mut self, backlog: &Backlog<'_>, effects: &mut Vec<Effect>) {
        let Self { log, lag, .. } = self;
        let delivered = self.order.delivered();
        let is_behind = |log: &GroupLog<Record>, slot| lag.is_behind(log, slot, delivered);
        for slot in log.holds_up(backlog, is_behind) {
            let learns = self.log.view().member(slot).evicted;
            if learns || self.evict(slot, effects) {
                effects.push(GroupEffect::GiveUp { slot, evicted: !learns }.into());
            }
        }
    }

    /// Logs that the log waits for a slot no more, unless fewer than a quorum would be left that it waits for. Returns
    /// whether it was of use.
    pub fn evict(&mut self, slot: u8, effects: &mut Vec<Effect>) -> bool {
        let (log, deliveries) = self.log_and_deliveries();
        let evict = log.evict(slot, &deliveries);
        evict.map(|record| self.append(record.into(), effects)).is_some()
    }

    /// Logs that an incarnation of a slot counts from here on, if it may: it holds all that this log holds.
    pub(super) fn join(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<Effect>) {
        let (log, deliveries) = self.log_and_deliveries();
        if let Some(record) = log.join(slot, incarnation, &deliveries) {
            self.append(record.into(), effects);
        }
    }

    /// Logs the changes of the view that are due.
    pub(super) fn log_due_changes(&mut self, effects: &mut Vec<Effect>) {
        let (log, deliveries) = self.log_and_deliveries();
        for record in log.due_changes(&deliveries) {
            self.append(record.into(), effects);
        }
    }

    /// Whether we have waited for so long for what the others of our group do not tell any more that we need a state: all
    /// that counted have applied what we have not even delivered. `awaits_leader` says whether the first words of
    /// whom we let lead are yet to come.
    pub fn notices_lag(&mut self, awaits_leader: bool) -> bool {
        let Self { log, order, shared, config, .. } = self;
        let delivered = order.delivered();
        log.notices_lag(delivered, awaits_leader, || {
            let next = waits_first(order);
            is_left_behind(next, &Deliveries { own: config.group.me.group, order, shared })
        })
    }

    /// A replica asks for our state, or to be let in. `trusted` says that our state is what our group holds.
    pub fn asked_for_state(&mut self, request: &Request, trusted: bool) -> Answer {
        let next = if self.log.leads() { waits_first(&mut self.order) } else { None };
        let (log, deliveries) = self.log_and_deliveries();
        log.asked_for_state(request, trusted, next, &deliveries)
    }

    /// As leader that is left behind: the slot that shall lead instead.
    pub(super) fn heir(&mut self) -> Option<u8> {
        let next = waits_first(&mut self.order);
        self.log.heir(next, &self.deliveries())
    }

    /// As leader that is left behind, or that can give a replica neither its log nor its state: asks another to lead
    /// instead.
    pub(super) fn hand_to_heir(&mut self, effects: &mut Vec<Effect>) {
        let heir = self.heir();
        let heir = heir.or_else(|| self.log.other_server(&self.deliveries()));
        effects.extend(heir.map(|to| Effect::Group(GroupEffect::Succeed { to })));
    }

    /// As leader: the slot that shall lead instead, if it is time to hand over.
    pub fn hands_over(&self) -> Option<u8> {
        self.log.hands_over(&self.deliveries())
    }
}
