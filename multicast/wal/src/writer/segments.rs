//! Which segments there are: the current one, its successor, those still needed, and spare files.

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Options, Origin, Sizes, Task};
use crate::Lsn;
use crate::files::{FileName, SegmentName};
use crate::format::BLOCK;

/// A segment that was written and may be needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptSegment {
    pub(crate) name: SegmentName,
    /// Of its file, in bytes.
    pub(crate) length: u64,
    /// No record of it is at or above this.
    pub(crate) end: Lsn,
}

/// A file that holds nothing that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftover {
    pub(crate) file: FileName,
    /// In bytes. Another length than a segment's if it was the first of a start, or its making was cut short.
    pub(crate) length: u64,
    /// Nothing on disk names it, so the next recovery does not miss it.
    pub(crate) unnamed: bool,
}

impl Leftover {
    pub(crate) fn sequence(&self) -> u64 {
        match self.file {
            FileName::Segment(SegmentName { sequence, .. }) | FileName::Spare(sequence) => sequence,
        }
    }
}

/// A header that is written: when it is durable, what lies below `needed` may go.
#[derive(Clone, Copy, Debug)]
struct HeaderOnItsWay {
    end: Lsn,
    needed: Lsn,
}

#[derive(Clone, Copy, Debug)]
enum Successor {
    /// To be prepared.
    Wanted,
    /// Handed out to be prepared.
    Preparing,
    Ready(Open),
}

/// A segment that is written, or prepared to be the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) name: SegmentName,
    /// Of its file, in bytes.
    pub(super) length: u64,
}

/// How many segments were kept at once lately. Spare files for as many again save making new ones, which costs as much of
/// the disk as the log that is written to them.
///
/// **Invariant.** `most` is at least the number kept when the last segment was entered.
#[derive(Clone, Copy, Debug)]
struct Peak {
    most: usize,
    /// Segments entered since there were as many.
    since: usize,
}

impl Peak {
    const fn new(most: usize) -> Self {
        Self { most, since: 0 }
    }

    /// Notes that a segment was entered, and so many are kept. When there were fewer for long, it falls by a quarter.
    fn entered(&mut self, kept: usize) {
        self.since += 1;
        if kept < self.most && self.since > 2 * self.most {
            self.most -= self.most.div_ceil(4);
            self.since = 0;
        }
        if kept >= self.most {
            *self = Self::new(kept);
        }
    }

    /// How many more there were than these.
    const fn above(&self, kept: usize) -> usize {
        self.most.saturating_sub(kept)
    }
}

/// The files of the log. Segments go in the order in which they were written.
///
/// `kept` ends rise; `kept[..].end <= base of current`; once tasks are done, `spares.len()` is at most `spare_max`, or
/// what [`Peak`] leaves room for.
#[derive(Debug)]
pub(super) struct Segments {
    start: u64,
    entropy: u64,
    /// Length of a segment's file, and that of the first of this start.
    bytes: u64,
    first_bytes: u64,
    spare_max: usize,
    /// Sequence of the next segment to prepare.
    next_sequence: u64,
    current: Option<Open>,
    successor: Successor,
    kept: VecDeque<KeptSegment>,
    /// Files to use again or remove, the oldest first: an old segment that went before an older one would
    /// be missed. Not touched before the first header is durable: until then, the next recovery reads what
    /// this one did, and a segment that a link names must be there. Only where there is no space for a first segment,
    /// one that is unnamed takes its place.
    spares: VecDeque<Leftover>,
    /// There was no space for the first segment.
    no_space_to_begin: bool,
    peak: Peak,
    headers: VecDeque<HeaderOnItsWay>,
    /// What lies below this is not needed, and a durable header says so.
    recyclable: Lsn,
    header_durable_once: bool,
    recycled: u64,
}

impl Segments {
    pub(super) fn new(options: &Options, origin: &Origin) -> Self {
        Self {
            start: origin.start,
            entropy: origin.entropy,
            bytes: options.segment_bytes,
            first_bytes: options.first_bytes,
            spare_max: options.spare_max,
            next_sequence: origin.sequence,
            current: None,
            successor: Successor::Wanted,
            kept: origin.kept.clone(),
            spares: origin.leftovers.iter().copied().collect(),
            no_space_to_begin: false,
            // The start before needed as many.
            peak: Peak::new(
                options.files_max.min(origin.kept.len() + fitting(&origin.leftovers, options)),
            ),
            headers: VecDeque::new(),
            recyclable: Lsn::NONE,
            header_durable_once: false,
            recycled: 0,
        }
    }

