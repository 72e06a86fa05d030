//! The driver's part of state transfer: copies of a machine that are sent and received.
//!
//! The protocol decides which replica is sent whose state, which part is next, and when a receiver is given
//! up ([`skein_protocol::group::transfer`]). This module handles the bytes: the machine's copy (`sender`),
//! its restoration (`receiver`), and the ordering state that goes with it (`saved`).

mod receiver;
mod saved;
mod sender;

use skein_fabric::Fabric;
use skein_protocol::group::transfer::{self, Extent};
use skein_protocol::rank::Rank;

pub(super) use self::receiver::Received;
pub(super) use self::saved::{saved_barrier, saved_end};
use super::Replica;
use super::feed::Feed;
use crate::application::Application;
use crate::election::{CopyId, LogPart, Part, Taken};
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// The copies of a state that a replica sends and receives.
pub(super) struct StateTransfer<A> {
    /// Our machine's copy is begun, and neither finished nor given up. Then the log
    /// [sends](skein_protocol::group::GroupLog::sends_state) it, and has not sent all of it.
    copying: bool,
    /// Bytes sent of the copy that was begun last.
    pub(super) sent_bytes: u64,
    /// The part of a copy that we have received so far, if the log receives one.
    pub(super) received: Option<Received<A>>,
    /// The log that we feed a follower instead of a copy. Then the log sends it, as it would send a copy.
    pub(super) feed: Option<Feed>,
    /// The rank of our last delivery when we had been fed all of a log.
    pub(super) fed_at: Option<Rank>,
}

impl<A> Default for StateTransfer<A> {
    fn default() -> Self {
        Self { copying: false, sent_bytes: 0, received: None, feed: None, fed_at: None }
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Drops all copies: an operator recreates our group.
    pub(super) fn forget_transfers<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        self.stop_feeding(links);
        self.give_up_copy();
        self.transfer.received = None;
    }

    /// Returns whether more memories are lost than the group tolerates.
    pub(crate) fn is_lost(&self) -> bool {
        self.core.log().is_lost(|slot| self.writer.followers[usize::from(slot)].joining)
    }

    /// Returns whether an incarnation of the slot is known that our group has not admitted.
    pub(super) fn has_lost_its_memory(&self, slot: u8) -> bool {
        let joining = self.writer.followers[usize::from(slot)].joining;
        self.core.log().has_lost_its_memory(slot, joining)
    }
}

impl From<transfer::CopyId> for CopyId {
    fn from(copy: transfer::CopyId) -> Self {
        Self { giver: copy.sender, number: copy.number }
    }
}

impl From<CopyId> for transfer::CopyId {
    fn from(copy: CopyId) -> Self {
        Self { sender: copy.giver, number: copy.number }
    }
}

impl From<Extent> for Taken {
    fn from(extent: Extent) -> Self {
        Self { copy: extent.copy.into(), next: extent.next }
    }
}

impl From<Taken> for Extent {
    fn from(taken: Taken) -> Self {
        Self { copy: taken.copy.into(), next: taken.next }
    }
}

impl From<&LogPart> for transfer::Part {
    fn from(part: &LogPart) -> Self {
        Self { incarnation: part.incarnation, copy: part.copy.into(), number: part.number }
    }
}

impl From<&Part> for transfer::Part {
    fn from(part: &Part) -> Self {
        Self { incarnation: part.incarnation, copy: part.copy.into(), number: part.number }
    }
}
