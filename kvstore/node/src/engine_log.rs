//! One engine's access to its node's log on disk.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skein_cluster::config::SNAPSHOT_AFTER;
use skein_multicast::disk::{Disk, ReadOn, Reader, is_of_a_state};
use skein_protocol::ids::GroupId;
use skein_wal::disk::{Handle, StageError};
use skein_wal::format::Record;
use skein_wal::{Group, Lsn, Recovery, Verdict};

use crate::disk::{LogFiles, lock, with_causes};
use crate::reading::{Readings, Written};
use crate::snapshots_due::{LogSize, SnapshotsDue};

/// The kind of a record that the next one of its group continues.
pub(crate) const CONTINUED: u8 = u8::MAX;
/// The longest piece of a record.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Bytes that may wait for a disk that is slow, full or stands still. An engine with more stands still itself, as if its
/// process were stopped: others go on without it, and its memory does not grow.
const WAITING_MAX: usize = 64 << 20;
/// The time between two looks of an engine that stands still whether its disk goes on.
const WAITING_POLL: Duration = Duration::from_millis(1);

/// Contents of the log when this process began.
pub(crate) struct Recovered {
    pub(crate) files: Arc<LogFiles>,
    pub(crate) recovery: Recovery,
}

impl fmt::Debug for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovered").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

/// A request that waits for room in the ring to the disk threads.
#[derive(Debug)]
enum Request {
    Record { group: Group, kind: u8, bytes: Vec<u8> },
    KeepFrom { group: Group, number: u64 },
    Begin { group: Group },
}

/// State that the accesses of a node's engines share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    /// Groups that have given up a sound log.
    pub(crate) given_up: Arc<Mutex<Vec<u16>>>,
    /// Bytes of states that were appended.
    states: Arc<AtomicU64>,
}

/// One engine's access to the node's log.
///
/// **Invariant.** `behind` records stand in `waiting`, with `waiting_bytes` in all, and their numbers follow those of
/// the handle.
#[derive(Debug)]
pub(crate) struct EngineLog {
    handle: Handle,
    recovered: Option<Arc<Recovered>>,
    shared: Shared,
    /// The groups of the engine's replicas.
    hosted: Vec<Group>,
    /// Requests that found no room in the ring: the disk is slower than the engine for a while.
    waiting: Vec<Request>,
    waiting_bytes: usize,
    behind: u64,
    /// When the states of the groups are due.
    due: SnapshotsDue,
    /// The groups that are read back while the log is written.
    readings: Readings,
}

impl EngineLog {
    /// The access of an engine that has replicas of the `hosted` groups.
    pub(crate) fn new(
        handle: Handle,
        hosted: Vec<Group>,
        due: SnapshotsDue,
        recovered: Arc<Recovered>,
        shared: Shared,
    ) -> Self {
        let readings = Readings::of(Written {
            files: Arc::clone(&recovered.files),
            owner: recovered.recovery.owner(),
            start: recovered.recovery.start(),
            // Nothing was appended yet.
            from: handle.log_end(),
            end: handle.shared_log_end(),
        });
        let (recovered, waiting) = (Some(recovered), Vec::new());
        let (waiting_bytes, behind) = (0, 0);
        Self { handle, recovered, shared, hosted, waiting, waiting_bytes, behind, due, readings }
    }

    /// Passes on what waits, as far as there is room.
    fn catch_up(&mut self) {
        let mut done = 0;
        for request in &self.waiting {
            let passed = match request {
                Request::Record { group, kind, bytes } => {
                    let passed = self.handle.append(*group, *kind, &[bytes]).map(drop);
                    if passed.is_ok() {
                        self.behind -= 1;
                        self.waiting_bytes -= bytes.len();
                    }
                    passed
                }
                Request::KeepFrom { group, number } => {
                    self.handle.keep_from_record(*group, *number)
                }
                Request::Begin { group } => self.handle.begin(*group),
            };
            if passed == Err(StageError::Full) {
                break;
            }
            // After any other error the process is about to end.
            done += 1;
        }
        self.waiting.drain(..done);
    }

