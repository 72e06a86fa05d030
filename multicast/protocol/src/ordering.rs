//! The boundary between an ordering protocol and its driver.
//!
//! An *ordering* decides the order in which the replicas of a group deliver messages. It runs on a [group
//! log](crate::group), which decides who leads, what is committed, and which replicas count. It is pure: the driver
//! reports events to it and executes its effects. A driver is written once and takes the ordering as a type parameter.
//! It calls this trait, the public methods of the group log that [`log`](OrderingProtocol::log) and
//! [`log_mut`](OrderingProtocol::log_mut) lend, and the modules that encode the log ([`group`](crate::group) lists
//! both).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

use crate::ballot::Ballot;
use crate::divergence::Slots;
use crate::group::body::{Body, Contents, Draft};
use crate::group::{Backlog, Control, GroupConfig, GroupLog, LogRecord};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::rank::Rank;
use crate::step::{Deliver, Effect, Event};
use crate::tram::Edges;
use crate::tram::tree::Parents;
use crate::view::View;

/// Configuration of one replica's ordering. It never changes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub group: GroupConfig,
    /// Number of groups in the cluster.
    pub groups: u16,
    /// Time for which a payload may be missing before it is fetched.
    pub fetch_after_ms: u64,
    /// Bytes of payloads outside the log that a replica holds before sessions must wait.
    pub held_bytes_max: u64,
    /// The tree of groups, for an ordering that orders along it.
    pub tree: Parents,
}

/// How far a message has come at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStage {
    /// Not in this replica's log.
    Unknown,
    /// In this replica's log, but not known here to be committed.
    Logged,
    /// Committed here, but not delivered.
    Pending,
    /// Delivered here, or contained in a state that this replica received.
    Delivered,
}

/// The kind of answer whose [reply dependency](OrderingProtocol::reply_dependency) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTo {
    /// A reply to a delivered message.
    Message(MessageId),
    /// The answer to an unordered read that has just been executed.
    Read,
}

/// How a replica of a lost group resumes.
#[derive(Clone, Debug)]
pub enum Revival {
    /// From its own state, in a group with this view, whose other replicas receive that state. Everything in its log
    /// counts as committed. Before this, the log must be closed to its leader and read to its end. Clocks begin above
    /// `clock`.
    Survivor {
        view: View,
        /// The highest clock that any replica of the cluster has reported.
        clock: u64,
    },
    /// From the survivor's state, which it has yet to receive. Its own state does not count.
    Other,
}

/// Why a saved state cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRestored {
    Malformed,
    /// It is of an earlier generation of the group.
    Outdated,
}

/// Position of an entry that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub index: u64,
    /// Ballot in which the entry was first appended.
    pub birth: Ballot,
    /// The leader's time, in milliseconds, when the entry was appended.
    pub time_ms: u64,
}

/// The event type of an ordering.
pub type EventOf<O> = Event<<O as OrderingProtocol>::Record, <O as OrderingProtocol>::PeerEvent>;
/// The effect type of an ordering.
pub type EffectOf<O> = Effect<<O as OrderingProtocol>::Record, <O as OrderingProtocol>::PeerEffect>;

/// One replica's instance of an ordering protocol.
///
/// A replica leads, follows, or has no state ([`Role::Blank`](crate::group::Role::Blank)). A method that is for one
/// role only begins with "As leader" or "As follower".
pub trait OrderingProtocol: Sized {
    /// Content of a log entry, without payloads.
    type Record: LogRecord + PartialEq;
    /// Content of an entry, as it is read.
    type Body<'a>: Body<'a, Record = Self::Record>;
    /// An entry to be written.
    type Draft<'a>: Draft<Record = Self::Record>
    where
        Self: 'a;
    /// The read-only view for [inspection](Inspect).
    type Inspection<'a>: Inspect
    where
        Self: 'a;
    /// Events from other replicas that only this ordering has.
    type PeerEvent: Copy + Debug;
    /// Effects for other replicas that only this ordering has.
    type PeerEffect: Copy + Debug;

    // Creation and recreation.

    /// A replica with an empty log, in a group that begins with `view`. A replica that is not in the view has lost its
    /// memory and is [blank](crate::group::Role::Blank).
    fn new(config: Config, view: View) -> Self;

    /// The same replica in a recreated group. `ballot_counter` and `clock` are values that the group may have reached
    /// before; it continues above both. All replicas of the group receive the same view, counter and clock. The replica
    /// keeps its time and its promises.
    ///
    /// # Panics
    /// If [no generation is left](Ballot::recreated).
    #[must_use]
    fn anew(&self, view: View, ballot_counter: u32, clock: u64) -> Self;

