//! A cluster's directory: its files, and which process may change them.
//!
//! ```text
//! DIR/cluster.json         the manifest: which build, where the shared memory is, what to remove
//! DIR/cluster.json.copy    the same, if the cluster is durable
//! DIR/cluster.toml         the configuration in effect
//! DIR/lock                 held while the cluster is started or stopped, and by its supervisor
//! DIR/node0.lock …         held by the running node
//! DIR/node0.incarnation …  how often it has been started
//! DIR/node0.identity …     how often its host was replaced, and a random number
//! DIR/node0.peers …        the processes of other nodes that it has met
//! DIR/node0.refused …      why the others have refused it, if its files are out of date
//! DIR/node0.sock …         its admin interface (docs/admin.md)
//! DIR/node0.data …         its data, if the cluster is durable
//! DIR/node0.log …          its log
//! DIR/supervisor.log       the log of a supervisor in the background
//! DIR/….log.1              the earlier part of a log
//! ```
//!
//! A lock shows whether a process runs, because the kernel releases it when the process ends; a process id alone proves
//! nothing. Files with other names are foreign and are never removed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use skein_fabric::FabricError;
use skein_fabric::shm::Host;
use skein_fabric::tcp::Net;
use skein_multicast::config::Topology;

use crate::config::{ClusterConfig, ConfigError, Draft, Durability, FabricKind, StoreKind};
use crate::incarnations;
use crate::lock::{self, Holder};
use crate::network::{self, NetworkError, Who};
use crate::{BUILD, Build};

pub(crate) const MANIFEST: &str = "cluster.json";
pub(crate) const MANIFEST_COPY: &str = "cluster.json.copy";
pub(crate) const CONFIG: &str = "cluster.toml";
pub(crate) const LOCK: &str = "lock";
pub(crate) const SUPERVISOR_LOG: &str = "supervisor.log";

/// The default directory: `$XDG_STATE_HOME/skein/default`, else `$HOME/.local/state/skein/default`, else a directory of
/// this user in the temporary directory.
pub fn default_path() -> PathBuf {
    let absolute = |name| {
        let value = std::env::var_os(name)?;
        Some(PathBuf::from(value)).filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let own = || std::env::temp_dir().join(format!("skein-{}", uid()));
    state.map_or_else(own, |state| state.join("skein")).join("default")
}

pub(crate) fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A cluster's directory.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

/// Identification of the cluster to which the files of a directory belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Build that created the cluster. No other build may join.
    pub build: Build,
    /// From `network.cluster`, or else 16 hexadecimal digits drawn at random.
    pub cluster: String,
    /// Directory of the shared memory; the cluster's directory itself on a network.
    pub regions: PathBuf,
    pub nodes: u16,
    /// Its shape; absent if it was created before this was recorded, or is not durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// The parent of each group in the tree along which messages are ordered; absent if RamCast orders them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<Option<u16>>>,
    /// Whether its data is on disks, and so outlives its processes.
    #[serde(default)]
    pub durable: bool,
    /// Where its replicas hold keys and values.
    #[serde(default)]
    pub store: StoreKind,
    /// Whether its data are restore points: durability `async`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub points: bool,
    /// The limits of a durable cluster, by name: a start that executes its log again must refuse what was refused. Absent
    /// if it was created before this was recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// Constants of the program that wrote the log of a cluster with durability `sync`, by name, which decide the results of
    /// commands: a program with others may not execute that log again. Absent if it was created before this was recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub behaviour: BTreeMap<String, String>,
    /// The name under which the data was written first, if that is not the present one: a cluster that has returned to a
    /// restore point has another name than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The last return to a restore point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
    /// Directories created for the cluster, outermost first. They are removed with it if they are empty.
    pub made: Vec<PathBuf>,
}

/// The restore point to which a cluster with durability `async` has returned after all its nodes had ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// How often it has returned, this time included.
    pub generation: u32,
    /// The generation of the point.
    pub of: u32,
    /// Number of the point, which is the time when it was made, in microseconds; 0 if there was none and the cluster began empty.
    pub point: u64,
    /// Versions that are assigned from then on are above this one.
    pub versions: u64,
    /// The cluster was stopped at the point, so that nothing is lost.
    pub closed: bool,
    /// The last return at which something may have been lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
}

