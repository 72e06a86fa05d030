//! A node's identity and its record of the other nodes: two files in the cluster's directory.
//!
//! `nodeN.identity` holds the number of times that an operator has replaced the node's host, and a random number, drawn
//! with the directory and again for each replacement. `nodeN.peers` holds the processes of the other nodes that this
//! node has met or received reports of. If the other nodes accept another process as this node, it also holds that
//! process. See [`Roster`](skein_multicast::roster).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skein_multicast::roster::{NOBODYS, Seen};

use crate::data;
use crate::directory::{Directory, DirectoryError, failed};
use crate::files;
use crate::incarnations;
use crate::lock::Lock;
use crate::refusals;

/// Content of a node's `nodeN.peers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// The cluster whose nodes these are; absent in a file that was written before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The process that the other nodes accept as this node, if it is another process.
    pub successor: Option<Seen>,
    /// Last process of each other node, by node number.
    pub others: BTreeMap<u16, Seen>,
}

/// Content of a new identity file; `replaced` is 0 for the node's first host.
pub(crate) fn draw(replaced: u32) -> String {
    format!("{replaced} {:016x}\n", random())
}

/// Draws a number that, with overwhelming probability, no other host or process has drawn.
pub fn random() -> u64 {
    rand::random_range(NOBODYS + 1..=u64::MAX)
}

/// Reads the number of replacements of the node and its random number.
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

/// Reads the record of the other nodes of `cluster`. It is empty if the node has met no other node, or if the file is
/// damaged or of another cluster: the other nodes send its content again. A node without the record is no worse off than
/// one whose directory was created anew.
pub fn peers(path: &Path, cluster: &str) -> Result<Peers, DirectoryError> {
    match fs::read(path) {
        Ok(text) => Ok(parse(&text, cluster).unwrap_or_else(|why| {
            tracing::error!(
                "{} is {why}: what it said of the other nodes is learned anew from those that \
                 run; nothing need be done as long as another node that has met them is among these",
                path.display()
            );
            Peers::default()
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Peers::default()),
        Err(source) => Err(DirectoryError::PeersUnreadable { file: path.to_owned(), source }),
    }
}

/// Parses the record of the other nodes of `cluster`, or returns what is wrong with it.
fn parse(text: &[u8], cluster: &str) -> Result<Peers, String> {
    let peers: Peers =
        serde_json::from_slice(text).map_err(|error| format!("damaged ({error})"))?;
    match &peers.cluster {
        Some(theirs) if theirs != cluster => Err(format!("of another cluster ({theirs})")),
        _ => Ok(peers),
    }
}

/// Writes the record of the other nodes.
pub fn save(path: &Path, peers: &Peers) -> io::Result<()> {
    files::replace(path, &(serde_json::to_string(peers).expect("plain data") + "\n"))
}

/// Reasons why a node cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    #[error(
        "node {node} runs, as process {pid}: it needs no replacement; `skein admin kill {node} --signal TERM` ends it"
    )]
    Runs {
        node: u16,
        /// 0 if the process is not known.
        pid: u32,
    },
    /// No earlier process of the node is known here.
    #[error(
        "nothing is known here of an earlier node {node}: start it with `skein node --index {node}`; if others remember another one they refuse it and report that, and then this command continues from their answers"
    )]
    NotRefused {
        /// Number of the node.
        node: u16,
    },
    /// The node seems to run on another host.
    #[error(
        "node {node} was never started from {}, and other nodes of this host know it: nothing was changed; give this command on the host of node {node}; if this host is to take its place, start it here first, with `skein --dir {} node --index {node}`: the others refuse it and say which one they remember", dir.display(), dir.display()
    )]
    NeverHere {
        node: u16,
        /// Directory of this host.
        dir: PathBuf,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Result of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Number of the next incarnation.
    pub incarnation: u32,
    /// Whether `incarnation` is above every incarnation that the other nodes have seen, as far as this host knows. If
    /// it is not, the other nodes refuse the node and report what they have seen, and another replacement starts from
    /// there.
    pub known: bool,
    /// Where the data of a refused node was moved to: nothing reads it any more.
    pub aside: Option<PathBuf>,
}

