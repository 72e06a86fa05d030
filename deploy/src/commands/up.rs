//! `skein up`: creates a cluster, starts its nodes, and supervises them unless told otherwise.

pub(crate) mod durability;
mod standstill;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use signal_hook::consts::SIGINT;
use skein_cluster::claim::Claim;
use skein_cluster::config::{
    ClusterConfig, Durability, FabricKind, Footprint, StoreKind, show_bytes,
};
use skein_cluster::directory::{Directory, DirectoryError, Manifest};
use skein_node::points::choice;
use skein_node::supervise::{Ended, Plan, SuperviseError, Supervisor};
use skein_node::{admin, missing, nodes};

use self::durability::Choice;
use self::standstill::Standstill;
use super::closing::close;
use super::last_words::Logs;
use super::supervise::{self, Happened, Upkeep, say_of_cluster};
use crate::args::Global;
use crate::exit::Exit;
use crate::output::tell;
use crate::shape::{Settings, Shape};
use crate::{background, logging, ports, signals};

/// How long the nodes may take to become ready. They have to reserve memory, and the machine may be
/// slow.
const READY_WITHIN: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(20);

/// Starts a cluster on this machine
///
/// Each node is a process of its own, and is restarted when it dies. In the foreground, Ctrl-C
/// stops the cluster; with --detach, `skein down` does.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    shape: Shape,

    /// Returns when the cluster is ready and leaves it running, and a supervisor with it
    #[arg(long)]
    detach: bool,

    /// Does not restart nodes that die; with --detach, leaves no supervisor
    #[arg(long)]
    no_restart: bool,

    /// With durability async, returns to the newest restore point that is left even if more disks are lost than the cluster
    /// tolerates, so that it may be older than node.lag_ms_max
    #[arg(long)]
    accept_lost_disks: bool,

    /// The background part of --detach
    #[arg(long, hide = true, requires = "detach")]
    pub(super) background: bool,
}

/// An event while the cluster runs.
pub(super) enum Event {
    Signal(i32),
    /// A line from the terminal.
    Answer(String),
    /// A node has ended or could not be started.
    Node(anyhow::Result<Ended>),
    /// All nodes of a cluster with restore points have ended, and wait until it has returned to one.
    AllEnded,
}

/// What becomes of a durable cluster's data when it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Keep,
    Remove,
}

/// A cluster that this process started.
pub(crate) struct Started {
    directory: Directory,
    config: ClusterConfig,
    claim: Claim,
    manifest: Manifest,
    supervisor: Supervisor,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// What does not serve, though the cluster runs.
    standstill: Option<Standstill>,
    /// Why its data is in memory only, if nobody has said that it should be.
    volatile: Option<String>,
    /// The logs of the nodes when they were started.
    logs: Logs,
}

