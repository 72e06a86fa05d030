//! The disks of a run: each process has one, which keeps what was flushed when the process or its power goes.
//!
//! A disk takes what was appended in one flush, up to two flushes at a time, which may end in either order. What both
//! hold is there when the first is. When power fails, any part of what is being flushed may be on the disk, but always
//! the first records up to some place.
//!
//! Disks go wrong as a node's log knows it (`kvstore/node/src/disk.rs`). A log that is damaged in its middle is found so
//! by the next start, and what stands in it is void. A flush that fails is not tried again: nothing more reaches the
//! disk, and the process ends soon. A full disk begins no flush.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use skein_fabric::sim::Rng;
use skein_protocol::ids::GroupId;

use super::checkpoints::{Shelf, Writer};
use crate::disk::{Disk, ReadOn, Reader, entry_index};
use crate::replica::LogEnd;

/// Flushes under way at most.
const FLUSHES_MAX: usize = 2;
/// Time for which a disk stalls, at most.
const STALL_MS_MAX: u64 = 60;

/// A record on a disk.
struct Record {
    group: GroupId,
    kind: u8,
    bytes: Vec<u8>,
    /// The end of the group's log with it.
    end: LogEnd,
}

/// One disk.
#[derive(Default)]
struct Medium {
    /// What was appended, in order.
    records: Vec<Record>,
    /// For each group, the first record that is still read.
    floors: BTreeMap<GroupId, u64>,
    /// Number of the records when the process began, or when a floor was raised last. An older copy of what is here now has
    /// as many at least.
    since: usize,
    /// The same before they were raised last, for which a loss of power may leave the disk.
    former_floors: BTreeMap<GroupId, u64>,
    /// Groups whose logs are damaged, which nobody knows before the next start.
    rotten: BTreeSet<GroupId>,
    /// Groups whose logs were found to be damaged or of no use, each with the number of records in front of which nothing is its own.
    void: BTreeMap<GroupId, usize>,
    /// Groups whose replicas have given up their logs.
    given_up: BTreeSet<GroupId>,
    /// No flush begins.
    full: bool,
    /// A flush has failed.
    failed: bool,
    /// Bytes of a group's log after which its state is written.
    snapshot_after: u64,
    /// How many times longer its flushes take than those of others.
    slowness: u64,
    rng: Option<Rng>,
    /// For reading beside writing, if a leader reads the log to feed others.
    reads: Option<Rng>,
    /// So many of the records are on the disk.
    durable: usize,
    /// So many of them are to be written.
    wanted: usize,
    /// Flushes: the number of records with each, and when it ends.
    flushes: VecDeque<(usize, Duration)>,
    /// The checkpoints of the machines.
    shelf: Arc<Mutex<Shelf>>,
}

impl Medium {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().expect("nobody panics with checkpoints in hand")
    }

    /// The end of a group's log, as the first `count` records have it.
    fn log_end(&self, group: GroupId, count: usize) -> LogEnd {
        let from = self.void.get(&group).copied().unwrap_or(0).min(count);
        let last = self.records[from..count].iter().rev().find(|record| record.group == group);
        last.map_or_else(LogEnd::default, |record| record.end)
    }

    /// Whether there is a record of a group that the next start can read.
    fn has_records(&self, group: GroupId) -> bool {
        let from = self.void.get(&group).copied().unwrap_or(0).min(self.records.len());
        !self.rotten.contains(&group)
            && self.records[from..].iter().any(|record| record.group == group)
    }
}

/// A process's access to its disk.
struct Handle {
    medium: Arc<Mutex<Medium>>,
    /// Number of the records when the process began.
    began: usize,
    /// The groups that are read beside their being written.
    reading: BTreeMap<GroupId, Reading>,
}

/// A log that is read beside its being written.
struct Reading {
    /// The next record.
    next: usize,
    /// The records from there on will be gone.
    gone_from: usize,
    /// The end was told since the last record.
    ended: bool,
}

fn lock(medium: &Mutex<Medium>) -> MutexGuard<'_, Medium> {
    medium.lock().expect("nobody panics with a disk in hand")
}

