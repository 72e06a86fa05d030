//! What a start finds of the log, and how far to believe it.
//!
//! Recovery is a function of the files. It walks the blocks of each start, from one to the next by their
//! places and checksums. At the first bad block, at E, one of two things happened:
//!
//! - The write *tore*: power failed before it was durable. Nothing that rests on it was ever said. The
//!   log is cut at E, and nothing behind is read, now or later: the next start's header names the cut.
//! - The block is *damaged*: a later block of the same start says that everything up to beyond E was
//!   durable (`acked_through > E`), or a later start read beyond it. Then records are lost that may
//!   have been spoken of. Groups whose chains show that they have no record there go on; the others are
//!   [`Verdict::Damaged`].
//!
//! [`Recovery::read`] decides, [`Recovery::replay`] hands out the records, and [`Recovery::writer`]
//! begins the next start.

mod chains;
mod image;
mod inventory;
mod lineage;
mod replay;
mod survey;

use std::collections::VecDeque;

use chains::Chains;
use inventory::Inventory;
use replay::Span;
use survey::Survey;

use crate::files::{FileError, FileName, Files};
use crate::format::{BLOCK, Cut, Damage, FORMAT, FORMAT_OLDEST};
use crate::writer::{GroupState, KeptSegment, Leftover, Options, Origin, Writer};
use crate::{Group, Lsn, Owner};

/// Why the log cannot be read. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{file} belongs to another cluster ({})", hex(found))]
    WrongCluster { file: FileName, found: [u8; 16] },
    #[error("{file} belongs to node {found}, and this is node {expected}")]
    WrongNode { file: FileName, found: u32, expected: u32 },
    #[error("{file} has format {format}, and this version reads {FORMAT_OLDEST} to {FORMAT}")]
    Format { file: FileName, format: u16 },
    #[error(
        "{file} holds what was written as segment {sequence:016x}: files were swapped or copied"
    )]
    Misnamed { file: FileName, sequence: u64 },
    #[error("{file} is {length} bytes long instead of {expected}")]
    Truncated { file: FileName, length: u64, expected: u64 },
    #[error("{file} does not follow the segments before it: a file was put back or renamed")]
    Disordered { file: FileName },
    #[error(
        "{file} ends otherwise at {offset} than its successor read: an older copy was put back"
    )]
    Diverged { file: FileName, offset: u64 },
    #[error("{file} and every other segment lack a readable header")]
    Headless { file: FileName },
    #[error("{file} was read a second time and is not the same at {offset}")]
    Changed { file: FileName, offset: u64 },
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

/// Whether a group's log holds everything that was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every durable record that the group still needs is there.
    Whole,
    /// A durable record may be lost: the group joins anew, and says so by
    /// [`Writer::begin`](crate::Writer::begin).
    Damaged(Damage),
}

/// What recovery tells of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredGroup {
    pub group: Group,
    pub verdict: Verdict,
    /// Its entry in the last header. Records behind that header may say more.
    pub table: Vec<u8>,
    /// Its last record that was found.
    pub last: Lsn,
    /// It needs nothing below this, and nothing below is replayed.
    pub keep: Lsn,
    /// Records at or above this are not replayed: something before them is lost.
    until: Lsn,
}

/// The state of the log at the beginning of a start.
#[derive(Debug)]
pub struct Recovery {
    owner: Owner,
    start: u64,
    sequence: u64,
    base: Lsn,
    cut: Option<Cut>,
    groups: Vec<RecoveredGroup>,
    damages: Vec<Damage>,
    spans: Vec<Span>,
    kept: VecDeque<KeptSegment>,
    leftovers: Vec<Leftover>,
}

