//! `skein supervise`: keeps the nodes of a cluster running that others have started.

use std::sync::mpsc::{Receiver, channel};

use anyhow::Context;
use skein_kvstore::node::claim::Claim;
use skein_kvstore::node::directory::Directory;

use super::up::{Event, tell_of_nodes};
use crate::args::Global;
use crate::exit::Exit;
use crate::output::tell;
use crate::supervise::{Plan, Supervisor};
use crate::{background, signals};

/// Keeps the nodes of a running cluster running, if nobody else does
///
/// For a cluster that `up --no-restart` has started, or whose supervisor has died. Starts the nodes
/// that do not run, and then each that dies. When it ends, the nodes go on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stays in the background, and writes what it has to say to supervisor.log
    #[arg(long)]
    detach: bool,

    /// Is the part of --detach that stays
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
        let claim = directory.claim_running()?;
        let manifest = directory.manifest()?;
        let welcome =
            format!("process {} supervises cluster {}\n", std::process::id(), manifest.cluster);
        let (nodes, verbose) = (manifest.nodes, global.verbose);
        let plan = Plan { directory: directory.clone(), nodes, verbose, detached: true };
        let supervisor = Supervisor::start(plan, tell_of_nodes(sender))?;
        supervisor.restart();
        if self.background {
            background::ready(&welcome, &directory.supervisor_log())?;
        } else {
            crate::output::say(welcome)?;
        }
        stay(claim, supervisor, &events, self.background)
    }
}

/// Keeps the nodes running until told to end, and says what becomes of them. The nodes stay.
pub(super) fn stay(
    claim: Claim,
    supervisor: Supervisor,
    events: &Receiver<Event>,
    background: bool,
) -> anyhow::Result<Exit> {
    let note = |what: String| {
        if background {
            // With the time, as everything in that file.
            tracing::warn!("{what}");
        } else {
            tell(what);
        }
    };
    for event in events {
        match event {
            Event::Signal(signal) => {
                note(format!(
                    "told to end ({}): the nodes go on, and nobody supervises them",
                    signals::name(signal)
                ));
                break;
            }
            Event::Node(Ok(ended)) => note(ended.to_string()),
            Event::Node(Err(error)) => note(format!("{error:#}")),
        }
    }
    supervisor.hold();
    drop(supervisor);
    claim.leave()?;
    Ok(Exit::Ok)
}
