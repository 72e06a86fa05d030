//! The wire format of requests, which sessions and nodes multicast, and of the groups' answers.
//!
//! Both begin with a version byte. The rest is postcard: little-endian varints, lengths before bytes, an enum's variant
//! as its number. Decoded values borrow from the message.

use std::fmt;
use std::ops::Deref;

use postcard::ser_flavors::Flavor;
use serde::de::{Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use skein_protocol::ids::SessionId;

use crate::command::Transaction;
use crate::points::RestorePoint;
use crate::reply::{Outcome, Refusal};

/// Version of the wire format. Every change of the format changes it, but for a request that is added as the last one: what was
/// encoded before, in logs for instance, means what it did.
pub const VERSION: u8 = 5;

/// Most requests are shorter, so their buffer does not grow while they are encoded.
const REQUEST_USUAL: usize = 256;

/// A message that a session or a node multicasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Opens the session that sends it. Sent to all groups, before any other request.
    Open,
    /// Closes the session that sends it. Sent to all groups, after every other request.
    Close,
    /// Closes sessions whose processes died. Sent to all groups.
    Expire(#[serde(with = "sessions")] Vec<SessionId>),
    /// A transaction. Sent to the groups that own its keys.
    #[serde(borrow)]
    Transaction(Command<'a>),
    /// A transaction that [only reads](Transaction::only_reads).
    Read(Command<'a>),
    /// Gives a hash slot to another group. Sent to all groups.
    Move(Move),
    /// Asks each group for its [totals](crate::backup::Mark) at this place in the order, and completes the copies that replicas
    /// make for this session. Sent to all groups.
    Mark,
    /// Writes the state of each group to disk at this place in the order. Sent to all groups.
    RestorePoint(RestorePoint),
}

/// A hash slot and the group that is to own it. Refused while the slot holds keys: keys are not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Epoch of the slot map that is to be changed.
    pub epoch: u32,
    pub slot: u16,
    pub to: u16,
}

/// The second byte of an encoded [`Request::Read`], and of no other request.
const READ: u8 = 4;

/// A transaction, and the epoch of the slot map by which it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command<'a> {
    /// Epoch of the slot map by which the destinations were chosen.
    pub epoch: u32,
    #[serde(borrow)]
    pub transaction: Transaction<Bytes<'a>>,
}

impl<'a> Request<'a> {
    /// The bytes to multicast.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST_USUAL);
        bytes.push(VERSION);
        append(self, &mut bytes);
        bytes
    }

    /// Decodes the bytes of a multicast message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => whole(rest),
            Some((version, _)) => Err(Unreadable::Version(*version)),
            None => Err(Unreadable::Bytes),
        }
    }

    /// Whether these bytes encode a [`Request::Read`]. A replica that does not answer it need not execute it.
    pub fn is_read(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, READ, ..])
    }

    /// The command, unless the request is of another kind.
    pub fn command(self) -> Option<Command<'a>> {
        match self {
            Self::Transaction(command) | Self::Read(command) => Some(command),
            Self::Open
            | Self::Close
            | Self::Expire(_)
            | Self::Move(_)
            | Self::Mark
            | Self::RestorePoint(_) => None,
        }
    }
}

/// The answer of one group to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The command took effect.
    Done {
        /// Whether all guards held, in all groups.
        held: bool,
        /// The outcomes of this group's operations of the executed branch, in order; for a scan, the group's pairs.
        outcomes: Vec<Outcome<Bytes<'a>>>,
    },
    /// Refused, in all groups, for a reason in this group.
    Refused(Refusal),
    /// Refused, in all groups, for a reason in another group, whose part contains it.
    RefusedElsewhere,
}

// The second byte of a part.
const OTHERWISE: u8 = 0;
const THEN: u8 = 1;
const REFUSED: u8 = 2;
const REFUSED_ELSEWHERE: u8 = 3;