impl Disk for Handle {
    fn append(&mut self, group: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        let mut medium = lock(&self.medium);
        let bytes = record.concat();
        let end = medium.log_end(group, medium.records.len()).with(kind, &bytes);
        medium.records.push(Record { group, kind, bytes, end });
        medium.records.len() as u64
    }

    fn flush(&mut self) {
        let mut medium = lock(&self.medium);
        medium.wanted = medium.records.len();
    }

    fn durable(&self) -> u64 {
        lock(&self.medium).durable as u64
    }

    fn sync(&mut self) {
        let mut medium = lock(&self.medium);
        medium.flushes.clear();
        medium.durable = medium.records.len();
    }

    fn keep_from(&mut self, group: GroupId, position: u64) {
        let mut medium = lock(&self.medium);
        // Whole segments are dropped, so a few of the records before it remain.
        let remain = medium.rng.as_mut().map_or(0, |rng| rng.below(8));
        let first = (position - 1).saturating_sub(remain);
        let floor = medium.floors.entry(group).or_default();
        let former = *floor;
        *floor = first.max(former);
        medium.former_floors.insert(group, former);
        medium.since = medium.records.len();
    }

    fn begin(&mut self, group: GroupId) {
        let mut medium = lock(&self.medium);
        let count = medium.records.len();
        medium.void.insert(group, count);
        medium.given_up.insert(group);
        medium.since = count;
    }

    fn snapshot_after(&self) -> u64 {
        lock(&self.medium).snapshot_after
    }

    fn replay(&mut self, group: GroupId, each: &mut Reader<'_>) -> Result<(), String> {
        let mut medium = lock(&self.medium);
        if medium.rotten.remove(&group) {
            let count = medium.records.len();
            medium.void.insert(group, count);
            return Ok(());
        }
        let floor = medium.floors.get(&group).copied().unwrap_or(0) as usize;
        let floor = medium.void.get(&group).copied().unwrap_or(0).max(floor);
        let mut ours = medium.records.iter().skip(floor).filter(|record| record.group == group);
        ours.try_for_each(|record| each(record.kind, &record.bytes))
    }

    fn feeds(&self, _: GroupId, _: u64, _: u64) -> bool {
        lock(&self.medium).reads.as_mut().is_some_and(|rng| !rng.one_in(4))
    }

    fn begin_reading(&mut self, group: GroupId, index: u64) {
        let mut medium = lock(&self.medium);
        let floor = medium.floors.get(&group).copied().unwrap_or(0) as usize;
        let void = medium.void.get(&group).copied().unwrap_or(0);
        let holds = |record: &Record| {
            record.group == group && entry_index(record.kind, &record.bytes) == Some(index)
        };
        let wanted = medium.records.iter().rposition(holds).unwrap_or(medium.records.len());
        let durable = medium.durable;
        let Some(rng) = medium.reads.as_mut() else { return };
        // Files are kept for a while after they are needed, those of the present start are read, and of these not all.
        let kept = if rng.one_in(4) { floor.max(self.began) } else { 0 };
        let before = if rng.one_in(2) { wanted.saturating_sub(rng.index(64)) } else { 0 };
        let next = void.max(kept).max(before).min(durable);
        let gone_from = if rng.one_in(8) { next + rng.index(200) } else { usize::MAX };
        self.reading.insert(group, Reading { next, gone_from, ended: false });
    }

    fn read_on(&mut self, group: GroupId, each: &mut dyn FnMut(u8, &[u8])) -> ReadOn {
        let mut medium = lock(&self.medium);
        let Some(reading) = self.reading.get_mut(&group) else { return ReadOn::Gone };
        let Some(rng) = medium.reads.as_mut() else { return ReadOn::Gone };
        if rng.one_in(4) {
            return ReadOn::Pending;
        }
        let most = rng.between(1, 32) as usize;
        let to = medium.durable.min(reading.next + most);
        if to > reading.gone_from {
            return ReadOn::Gone;
        }
        if reading.next >= to {
            // It is told once.
            let told = std::mem::replace(&mut reading.ended, true);
            return if told { ReadOn::Pending } else { ReadOn::End };
        }
        let mut any = false;
        for record in medium.records[reading.next..to].iter().filter(|it| it.group == group) {
            any = true;
            each(record.kind, &record.bytes);
        }
        reading.next = to;
        if !any {
            return ReadOn::Pending;
        }
        reading.ended = false;
        ReadOn::Some
    }