/// Makes `node` of the cluster in `directory` the replacement of the process that the other nodes remember, with a new
/// identity and with an incarnation above all that are known here.
///
/// **Invariant.** A node whose own files are damaged never counts as one that starts for the first time: its replicas
/// begin as learners. If nothing is known here of its earlier incarnations, other nodes may have seen the new count
/// before; they compare it with their records and then refuse the node.
pub fn replace(directory: &Directory, node: u16) -> Result<Replacement, ReplaceError> {
    let manifest = directory.manifest()?;
    let path = directory.node_lock(node);
    let lock = Lock::take(&path, "node").map_err(failed("lock", &path))?;
    let _lock = lock.map_err(|holder| ReplaceError::Runs {
        node,
        pid: holder.map_or(0, |holder| holder.pid),
    })?;
    let peers = |path: &Path| peers(path, &manifest.cluster);
    let successor = peers(&directory.node_peers(node))?.successor;
    let mut known: Vec<Seen> = successor.into_iter().collect();
    let refused = refusals::is_marked(directory, node);
    known.extend(refusals::read(directory, node).map(|it| it.known));
    for other in (0..manifest.nodes).filter(|other| *other != node) {
        known.extend(peers(&directory.node_peers(other))?.others.get(&node));
    }
    let incarnations = undamaged(directory.incarnations(node))?;
    let own = undamaged(read(&directory.node_identity(node)))?;
    let whole = incarnations.is_some() && own.is_some();
    if whole && known.is_empty() && !refused {
        return Err(ReplaceError::NotRefused { node });
    }
    if whole && successor.is_none() && incarnations == Some(0) {
        return Err(ReplaceError::NeverHere { node, dir: directory.path().to_owned() });
    }
    // The node's own files may hold higher numbers.
    let incarnation =
        known.iter().map(|seen| seen.incarnation).max().max(incarnations).unwrap_or(0) + 1;
    let own = own.map_or(0, |(replaced, _)| replaced);
    let replaced = known.iter().map(|seen| seen.replaced).max().unwrap_or(0).max(own) + 1;
    // A log that is out of date must not be read by a node that the others take in.
    let aside = if refused { data::move_aside(directory, node, incarnation)? } else { None };
    let path = directory.node_identity(node);
    files::replace_or_overwrite(&path, &draw(replaced)).map_err(failed("write", &path))?;
    let path = directory.node_incarnations(node);
    incarnations::store(&path, incarnation).map_err(failed("write", &path))?;
    let path = directory.node_peers(node);
    let others = peers(&path)?.others;
    let cluster = Some(manifest.cluster.clone());
    save(&path, &Peers { cluster, successor: None, others }).map_err(failed("write", &path))?;
    directory.clear_refused(node)?;
    Ok(Replacement { incarnation, known: !known.is_empty(), aside })
}

/// Content of a file of a node; `None` if it is missing or damaged.
fn undamaged<T>(read: Result<T, DirectoryError>) -> Result<Option<T>, DirectoryError> {
    match read {
        Ok(said) => Ok(Some(said)),
        Err(DirectoryError::IncarnationsDamaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use skein_multicast::roster::Mistrust;

    use super::*;
    use crate::config::{ClusterConfig, Durability};
    use crate::refusals::Refusal;

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
    fn a_refused_node_is_replaced_without_its_data() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::at(root.path()).unwrap();
        let mut claim = directory.claim_new().unwrap();
        let mut config = ClusterConfig { durability: Durability::Sync, ..ClusterConfig::default() };
        config.region_root = root.path().to_owned();
        claim.lay_out(&config, &mut |_| ()).unwrap();
        fs::create_dir(directory.node_data(1)).unwrap();
        fs::write(directory.node_data(1).join("log"), "old").unwrap();
        incarnations::store(&directory.node_incarnations(1), 3).unwrap();
        let known = Seen { replaced: 0, identity: 9, incarnation: 6, process: 4 };
        let why = Mistrust::WentBack { node: 1, incarnation: 2, known: 6 };
        directory.mark_refused(1, &Refusal { why, known, starts: 3 }).unwrap();
        let Replacement { incarnation, known, aside } = replace(&directory, 1).unwrap();
        assert_eq!((incarnation, known), (7, true), "it counts above what the others know");
        let aside = aside.expect("there was data");
        assert_eq!(fs::read_to_string(aside.join("log")).unwrap(), "old", "nothing is lost");
        assert!(!directory.node_data(1).exists(), "and nothing of it is read");
        directory.check_refused(1).unwrap();
        claim.clear().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn what_was_remembered_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node0.peers");
        let peers = |path: &Path| peers(path, "ours");
        assert_eq!(peers(&path).unwrap(), Peers::default());
        let seen = Seen { replaced: 1, identity: u64::MAX, incarnation: 3, process: 4 };
        let others = BTreeMap::from([(2, seen)]);
        let cluster = Some("ours".to_owned());
        let known = Peers { cluster, successor: Some(seen), others };
        save(&path, &known).unwrap();
        assert_eq!(peers(&path).unwrap(), known);
        save(&path, &Peers { cluster: Some("theirs".to_owned()), ..known.clone() }).unwrap();
        assert_eq!(peers(&path).unwrap(), Peers::default(), "what is foreign is learned anew");
        let unnamed = Peers { cluster: None, ..known };
        save(&path, &unnamed).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("cluster"));
        assert_eq!(peers(&path).unwrap(), unnamed, "what was written before it had a name");
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
