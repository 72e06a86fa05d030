//! Faults as data: what goes wrong, and when. They are drawn before the run, so that they can be listed, left
//! out one by one, and run again.

use std::fmt;
use std::time::Duration;

use skein_fabric::sim::Rng;

use super::scenario::Scenario;

/// A duration that lasts until all faults end.
pub(super) const FOR_EVER: Duration = Duration::from_hours(1);

/// A fault at some moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Happens after so many messages of all clients,
    pub after: u64,
    /// and so much later.
    pub delay: Duration,
    pub kind: Kind,
}

/// The node that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This node.
    Node(u16),
    /// The node of the group's present leader; of its first leader, if it has none.
    Leader(u16),
    /// The node of the group's next leader, so many steps of the run after its election, if its first entry
    /// is not committed by then.
    NewLeader {
        /// The group.
        group: u16,
        /// Number of steps. With 0, nothing that it writes has landed.
        steps: u64,
    },
    /// The node of the group's leader, when a learner has received its state and all followers have delivered
    /// less than that state contains.
    Sender(u16),
}

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A node dies and loses its memory, and is started again later, in its next incarnation.
    Crash {
        node: Target,
        /// Time until it is started again.
        back_after: Duration,
    },
    /// All nodes die at once, and are started again one after the other.
    PowerFailure {
        /// Time within which all are started again.
        back_within: Duration,
    },
    /// All nodes die at once, as [`PowerFailure`](Self::PowerFailure) says, and a node's disk is put back as it was some time
    /// ago, after the node's last start.
    OldCopy {
        node: Target,
        /// A node that starts at once, alone, and the time after which others do.
        ahead: Option<(Target, Duration)>,
        /// Time within which the others are started again.
        back_within: Duration,
    },
    /// All nodes die at once, as [`PowerFailure`](Self::PowerFailure) says, when a replica of a group that had lost its
    /// disk, or was evicted, counts again; and another replica of the group loses its disk, if the group tolerates that.
    PowerAtJoin {
        group: u16,
        /// Time within which all are started again.
        back_within: Duration,
    },
    /// A node dies, and is started again later with an empty disk: it has lost its memory.
    DiskLoss {
        node: Target,
        /// Time until it is started again.
        back_after: Duration,
    },
    /// The middle of a replica's log on its node's disk is damaged. The replica begins anew when its node is started
    /// again.
    Rot {
        group: u16,
        /// Slot of the replica.
        slot: u8,
    },
    /// The checkpoints of a replica on its node's disk are damaged, or are gone. The replica begins anew when its node is
    /// started again, unless it has another state on its disk by then.
    SpoilCheckpoints {
        group: u16,
        /// Slot of the replica.
        slot: u8,
        /// They are gone.
        gone: bool,
    },
    /// A flush of a node's disk fails. The node ends soon, and is started again later.
    FlushFails {
        node: Target,
        /// Time until it ends.
        ends_after: Duration,
        /// Time until it is started again.
        back_after: Duration,
    },
    /// The disk of a node is full: no flush begins.
    DiskFull {
        node: Target,
        /// Time until it has room again.
        lasts: Duration,
    },
    /// A node dies, and an old copy of its disk is put back, with which it fails to start. Then it is started with its
    /// own disk, or with an empty one.
    OldDisk {
        node: Target,
        /// Number of failed starts.
        times: u32,
        /// Its disk is empty.
        empty: bool,
        /// Time until it runs.
        back_after: Duration,
    },
    /// So many replicas of a group die together, on its leader's node first, and are started again later, in
    /// their next incarnations: more than the group tolerates. An operator has to recreate it.
    Loss {
        group: u16,
        /// Number of replicas, a quorum at least.
        replicas: u8,
        /// Time until they are started again.
        back_after: Duration,
    },
    /// A node is suspended, keeps its memory, and resumes later.
    Pause {
        node: Target,
        /// Time until it resumes.
        lasts: Duration,
        /// All its connections break meanwhile.
        flaps: bool,
    },
    /// Everything from and to a node is so many times slower.
    Slow {
        node: Target,
        /// How many times slower it is.
        factor: u64,
        lasts: Duration,
    },
    /// What one node sends to another is held back, perhaps in both directions.
    Cut {
        from: Target,
        to: Target,
        /// Also in the other direction.
        both_ways: bool,
        lasts: Duration,
    },
    /// What a node sends to all other nodes is held back, or what they send to it, or both.
    Isolate {
        node: Target,
        /// What it sends is held back.
        outbound: bool,
        /// What is sent to it is held back.
        inbound: bool,
        lasts: Duration,
    },
    /// What clients and a node send to each other is held back: it receives messages from other nodes alone.
    Deaf {
        node: Target,
        /// Time until it is over.
        lasts: Duration,
    },
    /// What all nodes except its leader's send to a replica is held back, from when the replica knows that so
    /// many replicas of its group are evicted.
    Sever {
        group: u16,
        slot: u8,
        /// Number of evicted replicas.
        evicted: usize,
        lasts: Duration,
    },
    /// All replicas of a group die but a quorum, at the moment when all but one of that quorum are evicted and
    /// keep their logs (`Nodes::all_but_keepers`). The leader is among the dead.
    LeaveKeepers {
        group: u16,
        /// Time until the dead are started again.
        back_after: Duration,
    },
    /// The connections between two nodes break, and can be made again at once.
    Flap {
        /// One end of the connections.
        one: Target,
        other: Target,
    },
    /// A node's clock runs at another rate: so many thousandths of the true one.
    Skew {
        node: Target,
        /// The rate in thousandths.
        per_mille: u64,
    },
    /// A client process dies, perhaps in the middle of a turn's writes.
    ClientCrash {
        client: usize,
        /// It dies right after a turn in which it sent something, when none of that has landed.
        midway: bool,
        /// Its successor opens the same sessions and sends again what it had sent: late retries.
        again: bool,
    },
    /// The connections between a client and a node break, and can be made again at once.
    ClientFlap {
        /// Index of the client.
        client: usize,
        node: Target,
    },
    /// A client sends all its messages in flight once more: duplicates.
    Resend {
        /// Index of the client.
        client: usize,
    },
    /// An operator makes a replica lead its group.
    Transfer {
        group: u16,
        /// Slot of the replica.
        slot: u8,
    },
    /// An operator makes a group evict a replica.
    Evict {
        group: u16,
        /// Slot of the replica.
        slot: u8,
    },
    /// The next replica of a group that receives a state is suspended for the rest of the load: while it
    /// receives it, or when it has it and is not admitted yet.
    Stall {
        group: u16,
        /// It is suspended when it has the state.
        has_state: bool,
    },
    /// A node is stopped in the middle of its next turn, and continues it later.
    StopInside {
        node: Target,
        /// Stops after so many reads of its memory, its mail and its clock,
        looks: u64,
        /// or after so many reads of its clock.
        clock_looks: u64,
        lasts: Duration,
    },
    /// A node gets no memory: it can neither create a region nor attach one.
    Scarce {
        node: Target,
        /// Time until it gets memory again.
        lasts: Duration,
    },
    /// A node's clock stands still.
    ClockStop {
        node: Target,
        /// Time until it runs again.
        lasts: Duration,
    },
    /// A node's clock is put forward.
    ClockJump {
        node: Target,
        /// Time by which it is put forward.
        by: Duration,
    },
    /// A node dies, and fails to start several times before it runs again: each start uses up an incarnation.
    FailedStarts {
        node: Target,
        /// Number of failed starts.
        times: u32,
        /// Time until it runs.
        back_after: Duration,
    },
    /// A node dies and is started with a count of its starts that is out of date, as with a directory that
    /// was restored from a backup: it has lost its memory, and passes for a process that has not. It is
    /// corrected later.
    WrongLife {
        node: Target,
        /// Number of starts that its count lacks.
        lacks: u32,
        /// Time until it is corrected.
        lasts: Duration,
    },
    /// A replica receives a ballot that many elections have led to, of which it has seen none.
    Elections {
        group: u16,
        slot: u8,
        /// Number of elections.
        count: u32,
    },
    /// The next replica of a group that is admitted after it had lost its memory is told to lead it.
    Promote {
        /// The group.
        group: u16,
    },
}

