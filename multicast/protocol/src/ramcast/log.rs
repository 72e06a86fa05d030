//! The bodies of RamCast's log entries, and their encoding inside a [frame](crate::group::frame).

use alloc::vec::Vec;

use super::record::Record;
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer, groups_len};
use crate::group::GroupRecord;
use crate::group::body::{self, Contents, Payload, ReadMessage, Stamp};
use crate::group::frame::{Cursor, Frame, NotThere, entry_len};
use crate::ids::{GroupId, GroupSet, MessageId, SessionId};
use crate::results::Results;
use crate::timestamp::Timestamp;

/// Most `Remote`s, or decisions, in one entry.
pub const REMOTES_MAX: usize = 32;
/// A group's proposal, as another group's leader logs it. The proposing group is the timestamp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub message: MessageId,
    pub timestamp: Timestamp,
    /// Ballot of the leader that announced it.
    pub ballot: Ballot,
    /// Index in the proposing group's log.
    pub index: u64,
}

impl Remote {
    const BYTES: usize = 40;

    /// The proposing group.
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

/// A message's final timestamp, for which quorums of all its destination groups were seen. A lagging replica may
/// deliver on this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub message: MessageId,
    pub timestamp: Timestamp,
}

impl Decision {
    const BYTES: usize = 24;
}

/// The body of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A record of the group log itself.
    Group(GroupRecord),
    /// The group's proposal for a message.
    Local {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
        timestamp: Timestamp,
        destinations: GroupSet,
        payload: Payload<'a>,
    },
    /// Other groups' proposals that the leader read together.
    Remotes(Remotes<'a>),
    /// Results of another group's state machine.
    Exchange {
        /// The group that sent the results.
        from: GroupId,
        /// The results, as they were sent.
        results: Results<'a>,
    },
    /// Final timestamps: the messages may be delivered on this alone.
    Decided(Decisions<'a>),
    /// A bound for later entries, logged for a recreated group.
    Raise {
        /// Nothing that is logged later ends at or below this.
        timestamp: Timestamp,
    },
}

/// The decisions of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decisions<'a>(&'a [u8]);

impl<'a> Decisions<'a> {
    /// The decisions, in the order in which they were made.
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

/// The `Remote`s of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remotes<'a>(&'a [u8]);

impl<'a> Remotes<'a> {
    /// The proposals, in the order in which the leader read them.
    pub fn iter(self) -> impl Iterator<Item = Remote> + Clone + use<'a> {
        let (remotes, _) = self.0.as_chunks::<{ Remote::BYTES }>();
        remotes.iter().map(|bytes| Remote::decode(&mut Reader(bytes)).expect("it is long enough"))
    }
}

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Ballot in which it was first appended.
    pub birth: Ballot,
    /// Ballot in which it was written here.
    pub written: Ballot,
    /// The leader's time.
    pub time_ms: u64,
    /// The layout's epoch.
    pub epoch: u32,
    pub body: Body<'a>,
}

impl<'a> Entry<'a> {
    /// Length in bytes of a `Local` whose payload has `payload` bytes.
    pub fn local_len(destinations: GroupSet, payload: usize) -> usize {
        entry_len(32 + groups_len(destinations) + 1 + payload)
    }

    /// Length in bytes of an entry of `count` remotes.
    pub const fn remotes_len(count: usize) -> usize {
        entry_len(count * Remote::BYTES)
    }

    /// Length in bytes of an entry of `count` decisions.
    pub const fn decided_len(count: usize) -> usize {
        entry_len(count * Decision::BYTES)
    }

    /// Length in bytes of a `Raise`.
    pub const fn raise_len() -> usize {
        entry_len(8)
    }

    /// Length in bytes of an `Exchange` whose results have `results` bytes.
    pub const fn exchange_len(results: usize) -> usize {
        entry_len(2 + results)
    }

