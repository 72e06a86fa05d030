//! The right to start or to clear a cluster in a directory.
//!
//! **Invariant (nothing is left, nothing else is taken).** A file of ours is made only after the
//! manifest that names it, and the manifest goes after all of them. So whoever finds a manifest and
//! no live node knows what to remove, whenever its predecessors were killed; and a file with one of
//! our names but without a manifest is somebody else's.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::directory::{
    CONFIG, Directory, DirectoryError, LOCK, MANIFEST, Manifest, SUPERVISOR_LOG, failed,
};
use super::lives;
use super::lock::{self, Lock};
use super::regions::{self, Regions};
use crate::build::BUILD;
use crate::config::{ClusterConfig, FabricKind, Footprint};

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
            Err(error @ DirectoryError::InUse { .. }) => {
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
            Ok(lock) => Ok(Claim { directory: self.clone(), lock, made, regions: None }),
            Err(holder) => Err(DirectoryError::InUse {
                dir: self.path().to_owned(),
                holders: self.holders(holder),
            }),
        }
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
            // A node makes neither: it finds them gone when the cluster was cleared meanwhile.
            self.write(&format!("node{node}.life"), lives::NONE)?;
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
                // A process that was killed a moment ago may still be giving its memory back.
                let deadline = Instant::now() + DEATH_WITHIN;
                let mut holders = self.directory.holders(None);
                while !holders.is_empty() && Instant::now() < deadline {
                    thread::sleep(DEATH_POLL);
                    holders = self.directory.holders(None);
                }
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
            Err(DirectoryError::NoCluster { .. }) => match self.files()?.into_iter().next() {
                Some(file) => Err(DirectoryError::Foreign { file }),
                None => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    fn clear_cluster(&mut self) -> Result<(), DirectoryError> {
        match self.directory.manifest() {
            Ok(manifest) => regions::remove(&manifest)?,
            // Never laid out, or cleared up to here before.
            Err(DirectoryError::NoCluster { .. }) => {}
            Err(error) => return Err(error),
        }
        for file in self.files()? {
            remove_file(&file)?;
        }
        remove_file(&self.directory.path().join(MANIFEST))
    }

    /// The files with names of ours, other than the manifest and the lock.
    fn files(&self) -> Result<Vec<PathBuf>, DirectoryError> {
        let dir = self.directory.path();
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

    /// Writes a file whole, or not at all.
    fn write(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(name);
        let early = self.directory.path().join(format!(".{name}.new"));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&early).and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| fs::rename(&early, &path)).map_err(failed("write", &path))
    }
}

/// Whether a file of that name is ours to remove: `cluster.toml`, `supervisor.log`, `nodeN.lock`,
/// `nodeN.life`, `nodeN.sock`, `nodeN.log`, and what we had begun to write of them.
fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let begun = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
    let node = begun.unwrap_or(name).strip_prefix("node").and_then(|rest| rest.split_once('.'));
    let of_node = node.is_some_and(|(number, kind)| {
        number.parse::<u16>().is_ok() && ["lock", "life", "sock", "log"].contains(&kind)
    });
    of_node
        || [CONFIG, SUPERVISOR_LOG].contains(&name)
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