impl Kind {
    /// The target, if the fault waits until there is one.
    pub(super) fn waits_for(&self) -> Option<Target> {
        match *self {
            Self::Crash { node, .. }
            | Self::DiskLoss { node, .. }
            | Self::FlushFails { node, .. }
            | Self::DiskFull { node, .. }
            | Self::OldDisk { node, .. }
            | Self::FailedStarts { node, .. }
            | Self::WrongLife { node, .. }
            | Self::StopInside { node, .. }
            | Self::ClockStop { node, .. }
            | Self::Pause { node, .. }
            | Self::Isolate { node: node @ Target::NewLeader { .. }, .. }
            | Self::Cut { from: node @ Target::NewLeader { .. }, .. } => Some(node),
            _ => None,
        }
    }

    /// The target whose memory the fault destroys.
    pub(super) fn kills(&self) -> Option<Target> {
        match *self {
            Self::Crash { node, .. }
            | Self::DiskLoss { node, .. }
            | Self::OldDisk { node, .. }
            | Self::FailedStarts { node, .. }
            | Self::WrongLife { node, .. } => Some(node),
            _ => None,
        }
    }
}

impl Kind {
    /// Whether what the fault kills has lost its memory when it is back.
    pub(super) const fn loses_memory(&self, durable: bool) -> bool {
        !durable || matches!(self, Self::DiskLoss { .. } | Self::OldDisk { empty: true, .. })
    }
}

