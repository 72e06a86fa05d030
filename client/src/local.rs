//! A cluster inside the calling process, for applications' own tests: no files, no other processes.
//!
//! The nodes' engine threads, the protocol and the store are those of a real cluster; only the
//! memory they share is this process's own. Starting one takes milliseconds, and any number can run
//! side by side.
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

use std::sync::{Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skein_fabric::FabricError;
use skein_fabric::shm::{Host, ShmFabric};
use skein_fabric::wait::Waiting;

use skein_kvstore::limits::Limits;
use skein_kvstore::machine::Machine;
use skein_kvstore::node::engine::{self, Control, EngineStatus};

use skein_kvstore::slots::SlotMap;
use skein_multicast::config::{Conflict, Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::operate::Identity;

use crate::asynchronous::{self, Io};
use crate::blocking::Client;
use crate::connect::{ConnectError, join};
use crate::driver::{Driver, Shape};

/// How long all engines may take to meet.
const START_MAX: Duration = Duration::from_secs(10);
/// How long an engine may take to say what it is doing.
const STATUS_MAX: Duration = Duration::from_secs(1);

/// A cluster in this process. Dropping it stops it, and waits for its threads to end.
pub struct Cluster {
    host: Host,
    shape: Shape,
    engines: Vec<RunningEngine>,
    io: Mutex<Weak<Io>>,
}

struct RunningEngine {
    control: Mutex<Control>,
    thread: Option<JoinHandle<Result<(), FabricError>>>,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two settings that cannot work together.
    #[error("{0}")]
    Conflict(Conflict),
    /// Memory or threads cannot be had.
    #[error("cannot start the cluster: {0}")]
    Fabric(#[from] FabricError),
    /// The system starts no more threads.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The engines did not meet in time: the machine is badly overloaded.
    #[error("the cluster's engines did not all meet within {0:?}")]
    Slow(Duration),
}

/// What [`Cluster::builder`] begins.
#[derive(Clone, Debug)]
pub struct Builder {
    topology: Topology,
    tuning: Tuning,
    limits: Limits,
    waiting: Waiting,
}

impl Builder {
    /// How many nodes: 3 unless said.
    #[must_use]
    pub fn nodes(mut self, nodes: u16) -> Self {
        self.topology.nodes = nodes;
        self
    }

    /// How many shards: 2 unless said.
    #[must_use]
    pub fn groups(mut self, groups: u16) -> Self {
        self.topology.groups = groups;
        self
    }

    /// How many replicas of each shard: 3 unless said.
    #[must_use]
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.topology.replicas = replicas;
        self
    }

    /// How many engine threads each node has: 1 unless said.
    #[must_use]
    pub fn engines(mut self, engines: u16) -> Self {
        self.topology.engines = engines;
        self
    }

    /// What commands may hold.
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

    /// How its engines and clients wait for each other. [`Waiting::Adaptive`], unless said, lets many
    /// clusters share a few cores.
    #[must_use]
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// Starts the cluster, and returns when it can serve.
    pub fn start(self) -> Result<Cluster, StartError> {
        let Self { topology, tuning, limits, waiting } = self;
        topology.check().map_err(StartError::Conflict)?;
        tuning.check().map_err(StartError::Conflict)?;
        limits.check().map_err(StartError::Conflict)?;
        let slots = SlotMap::even(topology.groups);
        let shape = Shape { topology, tuning, slots, limits, waiting };
        let host = Host::anonymous();
        let engines = Vec::new();
        let mut cluster = Cluster { host, shape, engines, io: Mutex::default() };
        for node in 0..topology.nodes {
            for engine in 0..topology.engines {
                let running = cluster.start_engine(node, engine)?;
                cluster.engines.push(running);
            }
        }
        cluster.wait_until_connected()?;
        Ok(cluster)
    }
}

impl Cluster {
    /// Three nodes with two shards of three replicas each.
    pub fn local() -> Result<Self, StartError> {
        Self::builder().start()
    }

    /// A cluster of another form.
    ///
    /// ```
    /// use skein_client::local::Cluster;
    /// let cluster = Cluster::builder().nodes(5).groups(4).replicas(5).start()?;
    /// # Ok::<(), skein_client::local::StartError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder {
            topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
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
        let mut shared = self.io.lock().unwrap_or_else(PoisonError::into_inner);
        let io = match shared.upgrade() {
            Some(io) => io,
            None => Io::over(self.driver()?)?,
        };
        *shared = std::sync::Arc::downgrade(&io);
        Ok(asynchronous::Client::on(io))
    }

    /// A driver of many sessions.
    pub fn driver(&self) -> Result<Driver<ShmFabric>, FabricError> {
        Ok(Driver::new(join(&self.host)?, self.shape.clone()))
    }

    /// What its engines are doing.
    pub fn status(&self) -> Vec<EngineStatus> {
        self.engines.iter().filter_map(RunningEngine::status).collect()
    }

    fn start_engine(&self, node: u16, engine: u16) -> Result<RunningEngine, StartError> {
        let Shape { topology, tuning, slots, limits, waiting } = self.shape.clone();
        let name = endpoint_name(node, engine);
        let fabric = self.host.join(&name)?;
        let mut waker = fabric.waker();
        let here =
            (0..topology.engines).map(|e| topology.replicas_on(node, e).len()).sum::<usize>();
        let machine = move |replica| Machine::new(replica, slots.clone(), limits, here as u16);
        let me = Identity::first(node, engine);
        let engine = Engine::new(fabric, topology, tuning, me, machine)?;
        let heartbeat = Duration::from_millis(tuning.heartbeat_ms);
        let (control, requests) = engine::control(move || waker.wake());
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || engine::run(engine, waiting, heartbeat, &requests, &mut || {}))?;
        Ok(RunningEngine { control: Mutex::new(control), thread: Some(thread) })
    }

    fn wait_until_connected(&self) -> Result<(), StartError> {
        let started = Instant::now();
        let met = |engine: &RunningEngine| engine.status().is_some_and(|status| status.connected);
        while !self.engines.iter().all(met) {
            if started.elapsed() > START_MAX {
                return Err(StartError::Slow(START_MAX));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl RunningEngine {
    fn status(&self) -> Option<EngineStatus> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).status(STATUS_MAX)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for engine in &self.engines {
            engine.control.lock().unwrap_or_else(PoisonError::into_inner).stop();
        }
        for thread in self.engines.iter_mut().filter_map(|engine| engine.thread.take()) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "an engine of a local cluster failed"),
                Err(_) if std::thread::panicking() => {}
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }
}
