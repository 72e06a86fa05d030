//! The start of a node's engines, and of the log on disk that they share.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use skein_cluster::config::{ClusterConfig, Durability, FabricKind, Protocol, StoreKind};
use skein_cluster::directory::{Directory, DirectoryError, Manifest, failed};
use skein_cluster::identity;
use skein_cluster::network::{self, Who};
use skein_fabric::any::AnyFabric;
use skein_fabric::shm::Host;
use skein_fabric::{Fabric, FabricError};
use skein_kvstore::machine::Machine;
use skein_kvstore::slots::SlotMap;
use skein_multicast::Links;
use skein_multicast::application::Stopped;
use skein_multicast::config::endpoint_name;
use skein_multicast::disk::Disk;
use skein_multicast::engine::Engine;
use skein_multicast::operate::Identity;
use skein_multicast::roster::{Roster, Seen};
use skein_protocol::ids::ReplicaId;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::tram::Tram;
use skein_wal::disk::{DiskError, Wake};

use super::stores::{self, InMemory, Stores};
use super::{Alarm, DISK_FAILED, NodeError, Worker};
use crate::disk::{NodeLog, as_io, with_causes};
use crate::points::choice;
use crate::points::log::EnginePoints;
use crate::points::marker::Marker;

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

/// What runs in a node.
pub(super) struct Engines {
    pub(super) workers: Vec<Worker>,
    pub(super) disk: Option<NodeLog>,
    pub(super) marker: Option<Marker>,
}

/// The node's own identity, and its record of the other nodes.
pub(super) fn roster(
    directory: &Directory,
    manifest: &Manifest,
    node: u16,
    incarnation: u32,
) -> Result<Roster, DirectoryError> {
    let (replaced, identity) = identity::read(&directory.node_identity(node))?;
    let peers = identity::peers(&directory.node_peers(node), &manifest.cluster)?;
    let own = Seen { replaced, identity, incarnation, process: identity::random() };
    Ok(Roster::new(node, own, peers.others))
}

/// Starts the node's engines on the configured fabric. `begin` begins the node's incarnation.
pub(super) fn start_engines(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
) -> Result<Engines, NodeError> {
    let Start { manifest, config, node, .. } = start;
    let visitor = format!("n{node}-points-{:08x}", rand::random::<u32>());
    match config.network.fabric {
        FabricKind::Shm => {
            let host = Host::at(&manifest.regions)?;
            let visit = || Ok(host.join(&visitor)?.into());
            start_engines_on(start, alarm, begin, visit, |name| {
                let fabric = host.join(name)?;
                let (mut waker, mut other) = (fabric.waker(), fabric.waker());
                Ok((fabric, move || waker.wake(), move || other.wake()))
            })
        }
        FabricKind::Tcp => {
            let net = network::net(config, &manifest.cluster, Who::Node(node));
            let net = net.map_err(DirectoryError::from)?;
            let visit = || Ok(net.visit(&visitor)?.into());
            start_engines_on(start, alarm, begin, visit, |name| {
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
            let visit = || Ok(net.visit(&visitor)?.into());
            start_engines_on(start, alarm, begin, visit, |name| {
                let fabric = skein_fabric::verbs::VerbsFabric::join(&net, name, &cards)?;
                let (mut waker, mut other) = (fabric.waker(), fabric.waker());
                Ok((fabric, move || waker.wake(), move || other.wake()))
            })
        }
        #[cfg(not(feature = "verbs"))]
        FabricKind::Verbs => Err(DirectoryError::from(network::NetworkError::NoVerbs).into()),
    }
}

/// Starts engines of the configured ordering.
fn start_engines_on<F, W, D>(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
    visit: impl FnOnce() -> Result<AnyFabric, FabricError>,
    join: impl Fn(&str) -> Result<(F, W, D), FabricError>,
) -> Result<Engines, NodeError>
where
    F: Fabric + Send + 'static,
    W: FnMut() + Send + 'static,
    D: FnMut() + Send + 'static,
{
    match start.config.protocol() {
        Protocol::Ramcast => start_engines_by::<_, _, _, Ramcast>(start, alarm, begin, visit, join),
        Protocol::Tram => start_engines_by::<_, _, _, Tram>(start, alarm, begin, visit, join),
    }
}

/// Starts engines whose replicas have the configured store.
fn start_engines_by<F, W, D, O: Links>(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
    visit: impl FnOnce() -> Result<AnyFabric, FabricError>,
    join: impl Fn(&str) -> Result<(F, W, D), FabricError>,
) -> Result<Engines, NodeError>
where
    F: Fabric + Send + 'static,
    W: FnMut() + Send + 'static,
    D: FnMut() + Send + 'static,
{
    match start.config.store {
        StoreKind::Memory => {
            start_engines_with::<_, _, _, InMemory, O>(start, alarm, begin, visit, join)
        }
        #[cfg(feature = "rocksdb")]
        StoreKind::Rocksdb => {
            stores::remove_strangers(start)?;
            start_engines_with::<_, _, _, super::stores::OnDisk, O>(
                start, alarm, begin, visit, join,
            )
        }
        #[cfg(not(feature = "rocksdb"))]
        StoreKind::Rocksdb => Err(DirectoryError::NoRocksdb.into()),
    }
}

/// Starts engines, which `join` under their names. All of them have joined and have their memory before the node's
/// incarnation begins, and none takes a turn before. `join` returns two ways to wake an engine, one for the disk threads
/// and those of stores. `visit` joins as a client does, for the thread that makes restore points.
fn start_engines_with<F, W, D, St, O>(
    start: Start<'_>,
    alarm: &UnixStream,
    begin: impl FnOnce() -> Result<(), DirectoryError>,
    visit: impl FnOnce() -> Result<AnyFabric, FabricError>,
    join: impl Fn(&str) -> Result<(F, W, D), FabricError>,
) -> Result<Engines, NodeError>
where
    F: Fabric + Send + 'static,
    W: FnMut() + Send + 'static,
    D: FnMut() + Send + 'static,
    St: Stores,
    O: Links,
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
        let stores = St::open(start, number, &wake_for_disk)?;
        wakes.push(Box::new(move || wake_for_disk()) as Wake);
        joined.push((name, fabric, wake, stores));
    }
    // The first process of each node since the return begins with the state there.
    let returned = manifest.returned.as_ref().filter(|_| incarnation == 0);
    let mut states = BTreeMap::new();
    for (number, (.., stores)) in (0..).zip(&mut joined) {
        if let Some(returned) = returned {
            let hosted = layout.replicas_on(node, number);
            let read =
                choice::states(directory, manifest, config, returned, (node, &hosted), |id| {
                    stores.take(id)
                });
            states.extend(read.map_err(|why| NodeError::NotReturned { node, why })?);
        }
    }
    let (disk, logs) = open_log(start, alarm, wakes)?;
    let (mut engines, mut points) = (Vec::new(), Vec::new());
    for (number, ((name, fabric, wake, mut stores), log)) in (0..).zip(joined.into_iter().zip(logs))
    {
        let (slots, limits, place) = (slots.clone(), config.limits, layout.clone());
        let (log, own) = match log {
            EngineDisk::None => (None, None),
            EngineDisk::Log(log) => (Some(log), None),
            EngineDisk::Points(points) => (None, Some(points)),
        };
        points.extend(own.clone());
        let mut first = BTreeMap::new();
        for id in layout.replicas_on(node, number) {
            let Some((returned, (store, slots))) = returned.zip(states.remove(&id)) else {
                continue;
            };
            let versions = returned.versions;
            let mut machine = Machine::returning(store, versions, id, &layout, slots, limits);
            if let Some(points) = &own {
                machine.write_points_to(Box::new(points.of(id)));
            }
            // Before anything is served, each disk has the point with which the cluster begins.
            let written = machine.write_first_point(returned.first());
            written.map_err(|why| Stopped { replica: id, why: why.into() })?;
            first.insert(id, machine);
        }
        let machine = move |id: ReplicaId| {
            first.remove(&id).unwrap_or_else(|| {
                let store = stores.take(id);
                let mut machine = Machine::with_store(store, id, &place, slots.clone(), limits);
                if let Some(points) = &own {
                    machine.write_points_to(Box::new(points.of(id)));
                }
                machine
            })
        };
        let me = Identity { node, engine: number, incarnation };
        let roster = Arc::clone(roster);
        let engine = Engine::<_, _, O>::with_roster(
            fabric,
            &layout,
            config.tuning,
            me,
            roster,
            log,
            machine,
        )?;
        engines.push((name, engine, wake));
    }
    points.iter().for_each(EnginePoints::sync);
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
    let marker = if points.is_empty() {
        None
    } else {
        let marker = Marker::start(visit()?, &layout, config.tuning, config.lag_ms_max, points);
        Some(marker.map_err(failed("start a thread of", &manifest.regions))?)
    };
    Ok(Engines { workers, disk, marker })
}

