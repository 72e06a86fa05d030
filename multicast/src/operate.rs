//! The operator's view of an engine's replicas: their status, and commands to them.

use serde::{Deserialize, Serialize};
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};

/// Identifies an engine and its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub node: u16,
    /// Number of the engine on its node.
    pub engine: u16,
    /// Number of earlier starts of the node in this cluster. A node whose incarnation is not 0 has lost its
    /// memory: its replicas join as learners, and count in no quorum until their group has committed that
    /// they do.
    pub incarnation: u32,
}

impl Identity {
    /// Number of incarnations that a node may have in one cluster.
    pub const INCARNATIONS_MAX: u32 = 1 << 14;

    /// The first incarnation of engine `engine` of node `node`.
    pub const fn first(node: u16, engine: u16) -> Self {
        Self { node, engine, incarnation: 0 }
    }
}

/// A replica's present role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It writes the group's log.
    Leader,
    /// It accepts the leader's log.
    Follower,
    /// It asks the other replicas for permission to lead.
    Candidate,
    /// It has no state, or none that counts: it waits for a state transfer and for its admission.
    Learner,
}

/// A replica slot in its group's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub slot: u8,
    /// The incarnation of the slot that counts.
    pub incarnation: u32,
    /// Whether the log no longer waits for it, until it joins again.
    pub evicted: bool,
    /// Whether its heartbeats are seen here.
    pub alive: bool,
}

/// The progress of a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnerStatus {
    pub slot: u8,
    /// Bytes of state that it has received so far.
    pub bytes: u64,
    /// Whether it has the whole state and only follows the log.
    pub caught_up: bool,
}

/// The reason why a replica stood for election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The group had no leader yet.
    Start,
    /// The leader's process was seen to be dead.
    Death,
    /// The leader's heartbeats had stopped, or a member had promised a higher ballot than this replica's.
    Silence,
    /// An operator asked for it.
    #[serde(alias = "transfer")]
    Operator,
    /// The leader handed over, to spread leaders or because the new leader has what it lacked.
    HandedOver,
}

/// The last election that a replica won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverStatus {
    pub cause: Cause,
    /// Time from suspecting the old leader to committing the first entry of its own, in microseconds.
    pub took_us: u64,
    /// Time since then, in milliseconds.
    pub ago_ms: u64,
}

/// The oldest multi-group message that a replica has logged and not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedStatus {
    /// The message's name, as printed.
    pub message: String,
    /// Time that it has waited, in milliseconds.
    pub age_ms: u64,
    /// Groups whose proposal, or a quorum for it, is missing here.
    pub held_up_by: Vec<u16>,
}

/// Replies that a replica has held back since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// Replies that wait now.
    pub waiting: u64,
    /// Replies that have waited.
    pub count: u64,
    /// Sum of their waits, in microseconds.
    pub waited_us: u64,
}

/// How long a replica's state machine has waited for other groups' results since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultsStatus {
    /// Delivered messages that wait for such results now, or wait behind one that does.
    pub under_way: u64,
    /// Time during which there were such messages, in microseconds. Others may proceed meanwhile.
    pub waited_us: u64,
    /// Time during which nothing more could be delivered, in microseconds.
    pub stalled_us: u64,
}

/// The event that a replica waits for before it can proceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// The first entries of a leader that it has granted its log to.
    Leader,
    /// The payload of this message; the replica reads nothing of its log behind it.
    Payload(String),
    /// Other groups' results about this message; the replica delivers nothing behind it.
    Results(String),
}

/// What of a replica is on its node's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskProgressStatus {
    /// The last index of its log that is on disk. `durable_index <= log_index`
    pub durable_index: u64,
    /// Bytes of log since the last snapshot began, or since there is a log; `None` while a snapshot is due at once.
    pub since_snapshot_bytes: Option<u64>,
    /// Bytes of the last snapshot; 0 if there is none.
    pub snapshot_bytes: u64,
}

/// The edges of a leader's group: what it passes on along the tree, and has taken from its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgesStatus {
    /// The last edge from the parent that is committed; absent at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<EdgeStatus>,
    /// Generation of the group in which edges to its children are numbered.
    pub generation: u32,
    /// By child in rising order.
    pub children: Vec<ChildStatus>,
    /// Groups because of which it may refuse to order a message of several groups now: those behind a child without
    /// room, and its own while it is recreated.
    pub closed: Vec<u16>,
    /// Messages that it has refused for that reason, and orders as soon as there is room.
    pub refused: u64,
}

/// The number of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Generation of the parent.
    pub generation: u32,
    /// From 1; 0 if nothing was taken.
    pub number: u64,
}

