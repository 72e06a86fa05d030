//! The boundary between an ordering protocol and whoever drives it.
//!
//! An *ordering* decides in which order the replicas of a group deliver messages. It stands on a [group log](crate::group),
//! which decides who leads, what is committed and who counts. It is pure: the driver tells it what happens, and does what
//! follows. A driver is written once and takes the ordering as a type parameter. It calls this trait, the public methods of
//! the group log that [`log`](OrderingProtocol::log) and [`log_mut`](OrderingProtocol::log_mut) lend, and the log's bytes
//! ([`group`](crate::group) lists both).

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
use crate::view::View;

/// What a replica is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of its own group.
    pub group: GroupConfig,
    /// Groups of the cluster.
    pub groups: u16,
    /// How long a payload may be missing before it is fetched.
    pub fetch_after_ms: u64,
}

/// How far a message has come at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStage {
    /// It is not in our log.
    Unknown,
    /// It is in our log, and not committed here.
    Logged,
    /// It is committed here, and not delivered.
    Pending,
    /// It was delivered here, before or after a state was taken.
    Delivered,
}

/// What an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTo {
    /// A message that was delivered.
    Message(MessageId),
    /// A read that was just made.
    Read,
}

/// How a replica of a group that was lost goes on.
#[derive(Clone, Debug)]
pub enum Revival {
    /// From its own state, in a group of this view, whose other replicas take it: all that its log holds is committed. The
    /// log must be closed to its leader, and read to its end, before. Clocks begin above `clock`.
    Survivor {
        /// The replicas that count.
        view: View,
        /// The highest clock that a replica of the cluster has reported.
        clock: u64,
    },
    /// From the survivor's state, which it is yet to be given: nothing of its own counts.
    Other,
}

/// A saved state cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRestored {
    /// It makes no sense.
    Malformed,
    /// It is of a generation that is over: the group goes on from another.
    Outdated,
}

/// Where an entry stands that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Its index.
    pub index: u64,
    /// Ballot in which it was first appended.
    pub birth: Ballot,
    /// The leader's clock when it was.
    pub time_ms: u64,
}

/// The event of an ordering.
pub type EventOf<O> = Event<<O as OrderingProtocol>::Record, <O as OrderingProtocol>::PeerEvent>;
/// The effect of an ordering.
pub type EffectOf<O> = Effect<<O as OrderingProtocol>::Record, <O as OrderingProtocol>::PeerEffect>;

/// One replica's part of an order.
///
/// A replica leads, follows, or has no state ([`Role::Blank`](crate::group::Role::Blank)). Methods say "as leader" where they
/// are for one of them.
pub trait OrderingProtocol: Sized {
    /// What an entry of its log says, without payloads.
    type Record: LogRecord + PartialEq;
    /// What an entry says, as it is read.
    type Body<'a>: Body<'a, Record = Self::Record>;
    /// An entry that is to be written.
    type Draft<'a>: Draft<Record = Self::Record>
    where
        Self: 'a;
    /// What an onlooker sees of it.
    type Inspection<'a>: Inspect
    where
        Self: 'a;
    /// Events from other replicas that only this ordering has.
    type PeerEvent: Copy + Debug;
    /// Effects for other replicas that only this ordering has.
    type PeerEffect: Copy + Debug;

    // How a replica begins.

    /// A replica with an empty log, in a group that begins with `view`. One that the view does not
    /// name has lost its memory and is [blank](crate::group::Role::Blank).
    fn new(config: Config, view: View) -> Self;

    /// The same replica in a group that is recreated, above a ballot counter and a clock that the group may have
    /// reached before. All replicas of the group are given the same view, counter and clock. Its time goes on from ours,
    /// and our promises hold.
    ///
    /// # Panics
    /// If [no generation is left](Ballot::recreated).
    #[must_use]
    fn anew(&self, view: View, ballot_counter: u32, clock: u64) -> Self;

    /// Appends what a replica needs to go on from our commit index.
    fn save(&mut self, into: &mut Vec<u8>);

    /// A replica of our incarnation that goes on from a state that another has [saved](Self::save). What we have promised,
    /// it has promised; and it promises itself to the saver's ballot, for no earlier leader's log need hold all that the
    /// state holds.
    ///
    /// # Errors
    /// If the state is of no use.
    fn restored(&self, saved: &[u8]) -> Result<Self, NotRestored>;

    /// Our group was lost, and goes on in the ballot `marker`, of a new generation.
    fn revive(&mut self, marker: Ballot, revival: Revival);

    // What happens, and what follows.

    /// Takes one event to its conclusion, appending what follows from it to `effects`.
    fn step(&mut self, event: EventOf<Self>, effects: &mut Vec<EffectOf<Self>>);