    fn size(&self) -> LogSize {
        let states = self.shared.states.load(Ordering::Relaxed);
        LogSize { end: self.handle.log_end(), needed: self.handle.log_bytes(), states }
    }

    /// Lets groups whose log is damaged begin anew, and forgets what the log held when this process began.
    pub(crate) fn begin_damaged(&mut self) {
        let Some(recovered) = self.recovered.take() else { return };
        for found in recovered.recovery.groups() {
            if let Verdict::Damaged(_) = found.verdict
                && self.hosted.contains(&found.group)
            {
                self.waiting.push(Request::Begin { group: found.group });
            }
        }
        self.catch_up();
    }

    /// The next record of a group is the first that counts.
    fn begin_anew(&mut self, group: Group) {
        self.due.holds_back_nothing(group, self.size());
        self.waiting.push(Request::Begin { group });
        self.catch_up();
    }

    /// Appends a piece of a record. Returns its number.
    fn push(&mut self, group: Group, kind: u8, parts: &[&[u8]]) -> u64 {
        if self.waiting.is_empty()
            && let Ok(number) = self.handle.append(group, kind, parts)
        {
            return number;
        }
        while self.waiting_bytes > WAITING_MAX && !self.handle.failed() {
            std::thread::sleep(WAITING_POLL);
            self.catch_up();
        }
        let bytes = parts.concat();
        self.waiting_bytes += bytes.len();
        self.waiting.push(Request::Record { group, kind, bytes });
        self.behind += 1;
        self.handle.appended() + self.behind
    }
}

/// Pieces of a record whose last one has not come.
#[derive(Debug, Default)]
pub(crate) struct Begun(Vec<u8>);

impl Begun {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Forgets the pieces: the record does not go on.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes the next piece, and hands out the record if that is its last one.
    pub(crate) fn take(&mut self, record: &Record<'_>, each: impl FnOnce(u8, &[u8])) {
        if record.kind == CONTINUED {
            self.0.extend_from_slice(record.bytes);
        } else if self.0.is_empty() {
            each(record.kind, record.bytes);
        } else {
            self.0.extend_from_slice(record.bytes);
            each(record.kind, &self.0);
            self.0.clear();
        }
    }
}

/// Puts the pieces of a group's records together, in the order of the log.
///
/// **Invariant.** `begun` holds all pieces of a record up to that at `last`, or none.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    last: Lsn,
    begun: Begun,
}

impl Joined {
    /// Takes the group's next record, and hands out that which it completes.
    pub(crate) fn take(
        &mut self,
        recovery: &Recovery,
        record: &Record<'_>,
        each: impl FnOnce(u8, &[u8]),
    ) {
        let last = std::mem::replace(&mut self.last, record.lsn);
        // A start that ended within a record never went on with it.
        if !self.begun.0.is_empty() && recovery.start_of(last) != recovery.start_of(record.lsn) {
            self.begun.clear();
        }
        self.begun.take(record, each);
    }
}

impl Disk for EngineLog {
    fn append(&mut self, group: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        if !self.waiting.is_empty() {
            self.catch_up();
        }
        let group = Group(group.0);
        let length = record.iter().map(|part| part.len()).sum::<usize>();
        if is_of_a_state(kind) {
            self.shared.states.fetch_add(length as u64, Ordering::Relaxed);
        }
        if length <= PIECE_BYTES {
            return self.push(group, kind, record);
        }
        let whole = record.concat();
        let mut pieces = whole.chunks(PIECE_BYTES);
        let last = pieces.next_back().expect("it is longer than a piece");
        for piece in pieces {
            self.push(group, CONTINUED, &[piece]);
        }
        self.push(group, kind, &[last])
    }

    fn flush(&mut self) {
        self.handle.flush();
    }

    fn durable(&self) -> u64 {
        self.handle.durable()
    }

    fn go_on(&mut self) {
        if !self.waiting.is_empty() {
            self.catch_up();
        }
    }

