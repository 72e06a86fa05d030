//! A log of restore points in memory, of which a first part is on disk.

use std::sync::{Arc, Mutex, MutexGuard};

use skein_kvstore::points::{Holds, PointEnd, PointLog, PointRecord, Points, Progress, Returning};
use skein_kvstore::store::memory::Memory;

use crate::cluster::Random;

/// Kinds and bytes.
pub(crate) type Records = Vec<(u8, Vec<u8>)>;

/// The log of one replica. Clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct Tape(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    generation: u32,
    records: Records,
    /// Records in front of this one are dropped.
    first: usize,
    /// So many records are on disk.
    durable: usize,
    progress: Progress,
}

impl Content {
    fn append(&mut self, record: &PointRecord<'_>) -> u64 {
        let bytes = record.encode(|kind, bytes| {
            self.records.push((kind, bytes.to_vec()));
            bytes.len()
        });
        self.progress.wrote(bytes as u64);
        self.records.len() as u64
    }
}

impl Tape {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().expect("nobody panics with a tape in hand")
    }

    /// More of it is on disk.
    pub(crate) fn flush(&self, random: &mut Random) {
        let mut content = self.content();
        let more = content.records.len() - content.durable;
        content.durable += random.below(more + 1);
        let durable = content.durable as u64;
        content.progress.reached(durable);
    }

    /// All of it is on disk.
    pub(crate) fn sync(&self) {
        let mut content = self.content();
        content.durable = content.records.len();
        let durable = content.durable as u64;
        content.progress.reached(durable);
    }

    /// What its disk holds.
    pub(crate) fn holds(&self, (group, slot): (u16, u8)) -> Option<Holds> {
        let (from, to) = self.content().progress.held()?;
        Some(Holds { group, slot, from, to })
    }

    /// Power is lost: what was being written may be on disk. The cluster returns for the `generation`th time.
    pub(crate) fn lose_power(&self, generation: u32, random: &mut Random) {
        self.flush(random);
        let mut content = self.content();
        let durable = content.durable;
        content.records.truncate(durable);
        (content.generation, content.progress) = (generation, Progress::default());
    }

    /// The disk is gone, and another one is in its place. Returns what it held.
    pub(crate) fn lose_disk(&self, generation: u32, other: Option<Records>) -> Records {
        let records = other.unwrap_or_default();
        let durable = records.len();
        let mut content = self.content();
        let next = Content { generation, records, durable, ..Content::default() };
        let gone = std::mem::replace(&mut *content, next);
        gone.records[gone.first..].to_vec()
    }

    /// The points to which it leads: generation and end.
    pub(crate) fn ends(&self) -> Vec<(u32, PointEnd)> {
        let (content, mut points) = (self.content(), Points::default());
        let records = content.records[content.first..].iter();
        let decoded = records.map(|(kind, bytes)| PointRecord::decode(*kind, bytes).unwrap());
        decoded
            .filter_map(|record| points.take(&record).map(|(of, end)| (of, end.clone())))
            .collect()
    }

    /// Generation and number of the points to which it leads.
    pub(crate) fn points(&self) -> Vec<(u32, u64)> {
        self.ends().into_iter().map(|(of, end)| (of, end.number)).collect()
    }

    /// The state at one of its points.
    pub(crate) fn state(&self, (generation, number): (u32, u64)) -> (Memory, PointEnd) {
        let content = self.content();
        let mut returning = Returning::new(Memory::default(), generation, number);
        for (kind, bytes) in &content.records[content.first..] {
            let record = PointRecord::decode(*kind, bytes).unwrap();
            returning.take(&record).expect("a good record");
        }
        returning.finish().expect("it leads there")
    }
}

impl PointLog for Tape {
    fn begin(&mut self, anew: bool) {
        let mut content = self.content();
        let generation = content.generation;
        let position = content.append(&PointRecord::Begin { generation, anew });
        content.progress.begins(position, anew);
    }

    fn write(&mut self, records: &[u8]) {
        self.content().append(&PointRecord::Pairs(records));
    }

    fn end(&mut self, end: PointEnd) {
        let mut content = self.content();
        let (number, whole, bytes, floor) = (end.number, end.whole, end.bytes, end.floor);
        let position = content.append(&PointRecord::End(end));
        content.progress.ends(position, number, whole, bytes);
        if let Some(position) = content.progress.drops(floor) {
            content.first = position as usize - 1;
        }
    }

    fn saved(&mut self, _: u64, _: bool) {}

    fn takes_commands(&self) -> bool {
        true
    }

    fn copy_bytes(&self) -> usize {
        64
    }

    fn is_copy_due(&self) -> bool {
        self.content().progress.is_copy_due(200)
    }
}
