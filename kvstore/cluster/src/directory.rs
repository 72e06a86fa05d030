//! What a cluster keeps in its directory, and who may do what there.
//!
//! ```text
//! DIR/cluster.json      the manifest: which build, where the shared memory is, what to remove
//! DIR/cluster.toml      the configuration in effect
//! DIR/lock              held while the cluster is started or stopped, and by who supervises it
//! DIR/node0.lock …      held by the running node
//! DIR/node0.incarnation …      how often it has been started
//! DIR/node0.sock …      its admin interface (docs/admin.md)
//! DIR/node0.log …       what it has to say
//! DIR/supervisor.log    what a supervisor in the background has to say
//! DIR/….log.1           the earlier part of a log
//! ```
//!
//! Whether something runs is told by locks, which the kernel releases when a process ends, and never
//! by process ids alone. Files with other names are not ours and stay.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use skein_fabric::FabricError;
use skein_fabric::shm::Host;
use skein_fabric::tcp::Net;

use crate::config::{ClusterConfig, ConfigError, Draft, FabricKind};
use crate::incarnations;
use crate::lock::{self, Holder};
use crate::network::{self, NetworkError, Who};
use crate::{BUILD, Build};

/// The file that says which cluster it is.
pub(crate) const MANIFEST: &str = "cluster.json";
/// The file with the cluster's configuration.
pub(crate) const CONFIG: &str = "cluster.toml";
pub(crate) const LOCK: &str = "lock";
pub(crate) const SUPERVISOR_LOG: &str = "supervisor.log";

/// The directory if none is named: `$XDG_STATE_HOME/skein/default`, else
/// `$HOME/.local/state/skein/default`, else one of this user's in the temporary directory.
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

/// What every file in the directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The build that made it. No other may join.
    pub build: Build,
    /// The cluster's name: 16 hexadecimal digits, drawn at random.
    pub cluster: String,
    /// Where its shared memory is; on a network there is none, and this is the directory itself.
    pub regions: PathBuf,
    /// How many nodes it has.
    pub nodes: u16,
    /// The directories that were made for it, outermost first. They go with it, if they are empty.
    pub made: Vec<PathBuf>,
}

/// The process that keeps the nodes of a cluster running, or looks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Supervisor {
    /// Its process id.
    pub pid: u32,
    /// Whether it starts again what has died.
    pub restarts: bool,
}

/// A cluster that is running, as a client finds it.
#[derive(Debug)]
pub struct RunningCluster {
    /// Its name and where its memory is.
    pub manifest: Manifest,
    /// Its configuration.
    pub config: ClusterConfig,
}

impl RunningCluster {
    /// Where its processes meet; clients join under names of their own. On a network they need
    /// certificates, unless it is plain.
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
            // Clients need no card: its nodes serve those who have none as on a network.
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => Ground::Net(network::net(config, &manifest.cluster, Who::Client)?),
        })
    }

    /// Bytes of memory that its processes share.
    pub fn bytes_shared(&self) -> Result<u64, DirectoryError> {
        Ok(match self.config.network.fabric {
            FabricKind::Shm => Host::at(&self.manifest.regions)?.bytes_reserved(),
            FabricKind::Tcp | FabricKind::Verbs => 0,
        })
    }
}

