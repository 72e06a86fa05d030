//! `skein up`: lays a cluster out, starts its nodes, and stays with them unless told otherwise.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use skein_kvstore::config::{ClusterConfig, Draft, Footprint, show_bytes};
use skein_kvstore::node::admin;
use skein_kvstore::node::claim::Claim;
use skein_kvstore::node::directory::{Directory, Manifest};

use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::output::tell;
use crate::{cluster, signals};

/// How long the nodes may take to become ready. They have memory to reserve, and the machine may be
/// slow.
const READY_WITHIN: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(20);
/// The end of a failed node's log that is shown.
const LOG_LINES_MAX: usize = 10;

/// Starts a cluster on this machine
///
/// Each node is a process of its own. In the foreground, Ctrl-C stops the cluster; with --detach,
/// `skein down` does.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Node processes [default: 3]
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,

    /// Shards, each replicated by a group [default: 2]
    #[arg(long, value_name = "N")]
    groups: Option<u16>,

    /// Replicas of each group, an odd number [default: 3]
    #[arg(long, value_name = "N")]
    replicas: Option<u8>,

    /// A TOML file; `skein config print` shows what it may say
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Returns when the cluster is ready and leaves it running
    #[arg(long)]
    detach: bool,
}

/// What happens while the cluster runs.
enum Event {
    Signal(i32),
    Ended(u16, io::Result<ExitStatus>),
}

/// The nodes that this process started.
struct Nodes {
    directory: Directory,
    config: ClusterConfig,
    /// A handle on each: a number could come to mean another process.
    handles: Vec<OwnedFd>,
    /// How many have not ended.
    running: usize,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

/// A cluster that this process started.
pub(crate) struct Started {
    claim: Claim,
    nodes: Nodes,
    manifest: Manifest,
}

impl Started {
    /// Lays a cluster out in `directory`, and starts its nodes; they end when this process does
    /// unless they are `detached`. Returns when they are ready. Signals to stop are caught from now
    /// on: while the nodes start, one ends that.
    pub(crate) fn start(
        directory: Directory,
        config: ClusterConfig,
        verbose: u8,
        detached: bool,
    ) -> anyhow::Result<Self> {
        let (sender, events) = channel();
        signals::to_channel(sender.clone(), Event::Signal).context("cannot catch signals")?;
        let mut claim = directory.claim_new()?;
        let (handles, running) = (Vec::new(), 0);
        let mut nodes = Nodes { directory, config, handles, running, sender, events };
        match nodes.start(&mut claim, verbose, detached) {
            Ok(manifest) => Ok(Self { claim, nodes, manifest }),
            Err(error) => {
                nodes.end(claim)?;
                Err(error)
            }
        }
    }

    /// What its files and its memory belong to.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The processes of the nodes that are running.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pid = |node| Some(self.nodes.directory.node(node)?.pid);
        (0..self.manifest.nodes).filter_map(pid).collect()
    }

    /// The nodes that have ended since this was last asked, and how. Signals to stop that have come
    /// are forgotten: whoever asks has heard of them.
    pub(crate) fn lost(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        while let Ok(event) = self.nodes.events.try_recv() {
            if let Event::Ended(node, status) = event {
                self.nodes.running -= 1;
                lost.push(ended(&self.nodes.directory, node, status));
            }
        }
        lost
    }