impl Started {
    /// Creates a cluster in `directory` and starts its nodes, which end with this process unless
    /// they are `detached`. Returns when they are ready, or, if a durable cluster goes on here, when it is known
    /// that some of it cannot serve. Signals to stop are caught from now on, and one that arrives during
    /// the start ends it. A node that dies stays dead until [`restart`](Self::restart).
    pub(crate) fn start(
        directory: Directory,
        mut config: ClusterConfig,
        choice: Choice,
        verbose: u8,
        detached: bool,
        accept_lost_disks: bool,
        namespaces: Option<String>,
    ) -> anyhow::Result<Self> {
        if config.network.fabric.is_network() && config.network.addresses.is_empty() {
            let topology = &config.topology;
            config.network.addresses = ports::loopback(topology.nodes, topology.engines)?;
        }
        let (sender, events) = channel();
        signals::to_channel(sender.clone(), Event::Signal).context("cannot catch signals")?;
        let mut claim = directory.claim_new()?;
        let mut warn = |warning| tell(format_args!("warning: {warning}"));
        let kept = claim.stopped()?;
        // What is new, and does not start, is to leave nothing.
        let goes_on = kept.is_some();
        let data = if goes_on { Data::Keep } else { Data::Remove };
        let mut volatile = None;
        let manifest = if let Some(kept) = kept {
            config = ClusterConfig { disk_bytes_max: config.disk_bytes_max, ..kept };
            if config.durability == Durability::Async {
                returns(&mut claim, &config, accept_lost_disks, &|what| tell(what))?
            } else {
                claim.resume(&config)?
            }
        } else {
            if choice == Choice::Disk {
                volatile = durability::choose(&directory, &mut config);
            }
            match claim.lay_out(&config, &mut warn) {
                Ok(manifest) => manifest,
                Err(error) => {
                    claim.clear()?;
                    return Err(error.into());
                }
            }
        };
        let nodes = manifest.nodes;
        let left_out = missing::indispensable(&directory, &config);
        if left_out.len() == usize::from(nodes) {
            claim.set_aside()?;
            let place = config.data_dir.as_ref().map_or_else(String::new, |dir| {
                format!(" (links into node.data_dir = {}: is its disk mounted?)", dir.display())
            });
            bail!(
                "not started: the data of all nodes is gone: {0}/node*.data{place} are empty or not there; put it back, \
                 or `skein down --wipe` removes the rest, and `skein up` begins a new cluster",
                directory.path().display()
            );
        }
        let plan = Plan {
            directory: directory.clone(),
            nodes,
            left_out: left_out.clone(),
            verbose,
            detached,
            returns: config.durability == Durability::Async,
            namespaces,
        };
        let logs = Logs::of(&directory, nodes);
        let supervisor = Supervisor::start(plan, tell_of_nodes(sender.clone()))?;
        let standstill = None;
        let mut this = Self {
            directory,
            config,
            claim,
            manifest,
            supervisor,
            events,
            sender,
            standstill,
            volatile,
            logs,
        };
        let waited =
            if goes_on { this.wait_served(&left_out) } else { this.wait_ready().map(|()| None) };
        match waited {
            Ok(standstill) => {
                this.standstill = standstill;
                Ok(this)
            }
            Err(error) => {
                this.stop(data)?;
                Err(error)
            }
        }
    }

    /// From now on a dead node is restarted.
    pub(crate) fn restart(&self) {
        self.supervisor.restart();
    }

