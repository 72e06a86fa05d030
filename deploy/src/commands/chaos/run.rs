//! One run, from the first record put to the report.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use skein_checker::history::{Digest, FORMAT, Header, Record, Recorder, Scribe, now};
use skein_client::{Driver, ReadMode};
use skein_cluster::BUILD;
use skein_cluster::directory::{Directory, RunningCluster};
use skein_fabric::any::AnyFabric;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::Topology;
use skein_node::admin::{self, Action};
use skein_node::nodes::{self, ask};
use skein_node::status::NodeStatus;
use skein_node::supervise::{self, Supervisor};
use skein_workloads::bench::{Phase, Watch};
use skein_workloads::chaos::load::{self, Gauge};
use skein_workloads::chaos::objects::{Mix, Objects, TOKEN_BYTES};
use skein_workloads::chaos::report::{About, Injected, Report, State};
use skein_workloads::chaos::schedule::{Kind, Schedule, Target};
use skein_workloads::chaos::state::{Over, Records, Survey};
use skein_workloads::generator::{self, Settings, Workload};

use super::super::check::{Looked, look};
use super::client::Clients;
use super::faults::{Chaos, End};
use super::hosts::Hosts;
use super::patient::{Lives, Patient};
use crate::exit::usage;
use crate::output::tell;
use crate::progress::{Bars, Interrupt};

/// Before the first fault, and after the last recovery.
const QUIET: Duration = Duration::from_secs(2);
/// How long replicas may take to be at one position when nothing is asked of them any more.
const AGREE_WITHIN: Duration = Duration::from_secs(30);
const DIGESTS_WITHIN: Duration = Duration::from_secs(30);
/// Reading everything and putting records: many at a time, for it is not measured.
const MANY: Settings = Settings::to_the_end(8, 8);
const MANY_AT_A_TIME: usize = MANY.clients;
/// The number of the writer of this process; those of clients that are killed come after it.
const WRITER: u16 = 1;

/// What to do.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) end: End,
    pub(super) kinds: Vec<Kind>,
    pub(super) target: Target,
    pub(super) stop_max: Duration,
    pub(super) clients: usize,
    pub(super) rate: Option<f64>,
    pub(super) records: u64,
    pub(super) value_bytes: usize,
    pub(super) read_modes: Vec<ReadMode>,
    pub(super) seed: u64,
    pub(super) history: Option<PathBuf>,
}

/// A run on a cluster.
pub(super) struct Run<'a> {
    plan: Plan,
    directory: Directory,
    running: RunningCluster,
    driver: Driver<AnyFabric>,
    records: Records,
    bars: Bars,
    interrupt: Interrupt,
    /// The nodes' hosts, if they can be parted.
    hosts: Option<&'a Hosts>,
    /// Starts again what was killed, if nobody else does.
    _supervisor: Option<Supervisor>,
}

impl<'a> Run<'a> {
    /// On the cluster in `dir`, if it can bear what is planned.
    pub(super) fn on(
        dir: &Path,
        plan: Plan,
        interrupt: Interrupt,
        hosts: Option<&'a Hosts>,
    ) -> anyhow::Result<Self> {
        let running = Directory::connect(dir)?;
        let topology = running.config.topology;
        let of_nodes = plan.kinds.iter().find(|kind| **kind != Kind::ClientKill);
        if let Some(kind) = of_nodes.filter(|_| topology.replicas < 3) {
            return Err(usage(format!(
                "{} takes groups of three replicas at least, and this cluster's have {}: leave it out of --faults",
                kind.name(),
                topology.replicas
            )));
        }
        let max = running.config.limits.value_bytes_max;
        if plan.value_bytes > max {
            return Err(usage(format!(
                "--value-size {} is over this cluster's limits.value_bytes_max, {max}",
                plan.value_bytes
            )));
        }
        let directory = Directory::at(dir)?;
        let is_kept = directory.supervisor().is_some_and(|keeper| keeper.restarts);
        let namespaces = hosts.map(Hosts::prefix);
        let supervisor = (!is_kept)
            .then(|| supervise_for_now(&directory, topology.nodes, namespaces))
            .transpose()?;
        let driver = Driver::to(&running).context("cannot reach the cluster's memory")?;
        // So that no key is one of another run.
        let run = format!("{:x}", now() ^ u64::from(std::process::id()) << 40);
        let records = Records { count: plan.records, value_bytes: plan.value_bytes, run };
        let bars = Bars::new(interrupt.clone());
        Ok(Self {
            plan,
            directory,
            running,
            driver,
            records,
            bars,
            interrupt,
            hosts,
            _supervisor: supervisor,
        })
    }