impl<'a> Part<'a> {
    /// Decodes a group's reply.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        match *bytes {
            [VERSION, kind @ (OTHERWISE | THEN), ref rest @ ..] => {
                Ok(Self::Done { held: kind == THEN, outcomes: whole(rest)? })
            }
            [VERSION, REFUSED, ref rest @ ..] => whole(rest).map(Self::Refused),
            [VERSION, REFUSED_ELSEWHERE] => Ok(Self::RefusedElsewhere),
            [version, ..] if version != VERSION => Err(Unreadable::Version(version)),
            _ => Err(Unreadable::Bytes),
        }
    }
}

/// Encodes a group's part into a buffer that is reused.
#[derive(Debug, Default)]
pub struct PartWriter {
    bytes: Vec<u8>,
}

/// A larger buffer is not kept for the next part.
const BUFFER_KEPT: usize = 64 << 10;

impl PartWriter {
    /// Begins a part of `count` outcomes. Exactly as many calls of [`outcome`](Self::outcome) must follow.
    pub fn done(&mut self, held: bool, count: usize) {
        self.start(if held { THEN } else { OTHERWISE });
        append(&count, &mut self.bytes);
    }

    /// Writes the next outcome.
    pub fn outcome(&mut self, outcome: &Outcome<Bytes<'_>>) {
        append(outcome, &mut self.bytes);
    }

    /// Writes the next outcome, with bytes that a store holds.
    pub(crate) fn held<G: Deref<Target = [u8]>>(&mut self, outcome: &Outcome<Held<G>>) {
        append(outcome, &mut self.bytes);
    }

    /// Writes a whole part: refused in this group, or, without a reason, in another one.
    pub fn refused(&mut self, refusal: Option<&Refusal>) {
        match refusal {
            Some(refusal) => {
                self.start(REFUSED);
                append(refusal, &mut self.bytes);
            }
            None => self.start(REFUSED_ELSEWHERE),
        }
    }

    /// The bytes of the part so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn start(&mut self, kind: u8) {
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_KEPT);
        self.bytes.extend([VERSION, kind]);
    }
}

/// The bytes cannot be decoded. They have no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Encoded by another version of Skein. Use the version that the cluster runs.
    #[error("it is of version {0}, and this is version {VERSION}")]
    Version(u8),
    /// Not in this format at all.
    #[error("its bytes are not of the form of version {VERSION}")]
    Bytes,
}

/// Borrowed bytes that are serialized as one byte string, not element by element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes<'a>(pub &'a [u8]);

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::reply::show(self.0))
    }
}

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Bytes with another owner, serialized in the same way as [`Bytes`].
pub(crate) struct Held<G>(pub(crate) G);

impl<G: Deref<Target = [u8]>> Serialize for Held<G> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Bytes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("borrowed bytes")
            }

            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_bytes(Borrow)
    }
}

/// Serializes sessions as their numbers, because the protocol crate does not depend on serde.
mod sessions {
    use super::{Deserialize, Deserializer, Serializer, SessionId};

    pub(super) fn serialize<S: Serializer>(ids: &[SessionId], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(|id| id.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<SessionId>, D::Error> {
        let numbers = Vec::<u64>::deserialize(from)?;
        Ok(numbers.into_iter().map(SessionId).collect())
    }
}

/// Decodes a value from all of `bytes`. Bytes that remain are an error.
pub(crate) fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Unreadable> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(Unreadable::Bytes),
    }
}

/// Decodes a value from the start of `bytes`. Returns it with the rest.
pub(crate) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), Unreadable> {
    postcard::take_from_bytes(bytes).map_err(|_| Unreadable::Bytes)
}

pub(crate) fn append<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) {
    postcard::serialize_with_flavor(value, Onto(bytes))
        .expect("a buffer in memory takes everything, and these types have lengths");
}

struct Onto<'a>(&'a mut Vec<u8>);

impl Flavor for Onto<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
