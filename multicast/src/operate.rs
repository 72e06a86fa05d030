//! What an operator sees of an engine's replicas, and may ask of them.

use serde::{Deserialize, Serialize};
use skein_protocol::ids::{GroupId, ReplicaId};

/// Which engine this is, and in which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its node.
    pub node: u16,
    /// Its number on that node.
    pub engine: u16,
    /// How often its node has been started before, in this cluster. A node whose life is not its
    /// first has lost its memory: its replicas join as learners, and count in no quorum before
    /// their group has committed that they do.
    pub life: u32,
}

impl Identity {
    /// Lives that a node may have in one cluster.
    pub const LIVES_MAX: u32 = 1 << 14;

    /// The first life of engine `engine` of node `node`.
    pub const fn first(node: u16, engine: u16) -> Self {
        Self { node, engine, life: 0 }
    }
}

/// What a replica is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It writes the group's log.
    Leader,
    /// It accepts what the leader writes.
    Follower,
    /// It asks the others for permission to lead.
    Candidate,
    /// It has no state, or none that counts: it is given one, and waits to be let in.
    Learner,
}

/// A replica slot, as the view of its group has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The slot.
    pub slot: u8,
    /// The life of the replica that counts there.
    pub incarnation: u32,
    /// Whether the log waits for it no more until it joins again.
    pub evicted: bool,
    /// Whether its heartbeats are seen here.
    pub alive: bool,
}

/// How far a learner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnerStatus {
    /// Its slot.
    pub slot: u8,
    /// Bytes of state that it was given so far.
    pub bytes: u64,
    /// Whether it has the whole state and only follows the log.
    pub caught_up: bool,
}

/// Why a replica set out to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The group had no leader yet.
    Start,
    /// The leader's process was seen to be dead.
    Death,
    /// The leader's heartbeats stopped.
    Silence,
    /// An operator asked for it.
    Transfer,
}

/// The last change of leader that a replica won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverStatus {
    /// Why.
    pub cause: Cause,
    /// From the moment it suspected the old leader to its first entry being committed, in
    /// microseconds.
    pub took_us: u64,
    /// How long ago that was, in milliseconds.
    pub ago_ms: u64,
}

/// The oldest multi-group message that a replica has logged and not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckStatus {
    /// The message, as printed.
    pub message: String,
    /// How long it has waited, in milliseconds.
    pub age_ms: u64,
    /// The groups whose proposal, or whose quorum for it, is missing here.
    pub held_up_by: Vec<u16>,
}

/// Replies that a replica has held back, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// How many wait now.
    pub waiting: u64,
    /// How many have waited.
    pub count: u64,
    /// How long those did, all together, in microseconds.
    pub waited_us: u64,
}

/// How much a replica's machine waits for other groups' results, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultsStatus {
    /// Messages delivered that wait for such results now, or behind one that does.
    pub under_way: u64,
    /// For how long there were any, in microseconds. Others may go on meanwhile.
    pub waited_us: u64,
    /// For how long nothing more could be delivered, in microseconds.
    pub stalled_us: u64,
}

/// What a replica waits for before it can go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// For the first words of a leader that it lets write its log.
    Leader,
    /// For the payload of this message, behind which it reads nothing of its log.
    Payload(String),
    /// For other groups' results about this message, behind which it delivers nothing.
    Results(String),
}

/// How often a replica took part in a change of leaders, in this life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elections {
    /// It set out to lead.
    pub campaigns: u64,
    /// It was elected.
    pub won: u64,
    /// It gave up leading.
    pub stepped_down: u64,
    /// It let another one lead.
    pub granted: u64,
}

/// What an operator sees of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its group.
    pub group: u16,
    /// Its slot.
    pub slot: u8,
    /// What it is.
    pub role: Role,
    /// Which life of it this is.
    pub incarnation: u32,
    /// The slot of the leader it follows, or its own; `None` while it knows of none.
    pub leader: Option<u8>,
    /// The ballot, as printed.
    pub ballot: String,
    /// The counter of the highest ballot it has heard of.
    pub ballot_counter: u32,
    /// Its logical clock.
    pub clock: u64,
    /// The group's members, by slot.
    pub view: Vec<MemberStatus>,
    /// As leader, those that it brings up to date; as learner, itself.
    pub learners: Vec<LearnerStatus>,
    /// More memories of this group are lost than it tolerates: nothing of it can be served until
    /// an operator recreates it.
    pub lost: bool,
    /// As leader: whether a quorum answers. As anything else: whether a leader is known and alive.
    pub available: bool,
    /// The last change of leader that this replica won.
    pub last_failover: Option<FailoverStatus>,
    /// All of them.
    pub elections: Elections,
    /// What it waits for, if for anything but more work.
    pub waits_for: Option<Waiting>,
    /// The last index of its log.
    pub log_index: u64,
    /// Bytes of log from its beginning to where it goes on.
    pub log_position: u64,
    /// The last index it knows to be committed.
    pub commit_index: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages it has logged and not delivered.
    pub pending: u64,
    /// How long the oldest pending message has waited, in milliseconds.
    pub oldest_pending_ms: u64,
    /// The oldest pending message to several groups.
    pub stuck: Option<StuckStatus>,
    /// As leader: replies that wait for what they rest on to be passed by all who share it.
    pub held: HeldStatus,
    /// How much its machine waits for other groups' results.
    pub results: ResultsStatus,
    /// Sessions with a ring open here.
    pub sessions: u64,
    /// Bytes of memory: its log and the payloads it holds, and, on the engine's first replica, the
    /// rings of all of them.
    pub memory_bytes: u64,
}

/// What an operator may ask of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// This engine's replica of the group shall lead it.
    Lead(GroupId),
    /// The group's leader, which must be here, shall evict this replica: it comes back as a learner
    /// by itself if it can.
    Evict(ReplicaId),
    /// The group's replica here begins anew with nothing, in a view of these incarnations, by slot,
    /// which must be the same for all replicas of the group. Ballots and clock start above those
    /// given.
    Recreate {
        /// Which group.
        group: GroupId,
        /// Who counts: the incarnation in each slot.
        incarnations: Vec<u32>,
        /// Above every ballot counter that a replica of the group has reported.
        ballot_counter: u32,
        /// Above every clock that any replica of the cluster has reported.
        clock: u64,
    },
}

/// An engine does not do what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It runs no replica of that group.
    #[error("no replica of {0} runs here")]
    NotHere(GroupId),
    /// Only the leader can do that.
    #[error("the replica of {0} here does not lead it")]
    NotLeader(GroupId),
    /// A learner counts in no quorum.
    #[error("the replica of {0} here is a learner and cannot lead")]
    Learner(GroupId),
    /// There is no such slot, or it is the leader's own.
    #[error("{0} cannot be evicted: it is the leader itself, or does not exist")]
    NotEvictable(ReplicaId),
    /// The group still has its state.
    #[error("{0} is not lost: recreating it would throw its state away for nothing")]
    NotLost(GroupId),
}
