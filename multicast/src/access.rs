//! The session's half: rings at the replicas, credits, replies.

use std::time::Duration;

use skein_fabric::wait::Waiter;
use skein_fabric::{Fabric, FabricError};
use skein_protocol::ids::{GroupId, GroupSet, SessionId};

use crate::config::{Topology, Tuning};

/// The sessions of one thread and the fabric they share. Never blocks.
pub struct Access<F> {
    fabric: F,
}

/// One session of an [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u32);

/// The session has as many messages under way as its window allows: turn, and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session's window is full")]
pub struct WindowFull;

/// One group's reply to one message.
#[derive(Clone, Copy, Debug)]
pub struct GroupReply<'a> {
    /// To whom.
    pub session: SessionKey,
    /// To what.
    pub sequence: u64,
    /// From whom.
    pub group: GroupId,
    /// What its state machine said.
    pub bytes: &'a [u8],
}

impl<F: Fabric> Access<F> {
    /// No sessions yet.
    pub fn new(fabric: F, topology: Topology, tuning: Tuning) -> Self {
        let _ = (topology, tuning);
        Self { fabric }
    }

    /// Opens a session. `id` must be drawn at random. Rings are opened at first use.
    pub fn open(&mut self, id: SessionId) -> SessionKey {
        let _ = id;
        SessionKey(0)
    }

    /// Multicasts `payload` to `destinations` and returns the message's sequence number. The bytes
    /// are taken; they are written as the rings have room.
    pub fn multicast(
        &mut self,
        session: SessionKey,
        destinations: GroupSet,
        payload: &[u8],
    ) -> Result<u64, WindowFull> {
        let _ = (session, destinations, payload);
        Err(WindowFull)
    }

    /// Nobody waits for replies to message `sequence` any more; those still to come are not given
    /// out. The message leaves the window when every destination group has replied, so that the
    /// session's low-water mark never passes one that may yet be delivered. To be called once for
    /// every message.
    pub fn settle(&mut self, session: SessionKey, sequence: u64) {
        let _ = (session, sequence);
    }

    /// Writes what the rings have room for and takes the replies that are in. Returns whether there
    /// was anything to do.
    pub fn turn(&mut self, replies: &mut dyn FnMut(GroupReply<'_>)) -> Result<bool, FabricError> {
        let _ = replies;
        Ok(false)
    }

    /// Whether there is nothing that the next [`turn`](Self::turn) would see.
    pub fn idle(&self) -> bool {
        true
    }

    /// Gives the session's rings back. Its unsettled messages may or may not be delivered.
    pub fn close(&mut self, session: SessionKey) {
        let _ = session;
    }

    /// The groups of which too many nodes are not running for a message to be ordered now. Asks the
    /// system: not for the hot path.
    pub fn unavailable(&mut self) -> GroupSet {
        GroupSet::EMPTY
    }

    /// The fabric, for waiting on.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Waits, as `waiter` sees fit, until a reply may be in, or `longest` has passed. Sleeps only
    /// while `undisturbed` says so: what other threads ask comes with a wake-up of its own.
    pub fn wait(&mut self, waiter: &mut Waiter, longest: Duration, undisturbed: &dyn Fn() -> bool) {
        waiter.idle(&mut self.fabric, longest, &mut |_| undisturbed());
    }
}