    fn end_reading(&mut self, group: GroupId) {
        self.reading.remove(&group);
    }
}

/// All disks, by the names of their processes. Clones are of the same disks.
#[derive(Clone)]
pub(super) struct Disks {
    media: BTreeMap<String, Arc<Mutex<Medium>>>,
    rng: Rng,
    /// For checkpoints alone, so that nothing else changes that a seed draws.
    checkpoints: Rng,
    /// For removals that a loss of power undoes, if there are any.
    removals: Option<Rng>,
    /// For logs that are read beside being written. In half of the runs there are none, and lagging replicas take states.
    reads: Option<Rng>,
    /// Removed checkpoints that were there again.
    pub(super) returned: u64,
}

impl Disks {
    pub(super) fn new(rng: Rng, checkpoints: Rng, removals: Option<Rng>, mut reads: Rng) -> Self {
        let reads = reads.one_in(2).then_some(reads);
        Self { media: BTreeMap::new(), rng, checkpoints, removals, reads, returned: 0 }
    }

    /// The checkpoints of a process, in a start of its node.
    pub(super) fn checkpoints_of(&self, process: &str, start: u32) -> Option<Writer> {
        let medium = self.media.get(process)?;
        Some(Writer::new(Arc::clone(&lock(medium).shelf), start))
    }

    /// The disk of a process, for the process.
    pub(super) fn of(&mut self, process: &str) -> Box<dyn Disk> {
        let medium = self.media.entry(process.to_owned()).or_insert_with(|| {
            let snapshot_after = 1 << self.rng.between(10, 15);
            let slowness = if self.rng.one_in(4) { self.rng.between(2, 20) } else { 1 };
            let rng = Some(Rng::new(self.rng.word()));
            let reads = self.reads.as_mut().map(|reads| Rng::new(reads.word()));
            let medium = Medium { snapshot_after, slowness, rng, reads, ..Medium::default() };
            Arc::new(Mutex::new(medium))
        });
        {
            let mut medium = lock(medium);
            medium.failed = false;
            medium.since = medium.records.len();
        }
        let began = lock(medium).records.len();
        Box::new(Handle { medium: Arc::clone(medium), began, reading: BTreeMap::new() })
    }

    /// Whether a process finds a log of a group when it starts.
    pub(super) fn has_records(&self, process: &str, group: GroupId) -> bool {
        self.media.get(process).is_some_and(|medium| lock(medium).has_records(group))
    }

    /// A group's log on the disk of a process is damaged. The process goes on, and finds that out when it starts again.
    pub(super) fn rot(&self, process: &str, group: GroupId) {
        if let Some(medium) = self.media.get(process) {
            lock(medium).rotten.insert(group);
        }
    }

    /// Whether a group's log on the disk of a process is damaged, or lacks the checkpoints that it names.
    pub(super) fn is_rotten(&self, process: &str, group: GroupId) -> bool {
        self.media.get(process).is_some_and(|medium| {
            let medium = lock(medium);
            medium.rotten.contains(&group) || medium.shelf().is_spoilt(group)
        })
    }

    /// The checkpoints of a group on the disk of a process are damaged, or are gone. The process goes on, and finds that out
    /// when it starts again. Returns whether there were any.
    pub(super) fn spoil(&self, process: &str, group: GroupId, gone: bool) -> bool {
        self.media.get(process).is_some_and(|medium| lock(medium).shelf().spoil(group, gone))
    }

    /// A process has read the log of a group. Returns whether it has given that up, and whether checkpoints had gone wrong.
    pub(super) fn has_read(&self, process: &str, group: GroupId) -> (bool, bool) {
        let Some(medium) = self.media.get(process) else { return (false, false) };
        let mut medium = lock(medium);
        (medium.given_up.remove(&group), medium.shelf().begins(group))
    }

