//! The scenario of a seed, which is drawn before the run.

use std::time::Duration;

use skein_fabric::sim::{Rng, SimConfig};
use skein_protocol::ids::GroupId;
use skein_protocol::tram::tree::Tree;

use super::Reduction;
use super::faults::{self, Fault, Kind};
use super::ordering::Ordering;
use super::profile::Profile;
use super::{branches, schedules, surroundings};
use crate::config::{Topology, Tuning};
use crate::layout::Layout;
use crate::session_transport::Of;

/// The difference between clocks where it matters, in hundredths: more than that of real clocks, so that effects show.
const SKEW_PERCENT: u8 = 30;

/// A scenario: everything that is drawn before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub seed: u64,
    /// The parts that are left out: none, unless a failure was minimised.
    pub reduction: Reduction,
    /// Name of the profile that it was drawn for.
    pub profile: &'static str,
    pub ordering: Ordering,
    /// Sizes of the cluster, and the location of each replica.
    pub layout: Layout,
    /// Sizes: as small as possible, so that everything is lapped.
    pub tuning: Tuning,
    /// Client processes, and sessions in each.
    pub clients: (usize, usize),
    /// Minimum number of messages to send.
    pub messages: u64,
    /// Whether it continues until everything was lapped twice.
    pub laps: bool,
    /// Whether it continues until a group has changed its leader.
    pub leader_falls: bool,
    /// Whether a group loses more memories than it tolerates.
    pub loses: bool,
    /// Whether faults hit leaders while their writes land.
    pub elections: bool,
    /// Whether replicas are held up for long.
    pub lags: bool,
    /// Whether the end of a connection implies nothing about the process behind it.
    pub network: bool,
    /// The kind of unordered reads that sessions make.
    pub reads: Option<Of>,
    /// Whether two processes send different messages under the same names.
    pub twins: bool,
    pub faults: Vec<Fault>,
    /// Number of messages after which every other session is closed and another opened.
    pub reopen_at: Option<u64>,
    /// One in so many messages has a payload that is too large for the log.
    pub large_one_in: u64,
    /// Percentage of messages that go to several groups.
    pub shared_percent: u64,
    /// Percentage of steps that land something in flight.
    pub landing_percent: u64,
    /// Whether the world is rough: slow, uneven and torn writes.
    pub rough: bool,
    /// One in so many reads of memory finds it changed since the last one, or changing.
    pub stirred_looks_one_in: u64,
    /// Whether completions of writes may be reported late.
    pub late_completions: bool,
    /// Whether a process may be held up between two reads of memory.
    pub held_up: bool,
    /// Whether replicas say only what their disks hold, and begin again with that.
    pub durable: bool,
    /// Whether the snapshots of durable replicas' machines lack what is in checkpoints.
    pub keeps_checkpoints: bool,
    /// Whether such checkpoints go wrong.
    pub checkpoints_fail: bool,
    /// Time for which the memory of a dead process can still be written by processes that have not noticed;
    /// zero for none.
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
        let groups = if profile.ordering.orders_several_groups() { groups } else { 1 };
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
            ordering: profile.ordering,
            layout: Layout::propose(topology).expect("sizes that can be"),
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
            durable: profile.power_fails || profile.disks_fail,
            keeps_checkpoints: false,
            checkpoints_fail: false,
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
            // Sometimes shorter, sometimes longer than the time until a suspicion.
            scenario.tuning.lease_ms = silence / 2 + rng.below(4 * silence);
            scenario.tuning.clock_skew_percent = SKEW_PERCENT;
            // A reply to a message to one group waits for no other group.
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
        if profile.power_fails {
            more.extend(schedules::power_fails(&scenario, &mut rng));
        }
        if profile.disks_fail {
            more.extend(schedules::disks_are_lost(&scenario, &mut rng));
        }
        if profile.power_fails && profile.disks_fail && rng.one_in(2) {
            more.extend(schedules::power_fails_at_a_join(&scenario, &mut rng));
        }
        if profile.relayed {
            more.extend(schedules::relays_meet_a_slow_replica(&mut scenario, &mut rng));
        }
        if profile.bare_quorum {
            more.extend(schedules::bare_quorum(&mut scenario, &mut rng));
        }
        for fault in more {
            let at = scenario.faults.partition_point(|before| before.after <= fault.after);
            scenario.faults.insert(at, fault);
        }
        if profile.lags {
            scenario.large_one_in = 2 + rng.below(6);
            scenario.tuning.evict_after_ms = 20 + rng.below(20);
        }
        // Drawn from a generator of its own. One group is lost again and again, and another has no replica on
        // the nodes that die: it keeps everything that it was sent by all former incarnations of the first. Along a
        // tree, the first is mostly one that passes on what its parent sends, and the other is next to it.
        let mut rng = Rng::new(seed ^ 0x1057_a9a1);
        let several = profile.ordering.orders_several_groups();
        if profile.loses && several && replicas > 1 && rng.one_in(3) {
            let (topology, replicas) = (scenario.topology(), u16::from(replicas));
            let groups = topology.groups.max(replicas + 1);
            scenario.resize(Topology { nodes: 2 * replicas, groups, ..topology });
            let group = if profile.ordering.along_a_tree() {
                branches::lost_again(&mut scenario, &mut Rng::new(seed ^ 0x1057_7ee5))
            } else {
                GroupId(0)
            };
            let again = schedules::group_is_lost_again(&mut scenario, group, &mut rng);
            scenario.faults.extend(again);
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        // Drawn from a generator of its own.
        let mut rng = Rng::new(seed ^ 0x0c07_0ff5);
        if profile.network && profile.surroundings.is_none() && rng.one_in(4) {
            scenario.faults.extend(schedules::clients_are_cut_off(&scenario, &mut rng));
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        // Drawn from a generator of its own: earlier draws of a seed stay as they were before memory could be stirred.
        let mut rng = Rng::new(seed ^ 0x0057_1221);
        let stirred = profile.lags || profile.away || profile.forks || rng.one_in(3);
        scenario.stirred_looks_one_in = match () {
            () if profile.forks => 32 << rng.below(3),
            () if stirred => 2 << rng.below(5),
            () => 0,
        };
        // Drawn from a generator of its own. The times are shorter than is useful in practice, so that
        // spreading meets everything else.
        let mut rng = Rng::new(seed ^ 0x5b3e_ad00);
        let silence = scenario.suspected_after().as_millis() as u64;
        scenario.tuning.spread_after_ms = rng.below(4) * silence;
        if profile.severed || profile.bare_quorum {
            // A follower that led would be a leader that receives nothing from other groups.
            scenario.tuning.spread_after_ms = 0;
        }
        if profile.twins {
            // Each replica has payloads that are too large for the log from its own sessions. And closing a
            // session would take it from its twin.
            (scenario.large_one_in, scenario.reopen_at) = (2, None);
        }
        // Drawn from a generator of its own.
        let mut rng = Rng::new(seed ^ 0x00de_adf0);
        if profile.power_fails && !profile.disks_fail && rng.one_in(2) {
            scenario.reads_while_processes_die(&mut rng);
        }
        // Drawn from a generator of its own.
        let mut rng = Rng::new(seed ^ 0x00d1_5c1f);
        if profile.disks_fail && rng.one_in(2) {
            scenario.faults.extend(schedules::disks_go_wrong(&scenario, &mut rng));
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        // Drawn from a generator of its own. None of the seeds that `seeds.txt` had before has checkpoints with this constant, so
        // each of them still leads to the run for which it was kept.
        let mut rng = Rng::new(seed ^ 0xc4ec_3b48);
        scenario.keeps_checkpoints = scenario.durable && rng.one_in(2);
        // Drawn from a generator of its own, too, with a constant by which none of the seeds that `seeds.txt` and
        // `killing-seeds.txt` had before has such faults.
        let mut rng = Rng::new(seed ^ 0xc4ec_5bce);
        scenario.checkpoints_fail = scenario.keeps_checkpoints && rng.one_in(2);
        if scenario.checkpoints_fail && profile.disks_fail && rng.one_in(2) {
            scenario.faults.extend(schedules::checkpoints_go_wrong(&scenario, &mut rng));
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        // Drawn from a generator of its own.
        let mut rng = Rng::new(seed ^ 0x01dc_0b1e);
        let alone = profile.power_fails && !profile.disks_fail && replicas > 1;
        if alone && !scenario.keeps_checkpoints && rng.one_in(3) {
            schedules::old_copy_is_put_back(&mut scenario, &mut rng);
        }
        if let Some(what) = profile.surroundings {
            let mut rng = Rng::new(seed ^ 0x0a1f_5eed);
            let more = surroundings::draw(what, &mut scenario, &mut rng);
            scenario.faults.extend(more);
            scenario.faults.sort_by_key(|fault| fault.after);
        }
        if profile.ordering.along_a_tree() {
            let mut rng = Rng::new(seed ^ 0x0b4a_7c4e);
            if profile.branches.is_some() {
                branches::resize(&mut scenario, &mut rng);
            }
            let tree = scenario.tree();
            scenario.layout = scenario.layout.clone().along(&tree).expect("a tree of all groups");
            if let Some(what) = profile.branches {
                let more = branches::draw(what, &tree, &scenario, &mut rng);
                scenario.faults.extend(more);
                scenario.faults.sort_by_key(|fault| fault.after);
            }
        }
        scenario
    }

    /// The tree of its groups, if its ordering has one.
    pub(super) fn tree(&self) -> Tree {
        draw_tree(self.topology().groups, &mut Rng::new(self.seed ^ 0x07ee_5eed))
    }

    /// Sessions read what is not ordered. Whoever does not know yet that a process has died counts on its memory, while its
    /// successor, in which replicas are the same incarnations, lets another replica lead.
    fn reads_while_processes_die(&mut self, rng: &mut Rng) {
        let silence = self.suspected_after();
        self.memory_outlives = 4 * silence + faults::some_of(rng, 16 * silence);
        self.reads = Some(if rng.one_in(3) { Of::LeaseHolder } else { Of::Leader });
        self.tuning.lease_ms = silence.as_millis() as u64;
        self.tuning.clock_skew_percent = SKEW_PERCENT;
        self.tuning.window = 1;
        self.clients = (self.clients.0 + 1, self.clients.1 + 2);
        self.shared_percent = if rng.one_in(2) { 0 } else { self.shared_percent / 2 };
        for fault in &mut self.faults {
            // Its successor would give its questions the numbers of those that it had asked.
            if let Kind::ClientCrash { again, .. } = &mut fault.kind {
                *again = false;
            }
        }
        self.faults.extend(schedules::leaders_are_cut_off(self, rng));
        self.faults.extend(schedules::leader_is_left_with_the_dead(self, rng));
        self.faults.sort_by_key(|fault| fault.after);
    }

    /// The sizes of the cluster.
    pub const fn topology(&self) -> Topology {
        self.layout.topology()
    }

    /// Has a cluster of other sizes, with the layout that is proposed for them.
    pub(super) fn resize(&mut self, topology: Topology) {
        self.layout = Layout::propose(topology).expect("sizes that can be");
    }

    /// Time without a heartbeat after which a process is suspected.
    pub fn suspected_after(&self) -> Duration {
        let Tuning { heartbeat_ms, heartbeats_missed_max, .. } = self.tuning;
        Duration::from_millis(heartbeat_ms * u64::from(heartbeats_missed_max))
    }

    /// The configuration of the simulated world.
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

/// A tree of so many groups: one of the paper's, or any other.
pub fn draw_tree(groups: u16, rng: &mut Rng) -> Tree {
    match rng.below(5) {
        0 => Tree::breadth(groups),
        1 => Tree::depth(groups),
        2 => Tree::base(groups),
        _ => {
            let mut parents = vec![None];
            parents.extend((1..groups).map(|group| Some(rng.below(group.into()) as u16)));
            Tree::of(&parents).expect("each parent comes before its children")
        }
    }
}
