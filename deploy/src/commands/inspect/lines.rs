//! Segments, blocks and logs as `skein inspect` prints them: as text, and as JSON objects.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skein_backup::Description;
use skein_cluster::config::show_bytes;
use skein_node::inspect::Describer;
use skein_wal::format::{BlockKind, Damage, FORMAT};
use skein_wal::inspect::{End, Placed, Segment};
use skein_wal::{Lsn, RecoverError, Recovery, Verdict};

use crate::output::say_if_heard;

/// Text that is collected before it is written.
const AT_ONCE_BYTES: usize = 64 << 10;

/// A segment and its header.
#[derive(Debug, Serialize)]
pub(super) struct SegmentLine<'a> {
    file: &'a Path,
    sound: bool,
    problems: Vec<String>,
    sequence: u64,
    /// The number of the process run that wrote it.
    start: u64,
    node: u32,
    cluster: String,
    /// LSN of the segment's first byte.
    lsn: u64,
    bytes: u64,
    blocks: usize,
    records: usize,
    end: EndLine,
    /// End of the log before this start.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<CutLine>,
    groups: Vec<EntryLine>,
}

/// End of the blocks of a segment.
#[derive(Debug, Serialize)]
struct EndLine {
    offset: u64,
    /// A write here did not reach the disk as a whole.
    torn: bool,
    /// The segment in which the log goes on.
    next: Option<u64>,
}

#[derive(Debug, Serialize)]
struct CutLine {
    sequence: u64,
    lsn: u64,
}

/// Entry of a group in a header.
#[derive(Debug, Serialize)]
struct EntryLine {
    group: u16,
    last: u64,
    keep: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<DamageLine>,
}

#[derive(Debug, Serialize)]
struct DamageLine {
    sequence: u64,
    offset: u64,
}

impl DamageLine {
    fn of(Damage { sequence, offset }: Damage) -> Self {
        Self { sequence, offset }
    }
}

impl<'a> SegmentLine<'a> {
    pub(super) fn of(file: &'a Path, segment: &Segment<'_>, problems: Vec<String>) -> Self {
        let Segment { block, header, blocks, records, .. } = segment;
        let end = match segment.end {
            End::Linked { offset, sequence } => {
                EndLine { offset, torn: false, next: Some(sequence) }
            }
            End::Open { offset } => EndLine { offset, torn: false, next: None },
            End::Torn { offset } => EndLine { offset, torn: true, next: None },
        };
        let entry = |entry: &skein_wal::format::TableEntry| EntryLine {
            group: entry.group.0,
            last: entry.last.0,
            keep: entry.keep.0,
            damage: entry.damage.map(DamageLine::of),
        };
        Self {
            file,
            sound: problems.is_empty(),
            problems,
            sequence: block.sequence,
            start: header.start,
            node: header.node,
            cluster: hex(block.cluster),
            lsn: segment.base().0,
            bytes: header.size,
            blocks: blocks.len(),
            records: *records,
            end,
            cut: header.cut.map(|cut| CutLine { sequence: cut.sequence, lsn: cut.lsn.0 }),
            groups: header.table.iter().map(entry).collect(),
        }
    }