    pub(super) fn header_durable_once(&self) -> bool {
        self.header_durable_once
    }

    /// The file of the segment that is written.
    pub(super) fn current(&self) -> Option<FileName> {
        self.current.map(|open| FileName::Segment(open.name))
    }

    /// The prepared successor.
    pub(super) fn successor(&self) -> Option<Open> {
        match self.successor {
            Successor::Ready(open) => Some(open),
            Successor::Wanted | Successor::Preparing => None,
        }
    }

    pub(super) fn ready(&self) -> bool {
        self.successor().is_some()
    }

    /// Goes on to the successor, which begins at `base` and whose table says that nothing below
    /// `needed` is.
    pub(super) fn enter(&mut self, base: Lsn, needed: Lsn) -> Open {
        let entered = self.successor().expect("asked before");
        if let Some(Open { name, length }) = self.current.replace(entered) {
            self.kept.push_back(KeptSegment { name, length, end: base });
        }
        if self.header_durable_once {
            // Before that, what no group needs any more counts as kept.
            self.peak.entered(self.kept.len());
        }
        self.successor = Successor::Wanted;
        self.headers.push_back(HeaderOnItsWay { end: base, needed });
        entered
    }

    /// The header just entered ends here.
    pub(super) fn header_ends(&mut self, end: Lsn) {
        self.headers.back_mut().expect("just entered").end = end;
    }

    /// Everything below `durable` is.
    pub(super) fn durable(&mut self, durable: Lsn) {
        while let Some(header) = self.headers.front().filter(|header| header.end <= durable) {
            self.recyclable = self.recyclable.max(header.needed);
            self.header_durable_once = true;
            self.headers.pop_front();
        }
        // One old segment stays: a log whose only header is damaged must not look like a new one.
        while self.kept.len() > 1 && self.kept[0].end <= self.recyclable {
            let old = self.kept.pop_front().expect("there are two");
            let file = FileName::Segment(old.name);
            self.spares.push_back(Leftover { file, length: old.length, unnamed: true });
            self.recycled += 1;
        }
    }

    /// How many segments a header frees that says that nothing below `needed` is.
    pub(super) fn freed_by(&self, needed: Lsn) -> usize {
        let freed = self.kept.iter().take_while(|segment| segment.end <= needed).count();
        freed.min(self.kept.len().saturating_sub(1))
    }

    pub(super) fn recyclable(&self) -> Lsn {
        self.recyclable
    }

    pub(super) fn has_task(&self) -> bool {
        matches!(self.successor, Successor::Wanted) || self.crowded() || self.retiring().is_some()
    }

    /// The oldest segment that nobody needs and that has its name still.
    fn retiring(&self) -> Option<SegmentName> {
        let mut spares = self.spares.iter().filter(|_| self.header_durable_once);
        spares.find_map(|spare| match spare.file {
            FileName::Segment(segment) => Some(segment),
            FileName::Spare(_) => None,
        })
    }

    /// Whether the oldest spare file is to be removed: there are too many, or it does not fit.
    fn crowded(&self) -> bool {
        let most = self.spare_max.max(self.peak.above(self.kept.len()));
        self.misfit() || self.header_durable_once && self.spares.len() > most
    }

    /// Whether the oldest spare file is to be removed because it does not fit. It goes before anything else: it stands in
    /// front of those that fit, and may take the space of a new one.
    fn misfit(&self) -> bool {
        let oldest = self.spares.front();
        self.header_durable_once && oldest.is_some_and(|oldest| oldest.length != self.bytes)
    }

