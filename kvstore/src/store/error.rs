//! Why a store cannot go on.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;

/// Why a store could not do what it was asked: what happened, to which file, and what to do.
///
/// Whichever it is, the replica that the store belongs to stops. It is never a refusal of the command: what one replica
/// cannot read others can, and all of a group answer alike.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// What is there was not written so: the medium lost it or changed it, or it is another program's.
    #[error(
        "{} is damaged: {what}; remove the store's files and start the node again, the other replicas of its groups give \
         it their state", file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// There is no room for what is to be written. Nothing is damaged.
    #[error("there is no room for {}: make room on its disk, and start the node again", file.display())]
    Full {
        /// The file.
        file: PathBuf,
    },
    /// The system could not read or write. Whether it can the next time is not known, nor what it wrote.
    #[error(
        "cannot {attempt} {}: {source}; look at the disk, and start the node again if it is well",
        file.display()
    )]
    System {
        /// What was to be done: "read" or "write".
        attempt: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl From<Infallible> for StoreError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
