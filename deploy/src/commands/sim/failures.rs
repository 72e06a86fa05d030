//! A file of failing seeds that persists over runs: its seeds are run first, and those that pass
//! are removed.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use skein_multicast::simulate::kept_lines;

use crate::exit::usage;

/// Stands for the store in the place of a profile's name.
pub(super) const STORE: &str = "store";

/// The failing seeds of the file, and those found by this run.
pub(super) struct Failures {
    path: PathBuf,
    known: Vec<String>,
    found: Mutex<Vec<String>>,
}

impl Failures {
    /// Reads the file, if it exists.
    pub(super) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let known = kept_lines(&text).map(str::to_owned).collect();
        Ok(Self { path, known, found: Mutex::default() })
    }

    /// The lines of the file that `is_ours` selects, parsed by `read`.
    pub(super) fn known<T>(
        &self,
        is_ours: impl Fn(&str) -> bool,
        read: impl Fn(&str) -> Option<T>,
    ) -> anyhow::Result<Vec<T>> {
        let ours = self.known.iter().filter(|line| is_ours(line));
        ours.map(|line| {
            read(line).ok_or_else(|| {
                let path = self.path.display();
                usage(format!("{path}: not a seed, a profile and what it found: {line}"))
            })
        })
        .collect()
    }

    /// Adds a failure, and writes the file at once, because the run may be killed.
    pub(super) fn add(&self, seed: u64, profile: &str, what: &str) -> anyhow::Result<()> {
        let what = what.lines().next().unwrap_or_default();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.push(format!("{seed} {profile} {what:.160}"));
        let start = |line: &str| line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ");
        let again = |line: &&String| found.iter().any(|other| start(other) == start(line));
        let lines: Vec<_> =
            self.known.iter().filter(|line| !again(line)).chain(found.iter()).collect();
        self.write(&lines)
    }

    /// Ends a run that has run all seeds that `is_ours` selects: those that pass now are removed
    /// from the file.
    pub(super) fn close(self, is_ours: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let others = self.known.iter().filter(|line| !is_ours(line));
        let lines: Vec<_> = others.chain(found.iter()).collect();
        self.write(&lines)
    }

    fn write(&self, lines: &[&String]) -> anyhow::Result<()> {
        let mut text = String::from("# Seeds that fail: seed, profile, what it found.\n");
        for line in lines {
            text.extend([line.as_str(), "\n"]);
        }
        let whole = self.path.with_extension("new");
        let write = fs::write(&whole, text).and_then(|()| fs::rename(&whole, &self.path));
        write.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_leaves_the_file_and_what_fails_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("failures");
        let store = |line: &str| line.split(' ').nth(1) == Some(STORE);
        let first = Failures::open(path.clone()).unwrap();
        first.add(7, "laps", "liveness\nand more").unwrap();
        first.add(8, "laps", "liveness").unwrap();
        first.add(9, STORE, "stale read").unwrap();
        drop(first); // As if the run were killed.
        let second = Failures::open(path.clone()).unwrap();
        let read = |line: &str| line.split(' ').next()?.parse::<u64>().ok();
        assert_eq!(second.known(|line| !store(line), read).unwrap(), [7, 8]);
        second.add(8, "laps", "another").unwrap();
        second.close(|line| !store(line)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(kept_lines(&text).collect::<Vec<_>>(), ["9 store stale read", "8 laps another"]);
        assert!(Failures::open(path).unwrap().known(|_| true, |_| None::<u64>).is_err());
    }
}