    /// Handles a control message of another replica of our group, about elections or state transfer, and appends the effects.
    fn control(&mut self, from: u8, control: Control<'_>, effects: &mut Vec<EffectOf<Self>>);

    /// As follower, takes the next entry of the log, as [`Logged`](Event::Logged) would its records one after the other.
    /// `held` says whether we hold its payload.
    fn accept(
        &mut self,
        at: At,
        body: &Self::Body<'_>,
        held: bool,
        effects: &mut Vec<EffectOf<Self>>,
    );

    /// The entry at `index`, which an effect [appends](Effect::Append) with this record. `contents` is its part that the caller
    /// holds. To be called before the next [`TurnEnd`](Event::TurnEnd): the ordering keeps what only the last turn has logged.
    fn draft<'a>(
        &'a self,
        index: u64,
        record: &Self::Record,
        contents: Contents<'a>,
    ) -> Self::Draft<'a>;

    /// Takes in what is committed by now. A turn's end and the next delivery do it by themselves.
    fn advance_commit(&mut self);

    /// The next message whose turn it is, if there is one.
    fn deliver(&mut self) -> Option<Deliver>;

    /// As leader, once a tick: goes on without those that hold us up for too long, if they can be spared.
    fn relieve(&mut self, backlog: &Backlog<'_>, effects: &mut Vec<EffectOf<Self>>);

    /// Whether an acceptance word of that group may let us go on. What it says is counted in any case,
    /// when something comes that rests on it.
    fn waits_for(&self, group: GroupId) -> bool;

    /// As leader: the slot that shall lead instead, if it is time to hand over. It is none of those that `lag`: that have
    /// not let go of a large part of their logs that we have, or of those that join.
    fn hands_over(&self, lag: Slots) -> Option<u8>;

    /// As follower: messages that have waited for too long for what others tell nobody any more. Our leader is to be asked.
    fn lacks(&mut self) -> Vec<MessageId>;

    // What replies and reads rest on.

    /// Up to where everything must be [passed](Self::has_passed) before an answer may go out that is given now.
    fn reply_dependency(&self, to: AnswerTo) -> Rank;

    /// Whether everything that this group has delivered up to a rank, and all that it rests on,
    /// was delivered by all its destinations.
    fn has_passed(&self, rank: Rank) -> bool;

    /// What a read that comes now must wait for.
    fn read_from(&self) -> (u64, u64);

    /// Whether we have delivered everything that anybody can have seen when a read came.
    fn has_caught_up(&mut self, read_from: (u64, u64)) -> bool;

    // What is known.

    /// The log of our own group.
    fn log(&self) -> &GroupLog<Self::Record>;

    /// The log of our own group, for what concerns it alone.
    fn log_mut(&mut self) -> &mut GroupLog<Self::Record>;

    /// The replica that leads `group`, as far as we know.
    fn leader_of(&self, group: GroupId) -> ReplicaId;

    /// Whether the message is, or was, in our log.
    fn is_logged(&self, message: MessageId) -> bool;

    /// How far the message has come. Looks at what is not committed entry by entry: for the rare message that comes again.
    fn stage_of(&self, message: MessageId) -> MessageStage;

    /// Whether the message's payload may be needed here: it is not in our log yet, or not delivered, or
    /// kept for others. One that is known by its session's mark alone never will be.
    fn may_need(&self, message: MessageId) -> bool {
        self.stage_of(message) != MessageStage::Delivered
            || self.log().stalled_on() == Some(message)
            || self.log().keeps(message)
    }

    /// Whether the session is known to have ended.
    fn has_ended(&self, session: SessionId) -> bool;

    /// Messages delivered.
    fn delivered(&self) -> u64;

    /// What an onlooker may look at.
    fn inspect(&self) -> Self::Inspection<'_>;
}

/// What an onlooker may look at: operators, the simulator's rules and tests. Nothing here changes anything.
pub trait Inspect {
    /// The highest clock that we know any replica to have had. A group that is recreated begins above it.
    fn highest_clock(&self) -> u64;

    /// The highest ballot counter of a group that stands anywhere in our memory: announced, logged, or in a word. A group
    /// that begins anew above all of these is taken for its former self by nobody.
    fn counter_known_of(&self, group: GroupId) -> u32;

    /// The highest clock up to which a group is done, with messages to several, as far as we were told.
    fn settled_clock_of(&self, group: GroupId) -> u64;

    /// Whether our group can go on from our state: we have one, and lack nothing that other groups tell
    /// nobody any more. `settled` is the highest clock up to which any replica was told that our group is done.
    fn can_be_revived(&self, settled: u64) -> bool;

    /// Messages logged here and not delivered.
    fn pending(&self) -> usize;

    /// Since when the oldest pending message waits, and which it is.
    fn oldest_pending(&self) -> Option<(u64, MessageId)>;

    /// The pending message to several groups that no other such can pass by: since when it waits,
    /// which it is, and the groups of which something is missing here.
    fn blocked(&self) -> Option<(u64, MessageId, GroupSet)>;

    /// What keeps the next message from being delivered, for people to read.
    fn describe_blocked(&self) -> String;

    /// Delivered messages to several groups that are kept, since somebody may not be done with them.
    fn retained(&self) -> usize;

    /// Up to where everything is known to be passed that our group delivers and that shares a destination with other groups.
    /// [`NOTHING`](Rank::NOTHING) in an ordering of a single group, where all ranks count as passed.
    fn passed(&self) -> Rank;

    /// Messages in our log that are not delivered here.
    fn undelivered(&self) -> Vec<MessageId>;
}
