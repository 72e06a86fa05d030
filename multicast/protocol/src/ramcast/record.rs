//! What RamCast logs, hears and tells.

use super::announcement::Announcement;
use super::log::{Decision, Remote};
use crate::group::{GroupRecord, LogRecord, LoggedMessage};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::timestamp::Timestamp;

/// An event of RamCast's.
pub type Event = crate::step::Event<Record, PeerEvent>;
/// An effect of RamCast's.
pub type Effect = crate::step::Effect<Record, PeerEffect>;

/// What a log entry says, without payloads. A merged entry is several of these under one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// What it says of the group itself.
    Group(GroupRecord),
    /// The group's proposal for a message.
    Local {
        /// The message.
        message: MessageId,
        /// Its session's low-water mark.
        low_water: u64,
        /// The proposal.
        timestamp: Timestamp,
        /// All its destinations.
        destinations: GroupSet,
        /// Whether the payload is in the entry; otherwise each replica must hold it by itself.
        inline: bool,
    },
    /// Another group's proposal.
    Remote(Remote),
    /// Another group's results, which the ordering does not look at.
    Exchange,
    /// A message that may be delivered on this alone.
    Decided(Decision),
    /// Nothing that is logged later ends at or below this timestamp.
    Raise {
        /// Which.
        timestamp: Timestamp,
    },
}

impl Record {
    /// The message that it gives its place in the order, if that is what it does.
    pub(super) const fn local(&self) -> Option<MessageId> {
        match self {
            Self::Local { message, .. } => Some(*message),
            _ => None,
        }
    }
}

impl From<GroupRecord> for Record {
    fn from(record: GroupRecord) -> Self {
        Self::Group(record)
    }
}

impl LogRecord for Record {
    type Item = Remote;

    #[inline]
    fn of_group(&self) -> Option<GroupRecord> {
        if let Self::Group(record) = self { Some(*record) } else { None }
    }

    fn message(&self) -> Option<LoggedMessage> {
        let Self::Local { message, timestamp, destinations, inline, .. } = *self else {
            return None;
        };
        Some(LoggedMessage { message, destinations, least: timestamp.into(), inline })
    }

    fn is_results(&self) -> bool {
        matches!(self, Self::Exchange)
    }

    fn depends_on_others(&self) -> bool {
        matches!(self, Self::Local { destinations, .. } if destinations.has_several())
    }

    #[inline]
    fn of_items(first: Remote) -> Self {
        Self::Remote(first)
    }

    #[inline]
    fn first_item(&self) -> Option<Remote> {
        if let Self::Remote(remote) = self { Some(*remote) } else { None }
    }
}

/// What replicas of other groups tell.
#[derive(Clone, Copy, Debug)]
pub enum PeerEvent {
    /// Another group's leader told us its proposal.
    Announced {
        /// Who.
        from: ReplicaId,
        /// What.
        announcement: Announcement,
    },
    /// A group waits until we have delivered what it shares with us, and our log has room for an entry.
    Awaited {
        /// The waiting group.
        by: GroupId,
    },
}

/// What is told to replicas of other groups, or of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEffect {
    /// Tell the leaders of all other groups that a message goes to, as far as we know who leads them, what
    /// we propose.
    Propose {
        /// What.
        announcement: Announcement,
    },
    /// Tell a replica of another group what we proposed.
    Announce {
        /// Whom.
        to: ReplicaId,
        /// What.
        announcement: Announcement,
    },
    /// Tell a replica what we know of these groups: how far each has delivered and passed.
    Pass {
        /// Whom.
        to: ReplicaId,
        /// Of which groups.
        rows: GroupSet,
        /// Whether it shall tell what it knows.
        asks: bool,
    },
}
