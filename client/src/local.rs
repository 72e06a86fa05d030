//! A cluster inside the calling process, for the tests of applications: no files, no other processes.
//!
//! The nodes' engine threads, the protocol and the store are those of a real cluster; only their shared memory is
//! private to this process. A cluster starts within milliseconds, and any number can run side by side.
//!
//! ```
//! use skein_client::local::Cluster;
//!
//! let cluster = Cluster::local()?;
//! let mut client = cluster.client()?;
//! client.put("greeting", "hello")?;
//! assert_eq!(client.get("greeting")?.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Test your application against failover
//!
//! Nodes can be [killed](Cluster::kill_node), [restarted](Cluster::restart_node), and [paused](Cluster::pause_node) for
//! a while, as happens in production. A node that was killed has lost its memory: the other nodes transfer their state
//! to it while they serve.
//!
//! ```
//! use std::time::Duration;
//! use skein_client::local::Cluster;
//!
//! let cluster = Cluster::local()?;
//! let mut client = cluster.client()?;
//! for round in 1..=3 {
//!     let leader = cluster.leader_of(0).expect("somebody leads");
//!     cluster.kill_node(leader)?;
//!     // The client waits for another leader, and counts once.
//!     assert_eq!(client.increment("count", 1)?, round);
//!     cluster.restart_node(leader)?;
//!     assert!(cluster.wait_until_whole(Duration::from_secs(10)));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod node;

pub use skein_multicast::trees::Shape as TreeShape;

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use skein_cluster::directory::Ground;
use skein_fabric::FabricError;
use skein_fabric::any::AnyFabric;
use skein_fabric::shm::Host;
use skein_fabric::wait::Waiting;
use skein_kvstore::limits::Limits;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::{Conflict, Topology, Tuning};
use skein_multicast::layout::Layout;
use skein_multicast::operate::{ReplicaStatus, Role};
use skein_multicast::trees::ShapeError;
use skein_node::engine::EngineStatus;

use self::node::Node;
use crate::asynchronous::{self, Io};
use crate::blocking::Client;
use crate::connect::{ConnectError, join};
use crate::driver::{Driver, Shape};

/// Time that all engines may take to connect and to elect leaders.
const START_MAX: Duration = Duration::from_secs(10);
/// Interval between checks of an awaited condition.
const CHECK_EVERY: Duration = Duration::from_micros(200);

/// A cluster in this process. Dropping it stops it and waits for its threads to end. The drop panics if replicas were
/// found to hold different states, because no observation of such a cluster is valid.
pub struct Cluster {
    host: Host,
    shape: Shape,
    nodes: Vec<Mutex<Node>>,
    io: Mutex<Weak<Io>>,
}

