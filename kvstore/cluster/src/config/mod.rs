//! A cluster's configuration: one TOML file over the defaults, refused if it cannot work.
//!
//! A [`Draft`] records the origin of each entry, so that an error names file and line. [`Draft::finish`] converts it
//! into a [`ClusterConfig`], which has passed every check.

mod disk;
mod draft;
mod entries;
mod footprint;
mod network;
mod order;
mod sizes;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use skein_fabric::wait::Waiting;
use skein_kvstore::limits::Limits;
use skein_multicast::config::{Conflict, Topology, Tuning};
use skein_multicast::layout::Layout;
use skein_multicast::protocol::tram::tree::Tree;

pub use disk::{SEGMENT_BYTES, SNAPSHOT_AFTER, held_back_for, log_bytes_max};
pub use draft::{ConfigError, Draft};
pub use footprint::Footprint;
pub use network::{ANY_GID, Encryption, FabricKind, Network};
pub use order::Protocol;
pub use sizes::{exact_bytes, parse_bytes, show_bytes};

use draft::Setting;
pub(crate) use network::engine_address;

use entries::{ENTRIES, Kind, SECTIONS};

/// All settings of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    pub topology: Topology,
    /// The tree along which messages to several groups are ordered; `None` for RamCast. It is chosen when the cluster is
    /// created.
    pub tree: Option<Tree>,
    pub network: Network,
    pub limits: Limits,
    pub tuning: Tuning,
    /// How an engine thread waits when it has no work.
    pub waiting: Waiting,
    /// What survives when all nodes lose their power.
    pub durability: Durability,
    /// With `Async`, the greatest age of what the cluster can return to, in milliseconds.
    pub lag_ms_max: u64,
    /// Where replicas hold keys and values.
    pub store: StoreKind,
    /// With [`StoreKind::Rocksdb`], bytes of keys and values that a node has in memory.
    pub hot_bytes: u64,
    /// Parent of the directories with the data of nodes; `None` for the cluster's directory.
    pub data_dir: Option<PathBuf>,
    /// Bytes that the log of a node may take on disk; `None` for as much as there is room.
    pub disk_bytes_max: Option<u64>,
    /// Parent of the directory with the cluster's shared memory.
    pub region_root: PathBuf,
    /// Time that a stopping node may take to finish pending work, in milliseconds.
    pub stop_within_ms: u64,
    /// With `Async`, how long it may take until disks hold the restore point with which the cluster is stopped, in milliseconds.
    pub close_within_ms: u64,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
            tree: None,
            network: Network::default(),
            limits: Limits::default(),
            tuning: Tuning::default(),
            waiting: Waiting::Adaptive,
            durability: Durability::Memory,
            lag_ms_max: 1_000,
            store: StoreKind::Memory,
            hot_bytes: 512 << 20,
            data_dir: None,
            disk_bytes_max: None,
            region_root: PathBuf::from(SHARED_MEMORY),
            stop_within_ms: 2_000,
            close_within_ms: 60_000,
        }
    }
}

/// What survives when all nodes lose their power. It is chosen when the cluster is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing: data lives in the memory of the nodes.
    #[default]
    Memory,
    /// The state at a place in the order, at most `lag_ms_max` old.
    Async,
    /// Everything that was acknowledged.
    Sync,
}

impl Durability {
    /// The names that a configuration may contain.
    pub const WORDS: &'static [&'static str] = &["memory", "async", "sync"];

    /// The durability of that name, which must be one of [`WORDS`](Self::WORDS).
    pub fn of(name: &str) -> Self {
        match name {
            "sync" => Self::Sync,
            "async" => Self::Async,
            _ => Self::Memory,
        }
    }

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Async => "async",
            Self::Sync => "sync",
        }
    }
}

/// Where replicas hold keys and values. It is chosen when the cluster is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// In memory.
    #[default]
    Memory,
    /// In RocksDB, with a part of them in memory.
    Rocksdb,
}

impl StoreKind {
    /// The names that a configuration may contain.
    pub const WORDS: &'static [&'static str] = &["memory", "rocksdb"];

    /// The store of that name, which must be one of [`WORDS`](Self::WORDS).
    pub fn of(name: &str) -> Self {
        if name == "rocksdb" { Self::Rocksdb } else { Self::Memory }
    }

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Whether nodes of this program have it.
    pub const fn is_built(self) -> bool {
        matches!(self, Self::Memory) || cfg!(feature = "rocksdb")
    }
}

/// The default root of shared memory, where Linux mounts a file system in memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

