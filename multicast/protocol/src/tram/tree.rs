//! The tree of groups along which messages are ordered.
//!
//! Each group but the root has a parent. A message is ordered first by the *lowest common ancestor* (LCA) of its
//! destinations, the lowest group below which all of them are, itself included. It takes the *path* from there: every
//! group of the LCA's subtree below which there is a destination.
//!
//! **Invariants.** `below[g]` contains `g` and everything below its children, and the sets of two children of one group
//! are disjoint. `parents[g]` is `None` for the root and for no other group.

use core::fmt;

use crate::ids::{GroupId, GroupSet};

const CAPACITY: usize = GroupSet::CAPACITY as usize;

/// A tree of all groups of a cluster. It never changes while the cluster exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    groups: u16,
    parents: [Option<u8>; CAPACITY],
    below: [GroupSet; CAPACITY],
    children: [GroupSet; CAPACITY],
}

/// The parent of each group, of a [`Tree`]. A configuration carries it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parents {
    groups: u16,
    of: [Option<u8>; CAPACITY],
}

impl Parents {
    /// The parent of each group in turn. The root has none.
    pub fn iter(&self) -> impl Iterator<Item = Option<u16>> {
        self.of[..usize::from(self.groups)].iter().map(|parent| parent.map(u16::from))
    }
}

impl fmt::Debug for Parents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.of[..usize::from(self.groups)]).finish()
    }
}

impl From<&Parents> for Tree {
    fn from(parents: &Parents) -> Self {
        let groups = usize::from(parents.groups);
        let of = parents.of.map(|parent| parent.map(u16::from));
        Self::of(&of[..groups]).expect("they are of a tree")
    }
}

/// Why a list of parents is no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// No group at all.
    Empty,
    /// More groups than a set can have.
    TooMany { groups: usize },
    /// A parent that is not among the groups.
    Missing { group: GroupId, parent: u16, groups: u16 },
    /// A group that is its own parent.
    OwnParent { group: GroupId },
    /// Two groups without a parent.
    Roots { first: GroupId, second: GroupId },
    /// Groups that are each other's ancestors.
    Cycle { groups: GroupSet },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("a tree needs a group: name the parent of each, -1 for the root")
            }
            Self::TooMany { groups } => {
                write!(f, "{groups} groups are more than the {CAPACITY} that a tree can have")
            }
            Self::Missing { group, parent, groups } => write!(
                f,
                "group {parent}, the parent of {group}, does not exist: groups are 0 to {}",
                groups - 1
            ),
            Self::OwnParent { group } => {
                write!(f, "{group} is its own parent: name another group, or -1 if it is the root")
            }
            Self::Roots { first, second } => {
                write!(
                    f,
                    "both {first} and {second} have no parent: only one group can be the root"
                )
            }
            Self::Cycle { groups } => {
                write!(
                    f,
                    "the groups {groups} are each other's ancestors: one needs another parent"
                )
            }
        }
    }
}

impl core::error::Error for TreeError {}

impl Tree {
    /// The tree with these parents, by group. The root has none.
    ///
    /// # Errors
    /// The first reason why that is no tree.
    pub fn of(parents: &[Option<u16>]) -> Result<Self, TreeError> {
        if parents.is_empty() {
            return Err(TreeError::Empty);
        }
        if parents.len() > CAPACITY {
            return Err(TreeError::TooMany { groups: parents.len() });
        }
        let groups = parents.len() as u16;
        let (mut own, mut root) = ([None; CAPACITY], None);
        for (group, parent) in (0..groups).map(GroupId).zip(parents) {
            let Some(parent) = *parent else {
                if let Some(first) = root.replace(group) {
                    return Err(TreeError::Roots { first, second: group });
                }
                continue;
            };
            if parent >= groups {
                return Err(TreeError::Missing { group, parent, groups });
            }
            if parent == group.0 {
                return Err(TreeError::OwnParent { group });
            }
            own[group.index()] = Some(parent as u8);
        }
        let none = [GroupSet::EMPTY; CAPACITY];
        let mut tree = Self { groups, parents: own, below: none, children: none };
        for group in (0..groups).map(GroupId) {
            let (mut at, mut seen) = (Some(group), GroupSet::EMPTY);
            while let Some(ancestor) = at {
                if !seen.insert(ancestor) {
                    return Err(TreeError::Cycle { groups: tree.cycle_from(ancestor) });
                }
                tree.below[ancestor.index()].insert(group);
                at = tree.parent(ancestor);
            }
            if let Some(parent) = tree.parent(group) {
                tree.children[parent.index()].insert(group);
            }
        }
        Ok(tree)
    }

