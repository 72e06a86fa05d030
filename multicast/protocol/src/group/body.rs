//! The body of an entry. The ordering encodes and decodes it; the replica contributes payloads and results.

use alloc::vec::Vec;

use super::frame::{Cursor, Frame};
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::results::Results;

/// Location of a message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In the entry.
    Inline(&'a [u8]),
    /// In the ring of its session, or in the replica's memory after assembly. A faulty session may write different
    /// bytes to different replicas: the bytes with this checksum are the logged ones.
    Held {
        /// [`check`](crate::check::check()) of the bytes.
        check: u64,
    },
}

impl<'a> Payload<'a> {
    /// Length in bytes of the payload's encoding in an entry.
    pub const fn logged_len(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Held { .. } => 8,
        }
    }

    /// Appends the payload. It is the last field of an entry.
    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Payload::Held { check } => {
                out.u8(0);
                out.u64(*check);
            }
            Payload::Inline(payload) => {
                out.u8(1);
                out.0.extend_from_slice(payload);
            }
        }
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    #[inline]
    pub(crate) fn decode(mut from: Reader<'a>) -> Option<Self> {
        Some(match from.u8()? {
            0 => Payload::Held { check: from.u64()? },
            _ => Payload::Inline(from.0),
        })
    }
}

/// A message whose place in the order an entry determines, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMessage<'a> {
    pub message: MessageId,
    /// Low-water mark of the message's session.
    pub low_water: u64,
    pub destinations: GroupSet,
    pub payload: Payload<'a>,
    /// It has a place by an earlier entry, and is not delivered because of this one.
    pub repeat: bool,
}

/// The body of an entry that was read.
pub trait Body<'a>: Copy {
    /// The record type of the ordering.
    type Record;

    /// Decodes an entry. `None` if its kind is unknown, or its body is malformed.
    fn read(frame: &Frame<'a>) -> Option<Self>;

    /// The message whose place in the order the entry determines, if there is one.
    fn message(&self) -> Option<ReadMessage<'a>>;

    /// Another group's results, if the entry contains any.
    fn results(&self) -> Option<(GroupId, Results<'a>)>;

    /// How many [items](super::LogRecord::Item) it has.
    fn items(&self) -> usize;

    /// Calls `each` with every record of the entry.
    fn for_each_record(&self, each: impl FnMut(Self::Record));

    /// Upper bound on the length in bytes of an entry: of a message to these groups with an inline payload of `payload`
    /// bytes, or of `results` bytes of results.
    fn longest(destinations: GroupSet, payload: usize, results: usize) -> usize;
}

/// The part of an entry to be written that the replica holds.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    None,
    /// The payload of the entry's message.
    Payload(Payload<'a>),
    /// Another group's results.
    Results {
        from: GroupId,
        /// In the encoding in which they were received.
        results: Results<'a>,
    },
}

/// Header fields of an entry to be written, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The ballot in which the entry is appended.
    pub ballot: Ballot,
    /// The leader's time.
    pub time_ms: u64,
    /// The layout's epoch.
    pub epoch: u32,
}

/// An entry to be written.
pub trait Draft {
    /// The record type of the ordering.
    type Record;

    /// Length of the entry in bytes.
    fn entry_len(&self) -> usize;

    /// Appends the entry that belongs at `cursor` to `bytes`.
    fn encode(&self, stamp: Stamp, cursor: Cursor, bytes: &mut Vec<u8>);

    /// Whether another replica waits for the followers' reaction: leaders of other groups for their acceptance, or
    /// their own leader for whether they hold a payload.
    fn is_awaited(&self) -> bool;

    /// Number of [items](super::LogRecord::Item) in the entry.
    fn items(&self) -> usize;

    /// Calls `each` with every record of the entry.
    fn for_each_record(&self, each: impl FnMut(Self::Record));
}
