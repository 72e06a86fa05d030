use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

fn set(groups: &[u16]) -> GroupSet {
    groups.iter().copied().map(GroupId).collect()
}

fn parents(of: &[i16]) -> Vec<Option<u16>> {
    of.iter().map(|parent| u16::try_from(*parent).ok()).collect()
}

#[test]
fn the_trees_of_the_paper_are_as_drawn() {
    #[rustfmt::skip]
    let trees = [
        (Tree::base(8),    [-1, 0, 1, 1, 2, 2, 3, 3]),
        (Tree::breadth(8), [-1, 0, 0, 0, 0, 0, 0, 0]),
        (Tree::depth(8),   [-1, 0, 1, 2, 3, 4, 5, 6]),
    ];
    for (tree, drawn) in trees {
        assert_eq!(Ok(tree), Tree::of(&parents(&drawn)));
    }
}

#[test]
fn a_message_takes_the_way_from_its_lowest_common_ancestor_and_no_other() {
    let (base, depth, breadth) = (Tree::base(8), Tree::depth(8), Tree::breadth(8));
    #[rustfmt::skip]
    let cases = [
        // tree    destinations  lca  path                because
        (base,     set(&[6]),     6,  set(&[6]),          "one group orders its own messages"),
        (base,     set(&[4, 5]),  2,  set(&[2, 4, 5]),    "the ancestor is no destination"),
        (base,     set(&[2, 5]),  2,  set(&[2, 5]),       "the ancestor is one"),
        (base,     set(&[4, 6]),  1,  set(&[1, 2, 3, 4, 6]), "it passes two bystanders"),
        (base,     set(&[0, 7]),  0,  set(&[0, 1, 3, 7]), "the root is one"),
        (depth,    set(&[2, 5]),  2,  set(&[2, 3, 4, 5]), "all between are passed"),
        (breadth,  set(&[3, 5]),  0,  set(&[0, 3, 5]),    "siblings meet at the root"),
    ];
    for (tree, destinations, lca, path, because) in cases {
        assert_eq!(tree.lca(destinations), GroupId(lca), "{because}");
        assert_eq!(tree.path(destinations), path, "{because}");
    }
    assert_eq!(base.next_hops(GroupId(1), set(&[1, 4, 6])), set(&[2, 3]));
    assert_eq!(base.next_hops(GroupId(2), set(&[1, 4, 6])), set(&[4]));
    assert_eq!(base.next_hops(GroupId(6), set(&[6])), GroupSet::EMPTY);
}

#[test]
fn what_is_no_tree_is_refused_with_the_reason() {
    let (missing, groups) = (GroupId(1), 2);
    #[rustfmt::skip]
    let cases = [
        (vec![],               TreeError::Empty),
        (vec![-1; 65],         TreeError::TooMany { groups: 65 }),
        (vec![-1, 2],          TreeError::Missing { group: missing, parent: 2, groups }),
        (vec![-1, 1],          TreeError::OwnParent { group: GroupId(1) }),
        (vec![0],              TreeError::OwnParent { group: GroupId(0) }),
        (vec![-1, 0, -1],      TreeError::Roots { first: GroupId(0), second: GroupId(2) }),
        (vec![1, 0],           TreeError::Cycle { groups: set(&[0, 1]) }),
        (vec![-1, 2, 3, 1, 3], TreeError::Cycle { groups: set(&[1, 2, 3]) }),
        (vec![1, 2, 1],        TreeError::Cycle { groups: set(&[1, 2]) }),
    ];
    for (of, error) in cases {
        assert_eq!(Tree::of(&parents(&of)), Err(error), "{of:?}");
    }
    let told = TreeError::Cycle { groups: set(&[1, 2]) }.to_string();
    assert!(told.contains("{g1 g2}") && told.contains("another parent"), "{told}");
}

