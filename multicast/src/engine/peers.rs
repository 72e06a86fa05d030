//! Peers that end, and sessions that end with them.

use skein_fabric::{Fabric, Peer};
use skein_protocol::ids::SessionId;
use skein_protocol::mutants::{Mutant, planted};

use super::Engine;
use crate::application::Application;
use crate::introductions::{Purpose, replica};
use crate::ordering::Links;
use crate::replica::Replica;

/// How often a leader says that a session is dead, once in so many looks for dead peers, until its
/// group has ended it, and how often at most.
const REAP_EVERY: u32 = 5;
const REAP_MAX: u8 = 20;
/// So many times less where who is gone may come back: 5 s to do so.
const RETURN_WITHIN: u8 = 10;

impl<F: Fabric, A: Application, O: Links> Engine<F, A, O> {
    pub(super) fn handshake(&mut self) {
        for former in self.links.handshake() {
            self.lose(former);
        }
    }

    /// Asks which peers are gone. What a dead session's rings hold is read once more and then given
    /// up with them.
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

    /// A dead leader costs the more time the later it is noticed: its process is asked after in each
    /// tick.
    pub(super) fn look_after_leaders(&mut self) {
        for replica in &self.replicas {
            let leader = replica.core.log().leader().filter(|leader| *leader != replica.id);
            self.peers.extend(leader.and_then(|leader| self.links.peer_of(leader)));
        }
        self.look_after_peers();
    }

    /// Asks the system which of `peers` are gone, and lets go of them.
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

    /// Something was learned of who runs which node: lets go of peers that are none of them any more.
    pub(super) fn learn_of_peers(&mut self) {
        for former in self.links.turn_away_former() {
            self.lose(former);
        }
        self.peer_died |= self.links.roster.has_news();
    }

    /// A peer's process, or our connection to it, has ended.
    pub(super) fn lose(&mut self, peer: Peer) {
        self.peer_died = true;
        let died = self.links.endpoint.fabric.has_died(peer);
        if let Some((node, engine)) = self.links.engine_of(peer) {
            tracing::warn!(node, engine, "an engine is gone");
            let topology = self.links.topology;
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

    /// Whether a connection that has ended says nothing of the process behind it.
    pub(super) fn peers_may_return(&self) -> bool {
        self.links.endpoint.fabric.may_return() && !planted(Mutant::EndsWithConnection)
    }

    /// A channel's other side is gone: it is read to its end, and then removed.
    pub(super) fn note_gone(&mut self, channel: u32) {
        if let Purpose::Session { session, replica: to } =
            self.links.endpoint.channel(channel).purpose
        {
            let session = SessionId(session);
            // A connection that has ended is not the end of a session, which may be back already.
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

    /// What a leader's predecessor may have died with: who died, and has not been ended.
    fn reap_sessions(&mut self) {
        if !self.pace.counts_probe(REAP_EVERY) || self.originates() {
            return;
        }
        let within = if self.peers_may_return() { RETURN_WITHIN } else { 0 };
        for replica in self.replicas.iter_mut().filter(|replica| replica.core.log().leads()) {
            self.dead_sessions.extend(replica.reap_sessions(within, REAP_MAX, &mut self.links));
        }
    }
}
