//! How durable a new cluster is if nobody says it: as durable as its directory allows.

use skein_cluster::config::{ClusterConfig, Durability, show_bytes};
use skein_cluster::directory::Directory;
use skein_cluster::regions::free_bytes;
use skein_wal::files;

/// Space that the log of a node takes soon: the segment that is written, the next one, and an old one.
const LOG_BYTES: u64 = 3 * (64 << 20);

/// Origin of a new cluster's durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The configuration, which may be that of a command that measures or shows something.
    Configured,
    /// The disk of the cluster's directory.
    Disk,
}

/// Makes a new cluster in `directory` durable if its disk can do that, or returns why not.
pub(super) fn choose(directory: &Directory, config: &mut ClusterConfig) -> Option<String> {
    if let Err(why) = files::check(directory.path()) {
        config.durability = Durability::Memory;
        return Some(without_advice(&why));
    }
    let needed = LOG_BYTES * u64::from(config.topology.nodes);
    match free_bytes(directory.path()) {
        Ok(free) if free < needed => {
            config.durability = Durability::Memory;
            let (free, needed) = (show_bytes(free), show_bytes(needed));
            Some(format!(
                "{} has {free} free, and the logs of its nodes take {needed}",
                directory.path().display()
            ))
        }
        _ => {
            config.durability = Durability::Sync;
            None
        }
    }
}

/// The reason why writes to a directory are not durable.
fn without_advice(why: &files::OpenError) -> String {
    match why {
        files::OpenError::Volatile { path, filesystem } => {
            format!(
                "{} is on {filesystem}, which forgets everything with the power",
                path.display()
            )
        }
        files::OpenError::NoDirectIo { path, .. } => {
            format!("the file system of {} has no direct I/O", path.display())
        }
        files::OpenError::Io { .. } => why.to_string(),
    }
}