    /// Everything.
    pub(super) fn drive(mut self) -> anyhow::Result<Report> {
        let topology = self.running.config.topology;
        let load_s = self.fill()?;
        let began = now();
        let slots = SlotMap::even(topology.groups);
        let objects = Objects::new(&self.records.run, &slots, topology.groups, began);
        generator::once(&mut self.driver, &objects.opening())
            .context("cannot open the accounts")?;
        let path = self.history();
        let recorder = Recorder::create(&path, self.header(&objects, began))
            .with_context(|| format!("cannot write {}", path.display()))?;

        let lives = Lives::of(&self.directory, topology.nodes);
        let gauge = Gauge::default();
        let (loaded, done, ended, mut problems) = thread::scope(|scope| {
            let scribe = recorder.scribe();
            let load = scope.spawn(|| self.load(&objects, scribe, &gauge));
            let (done, ended, problems) = self.under_chaos(&recorder, began, &gauge);
            gauge.stop.store(true, Ordering::Relaxed);
            let loaded = load.join().expect("the load does not panic");
            (loaded, done, ended, problems)
        });
        problems.extend(lives.unexpected(&deaths(&done)));

        let state =
            State { records: self.plan.records, value_bytes: self.plan.value_bytes, load_s };
        let about = About {
            seed: self.plan.seed,
            skein: BUILD.text().to_owned(),
            topology,
            clients: self.plan.clients,
            rate: self.plan.rate,
            state,
            ran: [began, ended],
        };
        problems.extend(self.look_again(&recorder));
        if self.interrupt.asked() {
            problems.push("interrupted".to_owned());
        }
        recorder.finish().with_context(|| format!("cannot write {}", path.display()))?;
        self.bars.message("checking the history");
        let Looked { verdict, order, .. } = look(&path)?;
        self.bars.end();
        if order.answered == 0 {
            problems.push("nothing was answered: there is nothing to judge".to_owned());
        }
        let mut report = Report::new(about, &done, &loaded, verdict, order);
        report.problems = problems;
        let wanted = self.plan.history.is_some() || !report.clone().judged().good;
        if wanted {
            report.history = Some(path);
        } else {
            // It says what is known: that nothing is wrong.
            let _ = fs::remove_file(&path);
        }
        Ok(report)
    }

    /// Puts the records. Returns how long it took.
    fn fill(&mut self) -> anyhow::Result<f64> {
        if self.plan.records == 0 {
            return Ok(0.0);
        }
        let clock = Instant::now();
        self.bars.begin(Phase::Load(self.plan.records));
        let mut put = Over::put(self.records.clone(), MANY_AT_A_TIME);
        if let Some(why) = self.many(&mut put, false) {
            bail!("cannot put the records: {why}");
        }
        Ok((clock.elapsed().as_secs_f64() * 1e3).round() / 1e3)
    }

