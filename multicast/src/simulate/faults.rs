//! Faults as data: what goes wrong, and when. Drawn before the run, so that they can be listed, left
//! out one by one, and run again.

use std::fmt;
use std::time::Duration;

use skein_fabric::sim::Rng;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::scenario::Scenario;

/// Sessions that have not come back, and that nobody has seen, are ended within that time.
const RETURN_MAX: Duration = Duration::from_secs(6);
/// Until all faults end.
pub(super) const FOR_EVER: Duration = Duration::from_hours(1);

/// Something that goes wrong at some moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// After how many messages of all clients.
    pub after: u64,
    /// And how much later.
    pub delay: Duration,
    /// What.
    pub kind: Kind,
}

/// Which node a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// That one.
    Node(u16),
    /// Whichever leads that group at the moment; its first leader's, if nobody does.
    Leader(u16),
    /// Whoever begins to lead that group next, so many steps of the run later, if its first entry is
    /// not committed by then.
    NewLeader {
        /// Which group.
        group: u16,
        /// How many steps: none, and nothing of what it writes has landed.
        steps: u64,
    },
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A node dies with everything it remembers, and is started again later, in its next life.
    Crash {
        /// Which.
        node: Target,
        /// How much later.
        back_after: Duration,
    },
    /// So many replicas of a group die together, its leader's node first, and are started again later,
    /// in their next lives: more than it tolerates. An operator has to recreate it.
    Loss {
        /// Of which group.
        group: u16,
        /// How many, a quorum at least.
        replicas: u8,
        /// How much later.
        back_after: Duration,
    },
    /// A node stands still, keeps its memory, and goes on later.
    Pause {
        /// Which.
        node: Target,
        /// For how long.
        lasts: Duration,
        /// All its connections break meanwhile.
        flaps: bool,
    },
    /// Everything from and to a node is so many times slower.
    Slow {
        /// Which.
        node: Target,
        /// How many times.
        factor: u64,
        /// For how long.
        lasts: Duration,
    },
    /// What one node sends another is held back, and perhaps the other way round too.
    Cut {
        /// From which.
        from: Target,
        /// To which.
        to: Target,
        /// Also the other way round.
        both_ways: bool,
        /// For how long.
        lasts: Duration,
    },
    /// What a node sends all other nodes is held back, or what they send it, or both.
    Isolate {
        /// Which.
        node: Target,
        /// What it sends.
        outbound: bool,
        /// What it is sent.
        inbound: bool,
        /// For how long.
        lasts: Duration,
    },
    /// What clients send a node is held back, and what it sends them: it knows messages from other nodes
    /// alone.
    Deaf {
        /// Which.
        node: Target,
        /// For how long.
        lasts: Duration,
    },
    /// The connections between two nodes break, and can be made again at once.
    Flap {
        /// Between this one
        one: Target,
        /// and this one.
        other: Target,
    },
    /// A node's clock runs at another rate: so many thousandths of the true one.
    Skew {
        /// Which.
        node: Target,
        /// At which rate.
        per_mille: u64,
    },
    /// A client process dies, perhaps in the middle of a turn's writes.
    ClientCrash {
        /// Which.
        client: usize,
        /// Right after a turn in which it sent something, when nothing of that has landed.
        midway: bool,
        /// Its successor opens the same sessions and sends again what it had sent: late retries.
        again: bool,
    },
    /// The connections between a client and a node break, and can be made again at once.
    ClientFlap {
        /// Which client.
        client: usize,
        /// Which node.
        node: Target,
    },
    /// A client sends everything that is under way once more: duplicates.
    Resend {
        /// Which.
        client: usize,
    },
    /// An operator lets a replica lead its group.
    Transfer {
        /// Of which group.
        group: u16,
        /// Which replica.
        slot: u8,
    },
    /// An operator has a group evict a replica.
    Evict {
        /// Of which group.
        group: u16,
        /// Which replica.
        slot: u8,
    },
    /// The next replica of a group that takes a state stands still for ever: while it takes it, or when it has
    /// it and is not admitted yet.
    Stall {
        /// Of which group.
        group: u16,
        /// When it has the state.
        has_state: bool,
    },
    /// A node is stopped in the middle of its next turn, and goes on with it later.
    StopInside {
        /// Which.
        node: Target,
        /// After so many looks at its memory, its mail and its clock.
        looks: u64,
        /// Or after so many at its clock.
        clock_looks: u64,
        /// How much later.
        lasts: Duration,
    },
    /// A node is given no memory: it can neither create a region nor attach one.
    Scarce {
        /// Which.
        node: Target,
        /// For how long.
        lasts: Duration,
    },
    /// No time passes by a node's clock.
    ClockStop {
        /// Which.
        node: Target,
        /// For how long.
        lasts: Duration,
    },
    /// A node's clock is put forward.
    ClockJump {
        /// Which.
        node: Target,
        /// By how much.
        by: Duration,
    },
    /// A node dies, and is started in vain before it runs again: each start uses up a life.
    FailedStarts {
        /// Which.
        node: Target,
        /// How often.
        times: u32,
        /// How much later it runs.
        back_after: Duration,
    },
    /// A node dies and is started with a count of its starts that is out of date, as with a directory that was
    /// restored: it has lost its memory, and passes for one that has not. Later somebody puts it right.
    WrongLife {
        /// Which.
        node: Target,
        /// How many starts its count lacks.
        lacks: u32,
        /// How much later it is put right.
        lasts: Duration,
    },
    /// A replica hears of a ballot that many elections have led to, of which it had not heard.
    Elections {
        /// Of which group.
        group: u16,
        /// Which replica.
        slot: u8,
        /// How many.
        count: u32,
    },
    /// The next replica of a group that is let in, having lost its memory, is told to lead it.
    Promote {
        /// Of which group.
        group: u16,
    },
}

