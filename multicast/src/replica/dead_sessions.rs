//! Sessions whose connections to this replica have ended, until they return or are ended.
//!
//! Over a network, the end of a connection says little: the session's process may be alive, and cut off from
//! this replica alone. So a leader asks the other replicas of its group before it reports a session as dead.
//! A session with a connection to any of them is not dead, and continues with all groups that it reaches.

use skein_fabric::Fabric;
use skein_protocol::ids::SessionId;

use super::Replica;
use crate::application::Application;
use crate::election::Election;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Sessions that other replicas are asked about at a time.
const SOUGHT_MAX: usize = 256;

impl<A: Application, O: Links> Replica<A, O> {
    /// As leader, called periodically: returns the dead sessions, whose connections ended more than `within`
    /// calls ago. At most `again` calls return a session.
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

    /// The sessions that are dead, and those about which the group's other replicas are to be asked.
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

    /// Our leader has lost its connections to these sessions: answers which of them have one to us.
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

    /// Another replica has connections to these sessions: they are alive.
    pub(super) fn seen(&mut self, sessions: &[u64]) {
        for session in sessions {
            if let Some(said) = self.dead_sessions.get_mut(&SessionId(*session)) {
                *said = 0;
            }
        }
    }

    /// Drops the queries of a session whose process is gone, and its messages that nobody has ordered.
    pub(crate) fn session_gone(&mut self, session: SessionId) {
        self.reads.forget(session);
        let core = &self.core;
        let ordered = |message| core.is_logged(message) || core.is_waiting(message);
        self.payloads.retain(session, ordered);
        self.payloads.retain_hints(|hint| hint.session != session);
    }
}
