//! What is ordered along the tree.

use super::tree::Tree;
use crate::ids::{GroupId, GroupSet, MessageId};

/// What an entry orders, at its lowest common ancestor and at every group on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A message of a session.
    Message {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
        destinations: GroupSet,
        /// Whether the payload is in the entry.
        inline: bool,
    },
    /// A group was recreated in this generation. Its parent orders this for the group's whole subtree; the root orders
    /// its own.
    Marker { group: GroupId, generation: u32 },
}

impl Content {
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

    /// The message, if it is one.
    pub const fn message(&self) -> Option<MessageId> {
        match self {
            Self::Message { message, .. } => Some(*message),
            Self::Marker { .. } => None,
        }
    }
}
