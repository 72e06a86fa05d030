//! Control messages: they introduce processes, and name the memory that the receiver may write.
//!
//! They travel by the fabric's mail, never on the path of a message that is being ordered.

use serde::{Deserialize, Serialize};
use skein_fabric::RegionKey;
use skein_protocol::ids::{GroupId, ReplicaId, SessionId};

use crate::roster::{Credentials, Seen};

/// The version of everything that processes of a cluster write into each other's memory: mail,
/// slots, rings, log entries. Raised with every change of any of them.
pub const WIRE_VERSION: u16 = 21;

/// A [`RegionKey`], as sent.
pub(crate) type Key = [u8; 32];

/// A replica, as sent.
pub(crate) type Name = (u16, u8);

pub(crate) fn name(replica: ReplicaId) -> Name {
    (replica.group.0, replica.slot)
}

pub(crate) fn replica((group, slot): Name) -> ReplicaId {
    ReplicaId::new(GroupId(group), slot)
}

/// The purpose of a channel, as its opener declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// A session's messages to a replica, and the replica's replies.
    Session { session: u64, replica: Name },
    /// Datagrams from one replica to another. Nothing comes back.
    Replica { from: Name, to: Name },
    /// Datagrams from an engine to all replicas of another, of which one is named. Nothing comes back.
    Engine { from: Name, to: Name },
}

impl Purpose {
    pub(crate) fn session(session: SessionId, to: ReplicaId) -> Self {
        Purpose::Session { session: session.0, replica: name(to) }
    }
}

/// The description of one side of a channel for the other side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Side {
    /// The owner's number for the channel.
    pub channel: u32,
    /// The region of slots, and the slot's offset in it.
    pub slots: Key,
    pub slot_at: u32,
    /// The ring that the other side writes.
    pub ring: Key,
    pub ring_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Introduction {
    /// An engine introduces itself to another. `constants` are encoded [`Constants`](skein_fabric::Constants).
    Hello { version: u16, constants: Vec<u8>, node: u16, engine: u16, who: Credentials },
    /// Answers `Hello`: the receiver may write `words`, the status words of all replicas of the sender, and
    /// may read `pulse`, its heartbeat.
    Welcome { words: Key, pulse: Key, who: Credentials },
    /// Refuses an engine that introduced itself: the sender remembers `known` for that node.
    Unwelcome { known: Seen },
    /// Opens a channel. The opener's ring exists; it asks for a ring of `wanted_bytes`.
    Open { version: u16, purpose: Purpose, side: Side, wanted_bytes: u64 },
    /// Answers `Open` of the channel with number `channel` at the opener.
    Opened { channel: u32, side: Side },
    /// Refuses `Open`: the receiver does not serve this channel, or has no memory for it now.
    Refused { channel: u32 },
    /// The writer of a ring wants a larger one, and writes nothing beyond `position` until it is answered.
    Grow { channel: u32, position: u64, wanted_bytes: u64 },
    /// Answers `Grow`: the ring of the channel with number `channel` at the writer was replaced.
    Grown { channel: u32, ring: Key, ring_bytes: u64 },
}

impl Introduction {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// The receiver's channel for which this message names memory, if it answers a request for some.
    pub(crate) const fn answers(&self) -> Option<u32> {
        match self {
            Self::Opened { channel, .. } | Self::Grown { channel, .. } => Some(*channel),
            _ => None,
        }
    }
}

pub(crate) fn key(key: RegionKey) -> Key {
    key.0
}