    fn text(&self) -> String {
        let Self { sequence, start, node, cluster, lsn, bytes, blocks, records, .. } = self;
        let mut text = format!("{}\n", self.file.display());
        let _ = writeln!(
            text,
            "  segment {sequence} of start {start}, node {node}, cluster {cluster}, format {FORMAT}"
        );
        let _ = writeln!(text, "  {} from LSN {lsn} on", show_bytes(*bytes));
        if let Some(CutLine { sequence, lsn }) = self.cut {
            let _ = writeln!(
                text,
                "  the log before this start ends at LSN {lsn}, in segment {sequence}"
            );
        }
        for EntryLine { group, last, keep, damage } in &self.groups {
            let _ = write!(text, "  g{group} before this segment: {}", span(*last, *keep));
            if let Some(DamageLine { sequence, offset }) = damage {
                let _ = write!(text, "; damaged in segment {sequence} at {offset}");
            }
            text.push('\n');
        }
        let EndLine { offset, torn, next } = self.end;
        let _ = write!(
            text,
            "  {} and {}, to offset {offset}",
            counted(*blocks, "block"),
            counted(*records, "record")
        );
        let _ = match next {
            Some(next) => writeln!(text, "; the log goes on in segment {next}"),
            None if torn => writeln!(
                text,
                ", where a write is torn: a start cuts the log here, and nobody was told of what is behind"
            ),
            None => writeln!(text),
        };
        for problem in &self.problems {
            let _ = writeln!(text, "  DAMAGED: {problem}");
        }
        if self.sound {
            text.push_str("  sound\n");
        }
        text
    }
}

/// A block and its records.
#[derive(Debug, Serialize)]
pub(super) struct BlockLine<'a> {
    file: &'a Path,
    offset: u64,
    lsn: u64,
    bytes: u32,
    kind: &'static str,
    /// Everything below this LSN was durable when the block was formed.
    durable: u64,
    /// The block in front of it is torn or damaged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    detached: bool,
    /// It stands behind a torn write, and is never read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut_off: bool,
    records: Vec<RecordLine>,
}

#[derive(Debug, Serialize)]
struct RecordLine {
    lsn: u64,
    group: u16,
    /// LSN of the group's record before it; 0 if there is none.
    previous: u64,
    bytes: usize,
    /// The kind's name; null if no replica writes such a record.
    kind: Option<&'static str>,
    number: u8,
    about: String,
}

impl<'a> BlockLine<'a> {
    pub(super) fn of(
        file: &'a Path,
        segment: &Segment<'_>,
        block: &Placed,
        describer: &mut Describer,
    ) -> Self {
        let Placed { offset, header, detached } = *block;
        let cut_off = matches!(segment.end, End::Torn { offset: torn } if torn <= offset);
        let kind = match header.kind {
            BlockKind::Header => "header",
            BlockKind::Records => "records",
            BlockKind::Seal => "seal",
            BlockKind::Link { .. } => "link",
        };
        let records = segment.records_of(block).map(|record| {
            let described = describer.describe(&record);
            RecordLine {
                lsn: record.lsn.0,
                group: record.group.0,
                previous: record.previous.0,
                bytes: record.bytes.len(),
                kind: described.as_ref().map(|described| described.name),
                number: record.kind,
                about: described.map(|described| described.about).unwrap_or_default(),
            }
        });
        let records = records.collect();
        let (lsn, durable) = (header.lsn.0, header.acked_through.0);
        Self { file, offset, lsn, bytes: header.length, kind, durable, detached, cut_off, records }
    }

    /// Problems of its records.
    pub(super) fn malformed(&self) -> impl Iterator<Item = String> {
        let malformed = self.records.iter().filter(|record| record.kind.is_none());
        malformed.map(|RecordLine { lsn, group, number, .. }| {
            format!("the record of g{group} at LSN {lsn}, of kind {number}, is none that a replica writes")
        })
    }

