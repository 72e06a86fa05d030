//! `skein inspect`: what a node's log on disk or a backup holds, and whether it is damaged.

mod lines;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use skein_backup::{BackupError, is_of_backup};
use skein_cluster::directory::Directory;
use skein_node::inspect::{Describer, owner};
use skein_wal::files::{FileName, Files as _, View};
use skein_wal::inspect::{InspectError, Segment};
use skein_wal::{Owner, RecoverError, Recovery};

use self::lines::{BlockLine, LogLine, Printer, SegmentLine};
use crate::exit::{Exit, usage};

/// Bytes read of a file to find out whether it is a segment at all. The longest header takes as many.
const BEGINNING_BYTES: u64 = 1 << 20;

/// Shows what a log on disk or a backup holds, and verifies it
///
/// FILE is a segment of a log, or a file of a backup. DIR is the data directory of a node (nodeN.data), of which all files
/// are shown and then what a start would make of them; a cluster's directory, with the data of all of its nodes; or the
/// directory of a backup. Nothing is changed, and no node need be stopped. The exit code is 1 if something is damaged. A write at the end that did not reach the
/// disk as a whole is no damage: a start cuts it off, and nobody was told of it. Files of RocksDB, in the directory
/// `stores` of a node, are not verified. docs/storage.md describes the format.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A segment, the data directory of a node, the directory of a cluster, a backup, or a file of one
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Does not show blocks and records
    #[arg(long)]
    summary: bool,
    /// Prints a JSON object for each segment, block, log and backup
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut printer = Printer::new(self.json, self.summary);
        let path = &self.path;
        let about = match fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(usage(format_args!(
                    "there is no file or directory {}",
                    path.display()
                )));
            }
            Err(error) => return Err(error).with_context(|| cannot_read(path)),
        };
        let sound = if is_of_backup(path) {
            backup(path, &mut printer)?
        } else if about.is_dir() {
            directory(path, &mut printer)?
        } else if about.is_file() {
            file(path, &mut printer)?
        } else {
            return Err(usage(format_args!(
                "{} is neither a file nor a directory",
                path.display()
            )));
        };
        printer.flush()?;
        Ok(if sound { Exit::Ok } else { Exit::No })
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// Verifies a backup or a file of one, and shows what it holds. Returns whether it is sound.
fn backup(path: &Path, printer: &mut Printer) -> anyhow::Result<bool> {
    match skein_backup::describe(path) {
        Ok(description) => printer.backup(path, &description),
        Err(why @ BackupError::System { .. }) => Err(why.into()),
        Err(why) => printer.unreadable(path, &why.to_string()),
    }
}

/// The name of a segment or spare, if it is one.
fn name_of(path: &Path) -> Option<FileName> {
    path.file_name()?.to_str()?.parse().ok()
}

/// The node whose data directory this is, by its name.
fn node_of(path: &Path) -> Option<u16> {
    path.file_name()?.to_str()?.strip_prefix("node")?.strip_suffix(".data")?.parse().ok()
}

/// Shows one file that was named. Returns whether it is sound.
fn file(path: &Path, printer: &mut Printer) -> anyhow::Result<bool> {
    let name = match name_of(path) {
        Some(FileName::Spare(_)) => return printer.nothing(path, SPARE),
        Some(FileName::Segment(name)) => Some(name),
        None => None,
    };
    let bytes = read(path, name.is_some()).with_context(|| cannot_read(path))?;
    match Segment::read(&bytes, name) {
        Err(why) if name.is_none() => {
            Err(usage(format_args!("{} cannot be shown: {why}", path.display())))
        }
        read => segment(path, read, &mut Describer::default(), printer),
    }
}

const SPARE: &str = "a spare file, which becomes a later segment: it holds nothing that counts";