    /// The disk of a process is full, or has room again.
    pub(super) fn fill(&self, process: &str, full: bool) {
        if let Some(medium) = self.media.get(process) {
            lock(medium).full = full;
        }
    }

    /// A flush of a process fails, and the process is about to end.
    pub(super) fn fail(&self, process: &str) {
        if let Some(medium) = self.media.get(process) {
            lock(medium).failed = true;
        }
    }

    /// The end of a group's log on the disk of a process.
    pub(super) fn log_end(&self, process: &str, group: GroupId) -> LogEnd {
        let Some(medium) = self.media.get(process) else { return LogEnd::default() };
        let medium = lock(medium);
        medium.log_end(group, medium.durable)
    }

    /// A process ends, or its power. What was being flushed may be on its disk.
    pub(super) fn lose_power(&mut self, process: &str) {
        let Some(medium) = self.media.get(process) else { return };
        let mut medium = lock(medium);
        let flushed = medium.flushes.back().map_or(medium.durable, |(count, _)| *count);
        let more = self.rng.index(flushed - medium.durable + 1);
        medium.durable += more;
        medium.flushes.clear();
        let removals = &mut self.removals;
        let comes_back = || removals.as_mut().is_some_and(|rng| rng.one_in(2));
        self.returned += medium.shelf().lose_power(comes_back);
        let keeps = !medium.shelf().is_empty();
        for (group, former) in std::mem::take(&mut medium.former_floors) {
            // Checkpoints that were removed need not come back with the log in front of the present one.
            if keeps && self.checkpoints.one_in(2) {
                medium.floors.insert(group, former);
            }
        }
        medium.failed = false;
        let durable = medium.durable;
        medium.records.truncate(durable);
        medium.wanted = durable;
    }

    /// The disk of a process that has ended is put back as it was some time ago, after its start. Returns whether that is
    /// another one than it was.
    pub(super) fn put_back_older(&mut self, process: &str) -> bool {
        let Some(medium) = self.media.get(process) else { return false };
        let mut medium = lock(medium);
        let lacks = self.rng.index(medium.durable.saturating_sub(medium.since) + 1);
        medium.durable -= lacks;
        let durable = medium.durable;
        medium.records.truncate(durable);
        medium.wanted = durable;
        lacks > 0
    }

    /// The disk of a process is gone.
    pub(super) fn lose(&mut self, process: &str) {
        self.media.remove(process);
    }

    /// Ends the flushes that are over, and begins those that can begin. Returns the processes whose disks hold more.
    pub(super) fn go_on(&mut self, now: Duration) -> Vec<String> {
        let mut more = Vec::new();
        for (name, medium) in &self.media {
            let mut medium = lock(medium);
            if medium.failed {
                continue;
            }
            let before = medium.durable;
            while let Some((count, _)) = medium.flushes.pop_front_if(|(_, end)| *end <= now) {
                medium.durable = count;
            }
            let full = medium.full;
            let synced = medium.shelf().go_on(now, full, &mut self.checkpoints);
            if medium.durable > before || synced {
                more.push(name.clone());
            }
            let begun = medium.flushes.back().map_or(medium.durable, |(count, _)| *count);
            if begun < medium.wanted && medium.flushes.len() < FLUSHES_MAX && !medium.full {
                let usual = medium.slowness * self.rng.between(10, 400);
                let takes = if self.rng.one_in(24) { 20 * usual } else { usual };
                let stall_ms =
                    if self.rng.one_in(1000) { self.rng.between(1, STALL_MS_MAX) } else { 0 };
                let takes = Duration::from_micros(takes) + Duration::from_millis(stall_ms);
                let count = medium.records.len();
                medium.flushes.push_back((count, now + takes));
            }
        }
        more
    }

    /// When the next flush ends that is under way.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let ends = self
            .media
            .values()
            .map(|medium| lock(medium))
            .filter(|medium| !medium.failed)
            .filter_map(|medium| {
                let flush = medium.flushes.front().map(|(_, end)| *end);
                flush.into_iter().chain(medium.shelf().next_due()).min()
            });
        ends.min()
    }
}
