//! The right to start or to clear a cluster in a directory.
//!
//! **Invariant (nothing remains, nothing foreign is removed).** Apart from the lock, a file of a cluster is created
//! after the manifest and removed before it. So a process that finds a manifest and no live node knows what to remove,
//! whenever earlier processes were killed. A file with one of the cluster's file names but without a manifest is
//! foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::BUILD;
use crate::config::{ClusterConfig, Durability, FabricKind, Footprint};
use crate::data;
use crate::directory::{
    CONFIG, Directory, DirectoryError, LOCK, MANIFEST, MANIFEST_COPY, Manifest, Returned,
    SUPERVISOR_LOG, failed,
};
use crate::files;
use crate::identity;
use crate::incarnations;
use crate::lock::{self, Lock};
use crate::manifest::{behaviour_of, limits_of};
use crate::regions::{self, Regions};
use crate::shared::{self, Shared};

/// Time that a killed process may take to release its locks.
const DEATH_WITHIN: Duration = Duration::from_secs(1);
const DEATH_POLL: Duration = Duration::from_millis(10);

/// A directory whose lock this process holds: no other process starts or stops a cluster there.
#[derive(Debug)]
pub struct Claim {
    directory: Directory,
    lock: Lock,
    /// Directories created for the cluster, by this process or by earlier ones.
    made: Vec<PathBuf>,
    /// Held so that the shared memory does not count as abandoned before a node holds it.
    regions: Option<Regions>,
    kept: Option<KeptFiles>,
    /// The manifest cannot be parsed and is removed with the other files.
    damaged: bool,
    /// A durable cluster that does not run: it is to go on.
    stopped: Option<Manifest>,
}

impl Directory {
    /// Claims the directory for a new cluster and removes the remains of a dead one. If a cluster runs there or is
    /// being started or stopped, the error names its processes.
    pub fn claim_new(&self) -> Result<Claim, DirectoryError> {
        let made = make_directories(self.path())?;
        let mut claim = match self.claim("up", made.clone()) {
            Ok(claim) => claim,
            Err(error) => {
                remove_directories(&made);
                return Err(error);
            }
        };
        match claim.sweep() {
            Ok(()) => Ok(claim),
            // The processes of the running cluster use the lock file.
            Err(error @ (DirectoryError::InUse { .. } | DirectoryError::Removed { .. })) => {
                let _ = claim.lock.release();
                Err(error)
            }
            Err(error) => {
                // The first error matters more than a failure to clean up.
                let _ = claim.lock.remove();
                remove_directories(&made);
                Err(error)
            }
        }
    }

    /// Claims the remains of a cluster in order to clear them. Its nodes may still be running.
    pub fn claim_old(&self) -> Result<Claim, DirectoryError> {
        let made = self.manifest()?.made;
        self.claim("down", made)
    }

    /// Claims a directory whose manifest is damaged, to clear it. There must be other files of a cluster: a manifest
    /// alone may be a foreign file of that name.
    pub fn claim_damaged(&self) -> Result<Claim, DirectoryError> {
        let damage = match self.manifest() {
            Err(error @ DirectoryError::Damaged { .. }) => error,
            Err(error) => return Err(error),
            Ok(manifest) => return self.claim("down", manifest.made),
        };
        if files_of(self.path())?.is_empty() {
            return Err(damage);
        }
        let mut claim = self.claim("down", Vec::new())?;
        claim.damaged = true;
        Ok(claim)
    }

    /// Whether there is data of nodes on disk.
    pub fn has_data(&self) -> Result<bool, DirectoryError> {
        Ok(!data_of(self.path())?.is_empty())
    }

    /// Number of nodes according to the file names, for a cluster whose manifest cannot be read.
    pub fn nodes_by_files(&self) -> Result<u16, DirectoryError> {
        let number = |file: &PathBuf| {
            let name = file.file_name()?.to_str()?;
            name.strip_prefix("node")?.split('.').next()?.parse::<u16>().ok()
        };
        Ok(files_of(self.path())?.iter().filter_map(number).max().map_or(0, |last| last + 1))
    }

