//! Groups that cannot serve hold up messages to others of their tree: this says which, for operators and clients.

use alloc::vec::Vec;

use super::tree::Tree;
use crate::ids::{GroupId, GroupSet};

/// The messages that wait for a group which cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// The group that cannot serve.
    pub by: GroupId,
    /// Its subtree. Messages of several groups to these groups wait, except as [`apart`](Self::apart) says.
    pub groups: GroupSet,
    /// Parts of the subtree. A message whose destinations are all in one of them does not wait for the group.
    pub apart: Vec<GroupSet>,
}

/// The groups that cannot serve, in rising order, and what each holds up. Empty for a tree of one group.
pub fn held_up(tree: &Tree, unavailable: GroupSet) -> Vec<HeldUp> {
    let groups = unavailable.intersection(GroupSet::first(tree.groups()));
    let of = |by| {
        let below = tree.children(by).iter().map(|child| tree.below(child));
        let apart = below.filter(|below| below.has_several()).collect();
        HeldUp { by, groups: tree.below(by), apart }
    };
    groups.iter().filter(|_| tree.groups() > 1).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(groups: &[u16]) -> GroupSet {
        groups.iter().copied().map(GroupId).collect()
    }

    #[test]
    fn a_group_holds_up_its_subtree_but_not_what_stays_below_one_child() {
        // g0 has g1 and g2; g1 has g3, which has g4, and g5.
        let parents = [None, Some(0), Some(0), Some(1), Some(3), Some(1)];
        let tree = Tree::of(&parents).unwrap();
        assert_eq!(held_up(&tree, GroupSet::EMPTY), []);
        let [inner, leaf] = &held_up(&tree, set(&[5, 1]))[..] else { panic!("one for each") };
        assert_eq!((inner.by, inner.groups), (GroupId(1), set(&[1, 3, 4, 5])));
        assert_eq!(inner.apart, [set(&[3, 4])], "g5 is a leaf: no several groups are below it");
        assert_eq!((leaf.by, leaf.groups), (GroupId(5), set(&[5])));
        assert_eq!(leaf.apart, []);
        assert_eq!(held_up(&Tree::breadth(1), set(&[0])), [], "no message has several groups");
        assert_eq!(held_up(&Tree::breadth(2), set(&[1, 7])).len(), 1, "g7 is in no tree");
    }

    /// A message waits for a group exactly if the group is on its path.
    #[test]
    fn every_message_that_is_said_to_wait_has_the_group_on_its_path() {
        for tree in [Tree::base(6), Tree::breadth(6), Tree::depth(6)] {
            for bits in 1..1_u64 << 6 {
                let destinations = GroupSet::from_bits(bits);
                let held = held_up(&tree, GroupSet::first(6));
                for HeldUp { by, groups, apart } in
                    held.iter().filter(|_| destinations.has_several())
                {
                    let spared = apart.iter().any(|part| part.contains_all(destinations));
                    let waits = !groups.intersection(destinations).is_empty() && !spared;
                    assert_eq!(
                        waits,
                        tree.path(destinations).contains(*by),
                        "{by} {destinations} {tree:?}"
                    );
                }
            }
        }
    }
}