    pub(super) fn next_task(&mut self) -> Option<Task> {
        let wanted = matches!(self.successor, Successor::Wanted);
        if wanted && !self.misfit() {
            self.successor = Successor::Preparing;
            let name = self.name(self.next_sequence);
            let (reuse, bytes) = match (self.reusable(), self.current) {
                (Some(Leftover { file, length, .. }), _) => (Some(file), length),
                (None, None) => (None, self.first_bytes),
                (None, Some(_)) => (None, self.bytes),
            };
            return Some(Task::Prepare { name, reuse, bytes });
        }
        if self.crowded() {
            let Leftover { file, .. } = self.spares.pop_front().expect("a crowd");
            return Some(Task::Remove { file });
        }
        self.retiring().map(|segment| Task::Retire { segment })
    }

    /// The file that becomes the next segment, if there is one for it.
    fn reusable(&mut self) -> Option<Leftover> {
        if self.header_durable_once {
            return self.spares.pop_front_if(|oldest| oldest.length == self.bytes);
        }
        let at = self.unnamed()?;
        self.no_space_to_begin.then(|| self.spares.remove(at).expect("it is there"))
    }

    /// A file in which this start can begin if there is no space for another.
    fn unnamed(&self) -> Option<usize> {
        let fits = |spare: &Leftover| {
            let whole = spare.length.is_multiple_of(BLOCK as u64);
            spare.unnamed && whole && spare.length >= self.first_bytes
        };
        self.spares.iter().position(fits)
    }

    pub(super) fn performed(&mut self, task: Task) {
        match task {
            Task::Prepare { name, bytes: length, .. } => {
                self.next_sequence += 1;
                self.successor = Successor::Ready(Open { name, length });
            }
            Task::Retire { segment } => {
                let named = FileName::Segment(segment);
                for spare in self.spares.iter_mut().filter(|spare| spare.file == named) {
                    spare.file = FileName::Spare(segment.sequence);
                }
            }
            Task::Remove { .. } => {}
        }
    }

    /// There was no space for a task, which is done again from its beginning. A file that was to be used again is still
    /// there.
    pub(super) fn postpone(&mut self, task: Task) {
        match task {
            Task::Prepare { reuse, bytes: length, .. } => {
                self.successor = Successor::Wanted;
                self.no_space_to_begin |= self.current.is_none();
                if let Some(file) = reuse {
                    self.spares.push_front(Leftover { file, length, unnamed: true });
                }
            }
            Task::Retire { .. } => {}
            Task::Remove { file } => {
                self.spares.push_front(Leftover { file, length: 0, unnamed: true });
            }
        }
    }

    /// Whether the first segment, for which there was no space, can be made of a file that is there.
    pub(super) fn begins_without_space(&self) -> bool {
        self.current.is_none() && self.no_space_to_begin && self.unnamed().is_some()
    }

    pub(super) fn sizes(&self) -> Sizes {
        let segments = self.kept.len() + usize::from(self.current.is_some());
        let kept: u64 = self.kept.iter().map(|segment| segment.length).sum();
        let bytes = kept + self.current.map_or(0, |open| open.length);
        let spares: u64 = self.spares.iter().map(|spare| spare.length).sum();
        Sizes {
            segments,
            bytes,
            files_bytes: bytes + spares + self.successor().map_or(0, |open| open.length),
            recycled: self.recycled,
            spares: self.spares.len(),
        }
    }

    fn name(&self, sequence: u64) -> SegmentName {
        let salt = xxh3_64_with_seed(&sequence.to_le_bytes(), self.entropy);
        SegmentName { sequence, start: self.start, salt }
    }
}

/// How many files can be segments.
fn fitting(leftovers: &[Leftover], options: &Options) -> usize {
    leftovers.iter().filter(|leftover| leftover.length == options.segment_bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_segments_are_kept_for_later_as_were_needed_lately() {
        let mut peak = Peak::new(0);
        (1..=20).for_each(|kept| peak.entered(kept));
        assert_eq!((peak.above(20), peak.above(8)), (0, 12), "twelve were recycled");
        for _ in 0..5 {
            (9..=20).for_each(|kept| peak.entered(kept));
        }
        assert_eq!(peak.above(8), 12, "they are needed each time");
        (0..=40).for_each(|_| peak.entered(8));
        assert_eq!(peak.above(8), 7, "they were not, while twice as many were written");
        (0..1000).for_each(|_| peak.entered(8));
        assert_eq!(peak.above(8), 0, "the disk has its space back");
    }
}
