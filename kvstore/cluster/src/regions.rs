//! The directory of a cluster's shared memory: `skein-UID-CLUSTER`, in a file system in memory.
//!
//! The process that starts the cluster and every node hold a shared lock on it. A directory that no process holds is
//! abandoned, for instance because its cluster was killed and its `--dir` deleted; the next `up` on this machine
//! removes it. The directory is locked before it gets its name, so that it never counts as abandoned in between.
//!
//! **Invariant (only what was looked at is removed).** Whoever removes a directory holds a lock on it and has found it
//! under its name since: nobody else removes it meanwhile, so no other directory gets the name.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::config::{ClusterConfig, Footprint, SHARED_MEMORY, show_bytes};
use crate::directory::{Directory, DirectoryError, MANIFEST, Manifest, failed, uid};

/// A directory of shared memory on which this process holds a shared lock.
#[derive(Debug)]
pub struct Regions {
    _held: File,
}

impl Regions {
    /// Creates and locks the directory.
    pub(crate) fn make(path: &Path) -> Result<Self, DirectoryError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let early = path.with_file_name(format!(".{name}"));
        let made = DirBuilder::new().mode(0o700).create(&early);
        made.map_err(failed("make the directory", &early))?;
        let held = Self::hold(&early)?;
        fs::rename(&early, path).map_err(failed("make the directory", path))?;
        Ok(held)
    }

    /// Locks the shared memory of a running cluster.
    pub fn hold_of(directory: &Directory, manifest: &Manifest) -> Result<Self, DirectoryError> {
        if !manifest.regions.is_dir() {
            let (dir, regions) = (directory.path().to_owned(), manifest.regions.clone());
            return Err(if manifest.durable {
                DirectoryError::MemoryGoneDataKept { dir, regions }
            } else {
                DirectoryError::MemoryGone { dir, regions }
            });
        }
        Self::hold(&manifest.regions)
    }

    /// Locks an existing directory.
    fn hold(path: &Path) -> Result<Self, DirectoryError> {
        let held = File::open(path).map_err(failed("open", path))?;
        held.lock_shared().map_err(failed("lock", path))?;
        Ok(Self { _held: held })
    }
}

/// Shared memory for processes that form no cluster. It is removed when this is dropped; after a kill, its remains are
/// removed like those of a cluster.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    held: Option<Regions>,
}

impl Scratch {
    /// Creates it in the default root of shared memory.
    pub fn make() -> Result<Self, DirectoryError> {
        let root = root(&ClusterConfig::default(), &mut |warning| tracing::warn!(warning))?;
        sweep(&root);
        let path = path(&root, &format!("{:016x}", rand::random::<u64>()));
        let held = Some(Regions::make(&path)?);
        Ok(Self { path, held })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.held = None;
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove shared memory");
        }
    }
}

/// Path of the shared memory of `cluster`.
pub(crate) fn path(root: &Path, cluster: &str) -> PathBuf {
    root.join(format!("skein-{}-{cluster}", uid()))
}

/// The root of shared memory: the configured one, or the temporary directory if the configured one is the default and
/// cannot be used here.
pub(crate) fn root(
    config: &ClusterConfig,
    warn: &mut dyn FnMut(String),
) -> Result<PathBuf, DirectoryError> {
    let root = &config.region_root;
    let usable = |path: &Path| match fs::metadata(path) {
        Ok(about) if !about.is_dir() => Err(ErrorKind::NotADirectory.into()),
        Ok(_) => Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?),
        Err(error) => Err(error),
    };
    let Err(error) = usable(root) else { return Ok(root.clone()) };
    if root != Path::new(SHARED_MEMORY) {
        return Err(failed("use node.region_root =", root)(error));
    }
    let temporary = std::env::temp_dir();
    usable(&temporary).map_err(failed("use the temporary directory", &temporary))?;
    warn(format!(
        "{SHARED_MEMORY} cannot be used ({error}): the cluster's memory goes to {}, which may be on \
         a disk and slow; mount a tmpfs at {SHARED_MEMORY}, or set node.region_root",
        temporary.display()
    ));
    Ok(temporary)
}

/// Fails if the file system of `root` has no room for the cluster to start. Warns if it has no room for the cluster's
/// largest size.
pub(crate) fn check_room(
    root: &Path,
    footprint: &Footprint,
    warn: &mut dyn FnMut(String),
) -> Result<(), DirectoryError> {
    let free = free_bytes(root).map_err(failed("ask for free space in", root))?;
    let (needed, most) = (footprint.at_start(), footprint.most());
    if needed > free {
        return Err(DirectoryError::NoRoom {
            root: root.to_owned(),
            needed: show_bytes(needed),
            free: show_bytes(free),
        });
    }
    if most > free {
        let (most, free, root) = (show_bytes(most), show_bytes(free), root.display());
        warn(format!(
            "with many sessions the cluster can grow to {most} of shared memory, and {root} has \
             {free} free: sessions that find no room are refused; enlarge it, or lower \
             tuning.rings_bytes_max"
        ));
    }
    Ok(())
}

