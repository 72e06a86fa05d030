//! Our own state, written to disk so that the log in front of it can go.
//!
//! It is the copy that a learner would be sent, as records of the log: a head, the parts, and behind them all entries
//! that are not in the state, and an end. Deliveries continue meanwhile, and their records stand between the parts. A
//! replica that begins with what is in front of the head skips the snapshot: it may not be whole. One that finds nothing
//! in front skips what is between the parts: the state contains it, or it follows again.
//!
//! A part is made when the one before it is on disk, so that messages wait for one part at most, and when it is
//! [due](super::snapshot_pace). The machine makes one copy at a time: a learner's comes first, and the snapshot begins
//! again when that is over.
//!
//! A machine may [keep](Application::begin_snapshot) a part of its state in files of its own, which the snapshot names.
//! The log in front of the snapshot goes when both its end and these files are on disk. A replica that begins skips a
//! snapshot whose files are not there, like one without its end: it was not the last for which both were on disk.

use skein_fabric::Fabric;
use skein_protocol::group::Role;
use skein_protocol::guard;
use skein_protocol::mutants::Mutant;

use super::Replica;
use super::on_disk::{DiskRecord, SNAPSHOT_DUE};
use super::snapshot_pace::Pace;
use crate::application::Application;
use crate::election::{Content, Piece};
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// The snapshot that is being written, and the one that is on its way to the disk.
#[derive(Default)]
pub(super) struct Snapshot {
    under_way: Option<UnderWay>,
    /// A snapshot that is written: the positions of its first record and of its last.
    written: Option<(u64, u64)>,
    /// Bytes of the last one that was written.
    bytes: u64,
    /// Those of them that the state had: how long the log in front of the next one is.
    state_bytes: u64,
}

impl Snapshot {
    /// The last one, with which this replica began, had so many bytes.
    pub(super) const fn had_bytes(&mut self, bytes: u64) {
        (self.bytes, self.state_bytes) = (bytes, bytes);
    }

    /// The state that was received from another replica has so many bytes.
    pub(super) const fn received(&mut self, bytes: u64) {
        self.state_bytes = bytes;
    }

    /// Whether one is being written of which so little is left that it can be finished.
    #[inline]
    pub(super) const fn is_ripe(&self) -> bool {
        matches!(self.under_way, Some(UnderWay { ripe: true, .. }))
    }

    /// Bytes of the last one that was written.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the state when it was last written or received; 0 if it never was.
    pub(super) const fn state_bytes(&self) -> u64 {
        self.state_bytes
    }
}

/// A snapshot that is being written.
#[derive(Clone, Copy)]
struct UnderWay {
    /// Position of its head.
    head: u64,
    /// Position of its last part.
    part: u64,
    /// So little is left that it can be finished.
    ripe: bool,
    pace: Pace,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Writes the next part of a snapshot, if one is due and the part before it is on disk; or its end, if that had to
    /// wait. Returns whether it did.
    pub(crate) fn write_snapshot<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<bool, A::Failure> {
        let (durable, Some(disk)) = (links.durable, &mut links.disk) else { return Ok(false) };
        let is_whole = |(_, last): &mut (u64, u64)| {
            guard!(Mutant::FrontDroppedEarly, *last <= durable)
                && guard!(Mutant::FrontDroppedBeforeKept, self.application.has_kept())
        };
        if let Some((head, _)) = self.snapshot.written.take_if(is_whole) {
            disk.keep_from(self.id.group, head);
            self.application.drop_earlier();
            self.paths.snapshots += 1;
        }
        if self.snapshot.under_way.is_none() {
            let (log, state) = (self.disk.bytes, self.snapshot.state_bytes);
            if !disk.wants_snapshot(self.id.group, log, state) || !self.can_copy() {
                return Ok(false);
            }
            self.begin_snapshot(links);
        }
        if self.snapshot.is_ripe() {
            // A group may deliver nothing for long, and would keep the whole log of its node meanwhile.
            self.finish_snapshot(links)?;
            return Ok(self.snapshot.under_way.is_none());
        }
        self.write_part(links)
    }

    /// Writes the next part of the snapshot that is being written, if it is due. Returns whether it was.
    fn write_part<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<bool, A::Failure> {
        let (Some(under_way), Some(disk)) = (&mut self.snapshot.under_way, &links.disk) else {
            return Ok(false);
        };
        if under_way.part > links.durable || !self.application.can_copy() {
            return Ok(false);
        }
        let (logged, now) = (disk.logged(self.id.group, self.disk.bytes), links.began);
        // The state may be larger than the last time.
        let state = self.snapshot.state_bytes.max(under_way.pace.state_bytes());
        let hurries = disk.hurries(self.id.group, state);
        let Some(length) = under_way.pace.next(logged, now, hurries) else { return Ok(false) };
        if under_way.pace.is_at_once(hurries) {
            self.application.hasten_copy();
        }
        let mut bytes = Vec::with_capacity(length + 1024);
        under_way.ripe = self.application.copy(length, &mut bytes)?;
        let has_walked = self.application.has_walked();
        under_way.pace.made(bytes.len(), logged, now, has_walked);
        let content = Content::Machine;
        self.record(DiskRecord::SnapshotPart { content, bytes: &bytes }, links);
        let part = self.last_on_disk();
        self.snapshot.under_way.iter_mut().for_each(|under_way| under_way.part = part);
        self.finish_snapshot(links)?;
        Ok(true)
    }