    /// Claims a cluster that other processes have started, to supervise it. Fails if another process supervises it.
    pub fn claim_running(&self) -> Result<Claim, DirectoryError> {
        let manifest = self.manifest()?;
        manifest.check_build(self)?;
        let mut claim = self.claim("supervisor", manifest.made.clone())?;
        match Regions::hold_of(self, &manifest) {
            Ok(regions) => {
                claim.regions = Some(regions);
                Ok(claim)
            }
            Err(error) => {
                claim.leave()?;
                Err(error)
            }
        }
    }

    fn claim(&self, role: &str, made: Vec<PathBuf>) -> Result<Claim, DirectoryError> {
        let path = self.path().join(LOCK);
        match fs::read(&path) {
            Ok(text) if !lock::is_signature(&text) => {
                return Err(DirectoryError::Foreign { file: path });
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("read", &path)(error));
            }
            _ => {}
        }
        match Lock::take(&path, role).map_err(failed("lock", &path))? {
            Ok(lock) => Ok(Claim {
                directory: self.clone(),
                lock,
                made,
                regions: None,
                kept: None,
                damaged: false,
                stopped: None,
            }),
            Err(holder) => {
                // If the directory was removed, some processes may have created their files again, and others not yet.
                let strays = self.strays();
                let mut holders = self.holders(holder);
                let found: BTreeSet<u32> = holders.iter().map(|holder| holder.pid).collect();
                holders.extend(strays.into_iter().filter(|stray| !found.contains(&stray.pid)));
                Err(DirectoryError::InUse { dir: self.path().to_owned(), holders })
            }
        }
    }

    /// The processes of the cluster, found by existing files or by removed ones.
    fn all_holders(&self) -> Vec<lock::Holder> {
        let mut all = self.strays();
        // A process that creates its file again between the two searches is found by both.
        let found: BTreeSet<u32> = all.iter().map(|holder| holder.pid).collect();
        all.extend(self.holders(None).into_iter().filter(|it| !found.contains(&it.pid)));
        all.sort_by(|one, other| one.role.cmp(&other.role));
        all
    }

    /// `keeper` and the processes that run nodes.
    fn holders(&self, keeper: Option<lock::Holder>) -> Vec<lock::Holder> {
        let nodes = self.manifest().map_or(0, |manifest| manifest.nodes);
        let nodes = (0..nodes).filter_map(|node| {
            let holder = self.node(node)?;
            Some(lock::Holder { role: format!("node {node}"), ..holder })
        });
        keeper.into_iter().chain(nodes).collect()
    }
}

impl Claim {
    /// The claimed directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Creates the files of a new cluster: its manifest, its configuration, and a directory for its shared memory.
    /// Passes problems that do not prevent a start to `warn`.
    pub fn lay_out(
        &mut self,
        config: &ClusterConfig,
        warn: &mut dyn FnMut(String),
    ) -> Result<Manifest, DirectoryError> {
        if !config.store.is_built() {
            return Err(DirectoryError::NoRocksdb);
        }
        let named = Some(&config.network.cluster).filter(|name| !name.is_empty()).cloned();
        let cluster = named.unwrap_or_else(|| format!("{:016x}", rand::random::<u64>()));
        let regions = self.region_path(config, &cluster, warn)?;
        let manifest = Manifest {
            build: BUILD.owned(),
            regions,
            cluster,
            nodes: config.topology.nodes,
            topology: (config.durability != Durability::Memory).then_some(config.topology),
            tree: config.parents(),
            durable: config.durability != Durability::Memory,
            store: config.store,
            points: config.durability == Durability::Async,
            limits: match config.durability {
                Durability::Memory => BTreeMap::new(),
                Durability::Async | Durability::Sync => limits_of(config),
            },
            behaviour: behaviour_of(config.durability),
            data: None,
            returned: None,
            made: self.made.clone(),
        };
        let places = data::places(&manifest, config);
        if let Some(dir) = &config.data_dir {
            data::check(dir, &places, &manifest.cluster)?;
        }
        self.write_manifest(&manifest, config)?;
        data::link(&self.directory, &places)?;
        self.write_node_files(&manifest)?;
        self.write(CONFIG, &config.print())?;
        Ok(manifest)
    }