impl Fault {
    /// The client that it hits, if any.
    pub(super) fn client(&self) -> Option<usize> {
        match self.kind {
            Kind::ClientCrash { client, .. }
            | Kind::ClientFlap { client, .. }
            | Kind::Resend { client } => Some(client),
            _ => None,
        }
    }
}

/// How often each kind of fault is drawn, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// [`Kind::Crash`].
    pub crashes: u64,
    /// [`Kind::Pause`].
    pub pauses: u64,
    /// [`Kind::Slow`].
    pub slows: u64,
    /// [`Kind::Cut`] and [`Kind::Isolate`].
    pub partitions: u64,
    /// [`Kind::Flap`].
    pub flaps: u64,
    /// [`Kind::Skew`].
    pub skews: u64,
    /// [`Kind::ClientCrash`].
    pub client_crashes: u64,
    /// [`Kind::ClientFlap`].
    pub client_flaps: u64,
    /// [`Kind::Resend`].
    pub resends: u64,
    /// [`Kind::Transfer`].
    pub transfers: u64,
    /// [`Kind::Evict`].
    pub evictions: u64,
    /// [`Kind::Deaf`].
    pub deafs: u64,
}

impl Mix {
    const fn total(self) -> u64 {
        let Self { crashes, pauses, slows, partitions, flaps, skews, .. } = self;
        let Self { client_crashes, client_flaps, resends, transfers, evictions, deafs, .. } = self;
        let of_nodes = crashes + pauses + slows + partitions + flaps + skews + deafs;
        of_nodes + client_crashes + client_flaps + resends + transfers + evictions
    }
}

/// A random time, from a tenth of `longest` to the whole.
pub(super) fn some_of(rng: &mut Rng, longest: Duration) -> Duration {
    let longest = longest.as_micros() as u64;
    Duration::from_micros(rng.between(longest / 10, longest))
}

