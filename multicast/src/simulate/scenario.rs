//! What a seed runs: drawn once, before anything happens.

use std::time::Duration;

use skein_fabric::sim::{Rng, SimConfig};

use super::Reduction;
use super::faults::{self, Fault, Mix};
use super::schedules;
use super::surroundings::{self, Surroundings};
use crate::access::Of;
use crate::config::{Topology, Tuning};

/// By how much clocks are off where that matters, in hundredths: more than any clock is, so that it
/// shows.
const SKEW_PERCENT: u8 = 30;

/// A kind of scenario: what is drawn from a seed, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// By which it is asked for.
    pub name: &'static str,
    /// What it is good for.
    pub about: &'static str,
    /// Faults at least, and so many more at most.
    faults: (u64, u64),
    mix: Mix,
    /// Messages at least, and so many more at most.
    messages: (u64, u64),
    /// One in so many has sixteen groups.
    large_one_in: u64,
    /// Goes on until every ring and log was lapped twice.
    laps: bool,
    /// One replica a group, now and then.
    single: bool,
    /// The leader of a group dies or stands still for long, whatever else happens.
    leader_falls: bool,
    /// A group loses more memories than it tolerates.
    loses: bool,
    /// Groups are large, leaders are what faults hit, and what is under way lands in the middle of
    /// what a replica does to let another lead.
    elections: bool,
    /// Many sessions do one thing after the other, over several groups of which some are slow.
    overlaps: bool,
    /// Replicas are held up for long, and payloads are large.
    lags: bool,
    /// A minority of nodes is away until everything was sent.
    away: bool,
    /// Connections end, those of clients too, and say nothing of who was behind them.
    network: bool,
    /// The logs of a group go apart, and whoever looks at memory is held up now and then.
    forks: bool,
    /// Sessions read what is not ordered, of leaders.
    reads: Option<Of>,
    /// Replicas that were given the state lead as soon as they are let in.
    learners: bool,
    /// A replica that is brought up to date stops for ever.
    stalls: bool,
    /// A follower hears its own leader, and nobody else.
    severed: bool,
    /// A leader has messages from other groups' leaders alone, while a follower lags.
    relayed: bool,
    /// Two processes say different things under the same names.
    twins: bool,
    /// What surrounds the processes is against them.
    surroundings: Option<Surroundings>,
}

/// No fault at all.
const QUIET: Mix = Mix {
    crashes: 0,
    pauses: 0,
    slows: 0,
    partitions: 0,
    flaps: 0,
    skews: 0,
    client_crashes: 0,
    client_flaps: 0,
    resends: 0,
    transfers: 0,
    evictions: 0,
    deafs: 0,
};

/// What the profiles have in common that have nothing else to say about it.
const PLAIN: Profile = Profile {
    name: "",
    about: "",
    faults: (4, 12),
    mix: QUIET,
    messages: (100, 200),
    large_one_in: 500,
    laps: false,
    single: false,
    leader_falls: false,
    loses: false,
    elections: false,
    lags: false,
    away: false,
    overlaps: false,
    network: false,
    forks: false,
    reads: None,
    learners: false,
    stalls: false,
    severed: false,
    relayed: false,
    twins: false,
    surroundings: None,
};

