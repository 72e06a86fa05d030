//! What an operator wants of a group: another leader, or one replica less; and leaders that spread by themselves.

use skein_fabric::Fabric;
use skein_protocol::group::GroupEvent;
use skein_protocol::group::{Cause, Role};
use skein_protocol::ids::ReplicaId;

use super::Replica;
use super::campaign::Wish;
use crate::application::Application;
use crate::operate::CommandError;
use crate::ordering::Links;
use crate::wiring::Wiring;

/// How long a replica goes on trying to lead that an operator wants to: as long as the operator waits.
const WISH_MS: u64 = 10_000;
/// A campaign that comes to nothing is repeated after so many patiences.
const TRY_AGAIN: u64 = 20;

impl<A: Application, O: Links> Replica<A, O> {
    /// Sets out to lead because an operator wants it: at once, or as soon as it can. One campaign may not
    /// be enough. A replica that stood still may have to take a state first, and another candidate may win.
    pub(crate) fn transfer_here<F: Fabric>(
        &mut self,
        wiring: &mut Wiring<F, O>,
    ) -> Result<(), CommandError> {
        if self.core.log().is_silent() || !self.is_trusted() {
            return Err(CommandError::Learner(self.id.group));
        }
        if !self.core.log().leads() {
            let until_ms = self.core.log().now_ms() + WISH_MS;
            self.campaign.wish = Some(Wish { until_ms, next_ms: None });
            self.pursue_wish(wiring);
        }
        Ok(())
    }

    /// Once a tick: campaigns for an operator until it leads, or the operator waits no more.
    pub(super) fn pursue_wish<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) {
        let Some(wish) = self.campaign.wish else { return };
        let now = self.core.log().now_ms();
        if now >= wish.until_ms || self.core.log().won().is_some() {
            self.campaign.wish = None;
            return;
        }
        // A replica that lacks what the leader's log does not hold any more cannot lead: it would only depose
        // a leader that is well.
        let lags = self.core.log().lagging().is_some();
        let whole = !lags && !self.takes_state() && !self.core.log().is_silent();
        let due = wish.next_ms.is_none_or(|next| now >= next && !self.reader.awaiting);
        if whole && due && self.core.log().role() == Role::Follower {
            let next_ms = Some(now + TRY_AGAIN * self.config.group.patience_ms);
            self.campaign.wish = Some(Wish { next_ms, ..wish });
            self.set_out(Cause::Transfer, wiring);
        }
    }

    /// Evicts another replica, because an operator wants it.
    pub(crate) fn evict<F: Fabric>(
        &mut self,
        whom: ReplicaId,
        wiring: &mut Wiring<F, O>,
    ) -> Result<(), CommandError> {
        if !self.core.log().leads() {
            return Err(CommandError::NotLeader(whom.group));
        }
        if whom == self.id || whom.slot >= self.topology.replicas {
            return Err(CommandError::NotEvictable(whom));
        }
        self.tell_core(GroupEvent::Evict { slot: whom.slot }, wiring);
        Ok(())
    }

    /// As leader: asks the preferred replica to lead, if it is time for leaders to spread. Returns
    /// whether it did.
    pub(crate) fn hand_over<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) -> bool {
        let Some(slot) = self.core.hands_over() else { return false };
        let follower = &self.writer.followers[usize::from(slot)];
        let lags = follower.freed + self.memory.space.capacity() / 8 <= self.memory.freed;
        if lags || follower.joining.is_some() || self.core.log().sends_state().is_some() {
            return false;
        }
        tracing::info!(replica = %self.id, slot, "hands over, so that leaders spread");
        self.tell_core(GroupEvent::HandsOver { to: slot }, wiring);
        true
    }
}
