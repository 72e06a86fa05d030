//! The group log as bytes: dense, self-validating entries in a ring of memory.
//!
//! A leader appends entries to its own copy and writes the new bytes, however many entries they
//! hold, to each follower at once. No word says how far it got: an entry is there when its 64-bit
//! check fits. **Invariant.** What passes [`Entry::decode`] at a [`Cursor`] was written whole, for
//! that index, at that position (hence in that lap) and in that ballot: all of them are under the
//! check. 32 bits would pass a torn read every half day.
//!
//! Layout of an entry, little-endian, in units of 8 bytes:
//!
//! ```text
//!  0 check     xxh3 of everything below
//!  8 index     dense, from 1
//! 16 position  bytes from the log's beginning to this entry; modulo the ring's size, its place
//! 24 birth     ballot in which the entry was first appended; adopted entries keep it
//! 32 written   ballot in which these bytes were written
//! 40 len: u32  header and body, a multiple of 8 │ kind: u8 │ version: u8 │ body's padding: u16
//! 48 time      the leader's clock in milliseconds: replicated time
//! 56 epoch: u32 of the slot map │ zero: u32
//! 64 body
//! ```

use alloc::vec::Vec;

use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer, groups_len};
use crate::check::check;
use crate::group::GroupRecord;
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId, SessionId};
use crate::mutants::{Mutant, planted};
use crate::results::Results;
use crate::ring;
use crate::timestamp::Timestamp;

/// Bytes of an entry before its body.
pub const HEADER: usize = 64;
/// Bytes of the log region before its ring. Holds (ballot, base) of a leader that took over and, in its last word,
/// what a leader writes to see that it is let.
pub const PREAMBLE: usize = 64;
/// Offset, in an entry, of the word by which a reader can tell cheaply that it is not there yet.
pub const INDEX_AT: usize = 8;
/// Offset, in an entry, of the word that says where it stands.
pub const POSITION_AT: usize = 16;
/// The most `Remote`s, or decisions, that share an entry.
pub const REMOTES_MAX: usize = 32;
/// Bytes of the header that a leader writes into the [`PREAMBLE`] before it writes entries.
pub const LEADERSHIP: usize = 56;

const VERSION: u8 = 1;

/// A group's proposal, as another group's leader logs it. The group is the timestamp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Of which message.
    pub message: MessageId,
    /// The proposal.
    pub timestamp: Timestamp,
    /// The ballot of the leader that announced it.
    pub ballot: Ballot,
    /// Where it stands in that group's log.
    pub index: u64,
}

impl Remote {
    const BYTES: usize = 40;

    /// The group that proposed it.
    pub const fn group(&self) -> GroupId {
        self.timestamp.group()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        let MessageId { session, sequence } = self.message;
        let (timestamp, ballot) = (self.timestamp.to_word(), self.ballot.to_word());
        out.words([session.0, sequence, timestamp, ballot, self.index]);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Self> {
        let [session, sequence, timestamp, ballot, index] = from.words()?;
        Some(Self {
            message: MessageId::new(SessionId(session), sequence),
            timestamp: Timestamp::from_word(timestamp),
            ballot: Ballot::from_word(ballot),
            index,
        })
    }
}

/// A message's final timestamp, seen to rest on quorums of all its destination groups. A replica
/// that lags may deliver on this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Of which message.
    pub message: MessageId,
    /// The final timestamp.
    pub timestamp: Timestamp,
}

impl Decision {
    const BYTES: usize = 24;
}

/// What a leader writes before it writes entries: from where on it rewrites a follower's log.
///
/// **Invariant.** A follower's log is valid up to `base`, and from there on as far as entries were
/// written in `ballot`, so a half-rewritten log is never mistaken for a newer one. The check covers
/// everything: a torn header is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// Right behind the prefix that it shares with the follower.
    pub base: Cursor,
    /// The follower's count of its grants: an earlier grant's header is none of this one's.
    pub grant: u64,
    /// Index of the ballot's first entry: nothing is committed below it alone.
    pub first: u64,
    /// Position from which on the leader writes the log. It is in front of `base` if the follower was given
    /// a state, and others that count still need what stood there.
    pub held_from: u64,
}