/// Draws the faults of a scenario, in the order in which they happen.
pub(super) fn draw(scenario: &Scenario, mix: Mix, count: u64, rng: &mut Rng) -> Vec<Fault> {
    if mix.total() == 0 {
        return Vec::new();
    }
    let mut faults: Vec<_> = (0..count).map(|_| draw_one(scenario, mix, rng)).collect();
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

fn draw_one(scenario: &Scenario, mix: Mix, rng: &mut Rng) -> Fault {
    let topology = scenario.topology();
    let suspected_after = scenario.suspected_after();
    let mut at = rng.below(mix.total());
    let mut is = |weight: u64| {
        let hit = at < weight;
        at = at.wrapping_sub(weight);
        hit
    };
    let [
        crash,
        pause,
        slow,
        partition,
        flap,
        skew,
        client_crash,
        client_flap,
        resend,
        transfer,
        eviction,
    ] = [
        is(mix.crashes),
        is(mix.pauses),
        is(mix.slows),
        is(mix.partitions),
        is(mix.flaps),
        is(mix.skews),
        is(mix.client_crashes),
        is(mix.client_flaps),
        is(mix.resends),
        is(mix.transfers),
        is(mix.evictions),
    ];
    let client = rng.index(scenario.clients.0);
    let mut target = || match rng.below(2) {
        0 if !scenario.elections || rng.one_in(2) => {
            Target::Node(rng.below(u64::from(topology.nodes)) as u16)
        }
        _ => Target::Leader(rng.below(u64::from(topology.groups)) as u16),
    };
    let (node, other) = (target(), target());
    // About the time until a suspicion: sometimes shorter, sometimes longer.
    let lasts = some_of(rng, if scenario.lags { 12 } else { 3 } * suspected_after);
    let kind = if crash {
        Kind::Crash { node, back_after: some_of(rng, 2 * suspected_after) }
    } else if pause {
        Kind::Pause { node, lasts, flaps: rng.one_in(3) }
    } else if slow {
        Kind::Slow { node, factor: rng.between(2, 200), lasts }
    } else if partition && rng.one_in(2) {
        Kind::Cut { from: node, to: other, both_ways: rng.one_in(2), lasts }
    } else if partition {
        let outbound = rng.one_in(2);
        Kind::Isolate { node, outbound, inbound: !outbound || rng.one_in(2), lasts }
    } else if flap {
        Kind::Flap { one: node, other }
    } else if skew {
        Kind::Skew { node, per_mille: rng.between(500, 2000) }
    } else if client_crash {
        Kind::ClientCrash { client, midway: rng.one_in(2), again: rng.one_in(2) }
    } else if client_flap {
        Kind::ClientFlap { client, node }
    } else if resend {
        Kind::Resend { client }
    } else if transfer || eviction {
        let group = rng.below(u64::from(topology.groups)) as u16;
        let slot = rng.below(u64::from(topology.replicas)) as u8;
        if transfer { Kind::Transfer { group, slot } } else { Kind::Evict { group, slot } }
    } else {
        Kind::Deaf { node, lasts }
    };
    let after = rng.below(scenario.messages);
    Fault { after, delay: Duration::from_micros(rng.below(2000)), kind }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "n{node}"),
            Self::Leader(group) => write!(f, "g{group}'s leader"),
            Self::NewLeader { group, steps } => {
                write!(f, "g{group}'s next leader, {steps} steps after it began,")
            }
            Self::Sender(group) => {
                write!(
                    f,
                    "g{group}'s leader, when a learner has its state and no follower has as much,"
                )
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after message {}: ", self.delay, self.after)?;
        match &self.kind {
            Kind::Crash { node, back_after } => {
                write!(f, "{node} dies, and restarts {back_after:?} later")
            }
            Kind::PowerFailure { back_within } => {
                write!(f, "all nodes lose their power, and are back within {back_within:?}")
            }
            Kind::OldCopy { node, ahead, back_within } => {
                write!(
                    f,
                    "all nodes lose their power, and are back within {back_within:?}, {node} with an older disk"
                )?;
                ahead.map_or(Ok(()), |(node, alone)| {
                    write!(f, "; {node} is there {alone:?} before them")
                })
            }
            Kind::PowerAtJoin { group, back_within } => {
                write!(
                    f,
                    "all lose power, and one its disk, when a replica of g{group} counts again, and restart within \
                    {back_within:?}"
                )
            }
            Kind::DiskLoss { node, back_after } => {
                write!(f, "{node} dies, and restarts with an empty disk {back_after:?} later")
            }
            Kind::Rot { group, slot } => {
                write!(f, "the log of g{group}.{slot} on its disk is damaged")
            }
            Kind::SpoilCheckpoints { group, slot, gone } => {
                let what = if *gone { "gone" } else { "damaged" };
                write!(f, "the checkpoints of g{group}.{slot} on its disk are {what}")
            }
            Kind::FlushFails { node, ends_after, back_after } => {
                write!(
                    f,
                    "a flush of {node} fails, which ends {ends_after:?} later, and restarts {back_after:?} after that"
                )
            }
            Kind::DiskFull { node, lasts } => {
                write!(f, "the disk of {node} is full for {lasts:?}")
            }
            Kind::OldDisk { node, times, empty, back_after } => {
                let disk = if *empty { "an empty disk" } else { "its own disk" };
                write!(
                    f,
                    "{node} dies, fails to start {times} times with an old disk, and runs with {disk} {back_after:?} \
                    later"
                )
            }
            Kind::Loss { group, replicas, back_after } => {
                write!(
                    f,
                    "{replicas} replicas of g{group} die, and restart without their state {back_after:?} later"
                )
            }
            Kind::Pause { node, lasts, flaps } => {
                let flaps = if *flaps { ", with its connections broken" } else { "" };
                write!(f, "{node} is suspended for {lasts:?}{flaps}")
            }
            Kind::Slow { node, factor, lasts } => {
                write!(f, "{node} is {factor} times slower for {lasts:?}")
            }
            Kind::Cut { from, to, both_ways, lasts } => {
                let (way, and) = if *both_ways { ("between", "and") } else { ("from", "to") };
                write!(f, "nothing goes {way} {from} {and} {to} for {lasts:?}")
            }
            Kind::Isolate { node, outbound, inbound, lasts } => {
                let way = match (outbound, inbound) {
                    (true, true) => "from and to",
                    (true, false) => "from",
                    _ => "to",
                };
                write!(f, "nothing goes {way} {node} for {lasts:?}")
            }
            Kind::Deaf { node, lasts } => {
                write!(f, "nothing goes between clients and {node} for {lasts:?}")
            }
            Kind::Sever { group, slot, evicted, lasts } => {
                write!(
                    f,
                    "nothing goes to g{group}.{slot}, except from its leader, for {lasts:?}"
                )?;
                if *evicted > 0 {
                    write!(f, ", from when it knows of {evicted} evictions")?;
                }
                Ok(())
            }
            Kind::LeaveKeepers { group, back_after } => {
                write!(
                    f,
                    "all of g{group} die but a quorum with evicted replicas that keep their logs, \
                    and restart {back_after:?} later"
                )
            }
            Kind::Flap { one, other } => {
                write!(f, "the connections between {one} and {other} break")
            }
            Kind::Skew { node, per_mille } => {
                write!(f, "the clock of {node} runs at {per_mille}/1000")
            }
            Kind::ClientCrash { client, midway, again } => {
                let midway = if *midway { " in the middle of its writes" } else { "" };
                let again = if *again { ", and its successor sends all again" } else { "" };
                write!(f, "client {client} dies{midway}{again}")
            }
            Kind::ClientFlap { client, node } => {
                write!(f, "the connections between client {client} and {node} break")
            }
            Kind::Resend { client } => write!(f, "client {client} sends all again"),
            Kind::Transfer { group, slot } => write!(f, "g{group}.{slot} is asked to lead"),
            Kind::Evict { group, slot } => write!(f, "g{group} is asked to evict g{group}.{slot}"),
            Kind::Stall { group, has_state } => {
                let when = if *has_state { "has a state" } else { "receives a state" };
                write!(
                    f,
                    "the next replica of g{group} that {when}, and is not admitted, is suspended \
                    for the rest of the load"
                )
            }
            Kind::StopInside { node, looks, clock_looks, lasts } => {
                write!(
                    f,
                    "{node} is stopped in its next turn after {looks} reads of any kind, or \
                    {clock_looks} of its clock, for {lasts:?}"
                )
            }
            Kind::Scarce { node, lasts } => write!(f, "{node} gets no memory for {lasts:?}"),
            Kind::ClockStop { node, lasts } => {
                write!(f, "the clock of {node} stops for {lasts:?}")
            }
            Kind::ClockJump { node, by } => {
                write!(f, "the clock of {node} jumps forward by {by:?}")
            }
            Kind::FailedStarts { node, times, back_after } => {
                write!(
                    f,
                    "{node} dies, fails to start {times} times, and runs {back_after:?} later"
                )
            }
            Kind::WrongLife { node, lacks, lasts } => {
                write!(f, "{node} dies, and its start count is {lacks} too low for {lasts:?}")
            }
            Kind::Elections { group, slot, count } => {
                write!(f, "g{group}.{slot} receives a ballot that is {count} elections ahead")
            }
            Kind::Promote { group } => {
                write!(f, "the next replica that g{group} admits is asked to lead")
            }
        }
    }
}
