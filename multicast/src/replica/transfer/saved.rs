//! The ordering state at the commit index, as it ends a copy.

use serde::{Deserialize, Serialize};
use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::Role;
use skein_protocol::group::runs::Runs;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::MessageStage;
use skein_protocol::ordering::NotRestored;

use super::Replica;
use crate::application::Application;
use crate::election::{Content, SentCursor, cursor, place};
use crate::ordering::Links;
use crate::replica::on_disk::DiskRecord;
use crate::replica::results::{Saved, are_groups};
use crate::replica_links::{Note, ReplicaLinks};

/// The ordering state, as sent.
#[derive(Serialize, Deserialize)]
struct SavedOrdering {
    core: Vec<u8>,
    runs: Vec<(u64, SentCursor)>,
    end: SentCursor,
    payloads: Vec<Payload>,
    exchange: Saved,
}

/// Fields behind an ordering state, unless all are empty. Earlier versions neither wrote nor read them.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
struct Behind {
    /// Results that the machine has, and that the log up to the state's end may lack: name, group.
    early: Vec<(u64, u64, u16)>,
    /// The sender's [recovery barrier](skein_protocol::group::GroupLog::recovery_barrier), which is of use to itself alone.
    recovery_barrier: u64,
}

impl Behind {
    /// The state, and what stands behind it.
    fn read(bytes: &[u8]) -> Option<(SavedOrdering, Self)> {
        let (order, rest) = postcard::take_from_bytes(bytes).ok()?;
        let none = rest.is_empty().then(Self::default);
        Some((order, none.or_else(|| postcard::from_bytes(rest).ok())?))
    }
}

#[derive(Serialize, Deserialize)]
struct Payload {
    session: u64,
    sequence: u64,
    low_water: u64,
    destinations: Vec<u16>,
    bytes: Vec<u8>,
}

/// The last entry that a saved ordering state contains.
pub(in crate::replica) fn saved_end(bytes: &[u8]) -> Option<u64> {
    let saved: SavedOrdering = postcard::from_bytes(bytes).ok()?;
    Some(saved.end.0 - 1)
}

/// The recovery barrier of the replica that saved an ordering state.
pub(in crate::replica) fn saved_barrier(bytes: &[u8]) -> Option<u64> {
    Behind::read(bytes).map(|(_, behind)| behind.recovery_barrier)
}

fn groups(set: GroupSet) -> Vec<u16> {
    set.iter().map(|group| group.0).collect()
}

fn group_set(groups: &[u16]) -> Option<GroupSet> {
    let known = groups.iter().all(|group| *group < GroupSet::CAPACITY);
    known.then(|| groups.iter().map(|group| GroupId(*group)).collect())
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Encodes the ordering state. Log entries behind the commit index are not in it.
    pub(in crate::replica) fn save_order(&mut self) -> Vec<u8> {
        let mut core = Vec::new();
        self.core.save(&mut core);
        self.memory.pass_committed(self.core.log().commit_index());
        let end = self.memory.commit_end();
        let mut runs = self.memory.runs.clone();
        runs.truncate(end);
        let pending = self.payloads.messages();
        let pending = pending.into_iter().filter(|message| {
            self.core.stage_of(*message) == MessageStage::Pending || self.core.passes_on(*message)
        });
        let payloads = pending.map(|message| {
            let held = self.payloads.get(message).expect("just listed");
            Payload {
                session: message.session.0,
                sequence: message.sequence,
                low_water: held.low_water,
                destinations: groups(held.destinations),
                bytes: held.bytes.clone(),
            }
        });
        let order = SavedOrdering {
            core,
            runs: runs.iter().map(|(birth, first)| (birth.to_word(), place(first))).collect(),
            end: place(end),
            payloads: payloads.collect(),
            exchange: self.exchange.save(),
        };
        let mut bytes = postcard::to_stdvec(&order).expect("plain data");
        let behind = Behind {
            early: self.exchange.save_early(),
            recovery_barrier: self.core.log().recovery_barrier(),
        };
        if behind != Behind::default() {
            bytes = postcard::to_extend(&behind, bytes).expect("plain data");
        }
        bytes
    }

    /// Takes the ordering state, which completes the copy: it is our state from here on.
    pub(super) fn take_order<F: Fabric>(
        &mut self,
        bytes: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) -> Option<()> {
        let (order, Behind { early, .. }) = Behind::read(bytes)?;
        let core = match self.core.restored(&order.core) {
            Ok(core) => core,
            Err(NotRestored::Malformed) => return None,
            Err(NotRestored::Outdated) => {
                // Our group has resumed from another state.
                self.stop_receiving();
                return Some(());
            }
        };
        let mut payloads = Vec::new();
        for payload in order.payloads {
            let message = MessageId::new(SessionId(payload.session), payload.sequence);
            payloads.push((
                message,
                payload.low_water,
                group_set(&payload.destinations)?,
                payload.bytes,
            ));
        }
        if !order.exchange.is_sound() || !are_groups(early.iter().map(|(.., from)| from)) {
            return None;
        }
        let runs = order.runs.iter();
        let runs = runs.map(|(birth, first)| (Ballot::from_word(*birth), cursor(*first)));
        let end = cursor(order.end);
        let runs = Runs::new(runs, end);
        let counts = self.core.log().role() != Role::Blank && !self.core.log().is_suspended();
        let more = counts && self.memory.runs.end().index > end.index;
        if more && self.memory.runs.shared(&runs) == Some(end) && !planted(Mutant::OlderStateTaken)
        {
            // Others may count on what we hold beyond: the state must contain it first.
            self.paths.copy_too_old += 1;
            self.stop_receiving();
            return Some(());
        }
        let received = self.transfer.received.take()?;
        tracing::info!(replica = %self.id, bytes = received.bytes, index = end.index - 1,
            took = ?received.began.elapsed(), "has received the state");
        self.record(DiskRecord::Part { first: false, content: Content::Order, bytes }, links);
        self.begin_at(core, received.application, runs, links);
        self.snapshot.received(received.bytes);
        for (message, low_water, destinations, bytes) in payloads {
            let beyond = self.exceeds_budget(bytes.len()) && self.payloads.get(message).is_none();
            self.payloads.replace(message, low_water, destinations, &bytes);
            if beyond {
                self.payloads.note_beyond(message);
            }
        }
        self.exchange.restore(order.exchange, early, self.core.log().now_ms());
        let core = &self.core;
        self.payloads.retain_all(|message| {
            !core.is_logged(message)
                || core.stage_of(message) == MessageStage::Pending
                || core.passes_on(message)
        });
        self.forget_unsent(links);
        links.note_restored(self.id, self.core.delivered());
        let (by, ballot) = (self.id, self.core.log().promised());
        links.note(|| Note::Promised { by, ballot, granted: false });
        Some(())
    }
}
