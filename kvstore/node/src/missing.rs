//! Nodes of a durable cluster whose data is gone, and which of them are not to be started.

use std::collections::BTreeSet;
use std::io;

use skein_cluster::config::{ClusterConfig, Durability};
use skein_cluster::directory::Directory;
use skein_cluster::network::elsewhere;
use skein_protocol::ids::GroupId;
use skein_wal::files::{FileError, FileName, Files as _, View};

/// Both copies of a short header, in bytes.
const HEADERS_BYTES: u64 = 8192;

/// Whether the data of a node is gone: it has run, and there is no log of it.
pub fn is_missing(directory: &Directory, node: u16) -> bool {
    directory.incarnations(node).is_ok_and(|starts| starts > 0) && !has_log(directory, node)
}

/// Whether there is a log of a node.
pub(crate) fn has_log(directory: &Directory, node: u16) -> bool {
    let view = View::of(&directory.node_data(node));
    // A file that was prepared to be a segment holds nothing.
    let holds_something = |file: FileName, length: u64| {
        let mut beginning = vec![0; length.min(HEADERS_BYTES) as usize];
        view.read(file, 0, &mut beginning).is_err() || beginning.iter().any(|byte| *byte != 0)
    };
    match view.list() {
        Ok(files) => files.into_iter().any(|(file, length)| {
            matches!(file, FileName::Segment(_)) && holds_something(file, length)
        }),
        Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => false,
        // The node itself says why it cannot be read.
        Err(_) => true,
    }
}

/// Nodes whose data is gone and without which a group has no quorum. Started, their replicas would begin without a
/// state, and the group would be lost, even if the data is found again.
pub fn indispensable(directory: &Directory, config: &ClusterConfig) -> BTreeSet<u16> {
    // With async, what is lost with a disk is found when the cluster returns.
    if config.durability != Durability::Sync {
        return BTreeSet::new();
    }
    let missing = (0..config.topology.nodes).filter(|node| is_missing(directory, *node));
    needed(config, &missing.collect())
}

/// Whether a group has no quorum without `node`, which runs and whose data is gone: too few others run and have theirs.
pub(crate) fn is_needed(directory: &Directory, config: &ClusterConfig, node: u16) -> bool {
    let lacks = |other: u16| {
        // What is on other hosts cannot be seen from here.
        let here = elsewhere(config, other).is_none();
        other == node || here && (directory.node(other).is_none() || !has_log(directory, other))
    };
    needed(config, &(0..config.topology.nodes).filter(|other| lacks(*other)).collect())
        .contains(&node)
}

/// Those of the `missing` nodes that a quorum of some group needs.
pub(crate) fn needed(config: &ClusterConfig, missing: &BTreeSet<u16>) -> BTreeSet<u16> {
    let layout = config.layout();
    let mut needed = BTreeSet::new();
    for group in 0..config.topology.groups {
        let replicas = config.topology.replicas_of(GroupId(group));
        let (gone, there): (BTreeSet<u16>, BTreeSet<u16>) = replicas
            .map(|replica| layout.node_of(replica))
            .partition(|node| missing.contains(node));
        if there.len() < config.topology.quorum() {
            needed.extend(gone);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;

    use super::*;

    #[test]
    fn a_node_is_held_back_if_a_group_needs_its_data() {
        // g0 is on nodes 0, 1 and 2, and g1 on nodes 1, 2 and 3.
        let topology = Topology { nodes: 4, groups: 2, replicas: 3, engines: 1 };
        let config = ClusterConfig { topology, ..ClusterConfig::default() };
        #[rustfmt::skip]
        let cases: [(&[u16], &[u16], &str); 5] = [
            // missing       held back     because
            (&[],            &[],          "nothing is missing"),
            (&[2],           &[],          "each group has two others"),
            (&[0, 3],        &[],          "they have no group in common"),
            (&[2, 3],        &[2, 3],      "of g1 one is left"),
            (&[0, 2, 3],     &[0, 2, 3],   "of g0, too"),
        ];
        for (missing, held, because) in cases {
            let found = needed(&config, &missing.iter().copied().collect());
            assert_eq!(found, held.iter().copied().collect(), "{because}");
        }
    }
}
