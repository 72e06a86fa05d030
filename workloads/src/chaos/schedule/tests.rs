use std::collections::HashMap;

use skein_multicast::config::Topology;
use skein_protocol::ids::ReplicaId;

use super::*;

const SILENCE: Duration = Duration::from_millis(100);
const FIVE: Topology = Topology { nodes: 5, groups: 3, replicas: 5, engines: 1 };
const THREE: Topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };

fn layout(topology: Topology) -> Layout {
    Layout::propose(topology).unwrap()
}

fn schedule(topology: Topology, target: Target) -> Schedule {
    Schedule::new(layout(topology), Kind::ALL.to_vec(), target, SILENCE, 1)
}

fn hit(fault: &Fault) -> Vec<u16> {
    match fault {
        Fault::Kill(nodes) => nodes.clone(),
        Fault::Pause(paused) => paused.iter().map(|(node, _)| *node).collect(),
        Fault::Stop(node, _)
        | Fault::Partition(node, ..)
        | Fault::Stutter(node, _)
        | Fault::Restart(node)
        | Fault::DiskLoss(node)
        | Fault::Transfer(node, _)
        | Fault::Evict(node, _) => vec![*node],
        Fault::ClientKill => Vec::new(),
        // The others have their state when they return.
        Fault::Power(outage) => outage.loses.into_iter().collect(),
    }
}

/// Whether the nodes hit count as missing towards f.
fn takes_away(fault: &Fault) -> bool {
    !matches!(fault, Fault::Pause(_) | Fault::Transfer(..))
}

#[test]
fn no_group_ever_misses_more_than_f() {
    for topology in [THREE, FIVE] {
        let mut schedule = schedule(topology, Target::Any);
        let mut view = View { leaders: vec![Some(0), Some(1), Some(2)], ..View::default() };
        let mut most = 0;
        for round in 0..2_000 {
            let Some(fault) = schedule.next(&view, STOP_MAX) else {
                assert!(!view.missing.is_empty(), "something can be borne by a whole cluster");
                view.missing.pop_first();
                continue;
            };
            let hit = if takes_away(&fault) { hit(&fault) } else { Vec::new() };
            for node in hit {
                assert!(view.missing.insert(node), "node {node} is missing already");
            }
            most = most.max(view.missing.len());
            assert!(view.missing.len() <= usize::from(topology.replicas / 2), "{fault:?}");
            if round % 5 == 0 {
                view.missing.pop_last();
            }
        }
        assert_eq!(most, usize::from(topology.replicas / 2), "as many as can be borne are tried");
    }
}

#[test]
fn targets_are_hit_and_all_leaders_at_once_now_and_then() {
    let view = View { leaders: vec![Some(0), Some(1), Some(1)], ..View::default() };
    let mut both = 0;
    for (target, nodes) in [(Target::Leaders, 0..2), (Target::Followers, 2..5)] {
        let kinds = vec![Kind::Kill, Kind::Stop, Kind::Stutter, Kind::Restart];
        let mut schedule = Schedule::new(layout(FIVE), kinds, target, SILENCE, 1);
        for _ in 0..500 {
            let fault = schedule.next(&view, STOP_MAX).unwrap();
            let hit = hit(&fault);
            assert!(hit.iter().all(|node| nodes.contains(node)), "{target:?}: {fault:?}");
            both += usize::from(hit.len() == 2);
        }
    }
    assert!(both > 10, "{both}");
}

#[test]
fn who_is_spared_is_not_hit() {
    let mut schedule = schedule(FIVE, Target::Any);
    let leaders = vec![Some(0), Some(1), Some(1)];
    let spared = BTreeSet::from([1, 3]);
    let view = View { leaders, spared: spared.clone(), ..View::default() };
    for _ in 0..500 {
        let hit = schedule.next(&view, STOP_MAX).map(|fault| hit(&fault)).unwrap_or_default();
        assert!(hit.iter().all(|node| !spared.contains(node)), "{hit:?}");
    }
}