impl Kind {
    /// Whom it hits, where it waits for that one to be there.
    pub(super) fn waits_for(&self) -> Option<Target> {
        match *self {
            Self::Crash { node, .. }
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

    /// Whose memory it takes.
    pub(super) fn kills(&self) -> Option<Target> {
        match *self {
            Self::Crash { node, .. }
            | Self::FailedStarts { node, .. }
            | Self::WrongLife { node, .. } => Some(node),
            _ => None,
        }
    }
}

impl Fault {
    /// The client that it hits, if it hits one.
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

/// Of a time, a tenth to the whole.
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
    let topology = scenario.topology;
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
    // About as long as it takes to be suspected: now shorter, now longer.
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

/// A leader that dies, or stands still until it has a successor, while there is load.
pub(super) fn leader_falls(scenario: &Scenario, rng: &mut Rng) -> Fault {
    let node = Target::Leader(rng.below(u64::from(scenario.topology.groups)) as u16);
    let long = 4 * scenario.suspected_after();
    let kind = match rng.below(3) {
        0 => Kind::Pause { node, lasts: long + some_of(rng, long), flaps: rng.one_in(3) },
        _ => Kind::Crash { node, back_after: some_of(rng, long) },
    };
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    Fault { after, delay: Duration::from_micros(rng.below(2000)), kind }
}

/// One after the other, those that begin to lead a group die, stand still or are cut off before their
/// first entry is committed: as many of them as there are logs that differ.
pub(super) fn new_leaders_fall(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let group = rng.below(u64::from(scenario.topology.groups)) as u16;
    let node = Target::NewLeader { group, steps: 0 };
    let silence = scenario.suspected_after();
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    // The first is back when its successor, which keeps what it had logged last for itself, is not.
    let first = Kind::Isolate {
        node: Target::Leader(group),
        outbound: true,
        inbound: rng.one_in(3),
        lasts: silence + some_of(rng, 2 * silence),
    };
    let mut faults = vec![fault(first)];
    for _ in 0..rng.between(2, 5) {
        let lasts = some_of(rng, 6 * silence);
        let kind = match rng.below(6) {
            0 => Kind::Crash { node, back_after: some_of(rng, 3 * silence) },
            1 => Kind::Pause { node, lasts, flaps: rng.one_in(3) },
            2 => Kind::Isolate { node, outbound: true, inbound: true, lasts },
            _ => Kind::Isolate { node, outbound: true, inbound: false, lasts },
        };
        faults.push(fault(kind));
    }
    faults
}

/// One after the other, those that lead a group, or begin to, are cut off or die in the middle of what
/// they write, for about as long as the next one needs: so the group's logs go apart, each with an end of
/// its own, and those that were cut off are soon back to vote, and to lead again.
pub(super) fn logs_fork(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let group = rng.below(u64::from(topology.groups)) as u16;
    let silence = scenario.suspected_after();
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    let lasts = silence + some_of(rng, 2 * silence);
    let node = Target::Leader(group);
    let member = |slot| Target::Node(topology.node_of(ReplicaId::new(GroupId(group), slot)));
    let mut faults = Vec::new();
    if rng.one_in(2) {
        faults.push(fault(Kind::Isolate { node, outbound: true, inbound: false, lasts }));
    } else {
        // Some have what it wrote last, and others elect the next one.
        for to in (0..topology.replicas).map(member) {
            if !rng.one_in(4) {
                faults.push(fault(Kind::Cut { from: node, to, both_ways: false, lasts }));
            }
        }
    }
    for _ in 0..rng.between(2, 6) {
        // Now before anything has landed, now when half of it has.
        let within = 1 << rng.between(1, 8);
        let steps = if rng.one_in(2) { 0 } else { rng.below(within) };
        let node = Target::NewLeader { group, steps };
        let lasts = some_of(rng, 3 * silence);
        let to = member(rng.below(u64::from(topology.replicas)) as u8);
        faults.push(fault(match rng.below(8) {
            0 => Kind::Crash { node, back_after: some_of(rng, 2 * silence) },
            1 => Kind::Pause { node, lasts, flaps: rng.one_in(3) },
            2..=4 => Kind::Cut { from: node, to, both_ways: false, lasts },
            _ => Kind::Isolate { node, outbound: true, inbound: rng.one_in(4), lasts },
        }));
    }
    faults
}

/// Clocks run at other rates, as far off as they may be; and one leader after the other is cut off from
/// other nodes for long, though not from clients, which go on reading what it has.
pub(super) fn leaders_are_cut_off(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let most = 10 * u64::from(scenario.tuning.clock_skew_percent);
    let mut faults = Vec::new();
    for node in (0..topology.nodes).map(Target::Node) {
        let per_mille = 1000 - most + most * rng.below(3);
        faults.push(Fault {
            after: 0,
            delay: Duration::ZERO,
            kind: Kind::Skew { node, per_mille },
        });
    }
    let silence = scenario.suspected_after();
    for _ in 0..rng.between(2, 5) {
        let node = Target::Leader(rng.below(u64::from(topology.groups)) as u16);
        let outbound = rng.one_in(2);
        let inbound = !outbound || rng.one_in(2);
        let lasts = silence + some_of(rng, 4 * silence);
        let after = rng.below(scenario.messages);
        let kind = Kind::Isolate { node, outbound, inbound, lasts };
        faults.push(Fault { after, delay: Duration::from_micros(rng.below(2000)), kind });
    }
    faults
}

/// As many nodes as every group tolerates die or are cut off, and do not come back while there is
/// load.
pub(super) fn minority_is_away(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let most = u64::from(topology.replicas / 2);
    let (first, count) = (rng.below(u64::from(topology.nodes)), rng.between(1, most));
    let nodes = (0..count).map(|i| Target::Node(((first + i) % u64::from(topology.nodes)) as u16));
    let mut one = |node| {
        let kind = match rng.below(3) {
            0 => Kind::Isolate { node, outbound: true, inbound: true, lasts: FOR_EVER },
            1 => Kind::Pause { node, lasts: FOR_EVER, flaps: rng.one_in(3) },
            _ => Kind::Crash { node, back_after: FOR_EVER },
        };
        Fault { after: rng.below(scenario.messages / 8), delay: Duration::ZERO, kind }
    };
    nodes.map(&mut one).collect()
}

/// All clients are cut off from the node of a group's first leader, and from no other, for longer than a session
/// has to come back: their sessions live all the same, as the others of the group see.
pub(super) fn clients_are_cut_off(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let group = GroupId(rng.below(u64::from(topology.groups)) as u16);
    let node = Target::Node(topology.node_of(ReplicaId::new(group, 0)));
    let after = rng.between(scenario.messages / 8, scenario.messages);
    let lasts = RETURN_MAX + some_of(rng, Duration::from_secs(2));
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    let flaps = (0..scenario.clients.0).map(|client| Kind::ClientFlap { client, node });
    [Kind::Deaf { node, lasts }].into_iter().chain(flaps).map(fault).collect()
}

/// Replicas lose their memory, are given the state of others while much of it is pending, and lead as soon
/// as they are let in: what the state lacks, nobody has.
pub(super) fn learners_lead(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let groups = u64::from(topology.groups);
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(2, 5) {
        let group = rng.below(groups) as u16;
        let slot = rng.below(u64::from(topology.replicas)) as u8;
        let after = rng.below(scenario.messages);
        let mut fault = |delay, kind| faults.push(Fault { after, delay, kind });
        let node = Target::Node(topology.node_of(ReplicaId::new(GroupId(group), slot)));
        fault(Duration::ZERO, Kind::Crash { node, back_after: some_of(rng, silence) });
        fault(Duration::ZERO, Kind::Promote { group });
        if rng.one_in(2) {
            // What another group has to say comes late, perhaps from its next leader.
            let node = Target::Leader(rng.below(groups) as u16);
            let lasts = some_of(rng, 8 * silence);
            let kind = Kind::Isolate { node, outbound: true, inbound: rng.one_in(2), lasts };
            fault(some_of(rng, silence), kind);
        }
    }
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// A replica is not waited for, and hears nothing, while its group gets done with what it lacks; other
/// groups change their leaders, who tell nobody any more what is done; its own leader dies with what it
/// had to say; and then it leads, and is asked for a state.
pub(super) fn left_behind_leads(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let silence = scenario.suspected_after();
    let group = rng.below(u64::from(topology.groups)) as u16;
    let slots = u64::from(topology.replicas);
    let slot = rng.below(slots) as u8;
    let node = Target::Node(topology.node_of(ReplicaId::new(GroupId(group), slot)));
    let lasts = silence + some_of(rng, 2 * silence);
    let after = rng.between(scenario.messages / 8, scenario.messages);
    let fault = |delay, kind| Fault { after, delay, kind };
    let deaf = Kind::Isolate { node, outbound: false, inbound: true, lasts };
    let mut faults =
        vec![fault(Duration::ZERO, deaf), fault(Duration::ZERO, Kind::Evict { group, slot })];
    for of in (0..topology.groups).filter(|of| *of != group) {
        let slot = rng.below(slots) as u8;
        faults.push(fault(lasts / 2 + some_of(rng, lasts / 4), Kind::Transfer { group: of, slot }));
    }
    let dies = lasts.saturating_sub(some_of(rng, lasts / 4));
    let (leader, back_after) = (Target::Leader(group), some_of(rng, lasts / 4));
    faults.push(fault(dies, Kind::Flap { one: node, other: leader }));
    faults.push(fault(dies, Kind::Crash { node: leader, back_after }));
    faults.push(fault(lasts, Kind::Transfer { group, slot }));
    faults
}

/// A replica of a group dies, stays away until its slot is evicted, and comes back to stop for ever while it is
/// brought up to date. Where the group tolerates two failures, another one dies then, which must be served all
/// the same.
pub(super) fn learner_stalls(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology;
    let group = rng.below(u64::from(topology.groups)) as u16;
    let slot = rng.below(u64::from(topology.replicas)) as u8;
    let member = |slot| Target::Node(topology.node_of(ReplicaId::new(GroupId(group), slot)));
    let silence = scenario.suspected_after();
    let after = rng.below(scenario.messages / 4);
    let fault = |delay, kind| Fault { after, delay, kind };
    let back_after = silence + some_of(rng, 8 * silence);
    let mut faults = vec![
        fault(Duration::ZERO, Kind::Crash { node: member(slot), back_after }),
        fault(Duration::ZERO, Kind::Stall { group, has_state: !rng.one_in(3) }),
    ];
    if topology.replicas > 3 {
        let other =
            (slot + 1 + rng.below(u64::from(topology.replicas) - 1) as u8) % topology.replicas;
        let kind = Kind::Crash { node: member(other), back_after: some_of(rng, silence) };
        faults.push(fault(back_after + silence, kind));
    }
    faults
}

/// A follower hears its own leader and nobody else, for as long as there is load: it is fed a log of messages
/// to two groups, and never sees what the other one's quorum holds. Groups 0 and 1 have one node each that the
/// other has no replica on; slot 1 of group 0 leads, whose node also runs the other group's leader. One of five
/// replicas sees nothing committed at all: its leader and itself are no quorum.
pub(super) fn follower_is_severed(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    let replicas = if rng.one_in(3) { 5 } else { 3 };
    scenario.topology.replicas = replicas as u8;
    (scenario.topology.groups, scenario.topology.engines) = (2, 1);
    scenario.topology.nodes = replicas + 1;
    scenario.shared_percent = 100;
    // Nobody is to be suspected who is merely late: nothing but the leader is heard.
    scenario.tuning.heartbeats_missed_max = 16;
    scenario.rough = false;
    let fault = |kind| Fault { after: 0, delay: Duration::from_millis(20), kind };
    let (leader, follower) = (1, Target::Node(0));
    let cut = |from| {
        fault(Kind::Cut {
            from: Target::Node(from),
            to: follower,
            both_ways: false,
            lasts: FOR_EVER,
        })
    };
    let leads = fault(Kind::Transfer { group: 0, slot: 1 });
    let others = (0..scenario.topology.nodes).filter(|node| *node != 0 && *node != leader);
    [leads].into_iter().chain(others.map(cut)).collect()
}

/// Again and again nothing goes from clients to a group's leader, which has messages, nearly all of them large, from other
/// groups' leaders alone; and one of its followers stands still meanwhile.
pub(super) fn relays_meet_a_laggard(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    (scenario.topology.replicas, scenario.topology.nodes) = (3, 3);
    scenario.topology.groups = 2 + rng.below(2) as u16;
    scenario.topology.engines = 1;
    (scenario.shared_percent, scenario.large_one_in) = (100, 1);
    let silence = scenario.suspected_after();
    let member = |slot| Target::Node(scenario.topology.node_of(ReplicaId::new(GroupId(0), slot)));
    let (leader, follower) = (member(0), member(1 + rng.below(2) as u8));
    let mut faults = Vec::new();
    for _ in 0..rng.between(3, 8) {
        let after = rng.below(scenario.messages);
        let mut fault = |delay, kind| faults.push(Fault { after, delay, kind });
        fault(Duration::ZERO, Kind::Deaf { node: leader, lasts: some_of(rng, 4 * silence) });
        let kind = Kind::Pause { node: follower, lasts: some_of(rng, 4 * silence), flaps: false };
        fault(some_of(rng, silence), kind);
    }
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// More memories of a group die than it tolerates, while there is load.
pub(super) fn group_is_lost(scenario: &Scenario, rng: &mut Rng) -> Fault {
    let topology = scenario.topology;
    let group = rng.below(u64::from(topology.groups)) as u16;
    let quorum = topology.quorum() as u64;
    let replicas = rng.between(quorum, u64::from(topology.replicas)) as u8;
    let kind =
        Kind::Loss { group, replicas, back_after: some_of(rng, 4 * scenario.suspected_after()) };
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    Fault { after, delay: Duration::from_micros(rng.below(2000)), kind }
}

/// The same group loses all its memories, twice more, while others keep theirs where they can.
pub(super) fn group_is_lost_again(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (group, replicas) = (0, scenario.topology.replicas);
    let mut after = 0;
    for fault in &mut scenario.faults {
        if let Kind::Loss { group: lost, replicas: of, .. } = &mut fault.kind {
            (*lost, *of, after) = (group, replicas, fault.after);
        }
    }
    let again = (0..2).map(|_| {
        let back_after = some_of(rng, 4 * scenario.suspected_after());
        after += rng.between(4, 4 + scenario.messages / 4);
        Fault {
            after: after.min(scenario.messages - 1),
            delay: Duration::from_micros(rng.below(2000)),
            kind: Kind::Loss { group, replicas, back_after },
        }
    });
    again.collect()
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "n{node}"),
            Self::Leader(group) => write!(f, "g{group}'s leader"),
            Self::NewLeader { group, steps } => {
                write!(f, "g{group}'s next leader, {steps} steps after it began,")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after message {}: ", self.delay, self.after)?;
        match &self.kind {
            Kind::Crash { node, back_after } => {
                write!(f, "{node} dies, and is started again {back_after:?} later")
            }
            Kind::Loss { group, replicas, back_after } => {
                write!(
                    f,
                    "{replicas} replicas of g{group} die, and begin anew {back_after:?} later"
                )
            }
            Kind::Pause { node, lasts, flaps } => {
                let flaps = if *flaps { ", with its connections broken" } else { "" };
                write!(f, "{node} stands still for {lasts:?}{flaps}")
            }
            Kind::Slow { node, factor, lasts } => {
                write!(f, "{node} is {factor} times slower for {lasts:?}")
            }
            Kind::Cut { from, to, both_ways, lasts } => {
                let way = if *both_ways { "and" } else { "to" };
                write!(f, "nothing goes from {from} {way} {to} for {lasts:?}")
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
                write!(f, "nothing goes from clients to {node} or back for {lasts:?}")
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
            Kind::Transfer { group, slot } => write!(f, "g{group}.{slot} is told to lead"),
            Kind::Evict { group, slot } => write!(f, "g{group} is told to evict g{group}.{slot}"),
            Kind::Stall { group, has_state } => {
                let when = if *has_state { "has a state" } else { "takes a state" };
                write!(
                    f,
                    "whoever {when} of g{group} next, and is not admitted, stands still for ever"
                )
            }
            Kind::StopInside { node, looks, clock_looks, lasts } => {
                write!(
                    f,
                    "{node} is stopped in its next turn after {looks} looks, or {clock_looks} at its \
                    clock, for {lasts:?}"
                )
            }
            Kind::Scarce { node, lasts } => write!(f, "{node} is given no memory for {lasts:?}"),
            Kind::ClockStop { node, lasts } => {
                write!(f, "the clock of {node} stands still for {lasts:?}")
            }
            Kind::ClockJump { node, by } => write!(f, "the clock of {node} goes forward by {by:?}"),
            Kind::FailedStarts { node, times, back_after } => {
                write!(
                    f,
                    "{node} dies, fails to start {times} times, and runs {back_after:?} later"
                )
            }
            Kind::WrongLife { node, lacks, lasts } => {
                write!(f, "{node} dies, and its count of starts lacks {lacks} for {lasts:?}")
            }
            Kind::Elections { group, slot, count } => {
                write!(f, "g{group}.{slot} hears of {count} elections at once")
            }
            Kind::Promote { group } => write!(f, "whoever g{group} lets in next is told to lead"),
        }
    }
}
