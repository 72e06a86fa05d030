//! Sessions whose connections to us have ended, until they are back or over.
//!
//! Over a network, that a connection has ended says little: the session's process may be alive, and cut off
//! from us alone. So a leader asks the others of its group before it says that a session is dead. A session
//! that any of them has a connection from is not, and goes on with all groups that it reaches.

use skein_fabric::Fabric;
use skein_protocol::ids::SessionId;

use super::Replica;
use crate::application::Application;
use crate::election::Election;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Sessions that others are asked about at once.
const SOUGHT_MAX: usize = 256;

impl<A: Application, O: Links> Replica<A, O> {
    /// As leader, every so often: says which sessions are dead, since their connections have ended more
    /// than `within` such times ago; at most so many times more as `again`.
    pub(crate) fn reap_sessions<F: Fabric>(
        &mut self,
        within: u8,
        again: u8,
        links: &mut ReplicaLinks<F, O>,
    ) -> Vec<SessionId> {
        let (dead, sought) = self.count_dead_sessions(within, again);
        if !sought.is_empty() {
            let seeks = Election::Seeks { sessions: sought };
            for slot in self.other_slots() {
                self.ask_member(slot, &seeks, links);
            }
        }
        dead
    }

    /// Which sessions are dead, and about which the others of the group are to be asked.
    pub(super) fn count_dead_sessions(
        &mut self,
        within: u8,
        again: u8,
    ) -> (Vec<SessionId>, Vec<u64>) {
        let (mut dead, mut sought) = (Vec::new(), Vec::new());
        self.dead_sessions.retain(|session, said| {
            *said += 1;
            if *said > within {
                dead.push(*session);
            } else if *said >= within / 2 && sought.len() < SOUGHT_MAX {
                sought.push(session.0);
            }
            *said < within + again
        });
        (dead, sought)
    }

    /// Our leader has no connection from these sessions any more: says which of them we have one from.
    pub(super) fn sought<F: Fabric>(
        &mut self,
        slot: u8,
        sessions: Vec<u64>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let mut sessions = sessions;
        sessions.truncate(SOUGHT_MAX);
        sessions.retain(|session| links.hears(SessionId(*session), self.id));
        if !sessions.is_empty() {
            self.ask_member(slot, &Election::Sees { sessions }, links);
        }
    }

    /// Another replica has a connection from these: they live.
    pub(super) fn seen(&mut self, sessions: &[u64]) {
        for session in sessions {
            if let Some(said) = self.dead_sessions.get_mut(&SessionId(*session)) {
                *said = 0;
            }
        }
    }

    /// The session's process is gone: what it sent and nobody logged is of no use any more.
    pub(crate) fn session_gone(&mut self, session: SessionId) {
        self.reads.forget(session);
        let core = &self.core;
        self.payloads.retain(session, |message| core.is_logged(message));
    }
}