/// Reasons why a cluster did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Settings that cannot work, alone or together.
    #[error("{0}")]
    Conflict(Conflict),
    /// The shape is no tree of the shards.
    #[error("the shards cannot be ordered along that tree: {0}")]
    NoTree(#[from] ShapeError),
    /// The fabric cannot be used, for want of memory for instance.
    #[error("cannot start the cluster: {0}")]
    Fabric(#[from] FabricError),
    /// The system cannot start another thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The engines did not connect and elect leaders in time: the machine is badly overloaded.
    #[error("the cluster's engines did not all connect and elect leaders within {0:?}")]
    Slow(Duration),
    /// The cluster has no such node.
    #[error(transparent)]
    NoSuchNode(#[from] NoSuchNode),
    /// The node has used all its incarnations.
    #[error("node {node} has used all its incarnations: start another cluster")]
    WornOut {
        /// Number of the node.
        node: u16,
    },
}

/// The cluster has no such node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no node {node}: the cluster has nodes 0 to {}", .nodes - 1)]
pub struct NoSuchNode {
    pub node: u16,
    /// Number of nodes of the cluster.
    pub nodes: u16,
}

/// Configuration of a cluster, from [`Cluster::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    topology: Topology,
    order: Option<TreeShape>,
    tuning: Tuning,
    limits: Limits,
    waiting: Waiting,
}

impl Builder {
    /// Number of nodes; 3 by default.
    #[must_use]
    pub fn nodes(mut self, nodes: u16) -> Self {
        self.topology.nodes = nodes;
        self
    }

    /// Number of shards; 2 by default.
    #[must_use]
    pub fn groups(mut self, groups: u16) -> Self {
        self.topology.groups = groups;
        self
    }

    /// Number of replicas of each shard; 3 by default.
    #[must_use]
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.topology.replicas = replicas;
        self
    }

    /// Number of engine threads of each node; 1 by default.
    #[must_use]
    pub fn engines(mut self, engines: u16) -> Self {
        self.topology.engines = engines;
        self
    }

    /// Orders transactions of several shards along a tree of the shards, as `order.protocol = "tram"` does. By default
    /// they are ordered by RamCast, among the shards of each transaction.
    ///
    /// ```
    /// use skein_client::local::{Cluster, TreeShape};
    /// let cluster = Cluster::builder().groups(3).along(TreeShape::Depth).start()?;
    /// # Ok::<(), skein_client::local::StartError>(())
    /// ```
    #[must_use]
    pub fn along(mut self, tree: TreeShape) -> Self {
        self.order = Some(tree);
        self
    }

    /// Limits of keys, values and transactions.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The sizes of memory and the bounds of queues.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// How the engines and clients wait for each other. The default, [`Waiting::Adaptive`], lets many clusters share a
    /// few cores.
    #[must_use]
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// Starts the cluster, and returns when it can serve.
    pub fn start(self) -> Result<Cluster, StartError> {
        let Self { topology, order, tuning, limits, waiting } = self;
        let mut layout = Layout::propose(topology).map_err(StartError::Conflict)?;
        if let Some(shape) = order {
            layout = layout.along(&shape.tree(topology.groups)?).expect("of as many groups");
        }
        tuning.check().map_err(StartError::Conflict)?;
        limits.check().map_err(StartError::Conflict)?;
        let slots = SlotMap::even(topology.groups);
        let shape = Shape { layout, tuning, slots, limits, waiting };
        let host = Host::anonymous();
        let nodes: Vec<_> = (0..topology.nodes).map(|node| Mutex::new(Node::new(node))).collect();
        let cluster = Cluster { host, shape, nodes, io: Mutex::default() };
        for node in &cluster.nodes {
            lock(node).start(&cluster.host, &cluster.shape)?;
        }
        if !cluster.wait_until_whole(START_MAX) {
            return Err(StartError::Slow(START_MAX));
        }
        Ok(cluster)
    }
}

impl Cluster {
    /// Starts three nodes with two shards of three replicas each.
    pub fn local() -> Result<Self, StartError> {
        Self::builder().start()
    }

