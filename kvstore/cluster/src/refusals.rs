//! The mark of a node that the others have refused because its directory is out of date: `nodeN.refused`.
//!
//! **Invariant (a refusal lasts).** Every start of a node raises its count of starts, so a node with an old log and an old
//! count would be taken in once it was started often enough. A node that learns that it is refused writes the mark before
//! it ends, and a marked node does not start: no start of it is counted. `skein admin replace` removes the mark, after it
//! has moved the data away. If the count is above all that the others know, and was not when the mark was written, the
//! newest files were put back, and the mark is void. Only a node that keeps a log is marked: any other one takes its state from the others.

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
    /// Number of starts of the node, the one that was refused included.
    pub starts: u32,
}

impl Refusal {
    /// Whether the node has so many starts by now that it is not the one that was refused.
    fn is_void(&self, starts: u32) -> bool {
        starts > self.starts && starts > self.known.incarnation
    }
}

impl Directory {
    /// Path of the mark of `node`.
    pub fn node_refused(&self, node: u16) -> PathBuf {
        self.path().join(format!("node{node}.refused"))
    }

    /// Fails if the other nodes have refused `node`, and it was not replaced since.
    pub fn check_refused(&self, node: u16) -> Result<(), DirectoryError> {
        if !is_marked(self, node) {
            return Ok(());
        }
        let file = self.node_refused(node);
        let why = match read(self, node) {
            Some(refusal) => refusal.why.to_string(),
            None => format!(
                "why is not known any more, since {} cannot be read; `skein admin replace {node}` makes it a new one",
                file.display()
            ),
        };
        Err(DirectoryError::Refused { node, file, why })
    }

    /// Removes the mark of `node`, if there is one.
    pub fn clear_refused(&self, node: u16) -> Result<(), DirectoryError> {
        let file = self.node_refused(node);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &file)(error))
            }
            _ => Ok(()),
        }
    }

    /// Marks `node` as refused, durably once this returns.
    pub fn mark_refused(&self, node: u16, refusal: &Refusal) -> Result<(), DirectoryError> {
        let file = self.node_refused(node);
        let text = serde_json::to_string(refusal).expect("plain data") + "\n";
        files::replace_or_overwrite(&file, &text).map_err(failed("write", &file))
    }
}

/// Whether `node` is marked, and the mark is not void.
pub(crate) fn is_marked(directory: &Directory, node: u16) -> bool {
    let marked = fs::symlink_metadata(directory.node_refused(node));
    if marked.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return false;
    }
    let starts = directory.incarnations(node).unwrap_or_default();
    !read(directory, node).is_some_and(|it| it.is_void(starts))
}

/// The refusal in the mark of `node`, if there is one that can be read.
pub(crate) fn read(directory: &Directory, node: u16) -> Option<Refusal> {
    serde_json::from_slice(&fs::read(directory.node_refused(node)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incarnations;

    #[test]
    fn a_marked_node_is_refused_until_the_mark_is_gone_even_if_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path()).unwrap();
        directory.check_refused(1).unwrap();
        let why = Mistrust::WentBack { node: 1, incarnation: 2, known: 6 };
        let known = Seen { replaced: 0, identity: 3, incarnation: 6, process: 4 };
        let refusal = Refusal { why, known, starts: 3 };
        directory.mark_refused(1, &refusal).unwrap();
        assert_eq!(read(&directory, 1), Some(refusal));
        let said = directory.check_refused(1).unwrap_err().to_string();
        for part in ["start number 3", "start number 7", "`skein admin replace 1`", "node1.refused"]
        {
            assert!(said.contains(part), "{said}");
        }
        directory.check_refused(0).unwrap();
        let count = directory.node_incarnations(1);
        for (starts, refused) in [(3, true), (6, true), (7, false)] {
            incarnations::store(&count, starts).unwrap();
            assert_eq!(directory.check_refused(1).is_err(), refused, "{starts} starts");
        }
        // Another process of the same start was met: the newest count is that of the copy.
        directory.mark_refused(1, &Refusal { starts: 7, ..refusal }).unwrap();
        assert!(directory.check_refused(1).is_err());
        fs::write(directory.node_refused(1), "{").unwrap();
        let said = directory.check_refused(1).unwrap_err().to_string();
        assert!(said.contains("`skein admin replace 1`"), "{said}");
        assert!(is_marked(&directory, 1) && read(&directory, 1).is_none());
        directory.clear_refused(1).unwrap();
        directory.check_refused(1).unwrap();
        assert!(!is_marked(&directory, 1));
    }
}
