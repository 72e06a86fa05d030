//! A node process, from start to end.

mod closing;
mod report;
mod start;
mod stores;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use skein_cluster::config::{ClusterConfig, Durability, FabricKind};
use skein_cluster::directory::{Directory, DirectoryError, Manifest, failed};
use skein_cluster::identity;
use skein_cluster::incarnations;
use skein_cluster::lock::{Holder, Lock};
use skein_cluster::network;
use skein_cluster::refusals::Refusal;
use skein_cluster::regions::Regions;
use skein_cluster::shared;
use skein_fabric::shm::Host;
use skein_fabric::wait::Waiting;
use skein_fabric::{Fabric, FabricError};
use skein_kvstore::machine::Machine;
use skein_kvstore::store::{Store, StoreError};
use skein_multicast::Links;
use skein_multicast::application::Stopped;
use skein_multicast::engine::Engine;
use skein_multicast::operate::{Command, CommandError, Identity};
use skein_multicast::roster::{Mistrust, Roster};
use skein_protocol::ids::{GroupId, ReplicaId};

use self::start::{Engines, Start, roster, start_engines};
use crate::admin::{Action, Answer, Problem, ProblemKind, Response, Server, Wanted};
use crate::digests::Awaited;
use crate::disk::{LogError, NodeLog};
use crate::engine::{self, Control};
use crate::missing;
use crate::points::choice::ChoiceError;
use crate::points::marker::Marker;
use crate::status::LogLosses;
use crate::upkeep::{self, Upkeep};

/// Time that an engine may take to answer. It answers between two turns, and turns are short, but it may have to wait
/// for a core.
const ENGINE_WAIT_MAX: Duration = Duration::from_secs(3);
/// Interval at which a draining node checks whether it has finished.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// Interval at which the remains of dead clients are removed, though no engine has reported any.
const CLEAN_AGAIN: Duration = Duration::from_secs(10);

/// Bytes that engine and disk threads write to the alarm. Any other byte is a signal.
const ENDED: u8 = b'e';
const DISK_FAILED: u8 = b'd';
const PEER_DIED: u8 = b'b';

/// Reasons why a node ended other than by being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The cluster's directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("no node {node} in a cluster of {nodes}: they are numbered from 0")]
    NoSuchNode {
        node: u16,
        /// Number of nodes of the cluster.
        nodes: u16,
    },
    #[error(
        "node {node} does not belong on this host: {address} is no address of it; start the node on its own host, or correct network.addresses on all hosts"
    )]
    Elsewhere {
        node: u16,
        /// Configured address of the node.
        address: String,
    },
    #[error("node {node} is running already, as process {}", .holder.pid)]
    Running {
        node: u16,
        /// The process that runs the node.
        holder: Holder,
    },
    #[error("node {node} does not start: the cluster is being stopped by process {}", .by.pid)]
    Stopping {
        node: u16,
        /// The process that stops the cluster.
        by: Holder,
    },
    /// Its replicas would begin without a state, and a group could not have a quorum any more.
    #[error(
        "node {node} does not start: its data is gone, and a group needs it: {} is empty or not there; put it back where it was, and start the node again", path.display()
    )]
    DataGone { node: u16, path: PathBuf },
    /// All incarnation numbers are used up.
    #[error(
        "node {node} of this cluster has been started {incarnations} times, and that is as often as its incarnations can be told apart; move what you need into a new cluster"
    )]
    TooManyIncarnations {
        node: u16,
        /// Number of starts.
        incarnations: u32,
    },
    /// The fabric cannot be used, for want of memory for instance.
    #[error("the node cannot meet the others: {0}")]
    Fabric(#[from] FabricError),
    /// The other nodes accept another process as this node.
    #[error("the other nodes refuse this one: {why}{}", instead(.why))]
    Refused {
        /// Reason for the refusal.
        why: Mistrust,
    },
    /// An engine thread panicked, and has printed why.
    #[error("engine thread {engine} has panicked")]
    Panicked {
        /// Number of the engine.
        engine: usize,
    },
    /// The cluster returns to a restore point, and the state there is not found.
    #[error("node {node} cannot return to the cluster's restore point: {why}")]
    NotReturned { node: u16, why: ChoiceError },
    /// The log on disk cannot be used.
    #[error("node {node} cannot keep its data on disk: {why}")]
    Log { node: u16, why: LogError },
    /// What the disk holds is not what a replica wrote.
    #[error(
        "{replica} cannot begin with what the disk holds: {why}; remove {}, and the node takes the data of the others", data.display()
    )]
    NotReplayed { replica: ReplicaId, data: PathBuf, why: String },
    /// A write to the log on disk failed. It is not tried again: what the disk holds of it is not known.
    #[error("node {node} has stopped, as its log cannot be written: {why}")]
    DiskFailed { node: u16, why: io::Error },
    /// The store of a replica has failed. What it holds is not known, so it must not apply or answer anything.
    #[error(transparent)]
    Store(#[from] Stopped<StoreError>),
}

