//! Faults of a process's environment: its node, its clock, its memory, its starts, the scheduler that stops
//! it, and the age of its group.

use std::time::Duration;

use skein_fabric::sim::Rng;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::faults::{FOR_EVER, Fault, Kind, Target, some_of};
use super::scenario::Scenario;
use crate::config::Topology;

/// What a profile makes difficult, besides its mix of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// Up to twice as many nodes as replicas, and a number of groups that is no multiple of them.
    Uneven,
    /// Clocks stand still, for a while or for the rest of the load, and jump.
    Clocks,
    /// Memory is not available.
    Scarce,
    /// Starts fail, and counts of starts are wrong.
    Starts,
    Stops,
    /// Groups have held thousands of elections.
    Aged,
    /// The memory of a dead process can be written and read by processes that have not noticed yet, as if
    /// both had it mapped.
    Remains,
}

/// Number of ballot tags, after which they repeat.
const TAGS: u32 = 1 << 10;
/// Elections that one generation of a group has ballots for.
const ATTEMPTS: u32 = 1 << 24;

/// Draws the faults of an environment, and adapts the scenario, which is otherwise drawn.
pub(super) fn draw(what: Surroundings, scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    match what {
        Surroundings::Uneven => {
            let topology = scenario.topology();
            let replicas = u64::from(topology.replicas);
            let nodes = rng.between(replicas, 2 * replicas) as u16;
            let groups = rng.between(2, 2 * replicas) as u16;
            scenario.resize(Topology { nodes, groups, ..topology });
            // Nodes that host no replica, and those that host most, are hit too.
            (0..rng.below(3)).map(|_| crash(scenario, rng)).collect()
        }
        Surroundings::Clocks => clocks(scenario, rng),
        Surroundings::Scarce => scarce(scenario, rng),
        Surroundings::Starts => starts(scenario, rng),
        Surroundings::Stops => stops(scenario, rng),
        Surroundings::Aged => aged(scenario, rng),
        Surroundings::Remains => remains(scenario, rng),
    }
}

fn at(scenario: &Scenario, rng: &mut Rng, kind: Kind) -> Fault {
    let after = rng.between(scenario.messages / 8, scenario.messages - 1);
    Fault { after, delay: Duration::from_micros(rng.below(2000)), kind }
}

fn node(scenario: &Scenario, rng: &mut Rng) -> Target {
    Target::Node(rng.below(u64::from(scenario.topology().nodes)) as u16)
}

fn leader(scenario: &Scenario, rng: &mut Rng) -> Target {
    Target::Leader(rng.below(u64::from(scenario.topology().groups)) as u16)
}

fn either(scenario: &Scenario, rng: &mut Rng) -> Target {
    if rng.one_in(2) { node(scenario, rng) } else { leader(scenario, rng) }
}

fn crash(scenario: &Scenario, rng: &mut Rng) -> Fault {
    let back_after = some_of(rng, 2 * scenario.suspected_after());
    let node = node(scenario, rng);
    at(scenario, rng, Kind::Crash { node, back_after })
}

/// The clocks of as many nodes as every group tolerates stand still, some for the rest of the load; any clock
/// may go forward, by a moment or by an hour.
fn clocks(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology();
    let silence = scenario.suspected_after();
    let first = rng.below(u64::from(topology.nodes)) as u16;
    let few = u64::from(topology.replicas / 2);
    let mut faults = Vec::new();
    for step in 0..rng.between(1, few) as u16 {
        let node = Target::Node((first + step) % topology.nodes);
        let lasts = if rng.one_in(3) { FOR_EVER } else { some_of(rng, 8 * silence) };
        faults.push(at(scenario, rng, Kind::ClockStop { node, lasts }));
    }
    for _ in 0..rng.below(6) {
        let most = *rng.pick(&[silence, Duration::from_secs(10), Duration::from_hours(1)]);
        let (node, by) = (either(scenario, rng), some_of(rng, most));
        faults.push(at(scenario, rng, Kind::ClockJump { node, by }));
    }
    faults
}

/// Nodes get no memory for a while, in which they need some: others die, connections break and leaders change.
fn scarce(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 4) {
        let first = either(scenario, rng);
        let lasts = some_of(rng, 8 * silence);
        let Fault { after, delay, .. } = at(scenario, rng, Kind::Scarce { node: first, lasts });
        let mut push = |delay, kind| faults.push(Fault { after, delay, kind });
        push(delay, Kind::Scarce { node: first, lasts });
        for _ in 0..rng.between(1, 3) {
            let later = delay + some_of(rng, lasts);
            let (one, other) = (either(scenario, rng), either(scenario, rng));
            push(
                later,
                match rng.below(4) {
                    0 => Kind::Crash { node: other, back_after: some_of(rng, 2 * silence) },
                    1 => Kind::Flap { one: first, other },
                    2 => Kind::Flap { one, other },
                    _ => Kind::Transfer {
                        group: rng.below(u64::from(scenario.topology().groups)) as u16,
                        slot: rng.below(u64::from(scenario.topology().replicas)) as u8,
                    },
                },
            );
        }
    }
    faults
}

