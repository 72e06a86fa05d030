//! `skein down`: stops a cluster and removes everything of it.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::Signal;
use skein_kvstore::node::directory::{Directory, DirectoryError, Manifest};

use crate::args::Global;
use crate::cluster;
use crate::exit::{Exit, usage};
use crate::output::tell;

const POLL: Duration = Duration::from_millis(10);
/// How long an `up` may take to end by itself, beyond the time that its nodes have.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Stops a cluster and removes everything of it, its data too
///
/// Says first how many keys live only in the cluster's memory, and asks.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Does not ask
    #[arg(long, short)]
    yes: bool,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let directory = Directory::at(&global.dir())?;
        let manifest = directory.manifest()?;
        let alive = (0..manifest.nodes).filter(|node| directory.node(*node).is_some()).count();
        if alive == 0 {
            tell("no node is running: what they held is lost already");
        } else if !self.yes && !confirm(&directory, &manifest, alive)? {
            tell("nothing was done");
            return Ok(Exit::No);
        }
        stop(&directory, &manifest)?;
        tell("stopped, and nothing is left");
        Ok(Exit::Ok)
    }
}

fn confirm(directory: &Directory, manifest: &Manifest, alive: usize) -> anyhow::Result<bool> {
    let statuses = cluster::statuses(directory, manifest.nodes);
    let answers: Vec<_> = statuses.iter().flatten().collect();
    let keys = cluster::keys(answers.iter().copied());
    let silent = match alive.saturating_sub(answers.len()) {
        0 => String::new(),
        silent => format!(" ({silent} of {alive} nodes did not answer)"),
    };
    let plural = if keys == 1 { "key lives" } else { "keys live" };
    let warning = format!("{keys} {plural} only in the memory of this cluster{silent}");
    if !io::stdin().is_terminal() {
        return Err(usage(format_args!(
            "{warning} and would be lost: --yes says that this is meant; without a terminal nobody \
             can be asked"
        )));
    }
    let _ = write!(io::stderr(), "{warning} and will be lost. Stop it? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Stops what is running and removes what is there.
fn stop(directory: &Directory, manifest: &Manifest) -> anyhow::Result<()> {
    let within =
        directory.config().map_or(Duration::ZERO, |c| Duration::from_millis(c.stop_within_ms));
    let supervisor = || directory.supervisor().map(|supervisor| supervisor.pid);
    // An `up` that is there stops its cluster itself, and says so where it runs. A supervisor in the
    // background ends, and leaves the nodes to us.
    let ending = cluster::signal_holder(supervisor, Signal::TERM)?;
    let deadline = Instant::now() + within + UP_WITHIN;
    while let Some(keeper) = directory.keeper() {
        if Instant::now() >= deadline {
            tracing::warn!(
                keeper.pid,
                "the process that keeps the cluster does not end and is killed"
            );
            cluster::signal_holder(|| directory.keeper().map(|keeper| keeper.pid), Signal::KILL)?;
            break;
        }
        std::thread::sleep(POLL);
    }
    cluster::await_end(ending.as_slice());
    let mut claim = loop {
        match directory.claim_old() {
            Ok(claim) => break claim,
            // It was removed while we waited, which is what we wanted.
            Err(DirectoryError::NoCluster { .. }) => return Ok(()),
            Err(DirectoryError::InUse { .. }) if Instant::now() < deadline + UP_WITHIN => {
                // Another may have begun to supervise in the meantime.
                cluster::signal_holder(supervisor, Signal::TERM)?;
                std::thread::sleep(POLL);
            }
            Err(error) => return Err(error.into()),
        }
    };
    match directory.manifest() {
        Ok(now) if now.cluster == manifest.cluster => {}
        Ok(_) => {
            claim.leave()?;
            bail!("another cluster was started in {} meanwhile", directory.path().display());
        }
        Err(DirectoryError::NoCluster { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    claim.stopping()?;
    cluster::stop_nodes(directory, manifest.nodes, within, &mut || false)?;
    Ok(claim.clear()?)
}