/// The edges to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStatus {
    pub group: u16,
    /// The highest number.
    pub numbered: u64,
    /// The child holds all edges up to this number.
    pub acknowledged: u64,
    /// Number of edges that are kept until the child acknowledges them.
    pub unacknowledged: u64,
    /// The highest number that was sent to the child's leader.
    pub sent: u64,
    /// Destinations at or below the child to which no message of this group's own is ordered now.
    pub closed: Vec<u16>,
}

/// How often a replica took part in elections, in this incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elections {
    /// It stood for election.
    pub campaigns: u64,
    /// It was elected.
    pub won: u64,
    /// It stopped leading.
    pub stepped_down: u64,
    /// It granted another replica the lead.
    pub granted: u64,
}

/// Which replicas' state differs from the state that f+1 replicas of the group hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Diverged {
    /// This replica's. It answers nobody until it has received the state again.
    Own,
    /// Other replicas'.
    Others,
    /// No state is held by f+1 replicas: the group has stopped.
    All,
}

/// A divergence between replicas of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceStatus {
    pub what: Diverged,
    /// Slots of the replicas whose state differs.
    pub slots: Vec<u8>,
    /// Position in the group's order at which it was found.
    pub position: u64,
    /// Time since then, in milliseconds.
    pub ago_ms: u64,
    /// Whether it is repaired. It is reported until the node restarts: the cause, a defect or failing memory,
    /// may change a state again.
    pub recovered: bool,
}

/// The status of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    pub group: u16,
    pub slot: u8,
    pub role: Role,
    pub incarnation: u32,
    /// Slot of the leader that it follows, or its own; `None` while it knows no leader.
    pub leader: Option<u8>,
    /// The ballot, as printed.
    pub ballot: String,
    /// Counter of the highest ballot that it has seen.
    pub ballot_counter: u32,
    /// For each group, the counter of the highest ballot of that group in its memory.
    pub ballot_counters: Vec<u32>,
    /// The highest logical clock that it has seen of any replica, itself included.
    pub clock: u64,
    /// For each group, the highest clock that the group has reported as settled: it is done with multi-group
    /// messages up to there.
    pub settled_clocks: Vec<u64>,
    pub view: Vec<MemberStatus>,
    /// At a leader: the learners that it brings up to date. At a learner: itself.
    pub learners: Vec<LearnerStatus>,
    /// More replicas of this group have lost their memory than the group tolerates: it cannot serve until an
    /// operator recreates it.
    pub lost: bool,
    /// At a leader: whether its group serves. Its followers answer, or their memory takes what it writes. Otherwise: whether a
    /// leader is known and alive.
    pub available: bool,
    /// The last divergence between replicas of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<DivergenceStatus>,
    /// The last election that this replica won.
    pub last_failover: Option<FailoverStatus>,
    pub elections: Elections,
    /// The event that it waits for, unless it only waits for more work.
    pub waits_for: Option<Waiting>,
    /// Whether it has a state, whether or not that counts.
    pub holds_state: bool,
    /// The last index of its log.
    pub log_index: u64,
    /// The birth ballot of its log's last entry, as a number. Of two logs of a group, the one with the higher
    /// birth, and for equal births the higher index, holds all that is committed in both.
    pub log_birth: u64,
    /// The log's end, as a position in bytes from its beginning.
    pub log_position: u64,
    /// The last index that it knows to be committed.
    pub commit_index: u64,
    pub delivered: u64,
    /// Messages that it has logged and not delivered.
    pub pending: u64,
    /// Time that the oldest pending message has waited, in milliseconds.
    pub oldest_pending_ms: u64,
    /// The oldest pending multi-group message.
    #[serde(default)]
    pub blocked: Option<BlockedStatus>,
    /// The former name of `blocked`, for one version.
    pub stuck: Option<BlockedStatus>,
    /// At a leader: replies held back until all groups that share their dependencies have passed them.
    pub held: HeldStatus,
    /// At a leader in a tree of groups: its group's edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges: Option<EdgesStatus>,
    /// How long its state machine has waited for other groups' results.
    pub results: ResultsStatus,
    /// Sessions with an open ring here.
    pub sessions: u64,
    /// What of it is on its node's disk; absent if the cluster keeps everything in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskProgressStatus>,
    /// Bytes of memory: its log, the payloads that it holds, and, at the engine's first replica, the rings of
    /// all of the engine's replicas.
    pub memory_bytes: u64,
}

impl ReplicaStatus {
    /// Returns whether it has stopped with its group because no state is held by f+1 replicas.
    pub fn is_stopped(&self) -> bool {
        let stopped = |it: &DivergenceStatus| it.what == Diverged::All && !it.recovered;
        self.divergence.as_ref().is_some_and(stopped)
    }
}

