//! Events and effects of a replica, common to all orderings.

use crate::ballot::{Acceptance, Ballot};
use crate::detector::Pulse;
use crate::group::{GroupEffect, GroupEvent};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::rank::Rank;

/// An event. `R` is the record type of the ordering's log, and `H` the type of events that only this ordering has.
#[derive(Clone, Copy, Debug)]
pub enum Event<R, H> {
    /// Time has passed. The clock is the caller's, and never goes back.
    Tick {
        /// In milliseconds, from an arbitrary start.
        now_ms: u64,
    },
    /// A message addressed to this group is complete in this replica's memory, payload included.
    Received {
        message: MessageId,
        /// Low-water mark of the message's session.
        low_water: u64,
        destinations: GroupSet,
        /// Length in bytes of a payload that is too large for the log; 0 for one in the log.
        outside: u32,
    },
    /// An event from another replica that only this ordering has.
    Heard(H),
    /// As leader: results of another group have arrived. The ordering appends their entry in this step, at index `last
    /// + 1`.
    Exchanged,
    /// The next record of this replica's log has become readable. This event never occurs at the leader, never out of
    /// order, and never while [`stalled_on`](crate::group::GroupLog::stalled_on) returns a message.
    Logged {
        index: u64,
        /// Ballot in which the entry was first appended.
        birth: Ballot,
        /// The leader's time, in milliseconds, when the entry was appended.
        time_ms: u64,
        record: R,
        /// For a message whose payload is not inline: whether this replica holds it.
        held: bool,
        /// Whether this is the entry's last record.
        last: bool,
    },
    /// A replica's acceptance word has changed in this replica's memory.
    Acknowledged { by: ReplicaId, acceptance: Acceptance },
    /// As leader: the write of the log up to `index` to the follower in `slot` is complete.
    Completed { slot: u8, index: u64 },
    /// This replica has read the heartbeat of the replica in `slot` of its group.
    Heartbeat { slot: u8, pulse: Pulse },
    /// All replicas of a group that count have applied what they deliver up to a rank.
    Settled { group: GroupId, rank: Rank },
    /// A follower, or this replica itself, has applied all deliveries up to a rank.
    Applied { slot: u8, rank: Rank },
    /// The state machine waits for other groups' results about a delivered message.
    Waits {
        message: MessageId,
        /// Groups whose results have arrived.
        heard: GroupSet,
    },
    /// Nothing more can be delivered in this turn.
    AllDelivered,
    /// A session has ended. Its record is dropped after enough other sessions have ended.
    SessionEnded { session: SessionId },
    /// A follower cannot deliver a message. If this leader has delivered it, it logs the message's final timestamp.
    Lacked { message: MessageId },
    /// A write to a follower's log was denied: another replica may lead.
    Denied,
    /// An event that concerns our group alone.
    Group(GroupEvent),
    /// All events of this turn have been reported.
    TurnEnd,
}

impl<R, T> From<GroupEffect> for Effect<R, T> {
    fn from(effect: GroupEffect) -> Self {
        Self::Group(effect)
    }
}

/// An effect. The caller executes effects in the order given. `R` is the record type of the ordering's log, and `T` the
/// type of effects that only this ordering has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<R, T> {
    /// An effect that concerns our group alone.
    Group(GroupEffect),
    /// Append an entry to the log. The record stands for the whole entry, which the ordering
    /// [drafts](crate::ordering::OrderingProtocol::draft). Its bytes must be written to the followers before any later
    /// effect becomes visible to them.
    Append {
        index: u64,
        /// The leader's time, in milliseconds.
        time_ms: u64,
        record: R,
    },
    /// Send data that only this ordering sends.
    Tell(T),
    /// Write this replica's acceptance word to all other replicas of these groups, which include our own.
    Acknowledge { groups: GroupSet, acceptance: Acceptance },
    /// Send to all replicas of `group` the rank up to which our group has applied what it delivers.
    Settle {
        /// May be our own group.
        group: GroupId,
        rank: Rank,
    },
    /// Send again our state machine's results about a message.
    Resend {
        message: MessageId,
        /// The group whose leader receives them.
        to: GroupId,
    },
    /// Drop our state machine's results about a message: no group needs them any more.
    DropResult { message: MessageId },
    /// Request a message whose payload is missing here.
    Fetch { message: MessageId, from: ReplicaId },
    /// Drop the payload of a message: no replica can request it any more.
    Forget { message: MessageId },
    /// Repeat the reply to a message that was delivered before: its session may have missed it.
    Repeat { message: MessageId },
}

/// Delivery of a message: its place in the order is final, and everything before it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub message: MessageId,
    /// Low-water mark of the message's session.
    pub low_water: u64,
    pub destinations: GroupSet,
    pub rank: Rank,
    /// Number of the delivery in its group, from 1.
    pub position: u64,
    /// The ordering's clock at this delivery. It never falls from one delivery of a group to the next, and a recreated
    /// group continues above every clock that its former self may have reached.
    pub clock: u64,
    /// The leader's time, in milliseconds, when the message was logged.
    pub time_ms: u64,
}
