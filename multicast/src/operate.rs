//! What an operator sees of an engine's replicas, and may ask of them.

use serde::{Deserialize, Serialize};
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};

/// Which engine this is, and in which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its node.
    pub node: u16,
    /// Its number on that node.
    pub engine: u16,
    /// How often its node has been started before, in this cluster. A node whose incarnation is not its
    /// first has lost its memory: its replicas join as learners, and count in no quorum before
    /// their group has committed that they do.
    pub incarnation: u32,
}

impl Identity {
    /// Incarnations that a node may have in one cluster.
    pub const INCARNATIONS_MAX: u32 = 1 << 14;

    /// The first incarnation of engine `engine` of node `node`.
    pub const fn first(node: u16, engine: u16) -> Self {
        Self { node, engine, incarnation: 0 }
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
    /// The incarnation of the replica that counts there.
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
    /// The leader handed over: to spread leaders, or because it lacked what the new one has.
    HandedOver,
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

/// How often a replica took part in a change of leaders, in this incarnation.
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

/// Whose state was found to differ from what f+1 replicas of the group hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Diverged {
    /// This replica's. It answers nobody until it has taken the state anew.
    Own,
    /// That of other replicas.
    Others,
    /// No state is held by f+1 replicas: the group has stopped.
    All,
}

/// Replicas of a group that do not hold the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceStatus {
    /// Whose state differs.
    pub what: Diverged,
    /// Their slots.
    pub slots: Vec<u8>,
    /// The position of the order at which it was found.
    pub position: u64,
    /// How long ago that was, in milliseconds.
    pub ago_ms: u64,
    /// Whether all is well again. It is told until the node is restarted: what has changed a state once,
    /// a defect or failing memory, may do so again.
    pub recovered: bool,
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
    /// Which incarnation of it this is.
    pub incarnation: u32,
    /// The slot of the leader it follows, or its own; `None` while it knows of none.
    pub leader: Option<u8>,
    /// The ballot, as printed.
    pub ballot: String,
    /// The counter of the highest ballot it has heard of.
    pub ballot_counter: u32,
    /// By group: the counter of the highest ballot of that group that stands in its memory.
    pub ballot_counters: Vec<u32>,
    /// The highest logical clock that it knows any replica to have had, its own among them.
    pub clock: u64,
    /// By group: the highest clock up to which that group is done with messages to several, as far as this
    /// replica was told.
    pub settled_clocks: Vec<u64>,
    /// The group's members, by slot.
    pub view: Vec<MemberStatus>,
    /// As leader, those that it brings up to date; as learner, itself.
    pub learners: Vec<LearnerStatus>,
    /// More memories of this group are lost than it tolerates: nothing of it can be served until
    /// an operator recreates it.
    pub lost: bool,
    /// As leader: whether a quorum answers. As anything else: whether a leader is known and alive.
    pub available: bool,
    /// Replicas of the group that were found not to hold the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<DivergenceStatus>,
    /// The last change of leader that this replica won.
    pub last_failover: Option<FailoverStatus>,
    /// All of them.
    pub elections: Elections,
    /// What it waits for, if for anything but more work.
    pub waits_for: Option<Waiting>,
    /// Whether it has a state, whether or not that counts.
    pub holds_state: bool,
    /// The last index of its log.
    pub log_index: u64,
    /// The ballot in which the last entry of its log was born, as a number: of two logs of a group, the
    /// one with the higher birth, and then with the higher index, holds all that is committed in both.
    pub log_birth: u64,
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

impl ReplicaStatus {
    /// Whether it has stopped with its group because no state is held by f+1 replicas.
    pub fn is_stopped(&self) -> bool {
        let stopped = |it: &DivergenceStatus| it.what == Diverged::All && !it.recovered;
        self.divergence.as_ref().is_some_and(stopped)
    }
}

/// What an operator may ask of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// This engine's replica of the group shall lead it.
    Lead(GroupId),
    /// The group's leader, which must be here, shall evict this replica: it comes back as a learner
    /// by itself if it can.
    Evict(ReplicaId),
    /// First phase of recreating a lost group: the replica here checks that the group is lost and
    /// keeps the plan for [`PREPARED_FOR_MS`]. It changes nothing else.
    PrepareRecreate {
        /// Which group.
        group: GroupId,
        /// Names this attempt.
        token: u64,
        /// What all replicas of the group are to do.
        plan: Recreation,
    },
    /// Second phase: the replica here carries out the plan that it keeps under `token`. Doing it
    /// again changes nothing.
    Recreate {
        /// Which group.
        group: GroupId,
        /// The attempt.
        token: u64,
    },
}

/// How long a replica keeps a plan that it was asked to prepare.
pub const PREPARED_FOR_MS: u64 = 10_000;

/// The counter above which the ballots of a group begin that is recreated, going by what the replicas of all
/// groups say. Those of other groups are asked too: where the group's own have all forgotten what it had
/// reached, the others still have its words, and would take them for those of its new self.
///
/// No process that lives may be left out. The words are in the memory of processes that live: one that has
/// ended has none any more, and its successor is told only what is said from then on. One that lives and does
/// not answer may have words that no other has, however many answer.
pub fn ballot_counter_of<'a>(
    group: GroupId,
    replicas: impl Iterator<Item = &'a ReplicaStatus>,
) -> u32 {
    let asked = replicas.filter(|it| it.group == group.0 || !planted(Mutant::OwnBallotsAlone));
    let known = asked.filter_map(|it| it.ballot_counters.get(group.index()).copied());
    known.max().unwrap_or(0)
}

/// The highest clock up to which any replica was told that a group is done. A survivor that was evicted, and
/// has not read so, may lack what the others were done with, and nobody tells it any more.
pub fn settled_clock_of<'a>(
    group: GroupId,
    replicas: impl Iterator<Item = &'a ReplicaStatus>,
) -> u64 {
    replicas.filter_map(|it| it.settled_clocks.get(group.index()).copied()).max().unwrap_or(0)
}

/// How a lost group begins anew. All its replicas must be given the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recreation {
    /// The slot whose state the group goes on from; with nothing, if none.
    pub from: Option<u8>,
    /// The incarnation that counts in each slot, by slot.
    pub incarnations: Vec<u32>,
    /// Ballots begin above this: see [`ballot_counter_of`].
    pub ballot_counter: u32,
    /// Timestamps begin above this: the highest clock that a replica of the cluster has reported.
    pub clock: u64,
    /// No survivor is gone on from that waits for a message which may have ended up to here: see
    /// [`settled_clock_of`].
    pub settled_clock: u64,
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
    /// The plan names another incarnation of the replica, or another number of slots.
    #[error("{0} was to be recreated by a plan that is out of date: run the command again")]
    Outdated(GroupId),
    /// The group has been recreated as often as its ballots can tell apart.
    #[error(
        "{0} has been recreated {max} times, as often as a group can be: make a new cluster, and restore its data there",
        max = Ballot::GENERATION_MAX
    )]
    NoGenerationLeft(GroupId),
    /// The replica from whose state the group is to go on has none that it can.
    #[error(
        "{0} cannot be recreated from the replica here: it has no state that can be trusted, or was evicted and lacks what other groups tell nobody any more; choose another survivor, and where there is none, --accept-data-loss --discard-survivors begins with nothing"
    )]
    NoSurvivor(GroupId),
    /// Nothing was prepared under that token, or too long ago.
    #[error("{0} was not prepared to be recreated, or too long ago: run the command again")]
    NotPrepared(GroupId),
}