    /// The configuration of the durable cluster that was stopped here, or lost its power; `None` if there is none.
    pub fn stopped(&self) -> Result<Option<ClusterConfig>, DirectoryError> {
        self.stopped.as_ref().map(|_| self.directory.config()).transpose()
    }

    /// Lets the durable cluster that was stopped here go on, with this build and these settings.
    pub fn resume(&mut self, config: &ClusterConfig) -> Result<Manifest, DirectoryError> {
        let manifest = self.stopped.take().expect("a stopped cluster was found");
        let (build, made) = (BUILD.owned(), self.made.clone());
        let (topology, limits) = (Some(config.topology), limits_of(config));
        let behaviour = behaviour_of(config.durability);
        let manifest = Manifest { build, topology, limits, behaviour, made, ..manifest };
        self.write_manifest(&manifest, config)?;
        self.write(CONFIG, &config.print())?;
        data::link(&self.directory, &data::places(&manifest, config))?;
        for node in 0..manifest.nodes {
            // No node runs. A node that an operator had stopped is started, too. The disk may be full.
            let lock = self.directory.node_lock(node);
            files::replace_or_overwrite(&lock, "").map_err(failed("write", &lock))?;
        }
        Ok(manifest)
    }

    /// Lets the cluster that was stopped here, or lost its power, return to a restore point, with this build. It has another
    /// name and other memory than before: nothing that knew it before reaches it, and its nodes begin as if they
    /// had never run.
    pub fn return_to(
        &mut self,
        returned: Returned,
        config: &ClusterConfig,
        warn: &mut dyn FnMut(String),
    ) -> Result<Manifest, DirectoryError> {
        let before = self.stopped.take().expect("a stopped cluster was found");
        let data = before.data_name().to_owned();
        let cluster = format!("{:016x}", rand::random::<u64>());
        let regions = self.region_path(config, &cluster, warn)?;
        let manifest = Manifest {
            build: BUILD.owned(),
            regions,
            cluster,
            data: Some(data),
            returned: Some(returned),
            made: self.made.clone(),
            ..before
        };
        self.write_manifest(&manifest, config)?;
        data::link(&self.directory, &data::places(&manifest, config))?;
        self.write_node_files(&manifest)?;
        Ok(manifest)
    }

    /// Looks again: the nodes of the cluster that was started here have all ended. Fails if one runs.
    pub fn find_stopped(&mut self) -> Result<(), DirectoryError> {
        (self.regions, self.kept) = (None, None);
        self.made.clear();
        self.sweep()
    }

    /// The manifest of the durable cluster that was stopped here, or lost its power.
    pub fn stopped_manifest(&self) -> Option<&Manifest> {
        self.stopped.as_ref()
    }

    /// Where the shared memory of a new cluster is to be.
    fn region_path(
        &self,
        config: &ClusterConfig,
        cluster: &str,
        warn: &mut dyn FnMut(String),
    ) -> Result<PathBuf, DirectoryError> {
        Ok(match config.network.fabric {
            FabricKind::Shm => {
                let root = regions::root(config, warn)?;
                regions::sweep(&root);
                regions::check_room(&root, &Footprint::of(config), warn)?;
                regions::path(&root, cluster)
            }
            // These fabrics have no directory of shared memory.
            FabricKind::Tcp | FabricKind::Verbs => self.directory.path().to_owned(),
        })
    }