    /// What starts the nodes.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The processes of the running nodes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pid = |node| Some(self.directory.node(node)?.pid);
        (0..self.manifest.nodes).filter_map(pid).collect()
    }

    /// Waits until every node reports that it is ready.
    fn wait_ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut waiting: Vec<u16> = (0..self.manifest.nodes).collect();
        let mut progress = Progress::new(waiting.len());
        while let Some(&first) = waiting.first() {
            match self.events.recv_timeout(POLL) {
                Ok(Event::Signal(signal)) => bail!("not started: {}", signals::name(signal)),
                Ok(Event::Node(Ok(Ended { node, how, .. }))) => {
                    bail!("not started: node {node} {how}{}", self.logs.end(node));
                }
                Ok(Event::Node(Err(error))) => return Err(error.context("not started")),
                // No question was asked yet, so an answer is ignored, and no node is restarted. This process holds a
                // sender, so an error is a timeout.
                Ok(Event::Answer(_) | Event::AllEnded) | Err(_) => {}
            }
            let ready =
                |node| admin::status(&self.directory, node).is_ok_and(|status| status.ready);
            waiting.retain(|node| !ready(*node));
            progress.show(waiting.len());
            if Instant::now() >= deadline && !waiting.is_empty() {
                let log = self.logs.end(first);
                let within = READY_WITHIN.as_secs();
                bail!("node {first} is not ready after {within} seconds; its log ends:{log}");
            }
        }
        Ok(())
    }

    /// Waits until told to stop, or until no node is left.
    ///
    /// # Errors
    /// All nodes have ended, and the cluster cannot return to a restore point.
    fn stay(&mut self) -> anyhow::Result<Stayed> {
        let mut upkeep = Upkeep::default();
        let mut asked = false;
        loop {
            match upkeep.next(&mut self.claim, &self.events, &|what| tell(what)) {
                Happened::Event(Event::Signal(signal)) => {
                    let keys = if self.manifest.durable { 0 } else { self.keys() };
                    let (key, exist) =
                        if keys == 1 { ("key", "exists") } else { ("keys", "exist") };
                    if keys > 0 && signal == SIGINT && io::stdin().is_terminal() && !asked {
                        asked = true;
                        logging::flush();
                        let _ = write!(
                            io::stderr(),
                            "{keys} {key} {exist} only in the memory of this cluster and will be \
                             lost. Stop it? [y/N, or Ctrl-C again] "
                        );
                        self.hear_answer();
                        continue;
                    }
                    let lost = match keys {
                        0 => String::new(),
                        _ => format!("; {keys} {key} that {exist} only in its memory: dropped"),
                    };
                    tell(format_args!("stopping: {}{lost}", signals::name(signal)));
                    return Ok(Stayed::ToldToStop);
                }
                Happened::Event(Event::Answer(answer)) => {
                    asked = false;
                    if ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) {
                        tell("stopping, as answered");
                        return Ok(Stayed::ToldToStop);
                    }
                    tell("the cluster keeps running");
                }
                Happened::Event(Event::Node(Ok(ended))) => {
                    tell(&ended);
                    if ended.left == 0 {
                        return Ok(Stayed::Alone);
                    }
                }
                Happened::Event(Event::Node(Err(error))) => tell(format_args!("{error:#}")),
                Happened::Event(Event::AllEnded) => {
                    return_again(&mut self.claim, &self.supervisor, &|what| tell(what))?;
                }
                Happened::Taken => return Ok(Stayed::Replaced),
                Happened::Nobody => return Ok(Stayed::Alone),
            }
        }
    }

    /// Whether all of it serves, in words.
    fn state(&self) -> String {
        let Some(Standstill { groups, .. }) = &self.standstill else {
            return "is ready".to_owned();
        };
        let names: Vec<_> = groups.iter().map(|group| format!("g{group}")).collect();
        match (groups.len(), usize::from(self.config.topology.groups)) {
            (0, _) => "serves, and not all of its nodes run".to_owned(),
            (all, groups) if all == groups => "runs, and serves nothing".to_owned(),
            _ => format!("runs, and serves all but {}", names.join(", ")),
        }
    }

    /// Number of keys on the nodes that answer.
    fn keys(&self) -> u64 {
        let statuses = nodes::statuses(&self.directory, self.manifest.nodes);
        nodes::keys(statuses.iter().flatten())
    }

    /// Turns the next line from the terminal into an event.
    fn hear_answer(&self) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = io::stdin().lock().read_line(&mut line);
            let _ = sender.send(Event::Answer(line));
        });
    }

    /// Stops the nodes and removes everything. A further signal to stop skips the wait for
    /// the last restore point and for operations in flight.
    pub(crate) fn stop(self, data: Data) -> anyhow::Result<()> {
        let Self { directory, config, mut claim, manifest, supervisor, events, .. } = self;
        // Before the search for nodes: a node that is starting and is not found sees this mark.
        claim.stopping()?;
        supervisor.hold();
        let within = Duration::from_millis(config.stop_within_ms);
        let mut hurry = false;
        let mut hear = || {
            hurry |= events.try_iter().any(|event| matches!(event, Event::Signal(_)));
            hurry
        };
        if data == Data::Keep {
            close(&directory, &config, &mut hear);
        }
        nodes::stop(&directory, manifest.nodes, within, &mut hear)?;
        drop(supervisor);
        if manifest.durable && data == Data::Keep {
            return Ok(claim.set_aside()?);
        }
        Ok(claim.clear()?)
    }
}

/// Chooses the restore point to which a cluster returns, says so by `note`, and lets it return.
fn returns(
    claim: &mut Claim,
    config: &ClusterConfig,
    accept_lost_disks: bool,
    note: &dyn Fn(String),
) -> anyhow::Result<Manifest> {
    let warn = &mut |warning| note(format!("warning: {warning}"));
    let stopped = claim.stopped_manifest().context("no cluster was stopped here")?;
    let returned = choice::choose(claim.directory(), stopped, config, accept_lost_disks, warn)
        .context("not started")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_micros(returned.point));
    if returned.point == 0 {
        note(
            "no restore point was made before all nodes ended: the cluster begins empty".to_owned(),
        );
    } else if !returned.closed {
        note(format!(
            "the cluster returns to its state of {:.1} s ago: what was acknowledged later is lost",
            age.as_secs_f64()
        ));
    }
    Ok(claim.return_to(returned, config, warn)?)
}

