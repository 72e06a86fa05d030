//! Restores files of a running node that are gone.
//!
//! **Invariant.** No change to the cluster's directory ends a node. As long as the directory can be written, commands
//! find the node: it restores removed or damaged files within [`EVERY`]. It changes nothing in a directory that holds
//! the manifest of another cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use skein_cluster::directory::{Directory, DirectoryError, failed};
use skein_cluster::files;
use skein_cluster::identity;
use skein_cluster::incarnations;
use skein_cluster::lock::Lock;
use skein_cluster::shared::Shared;

use crate::admin::Server;

/// Interval between checks of a node's files.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// State from which a node restores its files.
pub(super) struct Upkeep {
    shared: Shared,
    /// Path and content of the identity file and of the count of starts.
    own: [(PathBuf, String); 2],
    again: Instant,
    problem: Option<String>,
}

impl Upkeep {
    /// Reads the files. The count of starts is taken as it will be once this incarnation has begun.
    pub(super) fn begin(
        directory: &Directory,
        node: u16,
        incarnation: u32,
    ) -> Result<Self, DirectoryError> {
        let path = directory.node_identity(node);
        let identity = std::fs::read_to_string(&path).map_err(failed("read", &path))?;
        Ok(Self {
            shared: Shared::read(directory)?,
            own: [
                (path, identity),
                (directory.node_incarnations(node), format!("{}\n", incarnation + 1)),
            ],
            again: Instant::now(),
            problem: None,
        })
    }

    /// The error that prevents the node from restoring its files, if any.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Checks and restores the files if it is time to. Returns whether it was.
    pub(super) fn look(&mut self, lock: &mut Lock, server: &mut Server) -> bool {
        let now = Instant::now();
        if now < self.again {
            return false;
        }
        self.again = now + EVERY;
        let problem = match self.restore(lock, server) {
            Ok(false) => None,
            Ok(true) => {
                let dir = self.shared.directory().path().display();
                tracing::error!(%dir, "files of the running cluster were gone; they are made again");
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if problem != self.problem {
            if let Some(problem) = &problem {
                tracing::error!("the node runs on, and commands may not find it: {problem}");
            } else {
                tracing::warn!("the node can be found again");
            }
            self.problem = problem;
        }
        true
    }

    fn restore(&self, lock: &mut Lock, server: &mut Server) -> Result<bool, DirectoryError> {
        let mut restored = self.shared.restore()?;
        let [(identity, _), (incarnation, _)] = &self.own;
        let damaged = [identity::read(identity).err(), incarnations::begun(incarnation).err()];
        // Before the lock: a process that finds the lock may start the node when this process has ended.
        for ((path, text), error) in self.own.iter().zip(damaged) {
            if matches!(error, Some(DirectoryError::IncarnationsDamaged { .. })) {
                files::replace_or_overwrite(path, text).map_err(failed("write", path))?;
                restored = true;
            }
        }
        if !lock.is_current() {
            restored = true;
            lock.take_again().map_err(failed("lock", lock.path()))?;
        }
        restored |= server.listen().map_err(failed("listen at", server.path()))?;
        Ok(restored)
    }
}
