//! The mark of a node that the others have refused because its directory is out of date: `nodeN.refused`.
//!
//! **Invariant (a refusal lasts).** Every start of a node raises its count of starts, so a node with an old log and an old
//! count would be taken in once it was started often enough. A node that learns that it is refused writes the mark before
//! it ends, and a marked node does not start: no start of it is counted. `skein admin replace` removes the mark, after it
//! has moved the data away. Only a node that keeps a log is marked: any other one takes its state from the others.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use skein_multicast::roster::{Mistrust, Seen};

use crate::directory::{Directory, DirectoryError, failed};
use crate::files;

/// Content of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub why: Mistrust,
    /// The process that the other nodes remember.
    pub known: Seen,
}

impl Directory {
    /// Path of the mark of `node`.
    pub fn node_refused(&self, node: u16) -> PathBuf {
        self.path().join(format!("node{node}.refused"))
    }

    /// Fails if the other nodes have refused `node`, and it was not replaced since.
    pub fn check_refused(&self, node: u16) -> Result<(), DirectoryError> {
        let file = self.node_refused(node);
        let why = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(text) => serde_json::from_slice::<Refusal>(&text).ok().map(|it| it.why.to_string()),
            Err(_) => None,
        };
        let why = why.unwrap_or_else(|| {
            format!(
                "why is not known any more, since {} cannot be read; `skein admin replace {node}` makes it a new one",
                file.display()
            )
        });
        Err(DirectoryError::Refused { node, file, why })
    }

    /// Marks `node` as refused, durably once this returns.
    pub fn mark_refused(&self, node: u16, refusal: &Refusal) -> Result<(), DirectoryError> {
        let file = self.node_refused(node);
        let text = serde_json::to_string(refusal).expect("plain data") + "\n";
        files::replace_or_overwrite(&file, &text).map_err(failed("write", &file))
    }
}

/// Whether `node` is marked.
pub(crate) fn is_marked(directory: &Directory, node: u16) -> bool {
    let marked = fs::symlink_metadata(directory.node_refused(node));
    marked.map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
}

/// What the mark of `node` says, if it can be read.
pub(crate) fn read(directory: &Directory, node: u16) -> Option<Refusal> {
    serde_json::from_slice(&fs::read(directory.node_refused(node)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_node_is_refused_until_the_mark_is_gone_even_if_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path()).unwrap();
        directory.check_refused(1).unwrap();
        let why = Mistrust::WentBack { node: 1, incarnation: 2, known: 6 };
        let known = Seen { replaced: 0, identity: 3, incarnation: 6, process: 4 };
        directory.mark_refused(1, &Refusal { why, known }).unwrap();
        assert_eq!(read(&directory, 1), Some(Refusal { why, known }));
        let said = directory.check_refused(1).unwrap_err().to_string();
        for part in ["start number 3", "start number 7", "`skein admin replace 1`", "node1.refused"]
        {
            assert!(said.contains(part), "{said}");
        }
        directory.check_refused(0).unwrap();
        fs::write(directory.node_refused(1), "{").unwrap();
        let said = directory.check_refused(1).unwrap_err().to_string();
        assert!(said.contains("`skein admin replace 1`"), "{said}");
        assert!(is_marked(&directory, 1) && read(&directory, 1).is_none());
        fs::remove_file(directory.node_refused(1)).unwrap();
        directory.check_refused(1).unwrap();
        assert!(!is_marked(&directory, 1));
    }
}
