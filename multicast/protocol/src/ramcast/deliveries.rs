//! What the group log reads of the order between groups, and timestamps as the ranks that it compares.

use super::Ramcast;
use super::delivery::DeliveryQueue;
use super::retained::Retained;
use crate::group::ordering::Ordering;
use crate::ids::GroupId;
use crate::rank::Rank;
use crate::timestamp::Timestamp;

impl From<Timestamp> for Rank {
    fn from(timestamp: Timestamp) -> Self {
        Self::new(timestamp.to_word())
    }
}

impl From<Rank> for Timestamp {
    fn from(applied: Rank) -> Self {
        Self::from_word(applied.number())
    }
}

/// What our group has to deliver, and up to where it is done.
pub(crate) struct Deliveries<'a> {
    pub(super) own: GroupId,
    pub(super) order: &'a DeliveryQueue,
    pub(super) retained: &'a Retained,
}

impl Ordering for Deliveries<'_> {
    fn done(&self) -> Rank {
        self.retained.settled_by(self.own).into()
    }

    fn waits_for_others_below(&self, index: u64) -> bool {
        self.order.iter().any(|it| it.destinations.has_several() && it.index < index)
    }
}

impl Ramcast {
    /// The state of deliveries that our log reads.
    pub(super) const fn deliveries(&self) -> Deliveries<'_> {
        Deliveries { own: self.config.group.me.group, order: &self.order, retained: &self.retained }
    }
}
