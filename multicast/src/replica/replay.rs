//! A replica that begins with what its node's disk holds.

use skein_fabric::Fabric;
use skein_protocol::group::runs::Runs;
use skein_protocol::group::{GroupEvent, Replay};
use skein_protocol::ids::ReplicaId;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::step::Event;
use skein_protocol::view::View;

use super::Replica;
use super::on_disk::DiskRecord;
use super::results::ResultExchange;
use super::transfer::{Received, saved_barrier};
use crate::application::{Application, NotRestored};
use crate::election::Content;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Why a replica cannot begin with what its disk holds.
#[derive(Debug, thiserror::Error)]
pub enum NotReplayed<F> {
    /// The log on disk is not what this replica wrote.
    #[error("its log on disk cannot be read back: {0}")]
    Disk(String),
    /// The state machine has failed.
    #[error("its state machine has failed: {0}")]
    Machine(F),
}

/// What was read so far, and so which records are to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Neither the beginning of the log nor that of a snapshot: what was read means nothing by itself.
    Nothing,
    /// The beginning of a snapshot, with nothing in front of it.
    Snapshot,
    /// All parts of that snapshot, but not all of the log that it does not contain.
    Parts,
    /// The log from its beginning, or from a whole snapshot on.
    State,
    /// The same, and all parts of another snapshot, which is skipped to its end.
    StateAndParts,
}

impl From {
    /// Whether this record, which comes next, is to be read.
    fn reads(&mut self, record: &DiskRecord<'_>) -> bool {
        let ends = matches!(record, DiskRecord::SnapshotPart { content: Content::Order, .. });
        let (next, reads) = match (*self, record) {
            (Self::Nothing | Self::Snapshot, DiskRecord::Began { .. })
            | (Self::Parts, DiskRecord::SnapshotEnd) => (Self::State, true),
            (Self::State, DiskRecord::SnapshotPart { .. }) if ends => (Self::StateAndParts, false),
            (Self::State, DiskRecord::Snapshot { .. } | DiskRecord::SnapshotPart { .. })
            | (Self::State | Self::StateAndParts, DiskRecord::Resumed)
            | (Self::StateAndParts, DiskRecord::SnapshotEnd) => (Self::State, false),
            (Self::Nothing | Self::Snapshot, DiskRecord::Snapshot { .. }) => (Self::Snapshot, true),
            (Self::Snapshot, DiskRecord::SnapshotPart { .. }) if ends => (Self::Parts, true),
            (Self::Snapshot, DiskRecord::SnapshotPart { .. } | DiskRecord::Promised { .. }) => {
                (Self::Snapshot, true)
            }
            (_, DiskRecord::Resumed) | (Self::Nothing, _) => (Self::Nothing, false),
            (Self::Snapshot, _) => (Self::Snapshot, false),
            (Self::Parts | Self::State, _) => (*self, true),
            (Self::StateAndParts, _) => (Self::StateAndParts, false),
        };
        *self = next;
        reads
    }
}

/// Why a record was not read.
enum Unread {
    /// It is not what this replica wrote.
    Wrong(String),
    /// Files that its snapshot names are not there.
    NotKept(String),
}

