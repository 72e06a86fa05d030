//! Leadership transfer and eviction for an operator, and hand-over for the automatic spreading of leaders.

use skein_fabric::Fabric;
use skein_protocol::group::GroupEvent;
use skein_protocol::ids::ReplicaId;

use super::Replica;
use crate::application::Application;
use crate::operate::CommandError;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

impl<A: Application, O: Links> Replica<A, O> {
    /// Stands for election because an operator asked for it: at once, or as soon as it can.
    pub(crate) fn transfer_here<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<(), CommandError> {
        if self.core.log().is_silent() || !self.is_trusted() {
            return Err(CommandError::Learner(self.id.group));
        }
        self.tell_core(GroupEvent::WantedToLead, links);
        self.pursue_wish(links);
        Ok(())
    }

    /// Handles a tick: campaigns for an operator until it leads, or the operator no longer waits.
    pub(super) fn pursue_wish<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let (trusted, awaits_leader) = (self.is_trusted(), self.reader.awaiting);
        self.tell_core(GroupEvent::WishTick { trusted, awaits_leader }, links);
    }

    /// Evicts another replica because an operator asked for it.
    pub(crate) fn evict<F: Fabric>(
        &mut self,
        whom: ReplicaId,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<(), CommandError> {
        if !self.core.log().leads() {
            return Err(CommandError::NotLeader(whom.group));
        }
        if whom == self.id || whom.slot >= self.topology.replicas {
            return Err(CommandError::NotEvictable(whom));
        }
        self.tell_core(GroupEvent::Evict { slot: whom.slot }, links);
        Ok(())
    }

    /// As leader: asks the preferred replica to lead, if it is time for leaders to spread. Returns whether it did.
    pub(crate) fn hand_over<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) -> bool {
        let capacity = self.memory.space.capacity();
        let lags = |slot: &u8| {
            let follower = &self.writer.followers[usize::from(*slot)];
            follower.joining.is_some() || follower.freed + capacity / 8 <= self.memory.freed
        };
        let lag = (0..self.topology.replicas).filter(lags).collect();
        let Some(slot) = self.core.hands_over(lag) else { return false };
        tracing::info!(replica = %self.id, slot, "transfers leadership, so that leaders spread");
        self.tell_core(GroupEvent::HandsOver { to: slot }, links);
        true
    }
}
