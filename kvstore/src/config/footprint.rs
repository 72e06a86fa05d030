//! How much shared memory a cluster takes, computed before it is asked for.

use super::ClusterConfig;

/// Bytes of shared memory, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The logs of all replicas.
    pub logs: u64,
    /// The rings between replicas.
    pub peers: u64,
    /// What the rings of sessions may grow to, all engines together.
    pub sessions_max: u64,
}

impl Footprint {
    /// Of a cluster so configured.
    pub fn of(config: &ClusterConfig) -> Self {
        let topology = &config.topology;
        let replicas = u64::from(topology.groups) * u64::from(topology.replicas);
        let engines = u64::from(topology.nodes) * u64::from(topology.engines);
        Self {
            logs: replicas * config.tuning.log_bytes as u64,
            peers: replicas * (replicas - 1) * config.tuning.peer_ring_bytes as u64,
            sessions_max: engines * config.tuning.rings_bytes_max as u64,
        }
    }

    /// What must be there for the cluster to start.
    pub fn at_start(&self) -> u64 {
        self.logs + self.peers
    }

    /// What it may grow to.
    pub fn most(&self) -> u64 {
        self.at_start() + self.sessions_max
    }
}
