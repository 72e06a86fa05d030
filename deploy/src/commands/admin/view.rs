//! The state of a cluster as its nodes report it, and requests to single nodes.

use std::time::Instant;

use anyhow::anyhow;
use skein_cluster::config::{ClusterConfig, Durability};
use skein_cluster::directory::Directory;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Role;
use skein_multicast::protocol::ids::{GroupId, ReplicaId};
use skein_node::admin::{self, Action, CallError};
use skein_node::nodes;
use skein_node::status::{NodeStatus, ReplicaReport};

use super::{ANSWER_WITHIN, DONE_WITHIN, POLL};
use crate::args::Global;
use crate::exit::usage;

/// A running cluster.
pub(super) struct Running {
    pub(super) directory: Directory,
    pub(super) layout: Layout,
    config: ClusterConfig,
}

/// The latest answers of the nodes.
pub(super) struct View {
    /// By node.
    pub(super) nodes: Vec<Result<NodeStatus, CallError>>,
}

impl Running {
    /// Finds the cluster that the command line names. At least one of its nodes must run.
    pub(super) fn find(global: &Global) -> anyhow::Result<Self> {
        let directory = Directory::at(&global.dir())?;
        let manifest = directory.find()?;
        manifest.check_build(&directory)?;
        let config = directory.config()?;
        if (0..manifest.nodes).all(|node| directory.node(node).is_none()) {
            return Err(directory.none_runs(&config).into());
        }
        Ok(Self { directory, layout: config.layout(), config })
    }

    /// The same for a cluster that must have `group`.
    pub(super) fn with_group(global: &Global, group: u16) -> anyhow::Result<Self> {
        let this = Self::find(global)?;
        let groups = this.layout.topology().groups;
        if group >= groups {
            return Err(usage(format_args!(
                "no group {group}: this cluster has {groups}, numbered from 0"
            )));
        }
        Ok(this)
    }

    /// Whether its nodes keep on disk all that they acknowledge.
    pub(super) fn is_on_disk(&self) -> bool {
        self.config.durability == Durability::Sync
    }

    /// The replica in a slot of a group. The slot must exist.
    pub(super) fn replica(&self, group: u16, slot: u8) -> anyhow::Result<ReplicaId> {
        let slots = self.layout.topology().replicas;
        if slot >= slots {
            return Err(usage(format_args!(
                "no slot {slot} in group {group}: it has {slots}, numbered from 0"
            )));
        }
        Ok(ReplicaId::new(GroupId(group), slot))
    }

    pub(super) fn view(&self) -> View {
        View { nodes: nodes::statuses(&self.directory, self.layout.topology().nodes) }
    }

    /// Sends an action to a node. An error says what to do next.
    pub(super) fn ask(&self, node: u16, action: Action) -> anyhow::Result<NodeStatus> {
        // The socket of a node of another host exists here if it was forwarded.
        let is_forwarded = || self.host_of(node).is_some() && self.directory.socket(node).exists();
        if self.directory.node(node).is_none() && !is_forwarded() {
            return Err(self.not_running(node));
        }
        admin::call(&self.directory, node, action, ANSWER_WITHIN)
            .map_err(|error| anyhow!("node {node}: {error}"))
    }

    /// Why a node that does not run here cannot be asked, and what to do.
    pub(super) fn not_running(&self, node: u16) -> anyhow::Error {
        match self.host_of(node) {
            Some(address) => anyhow!(
                "node {node} belongs to another host, the one with the address {address}: give this \
                 command there, or forward its admin socket to {}, as `ssh -N -L` does",
                self.directory.socket(node).display()
            ),
            None => anyhow!("node {node} does not run: `skein node --index {node}` starts it"),
        }
    }

    /// The address of a node that another host runs.
    pub(super) fn host_of(&self, node: u16) -> Option<&str> {
        self.directory.host_of(&self.config, node)
    }

    /// Checks that the node exists, and returns it.
    pub(super) fn node(&self, node: u16) -> anyhow::Result<u16> {
        let nodes = self.layout.topology().nodes;
        if node >= nodes {
            return Err(usage(format_args!(
                "no node {node}: this cluster has {nodes}, numbered from 0"
            )));
        }
        Ok(node)
    }

    /// Why a node did not answer, and what to do.
    pub(super) fn unanswered(&self, node: u16, error: &CallError) -> anyhow::Error {
        let socket = self.directory.socket(node);
        match self.host_of(node) {
            Some(address) if socket.exists() => anyhow!(
                "node {node} belongs to another host, the one with the address {address}, and cannot be \
                 reached by {}, to which its admin socket is forwarded: {error}",
                socket.display()
            ),
            None if self.directory.node(node).is_some() => {
                anyhow!("node {node} cannot be reached: {error}")
            }
            _ => self.not_running(node),
        }
    }

    /// Whether other hosts run some of the nodes.
    pub(super) fn has_several_hosts(&self) -> bool {
        (0..self.layout.topology().nodes).any(|node| self.host_of(node).is_some())
    }

    /// Polls all nodes until `seen` returns a value, or the deadline passes.
    pub(super) fn wait<T>(&self, mut seen: impl FnMut(&View) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + DONE_WITHIN;
        loop {
            if let Some(found) = seen(&self.view()) {
                return Some(found);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl View {
    /// The reports on replicas of `group` by the nodes that answered.
    pub(super) fn replicas(&self, group: u16) -> impl Iterator<Item = &ReplicaReport> {
        let all = self.nodes.iter().flatten().flat_map(|status| &status.replicas);
        all.filter(move |replica| replica.order.group == group)
    }

    pub(super) fn replica(&self, id: ReplicaId) -> Option<&ReplicaReport> {
        self.replicas(id.group.0).find(|replica| replica.order.slot == id.slot)
    }

    /// The leader of `group` with a quorum.
    pub(super) fn leader(&self, group: u16) -> Option<&ReplicaReport> {
        let leads = |replica: &&ReplicaReport| {
            replica.order.role == Role::Leader && replica.order.available
        };
        self.replicas(group).filter(leads).max_by_key(|replica| replica.order.ballot_counter)
    }
}

/// `slot 1 of group 0, on node 1`
pub(super) fn name(layout: &Layout, id: ReplicaId) -> String {
    format!("slot {} of group {}, on node {}", id.slot, id.group.0, layout.node_of(id))
}