/// The bytes of a file: all of them if it is a segment, by its name or by its beginning.
fn read(path: &Path, is_segment: bool) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(BEGINNING_BYTES).read_to_end(&mut bytes)?;
    if is_segment || Segment::read(&bytes, None).is_ok() {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Shows a segment. Returns whether it is sound.
fn segment(
    path: &Path,
    read: Result<Segment<'_>, InspectError>,
    describer: &mut Describer,
    printer: &mut Printer,
) -> anyhow::Result<bool> {
    let segment = match read {
        Ok(segment) => segment,
        Err(why @ InspectError::Unbegun) => return printer.nothing(path, &why.to_string()),
        Err(why) => return printer.unreadable(path, &why.to_string()),
    };
    describer.begin_start(segment.header.start);
    for entry in &segment.header.table {
        describer.keeps(entry.group, entry.keep);
    }
    let mut shown = describer.clone();
    let mut problems: Vec<_> = segment.faults.iter().map(ToString::to_string).collect();
    for block in &segment.blocks {
        problems.extend(BlockLine::of(path, &segment, block, describer).malformed());
    }
    let sound = problems.is_empty();
    printer.segment(&SegmentLine::of(path, &segment, problems))?;
    if !printer.summary {
        for block in &segment.blocks {
            printer.block(&BlockLine::of(path, &segment, block, &mut shown))?;
        }
    }
    Ok(sound)
}

/// Shows the logs in a directory: its own, or those of the nodes of a cluster. Returns whether all of them are sound.
fn directory(path: &Path, printer: &mut Printer) -> anyhow::Result<bool> {
    let absolute = std::path::absolute(path).with_context(|| cannot_read(path))?;
    let files = View::of(path).list().with_context(|| cannot_read(path))?;
    if !files.is_empty() || node_of(&absolute).is_some() {
        return log(path, &absolute, printer);
    }
    let mut nodes = Vec::new();
    for entry in fs::read_dir(path).with_context(|| cannot_read(path))? {
        let entry = entry.with_context(|| cannot_read(path))?;
        nodes.extend(node_of(&entry.path()).map(|node| (node, entry.path())));
    }
    nodes.sort_unstable();
    if nodes.is_empty() {
        return Err(usage(format_args!(
            "{} holds no log: name a segment, the data directory of a node (nodeN.data), or the directory of a \
             cluster with durability \"sync\"",
            path.display()
        )));
    }
    let mut sound = true;
    for (_, data) in nodes {
        let absolute = std::path::absolute(&data).with_context(|| cannot_read(&data))?;
        sound &= log(&data, &absolute, printer)?;
    }
    Ok(sound)
}

/// Shows all files of a node's log, and what a start would make of them. Returns whether it is sound.
fn log(path: &Path, absolute: &Path, printer: &mut Printer) -> anyhow::Result<bool> {
    let view = View::of(path);
    let mut files = view.list().with_context(|| cannot_read(path))?;
    files.sort_unstable();
    for (file, _) in &files {
        let path = path.join(file.to_string());
        // Opening a pipe would wait for a writer.
        if fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
            return printer
                .unreadable(&path, "it is no regular file, and has the name of a segment");
        }
    }
    let (mut owner, running) = cluster_of(absolute);
    let cannot = |path: &Path| match running {
        // Segments are given other names.
        Some(pid) => format!("{}; process {pid} writes the log now: try again", cannot_read(path)),
        None => cannot_read(path),
    };
    let (mut sound, mut describer) = (true, Describer::default());
    let recover = |owner: Owner| Recovery::read(&view, owner, &[]);
    // A node writes more while the segments are read, and needs no less of them than now.
    let recovery = owner.map(recover);
    for found in recovery.iter().flatten().flat_map(Recovery::groups) {
        describer.keeps(found.group, found.keep);
    }
    for (file, _) in &files {
        let path = path.join(file.to_string());
        let FileName::Segment(name) = file else {
            printer.nothing(&path, SPARE)?;
            continue;
        };
        let bytes = read(&path, true).with_context(|| cannot(&path))?;
        let read = Segment::read(&bytes, Some(*name));
        owner = owner.or_else(|| read.as_ref().ok().map(owner_of));
        sound &= segment(&path, read, &mut describer, printer)?;
    }
    let recovery = recovery.or_else(|| owner.map(recover));
    if let Some(Err(RecoverError::File(error))) = recovery {
        return Err(error).with_context(|| cannot(path));
    }
    let verdict = LogLine::of(path, files.len(), recovery, running);
    printer.log(&verdict)?;
    Ok(sound && verdict.sound)
}

/// Whose log this should be, by the manifest beside it, and the process that writes it now.
fn cluster_of(data: &Path) -> (Option<Owner>, Option<u32>) {
    let found = || {
        let node = node_of(data)?;
        let directory = Directory::at(data.parent()?).ok()?;
        let manifest = directory.manifest().ok()?;
        Some((owner(&manifest, node), directory.node(node).map(|holder| holder.pid)))
    };
    found().map_or((None, None), |(owner, running)| (Some(owner), running))
}

/// Whose log this is, by the header of one of its segments.
fn owner_of(segment: &Segment<'_>) -> Owner {
    Owner { cluster: segment.block.cluster, node: segment.header.node }
}