/// A return to a restore point behind which something may have been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// The generation that began with it.
    pub generation: u32,
    /// Number of the point.
    pub point: u64,
}

impl Returned {
    /// Number of the first point of the generation, at which the state is that of the point.
    pub fn first(&self) -> u64 {
        self.point.max(1)
    }
}

/// The process that keeps the nodes of a cluster running, or only watches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Supervisor {
    pub pid: u32,
    /// Whether it restarts nodes that die.
    pub restarts: bool,
}

impl Manifest {
    /// How often the cluster has returned to a restore point.
    pub fn generation(&self) -> u32 {
        self.returned.as_ref().map_or(0, |returned| returned.generation)
    }

    /// The restore point to which the cluster has returned since it was of the `generation`, if something may have been
    /// lost with that.
    pub fn rolled_back_since(&self, generation: u32) -> Option<u64> {
        let last = self.returned.as_ref()?.rolled_back?;
        (last.generation > generation).then_some(last.point)
    }

    /// The error for a cluster in `dir` none of whose nodes runs.
    fn does_not_run(&self, dir: PathBuf) -> DirectoryError {
        does_not_run(dir, self.nodes, self.durable)
    }
}

fn does_not_run(dir: PathBuf, nodes: u16, durable: bool) -> DirectoryError {
    if durable { DirectoryError::SetAside { dir } } else { DirectoryError::Stopped { dir, nodes } }
}

/// A cluster that is running, as a client finds it.
#[derive(Debug)]
pub struct RunningCluster {
    pub manifest: Manifest,
    pub config: ClusterConfig,
}

impl RunningCluster {
    /// The medium over which a client reaches the cluster. Clients join under names of their own. On a network they
    /// need certificates, unless it is unencrypted.
    pub fn ground(&self) -> Result<Ground, DirectoryError> {
        let Self { manifest, config } = self;
        Ok(match config.network.fabric {
            FabricKind::Shm => Ground::Host(Host::at(&manifest.regions)?),
            FabricKind::Tcp => Ground::Net(network::net(config, &manifest.cluster, Who::Client)?),
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => Ground::Cards(
                network::net(config, &manifest.cluster, Who::Client)?,
                network::cards(config),
            ),
            // A client needs no RDMA card: the nodes also serve clients over TCP.
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => Ground::Net(network::net(config, &manifest.cluster, Who::Client)?),
        })
    }

    /// Bytes of memory that its processes share; 0 on a network.
    pub fn bytes_shared(&self) -> Result<u64, DirectoryError> {
        Ok(match self.config.network.fabric {
            FabricKind::Shm => Host::at(&self.manifest.regions)?.bytes_reserved(),
            FabricKind::Tcp | FabricKind::Verbs => 0,
        })
    }
}

/// The medium over which the processes of a cluster communicate.
#[derive(Debug)]
pub enum Ground {
    /// Shared memory of one host.
    Host(Host),
    /// TCP connections.
    Net(Net),
    /// RDMA cards, and TCP connections.
    #[cfg(feature = "verbs")]
    Cards(Net, skein_fabric::verbs::Config),
}