/// An operator's command to an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// This engine's replica of the group becomes its leader.
    Lead(GroupId),
    /// The group's leader, which must run here, evicts this replica, which rejoins as a learner by itself if it can.
    Evict(ReplicaId),
    /// First phase of recreating a lost group: the replica here checks that the group is lost and keeps the
    /// plan for [`PREPARED_FOR_MS`]. It changes nothing else.
    PrepareRecreate {
        group: GroupId,
        /// Identifies this attempt.
        token: u64,
        /// The plan for all replicas of the group.
        plan: Recreation,
    },
    /// Second phase: the replica here carries out the plan that it keeps under `token`. Repeating it changes nothing.
    Recreate {
        group: GroupId,
        /// Identifies the attempt.
        token: u64,
    },
}

/// Time for which a replica keeps a prepared plan, in milliseconds.
pub const PREPARED_FOR_MS: u64 = 10_000;

/// The counter above which the ballots of a recreated group begin, from the status of the replicas of all
/// groups. Other groups' replicas are included: if the group's own replicas have all forgotten which ballots
/// it had reached, the others still hold its status words, and would take them for words of the recreated
/// group.
///
/// No live process may be left out. The status words are in the memory of live processes: a process that has
/// ended has none any more, and its successor receives only words written from then on. A live process that
/// does not answer may hold words that no other process has, however many answer.
pub fn ballot_counter_of<'a>(
    group: GroupId,
    replicas: impl Iterator<Item = &'a ReplicaStatus>,
) -> u32 {
    let asked = replicas.filter(|it| it.group == group.0 || !planted(Mutant::OwnBallotsAlone));
    let known = asked.filter_map(|it| it.ballot_counters.get(group.index()).copied());
    known.max().unwrap_or(0)
}

/// The highest settled clock of a group that any replica was sent. A survivor that was evicted, and has not
/// read so, may lack messages that the other replicas were done with, and nobody sends them any more.
pub fn settled_clock_of<'a>(
    group: GroupId,
    replicas: impl Iterator<Item = &'a ReplicaStatus>,
) -> u64 {
    replicas.filter_map(|it| it.settled_clocks.get(group.index()).copied()).max().unwrap_or(0)
}

/// The plan for recreating a lost group. All its replicas must be given the same plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recreation {
    /// Slot whose state the group resumes from; `None` for an empty state.
    pub from: Option<u8>,
    /// For each slot, the incarnation that counts.
    pub incarnations: Vec<u32>,
    /// Ballots begin above this: see [`ballot_counter_of`].
    pub ballot_counter: u32,
    /// Timestamps begin above this: the highest clock that a replica of the cluster has reported.
    pub clock: u64,
    /// The group resumes from no survivor that waits for a message which may have ended at or below this
    /// clock: see [`settled_clock_of`].
    pub settled_clock: u64,
}

/// The reason why an engine does not carry out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("no replica of {0} runs here")]
    NotHere(GroupId),
    #[error("the replica of {0} here does not lead it")]
    NotLeader(GroupId),
    #[error("the replica of {0} here is a learner and cannot lead")]
    Learner(GroupId),
    /// The slot does not exist, or is the leader's own.
    #[error("{0} cannot be evicted: it is the leader itself, or does not exist")]
    NotEvictable(ReplicaId),
    /// The group still has its state.
    #[error("{0} is not lost: recreating it would discard its state for nothing")]
    NotLost(GroupId),
    /// The plan names another incarnation of the replica, or another number of slots.
    #[error("{0} was to be recreated by a plan that is out of date: run the command again")]
    Outdated(GroupId),
    /// The group has been recreated as often as its ballots can distinguish.
    #[error(
        "{0} has been recreated {max} times, as often as a group can be: make a new cluster, and restore its data there",
        max = Ballot::GENERATION_MAX
    )]
    NoGenerationLeft(GroupId),
    /// What is on the disks of a durable cluster cannot be given up in part.
    #[error(
        "{0} cannot be recreated: its cluster keeps its data on disk, and this version recreates groups in memory only; start the nodes that have its data, or restore what you need in a new cluster"
    )]
    Durable(GroupId),
    /// The replica whose state the group would resume from has no usable state.
    #[error(
        "{0} cannot be recreated from the replica here: it has no state that can be trusted, or was evicted and lacks messages that other groups no longer send; choose another survivor, or, if there is none, begin empty with --accept-data-loss --discard-survivors"
    )]
    NoSurvivor(GroupId),
    /// Nothing was prepared under that token, or it was too long ago.
    #[error("{0} was not prepared to be recreated, or too long ago: run the command again")]
    NotPrepared(GroupId),
}
