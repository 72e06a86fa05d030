//! The content of an entry that is ordered along the tree.

use super::tree::Tree;
use crate::bytes::{Reader, Writer, groups_len};
use crate::ids::{GroupId, GroupSet, MessageId};

/// The first byte of the encoding: of a message whose payload is in its entry, of another one, and of a marker.
const INLINE: u8 = 1;
const OUTSIDE: u8 = 8;
const MARKER: u8 = 2;
/// In the first byte of a message's encoding: it may have been ordered before.
const AGAIN: u8 = 4;

/// The content of an entry, at its lowest common ancestor and at every group on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A message of a session.
    Message {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
        destinations: GroupSet,
        /// Length in bytes of a payload that is too large for its entry; 0 for one in the entry.
        outside: u32,
        /// It may have been ordered before, and forgotten since by a group that was lost. A group that has it, or whose mark
        /// for its session is above it, passes it on, and does not deliver it.
        again: bool,
    },
    /// A group was recreated in this generation. Its parent orders this for the group's whole subtree; the root orders
    /// its own.
    Marker { group: GroupId, generation: u32 },
}

impl Content {
    /// No encoding is shorter.
    pub(super) const BYTES_MIN: usize = 1 + 2 + 4;

    /// The groups that take it. A group on the path that is not among them only passes it on.
    pub fn destinations(&self, tree: &Tree) -> GroupSet {
        match *self {
            Self::Message { destinations, .. } => destinations,
            Self::Marker { group, .. } => tree.below(group),
        }
    }

    /// The group that orders it first.
    pub fn lca(&self, tree: &Tree) -> GroupId {
        match *self {
            Self::Message { destinations, .. } => tree.lca(destinations),
            Self::Marker { group, .. } => tree.parent(group).unwrap_or(group),
        }
    }

    /// Whether `group` takes it from its parent: it is about groups of this tree, and the group is on its path and below
    /// its lowest common ancestor.
    pub fn passes(&self, group: GroupId, tree: &Tree) -> bool {
        let exists = match *self {
            Self::Message { destinations, .. } => {
                !destinations.is_empty()
                    && GroupSet::first(tree.groups()).contains_all(destinations)
            }
            Self::Marker { group, .. } => group.0 < tree.groups(),
        };
        exists && {
            let (lca, below) = (self.lca(tree), tree.below(group));
            let goes_there = !self.destinations(tree).intersection(below).is_empty();
            goes_there && lca != group && tree.below(lca).contains(group)
        }
    }

    /// The message, if it is one.
    pub const fn message(&self) -> Option<MessageId> {
        match self {
            Self::Message { message, .. } => Some(*message),
            Self::Marker { .. } => None,
        }
    }

    /// Whether it is a message that may have been ordered before.
    pub const fn is_again(&self) -> bool {
        matches!(self, Self::Message { again: true, .. })
    }

    /// Whether it has a payload that is not in the entry.
    pub const fn is_large(&self) -> bool {
        self.outside() > 0
    }

    /// Length in bytes of its payload that is not in the entry.
    pub(super) const fn outside(&self) -> u32 {
        match self {
            Self::Message { outside, .. } => *outside,
            Self::Marker { .. } => 0,
        }
    }

    /// Appends it.
    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match *self {
            Self::Message { message, low_water, destinations, outside, again } => {
                let kind = if outside == 0 { INLINE } else { OUTSIDE };
                out.u8(kind | if again { AGAIN } else { 0 });
                out.message(message);
                out.u64(low_water);
                out.groups(destinations);
                if outside > 0 {
                    out.u32(outside);
                }
            }
            Self::Marker { group, generation } => {
                out.u8(MARKER);
                out.u16(group.0);
                out.u32(generation);
            }
        }
    }

    /// Length in bytes of the encoding.
    pub(super) const fn encoded_len(&self) -> usize {
        match self {
            Self::Message { destinations, outside, .. } => {
                Self::message_len(*destinations) + if *outside > 0 { size_of::<u32>() } else { 0 }
            }
            Self::Marker { .. } => 1 + 2 + 4,
        }
    }

    /// Length in bytes of the encoding of a message to these groups, whose payload is in its entry.
    pub(super) const fn message_len(destinations: GroupSet) -> usize {
        1 + 16 + 8 + groups_len(destinations)
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            MARKER => {
                let group = GroupId(from.u16()?);
                let is_one = group.0 < GroupSet::CAPACITY;
                Self::Marker { group: is_one.then_some(group)?, generation: from.u32()? }
            }
            kind => {
                let is_outside = match kind & !AGAIN {
                    INLINE => false,
                    OUTSIDE => true,
                    _ => return None,
                };
                let (message, low_water) = (from.message()?, from.u64()?);
                let destinations = from.groups()?;
                let outside = if is_outside { from.u32().filter(|len| *len > 0)? } else { 0 };
                Self::Message {
                    message,
                    low_water,
                    destinations,
                    outside,
                    again: kind & AGAIN != 0,
                }
            }
        })
    }
}