    /// Does everything there is to do, many at a time; also what is left of it when somebody wants to
    /// end, if it is `owed`. Returns what went wrong, if something did.
    fn many(&mut self, workload: &mut impl Workload, owed: bool) -> Option<String> {
        let bars = &mut self.bars;
        let mut watch = |progress| bars.progress(progress) || owed;
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

    /// Faults, until it is time to end, and until all are well again. Returns what was done, when it
    /// ended, and what was not as it should be.
    fn under_chaos(
        &self,
        recorder: &Recorder,
        began: u64,
        gauge: &Gauge,
    ) -> (Vec<Injected>, u64, Vec<String>) {
        let Plan { end, kinds, target, stop_max, seed, .. } = &self.plan;
        let topology = self.running.config.topology;
        let patient = Patient::new(self.directory.clone(), topology);
        let tuning = self.running.config.tuning;
        let silence =
            Duration::from_millis(tuning.heartbeat_ms * u64::from(tuning.heartbeats_missed_max));
        let schedule = Schedule::new(topology, kinds.clone(), *target, silence, *seed);
        let dir = self.directory.path();
        let clients = Clients::new(dir, &self.records.run, began, *seed, WRITER);
        let mut chaos = Chaos::new(patient, schedule, clients, recorder, topology, *stop_max);
        chaos.hosts = self.hosts;
        let clock = Instant::now();
        let line = self.bars.line();
        let mut watch = |done: &[Injected]| {
            line.set_message(format!(
                "{:.0} s, {} answers, {} without, {} faults",
                clock.elapsed().as_secs_f64(),
                gauge.answered.load(Ordering::Relaxed),
                gauge.unanswered.load(Ordering::Relaxed),
                done.len(),
            ));
            line.tick();
            !self.interrupt.asked()
        };
        thread::sleep(QUIET);
        chaos.run(*end, &mut watch);
        let problems = chaos.heal(&mut watch);
        thread::sleep(QUIET);
        line.finish_and_clear();
        (std::mem::take(&mut chaos.done), now(), problems)
    }

    /// Reads everything back, and asks every replica what it holds.
    fn look_again(&mut self, recorder: &Recorder) -> Vec<String> {
        let mut problems = Vec::new();
        let mut scribe = recorder.scribe();
        let keys: Vec<String> = recorder.keys().into_iter().collect();
        self.bars.begin(Phase::Load(keys.len() as u64 + self.plan.records));
        let mut survey = Survey::new(keys, MANY_AT_A_TIME, None);
        if let Some(why) = self.many(&mut survey, true) {
            problems.push(format!("reading everything back: {why}"));
        }
        survey.found.into_iter().for_each(|found| scribe.note(Record::Final(found)));
        if self.plan.records > 0 {
            let mut look = Over::look(self.records.clone(), MANY_AT_A_TIME);
            if let Some(why) = self.many(&mut look, true) {
                problems.push(format!("reading the records back: {why}"));
            }
        }
        self.bars.message("comparing replicas");
        match self.digests() {
            Ok(digests) => {
                for digest in digests {
                    scribe.note(Record::Digest(digest));
                }
            }
            Err(error) => problems.push(format!("comparing replicas: {error:#}")),
        }
        problems.extend(nodes::divergences(self.directory.path()));
        problems
    }

    /// What every replica holds, once those of a group are at one position and nothing is pending; or
    /// the last that they said.
    fn digests(&self) -> anyhow::Result<Vec<Digest>> {
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
                        bail!("{pending} messages are still pending");
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
    for fault in done.iter().filter(|fault| ["kill", "restart"].contains(&fault.what)) {
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

/// Starts again whatever is killed, for as long as this lives: nobody else does.
fn supervise_for_now(
    directory: &Directory,
    nodes: u16,
    namespaces: Option<String>,
) -> anyhow::Result<Supervisor> {
    let plan = supervise::Plan {
        directory: directory.clone(),
        nodes,
        elsewhere: BTreeSet::new(),
        verbose: 0,
        detached: true,
        namespaces,
    };
    let supervisor = Supervisor::start(plan, |ended| {
        if let Err(error) = ended {
            tell(format_args!("{:#}", anyhow::Error::new(error)));
        }
    })?;
    supervisor.restart();
    Ok(supervisor)
}
