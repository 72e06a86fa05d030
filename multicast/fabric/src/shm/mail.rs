//! Control mail: a letter is a file, put into the receiver's directory in one step.
//!
//! A rename either happened or did not, so a sender that dies or stops leaves no half letter and
//! holds no lock. The bell counts letters, and the receiver looks into its directory only when that
//! count has moved. Letters carry the sender's name, incarnation and number: numbers are dense per
//! sender, so a listing that misses one of two letters renamed meanwhile is noticed, and the second
//! waits for the first. Slow, some 20 µs each, which is fine for what passes once per connection.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::dir;
use crate::{FabricError, MAIL_MAX, is_name};

/// How many letters may wait for one process.
pub(super) const WAITING_MAX: u64 = 4096;

/// Letters found in our directory and not yet read.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    found: VecDeque<Found>,
    /// The count at which the directory was last listed.
    listed_at: u64,
    /// The listing had gaps.
    again: bool,
    /// The next number per sender's incarnation.
    expected: HashMap<u64, u64>,
}

/// A letter, still in its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) incarnation: u64,
    number: u64,
    pub(super) name: String,
    path: PathBuf,
}

impl Mailbox {
    /// The next letter, `sent` being how many were sent to us so far.
    pub(super) fn next(&mut self, sent: u64, dir: &Path) -> Option<Found> {
        if self.found.is_empty() {
            if sent == self.listed_at && !self.again {
                return None;
            }
            self.listed_at = sent;
            self.list(dir);
        }
        self.found.pop_front()
    }

    /// Whether there may be mail.
    pub(super) fn is_empty(&self, sent: u64) -> bool {
        self.found.is_empty() && sent == self.listed_at && !self.again
    }

    /// The sender has died: what it left unread goes, and its number.
    pub(super) fn forget(&mut self, incarnation: u64, dir: &Path) {
        if self.expected.remove(&incarnation).is_none() {
            return;
        }
        self.found.retain(|letter| letter.incarnation != incarnation);
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let file = entry.file_name();
            let sender = file.to_str().and_then(parse).map(|(_, incarnation, _)| incarnation);
            if sender == Some(incarnation) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn list(&mut self, dir: &Path) {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let file = entry.file_name();
            let Some(text) = file.to_str().filter(|text| !text.starts_with('.')) else { continue };
            match parse(text) {
                Some((name, incarnation, number)) => {
                    found.push(Found { incarnation, number, name, path });
                }
                // Nothing of ours is called that.
                None => _ = fs::remove_file(&path),
            }
        }
        found.sort_unstable();
        self.again = false;
        for letter in found {
            let expected = self.expected.entry(letter.incarnation).or_default();
            if letter.number == *expected {
                *expected += 1;
                self.found.push_back(letter);
            } else {
                self.again = true;
            }
        }
    }
}

impl Found {
    /// Takes the letter out of the mailbox.
    pub(super) fn open(self) -> Option<Vec<u8>> {
        let bytes = dir::read_small(&self.path, MAIL_MAX);
        let _ = fs::remove_file(&self.path);
        bytes.ok()
    }
}

/// Puts a letter into a peer's directory.
pub(super) fn post(
    dir: &Path,
    (name, incarnation): (&str, u64),
    number: u64,
    bytes: &[u8],
) -> Result<(), FabricError> {
    let draft = dir.join(format!(".{name}.{incarnation:016x}"));
    let gone = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => FabricError::Gone,
        _ => dir::failed("write", &draft, bytes.len(), e),
    };
    fs::write(&draft, bytes).map_err(|e| {
        let _ = fs::remove_file(&draft);
        gone(e)
    })?;
    fs::rename(&draft, dir.join(format!("{name}.{incarnation:016x}.{number:016x}"))).map_err(gone)
}

fn parse(file: &str) -> Option<(String, u64, u64)> {
    let (rest, number) = file.rsplit_once('.')?;
    let (name, incarnation) = rest.rsplit_once('.')?;
    let numbers = (dir::parse_incarnation(incarnation)?, dir::parse_incarnation(number)?);
    is_name(name).then(|| (name.to_owned(), numbers.0, numbers.1))
}
