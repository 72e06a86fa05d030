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
use crate::group::{Applied, GroupLog};
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

    /// What waits to be delivered first.
    fn waits_first(&mut self) -> Option<Next> {
        let (bound, since_ms) = self.order.head()?;
        Some(Next { least: bound.into(), since_ms })
    }

    /// Logs that the log waits for a slot no more, unless fewer than a quorum would be left that it waits for. Returns
    /// whether it was of use.
    pub fn evict(&mut self, slot: u8, effects: &mut Vec<Effect>) -> bool {
        let (log, deliveries) = self.log_and_deliveries();
        let evict = log.evict(slot, &deliveries);
        evict.map(|record| self.append(record.into(), effects)).is_some()
    }

    /// Logs that an incarnation of a slot counts from here on, if it may: it holds all that this log holds.
    pub fn join(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<Effect>) {
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

    /// Whether all of our group that counted have applied what we have not even delivered: only a state helps then.
    pub fn is_left_behind(&mut self) -> bool {
        let next = self.waits_first();
        is_left_behind(next, &self.deliveries())
    }

    /// As leader: whether our state is of use to a replica that has applied so much.
    pub fn may_teach(&mut self, applied: Applied) -> bool {
        let next = self.waits_first();
        let (log, deliveries) = self.log_and_deliveries();
        log.may_teach(applied, next, &deliveries)
    }

    /// As leader that is left behind: the slot that shall lead instead.
    pub fn heir(&mut self) -> Option<u8> {
        let next = self.waits_first();
        self.log.heir(next, &self.deliveries())
    }

    /// As leader whose log does not reach back to where that slot's ends: whether another shall lead, whose log does.
    pub fn needs_another_to_serve(&self, slot: u8) -> bool {
        self.log.needs_another_to_serve(slot, &self.deliveries())
    }

    /// As leader: the slot that shall lead instead, if it is time to hand over.
    pub fn hands_over(&self) -> Option<u8> {
        self.log.hands_over(&self.deliveries())
    }
}
