//! A node process from its start to its end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use skein_fabric::shm::Host;
use skein_fabric::{Fabric, FabricError};
use skein_multicast::config::endpoint_name;
use skein_multicast::engine::Engine;
use skein_multicast::operate::{Command, CommandError, Identity};
use skein_protocol::ids::{GroupId, ReplicaId};

use super::admin::{Action, Answer, Problem, ProblemKind, Response, Server, Wanted};
use super::digests::{Awaited, Digests, GivenUp};
use super::directory::{Directory, DirectoryError, Manifest, failed};
use super::engine::{self, Control, EngineStatus};
use super::lives;
use super::lock::{Holder, Lock};
use super::network::{self, Who};
use super::regions::Regions;
use super::socket;
use super::status::{GoneNode, NodeStatus, ReplicaReport, resident_bytes};
use crate::config::{ClusterConfig, FabricKind};
use crate::machine::Machine;
use crate::slots::SlotMap;

/// How long an engine may take to answer. It answers between two turns, and no turn is
/// long; but it may have to wait for a core.
const ENGINE_WAIT_MAX: Duration = Duration::from_secs(3);
/// How often a draining node looks whether it has finished.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// What engine threads say by the alarm. Any other byte is a signal.
const ENDED: u8 = b'e';
const BEREAVED: u8 = b'b';

/// Why a node ended otherwise than by being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The cluster's directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Only `skein up` starts nodes, and knows how many there are.
    #[error("no node {node} in a cluster of {nodes}: they are numbered from 0")]
    NoSuchNode {
        /// The node asked for.
        node: u16,
        /// How many there are.
        nodes: u16,
    },
    /// It runs already.
    #[error("node {node} is running already, as process {}", .holder.pid)]
    Running {
        /// The node.
        node: u16,
        /// Its process.
        holder: Holder,
    },
    /// It would come too late.
    #[error("node {node} does not start: the cluster is being stopped by process {}", .by.pid)]
    Stopping {
        /// The node.
        node: u16,
        /// Who stops it.
        by: Holder,
    },
    /// The numbers that tell its lives apart are used up.
    #[error(
        "node {node} of this cluster has been started {lives} times, and that is as often as its lives can be told apart; move what you need into a new cluster"
    )]
    TooManyLives {
        /// The node.
        node: u16,
        /// How often.
        lives: u32,
    },
    /// No memory, or another problem with it.
    #[error("memory shared with other processes: {0}")]
    Fabric(#[from] FabricError),
    /// An engine thread panicked; it has said why.
    #[error("engine thread {engine} has panicked")]
    Panicked {
        /// Its number.
        engine: usize,
    },
}

struct Worker {
    control: Control,
    thread: JoinHandle<()>,
}

/// What the node is up to.
enum Phase {
    Serving,
    /// Delivers what it knows of, until `deadline`; then tells `asked`, and ends if `stop`.
    Draining {
        deadline: Instant,
        asked: Vec<Answer>,
        stop: bool,
    },
}

struct Node {
    directory: Directory,
    manifest: Manifest,
    config: ClusterConfig,
    number: u16,
    started: Instant,
    workers: Vec<Worker>,
    phase: Phase,
    /// Drained since it was last asked to: what it was to finish is finished.
    drained: bool,
    /// Told by an operator to stop, who does not want it to be started again.
    dismissed: bool,
    life: u32,
    /// Those who wait for digests.
    digesting: Vec<(Answer, Awaited)>,
    /// Other nodes that were seen to be gone: in which life, and when.
    gone: BTreeMap<u16, (u32, Instant)>,
}

