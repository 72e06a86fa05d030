//! What is multicast, and what each group answers: bytes.
//!
//! Both begin with a byte for the version of the form. The rest is postcard: little-endian varints,
//! lengths before bytes, an enum's variant as its number. Reading borrows from the message.

use std::fmt;
use std::ops::Deref;

use postcard::ser_flavors::Flavor;
use serde::de::{Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use skein_protocol::ids::SessionId;

use crate::command::Transaction;
use crate::reply::{Outcome, Refusal};

/// The version of the form. It changes with any change of what lies behind it.
pub const VERSION: u8 = 5;

/// Most requests are shorter, and need no more memory while they are written.
const REQUEST_USUAL: usize = 256;

/// What a session, or a node, multicasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Opens the session that sends it. To all groups, before anything else.
    Open,
    /// Closes the session that sends it. To all groups, after everything else.
    Close,
    /// Closes sessions whose processes died. To all groups.
    Expire(#[serde(with = "sessions")] Vec<SessionId>),
    /// A transaction, to the groups it touches.
    #[serde(borrow)]
    Transaction(Command<'a>),
    /// The same, of one that [only reads](Transaction::only_reads).
    Read(Command<'a>),
    /// Gives a hash slot to another group. To all groups.
    Move(Move),
}

/// Which hash slot another group is to own. Refused if keys of the slot stand somewhere: they stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Of the slot map that is to be changed.
    pub epoch: u32,
    /// The slot.
    pub slot: u16,
    /// The group that is to own it.
    pub to: u16,
}

/// The second byte of a [`Request::Read`], and of nothing else.
const READ: u8 = 4;

/// A transaction and the slot map by which it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command<'a> {
    /// Of the slot map by which its groups were chosen.
    pub epoch: u32,
    /// What to do.
    #[serde(borrow)]
    pub transaction: Transaction<Bytes<'a>>,
}

impl<'a> Request<'a> {
    /// As multicast.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST_USUAL);
        bytes.push(VERSION);
        append(self, &mut bytes);
        bytes
    }

    /// From what was multicast.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => whole(rest),
            Some((version, _)) => Err(Unreadable::Version(*version)),
            None => Err(Unreadable::Bytes),
        }
    }

    /// Whether these bytes say that they only read. Whoever does not answer them can leave them at that.
    pub fn is_read(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, READ, ..])
    }

    /// What it commands, unless it begins or ends sessions.
    pub fn command(self) -> Option<Command<'a>> {
        match self {
            Self::Transaction(command) | Self::Read(command) => Some(command),
            Self::Open | Self::Close | Self::Expire(_) | Self::Move(_) => None,
        }
    }
}

/// What one group answers to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Done: the outcomes of those operations, of the branch taken, that are this group's, in order.
    Done {
        /// Whether all guards held, those of other groups included.
        held: bool,
        /// In the order of the branch; of a scan, this group's pairs.
        outcomes: Vec<Outcome<Bytes<'a>>>,
    },
    /// Refused, everywhere, by this group.
    Refused(Refusal),
    /// Refused, everywhere, by another group, whose part says why.
    RefusedElsewhere,
}

// The second byte of a part.
const OTHERWISE: u8 = 0;
const THEN: u8 = 1;
const REFUSED: u8 = 2;
const REFUSED_ELSEWHERE: u8 = 3;

impl<'a> Part<'a> {
    /// From what a group replied.
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

/// Writes a group's part into a buffer that is used again and again.
#[derive(Debug, Default)]
pub struct PartWriter {
    bytes: Vec<u8>,
}

/// A buffer larger than this is not kept.
const BUFFER_KEPT: usize = 64 << 10;

impl PartWriter {
    /// Begins a part of `count` outcomes. Exactly so many [outcomes](Self::outcome) must follow.
    pub fn done(&mut self, held: bool, count: usize) {
        self.start(if held { THEN } else { OTHERWISE });
        append(&count, &mut self.bytes);
    }

    /// The next outcome.
    pub fn outcome(&mut self, outcome: &Outcome<Bytes<'_>>) {
        append(outcome, &mut self.bytes);
    }

    /// The same, of bytes that a store holds.
    pub(crate) fn held<G: Deref<Target = [u8]>>(&mut self, outcome: &Outcome<Held<G>>) {
        append(outcome, &mut self.bytes);
    }

    /// The whole part: refused here, or, with no reason, elsewhere.
    pub fn refused(&mut self, refusal: Option<&Refusal>) {
        match refusal {
            Some(refusal) => {
                self.start(REFUSED);
                append(refusal, &mut self.bytes);
            }
            None => self.start(REFUSED_ELSEWHERE),
        }
    }

    /// What was written since the part began.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn start(&mut self, kind: u8) {
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_KEPT);
        self.bytes.extend([VERSION, kind]);
    }
}

/// Bytes that are not what they should be. Nothing is done with them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Written by another version of Skein: use the cluster's.
    #[error("it is of version {0}, and this is version {VERSION}")]
    Version(u8),
    /// Not of this form at all.
    #[error("its bytes are not of the form of version {VERSION}")]
    Bytes,
}

/// Borrowed bytes that are written and read at once, and not one by one.
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

/// Bytes that somebody else holds, written as [`Bytes`] are.
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

/// Sessions as their numbers: the protocol crate knows no serde.
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

/// All of `bytes`, or nothing.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Unreadable> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(Unreadable::Bytes),
    }
}

/// What stands at the beginning of `bytes`, and the rest.
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