/// Advice for the case that the other process is to end instead.
fn instead(why: &Mistrust) -> String {
    let Mistrust::Replaced { node } = why else { return String::new() };
    format!(
        "; if it is the other one that is to end, make sure that it does not come back, and `skein admin \
         replace {node}` here makes this one node {node}"
    )
}

struct Worker {
    control: Control,
    thread: JoinHandle<Result<(), Stopped<StoreError>>>,
}

enum Phase {
    Serving,
    /// Delivers pending messages until `deadline`, then answers `asked`, and ends if `stop`.
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
    /// The log on disk, if the cluster is durable. The engines end before it.
    disk: Option<NodeLog>,
    /// Makes restore points, if the cluster has them. It ends before the engines.
    marker: Option<Marker>,
    phase: Phase,
    /// A drain has ended; a stop that follows does not drain again.
    drained: bool,
    /// An operator has stopped the node, and it is not to be restarted.
    dismissed: bool,
    incarnation: u32,
    /// Processes of the other nodes, as far as this node has learned.
    roster: Arc<Roster>,
    /// The last attempt to write the record of the other nodes failed.
    forgets: bool,
    /// Requests that await digests.
    digesting: Vec<(Answer, Awaited)>,
    /// Other nodes that do not run: their last incarnations, and the times at which this was first seen.
    gone: BTreeMap<u16, (u32, Instant)>,
    upkeep: Upkeep,
    /// Time of the next removal of dead clients' remains.
    clean_again: Instant,
    log: Arc<LogLosses>,
}

/// Runs `node` of the cluster in `directory` until it is stopped, by its admin interface or by a byte to read from
/// `alarm`. `alarm_end` is the other end of `alarm`; engine threads write to it too. `log` counts the lines that are
/// missing from the process's log.
pub fn run(
    directory: &Directory,
    node: u16,
    mut alarm: UnixStream,
    alarm_end: &UnixStream,
    log: Arc<LogLosses>,
) -> Result<(), NodeError> {
    let manifest = directory.manifest()?;
    manifest.check_build(directory)?;
    let config = directory.config()?;
    if node >= config.topology.nodes {
        return Err(NodeError::NoSuchNode { node, nodes: config.topology.nodes });
    }
    // Before any file is written that would make it look like a node of this host.
    if let Some(address) = network::elsewhere(&config, node) {
        return Err(NodeError::Elsewhere { node, address: address.to_owned() });
    }
    if missing::indispensable(directory, &config).contains(&node) {
        return Err(NodeError::DataGone { node, path: directory.node_data(node) });
    }
    let mut lock = take_lock(directory, node)?;
    // Before the count of starts: the start of a refused node is no step towards the next one.
    directory.check_refused(node)?;
    directory.clear_refused(node)?;
    let _regions = Regions::hold_of(directory, &manifest)?;
    // An engine never waits for the thread that reads the alarm.
    for end in [&alarm, alarm_end] {
        end.set_nonblocking(true).map_err(failed("prepare", directory.path()))?;
    }
    let incarnation_file = directory.node_incarnations(node);
    let incarnation = incarnations::next(&incarnation_file)?
        .ok_or(NodeError::TooManyIncarnations { node, incarnations: Identity::INCARNATIONS_MAX })?;
    let roster = Arc::new(roster(directory, &manifest, node, incarnation)?);
    let upkeep = Upkeep::begin(directory, node, incarnation)?;
    // All steps that can fail for want of a certificate, a port or memory come first.
    let failure = Arc::new(OnceLock::new());
    let start = Start {
        directory,
        manifest: &manifest,
        config: &config,
        node,
        incarnation,
        roster: &roster,
        failure: &failure,
    };
    let begin = || incarnations::begin(&incarnation_file, incarnation);
    let Engines { workers, disk, marker } = start_engines(start, alarm_end, begin)?;
    let mut this = Node {
        workers,
        disk,
        marker,
        roster,
        forgets: false,
        directory: directory.clone(),
        manifest,
        config,
        number: node,
        started: Instant::now(),
        phase: Phase::Serving,
        drained: false,
        dismissed: false,
        incarnation,
        digesting: Vec::new(),
        gone: BTreeMap::new(),
        upkeep,
        clean_again: Instant::now() + CLEAN_AGAIN,
        log,
    };
    let mut server = Server::new(directory.socket(node));
    tracing::info!(node, incarnation, cluster = this.manifest.cluster, "the node is running");
    this.serve(&mut server, &mut alarm, &mut lock);
    // No client shall connect to a node that is ending.
    let _ = fs::remove_file(directory.socket(node));
    if let Some(disk) = &this.disk {
        // Engines may wait for it.
        disk.end();
    }
    let engines = this.stop_engines();
    if this.dismissed {
        // If the lock cannot be signed, the node will be restarted.
        let _ = lock.sign("stopped");
    }
    tracing::info!(node, "the node has stopped");
    this.disk = None;
    if let Some(why) = Arc::into_inner(failure).and_then(OnceLock::into_inner) {
        return Err(NodeError::DiskFailed { node, why });
    }
    match this.roster.successor() {
        Some((_, why)) => engines.and(Err(NodeError::Refused { why })),
        None => engines,
    }
}

