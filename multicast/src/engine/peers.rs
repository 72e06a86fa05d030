//! Peers that end, and sessions that end with them.

use skein_fabric::{Fabric, Peer};
use skein_protocol::ids::SessionId;
use skein_protocol::mutants::{Mutant, planted};

use super::Engine;
use crate::application::Application;
use crate::introductions::{Purpose, replica};
use crate::ordering::Links;
use crate::replica::Replica;

/// A leader reports a dead session once in this many liveness probes, until its group has ended it, and at
/// most this many times.
const REAP_EVERY: u32 = 5;
const REAP_MAX: u8 = 20;
/// Factor by which reports are rarer where peers may return: a session has 5 s to do so.
const RETURN_WITHIN: u8 = 10;

impl<F: Fabric, A: Application, O: Links> Engine<F, A, O> {
    pub(super) fn handshake(&mut self) {
        for former in self.links.handshake() {
            self.lose(former);
        }
    }

    /// Probes which peers are gone. The rings of a dead session are read once more, then given up with it.
    pub(super) fn probe_peers(&mut self) {
        for replica in &self.replicas {
            replica.prepare_log(&mut self.links);
        }
        if self.pace.calls_sessions() {
            self.peers.extend(self.links.endpoint.correspondents());
        }
        self.peers.extend(self.links.peers());
        self.look_after_peers();
        self.replicas.iter_mut().for_each(Replica::drop_useless);
        self.reap_sessions();
    }

    /// The later the death of a leader is noticed, the longer its group stands still, so leaders' processes
    /// are probed at every tick.
    pub(super) fn look_after_leaders(&mut self) {
        for replica in &self.replicas {
            let leader = replica.core.log().leader().filter(|leader| *leader != replica.id);
            self.peers.extend(leader.and_then(|leader| self.links.peer_of(leader)));
        }
        self.look_after_peers();
    }

    /// Probes which of `peers` are gone, and forgets those.
    pub(super) fn look_after_peers(&mut self) {
        let mut peers = std::mem::take(&mut self.peers);
        peers.sort_unstable();
        peers.dedup();
        for peer in peers.drain(..) {
            if self.links.endpoint.fabric.is_gone(peer) {
                self.lose(peer);
            }
        }
        self.peers = peers;
    }

    /// Drops the peers that may no longer speak for their nodes, after the roster has changed.
    pub(super) fn learn_of_peers(&mut self) {
        for former in self.links.turn_away_former() {
            self.lose(former);
        }
        self.peer_died |= self.links.roster.has_news();
    }

    /// Handles the end of a peer's process, or of the connection to it.
    pub(super) fn lose(&mut self, peer: Peer) {
        self.peer_died = true;
        let died = self.links.endpoint.fabric.has_died(peer);
        if let Some((node, engine)) = self.links.engine_of(peer) {
            tracing::warn!(node, engine, "an engine is gone");
            let topology = self.links.layout.topology();
            for replica in &mut self.replicas {
                for member in topology.replicas_of(replica.id.group) {
                    if self.links.peer_of(member) == Some(peer) {
                        replica.saw_death(member.slot, died.then_some(peer), &mut self.links);
                    }
                }
            }
        }
        self.links.lost(peer);
        for channel in self.links.endpoint.lost(peer) {
            self.note_gone(channel);
        }
    }

    /// Returns whether the end of a connection does not imply the end of the process behind it.
    pub(super) fn peers_may_return(&self) -> bool {
        self.links.endpoint.fabric.may_return() && !planted(Mutant::EndsWithConnection)
    }

    /// The other side of a channel is gone: the channel is read to its end and then removed.
    pub(super) fn note_gone(&mut self, channel: u32) {
        if let Purpose::Session { session, replica: to } =
            self.links.endpoint.channel(channel).purpose
        {
            let session = SessionId(session);
            // On such a fabric, a session does not end with a connection, and may have another already.
            let over = !self.peers_may_return();
            let ours = self.replicas.iter_mut().find(|r| r.id == replica(to));
            let back = !over && self.links.has_another(session, replica(to), channel);
            if let Some(ours) = ours.filter(|ours| !back && !ours.core.has_ended(session)) {
                ours.dead_sessions.insert(session, 0);
                if over && ours.core.log().leads() {
                    self.dead_sessions.insert(session);
                }
            }
        }
        self.reading.read_again(channel);
    }

    /// Collects sessions that died and are not ended, including those that a leader's predecessor may have died with.
    fn reap_sessions(&mut self) {
        if !self.pace.counts_probe(REAP_EVERY) {
            return;
        }
        self.give_up_own();
        if self.originates() {
            return;
        }
        let within = if self.peers_may_return() { RETURN_WITHIN } else { 0 };
        for replica in self.replicas.iter_mut().filter(|replica| replica.core.log().leads()) {
            self.dead_sessions.extend(replica.reap_sessions(within, REAP_MAX, &mut self.links));
        }
    }
}
