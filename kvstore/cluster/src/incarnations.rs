//! The number of times that a node has been started, which distinguishes its incarnations.
//!
//! **Invariant (no incarnation is used twice).** `nodeN.incarnation` holds the number of incarnations that have begun.
//! Only the holder of the node's lock raises it, and the new number is durable before the new incarnation promises
//! anything. So whenever a process is killed, the next one gets a higher number. If a start fails before that, for want
//! of a port, a certificate or memory, the process has sent nothing and no incarnation has begun: this matters because
//! the first view of a group contains first incarnations only. The file is created with the cluster; if it is missing,
//! that is damage and not a first incarnation.

use std::fs;
use std::io;
use std::path::Path;

use skein_multicast::operate::Identity;

use crate::directory::{DirectoryError, failed};
use crate::files;

/// Content of the file before the first incarnation.
pub(crate) const NONE: &str = "0\n";

/// Number of incarnations that have begun.
pub fn begun(path: &Path) -> Result<u32, DirectoryError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(path, "it is missing"));
        }
        // Not UTF-8.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
    number.ok_or_else(|| damaged(path, "it holds no number"))
}

/// Number of the next incarnation; `None` if all numbers are used up.
pub fn next(path: &Path) -> Result<Option<u32>, DirectoryError> {
    Ok(Some(begun(path)?).filter(|incarnation| *incarnation < Identity::INCARNATIONS_MAX))
}

/// Begins `incarnation`, which must be the next.
pub fn begin(path: &Path, incarnation: u32) -> Result<(), DirectoryError> {
    store(path, incarnation + 1).map_err(failed("write", path))
}

/// Replaces the number, durably once this returns.
pub(crate) fn store(path: &Path, incarnations: u32) -> io::Result<()> {
    files::replace_or_overwrite(path, &format!("{incarnations}\n"))
}

fn damaged(file: &Path, why: &'static str) -> DirectoryError {
    DirectoryError::IncarnationsDamaged { file: file.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_life_is_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node0.incarnation");
        fs::write(&path, NONE).unwrap();
        for incarnation in 0..3 {
            assert_eq!(next(&path).unwrap(), Some(incarnation));
            assert_eq!(begun(&path).unwrap(), incarnation, "not begun yet");
            begin(&path, incarnation).unwrap();
            assert_eq!(begun(&path).unwrap(), incarnation + 1);
        }
        // A process was killed in the middle of a write.
        fs::write(dir.path().join(".node0.incarnation.new"), "1").unwrap();
        assert_eq!(next(&path).unwrap(), Some(3));
        begin(&path, 3).unwrap();
        fs::write(&path, format!("{}\n", Identity::INCARNATIONS_MAX)).unwrap();
        assert_eq!(next(&path).unwrap(), None);
        assert_eq!(begun(&path).unwrap(), Identity::INCARNATIONS_MAX);
    }

    #[test]
    fn a_damaged_count_is_no_first_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node0.incarnation");
        assert!(next(&path).unwrap_err().to_string().contains("missing"));
        for text in ["", "\n", "3", "-1\n", "one\n", "99999999999\n"] {
            fs::write(&path, text).unwrap();
            assert!(next(&path).unwrap_err().to_string().contains("holds no number"), "{text:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is overwritten");
        }
    }
}
