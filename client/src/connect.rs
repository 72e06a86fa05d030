//! Connects drivers to clusters.

use std::path::Path;
use std::time::Duration;

use skein_cluster::config::ClusterConfig;
use skein_cluster::directory::{Directory, DirectoryError, Ground, RunningCluster};
use skein_fabric::FabricError;
use skein_fabric::any::AnyFabric;
use skein_kvstore::slots::SlotMap;

use crate::driver::{Driver, Shape};

/// Reasons why a client cannot connect to a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No cluster runs there, or one of another build.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The cluster's memory cannot be reached.
    #[error("cannot reach the cluster's memory: {0}")]
    Fabric(#[from] FabricError),
    /// The client's thread could not be started, or ended at once.
    #[error("cannot start the client's thread: {0}")]
    Thread(String),
}

impl Driver<AnyFabric> {
    /// A driver for the cluster that runs in the directory `dir`, or whose configuration file `dir` is.
    pub fn connect(dir: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let found = Directory::connect(dir.as_ref())?;
        let mut driver = Self::to(&found)?;
        driver.found_in(dir.as_ref(), &found.manifest);
        Ok(driver)
    }

    /// A driver for a cluster that was found in its directory.
    pub fn to(cluster: &RunningCluster) -> Result<Self, ConnectError> {
        Ok(Self::new(join(&cluster.ground()?)?, Shape::of(&cluster.config)))
    }
}

impl Shape {
    /// The shape with which a cluster of this configuration begins.
    pub fn of(config: &ClusterConfig) -> Self {
        Self {
            layout: config.layout(),
            tuning: config.tuning,
            slots: SlotMap::even(config.topology.groups),
            limits: config.limits,
            waiting: config.waiting,
        }
    }
}

/// Time that a client waits for a node that it connects to for the first time: otherwise the whole cluster would seem
/// to be gone.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Joins `ground` under a unique name.
pub(crate) fn join(ground: &Ground) -> Result<AnyFabric, FabricError> {
    let name = format!("c{}-{:08x}", std::process::id(), rand::random::<u32>());
    match ground {
        Ground::Host(host) => Ok(host.join(&name)?.into()),
        Ground::Net(net) => {
            let mut fabric = net.visit(&name)?;
            fabric.set_dial_timeout(TIMEOUT);
            Ok(fabric.into())
        }
        #[cfg(feature = "verbs")]
        Ground::Cards(net, cards) => {
            match skein_fabric::verbs::VerbsFabric::visit(net, &name, cards) {
                Ok(mut fabric) => {
                    fabric.set_dial_timeout(TIMEOUT);
                    Ok(fabric.into())
                }
                // The nodes also serve clients without a usable card, over TCP.
                Err(error) => {
                    tracing::info!(%error, "no RDMA card here: over tcp");
                    join(&Ground::Net(net.clone()))
                }
            }
        }
    }
}
