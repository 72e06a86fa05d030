//! `skein status`: the reports of the nodes, for people and programs, once or repeatedly.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;
use skein_cluster::Build;
use skein_cluster::config::{ClusterConfig, Durability, StoreKind};
use skein_cluster::directory::{Directory, DirectoryError, Supervisor};
use skein_cluster::network::elsewhere;
use skein_multicast::operate::{
    BlockedStatus, FailoverStatus, LearnerStatus, MemberStatus, ReplicaStatus, Role,
};
use skein_multicast::protocol::ids::GroupId;
use skein_multicast::trees::Shape;
use skein_node::admin::CallError;
use skein_node::missing::is_missing;
use skein_node::nodes;
use skein_node::status::{
    DiskStatus, GoneNode, NodeStatus, PointsStatus, RefusedNode, ReplicaReport,
};

use super::last_words;
use super::screen::{Key, Screen};
use super::status_table;
use crate::args::Global;
use crate::exit::Exit;
use crate::held_up::{HeldUpBy, held_up_by};
use crate::signals;

/// Interval of --watch.
const EVERY: Duration = Duration::from_secs(1);

/// Shows what a cluster is doing
///
/// Exits with 1 if a node or a group does not answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prints one JSON object
    #[arg(long)]
    json: bool,

    /// Shows it again every second, until q or Ctrl-C
    #[arg(long, short)]
    watch: bool,

    /// Shows all columns, however wide they are together
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

/// The state of a cluster at one moment. --json prints it.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) cluster: String,
    pub(super) dir: PathBuf,
    pub(super) build: Build,
    /// The process that supervises or observes the nodes; `None` if there is none.
    pub(super) supervisor: Option<Supervisor>,
    /// Directory of the shared memory, and the bytes reserved now.
    pub(super) regions: PathBuf,
    pub(super) regions_bytes: u64,
    /// Keys in all groups whose nodes answer.
    pub(super) keys: u64,
    pub(super) durability: Durability,
    /// Where replicas hold keys and values.
    pub(super) store: StoreKind,
    /// What orders messages to several groups: `ramcast` or `tram`.
    pub(super) order: &'static str,
    /// The tree along which `tram` orders them, by its name or as parents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tree: Option<String>,
    /// That tree as the parent of each group; the root has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parents: Option<Vec<Option<u16>>>,
    /// The groups of the tree that do not serve, and the messages that wait for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_up: Option<Vec<HeldUpBy>>,
    /// A write that would have a group hold more than this is refused.
    pub(super) group_bytes_max: u64,
    /// Why no file can be created in the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) directory_problem: Option<String>,
    pub(super) nodes: Vec<NodeView>,
    pub(super) groups: Vec<GroupView>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeView {
    pub(super) node: u16,
    /// Its process; `None` if it does not run.
    pub(super) pid: Option<u32>,
    /// Number of restarts in this cluster; `None` if it is not known.
    pub(super) incarnation: Option<u32>,
    /// `incarnation` under its former name, for one version.
    pub(super) life: Option<u32>,
    /// Lower bound of the time since its death; `None` if it is not dead, or no node has noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dead_for_ms: Option<u64>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// Why it ended last or cannot be started, if it does not answer and that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<NodeSummary>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeSummary {
    pub(super) uptime_ms: u64,
    pub(super) ready: bool,
    pub(super) draining: bool,
    pub(super) resident_bytes: u64,
    /// Lines missing from its log: not written, or suppressed because there were too many alike.
    pub(super) log_lines_lost: u64,
    pub(super) log_lines_left_out: u64,
    /// Its log on disk, if the cluster is durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk: Option<DiskStatus>,
    /// The cluster's restore points, as far as it knows; absent if the cluster has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) points: Option<PointsStatus>,
    /// Why it cannot restore missing files of its directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) directory_problem: Option<String>,
    /// The nodes that it refuses, because their configurations differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<RefusedNode>,
}

#[derive(Debug, Serialize)]
pub(super) struct GroupView {
    pub(super) group: u16,
    /// Slot of its leader; without a leader, the slot that most of its replicas follow.
    pub(super) leader: Option<u8>,
    /// Whether its leader says that it serves.
    pub(super) available: bool,
    /// Whether some of its nodes are on other hosts, and not asked here.
    pub(super) elsewhere: bool,
    /// Whether more of its replicas have lost their state than it tolerates.
    pub(super) lost: bool,
    pub(super) quorum: usize,
    /// Its members by slot, as its leader reports them, or else the replica with the highest
    /// ballot.
    pub(super) view: Vec<MemberStatus>,
    /// The replicas that receive the state.
    pub(super) learners: Vec<LearnerStatus>,
    pub(super) last_failover: Option<FailoverStatus>,
    pub(super) blocked: Option<BlockedStatus>,
    /// The former name of `blocked`, for one version.
    pub(super) stuck: Option<BlockedStatus>,
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
                screen.show(&status_table::text(&snapshot, self.wide))?;
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
            status_table::text(snapshot, self.wide)
        }
    }
}

