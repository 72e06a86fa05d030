//! Failures outside the protocol: one variant for each thing that a caller can do about one.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::adapters::NoAdapter;

/// Why the fabric could not do what was asked.
///
/// A denied write is not here: it happens to operations that *were* posted, it is part of the protocol, and it is an
/// [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// No process has that name now. Try again when it has started.
    #[error("no process named {name} is running")]
    Unreachable {
        /// The name that was dialled.
        name: String,
    },

    /// A process is there, and one of the two refuses the other. Trying again does not help until the stated cause is
    /// removed.
    #[error("no connection to {name}: {why}")]
    Refused {
        name: String,
        /// What is wrong, and at which side.
        why: String,
    },

    /// The peer's process is dead or was hung up on. Dial again to reach its successor.
    #[error("the peer is gone")]
    Gone,

    /// The key is of an earlier grant, an earlier incarnation, or another cluster.
    #[error("stale region key")]
    StaleKey,

    /// The span is not inside the peer's region, or begins within a word. An error and not a panic: the region's
    /// length, and perhaps the offset, come from another process.
    #[error("a span of {len} bytes at {at} is not inside a peer's region of {size} bytes")]
    Outside {
        /// Offset of its first byte.
        at: usize,
        /// In bytes.
        len: usize,
        /// The region's length in bytes, by its key.
        size: usize,
    },

    /// There is no room for that much shared memory.
    #[error("cannot reserve {len} bytes of shared memory in {}: {source}", dir.display())]
    NoSpace {
        /// In bytes.
        len: usize,
        /// The directory of region files.
        dir: PathBuf,
        source: io::Error,
    },

    /// No RDMA device can be used.
    #[error("{why}; `skein doctor` lists what is there")]
    NoAdapter {
        /// What there is, and what is missing.
        why: NoAdapter,
    },

    /// The RDMA device does not register memory.
    #[error(
        "{device} does not register {len} bytes: {source}; it may be the limit on locked memory \
         (ulimit -l, LimitMEMLOCK=)"
    )]
    NotRegistered {
        /// In bytes.
        len: usize,
        device: String,
        source: io::Error,
    },

    /// A control message was over [`MAIL_MAX`](crate::MAIL_MAX), or the peer's mailbox is full.
    #[error("control message of {len} bytes not accepted: {why}")]
    Mail {
        /// In bytes.
        len: usize,
        why: &'static str,
    },

    /// Another live process has this name in this directory.
    #[error("{name} is already running in {}, or another process has this name", dir.display())]
    NameTaken {
        name: String,
        /// The cluster's region directory.
        dir: PathBuf,
    },

    /// A system call failed for a reason that has no variant of its own.
    #[error("{call} failed on {}: {source}", path.display())]
    System {
        call: &'static str,
        /// What it was applied to.
        path: PathBuf,
        source: io::Error,
    },
}

impl FabricError {
    /// Whether a resource such as memory or descriptors was short: the same call may succeed later.
    pub fn is_lack(&self) -> bool {
        match self {
            Self::NoSpace { .. } | Self::NotRegistered { .. } => true,
            Self::System { source, .. } => is_lack(source),
            _ => false,
        }
    }
}

/// Whether the process or the host is short of a resource, and trying again may help.
pub(crate) fn is_lack(error: &io::Error) -> bool {
    let lacks =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}