    /// Appends the state from which another replica can continue at our commit index.
    fn save(&mut self, into: &mut Vec<u8>);

    /// A replica of our incarnation that continues from a state that another replica has [saved](Self::save). It keeps
    /// our promises, and also promises the saver's ballot: no earlier leader's log need contain everything that the
    /// state contains.
    ///
    /// # Errors
    /// If the state is malformed or outdated.
    fn restored(&self, saved: &[u8]) -> Result<Self, NotRestored>;

    /// Resumes a lost group in the ballot `marker`, which is of a new generation.
    fn revive(&mut self, marker: Ballot, revival: Revival);

    // Events and effects.

    /// Processes one event completely and appends the resulting effects.
    fn step(&mut self, event: EventOf<Self>, effects: &mut Vec<EffectOf<Self>>);

    /// Processes a control message of another replica of our group, about elections or state transfer, and appends the
    /// effects.
    fn control(&mut self, from: u8, control: Control<'_>, effects: &mut Vec<EffectOf<Self>>);

    /// As follower: takes the next entry of the log. It has the same effect as one [`Logged`](Event::Logged) event for
    /// each of its records. `held` says whether this replica holds the entry's payload.
    fn accept(
        &mut self,
        at: At,
        body: &Self::Body<'_>,
        held: bool,
        effects: &mut Vec<EffectOf<Self>>,
    );

    /// The entry at `index`, whose record an effect [appends](Effect::Append). `contents` is the part of the entry that
    /// the caller holds. It must be called before the next [`TurnEnd`](Event::TurnEnd): the ordering keeps some of an
    /// entry's content only for the turn that logged it.
    fn draft<'a>(
        &'a self,
        index: u64,
        record: &Self::Record,
        contents: Contents<'a>,
    ) -> Self::Draft<'a>;

    /// Commits all entries that can be committed by now. The end of a turn and the next delivery do this implicitly.
    fn advance_commit(&mut self);

    /// Delivers the next message in the order, if one can be delivered.
    fn deliver(&mut self) -> Option<Deliver>;

