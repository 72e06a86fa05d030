//! The manifest: what a backup is of, and what its files are.
//!
//! It is JSON, and a last line with the xxh3-64 of everything before.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use skein_kvstore::backup::Mark;
use skein_kvstore::limits::Limits;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{BackupError, is_regular};
use crate::format::{self, FORMAT};

/// Name of the manifest's file.
pub const MANIFEST: &str = "MANIFEST";
/// Its name until it is whole.
pub(crate) const MANIFEST_NEW: &str = "MANIFEST.new";
const CHECKSUM: &str = "xxh3-64 ";

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the cluster.
    pub cluster: String,
    /// The build that took the backup.
    pub build: String,
    /// When it was begun, in UTC.
    pub date: String,
    /// Durability of the cluster.
    pub durability: String,
    pub limits: Limits,
}

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u16,
    /// Random; stands in every file of the backup.
    #[serde(with = "hex_of_bytes")]
    pub id: [u8; 16],
    #[serde(flatten)]
    pub origin: Origin,
    /// Length of the longest key and of the longest value.
    pub longest_key: usize,
    pub longest_value: usize,
    /// One for each group, in the order of the groups.
    pub groups: Vec<GroupMark>,
    pub files: Vec<FileEntry>,
}

/// The pairs of a group at the backup's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMark {
    pub position: u64,
    pub keys: u64,
    pub bytes: u64,
    #[serde(with = "hex_of_word")]
    pub digest: u64,
}

/// A file with a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub name: String,
    pub group: u16,
    pub run: u32,
    /// Length of the file.
    pub bytes: u64,
    pub records: u64,
    /// Checksum of the file's last chunk.
    #[serde(with = "hex_of_word")]
    pub checksum: u64,
}

impl From<Mark> for GroupMark {
    fn from(Mark { position, keys, bytes, digest }: Mark) -> Self {
        Self { position, keys, bytes, digest }
    }
}

impl Manifest {
    /// Number of keys, and length of all keys and values.
    pub fn totals(&self) -> (u64, u64) {
        self.groups
            .iter()
            .fold((0, 0), |(keys, bytes), group| (keys + group.keys, bytes + group.bytes))
    }

    /// Reads the manifest of the backup in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Self, BackupError> {
        let path = dir.join(MANIFEST);
        is_regular(&path)?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(if has_runs(dir)? {
                    BackupError::Incomplete(dir.to_owned())
                } else {
                    BackupError::NoBackup(dir.to_owned())
                });
            }
            Err(error) => return Err(BackupError::system(&path, error)),
        };
        Self::parse(&text, &path)
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self, BackupError> {
        let damaged = |what: &str| BackupError::damaged(path, what);
        let text = std::str::from_utf8(text).map_err(|_| damaged("it is no text"))?;
        let end = text.rfind(CHECKSUM).ok_or_else(|| damaged("its last line is missing"))?;
        let (json, last) = text.split_at(end);
        let wanted = format!("{CHECKSUM}{:016x}\n", xxh3_64(json.as_bytes()));
        if last != wanted {
            return Err(damaged("it does not match the checksum in its last line"));
        }
        // A newer format may have other entries.
        #[derive(Deserialize)]
        struct Versioned {
            format: u16,
        }
        let unreadable = |error: serde_json::Error| damaged(&format!("it cannot be read: {error}"));
        let Versioned { format } = serde_json::from_str(json).map_err(unreadable)?;
        if format > FORMAT {
            let path = path.to_owned();
            return Err(BackupError::Newer { path, found: format, known: FORMAT });
        }
        let manifest: Self = serde_json::from_str(json).map_err(unreadable)?;
        let named = |file: &FileEntry| {
            let known = usize::from(file.group) < manifest.groups.len();
            known && file.name == format::file_name(file.group, file.run)
        };
        if !manifest.files.iter().all(named) {
            return Err(damaged("it names files that are none of a backup"));
        }
        Ok(manifest)
    }

    /// Writes the manifest, on disk: the backup is complete.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), BackupError> {
        let json = serde_json::to_string_pretty(self).expect("plain data") + "\n";
        let checksum = xxh3_64(json.as_bytes());
        let text = format!("{json}{CHECKSUM}{checksum:016x}\n");
        let (path, new) = (dir.join(MANIFEST), dir.join(MANIFEST_NEW));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            File::open(dir)?.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(dir)?.sync_all()?;
            // The directory may have been made for this backup.
            let whole = dir.canonicalize()?;
            whole.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
        };
        write().map_err(|source| BackupError::system(&path, source))
    }
}

/// Whether a directory has files of a backup.
pub(crate) fn has_runs(dir: &Path) -> Result<bool, BackupError> {
    let entries = fs::read_dir(dir).map_err(|source| BackupError::system(dir, source))?;
    Ok(entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(format::is_run)))
}

pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

mod hex_of_bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 16], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(from)?;
        let number = u128::from_str_radix(&text, 16).map_err(D::Error::custom)?;
        Ok(number.to_be_bytes())
    }
}

mod hex_of_word {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(super) fn serialize<S: Serializer>(word: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{word:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}
