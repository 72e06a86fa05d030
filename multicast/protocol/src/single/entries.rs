//! What the entries of the log say: the group's own records, and messages.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::convert::Infallible;

use crate::bytes::{Reader, Writer};
use crate::group::body::{self, Contents, Payload, ReadMessage, Stamp};
use crate::group::frame::{Cursor, Frame, entry_len};
use crate::group::{GroupRecord, LogRecord, LoggedMessage};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::rank::Rank;
use crate::results::Results;

/// The only kind of entry that is not the group's own.
const MESSAGE: u8 = 2;

/// What a log entry says, without payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// What it says of the group itself.
    Group(GroupRecord),
    /// A message has its place in the order.
    Message {
        /// The message.
        message: MessageId,
        /// Its session's low-water mark.
        low_water: u64,
        /// Whether the payload is in the entry; otherwise each replica must hold it by itself.
        inline: bool,
    },
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

    /// The index of its entry is not known to a record, and it is delivered there: no lower than at the least rank.
    fn message(&self) -> Option<LoggedMessage> {
        let Self::Message { message, inline, .. } = *self else { return None };
        let (destinations, least) = (GroupSet::first(1), Rank::new(Rank::LEAST));
        Some(LoggedMessage { message, destinations, least, inline })
    }

    fn is_results(&self) -> bool {
        false
    }

    fn depends_on_others(&self) -> bool {
        false
    }

    fn of_items(first: Infallible) -> Self {
        match first {}
    }

    fn first_item(&self) -> Option<Infallible> {
        None
    }
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// What it says of the group itself.
    Group(GroupRecord),
    /// A message has its place in the order.
    Message {
        /// The message.
        message: MessageId,
        /// Its session's low-water mark.
        low_water: u64,
        /// The payload that was multicast.
        payload: Payload<'a>,
    },
}

impl<'a> body::Body<'a> for Body<'a> {
    type Record = Record;

    fn read(frame: &Frame<'a>) -> Option<Self> {
        let mut from = Reader(frame.body);
        Some(match frame.kind {
            MESSAGE => Body::Message {
                message: from.message()?,
                low_water: from.u64()?,
                payload: Payload::decode(from)?,
            },
            kind => Body::Group(GroupRecord::decode(kind, &mut from)?),
        })
    }

    fn message(&self) -> Option<ReadMessage<'a>> {
        let Body::Message { message, low_water, payload } = *self else { return None };
        Some(ReadMessage { message, low_water, destinations: GroupSet::first(1), payload })
    }

    fn results(&self) -> Option<(GroupId, Results<'a>)> {
        None
    }

    fn for_each_record(&self, mut each: impl FnMut(Record)) {
        each(match *self {
            Body::Group(record) => Record::Group(record),
            Body::Message { message, low_water, payload } => {
                let inline = matches!(payload, Payload::Inline(_));
                Record::Message { message, low_water, inline }
            }
        });
    }

    fn longest(_: GroupSet, payload: usize, _: usize) -> usize {
        message_len(payload)
    }
}

/// The bytes of an entry of a message whose payload takes so many.
const fn message_len(payload: usize) -> usize {
    entry_len(24 + 1 + payload)
}

/// An entry that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft<'a>(Body<'a>);

impl<'a> Draft<'a> {
    /// The entry of a record.
    ///
    /// # Panics
    /// If a message's contents are no payload.
    pub(super) fn of(record: &Record, contents: Contents<'a>) -> Self {
        Self(match (*record, contents) {
            (Record::Group(record), _) => Body::Group(record),
            (Record::Message { message, low_water, .. }, Contents::Payload(payload)) => {
                Body::Message { message, low_water, payload }
            }
            (record, contents) => panic!("{record:?} is not an entry of {contents:?}"),
        })
    }
}

impl body::Draft for Draft<'_> {
    type Record = Record;

    fn entry_len(&self) -> usize {
        match self.0 {
            Body::Group(record) => entry_len(record.body_len()),
            Body::Message { payload, .. } => message_len(payload.logged_len()),
        }
    }

    fn encode(&self, stamp: Stamp, cursor: Cursor, bytes: &mut Vec<u8>) {
        let Stamp { ballot, time_ms, epoch } = stamp;
        let kind = match self.0 {
            Body::Group(record) => record.kind(),
            Body::Message { .. } => MESSAGE,
        };
        let frame = Frame { birth: ballot, written: ballot, time_ms, epoch, kind, body: &[] };
        frame.encode_with(cursor, bytes, |out: &mut Writer<'_>| match self.0 {
            Body::Group(record) => record.encode(out),
            Body::Message { message, low_water, payload } => {
                out.message(message);
                out.u64(low_water);
                payload.encode(out);
            }
        });
    }

    /// Followers that hold a message are heard of when the write completes; its payload may be elsewhere.
    fn is_awaited(&self) -> bool {
        !matches!(self.0, Body::Message { payload: Payload::Inline(_), .. })
    }

    fn items(&self) -> usize {
        0
    }

    fn for_each_record(&self, each: impl FnMut(Record)) {
        body::Body::for_each_record(&self.0, each);
    }
}