/// An engine's access to the node's log on disk.
enum EngineDisk {
    None,
    /// All that its replicas must be able to repeat.
    Log(Box<dyn Disk>),
    /// Restore points.
    Points(EnginePoints),
}

/// Opens the node's log on disk, if the cluster is durable, with an access for each engine.
fn open_log(
    start: Start<'_>,
    alarm: &UnixStream,
    wakes: Vec<Wake>,
) -> Result<(Option<NodeLog>, Vec<EngineDisk>), NodeError> {
    let Start { directory, manifest, config, node, incarnation, failure, .. } = start;
    if config.durability == Durability::Memory {
        return Ok((None, wakes.iter().map(|_| EngineDisk::None).collect()));
    }
    let end = alarm.try_clone().map_err(failed("prepare", &manifest.regions))?;
    let failure = Arc::downgrade(failure);
    let fails = move |error: &DiskError| {
        tracing::error!(error = with_causes(error), "the log on disk cannot be written");
        if let Some(failure) = failure.upgrade() {
            let _ = failure.set(as_io(error));
        }
        let _ = io::Write::write(&mut &end, &[DISK_FAILED]);
    };
    let generation = manifest.returned.as_ref().map_or(0, |returned| returned.generation);
    // The rest is for what was taken before, and for the time until others know that a point is on disk.
    let lag_max = Duration::from_millis(config.lag_ms_max / 4 * 3);
    // With restore points, a node that is started again takes the state of the others, whatever its disk holds.
    let known = if config.durability == Durability::Async { 0 } else { incarnation };
    let opened = NodeLog::open(directory, manifest, config, (node, known), wakes, fails);
    let (log, engines) = opened.map_err(|why| NodeError::Log { node, why })?;
    let access = |engine| match config.durability {
        Durability::Async => EngineDisk::Points(EnginePoints::new(engine, generation, lag_max)),
        _ => EngineDisk::Log(Box::new(engine)),
    };
    Ok((Some(log), engines.into_iter().map(access).collect()))
}
