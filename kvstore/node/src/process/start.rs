//! The start of a node's engines, and of the log on disk that they share.

#[cfg(feature = "rocksdb")]
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};

use skein_cluster::config::{ClusterConfig, Durability, FabricKind, StoreKind};
use skein_cluster::directory::{Directory, DirectoryError, Manifest, failed};
use skein_cluster::identity;
use skein_cluster::network::{self, Who};
use skein_fabric::shm::Host;
use skein_fabric::{Fabric, FabricError};
use skein_kvstore::machine::Machine;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::endpoint_name;
use skein_multicast::disk::Disk;
use skein_multicast::engine::Engine;
use skein_multicast::operate::Identity;
use skein_multicast::roster::{Roster, Seen};
use skein_wal::disk::{DiskError, Wake};

use super::stores::{self, InMemory, Stores};
use super::{Alarm, DISK_FAILED, NodeError, Worker};
use crate::disk::{NodeLog, as_io};

/// Arguments for the start of a node's engines.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) directory: &'a Directory,
    pub(super) manifest: &'a Manifest,
    pub(super) config: &'a ClusterConfig,
    pub(super) node: u16,
    pub(super) incarnation: u32,
    pub(super) roster: &'a Arc<Roster>,
    /// Why the log on disk has failed, if it has.
    pub(super) failure: &'a Arc<OnceLock<io::Error>>,
}

/// The node's own identity, and its record of the other nodes.
pub(super) fn roster(
    directory: &Directory,
    node: u16,
    incarnation: u32,
) -> Result<Roster, DirectoryError> {
    let (replaced, identity) = identity::read(&directory.node_identity(node))?;
    let peers = identity::peers(&directory.node_peers(node))?;
    let own = Seen { replaced, identity, incarnation, process: identity::random() };
    Ok(Roster::new(node, own, peers.others))
}

/// Starts the node's engines on the configured fabric. `begin` begins the node's incarnation.
pub(super) fn start_engines(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
) -> Result<(Vec<Worker>, Option<NodeLog>), NodeError> {
    let Start { manifest, config, node, .. } = start;
    match config.network.fabric {
        FabricKind::Shm => {
            let host = Host::at(&manifest.regions)?;
            start_engines_on(start, alarm, begin, |name| {
                let fabric = host.join(name)?;
                let (mut waker, mut other) = (fabric.waker(), fabric.waker());
                Ok((fabric, move || waker.wake(), move || other.wake()))
            })
        }
        FabricKind::Tcp => {
            let net = network::net(config, &manifest.cluster, Who::Node(node));
            let net = net.map_err(DirectoryError::from)?;
            start_engines_on(start, alarm, begin, |name| {
                let fabric = net.join(name)?;
                let (mut waker, mut other) = (fabric.waker(), fabric.waker());
                Ok((fabric, move || waker.wake(), move || other.wake()))
            })
        }
        #[cfg(feature = "verbs")]
        FabricKind::Verbs => {
            let net = network::net(config, &manifest.cluster, Who::Node(node));
            let net = net.map_err(DirectoryError::from)?;
            let cards = network::cards(config);
            start_engines_on(start, alarm, begin, |name| {
                let fabric = skein_fabric::verbs::VerbsFabric::join(&net, name, &cards)?;
                let (mut waker, mut other) = (fabric.waker(), fabric.waker());
                Ok((fabric, move || waker.wake(), move || other.wake()))
            })
        }
        #[cfg(not(feature = "verbs"))]
        FabricKind::Verbs => Err(DirectoryError::from(network::NetworkError::NoVerbs).into()),
    }
}

/// Starts engines whose replicas have the configured store.
fn start_engines_on<F, W, D>(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
    join: impl Fn(&str) -> Result<(F, W, D), FabricError>,
) -> Result<(Vec<Worker>, Option<NodeLog>), NodeError>
where
    F: Fabric + Send + 'static,
    W: FnMut() + Send + 'static,
    D: FnMut() + Send + 'static,
{
    match start.config.store {
        StoreKind::Memory => start_engines_with::<_, _, _, InMemory>(start, alarm, begin, join),
        #[cfg(feature = "rocksdb")]
        StoreKind::Rocksdb => {
            let stores = start.directory.node_stores(start.node);
            match fs::remove_dir_all(&stores) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &stores)(error).into());
                }
                _ => {}
            }
            start_engines_with::<_, _, _, super::stores::OnDisk>(start, alarm, begin, join)
        }
        #[cfg(not(feature = "rocksdb"))]
        StoreKind::Rocksdb => Err(DirectoryError::NoRocksdb.into()),
    }
}