impl Leadership {
    /// As written to memory.
    pub fn encode(&self) -> [u8; LEADERSHIP] {
        let mut bytes = [0; LEADERSHIP];
        let Cursor { index, position } = self.base;
        let Self { ballot, grant, first, held_from, .. } = *self;
        let words = [ballot.to_word(), index, position, grant, first, held_from];
        for (at, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote, if it is whole.
    pub fn decode(bytes: &[u8; LEADERSHIP]) -> Option<Self> {
        let mut from = Reader(bytes);
        let whole = from.u64()? == check(&bytes[8..]);
        if !guard!(Mutant::TornHeaderTaken, whole) {
            return None;
        }
        Some(Self {
            ballot: Ballot::from_word(from.u64()?),
            base: Cursor { index: from.u64()?, position: from.u64()? },
            grant: from.u64()?,
            first: from.u64()?,
            held_from: from.u64()?,
        })
    }
}

/// Where a message's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In the entry.
    Inline(&'a [u8]),
    /// In the ring of its session, or wherever the replica assembled it. A session may write one replica other
    /// bytes than the next: those whose check fits are meant.
    Held {
        /// [`check`] of the bytes.
        check: u64,
    },
}

impl Payload<'_> {
    /// The bytes that it takes in an entry.
    pub const fn logged_len(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Held { .. } => 8,
        }
    }
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The ring's end is skipped; has no index of its own but the next entry's.
    Pad,
    /// What it says of the group itself.
    Group(GroupRecord),
    /// The group's proposal for a message.
    Local {
        /// Which message.
        message: MessageId,
        /// Its session's low-water mark.
        low_water: u64,
        /// The proposal.
        timestamp: Timestamp,
        /// All its destinations.
        destinations: GroupSet,
        /// What was multicast.
        payload: Payload<'a>,
    },
    /// Other groups' proposals that the leader read together.
    Remotes(Remotes<'a>),
    /// What another group's state machine exchanged about messages.
    Exchange {
        /// Whose results.
        from: GroupId,
        /// The results, as they were told.
        results: Results<'a>,
    },
    /// Messages that may be delivered on this alone.
    Decided(Decisions<'a>),
    /// Nothing that is logged later ends at or below this timestamp.
    Raise {
        /// Which.
        timestamp: Timestamp,
    },
}

/// The list of an entry's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decisions<'a>(&'a [u8]);

impl<'a> Decisions<'a> {
    /// In the order in which they were made.
    pub fn iter(self) -> impl Iterator<Item = Decision> + use<'a> {
        self.0.chunks_exact(Decision::BYTES).map_while(|bytes| {
            let mut from = Reader(bytes);
            Some(Decision {
                message: from.message()?,
                timestamp: Timestamp::from_word(from.u64()?),
            })
        })
    }
}

/// The list of an entry's `Remote`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remotes<'a>(&'a [u8]);

impl<'a> Remotes<'a> {
    /// In the order in which the leader read them.
    pub fn iter(self) -> impl Iterator<Item = Remote> + Clone + use<'a> {
        let (remotes, _) = self.0.as_chunks::<{ Remote::BYTES }>();
        remotes.iter().map(|bytes| Remote::decode(&mut Reader(bytes)).expect("it is long enough"))
    }
}

/// A place in the log: the next entry's index, and where its bytes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Of the next entry.
    pub index: u64,
    /// Bytes from the log's beginning.
    pub position: u64,
}

impl Cursor {
    /// Before the first entry.
    pub const START: Self = Self { index: 1, position: 0 };

    /// Offset of the next entry in the log region, past the ring's end if that is too short for a
    /// header.
    pub fn offset(&mut self, capacity: u64) -> usize {
        let left = capacity - ring::offset(capacity, self.position);
        if left < HEADER as u64 {
            self.position += left;
        }
        PREAMBLE + ring::offset(capacity, self.position) as usize
    }

    /// Steps over an entry.
    pub fn pass(&mut self, len: usize, body: Body<'_>) {
        self.position += len as u64;
        self.index += u64::from(body != Body::Pad);
    }
}

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Ballot in which it was first appended.
    pub birth: Ballot,
    /// Ballot in which it was written here.
    pub written: Ballot,
    /// The leader's clock in milliseconds.
    pub time_ms: u64,
    /// The slot map's epoch.
    pub epoch: u32,
    /// What it says.
    pub body: Body<'a>,
}

