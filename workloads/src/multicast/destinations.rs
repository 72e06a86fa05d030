//! The groups that messages go to.

use rand::RngExt;
use rand::rngs::SmallRng;
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::tram::tree::Tree;

use super::load::Plan;

/// Draws sets of groups, as many as a plan says.
#[derive(Clone, Debug)]
pub(super) struct Destinations {
    groups: u16,
    each: usize,
    /// If groups must be adjacent: the neighbours of each group in a tree.
    neighbours: Option<Vec<GroupSet>>,
}

impl Destinations {
    pub(super) fn of(plan: &Plan) -> Self {
        let neighbours = plan.adjacent.as_ref().map(|parents| {
            let tree = Tree::from(parents);
            let of = |group| {
                let children = tree.children(group);
                tree.parent(group).map_or(children, |parent| children.with(parent))
            };
            (0..plan.groups).map(GroupId).map(of).collect()
        });
        Self { groups: plan.groups, each: usize::from(plan.destinations), neighbours }
    }

    /// The next set: uniformly random, or grown from a random group by random neighbours, so that all groups on its way
    /// along the tree are in it.
    pub(super) fn draw(&self, random: &mut SmallRng) -> GroupSet {
        let mut set = GroupSet::EMPTY;
        while set.len() < self.each {
            let group = match &self.neighbours {
                Some(neighbours) if !set.is_empty() => {
                    let around = set.iter().map(|group| neighbours[group.index()]);
                    let around = around.fold(GroupSet::EMPTY, GroupSet::union).minus(set);
                    let chosen = random.random_range(0..around.len());
                    around.iter().nth(chosen).expect("below their number")
                }
                _ => GroupId(random.random_range(0..self.groups)),
            };
            set = set.with(group);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use rand::SeedableRng;
    use skein_multicast::trees::Shape;

    use super::*;

    fn plan(groups: u16, destinations: u16, adjacent: Option<&Tree>) -> Plan {
        Plan {
            groups,
            destinations,
            adjacent: adjacent.map(Tree::parents),
            payload_bytes: 64,
            clients: 1,
            idle: 0,
            depth: 1,
            window: 64,
            rate: None,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            seed: 1,
        }
    }

    #[test]
    fn destinations_are_drawn_evenly() {
        let mut random = SmallRng::seed_from_u64(7);
        let mut counts = [0_u32; 4];
        let destinations = Destinations::of(&plan(4, 2, None));
        for _ in 0..4_000 {
            let set = destinations.draw(&mut random);
            assert_eq!(set.len(), 2);
            set.iter().for_each(|group| counts[group.index()] += 1);
        }
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn adjacent_groups_are_all_that_take_part_in_their_messages() {
        let mut random = SmallRng::seed_from_u64(7);
        for shape in [Shape::Base, Shape::Breadth, Shape::Depth] {
            let tree = shape.tree(8).unwrap();
            for each in 1..=8 {
                let destinations = Destinations::of(&plan(8, each, Some(&tree)));
                let sets: HashSet<_> = (0..1_000).map(|_| destinations.draw(&mut random)).collect();
                assert!(each == 8 || sets.len() > 1, "{shape}: one set of {each}");
                for _ in 0..200 {
                    let set = destinations.draw(&mut random);
                    assert_eq!((set.len(), tree.path(set)), (each.into(), set), "{shape}");
                }
            }
        }
        // Of a chain, each pair of neighbours is drawn.
        let destinations = Destinations::of(&plan(8, 2, Some(&Tree::depth(8))));
        let pairs: HashSet<_> = (0..1_000).map(|_| destinations.draw(&mut random)).collect();
        assert_eq!(pairs.len(), 7);
    }
}
