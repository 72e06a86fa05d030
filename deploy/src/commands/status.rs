//! `skein status`: what the nodes say of themselves, for people, for programs, again and again.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;
use skein_kvstore::Build;
use skein_kvstore::config::ClusterConfig;
use skein_kvstore::node::directory::Directory;
use skein_kvstore::node::status::{NodeStatus, ReplicaReport};

use super::screen::{Key, Screen};
use super::status_table;
use crate::args::Global;
use crate::exit::Exit;
use crate::{cluster, signals};

/// How often --watch looks.
const EVERY: Duration = Duration::from_secs(1);

/// Shows what a cluster is doing
///
/// Exits with 1 if a node does not answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prints one JSON object
    #[arg(long)]
    json: bool,

    /// Shows it again every second, until q or Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// A cluster at one moment. What --json prints.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) cluster: String,
    pub(super) dir: PathBuf,
    pub(super) build: Build,
    /// Where the shared memory is, and how much of it is reserved now.
    pub(super) regions: PathBuf,
    pub(super) regions_bytes: u64,
    /// Keys in all groups whose nodes answer.
    pub(super) keys: u64,
    pub(super) nodes: Vec<NodeView>,
    pub(super) groups: Vec<GroupView>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeView {
    pub(super) node: u16,
    /// Its process; none if it is not running.
    pub(super) pid: Option<u32>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<NodeSummary>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeSummary {
    pub(super) uptime_ms: u64,
    pub(super) ready: bool,
    pub(super) draining: bool,
    pub(super) resident_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct GroupView {
    pub(super) group: u16,
    /// The slot of the leader that most of its replicas follow.
    pub(super) leader: Option<u8>,
    pub(super) keys: u64,
    pub(super) replicas: Vec<Replica>,
}

#[derive(Debug, Serialize)]
pub(super) struct Replica {
    pub(super) node: u16,
    #[serde(flatten)]
    pub(super) report: ReplicaReport,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let dir = global.dir();
        let mut snapshot = take(&dir)?;
        if !self.watch {
            crate::output::say(self.text(&snapshot))?;
            return Ok(snapshot.exit());
        }
        if io::stdout().is_terminal() && io::stdin().is_terminal() && !self.json {
            let mut screen = Screen::open()?;
            loop {
                screen.show(&status_table::text(&snapshot))?;
                if screen.wait(EVERY)? == Some(Key::End) {
                    return Ok(snapshot.exit());
                }
                snapshot = take(&dir)?;
            }
        }
        let (sender, stop) = channel();
        signals::to_channel(sender, |signal| signal)?;
        loop {
            let mut text = self.text(&snapshot);
            if !self.json {
                text.push('\n');
            }
            if !crate::output::say_if_heard(text)?
                || !matches!(stop.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout))
            {
                return Ok(snapshot.exit());
            }
            snapshot = take(&dir)?;
        }
    }

    fn text(&self, snapshot: &Snapshot) -> String {
        if self.json {
            serde_json::to_string(snapshot).expect("a snapshot is JSON") + "\n"
        } else {
            status_table::text(snapshot)
        }
    }
}

/// The cluster in `dir` as it is now, for people.
pub(super) fn picture(dir: &Path) -> anyhow::Result<String> {
    Ok(status_table::text(&take(dir)?))
}

impl Snapshot {
    fn exit(&self) -> Exit {
        if self.nodes.iter().all(|node| node.status.is_some()) { Exit::Ok } else { Exit::No }
    }
}

fn take(dir: &Path) -> anyhow::Result<Snapshot> {
    let running = Directory::connect(dir)?;
    let directory = Directory::at(dir)?;
    let answers = cluster::statuses(&directory, running.manifest.nodes);
    let keys = cluster::keys(answers.iter().flatten());
    let groups = groups(&running.config, answers.iter().flatten());
    let nodes = (0..).zip(answers).map(|(node, answer)| {
        let pid = directory.node(node).map(|holder| holder.pid);
        let (status, problem) = match answer {
            Ok(status) => (Some(status), None),
            Err(_) if pid.is_none() => (None, Some("not running".to_owned())),
            Err(error) => (None, Some(error.to_string())),
        };
        let status = status.map(|status| NodeSummary {
            uptime_ms: status.uptime_ms,
            ready: status.ready,
            draining: status.draining,
            resident_bytes: status.resident_bytes,
        });
        NodeView { node, pid, problem, status }
    });
    Ok(Snapshot {
        dir: directory.path().to_owned(),
        nodes: nodes.collect(),
        cluster: running.manifest.cluster,
        build: running.manifest.build,
        regions: running.manifest.regions,
        regions_bytes: running.host.bytes_reserved(),
        keys,
        groups,
    })
}

fn groups<'a>(
    config: &ClusterConfig,
    statuses: impl Iterator<Item = &'a NodeStatus> + Clone,
) -> Vec<GroupView> {
    let of = |group| {
        let mut replicas: Vec<_> = statuses
            .clone()
            .flat_map(|status| status.replicas.iter().map(|report| (status.node, report)))
            .filter(|(_, report)| report.order.group == group)
            .map(|(node, report)| Replica { node, report: report.clone() })
            .collect();
        replicas.sort_by_key(|replica| replica.report.order.slot);
        let mut votes = BTreeMap::<u8, usize>::new();
        for replica in &replicas {
            if let Some(leader) = replica.report.order.leader {
                *votes.entry(leader).or_default() += 1;
            }
        }
        let leader = votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(slot, _)| slot);
        let furthest = replicas.iter().max_by_key(|replica| replica.report.order.delivered);
        let keys = furthest.map_or(0, |replica| replica.report.keys);
        GroupView { group, leader, keys, replicas }
    };
    (0..config.topology.groups).map(of).collect()
}
