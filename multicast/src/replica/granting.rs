//! Granting our log to another replica, and reporting its contents.

use skein_fabric::{Fabric, Peer, RegionKey};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::body::{Body as _, Payload, ReadMessage};
use skein_protocol::group::frame::{Cursor, Frame};
use skein_protocol::group::{Asked, GroupEvent};
use skein_protocol::ids::ReplicaId;
use skein_protocol::message::{Head, encode_name};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::step::Event;

use super::Replica;
use super::log::announced;
use crate::application::Application;
use crate::election::{Election, Granted, Piece, place};
use crate::introductions::Key;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// A grant of our log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    ballot: Ballot,
    attempt: u32,
    peer: Peer,
    key: Key,
}

impl Answered {
    /// Returns whether this grant answers that question over that connection.
    pub(super) fn answers(&self, asked: &Asked, peer: Option<Peer>) -> bool {
        let Self { ballot, attempt, peer: granted, .. } = *self;
        (ballot, attempt, Some(granted)) == (asked.question.ballot, asked.attempt, peer)
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Lets the asking replica write our log, and sends it the log's contents.
    pub(super) fn report<F: Fabric>(&mut self, asked: Asked, links: &mut ReplicaLinks<F, O>) {
        let from = ReplicaId::new(self.id.group, asked.by);
        let Some(peer) = links.peer_of(from) else { return };
        // If memory is short, what we held as a leader may be what our log needs.
        self.leave_logs(links);
        let granted = if planted(Mutant::GrantWithoutRevoking) && self.reader.granted.is_some() {
            Ok(RegionKey([u8::MAX; 32]))
        } else {
            links.endpoint.fabric.grant(self.memory.region, peer)
        };
        let key = match granted {
            Ok(key) => key.0,
            Err(error) => {
                return tracing::warn!(%error, replica = %self.id, "cannot grant its log to a leader");
            }
        };
        let (ballot, attempt) = (asked.question.ballot, asked.attempt);
        self.reader.granted = Some(peer);
        self.reader.grants += 1;
        self.reader.await_leader(&self.memory, &links.endpoint.fabric);
        self.core.step(Event::Group(GroupEvent::Opened), &mut self.effects);
        tracing::info!(replica = %self.id, to = %from, %ballot, end = self.memory.runs.end().index - 1, "grants");
        self.tell_granted(asked, Answered { ballot, attempt, peer, key }, links);
    }

    /// Handles a repeated question of the replica that our log was granted to.
    pub(super) fn asked_again<F: Fabric>(&mut self, asked: Asked, links: &mut ReplicaLinks<F, O>) {
        let sent = links.has_sent_all(self.id, ReplicaId::new(self.id.group, asked.by));
        let awaits_leader = self.reader.awaiting;
        self.tell_core(GroupEvent::AskedAgain { asked, awaits_leader, sent }, links);
    }

    pub(super) fn tell_granted<F: Fabric>(
        &mut self,
        asked: Asked,
        answered: Answered,
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.reader.answered = Some(answered);
        let mut tail = Vec::new();
        let whole = self.collect(asked.from, &links.endpoint.fabric, &mut tail);
        let granted = Granted {
            ballot: asked.question.ballot.to_word(),
            attempt: asked.attempt,
            incarnation: self.incarnation,
            grant: self.reader.grants,
            key: answered.key,
            named: self.core.log().named(),
            runs: self
                .memory
                .runs
                .iter()
                .map(|(birth, first)| (birth.to_word(), place(first)))
                .collect(),
            end: place(self.memory.runs.end()),
            freed: self.freed(),
            whole,
            applied: self.applied(links.disk.is_some()).number(),
            held_from: self.memory.held_from(&links.endpoint.fabric),
        };
        self.tell_member(asked.by, &Election::Granted(granted), &tail, links);
    }

    /// Collects our log's entries from `from` on, and the payloads that they do not contain. Returns false if
    /// some of them are overwritten.
    pub(super) fn collect<F: Fabric>(&self, from: Cursor, fabric: &F, into: &mut Vec<u8>) -> bool {
        let end = self.memory.runs.end();
        let capacity = self.memory.space.capacity();
        if from.position + capacity < end.position {
            return false;
        }
        let mut at = from;
        while at.index < end.index {
            let Some(bytes) = self.memory.raw_entry(&mut at, fabric) else { return false };
            let Some(frame) = Frame::parse(&bytes, at) else { return false };
            if !self.memory.holds(&frame, at.index) {
                return false;
            }
            let Some(body) = Self::body(&frame) else { return false };
            if let Some(ReadMessage { message, payload, .. }) = body.and_then(|it| it.message())
                && matches!(payload, Payload::Held { .. })
                && let Some(held) = self.payloads.get(message)
            {
                let mut piece = Vec::new();
                encode_name(message, &mut piece);
                let (sequence, low_water) = (message.sequence, held.low_water);
                Head { sequence, low_water, destinations: held.destinations }.encode(&mut piece);
                piece.extend_from_slice(&held.bytes);
                Piece::Payload(&piece).encode(into);
            }
            if body.is_some() {
                Piece::Entry(&bytes).encode(into);
            }
            frame.step_over(&mut at, announced(&bytes));
        }
        true
    }
}
