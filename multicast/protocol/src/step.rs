//! What can happen to a replica, and what it does about it, whatever its ordering.

use crate::ballot::{Acceptance, Ballot};
use crate::detector::Pulse;
use crate::group::{GroupEffect, GroupEvent};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::rank::Rank;

/// Something that happened. `R` is what the ordering's log entries say, and `H` an event that only this ordering has.
#[derive(Clone, Copy, Debug)]
pub enum Event<R, H> {
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
    /// An event from another replica that only this ordering has.
    Heard(H),
    /// As leader: results of another group are here. The ordering appends their entry in this step, at index `last + 1`.
    Exchanged,
    /// The next record of our log became readable. Never comes to the leader, never out of order,
    /// never while
    /// [`stalled_on`](crate::group::GroupLog::stalled_on) names a message.
    Logged {
        /// Index of its entry.
        index: u64,
        /// Ballot in which it was first appended.
        birth: Ballot,
        /// The leader's clock when it was.
        time_ms: u64,
        /// What it says.
        record: R,
        /// For a message whose payload is not inline: whether we hold it.
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
    /// All replicas of a group that count have applied what they deliver up to a rank.
    Settled {
        /// Which group.
        group: GroupId,
        /// Up to where.
        rank: Rank,
    },
    /// A follower of ours, or we ourselves, have applied all deliveries up to a rank.
    Applied {
        /// Its slot.
        slot: u8,
        /// Up to where.
        rank: Rank,
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

impl<R, T> From<GroupEffect> for Effect<R, T> {
    fn from(effect: GroupEffect) -> Self {
        Self::Group(effect)
    }
}

/// Something the caller must now do, in the order given. `R` is what the ordering's log entries say, and `T` what only this
/// ordering tells others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<R, T> {
    /// An action that concerns our group alone.
    Group(GroupEffect),
    /// Append to the log. The record stands for all of its entry, which the ordering
    /// [drafts](crate::ordering::OrderingProtocol::draft). The bytes must be written to the followers before anything
    /// else that follows is made visible to them.
    Append {
        /// Index of its entry.
        index: u64,
        /// The leader's clock.
        time_ms: u64,
        /// What it says.
        record: R,
    },
    /// Tell other replicas what only this ordering tells.
    Tell(T),
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
        rank: Rank,
    },
    /// Send again what our state machine exchanged about a message.
    Resend {
        /// The message.
        message: MessageId,
        /// To whose leader.
        to: GroupId,
    },
    /// Drop what our state machine exchanged about a message: nobody needs it any more.
    DropResult {
        /// The message.
        message: MessageId,
    },
    /// Ask a replica for a message whose payload we miss.
    Fetch {
        /// The message.
        message: MessageId,
        /// Whom.
        from: ReplicaId,
    },
    /// Nobody can ask us for this message's payload any more: let go of it.
    Forget {
        /// The message.
        message: MessageId,
    },
    /// The message was delivered before: its session may have missed the reply.
    Repeat {
        /// The message.
        message: MessageId,
    },
}

/// A message's place in the order is decided, and it is this one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// The message.
    pub message: MessageId,
    /// Its session's low-water mark.
    pub low_water: u64,
    /// All its destinations.
    pub destinations: GroupSet,
    /// Its rank in the order.
    pub rank: Rank,
    /// Its number among the group's deliveries, from 1.
    pub position: u64,
    /// The ordering's clock there: it falls from no delivery of a group to the next, and a group that is recreated goes on
    /// above all that its former self may have reached.
    pub clock: u64,
    /// The leader's clock when it was logged.
    pub time_ms: u64,
}
