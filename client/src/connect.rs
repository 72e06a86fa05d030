//! From a cluster's directory to a driver.

use std::path::Path;

use skein_fabric::FabricError;
use skein_fabric::shm::{Host, ShmFabric};
use skein_kvstore::node::directory::{Directory, DirectoryError, RunningCluster};
use skein_kvstore::slots::SlotMap;

use crate::driver::{Driver, Shape};

/// Why there is no connection to a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No cluster runs there, or none for this build.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The cluster's memory is out of reach.
    #[error("cannot reach the cluster's memory: {0}")]
    Fabric(#[from] FabricError),
    /// The system starts no more threads, or ended ours.
    #[error("cannot start the client's thread: {0}")]
    Thread(String),
}

impl Driver<ShmFabric> {
    /// A driver for the cluster that runs in `dir`.
    pub fn connect(dir: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Ok(Self::to(&Directory::connect(dir.as_ref())?)?)
    }

    /// A driver for a cluster that was found.
    pub fn to(cluster: &RunningCluster) -> Result<Self, FabricError> {
        let config = &cluster.config;
        let shape = Shape {
            topology: config.topology,
            tuning: config.tuning,
            slots: SlotMap::even(config.topology.groups),
            limits: config.limits,
            waiting: config.waiting,
        };
        let host = Host::at(&cluster.manifest.regions)?;
        Ok(Self::new(join(&host)?, shape))
    }
}

/// A fabric under a name that nobody else has.
pub(crate) fn join(host: &Host) -> Result<ShmFabric, FabricError> {
    host.join(&format!("c{}-{:08x}", std::process::id(), rand::random::<u32>()))
}
