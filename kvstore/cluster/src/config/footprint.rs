//! How much shared memory a cluster takes, computed before it is asked for.

use super::ClusterConfig;

/// Bytes of shared memory, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The logs of all replicas.
    pub logs: u64,
    /// The rings between the replicas of a group.
    pub within_groups: u64,
    /// The rings between replicas of different groups, if all of them talk to each other.
    pub across_groups_max: u64,
    /// What the rings of sessions may grow to at the nodes, all engines together.
    pub sessions_max: u64,
}

impl Footprint {
    /// Of a cluster so configured.
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

    /// What must be there for the cluster to start.
    pub fn at_start(&self) -> u64 {
        self.logs + self.within_groups
    }

    /// What it may grow to. A log that a leader writes has its next grant's file beside it.
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
