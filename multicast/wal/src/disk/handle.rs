//! What an engine holds of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::sleepers::Sleepers;
use super::staging::{Request, Stage};
use crate::{Group, Lsn};

/// What the disk threads tell one engine. Written by them, read by it.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// All records up to this number are durable. Never falls.
    pub(super) durable: AtomicU64,
    /// The durable end of the log, of all engines together. Never falls.
    pub(super) log_end: AtomicU64,
    /// Bytes of the segments that are needed, of all engines together, when the last one was made.
    pub(super) log_bytes: AtomicU64,
    /// Nothing will be durable any more.
    pub(super) failed: AtomicBool,
}

impl Told {
    /// Before the first record, when the log ends here.
    pub(super) fn at(end: Lsn) -> Self {
        Self { log_end: AtomicU64::new(end.0), ..Self::default() }
    }
}

/// The durable end of the log, for a thread beside an engine's. Clones are the same, and each look is a load.
#[derive(Clone, Debug)]
pub struct LogEnd(Arc<Told>);

impl LogEnd {
    /// The durable end of the log, of all engines together. What is below it can be read.
    pub fn get(&self) -> Lsn {
        Lsn(self.0.log_end.load(Ordering::Acquire))
    }
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// The disk threads are behind, or have no space. Try again after the next wake-up.
    #[error("the ring to the disk threads is full")]
    Full,
    #[error("{length} bytes are more than the {max} that may go to the log at once")]
    TooLong { length: usize, max: usize },
    #[error("the log failed, and takes nothing more")]
    Failed,
}

/// One engine's way to the log. Its calls take no lock, allocate nothing, and make no system call
/// unless a disk thread sleeps and has to be woken.
///
/// Requests are done in order. Records are numbered from 1 in this handle; `durable() <= appended()`.
#[derive(Debug)]
pub struct Handle {
    pub(super) stage: Stage,
    pub(super) told: Arc<Told>,
    pub(super) sleepers: Arc<Sleepers>,
    pub(super) appended: u64,
    pub(super) record_bytes_max: usize,
    pub(super) table_bytes_max: usize,
}

impl Handle {
    /// Appends a record, whose bytes are the parts one after the other, and returns its number. It
    /// is written with the next that an engine wants to be, see [`flush`](Self::flush).
    pub fn append(&mut self, group: Group, kind: u8, parts: &[&[u8]]) -> Result<u64, StageError> {
        let request = Request::Record { kind };
        self.push(request, group, parts, self.record_bytes_max)?;
        self.appended += 1;
        Ok(self.appended)
    }

    /// Asks for everything that was appended to be written, as soon as a disk thread is free.
    pub fn flush(&self) {
        self.stage.want();
        self.sleepers.wake_one();
    }

    /// Number of the last record.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Every record up to this number survives the loss of power.
    pub fn durable(&self) -> u64 {
        self.told.durable.load(Ordering::Acquire)
    }

    /// The durable end of the log, of all engines together.
    pub fn log_end(&self) -> Lsn {
        Lsn(self.told.log_end.load(Ordering::Relaxed))
    }

    /// The same, to be looked at by another thread.
    pub fn shared_log_end(&self) -> LogEnd {
        LogEnd(Arc::clone(&self.told))
    }

    /// Bytes of the segments that are needed, of all engines together. Brought up to date when a segment is made or goes.
    pub fn log_bytes(&self) -> u64 {
        self.told.log_bytes.load(Ordering::Relaxed)
    }

    /// Whether a write failed. Nothing becomes durable then, and the process ought to end.
    pub fn failed(&self) -> bool {
        self.told.failed.load(Ordering::Acquire)
    }

    /// Sets what the next segment's header says of the group; see
    /// [`Writer::table`](crate::Writer::table).
    pub fn table(&mut self, group: Group, bytes: &[u8]) -> Result<(), StageError> {
        self.request(Request::Table, group, &[bytes], self.table_bytes_max)
    }

    /// The group needs none of this handle's records before this number.
    pub fn keep_from_record(&mut self, group: Group, number: u64) -> Result<(), StageError> {
        self.request(Request::KeepRecord, group, &[&number.to_le_bytes()], 8)
    }

    /// The group needs nothing below this place.
    pub fn keep_from(&mut self, group: Group, lsn: Lsn) -> Result<(), StageError> {
        self.request(Request::KeepLsn, group, &[&lsn.0.to_le_bytes()], 8)
    }

    /// The group begins anew with its next record; see [`Writer::begin`](crate::Writer::begin).
    pub fn begin(&mut self, group: Group) -> Result<(), StageError> {
        self.request(Request::Begin, group, &[], 0)
    }

    /// Pushes what is no record, and is to be done soon.
    fn request(
        &mut self,
        request: Request,
        group: Group,
        parts: &[&[u8]],
        max: usize,
    ) -> Result<(), StageError> {
        self.push(request, group, parts, max)?;
        self.flush();
        Ok(())
    }

    fn push(
        &mut self,
        request: Request,
        group: Group,
        parts: &[&[u8]],
        max: usize,
    ) -> Result<(), StageError> {
        let length = parts.iter().map(|part| part.len()).sum();
        if length > max {
            return Err(StageError::TooLong { length, max });
        }
        if self.failed() {
            return Err(StageError::Failed);
        }
        if !self.stage.push(request, group, parts) {
            self.flush();
            return Err(StageError::Full);
        }
        Ok(())
    }
}
