//! The node's log on disk, which its engines share.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_cluster::config::{
    ClusterConfig, SEGMENT_BYTES, SNAPSHOT_AFTER, StoreKind, log_bytes_max, show_bytes,
};
use skein_cluster::directory::{Directory, Manifest};
use skein_cluster::regions::free_bytes;
use skein_multicast::disk::{Disk as Interface, Reader};
use skein_protocol::ids::GroupId;
use skein_wal::disk::{DiskError, DiskOptions, Handle, StageError, Status, Wake};
use skein_wal::files::{
    self, Bounded, FileError, Files, OpenError, Orders, OrdersError, Shortage, Volatile,
};
use skein_wal::{
    Disk, Group, Lsn, Options, Owner, RecoverError, RecoveredGroup, Recovery, Verdict,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::snapshots_due::{LogSize, SnapshotsDue};
use crate::status::{DamagedLog, DiskStatus};

/// Starts whose segments are kept. If there are more, the state is written whatever the length of the log, so that a node
/// that is started again and again fills no disk.
const STARTS_MAX: usize = 8;
/// The kind of a record that the next one of its group continues.
pub(crate) const CONTINUED: u8 = u8::MAX;
/// The longest piece of a record.
const PIECE_BYTES: usize = 1 << 20;

/// Cores from which on two writes of the log may be under way at a time. The second one lets a record go to the disk before the
/// write before it has ended; with fewer cores the work of so many small writes keeps engines and clients from running.
const CORES_FOR_TWO_WRITES: usize = 4;

/// Bytes that may wait for a disk that is slow, full or stands still. An engine with more stands still itself, as if its
/// process were stopped: others go on without it, and its memory does not grow.
const WAITING_MAX: usize = 64 << 20;
/// How often an engine that stands still looks whether its disk goes on.
const WAITING_POLL: Duration = Duration::from_millis(1);

/// Why a node has no log on disk.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{}", with_causes(.0))]
    Open(#[from] OpenError),
    #[error("{0}")]
    Orders(#[from] OrdersError),
    #[error("cannot sync {}: {}", path.display(), with_causes(why))]
    Sync { path: PathBuf, why: FileError },
    #[error(
        "cannot read the log in {}: {}. Put the node's own files back, or remove the directory, and the node takes the data \
         of the others", path.display(), with_causes(why)
    )]
    Recover { path: PathBuf, why: RecoverError },
    /// The disk failed, which says nothing of the log.
    #[error(
        "cannot read the log in {}: {}. The node is started again; if that fails each time, give it another disk, and it \
         takes the data of the others", path.display(), with_causes(why)
    )]
    Read { path: PathBuf, why: FileError },
    #[error(
        "{} is an older copy of this node's data: its last start was number {found}, and number {known} is recorded \
         beside it. Put the newest data back; if that is lost, remove the directory, and the node takes the data of the \
         others", path.display()
    )]
    Old { path: PathBuf, found: u64, known: u64 },
    #[error("cannot write to {}: {}", path.display(), with_causes(why))]
    Write { path: PathBuf, why: DiskError },
    /// Only a start for which no earlier one has prepared a file needs space.
    #[error(
        "no space is left in {}: a start takes {} of its disk, of which {} are free. Make room, and the node starts",
        path.display(), show_bytes(*needed), free.map_or_else(|| "few".to_owned(), show_bytes)
    )]
    Full { path: PathBuf, needed: u64, free: Option<u64> },
    #[error(
        "the log in {} takes all that node.disk_bytes_max = {} allows, and a start takes {}: stop the cluster, and give it          more by `skein up --config FILE`", path.display(), show_bytes(*most), show_bytes(*needed)
    )]
    AtBound { path: PathBuf, most: u64, needed: u64 },
}

/// Whose log a node of this cluster writes.
pub fn owner(manifest: &Manifest, node: u16) -> Owner {
    let cluster = xxh3_128(manifest.data_name().as_bytes()).to_be_bytes();
    Owner { cluster, node: u32::from(node) }
}

/// The files of a log: a directory, or one behind a layer that tests put there.
type LogFiles = Box<dyn Files>;

/// The running log. Dropping it writes what was appended, and ends it.
#[derive(Debug)]
pub(crate) struct NodeLog {
    disk: Disk<LogFiles>,
    path: PathBuf,
    /// Bytes that it may take on disk, if that is bounded.
    bytes_max: Option<u64>,
    /// The file with the orders of a test, which stands between the log and its directory.
    orders: Option<PathBuf>,
    /// Where replicas hold keys and values.
    store: StoreKind,
    /// It was not there when this process began, though the node had run before.
    missing: bool,
    /// Groups of which something was lost when this process began.
    damaged: Vec<DamagedLog>,
    /// Groups that have given up a sound log when this process began, since it began with a checkpoint that is not there.
    given_up: Arc<Mutex<Vec<u16>>>,
}