impl Unread {
    fn malformed() -> Self {
        Self::Wrong("a part of a state is malformed".to_owned())
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Reads the log on disk, and becomes what this replica was; or begins anew, if there is nothing, or no snapshot whose
    /// files are there.
    pub(crate) fn replay<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) -> Result<(), NotReplayed<A::Failure>> {
        // Nothing that is read is to be written again.
        let Some(mut disk) = links.disk.take() else { return Ok(()) };
        let (mut failure, mut any, mut from) = (None, false, From::Nothing);
        // Bytes of the log, and of the snapshot with which it begins.
        let (mut log_bytes, mut snapshot_bytes) = (0, 0);
        // The reason why the last snapshot that was skipped is of no use.
        let mut lacks = None;
        let read = disk.replay(self.id.group, &mut |kind, bytes| {
            any = true;
            let record = DiskRecord::decode(kind, bytes);
            let record = record.ok_or_else(|| "a record of an unknown kind".to_owned())?;
            let reads = from.reads(&record);
            match record {
                DiskRecord::Snapshot { .. } if reads => (log_bytes, snapshot_bytes) = (0, 0),
                DiskRecord::SnapshotPart { bytes, .. } if reads => {
                    snapshot_bytes += bytes.len() as u64;
                }
                _ => log_bytes += record.bytes(),
            }
            if !reads {
                return Ok(());
            }
            match self.replay_record(record, links, fresh) {
                Ok(Err(Unread::NotKept(why))) => {
                    tracing::warn!(replica = %self.id, why, "skips a snapshot");
                    self.paths.snapshots_skipped += 1;
                    self.transfer.received = None;
                    (from, lacks) = (From::Nothing, Some(why));
                    Ok(())
                }
                Ok(read) => read.map_err(|(Unread::Wrong(why) | Unread::NotKept(why))| why),
                Err(why) => {
                    failure = Some(why);
                    Err("the state machine has failed".to_owned())
                }
            }
        });
        links.disk = Some(disk);
        if let Some(why) = failure {
            return Err(NotReplayed::Machine(why));
        }
        read.map_err(NotReplayed::Disk)?;
        let has_state = matches!(from, From::State | From::StateAndParts);
        if any && !has_state {
            let Some(why) = lacks else {
                return Err(NotReplayed::Disk("it contains no whole state".to_owned()));
            };
            self.give_up_log(&why, links, fresh);
        }
        if has_state {
            self.transfer.received = None;
            if self.core.log().stalled_on().is_some() {
                // An entry whose payload is not there is none of ours.
                self.cut_log(self.memory.end_of(self.core.log().last_index()), links);
            }
            self.reader.cursor = self.memory.runs.end();
            let now_ms = links.endpoint.fabric.now().as_millis() as u64;
            self.core
                .step(Event::Group(GroupEvent::Replay(Replay::Over { now_ms })), &mut self.effects);
            self.record(DiskRecord::Resumed, links);
            self.is_all_on_disk();
            // The next snapshot is due as if this process had written all of it.
            self.disk.bytes = log_bytes;
            self.snapshot.had_bytes(snapshot_bytes);
            tracing::info!(replica = %self.id, incarnation = self.incarnation,
                promised = %self.core.log().promised(), last = self.core.log().last_index(),
                delivered = self.core.delivered(), "begins with what its disk holds");
        } else {
            let incarnation = self.incarnation;
            self.record(DiskRecord::Began { incarnation }, links);
        }
        // A disk without this would be that of a replica that has lost its memory.
        if let Some(disk) = &mut links.disk {
            disk.sync();
        }
        self.carry_out(links);
        Ok(())
    }

    /// Begins anew, without a state: the files of no snapshot in the log are there. What a snapshot had said that was not
    /// whole is forgotten, too.
    fn give_up_log<F: Fabric>(
        &mut self,
        why: &str,
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) {
        tracing::error!(replica = %self.id, why,
            "the files of a replica's state are lost: it begins anew, and takes the state of another");
        self.paths.logs_given_up += 1;
        self.incarnation = self.config.group.began_as;
        self.config.group.incarnation = self.incarnation;
        self.core = O::new(self.config, View::first(self.topology.replicas));
        self.memory.begin_behind(Runs::EMPTY);
        self.application = fresh(self.id);
        self.exchange = ResultExchange::new(self.id, self.topology.groups);
        self.payloads.retain_all(|_| false);
        if let Some(disk) = &mut links.disk {
            disk.begin(self.id.group);
        }
    }

