//! The node's log on disk, which its engines share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_cluster::config::{ClusterConfig, SEGMENT_BYTES, StoreKind, log_bytes_max, show_bytes};
use skein_cluster::directory::{Directory, Manifest};
use skein_cluster::regions::free_bytes;
use skein_multicast::config::Topology;
use skein_protocol::ids::GroupId;
use skein_wal::disk::{DiskError, DiskOptions, Status, Wake};
use skein_wal::files::{
    self, Bounded, FileError, Files, Gate, Gated, OpenError, Orders, OrdersError, Shortage,
    Volatile,
};
use skein_wal::{
    Disk, Group, Lsn, Options, Owner, RecoverError, RecoveredGroup, Recovery, Verdict,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::engine_log::{EngineLog, PIECE_BYTES, Recovered, Shared};
use crate::snapshots_due::{HeldBackMax, Hosted, SnapshotsDue};
use crate::status::{DamagedLog, DiskStatus};
use crate::vanished::{Found, Watch};

/// Starts whose segments are kept. If there are more, the state is written whatever the length of the log, so that a node
/// that is started again and again fills no disk.
const STARTS_MAX: usize = 8;
/// Cores from which on two writes of the log may be under way at a time. The second one lets a record go to the disk before the
/// write before it has ended; with fewer cores the work of so many small writes keeps engines and clients from running.
const CORES_FOR_TWO_WRITES: usize = 4;

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
pub(crate) type LogFiles = Box<dyn Files>;

/// The running log. Dropping it writes what was appended, and ends it.
#[derive(Debug)]
pub(crate) struct NodeLog {
    disk: Disk<LogFiles>,
    path: PathBuf,
    watch: Watch,
    /// Bytes that it may take on disk, if that is bounded.
    bytes_max: Option<u64>,
    /// The file with the orders of a test, which stands between the log and its directory.
    orders: Option<PathBuf>,
    /// Where replicas hold keys and values.
    store: StoreKind,
    /// It was not there when this process began, though the node had run before.
    missing: bool,
    /// Number of the last start that had written to it, if any had.
    last_start: Option<u64>,
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
        let room = config.disk_bytes_max.unwrap_or(u64::MAX) / SEGMENT_BYTES;
        let files_max = usize::try_from(room).unwrap_or(usize::MAX);
        let options = Options { segment_bytes: SEGMENT_BYTES, files_max, ..Options::default() };
        if let Some(most) = config.disk_bytes_max {
            files = Box::new(Bounded::new(files, most, options.segment_bytes));
        }
        let gate = Arc::<Gate>::default();
        let files: LogFiles = Box::new(Gated::new(files, Arc::clone(&gate)));
        let watch = Watch::begin(path.clone(), orders.is_none(), gate);
        let watch = watch.map_err(|source| {
            let path = path.clone();
            LogError::Open(OpenError::Io { operation: "examine", path, source })
        })?;
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
        let damaged: Vec<_> = recovery.groups().iter().filter_map(damaged).collect();
        for DamagedLog { group, segment, offset } in &damaged {
            tracing::warn!(
                group,
                sequence = segment,
                offset,
                "durable records of the group may be lost"
            );
        }
        // Each start of the node has had a higher number in the log than the node had starts before, and the count of
        // starts is durable before a start says anything.
        let known = u64::from(incarnation);
        if recovery.cut().is_some() && recovery.start() <= known {
            return Err(LogError::Old { path, found: recovery.start() - 1, known });
        }
        let last_start = recovery.cut().map(|_| recovery.start() - 1);
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
        let shared = Shared::default();
        let count = hosted.iter().map(Vec::len).sum::<usize>() as u64;
        let Topology { groups, replicas, .. } = config.topology;
        let of_group = |group: &Group| {
            let found = recovered.recovery.groups().iter().find(|found| found.group == *group);
            let replica = layout.replica_on(node, GroupId(group.0)).expect("one of ours");
            let place = u64::from(replica.slot) * u64::from(groups) + u64::from(group.0);
            let turn = (place + 1, u64::from(groups) * u64::from(replicas));
            Hosted { group: *group, from: found.map_or(Lsn::NONE, |found| found.keep), turn }
        };
        let (bytes_max, most) = (config.disk_bytes_max, Arc::new(HeldBackMax::of(count)));
        let log = |(handle, groups): (_, Vec<Group>)| {
            let hosted = groups.iter().map(of_group);
            let due = SnapshotsDue::new(Arc::clone(&most), bytes_max, hosted, crowded);
            EngineLog::new(handle, groups, due, Arc::clone(&recovered), shared.clone())
        };
        let engines = handles.into_iter().zip(hosted).map(log).collect();
        let (store, given_up) = (config.store, shared.given_up);
        let this = Self {
            disk,
            path,
            watch,
            bytes_max,
            orders,
            store,
            missing,
            last_start,
            damaged,
            given_up,
        };
        Ok((this, engines))
    }

    /// Looks whether the log is where the next start looks for it. If not, it fails, or stands still if the node
    /// `is_needed` for a quorum.
    pub(crate) fn look(&mut self, is_needed: impl FnOnce() -> bool) {
        if let Found::Gone(error) = self.watch.look(self.disk.current(), is_needed) {
            self.disk.fail(error);
        }
    }

    /// Whether it was written last before the process that begins `incarnation` wrote to it.
    pub(crate) fn is_older_than(&self, incarnation: u32) -> bool {
        self.last_start.is_some_and(|last| last <= u64::from(incarnation))
    }

    /// Ends a standstill, since the node ends.
    pub(crate) fn end(&self) {
        self.watch.end();
    }

    /// Why it stands still, if it does.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.watch.problem()
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

pub(crate) fn lock(groups: &Mutex<Vec<u16>>) -> MutexGuard<'_, Vec<u16>> {
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

/// The error of a log that has failed, as the node reports it.
pub(crate) fn as_io(error: &DiskError) -> io::Error {
    io::Error::other(with_causes(error))
}

/// An error and its causes, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
