//! Peers to wake after writes to them: at the end of the turn, or at the writer's next tick.
//!
//! **Invariant.** Each list contains a peer at most once, and no list contains a peer that has been woken for
//! all writes to it.

use skein_fabric::Peer;
use skein_protocol::mutants::{Mutant, planted};

/// When a sleeping peer is woken after a write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hurry {
    /// At the end of the turn: somebody waits for the peer's reaction.
    Now,
    /// At the writer's next tick: nobody waits for it.
    ByTick,
}

/// The peers that a process has to wake.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    now: Vec<Peer>,
    by_tick: Vec<Peer>,
}

impl Wakes {
    /// Records a write to a peer.
    pub(crate) fn note(&mut self, peer: Peer, hurry: Hurry) {
        let list = match hurry {
            Hurry::Now => &mut self.now,
            Hurry::ByTick => &mut self.by_tick,
        };
        if !list.contains(&peer) && !planted(Mutant::NeverWoken) {
            list.push(peer);
        }
    }

    /// Handles a tick: all peers are to be woken at the end of this turn.
    pub(crate) fn tick(&mut self) {
        while let Some(peer) = self.by_tick.pop() {
            if !planted(Mutant::NeverWokenLate) {
                self.note(peer, Hurry::Now);
            }
        }
    }

    /// Takes the next peer to wake at the end of the turn. It is woken for all that was written to it.
    pub(crate) fn take(&mut self) -> Option<Peer> {
        let peer = self.now.pop()?;
        self.by_tick.retain(|late| *late != peer);
        Some(peer)
    }

    /// Peers to wake at the end of the turn.
    pub(crate) fn now(&self) -> &[Peer] {
        &self.now
    }

    /// Peers to wake at the next tick.
    pub(crate) fn by_tick(&self) -> &[Peer] {
        &self.by_tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_woken_once_for_all_that_was_written_to_it() {
        let mut wakes = Wakes::default();
        for (peer, hurry) in [
            (1, Hurry::ByTick),
            (2, Hurry::ByTick),
            (1, Hurry::Now),
            (1, Hurry::Now),
            (2, Hurry::ByTick),
        ] {
            wakes.note(Peer(peer), hurry);
        }
        assert_eq!((wakes.take(), wakes.take()), (Some(Peer(1)), None));
        assert_eq!(wakes.by_tick(), [Peer(2)], "its time has not come");
        wakes.tick();
        assert_eq!((wakes.take(), wakes.take()), (Some(Peer(2)), None));
        assert!(wakes.now().is_empty() && wakes.by_tick().is_empty());
    }
}
