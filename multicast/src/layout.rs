//! Where each replica runs: on which node, and on which engine of that node.
//!
//! A layout is a table. Only [`Layout::propose`] computes one; all other code looks replicas up in it. So a
//! cluster works with every table that [`Layout::new`] accepts.
//!
//! **Invariant.** Every replica of every group has a location, on a node and an engine that exist, and no node
//! has two replicas of one group.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skein_fabric::Constants;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::tram::tree::{Parents, Tree, TreeError};

use crate::config::{Conflict, Topology, endpoint_name};

/// A table of replicas and their locations. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Layout {
    topology: Topology,
    /// Ordered by group, and by slot within it.
    locations: Arc<[Location]>,
    /// The parent of each group, if messages are ordered along a tree.
    parents: Option<Parents>,
}

/// The location of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    pub node: u16,
    /// The engine thread, counted on its node.
    pub engine: u16,
}

/// A layout as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    topology: Topology,
    locations: Vec<Vec<Location>>,
    /// If messages are ordered along a tree.
    #[serde(default)]
    parents: Option<Vec<Option<u16>>>,
}

/// The reason why a table is not a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// There is no cluster of these sizes.
    #[error(transparent)]
    Sizes(#[from] Conflict),
    /// The table has another number of groups.
    #[error("the layout places {placed} groups, and groups = {groups}")]
    Groups { placed: usize, groups: u16 },
    /// The groups have no such tree.
    #[error("the parents of the groups: {0}")]
    Tree(TreeError),
    /// The tree has another number of groups.
    #[error("the tree has {groups} groups, and the cluster {of}")]
    TreeOfOthers { groups: u16, of: u16 },
    /// A group has another number of replicas in the table.
    #[error("the layout places {placed} replicas of {group}, and replicas = {replicas}")]
    Replicas {
        group: GroupId,
        placed: usize,
        /// Replicas of each group of the cluster.
        replicas: u8,
    },
    /// There is no such node.
    #[error("the layout places {replica} on node {node}, and the last node is {}", .nodes - 1)]
    NoSuchNode { replica: ReplicaId, node: u16, nodes: u16 },
    /// There is no such engine.
    #[error("the layout places {replica} on engine {engine}, and the last engine of a node is {}", .engines - 1)]
    NoSuchEngine {
        replica: ReplicaId,
        engine: u16,
        /// How many engines each node has.
        engines: u16,
    },
    /// A group would lose two replicas with one node.
    #[error(
        "the layout places {first} and {second} on node {node}: replicas of one group must live on different nodes"
    )]
    SharedNode {
        first: ReplicaId,
        second: ReplicaId,
        /// The node of both.
        node: u16,
    },
}

impl Layout {
    /// Proposes the first layout of a cluster of these sizes. Replica `i` of group `g` runs on node `g + i`, modulo the
    /// nodes, so that leaders, which start in slot 0, spread over the nodes. It runs on engine `g`, modulo the
    /// engines.
    pub fn propose(topology: Topology) -> Result<Self, Conflict> {
        topology.check()?;
        let Topology { nodes, engines, .. } = topology;
        let location = |ReplicaId { group, slot }| Location {
            node: (group.0 + u16::from(slot)) % nodes,
            engine: group.0 % engines,
        };
        let replicas = topology.all_groups().iter().flat_map(|group| topology.replicas_of(group));
        Ok(Self { topology, locations: replicas.map(location).collect(), parents: None })
    }

    /// The layout with these locations, by group and by slot within it.
    pub fn new(topology: Topology, locations: &[Vec<Location>]) -> Result<Self, LayoutError> {
        topology.check()?;
        let Topology { nodes, groups, replicas, engines } = topology;
        if locations.len() != usize::from(groups) {
            return Err(LayoutError::Groups { placed: locations.len(), groups });
        }
        for (group, of_group) in topology.all_groups().iter().zip(locations) {
            let placed = of_group.len();
            if placed != usize::from(replicas) {
                return Err(LayoutError::Replicas { group, placed, replicas });
            }
            for (replica, Location { node, engine }) in topology.replicas_of(group).zip(of_group) {
                let before = &of_group[..usize::from(replica.slot)];
                if *node >= nodes {
                    return Err(LayoutError::NoSuchNode { replica, node: *node, nodes });
                }
                if *engine >= engines {
                    return Err(LayoutError::NoSuchEngine { replica, engine: *engine, engines });
                }
                if let Some(slot) = before.iter().position(|other| other.node == *node) {
                    let first = ReplicaId::new(group, slot as u8);
                    return Err(LayoutError::SharedNode { first, second: replica, node: *node });
                }
            }
        }
        Ok(Self { topology, locations: locations.concat().into(), parents: None })
    }

    /// The same locations, in a cluster that orders messages along a tree of its groups.
    ///
    /// # Errors
    /// If the tree is of another number of groups.
    pub fn along(self, tree: &Tree) -> Result<Self, LayoutError> {
        let (groups, of) = (tree.groups(), self.topology.groups);
        if groups != of {
            return Err(LayoutError::TreeOfOthers { groups, of });
        }
        Ok(Self { parents: Some(tree.parents()), ..self })
    }