    /// Configures a cluster of another shape.
    ///
    /// ```
    /// use skein_client::local::Cluster;
    /// let cluster = Cluster::builder().nodes(5).groups(4).replicas(5).start()?;
    /// # Ok::<(), skein_client::local::StartError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder {
            topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
            order: None,
            tuning: Tuning::default(),
            limits: Limits::default(),
            waiting: Waiting::Adaptive,
        }
    }

    /// A client for a thread.
    pub fn client(&self) -> Result<Client, FabricError> {
        Ok(Client::over(self.driver()?))
    }

    /// A client for tasks. All clients of the cluster share one thread.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let cluster = skein_client::local::Cluster::local()?;
    /// let client = cluster.async_client()?;
    /// client.put("greeting", "hello").await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn async_client(&self) -> Result<asynchronous::Client, ConnectError> {
        let mut shared = lock(&self.io);
        let io = match shared.upgrade() {
            Some(io) => io,
            None => Io::over(self.driver()?)?,
        };
        *shared = std::sync::Arc::downgrade(&io);
        Ok(asynchronous::Client::on(io))
    }

    /// A driver of many sessions.
    pub fn driver(&self) -> Result<Driver<AnyFabric>, FabricError> {
        Ok(Driver::new(join(&Ground::Host(self.host.clone()))?, self.shape.clone()))
    }

    /// Status of the engines that run.
    pub fn status(&self) -> Vec<EngineStatus> {
        self.nodes.iter().flat_map(|node| lock(node).status()).collect()
    }

    /// Kills node `node`, as `kill -9` kills a process: it sends nothing more, and its memory is lost. A node that does
    /// not run is left as it is.
    pub fn kill_node(&self, node: u16) -> Result<(), NoSuchNode> {
        self.node(node)?.kill();
        Ok(())
    }

    /// Restarts node `node`; if it runs, it is killed first. Returns when it runs; it has its state again when [the
    /// cluster is whole](Self::wait_until_whole).
    pub fn restart_node(&self, node: u16) -> Result<(), StartError> {
        let mut node = self.node(node)?;
        node.kill();
        node.start(&self.host, &self.shape)
    }

    /// Pauses node `node`, as `SIGSTOP` pauses a process: it does nothing, and the others cannot distinguish it from a
    /// dead node. A node that does not run is left as it is.
    pub fn pause_node(&self, node: u16) -> Result<(), NoSuchNode> {
        self.node(node)?.pause(true);
        Ok(())
    }

    /// Resumes a node that was [paused](Self::pause_node).
    pub fn resume_node(&self, node: u16) -> Result<(), NoSuchNode> {
        self.node(node)?.pause(false);
        Ok(())
    }

    /// The node whose replica leads group `group`, according to the nodes that run. If several replicas claim to lead,
    /// the highest ballot decides.
    pub fn leader_of(&self, group: u16) -> Option<u16> {
        let leads =
            |replica: &ReplicaStatus| replica.group == group && replica.role == Role::Leader;
        let leaders = self.replicas().into_iter().filter(|(_, replica)| leads(replica));
        let latest = leaders.max_by_key(|(_, replica)| replica.ballot_counter);
        latest.map(|(node, _)| node)
    }

    /// Waits until every node runs, every group has a leader, and every replica is a member of its group that is not
    /// lagging. Returns whether that was so within `longest`.
    pub fn wait_until_whole(&self, longest: Duration) -> bool {
        let started = Instant::now();
        while !self.is_whole() {
            if started.elapsed() > longest {
                return false;
            }
            std::thread::sleep(CHECK_EVERY);
        }
        true
    }

    fn is_whole(&self) -> bool {
        let topology = self.shape.layout.topology();
        let replicas = self.replicas();
        let all = usize::from(topology.groups) * usize::from(topology.replicas);
        let counts = |replica: &ReplicaStatus| {
            let leads = replica.role == Role::Leader;
            let follows = replica.role == Role::Follower;
            let waits = |slot: &u8| replica.learners.iter().any(|learner| learner.slot == *slot);
            let lacks = replica.view.iter().any(|it| it.evicted || !it.alive || waits(&it.slot));
            replica.available && (follows || leads && !lacks)
        };
        replicas.len() == all
            && replicas.iter().all(|(_, replica)| counts(replica))
            && (0..topology.groups).all(|group| self.leader_of(group).is_some())
    }

    /// Status of each replica, with its node.
    fn replicas(&self) -> Vec<(u16, ReplicaStatus)> {
        let of = |node: &Mutex<Node>| lock(node).status();
        let engines = (0..)
            .zip(&self.nodes)
            .flat_map(|(number, node)| of(node).into_iter().map(move |engine| (number, engine)));
        let replicas = engines.flat_map(|(number, engine)| {
            engine.replicas.into_iter().map(move |report| (number, report.order))
        });
        replicas.collect()
    }

    fn node(&self, node: u16) -> Result<MutexGuard<'_, Node>, NoSuchNode> {
        let found = self.nodes.get(usize::from(node)).map(lock);
        found.ok_or(NoSuchNode { node, nodes: self.shape.layout.topology().nodes })
    }
}

/// Locks a mutex. A panic elsewhere does no harm, because nothing under a lock of this file can be left incomplete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // No observation of a cluster whose replicas have diverged is valid.
        let replicas = self.replicas().into_iter();
        let diverged = replicas.filter_map(|(node, it)| Some((node, it.group, it.divergence?)));
        let diverged: Vec<_> = diverged.collect();
        for node in &self.nodes {
            lock(node).stop();
        }
        assert!(
            diverged.is_empty() || std::thread::panicking(),
            "replicas have diverged: node, group, what is known: {diverged:?}"
        );
    }
}
