//! Faults of groups by their place in the tree along which messages are ordered.

use std::time::Duration;

use skein_fabric::sim::Rng;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::tram::tree::Tree;

use super::faults::{Fault, Kind, Target, some_of};
use super::scenario::Scenario;
use crate::config::Topology;
use crate::layout::{Layout, Location};

/// The groups of the tree that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branches {
    /// The leaders of groups that pass messages on, one after the other.
    Inner,
    /// A quorum of a group that passes nothing on, for most of the load.
    Leaf,
}

/// Has more groups and nodes than most scenarios, so that groups fail without each other.
pub(super) fn resize(scenario: &mut Scenario, rng: &mut Rng) {
    let topology = scenario.topology();
    let replicas = if rng.one_in(4) { 5 } else { 3 };
    let nodes = u16::from(replicas) + rng.between(1, u64::from(replicas)) as u16;
    let groups = rng.between(3, 8) as u16;
    scenario.resize(Topology { nodes, groups, replicas, ..topology });
}

/// Draws the faults, once the tree is known.
pub(super) fn draw(what: Branches, tree: &Tree, scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    match what {
        Branches::Inner => inner(tree, scenario, rng),
        Branches::Leaf => leaf(tree, scenario, rng).unwrap_or_default(),
    }
}

fn groups_of(tree: &Tree, pass_on: bool) -> Vec<GroupId> {
    let all = (0..tree.groups()).map(GroupId);
    all.filter(|group| tree.children(*group).is_empty() != pass_on).collect()
}

/// Leaders die, are suspended, are cut off, or hand over, some before they have passed on anything.
fn inner(tree: &Tree, scenario: &Scenario, rng: &mut Rng) -> Vec<Fault> {
    let (inner, silence) = (groups_of(tree, true), scenario.suspected_after());
    let mut faults = Vec::new();
    for _ in 0..rng.between(3, 8) {
        let GroupId(group) = *rng.pick(&inner);
        let node = if rng.one_in(3) {
            Target::NewLeader { group, steps: rng.below(200) }
        } else {
            Target::Leader(group)
        };
        let lasts = some_of(rng, 4 * silence);
        let kind = match rng.below(6) {
            0 | 1 => Kind::Crash { node, back_after: some_of(rng, 2 * silence) },
            2 => Kind::Pause { node, lasts, flaps: rng.one_in(3) },
            3 => Kind::Isolate { node, outbound: true, inbound: false, lasts },
            4 => Kind::Isolate { node, outbound: rng.one_in(2), inbound: true, lasts },
            _ => {
                let slot = rng.below(u64::from(scenario.topology().replicas)) as u8;
                Kind::Transfer { group, slot }
            }
        };
        let after = rng.below(scenario.messages);
        faults.push(Fault { after, delay: Duration::from_micros(rng.below(2000)), kind });
    }
    faults
}

/// A leaf without which all other groups have a quorum has none itself. `None` if there is no such leaf.
fn leaf(tree: &Tree, scenario: &Scenario, rng: &mut Rng) -> Option<Vec<Fault>> {
    let (layout, topology) = (&scenario.layout, scenario.topology());
    let nodes_of = |group: GroupId| {
        let slots = (0..topology.replicas).map(move |slot| ReplicaId::new(group, slot));
        slots.map(|replica| layout.node_of(replica)).collect::<Vec<_>>()
    };
    let quorum = usize::from(topology.replicas / 2 + 1);
    let mut choices = Vec::new();
    for leaf in groups_of(tree, false) {
        let nodes = nodes_of(leaf);
        for first in 0..nodes.len() {
            let away: Vec<_> = nodes.iter().cycle().skip(first).take(quorum).copied().collect();
            let others = (0..topology.groups).map(GroupId).filter(|group| *group != leaf);
            let left = |group| nodes_of(group).iter().filter(|node| !away.contains(node)).count();
            if others.map(left).all(|left| left >= quorum) {
                choices.push(away);
            }
        }
    }
    if choices.is_empty() {
        return None;
    }
    let (after, silence) = (rng.below(scenario.messages / 8), scenario.suspected_after());
    let lasts = 20 * silence + some_of(rng, 60 * silence);
    let cut_off = rng.one_in(3);
    let fault = |node: &u16| {
        let node = Target::Node(*node);
        let kind = if cut_off {
            Kind::Isolate { node, outbound: true, inbound: true, lasts }
        } else {
            Kind::Pause { node, lasts, flaps: false }
        };
        Fault { after, delay: Duration::ZERO, kind }
    };
    Some(rng.pick(&choices).iter().map(fault).collect())
}