    fn sync(&mut self) {
        let until = self.handle.appended() + self.behind;
        while self.handle.durable() < until && !self.handle.failed() {
            self.catch_up();
            self.handle.flush();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn begins_snapshot(&mut self, group: GroupId) {
        self.due.begins(Group(group.0), self.size());
    }

    fn keep_from(&mut self, group: GroupId, position: u64) {
        let group = Group(group.0);
        self.due.is_whole(group);
        self.waiting.push(Request::KeepFrom { group, number: position });
        self.catch_up();
    }

    fn begin(&mut self, group: GroupId) {
        lock(&self.shared.given_up).push(group.0);
        self.begin_anew(Group(group.0));
    }

    fn snapshot_after(&self) -> u64 {
        SNAPSHOT_AFTER
    }

    fn wants_snapshot(&self, group: GroupId, log: u64, state: u64) -> bool {
        self.due.is_due(Group(group.0), log, state, self.size())
    }

    fn logged(&self, group: GroupId, own: u64) -> u64 {
        self.due.logged(Group(group.0), own, self.size())
    }

    fn hurries(&self, group: GroupId, state: u64) -> bool {
        self.due.hurries(Group(group.0), state, self.size())
    }

    fn replay(&mut self, group: GroupId, each: &mut Reader<'_>) -> Result<(), String> {
        let Some(recovered) = self.recovered.clone() else { return Ok(()) };
        let Recovered { files, recovery } = &*recovered;
        let group = Group(group.0);
        let found = recovery.groups().iter().find(|found| found.group == group);
        if let Some(Verdict::Damaged(damage)) = found.map(|found| found.verdict) {
            tracing::error!(%group, sequence = damage.sequence, offset = damage.offset,
                "the log of a group is damaged: its replica begins anew, and takes the state of another");
            self.begin_anew(group);
            return Ok(());
        }
        let (mut result, mut joined) = (Ok(()), Joined::default());
        let read = recovery.replay_group(group, &**files, |record| {
            if result.is_ok() {
                joined.take(recovery, record, |kind, bytes| result = each(kind, bytes));
            }
        });
        read.map_err(|why| with_causes(&why)).and(result)
    }

    fn feeds(&self, _: GroupId, log: u64, state: u64) -> bool {
        log <= if state == 0 { self.snapshot_after() } else { state }
    }

    fn begin_reading(&mut self, group: GroupId, index: u64) {
        self.readings.begin(Group(group.0), index);
    }

    fn read_on(&mut self, group: GroupId, each: &mut dyn FnMut(u8, &[u8])) -> ReadOn {
        self.readings.go_on(Group(group.0), each)
    }

    fn end_reading(&mut self, group: GroupId) {
        self.readings.end(Group(group.0));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use skein_cluster::config::SEGMENT_BYTES;
    use skein_wal::disk::DiskOptions;
    use skein_wal::files::Medium;
    use skein_wal::{Disk as Threads, Options, Owner};

    use super::*;
    use crate::snapshots_due::{HeldBackMax, Hosted};

    pub(crate) const GROUP: GroupId = GroupId(0);
    const OWNER: Owner = Owner { cluster: *b"a cluster's name", node: 0 };
    /// Segments of a few records.
    pub(crate) const OPTIONS: Options = Options {
        segment_bytes: 64 << 10,
        first_bytes: 64 << 10,
        block_bytes_max: 8 << 10,
        groups_max: 4,
        table_bytes_max: 64,
        in_flight_max: 1,
        waiting_max: 8,
        spare_max: 1,
        files_max: 8,
    };
    /// Some kind of record that is none of a state.
    pub(crate) const ENTRY: u8 = 5;
    const SNAPSHOT_PART: u8 = 10;

    /// The snapshots of the only group, which needs the log from here on.
    fn due(from: Lsn, bytes_max: Option<u64>, crowded: bool) -> SnapshotsDue {
        let hosted = Hosted { group: Group(GROUP.0), from, turn: (1, 1) };
        SnapshotsDue::new(Arc::new(HeldBackMax::of(1)), bytes_max, [hosted].into_iter(), crowded)
    }

    /// The access of the only engine to a log, which may take so many bytes on disk.
    fn engine_log(bytes_max: Option<u64>) -> (Threads<LogFiles>, EngineLog) {
        start(&Arc::new(Box::new(Medium::new(1))), OPTIONS, bytes_max)
    }

    /// A start of a log with one engine, on what its files hold.
    pub(crate) fn start(
        files: &Arc<LogFiles>,
        options: Options,
        bytes_max: Option<u64>,
    ) -> (Threads<LogFiles>, EngineLog) {
        let recovery = Recovery::read(&**files, OWNER, &[]).expect("it is sound");
        let writer = recovery.writer(options, 7);
        let threads = DiskOptions { threads: 1, ..DiskOptions::default() };
        let failed = Box::new(|error: &_| panic!("{error}"));
        let (disk, handles) =
            Threads::start(Arc::clone(files), writer, threads, vec![Box::new(|| ())], failed)
                .expect("there is room");
        let hosted = vec![Group(GROUP.0)];
        let due = due(Lsn::NONE, bytes_max, false);
        let recovered = Arc::new(Recovered { files: Arc::clone(files), recovery });
        let handle = handles.into_iter().next().expect("one engine");
        (disk, EngineLog::new(handle, hosted, due, recovered, Shared::default()))
    }

    /// Writes so many records of 1,000 bytes, each to a block of its own.
    fn write(log: &mut EngineLog, kind: u8, records: u32) {
        for _ in 0..records {
            log.append(GROUP, kind, &[&[1; 1000]]);
            log.sync();
        }
    }

    #[test]
    fn a_log_near_its_bound_is_in_a_hurry() {
        // At a third of it: four of a node's segments are there besides what is needed.
        let (_disk, mut log) = engine_log(Some(2 * (4 * SEGMENT_BYTES + (100 << 10))));
        write(&mut log, ENTRY, 10);
        assert!(!log.hurries(GROUP, 0), "one segment is needed");
        write(&mut log, ENTRY, 20);
        // An engine is told how much is needed when a segment was made.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !log.hurries(GROUP, 0) {
            assert!(std::time::Instant::now() < deadline, "two segments are needed");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_record_that_was_cut_short_does_not_go_on_in_a_later_start() {
        let files: Arc<LogFiles> = Arc::new(Box::new(Medium::new(1)));
        let (disk, mut log) = start(&files, OPTIONS, None);
        log.append(GROUP, ENTRY, &[b"whole"]);
        log.push(Group(GROUP.0), CONTINUED, &[b"cut"]);
        log.sync();
        drop((disk, log));
        let (disk, mut log) = start(&files, OPTIONS, None);
        log.append(GROUP, ENTRY, &[b"later"]);
        log.sync();
        drop((disk, log));
        let (_disk, mut log) = start(&files, OPTIONS, None);
        let mut found = Vec::new();
        let read = log.replay(GROUP, &mut |kind, bytes| {
            found.push((kind, bytes.to_vec()));
            Ok(())
        });
        assert_eq!(read, Ok(()));
        assert_eq!(found, [(ENTRY, b"whole".to_vec()), (ENTRY, b"later".to_vec())]);
    }

    #[test]
    fn a_log_grows_by_whole_blocks_and_states_are_no_part_of_that() {
        let (_disk, mut log) = engine_log(None);
        write(&mut log, ENTRY, 1);
        log.begins_snapshot(GROUP);
        let before = log.size();
        write(&mut log, ENTRY, 2);
        let logged = log.logged(GROUP, 2 * 1000);
        assert_eq!(logged, log.size().end.0 - before.end.0);
        assert!(logged >= 2 * 4096, "{logged} bytes");
        for _ in 0..4 {
            log.append(GROUP, SNAPSHOT_PART, &[&[1; 6000]]);
        }
        log.sync();
        let all = log.size().end.0 - before.end.0;
        assert_eq!(log.logged(GROUP, 2 * 1000), all - 4 * 6000);
    }

    #[test]
    fn a_group_that_needs_nothing_of_a_log_is_in_no_hurry() {
        let (_disk, mut log) = engine_log(None);
        log.due = due(log.size().end, None, true);
        assert!(log.hurries(GROUP, 0), "there were many starts");
        log.begins_snapshot(GROUP);
        log.keep_from(GROUP, 1);
        assert!(!log.hurries(GROUP, 0), "its snapshot is whole");
    }
}
