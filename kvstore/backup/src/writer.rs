//! Writes a backup.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use skein_kvstore::backup::{Mark, Record};
use skein_kvstore::command::{Key, Value, Version};

use crate::error::BackupError;
use crate::format::Header;
use crate::manifest::{FileEntry, MANIFEST, MANIFEST_NEW, Manifest, Origin, has_runs};
use crate::reader::Backup;
use crate::run::RunWriter;

/// Changes of all groups are kept in memory up to about this many bytes, those of one group then written as a run.
const CHANGES_BYTES_MAX: usize = 64 << 20;
/// A run of changes has this many bytes at least, however many groups there are: reading opens all runs of a group.
const CHANGES_BYTES_MIN: usize = 8 << 20;
/// Bytes that a change takes besides its key and its value.
const CHANGE_OVERHEAD: usize = 96;

/// Writes the files of a backup. Without [`finish`](Self::finish), the directory holds an incomplete backup.
pub struct BackupWriter {
    dir: PathBuf,
    id: [u8; 16],
    /// The directory was made, and can be removed with its contents.
    made: bool,
    groups: Vec<Group>,
}

/// The runs of a group.
#[derive(Default)]
struct Group {
    /// Number of the next run.
    next: u32,
    files: Vec<FileEntry>,
    walk: Option<RunWriter>,
    changes: BTreeMap<Key, (Option<Value>, Version)>,
    /// Bytes that `changes` takes.
    bytes: usize,
}

impl BackupWriter {
    /// Begins a backup of so many groups in `dir`, which is made, or is empty.
    pub fn create(dir: &Path, groups: u16, id: [u8; 16]) -> Result<Self, BackupError> {
        let system = |source| BackupError::system(dir, source);
        let made = !dir.exists();
        fs::create_dir_all(dir).map_err(system)?;
        if has_runs(dir)? && !dir.join(crate::MANIFEST).exists() {
            return Err(BackupError::HoldsIncomplete(dir.to_owned()));
        }
        if fs::read_dir(dir).map_err(system)?.next().is_some() {
            return Err(BackupError::NotEmpty(dir.to_owned()));
        }
        let groups = (0..groups).map(|_| Group::default()).collect();
        Ok(Self { dir: dir.to_owned(), id, made, groups })
    }

    /// Begins the copy of a group, and removes what was written of an earlier one.
    pub fn begin(&mut self, group: u16) -> Result<(), BackupError> {
        let of = &mut self.groups[usize::from(group)];
        for run in 0..of.next {
            let path = self.dir.join(crate::format::file_name(group, run));
            fs::remove_file(&path).map_err(|source| BackupError::system(&path, source))?;
        }
        let walk = RunWriter::create(&self.dir, Header { group, run: 0, backup: self.id })?;
        *of = Group { next: 1, walk: Some(walk), ..Group::default() };
        Ok(())
    }

    /// Adds pairs that a replica has walked over, in key order.
    pub fn walk(&mut self, group: u16, mut records: &[u8]) -> Result<(), BackupError> {
        let walk = self.groups[usize::from(group)].walk.as_mut().expect("it was begun");
        while let Some(record) = Record::take(&mut records) {
            walk.add(&record)?;
        }
        Ok(())
    }

    /// Adds changes, which override what was added before.
    pub fn change(&mut self, group: u16, mut records: &[u8]) -> Result<(), BackupError> {
        let most = (CHANGES_BYTES_MAX / self.groups.len()).max(CHANGES_BYTES_MIN);
        while let Some(Record { key, value, version }) = Record::take(&mut records) {
            let of = &mut self.groups[usize::from(group)];
            of.bytes += key.len() + value.map_or(0, <[u8]>::len) + CHANGE_OVERHEAD;
            let change = (value.map(<[u8]>::to_vec), version);
            if let Some((before, _)) = of.changes.insert(key.to_vec(), change) {
                of.bytes -= key.len() + before.map_or(0, |value| value.len()) + CHANGE_OVERHEAD;
            }
            if of.bytes >= most {
                self.write_changes(group)?;
            }
        }
        Ok(())
    }

    fn write_changes(&mut self, group: u16) -> Result<(), BackupError> {
        let of = &mut self.groups[usize::from(group)];
        let header = Header { group, run: of.next, backup: self.id };
        let mut run = RunWriter::create(&self.dir, header)?;
        of.next += 1;
        of.bytes = 0;
        for (key, (value, version)) in std::mem::take(&mut of.changes) {
            run.add(&Record { key: &key, value: value.as_deref(), version })?;
        }
        of.files.push(run.finish()?);
        Ok(())
    }

    /// Completes the backup: all files are on disk, were read back and hold what the groups had at these marks. `read` is told
    /// for each pair how many bytes were read back, and how many there are.
    pub fn finish(
        &mut self,
        origin: Origin,
        marks: &[Mark],
        read: &mut dyn FnMut(u64, u64),
    ) -> Result<Backup, BackupError> {
        for group in 0..self.groups.len() as u16 {
            if !self.groups[usize::from(group)].changes.is_empty() {
                self.write_changes(group)?;
            }
            let of = &mut self.groups[usize::from(group)];
            let walk = of.walk.take().expect("it was begun").finish()?;
            of.files.insert(0, walk);
        }
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| BackupError::system(&self.dir, source))?;
        let manifest = Manifest {
            format: crate::format::FORMAT,
            id: self.id,
            origin,
            longest_key: 0,
            longest_value: 0,
            groups: marks.iter().map(|mark| (*mark).into()).collect(),
            files: self.groups.iter().flat_map(|group| group.files.iter().cloned()).collect(),
        };
        let backup = Backup::of(&self.dir, manifest.clone());
        let all = backup.bytes();
        let extent = backup.verify(&mut |_, bytes| read(bytes, all))?;
        let manifest = Manifest {
            longest_key: extent.longest_key,
            longest_value: extent.longest_value,
            ..manifest
        };
        manifest.write(&self.dir)?;
        Ok(Backup::of(&self.dir, manifest))
    }

    /// Removes what was written, and the manifest first: without it, nothing that is left looks like a backup.
    pub fn abandon(self) -> Result<(), BackupError> {
        let files = (0..).zip(&self.groups).flat_map(|(group, of)| {
            (0..of.next).map(move |run| crate::format::file_name(group, run))
        });
        let manifests = [MANIFEST, MANIFEST_NEW].map(str::to_owned);
        for name in manifests.into_iter().chain(files) {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(BackupError::system(&path, error));
                }
                _ => {}
            }
        }
        if self.made {
            fs::remove_dir(&self.dir).map_err(|source| BackupError::system(&self.dir, source))?;
        }
        Ok(())
    }
}