/// Reasons why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    #[error("no cluster in {}: start one with `skein up`, or name another directory with --dir", dir.display())]
    NoCluster {
        /// Directory that was searched.
        dir: PathBuf,
    },
    /// A durable cluster that does not run.
    /// The program lacks a store.
    #[error(
        "a node with node.store = \"rocksdb\" needs a skein that was built with `--features rocksdb`"
    )]
    NoRocksdb,
    #[error("the cluster in {} does not run, and its data is kept: `skein up` starts it again", dir.display())]
    SetAside { dir: PathBuf },
    /// A cluster that exists cannot be started with other settings.
    #[error("there is a cluster in {} that does not run, and keeps its data and its settings, of which {differs}: `skein up` without settings starts it again; `skein down --wipe` removes it", dir.display())]
    Settings {
        dir: PathBuf,
        /// A setting that was given, and what the cluster has.
        differs: String,
    },
    /// All nodes have died, and their data is lost.
    #[error("the cluster in {} is not running any more: none of its {nodes} nodes is alive; `skein down` removes what is left, `skein up` starts a new one", dir.display())]
    Stopped {
        dir: PathBuf,
        /// Number of nodes that the cluster had.
        nodes: u16,
    },
    /// No node runs on this host; other hosts may run theirs.
    #[error("no node of the cluster runs in {}: `skein node --index N` starts the one of this host", dir.display())]
    NoneHere {
        /// Directory that was searched.
        dir: PathBuf,
    },
    #[error("the cluster in {} was started by skein {theirs}, and this is skein {BUILD}: use that binary, or stop the cluster with `skein down` and start it again with this one", dir.display())]
    OtherBuild {
        dir: PathBuf,
        /// Build that started the cluster.
        theirs: Box<Build>,
    },
    #[error("a cluster is already running in {}: {}; stop it with `skein down`, or name another directory with --dir{}", dir.display(), pids(.holders), unsupervised(.holders))]
    InUse {
        dir: PathBuf,
        /// Processes that hold the directory.
        holders: Vec<Holder>,
    },
    /// The path of a configuration file was given where a directory is needed.
    #[error("{} is a file, by which clients reach a cluster, and says nothing of this host's nodes: name the directory that `skein init` or `skein up` has made on this host", file.display())]
    IsFile {
        /// Path of the file.
        file: PathBuf,
    },
    /// The manifest cannot be parsed.
    #[error("{} is not the manifest of a cluster: {why}; nodes that run make it whole within seconds; if none does, `skein down` removes what is left of the cluster, though no data on disk, and a file that is not Skein's is to be moved away", file.display())]
    Damaged {
        file: PathBuf,
        /// Error of the parser.
        why: String,
    },
    /// The manifest of a durable cluster and its copy name different clusters.
    #[error("{} is of cluster {cluster}, and {} beside it of cluster {copied}: one of the two was put there from another cluster; put the right one back", file.display(), copy.display())]
    Mixed { file: PathBuf, cluster: String, copy: PathBuf, copied: String },
    #[error("{} says {entry} = {now}, and the cluster was made with {made}: its data would not be read as it was written; correct the file, which was changed or is damaged", file.display())]
    Reconfigured {
        /// The configuration of the cluster.
        file: PathBuf,
        entry: String,
        /// Value with which the cluster was created.
        made: String,
        now: String,
    },
    /// The log on the disks was written by a program whose commands have other results.
    #[error("skein {} wrote the data of the cluster in {}, and its commands have other results than those of this one ({entry} is {made} there and {now} here): replicas that execute the log again would differ; start the cluster with that binary, make a `skein backup`, and `skein restore` it with this one", theirs, dir.display())]
    OtherBehaviour {
        dir: PathBuf,
        /// The build that ran the cluster last.
        theirs: Box<Build>,
        entry: String,
        made: String,
        now: String,
    },
    /// The count of a node's starts, or its identity, is missing or damaged.
    #[error("{} cannot be used: {why}, and without it the node cannot be told from its earlier incarnations, so it does not start; `{}` makes it a new node in the place of the old one, and `{}` starts that one", file.display(), own_command(file, "admin replace"), own_command(file, "node --index"))]
    IncarnationsDamaged {
        file: PathBuf,
        /// The defect of the file.
        why: &'static str,
    },
    /// A node that was refused must not become another one by being started again and again.
    #[error("node {node} does not start, for the other nodes have refused it: {why}; or put its newest files back, all of those named node{node}.*, and remove {}", file.display())]
    Refused {
        node: u16,
        /// The mark of the refusal.
        file: PathBuf,
        why: String,
    },
    #[error("cannot read {}, by which the node remembers the other nodes: {source}; let the user who runs the node read it, or move it away while the other nodes run: they tell the node again what they remember", file.display())]
    PeersUnreadable {
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    #[error("the shared memory of the cluster in {}, {}, is gone, and its data with it; `skein down` removes what is left, `skein up` starts a new one", dir.display(), regions.display())]
    MemoryGone {
        dir: PathBuf,
        /// Former directory of the shared memory.
        regions: PathBuf,
    },
    #[error("the shared memory of the cluster in {}, {}, is gone; its data is on disk: `skein down` stops what runs, and `skein up` starts it again with new memory", dir.display(), regions.display())]
    MemoryGoneDataKept {
        dir: PathBuf,
        /// Former directory of the shared memory.
        regions: PathBuf,
    },
    /// A foreign file has the name of a cluster's file.
    #[error("{} is not ours, and a file of that name is needed: move it away, or name another directory with --dir", file.display())]
    Foreign {
        /// Path of the file.
        file: PathBuf,
    },
    /// Data of a cluster whose manifest and its copy were removed.
    #[error("{} is the data of a node, but {MANIFEST} and {MANIFEST_COPY}, without which it cannot be used, are not in {}: put the newest copy of them back; or move the data away, or name another directory with --dir", data.display(), dir.display())]
    DataWithoutManifest {
        dir: PathBuf,
        /// The data of the first node that has some.
        data: PathBuf,
    },
    /// The directory was removed, but its processes run and create it again.
    #[error("the directory {} of a running cluster was removed: {}; they make it anew within seconds, unless it cannot be written: see `skein status` then; `skein down` stops them now", dir.display(), pids(.holders))]
    Removed {
        dir: PathBuf,
        /// Processes of the cluster.
        holders: Vec<Holder>,
    },
    /// A running process finds another cluster in its directory.
    #[error("{} is the directory of another cluster by now, and was that of cluster {cluster}; stop the processes of one of them by their ids", dir.display())]
    Taken {
        dir: PathBuf,
        /// Cluster to which the directory belonged.
        cluster: String,
    },
    #[error("the cluster in {} is being stopped by process {pid}", dir.display())]
    Stopping {
        dir: PathBuf,
        /// Process that stops the cluster.
        pid: u32,
    },
    #[error("the cluster needs {needed} of shared memory to start, and {} has {free} free: free some, enlarge it (mount -o remount,size=…), set node.region_root, or lower tuning.log_bytes and tuning.peer_ring_bytes", root.display())]
    NoRoom {
        root: PathBuf,
        /// Formatted size.
        needed: String,
        /// Formatted size.
        free: String,
    },
    /// The configuration file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The shared memory cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The network cannot be used.
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("{} does not say how to reach a cluster: it needs network.fabric = \"tcp\", network.cluster and network.addresses", file.display())]
    NotShared {
        /// Path of the file.
        file: PathBuf,
    },
    #[error("node.data_dir = {} cannot be used: {why}; create it, mount its disk, or name another directory", path.display())]
    NoDataDir { path: PathBuf, why: io::Error },
    #[error("{} holds the data of an earlier cluster {cluster}: move it away, or remove it if nobody needs it", path.display())]
    OldData { path: PathBuf, cluster: String },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    System {
        /// Verb of the operation.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn pids(holders: &[Holder]) -> String {
    let each: Vec<_> = holders.iter().map(|h| format!("{} is process {}", h.role, h.pid)).collect();
    each.join(", ")
}