/// Lets a cluster whose nodes have all ended return to a restore point, and starts them again.
///
/// # Errors
/// It cannot return, for want of disks, and no node is started.
pub(super) fn return_again(
    claim: &mut Claim,
    supervisor: &Supervisor,
    note: &dyn Fn(String),
) -> anyhow::Result<()> {
    supervisor.hold();
    match claim.find_stopped() {
        Ok(()) => {}
        // Somebody has started a node. The others join it, as they would if they had ended one by one.
        Err(error @ DirectoryError::InUse { .. }) => {
            note(format!("the cluster does not return to a restore point: {error}"));
            supervisor.restart();
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    let config = claim.directory().config()?;
    returns(claim, &config, false, note)?;
    supervisor.restart();
    Ok(())
}

/// How a foreground `up` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stayed {
    ToldToStop,
    /// No node is left.
    Alone,
    /// Another process has claimed the directory, and stops the cluster.
    Replaced,
}

/// Forwards the reports of a supervisor.
pub(super) fn tell_of_nodes(
    sender: Sender<Event>,
) -> impl Fn(Result<Ended, SuperviseError>) + Send + 'static {
    move |ended| {
        let event = match ended {
            Err(SuperviseError::AllEnded) => Event::AllEnded,
            ended => Event::Node(ended.map_err(Into::into)),
        };
        // The receiver is gone only while the process ends.
        let _ = sender.send(event);
    }
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.detach && !self.background && !self.no_restart {
            return background::start();
        }
        if self.background {
            background::enter()?;
        }
        let mut said = self.shape.settings()?;
        let choice = if said.durability { Choice::Configured } else { Choice::Disk };
        let directory = Directory::at(&global.dir())?;
        if directory.manifest().is_ok_and(|manifest| manifest.durable) {
            self.go_on(&directory, &mut said)?;
        }
        let config = said.config;
        let mut cluster = Started::start(
            directory,
            config,
            choice,
            global.verbose,
            self.detach,
            self.accept_lost_disks,
            None,
        )?;
        let welcome = self.welcome(global, &cluster);
        let mut exit = Exit::Ok;
        if let Some(Standstill { why, .. }) = &cluster.standstill {
            tell(why);
            exit = Exit::Partly;
        }
        if self.background {
            cluster.claim.supervising()?;
            cluster.restart();
            background::ready(&welcome, exit, &cluster.directory.supervisor_log());
            let Started { claim, supervisor, events, .. } = cluster;
            return supervise::stay(claim, supervisor, &events, true);
        }
        if self.no_restart {
            cluster.claim.looking_on()?;
        } else {
            cluster.restart();
        }
        say_of_cluster(&welcome);
        if self.detach {
            cluster.claim.leave()?;
            return Ok(exit);
        }
        let stayed = cluster.stay();
        let failure = stayed.as_ref().err().map(|error| format!("{error:#}"));
        let stayed = stayed.unwrap_or(Stayed::Alone);
        if stayed == Stayed::Replaced {
            // The nodes end with this process, and the other process removes the files.
            return Ok(Exit::Ok);
        }
        let durable = cluster.manifest.durable;
        cluster.stop(Data::Keep)?;
        match (stayed, durable) {
            (Stayed::Alone, false) => bail!("all nodes had ended, and what they held is lost"),
            (Stayed::Alone, true) => {
                let why = failure.map_or_else(String::new, |why| format!(": {why}"));
                bail!(
                    "all nodes had ended; their data is kept, and `skein up` starts it again{why}"
                )
            }
            (_, false) => tell("stopped"),
            (_, true) => tell("stopped; its data is kept, and `skein up` starts it again"),
        }
        Ok(Exit::Ok)
    }

    /// Checks the settings for a cluster that exists, whose bound of space alone can be another one.
    fn go_on(&self, directory: &Directory, said: &mut Settings) -> anyhow::Result<()> {
        let kept = directory.config()?;
        let Settings { config, durability, disk_bytes_max } = said;
        if !*disk_bytes_max {
            config.disk_bytes_max = kept.disk_bytes_max;
        }
        if !*durability {
            config.durability = kept.durability;
        }
        let bound = config.disk_bytes_max;
        let kept = ClusterConfig { disk_bytes_max: bound, ..kept };
        if self.shape.is_given() && *config != kept {
            let dir = directory.path().to_owned();
            return Err(DirectoryError::Settings { dir, differs: difference(config, &kept) }.into());
        }
        Ok(())
    }

    fn welcome(&self, global: &Global, cluster: &Started) -> String {
        let Started { directory, config, manifest, .. } = cluster;
        let topology = &config.topology;
        let size = Footprint::of(config);
        let dir = global.dir_flag();
        let mut text = String::new();
        let _ = writeln!(
            text,
            "cluster {} {}: {} node{}, {} group{} of {} replica{}",
            manifest.cluster,
            cluster.state(),
            topology.nodes,
            plural(topology.nodes),
            topology.groups,
            plural(topology.groups),
            topology.replicas,
            plural(topology.replicas.into()),
        );
        let pids = (0..manifest.nodes).filter_map(|node| Some((node, directory.node(node)?.pid)));
        let pids: Vec<_> = pids.map(|(node, pid)| format!("node {node} = {pid}")).collect();
        let _ = writeln!(text, "  processes  {}", pids.join(", "));
        match (self.background, self.no_restart) {
            (true, _) => {
                let _ = writeln!(text, "             supervisor = {}", std::process::id());
            }
            (false, true) => {
                let _ = writeln!(text, "             a node that dies is not started again");
            }
            (false, false) => {}
        }
        let _ = writeln!(text, "  directory  {}", directory.path().display());
        let here = || directory.path().join("node*.data");
        let data = config.data_dir.clone().unwrap_or_else(here);
        if manifest.durable {
            let survives = match config.durability {
                Durability::Async => format!(
                    "a loss of power of all nodes takes what was acknowledged in the last {} ms (durability \"async\")",
                    config.lag_ms_max
                ),
                _ => {
                    "what is acknowledged survives a loss of power (durability \"sync\")".to_owned()
                }
            };
            let _ = writeln!(text, "  data       in {}: {survives}", data.display());
        } else if let Some(why) = &cluster.volatile {
            let _ = writeln!(text, "  data       in memory only: {why} (durability \"memory\")");
        }
        match config.network.fabric {
            FabricKind::Shm => {
                let _ = writeln!(text, "  memory     {}", manifest.regions.display());
            }
            FabricKind::Tcp | FabricKind::Verbs => {
                let plain = if config.network.is_encrypted() { "" } else { ", not encrypted" };
                let addresses = config.network.addresses.join(", ");
                let _ = writeln!(text, "  network    {addresses}{plain}");
                let _ = writeln!(text, "  memory     of the processes");
            }
        }
        let _ = writeln!(
            text,
            "             {} to start, at most {} with sessions; and {} a node for keys and values{}",
            show_bytes(size.at_start()),
            show_bytes(size.most()),
            show_bytes(config.bytes_in_memory().1),
            match config.store {
                StoreKind::Memory => String::new(),
                StoreKind::Rocksdb =>
                    format!(", of at most {} on disk", show_bytes(config.limits.store_bytes_max)),
            },
        );
        let _ = writeln!(text, "  use        skein{dir} put greeting hello");
        let _ = writeln!(text, "             skein{dir} get greeting");
        let _ = writeln!(text, "  watch      skein{dir} status --watch");
        let stop = if self.detach { "" } else { "Ctrl-C, or " };
        let _ = writeln!(text, "  stop       {stop}skein{dir} down");
        text
    }
}

