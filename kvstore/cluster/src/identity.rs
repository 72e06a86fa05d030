//! Who a node is, and what it remembers of the others: two files in the cluster's directory.
//!
//! `nodeN.identity` holds how often an operator has replaced the node's host, and a number drawn at
//! random with the directory. `nodeN.peers` holds which processes of the other nodes it has met or heard
//! of; and, of its own node, a process that the others know and that is not its own. See
//! [`Roster`](skein_multicast::roster).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skein_multicast::roster::{NOBODYS, Seen};

use crate::directory::{Directory, DirectoryError, failed};
use crate::files;
use crate::incarnations;
use crate::lock::Lock;

/// What a node remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// Who the others know this node to be, if that is another process.
    pub successor: Option<Seen>,
    /// The other nodes, by number.
    pub others: BTreeMap<u16, Seen>,
}

/// The text of an identity file: of a host that is the node's first, or of its replacement.
pub(crate) fn draw(replaced: u32) -> String {
    format!("{replaced} {:016x}\n", random())
}

/// A number that no other host has drawn, and no other process.
pub fn random() -> u64 {
    rand::random_range(NOBODYS + 1..=u64::MAX)
}

/// How often the node was replaced, and its random number.
pub fn read(path: &Path) -> Result<(u32, u64), DirectoryError> {
    let damaged = |why| DirectoryError::IncarnationsDamaged { file: path.to_owned(), why };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged("it is missing"));
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let parsed = text.strip_suffix('\n').and_then(|text| {
        let (replaced, identity) = text.split_once(' ')?;
        Some((replaced.parse().ok()?, u64::from_str_radix(identity, 16).ok()?))
    });
    parsed.ok_or_else(|| damaged("it holds no identity"))
}

/// What the node remembers; nothing if it has met nobody yet, or if that was damaged: the others will
/// tell it. A node that forgets so is no worse off than one whose directory was made anew.
pub fn peers(path: &Path) -> Result<Peers, DirectoryError> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::error!(
                "{} is damaged ({error}): what it said of the other nodes is learned anew from those that \
                 run; nothing need be done as long as another node that has met them is among these",
                path.display()
            );
            Peers::default()
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Peers::default()),
        Err(source) => Err(DirectoryError::PeersUnreadable { file: path.to_owned(), source }),
    }
}

/// Writes down what the node remembers.
pub fn save(path: &Path, peers: &Peers) -> io::Result<()> {
    files::replace(path, &(serde_json::to_string(peers).expect("plain data") + "\n"))
}

/// Why a node cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// It is there.
    #[error(
        "node {node} runs, as process {pid}: it needs no replacement; `skein admin kill {node} --signal TERM` ends it"
    )]
    Runs {
        /// The node.
        node: u16,
        /// Its process; 0 if that is not known.
        pid: u32,
    },
    /// Nobody has refused it.
    #[error(
        "nothing is known here of an earlier node {node}: start it with `skein node --index {node}`; if others remember another one they refuse it and say so, and then this command goes on from what they know"
    )]
    NotRefused {
        /// The node.
        node: u16,
    },
    /// It runs on another host, as far as can be told.
    #[error(
        "node {node} was never started from {}, and other nodes of this host know it: nothing was changed; give this command on the host of node {node}; if this host is to take its place, start it here first, with `skein --dir {} node --index {node}`: the others refuse it and say which one they remember", dir.display(), dir.display()
    )]
    NeverHere {
        /// The node.
        node: u16,
        /// The directory of this host.
        dir: PathBuf,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// A node that was made a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// How often it will count as started.
    pub incarnation: u32,
    /// Whether that is above all that the others have seen, as far as anybody here knew. If not, they
    /// refuse it, say what they have seen, and another replacement goes on from there.
    pub known: bool,
}