/// A pseudo-random sequence (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// From a group to the root.
fn line(parents: &[Option<u16>], group: u16) -> Vec<u16> {
    let mut line = vec![group];
    while let Some(parent) = parents[usize::from(*line.last().unwrap())] {
        line.push(parent);
    }
    line
}

#[test]
fn random_trees_agree_with_a_naive_search() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let groups = 1 + random.below(64) as u16;
        // Names are shuffled, so that a parent may have the higher one.
        let mut names: Vec<u16> = (0..groups).collect();
        for i in (1..names.len()).rev() {
            names.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut parents = vec![None; usize::from(groups)];
        for i in 1..names.len() {
            parents[usize::from(names[i])] = Some(names[random.below(i as u64) as usize]);
        }
        let tree = Tree::of(&parents).expect("a tree by construction");
        for _ in 0..40 {
            let count = 1 + random.below(6);
            let chosen: Vec<u16> = (0..count).map(|_| random.below(groups.into()) as u16).collect();
            let destinations = set(&chosen);
            let lines: Vec<_> = chosen.iter().map(|group| line(&parents, *group)).collect();
            let common = |it: &&u16| lines.iter().all(|line| line.contains(it));
            let lca = *lines[0].iter().find(common).expect("the root is common");
            assert_eq!(tree.lca(destinations), GroupId(lca), "seed {seed}: {tree:?}");
            let until = |line: &Vec<u16>| 1 + line.iter().position(|it| *it == lca).unwrap();
            let path = lines.iter().flat_map(|line| line[..until(line)].to_vec());
            assert_eq!(tree.path(destinations), path.map(GroupId).collect(), "seed {seed}");
            for group in tree.path(destinations).iter() {
                let hops = lines.iter().filter_map(|line| {
                    let at = line.iter().position(|it| *it == group.0)?;
                    Some(GroupId(line[at.checked_sub(1)?]))
                });
                assert_eq!(tree.next_hops(group, destinations), hops.collect(), "seed {seed}");
            }
        }
        for group in (0..groups).map(GroupId) {
            let below = (0..groups).filter(|other| line(&parents, *other).contains(&group.0));
            assert_eq!(tree.below(group), below.map(GroupId).collect());
            let children = (0..groups).filter(|it| parents[usize::from(*it)] == Some(group.0));
            assert_eq!(tree.children(group), children.map(GroupId).collect());
        }
    }
}

/// A root above a change of one parent is a cycle or a tree, and never anything that is walked for ever.
#[test]
fn every_list_of_parents_of_four_groups_is_a_tree_or_is_refused() {
    let mut trees = 0;
    for code in 0..5_u32.pow(4) {
        let parent = |at: u32| match code / 5_u32.pow(at) % 5 {
            4 => None,
            parent => Some(parent as u16),
        };
        let parents: Vec<_> = (0..4).map(parent).collect();
        if let Ok(tree) = Tree::of(&parents) {
            trees += 1;
            let root = (0..4).map(GroupId).find(|it| tree.parent(*it).is_none()).unwrap();
            assert_eq!(tree.below(root), GroupSet::first(4));
        }
    }
    assert_eq!(trees, 64, "Cayley's formula, times the root");
}

#[test]
fn the_way_to_some_destinations_is_a_part_of_the_path() {
    // g0 has g1 and g2; g1 has g3 and g4.
    let tree = Tree::of(&[None, Some(0), Some(0), Some(1), Some(1)]).unwrap();
    let all = set(&[2, 3, 4]);
    assert_eq!(tree.way(all, set(&[2])), set(&[0, 2]));
    assert_eq!(tree.way(all, set(&[3])), set(&[0, 1, 3]), "through g1, which is no destination");
    assert_eq!(tree.way(all, all), tree.path(all));
    assert_eq!(tree.way(set(&[3, 4]), set(&[4])), set(&[1, 4]), "from the common ancestor");
    assert_eq!(tree.way(all, GroupSet::EMPTY), GroupSet::EMPTY);
}
