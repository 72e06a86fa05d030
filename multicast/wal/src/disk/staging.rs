//! The ring between an engine and the disk threads: what the engine asked for, in order, as bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::format::{put, u16_at, u32_at, u64_at};
use crate::{AppendError, Group, Lsn, Writer};

const HEAD_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Record { kind: u8 },
    Table,
    KeepRecord,
    KeepLsn,
    Begin,
}

impl Request {
    fn code(self) -> (u8, u8) {
        match self {
            Self::Record { kind } => (1, kind),
            Self::Table => (2, 0),
            Self::KeepRecord => (3, 0),
            Self::KeepLsn => (4, 0),
            Self::Begin => (5, 0),
        }
    }

    fn of(code: u8, kind: u8) -> Self {
        match code {
            1 => Self::Record { kind },
            2 => Self::Table,
            3 => Self::KeepRecord,
            4 => Self::KeepLsn,
            5 => Self::Begin,
            _ => unreachable!("the other end of the ring is in this file"),
        }
    }
}

/// The engine's end. Pushing is one copy, without a lock or a system call.
#[derive(Debug)]
pub(super) struct Stage {
    ring: Producer<u8>,
    wanted: Arc<AtomicBool>,
}

impl Stage {
    /// The longest request that is sure to fit an empty ring of this size.
    pub(super) fn bytes_max(ring_bytes: usize) -> usize {
        ring_bytes.saturating_sub(HEAD_BYTES)
    }

    /// Asks the disk threads to take what is in the ring.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Puts a request into the ring whole, or not at all if it does not fit now.
    pub(super) fn push(&mut self, request: Request, group: Group, parts: &[&[u8]]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(mut chunk) = self.ring.write_chunk(HEAD_BYTES + length) else { return false };
        let mut head = [0; HEAD_BYTES];
        (head[0], head[1]) = request.code();
        put(&mut head, 2, &group.0.to_le_bytes());
        put(&mut head, 4, &(length as u32).to_le_bytes());
        let (mut first, mut second) = chunk.as_mut_slices();
        for mut part in [&head[..]].into_iter().chain(parts.iter().copied()) {
            // The chunk is in two pieces where the ring ends.
            let fits = part.len().min(first.len());
            let (now, rest) = std::mem::take(&mut first).split_at_mut(fits);
            now.copy_from_slice(&part[..fits]);
            part = &part[fits..];
            first = rest;
            if !part.is_empty() {
                let (now, rest) = std::mem::take(&mut second).split_at_mut(part.len());
                now.copy_from_slice(part);
                second = rest;
            }
        }
        chunk.commit_all();
        true
    }
}

/// Records of a lane in one block: when `lsn` is durable, all up to `number` are.
#[derive(Clone, Copy, Debug)]
struct Mark {
    lsn: Lsn,
    number: u64,
}

/// The disk threads' end of one engine's ring, and which of its records are where.
#[derive(Debug)]
pub(super) struct Lane {
    ring: Consumer<u8>,
    /// Set by the other end, which has put something into the ring before: it is to be taken.
    wanted: Arc<AtomicBool>,
    /// Records taken, which is the number of the last one.
    taken: u64,
    /// The last record of each block that is not durable. `lsn` and `number` rise.
    marks: std::collections::VecDeque<Mark>,
    /// For each segment that may be needed, the number of the first record taken in it, and its base.
    segments: std::collections::VecDeque<(u64, Lsn)>,
}

/// How taking from a ring ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The ring is empty.
    All,
    /// The log is busy, or failed.
    Blocked,
    Failed(AppendError),
}

