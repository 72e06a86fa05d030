//! The replicas of an experiment: real engines, and a state machine that only replies.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use skein_fabric::any::AnyFabric;
use skein_fabric::shm::Host;
use skein_fabric::tcp::{Book, Net, Security, Tls, TlsError};
use skein_fabric::wait::{Waiter, Waiting, ask_for_short_slices};
use skein_fabric::{Fabric, FabricError};
use skein_multicast::Links;
use skein_multicast::application::Answer;
use skein_multicast::batches::Batches;
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::roster::Roster;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::tram::Tram;

/// Parameters that all processes of an experiment share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Which replicas there are, and where they live.
    pub layout: Layout,
    /// Sizes of their memory.
    pub tuning: Tuning,
    /// Along a tree, whether replies leave without waiting for what the order of real time needs, as in the paper.
    pub ungated: bool,
    /// Where they connect.
    pub place: MeetingPlace,
}

/// The medium by which the processes of an experiment connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MeetingPlace {
    /// Shared memory in this directory.
    Shm(PathBuf),
    /// TCP addresses.
    Tcp {
        /// One per engine, those of node 0 first.
        addresses: Vec<String>,
        /// Certificates; `None` if connections are not encrypted.
        papers: Option<Papers>,
    },
}

/// One certificate for all processes of an experiment, PEM.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Papers {
    /// Certificate of the issuing authority.
    pub authority: String,
    /// The certificate for [`NAME`](Self::NAME).
    pub certificate: String,
    pub key: String,
}

impl Papers {
    /// The name in the certificate.
    pub const NAME: &'static str = "experiment";

    fn security(&self) -> Result<Security, TlsError> {
        let Self { authority, certificate, key } = self;
        let [authority, certificate, key] = [authority, certificate, key].map(String::as_bytes);
        let tls = Tls::new(authority, certificate, key, |_| Self::NAME.to_owned())?;
        Ok(Security::Mutual(Arc::new(tls)))
    }
}

/// Does not print the key.
impl fmt::Debug for Papers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Papers").finish_non_exhaustive()
    }
}

/// Why a medium cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum NoGround {
    /// It cannot be created or reached.
    Fabric(#[from] FabricError),
    /// The certificate is unusable.
    Tls(#[from] TlsError),
}

/// A connected medium.
#[derive(Clone, Debug)]
pub enum Ground {
    /// Shared memory, of several processes or of one.
    Host(Host),
    /// Connections.
    Net(Net),
}

impl Ground {
    /// Where those of `experiment` meet.
    pub fn of(experiment: &Experiment) -> Result<Self, NoGround> {
        let Topology { nodes, engines, .. } = experiment.layout.topology();
        match &experiment.place {
            MeetingPlace::Shm(dir) => Ok(Self::Host(Host::at(dir)?)),
            MeetingPlace::Tcp { addresses, papers } => {
                let security = papers.as_ref().map_or(Ok(Security::Plain), Papers::security)?;
                let book = Book::default();
                let all = (0..nodes).flat_map(|node| (0..engines).map(move |e| (node, e)));
                for ((node, engine), address) in all.zip(addresses) {
                    book.insert(&endpoint_name(node, engine), address);
                }
                Ok(Self::Net(Net::new("multicast", book, security)))
            }
        }
    }

    /// A fabric for the generator.
    pub fn visit(&self) -> Result<AnyFabric, FabricError> {
        const NAME: &str = "generator";
        Ok(match self {
            Self::Host(host) => host.join(NAME)?.into(),
            Self::Net(net) => net.visit(NAME)?.into(),
        })
    }
}

/// The engine of one node, of the layout's ordering.
pub(super) fn engine<F: Fabric, O: Links>(
    fabric: F,
    layout: &Layout,
    tuning: Tuning,
    me: Identity,
) -> Result<Engine<F, Answer, O>, FabricError> {
    let roster = Arc::new(Roster::unrecorded(me.node, me.incarnation));
    Engine::with_roster(fabric, layout, tuning, me, roster, None, |_| Answer)
}

/// Runs `engines`, pairs of a node and an engine's number there, in turn on this thread until
/// `stop`. Calls `ready` when all are connected to their peers. Several engines on one thread never
/// sleep, because a sleeping engine would block the others. Returns the batch statistics.
pub fn run(
    ground: &Ground,
    experiment: &Experiment,
    engines: &[(u16, u16)],
    waiting: Waiting,
    ready: impl FnOnce(),
    stop: &AtomicBool,
) -> Result<Batches, FabricError> {
    match ground {
        Ground::Host(host) => {
            run_on(|name| host.join(name), experiment, engines, waiting, ready, stop)
        }
        Ground::Net(net) => {
            run_on(|name| net.join(name), experiment, engines, waiting, ready, stop)
        }
    }
}

/// Runs engines of the ordering that the layout asks for.
fn run_on<F: Fabric>(
    join: impl Fn(&str) -> Result<F, FabricError>,
    experiment: &Experiment,
    engines: &[(u16, u16)],
    waiting: Waiting,
    ready: impl FnOnce(),
    stop: &AtomicBool,
) -> Result<Batches, FabricError> {
    if experiment.layout.tree().is_none() {
        return run_with::<F, Ramcast>(join, experiment, engines, waiting, ready, stop, |_| {});
    }
    let ungate = |engine: &mut Engine<F, Answer, Tram>| {
        if experiment.ungated {
            engine.ungate();
        }
    };
    run_with(join, experiment, engines, waiting, ready, stop, ungate)
}

fn run_with<F: Fabric, O: Links>(
    join: impl Fn(&str) -> Result<F, FabricError>,
    experiment: &Experiment,
    engines: &[(u16, u16)],
    waiting: Waiting,
    ready: impl FnOnce(),
    stop: &AtomicBool,
    prepare: impl Fn(&mut Engine<F, Answer, O>),
) -> Result<Batches, FabricError> {
    let start = |(node, number): &(u16, u16)| {
        let fabric = join(&endpoint_name(*node, *number))?;
        let me = Identity::first(*node, *number);
        engine(fabric, &experiment.layout, experiment.tuning, me)
    };
    let mut engines = engines.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    engines.iter_mut().for_each(prepare);
    let alone = engines.len() == 1;
    ask_for_short_slices();
    let mut waiter = Waiter::new(waiting);
    let mut ready = Some(ready);
    while !stop.load(Ordering::Relaxed) {
        let mut worked = false;
        for engine in &mut engines {
            worked |= engine.turn();
        }
        if ready.is_some() && engines.iter().all(Engine::connected) {
            ready.take().expect("it is there")();
        }
        if worked {
            waiter.worked(engines[0].fabric());
        } else {
            engines[0].wait(&mut waiter, &|| alone);
        }
    }
    let mut batches = Batches::default();
    for engine in &engines {
        batches.add(&engine.batches());
    }
    Ok(batches)
}