impl Profile {
    /// All profiles; the first is what is run if none is named.
    pub const ALL: [Self; 30] = [
        Self {
            name: "default",
            about: "every kind of fault, and a leader that falls in every seed",
            faults: (1, 7),
            mix: Mix {
                crashes: 6,
                pauses: 4,
                slows: 2,
                partitions: 4,
                flaps: 4,
                skews: 2,
                client_crashes: 3,
                resends: 2,
                ..QUIET
            },
            messages: (80, 160),
            large_one_in: 1000,
            leader_falls: true,
            ..PLAIN
        },
        Self {
            name: "calm",
            about: "no fault but the world's own roughness",
            faults: (0, 1),
            large_one_in: 250,
            single: true,
            ..PLAIN
        },
        Self {
            name: "crashes",
            about: "nodes die and come back without their memory, again and again",
            mix: Mix { crashes: 10, pauses: 2, flaps: 1, ..QUIET },
            messages: (150, 250),
            leader_falls: true,
            ..PLAIN
        },
        Self {
            name: "partitions",
            about: "connections break and nodes are cut off, slow, or stand still; nobody dies",
            mix: Mix { pauses: 4, slows: 2, partitions: 8, flaps: 6, skews: 2, ..QUIET },
            ..PLAIN
        },
        Self {
            name: "clients",
            about: "clients die between any two writes, and say everything twice",
            faults: (3, 8),
            mix: Mix { client_crashes: 8, resends: 4, crashes: 1, ..QUIET },
            single: true,
            ..PLAIN
        },
        Self {
            name: "laps",
            about: "runs so long that every ring and log is lapped twice",
            faults: (0, 4),
            mix: Mix { crashes: 2, pauses: 1, partitions: 2, client_crashes: 2, ..QUIET },
            messages: (200, 200),
            large_one_in: 250,
            laps: true,
            single: true,
            ..PLAIN
        },
        Self {
            name: "losses",
            about: "a group loses more memories than it tolerates, and is recreated",
            faults: (0, 4),
            mix: Mix { crashes: 2, pauses: 2, flaps: 1, resends: 2, ..QUIET },
            messages: (80, 160),
            large_one_in: 1000,
            single: true,
            loses: true,
            ..PLAIN
        },
        Self {
            name: "elections",
            about: "one leader falls after the other, in the middle of what it writes",
            faults: (6, 12),
            mix: Mix {
                crashes: 6,
                pauses: 6,
                slows: 3,
                partitions: 8,
                flaps: 4,
                transfers: 2,
                ..QUIET
            },
            messages: (60, 80),
            large_one_in: 1000,
            leader_falls: true,
            elections: true,
            ..PLAIN
        },
        Self {
            name: "overlaps",
            about: "messages that overlap in chains of groups, and sessions that wait for each answer",
            faults: (1, 5),
            mix: Mix { crashes: 1, pauses: 4, slows: 8, partitions: 2, flaps: 2, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            single: true,
            overlaps: true,
            ..PLAIN
        },
        Self {
            name: "laggards",
            about: "replicas fall behind by more than a log, are evicted, and come back",
            faults: (6, 12),
            mix: Mix {
                crashes: 2,
                pauses: 6,
                slows: 3,
                partitions: 6,
                flaps: 2,
                client_crashes: 4,
                transfers: 2,
                evictions: 6,
                ..QUIET
            },
            messages: (150, 150),
            large_one_in: 1000,
            lags: true,
            ..PLAIN
        },
        Self {
            name: "absent",
            about: "as many replicas as a group tolerates are away for as long as there is load",
            faults: (0, 4),
            mix: Mix { flaps: 2, client_crashes: 2, resends: 2, ..QUIET },
            messages: (250, 150),
            large_one_in: 1000,
            away: true,
            ..PLAIN
        },
        Self {
            name: "networks",
            about: "connections end, clients' too, and say nothing of who was behind them",
            faults: (6, 12),
            mix: Mix { crashes: 3, flaps: 4, client_flaps: 10, client_crashes: 3, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            network: true,
            ..PLAIN
        },
        Self {
            name: "forks",
            about: "leaders are cut off in the middle of their first words, and are soon back",
            faults: (0, 4),
            mix: Mix { crashes: 2, pauses: 2, slows: 4, transfers: 4, deafs: 4, ..QUIET },
            messages: (60, 80),
            large_one_in: 1000,
            leader_falls: true,
            elections: true,
            forks: true,
            ..PLAIN
        },
        Self {
            name: "deaf",
            about: "sessions do not reach some replicas, which are evicted and come back",
            faults: (6, 12),
            mix: Mix {
                pauses: 1,
                slows: 2,
                partitions: 1,
                client_crashes: 1,
                transfers: 2,
                evictions: 8,
                deafs: 8,
                ..QUIET
            },
            messages: (100, 100),
            large_one_in: 1000,
            lags: true,
            ..PLAIN
        },
        Self {
            name: "leases",
            about: "reads that are not ordered, of leaders that stand still, are cut off, or keep wrong time",
            faults: (1, 5),
            mix: Mix {
                crashes: 2,
                pauses: 4,
                slows: 3,
                partitions: 4,
                flaps: 2,
                transfers: 2,
                ..QUIET
            },
            messages: (150, 150),
            large_one_in: 1000,
            single: true,
            leader_falls: true,
            reads: Some(Of::LeaseHolder),
            ..PLAIN
        },
        Self {
            name: "confirmed",
            about: "reads that are not ordered, of leaders that others follow without their knowing",
            faults: (1, 6),
            mix: Mix {
                crashes: 4,
                pauses: 3,
                slows: 3,
                partitions: 4,
                flaps: 2,
                transfers: 2,
                ..QUIET
            },
            messages: (150, 150),
            large_one_in: 1000,
            single: true,
            leader_falls: true,
            reads: Some(Of::Leader),
            ..PLAIN
        },
        Self {
            name: "learners",
            about: "replicas that were given the state lead as soon as they are let in",
            faults: (1, 5),
            mix: Mix {
                crashes: 2,
                pauses: 3,
                slows: 4,
                flaps: 1,
                client_crashes: 2,
                resends: 2,
                evictions: 2,
                deafs: 2,
                ..QUIET
            },
            messages: (120, 120),
            large_one_in: 1000,
            learners: true,
            ..PLAIN
        },
        Self {
            name: "wrecks",
            about: "a group is lost and recreated while clients die",
            faults: (1, 4),
            mix: Mix { crashes: 2, pauses: 2, flaps: 1, client_crashes: 6, resends: 1, ..QUIET },
            messages: (80, 160),
            large_one_in: 1000,
            single: true,
            loses: true,
            ..PLAIN
        },
        Self {
            name: "large",
            about: "sixteen groups",
            faults: (1, 6),
            mix: Mix {
                crashes: 4,
                pauses: 2,
                slows: 1,
                partitions: 2,
                flaps: 2,
                skews: 1,
                client_crashes: 1,
                resends: 1,
                ..QUIET
            },
            messages: (200, 200),
            large_one_in: 1,
            leader_falls: true,
            ..PLAIN
        },
        Self {
            name: "stalls",
            about: "a replica that is brought up to date stops for ever, while there is load",
            faults: (0, 4),
            mix: Mix { flaps: 2, slows: 1, client_crashes: 2, resends: 2, ..QUIET },
            messages: (250, 150),
            large_one_in: 1000,
            stalls: true,
            ..PLAIN
        },
        Self {
            name: "severed",
            about: "a follower hears its own leader and nobody else, for as long as there is load",
            faults: (0, 3),
            mix: Mix { client_crashes: 2, resends: 2, evictions: 1, ..QUIET },
            messages: (1500, 1500),
            large_one_in: 1000,
            severed: true,
            ..PLAIN
        },
        Self {
            name: "relayed",
            about: "a leader has large messages from other groups' leaders alone, while a follower lags",
            faults: (0, 3),
            mix: Mix { pauses: 1, client_crashes: 2, resends: 2, evictions: 1, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            relayed: true,
            ..PLAIN
        },
        Self {
            name: "twins",
            about: "two processes say different things under the same names",
            faults: (1, 6),
            mix: Mix {
                crashes: 3,
                pauses: 2,
                slows: 2,
                partitions: 3,
                deafs: 2,
                flaps: 2,
                resends: 3,
                transfers: 2,
                ..QUIET
            },
            messages: (80, 120),
            twins: true,
            ..PLAIN
        },
        Self {
            name: "uneven",
            about: "up to twice as many nodes as replicas, some of which host more than others",
            faults: (1, 6),
            mix: Mix {
                crashes: 4,
                pauses: 2,
                partitions: 2,
                flaps: 2,
                client_crashes: 1,
                transfers: 2,
                evictions: 1,
                ..QUIET
            },
            messages: (80, 120),
            large_one_in: 1000,
            leader_falls: true,
            surroundings: Some(Surroundings::Uneven),
            ..PLAIN
        },
        Self {
            name: "clocks",
            about: "clocks stand still, jump, and go on",
            faults: (2, 6),
            mix: Mix { pauses: 1, flaps: 2, client_flaps: 6, client_crashes: 1, ..QUIET },
            messages: (100, 100),
            large_one_in: 1000,
            network: true,
            surroundings: Some(Surroundings::Clocks),
            ..PLAIN
        },
        Self {
            name: "scarce",
            about: "nodes are given no memory while they need some",
            faults: (2, 6),
            mix: Mix { crashes: 2, pauses: 1, flaps: 3, client_crashes: 3, ..QUIET },
            messages: (100, 100),
            large_one_in: 1000,
            surroundings: Some(Surroundings::Scarce),
            ..PLAIN
        },
        Self {
            name: "starts",
            about: "starts fail, and nodes come back with a count of starts that is out of date",
            faults: (0, 4),
            mix: Mix { pauses: 2, partitions: 2, flaps: 2, crashes: 1, ..QUIET },
            messages: (100, 100),
            large_one_in: 1000,
            surroundings: Some(Surroundings::Starts),
            ..PLAIN
        },
        Self {
            name: "stops",
            about: "processes are stopped in the middle of a turn",
            faults: (0, 4),
            mix: Mix { partitions: 3, flaps: 1, transfers: 2, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            reads: Some(Of::LeaseHolder),
            surroundings: Some(Surroundings::Stops),
            ..PLAIN
        },
        Self {
            name: "aged",
            about: "groups that have held thousands of elections",
            faults: (2, 6),
            mix: Mix { crashes: 3, pauses: 3, partitions: 4, transfers: 3, ..QUIET },
            messages: (80, 120),
            large_one_in: 1000,
            leader_falls: true,
            surroundings: Some(Surroundings::Aged),
            ..PLAIN
        },
        Self {
            name: "remains",
            about: "the memory of the dead is written to until each finds out, and many die at once",
            faults: (0, 4),
            mix: Mix { crashes: 3, pauses: 2, slows: 3, resends: 2, transfers: 2, ..QUIET },
            messages: (80, 160),
            large_one_in: 1000,
            loses: true,
            surroundings: Some(Surroundings::Remains),
            ..PLAIN
        },
    ];

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}

/// Everything that is drawn before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed it was drawn from.
    pub seed: u64,
    /// What is left out of it: nothing, but where a failure was made small.
    pub reduction: Reduction,
    /// What it was drawn for.
    pub profile: &'static str,
    /// Nodes, groups, replicas, engines.
    pub topology: Topology,
    /// Sizes: as small as they may be, so that everything is lapped.
    pub tuning: Tuning,
    /// Client processes, and sessions in each.
    pub clients: (usize, usize),
    /// Messages to send at least.
    pub messages: u64,
    /// Whether it goes on until everything was lapped twice.
    pub laps: bool,
    /// Whether it goes on until a group has changed its leader.
    pub leader_falls: bool,
    /// Whether a group loses more memories than it tolerates.
    pub loses: bool,
    /// Whether leaders are what faults hit, while they land what they wrote.
    pub elections: bool,
    /// Whether replicas are held up for long.
    pub lags: bool,
    /// Whether a connection that has ended says nothing of the process behind it.
    pub network: bool,
    /// Whether sessions read what is not ordered.
    pub reads: Option<Of>,
    /// Whether two processes say different things under the same names.
    pub twins: bool,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// After how many messages every other session is closed and another opened.
    pub reopen_at: Option<u64>,
    /// One in so many messages has a payload that is too large for the log.
    pub large_one_in: u64,
    /// Messages to several groups, of a hundred.
    pub shared_percent: u64,
    /// Of the steps taken, so many of a hundred land something under way.
    pub landing_percent: u64,
    /// How rough the world is.
    pub rough: bool,
    /// One in so many looks at memory finds it changed since the last one, or changing.
    pub stirred_looks_one_in: u64,
    /// Whether writes may be known to be complete long after they are.
    pub late_completions: bool,
    /// Whether whoever looks at memory may be held up between two looks.
    pub held_up: bool,
    /// How long memory can be written after its process has died, by whoever does not know; not at all if zero.
    pub memory_outlives: Duration,
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn draw(seed: u64, profile: Profile) -> Self {
        let mut rng = Rng::new(seed ^ 0x5ce4_a210);
        let replicas = match rng.below(20) {
            0 if profile.single => 1,
            1..=3 => 5,
            4..=9 if profile.forks => 5,
            4..=9 if profile.stalls => 5,
            4..=15 if profile.elections && !profile.forks => 5,
            _ => 3,
        };
        let groups = match () {
            () if rng.one_in(profile.large_one_in) => 16,
            () if profile.overlaps => 2 + rng.below(4) as u16,
            () if profile.forks => 1 + rng.below(3) as u16,
            () if profile.learners => 2 + rng.below(3) as u16,
            () => 1 + rng.below(4) as u16,
        };
        let topology = Topology {
            nodes: u16::from(replicas) + rng.below(2) as u16,
            groups,
            replicas,
            engines: 1 + rng.below(2) as u16 % groups,
        };
        let payload_bytes_max = 4 << (10 + rng.below(3));
        let ring_bytes = 4 << 10;
        let tuning = Tuning {
            log_bytes: 16 << 10,
            inline_bytes_max: 64 << rng.below(4),
            ring_bytes,
            ring_bytes_max: ring_bytes << rng.below(2),
            rings_bytes_max: if rng.one_in(4) { 8 * ring_bytes } else { 1 << 20 },
            peer_ring_bytes: 4 << 10,
            window: if profile.overlaps || profile.reads.is_some() {
                1
            } else {
                1 << (1 + rng.below(4))
            },
            payload_bytes_max,
            held_bytes_max: 2 * payload_bytes_max,
            fetch_after_ms: 1 + rng.below(10),
            heartbeat_ms: 1 + rng.below(5),
            heartbeats_missed_max: 4 + rng.below(8) as u32,
            evict_after_ms: 20 + rng.below(80),
            ..Tuning::default()
        };
        let more = usize::from(profile.overlaps || profile.reads.is_some());
        let clients = (1 + more + rng.index(3), 1 + 2 * more + rng.index(3));
        let messages = profile.messages.0 + rng.below(profile.messages.1);
        let mut scenario = Self {
            seed,
            reduction: Reduction::default(),
            profile: profile.name,
            topology,
            tuning,
            clients,
            messages,
            laps: profile.laps,
            leader_falls: profile.leader_falls,
            loses: profile.loses,
            elections: profile.elections,
            lags: profile.lags,
            network: profile.network,
            reads: profile.reads,
            twins: profile.twins,
            faults: Vec::new(),
            reopen_at: rng.one_in(3).then(|| rng.below(messages)),
            large_one_in: 4 + rng.below(30),
            shared_percent: 20 + rng.below(80),
            landing_percent: 20 + rng.below(70),
            rough: rng.one_in(3),
            stirred_looks_one_in: 0,
            late_completions: false,
            held_up: false,
            memory_outlives: Duration::ZERO,
        };
        let count = profile.faults.0 + rng.below(profile.faults.1);
        scenario.faults = faults::draw(&scenario, profile.mix, count, &mut rng);
        let mut more = Vec::new();
        if profile.leader_falls {
            more.push(schedules::leader_falls(&scenario, &mut rng));
        }
        if profile.loses {
            more.push(schedules::group_is_lost(&scenario, &mut rng));
        }
        if profile.away {
            more.extend(schedules::minority_is_away(&scenario, &mut rng));
        }
        if profile.forks {
            more.extend(schedules::logs_fork(&scenario, &mut rng));
            more.extend(schedules::logs_fork(&scenario, &mut rng));
            scenario.late_completions = rng.one_in(2);
            scenario.held_up = true;
            scenario.rough = !rng.one_in(3);
        } else if profile.elections {
            more.extend(schedules::new_leaders_fall(&scenario, &mut rng));
            scenario.late_completions = rng.one_in(3);
        }
        if profile.reads.is_some() {
            let silence = scenario.suspected_after().as_millis() as u64;
            // Now shorter, now longer than it takes to be suspected.
            scenario.tuning.lease_ms = silence / 2 + rng.below(4 * silence);
            scenario.tuning.clock_skew_percent = SKEW_PERCENT;
            // What only one group was sent nobody else's answer waits for.
            scenario.shared_percent = if rng.one_in(2) { 0 } else { scenario.shared_percent / 2 };
            more.extend(schedules::leaders_are_cut_off(&scenario, &mut rng));
        }
        if profile.stalls {
            more.extend(schedules::learner_stalls(&scenario, &mut rng));
        }
        if profile.learners {
            more.extend(schedules::learners_lead(&scenario, &mut rng));
            for _ in 0..rng.below(4) {
                more.extend(schedules::left_behind_leads(&scenario, &mut rng));
            }
        }
        if profile.severed {
            let mut rng = Rng::new(seed ^ 0x05e7_e2ed);
            more.extend(schedules::follower_is_severed(&mut scenario, &mut rng));
        }
        if profile.relayed {
            more.extend(schedules::relays_meet_a_laggard(&mut scenario, &mut rng));
        }
        for fault in more {
            let at = scenario.faults.partition_point(|before| before.after <= fault.after);
            scenario.faults.insert(at, fault);
        }
        if profile.lags {
            scenario.large_one_in = 2 + rng.below(6);
            scenario.tuning.evict_after_ms = 20 + rng.below(20);
        }
        // Likewise of its own generator. One group is lost again and again, and another has no replica on the
        // nodes that die: it keeps what it was told by all former selves of the first.
        let mut rng = Rng::new(seed ^ 0x1057_a9a1);
        if profile.loses && replicas > 1 && rng.one_in(3) {
            scenario.topology.nodes = 2 * u16::from(replicas);
            scenario.topology.groups = scenario.topology.groups.max(u16::from(replicas) + 1);
            let again = schedules::group_is_lost_again(&mut scenario, &mut rng);
            scenario.faults.extend(again);
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        // Likewise.
        let mut rng = Rng::new(seed ^ 0x0c07_0ff5);
        if profile.network && profile.surroundings.is_none() && rng.one_in(4) {
            scenario.faults.extend(schedules::clients_are_cut_off(&scenario, &mut rng));
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        // Of its own generator: what was drawn for a seed before memory could be stirred stays so.
        let mut rng = Rng::new(seed ^ 0x0057_1221);
        let stirred = profile.lags || profile.away || profile.forks || rng.one_in(3);
        scenario.stirred_looks_one_in = match () {
            () if profile.forks => 32 << rng.below(3),
            () if stirred => 2 << rng.below(5),
            () => 0,
        };
        // Likewise. Sooner than anybody would want it, so that it meets all that goes on.
        let mut rng = Rng::new(seed ^ 0x5b3e_ad00);
        let silence = scenario.suspected_after().as_millis() as u64;
        scenario.tuning.spread_after_ms = rng.below(4) * silence;
        if profile.severed {
            // A follower that led would be a leader that cannot hear other groups.
            scenario.tuning.spread_after_ms = 0;
        }
        if profile.twins {
            // What is too large for the log each replica has from its sessions. And who closes a session takes it
            // from its twin.
            (scenario.large_one_in, scenario.reopen_at) = (2, None);
        }
        if let Some(what) = profile.surroundings {
            let mut rng = Rng::new(seed ^ 0x0a1f_5eed);
            let more = surroundings::draw(what, &mut scenario, &mut rng);
            scenario.faults.extend(more);
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        scenario
    }

    /// After how long without a heartbeat a process is suspected.
    pub fn suspected_after(&self) -> Duration {
        let Tuning { heartbeat_ms, heartbeats_missed_max, .. } = self.tuning;
        Duration::from_millis(heartbeat_ms * u64::from(heartbeats_missed_max))
    }

    /// The world in which it runs.
    pub(super) fn world(&self) -> SimConfig {
        let racing_revocations = self.elections;
        let late = if self.held_up { 8 } else { 4 } * self.suspected_after();
        let usual = SimConfig {
            mail_waiting_max: 64,
            racing_revocations,
            peers_may_return: self.network,
            stirred_looks_one_in: self.stirred_looks_one_in,
            late_completions_max: if self.late_completions { late } else { Duration::ZERO },
            stirred_copies_one_in: self.stirred_looks_one_in,
            ..SimConfig::default()
        };
        let usual = if self.memory_outlives > Duration::ZERO {
            SimConfig { gone_lag: self.memory_outlives, memory_outlives: true, ..usual }
        } else {
            usual
        };
        let usual = if self.held_up {
            SimConfig {
                stirred_copies_one_in: 2,
                stirred_events_max: 64,
                stirred_for: Duration::from_micros(50),
                late_completions_one_in: 8,
                ..usual
            }
        } else {
            usual
        };
        if !self.rough {
            return usual;
        }
        SimConfig {
            latency: (Duration::from_nanos(100), Duration::from_micros(50)),
            hiccup_one_in: 16,
            hiccup_max: Duration::from_millis(3),
            drag_one_in: 32,
            drag_max: 50,
            tear_one_in: 1,
            ..usual
        }
    }
}