/// Nodes fail to start, once or repeatedly; others come back with a count of starts that is out of date.
fn starts(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let silence = scenario.suspected_after();
    let one = |rng: &mut Rng| {
        let node = either(scenario, rng);
        let kind = if rng.one_in(2) {
            let times = 1 << rng.below(5);
            Kind::FailedStarts { node, times, back_after: some_of(rng, 2 * silence) }
        } else {
            let lacks = rng.below(3) as u32;
            Kind::WrongLife { node, lacks, lasts: some_of(rng, 8 * silence) }
        };
        at(scenario, rng, kind)
    };
    (0..rng.between(2, 6)).map(|_| one(rng)).collect()
}

/// Processes are stopped repeatedly. In every other seed some of them are followers that are asked for a
/// promise meanwhile.
fn stops(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let mut faults: Vec<_> = (0..rng.between(6, 20)).map(|_| stop(scenario, rng)).collect();
    // A generator of its own leaves unchanged what else is drawn for a seed.
    let mut rng = Rng::new(scenario.seed ^ 0x0057_a1e5);
    if rng.one_in(2) {
        for _ in 0..rng.between(2, 6) {
            faults.extend(follower_stops_before_it_promises(scenario, &mut rng));
        }
    }
    faults
}

/// A follower reads its clock and is stopped at once, for longer than a suspicion takes. Another follower
/// receives nothing from the leader meanwhile, and asks for votes. So when the first resumes, both the leader's
/// request for a lease and the other's request for a vote await it.
fn follower_stops_before_it_promises(scenario: &Scenario, rng: &mut Rng) -> [Fault; 2] {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let group = rng.below(u64::from(topology.groups)) as u16;
    let slots = u64::from(topology.replicas);
    let first = rng.below(slots);
    let other = (first + 1 + rng.below((slots - 1).max(1))) % slots;
    let member =
        |slot: u64| Target::Node(layout.node_of(ReplicaId::new(GroupId(group), slot as u8)));
    let silence = scenario.suspected_after();
    let lasts = silence + some_of(rng, 2 * silence);
    let cut = Kind::Cut {
        from: Target::Leader(group),
        to: member(other),
        both_ways: true,
        lasts: 2 * lasts,
    };
    let Fault { after, delay, kind } = at(scenario, rng, cut);
    let stop = Kind::StopInside { node: member(first), looks: u64::MAX, clock_looks: 1, lasts };
    [Fault { after, delay, kind }, Fault { after, delay, kind: stop }]
}

/// A node, preferably a leader's, is stopped in the middle of a turn, often until it has a successor.
fn stop(scenario: &Scenario, rng: &mut Rng) -> Fault {
    let node = if rng.one_in(4) { node(scenario, rng) } else { leader(scenario, rng) };
    let within = 1 << rng.below(10);
    let looks = if rng.one_in(2) { rng.between(1, within) } else { u64::MAX };
    let clock_looks = rng.between(1, 3);
    let lasts = some_of(rng, 12 * scenario.suspected_after());
    at(scenario, rng, Kind::StopInside { node, looks, clock_looks, lasts })
}

/// Replicas receive ballots after thousands of elections: sometimes after so many that the same tag comes
/// again. In some groups there were so many that few ballots are left.
fn aged(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology();
    let old = rng.one_in(4);
    let mut one = |old: bool| {
        let group = rng.below(u64::from(topology.groups)) as u16;
        let slot = rng.below(u64::from(topology.replicas)) as u8;
        let near = if rng.one_in(2) { 4 } else { u64::from(TAGS) };
        let some = TAGS * rng.between(1, 4) as u32 - rng.below(near) as u32;
        let most = ATTEMPTS - 1000;
        let count = if old { most } else { some };
        at(scenario, rng, Kind::Elections { group, slot, count })
    };
    if old { vec![one(true)] } else { (0..8).map(|_| one(false)).collect() }
}

/// More replicas of one group die at once than it tolerates, and are back soon, often before all others have
/// noticed. Other nodes die one after the other.
fn remains(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    let silence = scenario.suspected_after();
    scenario.memory_outlives = some_of(rng, 4 * silence);
    let topology = scenario.topology();
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 3) {
        let group = rng.below(u64::from(topology.groups)) as u16;
        let replicas = rng.between(topology.quorum() as u64, u64::from(topology.replicas)) as u8;
        let back_after = some_of(rng, silence / 2);
        faults.push(at(scenario, rng, Kind::Loss { group, replicas, back_after }));
    }
    faults.push(crash(scenario, rng));
    faults
}