/// The bytes at a cursor are not the entry that belongs there, or not all of it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotThere;

/// The length of the entry whose header was read at `cursor`, if it makes sense there. Whether it is
/// the right entry, and whole, is for [`Entry::decode`] to say.
pub fn announced_len(header: &[u8; HEADER], cursor: Cursor, capacity: u64) -> Option<usize> {
    let len = u32::from_le_bytes(header[40..44].try_into().expect("four bytes")) as usize;
    let left = (capacity - ring::offset(capacity, cursor.position)) as usize;
    (len.is_multiple_of(8) && (HEADER..=left).contains(&len)).then_some(len)
}

/// Whether the header is a pad's, which covers the rest of the ring and says nothing beyond.
pub const fn is_pad(header: &[u8; HEADER]) -> bool {
    header[44] == Body::Pad.kind()
}

impl<'a> Entry<'a> {
    /// The bytes an entry with a body of `body_len` takes in the ring.
    pub const fn len(body_len: usize) -> usize {
        HEADER + body_len.next_multiple_of(8)
    }

    /// The bytes a `Local` takes whose payload takes so many.
    pub fn local_len(destinations: GroupSet, payload: usize) -> usize {
        Self::len(32 + groups_len(destinations) + 1 + payload)
    }

    /// The bytes an entry of `count` remotes takes.
    pub const fn remotes_len(count: usize) -> usize {
        Self::len(count * Remote::BYTES)
    }

    /// The bytes an entry of `count` decisions takes.
    pub const fn decided_len(count: usize) -> usize {
        Self::len(count * Decision::BYTES)
    }

    /// The bytes a raised clock takes.
    pub const fn raise_len() -> usize {
        Self::len(8)
    }

    /// The bytes an `Exchange` takes whose results take so many.
    pub const fn exchange_len(results: usize) -> usize {
        Self::len(2 + results)
    }

    /// Appends the entry that belongs at `cursor` to `bytes`.
    pub fn encode(&self, cursor: Cursor, bytes: &mut Vec<u8>) {
        self.encode_with(cursor, bytes, |out| match self.body {
            Body::Pad => {}
            Body::Group(record) => record.encode(out),
            Body::Local { message, low_water, timestamp, destinations, payload } => {
                let MessageId { session, sequence } = message;
                out.words([session.0, sequence, low_water, timestamp.to_word()]);
                out.groups(destinations);
                match payload {
                    Payload::Held { check } => {
                        out.u8(0);
                        out.u64(check);
                    }
                    Payload::Inline(payload) => {
                        out.u8(1);
                        out.0.extend_from_slice(payload);
                    }
                }
            }
            Body::Remotes(remotes) => out.0.extend_from_slice(remotes.0),
            Body::Exchange { from, results } => {
                out.u16(from.0);
                out.0.extend_from_slice(results.0);
            }
            Body::Decided(decisions) => out.0.extend_from_slice(decisions.0),
            Body::Raise { timestamp } => out.u64(timestamp.to_word()),
        });
    }

    /// Appends an entry of `decisions` that belongs at `cursor` to `bytes`.
    pub fn encode_decided(&self, decisions: &[Decision], cursor: Cursor, bytes: &mut Vec<u8>) {
        debug_assert!(matches!(self.body, Body::Decided(_)) && decisions.len() <= REMOTES_MAX);
        self.encode_with(cursor, bytes, |out| {
            for decision in decisions {
                out.message(decision.message);
                out.u64(decision.timestamp.to_word());
            }
        });
    }

    /// Appends an entry of `remotes` that belongs at `cursor` to `bytes`.
    pub fn encode_remotes(&self, remotes: &[Remote], cursor: Cursor, bytes: &mut Vec<u8>) {
        debug_assert!(matches!(self.body, Body::Remotes(_)) && remotes.len() <= REMOTES_MAX);
        self.encode_with(cursor, bytes, |out| {
            for remote in remotes {
                remote.encode(out);
            }
        });
    }