#[test]
fn kinds_that_can_seldom_be_borne_come_as_often_as_others() {
    let mut schedule = schedule(THREE, Target::Any);
    let whole = View { leaders: vec![Some(0), Some(1)], ..View::default() };
    let wounded = View { missing: [2].into(), ..whole.clone() };
    let mut counts = HashMap::<_, u32>::new();
    // One node is missing nine times out of ten.
    for round in 0..20_000 {
        let view = if round % 10 == 0 { &whole } else { &wounded };
        if let Some(fault) = schedule.next(view, STOP_MAX) {
            *counts.entry(std::mem::discriminant(&fault)).or_default() += 1;
        }
    }
    let (most, least) = (counts.values().max().unwrap(), counts.values().min().unwrap());
    assert!(counts.len() == Kind::ALL.len() && most < &(2 * least), "{counts:?}");
}

#[test]
fn a_kind_that_is_never_possible_stops_no_other() {
    // Every node leads.
    let view = View { leaders: vec![Some(0), Some(1), Some(2)], ..View::default() };
    let topology = Topology { groups: 3, ..THREE };
    let kinds = vec![Kind::Stop, Kind::Transfer];
    let mut schedule = Schedule::new(layout(topology), kinds, Target::Followers, SILENCE, 1);
    let done = (0..100).filter_map(|_| schedule.next(&view, STOP_MAX)).count();
    assert!((20..80).contains(&done), "{done} transfers");
}

#[test]
fn pauses_stop_two_nodes_or_all_of_them() {
    let mut schedule = Schedule::new(layout(FIVE), vec![Kind::Pause], Target::Any, SILENCE, 1);
    let view = View { leaders: vec![Some(0); 3], missing: [4].into(), ..View::default() };
    let mut counts = BTreeSet::new();
    for _ in 0..200 {
        let fault = schedule.next(&view, STOP_MAX).unwrap();
        let nodes: BTreeSet<u16> = hit(&fault).into_iter().collect();
        assert_eq!(nodes.len(), hit(&fault).len(), "nobody twice: {fault:?}");
        assert!(!nodes.contains(&4), "who is missing is left alone");
        counts.insert(nodes.len());
    }
    assert_eq!(counts, BTreeSet::from([2, 3, 4]));
}

#[test]
fn followers_of_the_group_are_told_to_lead_and_are_evicted() {
    // Each group has three replicas on seven nodes; the second group has no leader.
    let seven = layout(Topology { nodes: 7, groups: 3, replicas: 3, engines: 1 });
    let kinds = vec![Kind::Transfer, Kind::Evict];
    let mut schedule = Schedule::new(seven.clone(), kinds, Target::Any, SILENCE, 1);
    let leader = |group| seven.node_of(ReplicaId::new(GroupId(group), 0));
    let leaders = vec![Some(leader(0)), None, Some(leader(2))];
    let view = View { leaders: leaders.clone(), ..View::default() };
    let (mut led, mut evicted) = (0, 0);
    for _ in 0..300 {
        let (node, group) = match schedule.next(&view, STOP_MAX) {
            Some(Fault::Transfer(node, group)) => {
                led += 1;
                (node, group)
            }
            Some(Fault::Evict(node, group)) => {
                evicted += 1;
                (node, group)
            }
            other => {
                assert_eq!(other, None);
                continue;
            }
        };
        let at = usize::from(group.0);
        assert!(leaders[at].is_some_and(|leader| leader != node), "{group:?} n{node}");
        assert!(seven.replica_on(node, group).is_some(), "{group:?} n{node}");
    }
    assert!(led > 50 && evicted > 50, "{led} {evicted}");
}