/// Runs `node` of the cluster in `directory` until it is told to stop: by its admin interface, or by
/// a byte to read from `alarm`. `alarm_end` is the other end; engine threads use it too.
pub fn run(
    directory: &Directory,
    node: u16,
    mut alarm: UnixStream,
    alarm_end: &UnixStream,
) -> Result<(), NodeError> {
    let manifest = directory.manifest()?;
    manifest.check_build(directory)?;
    let config = directory.config()?;
    if node >= config.topology.nodes {
        return Err(NodeError::NoSuchNode { node, nodes: config.topology.nodes });
    }
    let mut lock = take_lock(directory, node)?;
    let _regions = Regions::hold_of(directory, &manifest)?;
    alarm.set_nonblocking(true).map_err(failed("prepare", directory.path()))?;
    // Before anything is done that another process could see.
    let life = lives::begin(&directory.node_lives(node))?
        .ok_or(NodeError::TooManyLives { node, lives: Identity::LIVES_MAX })?;

    let mut this = Node {
        workers: start_engines(&manifest, &config, node, life, alarm_end)?,
        directory: directory.clone(),
        manifest,
        config,
        number: node,
        started: Instant::now(),
        phase: Phase::Serving,
        drained: false,
        dismissed: false,
        life,
        digesting: Vec::new(),
        gone: BTreeMap::new(),
    };
    let path = directory.socket(node);
    // Whoever has our lock and was killed could not remove it.
    let _ = fs::remove_file(&path);
    let listener = socket::listen(&path).map_err(failed("listen at", &path))?;
    let mut server = Server::new(listener).map_err(failed("listen at", &path))?;
    tracing::info!(node, life, cluster = this.manifest.cluster, "the node is running");
    let end = this.serve(&mut server, &mut alarm);
    // Nobody shall connect to a node that is ending.
    let _ = fs::remove_file(&path);
    let engines = this.stop_engines();
    if this.dismissed {
        // If it cannot be said, the node will be started again.
        let _ = lock.sign("stopped");
    }
    tracing::info!(node, "the node has stopped");
    end.and(engines)
}

/// Makes sure that the node does not run already, and that the cluster is not being stopped: who
/// stops it says so first and looks for nodes then, so that one of the two sees the other.
fn take_lock(directory: &Directory, node: u16) -> Result<Lock, NodeError> {
    let path = directory.node_lock(node);
    if let Some(holder) = directory.node(node) {
        return Err(NodeError::Running { node, holder });
    }
    let lock = match Lock::take_old(&path, "node") {
        Ok(Ok(lock)) => lock,
        Err(error) => {
            // Cleared meanwhile, most likely.
            directory.manifest()?;
            return Err(failed("lock", &path)(error).into());
        }
        Ok(Err(holder)) => {
            let holder = holder.unwrap_or(Holder { role: "node".into(), pid: 0 });
            return Err(NodeError::Running { node, holder });
        }
    };
    match directory.keeper() {
        Some(by) if by.role == "down" => Err(NodeError::Stopping { node, by }),
        _ => Ok(lock),
    }
}

/// Starts an engine for each of a node's fabrics.
fn start_engines(
    manifest: &Manifest,
    config: &ClusterConfig,
    node: u16,
    life: u32,
    alarm: &UnixStream,
) -> Result<Vec<Worker>, NodeError> {
    match config.network.fabric {
        FabricKind::Shm => {
            let host = Host::at(&manifest.regions)?;
            start_engines_on(manifest, config, (node, life), alarm, |name| {
                let fabric = host.join(name)?;
                let mut waker = fabric.waker();
                Ok((fabric, move || waker.wake()))
            })
        }
        FabricKind::Tcp => {
            let net = network::net(config, &manifest.cluster, Who::Node(node));
            let net = net.map_err(DirectoryError::from)?;
            start_engines_on(manifest, config, (node, life), alarm, |name| {
                let fabric = net.join(name)?;
                let mut waker = fabric.waker();
                Ok((fabric, move || waker.wake()))
            })
        }
        #[cfg(feature = "verbs")]
        FabricKind::Verbs => {
            let net = network::net(config, &manifest.cluster, Who::Node(node));
            let net = net.map_err(DirectoryError::from)?;
            let cards = network::cards(config);
            start_engines_on(manifest, config, (node, life), alarm, |name| {
                let fabric = skein_fabric::verbs::VerbsFabric::join(&net, name, &cards)?;
                let mut waker = fabric.waker();
                Ok((fabric, move || waker.wake()))
            })
        }
        #[cfg(not(feature = "verbs"))]
        FabricKind::Verbs => {
            Err(DirectoryError::from(super::network::NetworkError::NoVerbs).into())
        }
    }
}

/// Starts engines, which `join` under their names.
fn start_engines_on<F: Fabric + Send + 'static, W: FnMut() + Send + 'static>(
    manifest: &Manifest,
    config: &ClusterConfig,
    (node, life): (u16, u32),
    alarm: &UnixStream,
    join: impl Fn(&str) -> Result<(F, W), FabricError>,
) -> Result<Vec<Worker>, NodeError> {
    let topology = config.topology;
    let here = (0..topology.engines).map(|engine| topology.replicas_on(node, engine).len());
    let groups_here = here.sum::<usize>() as u16;
    let slots = SlotMap::even(topology.groups);
    let mut workers = Vec::new();
    for number in 0..topology.engines {
        let name = endpoint_name(node, number);
        let (fabric, wake) = join(&name)?;
        let (slots, limits) = (slots.clone(), config.limits);
        let machine = move |replica| Machine::new(replica, slots.clone(), limits, groups_here);
        let me = Identity { node, engine: number, life };
        let mut engine = Engine::new(fabric, topology, config.tuning, me, machine)?;
        let (control, requests) = engine::control(wake);
        let waiting = config.waiting;
        let alarm = Alarm(alarm.try_clone().map_err(failed("prepare", &manifest.regions))?);
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || {
                let bereaved = &mut || alarm.ring(BEREAVED);
                engine::run(&mut engine, waiting, &requests, bereaved);
            })
            .map_err(failed("start a thread of", &manifest.regions))?;
        workers.push(Worker { control, thread });
    }
    Ok(workers)
}

