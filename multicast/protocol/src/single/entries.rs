//! The entries of the log: the group's own records, and messages.

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

/// The only kind of entry that does not belong to the group log.
const MESSAGE: u8 = 2;

/// Content of a log entry, without payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A record of the group log itself.
    Group(GroupRecord),
    /// A message gets its place in the order.
    Message {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
        /// Whether the payload is in the entry. Otherwise each replica must hold it by itself.
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

    /// The rank depends on the index of the entry, which a record does not contain. It is no lower than the least rank.
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

/// The body of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A record of the group log itself.
    Group(GroupRecord),
    /// A message gets its place in the order.
    Message {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
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
        Some(ReadMessage {
            message,
            low_water,
            destinations: GroupSet::first(1),
            payload,
            repeat: false,
        })
    }

    fn results(&self) -> Option<(GroupId, Results<'a>)> {
        None
    }

    fn items(&self) -> usize {
        0
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

/// Length in bytes of the entry of a message whose payload has `payload` bytes.
const fn message_len(payload: usize) -> usize {
    entry_len(24 + 1 + payload)
}

/// An entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft<'a>(Body<'a>);

impl<'a> Draft<'a> {
    /// The entry of one record.
    ///
    /// # Panics
    /// If the contents of a message's entry are not a payload.
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

    /// A completed write shows that a follower holds an inline message. A payload that is not inline must be
    /// acknowledged.
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