    /// As leader, once a tick: stops waiting for followers that block this leader for too long, if the quorum can spare
    /// them.
    fn relieve(&mut self, backlog: &Backlog<'_>, effects: &mut Vec<EffectOf<Self>>);

    /// Whether an acceptance word of that group may let this replica make progress. Every word is recorded in any case,
    /// and is evaluated at the next event that depends on it.
    fn waits_for(&self, group: GroupId) -> bool;

    /// As leader: the slot that is to lead instead, if it is time to hand over. It is none of the slots in `lag`: those
    /// whose replica has yet to free a large part of the log that we have freed, and those that are joining.
    fn hands_over(&self, lag: Slots) -> Option<u8>;

    /// As follower: messages that have been pending for too long, because other replicas no longer send what they lack.
    /// The leader is to be asked for them.
    fn lacks(&mut self) -> Vec<MessageId>;

    // Dependencies of replies and reads.

    /// The rank up to which everything must be [passed](Self::has_passed) before an answer that is given now may be
    /// sent.
    fn reply_dependency(&self, to: AnswerTo) -> Rank;

    /// Whether everything that this group has delivered up to `rank`, and everything on which that depends, was
    /// delivered by all its destinations.
    fn has_passed(&self, rank: Rank) -> bool;

    /// The rank up to which everything has [passed](Self::has_passed). It follows from what other groups have told, and
    /// these may be down after a restart, so it is kept on disk.
    fn keeps_passed(&self) -> Rank;

    /// Everything up to this rank had passed before the restart, by a disk.
    fn had_passed(&mut self, rank: Rank);

    /// What an unordered read that arrives now must wait for.
    fn read_from(&self) -> (u64, u64);

    /// Whether this replica has delivered everything that any client can have observed when the read arrived.
    fn has_caught_up(&mut self, read_from: (u64, u64)) -> bool;

    // State.

    /// The log of our group.
    fn log(&self) -> &GroupLog<Self::Record>;

    /// The log of our group, for changes that concern this group alone.
    fn log_mut(&mut self) -> &mut GroupLog<Self::Record>;

    /// The replica that leads `group`, as far as is known here.
    fn leader_of(&self, group: GroupId) -> ReplicaId;

    /// Whether a message to these groups enters the order at our group: its session sends it to us.
    fn orders(&self, destinations: GroupSet) -> bool;

    /// Messages of a session that has just opened a channel to us, and may have missed our replies: we have delivered them
    /// without having them from the session.
    fn unheard_by(&self, _: SessionId) -> Vec<MessageId> {
        Vec::new()
    }

    /// As leader: whether a session's message is to be handed in to the group that orders such messages first, because we
    /// are a destination that lacks it and may never have it otherwise.
    fn hands_in(&self, _: MessageId, _: GroupSet) -> bool {
        false
    }

    /// A destination of a message that we order first [hands it in](Self::hands_in), and its payload comes next.
    fn hear_lacked(&mut self, _: MessageId, _: GroupSet) {}

    /// Whether a message is to be ordered when it comes, although we have it.
    fn orders_again(&self, _: MessageId) -> bool {
        false
    }

    /// The destinations of a delivered message about which another group may still need our machine's result. Empty if there
    /// is none, or if we do not keep the message any more.
    fn shared_with(&self, _: MessageId) -> GroupSet {
        GroupSet::EMPTY
    }

    /// Whether any group is known here to have been recreated. Some destinations of a message may then lack it for good, or
    /// have it in another place than others.
    fn knows_recreated(&self) -> bool {
        false
    }

    /// Whether another group has yet to be sent the message, payload included, by us. Every replica of our group keeps the
    /// payload until then.
    fn passes_on(&self, _: MessageId) -> bool {
        false
    }

    /// As leader: destinations and checksum of the payload of a message with which an entry of another group waits to be
    /// logged here, or for which it does.
    fn awaits(&self, _: MessageId) -> Option<(GroupSet, u64)> {
        None
    }

    /// As leader: whether an entry of another group with this message waits to be logged here.
    fn is_waiting(&self, _: MessageId) -> bool {
        false
    }

    /// Whether the next end of a turn tells other groups something that came in since the last one. A replica that only
    /// commits or delivers may have no other reason for a turn.
    fn has_untold(&self) -> bool {
        false
    }

    /// Whether the message is, or was, in our log.
    fn is_logged(&self, message: MessageId) -> bool;

    /// How far the message has come. It scans the uncommitted entries one by one, so it is meant for the rare message
    /// that arrives again.
    fn stage_of(&self, message: MessageId) -> MessageStage;

    /// Whether the message's payload may be needed here: the message is not in our log yet, or not delivered, or kept
    /// for others. The payload of a message that is only below its session's low-water mark is never needed.
    fn may_need(&self, message: MessageId) -> bool {
        self.stage_of(message) != MessageStage::Delivered
            || self.log().stalled_on() == Some(message)
            || self.log().keeps(message)
            || self.passes_on(message)
            || self.is_waiting(message)
    }

    /// Whether the session is known to have ended.
    fn has_ended(&self, session: SessionId) -> bool;

    /// Number of messages delivered.
    fn delivered(&self) -> u64;

    /// The read-only view for inspection.
    fn inspect(&self) -> Self::Inspection<'_>;
}

/// Read-only inspection, for operators, the simulator's checks, and tests.
pub trait Inspect {
    /// The highest clock that any replica is known to have reached. A recreated group begins above it.
    fn highest_clock(&self) -> u64;

    /// The highest ballot counter of a group that this replica's memory contains: announced, logged, or in a status
    /// word. A group that is recreated above all of these is mistaken for its former self by no replica.
    fn counter_known_of(&self, group: GroupId) -> u32;

    /// The highest clock up to which a group is known to be done with messages to several groups.
    fn settled_clock_of(&self, group: GroupId) -> u64;

    /// Whether our group can resume from this replica's state: the replica has one, and lacks nothing that other groups
    /// no longer send. `settled` is the highest clock up to which our group is known, by any replica, to be done.
    fn can_be_revived(&self, settled: u64) -> bool;

    /// Number of messages that are logged here and not delivered.
    fn pending(&self) -> usize;

    /// The oldest pending message, and the time at which it began to wait.
    fn oldest_pending(&self) -> Option<(u64, MessageId)>;

    /// The pending message to several groups that blocks all others of its kind: the time at which it began to wait,
    /// its name, and the groups whose proposal or quorum is missing here.
    fn blocked(&self) -> Option<(u64, MessageId, GroupSet)>;

    /// Why the next message cannot be delivered, as text for operators.
    fn describe_blocked(&self) -> String;

    /// Number of delivered messages to several groups that are retained because another group may still need them.
    fn retained(&self) -> usize;

    /// The rank up to which everything is known to be passed that our group delivers and that shares a destination with
    /// other groups. [`NOTHING`](Rank::NOTHING) in an ordering of a single group, where all ranks count as passed.
    fn passed(&self) -> Rank;

    /// Our group's edges to its parent and its children. `None` in an ordering without a tree.
    fn edges(&self) -> Option<Edges> {
        None
    }

    /// Messages in our log that are not delivered here.
    fn undelivered(&self) -> Vec<MessageId>;
}
