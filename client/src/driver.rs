//! Many sessions on the caller's thread.

use std::time::Duration;

use skein_fabric::Fabric;
use skein_kvstore::command::Transaction;
use skein_kvstore::reply::Reply;
use skein_kvstore::slots::SlotMap;
use skein_multicast::access::Access;

pub use skein_multicast::access::SessionKey;

use crate::error::Error;

/// An operation under way: what [`Driver::poll`] names it by when it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The session it was submitted to.
    pub session: SessionKey,
    /// Rises with every operation of the driver.
    pub number: u64,
}

/// Many sessions, each with many operations under way, on one thread and one fabric.
pub struct Driver<F> {
    access: Access<F>,
    slots: SlotMap,
}

impl<F: Fabric> Driver<F> {
    /// A driver without sessions.
    pub fn new(access: Access<F>, slots: SlotMap) -> Self {
        Self { access, slots }
    }

    /// Operations submitted from now on wait this long for their replies (5 s to begin with).
    pub fn set_timeout(&mut self, timeout: Duration) {
        let _ = timeout;
    }

    /// Opens a session. Operations can be submitted at once.
    pub fn open(&mut self) -> SessionKey {
        let _ = &self.slots;
        self.access.open(skein_protocol::ids::SessionId(0))
    }

    /// Sends `transaction` on its way. Its reply comes out of [`poll`](Self::poll), exactly once
    /// for each ticket.
    pub fn submit(
        &mut self,
        session: SessionKey,
        transaction: &Transaction,
    ) -> Result<Ticket, Error> {
        let _ = (session, transaction);
        Err(Error::Closed)
    }

    /// Does what there is to do, without waiting, and calls `finished` for each operation that has
    /// come to an end. Returns whether there was anything to do. The error is of the memory shared
    /// with the cluster as a whole; nothing will work after it.
    pub fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error> {
        let _ = finished;
        Ok(false)
    }

    /// Waits a little, after a [`poll`](Self::poll) that returned false: spins, yields or parks as
    /// the cluster's configuration says, at most for `longest`.
    pub fn wait(&mut self, longest: Duration) {
        let _ = longest;
    }

    /// The operations that were submitted and are not finished.
    pub fn under_way(&self) -> usize {
        0
    }

    /// Ends a session. Its operations under way finish as [`Error::Closed`] or better.
    pub fn close(&mut self, session: SessionKey) {
        self.access.close(session);
    }
}
