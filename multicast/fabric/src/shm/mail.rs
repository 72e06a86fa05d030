//! Control messages: a message is a file, renamed into the receiver's directory.
//!
//! A rename happens or does not, so a sender that dies or stops leaves no half message and holds no lock. The bell
//! counts messages, and the receiver lists its directory only when that count has moved. A message carries the sender's
//! name, incarnation and number. Numbers are dense per sender: if a listing misses one of two messages that are renamed
//! meanwhile, the gap shows, and the second message waits for the first. A message takes some 20 µs, which is fine for
//! what is sent once per connection.
//!
//! A message is sent once, so the receiver must lose none for lack of descriptors: one that cannot be read now stays in
//! place, and so do those behind it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dir;
use crate::clock::monotonic;
use crate::error::is_lack;
use crate::{FabricError, MAIL_MAX, is_name};

/// How long the mailbox counts as empty after a message could not be read.
const READ_AGAIN: Duration = Duration::from_millis(10);

/// Most messages that may wait for one process.
pub(super) const WAITING_MAX: u64 = 4096;

/// Messages found in our directory and not yet read.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    found: VecDeque<Found>,
    /// The bell's count at the last listing of the directory.
    listed_at: u64,
    /// Whether that listing had gaps.
    again: bool,
    /// The next expected number for each sender's incarnation.
    expected: HashMap<u64, u64>,
    /// Dead senders whose messages could not be removed, and may still be there.
    forgotten: HashSet<u64>,
    /// Until this time nothing is read, because a message could not be.
    closed_until: Option<Duration>,
}

/// A message that is still in its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) incarnation: u64,
    number: u64,
    pub(super) name: String,
    path: PathBuf,
}

impl Mailbox {
    /// The next message; `sent` is how many were sent to us so far. It stays the next one until it is
    /// [taken](Self::take).
    pub(super) fn next(&mut self, sent: u64, dir: &Path) -> Option<Found> {
        if self.found.is_empty() {
            if sent == self.listed_at && !self.again {
                return None;
            }
            self.listed_at = sent;
            if self.list(dir).is_err() {
                self.again = true;
                self.close();
            }
        }
        self.found.front().cloned()
    }

    /// Removes the next message from the mailbox.
    pub(super) fn take(&mut self) {
        self.found.pop_front();
    }

    /// Closes the mailbox for a while, because the next message cannot be read now.
    pub(super) fn close(&mut self) {
        self.closed_until = Some(monotonic() + READ_AGAIN);
    }

    /// Whether there is nothing to read now.
    pub(super) fn is_empty(&self, sent: u64) -> bool {
        let nothing = self.found.is_empty() && sent == self.listed_at && !self.again;
        nothing || self.closed_until.is_some_and(|until| monotonic() < until)
    }

    /// The sender has died: removes its unread messages, and its expected number.
    pub(super) fn forget(&mut self, incarnation: u64, dir: &Path) {
        if self.expected.remove(&incarnation).is_none() {
            return;
        }
        self.found.retain(|message| message.incarnation != incarnation);
        let Ok(entries) = fs::read_dir(dir) else {
            self.forgotten.insert(incarnation);
            return;
        };
        for entry in entries.flatten() {
            let file = entry.file_name();
            let sender = file.to_str().and_then(parse).map(|(_, incarnation, _)| incarnation);
            if sender == Some(incarnation) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn list(&mut self, dir: &Path) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.path();
            let file = entry.file_name();
            let Some(text) = file.to_str().filter(|text| !text.starts_with('.')) else { continue };
            match parse(text) {
                Some((_, incarnation, _)) if self.forgotten.contains(&incarnation) => {
                    let _ = fs::remove_file(&path);
                }
                Some((name, incarnation, number)) => {
                    found.push(Found { incarnation, number, name, path });
                }
                // No file of ours has such a name.
                None => _ = fs::remove_file(&path),
            }
        }
        found.sort_unstable();
        self.again = false;
        for message in found {
            let expected = self.expected.entry(message.incarnation).or_default();
            if message.number == *expected {
                *expected += 1;
                self.found.push_back(message);
            } else {
                self.again = true;
            }
        }
        Ok(())
    }
}

impl Found {
    /// Reads the message and removes its file; `None` if it is not a valid message. Fails, and leaves the file, if it
    /// cannot be read now.
    pub(super) fn open(&self) -> io::Result<Option<Vec<u8>>> {
        let bytes = match dir::read_small(&self.path, MAIL_MAX) {
            Ok(bytes) => Some(bytes),
            Err(error) if is_lack(&error) => return Err(error),
            Err(_) => None,
        };
        let _ = fs::remove_file(&self.path);
        Ok(bytes)
    }
}

/// Puts a message into a peer's directory.
pub(super) fn post(
    dir: &Path,
    (name, incarnation): (&str, u64),
    number: u64,
    bytes: &[u8],
) -> Result<(), FabricError> {
    let draft = dir.join(format!(".{name}.{incarnation:016x}"));
    let gone = |e: io::Error| match e.kind() {
        ErrorKind::NotFound => FabricError::Gone,
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
