//! The status of a node, for operators.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};
use skein_cluster::Build;
use skein_cluster::config::StoreKind;
use skein_multicast::operate::{ReplicaStatus, Role};

/// The status of a node, reported by the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub node: u16,
    /// Number of earlier starts in this cluster.
    pub incarnation: u32,
    /// `incarnation` under its former name, for one version.
    #[serde(default)]
    pub life: u32,
    pub pid: u32,
    pub cluster: String,
    pub build: Build,
    pub uptime_ms: u64,
    /// Whether each of its replicas [serves](ReplicaReport::serves).
    pub ready: bool,
    /// Whether it has been asked to drain or to stop.
    pub draining: bool,
    /// Resident memory in bytes, including the shared memory that it uses.
    pub resident_bytes: u64,
    /// Lines of its log that could not be written, or found no room in the queue.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Lines of its log that were left out because too many were alike.
    #[serde(default)]
    pub log_lines_left_out: u64,
    /// The error that prevents it from restoring files of its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_problem: Option<String>,
    /// Its log on disk; absent if the cluster keeps everything in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
    /// The restore points of the cluster, as far as this node knows; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<PointsStatus>,
    pub replicas: Vec<ReplicaReport>,
    /// Other nodes that do not run, as far as this node has noticed.
    pub gone: Vec<GoneNode>,
    /// Other nodes that this node refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedNode>,
}

/// The restore points of a cluster with durability `async`. A point's number is the time when it was made, in microseconds; 0 if
/// there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointsStatus {
    /// The last point that was made.
    pub last: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_age_ms: Option<u64>,
    /// The newest point that f+1 replicas of every group hold on disk.
    pub floor: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_age_ms: Option<u64>,
    /// If all nodes lose their power now, and f disks of each group, what is lost is younger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_age_ms: Option<u64>,
    /// Nothing has changed since the newest point, and f+1 replicas of every group hold that on disk.
    pub all_on_disk: bool,
    /// `node.lag_ms_max`
    pub lag_ms_max: u64,
    /// Groups for which the node's disk leads to the point that closed the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<u16>,
    /// Groups that have not answered for five seconds, or `lag_ms_max` if that is longer: no points are made, and the others serve without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<u16>,
}

/// A node's log on disk. Times are those of the last 128 flushes, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Bytes of the files that are still needed.
    pub log_bytes: u64,
    /// Bytes of all of its files: of those that wait to be used again, too.
    #[serde(default)]
    pub files_bytes: u64,
    /// Bytes that its files may take, by the configuration; absent if that is not bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Its files take what they may: no more is acknowledged than fits the segment that is written, until they take less,
    /// or may take more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_bound: bool,
    /// Flushes since the start.
    pub flushes: u64,
    pub flush_last_us: u64,
    pub flush_p50_us: u64,
    pub flush_p99_us: u64,
    /// Bytes that are free on its disk; absent if the disk does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// What the log may grow to, given what the replicas hold now.
    #[serde(default)]
    pub log_bytes_expected: u64,
    /// The disk is full: no more is acknowledged than fits the segment that is written, until there is room.
    pub full: bool,
    /// Where its replicas hold keys and values.
    #[serde(default)]
    pub store: StoreKind,
    /// There was no log when this process began, though the node had run before: its replicas begin without a state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Groups whose log was damaged when this process began: their replicas begin without a state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedLog>,
    /// Groups whose checkpoints were gone or of no use when this process began: their replicas begin without a state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints_lost: Vec<u16>,
    /// A file of orders: a test stands between the node and its disk, and makes it lose and fail what the file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<PathBuf>,
}

/// The log of a group in which something durable is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedLog {
    pub group: u16,
    /// Sequence of the segment in which it was lost.
    pub segment: u64,
    /// Offset in the segment's file.
    pub offset: u64,
}

/// A node that another node refuses because their configurations differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNode {
    pub node: u16,
    /// The entry that differs, and how.
    pub why: String,
}

/// Numbers of lines that are missing from a process's log, counted by the writer of the log.
#[derive(Debug, Default)]
pub struct LogLosses {
    /// Lines that could not be written, or found no room in the queue.
    pub lost: AtomicU64,
    /// Lines that were left out because too many were alike.
    pub left_out: AtomicU64,
}

/// A node that does not run, as seen by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneNode {
    pub node: u16,
    /// Last incarnation that began.
    pub incarnation: u32,
    /// Lower bound of the time since it ended, in milliseconds.
    pub for_ms: u64,
}

/// The status of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Status of the multicast.
    #[serde(flatten)]
    pub order: ReplicaStatus,
    /// Keys in its state machine.
    pub keys: u64,
    /// Bytes in its state machine: keys, values, sessions, and an overhead for each.
    pub store_bytes: u64,
    /// Present only if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<StateDigest>,
}

/// Digest of a state machine. Replicas of a group at the same position have equal digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDigest {
    /// Position up to which the state machine has delivered.
    pub position: u64,
    /// Hash of keys, values, versions and sessions, in hexadecimal.
    pub hash: String,
}

impl StateDigest {
    pub(super) fn new(position: u64, hash: u64) -> Self {
        Self { position, hash: format!("{hash:016x}") }
    }
}

impl ReplicaReport {
    /// Whether the replica does its part: it leads or follows, its group is available, and its state is not lost.
    pub fn serves(&self) -> bool {
        matches!(self.order.role, Role::Leader | Role::Follower)
            && self.order.available
            && !self.order.lost
    }
}

impl NodeStatus {
    /// Number of messages that its replicas have logged and not delivered.
    pub fn pending(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.order.pending).sum()
    }
}

/// Resident memory of this process in bytes; 0 if it cannot be determined.
pub(super) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|kib| kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