/// Rings when an engine thread ends, however it ends.
struct Alarm(UnixStream);

impl Alarm {
    fn ring(&self, why: u8) {
        // If it cannot be rung, nobody is left to hear it.
        let _ = io::Write::write(&mut &self.0, &[why]);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.ring(ENDED);
    }
}

impl Node {
    /// Answers requests until it is time to stop.
    fn serve(&mut self, server: &mut Server, alarm: &mut UnixStream) -> Result<(), NodeError> {
        loop {
            let longest = match self.phase {
                Phase::Serving if self.digesting.is_empty() => None,
                _ => Some(DRAIN_POLL),
            };
            let wait = server.wait(alarm.as_fd(), longest);
            for wanted in wait.map_err(failed("listen in", self.directory.path()))? {
                match wanted {
                    Wanted::Action(from, action) => self.act(server, from, action),
                    Wanted::Signal => {
                        let mut bytes = [0; 64];
                        let len = alarm.read(&mut bytes).unwrap_or(0);
                        if bytes[..len].contains(&BEREAVED) {
                            self.look_for_gone();
                            self.clean_up();
                        }
                        if bytes[..len].iter().all(|byte| *byte == BEREAVED) {
                            continue;
                        }
                        if bytes[..len].contains(&ENDED) {
                            return Ok(()); // What ended it is found when it is joined.
                        }
                        tracing::info!("told to stop by a signal");
                        self.drain(None, true);
                    }
                }
            }
            self.tell_digests(server);
            if self.finish(server) {
                return Ok(());
            }
        }
    }

    fn act(&mut self, server: &mut Server, from: Answer, action: Action) {
        match action {
            Action::Status => {
                let response = self.response();
                server.answer(from, &response);
            }
            Action::Digest => {
                let engines = self.workers.iter_mut().map(|worker| worker.control.digests());
                self.digesting.push((from, Awaited::new(engines.collect())));
            }
            Action::Drain => self.drain(Some(from), false),
            Action::Stop => {
                tracing::info!("told to stop by the admin interface");
                self.dismissed = true;
                self.drain(None, true);
                let response = self.response();
                server.answer(from, &response);
            }
            Action::Lead { group } => self.command(server, from, Command::Lead(GroupId(group))),
            Action::Evict { group, slot } => {
                self.command(server, from, Command::Evict(ReplicaId::new(GroupId(group), slot)));
            }
            Action::Recreate { group, incarnations, ballot_counter, clock } => {
                let group = GroupId(group);
                let command = Command::Recreate { group, incarnations, ballot_counter, clock };
                self.command(server, from, command);
            }
        }
    }

    /// Has the engine do it that runs the group. The answer is what that engine says then.
    fn command(&mut self, server: &mut Server, from: Answer, command: Command) {
        let group = match &command {
            Command::Lead(group) | Command::Recreate { group, .. } => *group,
            Command::Evict(replica) => replica.group,
        };
        let engine = self.config.topology.engine_of(group);
        let done = if group.0 < self.config.topology.groups {
            self.workers[usize::from(engine)].control.command(command, ENGINE_WAIT_MAX)
        } else {
            Some(Err(CommandError::NotHere(group)))
        };
        let response = match done {
            Some(Ok(())) => self.response(),
            Some(Err(error)) => Response::Error(Problem {
                kind: ProblemKind::from(error),
                message: error.to_string(),
            }),
            None => Response::Error(Problem::busy()),
        };
        server.answer(from, &response);
    }

    /// Answers those who have waited for digests.
    fn tell_digests(&mut self, server: &mut Server) {
        for (from, mut awaited) in std::mem::take(&mut self.digesting) {
            match awaited.poll() {
                None => self.digesting.push((from, awaited)),
                Some(digests) => server.answer(from, &self.digested(digests)),
            }
        }
    }

