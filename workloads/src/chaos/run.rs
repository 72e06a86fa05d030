//! One run, from the first record put to the report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io, thread};

use skein_checker::history::{
    Digest, FORMAT, Header, ReadError, Reader, Record, Recorder, Scribe, now,
};
use skein_client::{ConnectError, Driver, Error, ReadMode};
use skein_cluster::BUILD;
use skein_cluster::config::Durability;
use skein_cluster::directory::{Directory, DirectoryError, RunningCluster};
use skein_fabric::any::AnyFabric;
use skein_multicast::config::Topology;
use skein_node::admin::{self, Action, CallError};
use skein_node::nodes::{self, SignalError, ask};
use skein_node::status::NodeStatus;
use skein_node::supervise::{self, SuperviseError, Supervisor};

use super::clients::{ClientCommand, Clients, Task};
use super::faults::Chaos;
use super::hosts::Hosts;
use super::load::{self, Gauge};
use super::objects::{Mix, Objects, TOKEN_BYTES};
use super::processes::{Incarnations, Processes};
use super::report::{About, Injected, Report, State};
use super::schedule::{Kind, Schedule, Target};
use super::state::{Over, Records, Survey};
use super::with_causes;
use crate::bench::{Phase, Watch};
use crate::generator::{self, Settings, Workload};

/// Quiet time before the first fault, and after the last recovery.
const QUIET: Duration = Duration::from_secs(2);
/// How long replicas may take to reach one position when there is no load.
const AGREE_WITHIN: Duration = Duration::from_secs(30);
const DIGESTS_WITHIN: Duration = Duration::from_secs(30);
/// Reading everything and putting records: many concurrently, because this is not measured.
const MANY: Settings = Settings::to_the_end(8, 8);
const MANY_AT_A_TIME: usize = MANY.clients;
/// How long nodes may take to return from the first loss of power.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// Kinds of faults that end a node's process.
const KILLED: [&str; 4] = ["kill", "restart", "power", "disk-loss"];
/// Writer number of this process. Those of client processes follow it.
const WRITER: u16 = 1;

/// When the faults end.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// This long after the first fault may come.
    After(Duration),
    /// After this many kills, of nodes or clients.
    Kills(usize),
    /// After this many faults of any kind.
    Faults(usize),
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub end: End,
    /// Kinds of faults.
    pub kinds: Vec<Kind>,
    /// Nodes that faults prefer.
    pub target: Target,
    /// Longest stop of a node.
    pub stop_max: Duration,
    /// Sessions, each with one operation in flight.
    pub clients: usize,
    /// Operations per second of all sessions; without pause if `None`.
    pub rate: Option<f64>,
    /// Records put before the first fault.
    pub records: u64,
    /// Bytes of the value of each record.
    pub value_bytes: usize,
    /// Read-only operations are each done in one of these modes.
    pub read_modes: Vec<ReadMode>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Path of the history. If `None`, it is kept in the temporary directory, and only if something
    /// is wrong.
    pub history: Option<PathBuf>,
}

/// Functions of the program that a run calls.
#[derive(Clone, Copy)]
pub struct Program {
    /// Makes the command that runs a client in a process of its own.
    pub client: ClientCommand,
    /// Called for nodes that cannot be restarted.
    pub tell: fn(SuperviseError),
}

