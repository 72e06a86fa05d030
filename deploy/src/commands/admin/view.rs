//! A cluster as its nodes see it, and how to ask one of them for something.

use std::time::Instant;

use anyhow::{anyhow, bail};
use skein_kvstore::node::admin::{self, Action, CallError};
use skein_kvstore::node::directory::{Directory, DirectoryError};
use skein_kvstore::node::status::{NodeStatus, ReplicaReport};
use skein_multicast::config::Topology;
use skein_multicast::operate::Role;
use skein_multicast::protocol::ids::{GroupId, ReplicaId};

use super::{ANSWER_WITHIN, DONE_WITHIN, POLL};
use crate::args::Global;
use crate::cluster;
use crate::exit::usage;

/// A running cluster.
pub(super) struct Running {
    pub(super) directory: Directory,
    pub(super) topology: Topology,
}

/// What its nodes said when they were last asked.
pub(super) struct View {
    /// By node.
    pub(super) nodes: Vec<Result<NodeStatus, CallError>>,
}

impl Running {
    /// The cluster that the command line names. It must have a node that runs.
    pub(super) fn find(global: &Global) -> anyhow::Result<Self> {
        let directory = Directory::at(&global.dir())?;
        let manifest = directory.manifest()?;
        manifest.check_build(&directory)?;
        if (0..manifest.nodes).all(|node| directory.node(node).is_none()) {
            let dir = directory.path().to_owned();
            return Err(DirectoryError::Stopped { dir, nodes: manifest.nodes }.into());
        }
        let topology = directory.config()?.topology;
        Ok(Self { directory, topology })
    }

    /// The same, and it must have that group.
    pub(super) fn with_group(global: &Global, group: u16) -> anyhow::Result<Self> {
        let this = Self::find(global)?;
        let groups = this.topology.groups;
        if group >= groups {
            return Err(usage(format_args!(
                "no group {group}: this cluster has {groups}, numbered from 0"
            )));
        }
        Ok(this)
    }

    /// That slot of a group, which must exist.
    pub(super) fn replica(&self, group: u16, slot: u8) -> anyhow::Result<ReplicaId> {
        let slots = self.topology.replicas;
        if slot >= slots {
            return Err(usage(format_args!(
                "no slot {slot} in group {group}: it has {slots}, numbered from 0"
            )));
        }
        Ok(ReplicaId::new(GroupId(group), slot))
    }

    pub(super) fn view(&self) -> View {
        View { nodes: cluster::statuses(&self.directory, self.topology.nodes) }
    }

    /// Asks a node for something; what keeps it from being done is said with what to do next.
    pub(super) fn ask(&self, node: u16, action: Action) -> anyhow::Result<NodeStatus> {
        if self.directory.node(node).is_none() {
            bail!("node {node} does not run: `skein node --index {node}` starts it");
        }
        admin::call(&self.directory, node, action, ANSWER_WITHIN)
            .map_err(|error| anyhow!("node {node}: {error}"))
    }

    /// Asks everybody again and again until `seen` finds what it looks for.
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
    /// What the replicas of `group` say that answer.
    pub(super) fn replicas(&self, group: u16) -> impl Iterator<Item = &ReplicaReport> {
        let all = self.nodes.iter().flatten().flat_map(|status| &status.replicas);
        all.filter(move |replica| replica.order.group == group)
    }

    pub(super) fn replica(&self, id: ReplicaId) -> Option<&ReplicaReport> {
        self.replicas(id.group.0).find(|replica| replica.order.slot == id.slot)
    }

    /// The one that leads `group`, with a quorum behind it.
    pub(super) fn leader(&self, group: u16) -> Option<&ReplicaReport> {
        let leads = |replica: &&ReplicaReport| {
            replica.order.role == Role::Leader && replica.order.available
        };
        self.replicas(group).filter(leads).max_by_key(|replica| replica.order.ballot_counter)
    }
}

/// `slot 1 of group 0, on node 1`
pub(super) fn name(topology: Topology, id: ReplicaId) -> String {
    format!("slot {} of group {}, on node {}", id.slot, id.group.0, topology.node_of(id))
}