/// Draws the group that loses all its memories again and again: mostly one that has a parent and children, if there is
/// one. Places it and a neighbour of it in the tree on nodes that they do not share.
pub(super) fn lost_again(scenario: &mut Scenario, rng: &mut Rng) -> GroupId {
    let (tree, topology) = (scenario.tree(), scenario.topology());
    let all: Vec<_> = (0..tree.groups()).map(GroupId).collect();
    let has_both =
        |group: &GroupId| tree.parent(*group).is_some() && !tree.children(*group).is_empty();
    let inner: Vec<_> = all.iter().copied().filter(has_both).collect();
    let choices = if inner.is_empty() || rng.one_in(4) { &all } else { &inner };
    let lost = *rng.pick(choices);
    let next_to_it: Vec<_> = tree.children(lost).iter().chain(tree.parent(lost)).collect();
    let neighbour = *rng.pick(&next_to_it);
    // The groups in the order of their first replicas' nodes.
    let mut order: Vec<_> = all.into_iter().filter(|it| ![lost, neighbour].contains(it)).collect();
    order.insert(0, lost);
    order.insert(usize::from(topology.replicas), neighbour);
    let mut locations = vec![Vec::new(); order.len()];
    for (first, group) in (0..).zip(order) {
        let on = |slot| Location {
            node: (first + u16::from(slot)) % topology.nodes,
            engine: group.0 % topology.engines,
        };
        locations[group.index()] = (0..topology.replicas).map(on).collect();
    }
    scenario.layout = Layout::new(topology, &locations).expect("a layout that can be");
    lost
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::simulate::{Ordering, Profile, Scenario};

    fn drawn(name: &str) -> impl Iterator<Item = Scenario> {
        let profile = Profile::named(name).unwrap().ordered_by(Ordering::Tram).unwrap();
        (0..100).map(move |seed| Scenario::draw(seed, profile))
    }

    #[test]
    fn leaders_of_groups_that_pass_messages_on_fail() {
        for scenario in drawn("inner-groups") {
            let tree = scenario.layout.tree().unwrap();
            let hits = |fault: &&Fault| match fault.kind {
                Kind::Crash { node: Target::Leader(group), .. }
                | Kind::Pause { node: Target::Leader(group), .. } => {
                    !tree.children(GroupId(group)).is_empty()
                }
                _ => false,
            };
            let count = scenario.faults.iter().filter(hits).count();
            assert!(tree.groups() >= 3 && scenario.faults.len() >= 3, "{count}: {tree:?}");
        }
        let crashed = |scenario: &Scenario| {
            scenario.faults.iter().any(|fault| matches!(fault.kind, Kind::Crash { .. }))
        };
        assert!(drawn("inner-groups").filter(crashed).count() > 50);
    }

    #[test]
    fn most_scenarios_have_a_leaf_that_fails_alone() {
        let long = |scenario: &Scenario| {
            let least = 20 * scenario.suspected_after();
            let lasts = |fault: &Fault| match fault.kind {
                Kind::Pause { lasts, .. } | Kind::Isolate { lasts, .. } => lasts >= least,
                _ => false,
            };
            let away = scenario.faults.iter().filter(|fault| lasts(fault)).count();
            away > usize::from(scenario.topology().replicas / 2)
        };
        let count = drawn("dead-leaf").filter(long).count();
        assert!(count > 60, "{count} of 100");
    }

    #[test]
    fn groups_that_are_lost_again_are_mostly_inner_and_have_a_neighbour_that_is_not_lost() {
        let (mut again, mut could_be_inner, mut inner, mut roots) = (0, 0, 0, 0);
        for scenario in drawn("losses") {
            let loss = |fault: &Fault| match fault.kind {
                Kind::Loss { group, .. } => Some(GroupId(group)),
                _ => None,
            };
            let losses: Vec<_> = scenario.faults.iter().filter_map(loss).collect();
            if losses.len() < 3 {
                continue;
            }
            again += 1;
            let (lost, tree) = (losses[0], scenario.layout.tree().unwrap());
            assert!(losses.iter().all(|group| *group == lost), "{losses:?}");
            let has_both =
                |group: GroupId| tree.parent(group).is_some() && !tree.children(group).is_empty();
            could_be_inner += usize::from((0..tree.groups()).map(GroupId).any(has_both));
            inner += usize::from(has_both(lost));
            roots += usize::from(tree.parent(lost).is_none());
            let nodes_of = |group: GroupId| -> BTreeSet<u16> {
                let slots = 0..scenario.topology().replicas;
                slots.map(|slot| scenario.layout.node_of(ReplicaId::new(group, slot))).collect()
            };
            let mut neighbours = tree.children(lost).iter().chain(tree.parent(lost));
            let survives = |group| nodes_of(group).is_disjoint(&nodes_of(lost));
            assert!(neighbours.any(survives), "{lost} of {tree:?}: {}", scenario.layout);
        }
        let counts = format!("{again} of 100, {inner} inner of {could_be_inner}, {roots} roots");
        println!("{counts}");
        assert!(again > 20 && 3 * inner > 2 * could_be_inner && roots > 0, "{counts}");
    }

    #[test]
    fn without_a_tree_the_first_group_is_lost_again() {
        let profile = Profile::named("losses").unwrap();
        for seed in 0..100 {
            let scenario = Scenario::draw(seed, profile);
            let loss = |fault: &&Fault| matches!(fault.kind, Kind::Loss { .. });
            let losses: Vec<_> = scenario.faults.iter().filter(loss).collect();
            let first = |fault: &&Fault| matches!(fault.kind, Kind::Loss { group: 0, .. });
            assert!(losses.len() == 1 || losses.iter().all(first), "{losses:?}");
        }
    }
}