    /// The tree along which messages are ordered, if they are.
    pub fn tree(&self) -> Option<Tree> {
        self.parents.as_ref().map(Tree::from)
    }

    /// The sizes of the cluster.
    pub const fn topology(&self) -> Topology {
        self.topology
    }

    /// The entries, all of which every node must have alike. Those of a proposed layout are its sizes.
    pub fn constants(&self) -> Constants {
        let sizes = self.topology.constants();
        let proposed = Self::propose(self.topology);
        let proposed = proposed.is_ok_and(|proposed| proposed.locations == self.locations);
        let all = if proposed { sizes } else { sizes.with("layout", self) };
        match &self.parents {
            Some(parents) => all.with("order.tree", format!("{parents:?}")),
            None => all,
        }
    }

    /// The node on which `replica` runs.
    pub fn node_of(&self, replica: ReplicaId) -> u16 {
        self.location_of(replica).node
    }

    /// The engine thread, on its node, that runs `replica`.
    pub fn engine_of(&self, replica: ReplicaId) -> u16 {
        self.location_of(replica).engine
    }

    /// The fabric's name of the engine that runs `replica`.
    pub fn endpoint_of(&self, replica: ReplicaId) -> String {
        let Location { node, engine } = self.location_of(replica);
        endpoint_name(node, engine)
    }

    /// The replicas that `engine` of `node` runs.
    pub fn replicas_on(&self, node: u16, engine: u16) -> Vec<ReplicaId> {
        let here = Location { node, engine };
        self.replicas().filter(|replica| self.location_of(*replica) == here).collect()
    }

    /// The replica of `group` on `node`, if there is one.
    pub fn replica_on(&self, node: u16, group: GroupId) -> Option<ReplicaId> {
        if group.0 >= self.topology.groups {
            return None;
        }
        self.topology.replicas_of(group).find(|replica| self.node_of(*replica) == node)
    }

    /// The most replicas that any node hosts. A constant of the cluster: some nodes may host fewer.
    pub fn replicas_per_node_max(&self) -> u16 {
        let mut hosted = vec![0; usize::from(self.topology.nodes)];
        self.locations.iter().for_each(|location| hosted[usize::from(location.node)] += 1);
        hosted.into_iter().max().unwrap_or(0)
    }

    fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let topology = self.topology;
        topology.all_groups().iter().flat_map(move |group| topology.replicas_of(group))
    }

    fn location_of(&self, replica: ReplicaId) -> Location {
        debug_assert!(self.topology.has(replica), "{replica} is not in the cluster");
        let of_group = replica.group.index() * usize::from(self.topology.replicas);
        self.locations[of_group + usize::from(replica.slot)]
    }
}

/// Each group with the engines of its replicas, by slot: `g0 n0e0 n1e0 n2e0, g1 n1e0 n2e0 n0e0`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in self.topology.all_groups().iter() {
            write!(f, "{}{group}", if group.0 == 0 { "" } else { ", " })?;
            for replica in self.topology.replicas_of(group) {
                write!(f, " {}", self.endpoint_of(replica))?;
            }
        }
        Ok(())
    }
}

impl TryFrom<Written> for Layout {
    type Error = LayoutError;

    fn try_from(Written { topology, locations, parents }: Written) -> Result<Self, LayoutError> {
        let layout = Self::new(topology, &locations)?;
        match parents {
            Some(parents) => layout.along(&Tree::of(&parents).map_err(LayoutError::Tree)?),
            None => Ok(layout),
        }
    }
}