impl ClusterConfig {
    /// Fails if settings cannot work, alone or together, and names them.
    pub fn check(&self) -> Result<(), Conflict> {
        self.topology.check()?;
        self.network.check(self.topology)?;
        self.limits.check()?;
        self.tuning.check()?;
        if let (Durability::Memory, Some(dir)) = (self.durability, &self.data_dir) {
            return Err(Conflict {
                first: "node.durability = memory".to_owned(),
                second: format!("node.data_dir = {}", dir.display()),
                why: "a cluster in memory writes no data anywhere",
            });
        }
        if (self.durability, self.store) == (Durability::Memory, StoreKind::Rocksdb) {
            return Err(Conflict {
                first: "node.durability = memory".to_owned(),
                second: "node.store = rocksdb".to_owned(),
                why: "a store on disk is for a cluster that keeps its data on disk",
            });
        }
        if (self.store == StoreKind::Rocksdb) != (self.limits.store_bytes_max > 0) {
            return Err(Conflict {
                first: format!(
                    "limits.store_bytes_max = {}",
                    exact_bytes(self.limits.store_bytes_max)
                ),
                second: format!("node.store = {}", self.store.name()),
                why: "it bounds what a store on disk holds, and no other",
            });
        }
        self.check_async()?;
        let (limits, tuning) = (&self.limits, &self.tuning);
        let (entry, most) = limits.node_bytes_max();
        let largest = limits.transaction_bytes_max as u64;
        let size = |name: &str, bytes: u64| format!("{name} = {}", exact_bytes(bytes));
        #[rustfmt::skip]
        let rules: [(bool, String, String, &'static str); 3] = [
            (limits.transaction_bytes_max <= tuning.payload_bytes_max,
             size("limits.transaction_bytes_max", largest),
             size("tuning.payload_bytes_max", tuning.payload_bytes_max as u64),
             "a transaction must fit into a payload"),
            (limits.group_bytes_max(&self.layout()) >= 2 * largest,
             size(entry, most),
             size("limits.transaction_bytes_max", largest),
             "each replica of a node must have room for two of the largest transactions"),
            (tuning.rings_bytes_max >= 2 * tuning.ring_bytes_max,
             size("tuning.rings_bytes_max", tuning.rings_bytes_max as u64),
             size("tuning.ring_bytes_max", tuning.ring_bytes_max as u64),
             "an engine must have room for two rings that have grown"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, first, second, why)) => Err(Conflict { first, second, why }),
            None => Ok(()),
        }
    }

    fn check_async(&self) -> Result<(), Conflict> {
        let conflict = |second: String, why| {
            let first = "node.durability = async".to_owned();
            Err(Conflict { first, second, why })
        };
        let network = &self.network;
        if self.durability != Durability::Async {
            return Ok(());
        }
        if !network.is_one_host() {
            let why = "who starts the cluster must read the disks of all its nodes, so all run on one host: use memory or sync";
            return conflict(format!("network.addresses = {}", network.addresses.join(", ")), why);
        }
        if !network.cluster.is_empty() {
            let why = "a cluster that returns to a restore point has another name than before: leave the name away";
            return conflict(format!("network.cluster = {}", network.cluster), why);
        }
        if self.store == StoreKind::Rocksdb {
            let why = "restore points are written from memory: use sync with this store, or async with the store in memory";
            return conflict("node.store = rocksdb".to_owned(), why);
        }
        // A quarter of it is the margin for what leaders have taken, by a clock that ticks every ten milliseconds at worst.
        if self.lag_ms_max < 40 {
            return conflict(
                format!("node.lag_ms_max = {}", self.lag_ms_max),
                "it must be at least 40",
            );
        }
        Ok(())
    }

    /// The location of each replica. Nodes and clients take it from here; no other code chooses it.
    pub fn layout(&self) -> Layout {
        let layout =
            Layout::propose(self.topology).expect("a configuration has passed every check");
        match &self.tree {
            Some(tree) => layout.along(tree).expect("it is of all groups"),
            None => layout,
        }
    }

    /// The entry that bounds the keys and values that a node has in memory, and its value.
    pub const fn bytes_in_memory(&self) -> (&'static str, u64) {
        match self.store {
            StoreKind::Memory => ("limits.memory_bytes_max", self.limits.memory_bytes_max),
            StoreKind::Rocksdb => ("node.hot_bytes", self.hot_bytes),
        }
    }

    /// Fails if the cluster does not fit into `memory` bytes, and names the settings to blame.
    pub fn check_memory(&self, memory: u64) -> Result<(), Conflict> {
        let nodes = if self.network.is_one_host() { u64::from(self.topology.nodes) } else { 1 };
        let size = |name: &str, bytes: u64| format!("{name} = {}", exact_bytes(bytes));
        let (entry, held) = self.bytes_in_memory();
        if held.saturating_mul(nodes) > memory {
            return Err(Conflict {
                first: size(entry, held),
                second: format!("topology.nodes = {nodes}"),
                why: "all nodes run on this machine, and it has not that much memory",
            });
        }
        let shared = Footprint::of(self).at_start() / u64::from(self.topology.nodes) * nodes;
        let all = held * nodes + shared;
        if all > memory {
            return Err(Conflict {
                first: size(entry, held),
                second: size("tuning.log_bytes", self.tuning.log_bytes as u64),
                why: "what the nodes may hold and their logs and rings together are more than the memory of this machine",
            });
        }
        Ok(())
    }

    /// The whole configuration as TOML with a comment for each entry. Parsing it gives the same configuration again.
    pub fn print(&self) -> String {
        let draft = Draft::from(self);
        let mut text = String::from("# The configuration of a Skein cluster.\n");
        for (section, about) in SECTIONS {
            let _ = write!(text, "\n# {about}\n[{section}]\n");
            for entry in ENTRIES.iter().filter(|entry| entry.section == section) {
                let value = match (draft.get(entry), entry.kind) {
                    (Setting::Number(number), Kind::Bytes) => match exact_bytes(*number) {
                        size if size.ends_with('B') => format!("\"{size}\""),
                        plain => plain,
                    },
                    (Setting::Number(number), _) => number.to_string(),
                    (Setting::Text(text), _) => toml::Value::String(text.clone()).to_string(),
                    (Setting::List(parents), Kind::Tree) => format!("[{}]", parents.join(", ")),
                    (Setting::List(list), _) => toml::Value::from(list.clone()).to_string(),
                };
                for line in wrapped(entry.about, 98) {
                    let _ = writeln!(text, "# {line}");
                }
                let _ = writeln!(text, "{} = {value}", entry.name);
            }
        }
        text
    }
}

/// Breaks `text` into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Memory of this machine, or of the container that this process runs in, in bytes; `None` if it cannot be determined.
pub fn machine_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    let ceiling = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let ceiling = ceiling.and_then(|text| text.trim().parse::<u64>().ok());
    Some(ceiling.map_or(total, |ceiling| ceiling.min(total)))
}
