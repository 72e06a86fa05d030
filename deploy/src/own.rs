//! A cluster of a command's own: started for it, supervised, and removed when it ends.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use skein_cluster::claim::Claim;
use skein_cluster::config::ClusterConfig;
use skein_cluster::directory::Directory;
use skein_node::supervise::Supervisor;

use crate::commands::up::durability::Choice;
use crate::commands::up::{Data, Started};
use crate::exit::usage;

/// A running cluster that only this command uses.
pub(crate) struct Own {
    cluster: Started,
    dir: PathBuf,
}

impl Own {
    /// Starts a cluster in the directory `named`, or else in the temporary directory under a name
    /// that consists of `prefix` and this process's id. If `namespaces` is given, each node runs in
    /// the network namespace whose name is this text followed by the node's number. Removes the
    /// files of killed commands with the same prefix.
    pub(crate) fn start(
        prefix: &str,
        named: Option<PathBuf>,
        config: ClusterConfig,
        verbose: u8,
        namespaces: Option<String>,
    ) -> anyhow::Result<Self> {
        clear_killed(prefix);
        // Created and removed with the cluster.
        let own = || std::env::temp_dir().join(format!("{prefix}{}", std::process::id()));
        let dir = named.unwrap_or_else(own);
        let directory = Directory::at(&dir)?;
        if directory.manifest().is_ok_and(|manifest| manifest.durable) {
            // It would go on here, and its data would be removed with it at the end.
            return Err(usage(format_args!(
                "there is a cluster in {} whose data is kept, and this command needs a directory of its own: name \
                 another with --dir",
                dir.display()
            )));
        }
        let cluster = Started::start(
            directory,
            config,
            Choice::Configured,
            verbose,
            false,
            false,
            namespaces,
        )?;
        cluster.restart();
        Ok(Self { cluster, dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What starts the nodes.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        self.cluster.supervisor()
    }

    /// The processes of the running nodes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.cluster.pids()
    }

    /// Stops the nodes and removes everything. Returns the problems.
    pub(crate) fn stop(self) -> Vec<String> {
        let Self { cluster, dir } = self;
        let (regions, pids) = (cluster.manifest().regions.clone(), cluster.pids());
        let stopped = cluster.stop(Data::Remove).err().map(|error| format!("{error:#}"));
        stopped.into_iter().chain(left_behind(&dir, &regions, &pids)).collect()
    }
}

/// Removes the files of killed commands, which could not clean up: their nodes ended with them, but
/// their files remain. Files of running clusters and of other users are left alone.
fn clear_killed(prefix: &str) {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let us = rustix::process::geteuid().as_raw();
    for entry in entries {
        let ours = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == us);
        if !ours || !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        // Claiming a dead cluster's directory for a new cluster removes the files of the old one.
        let claim = Directory::at(&entry.path()).and_then(|directory| directory.claim_new());
        if let Err(error) = claim.and_then(Claim::clear) {
            tracing::info!(%error, "the files of another one stay");
        }
    }
}

/// Lists the files and processes that were not removed.
fn left_behind(dir: &Path, regions: &Path, pids: &[u32]) -> Vec<String> {
    let process = |pid: &u32| PathBuf::from(format!("/proc/{pid}"));
    let left = |path: &Path| path.exists().then(|| format!("{} is left", path.display()));
    let files = [dir.join("cluster.json"), regions.to_owned()];
    let files = files.iter().filter_map(|path| left(path));
    let processes = pids.iter().filter(|pid| process(pid).exists());
    files.chain(processes.map(|pid| format!("process {pid} is still running"))).collect()
}