impl Recovery {
    /// Reads the log. `hosted` are the groups of which the caller wants a verdict though the log
    /// may not know them. Call [`sync_everything`](crate::files::sync_everything) before.
    pub fn read(files: &impl Files, owner: Owner, hosted: &[Group]) -> Result<Self, RecoverError> {
        let inventory = Inventory::read(files, owner)?;
        let (sequence, start) = (inventory.sequence_max + 1, inventory.start_max + 1);
        let base = inventory.free_base();
        let mut unbegun = inventory.leftovers.clone();
        let (mut runs, orphans) = lineage::runs(inventory.segments);
        let mut survey = Survey::new(files, owner, &inventory.leftovers);
        let mut cut = None;
        for run in &runs {
            cut = survey.walk(run)?.or(cut);
        }
        for leftover in &mut unbegun {
            let named = matches!(leftover.file, FileName::Segment(name) if Some(name.sequence) == survey.successor());
            leftover.unnamed = !named;
        }
        let (chains, spans, damages) = survey.finish();
        let mut empty = Vec::new();
        if let Some(end) = cut {
            let (before, files) = lineage::without_empty(&mut runs, end);
            (cut, empty) = (Some(before), files);
        }
        let mut end = cut.map_or(Lsn::NONE, |cut| cut.lsn);
        let mut kept = VecDeque::new();
        for segment in runs.iter().rev().flat_map(|run| run.segments.iter().rev()) {
            kept.push_front(KeptSegment { name: segment.name, length: segment.length, end });
            end = segment.head.as_ref().map_or(end, |head| head.base);
        }
        let mut leftovers: Vec<_> = orphans.into_iter().chain(empty).chain(unbegun).collect();
        // The oldest go first.
        leftovers.sort_by_key(Leftover::sequence);
        let groups = recovered(chains, hosted);
        Ok(Self { owner, start, sequence, base, cut, groups, damages, spans, kept, leftovers })
    }

    /// Whose log it is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Number of the start that follows. Not to be told before
    /// [`Writer::started`](crate::Writer::started).
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Of how many starts the log still has segments. Each takes a file's length, however little it wrote.
    pub fn starts_kept(&self) -> usize {
        let mut starts: Vec<u64> = self.kept.iter().map(|segment| segment.name.start).collect();
        starts.dedup();
        starts.len()
    }

    /// The start that wrote the record at `lsn`; `None` if no segment of the log holds it.
    pub fn start_of(&self, lsn: Lsn) -> Option<u64> {
        let at = self.kept.partition_point(|segment| segment.end <= lsn);
        self.kept.get(at).map(|segment| segment.name.start)
    }

    /// Gives the start that follows a number above `known`, for a caller that counts starts, too.
    pub fn start_above(&mut self, known: u64) {
        self.start = self.start.max(known + 1);
    }

    /// Every group that the log knows, and those asked for, by number.
    pub fn groups(&self) -> &[RecoveredGroup] {
        &self.groups
    }

    /// Places at which something durable is lost, whomever it belonged to.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Where the log ends. None if there is none.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// The writer of the start that follows. `entropy` is random, and seeds the segments' salts.
    ///
    /// Its tables are those of the last header. Whoever replayed records that say more sets them anew
    /// before the writer's first task: a record that a group does not keep is told by its table alone.
    pub fn writer(&self, options: Options, entropy: u64) -> Writer {
        let groups = self.groups.iter().map(|found| GroupState {
            group: found.group,
            last: found.last,
            keep: found.keep,
            damage: match found.verdict {
                Verdict::Whole => None,
                Verdict::Damaged(damage) => Some(damage),
            },
            table: found.table.clone(),
            // A damaged group says itself when it begins anew.
            begins: found.last == Lsn::NONE && found.verdict == Verdict::Whole,
        });
        let origin = Origin {
            owner: self.owner,
            start: self.start,
            sequence: self.sequence,
            base: self.base,
            cut: self.cut,
            groups: groups.filter(|state| !state.is_new()).collect(),
            kept: self.kept.clone(),
            leftovers: self.leftovers.clone(),
            entropy,
        };
        Writer::new(options, origin)
    }
}

fn recovered(chains: Chains, hosted: &[Group]) -> Vec<RecoveredGroup> {
    let unlisted = chains.unlisted();
    let mut groups: Vec<_> = chains.into_groups();
    for &group in hosted {
        if groups.iter().all(|found| found.group != group) {
            let verdict = unlisted.map_or(Verdict::Whole, Verdict::Damaged);
            let (last, keep, until) = (Lsn::NONE, Lsn::NONE, Lsn::NONE);
            groups.push(RecoveredGroup { group, verdict, table: Vec::new(), last, keep, until });
        }
    }
    groups.sort_unstable_by_key(|found| found.group);
    groups
}

/// An LSN that no earlier start used, given one that may be used: whole blocks, and not zero.
fn round_up(lsn: u64) -> Lsn {
    Lsn(lsn.next_multiple_of(BLOCK as u64).max(BLOCK as u64))
}