/// Bytes that this user can still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> std::io::Result<u64> {
    let about = rustix::fs::statvfs(path)?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Removes the shared memory of a cluster. The name is checked, so that a wrong manifest cannot remove any other
/// directory.
pub(crate) fn remove(manifest: &Manifest) -> Result<(), DirectoryError> {
    let Some(root) = manifest.regions.parent() else { return Ok(()) };
    // On a network, the path is the cluster's directory, whatever its name.
    let no_memory = manifest.regions.join(MANIFEST).exists();
    if no_memory || cluster_of(&manifest.regions) != Some(&manifest.cluster) {
        return Ok(());
    }
    let name = manifest.regions.file_name().unwrap_or_default().to_string_lossy();
    // A process that sweeps has found it abandoned, and removes it under its name: that must end before another directory
    // gets the name.
    let _held = match Regions::hold(&manifest.regions) {
        Err(DirectoryError::System { source, .. }) if source.kind() != ErrorKind::NotFound => {
            return Err(failed("lock", &manifest.regions)(source));
        }
        held => held.ok(),
    };
    for path in [manifest.regions.clone(), root.join(format!(".{name}"))] {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes abandoned shared memory below `root`. A failure does not prevent a start.
pub(crate) fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if cluster_of(&path).is_none() {
            continue;
        }
        let Ok(dir) = File::open(&path) else { continue };
        if remove_abandoned(&dir, &path) {
            tracing::info!(path = %path.display(), "removed abandoned shared memory");
        }
    }
}

/// Removes the directory `dir`, which was opened at `path`, if it is abandoned. Returns whether it did.
fn remove_abandoned(dir: &File, path: &Path) -> bool {
    let abandoned = dir.try_lock().is_ok()
        // Its cluster may have started again since it was opened, in a new directory of that name.
        && is_at(dir, path)
        && skein_fabric::shm::Host::at(path).is_ok_and(|host| host.live().is_empty());
    abandoned && fs::remove_dir_all(path).is_ok()
}

/// Whether the open directory `dir` still has the name `path`.
fn is_at(dir: &File, path: &Path) -> bool {
    let same = |dir: fs::Metadata, there: fs::Metadata| {
        (dir.dev(), dir.ino()) == (there.dev(), there.ino())
    };
    dir.metadata().is_ok_and(|dir| fs::metadata(path).is_ok_and(|there| same(dir, there)))
}

/// Removes abandoned shared memory from the default root.
pub fn sweep_abandoned() {
    if let Ok(root) = root(&ClusterConfig::default(), &mut |_| ()) {
        sweep(&root);
    }
}

/// Cluster to which a directory of this user's shared memory belongs, according to its name.
fn cluster_of(path: &Path) -> Option<&str> {
    let cluster = path.file_name()?.to_str()?.strip_prefix(&format!("skein-{}-", uid()))?;
    let whole = cluster.len() == 16 && cluster.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then_some(cluster)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::BUILD;

    fn named(root: &Path) -> PathBuf {
        path(root, "0123456789abcdef")
    }

    #[test]
    fn a_directory_that_has_got_the_name_of_an_abandoned_one_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = named(root.path());
        drop(Regions::make(&path).unwrap());
        // One process is about to sweep, and another one starts the cluster again.
        let abandoned = File::open(&path).unwrap();
        fs::remove_dir_all(&path).unwrap();
        let _held = Regions::make(&path).unwrap();
        assert!(!remove_abandoned(&abandoned, &path));
        assert!(path.is_dir());
    }

    #[test]
    fn a_start_waits_for_a_sweep_of_what_it_removes() {
        let root = tempfile::tempdir().unwrap();
        let regions = named(root.path());
        drop(Regions::make(&regions).unwrap());
        let sweeping = File::open(&regions).unwrap();
        sweeping.try_lock().unwrap();
        let (ended, has_ended) = channel();
        let cluster = cluster_of(&regions).unwrap();
        let manifest = serde_json::json!({
            "build": BUILD.owned(), "cluster": cluster, "regions": regions, "nodes": 1, "made": []
        });
        let manifest: Manifest = serde_json::from_value(manifest).unwrap();
        thread::spawn(move || {
            remove(&manifest).unwrap();
            ended.send(()).unwrap();
        });
        assert!(
            has_ended.recv_timeout(Duration::from_millis(200)).is_err(),
            "the sweep is not over"
        );
        assert!(regions.is_dir());
        fs::remove_dir_all(&regions).unwrap();
        drop(sweeping);
        has_ended.recv().unwrap();
    }
}
