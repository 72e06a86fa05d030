//! Blocks from forming to durable.

use std::collections::VecDeque;

use super::groups::Groups;
use super::{Flush, Options};
use crate::Lsn;
use crate::aligned::{Aligned, Pool};
use crate::files::SegmentName;
use crate::format::{
    BLOCK, BlockHeader, BlockKind, HEADER_FIXED_BYTES, RecordHead, SegmentHeader, record_space,
};

/// The block that takes records. `BlockHeader::BYTES < used <= limit <= buffer.capacity()`, except
/// that it is as long as its header between being opened and its first record.
#[derive(Debug)]
struct Forming {
    buffer: Aligned,
    used: usize,
    limit: usize,
}

#[derive(Debug)]
struct Waiting {
    flush: Flush,
    end: Lsn,
    header: bool,
}

#[derive(Debug)]
struct InFlight {
    id: u64,
    end: Lsn,
    done: bool,
}

/// Blocks in the order of the log: durable, in flight, waiting, forming.
///
/// `told <= durable <= end`, and `records_end <= end`.
#[derive(Debug)]
pub(super) struct Blocks {
    cluster: [u8; 16],
    /// Length of the current segment's file; 0 before the first.
    segment_bytes: u64,
    in_flight_max: usize,
    pool: Pool,
    segment: Option<SegmentName>,
    /// Place of the current segment's first byte.
    base: Lsn,
    /// Where the forming block begins, or the next block will. `base <= end`.
    end: Lsn,
    /// Checksum of the last closed block.
    previous: u64,
    forming: Option<Forming>,
    waiting: VecDeque<Waiting>,
    in_flight: VecDeque<InFlight>,
    next_id: u64,
    /// The header that is being written. Nothing behind it is until it is.
    header: Option<u64>,
    durable: Lsn,
    /// What the last closed block says is durable. `told <= durable`.
    told: Lsn,
    /// End of the last block with records.
    records_end: Lsn,
}

impl Blocks {
    pub(super) fn new(options: &Options, cluster: [u8; 16], base: Lsn, previous: u64) -> Self {
        Self {
            cluster,
            segment_bytes: 0,
            in_flight_max: options.in_flight_max,
            pool: Pool::new(
                options.block_bytes_max,
                options.in_flight_max + options.waiting_max + 1,
            ),
            segment: None,
            base,
            end: base,
            previous,
            forming: None,
            waiting: VecDeque::with_capacity(options.waiting_max),
            in_flight: VecDeque::with_capacity(options.in_flight_max),
            next_id: 0,
            header: None,
            durable: base,
            told: base,
            records_end: base,
        }
    }

    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    pub(super) fn base(&self) -> Lsn {
        self.base
    }

    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn busy(&self) -> bool {
        self.forming.is_some() || !self.waiting.is_empty() || !self.in_flight.is_empty()
    }

    /// Whether records are durable that no block on disk says are.
    pub(super) fn unsealed(&self) -> bool {
        self.told < self.records_end
    }

    /// Where the next record goes if it fits the forming block.
    pub(super) fn next_record(&self) -> Lsn {
        let used = self.forming.as_ref().map_or(BlockHeader::BYTES, |forming| forming.used);
        Lsn(self.end.0 + used as u64)
    }

    /// Whether the forming block takes so many bytes more.
    pub(super) fn fits(&self, space: usize) -> bool {
        self.forming.as_ref().is_some_and(|forming| forming.used + space <= forming.limit)
    }

    /// Bytes that blocks may still take of the segment, beside the link that ends it.
    pub(super) fn room(&self) -> usize {
        let used = self.end.0 - self.base.0 + BLOCK as u64;
        self.segment_bytes.saturating_sub(used) as usize
    }

    pub(super) fn open(&mut self, limit: usize) {
        assert!(self.forming.is_none() && limit <= self.room());
        let buffer = self.pool.take(limit);
        self.forming = Some(Forming { buffer, used: BlockHeader::BYTES, limit });
    }