    /// Whether our state is one that counts, and nobody else is to have a copy of it.
    fn can_copy(&self) -> bool {
        let log = self.core.log();
        let counts = log.role() != Role::Blank && !log.is_suspended();
        let copies = log.sends_state().is_some() || self.takes_state();
        counts && !copies && self.is_trusted() && self.snapshot.written.is_none()
    }

    fn begin_snapshot<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        self.give_up_copy();
        self.application.begin_snapshot();
        let (incarnation, promised) = (self.incarnation, self.core.log().promised());
        if let Some(disk) = &mut links.disk {
            disk.begins_snapshot(self.id.group);
        }
        self.record(DiskRecord::Snapshot { incarnation, promised }, links);
        let pace = Pace::new(self.disk.bytes >= SNAPSHOT_DUE);
        self.disk.bytes = 0;
        let head = self.last_on_disk();
        self.snapshot.under_way = Some(UnderWay { head, part: head, ripe: false, pace });
    }

    /// Whether a snapshot is being written.
    pub(crate) const fn writes_snapshot(&self) -> bool {
        self.snapshot.under_way.is_some()
    }

    /// Whether a part of a snapshot becomes due though nothing happens.
    pub(crate) const fn awaits_part(&self) -> bool {
        matches!(self.snapshot.under_way, Some(UnderWay { ripe: false, .. }))
    }

    /// Whether a snapshot is written of which the disk, or the machine, lacks something.
    pub(crate) const fn awaits_snapshot(&self) -> bool {
        self.snapshot.written.is_some()
    }

    /// Our machine is about to be replaced. A snapshot whose files it has not kept is forgotten: nobody would ever say that
    /// they are on disk, and the next machine may say so of none.
    pub(super) fn forget_unkept(&mut self) {
        if !guard!(Mutant::UnkeptSnapshotCounts, self.application.has_kept()) {
            self.snapshot.written = None;
            self.disk.bytes = SNAPSHOT_DUE;
        }
    }

    /// Drops the snapshot that is being written: the machine's copy is for somebody else, or is of another machine.
    pub(super) fn give_up_snapshot(&mut self) {
        if let Some(UnderWay { .. }) = self.snapshot.under_way.take() {
            self.application.give_up_copy();
            self.disk.bytes = SNAPSHOT_DUE;
        }
    }

    /// Ends the snapshot that is being written, if little is left and the machine is at the commit index.
    pub(super) fn finish_snapshot<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<(), A::Failure> {
        let Some(UnderWay { head, pace, ripe: true, .. }) = self.snapshot.under_way else {
            return Ok(());
        };
        let log = self.core.log();
        // Whoever we have granted another ballot may be writing over entries that are not committed.
        let whole = log.ballot() == log.promised();
        if !whole || !self.exchange.is_drained_to(log.commit_index()) {
            return Ok(());
        }
        // A leader that knows them to be committed may have written over entries of which we do not know it yet.
        let mut rest = Vec::new();
        self.memory.pass_committed(self.core.log().commit_index());
        if !self.collect(self.memory.commit_end(), &links.endpoint.fabric, &mut rest) {
            return Ok(());
        }
        let mut part = Vec::new();
        self.application.finish_copy(&mut part)?;
        self.snapshot.under_way = None;
        let content = Content::MachineLast;
        self.record(DiskRecord::SnapshotPart { content, bytes: &part }, links);
        let order = self.save_order();
        let content = Content::Order;
        self.record(DiskRecord::SnapshotPart { content, bytes: &order }, links);
        self.record_earlier(links);
        self.write_rest(&rest, links);
        self.record(DiskRecord::SnapshotEnd, links);
        self.snapshot.written = Some((head, self.last_on_disk()));
        let rest = (part.len() + order.len()) as u64;
        self.snapshot.bytes = pace.bytes() + rest;
        self.snapshot.state_bytes = pace.state_bytes() + rest;
        Ok(())
    }

    /// Writes all of our log that is not in the state that was just written.
    fn write_rest<F: Fabric>(&mut self, mut rest: &[u8], links: &mut ReplicaLinks<F, O>) {
        let (base, log) = (self.memory.commit_end(), self.core.log());
        let (ballot, first) = (log.ballot(), log.first_index());
        self.record(DiskRecord::Ballot { ballot, base, first }, links);
        while let Some(piece) = Piece::next(&mut rest) {
            let record = match piece {
                Piece::Payload(bytes) => DiskRecord::Payload(bytes),
                Piece::Entry(bytes) => DiskRecord::Entry(bytes),
                Piece::Mark { .. } => continue,
            };
            self.record(record, links);
        }
    }
}