/// The current status of the cluster in `dir`, for people.
pub(super) fn picture(dir: &Path) -> anyhow::Result<String> {
    Ok(status_table::text(&take(dir)?, false))
}

/// The problem of a node that has no process.
pub(super) const DEAD: &str = "dead";
/// The beginning of the problem of a node whose process says nothing.
const SILENT: &str = "does not answer";
/// The problem of a node that another host runs.
const ELSEWHERE: &str = "on another host";

impl NodeView {
    pub(super) fn is_elsewhere(&self) -> bool {
        self.problem.as_deref() == Some(ELSEWHERE)
    }
}

impl Snapshot {
    /// Whether the cluster has several hosts.
    pub(super) fn has_several_hosts(&self) -> bool {
        self.nodes.iter().any(NodeView::is_elsewhere)
    }

    fn exit(&self) -> Exit {
        let answer = self.nodes.iter().all(|node| node.status.is_some() || node.is_elsewhere());
        // Whether a group on several hosts serves may be known only elsewhere; that it is lost is
        // known here.
        let serve =
            self.groups.iter().all(|group| group.available || group.elsewhere && !group.lost);
        let refuses =
            |node: &NodeView| node.status.as_ref().is_some_and(|status| !status.refused.is_empty());
        let diverged = |group: &GroupView| {
            group.replicas.iter().any(|replica| replica.report.order.divergence.is_some())
        };
        let agree = !self.nodes.iter().any(refuses) && !self.groups.iter().any(diverged);
        if answer && serve && agree { Exit::Ok } else { Exit::No }
    }
}