    /// Every other group is a child of group 0.
    ///
    /// # Panics
    /// If there are no groups, or more than a set can have.
    pub fn breadth(groups: u16) -> Self {
        Self::with(groups, |_| 0)
    }

    /// A chain: the parent of each group is the one before it.
    ///
    /// # Panics
    /// As [`breadth`](Self::breadth).
    pub fn depth(groups: u16) -> Self {
        Self::with(groups, |group| group - 1)
    }

    /// The paper's third tree: two children a group below group 1, the only child of group 0.
    ///
    /// # Panics
    /// As [`breadth`](Self::breadth).
    pub fn base(groups: u16) -> Self {
        Self::with(groups, |group| group / 2)
    }

    fn with(groups: u16, parent: impl Fn(u16) -> u16) -> Self {
        let mut parents = [None; CAPACITY];
        for group in 1..groups {
            parents[usize::from(group)] = Some(parent(group));
        }
        Self::of(&parents[..usize::from(groups)]).expect("a tree by construction")
    }

    /// The groups of the cycle that contains `group`.
    fn cycle_from(&self, group: GroupId) -> GroupSet {
        let (mut at, mut cycle) = (group, GroupSet::EMPTY);
        while cycle.insert(at) {
            at = self.parent(at).expect("a cycle has no root");
        }
        cycle
    }

    /// The parents alone.
    pub const fn parents(&self) -> Parents {
        Parents { groups: self.groups, of: self.parents }
    }

    /// Number of groups.
    pub const fn groups(&self) -> u16 {
        self.groups
    }

    /// The parent of a group. `None` for the root.
    pub fn parent(&self, group: GroupId) -> Option<GroupId> {
        self.parents[group.index()].map(|parent| GroupId(parent.into()))
    }

    /// The group, its parent, and so on up to the root.
    pub fn ancestors(&self, group: GroupId) -> impl Iterator<Item = GroupId> {
        core::iter::successors(Some(group), |it| self.parent(*it))
    }

    /// The group and all its descendants.
    pub const fn below(&self, group: GroupId) -> GroupSet {
        self.below[group.index()]
    }

    /// The children of a group.
    pub const fn children(&self, group: GroupId) -> GroupSet {
        self.children[group.index()]
    }

    /// The lowest group below which all these groups are, itself included.
    ///
    /// # Panics
    /// If there is no group in the set, or one that is not in the tree.
    pub fn lca(&self, groups: GroupSet) -> GroupId {
        let mut at = groups.iter().next().expect("a set of at least one group");
        while !self.below(at).contains_all(groups) {
            at = self.parent(at).expect("all groups are below the root");
        }
        at
    }

    /// The groups that take part in ordering a message to these groups.
    ///
    /// # Panics
    /// As [`lca`](Self::lca).
    pub fn path(&self, destinations: GroupSet) -> GroupSet {
        let takes_part = |it: &GroupId| !self.below(*it).intersection(destinations).is_empty();
        self.below(self.lca(destinations)).iter().filter(takes_part).collect()
    }

    /// The groups through which a message to `destinations` comes to those of them in `some`: the part of its path from
    /// the lowest common ancestor to each, both included.
    ///
    /// # Panics
    /// As [`lca`](Self::lca).
    pub fn way(&self, destinations: GroupSet, some: GroupSet) -> GroupSet {
        let leads_there = |it: &GroupId| !self.below(*it).intersection(some).is_empty();
        self.path(destinations).iter().filter(leads_there).collect()
    }

    /// The child of `group` at or above `destination`. `None` if `destination` is not below a child.
    pub fn child_towards(&self, group: GroupId, destination: GroupId) -> Option<GroupId> {
        let mut at = destination;
        loop {
            let parent = self.parent(at)?;
            if parent == group {
                return Some(at);
            }
            at = parent;
        }
    }

    /// The children of `group` to which it forwards a message to these groups.
    pub fn next_hops(&self, group: GroupId, destinations: GroupSet) -> GroupSet {
        let ahead = self.below(group).without(group).intersection(destinations);
        if ahead.is_empty() {
            return GroupSet::EMPTY;
        }
        let leads_there = |it: &GroupId| !self.below(*it).intersection(ahead).is_empty();
        self.children(group).iter().filter(leads_there).collect()
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parents().fmt(f)
    }
}

#[cfg(test)]
mod tests;
