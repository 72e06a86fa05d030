//! State transfer where it meets memory: copies of a machine on their way out and in.
//!
//! Whose state is sent to whom, which part is next and when somebody is given up, the protocol decides
//! ([`skein_protocol::group::transfer`]). Here are the bytes: what the machine makes of itself (`sender`), what is put
//! together again (`receiver`), and the ordering state that goes with it (`saved`).

mod receiver;
mod saved;
mod sender;

use skein_protocol::group::transfer::{self, Extent};

use self::receiver::Received;
use super::Replica;
use crate::application::Application;
use crate::election::{CopyId, Part, Taken};
use crate::ordering::Links;

/// What a replica holds of copies of a state.
pub(super) struct StateTransfer<A> {
    /// Our machine is being copied: that was begun, and neither finished nor given up. Then the log
    /// [sends](skein_protocol::group::GroupLog::sends_state) it, and has not sent all of it.
    copying: bool,
    /// Bytes sent of the copy that was begun last.
    pub(super) sent_bytes: u64,
    /// What we were given so far, if the log takes a copy.
    pub(super) received: Option<Received<A>>,
}

impl<A> Default for StateTransfer<A> {
    fn default() -> Self {
        Self { copying: false, sent_bytes: 0, received: None }
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// An operator recreates our group: nothing of a state goes on its way any more.
    pub(super) fn forget_transfers(&mut self) {
        self.give_up_copy();
        self.transfer.received = None;
    }

    /// Whether more memories are lost than the group tolerates.
    pub(crate) fn is_lost(&self) -> bool {
        self.core.log().is_lost(|slot| self.writer.followers[usize::from(slot)].joining)
    }

    /// Whether an incarnation of the slot is known that our group has not let in.
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

impl From<&Part> for transfer::Part {
    fn from(part: &Part) -> Self {
        Self { incarnation: part.incarnation, copy: part.copy.into(), number: part.number }
    }
}
