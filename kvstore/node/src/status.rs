//! What an operator sees of a node.

use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};
use skein_cluster::Build;
use skein_multicast::operate::{ReplicaStatus, Role};

/// A node, as it sees itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: u16,
    /// How often it was started before, in this cluster.
    pub incarnation: u32,
    /// `incarnation` under its former name, for one version.
    #[serde(default)]
    pub life: u32,
    /// Its process.
    pub pid: u32,
    /// Its cluster.
    pub cluster: String,
    /// What it runs.
    pub build: Build,
    /// How long it has been running, in milliseconds.
    pub uptime_ms: u64,
    /// Whether each of its replicas leads, or follows a leader that is alive.
    pub ready: bool,
    /// Whether it has been asked to drain or to stop.
    pub draining: bool,
    /// Its memory in all, shared memory that it uses included, in bytes.
    pub resident_bytes: u64,
    /// Lines of its log that could not be written, or found no room in the queue to be.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Lines of its log that were left out because there were too many alike.
    #[serde(default)]
    pub log_lines_left_out: u64,
    /// What keeps it from making files of its directory anew that are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_problem: Option<String>,
    /// Its replicas.
    pub replicas: Vec<ReplicaReport>,
    /// The other nodes that do not run, as far as it has noticed.
    pub gone: Vec<GoneNode>,
    /// The other nodes that it refuses to talk to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedNode>,
}

/// A node that another refuses, because their configurations differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNode {
    /// Its number.
    pub node: u16,
    /// Which entry differs, and how.
    pub why: String,
}

/// Lines that are not in a process's log, counted by whatever writes it.
#[derive(Debug, Default)]
pub struct LogLosses {
    /// Lines that could not be written, or found no room in the queue to be.
    pub lost: AtomicU64,
    /// Lines that were left out because there were too many alike.
    pub left_out: AtomicU64,
}

/// A node that does not run, as another sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneNode {
    /// Its number.
    pub node: u16,
    /// Its last incarnation.
    pub incarnation: u32,
    /// For how long, at least, in milliseconds.
    pub for_ms: u64,
}

/// A replica of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// What the multicast says.
    #[serde(flatten)]
    pub order: ReplicaStatus,
    /// Keys that its state machine holds.
    pub keys: u64,
    /// Bytes that its state machine holds: keys, values, sessions, and an overhead for each.
    pub store_bytes: u64,
    /// What it holds, in short: only if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<StateDigest>,
}

/// What a state machine holds, in short. Replicas of a group with the same position have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDigest {
    /// Up to which position it has delivered.
    pub position: u64,
    /// A hash of keys, values, versions and sessions, in hexadecimal.
    pub hash: String,
}

impl StateDigest {
    pub(super) fn new(position: u64, hash: u64) -> Self {
        Self { position, hash: format!("{hash:016x}") }
    }
}

impl ReplicaReport {
    /// Whether it does its part: leads a group that answers, or follows a leader that is alive.
    pub fn serves(&self) -> bool {
        matches!(self.order.role, Role::Leader | Role::Follower)
            && self.order.available
            && !self.order.lost
    }
}

impl NodeStatus {
    /// Messages that its replicas know of and have not delivered.
    pub fn pending(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.order.pending).sum()
    }
}

/// The memory of this process, in bytes; 0 if that cannot be told.
pub(super) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|kib| kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