    pub(super) fn put(&mut self, head: &RecordHead, parts: &[&[u8]]) {
        let forming = self.forming.as_mut().expect("room was made");
        let space = record_space(head.length as usize);
        let bytes = &mut forming.buffer.bytes_mut()[forming.used..forming.used + space];
        head.put(bytes, 0);
        let mut at = RecordHead::BYTES;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes[at..].fill(0);
        forming.used += space;
    }

    /// Closes the forming block, if there is one.
    pub(super) fn close(&mut self) {
        let Some(Forming { mut buffer, used, .. }) = self.forming.take() else { return };
        let length = used.next_multiple_of(BLOCK);
        buffer.bytes_mut()[used..length].fill(0);
        self.push(BlockKind::Records, buffer, used, length, 1);
        self.records_end = self.end;
    }

    /// Adds a block without contents.
    pub(super) fn push_empty(&mut self, kind: BlockKind) {
        let mut buffer = self.pool.take(BLOCK);
        buffer.bytes_mut()[..BLOCK].fill(0);
        self.push(kind, buffer, BlockHeader::BYTES, BLOCK, 1);
    }

    /// Closes what is forming and ends the segment. The room for the link was kept free.
    pub(super) fn push_link(&mut self, link: BlockKind) {
        self.close();
        self.push_empty(link);
    }

    /// Begins a segment with its header, twice: a single damaged block harms neither its table nor
    /// its identity.
    pub(super) fn enter(&mut self, name: SegmentName, header: &SegmentHeader, groups: &Groups) {
        self.segment = Some(name);
        self.segment_bytes = header.size;
        self.base = self.end;
        let length = groups.header_bytes();
        let mut buffer = self.pool.take(2 * length);
        let bytes = buffer.bytes_mut();
        bytes[..2 * length].fill(0);
        header.put_fixed(bytes, groups.len());
        let used = groups.put_table(&mut bytes[..length], HEADER_FIXED_BYTES);
        self.push(BlockKind::Header, buffer, used, length, 2);
    }

    pub(super) fn next_flush(&mut self) -> Option<Flush> {
        if self.in_flight.len() >= self.in_flight_max || self.header.is_some() {
            return None;
        }
        if self.waiting.is_empty() {
            self.close();
        }
        let Waiting { flush, end, header } = self.waiting.pop_front()?;
        if header {
            self.header = Some(flush.id);
        }
        self.in_flight.push_back(InFlight { id: flush.id, end, done: false });
        Some(flush)
    }

    pub(super) fn done(&mut self, flush: Flush) {
        if self.header == Some(flush.id) {
            self.header = None;
        }
        let place = self.in_flight.iter_mut().find(|write| write.id == flush.id);
        place.expect("it was handed out").done = true;
        while let Some(write) = self.in_flight.front().filter(|write| write.done) {
            self.durable = write.end;
            self.in_flight.pop_front();
        }
        self.pool.give(flush.buffer);
    }

    /// Seals the block at the beginning of `buffer`, repeats it `copies` times, and queues it.
    fn push(
        &mut self,
        kind: BlockKind,
        mut buffer: Aligned,
        used: usize,
        length: usize,
        copies: usize,
    ) {
        let segment = self.segment.expect("a segment began");
        let header = BlockHeader {
            kind,
            cluster: self.cluster,
            sequence: segment.sequence,
            lsn: self.end,
            previous: self.previous,
            acked_through: self.durable,
            length: length as u32,
            used: used as u32,
        };
        let bytes = buffer.bytes_mut();
        self.previous = header.seal(&mut bytes[..length], segment.salt);
        for copy in 1..copies {
            bytes.copy_within(..length, copy * length);
        }
        self.told = self.durable;
        let flush = Flush {
            id: self.next_id,
            file: segment,
            offset: self.end.0 - self.base.0,
            length: copies * length,
            buffer,
        };
        self.next_id += 1;
        self.end = Lsn(self.end.0 + (copies * length) as u64);
        let header = kind == BlockKind::Header;
        self.waiting.push_back(Waiting { flush, end: self.end, header });
    }
}
