//! What goes wrong with the disk, as a file says that a test writes.
//!
//! The file holds words. Words for something that happens once are taken out of it when it does.
//!
//! | word | |
//! |---|---|
//! | `seed=N` | of all choices, from the start on |
//! | `pause_us=N` | the longest pause between two pieces of a write; 200 if it is not there |
//! | `room=N` | so many files can be made, and no more |
//! | `read-only` | nothing can be changed |
//! | `lies` | writes and syncs return before anything is durable, and what they had to keep never is |
//! | `stall_ms=N` | once: the next operation, and all others, wait for so long |
//! | `fail=OPERATION` | once: the next `read`, `write`, `sync`, `create`, `rename` or `remove` fails with EIO |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::files::FileError;

/// Why orders cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum OrdersError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{} says {word}, which is no fault of a disk: remove the file, unless a test is to go on", path.display()
    )]
    Unknown { path: PathBuf, word: String },
}

/// An operation that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Create,
    Write,
    Sync,
    Rename,
    Remove,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }

    /// The same, as an error says it.
    fn said(self) -> &'static str {
        match self {
            Self::Create => "make",
            Self::Write => "write to",
            _ => self.name(),
        }
    }
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    NoSpace,
    Errno(Errno),
}

impl Failure {
    pub(super) fn error(self, operation: Operation, file: String) -> FileError {
        let operation = operation.said();
        match self {
            Self::NoSpace => FileError::Full { operation, file },
            Self::Errno(errno) => FileError::Io { operation, file, source: errno.into() },
        }
    }
}

/// How operations are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    seed: u64,
    /// The longest pause between two pieces.
    pub(super) pause_max: Duration,
    pub(super) lies: bool,
    /// A stall begins.
    pub(super) stall: Option<Duration>,
    /// How many files can be made.
    room: u64,
    read_only: bool,
    fail: Vec<String>,
}

impl Settings {
    /// What the words say. The error is a word that says nothing.
    fn parse(text: &str) -> Result<Self, String> {
        let mut this = Self {
            seed: 0,
            pause_max: Duration::from_micros(200),
            lies: false,
            stall: None,
            room: u64::MAX,
            read_only: false,
            fail: Vec::new(),
        };
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u64>().map_err(|_| word.to_owned());
            match name {
                "seed" => this.seed = number()?,
                "pause_us" => this.pause_max = Duration::from_micros(number()?),
                "stall_ms" => this.stall = Some(Duration::from_millis(number()?)),
                "fail" if FAILING.iter().any(|operation| operation.name() == value) => {
                    this.fail.push(value.to_owned());
                }
                "room" => this.room = number()?,
                "read-only" if value.is_empty() => this.read_only = true,
                "lies" if value.is_empty() => this.lies = true,
                _ => return Err(word.to_owned()),
            }
        }
        Ok(this)
    }
}

const FAILING: [Operation; 6] = [
    Operation::Read,
    Operation::Create,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::Remove,
];

/// A file of orders.
#[derive(Debug)]
pub struct Orders {
    path: PathBuf,
    seed: u64,
}

impl Orders {
    /// The orders in a file; `None` if there is no such file.
    pub fn at(path: &Path) -> Result<Option<Self>, OrdersError> {
        let path = path.to_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(OrdersError::Unreadable { path, source }),
        };
        match Settings::parse(&text) {
            Ok(Settings { seed, .. }) => Ok(Some(Self { path, seed })),
            Err(word) => Err(OrdersError::Unknown { path, word }),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// What the file says now, and how `operation` fails. Takes out what happens once. A file that is gone, or says
    /// nothing that is known, orders nothing.
    pub(super) fn of(&self, operation: Operation) -> (Settings, Option<Failure>) {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let settings = Settings::parse(&text).unwrap_or_else(|word| {
            tracing::error!(file = %self.path.display(), word, "no fault of a disk: nothing is done");
            Settings::parse("").expect("nothing says nothing wrong")
        });
        let fails = settings.fail.iter().any(|name| name == operation.name());
        let takes_room = operation == Operation::Create && (1..u64::MAX).contains(&settings.room);
        if settings.stall.is_some() || fails || takes_room {
            let fail = format!("fail={}", operation.name());
            let next = |word: &str| match word {
                word if word.starts_with("stall_ms=") || word == fail => None,
                word if word.starts_with("room=") && takes_room => {
                    Some(format!("room={}", settings.room - 1))
                }
                word => Some(word.to_owned()),
            };
            let left: Vec<String> = text.split_whitespace().filter_map(next).collect();
            if let Err(error) = fs::write(&self.path, left.join(" ") + "\n") {
                tracing::error!(file = %self.path.display(), %error, "it happens again");
            }
        }
        let failure = match operation {
            _ if fails => Some(Failure::Errno(Errno::IO)),
            Operation::Read | Operation::Sync => None,
            _ if settings.read_only => Some(Failure::Errno(Errno::ROFS)),
            Operation::Create if settings.room == 0 => Some(Failure::NoSpace),
            _ => None,
        };
        (settings, failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_once_is_taken_out_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders");
        assert!(Orders::at(&path).unwrap().is_none());
        fs::write(&path, "seed=7 room=1\nfail=write stall_ms=5").unwrap();
        let orders = Orders::at(&path).unwrap().unwrap();
        assert_eq!(orders.seed(), 7);
        let (settings, failure) = orders.of(Operation::Create);
        assert_eq!((settings.stall, failure), (Some(Duration::from_millis(5)), None));
        assert_eq!(orders.of(Operation::Create).1, Some(Failure::NoSpace), "the room is taken");
        assert_eq!(orders.of(Operation::Write).1, Some(Failure::Errno(Errno::IO)));
        assert_eq!(orders.of(Operation::Write).1, None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "seed=7 room=0\n");
        fs::write(&path, "read-only").unwrap();
        assert_eq!(orders.of(Operation::Rename).1, Some(Failure::Errno(Errno::ROFS)));
        assert_eq!(orders.of(Operation::Sync).1, None);
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders");
        for word in ["full", "seed=x", "fail=", "fail=list", "lies=1", "stall_ms"] {
            fs::write(&path, word).unwrap();
            let error = Orders::at(&path).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("remove the file"), "{error}");
        }
    }
}