#[test]
fn a_node_is_stopped_for_long_and_for_short_and_never_longer_than_allowed() {
    let mut schedule = Schedule::new(layout(THREE), vec![Kind::Stop], Target::Any, SILENCE, 1);
    let view = View { leaders: vec![Some(0), Some(1)], ..View::default() };
    let mut times = Vec::new();
    for _ in 0..300 {
        let Some(Fault::Stop(_, time)) = schedule.next(&view, STOP_MAX) else { continue };
        assert!((STOP_MIN..=STOP_MAX).contains(&time), "{time:?}");
        times.push(time);
    }
    assert!(times.iter().any(|time| *time > STOP_MAX / 3));
    assert!(times.iter().any(|time| *time < STOP_MAX / 100));
}

#[test]
fn a_node_is_parted_from_all_or_from_another_and_both_ways_or_one() {
    let mut schedule = Schedule::new(layout(THREE), vec![Kind::Partition], Target::Any, SILENCE, 1);
    let view = View { leaders: vec![Some(0), Some(1)], ..View::default() };
    let mut counts = [0; 3];
    for _ in 0..300 {
        let Some(Fault::Partition(node, parting, time)) = schedule.next(&view, STOP_MAX) else {
            continue;
        };
        assert!((STOP_MIN..=STOP_MAX).contains(&time), "{time:?}");
        counts[match parting {
            Parting::FromAll => 0,
            Parting::FromNode(other) => {
                assert_ne!(other, node);
                1
            }
            Parting::Unheard(other) => {
                assert_ne!(other, node);
                2
            }
        }] += 1;
    }
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
}

#[test]
fn a_node_stutters_for_moments_and_once_for_about_as_long_as_it_takes_to_be_suspected() {
    let mut schedule = Schedule::new(layout(THREE), vec![Kind::Stutter], Target::Any, SILENCE, 1);
    let view = View { leaders: vec![Some(0), Some(1)], ..View::default() };
    let (mut moments, mut suspected) = (0, 0);
    for _ in 0..300 {
        let Some(Fault::Stutter(_, mut all)) = schedule.next(&view, STOP_MAX) else { continue };
        let last = all.pop().expect("it stutters once at least");
        assert!((SILENCE / 2..=3 * SILENCE).contains(&last.stopped), "{last:?}");
        assert!(all.iter().all(|one| one.stopped <= MOMENT_MAX.stopped && one.stopped < SILENCE));
        moments += all.len();
        suspected += usize::from(last.stopped > SILENCE);
    }
    assert!(moments > 2_000 && (50..250).contains(&suspected), "{moments} {suspected}");
}

#[test]
fn power_is_lost_by_all_and_one_disk_at_most_goes_with_it() {
    let kinds = vec![Kind::Power, Kind::DiskLoss];
    let mut schedule = Schedule::new(layout(FIVE), kinds, Target::Any, SILENCE, 1);
    let well = View { leaders: vec![Some(0); 3], ..View::default() };
    let unwell = View { missing: (0..5).collect(), ..well.clone() };
    let emptied = View { without_data: [2].into(), missing: [2].into(), ..well.clone() };
    let (mut outages, mut at_once, mut lost, mut late) = (0, 0, 0, 0);
    for round in 0..3_000 {
        let view = [&well, &unwell, &emptied][round % 3];
        let Some(Fault::Power(outage)) = schedule.next(view, STOP_MAX) else { continue };
        assert!(view.without_data.is_empty(), "a quorum may have what it needs on one disk alone");
        let nodes: BTreeSet<u16> = outage.starts.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, (0..5).collect());
        assert!(outage.loses.is_none() || view.missing.is_empty());
        outages += 1;
        at_once += u32::from(!view.missing.is_empty());
        lost += u32::from(outage.loses.is_some());
        late += u32::from(outage.starts.iter().any(|(_, after)| *after >= LATE));
    }
    assert!(
        outages > 300 && [at_once, lost, late].iter().all(|count| *count > 20),
        "{outages} {at_once} {lost} {late}"
    );
}