/// Makes `node` of the cluster in `directory` a new one, which takes the place of the one that others
/// remember: with an identity of its own, and an incarnation above all that are known here.
///
/// **Invariant.** A node whose own files are damaged never counts as one that starts the first time: its
/// replicas begin as learners. If nothing is known here of its earlier lives, the count may be one that
/// others have seen; they compare it with what they remember, and refuse it then.
pub fn replace(directory: &Directory, node: u16) -> Result<Replacement, ReplaceError> {
    let manifest = directory.manifest()?;
    let path = directory.node_lock(node);
    let lock = Lock::take(&path, "node").map_err(failed("lock", &path))?;
    let _lock = lock.map_err(|holder| ReplaceError::Runs {
        node,
        pid: holder.map_or(0, |holder| holder.pid),
    })?;
    let successor = peers(&directory.node_peers(node))?.successor;
    let mut known: Vec<Seen> = successor.into_iter().collect();
    for other in (0..manifest.nodes).filter(|other| *other != node) {
        known.extend(peers(&directory.node_peers(other))?.others.get(&node));
    }
    let incarnations = undamaged(directory.incarnations(node))?;
    let own = undamaged(read(&directory.node_identity(node)))?;
    let whole = incarnations.is_some() && own.is_some();
    if whole && known.is_empty() {
        return Err(ReplaceError::NotRefused { node });
    }
    if whole && successor.is_none() && incarnations == Some(0) {
        return Err(ReplaceError::NeverHere { node, dir: directory.path().to_owned() });
    }
    // What is left of the node's own files may say more.
    let incarnation =
        known.iter().map(|seen| seen.incarnation).max().max(incarnations).unwrap_or(0) + 1;
    let own = own.map_or(0, |(replaced, _)| replaced);
    let replaced = known.iter().map(|seen| seen.replaced).max().unwrap_or(0).max(own) + 1;
    let path = directory.node_identity(node);
    files::replace_or_overwrite(&path, &draw(replaced)).map_err(failed("write", &path))?;
    let path = directory.node_incarnations(node);
    incarnations::store(&path, incarnation).map_err(failed("write", &path))?;
    let path = directory.node_peers(node);
    let others = peers(&path)?.others;
    save(&path, &Peers { successor: None, others }).map_err(failed("write", &path))?;
    Ok(Replacement { incarnation, known: !known.is_empty() })
}

/// What a file of a node says; `None` if it is missing or damaged.
fn undamaged<T>(read: Result<T, DirectoryError>) -> Result<Option<T>, DirectoryError> {
    match read {
        Ok(said) => Ok(Some(said)),
        Err(DirectoryError::IncarnationsDamaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_drawn_once_and_read_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node0.identity");
        assert!(read(&path).unwrap_err().to_string().contains("missing"));
        let (one, other) = (draw(0), draw(3));
        assert_ne!(one.split_once(' ').unwrap().1, other.split_once(' ').unwrap().1);
        fs::write(&path, &other).unwrap();
        assert_eq!(read(&path).unwrap().0, 3);
        for text in ["", "0\n", "0 zz\n", "x 00\n", "0 00"] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("no identity"), "{text:?}");
        }
    }

    #[test]
    fn what_was_remembered_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node0.peers");
        assert_eq!(peers(&path).unwrap(), Peers::default());
        let seen = Seen { replaced: 1, identity: u64::MAX, incarnation: 3, process: 4 };
        let known = Peers { successor: Some(seen), others: BTreeMap::from([(2, seen)]) };
        save(&path, &known).unwrap();
        assert_eq!(peers(&path).unwrap(), known);
        for garbage in [&b"{"[..], b"", b"\xff\xfe\x00", b"{\"successor\":1,\"others\":{}}"] {
            fs::write(&path, garbage).unwrap();
            assert_eq!(peers(&path).unwrap(), Peers::default(), "what is damaged is learned anew");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = peers(&path).unwrap_err().to_string();
        assert!(error.contains("node0.peers") && error.contains("move it away"), "{error}");
    }
}
