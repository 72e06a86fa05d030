//! What a replica writes to its node's disk, and what it may say because of it.
//!
//! The disk holds what changes in the log, in the order in which it changes: entries, cuts, the ballots in which they
//! were written, payloads that are not in entries, promises, and how far this replica has delivered. So the first
//! records up to any position are the log as it once was, and what was said then holds of it.

mod describe;

use std::collections::VecDeque;

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::body::Body;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::{GroupEvent, OnDisk};
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId};
use skein_protocol::message::{Head, encode_name};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;

use super::Replica;
use super::transfer::saved_end;
use crate::application::Application;
use crate::disk::Disk;
use crate::election::Content;
use crate::operate::DiskProgressStatus;
use crate::ordering::Links;
use crate::payloads::Held;
use crate::replica_links::{ReplicaLinks, Unwritten};

pub use self::describe::{Described, describe};

/// A number of bytes since the last snapshot at which another is due, whatever the log is like.
pub(super) const SNAPSHOT_DUE: u64 = u64::MAX / 2;

/// A record of a replica on its node's disk. Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskRecord<'a> {
    /// An incarnation begins, without a state.
    Began { incarnation: u32 },
    /// A process begins with what is in front: a snapshot that is not whole by now never will be.
    Resumed,
    /// A ballot is promised.
    Promised { ballot: Ballot },
    /// The log is written in this ballot behind `base`; the first entry of the ballot has this index.
    Ballot { ballot: Ballot, base: Cursor, first: u64 },
    /// The log is cut off in front of a cursor.
    Cut { base: Cursor },
    /// An entry, as it stands in the log.
    Entry(&'a [u8]),
    /// A payload that stands in no entry: name, head and bytes.
    Payload(&'a [u8]),
    /// The log is committed up to `commit`, and everything up to `delivered` was delivered by what stands there and the
    /// results that stand in the log up to entry `given`. Answers need not wait for what was delivered up to `passed`.
    Delivered { commit: u64, delivered: Rank, given: u64, passed: Rank },
    /// A snapshot of our own state begins.
    Snapshot { incarnation: u32, promised: Ballot },
    /// The next part of a snapshot. Behind the last one stands all of the log that is not in it.
    SnapshotPart { content: Content, bytes: &'a [u8] },
    /// The snapshot is whole: what is in front of its beginning is not needed any more.
    SnapshotEnd,
    /// Bytes of our log as they stand in memory from a position on, in front of a state: others may need them.
    Earlier { from: u64, bytes: &'a [u8] },
    /// A part of another replica's state. With the last one, that state takes the place of our own.
    Part { first: bool, content: Content, bytes: &'a [u8] },
}

/// Whether a record of this kind is a part of a state: of a snapshot, or of what another replica sent.
pub const fn is_of_a_state(kind: u8) -> bool {
    matches!(kind, kind::PART | kind::SNAPSHOT_PART | kind::EARLIER)
}

/// The index of the entry that a record of this kind holds; `None` if it holds none.
pub fn entry_index(kind: u8, record: &[u8]) -> Option<u64> {
    let index = record.get(8..16).filter(|_| kind == kind::ENTRY)?;
    Some(u64::from_le_bytes(index.try_into().expect("eight bytes")))
}

/// Kinds of records.
mod kind {
    pub(super) const BEGAN: u8 = 1;
    pub(super) const PROMISED: u8 = 2;
    pub(super) const BALLOT: u8 = 3;
    pub(super) const CUT: u8 = 4;
    pub(super) const ENTRY: u8 = 5;
    pub(super) const PAYLOAD: u8 = 6;
    pub(super) const DELIVERED: u8 = 7;
    pub(super) const PART: u8 = 8;
    pub(super) const SNAPSHOT: u8 = 9;
    pub(super) const SNAPSHOT_PART: u8 = 10;
    pub(super) const SNAPSHOT_END: u8 = 11;
    pub(super) const RESUMED: u8 = 12;
    pub(super) const EARLIER: u8 = 13;
}

impl<'a> DiskRecord<'a> {
    /// Decodes a record; `None` if it is none.
    pub(crate) fn decode(kind: u8, rest: &'a [u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = rest.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        let cursor = |at| Some(Cursor { index: word(at)?, position: word(at + 1)? });
        Some(match kind {
            kind::BEGAN => Self::Began { incarnation: word(0)?.try_into().ok()? },
            kind::PROMISED => Self::Promised { ballot: Ballot::from_word(word(0)?) },
            kind::BALLOT => {
                let ballot = Ballot::from_word(word(0)?);
                Self::Ballot { ballot, base: cursor(1)?, first: word(3)? }
            }
            kind::CUT => Self::Cut { base: cursor(0)? },
            kind::ENTRY => Self::Entry(rest),
            kind::PAYLOAD => Self::Payload(rest),
            kind::DELIVERED => {
                let (commit, delivered) = (word(0)?, Rank::new(word(1)?));
                // Earlier versions gave results when they were committed.
                let given = if rest.len() == 16 { commit } else { word(2)? };
                let passed = Rank::new(if rest.len() > 24 { word(3)? } else { 0 });
                Self::Delivered { commit, delivered, given, passed }
            }
            kind::SNAPSHOT => Self::Snapshot {
                incarnation: word(0)?.try_into().ok()?,
                promised: Ballot::from_word(word(1)?),
            },
            kind::SNAPSHOT_PART => {
                let (content, bytes) = rest.split_first()?;
                Self::SnapshotPart { content: Content::from_byte(*content)?, bytes }
            }
            kind::SNAPSHOT_END => Self::SnapshotEnd,
            kind::EARLIER => Self::Earlier { from: word(0)?, bytes: &rest[8..] },
            kind::RESUMED => Self::Resumed,
            kind::PART => {
                let ([first, content], bytes) = rest.split_first_chunk()?;
                Self::Part { first: *first != 0, content: Content::from_byte(*content)?, bytes }
            }
            _ => return None,
        })
    }

    /// Appends it to the log on a disk. Returns its position.
    fn append(&self, id: ReplicaId, disk: &mut dyn Disk) -> u64 {
        let mut words = |kind: u8, words: &[u64]| {
            let mut bytes = [0; 32];
            for (at, word) in words.iter().enumerate() {
                bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
            }
            disk.append(id.group, kind, &[&bytes[..8 * words.len()]])
        };
        match *self {
            Self::Began { incarnation } => words(kind::BEGAN, &[incarnation.into()]),
            Self::Promised { ballot } => words(kind::PROMISED, &[ballot.to_word()]),
            Self::Ballot { ballot, base: Cursor { index, position }, first } => {
                words(kind::BALLOT, &[ballot.to_word(), index, position, first])
            }
            Self::Cut { base: Cursor { index, position } } => words(kind::CUT, &[index, position]),
            Self::Delivered { commit, delivered, given, passed: Rank::NOTHING } => {
                words(kind::DELIVERED, &[commit, delivered.number(), given])
            }
            Self::Delivered { commit, delivered, given, passed } => {
                words(kind::DELIVERED, &[commit, delivered.number(), given, passed.number()])
            }
            Self::Snapshot { incarnation, promised } => {
                words(kind::SNAPSHOT, &[incarnation.into(), promised.to_word()])
            }
            Self::SnapshotPart { content, bytes } => {
                disk.append(id.group, kind::SNAPSHOT_PART, &[&[content.to_byte()], bytes])
            }
            Self::SnapshotEnd => words(kind::SNAPSHOT_END, &[]),
            Self::Earlier { from, bytes } => {
                disk.append(id.group, kind::EARLIER, &[&from.to_le_bytes(), bytes])
            }
            Self::Resumed => words(kind::RESUMED, &[]),
            Self::Entry(bytes) => disk.append(id.group, kind::ENTRY, &[bytes]),
            Self::Payload(bytes) => disk.append(id.group, kind::PAYLOAD, &[bytes]),
            Self::Part { first, content, bytes } => {
                let head = [u8::from(first), content.to_byte()];
                disk.append(id.group, kind::PART, &[&head, bytes])
            }
        }
    }
}

/// How soon an entry is to be on disk. One with results of another group may wait: our leader's machine has them by now,
/// and nobody waits for those of followers. So may the message itself if it goes to several `destinations`: it is
/// delivered by the proposals of the others, each of which is an entry to come.
pub(super) fn entry_soon(destinations: Option<GroupSet>, has_results: bool) -> Unwritten {
    let waits = has_results || destinations.is_some_and(|groups| groups.len() > 1);
    if waits { Unwritten::Later } else { Unwritten::Now }
}

/// How soon an entry that was read is to be on disk.
pub(super) fn soon_of<'a>(body: &impl Body<'a>) -> Unwritten {
    entry_soon(body.message().map(|read| read.destinations), body.results().is_some())
}

/// A moment of a replica: what may be said of it when everything up to a position is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moment {
    disk: OnDisk,
    commit: u64,
    applied: Rank,
    passed: Rank,
    freed: u64,
}

/// What of a replica is on disk, and what is on its way there.
///
/// **Invariant.** Positions and moments of `under_way` rise; the last of them is `written`.
#[derive(Default)]
pub(super) struct DiskProgress {
    /// Moments that are not on disk, each with the position of its last record.
    under_way: VecDeque<(u64, Moment)>,
    /// The last moment whose records were appended, and the position of the last record.
    written: Moment,
    last: u64,
    /// The rank up to which our machine had applied everything at the last moment that is on disk.
    applied: Rank,
    /// The position up to which our log was freed at that moment.
    freed: u64,
    /// The last entry of our log at that moment.
    index: u64,
    /// Bytes that were appended since the last snapshot began, by this process and those before it.
    pub(super) bytes: u64,
}

impl DiskProgress {
    /// Notes that all records of this moment were appended.
    fn pass(&mut self, moment: Moment) {
        self.written = moment;
        self.under_way.push_back((self.last, moment));
    }
}

impl DiskRecord<'_> {
    /// Bytes of log that it adds, of which there may be so many in front of a snapshot. A snapshot is none itself:
    /// otherwise a large one would be followed by the next at once.
    pub(super) const fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Snapshot { .. }
            | Self::SnapshotPart { .. }
            | Self::SnapshotEnd
            | Self::Earlier { .. } => return 0,
            Self::Entry(bytes) | Self::Payload(bytes) | Self::Part { bytes, .. } => bytes.len(),
            _ => 0,
        };
        bytes as u64 + 32
    }

    /// How soon it is to be on disk. What was delivered is told others so that they can forget it, which may wait: a put
    /// would take two writes otherwise.
    const fn soon(&self) -> Unwritten {
        match self {
            Self::Delivered { .. } => Unwritten::Later,
            _ => Unwritten::Now,
        }
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Appends a record to the log on disk, if the cluster is durable.
    #[inline]
    pub(super) fn record<F: Fabric>(
        &mut self,
        record: DiskRecord<'_>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if links.disk.is_some() {
            self.append_record(&record, record.soon(), links);
        }
    }

    /// Appends an entry to the log on disk, if the cluster is durable.
    #[inline]
    pub(super) fn record_entry<F: Fabric>(
        &mut self,
        entry: &[u8],
        soon: Unwritten,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if links.disk.is_some() {
            self.append_record(&DiskRecord::Entry(entry), soon, links);
        }
    }

    #[inline(never)]
    fn append_record<F: Fabric>(
        &mut self,
        record: &DiskRecord<'_>,
        soon: Unwritten,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if let Some(disk) = &mut links.disk {
            self.disk.last = record.append(self.id, disk.as_mut());
            self.disk.bytes += record.bytes();
            links.unwritten = links.unwritten.max(soon);
        }
    }

    /// Appends a payload that stands in no entry.
    #[inline(never)]
    pub(super) fn record_payload<F: Fabric>(
        &mut self,
        message: MessageId,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if links.disk.is_none() || planted(Mutant::PayloadNotOnDisk) {
            return;
        }
        let Some(Held { low_water, destinations, bytes, .. }) = self.payloads.get(message) else {
            return;
        };
        let mut record = Vec::new();
        encode_name(message, &mut record);
        let head =
            Head { sequence: message.sequence, low_water: *low_water, destinations: *destinations };
        head.encode(&mut record);
        record.extend_from_slice(bytes);
        self.record(DiskRecord::Payload(&record), links);
    }

    /// Ends a turn: appends what it has promised, seen committed and delivered, and remembers the moment.
    pub(crate) fn record_moment<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let now = self.moment();
        if now == self.disk.written {
            return;
        }
        if now.disk.promised != self.disk.written.disk.promised {
            self.record(DiskRecord::Promised { ballot: now.disk.promised }, links);
        }
        if now.disk != self.disk.written.disk {
            // What we may say of our log does not wait for the next record.
            self.disk.pass(Moment { disk: now.disk, ..self.disk.written });
        }
        let delivered = |of: &Moment| (of.commit, of.applied, of.passed);
        if delivered(&now) != delivered(&self.disk.written) {
            self.record_delivered(links);
        }
        if now != self.disk.written {
            self.disk.pass(now);
        }
        if now.freed >= self.disk.freed + self.memory.space.capacity() / 8 {
            // The leader may wait for room.
            links.unwritten = Unwritten::Now;
        }
    }

    pub(super) fn record_delivered<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let (commit, delivered) = (self.core.log().commit_index(), self.exchange.last_delivered());
        let given = if planted(Mutant::GivenNotOnDisk) { 0 } else { self.exchange.given_to() };
        let passed = self.core.keeps_passed();
        self.record(DiskRecord::Delivered { commit, delivered, given, passed }, links);
    }

    /// Drops the log's results from `base` on, which is about to be cut off. If our machine has received some of them, the
    /// disk learns that first: the machine is not given them again, and may deliver by them.
    pub(super) fn cut_results<F: Fabric>(&mut self, base: Cursor, links: &mut ReplicaLinks<F, O>) {
        if self.exchange.given_to() >= base.index {
            self.record_delivered(links);
        }
        self.exchange.truncate(base.index);
    }

    fn moment(&mut self) -> Moment {
        let log = self.core.log();
        let disk =
            OnDisk { ballot: log.ballot(), last: log.last_index(), promised: log.promised() };
        let (commit, freed) = (log.commit_index(), self.memory.freed);
        let passed = self.core.keeps_passed();
        Moment { disk, commit, applied: self.exchange.apply(), passed, freed }
    }

    /// Handles that everything up to a position is on disk. Returns whether that is news.
    pub(crate) fn reached_disk<F: Fabric>(
        &mut self,
        durable: u64,
        links: &mut ReplicaLinks<F, O>,
    ) -> bool {
        let mut reached = None;
        while let Some((_, moment)) = self.disk.under_way.pop_front_if(|(at, _)| *at <= durable) {
            reached = Some(moment);
        }
        let Some(Moment { disk, applied, freed, .. }) = reached else { return false };
        (self.disk.applied, self.disk.freed, self.disk.index) = (applied, freed, disk.last);
        self.stir();
        self.tell_core(GroupEvent::Durable(disk), links);
        true
    }

    /// The rank up to which we may say that our machine has applied everything.
    pub(super) fn applied(&mut self, durable: bool) -> Rank {
        let applied = self.exchange.apply();
        if durable { self.disk.applied.min(applied) } else { applied }
    }

    /// The position up to which we need no other replica to keep the log: what is committed, and on our disk. Others
    /// may know that entries are committed which our disk lacks, and we would need them again after a loss of power.
    pub(super) fn freed(&self) -> u64 {
        let freed = self.memory.freed;
        let on_disk = self.core.log().is_durable() && !planted(Mutant::FreedBeforeDisk);
        if on_disk { self.disk.freed.min(freed) } else { freed }
    }

    /// What of it is on disk, for an operator.
    pub(super) fn disk_status(&self) -> Option<DiskProgressStatus> {
        self.core.log().is_durable().then(|| DiskProgressStatus {
            durable_index: self.disk.index,
            since_snapshot_bytes: Some(self.disk.bytes).filter(|bytes| *bytes < SNAPSHOT_DUE),
            snapshot_bytes: self.snapshot.bytes(),
        })
    }

    /// The position of the last record.
    pub(super) const fn last_on_disk(&self) -> u64 {
        self.disk.last
    }

    /// Begins, or begins anew, with what is in memory: all of it is on disk.
    pub(super) fn is_all_on_disk(&mut self) {
        let now = self.moment();
        let Moment { applied, freed, disk: OnDisk { last: index, .. }, .. } = now;
        self.disk = DiskProgress { written: now, applied, freed, index, ..DiskProgress::default() };
        self.core.step(Event::Group(GroupEvent::Durable(now.disk)), &mut self.effects);
    }
}