    /// Takes the next record. Returns what is wrong with it.
    fn replay_record<F: Fabric>(
        &mut self,
        record: DiskRecord<'_>,
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) -> Result<Result<(), Unread>, A::Failure> {
        let wrong = |why: String| Ok(Err(Unread::Wrong(why)));
        match record {
            DiskRecord::Began { incarnation } => self.begin_as(incarnation, links),
            DiskRecord::Snapshot { incarnation, promised } => {
                self.begin_as(incarnation, links);
                self.replay_group(Replay::Promised(promised));
                self.transfer.received = Some(Received::new(fresh(self.id)));
            }
            DiskRecord::SnapshotPart { content, bytes } => {
                if content != Content::Order {
                    return self.replay_snapshot_part(content, bytes);
                }
                let taken = self.replay_part(false, content, bytes, links)?;
                if let Some(recovery_barrier) = saved_barrier(bytes) {
                    self.replay_group(Replay::OwnState { recovery_barrier });
                }
                return Ok(taken);
            }
            DiskRecord::SnapshotEnd | DiskRecord::Resumed => {}
            DiskRecord::Promised { ballot } => self.replay_group(Replay::Promised(ballot)),
            DiskRecord::Ballot { ballot, base, first } => {
                if ballot != self.core.log().promised() {
                    return wrong(format!("ballot {ballot} was never promised"));
                }
                let event = GroupEvent::Followed { ballot, base: base.index - 1, first };
                self.core.step(Event::Group(event), &mut self.effects);
                self.cut_log(base, links);
            }
            DiskRecord::Cut { base } => self.cut_log(base, links),
            DiskRecord::Entry(bytes) => {
                let next = self.core.log().last_index() + 1;
                let ballot = self.core.log().promised();
                self.adopt_entry(bytes, ballot, links);
                let log = self.core.log();
                if log.last_index() != next && log.stalled_on().is_none() {
                    return wrong(format!("entry {next} of the log is not there"));
                }
            }
            DiskRecord::Payload(bytes) => {
                self.take_payload(bytes);
                if let Some(message) = self.core.log().stalled_on()
                    && self.payloads.get(message).is_some()
                {
                    self.receive_held(message, links);
                }
            }
            DiskRecord::Delivered { commit, delivered, given, passed } => {
                if commit > self.core.log().last_index() {
                    return wrong(format!("entry {commit} was committed, and is not there"));
                }
                self.replay_group(Replay::Delivered { commit, delivered });
                self.memory.pass_committed(commit);
                self.exchange.had_given_to(given);
                while self.exchange.last_delivered() < delivered
                    || self.application.under_way() > 0
                    || !self.exchange.is_drained_to(given)
                {
                    if !self.deliver(links)? && !self.application.await_news() {
                        break;
                    }
                }
                if self.exchange.last_delivered() < delivered {
                    let (now, why) = (self.exchange.last_delivered(), self.describe_waiting());
                    return wrong(format!(
                        "everything up to {delivered} was delivered, and can be up to {now} only: {why}"
                    ));
                }
                let all = planted(Mutant::DeliveredKeptAsPassed);
                self.core.had_passed(if all { delivered } else { passed });
            }
            DiskRecord::Earlier { from, bytes } => {
                let fabric = &mut links.endpoint.fabric;
                if self.memory.put_earlier(from, bytes, fabric).is_none() {
                    return wrong(format!(
                        "the log from {from} on has no place in front of a state"
                    ));
                }
            }
            DiskRecord::Part { first, content, bytes } => {
                if first {
                    self.transfer.received = Some(Received::new(fresh(self.id)));
                }
                return self.replay_part(first, content, bytes, links);
            }
        }
        self.carry_out(links);
        Ok(Ok(()))
    }

    fn replay_part<F: Fabric>(
        &mut self,
        first: bool,
        content: Content,
        bytes: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<Result<(), Unread>, A::Failure> {
        let taken = self.take_content(first, content, bytes, links)?;
        Ok(taken.ok_or_else(Unread::malformed))
    }

    /// Takes a part of the machine's state from a snapshot.
    fn replay_snapshot_part(
        &mut self,
        content: Content,
        bytes: &[u8],
    ) -> Result<Result<(), Unread>, A::Failure> {
        let Some(received) = &mut self.transfer.received else {
            return Ok(Err(Unread::malformed()));
        };
        let restored = received.restore_snapshot(bytes, content == Content::MachineLast)?;
        Ok(match restored {
            Err(NotRestored::NotKept(_)) if planted(Mutant::ReadWithoutKept) => Ok(()),
            Err(NotRestored::NotKept(why)) => Err(Unread::NotKept(why)),
            Err(NotRestored::Malformed) => Err(Unread::malformed()),
            Ok(()) => Ok(()),
        })
    }

    /// Begins as this incarnation, without a state.
    fn begin_as<F: Fabric>(&mut self, incarnation: u32, links: &ReplicaLinks<F, O>) {
        self.incarnation = incarnation;
        self.config.group.incarnation = incarnation;
        self.core = O::new(self.config, View::first(self.topology.replicas));
        // We know the log of a snapshot that was read without its end. The next snapshot's log may end before that.
        self.memory.begin_behind(Runs::EMPTY);
        let now_ms = links.endpoint.fabric.now().as_millis() as u64;
        self.replay_group(Replay::Begins { now_ms });
    }

    fn replay_group(&mut self, replay: Replay) {
        self.core.step(Event::Group(GroupEvent::Replay(replay)), &mut self.effects);
    }
}

#[cfg(test)]
mod tests;