    /// Appends the entry that belongs at `cursor` to `bytes`.
    pub fn encode(&self, cursor: Cursor, bytes: &mut Vec<u8>) {
        self.encode_with(cursor, bytes, |out| match self.body {
            Body::Group(record) => record.encode(out),
            Body::Local { message, low_water, timestamp, destinations, payload } => {
                let MessageId { session, sequence } = message;
                out.words([session.0, sequence, low_water, timestamp.to_word()]);
                out.groups(destinations);
                payload.encode(out);
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
        let &Self { birth, written, time_ms, epoch, body: ref says } = self;
        let frame = Frame { birth, written, time_ms, epoch, kind: says.kind(), body: &[] };
        frame.encode_with(cursor, bytes, body);
    }

    /// Reads the entry that belongs at `cursor`, in `ballot`, as [`Frame::decode`] does.
    ///
    /// # Errors
    /// If the bytes are not that entry, are incomplete, or are of an unknown kind.
    pub fn decode(bytes: &'a [u8], cursor: Cursor, ballot: Ballot) -> Result<Self, NotThere> {
        Self::parse(bytes, cursor).filter(|entry| entry.written == ballot).ok_or(NotThere)
    }

    /// Reads the entry that belongs at `cursor`, as [`Frame::parse`] does.
    pub fn parse(bytes: &'a [u8], cursor: Cursor) -> Option<Self> {
        let frame = Frame::parse(bytes, cursor)?;
        let Frame { birth, written, time_ms, epoch, .. } = frame;
        let body = <Body<'_> as body::Body<'_>>::read(&frame)?;
        Some(Self { birth, written, time_ms, epoch, body })
    }
}

impl Body<'_> {
    /// Body of an entry of remotes that [`Entry::encode_remotes`] fills in.
    pub const REMOTES: Self = Body::Remotes(Remotes(&[]));
    /// Body of an entry of decisions that [`Entry::encode_decided`] fills in.
    pub const DECIDED: Self = Body::Decided(Decisions(&[]));

    /// Length in bytes of an entry with this body.
    fn entry_len(&self) -> usize {
        match self {
            Body::Group(record) => entry_len(record.body_len()),
            Body::Local { destinations, payload, .. } => {
                Entry::local_len(*destinations, payload.logged_len())
            }
            Body::Remotes(remotes) => entry_len(remotes.0.len()),
            Body::Exchange { results, .. } => Entry::exchange_len(results.0.len()),
            Body::Decided(decisions) => entry_len(decisions.0.len()),
            Body::Raise { .. } => Entry::raise_len(),
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Body::Group(record) => record.kind(),
            Body::Local { .. } => 2,
            Body::Remotes(_) => 3,
            Body::Exchange { .. } => 4,
            Body::Decided(_) => 5,
            Body::Raise { .. } => 8,
        }
    }
}

impl<'a> body::Body<'a> for Body<'a> {
    type Record = Record;

    #[inline]
    fn read(frame: &Frame<'a>) -> Option<Self> {
        let mut from = Reader(frame.body);
        Some(match frame.kind {
            2 => Body::Local {
                message: from.message()?,
                low_water: from.u64()?,
                timestamp: Timestamp::from_word(from.u64()?),
                destinations: from.groups()?,
                payload: Payload::decode(from)?,
            },
            3 => Body::Remotes(Remotes(from.0)),
            4 => Body::Exchange { from: GroupId(from.u16()?), results: Results(from.0) },
            5 => Body::Decided(Decisions(from.0)),
            8 => Body::Raise { timestamp: Timestamp::from_word(from.u64()?) },
            kind => Body::Group(GroupRecord::decode(kind, &mut from)?),
        })
    }

    #[inline]
    fn message(&self) -> Option<ReadMessage<'a>> {
        match *self {
            Body::Local { message, low_water, destinations, payload, .. } => {
                Some(ReadMessage { message, low_water, destinations, payload, repeat: false })
            }
            _ => None,
        }
    }

