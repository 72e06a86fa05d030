//! The entries of the log: the group's own records, what is ordered, and other groups' results.

use alloc::vec::Vec;
use core::convert::Infallible;

use super::content::Content;
use super::edges::EdgeNumber;
use crate::bytes::{Reader, Writer};
use crate::group::body::{self, Contents, Payload, ReadMessage, Stamp};
use crate::group::frame::{Cursor, Frame, entry_len};
use crate::group::{GroupRecord, LogRecord, LoggedMessage};
use crate::ids::{GroupId, GroupSet};
use crate::rank::Rank;
use crate::results::Results;

/// Kinds of entries that do not belong to the group log. [`RamCast`](crate::ramcast::log)'s are others, so an entry tells by
/// its kind which protocol wrote it, and none is read by the other.
const ORDERED: u8 = 9;
const EXCHANGE: u8 = 10;

/// In the first byte of what is ordered: it came from our parent, and its message's name was here before.
const TAKEN: u8 = 1;
const KNOWN: u8 = 2;

/// How an entry came from our parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub number: EdgeNumber,
    /// Rank in the log of the lowest common ancestor.
    pub place: Rank,
}

/// Content of a log entry, without payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A record of the group log itself.
    Group(GroupRecord),
    /// A message or a marker gets its place in our order.
    Ordered {
        content: Content,
        /// `None` if we are the lowest common ancestor.
        taken: Option<Taken>,
        /// The message has a place in our log before this entry, and is not delivered because of it.
        known: bool,
    },
    /// Another group's results, which the ordering does not read.
    Exchange,
}

impl From<GroupRecord> for Record {
    fn from(record: GroupRecord) -> Self {
        Self::Group(record)
    }
}

impl LogRecord for Record {
    type Item = Infallible;

    fn of_group(&self) -> Option<GroupRecord> {
        if let Self::Group(record) = self { Some(*record) } else { None }
    }

    /// The rank depends on the index of the entry, which a record does not contain. It is no lower than the least rank.
    fn message(&self) -> Option<LoggedMessage> {
        let Self::Ordered {
            content: Content::Message { message, destinations, outside, .. }, ..
        } = *self
        else {
            return None;
        };
        let (least, inline) = (Rank::new(Rank::LEAST), outside == 0);
        Some(LoggedMessage { message, destinations, least, inline })
    }

    fn is_repeat(&self) -> bool {
        matches!(self, Self::Ordered { known: true, .. })
    }

    fn is_results(&self) -> bool {
        matches!(self, Self::Exchange)
    }

    /// The machine may wait for results of the other destinations.
    fn depends_on_others(&self) -> bool {
        self.message().is_some_and(|message| message.destinations.has_several())
    }

    fn of_items(first: Infallible) -> Self {
        match first {}
    }

    fn first_item(&self) -> Option<Infallible> {
        None
    }
}