    /// Writes the files of nodes that have never run.
    fn write_node_files(&self, manifest: &Manifest) -> Result<(), DirectoryError> {
        for node in 0..manifest.nodes {
            // A node creates none of these: if they are missing, the cluster was cleared meanwhile.
            self.write(&format!("node{node}.incarnation"), incarnations::NONE)?;
            self.write(&format!("node{node}.identity"), &identity::draw(0))?;
            self.write(&format!("node{node}.lock"), "")?;
            remove_file(&self.directory.node_peers(node))?;
            remove_file(&self.directory.node_refused(node))?;
        }
        Ok(())
    }

    /// Writes the manifest, and then makes the shared memory that it names.
    fn write_manifest(
        &mut self,
        manifest: &Manifest,
        config: &ClusterConfig,
    ) -> Result<(), DirectoryError> {
        // A path that is not UTF-8 cannot be written as JSON.
        let text = manifest.to_text().map_err(|error| {
            failed("write the manifest for", self.directory.path())(error.into())
        })?;
        self.write(MANIFEST, &text)?;
        if manifest.durable {
            self.write(MANIFEST_COPY, &text)?;
        }
        self.regions = Some(match config.network.fabric {
            FabricKind::Shm => Regions::make(&manifest.regions)?,
            FabricKind::Tcp | FabricKind::Verbs => Regions::hold_of(&self.directory, manifest)?,
        });
        Ok(())
    }

    /// Releases the directory of a durable cluster whose nodes have ended, and removes what only running nodes need.
    pub fn set_aside(self) -> Result<(), DirectoryError> {
        let manifest = self.directory.manifest()?;
        regions::remove(&manifest)?;
        for node in 0..manifest.nodes {
            remove_file(&self.directory.socket(node))?;
        }
        self.leave()
    }

    /// Marks the cluster as being stopped: no client connects and no node starts from now on.
    pub fn stopping(&mut self) -> Result<(), DirectoryError> {
        self.sign("down")
    }

    /// Marks its nodes as supervised from the background.
    pub fn supervising(&mut self) -> Result<(), DirectoryError> {
        self.sign("supervisor")
    }

    /// Marks this process as one that stays with the cluster and restarts no node.
    pub fn looking_on(&mut self) -> Result<(), DirectoryError> {
        self.sign("onlooker")
    }

