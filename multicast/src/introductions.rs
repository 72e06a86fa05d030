//! Control messages: who is there, and where the memory is that we may write to.
//!
//! They travel by the fabric's mail, never on the path of a message that is being ordered.

use serde::{Deserialize, Serialize};
use skein_fabric::RegionKey;
use skein_protocol::ids::{GroupId, ReplicaId, SessionId};

use crate::roster::{Credentials, Seen};

/// The version of everything that processes of a cluster write into each other's memory: mail,
/// slots, rings, log entries. Raised with every change of any of them.
pub const WIRE_VERSION: u16 = 17;

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

/// What a channel is for, told by who opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// A session's messages to a replica, and the replica's replies.
    Session { session: u64, replica: Name },
    /// What one replica tells another. Nothing comes back.
    Replica { from: Name, to: Name },
    /// What an engine tells another for all of its replicas, of which one is named. Nothing comes back.
    Engine { from: Name, to: Name },
}

impl Purpose {
    pub(crate) fn session(session: SessionId, to: ReplicaId) -> Self {
        Purpose::Session { session: session.0, replica: name(to) }
    }
}

/// One side of a channel, as the other side needs to know it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Side {
    /// How its owner calls the channel.
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
    /// An engine introduces itself to another.
    /// `constants` are encoded [`Constants`](skein_fabric::Constants).
    Hello { version: u16, constants: Vec<u8>, node: u16, engine: u16, who: Credentials },
    /// What the other may write of ours, the words of all our replicas, and what it may read: our
    /// heartbeat.
    Welcome { words: Key, pulse: Key, who: Credentials },
    /// Refuses an engine that introduced itself: this is who we know its node to be.
    Unwelcome { known: Seen },
    /// Opens a channel. The opener's ring is there; it asks for one of `wanted_bytes`.
    Open { version: u16, purpose: Purpose, side: Side, wanted_bytes: u64 },
    /// Answers `Open` of the channel that the opener calls `channel`.
    Opened { channel: u32, side: Side },
    /// Answers `Open`: not here, or not now.
    Refused { channel: u32 },
    /// The writer of our ring wants a larger one, and writes nothing beyond `position` until then.
    Grow { channel: u32, position: u64, wanted_bytes: u64 },
    /// Answers `Grow`: the ring at the channel that the writer calls `channel` was replaced.
    Grown { channel: u32, ring: Key, ring_bytes: u64 },
}

impl Introduction {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// The channel of its receiver for which it names memory, if it answers that with some.
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
