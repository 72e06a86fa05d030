//! This fabric as the control channel of another, whose memory is reached by other means.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::TcpFabric;
use super::link::Ended;
use crate::memory::Memory;
use crate::{Completion, Peer, Region};

impl TcpFabric {
    /// Whether the peer has a card. A peer without one, a client, is served by this fabric itself.
    pub(crate) fn has_card(&self, peer: Peer) -> bool {
        self.peers.get(peer.0).is_some_and(|state| state.side.card)
    }

    /// The number of the grant under which a region is open, and its memory, for a card to reach too.
    pub(crate) fn share(&self, region: Region) -> (Option<u64>, Arc<Memory>) {
        (self.regions.grant_of(region), Arc::clone(self.regions.get(region)))
    }

    pub(crate) fn is_open(&self, grant: u64) -> bool {
        self.regions.is_open(grant)
    }

    /// Appends the ends of operations on this fabric.
    pub(crate) fn take_completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.completions);
    }

    pub(crate) fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Sends the peer a note. Does nothing if its connection has ended.
    pub(crate) fn note(&mut self, to: Peer, bytes: &[u8]) {
        if let Some(link) = self.peers.get_mut(to.0).and_then(|state| state.link.as_mut()) {
            link.note(bytes);
            self.send(to.0);
        }
    }

    pub(crate) fn next_note(&mut self) -> Option<(Peer, Vec<u8>)> {
        let (peer, note) = self.notes.as_mut()?.pop_front()?;
        Some((Peer(peer), note))
    }

    /// Whether the connection to the peer has not ended, as far as is known.
    pub(crate) fn is_linked(&self, peer: Peer) -> bool {
        self.peers.get(peer.0).is_some_and(|state| state.link.is_some())
    }

    /// Ends the connection to a peer that can no longer be reached by other means.
    pub(crate) fn break_off(&mut self, peer: Peer) {
        self.end(peer.0, &Ended::Closed);
    }

    /// Whether a control message waits.
    pub(crate) fn has_letters(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Whether there is something to read without waiting.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Clears [`has_rung`](Self::has_rung).
    pub(crate) fn hush(&mut self) {
        self.rung = false;
    }

    /// Whether another thread has rung since [`hush`](Self::hush).
    pub(crate) fn has_rung(&self) -> bool {
        self.rung
    }
}

/// Readable when there is something to read.
impl AsFd for TcpFabric {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