impl From<Layout> for Written {
    fn from(layout: Layout) -> Self {
        let of_group = usize::from(layout.topology.replicas);
        let locations = layout.locations.chunks(of_group).map(<[_]>::to_vec).collect();
        let parents = layout.parents.map(|parents| parents.iter().collect());
        Self { topology: layout.topology, locations, parents }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: Topology = Topology { nodes: 4, groups: 2, replicas: 3, engines: 2 };

    fn at(node: u16, engine: u16) -> Location {
        Location { node, engine }
    }

    /// A table that is proposed for no sizes: slot 0 of both groups on node 3, other replicas in no order, and a group
    /// on different engines of its nodes.
    fn uneven() -> Vec<Vec<Location>> {
        vec![vec![at(3, 1), at(0, 0), at(1, 1)], vec![at(3, 0), at(1, 1), at(2, 0)]]
    }

    #[test]
    fn a_proposal_spreads_leaders_over_the_nodes_and_groups_over_the_engines() {
        let topology = Topology { nodes: 3, groups: 4, replicas: 3, engines: 2 };
        let layout = Layout::propose(topology).unwrap();
        let first = |group| layout.node_of(ReplicaId::new(GroupId(group), 0));
        assert_eq!([first(0), first(1), first(2), first(3)], [0, 1, 2, 0]);
        let all: usize = (0..3)
            .flat_map(|n| (0..2).map(move |e| (n, e)))
            .map(|(n, e)| layout.replicas_on(n, e).len())
            .sum();
        assert_eq!(all, 12);
        assert_eq!(layout.endpoint_of(ReplicaId::new(GroupId(3), 1)), "n1e1");
    }

    #[test]
    fn every_proposal_is_a_layout_and_the_most_replicas_of_a_node_are_found_in_it() {
        for (nodes, groups, engines) in
            (1..=8).flat_map(|n| (1..=8).flat_map(move |g| (1..=g).map(move |e| (n, g, e))))
        {
            for replicas in (1..=nodes).step_by(2) {
                let topology = Topology { nodes, groups, replicas: replicas as u8, engines };
                let layout = Layout::propose(topology).unwrap();
                let Written { locations, .. } = layout.clone().into();
                assert_eq!(Layout::new(topology, &locations).as_ref(), Ok(&layout));
                let on =
                    |node| (0..engines).map(|e| layout.replicas_on(node, e).len()).sum::<usize>();
                let most = (0..nodes).map(on).max();
                assert_eq!(most, Some(layout.replicas_per_node_max().into()), "{topology:?}");
            }
        }
    }

    #[test]
    fn what_is_looked_up_is_what_the_table_says() {
        let layout = Layout::new(TOPOLOGY, &uneven()).unwrap();
        let id = |group, slot| ReplicaId::new(GroupId(group), slot);
        assert_eq!((layout.node_of(id(0, 0)), layout.engine_of(id(0, 0))), (3, 1));
        assert_eq!((layout.node_of(id(1, 0)), layout.engine_of(id(1, 0))), (3, 0));
        assert_eq!(layout.endpoint_of(id(0, 2)), "n1e1");
        assert_eq!(layout.replicas_on(1, 1), [id(0, 2), id(1, 1)]);
        assert_eq!(layout.replicas_on(1, 0), []);
        assert_eq!(layout.replica_on(2, GroupId(1)), Some(id(1, 2)));
        assert_eq!(layout.replica_on(2, GroupId(0)), None);
        assert_eq!(layout.replica_on(2, GroupId(7)), None);
        assert_eq!(layout.replicas_per_node_max(), 2);
        assert_eq!(layout.to_string(), "g0 n3e1 n0e0 n1e1, g1 n3e0 n1e1 n2e0");
    }

    #[test]
    fn a_table_that_is_no_layout_is_refused_with_what_is_wrong_and_of_which_replica() {
        type Change = fn(&mut Vec<Vec<Location>>);
        #[rustfmt::skip]
        let cases: [(Change, &str); 6] = [
            (|it| it[1][2].node = 3,           "g1.0 and g1.2 on node 3: replicas of one group must live on different nodes"),
            (|it| it[0][1].node = 4,           "g0.1 on node 4, and the last node is 3"),
            (|it| it[1][1].engine = 2,         "g1.1 on engine 2, and the last engine of a node is 1"),
            (|it| it[0].truncate(2),           "2 replicas of g0, and replicas = 3"),
            (|it| it[1].push(at(0, 0)),        "4 replicas of g1, and replicas = 3"),
            (|it| it.truncate(1),              "1 groups, and groups = 2"),
        ];
        for (change, why) in cases {
            let mut locations = uneven();
            change(&mut locations);
            let refusal = Layout::new(TOPOLOGY, &locations).unwrap_err().to_string();
            assert_eq!(refusal, format!("the layout places {why}"));
            let written =
                postcard::to_allocvec(&Written { topology: TOPOLOGY, locations, parents: None })
                    .unwrap();
            let read = postcard::from_bytes::<Layout>(&written);
            assert!(read.is_err(), "{read:?} was read, and {refusal}");
        }
        let none = Topology { nodes: 0, ..TOPOLOGY };
        let refusal = Layout::new(none, &uneven()).unwrap_err().to_string();
        assert!(refusal.starts_with("nodes = 0 is out of range"), "{refusal}");
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let proposed = Layout::propose(TOPOLOGY).unwrap();
        let along = proposed.clone().along(&Tree::depth(TOPOLOGY.groups)).unwrap();
        assert_eq!(along.tree(), Some(Tree::depth(TOPOLOGY.groups)));
        let layouts = [Layout::new(TOPOLOGY, &uneven()).unwrap(), proposed, along];
        for layout in layouts {
            let written = postcard::to_allocvec(&layout).unwrap();
            assert_eq!(postcard::from_bytes(&written), Ok(layout));
        }
    }

    #[test]
    fn nodes_compare_the_table_unless_it_is_the_proposed_one() {
        let proposed = Layout::propose(TOPOLOGY).unwrap();
        assert_eq!(proposed.constants(), TOPOLOGY.constants());
        let uneven = Layout::new(TOPOLOGY, &uneven()).unwrap();
        let difference = proposed.constants().difference(&uneven.constants()).unwrap();
        assert_eq!((difference.name.as_str(), difference.theirs), ("layout", uneven.to_string()));
    }
}