    fn encode_with(&self, cursor: Cursor, bytes: &mut Vec<u8>, body: impl FnOnce(&mut Writer<'_>)) {
        let start = bytes.len();
        bytes.reserve(2 * HEADER);
        let mut out = Writer(bytes);
        let (birth, written) = (self.birth.to_word(), self.written.to_word());
        let shape = u64::from(self.body.kind()) << 32 | u64::from(VERSION) << 40;
        let Cursor { index, position } = cursor;
        let epoch = u64::from(self.epoch);
        out.words([0, index, position, birth, written, shape, self.time_ms, epoch]);
        body(&mut out);
        let exact = bytes.len() - start;
        let len = exact.next_multiple_of(8);
        bytes.resize(start + len, 0);
        bytes[start + 40..start + 44].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[start + 46..start + 48].copy_from_slice(&((len - exact) as u16).to_le_bytes());
        seal(&mut bytes[start..]);
    }

    /// Appends the header of a pad that covers `len` bytes of the ring's end.
    pub fn encode_pad(cursor: Cursor, len: usize, written: Ballot, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let pad = Entry { birth: written, written, time_ms: 0, epoch: 0, body: Body::Pad };
        pad.encode(cursor, bytes);
        bytes[start + 40..start + 44].copy_from_slice(&(len as u32).to_le_bytes());
        seal(&mut bytes[start..start + HEADER]);
    }

    /// Reads the entry that belongs at `cursor`, in `ballot`, from the bytes copied out there: a
    /// header and as many bytes as it [announced](announced_len). The leader may have been writing it
    /// between two copies: if it is of another length by now, whoever went by the one that the header
    /// said first would look for the next entry in a wrong place, for ever.
    pub fn decode(bytes: &'a [u8], cursor: Cursor, ballot: Ballot) -> Result<Self, NotThere> {
        Self::parse(bytes, cursor).filter(|entry| entry.written == ballot).ok_or(NotThere)
    }

    /// Reads the entry that belongs at `cursor`, in whatever ballot it was written: for what was
    /// found valid before, or comes by other ways than by writes into the log.
    pub fn parse(bytes: &'a [u8], cursor: Cursor) -> Option<Self> {
        let mut from = Reader(bytes);
        let [sum, index, position, birth, written, shape, time_ms, epoch] = from.words()?;
        let belongs = (index, position) == (cursor.index, cursor.position);
        if !guard!(Mutant::LapNotChecked, belongs) {
            return None;
        }
        let (birth, written) = (Ballot::from_word(birth), Ballot::from_word(written));
        let (len, kind, version) =
            (shape as u32 as usize, (shape >> 32) as u8, (shape >> 40) as u8);
        let padding = (shape >> 48) as usize;
        let epoch = epoch as u32;
        let covered = if kind == Body::Pad.kind() { HEADER } else { len };
        if !guard!(Mutant::EntryLengthNotChecked, bytes.len() == covered) {
            return None;
        }
        let whole = check(bytes.get(8..covered)?) == sum;
        if version != VERSION || padding >= 8 || !guard!(Mutant::TornEntryTaken, whole) {
            return None;
        }
        let mut from = Reader(bytes.get(HEADER..covered.checked_sub(padding)?)?);
        let body = match kind {
            0 => Body::Pad,
            2 => Body::Local {
                message: from.message()?,
                low_water: from.u64()?,
                timestamp: Timestamp::from_word(from.u64()?),
                destinations: from.groups()?,
                payload: match from.u8()? {
                    0 => Payload::Held { check: from.u64()? },
                    _ => Payload::Inline(from.0),
                },
            },
            3 => Body::Remotes(Remotes(from.0)),
            4 => Body::Exchange { from: GroupId(from.u16()?), results: Results(from.0) },
            5 => Body::Decided(Decisions(from.0)),
            8 => Body::Raise { timestamp: Timestamp::from_word(from.u64()?) },
            _ => Body::Group(GroupRecord::decode(kind, &mut from)?),
        };
        Some(Self { birth, written, time_ms, epoch, body })
    }
}

impl Body<'_> {
    /// An entry's body of remotes that [`Entry::encode_remotes`] fills in.
    pub const REMOTES: Self = Body::Remotes(Remotes(&[]));
    /// An entry's body of decisions that [`Entry::encode_decided`] fills in.
    pub const DECIDED: Self = Body::Decided(Decisions(&[]));