/// A ring of so many bytes; `marks_max` is the most blocks that are not durable.
pub(super) fn lane(ring_bytes: usize, marks_max: usize) -> (Stage, Lane) {
    let (producer, consumer) = RingBuffer::new(ring_bytes);
    let marks = std::collections::VecDeque::with_capacity(marks_max);
    let segments = std::collections::VecDeque::new();
    let wanted = Arc::new(AtomicBool::new(false));
    let stage = Stage { ring: producer, wanted: Arc::clone(&wanted) };
    (stage, Lane { ring: consumer, wanted, taken: 0, marks, segments })
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether the other end asks for what is in the ring to be taken.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Hands everything in the ring to the writer. What the writer does not take now stays wanted.
    pub(super) fn take(&mut self, writer: &mut Writer) -> Taken {
        // Before the ring is read: what is put into it and wanted from here on is found the next time.
        self.wanted.swap(false, Ordering::AcqRel);
        let taken = self.take_all(writer);
        if taken == Taken::Blocked {
            self.wanted.store(true, Ordering::Release);
        }
        taken
    }

    fn take_all(&mut self, writer: &mut Writer) -> Taken {
        loop {
            let Ok(chunk) = self.ring.read_chunk(HEAD_BYTES) else { return Taken::All };
            let (a, b) = chunk.as_slices();
            let mut head = [0; HEAD_BYTES];
            put(&mut head, 0, a);
            put(&mut head, a.len(), b);
            let length = u32_at(&head, 4) as usize;
            let whole = self.ring.read_chunk(HEAD_BYTES + length);
            let chunk = whole.expect("requests are put in whole");
            let (a, b) = chunk.as_slices();
            let parts = match a.split_at_checked(HEAD_BYTES) {
                Some((_, a)) => [a, b],
                None => [&b[HEAD_BYTES - a.len()..], &[]],
            };
            let (request, group) = (Request::of(head[0], head[1]), Group(u16_at(&head, 2)));
            let done = match request {
                Request::Record { kind } => writer.append(group, kind, &parts).map(Some),
                Request::Table => {
                    let mut table = [0; crate::format::TABLE_BYTES_MAX];
                    writer.table(group, joined(&parts, &mut table)).map(|()| None)
                }
                Request::Begin => writer.begin(group).map(|()| None),
                Request::KeepLsn | Request::KeepRecord => {
                    let number = u64_at(joined(&parts, &mut [0; 8]), 0);
                    let lsn = match request {
                        Request::KeepLsn => Lsn(number),
                        _ => base_of(&self.segments, number),
                    };
                    writer.keep_from(group, lsn);
                    Ok(None)
                }
            };
            match done {
                Ok(lsn) => {
                    chunk.commit_all();
                    if let Some(lsn) = lsn {
                        self.note(lsn, writer);
                    }
                }
                // Whoever had the error of a write or a task tells it.
                Err(AppendError::Busy | AppendError::Failed) => return Taken::Blocked,
                Err(error) => return Taken::Failed(error),
            }
        }
    }

    /// The number up to which all records are durable, if it has changed.
    pub(super) fn settle(&mut self, durable: Lsn) -> Option<u64> {
        let mut settled = None;
        while let Some(mark) = self.marks.front().filter(|mark| mark.lsn < durable) {
            settled = Some(mark.number);
            self.marks.pop_front();
        }
        settled
    }

    fn note(&mut self, lsn: Lsn, writer: &Writer) {
        self.taken += 1;
        let mark = Mark { lsn, number: self.taken };
        match self.marks.back_mut().filter(|last| last.lsn >= writer.forming()) {
            Some(last) => *last = mark,
            None => self.marks.push_back(mark),
        }
        let base = writer.segment_base();
        if self.segments.back().is_none_or(|&(_, last)| last != base) {
            self.segments.push_back((self.taken, base));
            while self.segments.len() > 1 && self.segments[1].1 <= writer.recyclable() {
                self.segments.pop_front();
            }
        }
    }
}

/// The base of the segment that has the record of this number, or that of an older one.
fn base_of(segments: &std::collections::VecDeque<(u64, Lsn)>, number: u64) -> Lsn {
    let at = segments.partition_point(|&(first, _)| first <= number);
    at.checked_sub(1).map_or(Lsn::NONE, |at| segments[at].1)
}

fn joined<'a>(parts: &[&[u8]; 2], into: &'a mut [u8]) -> &'a [u8] {
    put(into, 0, parts[0]);
    put(into, parts[0].len(), parts[1]);
    &into[..parts[0].len() + parts[1].len()]
}

#[cfg(test)]
mod tests;
