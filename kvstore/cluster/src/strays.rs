//! Processes of a cluster whose directory was removed, found by the removed files that they hold open.

use std::fs;
use std::path::{Path, PathBuf};

use crate::directory::{Directory, LOCK};
use crate::lock::Holder;

/// Suffix that Linux appends to the name of an open file that was removed.
const DELETED: &str = " (deleted)";

impl Directory {
    /// Processes that hold removed files of the cluster in this directory. The result may soon be out of date: nodes
    /// and supervisors create such files again.
    pub fn strays(&self) -> Vec<Holder> {
        let dir = real(self.path());
        let mut strays = Vec::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            // The open files of other users' processes cannot be listed; these processes are skipped.
            let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
            let held = files.filter_map(|file| fs::read_link(file.path()).ok());
            strays
                .extend(held.filter_map(|held| role(&held, &dir)).map(|role| Holder { role, pid }));
        }
        strays.sort_by(|one, other| one.role.cmp(&other.role));
        strays.dedup();
        strays
    }
}

/// Role of a process that holds `held` open, if that is a removed lock of `dir`.
fn role(held: &Path, dir: &Path) -> Option<String> {
    let held = Path::new(held.to_str()?.strip_suffix(DELETED)?);
    if held.parent() != Some(dir) {
        return None;
    }
    let name = held.file_name()?.to_str()?;
    if name == LOCK {
        return Some("supervisor".to_owned());
    }
    let node: u16 = name.strip_prefix("node")?.strip_suffix(".lock")?.parse().ok()?;
    Some(format!("node {node}"))
}

/// `path` without symbolic links, though it need not exist.
fn real(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        if let Ok(mut real) = above.canonicalize() {
            real.extend(missing.iter().rev());
            return real;
        }
        missing.extend(above.file_name());
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_of_the_directory_that_are_gone_tell_of_a_process() {
        let dir = Path::new("/a/b");
        #[rustfmt::skip]
        let cases = [
            ("/a/b/node12.lock (deleted)", Some("node 12")),
            ("/a/b/lock (deleted)",        Some("supervisor")),
            ("/a/b/node12.lock",           None), // It exists: found by its name.
            ("/a/node12.lock (deleted)",   None),
            ("/a/b/c/lock (deleted)",      None),
            ("/a/b/node.lock (deleted)",   None),
            ("/a/b/node1.log (deleted)",   None),
        ];
        for (held, expected) in cases {
            assert_eq!(role(Path::new(held), dir).as_deref(), expected, "{held}");
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_named_as_the_system_would() {
        let dir = tempfile::tempdir().unwrap();
        let (there, link) = (dir.path().join("there"), dir.path().join("link"));
        fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, &link).unwrap();
        let expected = there.canonicalize().unwrap().join("x/y");
        assert_eq!(real(&link.join("x/y")), expected);
    }
}
