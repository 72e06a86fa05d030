//! The body of an entry: its ordering reads and writes it, and the replica adds payloads and results.

use alloc::vec::Vec;

use super::frame::{Cursor, Frame};
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::results::Results;

/// Where a message's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In the entry.
    Inline(&'a [u8]),
    /// In the ring of its session, or wherever the replica assembled it. A session may write one replica other
    /// bytes than the next: those whose check fits are meant.
    Held {
        /// [`check`](crate::check::check()) of the bytes.
        check: u64,
    },
}

impl<'a> Payload<'a> {
    /// The bytes that it takes in an entry.
    pub const fn logged_len(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Held { .. } => 8,
        }
    }

    /// Appends it, as the last that an entry says.
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

    /// Reads what [`encode`](Self::encode) wrote.
    #[inline]
    pub(crate) fn decode(mut from: Reader<'a>) -> Option<Self> {
        Some(match from.u8()? {
            0 => Payload::Held { check: from.u64()? },
            _ => Payload::Inline(from.0),
        })
    }
}

/// A message that an entry gives its place, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMessage<'a> {
    /// The message.
    pub message: MessageId,
    /// Its session's low-water mark.
    pub low_water: u64,
    /// All its destinations.
    pub destinations: GroupSet,
    /// The payload that was multicast.
    pub payload: Payload<'a>,
}

/// The body of an entry that was read.
pub trait Body<'a>: Copy {
    /// A record of it.
    type Record;

    /// Reads what an entry says. `None` if there is no such kind, or it makes no sense.
    fn read(frame: &Frame<'a>) -> Option<Self>;

    /// The message that it gives its place, if it does.
    fn message(&self) -> Option<ReadMessage<'a>>;

    /// Another group's results, if it has such.
    fn results(&self) -> Option<(GroupId, Results<'a>)>;

    /// Tells `each` what it says, record by record.
    fn for_each_record(&self, each: impl FnMut(Self::Record));

    /// The most bytes that an entry takes: of a message to these groups, with so long a payload in it, or of results of so
    /// many bytes.
    fn longest(destinations: GroupSet, payload: usize, results: usize) -> usize;
}

/// The part of an entry to be written that the replica holds.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Nothing.
    None,
    /// The payload of the message that it gives its place.
    Payload(Payload<'a>),
    /// Another group's results.
    Results {
        /// Whose.
        from: GroupId,
        /// As they were told.
        results: Results<'a>,
    },
}

/// The header of an entry that is to be written, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The ballot in which it is appended.
    pub ballot: Ballot,
    /// The leader's clock in milliseconds.
    pub time_ms: u64,
    /// The slot map's epoch.
    pub epoch: u32,
}

/// An entry that is to be written.
pub trait Draft {
    /// A record of it.
    type Record;

    /// The bytes that it takes.
    fn entry_len(&self) -> usize;

    /// Appends the entry that belongs at `cursor` to `bytes`.
    fn encode(&self, stamp: Stamp, cursor: Cursor, bytes: &mut Vec<u8>);

    /// Whether somebody waits for what followers do with it: other groups for what they accept, their own leader for whether
    /// they hold a payload.
    fn is_awaited(&self) -> bool;

    /// How many [items](super::LogRecord::Item) it has.
    fn items(&self) -> usize;

    /// Tells `each` what it says, record by record.
    fn for_each_record(&self, each: impl FnMut(Self::Record));
}
