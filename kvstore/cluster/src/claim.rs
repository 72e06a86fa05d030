//! The right to start or to clear a cluster in a directory.
//!
//! **Invariant (nothing is left, nothing else is taken).** A file of ours is made only after the
//! manifest that names it, and the manifest goes after all of them. So whoever finds a manifest and
//! no live node knows what to remove, whenever its predecessors were killed; and a file with one of
//! our names but without a manifest is somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::BUILD;
use crate::config::{ClusterConfig, FabricKind, Footprint};
use crate::directory::{
    CONFIG, Directory, DirectoryError, LOCK, MANIFEST, Manifest, SUPERVISOR_LOG, failed,
};
use crate::files;
use crate::identity;
use crate::incarnations;
use crate::lock::{self, Lock};
use crate::regions::{self, Regions};
use crate::shared::{self, Shared};

/// How long a killed process may take to let go of what it held.
const DEATH_WITHIN: Duration = Duration::from_secs(1);
const DEATH_POLL: Duration = Duration::from_millis(10);

/// A directory whose lock we hold: nobody else starts or stops a cluster there.
#[derive(Debug)]
pub struct Claim {
    directory: Directory,
    lock: Lock,
    /// The directories that we, or those before us, made.
    made: Vec<PathBuf>,
    /// Kept from being taken for abandoned while no node holds it yet.
    regions: Option<Regions>,
    kept: Option<KeptFiles>,
    /// The manifest cannot be read, and is to go with the rest.
    damaged: bool,
}

