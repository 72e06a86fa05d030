//! Faults that belong together: each schedule leads a group into a critical situation.

use std::time::Duration;

use skein_fabric::sim::Rng;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::faults::{FOR_EVER, Fault, Kind, Target, some_of};
use super::scenario::Scenario;
use crate::config::Topology;
use crate::layout::{Layout, Location};

/// Time within which a session is ended that has not come back, and that no replica has seen.
const RETURN_MAX: Duration = Duration::from_secs(6);

/// A leader dies, or is suspended until it has a successor, while there is load.
pub(super) fn leader_falls(scenario: &Scenario, rng: &mut Rng) -> Fault {
    let node = Target::Leader(rng.below(u64::from(scenario.topology().groups)) as u16);
    let long = 4 * scenario.suspected_after();
    let kind = match rng.below(3) {
        0 => Kind::Pause { node, lasts: long + some_of(rng, long), flaps: rng.one_in(3) },
        _ => Kind::Crash { node, back_after: some_of(rng, long) },
    };
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    Fault { after, delay: Duration::from_micros(rng.below(2000)), kind }
}

/// Successive new leaders of a group die, are suspended or are cut off before their first entry is committed,
/// so that as many logs differ.
pub(super) fn new_leaders_fall(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let group = rng.below(u64::from(scenario.topology().groups)) as u16;
    let node = Target::NewLeader { group, steps: 0 };
    let silence = scenario.suspected_after();
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    // The first is back when its successor, which alone has the entries that it logged last, is not.
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

/// Successive leaders and new leaders of a group are cut off or die in the middle of their writes, each for
/// about as long as the next one needs. So the group's logs diverge, each with an end of its own, and the
/// replicas that were cut off are soon back to vote, and to lead again.
pub(super) fn logs_fork(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let group = rng.below(u64::from(topology.groups)) as u16;
    let silence = scenario.suspected_after();
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    let lasts = silence + some_of(rng, 2 * silence);
    let node = Target::Leader(group);
    let member = |slot| Target::Node(layout.node_of(ReplicaId::new(GroupId(group), slot)));
    let mut faults = Vec::new();
    if rng.one_in(2) {
        faults.push(fault(Kind::Isolate { node, outbound: true, inbound: false, lasts }));
    } else {
        // Some followers have its last writes, and others elect the next leader.
        for to in (0..topology.replicas).map(member) {
            if !rng.one_in(4) {
                faults.push(fault(Kind::Cut { from: node, to, both_ways: false, lasts }));
            }
        }
    }
    for _ in 0..rng.between(2, 6) {
        // Sometimes before anything has landed, sometimes when half of it has.
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

/// Clocks run at other rates, as far off as they may be. Successive leaders are cut off from other nodes for
/// long, but not from clients, which continue to read from them.
pub(super) fn leaders_are_cut_off(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology();
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

/// A follower dies while its leader and the third replica are cut off from each other, and its successor, which does not
/// reach the leader, lets the third one lead. The leader is left with the memory of the dead.
pub(super) fn leader_is_left_with_the_dead(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 4) {
        let group = rng.below(u64::from(topology.groups)) as u16;
        let first = rng.below(u64::from(topology.replicas)) as u8;
        let member = |step: u8| {
            let slot = (first + step) % topology.replicas;
            Target::Node(layout.node_of(ReplicaId::new(GroupId(group), slot)))
        };
        let (leader, follower) = (member(0), member(1));
        let after = rng.below(scenario.messages);
        let lasts = 4 * silence + some_of(rng, 8 * silence);
        let mut fault = |delay, kind| faults.push(Fault { after, delay, kind });
        fault(Duration::ZERO, Kind::Transfer { group, slot: first });
        let cut = 2 * silence;
        for other in (2..topology.replicas).map(member) {
            fault(cut, Kind::Cut { from: other, to: leader, both_ways: true, lasts });
            fault(cut, Kind::Flap { one: leader, other });
        }
        let back_after = some_of(rng, silence);
        fault(cut, Kind::Cut { from: follower, to: leader, both_ways: false, lasts });
        fault(cut, Kind::Crash { node: follower, back_after });
    }
    faults
}

/// As many nodes as every group tolerates die or are cut off, and do not come back while there is load.
pub(super) fn minority_is_away(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology();
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

/// All clients are cut off from the node of a group's first leader, and from no other, for longer than a
/// session has to come back. Their sessions are alive all the same, as the other replicas of the group can
/// see.
pub(super) fn clients_are_cut_off(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let group = GroupId(rng.below(u64::from(topology.groups)) as u16);
    let node = Target::Node(layout.node_of(ReplicaId::new(group, 0)));
    let after = rng.between(scenario.messages / 8, scenario.messages);
    let lasts = RETURN_MAX + some_of(rng, Duration::from_secs(2));
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    let flaps = (0..scenario.clients.0).map(|client| Kind::ClientFlap { client, node });
    [Kind::Deaf { node, lasts }].into_iter().chain(flaps).map(fault).collect()
}

/// Replicas lose their memory, receive the state of others while much of it is pending, and lead as soon as
/// they are admitted. Whatever the state lacks, no replica has.
pub(super) fn learners_lead(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let groups = u64::from(topology.groups);
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(2, 5) {
        let group = rng.below(groups) as u16;
        let slot = rng.below(u64::from(topology.replicas)) as u8;
        let after = rng.below(scenario.messages);
        let mut fault = |delay, kind| faults.push(Fault { after, delay, kind });
        let node = Target::Node(layout.node_of(ReplicaId::new(GroupId(group), slot)));
        fault(Duration::ZERO, Kind::Crash { node, back_after: some_of(rng, silence) });
        fault(Duration::ZERO, Kind::Promote { group });
        if rng.one_in(2) {
            // Another group's results come late, perhaps from its next leader.
            let node = Target::Leader(rng.below(groups) as u16);
            let lasts = some_of(rng, 8 * silence);
            let kind = Kind::Isolate { node, outbound: true, inbound: rng.one_in(2), lasts };
            fault(some_of(rng, silence), kind);
        }
    }
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// A replica is not waited for, and receives nothing, while its group gets done with messages that it lacks.
/// Other groups change their leaders, which no longer report those messages. Its own leader dies with
/// everything that it had to report. Then the replica leads, and is asked for a state.
pub(super) fn left_behind_leads(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let silence = scenario.suspected_after();
    let group = rng.below(u64::from(topology.groups)) as u16;
    let slots = u64::from(topology.replicas);
    let slot = rng.below(slots) as u8;
    let node = Target::Node(layout.node_of(ReplicaId::new(GroupId(group), slot)));
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

/// A replica of a group dies, stays away until its slot is evicted, and comes back to be suspended as a
/// learner for the rest of the load. If the group tolerates two failures, another replica dies then, which
/// must be served all the same.
pub(super) fn learner_stalls(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let group = rng.below(u64::from(topology.groups)) as u16;
    let slot = rng.below(u64::from(topology.replicas)) as u8;
    let member = |slot| Target::Node(layout.node_of(ReplicaId::new(GroupId(group), slot)));
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

/// A follower receives from its own leader and from no other node, for as long as there is load: its log is
/// written with messages to two groups, and it never sees what the other group's quorum holds. Groups 0 and 1
/// have one node each that the other has no replica on. Slot 1 of group 0 leads, whose node also runs the
/// other group's leader. With five replicas, the follower sees nothing committed at all: it and its leader
/// are no quorum.
pub(super) fn follower_is_severed(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    let replicas = if rng.one_in(3) { 5 } else { 3 };
    let nodes = replicas + 1;
    scenario.resize(Topology { nodes, groups: 2, replicas: replicas as u8, engines: 1 });
    scenario.shared_percent = 100;
    // No replica is to be suspected because it is merely late: the follower receives from the leader alone.
    scenario.tuning.heartbeats_missed_max = 16;
    scenario.rough = false;
    let fault = |kind| Fault { after: 0, delay: Duration::from_millis(20), kind };
    let member = |slot| scenario.layout.node_of(ReplicaId::new(GroupId(0), slot));
    let (leader, follower) = (member(1), member(0));
    let cut = |from| {
        fault(Kind::Cut {
            from: Target::Node(from),
            to: Target::Node(follower),
            both_ways: false,
            lasts: FOR_EVER,
        })
    };
    let leads = fault(Kind::Transfer { group: 0, slot: 1 });
    let others = (0..nodes).filter(|node| *node != follower && *node != leader);
    [leads].into_iter().chain(others.map(cut)).collect()
}

/// Repeatedly, nothing passes between clients and a group's leader, which receives messages, nearly all of
/// them large, from other groups' leaders alone; and one of its followers is suspended meanwhile.
pub(super) fn relays_meet_a_slow_replica(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    let groups = 2 + rng.below(2) as u16;
    scenario.resize(Topology { nodes: 3, groups, replicas: 3, engines: 1 });
    (scenario.shared_percent, scenario.large_one_in) = (100, 1);
    let silence = scenario.suspected_after();
    let member = |slot| Target::Node(scenario.layout.node_of(ReplicaId::new(GroupId(0), slot)));
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

/// The power of all nodes fails, up to three times, while there is load.
pub(super) fn power_fails(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let silence = scenario.suspected_after();
    let failure = |_| Fault {
        after: rng.between(scenario.messages / 8, scenario.messages - 1),
        delay: Duration::from_micros(rng.below(2000)),
        kind: Kind::PowerFailure { back_within: some_of(rng, 4 * silence) },
    };
    let mut faults: Vec<_> = (0..3).map(failure).collect();
    faults.truncate(rng.between(1, 3) as usize);
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// A node's disk is put back as it was some time ago, when all nodes have lost their power. Nothing else happens after that:
/// what only one other disk holds then would be gone with it.
///
/// In some runs another node has been there alone for longer than a candidate waits for others.
pub(super) fn old_copy_is_put_back(scenario: &mut Scenario, rng: &mut Rng) {
    let nodes = u64::from(scenario.topology().nodes);
    let after = rng.between(scenario.messages / 4, scenario.messages - 1);
    let node = rng.below(nodes);
    let back_within = some_of(rng, 4 * scenario.suspected_after());
    scenario.faults.retain(|fault| fault.after < after);
    let ahead = (nodes > 1 && rng.one_in(2)).then(|| {
        let other = (node + rng.between(1, nodes - 1)) % nodes;
        (Target::Node(other as u16), Duration::from_millis(3_000 + rng.below(1_000)))
    });
    let node = Target::Node(node as u16);
    let kind = Kind::OldCopy { node, ahead, back_within };
    scenario.faults.push(Fault { after, delay: Duration::from_micros(rng.below(2000)), kind });
}

/// Nodes lose their disks, one after the other, while there is load.
pub(super) fn disks_are_lost(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 4) {
        let node = Target::Node(rng.below(u64::from(scenario.topology().nodes)) as u16);
        faults.push(Fault {
            after: rng.below(scenario.messages),
            delay: Duration::from_micros(rng.below(2000)),
            kind: Kind::DiskLoss { node, back_after: some_of(rng, 2 * silence) },
        });
    }
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// Disks go wrong while there is load: logs are damaged, flushes fail, disks are full, and old copies are put back.
pub(super) fn disks_go_wrong(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology();
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 6) {
        let group = rng.below(u64::from(topology.groups)) as u16;
        let slot = rng.below(u64::from(topology.replicas)) as u8;
        let some = Target::Node(rng.below(u64::from(topology.nodes)) as u16);
        let node = if rng.one_in(2) { Target::Leader(group) } else { some };
        let back_after = some_of(rng, 2 * silence);
        let kind = match rng.below(4) {
            0 => Kind::Rot { group, slot },
            1 => Kind::FlushFails { node, ends_after: some_of(rng, silence / 2), back_after },
            2 => Kind::DiskFull { node, lasts: some_of(rng, 8 * silence) },
            _ => {
                let times = 1 << rng.below(4);
                Kind::OldDisk { node, times, empty: rng.one_in(2), back_after }
            }
        };
        faults.push(Fault {
            after: rng.below(scenario.messages),
            delay: Duration::from_micros(rng.below(2000)),
            kind,
        });
    }
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// Checkpoints of replicas go wrong while there is load, and the nodes of some of these replicas die soon after.
pub(super) fn checkpoints_go_wrong(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let topology = scenario.topology();
    let silence = scenario.suspected_after();
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 4) {
        let group = rng.below(u64::from(topology.groups)) as u16;
        let slot = rng.below(u64::from(topology.replicas)) as u8;
        let after = rng.below(scenario.messages);
        let delay = Duration::from_micros(rng.below(2000));
        let kind = Kind::SpoilCheckpoints { group, slot, gone: rng.one_in(2) };
        faults.push(Fault { after, delay, kind });
        if rng.one_in(2) {
            let node = Target::Node(scenario.layout.node_of(ReplicaId::new(GroupId(group), slot)));
            let delay = delay + some_of(rng, 4 * silence);
            let kind = Kind::Crash { node, back_after: some_of(rng, 2 * silence) };
            faults.push(Fault { after, delay, kind });
        }
    }
    faults.sort_by_key(|fault| (fault.after, fault.delay));
    faults
}

/// A replica loses its disk. When it counts again, another one loses its own, and all lose their power.
pub(super) fn power_fails_at_a_join(scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let silence = scenario.suspected_after();
    let topology = scenario.topology();
    let group = rng.below(u64::from(topology.groups)) as u16;
    let slot = rng.below(u64::from(topology.replicas)) as u8;
    let node = Target::Node(scenario.layout.node_of(ReplicaId::new(GroupId(group), slot)));
    let after = rng.below(scenario.messages);
    let fault = |kind| Fault { after, delay: Duration::ZERO, kind };
    let back_after = some_of(rng, 2 * silence);
    let lost = fault(Kind::DiskLoss { node, back_after });
    let back_within = some_of(rng, 4 * silence);
    vec![lost, fault(Kind::PowerAtJoin { group, back_within })]
}

/// The leader of a group of five dies when no quorum is left without replicas that lag by a whole log.
pub(super) fn bare_quorum(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    // No replica is to be suspected because it is merely late: followers receive from the leader alone.
    scenario.tuning.heartbeats_missed_max = 16;
    scenario.rough = false;
    if scenario.ordering.orders_several_groups() && rng.one_in(2) {
        learner_is_ahead(scenario, rng)
    } else {
        evicted_keep_logs(scenario, rng)
    }
}

/// The followers of slot 0 in a group of five, in their order from a random one on.
fn four_followers(rng: &mut Rng) -> [u8; 4] {
    let first = rng.below(4) as u8;
    [0, 1, 2, 3].map(|step| 1 + (first + step) % 4)
}

/// Two followers receive from the leader alone, see nothing committed, and are evicted, while they keep a part of the
/// log that fills a ring. A third one sees nothing committed from then on. Then the leader dies, and the fifth replica
/// with it. The next leader needs the two, which refuse its state: it ends before their logs do.
fn evicted_keep_logs(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    scenario.resize(Topology { nodes: 5, groups: 1, replicas: 5, engines: 1 });
    scenario.tuning.evict_after_ms = 20 + rng.below(20);
    let (group, silence) = (0, scenario.suspected_after());
    let [one, other, third, _] = four_followers(rng);
    let lasts = 4 * silence + some_of(rng, 12 * silence);
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    let later = after + rng.between(2, scenario.messages / 4);
    let back_after = some_of(rng, 4 * silence);
    let fault = |after, kind| Fault { after, delay: Duration::ZERO, kind };
    vec![
        fault(after, Kind::Sever { group, slot: one, evicted: 0, lasts }),
        fault(after, Kind::Sever { group, slot: other, evicted: 0, lasts }),
        fault(later, Kind::Evict { group, slot: one }),
        fault(later, Kind::Evict { group, slot: other }),
        fault(later, Kind::Sever { group, slot: third, evicted: 2, lasts }),
        fault(later, Kind::LeaveKeepers { group, back_after }),
    ]
}

/// A follower is evicted and cut off while its leader's log goes round. Another loses its memory, and the last two
/// receive from the leader alone and see nothing committed. The leader dies when the learner has its state, which
/// contains more than the two have delivered. The next leader commits nothing until the evicted one has its state, and
/// the learner, which has applied more, cannot lead.
fn learner_is_ahead(scenario: &mut Scenario, rng: &mut Rng) -> Vec<Fault> {
    // No node hosts replicas of both groups.
    let topology = Topology { nodes: 10, groups: 2, replicas: 5, engines: 1 };
    let on = |node| Location { node, engine: 0 };
    let locations: [Vec<_>; 2] = [(0..5).map(on).collect(), (5..10).map(on).collect()];
    scenario.layout = Layout::new(topology, &locations).expect("a layout that can be");
    scenario.shared_percent = 100;
    let (group, silence) = (0, scenario.suspected_after());
    let [evicted, learner, one, other] = four_followers(rng);
    let node = |slot: u8| Target::Node(u16::from(slot));
    let lasts = 4 * silence + some_of(rng, 12 * silence);
    let after = rng.between(scenario.messages / 16, scenario.messages / 4);
    let later = after + rng.between(scenario.messages / 4, scenario.messages / 2);
    let away =
        Kind::Isolate { node: node(evicted), outbound: true, inbound: true, lasts: 2 * lasts };
    let back_after = some_of(rng, silence);
    let dies = Kind::Crash { node: Target::Sender(group), back_after: some_of(rng, 4 * silence) };
    let fault = |after, kind| Fault { after, delay: Duration::ZERO, kind };
    vec![
        fault(after, Kind::Evict { group, slot: evicted }),
        fault(after, away),
        fault(later, Kind::Crash { node: node(learner), back_after }),
        fault(later, Kind::Sever { group, slot: one, evicted: 0, lasts }),
        fault(later, Kind::Sever { group, slot: other, evicted: 0, lasts }),
        fault(later, dies),
    ]
}

/// More memories of a group are lost than it tolerates, while there is load.
pub(super) fn group_is_lost(scenario: &Scenario, rng: &mut Rng) -> Fault {
    let topology = scenario.topology();
    let group = rng.below(u64::from(topology.groups)) as u16;
    let quorum = topology.quorum() as u64;
    let replicas = rng.between(quorum, u64::from(topology.replicas)) as u8;
    let kind =
        Kind::Loss { group, replicas, back_after: some_of(rng, 4 * scenario.suspected_after()) };
    let after = rng.between(scenario.messages / 8, scenario.messages / 2);
    Fault { after, delay: Duration::from_micros(rng.below(2000)), kind }
}

/// The group loses all its memories, three times, while others keep theirs where they can.
pub(super) fn group_is_lost_again(
    scenario: &mut Scenario,
    GroupId(group): GroupId,
    rng: &mut Rng,
) -> Vec<Fault> {
    let replicas = scenario.topology().replicas;
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
