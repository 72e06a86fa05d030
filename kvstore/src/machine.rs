//! The deterministic state machine of one replica.

use skein_multicast::application::{Application, Delivery, Outbox};
use skein_protocol::ids::{GroupId, MessageId, ReplicaId};

use crate::limits::Limits;
use crate::slots::SlotMap;

/// One replica's keys, values and sessions.
pub struct Machine {
    replica: ReplicaId,
    slots: SlotMap,
    limits: Limits,
    groups_on_node: u16,
}

impl Machine {
    /// Holds nothing. `groups_on_node` share the node's memory.
    pub fn new(replica: ReplicaId, slots: SlotMap, limits: Limits, groups_on_node: u16) -> Self {
        Self { replica, slots, limits, groups_on_node }
    }

    /// Keys it holds.
    pub fn keys(&self) -> u64 {
        0
    }

    /// Bytes it counts against its ceiling.
    pub fn bytes(&self) -> u64 {
        0
    }

    /// A hash of everything it holds.
    pub fn digest(&self) -> u64 {
        let _ = (self.replica, &self.slots, self.limits, self.groups_on_node);
        0
    }
}

impl Application for Machine {
    fn deliver(&mut self, _: Delivery<'_>, _: &mut dyn Outbox) {}

    fn exchanged(&mut self, _: MessageId, _: GroupId, _: &[u8], _: &mut dyn Outbox) {}

    fn ready(&self) -> bool {
        true
    }

    fn repeat(&mut self, _: MessageId, _: &mut dyn Outbox) {}
}
