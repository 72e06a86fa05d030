//! The part of our log in front of a state, on disk.
//!
//! A state stands for the log in front of it, but not for everybody: a replica that lags and has applied more than the
//! state needs that log, and [every replica that may lead](super::reach) has it in memory. So whoever begins with what its
//! disk holds must find it there. It is written behind a snapshot, and when a leader has written it in front of a state
//! that we received. It is at most a ring.

use std::ops::Range;

use skein_fabric::Fabric;
use skein_protocol::group::frame::{Cursor, PREAMBLE};
use skein_protocol::mutants::{Mutant, planted};

use super::memory::LogMemory;
use crate::application::Application;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica::on_disk::DiskRecord;
use crate::replica_links::ReplicaLinks;

/// Bytes of a record, at most.
const PIECE_BYTES: u64 = 256 << 10;

impl LogMemory {
    /// Takes bytes of our log that stood in memory from a position on, in front of the state with which our log
    /// begins. Returns `None` if they have no place there.
    pub(in crate::replica) fn put_earlier<F: Fabric>(
        &mut self,
        from: u64,
        bytes: &[u8],
        fabric: &mut F,
    ) -> Option<()> {
        let (to, end) = (from.checked_add(bytes.len() as u64)?, self.runs.end().position);
        if to > end || end - from > self.space.capacity() {
            return None;
        }
        let spans = self.spans(from..to);
        let (first, second) = bytes.split_at(spans[0].len());
        fabric.copy_in(self.region, PREAMBLE + spans[0].start, first);
        fabric.copy_in(self.region, PREAMBLE + spans[1].start, second);
        self.filled_from = Some(self.filled_from.map_or(from, |filled| filled.min(from)));
        Some(())
    }

    /// The bytes of a part of our log, as they stand in memory.
    fn bytes_of<F: Fabric>(&self, part: Range<u64>, fabric: &F) -> Vec<u8> {
        let mut bytes = vec![0; (part.end - part.start) as usize];
        let spans = self.spans(part);
        let (first, second) = bytes.split_at_mut(spans[0].len());
        fabric.copy_out(self.region, PREAMBLE + spans[0].start, first);
        fabric.copy_out(self.region, PREAMBLE + spans[1].start, second);
        bytes
    }

    fn spans(&self, part: Range<u64>) -> [Range<usize>; 2] {
        let len = part.end - part.start;
        skein_protocol::ring::spans(self.space.capacity(), part.start, len)
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Writes to disk what our memory holds of our log in front of its committed end.
    pub(in crate::replica) fn record_earlier<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let from = self.memory.found_from(&links.endpoint.fabric).position;
        self.record_part(from..self.memory.commit_end().position, links);
    }

    /// Writes to disk what our leader has written in front of the state that we received, once all of it is there. That is
    /// certain if something `follows`, which is written later.
    #[inline]
    pub(in crate::replica) fn record_filled<F: Fabric>(
        &mut self,
        follows: bool,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if self.reader.is_filled {
            self.record_front(follows, links);
        }
    }

    #[inline(never)]
    fn record_front<F: Fabric>(&mut self, follows: bool, links: &mut ReplicaLinks<F, O>) {
        let memory = &self.memory;
        let begin = memory.filled(&links.endpoint.fabric);
        let is_first = |begin: &Cursor| {
            let position = memory.filled_from.unwrap_or(0);
            begin.position <= memory.place(Cursor { index: 0, position }).position
        };
        let begin = begin.filter(|begin| follows || is_first(begin));
        self.reader.is_filled = !follows && begin.is_none();
        if let Some(begin) = begin {
            self.record_part(begin.position..self.memory.begun_at.position, links);
            self.reader.begun_on_disk = self.last_on_disk();
        }
    }

    fn record_part<F: Fabric>(&mut self, part: Range<u64>, links: &mut ReplicaLinks<F, O>) {
        if planted(Mutant::EarlierLogNotOnDisk) {
            return;
        }
        let mut from = part.start;
        while from < part.end {
            let to = part.end.min(from + PIECE_BYTES);
            let bytes = self.memory.bytes_of(from..to, &links.endpoint.fabric);
            self.record(DiskRecord::Earlier { from, bytes: &bytes }, links);
            from = to;
        }
    }
}