impl NodeLog {
    /// Opens the log of a node, which had been started `incarnation` times, and begins to write it. Returns an access
    /// for each engine, which is woken by its `wakes` when more is on disk. `on_failure` is called once if nothing more
    /// can be written.
    pub(crate) fn open(
        directory: &Directory,
        manifest: &Manifest,
        config: &ClusterConfig,
        (node, incarnation): (u16, u32),
        wakes: Vec<Wake>,
        on_failure: impl Fn(&DiskError) + Send + Sync + 'static,
    ) -> Result<(Self, Vec<EngineLog>), LogError> {
        let path = directory.node_data(node);
        let path = std::fs::read_link(&path).unwrap_or(path);
        let (mut files, orders) = open_files(&path, directory.disk_orders(node))?;
        let options = Options { segment_bytes: SEGMENT_BYTES, ..Options::default() };
        if let Some(most) = config.disk_bytes_max {
            files = Box::new(Bounded::new(files, most, options.segment_bytes));
        }
        let files = Arc::new(files);
        // What was read back may be in a cache only.
        files::sync_everything(&*files)
            .map_err(|why| LogError::Sync { path: path.clone(), why })?;
        let owner = owner(manifest, node);
        let layout = config.layout();
        let hosted = |engine| {
            let replicas = layout.replicas_on(node, engine).into_iter();
            replicas.map(|replica| Group(replica.group.0)).collect::<Vec<_>>()
        };
        let hosted: Vec<_> = (0..config.topology.engines).map(hosted).collect();
        let read = Recovery::read(&*files, owner, &hosted.concat());
        let mut recovery = read.map_err(|why| match why {
            RecoverError::File(why) => LogError::Read { path: path.clone(), why },
            why => LogError::Recover { path: path.clone(), why },
        })?;
        // A start that has said anything had written a header before.
        let missing = recovery.cut().is_none() && incarnation > 0;
        if missing {
            tracing::error!(directory = %path.display(), starts = incarnation,
                "the data of this node is gone: its replicas begin without a state");
        }
        let damaged = recovery.groups().iter().filter_map(damaged).collect();
        // Each start of the node has had a higher number in the log than the node had starts before, and the count of
        // starts is durable before a start says anything.
        let known = u64::from(incarnation);
        if recovery.cut().is_some() && recovery.start() <= known {
            return Err(LogError::Old { path, found: recovery.start() - 1, known });
        }
        recovery.start_above(known);
        let writer = recovery.writer(options, rand::random());
        let recovered = Arc::new(Recovered { files: Arc::clone(&files), recovery });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = DiskOptions {
            threads: if cores < CORES_FOR_TWO_WRITES { 1 } else { 2 },
            ring_bytes: 8 * PIECE_BYTES,
            ..DiskOptions::default()
        };
        let (disk, handles) = Disk::start(files, writer, threads, wakes, Box::new(on_failure))
            .map_err(|why| not_started(path.clone(), options.first_bytes, why))?;
        let crowded = recovered.recovery.starts_kept() > STARTS_MAX;
        let given_up = Arc::default();
        let count = hosted.iter().map(Vec::len).sum::<usize>() as u64;
        let kept_from = |group: &Group| {
            let found = recovered.recovery.groups().iter().find(|found| found.group == *group);
            (*group, found.map_or(Lsn::NONE, |found| found.keep))
        };
        let bytes_max = config.disk_bytes_max;
        let log = |(handle, groups): (_, Vec<Group>)| EngineLog {
            handle,
            due: SnapshotsDue::new(count, bytes_max, groups.iter().map(kept_from), crowded),
            hosted: groups,
            recovered: Some(Arc::clone(&recovered)),
            given_up: Arc::clone(&given_up),
            waiting: Vec::new(),
            waiting_bytes: 0,
            behind: 0,
        };
        let engines = handles.into_iter().zip(hosted).map(log).collect();
        let store = config.store;
        Ok((Self { disk, path, bytes_max, orders, store, missing, damaged, given_up }, engines))
    }

    /// Why it finds no room, if it does not.
    pub(crate) fn short(&self) -> Option<Shortage> {
        self.disk.status().short
    }

    /// Its state, for operators. The replicas hold states of these `stores` bytes.
    pub(crate) fn status(&self, stores: impl Iterator<Item = u64>) -> DiskStatus {
        let Status { sizes, short, flushes, .. } = self.disk.status();
        let micros = |time: Duration| time.as_micros() as u64;
        DiskStatus {
            log_bytes: sizes.bytes,
            files_bytes: sizes.files_bytes,
            bytes_max: self.bytes_max,
            at_bound: short == Some(Shortage::Bound),
            flushes: flushes.count,
            flush_last_us: micros(flushes.last),
            flush_p50_us: micros(flushes.median),
            flush_p99_us: micros(flushes.p99),
            free_bytes: free_bytes(&self.path).ok(),
            log_bytes_expected: log_bytes_max(stores),
            full: short == Some(Shortage::Disk),
            orders: self.orders.clone(),
            store: self.store,
            missing: self.missing,
            damaged: self.damaged.clone(),
            checkpoints_lost: lock(&self.given_up).clone(),
        }
    }
}

