//! The whole boundary: what can happen to a replica, and what it does about it.

use crate::ballot::{Acceptance, Ballot};
use crate::detector::Pulse;
use crate::group::{GroupEffect, GroupEvent, GroupRecord, LogRecord};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::log::{Decision, Remote};
use crate::message::Announcement;
use crate::timestamp::Timestamp;

/// What a log entry says, without payloads. A merged entry is several of these under one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// What it says of the group itself.
    Group(GroupRecord),
    /// The group's proposal for a message.
    Local {
        /// Which message.
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
    pub(crate) const fn message(&self) -> Option<MessageId> {
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

    fn rests_on_others(&self) -> bool {
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

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Time has passed. The clock is the caller's and only rises.
    Tick {
        /// Milliseconds from an arbitrary start.
        now_ms: u64,
    },
    /// A message addressed to this group is whole in our memory, payload and all.
    Received {
        /// Its name.
        message: MessageId,
        /// Its session's low-water mark.
        low_water: u64,
        /// All its destinations.
        destinations: GroupSet,
        /// Whether its payload is small enough for the log.
        inline: bool,
    },
    /// Another group's leader told us its proposal.
    Announced {
        /// Who.
        from: ReplicaId,
        /// What.
        announcement: Announcement,
    },
    /// Results of another group are here and want a place in our log.
    Exchanged,
    /// The next record of our log became readable. Never comes to the leader, never out of order,
    /// never while
    /// [`stalled_on`](crate::ramcast::Ramcast::stalled_on) names a message.
    Logged {
        /// Index of its entry.
        index: u64,
        /// Ballot in which it was first appended.
        birth: Ballot,
        /// The leader's clock when it was.
        time_ms: u64,
        /// What it says.
        record: Record,
        /// For a `Local` whose payload is not inline: whether we hold it.
        held: bool,
        /// Whether this is the entry's last record.
        last: bool,
    },
    /// A replica's acceptance word changed, here in our memory.
    Acknowledged {
        /// Whose word.
        by: ReplicaId,
        /// What it says now.
        acceptance: Acceptance,
    },
    /// Our write of the log up to `index` to the follower in `slot` is complete.
    Completed {
        /// Which follower.
        slot: u8,
        /// Up to which entry.
        index: u64,
    },
    /// We looked at the heartbeat of the replica in `slot` of our group.
    Heartbeat {
        /// Whose.
        slot: u8,
        /// What we saw.
        pulse: Pulse,
    },
    /// All replicas of a group that count have applied what they deliver up to a timestamp.
    Settled {
        /// Which group.
        group: GroupId,
        /// Up to where.
        timestamp: Timestamp,
    },
    /// A follower of ours, or we ourselves, have applied all deliveries up to a timestamp.
    Applied {
        /// Its slot.
        slot: u8,
        /// Up to where.
        timestamp: Timestamp,
    },
    /// Our state machine waits for other groups' results about a delivered message.
    Waits {
        /// The message.
        message: MessageId,
        /// Groups whose results it has.
        heard: GroupSet,
    },
    /// Nothing more can be delivered in this turn.
    AllDelivered,
    /// A group waits until we have delivered what it shares with us, and our log has room for an entry.
    Awaited {
        /// The waiting group.
        by: GroupId,
    },
    /// A session has ended: its record goes when enough others have ended after it.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// A follower of ours cannot deliver a message: if we have, our log shall say so.
    Lacked {
        /// The message.
        message: MessageId,
    },
    /// A write to a follower's log was denied: somebody else may lead.
    Denied,
    /// An event that concerns our group alone.
    Group(GroupEvent),
    /// Everything that was readable has been told.
    TurnEnd,
}

impl From<GroupEffect> for Effect {
    fn from(effect: GroupEffect) -> Self {
        Self::Group(effect)
    }
}

/// Something the caller must now do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An action that concerns our group alone.
    Group(GroupEffect),
    /// Append to the log. Records of one index make one entry; of other groups' proposals, the record
    /// is the first of an entry that has all of
    /// [`logged_remotes`](crate::ramcast::Ramcast::logged_remotes). The bytes must be written to the
    /// followers before anything else that follows is made visible to them.
    Append {
        /// Index of its entry.
        index: u64,
        /// The leader's clock.
        time_ms: u64,
        /// What it says.
        record: Record,
    },
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
    /// Write our acceptance word to every other replica of these groups, our own among them.
    Acknowledge {
        /// Whose replicas.
        groups: GroupSet,
        /// The word.
        acceptance: Acceptance,
    },
    /// Tell every replica of a group how far ours has applied what it delivers.
    Settle {
        /// Which group; our own among them.
        group: GroupId,
        /// Up to where.
        timestamp: Timestamp,
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
    /// Send again what our state machine exchanged about a message.
    Resend {
        /// Which message.
        message: MessageId,
        /// To whose leader.
        to: GroupId,
    },
    /// Nobody needs to be told any more what our state machine exchanged about a message.
    Settled {
        /// Which message.
        message: MessageId,
    },
    /// Ask a replica for a message whose payload we miss.
    Fetch {
        /// Which message.
        message: MessageId,
        /// Whom.
        from: ReplicaId,
    },
    /// Nobody can ask us for this message's payload any more: let go of it.
    Forget {
        /// Which message.
        message: MessageId,
    },
    /// The message was delivered before: its session may have missed the reply.
    Repeat {
        /// Which message.
        message: MessageId,
    },
}

/// A message's place in the order is decided, and it is this one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// Which message.
    pub message: MessageId,
    /// Its session's low-water mark.
    pub low_water: u64,
    /// All its destinations.
    pub destinations: GroupSet,
    /// Its final timestamp.
    pub timestamp: Timestamp,
    /// Its number among the group's deliveries, from 1.
    pub position: u64,
    /// The leader's clock when it was logged.
    pub time_ms: u64,
}