/// Command line for the node to which `file` belongs: `skein --dir DIR COMMAND N`.
fn own_command(file: &Path, command: &str) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let number = name.split('.').next().and_then(|name| name.strip_prefix("node"));
    let dir = file.parent().unwrap_or(Path::new("."));
    format!("skein --dir {} {command} {}", dir.display(), number.unwrap_or("N"))
}

/// Hint for a running cluster without a supervisor.
fn unsupervised(holders: &[Holder]) -> &'static str {
    if holders.iter().all(|holder| holder.role.starts_with("node")) {
        "; no process supervises its nodes, which `skein supervise` does"
    } else {
        ""
    }
}

/// Converts the error of the operation `what` on `path`.
pub fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    move |source| DirectoryError::System { what, path: path.to_owned(), source }
}

impl Directory {
    /// The directory at `path`, which need not exist.
    pub fn at(path: &Path) -> Result<Self, DirectoryError> {
        let path = std::path::absolute(path).map_err(failed("find", path))?;
        Ok(Self { path })
    }

    /// Absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The running cluster in the directory `path`, for a client. `path` may also be a configuration file that the
    /// hosts of a cluster share.
    pub fn connect(path: &Path) -> Result<RunningCluster, DirectoryError> {
        if path.is_file() {
            return Self::connect_by(path);
        }
        let directory = Self::at(path)?;
        let manifest = directory.find()?;
        let dir = || directory.path.clone();
        manifest.check_build(&directory)?;
        // A supervisor that restarts nodes will start them again, though without their data.
        let config = directory.config()?;
        if !directory.others_run(&config)
            && (0..manifest.nodes).all(|node| directory.node(node).is_none())
            && !directory.supervisor().is_some_and(|supervisor| supervisor.restarts)
        {
            return Err(manifest.does_not_run(dir()));
        }
        if let Some(keeper) = directory.keeper().filter(|keeper| keeper.role == "down") {
            return Err(DirectoryError::Stopping { dir: dir(), pid: keeper.pid });
        }
        // Checked here, because `Host::at` creates a missing directory.
        if !manifest.regions.is_dir() {
            return Err(manifest.does_not_run(dir()));
        }
        Ok(RunningCluster { manifest, config })
    }