    #[inline]
    fn results(&self) -> Option<(GroupId, Results<'a>)> {
        if let Body::Exchange { from, results } = *self { Some((from, results)) } else { None }
    }

    #[inline]
    fn items(&self) -> usize {
        if let Body::Remotes(remotes) = self { remotes.0.len() / Remote::BYTES } else { 0 }
    }

    fn for_each_record(&self, mut each: impl FnMut(Record)) {
        match *self {
            Body::Group(record) => each(Record::Group(record)),
            Body::Local { message, low_water, timestamp, destinations, payload } => {
                let inline = matches!(payload, Payload::Inline(_));
                each(Record::Local { message, low_water, timestamp, destinations, inline });
            }
            Body::Remotes(remotes) => remotes.iter().map(Record::Remote).for_each(each),
            Body::Exchange { .. } => each(Record::Exchange),
            Body::Decided(decisions) => decisions.iter().map(Record::Decided).for_each(each),
            Body::Raise { timestamp } => each(Record::Raise { timestamp }),
        }
    }

    fn longest(destinations: GroupSet, payload: usize, results: usize) -> usize {
        Entry::local_len(destinations, payload).max(Entry::exchange_len(results))
    }
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub enum Draft<'a> {
    /// An entry with a single body.
    One(Body<'a>),
    /// Other groups' proposals that were read together.
    Remotes(&'a [Remote]),
    /// Final timestamps: the messages may be delivered on this alone.
    Decided(&'a [Decision]),
}

impl<'a> Draft<'a> {
    /// The entry of one record.
    ///
    /// # Panics
    /// If `contents` does not match the record.
    pub(super) fn of(record: &Record, contents: Contents<'a>) -> Self {
        Self::One(match (*record, contents) {
            (Record::Group(record), _) => Body::Group(record),
            (Record::Raise { timestamp }, _) => Body::Raise { timestamp },
            (
                Record::Local { message, low_water, timestamp, destinations, .. },
                Contents::Payload(payload),
            ) => Body::Local { message, low_water, timestamp, destinations, payload },
            (Record::Exchange, Contents::Results { from, results }) => {
                Body::Exchange { from, results }
            }
            (record, contents) => panic!("{record:?} is not an entry of {contents:?}"),
        })
    }
}

impl body::Draft for Draft<'_> {
    type Record = Record;

    fn entry_len(&self) -> usize {
        match *self {
            Self::Remotes(remotes) => Entry::remotes_len(remotes.len()),
            Self::Decided(decisions) => Entry::decided_len(decisions.len()),
            Self::One(body) => body.entry_len(),
        }
    }

    fn encode(&self, stamp: Stamp, cursor: Cursor, bytes: &mut Vec<u8>) {
        let Stamp { ballot, time_ms, epoch } = stamp;
        let entry = |body| Entry { birth: ballot, written: ballot, time_ms, epoch, body };
        match *self {
            Self::Remotes(remotes) => entry(Body::REMOTES).encode_remotes(remotes, cursor, bytes),
            Self::Decided(all) => entry(Body::DECIDED).encode_decided(all, cursor, bytes),
            Self::One(body) => entry(body).encode(cursor, bytes),
        }
    }

    fn is_awaited(&self) -> bool {
        match self {
            Self::One(Body::Raise { .. }) => false,
            Self::One(Body::Local { destinations, payload, .. }) => {
                destinations.len() > 1 || !matches!(payload, Payload::Inline(_))
            }
            _ => true,
        }
    }

    fn items(&self) -> usize {
        if let Self::Remotes(remotes) = self { remotes.len() } else { 0 }
    }

    fn for_each_record(&self, each: impl FnMut(Record)) {
        match *self {
            Self::Remotes(remotes) => remotes.iter().copied().map(Record::Remote).for_each(each),
            Self::Decided(all) => all.iter().copied().map(Record::Decided).for_each(each),
            Self::One(body) => body::Body::for_each_record(&body, each),
        }
    }
}

#[cfg(test)]
mod tests;
