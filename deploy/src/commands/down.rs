//! `skein down`: stops a cluster, and removes all its files and memory but the data of a durable one.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::Signal;
use skein_cluster::claim::Claim;
use skein_cluster::config::Durability;
use skein_cluster::directory::{Directory, DirectoryError, Manifest};
use skein_cluster::regions;
use skein_node::nodes;

use super::closing::close;
use super::up::Data;
use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::output::tell;

const POLL: Duration = Duration::from_millis(10);
/// How long an `up` may take to end by itself, beyond the time that its nodes have.
const UP_WITHIN: Duration = Duration::from_secs(10);
/// How long nodes may take to restore missing files of their directory.
const RESTORED_WITHIN: Duration = Duration::from_secs(3);

/// Stops a cluster; removes everything of it, its data too, unless that is on disks
///
/// Of a cluster with durability sync or async the data stays, and `skein up` starts it again. Otherwise it reports first how many
/// keys exist only in the cluster's memory, and asks.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Does not ask
    #[arg(long, short)]
    yes: bool,

    /// Removes the data of a durable cluster, too
    #[arg(long)]
    wipe: bool,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let directory = Directory::at(&global.dir())?;
        let Some(manifest) = Self::manifest(&directory)? else {
            return self.stop_without_manifest(&directory);
        };
        if manifest.durable && !self.wipe {
            stop(&directory, &manifest, Data::Keep)?;
            tell(format_args!(
                "stopped; its data is kept in {}: `skein up` starts it again, `skein down --wipe` removes it",
                directory.path().display()
            ));
            return Ok(Exit::Ok);
        }
        if manifest.durable {
            let dir = directory.path().display();
            let stake = format!("the cluster in {dir} has its data on disk, which outlives it,");
            if !self.yes && !confirm(Some(&stake))? {
                tell("nothing was done");
                return Ok(Exit::No);
            }
        } else if alive(&directory, &manifest) == 0 {
            tell("no node is running: what they held is lost already");
        } else if !self.yes && !confirm(at_stake(&directory, &manifest).as_deref())? {
            tell("nothing was done");
            return Ok(Exit::No);
        }
        stop(&directory, &manifest, Data::Remove)?;
        tell("stopped, and nothing is left");
        Ok(Exit::Ok)
    }
}

