//! `skein supervise`: supervises the nodes of a cluster that another process started.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use skein_cluster::claim::{Claim, Kept};
use skein_cluster::config::Durability;
use skein_cluster::directory::Directory;
use skein_cluster::network;
use skein_node::missing;
use skein_node::supervise::{Plan, Supervisor};

use super::up::{Event, return_again, tell_of_nodes};
use crate::args::Global;
use crate::exit::Exit;
use crate::output::tell;
use crate::{background, signals};

/// Supervises the nodes of a running cluster that no process supervises
///
/// For a cluster that `up --no-restart` has started, or whose supervisor has died. Starts the nodes
/// that do not run, and restarts those that die. When it ends, the nodes keep running.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs in the background, and logs to supervisor.log
    #[arg(long)]
    detach: bool,

    /// The background part of --detach
    #[arg(long, hide = true, requires = "detach")]
    pub(super) background: bool,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.detach && !self.background {
            return background::start();
        }
        if self.background {
            background::enter()?;
        }
        let (sender, events) = channel();
        signals::to_channel(sender.clone(), Event::Signal).context("cannot catch signals")?;
        let directory = Directory::at(&global.dir())?;
        if let Some(supervisor) = directory.supervisor().filter(|it| it.pid != std::process::id()) {
            bail!(
                "process {} looks after the cluster in {} already; end that one first if this one is to take \
                 its place",
                supervisor.pid,
                directory.path().display()
            );
        }
        let claim = directory.claim_running()?;
        let manifest = directory.manifest()?;
        let mut welcome =
            format!("process {} supervises cluster {}\n", std::process::id(), manifest.cluster);
        let (nodes, verbose, config) = (manifest.nodes, global.verbose, directory.config()?);
        let returns = config.durability == Durability::Async;
        if returns && (0..nodes).all(|node| directory.node(node).is_none()) {
            claim.leave()?;
            bail!(
                "no node of the cluster in {} runs, and nodes that are started now would have no state: `skein up` starts \
                 them with that of the newest restore point",
                directory.path().display()
            );
        }
        let elsewhere: BTreeSet<u16> =
            (0..nodes).filter(|node| network::elsewhere(&config, *node).is_some()).collect();
        if elsewhere.len() == usize::from(nodes) {
            claim.leave()?;
            bail!(
                "none of the nodes belongs on this host: none of network.addresses is an address of \
                 it; correct them on all hosts, or supervise the cluster on its own hosts"
            );
        }
        for node in &elsewhere {
            let address = &config.network.addresses[usize::from(*node)];
            let _ = writeln!(
                welcome,
                "  n{node} belongs to another host, {address}, and is left to it"
            );
        }
        let mut left_out = missing::indispensable(&directory, &config);
        left_out.retain(|node| directory.node(*node).is_none());
        for node in &left_out {
            let _ = writeln!(
                welcome,
                "  n{node} is not started: its data is gone, and a group needs it: {} is empty or not there",
                directory.node_data(*node).display()
            );
        }
        left_out.extend(elsewhere);
        let directory_of = directory.clone();
        let plan = Plan {
            directory: directory_of,
            nodes,
            left_out,
            verbose,
            detached: true,
            returns,
            namespaces: None,
        };
        let supervisor = Supervisor::start(plan, tell_of_nodes(sender))?;
        supervisor.restart();
        if self.background {
            background::ready(&welcome, Exit::Ok, &directory.supervisor_log());
        } else {
            say_of_cluster(&welcome);
        }
        stay(claim, supervisor, &events, self.background)
    }
}

/// Prints a message about a running cluster. A failure to print is not an error.
pub(super) fn say_of_cluster(text: &str) {
    if let Err(error) = crate::output::say(text) {
        tell(error);
    }
}

/// Supervises the nodes until told to end, and reports restarts. The nodes keep running.
pub(super) fn stay(
    mut claim: Claim,
    supervisor: Supervisor,
    events: &Receiver<Event>,
    background: bool,
) -> anyhow::Result<Exit> {
    let note = |what: String| {
        if background {
            // With the time, like all lines of that file.
            tracing::warn!("{what}");
        } else {
            tell(what);
        }
    };
    let mut upkeep = Upkeep::default();
    loop {
        match upkeep.next(&mut claim, events, &note) {
            Happened::Event(Event::Signal(signal)) => {
                note(format!(
                    "ended ({}): the nodes keep running, and no process supervises them",
                    signals::name(signal)
                ));
                break;
            }
            // No question is asked here.
            Happened::Event(Event::Answer(_)) => {}
            Happened::Event(Event::Node(Ok(ended))) => note(ended.to_string()),
            Happened::Event(Event::Node(Err(error))) => note(format!("{error:#}")),
            Happened::Event(Event::AllEnded) => {
                if let Err(error) = return_again(&mut claim, &supervisor, &note) {
                    note(format!("all nodes have ended, and stay so: {error:#}"));
                    break;
                }
            }
            Happened::Taken | Happened::Nobody => break,
        }
    }
    supervisor.hold();
    drop(supervisor);
    claim.leave()?;
    Ok(Exit::Ok)
}

/// Why the wait of a supervising process ended.
pub(super) enum Happened {
    Event(Event),
    /// Another process has claimed the cluster's directory.
    Taken,
    /// All senders of events are gone.
    Nobody,
}

/// Maintenance of the directory of a running cluster, by the process that supervises it.
#[derive(Default)]
pub(super) struct Upkeep {
    again: Option<Instant>,
    problem: Option<String>,
}

impl Upkeep {
    /// Interval of checks of the files.
    const EVERY: Duration = Duration::from_secs(1);

    /// Waits for the next event, and maintains the cluster's files meanwhile.
    pub(super) fn next(
        &mut self,
        claim: &mut Claim,
        events: &Receiver<Event>,
        note: &dyn Fn(String),
    ) -> Happened {
        loop {
            let now = Instant::now();
            let again = *self.again.get_or_insert(now);
            if again <= now {
                self.again = Some(now + Self::EVERY);
                if self.look(claim, note) {
                    return Happened::Taken;
                }
            }
            match events.recv_timeout(again.saturating_duration_since(now)) {
                Ok(event) => return Happened::Event(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Happened::Nobody,
            }
        }
    }

    /// Checks the files. Returns whether another process has claimed the directory.
    fn look(&mut self, claim: &mut Claim, note: &dyn Fn(String)) -> bool {
        let dir = claim.directory().path().display().to_string();
        let problem = match claim.keep() {
            Ok(Kept::Whole) => claim.directory().unwritable().map(|error| {
                format!("a node that dies stays dead until its directory can be written: {error}")
            }),
            Ok(Kept::Restored) => {
                note(format!(
                    "files of the running cluster in {dir} were gone; they are made again"
                ));
                None
            }
            Ok(Kept::Taken(by)) => {
                note(format!(
                    "{dir} was removed and belongs to process {} ({}) now, which supervises or \
                     stops the cluster; this process ends",
                    by.pid, by.role
                ));
                return true;
            }
            Err(error) => Some(format!("commands may not find it: {error}")),
        };
        if problem != self.problem {
            if let Some(problem) = &problem {
                note(format!("the cluster runs on, and {problem}"));
            }
            self.problem = problem;
        }
        false
    }
}