    const fn kind(&self) -> u8 {
        match self {
            Body::Pad => 0,
            Body::Group(record) => record.kind(),
            Body::Local { .. } => 2,
            Body::Remotes(_) => 3,
            Body::Exchange { .. } => 4,
            Body::Decided(_) => 5,
            Body::Raise { .. } => 8,
        }
    }
}

/// Makes a whole entry, or the header of a pad, one that was written in `ballot`: a new leader
/// rewrites what it adopted, birth and all else unchanged.
pub fn rewrite(entry: &mut [u8], ballot: Ballot) {
    entry[32..40].copy_from_slice(&ballot.to_word().to_le_bytes());
    if planted(Mutant::BirthNotKept) {
        entry[24..32].copy_from_slice(&ballot.to_word().to_le_bytes());
    }
    seal(entry);
}

fn seal(entry: &mut [u8]) {
    let sum = check(&entry[8..]);
    entry[..8].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use std::vec;

    const BALLOT: Ballot = Ballot::new(3, 1, 0);
    const HELD: Payload<'_> = Payload::Held { check: u64::MAX - 6 };

    fn local(payload: Payload<'_>) -> Entry<'_> {
        Entry {
            birth: Ballot::new(1, 0, 0),
            written: BALLOT,
            time_ms: 77,
            epoch: 1,
            body: Body::Local {
                message: MessageId::new(SessionId(5), 6),
                low_water: 2,
                timestamp: Timestamp::new(9, GroupId(1)),
                destinations: GroupSet::first(2),
                payload,
            },
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let cursor = Cursor { index: 12, position: 4096 };
        let remote = Remote {
            message: MessageId::new(SessionId(5), 6),
            timestamp: Timestamp::new(10, GroupId(0)),
            ballot: BALLOT,
            index: 3,
        };
        for inline in 0..20 {
            let payload = vec![7; inline];
            let entry = local(Payload::Inline(&payload));
            let mut bytes = Vec::new();
            entry.encode(cursor, &mut bytes);
            assert_eq!(bytes.len(), Entry::local_len(GroupSet::first(2), inline));
            assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Ok(entry));
        }
        let entry = Entry { body: Body::REMOTES, ..local(HELD) };
        let mut bytes = Vec::new();
        entry.encode_remotes(&[remote, remote], cursor, &mut bytes);
        assert_eq!(bytes.len(), Entry::remotes_len(2));
        let Body::Remotes(read) = Entry::decode(&bytes, cursor, BALLOT).unwrap().body else {
            panic!("not remotes")
        };
        assert!(read.iter().eq([remote, remote]));
        let results = Results(b"as they were told");
        let others = [
            (Body::Raise { timestamp: remote.timestamp }, Entry::raise_len()),
            (Body::Exchange { from: GroupId(3), results }, Entry::exchange_len(results.0.len())),
        ];
        for (body, len) in others {
            let entry = Entry { body, ..local(HELD) };
            let mut bytes = Vec::new();
            entry.encode(cursor, &mut bytes);
            assert_eq!(bytes.len(), len);
            assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Ok(entry));
        }
    }

    #[test]
    fn every_kind_of_entry_is_read_as_it_was_written() {
        let cursor = Cursor { index: 3, position: 128 };
        let decision = Decision {
            message: MessageId::new(SessionId(5), 6),
            timestamp: Timestamp::new(1 << 40, GroupId(1)),
        };
        let bodies = [
            Body::Group(GroupRecord::NewBallot),
            local(HELD).body,
            local(Payload::Inline(b"")).body,
            Body::Group(GroupRecord::Evict { slot: 255 }),
            Body::Group(GroupRecord::Join { slot: 4, incarnation: (1 << 24) - 1 }),
        ];
        for body in bodies {
            let entry = Entry { epoch: u32::MAX, time_ms: u64::MAX, body, ..local(HELD) };
            let mut bytes = Vec::new();
            entry.encode(cursor, &mut bytes);
            assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Ok(entry));
        }
        let (mut bytes, entry) = (Vec::new(), Entry { body: Body::DECIDED, ..local(HELD) });
        entry.encode_decided(&[decision, decision], cursor, &mut bytes);
        assert_eq!(bytes.len(), Entry::decided_len(2));
        let Body::Decided(read) = Entry::decode(&bytes, cursor, BALLOT).unwrap().body else {
            panic!("no decisions")
        };
        assert!(read.iter().eq([decision, decision]));
    }

    #[test]
    fn an_entry_of_another_form_is_none_though_its_check_fits() {
        let cursor = Cursor { index: 3, position: 128 };
        let whole = |body| {
            let mut bytes = Vec::new();
            Entry { body, ..local(HELD) }.encode(cursor, &mut bytes);
            bytes
        };
        let group = |record| whole(Body::Group(record));
        let long = local(Payload::Inline(&[7; 40]));
        #[rustfmt::skip]
        let cases = [
            // entry                                byte is  because
            (group(GroupRecord::NewBallot),         45,  2,  "another version"),
            (group(GroupRecord::NewBallot),         44,  99, "no kind of entry"),
            (whole(long.body),                      46,  8,  "a whole word of padding"),
            (group(GroupRecord::Evict { slot: 1 }), 65,  1,  "no slot has such a number"),
        ];
        for (mut bytes, at, is, because) in cases {
            assert!(Entry::parse(&bytes, cursor).is_some());
            bytes[at] = is;
            seal(&mut bytes);
            assert_eq!(Entry::parse(&bytes, cursor), None, "{because}");
        }
    }

    #[test]
    fn an_entry_may_end_where_the_ring_ends() {
        const RING: u64 = 1 << 10;
        // A header's length before the end.
        let mut cursor = Cursor { index: 3, position: RING - HEADER as u64 };
        let before = cursor;
        assert_eq!(cursor.offset(RING), PREAMBLE + RING as usize - HEADER);
        assert_eq!(cursor, before, "a header fits there");
        let announced = |len: u32, position| {
            let mut header = [0; HEADER];
            header[40..44].copy_from_slice(&len.to_le_bytes());
            announced_len(&header, Cursor { index: 3, position }, RING)
        };
        assert_eq!(announced(64, RING - 64), Some(64), "a bare header to the end");
        assert_eq!(announced(72, RING - 72), Some(72), "an entry to the end");
        assert_eq!(announced(72, RING - 64), None, "one beyond it");
        assert_eq!(announced(56, 0), None, "less than a header");
        assert_eq!(announced(68, 0), None, "half a word");
    }

    #[test]
    fn no_other_place_lap_or_ballot_passes_for_the_entry() {
        let cursor = Cursor { index: 12, position: 4096 };
        let mut bytes = Vec::new();
        local(Payload::Inline(b"payload")).encode(cursor, &mut bytes);
        #[rustfmt::skip]
        let cases = [
            (Cursor { index: 13, ..cursor },              BALLOT,               "another index"),
            (Cursor { position: 4096 + 65536, ..cursor }, BALLOT,               "a lap later"),
            (Cursor { position: 0, ..cursor },            BALLOT,               "a lap earlier"),
            (cursor,                                      Ballot::new(2, 1, 0), "an earlier ballot"),
            (cursor,                                      Ballot::new(3, 1, 1), "another incarnation"),
        ];
        for (cursor, ballot, because) in cases {
            assert_eq!(Entry::decode(&bytes, cursor, ballot), Err(NotThere), "{because}");
        }
    }

    #[test]
    fn an_entry_is_as_long_as_its_header_says_when_it_is_whole() {
        let cursor = Cursor { index: 2, position: 128 };
        let mut bytes = Vec::new();
        local(Payload::Inline(&[9; 40])).encode(cursor, &mut bytes);
        // The header was copied while it still said how long the entry of an earlier lap was.
        bytes.extend([0; 64]);
        assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Err(NotThere), "it was shorter");
    }

    #[test]
    fn every_torn_or_flipped_entry_is_told() {
        let cursor = Cursor { index: 2, position: 128 };
        let mut whole = Vec::new();
        local(Payload::Inline(&[9; 40])).encode(cursor, &mut whole);
        for word in 0..whole.len() / 8 {
            let mut torn = whole.clone();
            torn[word * 8..].fill(0);
            assert_eq!(Entry::decode(&torn, cursor, BALLOT), Err(NotThere), "torn at word {word}");
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Entry::decode(&flipped, cursor, BALLOT), Err(NotThere), "bit {bit}");
        }
    }
}
