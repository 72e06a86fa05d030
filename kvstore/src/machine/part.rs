//! The parts of a copy of the state: records between a header and a checksum.
//!
//! ```text
//!  0 version   of this format, u8
//!  1 group     whose state it is, u16
//!  3 number    of the part in its copy, from 0, u32
//!  7 records   postcard, one after the other
//!    checksum  of everything before it, u64
//! ```
//!
//! A part is rejected by another group and at another place in a copy. Numbers are little-endian. Parts are
//! sent between replicas that agree on [`VERSION`], and stand in snapshots on disk (`docs/records.md`).

use serde::{Deserialize, Serialize};
use skein_multicast::application::Malformed;
use skein_protocol::ids::{GroupId, SessionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::command::Version;
use crate::points::Holds;
use crate::reply::Refusal;
use crate::slots::SlotMap;
use crate::wire::{Bytes, append, take};

/// Version of the format. It changes with any change to a record.
const VERSION: u8 = 7;
const HEAD: usize = 7;
const CHECKSUM: usize = 8;

/// A look-up in a large map counts as this many bytes of a part: it takes as long as copying a hundred or more.
pub(super) const LOOK_UP: usize = 128;
/// A part may have up to this many times its budget, to keep pace with changes.
const STRETCH: usize = 16;

/// A fact about the state. Later records override earlier ones.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record<'a> {
    /// The key has this value.
    Pair {
        #[serde(borrow)]
        key: Bytes<'a>,
        value: Bytes<'a>,
        version: Version,
    },
    /// The key has no value any more.
    NoPair {
        #[serde(borrow)]
        key: Bytes<'a>,
    },
    /// All records about sessions so far are void: the table is sent again.
    NoSessions,
    /// The session is open, and no replies are retained for it but those that follow. `delivered` has its bits.
    Session {
        id: u64,
        floor: u64,
        highest: u64,
        #[serde(borrow)]
        delivered: Bytes<'a>,
    },
    /// The session is open, and this message was delivered.
    Delivered { session: u64, sequence: u64, floor: u64 },
    /// The reply retained for a message.
    Reply {
        session: u64,
        sequence: u64,
        #[serde(borrow)]
        reply: Bytes<'a>,
    },
    /// No reply to the message is retained any more.
    NoReply { session: u64, sequence: u64 },
    /// The next session that has ended, in the order in which they ended.
    Ended { session: u64, closed_by: u64 },
    /// The verdicts received about a message that is not delivered yet.
    Early { session: u64, sequence: u64, from: Vec<u16>, verdict: u8, version: Version },
    /// The next command that was delivered and is not over.
    UnderWay {
        session: u64,
        sequence: u64,
        position: Version,
        low_water: u64,
        destinations: Vec<u16>,
        #[serde(borrow)]
        stage: StageRecord<'a>,
    },
    /// A refused command about which verdicts are dropped.
    Refused { session: u64, sequence: u64 },
    /// The slot map, which decides the owners of keys in the records that follow.
    Slots(SlotMap),
    /// The remaining fields, and totals that verify the copy. Nothing follows.
    End {
        epoch: u32,
        position: Version,
        born: Version,
        history: u64,
        /// Digest of the sessions as of the last command that is over.
        owed: u64,
        keys: u64,
        bytes: u64,
        digest: u64,
        /// Present digest of the sessions.
        sessions: u64,
    },
    /// The last restore point, and what disks hold. Absent from a cluster without restore points, so parts of other clusters
    /// are those of version 7.
    Points { last: u64, state: u64, closed: bool, floor: u64, holds: Vec<Holds> },
    /// In a snapshot: the store has kept the pairs under this number, and these are their sums. It precedes the commands
    /// under way, which need the pairs. Absent unless the store keeps states.
    Kept { number: u64, keys: u64, bytes: u64, digest: u64 },
}