fn lock(groups: &Mutex<Vec<u16>>) -> MutexGuard<'_, Vec<u16>> {
    groups.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a log, whose first file has `needed` bytes, cannot be written.
fn not_started(path: PathBuf, needed: u64, why: DiskError) -> LogError {
    match why {
        DiskError::File(FileError::Full { .. }) => {
            let free = free_bytes(&path).ok();
            LogError::Full { path, needed, free }
        }
        DiskError::File(FileError::Bound { bytes_max: most, .. }) => {
            LogError::AtBound { path, most, needed }
        }
        why => LogError::Write { path, why },
    }
}

fn damaged(found: &RecoveredGroup) -> Option<DamagedLog> {
    let Verdict::Damaged(damage) = found.verdict else { return None };
    let (segment, offset) = (damage.sequence, damage.offset);
    Some(DamagedLog { group: found.group.0, segment, offset })
}

/// Opens the directory of a log, behind the layer of a test if there are orders for one.
fn open_files(path: &Path, orders: PathBuf) -> Result<(LogFiles, Option<PathBuf>), LogError> {
    let files = files::Directory::open(path)?;
    let Some(layer) = Orders::at(&orders)? else { return Ok((Box::new(files), None)) };
    tracing::warn!(orders = %orders.display(), data = %path.display(),
        "A TEST stands between this node and its disk: what is not synced is lost when the process is killed, and the \
         disk fails as the file orders. Remove the file and restart the node to be rid of it");
    let files =
        Volatile::new(files, layer).map_err(|why| LogError::Sync { path: path.to_owned(), why })?;
    Ok((Box::new(files), Some(orders)))
}

/// Contents of the log when this process began.
struct Recovered {
    files: Arc<LogFiles>,
    recovery: Recovery,
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

/// One engine's access to the node's log.
///
/// **Invariant.** `behind` records stand in `waiting`, with `waiting_bytes` in all, and their numbers follow those of
/// the handle.
#[derive(Debug)]
pub(crate) struct EngineLog {
    handle: Handle,
    recovered: Option<Arc<Recovered>>,
    /// Groups of the node that have given up a sound log.
    given_up: Arc<Mutex<Vec<u16>>>,
    /// The groups of the engine's replicas.
    hosted: Vec<Group>,
    /// Requests that found no room in the ring: the disk is slower than the engine for a while.
    waiting: Vec<Request>,
    waiting_bytes: usize,
    behind: u64,
    /// When the states of the groups are due.
    due: SnapshotsDue,
}

impl EngineLog {
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
        LogSize { end: self.handle.log_end(), needed: self.handle.log_bytes() }
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
        self.due.holds_back_nothing(group, self.handle.log_end());
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

impl Interface for EngineLog {
    fn append(&mut self, group: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        if !self.waiting.is_empty() {
            self.catch_up();
        }
        let group = Group(group.0);
        if record.iter().map(|part| part.len()).sum::<usize>() <= PIECE_BYTES {
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
        self.due.begins(Group(group.0), self.handle.log_end());
    }

    fn keep_from(&mut self, group: GroupId, position: u64) {
        let group = Group(group.0);
        self.due.is_whole(group);
        self.waiting.push(Request::KeepFrom { group, number: position });
        self.catch_up();
    }

    fn begin(&mut self, group: GroupId) {
        lock(&self.given_up).push(group.0);
        self.begin_anew(Group(group.0));
    }

    fn snapshot_after(&self) -> u64 {
        SNAPSHOT_AFTER
    }

    fn wants_snapshot(&self, group: GroupId, log: u64, state: u64) -> bool {
        self.due.is_due(Group(group.0), log, state, self.size())
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
        let (mut result, mut begun) = (Ok(()), Vec::new());
        let read = recovery.replay_group(group, &**files, |record| {
            if result.is_err() {
                return;
            }
            if record.kind == CONTINUED {
                begun.extend_from_slice(record.bytes);
            } else if begun.is_empty() {
                result = each(record.kind, record.bytes);
            } else {
                begun.extend_from_slice(record.bytes);
                result = each(record.kind, &begun);
                begun.clear();
            }
        });
        read.map_err(|why| with_causes(&why)).and(result)
    }
}

/// The error of a log that has failed, as the node reports it.
pub(crate) fn as_io(error: &DiskError) -> io::Error {
    io::Error::other(with_causes(error))
}

/// An error and its causes, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