/// The body of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A record of the group log itself.
    Group(GroupRecord),
    /// A message with its payload, or a marker without one.
    Ordered { content: Content, taken: Option<Taken>, known: bool, payload: Option<Payload<'a>> },
    /// Another group's results.
    Exchange { from: GroupId, results: Results<'a> },
}

impl<'a> body::Body<'a> for Body<'a> {
    type Record = Record;

    fn read(frame: &Frame<'a>) -> Option<Self> {
        let mut from = Reader(frame.body);
        Some(match frame.kind {
            ORDERED => {
                let bits = from.u8()?;
                let taken = match bits & !KNOWN {
                    0 => None,
                    TAKEN => {
                        let generation = from.u32()?;
                        let [number, place] = from.words()?;
                        let number = EdgeNumber { generation, number };
                        Some(Taken { number, place: Rank::new(place) })
                    }
                    _ => return None,
                };
                let known = bits & KNOWN != 0;
                let content = Content::decode(&mut from)?;
                let payload = match content {
                    Content::Message { outside, .. } => {
                        let payload = Payload::decode(from)?;
                        let fits = (outside == 0) == matches!(payload, Payload::Inline(_));
                        Some(fits.then_some(payload)?)
                    }
                    Content::Marker { .. } => None,
                };
                Body::Ordered { content, taken, known, payload }
            }
            EXCHANGE => Body::Exchange { from: GroupId(from.u16()?), results: Results(from.0) },
            kind => Body::Group(GroupRecord::decode(kind, &mut from)?),
        })
    }

    fn message(&self) -> Option<ReadMessage<'a>> {
        let Body::Ordered {
            content: Content::Message { message, low_water, destinations, .. },
            payload: Some(payload),
            known: repeat,
            ..
        } = *self
        else {
            return None;
        };
        Some(ReadMessage { message, low_water, destinations, payload, repeat })
    }

    fn results(&self) -> Option<(GroupId, Results<'a>)> {
        let Body::Exchange { from, results } = *self else { return None };
        Some((from, results))
    }

    fn items(&self) -> usize {
        0
    }

    fn for_each_record(&self, mut each: impl FnMut(Record)) {
        each(match *self {
            Body::Group(record) => Record::Group(record),
            Body::Ordered { content, taken, known, .. } => {
                Record::Ordered { content, taken, known }
            }
            Body::Exchange { .. } => Record::Exchange,
        });
    }

    fn longest(destinations: GroupSet, payload: usize, results: usize) -> usize {
        let ordered = TAKEN_LEN + Content::message_len(destinations) + 1 + payload;
        entry_len(ordered).max(entry_len(2 + results))
    }
}

/// Length in bytes of the encoding of how an entry was taken.
const TAKEN_LEN: usize = 1 + 4 + 16;

/// An entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft<'a>(Body<'a>);

impl<'a> Draft<'a> {
    /// The entry of one record.
    ///
    /// # Panics
    /// If the contents are not those of such an entry.
    pub fn of(record: &Record, contents: Contents<'a>) -> Self {
        Self(match (*record, contents) {
            (Record::Group(record), _) => Body::Group(record),
            (Record::Ordered { content: content @ Content::Marker { .. }, taken, known }, _) => {
                Body::Ordered { content, taken, known, payload: None }
            }
            (Record::Ordered { content, taken, known }, Contents::Payload(payload)) => {
                Body::Ordered { content, taken, known, payload: Some(payload) }
            }
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
        entry_len(match self.0 {
            Body::Group(record) => record.body_len(),
            Body::Ordered { content, taken, payload, .. } => {
                let taken = if taken.is_some() { TAKEN_LEN } else { 1 };
                taken + content.encoded_len() + payload.map_or(0, |it| 1 + it.logged_len())
            }
            Body::Exchange { results, .. } => 2 + results.0.len(),
        })
    }

    fn encode(&self, stamp: Stamp, cursor: Cursor, bytes: &mut Vec<u8>) {
        let Stamp { ballot, time_ms, epoch } = stamp;
        let kind = match self.0 {
            Body::Group(record) => record.kind(),
            Body::Ordered { .. } => ORDERED,
            Body::Exchange { .. } => EXCHANGE,
        };
        let frame = Frame { birth: ballot, written: ballot, time_ms, epoch, kind, body: &[] };
        frame.encode_with(cursor, bytes, |out: &mut Writer<'_>| match self.0 {
            Body::Group(record) => record.encode(out),
            Body::Ordered { content, taken, known, payload } => {
                let bits = if taken.is_some() { TAKEN } else { 0 };
                out.u8(bits | if known { KNOWN } else { 0 });
                if let Some(Taken { number, place }) = taken {
                    out.u32(number.generation);
                    out.words([number.number, place.number()]);
                }
                content.encode(out);
                if let Some(payload) = payload {
                    payload.encode(out);
                }
            }
            Body::Exchange { from, results } => {
                out.u16(from.0);
                out.0.extend_from_slice(results.0);
            }
        });
    }

    /// A completed write shows that a follower holds an inline message. A payload that is not inline must be
    /// acknowledged.
    fn is_awaited(&self) -> bool {
        !matches!(self.0, Body::Ordered { payload: Some(Payload::Inline(_)), .. })
    }

    fn items(&self) -> usize {
        0
    }

    fn for_each_record(&self, each: impl FnMut(Record)) {
        body::Body::for_each_record(&self.0, each);
    }
}

#[cfg(test)]
mod tests;