fn plural(count: u16) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A progress line on a terminal, removed on drop.
struct Progress {
    nodes: usize,
    shown: Option<usize>,
    terminal: bool,
}

impl Progress {
    fn new(nodes: usize) -> Self {
        Self { nodes, shown: None, terminal: io::stderr().is_terminal() }
    }

    fn show(&mut self, waiting: usize) {
        let ready = self.nodes - waiting;
        if self.terminal && self.shown.replace(ready) != Some(ready) {
            let _ = write!(io::stderr(), "\r\x1b[Kstarting: {ready} of {} nodes ready", self.nodes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
/// A setting that differs, in the words of a configuration file.
fn difference(given: &ClusterConfig, kept: &ClusterConfig) -> String {
    let (given, kept) = (given.print(), kept.print());
    let entries = |text: &str| -> BTreeMap<String, String> {
        let entry = |line: &str| line.split_once(" = ").map(|(name, _)| name.to_owned());
        text.lines().filter_map(|line| Some((entry(line)?, line.to_owned()))).collect()
    };
    let (given, kept) = (entries(&given), entries(&kept));
    let differs = |name: &&String| given.get(*name) != kept.get(*name);
    // Ports that were found differ with whatever else does.
    let all = || kept.keys().chain(given.keys()).filter(differs);
    let Some(name) = all().find(|name| *name != "addresses").or_else(|| all().next()) else {
        return "some differ".to_owned();
    };
    let said = |entries: &BTreeMap<String, String>| match entries.get(name) {
        Some(line) => format!("`{line}`"),
        None => format!("no `{name}`"),
    };
    format!("{} was given and {} is kept", said(&given), said(&kept))
}
