//! Opens and verifies a backup.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use skein_kvstore::backup::Record;

use crate::error::BackupError;
use crate::manifest::Manifest;
use crate::pairs::Pairs;

/// A backup whose manifest was read.
#[derive(Debug)]
pub struct Backup {
    dir: PathBuf,
    manifest: Manifest,
}

/// The longest key and value of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub longest_key: usize,
    pub longest_value: usize,
}

impl Backup {
    /// Opens the backup in `dir`. Checks the manifest, and that each file that it names is there with its length.
    pub fn open(dir: &Path) -> Result<Self, BackupError> {
        match fs::metadata(dir) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(BackupError::NoBackup(dir.to_owned())),
            Err(error) => return Err(BackupError::system(dir, error)),
        }
        let backup = Self { dir: dir.to_owned(), manifest: Manifest::read(dir)? };
        for file in &backup.manifest.files {
            let path = dir.join(&file.name);
            let len = match fs::metadata(&path) {
                Ok(meta) => meta.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(BackupError::Missing(path));
                }
                Err(error) => return Err(BackupError::system(&path, error)),
            };
            if len != file.bytes {
                // The header says whether it is another backup's.
                crate::run::RunReader::open_listed(dir, file, backup.manifest.id)?;
                let what = format!("it has {len} bytes, and the manifest says {}", file.bytes);
                return Err(BackupError::damaged(&path, what));
            }
        }
        Ok(backup)
    }

    pub(crate) fn of(dir: &Path, manifest: Manifest) -> Self {
        Self { dir: dir.to_owned(), manifest }
    }

    /// What the manifest says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Length of all files.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.iter().map(|file| file.bytes).sum()
    }

    /// The pairs of a group.
    pub fn pairs(&self, group: u16) -> Result<Pairs<'_>, BackupError> {
        let files = self.manifest.files.iter().filter(|file| file.group == group);
        Pairs::open(&self.dir, files, self.manifest.id)
    }

    /// Reads all files, and compares the pairs of each group with what the group itself had at the mark. `see` is shown
    /// each pair, and how many bytes of the files were read.
    pub fn verify(&self, see: &mut dyn FnMut(&Record<'_>, u64)) -> Result<Extent, BackupError> {
        let (mut extent, mut before) = (Extent::default(), 0);
        for (group, mark) in (0..).zip(&self.manifest.groups) {
            let mut pairs = self.pairs(group)?;
            let (mut keys, mut bytes, mut digest) = (0_u64, 0_u64, 0_u64);
            loop {
                let read = before + pairs.read();
                let Some(record) = pairs.next()? else { break };
                let value = record.value.unwrap_or_default();
                extent.longest_key = extent.longest_key.max(record.key.len());
                extent.longest_value = extent.longest_value.max(value.len());
                keys += 1;
                bytes += (record.key.len() + value.len()) as u64;
                digest = digest.wrapping_add(record.digest());
                see(&record, read);
            }
            before += pairs.read();
            if (keys, bytes, digest) != (mark.keys, mark.bytes, mark.digest) {
                let what = format!(
                    "the files of group {group} hold {keys} keys, {bytes} bytes and digest {digest:016x}, and at its mark the group held {}, {} and {:016x}",
                    mark.keys, mark.bytes, mark.digest
                );
                return Err(BackupError::Wrong { path: self.dir.clone(), what });
            }
        }
        Ok(extent)
    }
}