    fn digested(&mut self, digests: Result<Digests, GivenUp>) -> Response {
        let Ok(digests) = digests else {
            let what = "messages are delivered all the time: ask for digests when nothing goes on";
            return Response::Error(Problem::busy_with(what));
        };
        let mut response = self.response();
        if let Response::Ok(status) = &mut response {
            for report in &mut status.replicas {
                let id = ReplicaId::new(GroupId(report.order.group), report.order.slot);
                let found = digests.iter().find(|(replica, _)| *replica == id);
                report.digest = found.map(|(_, digest)| digest.clone());
            }
        }
        response
    }

    /// Begins to drain, or joins in.
    fn drain(&mut self, from: Option<Answer>, and_stop: bool) {
        if matches!(self.phase, Phase::Serving) {
            // A node that was drained and is then stopped has had its time.
            let time = if and_stop && self.drained { 0 } else { self.config.stop_within_ms };
            let deadline = Instant::now() + Duration::from_millis(time);
            self.phase = Phase::Draining { deadline, asked: Vec::new(), stop: false };
        }
        if let Phase::Draining { asked, stop, .. } = &mut self.phase {
            asked.extend(from);
            *stop |= and_stop;
        }
    }

    /// Whether it has drained, and is to stop.
    fn finish(&mut self, server: &mut Server) -> bool {
        let Phase::Draining { deadline, .. } = self.phase else { return false };
        let late = Instant::now() >= deadline;
        if !late && self.status().is_none_or(|status| status.pending() > 0) {
            return false;
        }
        if late && !self.drained {
            tracing::warn!("messages were still under way when the time to drain was over");
        }
        self.drained = true;
        let response = self.response();
        let phase = std::mem::replace(&mut self.phase, Phase::Serving);
        let Phase::Draining { asked, stop, .. } = phase else { return false };
        for from in asked {
            server.answer(from, &response);
        }
        stop
    }

    fn response(&mut self) -> Response {
        match self.status() {
            Some(status) => Response::Ok(Box::new(status)),
            None => Response::Error(Problem::busy()),
        }
    }

    fn status(&mut self) -> Option<NodeStatus> {
        let ask = |worker: &mut Worker| worker.control.status(ENGINE_WAIT_MAX);
        let engines: Option<Vec<EngineStatus>> = self.workers.iter_mut().map(ask).collect();
        let engines = engines?;
        let replicas: Vec<_> = engines.into_iter().flat_map(|engine| engine.replicas).collect();
        self.look_for_gone();
        let gone = |(node, (life, since)): (&u16, &(u32, Instant))| GoneNode {
            node: *node,
            life: *life,
            for_ms: since.elapsed().as_millis() as u64,
        };
        Some(NodeStatus {
            node: self.number,
            life: self.life,
            pid: std::process::id(),
            cluster: self.manifest.cluster.clone(),
            build: self.manifest.build.clone(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            ready: replicas.iter().all(ReplicaReport::serves),
            draining: self.drained || !matches!(self.phase, Phase::Serving),
            resident_bytes: resident_bytes(),
            replicas,
            gone: self.gone.iter().map(gone).collect(),
        })
    }

    /// Notes which of the other nodes do not run, and since when they are not seen to.
    fn look_for_gone(&mut self) {
        for node in (0..self.manifest.nodes).filter(|node| *node != self.number) {
            let lives = self.directory.lives(node).unwrap_or_default();
            match (self.directory.node(node), lives.checked_sub(1)) {
                (None, Some(life)) => {
                    let since = self.gone.entry(node).or_insert_with(|| (life, Instant::now()));
                    if since.0 != life {
                        *since = (life, Instant::now());
                    }
                }
                _ => _ = self.gone.remove(&node),
            }
        }
    }

    /// Removes what clients that were killed have left. The next one to join would, too.
    fn clean_up(&self) {
        if self.config.network.fabric != FabricKind::Shm {
            return;
        }
        let cleaned = Host::at(&self.manifest.regions).and_then(|host| host.clean_dead());
        match cleaned {
            Ok(report) => tracing::debug!(?report, "removed what dead processes left"),
            Err(error) => tracing::warn!(%error, "what dead processes left stays"),
        }
    }

    /// Ends the engine threads and says what had ended one before.
    fn stop_engines(&mut self) -> Result<(), NodeError> {
        for worker in &mut self.workers {
            worker.control.stop();
        }
        let mut end = Ok(());
        for (engine, worker) in self.workers.drain(..).enumerate() {
            let ended = worker.thread.join().map_err(|_| NodeError::Panicked { engine });
            end = end.and(ended);
        }
        end
    }
}