/// Observer of a run, which may end it early.
pub trait Observer: Watch {
    /// A phase without a measure of progress begins.
    fn message(&mut self, what: &'static str);
    /// Faults begin.
    fn begin_faults(&mut self);
    /// Takes the progress of the faults. Called every few milliseconds until [`end`](Self::end).
    fn faults(&mut self, so_far: SoFar);
    /// The current phase has ended.
    fn end(&mut self);
    /// Whether the run is to end early. Once true, it stays so.
    fn asked(&self) -> bool;
}

/// Progress of the faults of a run.
#[derive(Clone, Copy, Debug)]
pub struct SoFar {
    /// Time since faults began.
    pub elapsed: Duration,
    /// Answered operations.
    pub answered: u64,
    /// Operations that failed or have an unknown outcome.
    pub unanswered: u64,
    pub faults: usize,
}

/// Reasons for which a run has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Leave this kind of faults out, or use a cluster with larger groups.
    #[error(
        "{} takes groups of three replicas at least, and this cluster's have {replicas}",
        kind.name()
    )]
    TooFewReplicas {
        kind: Kind,
        /// Replicas of each group.
        replicas: u8,
    },
    /// Nothing of this cluster outlives its processes.
    #[error("{} takes a cluster that keeps its data on disk", kind.name())]
    InMemory { kind: Kind },
    /// Put smaller records.
    #[error("values of {bytes} bytes are over this cluster's limits.value_bytes_max, {max}")]
    ValueTooLong {
        /// The requested length.
        bytes: usize,
        max: usize,
    },
    /// No cluster runs in the directory, or none for this build.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Nodes would not be restarted.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// The cluster's memory cannot be reached.
    #[error("cannot reach the cluster's memory")]
    Unreachable(#[source] ConnectError),
    /// The cluster refuses the records.
    #[error("cannot put the records: {0}")]
    Records(String),
    /// The cluster refuses the first transaction of the load.
    #[error("cannot open the accounts")]
    Accounts(#[source] Error),
    /// The nodes' disks cannot be made to lose what is not synced.
    #[error("cannot write {}", path.display())]
    Orders { path: PathBuf, source: io::Error },
    /// The nodes do not return from a loss of power.
    #[error("the nodes lost their power, and are not ready {} s later; see {}/node*.log", READY_WITHIN.as_secs(), dir.display())]
    NotReady { dir: PathBuf },
    /// A node cannot be killed.
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// The history cannot be written: name another file, or make room.
    #[error("cannot write {}", path.display())]
    History { path: PathBuf, source: io::Error },
    /// The history cannot be read again.
    #[error(transparent)]
    Judgement(#[from] ReadError),
}

/// Reasons for which the digests of all replicas were not obtained in time.
#[derive(Debug, thiserror::Error)]
enum DigestsError {
    #[error("{0} messages are still pending")]
    Pending(u64),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A run on a cluster.
pub struct Run<'a> {
    plan: Plan,
    program: Program,
    directory: Directory,
    running: RunningCluster,
    driver: Driver<AnyFabric>,
    records: Records,
    /// The nodes' hosts, if partitions are possible.
    hosts: Option<&'a Hosts>,
    /// What starts the nodes, if they can lose their power.
    supervisor: Option<&'a Supervisor>,
    /// Restarts killed nodes, if no other process does.
    _supervisor: Option<Supervisor>,
}

impl<'a> Run<'a> {
    /// Prepares a run on the cluster in `dir`. Partitions need the `hosts` that the nodes run on, and
    /// faults of disks the `supervisor` that starts them.
    /// If no process supervises the nodes, this one does until the run is dropped.
    ///
    /// # Errors
    ///
    /// No fault was injected.
    pub fn on(
        dir: &Path,
        plan: Plan,
        program: Program,
        hosts: Option<&'a Hosts>,
        supervisor: Option<&'a Supervisor>,
    ) -> Result<Self, RunError> {
        let running = Directory::connect(dir)?;
        let topology = running.config.topology;
        let of_three = plan.kinds.iter().find(|kind| kind.takes_three_replicas());
        if let Some(kind) = of_three.filter(|_| topology.replicas < 3) {
            return Err(RunError::TooFewReplicas { kind: *kind, replicas: topology.replicas });
        }
        let of_disks = plan.kinds.iter().find(|kind| kind.is_of_disks());
        if let Some(kind) = of_disks.filter(|_| running.config.durability != Durability::Sync) {
            return Err(RunError::InMemory { kind: *kind });
        }
        let max = running.config.limits.value_bytes_max;
        if plan.value_bytes > max {
            return Err(RunError::ValueTooLong { bytes: plan.value_bytes, max });
        }
        let directory = Directory::at(dir)?;
        let is_kept = directory.supervisor().is_some_and(|keeper| keeper.restarts);
        let namespaces = hosts.map(Hosts::prefix);
        let switch = supervisor;
        let supervisor = (!is_kept)
            .then(|| supervise_for_now(&directory, topology.nodes, namespaces, program.tell))
            .transpose()?;
        let driver = Driver::to(&running).map_err(RunError::Unreachable)?;
        // Makes keys unique to the run.
        let run = format!("{:x}", now() ^ u64::from(std::process::id()) << 40);
        let records = Records { count: plan.records, value_bytes: plan.value_bytes, run };
        Ok(Self {
            plan,
            program,
            directory,
            running,
            driver,
            records,
            hosts,
            supervisor: switch,
            _supervisor: supervisor,
        })
    }

    /// Puts a layer between the nodes and their disks that loses what is not synced, by a first loss of power.
    fn lose_what_is_not_synced(&self) -> Result<(), RunError> {
        let Some(supervisor) = self.supervisor.filter(|_| self.plan.kinds.contains(&Kind::Power))
        else {
            return Ok(());
        };
        let topology = self.running.config.topology;
        for node in 0..topology.nodes {
            let path = self.directory.disk_orders(node);
            let orders = format!("seed={}\n", self.plan.seed.wrapping_add(u64::from(node)));
            fs::write(&path, orders).map_err(|source| RunError::Orders { path, source })?;
        }
        let mut processes = Processes::new(self.directory.clone(), topology);
        supervisor.hold();
        processes.kill_all()?;
        supervisor.restart();
        let since = Instant::now();
        let well = || {
            let seen = processes.look();
            (0..topology.nodes).all(|node| seen.is_well(node))
        };
        while !well() {
            if since.elapsed() >= READY_WITHIN {
                return Err(RunError::NotReady { dir: self.directory.path().to_owned() });
            }
            thread::sleep(Duration::from_millis(25));
        }
        Ok(())
    }

    /// Puts the records, injects faults under a load, reads everything back, compares the replicas
    /// and checks the history. Returns the report, not yet [judged](Report::judged): the caller may
    /// have problems to add.
    ///
    /// # Errors
    ///
    /// All faults injected so far have ended, and the part of the history that was written is kept.
    pub fn drive(mut self, observer: &mut dyn Observer) -> Result<Report, RunError> {
        let topology = self.running.config.topology;
        self.lose_what_is_not_synced()?;
        let load_s = self.fill(observer)?;
        let began = now();
        let slots = &self.driver.shape().slots;
        let objects = Objects::new(&self.records.run, slots, topology.groups, began);
        generator::once(&mut self.driver, &objects.opening()).map_err(RunError::Accounts)?;
        let path = self.history();
        let unwritten = |source| RunError::History { path: path.clone(), source };
        let recorder = Recorder::create(&path, self.header(&objects, began)).map_err(unwritten)?;

        let incarnations = Incarnations::of(&self.directory, topology.nodes);
        let gauge = Gauge::default();
        let (loaded, done, ended, mut problems) = thread::scope(|scope| {
            let scribe = recorder.scribe();
            let load = scope.spawn(|| self.load(&objects, scribe, &gauge));
            let (done, ended, problems) = self.under_chaos(&recorder, began, &gauge, observer);
            gauge.stop.store(true, Ordering::Relaxed);
            let loaded = load.join().expect("the load does not panic");
            (loaded, done, ended, problems)
        });
        problems.extend(incarnations.unexpected(&deaths(&done)));

        let state =
            State { records: self.plan.records, value_bytes: self.plan.value_bytes, load_s };
        let about = About {
            seed: self.plan.seed,
            skein: BUILD.text().to_owned(),
            topology,
            durability: self.running.config.durability,
            store: self.running.config.store,
            clients: self.plan.clients,
            rate: self.plan.rate,
            state,
            ran: [began, ended],
        };
        problems.extend(self.look_again(&recorder, observer));
        if observer.asked() {
            problems.push("interrupted".to_owned());
        }
        recorder.finish().map_err(unwritten)?;
        observer.message("checking the history");
        let (verdict, checker) = skein_checker::judge(Reader::open(&path)?)?;
        let order = checker.finish();
        observer.end();
        if order.answered == 0 {
            problems.push("nothing was answered: there is nothing to judge".to_owned());
        }
        let mut report = Report::new(about, &done, &loaded, verdict, order);
        report.problems = problems;
        let wanted = self.plan.history.is_some() || !report.clone().judged().good;
        if wanted {
            report.history = Some(path);
        } else {
            // Nothing is wrong, so its content is of no use.
            let _ = fs::remove_file(&path);
        }
        Ok(report)
    }

    /// Puts the records. Returns the time that took.
    fn fill(&mut self, observer: &mut dyn Observer) -> Result<f64, RunError> {
        if self.plan.records == 0 {
            return Ok(0.0);
        }
        let clock = Instant::now();
        observer.begin(Phase::Load(self.plan.records));
        let mut put = Over::put(self.records.clone(), MANY_AT_A_TIME);
        if let Some(why) = self.many(&mut put, false, observer) {
            return Err(RunError::Records(why));
        }
        Ok((clock.elapsed().as_secs_f64() * 1e3).round() / 1e3)
    }

    /// Runs a workload to its end, many operations concurrently, even after a request to end if it
    /// is `owed`. Returns the error, if any.
    fn many(
        &mut self,
        workload: &mut impl Workload,
        owed: bool,
        observer: &mut dyn Observer,
    ) -> Option<String> {
        let mut watch = |progress| observer.progress(progress) || owed;
        let done = generator::run(&mut self.driver, workload, MANY, &mut watch);
        done.ended_early.or(done.errors.first)
    }

    fn history(&self) -> PathBuf {
        let own = || {
            let name = format!("skein-chaos-{}-{}.jsonl", std::process::id(), self.plan.seed);
            std::env::temp_dir().join(name)
        };
        self.plan.history.clone().unwrap_or_else(own)
    }

    fn header(&self, objects: &Objects, began: u64) -> Header {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Header {
            format: FORMAT,
            workload: "chaos".to_owned(),
            skein: BUILD.text().to_owned(),
            cluster: self.running.config.topology,
            seed: self.plan.seed,
            t: began,
            unix_ms: since.as_millis() as u64,
            token_bytes: TOKEN_BYTES,
            bank: Some(objects.bank()),
            record: None,
            before: false,
        }
    }

    fn load(&self, objects: &Objects, mut scribe: Scribe, gauge: &Gauge) -> load::Loaded {
        let plan = load::Plan {
            clients: self.plan.clients,
            rate: self.plan.rate,
            mix: Mix::Everything,
            read_modes: self.plan.read_modes.clone(),
            probe: true,
            window: self.running.config.tuning.window,
            seed: self.plan.seed,
            writer: WRITER,
        };
        let mut connect = || Driver::to(&self.running).ok();
        load::run(&mut connect, objects, &plan, &mut scribe, gauge)
    }

    /// Injects faults until the end of the plan, and waits until all nodes are well. Returns the
    /// faults, the end of the load, and the problems.
    fn under_chaos(
        &self,
        recorder: &Recorder,
        began: u64,
        gauge: &Gauge,
        observer: &mut dyn Observer,
    ) -> (Vec<Injected>, u64, Vec<String>) {
        let Plan { end, kinds, target, stop_max, seed, .. } = &self.plan;
        let layout = self.running.config.layout();
        let processes = Processes::new(self.directory.clone(), layout.topology());
        let tuning = self.running.config.tuning;
        let silence =
            Duration::from_millis(tuning.heartbeat_ms * u64::from(tuning.heartbeats_missed_max));
        let schedule = Schedule::new(layout.clone(), kinds.clone(), *target, silence, *seed);
        let dir = self.directory.path();
        let task = Task { run: self.records.run.clone(), began, seed: *seed, writer: WRITER };
        let clients = Clients::new(dir, self.program.client, task);
        let mut chaos = Chaos::new(processes, schedule, clients, recorder, layout, *stop_max);
        (chaos.hosts, chaos.supervisor) = (self.hosts, self.supervisor);
        let clock = Instant::now();
        observer.begin_faults();
        let mut watch = |done: &[Injected]| {
            observer.faults(SoFar {
                elapsed: clock.elapsed(),
                answered: gauge.answered.load(Ordering::Relaxed),
                unanswered: gauge.unanswered.load(Ordering::Relaxed),
                faults: done.len(),
            });
            !observer.asked()
        };
        thread::sleep(QUIET);
        chaos.run(*end, &mut watch);
        let problems = chaos.heal(&mut watch);
        thread::sleep(QUIET);
        observer.end();
        (std::mem::take(&mut chaos.done), now(), problems)
    }

    /// Reads everything back, and asks every replica for its digest.
    fn look_again(&mut self, recorder: &Recorder, observer: &mut dyn Observer) -> Vec<String> {
        let mut problems = Vec::new();
        let mut scribe = recorder.scribe();
        let keys: Vec<String> = recorder.keys().into_iter().collect();
        observer.begin(Phase::Load(keys.len() as u64));
        let mut survey = Survey::new(keys, MANY_AT_A_TIME, None);
        if let Some(why) = self.many(&mut survey, true, observer) {
            problems.push(format!("reading everything back: {why}"));
        }
        survey.found.into_iter().for_each(|found| scribe.note(Record::Final(found)));
        if self.plan.records > 0 {
            observer.begin(Phase::Load(self.plan.records));
            let mut look = Over::look(self.records.clone(), MANY_AT_A_TIME);
            if let Some(why) = self.many(&mut look, true, observer) {
                problems.push(format!("reading the records back: {why}"));
            }
        }
        observer.message("comparing replicas");
        match self.digests() {
            Ok(digests) => {
                for digest in digests {
                    scribe.note(Record::Digest(digest));
                }
            }
            Err(error) => problems.push(format!("comparing replicas: {}", with_causes(&error))),
        }
        problems.extend(nodes::divergences(self.directory.path()));
        problems
    }

    /// The digests of all replicas, once those of each group are at one position and nothing is
    /// pending, or the last ones after a timeout.
    fn digests(&self) -> Result<Vec<Digest>, DigestsError> {
        let deadline = Instant::now() + AGREE_WITHIN;
        let Topology { nodes, .. } = self.running.config.topology;
        loop {
            let asked = ask(nodes, |node| {
                admin::call(&self.directory, node, Action::Digest, DIGESTS_WITHIN)
            });
            let statuses: Result<Vec<NodeStatus>, _> = asked.into_iter().collect();
            let late = Instant::now() >= deadline;
            match statuses {
                Ok(statuses) => {
                    let pending: u64 = statuses.iter().map(NodeStatus::pending).sum();
                    let digests: Vec<Digest> = statuses.iter().flat_map(digests_of).collect();
                    if agree(&digests) && pending == 0 {
                        return Ok(digests);
                    }
                    if late && pending > 0 {
                        return Err(DigestsError::Pending(pending));
                    }
                    if late {
                        return Ok(digests);
                    }
                }
                Err(error) if late => return Err(error.into()),
                Err(_) => {}
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// How often each node was killed or told to end.
fn deaths(done: &[Injected]) -> BTreeMap<u16, u32> {
    let mut deaths = BTreeMap::new();
    for fault in done.iter().filter(|fault| KILLED.contains(&fault.what)) {
        fault.nodes.iter().for_each(|node| *deaths.entry(*node).or_default() += 1);
    }
    deaths
}

fn digests_of(status: &NodeStatus) -> impl Iterator<Item = Digest> + '_ {
    let t = now();
    status.replicas.iter().filter_map(move |replica| {
        let digest = replica.digest.as_ref()?;
        Some(Digest {
            t,
            group: replica.order.group,
            slot: replica.order.slot,
            node: status.node,
            position: digest.position,
            digest: digest.hash.clone(),
        })
    })
}

/// Whether the replicas of each group are at one position.
fn agree(digests: &[Digest]) -> bool {
    let mut positions = BTreeMap::new();
    digests
        .iter()
        .all(|digest| *positions.entry(digest.group).or_insert(digest.position) == digest.position)
}

/// Supervises the nodes while the result lives, because no other process does.
fn supervise_for_now(
    directory: &Directory,
    nodes: u16,
    namespaces: Option<String>,
    tell: fn(SuperviseError),
) -> Result<Supervisor, SuperviseError> {
    let plan = supervise::Plan {
        directory: directory.clone(),
        nodes,
        left_out: BTreeSet::new(),
        verbose: 0,
        detached: true,
        returns: false,
        namespaces,
    };
    let supervisor = Supervisor::start(plan, move |ended| {
        if let Err(error) = ended {
            tell(error);
        }
    })?;
    supervisor.restart();
    Ok(supervisor)
}
