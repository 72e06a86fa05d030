//! A file of fingerprints of runs: it shows whether a later build does the same on the same seeds,
//! to the byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use crate::exit::usage;

/// Number of differences that are named.
const SHOWN: usize = 10;

type Of = BTreeMap<(String, u64), u64>;

/// The fingerprints in the file, and those of this run.
pub(super) struct Fingerprints {
    path: PathBuf,
    /// `None` if there was no file: it will be written.
    recorded: Option<Of>,
    seen: Mutex<Of>,
}

impl Fingerprints {
    /// Reads the file, if it exists.
    pub(super) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let recorded = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            text => Some(text.with_context(|| format!("cannot read {}", path.display()))?),
        };
        let lines = recorded.as_deref().map(|text| {
            let read = |line: &str| {
                let mut words = line.split(' ');
                let (profile, seed) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
                Some(((profile, seed), u64::from_str_radix(words.next()?, 16).ok()?))
            };
            text.lines().map(|line| read(line).ok_or(line)).collect::<Result<Of, _>>()
        });
        let recorded = lines.transpose().map_err(|line| {
            let path = path.display();
            usage(format!("{path}: not a profile, a seed and a fingerprint: {line}"))
        })?;
        Ok(Self { path, recorded, seen: Mutex::default() })
    }

    /// Adds the fingerprint of a finished run.
    pub(super) fn add(&self, profile: &str, seed: u64, fingerprint: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert((profile.to_owned(), seed), fingerprint);
    }

    /// Writes the file, or compares with it. Returns the text to print, and whether there is no
    /// difference.
    pub(super) fn close(self) -> anyhow::Result<(String, bool)> {
        let Self { path, recorded, seen } = self;
        let (seen, file) =
            (seen.into_inner().unwrap_or_else(PoisonError::into_inner), path.display());
        let Some(recorded) = recorded else {
            let mut text = String::new();
            for ((profile, seed), fingerprint) in &seen {
                let _ = writeln!(text, "{profile} {seed} {fingerprint:016x}");
            }
            fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
            return Ok((format!("{} fingerprints written to {file}\n", seen.len()), true));
        };
        let same = seen.iter().filter(|(run, is)| recorded.get(run) == Some(is)).count();
        let differ: Vec<_> = seen
            .iter()
            .filter(|(run, is)| recorded.get(run).is_some_and(|was| was != *is))
            .map(|((profile, seed), _)| format!("{profile} {seed}"))
            .collect();
        let new = seen.len() - same - differ.len();
        let mut text = format!(
            "{same} fingerprints as in {file}, {} differ, {new} are not in it\n",
            differ.len()
        );
        if !differ.is_empty() {
            let shown = differ.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
            let _ = writeln!(text, "the runs differ of: {}", shown.join(", "));
        }
        if same == 0 && differ.is_empty() {
            text += "nothing was compared: run the seeds that the file names\n";
        }
        Ok((text, differ.is_empty() && same > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_differs_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fingerprints");
        let run = |seeds: &[(u64, u64)]| {
            let file = Fingerprints::open(path.clone()).unwrap();
            for (seed, is) in seeds {
                file.add("laps", *seed, *is);
            }
            file.close().unwrap()
        };
        assert!(run(&[(1, 10), (2, 20), (3, 30)]).1);
        assert!(run(&[(1, 10), (2, 20), (4, 40)]).1);
        let (text, same) = run(&[(1, 10), (2, 21)]);
        assert!(!same && text.contains("laps 2") && !text.contains("laps 1"), "{text}");
        assert!(!run(&[(5, 50)]).1, "nothing in common is not the same");
        fs::write(&path, "laps one 0a\n").unwrap();
        assert!(Fingerprints::open(path.clone()).is_err());
    }
}
