//! Shared memory that a cluster takes, computed before it is allocated.

use super::ClusterConfig;

/// Bytes of shared memory, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Logs of all replicas.
    pub logs: u64,
    /// Rings between the replicas of a group.
    pub within_groups: u64,
    /// Rings between replicas of different groups, if all pairs communicate.
    pub across_groups_max: u64,
    /// Maximum of the session rings at the nodes, over all engines.
    pub sessions_max: u64,
}

impl Footprint {
    /// Footprint of a cluster with this configuration.
    pub fn of(config: &ClusterConfig) -> Self {
        let topology = &config.topology;
        let (groups, slots) = (u64::from(topology.groups), u64::from(topology.replicas));
        let engines = u64::from(topology.nodes) * u64::from(topology.engines);
        let replicas = groups * slots;
        let ring = config.tuning.peer_ring_bytes as u64;
        Self {
            logs: replicas * config.tuning.log_bytes as u64,
            within_groups: replicas * (slots - 1) * ring,
            across_groups_max: replicas * (replicas - slots) * ring,
            sessions_max: engines * config.tuning.rings_bytes_max as u64,
        }
    }

    /// Bytes that must be free for the cluster to start.
    pub fn at_start(&self) -> u64 {
        self.logs + self.within_groups
    }

    /// Largest size. Each log may have the file of its leader's next grant beside it.
    pub fn most(&self) -> u64 {
        self.at_start() + self.logs + self.across_groups_max + self.sessions_max
    }
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::{Topology, Tuning};

    use super::*;

    const LIMIT: u64 = 2 << 30;

    #[test]
    fn a_thousand_sessions_of_eight_groups_fit_into_two_gigabytes() {
        let topology = Topology { nodes: 3, groups: 8, replicas: 3, engines: 1 };
        let config = ClusterConfig { topology, ..ClusterConfig::default() };
        let tuning = Tuning::default();
        let rings = 1_000 * 24 * 2 * tuning.ring_bytes as u64;
        assert!(rings + Footprint::of(&config).at_start() <= LIMIT, "as they are opened");
        let grown = Footprint::of(&config).sessions_max + tuning.rings_bytes_max as u64;
        assert!(grown <= LIMIT, "as far as they may grow, at the nodes and in the client process");
    }
}