impl Directory {
    /// Claims the directory for a new cluster. What a dead one left is removed; a live one, or one
    /// that is being started or stopped, is an error that names its processes.
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
            // The lock file belongs to those who run the cluster.
            Err(error @ (DirectoryError::InUse { .. } | DirectoryError::Removed { .. })) => {
                let _ = claim.lock.release();
                Err(error)
            }
            Err(error) => {
                // What keeps us from starting matters more than what goes wrong now.
                let _ = claim.lock.remove();
                remove_directories(&made);
                Err(error)
            }
        }
    }

    /// Claims what is left of a cluster, to clear it. Its nodes may still be running.
    pub fn claim_old(&self) -> Result<Claim, DirectoryError> {
        let made = self.manifest()?.made;
        self.claim("down", made)
    }

    /// Claims a directory whose manifest is damaged, to clear it. There must be other files of a
    /// cluster: a manifest alone may be a stranger's file of that name.
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

    /// How many nodes the cluster has, going by the names of its files: for one whose manifest cannot
    /// be read.
    pub fn nodes_by_files(&self) -> Result<u16, DirectoryError> {
        let number = |file: &PathBuf| {
            let name = file.file_name()?.to_str()?;
            name.strip_prefix("node")?.split('.').next()?.parse::<u16>().ok()
        };
        Ok(files_of(self.path())?.iter().filter_map(number).max().map_or(0, |last| last + 1))
    }

    /// Claims a cluster that others have started, to supervise it. Who does so already is an error.
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
            }),
            Err(holder) => {
                // Where the directory was removed, some may have made their files anew, and others not yet.
                let strays = self.strays();
                let mut holders = self.holders(holder);
                let found: BTreeSet<u32> = holders.iter().map(|holder| holder.pid).collect();
                holders.extend(strays.into_iter().filter(|stray| !found.contains(&stray.pid)));
                Err(DirectoryError::InUse { dir: self.path().to_owned(), holders })
            }
        }
    }

    /// The processes of the cluster here, whether they are found by files that are there, or by files
    /// that were removed.
    fn everybody(&self) -> Vec<lock::Holder> {
        let mut all = self.strays();
        // A process that makes its file anew in between would be found by both.
        let found: BTreeSet<u32> = all.iter().map(|holder| holder.pid).collect();
        all.extend(self.holders(None).into_iter().filter(|it| !found.contains(&it.pid)));
        all.sort_by(|one, other| one.role.cmp(&other.role));
        all
    }

    /// Everybody who runs something of the cluster here.
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
    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Writes down a new cluster: its manifest, its configuration, and a directory for its shared
    /// memory. Tells `warn` what is not as asked for.
    pub fn lay_out(
        &mut self,
        config: &ClusterConfig,
        warn: &mut dyn FnMut(String),
    ) -> Result<Manifest, DirectoryError> {
        let named = Some(&config.network.cluster).filter(|name| !name.is_empty()).cloned();
        let cluster = named.unwrap_or_else(|| format!("{:016x}", rand::random::<u64>()));
        let regions = match config.network.fabric {
            FabricKind::Shm => {
                let root = regions::root(config, warn)?;
                regions::sweep(&root);
                regions::check_room(&root, &Footprint::of(config), warn)?;
                regions::path(&root, &cluster)
            }
            // What is shared is in the memory of each process.
            FabricKind::Tcp | FabricKind::Verbs => self.directory.path().to_owned(),
        };
        let manifest = Manifest {
            build: BUILD.owned(),
            regions,
            cluster,
            nodes: config.topology.nodes,
            made: self.made.clone(),
        };
        // Names of directories need not be text.
        let text = serde_json::to_string_pretty(&manifest).map_err(|error| {
            failed("write the manifest for", self.directory.path())(error.into())
        })?;
        self.write(MANIFEST, &(text + "\n"))?;
        self.regions = Some(match config.network.fabric {
            FabricKind::Shm => Regions::make(&manifest.regions)?,
            FabricKind::Tcp | FabricKind::Verbs => Regions::hold_of(&self.directory, &manifest)?,
        });
        for node in 0..manifest.nodes {
            // A node makes none of these: it finds them gone when the cluster was cleared meanwhile.
            self.write(&format!("node{node}.incarnation"), incarnations::NONE)?;
            self.write(&format!("node{node}.identity"), &identity::draw(0))?;
            self.write(&format!("node{node}.lock"), "")?;
        }
        self.write(CONFIG, &config.print())?;
        Ok(manifest)
    }

    /// Says that the cluster is being stopped: no client connects and no node starts any more.
    pub fn stopping(&mut self) -> Result<(), DirectoryError> {
        self.sign("down")
    }

    /// Says that from now on its nodes are supervised, from the background.
    pub fn supervising(&mut self) -> Result<(), DirectoryError> {
        self.sign("supervisor")
    }

    /// Says that we stay with the cluster and start nothing again that has died.
    pub fn looking_on(&mut self) -> Result<(), DirectoryError> {
        self.sign("onlooker")
    }

    fn sign(&mut self, role: &str) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(LOCK);
        self.lock.sign(role).map_err(failed("write", &path))
    }

    /// Lets go of the directory and leaves the cluster running there.
    pub fn leave(self) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(LOCK);
        self.lock.release().map_err(failed("unlock", &path))
    }

    /// Removes everything of the cluster. None of its nodes may be running.
    pub fn clear(mut self) -> Result<(), DirectoryError> {
        self.clear_cluster()?;
        self.lock.remove().map_err(failed("remove", &self.directory.path().join(LOCK)))?;
        remove_directories(&self.made);
        Ok(())
    }

    /// Makes sure that nothing runs here, and removes what a dead cluster left.
    fn sweep(&mut self) -> Result<(), DirectoryError> {
        match self.directory.manifest() {
            Ok(manifest) => {
                let holders = await_none(|| self.directory.everybody());
                if !holders.is_empty() {
                    let dir = self.directory.path().to_owned();
                    return Err(DirectoryError::InUse { dir, holders });
                }
                // What it made is ours to remove now.
                let ours = std::mem::take(&mut self.made);
                self.made = manifest.made;
                self.made.extend(ours);
                self.clear_cluster()
            }
            Err(DirectoryError::NoCluster { .. }) => {
                if !self.directory.strays().is_empty() {
                    // Either they end, or they make the directory anew.
                    let holders = await_none(|| self.directory.everybody());
                    if holders.is_empty() {
                        return self.sweep();
                    }
                    let dir = self.directory.path().to_owned();
                    return Err(DirectoryError::Removed { dir, holders });
                }
                match files_of(self.directory.path())?.into_iter().next() {
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
            // Never laid out, or cleared up to here before.
            Err(DirectoryError::NoCluster { .. }) => {}
            // Its shared memory is removed as that of others is whose directories are gone.
            Err(DirectoryError::Damaged { .. }) if self.damaged => regions::sweep_abandoned(),
            Err(error) => return Err(error),
        }
        for file in files_of(self.directory.path())? {
            remove_file(&file)?;
        }
        remove_file(&self.directory.path().join(MANIFEST))
    }

    /// Writes a file whole, or not at all.
    fn write(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(name);
        files::replace(&path, text).map_err(failed("write", &path))
    }

    /// To be called about once a second by who stays with a running cluster: makes anew what was
    /// removed from its directory, the files of nodes that do not run included. Nodes that run do so
    /// for theirs.
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
                        // An `up` that finds the cluster running lets go of it again.
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

/// What came of [keeping](Claim::keep) a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing was missing.
    Whole,
    /// Something was, and is there again.
    Restored,
    /// The directory is another process's by now, which may be stopping the cluster.
    Taken(lock::Holder),
}

/// What is needed to make files of a running cluster anew.
#[derive(Debug)]
struct KeptFiles {
    shared: Shared,
    nodes: u16,
    /// How often each node was started, when that was last seen.
    incarnations: BTreeMap<u16, u32>,
    /// What says who each node is.
    identities: BTreeMap<u16, String>,
    /// Nodes that lacked files the last time.
    missing: BTreeSet<u16>,
}

impl KeptFiles {
    /// Makes the files of a node anew that has not done so itself since the last time.
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
            // One more, in case that an incarnation has begun which was not seen.
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

/// Asks again for a while until nobody is left: a process that was killed a moment ago may still be
/// giving its memory back.
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

/// The files in `dir` with names of ours, other than the manifest and the lock.
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

/// Whether a file of that name is ours to remove: `cluster.toml`, `supervisor.log`, `nodeN.lock`,
/// `nodeN.incarnation`, `nodeN.identity`, `nodeN.peers`, `nodeN.sock`, `nodeN.log`, earlier parts of logs, and
/// what we had begun to write of them.
fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let begun = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
    let node = begun.unwrap_or(name).strip_prefix("node").and_then(|rest| rest.split_once('.'));
    let of_node = node.is_some_and(|(number, kind)| {
        let kinds = ["lock", "incarnation", "identity", "peers", "sock", "log", "log.1"];
        number.parse::<u16>().is_ok() && kinds.contains(&kind)
    });
    of_node
        || [CONFIG, SUPERVISOR_LOG].contains(&name.strip_suffix(".1").unwrap_or(name))
        || begun.is_some_and(|name| [MANIFEST, CONFIG].contains(&name))
}

/// Makes `path` and what is missing above it, for this user alone. Returns what was made.
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

/// Removes those that are empty, innermost first.
fn remove_directories(made: &[PathBuf]) {
    for dir in made.iter().rev() {
        // One that holds anything is not only ours.
        let _ = fs::remove_dir(dir);
    }
}

fn remove_file(path: &Path) -> Result<(), DirectoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}