/// Where the processes of a cluster meet.
#[derive(Debug)]
pub enum Ground {
    /// In the shared memory of a host.
    Host(Host),
    /// On a network, which clients enter as such.
    Net(Net),
    /// On a network of RDMA cards.
    #[cfg(feature = "verbs")]
    Cards(Net, skein_fabric::verbs::Config),
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Start one, or name another directory.
    #[error("no cluster in {}: start one with `skein up`, or name another directory with --dir", dir.display())]
    NoCluster {
        /// Where we looked.
        dir: PathBuf,
    },
    /// All its nodes have died. What they held is lost.
    #[error("the cluster in {} is not running any more: none of its {nodes} nodes is alive; `skein down` removes what is left, `skein up` starts a new one", dir.display())]
    Stopped {
        /// Where it was.
        dir: PathBuf,
        /// How many nodes it had.
        nodes: u16,
    },
    /// Other hosts may run theirs.
    #[error("no node of the cluster runs in {}: `skein node --index N` starts the one of this host", dir.display())]
    NoneHere {
        /// Where we looked.
        dir: PathBuf,
    },
    /// Use the binary that started the cluster, or start it again with this one.
    #[error("the cluster in {} was started by skein {theirs}, and this is skein {BUILD}: use that binary, or stop the cluster with `skein down` and start it again with this one", dir.display())]
    OtherBuild {
        /// Where it is.
        dir: PathBuf,
        /// Who started it.
        theirs: Box<Build>,
    },
    /// Somebody is using it.
    #[error("a cluster is already running in {}: {}; stop it with `skein down`, or name another directory with --dir{}", dir.display(), pids(.holders), unsupervised(.holders))]
    InUse {
        /// Which directory.
        dir: PathBuf,
        /// Who holds it.
        holders: Vec<Holder>,
    },
    /// A configuration, where a directory is needed.
    #[error("{} is a file, by which clients reach a cluster, and says nothing of this host's nodes: name the directory that `skein init` or `skein up` has made on this host", file.display())]
    IsFile {
        /// The file.
        file: PathBuf,
    },
    /// The manifest is not one of ours.
    #[error("{} is not the manifest of a cluster: {why}; nodes that run make it whole within seconds; if none does, `skein down` removes what is left of the cluster, and a file that is not Skein's is to be moved away", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody can tell which lives a node has had.
    #[error("{} cannot be used: {why}, and without it the node cannot be told from its earlier incarnations, so it does not start; `{}` makes it a new node in the place of the old one, and `{}` starts that one", file.display(), own_command(file, "admin replace"), own_command(file, "node --index"))]
    IncarnationsDamaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What a node remembers of the others cannot be read at all.
    #[error("cannot read {}, by which the node remembers the other nodes: {source}; let the user who runs the node read it, or move it away while the other nodes run: they tell the node again what they remember", file.display())]
    PeersUnreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// All its shared memory has been removed, with everything in it.
    #[error("the shared memory of the cluster in {}, {}, is gone, and its data with it; `skein down` removes what is left, `skein up` starts a new one", dir.display(), regions.display())]
    MemoryGone {
        /// Where the cluster is.
        dir: PathBuf,
        /// Where its memory was.
        regions: PathBuf,
    },
    /// A file with one of our names that is not ours.
    #[error("{} is not ours, and a file of that name is needed: move it away, or name another directory with --dir", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// Its processes go on, and make the directory anew.
    #[error("the directory {} of a running cluster was removed: {}; they make it anew within seconds, unless it cannot be written: see `skein status` then; `skein down` stops them now", dir.display(), pids(.holders))]
    Removed {
        /// Where it was.
        dir: PathBuf,
        /// Its processes.
        holders: Vec<Holder>,
    },
    /// A running process finds another cluster in its directory.
    #[error("{} is the directory of another cluster by now, and was that of cluster {cluster}; stop the processes of one of them by their ids", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// Whose it was.
        cluster: String,
    },
    /// The cluster is being stopped.
    #[error("the cluster in {} is being stopped by process {pid}", dir.display())]
    Stopping {
        /// Where it is.
        dir: PathBuf,
        /// By whom.
        pid: u32,
    },
    /// The file system for shared memory is too full.
    #[error("the cluster needs {needed} of shared memory to start, and {} has {free} free: free some, enlarge it (mount -o remount,size=…), set node.region_root, or lower tuning.log_bytes and tuning.peer_ring_bytes", root.display())]
    NoRoom {
        /// The root of the shared memory.
        root: PathBuf,
        /// For people.
        needed: String,
        /// For people.
        free: String,
    },
    /// The configuration beside the manifest is damaged.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The shared memory cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The network cannot be used.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A configuration that says not enough to reach a cluster by it.
    #[error("{} does not say how to reach a cluster: it needs network.fabric = \"tcp\", network.cluster and network.addresses", file.display())]
    NotShared {
        /// The file.
        file: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    System {
        /// What was to be done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn pids(holders: &[Holder]) -> String {
    let each: Vec<_> = holders.iter().map(|h| format!("{} is process {}", h.role, h.pid)).collect();
    each.join(", ")
}

/// A command about the node whose own file this is: `skein --dir DIR COMMAND N`.
fn own_command(file: &Path, command: &str) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let number = name.split('.').next().and_then(|name| name.strip_prefix("node"));
    let dir = file.parent().unwrap_or(Path::new("."));
    format!("skein --dir {} {command} {}", dir.display(), number.unwrap_or("N"))
}

