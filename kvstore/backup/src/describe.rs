//! Describes a backup, or a file of one, after verifying it.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::error::BackupError;
use crate::format::is_run;
use crate::manifest::{MANIFEST, Manifest, has_runs, hex};
use crate::reader::Backup;
use crate::run::RunReader;

/// What a backup or a file of it contains. Its text is for people, its JSON for programs.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Description {
    Backup(Manifest),
    Run(Run),
}

/// What a file with a run contains.
#[derive(Debug, Serialize)]
pub struct Run {
    pub backup: String,
    pub group: u16,
    pub run: u32,
    /// Length of the file.
    pub bytes: u64,
    pub pairs: u64,
    /// Keys that have no value any more.
    pub removed: u64,
    pub checksum: String,
    /// The first key and the last, with escapes for bytes that are not text.
    pub first_key: Option<String>,
    pub last_key: Option<String>,
}

/// Describes the backup in the directory `path`, or the file of a backup there, after reading and verifying all of it.
pub fn describe(path: &Path) -> Result<Description, BackupError> {
    if path.is_dir() {
        return whole(path);
    }
    if path.file_name().is_some_and(|name| name == MANIFEST) {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        return whole(dir.unwrap_or(Path::new(".")));
    }
    let mut file = RunReader::open(path)?;
    let (mut pairs, mut removed) = (0, 0);
    let (mut first_key, mut last) = (None, Vec::new());
    while let Some(record) = file.current() {
        *(if record.value.is_some() { &mut pairs } else { &mut removed }) += 1;
        first_key.get_or_insert_with(|| record.key.escape_ascii().to_string());
        record.key.clone_into(&mut last);
        file.advance()?;
    }
    Ok(Description::Run(Run {
        backup: hex(&file.header.backup),
        group: file.header.group,
        run: file.header.run,
        bytes: file.bytes,
        pairs,
        removed,
        checksum: format!("{:016x}", file.checksum),
        last_key: first_key.as_ref().map(|_| last.escape_ascii().to_string()),
        first_key,
    }))
}

/// Whether a path names a backup, whole or cut short, or by its name a file of one.
pub fn is_of_backup(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(MANIFEST).is_file() || has_runs(path).unwrap_or(false);
    }
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == MANIFEST || is_run(name))
}

fn whole(dir: &Path) -> Result<Description, BackupError> {
    let backup = Backup::open(dir)?;
    backup.verify(&mut |_, _| ())?;
    Ok(Description::Backup(backup.manifest().clone()))
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup(manifest) => backup_text(manifest, f),
            Self::Run(run) => run_text(run, f),
        }
    }
}

fn backup_text(manifest: &Manifest, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (keys, bytes) = manifest.totals();
    let origin = &manifest.origin;
    writeln!(f, "backup {}, format {}", hex(&manifest.id), manifest.format)?;
    let (cluster, durability, date) = (&origin.cluster, &origin.durability, &origin.date);
    writeln!(f, "  of cluster {cluster}, durability {durability}, {date}")?;
    writeln!(f, "  by skein {}", origin.build)?;
    let (key, value) = (manifest.longest_key, manifest.longest_value);
    writeln!(f, "  {keys} keys, {bytes} bytes; longest key {key}, longest value {value}")?;
    for (group, mark) in manifest.groups.iter().enumerate() {
        let (position, keys, bytes) = (mark.position, mark.keys, mark.bytes);
        write!(f, "  group {group}: position {position}, {keys} keys, {bytes} bytes, ")?;
        writeln!(f, "digest {:016x}", mark.digest)?;
    }
    for file in &manifest.files {
        write!(f, "  {}: {} bytes, {} records, ", file.name, file.bytes, file.records)?;
        writeln!(f, "checksum {:016x}", file.checksum)?;
    }
    writeln!(f, "  verified: every file is whole, and each group's pairs are those at its mark")
}

fn run_text(run: &Run, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "run {} of group {} of backup {}", run.run, run.group, run.backup)?;
    let (bytes, pairs, removed) = (run.bytes, run.pairs, run.removed);
    write!(f, "  {bytes} bytes, {pairs} pairs, {removed} removed keys, ")?;
    writeln!(f, "checksum {}", run.checksum)?;
    if let (Some(first), Some(last)) = (&run.first_key, &run.last_key) {
        writeln!(f, "  from {first} to {last}")?;
    }
    writeln!(f, "  verified: the file is whole")
}