/// The end of a replica's log, as its records on a disk say: for simulations, which compare what is on disk with what was
/// said.
#[derive(Clone, Copy, Default)]
pub(crate) struct LogEnd {
    /// The index of the last entry.
    pub(crate) last: u64,
    /// The index up to which the log is known to be committed.
    pub(crate) commit: u64,
    /// What follows is of a snapshot, and stands in the log already.
    in_snapshot: bool,
}

impl LogEnd {
    /// The end with one more record.
    #[must_use]
    pub(crate) fn with(mut self, kind: u8, record: &[u8]) -> Self {
        let Some(record) = DiskRecord::decode(kind, record) else { return self };
        match record {
            DiskRecord::SnapshotPart { content: Content::Order, .. } => self.in_snapshot = true,
            DiskRecord::SnapshotEnd | DiskRecord::Resumed => self.in_snapshot = false,
            _ if self.in_snapshot => {}
            DiskRecord::Entry(bytes) => {
                let index = bytes.get(8..16).and_then(|bytes| bytes.try_into().ok());
                self.last = index.map_or(self.last, u64::from_le_bytes);
            }
            DiskRecord::Ballot { base, .. } | DiskRecord::Cut { base } => {
                self.last = base.index - 1;
            }
            DiskRecord::Part { content: Content::Order, bytes, .. } => {
                self.last = saved_end(bytes).unwrap_or(self.last);
                self.commit = self.last;
            }
            DiskRecord::Delivered { commit, .. } => self.commit = commit,
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests;