/// The current status of the cluster in `dir`.
pub(super) fn take(dir: &Path) -> anyhow::Result<Snapshot> {
    if dir.is_file() {
        return Err(DirectoryError::IsFile { file: dir.to_owned() }.into());
    }
    let running = Directory::connect(dir)?;
    let directory = Directory::at(dir)?;
    let answers = nodes::statuses(&directory, running.manifest.nodes);
    let keys = nodes::keys(answers.iter().flatten());
    let mut groups = groups(&running.config, answers.iter().flatten());
    // If each host prepares its own directory, a node that never ran here runs on another host.
    let several = running.config.network.fabric.is_network() && directory.keeper().is_none();
    let gone: Vec<GoneNode> = answers.iter().flatten().flat_map(|s| s.gone.clone()).collect();
    let nodes = (0..).zip(answers).map(|(node, answer)| {
        let pid = directory.node(node).map(|holder| holder.pid);
        let incarnation =
            directory.incarnations(node).ok().and_then(|incarnations| incarnations.checked_sub(1));
        let (status, problem) = match answer {
            Ok(status) => (Some(status), None),
            Err(_)
                if several && incarnation.is_none()
                    || elsewhere(&running.config, node).is_some() =>
            {
                (None, Some(ELSEWHERE.to_owned()))
            }
            Err(_) if directory.was_stopped(node) => (None, Some("stopped".to_owned())),
            Err(_) if pid.is_none() && running.manifest.durable && is_missing(&directory, node) => {
                (None, Some("not started: its data is gone".to_owned()))
            }
            Err(_) if pid.is_none() => (None, Some(DEAD.to_owned())),
            Err(CallError::Paused { .. }) => {
                let go_on = format!("paused; `skein admin kill {node} --signal CONT` resumes it");
                (None, Some(go_on))
            }
            Err(error) => (None, Some(format!("{SILENT}: {error}"))),
        };
        let cause = || match directory.incarnations(node) {
            // Nothing starts it before that is mended.
            Err(error) => Some(error.to_string()),
            Ok(_) => last_words::of_dead(&directory, node),
        };
        // A node that ends in each start has a process for a while, which does not answer yet.
        let ends = |problem: &str| problem == DEAD || problem.starts_with(SILENT);
        let cause = problem.as_deref().is_some_and(ends).then(cause).flatten();
        // Each node reports the time since it noticed the death; the earliest notice is closest to
        // the truth.
        let seen =
            gone.iter().filter(|gone| gone.node == node && Some(gone.incarnation) == incarnation);
        let dead_for_ms = seen.map(|gone| gone.for_ms).max().filter(|_| pid.is_none());
        let status = status.map(|status| NodeSummary {
            uptime_ms: status.uptime_ms,
            ready: status.ready,
            draining: status.draining,
            resident_bytes: status.resident_bytes,
            log_lines_lost: status.log_lines_lost,
            log_lines_left_out: status.log_lines_left_out,
            disk: status.disk,
            points: status.points,
            directory_problem: status.directory_problem,
            refused: status.refused,
        });
        NodeView { node, pid, incarnation, life: incarnation, dead_for_ms, problem, cause, status }
    });
    let nodes: Vec<NodeView> = nodes.collect();
    let layout = running.config.layout();
    for group in &mut groups {
        let members = layout.topology().replicas_of(GroupId(group.group));
        let mut nodes = members.map(|member| &nodes[usize::from(layout.node_of(member))]);
        group.elsewhere = nodes.any(NodeView::is_elsewhere);
    }
    let because = |group: GroupId| status_table::because(groups.get(group.index())?);
    let tree = running.config.tree.as_ref();
    Ok(Snapshot {
        parents: tree.map(|tree| tree.parents().iter().collect()),
        held_up: tree.map(|tree| held_up_by(tree, because)),
        dir: directory.path().to_owned(),
        nodes,
        regions_bytes: running.bytes_shared()?,
        cluster: running.manifest.cluster,
        build: running.manifest.build,
        supervisor: directory.supervisor(),
        directory_problem: directory.unwritable().map(|error| error.to_string()),
        regions: running.manifest.regions,
        keys,
        durability: running.config.durability,
        store: running.config.store,
        order: running.config.protocol().name(),
        tree: tree.map(|tree| Shape::from(tree).to_string()),
        group_bytes_max: running.config.limits.group_bytes_max(&layout),
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
        let furthest = replicas.iter().max_by_key(|replica| replica.report.order.delivered);
        let keys = furthest.map_or(0, |replica| replica.report.keys);
        let all = || replicas.iter().map(|replica| &replica.report.order);
        let leads = |order: &&ReplicaStatus| order.role == Role::Leader;
        let leader =
            all().filter(leads).max_by_key(|order| (order.available, order.ballot_counter));
        // A learner may have no state yet.
        let knows_most =
            |order: &&ReplicaStatus| (order.role != Role::Learner, order.ballot_counter);
        let view = leader.or_else(|| all().max_by_key(knows_most)).map(|order| order.view.clone());
        GroupView {
            group,
            leader: leader.map(|order| order.slot).or_else(|| most_followed(all())),
            available: leader.is_some_and(|order| order.available),
            elsewhere: false,
            lost: all().any(|order| order.lost),
            quorum: config.topology.quorum(),
            view: view.unwrap_or_default(),
            learners: learners(leader, all()),
            last_failover: all().filter_map(|o| o.last_failover).min_by_key(|last| last.ago_ms),
            stuck: blocked(all()),
            blocked: blocked(all()),
            keys,
            replicas,
        }
    };
    (0..config.topology.groups).map(of).collect()
}

/// The leader that most replicas follow, if any.
fn most_followed<'a>(replicas: impl Iterator<Item = &'a ReplicaStatus>) -> Option<u8> {
    let mut votes = BTreeMap::<u8, usize>::new();
    for leader in replicas.filter_map(|order| order.leader) {
        *votes.entry(leader).or_default() += 1;
    }
    votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(slot, _)| slot)
}

/// The multi-group message that has waited longest.
fn blocked<'a>(all: impl Iterator<Item = &'a ReplicaStatus>) -> Option<BlockedStatus> {
    all.filter_map(|order| order.blocked.clone()).max_by_key(|blocked| blocked.age_ms)
}

/// All learners: as the leader reports those that receive the state from it, and as the others
/// report themselves.
fn learners<'a>(
    leader: Option<&ReplicaStatus>,
    replicas: impl Iterator<Item = &'a ReplicaStatus>,
) -> Vec<LearnerStatus> {
    let learners = replicas.filter(|order| order.role == Role::Learner).map(|order| {
        let own = |learner: &&LearnerStatus| learner.slot == order.slot;
        let seen = |by: &ReplicaStatus| by.learners.iter().find(own).copied();
        let nothing = LearnerStatus { slot: order.slot, bytes: 0, caught_up: false };
        leader.and_then(seen).or_else(|| seen(order)).unwrap_or(nothing)
    });
    learners.collect()
}