/// What to do about a running cluster that nobody keeps running.
fn unsupervised(holders: &[Holder]) -> &'static str {
    if holders.iter().all(|holder| holder.role.starts_with("node")) {
        "; nobody supervises its nodes, which `skein supervise` does"
    } else {
        ""
    }
}

/// The error of an operation on a file or directory, named by its verb.
pub fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    move |source| DirectoryError::System { what, path: path.to_owned(), source }
}

impl Directory {
    /// The directory at `path`, which need not exist.
    pub fn at(path: &Path) -> Result<Self, DirectoryError> {
        let path = std::path::absolute(path).map_err(failed("find", path))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The running cluster there, for a client. In place of a directory, `path` may be the
    /// configuration that the hosts of a cluster share.
    pub fn connect(path: &Path) -> Result<RunningCluster, DirectoryError> {
        if path.is_file() {
            return Self::connect_by(path);
        }
        let directory = Self::at(path)?;
        let manifest = directory.find()?;
        let dir = || directory.path.clone();
        manifest.check_build(&directory)?;
        // One that is supervised is about to have nodes again, if with nothing in them.
        let config = directory.config()?;
        if !directory.others_run(&config)
            && (0..manifest.nodes).all(|node| directory.node(node).is_none())
            && !directory.supervisor().is_some_and(|supervisor| supervisor.restarts)
        {
            return Err(DirectoryError::Stopped { dir: dir(), nodes: manifest.nodes });
        }
        if let Some(keeper) = directory.keeper().filter(|keeper| keeper.role == "down") {
            return Err(DirectoryError::Stopping { dir: dir(), pid: keeper.pid });
        }
        // Asked first, because a host makes its directory.
        if !manifest.regions.is_dir() {
            return Err(DirectoryError::Stopped { dir: dir(), nodes: manifest.nodes });
        }
        Ok(RunningCluster { manifest, config })
    }

    /// The cluster of a configuration that all its hosts share, for a client on any host.
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
            made: Vec::new(),
        };
        Ok(RunningCluster { manifest, config })
    }

    /// Whether some of the nodes are run by other hosts, or from other directories of this one: those
    /// that were never started from here, where nobody starts all of them.
    fn others_run(&self, config: &ClusterConfig) -> bool {
        let never = |node| self.incarnations(node).unwrap_or_default() == 0;
        config.network.fabric.is_network()
            && (!config.network.is_one_host()
                || self.keeper().is_none() && (0..config.topology.nodes).any(never))
    }

    /// The address of a node that another host runs. Where all hosts seem to be one, a node that was
    /// never started from this directory counts as one.
    pub fn host_of<'a>(&self, config: &'a ClusterConfig, node: u16) -> Option<&'a str> {
        let network = &config.network;
        let address = || network.addresses.get(usize::from(node)).map(String::as_str);
        let incarnations = self.incarnations(node).unwrap_or_default();
        let never = network.fabric.is_network() && self.keeper().is_none() && incarnations == 0;
        network::elsewhere(config, node).or_else(|| address().filter(|_| never))
    }

    /// Why no file can be made in the directory, if none can: a node that dies cannot be started
    /// again then.
    pub fn unwritable(&self) -> Option<DirectoryError> {
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        let denied = rustix::fs::access(&self.path, rights).err()?;
        // One that is gone is made anew, or said to be gone.
        let says_so = matches!(denied, Errno::ROFS | Errno::ACCESS | Errno::PERM);
        says_so.then(|| failed("write to", &self.path)(denied.into()))
    }

    /// Why none of the nodes that the directory may run is there.
    pub fn none_runs(&self, config: &ClusterConfig) -> DirectoryError {
        let dir = self.path.clone();
        if self.others_run(config) {
            DirectoryError::NoneHere { dir }
        } else {
            DirectoryError::Stopped { dir, nodes: config.topology.nodes }
        }
    }

    /// The manifest of the cluster there, dead or alive, of whatever build.
    pub fn manifest(&self) -> Result<Manifest, DirectoryError> {
        let file = self.path.join(MANIFEST);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::NoCluster { dir: self.path.clone() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && self.path.is_file() => {
                return Err(DirectoryError::IsFile { file: self.path.clone() });
            }
            Err(error) => return Err(failed("read", &file)(error)),
        };
        serde_json::from_str(&text)
            .map_err(|error| DirectoryError::Damaged { file, why: error.to_string() })
    }

    /// The same for commands: where there is none, but processes whose directory this was, these are
    /// the error.
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
        Ok(Draft::read(&self.path.join(CONFIG))?.finish()?)
    }

    /// The process that runs `node` now.
    pub fn node(&self, node: u16) -> Option<Holder> {
        lock::holder(&self.node_lock(node))
    }

    /// The same, or the process that was killed and is not quite gone.
    pub fn node_or_dying(&self, node: u16) -> Option<Holder> {
        lock::holder_or_dying(&self.node_lock(node))
    }

    /// The lock that a process of `node` holds.
    pub fn node_lock(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.lock"))
    }

    /// How often `node` has been started.
    pub fn incarnations(&self, node: u16) -> Result<u32, DirectoryError> {
        incarnations::begun(&self.node_incarnations(node))
    }

    /// The file that counts the starts of `node`.
    pub fn node_incarnations(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.incarnation"))
    }

    /// The identity of `node`.
    pub fn node_identity(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.identity"))
    }

    /// What `node` remembers of the others.
    pub fn node_peers(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.peers"))
    }

    /// Whether `node` does not run because an operator told it to stop.
    pub fn was_stopped(&self, node: u16) -> bool {
        self.node(node).is_none()
            && lock::last_words(&self.node_lock(node)).is_some_and(|role| role == "stopped")
    }

    /// Where `node` listens for administrators.
    pub fn socket(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.sock"))
    }

    /// Where `node` logs.
    pub fn log(&self, node: u16) -> PathBuf {
        self.path.join(format!("node{node}.log"))
    }

    /// Where a supervisor in the background logs.
    pub fn supervisor_log(&self) -> PathBuf {
        self.path.join(SUPERVISOR_LOG)
    }

    /// The process that starts, supervises or stops the cluster.
    pub fn keeper(&self) -> Option<Holder> {
        lock::holder(&self.path.join(LOCK))
    }

    /// The same, or the process that was killed and is not quite gone.
    pub fn keeper_or_dying(&self) -> Option<Holder> {
        lock::holder_or_dying(&self.path.join(LOCK))
    }

    /// The process that looks after the nodes.
    pub fn supervisor(&self) -> Option<Supervisor> {
        let keeper = self.keeper().filter(|keeper| keeper.role != "down")?;
        Some(Supervisor { pid: keeper.pid, restarts: keeper.role != "onlooker" })
    }
}

impl Manifest {
    /// Refuses a cluster of another build: its memory may be laid out otherwise.
    pub fn check_build(&self, directory: &Directory) -> Result<(), DirectoryError> {
        if self.build == BUILD.owned() {
            return Ok(());
        }
        let theirs = Box::new(self.build.clone());
        Err(DirectoryError::OtherBuild { dir: directory.path.clone(), theirs })
    }
}
