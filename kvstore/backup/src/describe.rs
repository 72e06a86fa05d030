//! Prints a backup, or a file of one, readably, and verifies it.

use std::fmt::Write as _;
use std::path::Path;

use crate::error::BackupError;
use crate::manifest::{MANIFEST, hex};
use crate::reader::Backup;
use crate::run::RunReader;

/// Describes the backup in the directory `path`, or the file of a backup there, after reading and verifying all of it.
pub fn describe(path: &Path) -> Result<String, BackupError> {
    let mut text = String::new();
    let said = if path.is_dir() {
        describe_backup(path, &mut text)?
    } else if path.file_name().is_some_and(|name| name == MANIFEST) {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        describe_backup(dir.unwrap_or(Path::new(".")), &mut text)?
    } else {
        describe_run(path, &mut text)?
    };
    said.expect("writing to a string");
    Ok(text)
}

fn describe_backup(dir: &Path, text: &mut String) -> Result<std::fmt::Result, BackupError> {
    let backup = Backup::open(dir)?;
    backup.verify(&mut |_, _| ())?;
    let manifest = backup.manifest();
    let (keys, bytes) = manifest.totals();
    let origin = &manifest.origin;
    let mut write = || {
        writeln!(text, "backup {}, format {}", hex(&manifest.id), manifest.format)?;
        writeln!(
            text,
            "  of cluster {}, durability {}, {}",
            origin.cluster, origin.durability, origin.date
        )?;
        writeln!(text, "  by skein {}", origin.build)?;
        writeln!(
            text,
            "  {keys} keys, {bytes} bytes; the longest key has {}, the longest value {}",
            manifest.longest_key, manifest.longest_value
        )?;
        for (group, mark) in manifest.groups.iter().enumerate() {
            writeln!(
                text,
                "  group {group}: position {}, {} keys, {} bytes, digest {:016x}",
                mark.position, mark.keys, mark.bytes, mark.digest
            )?;
        }
        for file in &manifest.files {
            writeln!(
                text,
                "  {}: {} bytes, {} records, checksum {:016x}",
                file.name, file.bytes, file.records, file.checksum
            )?;
        }
        writeln!(
            text,
            "  verified: every file is whole, and each group's pairs are those at its mark"
        )
    };
    Ok(write())
}

fn describe_run(path: &Path, text: &mut String) -> Result<std::fmt::Result, BackupError> {
    let mut run = RunReader::open(path)?;
    let (mut with, mut without) = (0_u64, 0_u64);
    let mut keys: Option<(Vec<u8>, Vec<u8>)> = None;
    while let Some(record) = run.current() {
        *(if record.value.is_some() { &mut with } else { &mut without }) += 1;
        match &mut keys {
            Some((_, last)) => record.key.clone_into(last),
            None => keys = Some((record.key.to_vec(), record.key.to_vec())),
        }
        run.advance()?;
    }
    let header = run.header;
    let mut write = || {
        writeln!(
            text,
            "run {} of group {} of backup {}",
            header.run,
            header.group,
            hex(&header.backup)
        )?;
        writeln!(
            text,
            "  {} bytes, {with} pairs, {without} removed keys, checksum {:016x}",
            run.bytes, run.checksum
        )?;
        if let Some((first, last)) = &keys {
            writeln!(text, "  from {} to {}", first.escape_ascii(), last.escape_ascii())?;
        }
        writeln!(text, "  verified: the file is whole")
    };
    Ok(write())
}
