//! What the log knows of a record: what it says of the group. All else is the ordering's.

use core::fmt::Debug;

use crate::bytes::{Reader, Writer};
use crate::ids::{GroupSet, MessageId};
use crate::rank::Rank;

/// What an entry says of the group itself. The rest of an entry's header and body is no matter of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// A leader's first entry.
    NewBallot,
    /// The log waits for this slot no more until its next `Join`.
    Evict {
        /// The slot of the replica.
        slot: u8,
    },
    /// This incarnation of the slot counts from here on.
    Join {
        /// The slot of the replica.
        slot: u8,
        /// The incarnation of the replica.
        incarnation: u32,
    },
}

impl GroupRecord {
    /// The kind that an entry's header names. An ordering's own records have others, and 0 is a pad.
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Self::NewBallot => 1,
            Self::Evict { .. } => 6,
            Self::Join { .. } => 7,
        }
    }

    /// The bytes that it takes in an entry's body.
    pub const fn body_len(self) -> usize {
        match self {
            Self::NewBallot => 0,
            Self::Evict { .. } | Self::Join { .. } => 8,
        }
    }

    /// Appends the entry's body.
    pub(crate) fn encode(self, out: &mut Writer<'_>) {
        match self {
            Self::NewBallot => {}
            Self::Evict { slot } => out.u64(u64::from(slot)),
            Self::Join { slot, incarnation } => {
                out.u32(u32::from(slot));
                out.u32(incarnation);
            }
        }
    }

    /// Reads the body of an entry of that kind. `None` if the kind is not one of the group's, or the body makes no
    /// sense.
    pub(crate) fn decode(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            1 => Self::NewBallot,
            6 => Self::Evict { slot: u8::try_from(from.u64()?).ok()? },
            7 => {
                let (slot, incarnation) = (from.u32()?, from.u32()?);
                Self::Join { slot: u8::try_from(slot).ok()?, incarnation }
            }
            _ => return None,
        })
    }
}

/// A message, as the log of one of its groups has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedMessage {
    /// The message.
    pub message: MessageId,
    /// All its destinations.
    pub destinations: GroupSet,
    /// The group delivers it here, or behind.
    pub least: Rank,
    /// Whether the payload is in the entry; otherwise each replica must hold it by itself.
    pub inline: bool,
}

/// A record as an ordering logs it: the group's, or one of its own, which the log keeps and does not read.
///
/// Some of an ordering's records say the same kind of thing dozens of times: such an entry has *items*, which the log keeps
/// side by side, and one record stands for all of them.
pub trait LogRecord: Copy + Debug + From<GroupRecord> {
    /// One of many in an entry.
    type Item: Copy;

    /// What it says of the group, if it does.
    fn of_group(&self) -> Option<GroupRecord>;

    /// The message that it gives its place in the order, if it does.
    fn message(&self) -> Option<LoggedMessage>;

    /// Whether it says that the entry has another group's results.
    fn is_results(&self) -> bool;

    /// Whether to deliver what it says may take what other groups tell.
    fn depends_on_others(&self) -> bool;

    /// The record that stands for an entry of items, of which this is the first.
    fn of_items(first: Self::Item) -> Self;

    /// The first item, if it stands for an entry of items.
    fn first_item(&self) -> Option<Self::Item>;
}