/// Locks the node, unless it already runs or the cluster is being stopped. A process that stops the cluster first marks
/// it as stopping and then looks for nodes, so that one of the two processes sees the other.
fn take_lock(directory: &Directory, node: u16) -> Result<Lock, NodeError> {
    let path = directory.node_lock(node);
    if let Some(holder) = directory.node(node) {
        return Err(NodeError::Running { node, holder });
    }
    let lock = match Lock::take_old(&path, "node") {
        Ok(Ok(lock)) => lock,
        Err(error) => {
            // The cluster was cleared meanwhile, most likely.
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

impl Worker {
    /// Turns an engine on a thread of that name.
    fn start<F: Fabric + Send + 'static, S: Store + Send + 'static, O: Links>(
        name: String,
        mut engine: Engine<F, Machine<S>, O>,
        waiting: Waiting,
        wake: impl FnMut() + Send + 'static,
        alarm: Alarm,
    ) -> io::Result<Self>
    where
        S::Error: Send,
    {
        let (control, requests) = engine::control(wake);
        let run = move || {
            let peer_died = &mut || alarm.ring(PEER_DIED);
            let ended = engine::run(&mut engine, waiting, &requests, peer_died);
            ended.map_err(|Stopped { replica, why }| Stopped { replica, why: why.into() })
        };
        let thread = thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { control, thread })
    }

    /// How `engine`, which runs here, ends.
    fn end(self, engine: usize) -> Result<(), NodeError> {
        let ended = self.thread.join().map_err(|_| NodeError::Panicked { engine })?;
        Ok(ended?)
    }
}

/// Writes to the alarm when an engine thread ends, however it ends.
struct Alarm(UnixStream);

impl Alarm {
    fn ring(&self, why: u8) {
        // If the write fails, no thread reads the alarm any more.
        let _ = io::Write::write(&mut &self.0, &[why]);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.ring(ENDED);
    }
}

impl Node {
    /// Serves requests until it is time to stop.
    fn serve(&mut self, server: &mut Server, alarm: &mut UnixStream, lock: &mut Lock) {
        loop {
            let looked = self.upkeep.look(lock, server);
            self.remember_peers(looked);
            if looked {
                self.look_for_data();
            }
            if self.roster.successor().is_some() {
                // The record of the successor must be written: `skein admin replace` starts from it.
                self.remember_peers(true);
                self.remember_refusal();
                return;
            }
            if self.clean_again <= Instant::now() {
                // Clients may have been killed before any engine had connected to them.
                self.clean_up();
            }
            let longest = match self.phase {
                Phase::Serving if self.digesting.is_empty() => upkeep::EVERY,
                _ => DRAIN_POLL,
            };
            for wanted in server.wait(alarm.as_fd(), longest) {
                match wanted {
                    Wanted::Action(from, action) => self.act(server, from, action),
                    Wanted::Signal => {
                        let mut bytes = [0; 64];
                        let len = alarm.read(&mut bytes).unwrap_or(0);
                        if bytes[..len].contains(&PEER_DIED) {
                            self.look_for_gone();
                            self.clean_up();
                        }
                        if bytes[..len].iter().all(|byte| *byte == PEER_DIED) {
                            continue;
                        }
                        if bytes[..len].contains(&ENDED) || bytes[..len].contains(&DISK_FAILED) {
                            return; // The cause is found when the thread is joined.
                        }
                        tracing::info!("told to stop by a signal");
                        self.drain(None, true);
                    }
                }
            }
            self.tell_digests(server);
            if self.finish(server) {
                return;
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
            Action::Close => {
                self.close();
                let response = self.response();
                server.answer(from, &response);
            }
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
            Action::PrepareRecreate { group, token, plan } => {
                let group = GroupId(group);
                self.command(server, from, Command::PrepareRecreate { group, token, plan });
            }
            Action::CommitRecreate { group, token } => {
                self.command(server, from, Command::Recreate { group: GroupId(group), token });
            }
        }
    }

    /// Passes the command to the engine that runs the group. The answer is the node's status after it, or the engine's
    /// error.
    fn command(&mut self, server: &mut Server, from: Answer, command: Command) {
        let group = match &command {
            Command::Lead(group)
            | Command::PrepareRecreate { group, .. }
            | Command::Recreate { group, .. } => *group,
            Command::Evict(replica) => replica.group,
        };
        let layout = self.config.layout();
        let done = match layout.replica_on(self.number, group) {
            Some(replica) => {
                let engine = usize::from(layout.engine_of(replica));
                self.workers[engine].control.command(command, ENGINE_WAIT_MAX)
            }
            None => Some(Err(CommandError::NotHere(group))),
        };
        let response = match done {
            Some(Ok(())) => self.response(),
            Some(Err(error)) => Response::Error(Problem {
                kind: ProblemKind::from(error),
                message: error.to_string(),
            }),
            None => Response::Error(self.busy()),
        };
        server.answer(from, &response);
    }

    /// Answers the requests whose digests have arrived.
    fn tell_digests(&mut self, server: &mut Server) {
        for (from, mut awaited) in std::mem::take(&mut self.digesting) {
            match awaited.poll() {
                None => self.digesting.push((from, awaited)),
                Some(digests) => server.answer(from, &self.digested(digests)),
            }
        }
    }

    /// Begins to drain, or joins the drain that is under way.
    fn drain(&mut self, from: Option<Answer>, and_stop: bool) {
        if matches!(self.phase, Phase::Serving) {
            // A node that has drained and is then stopped gets no more time.
            let time = if and_stop && self.drained { 0 } else { self.config.stop_within_ms };
            let deadline = Instant::now() + Duration::from_millis(time);
            self.phase = Phase::Draining { deadline, asked: Vec::new(), stop: false };
        }
        if let Phase::Draining { asked, stop, .. } = &mut self.phase {
            asked.extend(from);
            *stop |= and_stop;
        }
    }

    /// Ends a drain that is complete or late. Returns whether the node is to stop.
    fn finish(&mut self, server: &mut Server) -> bool {
        let Phase::Draining { deadline, .. } = self.phase else { return false };
        let late = Instant::now() >= deadline;
        if !late && self.status().is_none_or(|status| status.pending() > 0) {
            return false;
        }
        if late && !self.drained {
            tracing::warn!("messages were still in flight when the time to drain was over");
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

    /// Writes the record of the other nodes if it has changed: the next process of this node needs it. If `due`, also
    /// writes it if the file is missing or could not be written before.
    fn remember_peers(&mut self, due: bool) {
        let path = self.directory.node_peers(self.number);
        let lost = || self.forgets || shared::is_missing(&path);
        let to_save = self.roster.take_news() || due && lost();
        if !to_save {
            return;
        }
        let successor = self.roster.successor().map(|(seen, _)| seen);
        let cluster = Some(self.manifest.cluster.clone());
        let peers = identity::Peers { cluster, successor, others: self.roster.others() };
        let saved = identity::save(&path, &peers);
        if let Err(error) = &saved
            && !self.forgets
        {
            tracing::warn!(%error, file = %path.display(), "what is known of the other nodes is not kept");
        }
        self.forgets = saved.is_err();
    }

    /// Looks whether the log on disk is still there.
    fn look_for_data(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.look(|| missing::is_needed(&self.directory, &self.config, self.number));
        }
    }

    /// Writes down that the other nodes have refused this one since its log is out of date: it must not start again.
    /// A node that keeps no log, or does not begin with it, takes its state from the others.
    fn remember_refusal(&self) {
        let Some((known, why @ Mistrust::WentBack { .. })) = self.roster.successor() else {
            return;
        };
        // Others may have met a start that failed before it was counted: then its mark is in the log.
        let is_old = self.disk.as_ref().is_some_and(|disk| disk.is_older_than(known.incarnation));
        if self.config.durability != Durability::Sync || !is_old {
            return;
        }
        let refusal = Refusal { why, known, starts: self.incarnation + 1 };
        if let Err(error) = self.directory.mark_refused(self.number, &refusal) {
            tracing::error!(
                "it is not written down that this node is refused: {error}; do not start it again, but make it a new one \
                 by `skein admin replace {}`",
                self.number
            );
        }
    }

    /// Removes the remains of killed clients. The next process that joins would do so, too.
    fn clean_up(&mut self) {
        self.clean_again = Instant::now() + CLEAN_AGAIN;
        if self.config.network.fabric != FabricKind::Shm {
            return;
        }
        let cleaned = Host::at(&self.manifest.regions).and_then(|host| host.clean_dead());
        match cleaned {
            Ok(report) => tracing::debug!(?report, "removed what dead processes left"),
            Err(error) => tracing::warn!(%error, "what dead processes left stays"),
        }
    }

    /// Ends the engine threads, and returns the error of one that has panicked.
    fn stop_engines(&mut self) -> Result<(), NodeError> {
        self.marker = None;
        for worker in &mut self.workers {
            worker.control.stop();
        }
        let mut end = Ok(());
        for (engine, worker) in self.workers.drain(..).enumerate() {
            end = end.and(worker.end(engine));
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use skein_kvstore::command::{Operation, Transaction};
    use skein_kvstore::limits::Limits;
    use skein_kvstore::plan::Plan;
    use skein_kvstore::slots::SlotMap;
    use skein_multicast::config::{Topology, Tuning, endpoint_name};
    use skein_multicast::layout::Layout;
    use skein_multicast::session_transport::SessionTransport;
    use skein_protocol::ids::{GroupSet, SessionId};

    use super::*;
    use crate::failing::{Failing, Fuse};

    /// An engine on a thread of its own, with a store that fails at its `nth` operation after a put. What is asked of it
    /// then, and whether it answers; how it ends.
    fn ends_with(nth: u64, ask: impl FnOnce(&mut Worker)) -> NodeError {
        let (host, fuse) = (Host::anonymous(), Fuse::default());
        let layout =
            Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
        let (slots, limits, tuning) = (SlotMap::even(1), Limits::default(), Tuning::default());
        let fabric = host.join(&endpoint_name(0, 0)).unwrap();
        let mut waker = fabric.waker();
        let (of_machine, map, store) = (layout.clone(), slots.clone(), fuse.clone());
        let machine = move |id| {
            Machine::with_store(Failing::with(&store), id, &of_machine, map.clone(), limits)
        };
        let engine = Engine::new(fabric, &layout, tuning, Identity::first(0, 0), machine).unwrap();
        let (mut alarm, end) = UnixStream::pair().unwrap();
        let wake = move || waker.wake();
        let name = "engine".to_owned();
        let mut worker = Worker::start(name, engine, Waiting::Park, wake, Alarm(end)).unwrap();

        let mut access = SessionTransport::new(host.join("client").unwrap(), &layout, tuning);
        let session = access.open(SessionId(1 << 8));
        let mut send = |plan: &Plan, awaited: bool| {
            access.multicast(session, GroupSet::first(1), plan.request()).unwrap();
            let (mut replies, until) = (0, Instant::now() + Duration::from_secs(20));
            while replies == 0 && Instant::now() < until && (awaited || !fuse.has_failed()) {
                access.turn(&mut |_| replies += 1).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            replies
        };
        let put = |key: &[u8]| {
            let put = Operation::Put { key: key.to_vec(), value: b"value".to_vec() };
            Plan::of(&Transaction::of(put), &slots, &limits).unwrap()
        };
        assert_eq!(send(&Plan::open(&slots), true), 1);
        assert_eq!(send(&put(b"one"), true), 1);
        fuse.burn(nth);
        ask(&mut worker);
        assert_eq!(send(&put(b"two"), false), 0, "it is not answered");
        let mut rung = [0];
        alarm.read_exact(&mut rung).unwrap();
        assert_eq!(rung, [ENDED]);
        worker.end(0).expect_err("it has failed")
    }

    #[test]
    fn a_store_that_fails_ends_the_node_and_is_said_with_what_to_do() {
        let at_a_write = ends_with(1, |_| {});
        assert_eq!(
            at_a_write.to_string(),
            "replica g0.0 has stopped: there is no room for store/000007.sst: make room on its disk, and start the \
             node again"
        );
        // An operator asks what is there.
        let at_a_digest = ends_with(1, |worker| _ = worker.control.digests().recv());
        let is_damage = matches!(
            at_a_digest,
            NodeError::Store(Stopped { why: StoreError::Damaged { .. }, .. })
        );
        assert!(is_damage, "{at_a_digest}");
    }
}
