//! The files of a backup: a directory with a manifest, and for each group *runs* of its pairs.
//!
//! A group's first run has the pairs as a replica walked over them. Later runs have what changed meanwhile. Each run is
//! in key order, and a record of a later run overrides those of earlier ones. So the pairs at the backup's mark are
//! [merged](Pairs) in one pass, however many there are.
//!
//! **Invariant (whole or refused).** The manifest is written last, when all files are on disk and were read back. It
//! names each file with its length and the checksum of its end, which depends on every byte before. A directory without a
//! manifest is an incomplete backup. [`Backup::verify`] reads everything, and compares the keys, bytes and digest of each
//! group with those that the group itself answered at the mark.
//!
//! `docs/storage.md` describes the files byte by byte.

mod describe;
mod error;
mod format;
mod manifest;
mod pairs;
mod reader;
mod run;
mod writer;

pub use self::describe::{Description, Run, describe, is_of_backup};
pub use self::error::BackupError;
pub use self::manifest::{FileEntry, GroupMark, MANIFEST, Manifest, Origin};
pub use self::pairs::Pairs;
pub use self::reader::{Backup, Extent};
pub use self::writer::BackupWriter;
