//! What can go wrong outside the protocol, one variant per thing a caller can do about it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::adapters::NoAdapter;

/// Why the fabric could not do what it was asked.
///
/// Being denied a write is not here: it happens to operations that *were* posted, it is part of the
/// protocol, and it is an [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// Nobody goes by that name now. Try again when it has started.
    #[error("no process goes by the name {name}: it is not running")]
    Unreachable {
        /// The name that was dialled.
        name: String,
    },

    /// Somebody is there, and one of the two will not have the other. It will be the same the next
    /// time, until somebody has changed what is said here.
    #[error("no connection to {name}: {why}")]
    Refused {
        /// The name that was dialled.
        name: String,
        /// What is wrong, and with whom.
        why: String,
    },

    /// The peer's process is dead or was hung up on; dial again to meet its successor.
    #[error("the peer is gone")]
    Gone,

    /// The key is of an earlier grant, an earlier incarnation, or another cluster.
    #[error("stale region key")]
    StaleKey,

    /// The span is not one of the peer's region, or begins within a word: the key says how long the
    /// region is, and came from somebody else, as what lies where in it may have.
    #[error("a span of {len} bytes at {at} is none of a peer's region of {size} bytes")]
    Outside {
        /// Where it begins.
        at: usize,
        /// Its length in bytes.
        len: usize,
        /// What the region's key says, in bytes.
        size: usize,
    },

    /// There is no room for that much shared memory.
    #[error("cannot reserve {len} bytes of shared memory in {}: {source}", dir.display())]
    NoSpace {
        /// What was asked for, in bytes.
        len: usize,
        /// Where the region files are.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// No RDMA device can be used.
    #[error("{why}; `skein doctor` lists what is there")]
    NoAdapter {
        /// What there is, and what is missing.
        why: NoAdapter,
    },

    /// The RDMA device does not take memory.
    #[error(
        "{device} does not register {len} bytes: {source}; it may be the limit on locked memory \
         (ulimit -l, LimitMEMLOCK=)"
    )]
    NotRegistered {
        /// What was asked for, in bytes.
        len: usize,
        /// The device.
        device: String,
        /// What the system said.
        source: io::Error,
    },

    /// A control message was over [`MAIL_MAX`](crate::MAIL_MAX), or the peer's mailbox is full.
    #[error("control message of {len} bytes not taken: {why}")]
    Mail {
        /// Its length in bytes.
        len: usize,
        /// Too long, or no room.
        why: &'static str,
    },

    /// Another live process already goes by this name in this directory.
    #[error("{name} is already running in {}, or another process has taken that place", dir.display())]
    NameTaken {
        /// The contested name.
        name: String,
        /// The cluster's region directory.
        dir: PathBuf,
    },

    /// A system call failed, and we have no better name for why.
    #[error("{call} failed on {}: {source}", path.display())]
    System {
        /// The call.
        call: &'static str,
        /// What it was applied to.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FabricError {
    /// Whether there was too little of something, such as memory or descriptors: the same call may
    /// succeed later.
    pub fn is_lack(&self) -> bool {
        match self {
            Self::NoSpace { .. } | Self::NotRegistered { .. } => true,
            Self::System { source, .. } => is_lack(source),
            _ => false,
        }
    }
}

/// Whether the process or the host has too little of something, and trying again may help.
pub(crate) fn is_lack(error: &io::Error) -> bool {
    let lacks =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}
