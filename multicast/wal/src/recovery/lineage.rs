//! Which segments belong to the log: each start continues where its header says that the one before
//! was cut.

use super::inventory::Segment;
use crate::Lsn;
use crate::files::FileName;
use crate::format::Cut;
use crate::writer::Leftover;

/// The segments of one start, as far as the next start knew of them.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) segments: Vec<Segment>,
    /// Where the next start found the end. None if there is none, or its header is unreadable.
    pub(super) limit: Option<Cut>,
}

impl Run {
    /// Where this start found the end of the log, if it wrote nothing but that: its own log ends at `end`.
    fn wrote_nothing(&self, end: Cut) -> Option<Cut> {
        let [only] = &self.segments[..] else { return None };
        let head = only.head.as_ref()?;
        let behind_header = Lsn(head.base.0 + head.blocks_at);
        let nothing = (end.lsn, end.checksum) == (behind_header, head.checksum);
        head.header.cut.filter(|_| nothing)
    }
}

/// Takes out the last starts that wrote nothing, given where the log ends. The next start takes their place: its header
/// says all that theirs do. Returns where it continues, and their files. A node that fails again and again while it
/// starts thus leaves one file.
pub(super) fn without_empty(runs: &mut Vec<Run>, mut end: Cut) -> (Cut, Vec<Leftover>) {
    let mut files = Vec::new();
    while runs.len() > 1
        && let Some(before) = runs.last().and_then(|run| run.wrote_nothing(end))
    {
        let run = runs.pop().expect("there are two");
        files.extend(run.segments.into_iter().map(leftover));
        end = before;
    }
    (end, files)
}

/// The runs of the log in order, and the files behind a cut, which hold nothing that counts.
pub(super) fn runs(segments: Vec<Segment>) -> (Vec<Run>, Vec<Leftover>) {
    let mut starts: Vec<Vec<Segment>> = Vec::new();
    for segment in segments {
        match starts.last_mut() {
            Some(run) if run[0].name.start == segment.name.start => run.push(segment),
            _ => starts.push(vec![segment]),
        }
    }
    let mut runs = Vec::new();
    let mut orphans = Vec::new();
    let mut next = starts.pop().map(|segments| Run { segments, limit: None });
    while let Some(run) = next.take() {
        let head = run.segments[0].head.as_ref().map(|head| &head.header);
        let (limit, continues) = match head {
            // Nothing is known of the end of the start before, or that there was none.
            None => (None, true),
            // The first segment of a start has the cut, if there is one.
            Some(header) => (header.cut, header.cut.is_some()),
        };
        runs.push(run);
        while let Some(mut segments) = starts.pop_if(|_| continues) {
            let known =
                |segment: &Segment| limit.is_none_or(|c| segment.name.sequence <= c.sequence);
            let behind = segments.partition_point(known);
            orphans.extend(segments.drain(behind..).map(leftover));
            if !segments.is_empty() {
                next = Some(Run { segments, limit });
                break;
            }
        }
    }
    let forgotten = starts.into_iter().flatten();
    orphans.extend(forgotten.map(leftover));
    runs.reverse();
    (runs, orphans)
}

fn leftover(segment: Segment) -> Leftover {
    Leftover { file: FileName::Segment(segment.name), length: segment.length, unnamed: false }
}
