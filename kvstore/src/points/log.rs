//! The records of a replica's log of points, and reading them back.

use serde::{Deserialize, Serialize};

use crate::backup::Record;
use crate::command::Version;
use crate::slots::SlotMap;
use crate::store::{Found, Store};
use crate::wire::{Unreadable, append, whole};

/// The end of a point in a replica's log, and what the state there amounts to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointEnd {
    /// Number of the point.
    pub number: u64,
    /// No key of the group has a higher version.
    pub version: Version,
    /// It closed the cluster.
    pub closes: bool,
    /// The newest point that was known to be on the disks of f+1 replicas of every group.
    pub floor: u64,
    /// The copy of the whole state that was begun last has ended.
    pub whole: bool,
    /// Number of keys.
    pub keys: u64,
    /// Length of all keys and values.
    pub bytes: u64,
    /// Sum of [`Record::digest`] over all pairs, modulo 2^64.
    pub digest: u64,
    /// The map of hash slots.
    pub slots: SlotMap,
}

/// A record of a replica's log of points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointRecord<'a> {
    /// A copy of the whole state begins.
    Begin {
        /// Which return of the cluster it belongs to; 0 before the first one.
        generation: u32,
        /// What stands in front does not lead to what follows.
        anew: bool,
    },
    /// Encoded [`Record`]s: changes since the point before, or pairs of the copy.
    Pairs(&'a [u8]),
    End(PointEnd),
}

/// Kinds of records on disk.
mod kind {
    pub(super) const BEGIN: u8 = 65;
    pub(super) const PAIRS: u8 = 66;
    pub(super) const END: u8 = 67;
}

impl<'a> PointRecord<'a> {
    /// Passes its kind and its bytes to `put`.
    pub fn encode<T>(&self, put: impl FnOnce(u8, &[u8]) -> T) -> T {
        match self {
            Self::Begin { generation, anew } => {
                let [a, b, c, d] = generation.to_le_bytes();
                put(kind::BEGIN, &[a, b, c, d, u8::from(*anew)])
            }
            Self::Pairs(records) => put(kind::PAIRS, records),
            Self::End(end) => {
                let mut bytes = Vec::new();
                append(end, &mut bytes);
                put(kind::END, &bytes)
            }
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// It is none of this format.
    pub fn decode(kind: u8, bytes: &'a [u8]) -> Result<Self, Unreadable> {
        match (kind, bytes) {
            (kind::BEGIN, &[a, b, c, d, anew @ (0 | 1)]) => {
                Ok(Self::Begin { generation: u32::from_le_bytes([a, b, c, d]), anew: anew == 1 })
            }
            (kind::PAIRS, records) => Ok(Self::Pairs(records)),
            (kind::END, end) => Ok(Self::End(whole(end)?)),
            _ => Err(Unreadable::Bytes),
        }
    }
}

/// Takes what a machine writes at its points. Between [`write`](Self::write) and the disk is whatever time the disk needs.
pub trait PointLog: Send {
    /// Appends a copy's beginning.
    fn begin(&mut self, anew: bool);

    /// Appends encoded [`Record`]s.
    fn write(&mut self, records: &[u8]);

    /// Ends a point. What leads to points in front of its floor is not needed any more.
    fn end(&mut self, end: PointEnd);

    /// Every group has point `floor` on the disks of f+1 replicas. If `all`, nothing has changed since that point.
    fn saved(&mut self, floor: u64, all: bool);

    /// Whether a leader may take commands. It may not while too much is on too few disks.
    fn takes_commands(&self) -> bool;

    /// Bytes of a copy that are written at one point, besides the last pair.
    fn copy_bytes(&self) -> usize;

    /// Whether so much stands in front of the last whole copy's end that another copy should begin.
    fn is_copy_due(&self) -> bool;
}

/// The points of a group to which a log can return, found by reading its records in order.
#[derive(Debug, Default)]
pub struct Points {
    generation: u32,
    /// What was read so far, up to the last end, is a state.
    is_state: bool,
    /// A copy begins in front of what is read now.
    copies: bool,
}

impl Points {
    /// Reads the next record. Returns the point that ends with it, if the log can return to that.
    pub fn take<'a>(&mut self, record: &'a PointRecord<'_>) -> Option<(u32, &'a PointEnd)> {
        match record {
            PointRecord::Begin { generation, anew } => {
                self.is_state &= !anew;
                (self.generation, self.copies) = (*generation, true);
            }
            PointRecord::Pairs(_) => {}
            PointRecord::End(end) => {
                self.is_state |= self.copies && end.whole;
                return self.is_state.then_some((self.generation, end));
            }
        }
        None
    }
}

/// Reads a log up to one of its points, and puts what it finds into a store.
pub struct Returning<S> {
    points: Points,
    to: (u32, u64),
    store: S,
    end: Option<PointEnd>,
}

/// Why a log does not lead to a state.
#[derive(Debug, thiserror::Error)]
pub enum NotReturned<E> {
    #[error("its log does not lead there")]
    NotThere,
    #[error(
        "its log holds {found:?} there, and the group had {expected:?}: keys, bytes and digest"
    )]
    Differs { found: (u64, u64, u64), expected: (u64, u64, u64) },
    #[error("a record of its log is malformed")]
    Malformed,
    #[error(transparent)]
    Store(#[from] E),
}

impl<S: Store> Returning<S> {
    /// Begins to read a log, up to point `number` of a generation. The store is empty.
    pub fn new(store: S, generation: u32, number: u64) -> Self {
        Self { points: Points::default(), to: (generation, number), store, end: None }
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// The record is malformed, or the store fails.
    pub fn take(&mut self, record: &PointRecord<'_>) -> Result<(), NotReturned<S::Error>> {
        if self.end.is_some() {
            return Ok(());
        }
        let point = self.points.take(record);
        if let Some((generation, end)) = point
            && (generation, end.number) == self.to
        {
            self.end = Some(end.clone());
        }
        match record {
            PointRecord::Begin { .. } if !self.points.is_state => self.store.clear()?,
            &PointRecord::Pairs(mut records) if self.points.copies => {
                while !records.is_empty() {
                    let record = Record::take(&mut records).ok_or(NotReturned::Malformed)?;
                    let version = record.version;
                    self.store
                        .load(record.key, record.value.map(|value| Found { value, version }))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The state at the point, and its end.
    ///
    /// # Errors
    /// The log does not contain that state.
    pub fn finish(mut self) -> Result<(S, PointEnd), NotReturned<S::Error>> {
        let end = self.end.ok_or(NotReturned::NotThere)?;
        self.store.settle()?;
        let found = (self.store.len() as u64, self.store.bytes(), self.store.digest());
        let expected = (end.keys, end.bytes, end.digest);
        if found == expected {
            Ok((self.store, end))
        } else {
            Err(NotReturned::Differs { found, expected })
        }
    }
}