    /// The cluster of a configuration file that its hosts share, for a client on any host.
    fn connect_by(file: &Path) -> Result<RunningCluster, DirectoryError> {
        let config = Draft::read(file)?.finish()?;
        if !config.network.fabric.is_network() || config.network.cluster.is_empty() {
            return Err(DirectoryError::NotShared { file: file.to_owned() });
        }
        let manifest = Manifest {
            build: BUILD.owned(),
            cluster: config.network.cluster.clone(),
            regions: PathBuf::new(),
            nodes: config.topology.nodes,
            topology: None,
            tree: config.parents(),
            durable: config.durability != Durability::Memory,
            store: config.store,
            points: config.durability == Durability::Async,
            limits: BTreeMap::new(),
            behaviour: BTreeMap::new(),
            data: None,
            returned: None,
            made: Vec::new(),
        };
        Ok(RunningCluster { manifest, config })
    }

    /// Whether other hosts, or other directories of this host, run some of the nodes. On one host, that is so if no
    /// process keeps the cluster here and some node was never started from this directory.
    fn others_run(&self, config: &ClusterConfig) -> bool {
        let never = |node| self.incarnations(node).unwrap_or_default() == 0;
        config.network.fabric.is_network()
            && (!config.network.is_one_host()
                || self.keeper().is_none() && (0..config.topology.nodes).any(never))
    }