    fn text(&self) -> String {
        let Self { offset, lsn, bytes, kind, durable, .. } = self;
        let mut text = format!("{offset:>10}: {kind}, LSN {lsn}, {bytes} bytes");
        if *durable > 0 {
            let _ = write!(text, ", when all below {durable} was durable");
        }
        text.push_str(match (self.cut_off, self.detached) {
            (true, _) => "; CUT OFF\n",
            (false, true) => "; behind the damage\n",
            (false, false) => "\n",
        });
        for RecordLine { lsn, group, kind, number, about, .. } in &self.records {
            let kind = kind.map_or_else(|| format!("kind {number}?"), str::to_owned);
            let line = format!("{lsn:>22}  g{group:<3} {kind:<13} {about}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A whole log, as a start would find it.
#[derive(Debug, Serialize)]
pub(super) struct LogLine<'a> {
    directory: &'a Path,
    pub(super) sound: bool,
    files: usize,
    /// The process that writes it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<u32>,
    /// Why a node could not start with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<CutLine>,
    damages: Vec<DamageLine>,
    groups: Vec<GroupLine>,
    /// The stores beside it, if replicas hold keys and values in RocksDB.
    #[serde(skip_serializing_if = "Option::is_none")]
    stores: Option<StoresLine>,
}

/// The stores of a node's replicas, of which only the names are read.
#[derive(Debug, Serialize)]
struct StoresLine {
    directory: PathBuf,
    verified: bool,
    /// The checkpoints in them, as `REPLICA/NAME`.
    checkpoints: Vec<String>,
}

impl StoresLine {
    /// The stores in the data directory of a node, if there are any.
    fn of(data: &Path) -> Option<Self> {
        let directory = data.join("stores");
        let names = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort_unstable();
            names
        };
        if !directory.is_dir() {
            return None;
        }
        let mut checkpoints = Vec::new();
        for replica in names(&directory) {
            let kept = names(&directory.join(&replica)).into_iter();
            let kept = kept.filter(|name| is_checkpoint(name));
            checkpoints.extend(kept.map(|name| format!("{replica}/{name}")));
        }
        Some(Self { directory, verified: false, checkpoints })
    }

    fn text(&self) -> String {
        let directory = self.directory.display();
        let kept = match &self.checkpoints[..] {
            [] => "there are none".to_owned(),
            kept => format!("there are {}", kept.join(", ")),
        };
        format!(
            "  NOT VERIFIED: {directory}, whose files are RocksDB's. A start reads of them only checkpoints that the \
             log names; {kept}\n"
        )
    }
}

/// Whether it is the name of a checkpoint that is whole.
fn is_checkpoint(name: &str) -> bool {
    let number = name.strip_prefix("kept-").unwrap_or_default();
    number.len() == 16 && number.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[derive(Debug, Serialize)]
struct GroupLine {
    group: u16,
    last: u64,
    keep: u64,
    /// Whether everything is there that the group needs; otherwise its replica joins anew.
    whole: bool,
}

impl<'a> LogLine<'a> {
    /// `recovery` is absent if no header says whose log it is.
    pub(super) fn of(
        directory: &'a Path,
        files: usize,
        recovery: Option<Result<Recovery, RecoverError>>,
        written_by: Option<u32>,
    ) -> Self {
        let mut line = Self {
            directory,
            sound: false,
            files,
            written_by,
            refused: None,
            end: None,
            damages: Vec::new(),
            groups: Vec::new(),
            stores: StoresLine::of(directory),
        };
        match recovery {
            _ if files == 0 => line.refused = Some("it is empty: its log is gone".to_owned()),
            None => line.refused = Some("no segment has a header that can be read".to_owned()),
            Some(Err(why)) => line.refused = Some(why.to_string()),
            Some(Ok(recovery)) => {
                let cut = recovery.cut();
                line.end = cut.map(|cut| CutLine { sequence: cut.sequence, lsn: cut.lsn.0 });
                line.damages = recovery.damages().iter().copied().map(DamageLine::of).collect();
                let groups = recovery.groups().iter().map(|found| GroupLine {
                    group: found.group.0,
                    last: found.last.0,
                    keep: found.keep.0,
                    whole: found.verdict == Verdict::Whole,
                });
                line.groups = groups.collect();
                line.sound = line.damages.is_empty() && line.groups.iter().all(|group| group.whole);
            }
        }
        line
    }

    fn text(&self) -> String {
        let mut text =
            format!("log in {}: {}\n", self.directory.display(), counted(self.files, "file"));
        if let Some(CutLine { sequence, lsn }) = self.end {
            let _ = writeln!(text, "  ends at LSN {lsn}, in segment {sequence}");
        }
        for GroupLine { group, last, keep, whole } in &self.groups {
            let whole = if *whole {
                "whole"
            } else {
                "DAMAGED: its replica joins anew, and takes the state of another"
            };
            let _ = writeln!(text, "  g{group} {whole}; {}", span(*last, *keep));
        }
        for DamageLine { sequence, offset } in &self.damages {
            let _ = writeln!(
                text,
                "  DAMAGED: what was durable in segment {sequence} at {offset} is lost"
            );
        }
        if let Some(why) = &self.refused {
            let _ = writeln!(text, "  DAMAGED: a node cannot start with it: {why}");
        }
        if let Some(pid) = self.written_by {
            let _ = writeln!(text, "  process {pid} writes it now: it may have changed meanwhile");
        }
        text.extend(self.stores.as_ref().map(StoresLine::text));
        match (self.sound, &self.stores) {
            (true, None) => text.push_str("  sound\n"),
            (true, Some(_)) => text.push_str("  the log is sound; the stores were not verified\n"),
            (false, _) => {}
        }
        text
    }
}

/// A file that holds nothing, or cannot be shown.
#[derive(Serialize)]
struct OtherLine {
    file: PathBuf,
    sound: bool,
    about: String,
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Names the last record of a group, and the first that it needs.
fn span(last: u64, keep: u64) -> String {
    if Lsn(last) == Lsn::NONE {
        return "no record".to_owned();
    }
    format!("last record at LSN {last}, needed from LSN {keep} on")
}

/// Prints lines while somebody reads them.
pub(super) struct Printer {
    json: bool,
    pub(super) summary: bool,
    text: String,
    heard: bool,
}

impl Printer {
    pub(super) fn new(json: bool, summary: bool) -> Self {
        Self { json, summary, text: String::new(), heard: true }
    }

    pub(super) fn segment(&mut self, line: &SegmentLine<'_>) -> anyhow::Result<()> {
        self.line("segment", line, SegmentLine::text)
    }

    pub(super) fn block(&mut self, line: &BlockLine<'_>) -> anyhow::Result<()> {
        self.line("block", line, BlockLine::text)
    }

    pub(super) fn log(&mut self, line: &LogLine<'_>) -> anyhow::Result<()> {
        self.line("log", line, LogLine::text)
    }

    /// A backup, or a file of one. It is sound.
    pub(super) fn backup(&mut self, path: &Path, line: &Description) -> anyhow::Result<bool> {
        self.line("backup", line, |line| format!("{}\n  {line}", path.display()))?;
        Ok(true)
    }

    /// A file that holds nothing. It is sound.
    pub(super) fn nothing(&mut self, file: &Path, about: &str) -> anyhow::Result<bool> {
        self.other(file, true, about)
    }

    /// A file that should be a segment. It is not sound.
    pub(super) fn unreadable(&mut self, file: &Path, about: &str) -> anyhow::Result<bool> {
        self.other(file, false, about)
    }

    fn other(&mut self, file: &Path, sound: bool, about: &str) -> anyhow::Result<bool> {
        let line = OtherLine { file: file.to_owned(), sound, about: about.to_owned() };
        self.line("file", &line, |line| {
            let damaged = if line.sound { "" } else { "DAMAGED: " };
            format!("{}\n  {damaged}{}\n", line.file.display(), line.about)
        })?;
        Ok(sound)
    }

    fn line<T: Serialize>(
        &mut self,
        kind: &str,
        line: &T,
        text: impl Fn(&T) -> String,
    ) -> anyhow::Result<()> {
        if !self.heard {
            return Ok(());
        }
        if self.json {
            let _ = writeln!(self.text, "{}", serde_json::json!({ kind: line }));
        } else {
            self.text += &text(line);
        }
        if self.text.len() >= AT_ONCE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what was collected.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.heard = say_if_heard(std::mem::take(&mut self.text))?;
        Ok(())
    }
}
