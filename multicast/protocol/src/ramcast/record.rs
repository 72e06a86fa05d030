//! RamCast's log records, and its events and effects between groups.

use super::announcement::Announcement;
use super::log::{Decision, Remote};
use crate::group::{GroupRecord, LogRecord, LoggedMessage};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::timestamp::Timestamp;

/// An event of RamCast.
pub type Event = crate::step::Event<Record, PeerEvent>;
/// An effect of RamCast.
pub type Effect = crate::step::Effect<Record, PeerEffect>;

/// Content of a log entry, without payloads. A merged entry is several of these under one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A record of the group log itself.
    Group(GroupRecord),
    /// The group's proposal for a message.
    Local {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
        timestamp: Timestamp,
        destinations: GroupSet,
        /// Whether the payload is in the entry. Otherwise each replica must hold it by itself.
        inline: bool,
    },
    /// Another group's proposal.
    Remote(Remote),
    /// Another group's results, which the ordering does not read.
    Exchange,
    /// A final timestamp: the message may be delivered on this alone.
    Decided(Decision),
    /// A bound for later entries, logged for a recreated group.
    Raise {
        /// Nothing that is logged later ends at or below this.
        timestamp: Timestamp,
    },
}

impl Record {
    /// The message, if this record gives it its place in the order.
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

/// Events from replicas of other groups.
#[derive(Clone, Copy, Debug)]
pub enum PeerEvent {
    /// Another group's leader has announced its proposal.
    Announced {
        /// The announcing leader.
        from: ReplicaId,
        announcement: Announcement,
    },
    /// A group waits until we have delivered what it shares with us, and our log has room for an entry.
    Awaited {
        /// The waiting group.
        by: GroupId,
    },
}

/// Effects for replicas of other groups, or of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEffect {
    /// Announce our proposal to the leaders of all other destination groups, as far as they are known.
    Propose {
        /// The same for all receivers.
        announcement: Announcement,
    },
    /// Announce our proposal to a replica of another group.
    Announce {
        /// The receiver, whether it leads or not.
        to: ReplicaId,
        announcement: Announcement,
    },
    /// Send a replica the rows of these groups: how far each has delivered and passed.
    Pass {
        to: ReplicaId,
        rows: GroupSet,
        /// Whether the receiver is to send its own rows.
        asks: bool,
    },
}