    /// Address of a node that another host runs. A node also counts as another host's if it was never started from this
    /// directory and no process keeps the cluster here.
    pub fn host_of<'a>(&self, config: &'a ClusterConfig, node: u16) -> Option<&'a str> {
        let network = &config.network;
        let address = || network.addresses.get(usize::from(node)).map(String::as_str);
        let incarnations = self.incarnations(node).unwrap_or_default();
        let never = network.fabric.is_network() && self.keeper().is_none() && incarnations == 0;
        network::elsewhere(config, node).or_else(|| address().filter(|_| never))
    }

    /// The error that prevents the creation of files in the directory, if any. A node that dies then cannot be
    /// restarted.
    pub fn unwritable(&self) -> Option<DirectoryError> {
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        let denied = rustix::fs::access(&self.path, rights).err()?;
        // A missing directory is created again or reported elsewhere.
        let says_so = matches!(denied, Errno::ROFS | Errno::ACCESS | Errno::PERM);
        says_so.then(|| failed("write to", &self.path)(denied.into()))
    }

    /// The error for a directory none of whose nodes runs.
    pub fn none_runs(&self, config: &ClusterConfig) -> DirectoryError {
        let dir = self.path.clone();
        if self.others_run(config) {
            DirectoryError::NoneHere { dir }
        } else {
            let durable = config.durability != Durability::Memory;
            does_not_run(dir, config.topology.nodes, durable)
        }
    }

    /// Same as [`manifest`](Self::manifest), for commands: if there is no manifest but processes of the removed
    /// directory run, the error names them.
    pub fn find(&self) -> Result<Manifest, DirectoryError> {
        match self.manifest() {
            Err(DirectoryError::NoCluster { dir }) => match self.strays() {
                holders if holders.is_empty() => Err(DirectoryError::NoCluster { dir }),
                holders => Err(DirectoryError::Removed { dir, holders }),
            },
            found => found,
        }
    }

    /// The configuration in effect.
    pub fn config(&self) -> Result<ClusterConfig, DirectoryError> {
        let config = Draft::read(&self.path.join(CONFIG))?.finish()?;
        if let Ok(manifest) = self.manifest() {
            manifest.check_config(self, &config)?;
        }
        Ok(config)
    }

    /// The process that runs `node` now.
    pub fn node(&self, node: u16) -> Option<Holder> {
        lock::holder(&self.node_lock(node))
    }

    /// Same as [`node`](Self::node), but includes a killed process whose lock is not released yet.
    pub fn node_or_dying(&self, node: u16) -> Option<Holder> {
        lock::holder_or_dying(&self.node_lock(node))
    }

    /// Path of the manifest.
    pub fn manifest_path(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    /// Path of the lock that the process of `node` holds.
    pub fn node_lock(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.lock"))
    }

    /// Number of times that `node` has been started.
    pub fn incarnations(&self, node: u16) -> Result<u32, DirectoryError> {
        incarnations::begun(&self.node_incarnations(node))
    }

    /// The directory with a node's data, if the cluster is durable, or a symbolic link to it in `node.data_dir`.
    pub fn node_data(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.data"))
    }

    /// The directory with the stores of a node's replicas, if they are on disk. A node that starts removes what is there, but
    /// for checkpoints that its log may name.
    pub fn node_stores(&self, node: u16) -> PathBuf {
        self.node_data(node).join("stores")
    }

    /// Path of the file by which a test makes the disk of `node` lose and fail what it says; see docs/testing.md.
    pub fn disk_orders(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.disk"))
    }

    /// Path of the file that counts the starts of `node`.
    pub fn node_incarnations(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.incarnation"))
    }

    /// Path of the identity file of `node`.
    pub fn node_identity(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.identity"))
    }

    /// Path of the file in which `node` records the processes of other nodes.
    pub fn node_peers(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.peers"))
    }

    /// Whether `node` does not run because an operator has stopped it.
    pub fn was_stopped(&self, node: u16) -> bool {
        self.node(node).is_none()
            && lock::last_role(&self.node_lock(node)).is_some_and(|role| role == "stopped")
    }

    /// Path of the admin socket of `node`.
    pub fn socket(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.sock"))
    }

    /// Path of the log of `node`.
    pub fn log(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.log"))
    }

    /// Path of the log of a supervisor in the background.
    pub fn supervisor_log(&self) -> PathBuf {
        self.path.join(SUPERVISOR_LOG)
    }

    /// The process that starts, supervises or stops the cluster.
    pub fn keeper(&self) -> Option<Holder> {
        lock::holder(&self.path.join(LOCK))
    }

    /// Same as [`keeper`](Self::keeper), but includes a killed process whose lock is not released yet.
    pub fn keeper_or_dying(&self) -> Option<Holder> {
        lock::holder_or_dying(&self.path.join(LOCK))
    }

    /// The process that starts or supervises the nodes, or watches them.
    pub fn supervisor(&self) -> Option<Supervisor> {
        let keeper = self.keeper().filter(|keeper| keeper.role != "down")?;
        Some(Supervisor { pid: keeper.pid, restarts: keeper.role != "onlooker" })
    }
}

impl Manifest {
    /// The name under which the data of the nodes was written first.
    pub fn data_name(&self) -> &str {
        self.data.as_deref().unwrap_or(&self.cluster)
    }

    /// Fails if the cluster is of another build: its memory layout may differ.
    pub fn check_build(&self, directory: &Directory) -> Result<(), DirectoryError> {
        if self.build == BUILD.owned() {
            return Ok(());
        }
        let theirs = Box::new(self.build.clone());
        Err(DirectoryError::OtherBuild { dir: directory.path.clone(), theirs })
    }
}
