//! The parts in which a state travels: records between a head and a checksum.
//!
//! ```text
//!  0 version   of this form, u8
//!  1 group     whose state it is, u16
//!  3 number    of the part in its copy, from 0, u32
//!  7 records   postcard, one after the other
//!    checksum  of everything before it, u64
//! ```
//!
//! A part cannot be taken for another one's, nor for one of another group or another place in its
//! copy. Numbers are little-endian. Parts travel between replicas of one build or of builds that
//! agree on [`VERSION`], and are never stored.

use serde::{Deserialize, Serialize};
use skein_multicast::application::Malformed;
use skein_protocol::ids::{GroupId, SessionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::command::Version;
use crate::reply::Refusal;
use crate::slots::SlotMap;
use crate::wire::{Bytes, append, take};

/// The version of the form. It changes with any change to a record.
const VERSION: u8 = 7;
const HEAD: usize = 7;
const CHECKSUM: usize = 8;

/// What a look-up in a large map counts against the bytes of a part: it takes as long as copying
/// some hundred.
const LOOK_UP: usize = 128;
/// So many times the bytes it was asked for a part may have, to keep pace with what changes.
const STRETCH: usize = 16;

/// Something that is so. Later records overrule earlier ones.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record<'a> {
    /// This stands at the key.
    Pair {
        #[serde(borrow)]
        key: Bytes<'a>,
        value: Bytes<'a>,
        version: Version,
    },
    /// Nothing stands at the key any more.
    NoPair {
        #[serde(borrow)]
        key: Bytes<'a>,
    },
    /// All that was said of sessions is void: they are told anew.
    NoSessions,
    /// The session is open and owed nothing but what follows. `delivered` are its bits.
    Session {
        id: u64,
        floor: u64,
        highest: u64,
        #[serde(borrow)]
        delivered: Bytes<'a>,
    },
    /// The session, open, has had this message delivered.
    Delivered { session: u64, sequence: u64, floor: u64 },
    /// This is kept for it.
    Reply {
        session: u64,
        sequence: u64,
        #[serde(borrow)]
        reply: Bytes<'a>,
    },
    /// Nothing is kept for it any more.
    NoReply { session: u64, sequence: u64 },
    /// The next session that has ended.
    Ended { session: u64, closed_by: u64 },
    /// What other groups said about a message that is still to be delivered.
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
    /// A command that was refused, on which nobody waits for verdicts.
    Refused { session: u64, sequence: u64 },
    /// Which group owns each slot.
    Slots(SlotMap),
    /// The rest, and what must have come together. Nothing follows.
    End {
        epoch: u32,
        position: Version,
        born: Version,
        history: u64,
        /// Digest of the sessions, as of the last command that is over.
        owed: u64,
        keys: u64,
        bytes: u64,
        digest: u64,
        /// Digest of the sessions, as they are.
        sessions: u64,
    },
}

/// How far a command that is not over has come.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StageRecord<'a> {
    /// It has to wait for others before it. These groups have given their verdicts.
    Blocked {
        #[serde(borrow)]
        payload: Bytes<'a>,
        needs_turn: bool,
        from: Vec<u16>,
        verdict: u8,
        version: Version,
    },
    /// It waits for verdicts; these groups have given theirs, and so have we.
    Spoken {
        #[serde(borrow)]
        payload: Bytes<'a>,
        then: Option<Refusal>,
        otherwise: Option<Refusal>,
        from: Vec<u16>,
        verdict: u8,
    },
    /// It moves a slot, and that group, its owner, has yet to say whether it is empty.
    Awaits {
        #[serde(borrow)]
        payload: Bytes<'a>,
        owner: u16,
    },
    /// It was answered.
    Answered {
        #[serde(borrow)]
        reply: Bytes<'a>,
        only_read: Option<bool>,
        grown: i64,
        digest: u64,
    },
    /// It came again.
    Again,
}

/// A part that is being written, at the end of a buffer.
pub(super) struct PartMaker<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    /// Where the present kind of records begins. Each has a budget, so that none starves another.
    kind: usize,
    /// What it is counted at, besides its bytes.
    work: usize,
    budget: usize,
    /// Records that it takes even when it has its bytes.
    owed: usize,
}

impl<'a> PartMaker<'a> {
    /// Part `number` of a copy of `group`, to be of about `budget` bytes.
    pub(super) fn new(bytes: &'a mut Vec<u8>, group: GroupId, number: u32, budget: usize) -> Self {
        let start = bytes.len();
        bytes.push(VERSION);
        bytes.extend(group.0.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        Self { bytes, start, kind: start, work: 0, budget, owed: 0 }
    }

    /// Appends a record. Returns whether there is room for more.
    pub(super) fn add(&mut self, record: &Record<'_>) -> bool {
        append(record, self.bytes);
        self.has_room()
    }

    /// Appends a record that had to be looked for.
    pub(super) fn add_found(&mut self, record: &Record<'_>) -> bool {
        self.work += LOOK_UP;
        self.owed = self.owed.saturating_sub(1);
        self.add(record)
    }

    /// Records of another kind follow. Of what they are about so much has changed since the last
    /// part: takes at least twice as many, so that the copy comes to an end however much goes on.
    pub(super) fn next_kind(&mut self, changes: usize) {
        self.kind = self.bytes.len();
        self.work = 0;
        self.owed = 2 * changes;
    }

    fn has_room(&self) -> bool {
        let used = self.bytes.len() - self.kind + self.work;
        used < self.budget || (self.owed > 0 && used < self.budget.saturating_mul(STRETCH))
    }

    /// Completes it.
    pub(super) fn seal(self) {
        let checksum = xxh3_64(&self.bytes[self.start..]);
        self.bytes.extend(checksum.to_le_bytes());
    }
}

/// The records of a part, and its number.
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

/// Records that are still to be read.
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

/// Sessions as they stand in records.
pub(super) fn id(session: u64) -> SessionId {
    SessionId(session)
}