/// The [`Stage`](super::under_way::Stage) of a command that is not over. `from` lists the groups whose verdicts
/// were received.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StageRecord<'a> {
    Blocked {
        #[serde(borrow)]
        payload: Bytes<'a>,
        needs_turn: bool,
        from: Vec<u16>,
        verdict: u8,
        version: Version,
    },
    /// `from` contains this group too.
    Spoken {
        #[serde(borrow)]
        payload: Bytes<'a>,
        then: Option<Refusal>,
        otherwise: Option<Refusal>,
        from: Vec<u16>,
        verdict: u8,
    },
    Awaits {
        #[serde(borrow)]
        payload: Bytes<'a>,
        owner: u16,
    },
    Answered {
        #[serde(borrow)]
        reply: Bytes<'a>,
        only_read: Option<bool>,
        grown: i64,
        digest: u64,
    },
    Again,
}

/// A part that is being written at the end of a buffer.
pub(super) struct PartMaker<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    /// Offset at which the present kind of records begins. Each kind has a budget, so that none starves
    /// another.
    kind: usize,
    /// Bytes that records of this kind count for besides their own.
    work: usize,
    budget: usize,
    /// Number of records that are still taken beyond the budget, up to [`STRETCH`] times the budget.
    records_due: usize,
}

impl<'a> PartMaker<'a> {
    /// Starts part `number` of a copy of `group`, with a budget of about `budget` bytes for each kind of
    /// records.
    pub(super) fn new(bytes: &'a mut Vec<u8>, group: GroupId, number: u32, budget: usize) -> Self {
        let start = bytes.len();
        bytes.push(VERSION);
        bytes.extend(group.0.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        Self { bytes, start, kind: start, work: 0, budget, records_due: 0 }
    }

    /// Appends a record. Returns whether there is room for more.
    pub(super) fn add(&mut self, record: &Record<'_>) -> bool {
        append(record, self.bytes);
        self.has_room()
    }

    /// Appends a record that needed a look-up. Returns whether there is room for more.
    pub(super) fn add_found(&mut self, record: &Record<'_>) -> bool {
        self.work += LOOK_UP;
        self.records_due = self.records_due.saturating_sub(1);
        self.add(record)
    }

    /// Starts another kind of records. Since the last part, `changes` items of this kind have changed. The part
    /// takes at least twice as many, so that the copy ends under any load.
    pub(super) fn next_kind(&mut self, changes: usize) {
        self.kind = self.bytes.len();
        self.work = 0;
        self.records_due = 2 * changes;
    }

    fn has_room(&self) -> bool {
        let used = self.bytes.len() - self.kind + self.work;
        used < self.budget || (self.records_due > 0 && used < self.budget.saturating_mul(STRETCH))
    }

    /// Completes the part with its checksum.
    pub(super) fn seal(self) {
        let checksum = xxh3_64(&self.bytes[self.start..]);
        self.bytes.extend(checksum.to_le_bytes());
    }
}

/// The record of kept pairs in the last part of a snapshot, which begins with it, if it has one.
pub(super) fn kept(part: &[u8], group: GroupId) -> Result<Option<Record<'_>>, Malformed> {
    let first = open(part, group)?.1.next()?;
    Ok(first.filter(|record| matches!(record, Record::Kept { .. })))
}

/// Verifies a part. Returns its number and its records.
pub(super) fn open(part: &[u8], group: GroupId) -> Result<(u32, Records<'_>), Malformed> {
    let (sealed, checksum) = part.split_last_chunk::<CHECKSUM>().ok_or(Malformed)?;
    if xxh3_64(sealed) != u64::from_le_bytes(*checksum) {
        return Err(Malformed);
    }
    let (head, records) = sealed.split_first_chunk::<HEAD>().ok_or(Malformed)?;
    let [version, g0, g1, n0, n1, n2, n3] = *head;
    if version != VERSION || u16::from_le_bytes([g0, g1]) != group.0 {
        return Err(Malformed);
    }
    Ok((u32::from_le_bytes([n0, n1, n2, n3]), Records(records)))
}

/// Records that are not read yet.
pub(super) struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    pub(super) fn next(&mut self) -> Result<Option<Record<'a>>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (record, rest) = take(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(Some(record))
    }
}

pub(super) fn id(session: u64) -> SessionId {
    SessionId(session)
}
