//! Records of the log. The log reads only what a record says of the group itself; everything else is the ordering's.

use core::fmt::Debug;

use crate::bytes::{Reader, Writer};
use crate::ids::{GroupSet, MessageId};
use crate::rank::Rank;

/// A record about the group itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// A leader's first entry.
    NewBallot,
    /// The log no longer waits for this slot, until its next `Join`.
    Evict { slot: u8 },
    /// From here on, this incarnation of the slot counts.
    Join { slot: u8, incarnation: u32 },
}

impl GroupRecord {
    /// The kind in the entry's header. An ordering's own records have other kinds, and 0 is a pad.
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Self::NewBallot => 1,
            Self::Evict { .. } => 6,
            Self::Join { .. } => 7,
        }
    }

    /// Length in bytes of the entry's body.
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

    /// Decodes the body of an entry of that kind. `None` if the kind is not one of the group's, or the body is
    /// malformed.
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

/// A message in the log of one of its destination groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedMessage {
    pub message: MessageId,
    pub destinations: GroupSet,
    /// Lower bound on the rank at which the group delivers the message.
    pub least: Rank,
    /// Whether the payload is in the entry. Otherwise each replica must hold it by itself.
    pub inline: bool,
}

/// A record of an ordering's log: one of the group's, or one of the ordering's own, which the log stores without
/// interpreting it.
///
/// Some of an ordering's records repeat the same kind of statement dozens of times. Such an entry has *items*, which
/// the log stores side by side, and one record stands for all of them.
pub trait LogRecord: Copy + Debug + From<GroupRecord> {
    /// One of many statements in an entry.
    type Item: Copy;

    /// The record about the group, if this is one.
    fn of_group(&self) -> Option<GroupRecord>;

    /// The message whose place in the order the record determines, if there is one.
    fn message(&self) -> Option<LoggedMessage>;

    /// Whether its message has a place before this entry, and gets none from it.
    fn is_repeat(&self) -> bool {
        false
    }

    /// Whether the entry contains another group's results.
    fn is_results(&self) -> bool;

    /// Whether its delivery may depend on what other groups send.
    fn depends_on_others(&self) -> bool;

    /// The record that stands for an entry of items, the first of which is `first`.
    fn of_items(first: Self::Item) -> Self;

    /// The first item, if the record stands for an entry of items.
    fn first_item(&self) -> Option<Self::Item>;
}