    /// Stops the nodes and removes everything. A signal to stop makes it hurry.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.nodes.end(self.claim)
    }
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let config = self.config()?;
        let directory = Directory::at(&global.dir())?;
        let mut cluster = Started::start(directory, config, global.verbose, self.detach)?;
        crate::output::say(self.welcome(global, &cluster.nodes, &cluster.manifest))?;
        if self.detach {
            cluster.claim.leave()?;
            return Ok(Exit::Ok);
        }
        cluster.nodes.stay();
        let lost = cluster.nodes.running == 0;
        cluster.stop()?;
        if lost {
            bail!("all nodes had ended, and what they held is lost");
        }
        tell("stopped");
        Ok(Exit::Ok)
    }

    fn config(&self) -> anyhow::Result<ClusterConfig> {
        let draft = self.config.as_ref().map_or_else(|| Ok(Draft::default()), |f| Draft::read(f));
        let mut draft = draft.map_err(usage)?;
        let flags = [
            ("nodes", self.nodes.map(u64::from)),
            ("groups", self.groups.map(u64::from)),
            ("replicas", self.replicas.map(u64::from)),
        ];
        for (name, value) in flags {
            if let Some(value) = value {
                draft.flag(name, value);
            }
        }
        draft.finish().map_err(usage)
    }

    fn welcome(&self, global: &Global, nodes: &Nodes, manifest: &Manifest) -> String {
        let Nodes { directory, config, .. } = nodes;
        let topology = &config.topology;
        let size = Footprint::of(config);
        let dir = global.dir_flag();
        let mut text = String::new();
        let _ = writeln!(
            text,
            "cluster {} is ready: {} node{}, {} group{} of {} replica{}",
            manifest.cluster,
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
        let _ = writeln!(text, "  directory  {}", directory.path().display());
        let _ = writeln!(text, "  memory     {}", manifest.regions.display());
        let _ = writeln!(
            text,
            "             {} to start, at most {} with sessions; and {} a node for keys and values",
            show_bytes(size.at_start()),
            show_bytes(size.most()),
            show_bytes(config.limits.memory_bytes_max),
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

impl Nodes {
    fn start(
        &mut self,
        claim: &mut Claim,
        verbose: u8,
        detached: bool,
    ) -> anyhow::Result<Manifest> {
        let mut warn = |warning| tell(format_args!("warning: {warning}"));
        let manifest = claim.lay_out(&self.config, &mut warn)?;
        for node in 0..manifest.nodes {
            self.spawn(node, self.command(node, verbose, detached)?)?;
        }
        self.wait_ready()?;
        Ok(manifest)
    }

    fn command(&self, node: u16, verbose: u8, detached: bool) -> anyhow::Result<Command> {
        let path = self.directory.log(node);
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.with_context(|| format!("cannot write {}", path.display()))?;
        let us = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(us);
        command.arg("node").arg("--dir").arg(self.directory.path());
        command.arg("--index").arg(node.to_string());
        command.args((0..verbose).map(|_| "-v"));
        if detached {
            command.arg("--detached");
        } else {
            command.arg("--with-parent").arg(std::process::id().to_string());
            // Ctrl-C is for us, who stop them in an orderly way.
            command.process_group(0);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    /// Starts one. Its end will be an event.
    fn spawn(&mut self, node: u16, mut command: Command) -> anyhow::Result<()> {
        let mut child = command.spawn().with_context(|| format!("cannot start node {node}"))?;
        // Not yet waited for, so the number is the child's.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let handle = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose();
        self.handles.extend(handle.context("cannot follow a node")?);
        self.running += 1;
        let events = self.sender.clone();
        thread::spawn(move || {
            let status = child.wait();
            let _ = events.send(Event::Ended(node, status));
        });
        Ok(())
    }

    /// Waits until every node says that it is ready.
    fn wait_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut waiting: Vec<u16> = (0..self.config.topology.nodes).collect();
        let mut progress = Progress::new(waiting.len());
        while let Some(&first) = waiting.first() {
            match self.events.recv_timeout(POLL) {
                Ok(Event::Signal(signal)) => bail!("not started: {}", signals::name(signal)),
                Ok(Event::Ended(node, status)) => {
                    self.running -= 1;
                    bail!("not started: {}", ended(&self.directory, node, status));
                }
                // We hold a sender ourselves: it can only have been too early.
                Err(_) => {}
            }
            let ready =
                |node| admin::status(&self.directory, node).is_ok_and(|status| status.ready);
            waiting.retain(|node| !ready(*node));
            progress.show(waiting.len());
            if Instant::now() >= deadline && !waiting.is_empty() {
                let log = log_end(&self.directory, first);
                let within = READY_WITHIN.as_secs();
                bail!("node {first} is not ready after {within} seconds; its log ends:{log}");
            }
        }
        Ok(())
    }

    /// Stays until told to stop, or until no node is left.
    fn stay(&mut self) {
        let (quorum, replicas) = (self.config.topology.quorum(), self.config.topology.replicas);
        while self.running > 0 {
            match self.events.recv() {
                Ok(Event::Signal(signal)) => {
                    tell(format_args!("stopping: {}", signals::name(signal)));
                    return;
                }
                Ok(Event::Ended(node, status)) => {
                    self.running -= 1;
                    tell(ended(&self.directory, node, status));
                    let left = format!("{quorum} of {replicas} replicas");
                    tell(format_args!(
                        "  groups with {left} go on, unless node {node} led them\n  it cannot come \
                         back yet: to have all nodes again, stop the cluster and start it anew, \
                         which loses its data"
                    ));
                }
                Err(_) => return,
            }
        }
    }

    /// Stops the nodes and removes everything. Told to stop once more, it does not wait for what is
    /// under way.
    fn end(mut self, mut claim: Claim) -> anyhow::Result<()> {
        if self.running > 0 {
            claim.stopping()?;
        }
        let within = Duration::from_millis(self.config.stop_within_ms);
        let mut hurry = false;
        let mut hear = || {
            for event in self.events.try_iter() {
                match event {
                    Event::Signal(_) => hurry = true,
                    Event::Ended(..) => self.running -= 1,
                }
            }
            hurry
        };
        cluster::stop_nodes(&self.directory, self.config.topology.nodes, within, &mut hear)?;
        // One that had only just begun held nothing yet by which it could be found.
        for handle in &self.handles {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
        while self.running > 0 {
            match self.events.recv() {
                Ok(Event::Ended(..)) => self.running -= 1,
                Ok(Event::Signal(_)) => {}
                Err(_) => break,
            }
        }
        Ok(claim.clear()?)
    }
}

/// A line on a terminal, gone when it is dropped.
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

fn ended(directory: &Directory, node: u16, status: io::Result<ExitStatus>) -> String {
    format!("node {node} {}{}", how(status), log_end(directory, node))
}

fn how(status: io::Result<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => format!("has ended with exit code {code}"),
        Ok((None, Some(signal))) => format!("was killed by signal {signal}"),
        _ => "has ended".into(),
    }
}

/// What a node said last, a line each, if it said anything.
fn log_end(directory: &Directory, node: u16) -> String {
    let text = std::fs::read(directory.log(node)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES_MAX);
    lines[from..].iter().flat_map(|line| ["\n  ", line]).collect()
}