/// Starts engines, which `join` under their names. All of them have joined and have their memory before the node's
/// incarnation begins, and none takes a turn before. `join` returns two ways to wake an engine, one for the disk threads
/// and those of stores.
fn start_engines_with<F, W, D, St>(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
    join: impl Fn(&str) -> Result<(F, W, D), FabricError>,
) -> Result<(Vec<Worker>, Option<NodeLog>), NodeError>
where
    F: Fabric + Send + 'static,
    W: FnMut() + Send + 'static,
    D: FnMut() + Send + 'static,
    St: Stores,
{
    let Start { directory, manifest, config, node, incarnation, roster, .. } = start;
    let layout = config.layout();
    let topology = layout.topology();
    let slots = SlotMap::even(topology.groups);
    let (mut joined, mut wakes) = (Vec::new(), Vec::new());
    for number in 0..topology.engines {
        let name = endpoint_name(node, number);
        let (fabric, wake, wake_for_disk) = join(&name)?;
        let wake_for_disk = Mutex::new(wake_for_disk);
        let wake_for_disk: stores::Wake = Arc::new(move || {
            if let Ok(mut wake) = wake_for_disk.lock() {
                wake();
            }
        });
        let of_stores = wake_for_disk.clone();
        wakes.push(Box::new(move || wake_for_disk()) as Wake);
        joined.push((name, fabric, wake, of_stores));
    }
    let (disk, logs) = open_log(start, alarm, wakes)?;
    let mut engines = Vec::new();
    for (number, ((name, fabric, wake, of_stores), log)) in (0..).zip(joined.into_iter().zip(logs))
    {
        let (slots, limits, place) = (slots.clone(), config.limits, layout.clone());
        let mut stores = St::open(start, number, &of_stores)?;
        let machine =
            move |id| Machine::with_store(stores.take(id), id, &place, slots.clone(), limits);
        let me = Identity { node, engine: number, incarnation };
        let roster = Arc::clone(roster);
        let engine = Engine::with_roster(fabric, &layout, config.tuning, me, roster, log, machine)?;
        engines.push((name, engine, wake));
    }
    begin()?;
    let mut workers = Vec::new();
    for (name, mut engine, wake) in engines {
        engine.replay().map_err(|(replica, why)| {
            let (data, why) = (directory.node_data(node), why.to_string());
            NodeError::NotReplayed { replica, data, why }
        })?;
        let alarm = Alarm(alarm.try_clone().map_err(failed("prepare", &manifest.regions))?);
        let worker = Worker::start(name, engine, config.waiting, wake, alarm);
        workers.push(worker.map_err(failed("start a thread of", &manifest.regions))?);
    }
    Ok((workers, disk))
}

/// The accesses of the engines to the node's log on disk.
type EngineLogs = Vec<Option<Box<dyn Disk>>>;

/// Opens the node's log on disk, if the cluster is durable, with an access for each engine.
fn open_log(
    start: Start<'_>,
    alarm: &UnixStream,
    wakes: Vec<Wake>,
) -> Result<(Option<NodeLog>, EngineLogs), NodeError> {
    let Start { directory, manifest, config, node, incarnation, failure, .. } = start;
    if config.durability == Durability::Memory {
        return Ok((None, wakes.iter().map(|_| None).collect()));
    }
    let end = alarm.try_clone().map_err(failed("prepare", &manifest.regions))?;
    let failure = Arc::downgrade(failure);
    let fails = move |error: &DiskError| {
        tracing::error!(%error, "the log on disk cannot be written");
        if let Some(failure) = failure.upgrade() {
            let _ = failure.set(as_io(error));
        }
        let _ = io::Write::write(&mut &end, &[DISK_FAILED]);
    };
    let opened = NodeLog::open(directory, manifest, config, (node, incarnation), wakes, fails);
    let (log, engines) = opened.map_err(|why| NodeError::Log { node, why })?;
    let boxed = |engine| Some(Box::new(engine) as Box<dyn Disk>);
    Ok((Some(log), engines.into_iter().map(boxed).collect()))
}
