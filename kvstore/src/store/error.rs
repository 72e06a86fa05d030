//! Errors of stores.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;

/// An error of a store: what happened, to which file, and what to do.
///
/// After any of them, the replica with that store stops. An error is never a refusal of a command: the other replicas
/// of the group may be able to execute it, and all replicas of a group must answer alike.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not hold what the store wrote: the medium lost or changed it, or it belongs to another program.
    #[error(
        "{} is damaged: {what}; the next start of the node removes the store's files, and the other replicas of its groups \
         give it their state", file.display()
    )]
    Damaged {
        file: PathBuf,
        /// The inconsistency.
        what: String,
    },
    /// The file is of another store: of another replica, or of another version of this program.
    #[error(
        "{} is not this replica's store: {what}; put the node's own files there, or remove them and start the node again, \
         the other replicas of its groups give it their state", file.display()
    )]
    Foreign {
        file: PathBuf,
        /// The difference.
        what: String,
    },
    /// There is no space for the data to write. Nothing is damaged.
    #[error("there is no room for {}: make room on its disk, and start the node again", file.display())]
    Full {
        /// The file that was to be written.
        file: PathBuf,
    },
    /// The system could not read or write. Whether the next attempt would succeed is not known, nor what was written.
    #[error(
        "cannot {attempt} {}: {source}; look at the disk, and start the node again if it is well",
        file.display()
    )]
    System {
        /// "open", "read" or "write".
        attempt: &'static str,
        file: PathBuf,
        source: io::Error,
    },
}

impl From<Infallible> for StoreError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