impl Args {
    /// The manifest. If it is missing or damaged, waits for running nodes to restore it; `None` if
    /// they do not.
    fn manifest(directory: &Directory) -> anyhow::Result<Option<Manifest>> {
        let deadline = Instant::now() + RESTORED_WITHIN;
        loop {
            match directory.find() {
                Ok(manifest) => return Ok(Some(manifest)),
                Err(DirectoryError::Removed { .. } | DirectoryError::Damaged { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Stops a cluster whose directory is gone or whose manifest stays damaged.
    fn stop_without_manifest(&self, directory: &Directory) -> anyhow::Result<Exit> {
        let processes = match directory.find() {
            Err(DirectoryError::Removed { holders, .. }) => {
                let list: Vec<_> =
                    holders.iter().map(|it| format!("{} is process {}", it.role, it.pid)).collect();
                Some(list.join(", "))
            }
            _ => None,
        };
        if processes.is_none() && !self.wipe && directory.has_data()? {
            let dir = directory.path().display();
            bail!(
                "the manifest in {dir}, cluster.json, is damaged, and so is its copy; nothing was done, because there is data \
                 in node*.data. Put a whole one back, or `skein down --wipe` removes everything, the data too"
            );
        }
        let what = match &processes {
            Some(processes) => format!("a cluster runs whose directory was removed ({processes})"),
            None => format!("the manifest in {} is damaged", directory.path().display()),
        };
        let stake = format!("{what}: what its nodes hold in memory, if any of them runs,");
        if !self.yes && !confirm(Some(&stake))? {
            tell("nothing was done");
            return Ok(Exit::No);
        }
        if processes.is_some() {
            end_strays(directory)?;
            regions::sweep_abandoned();
        } else {
            let nodes = directory.nodes_by_files()?;
            let mut claim = claim(directory, Duration::ZERO, Directory::claim_damaged)?;
            if let Some(claim) = &mut claim {
                claim.stopping()?;
            }
            nodes::stop(directory, nodes, Duration::ZERO, &mut || false)?;
            claim.map_or(Ok(()), Claim::clear)?;
        }
        tell("stopped, and nothing is left");
        Ok(Exit::Ok)
    }
}

/// Ends the processes whose directory was removed: first the supervisor, which would start others.
fn end_strays(directory: &Directory) -> anyhow::Result<()> {
    let deadline = Instant::now() + UP_WITHIN;
    loop {
        let mut strays = directory.strays();
        // A supervisor first, and alone.
        strays.sort_by_key(|stray| stray.role != "supervisor");
        let first = strays.first().is_some_and(|stray| stray.role == "supervisor");
        let now = if first { 1 } else { strays.len() };
        if now == 0 {
            return Ok(());
        }
        let signal = if Instant::now() < deadline { Signal::TERM } else { Signal::KILL };
        let mut ending = Vec::new();
        for stray in &strays[..now] {
            let still = || directory.strays().into_iter().find(|it| it == stray).map(|it| it.pid);
            ending.extend(nodes::signal_holder(still, signal)?);
        }
        nodes::await_end(&ending);
    }
}

/// Number of running nodes.
fn alive(directory: &Directory, manifest: &Manifest) -> usize {
    (0..manifest.nodes).filter(|node| directory.node(*node).is_some()).count()
}

/// Describes the data that would be lost; `None` if there is none.
fn at_stake(directory: &Directory, manifest: &Manifest) -> Option<String> {
    let statuses = nodes::statuses(directory, manifest.nodes);
    let keys = nodes::keys(statuses.iter().flatten());
    let answers = statuses.iter().flatten().count();
    // Counted afterwards, because a node that did not answer may have died.
    let alive = alive(directory, manifest);
    // The data of dead nodes is lost already.
    if keys == 0 && (alive == 0 || answers == usize::from(manifest.nodes)) {
        return None;
    }
    let silent = match alive.saturating_sub(answers) {
        0 => String::new(),
        silent => format!(" ({silent} of {alive} nodes did not answer)"),
    };
    let plural = if keys == 1 { "key exists" } else { "keys exist" };
    Some(format!("{keys} {plural} only in the memory of this cluster{silent}"))
}

/// Asks for consent to the loss.
fn confirm(at_stake: Option<&str>) -> anyhow::Result<bool> {
    let Some(warning) = at_stake else { return Ok(true) };
    if !io::stdin().is_terminal() {
        return Err(usage(format_args!(
            "{warning} and would be lost: confirm with --yes, since there is no terminal to ask on"
        )));
    }
    let _ = write!(io::stderr(), "{warning} and will be lost. Stop it? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Stops what runs and removes what exists.
fn stop(directory: &Directory, manifest: &Manifest, data: Data) -> anyhow::Result<()> {
    let config = directory.config().ok();
    let within =
        config.as_ref().map_or(Duration::ZERO, |it| Duration::from_millis(it.stop_within_ms));
    let closes = config.as_ref().filter(|it| it.durability == Durability::Async);
    let closes = closes.map_or(Duration::ZERO, |it| Duration::from_millis(it.close_within_ms));
    let claim = claim(directory, within + closes, Directory::claim_old)?;
    let Some(mut claim) = claim else { return Ok(()) };
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
    if data == Data::Keep
        && let Some(config) = &config
    {
        close(directory, config, &mut || false);
    }
    nodes::stop(directory, manifest.nodes, within, &mut || false)?;
    // Nodes of a directory that was removed a moment ago are not found by its files.
    end_strays(directory)?;
    match data {
        Data::Keep => Ok(claim.set_aside()?),
        Data::Remove => Ok(claim.clear()?),
    }
}

/// Ends the process that supervises the nodes and claims the directory; `None` if the cluster
/// disappears meanwhile.
fn claim(
    directory: &Directory,
    within: Duration,
    take: impl Fn(&Directory) -> Result<Claim, DirectoryError>,
) -> anyhow::Result<Option<Claim>> {
    let strays = || directory.strays().into_iter().find(|stray| stray.role == "supervisor");
    let stray = nodes::signal_holder(|| strays().map(|stray| stray.pid), Signal::TERM)?;
    nodes::await_end(stray.as_slice());
    let keeper = || directory.keeper_or_dying();
    let supervisor = || keeper().filter(|keeper| keeper.role != "down").map(|keeper| keeper.pid);
    // An `up` in the foreground stops its cluster itself and reports that on its terminal. A
    // supervisor in the background ends and leaves the nodes to this process.
    let ending = nodes::signal_holder(supervisor, Signal::TERM)?;
    let deadline = Instant::now() + within + UP_WITHIN;
    while let Some(by) = keeper() {
        if Instant::now() >= deadline {
            tracing::warn!(by.pid, "the process that keeps the cluster does not end and is killed");
            nodes::signal_holder(|| keeper().map(|keeper| keeper.pid), Signal::KILL)?;
            break;
        }
        std::thread::sleep(POLL);
    }
    nodes::await_end(ending.as_slice());
    loop {
        match take(directory) {
            Ok(claim) => return Ok(Some(claim)),
            // The directory was removed meanwhile, which is the goal.
            Err(DirectoryError::NoCluster { .. }) => return Ok(None),
            Err(DirectoryError::InUse { .. }) if Instant::now() < deadline + UP_WITHIN => {
                // Another process may have begun to supervise meanwhile.
                nodes::signal_holder(supervisor, Signal::TERM)?;
                std::thread::sleep(POLL);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