    fn sign(&mut self, role: &str) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(LOCK);
        self.lock.sign(role).map_err(failed("write", &path))
    }

    /// Releases the directory and leaves the cluster running.
    pub fn leave(self) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(LOCK);
        self.lock.release().map_err(failed("unlock", &path))
    }

    /// Removes all files of the cluster. None of its nodes may be running.
    pub fn clear(mut self) -> Result<(), DirectoryError> {
        self.clear_cluster()?;
        self.lock.remove().map_err(failed("remove", &self.directory.path().join(LOCK)))?;
        remove_directories(&self.made);
        Ok(())
    }

    /// Checks that no cluster runs here, and removes the remains of a dead one.
    fn sweep(&mut self) -> Result<(), DirectoryError> {
        match self.directory.manifest() {
            Ok(manifest) => {
                let holders = await_none(|| self.directory.all_holders());
                if !holders.is_empty() {
                    let dir = self.directory.path().to_owned();
                    return Err(DirectoryError::InUse { dir, holders });
                }
                // The directories of the dead cluster are removed with those of this one.
                let ours = std::mem::take(&mut self.made);
                self.made.clone_from(&manifest.made);
                self.made.extend(ours);
                if manifest.durable {
                    regions::remove(&manifest)?;
                    self.stopped = Some(manifest);
                    return Ok(());
                }
                self.clear_cluster()
            }
            Err(DirectoryError::NoCluster { .. }) => {
                if !self.directory.strays().is_empty() {
                    // These processes either end or create the directory again.
                    let holders = await_none(|| self.directory.all_holders());
                    if holders.is_empty() {
                        return self.sweep();
                    }
                    let dir = self.directory.path().to_owned();
                    return Err(DirectoryError::Removed { dir, holders });
                }
                let dir = self.directory.path();
                if let Some(data) = data_of(dir)?.into_iter().min() {
                    return Err(DirectoryError::DataWithoutManifest { dir: dir.to_owned(), data });
                }
                match files_of(dir)?.into_iter().next() {
                    Some(file) => Err(DirectoryError::Foreign { file }),
                    None => Ok(()),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn clear_cluster(&mut self) -> Result<(), DirectoryError> {
        match self.directory.manifest() {
            Ok(manifest) => regions::remove(&manifest)?,
            // Never laid out, or already cleared up to this point.
            Err(DirectoryError::NoCluster { .. }) => {}
            // The path of its shared memory is unknown: all abandoned shared memory is removed.
            Err(DirectoryError::Damaged { .. }) if self.damaged => regions::sweep_abandoned(),
            Err(error) => return Err(error),
        }
        for data in data_of(self.directory.path())? {
            data::remove(&data)?;
        }
        for file in files_of(self.directory.path())? {
            remove_file(&file)?;
        }
        remove_file(&self.directory.path().join(MANIFEST))
    }

    /// Writes a file atomically, unless it is there already: a full disk does not keep a cluster from going on.
    fn write(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(name);
        if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        files::replace(&path, text).map_err(failed("write", &path))
    }

    /// Creates files again that were removed from the directory, those of nodes that do not run included. Running nodes
    /// restore their own files. The process that stays with a running cluster calls this about once a second.
    pub fn keep(&mut self) -> Result<Kept, DirectoryError> {
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => none.insert(KeptFiles {
                shared: Shared::read(&self.directory)?,
                nodes: self.directory.manifest()?.nodes,
                incarnations: BTreeMap::new(),
                identities: BTreeMap::new(),
                missing: BTreeSet::new(),
            }),
        };
        let mut restored = kept.shared.restore()?;
        if !self.lock.is_current() {
            let path = self.lock.path().to_owned();
            match self.lock.take_again() {
                Ok(()) => restored = true,
                Err(error) => {
                    return match lock::holder(&path) {
                        // An `up` that finds the cluster running releases the lock again.
                        Some(holder) if holder.role == "up" => Ok(Kept::Whole),
                        Some(holder) => Ok(Kept::Taken(holder)),
                        None => Err(failed("lock", &path)(error)),
                    };
                }
            }
        }
        for node in 0..kept.nodes {
            restored |= kept.restore_node(&self.directory, node)?;
        }
        Ok(if restored { Kept::Restored } else { Kept::Whole })
    }
}

/// Outcome of [keeping](Claim::keep) a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing was missing.
    Whole,
    /// Missing files were created again.
    Restored,
    /// Another process holds the directory, and may be stopping the cluster.
    Taken(lock::Holder),
}

/// State from which the files of a running cluster are created again.
#[derive(Debug)]
struct KeptFiles {
    shared: Shared,
    nodes: u16,
    /// Last number of starts read for each node.
    incarnations: BTreeMap<u16, u32>,
    /// Last valid content of each node's identity file.
    identities: BTreeMap<u16, String>,
    /// Nodes whose files were missing at the last check.
    missing: BTreeSet<u16>,
}

impl KeptFiles {
    /// Creates the missing files of a node again if they were already missing at the last check.
    fn restore_node(&mut self, directory: &Directory, node: u16) -> Result<bool, DirectoryError> {
        let (incarnation, lock) = (directory.node_incarnations(node), directory.node_lock(node));
        if let Ok(incarnations) = directory.incarnations(node) {
            self.incarnations.insert(node, incarnations);
        }
        let identity = directory.node_identity(node);
        if identity::read(&identity).is_ok()
            && let Ok(text) = fs::read_to_string(&identity)
        {
            self.identities.insert(node, text);
        }
        if ![&incarnation, &lock, &identity].into_iter().any(|path| shared::is_missing(path)) {
            self.missing.remove(&node);
            return Ok(false);
        }
        let Some(incarnations) =
            self.incarnations.get(&node).filter(|_| !self.missing.insert(node))
        else {
            return Ok(false);
        };
        if shared::is_missing(&incarnation) {
            // One more, in case an incarnation has begun since the last check.
            let text = format!("{}\n", incarnations + 1);
            files::replace(&incarnation, &text).map_err(failed("write", &incarnation))?;
        }
        if shared::is_missing(&identity)
            && let Some(text) = self.identities.get(&node)
        {
            files::replace(&identity, text).map_err(failed("write", &identity))?;
        }
        if shared::is_missing(&lock) {
            files::replace(&lock, "").map_err(failed("write", &lock))?;
        }
        Ok(true)
    }
}

/// Polls until `holders` is empty or `DEATH_WITHIN` has passed: a process that was killed a moment ago may still be
/// releasing its memory.
fn await_none(holders: impl Fn() -> Vec<lock::Holder>) -> Vec<lock::Holder> {
    let deadline = Instant::now() + DEATH_WITHIN;
    loop {
        let left = holders();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        thread::sleep(DEATH_POLL);
    }
}

/// Files in `dir` with the file names of a cluster, other than the manifest and the lock.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    let listed = fs::read_dir(dir).map_err(failed("list", dir))?;
    let mut files = Vec::new();
    for entry in listed {
        let entry = entry.map_err(failed("list", dir))?;
        if is_ours(&entry.file_name()) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// The directories in `dir` with the data of nodes.
fn data_of(dir: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    let listed = fs::read_dir(dir).map_err(failed("list", dir))?;
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry.map_err(failed("list", dir))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            let (number, kind) = name.strip_prefix("node")?.split_once('.')?;
            (kind == "data" || data::is_aside(kind)).then_some(number)
        });
        if number.is_some_and(|number| number.parse::<u16>().is_ok()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Whether a file of this name belongs to a cluster: `cluster.json.copy`, `cluster.toml`, `supervisor.log`, `nodeN.lock`,
/// `nodeN.incarnation`, `nodeN.identity`, `nodeN.peers`, `nodeN.refused`, `nodeN.sock`, `nodeN.log`, `nodeN.disk`, rotated
/// logs, unfinished writes of them, and what is written to find out what the file system can do.
fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let begun = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
    let node = begun.unwrap_or(name).strip_prefix("node").and_then(|rest| rest.split_once('.'));
    let of_node = node.is_some_and(|(number, kind)| {
        let kinds =
            ["lock", "incarnation", "identity", "peers", "refused", "sock", "log", "log.1", "disk"];
        number.parse::<u16>().is_ok() && kinds.contains(&kind)
    });
    of_node
        || [CONFIG, SUPERVISOR_LOG].contains(&name.strip_suffix(".1").unwrap_or(name))
        || name == MANIFEST_COPY
        || begun.is_some_and(|name| [MANIFEST, MANIFEST_COPY, CONFIG, "probe"].contains(&name))
}

/// Creates `path` and its missing parents, for this user alone. Returns the directories that it created.
fn make_directories(path: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    let missing = path.ancestors().take_while(|path| fs::symlink_metadata(path).is_err());
    let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
    missing.reverse();
    let mut made = Vec::new();
    for dir in missing {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => made.push(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                remove_directories(&made);
                return Err(failed("make the directory", &dir)(error));
            }
        }
    }
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Ok(made),
        Ok(_) => Err(failed("use", path)(io::Error::from(ErrorKind::NotADirectory))),
        Err(error) => Err(failed("use", path)(error)),
    }
}

/// Removes the directories that are empty, innermost first.
fn remove_directories(made: &[PathBuf]) {
    for dir in made.iter().rev() {
        // A directory that is not empty holds foreign files.
        let _ = fs::remove_dir(dir);
    }
}

fn remove_file(path: &Path) -> Result<(), DirectoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}
