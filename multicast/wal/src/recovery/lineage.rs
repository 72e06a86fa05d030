//! Which segments belong to the log: each start continues where its header says that the one before
//! was cut.

use super::inventory::Segment;
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
            Some(header) => (header.cut, header.first && header.cut.is_some()),
        };
        runs.push(run);
        while let Some(mut segments) = starts.pop().filter(|_| continues) {
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
    Leftover { file: FileName::Segment(segment.name), length: segment.length }
}
