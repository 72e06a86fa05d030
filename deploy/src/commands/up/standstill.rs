//! The start of a durable cluster that was stopped: until all of it serves, or what lacks data is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use skein_cluster::config::ClusterConfig;
use skein_multicast::operate::{ReplicaStatus, Role};
use skein_node::admin::CallError;
use skein_node::nodes;
use skein_node::status::{DamagedLog, DiskStatus, NodeStatus};
use skein_node::supervise::Ended;

use super::{Event, Progress, READY_WITHIN, Started};
use crate::signals;

/// How long the replicas of a group must say that too many of them have lost their state.
const LOST_FOR: Duration = Duration::from_secs(2);
/// How long a group may be without a quorum when all nodes answer: elections are over long before.
const NO_QUORUM_FOR: Duration = Duration::from_secs(15);
/// Interval at which the nodes are asked.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A durable cluster that runs, of which not everything serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standstill {
    /// Groups without a quorum.
    pub(super) groups: BTreeSet<u16>,
    /// Names the groups and nodes, the causes, and the remedy.
    pub(super) why: String,
}

/// State of a node that has been started.
#[derive(Debug)]
enum Known {
    /// It reads its log, or does not answer for another reason.
    Silent,
    Answers(Box<NodeStatus>),
    /// How it ended.
    Ended(String),
    /// It is not started: its data is gone, and a group needs it.
    LeftOut,
}

impl Known {
    fn status(&self) -> Option<&NodeStatus> {
        match self {
            Self::Answers(status) => Some(status),
            Self::Silent | Self::Ended(_) | Self::LeftOut => None,
        }
    }

    fn of(answer: Result<NodeStatus, CallError>, ended: Option<&String>, left_out: bool) -> Self {
        match (answer, ended) {
            (Ok(status), _) => Self::Answers(Box::new(status)),
            (Err(_), Some(how)) => Self::Ended(how.clone()),
            (Err(_), None) if left_out => Self::LeftOut,
            (Err(_), None) => Self::Silent,
        }
    }
}

/// How far a start has come.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Every node that runs is ready.
    Over,
    /// Nodes read their logs, or replicas are given their state.
    UnderWay,
    /// No node is silent, and these groups do not serve. `lost`: too much of the data of each is gone.
    Stands { groups: BTreeSet<u16>, lost: bool },
}

impl Stage {
    fn of(nodes: &[Known], config: &ClusterConfig) -> Self {
        if nodes.iter().any(|node| matches!(node, Known::Silent)) {
            return Self::UnderWay;
        }
        let groups = standing(nodes, config);
        if !groups.is_empty() {
            let lost = groups.iter().all(|group| {
                let replicas = || replicas(nodes, *group);
                replicas().any(|it| it.lost) || replicas().count() < config.topology.quorum()
            });
            return Self::Stands { groups, lost };
        }
        let ready = nodes.iter().filter_map(Known::status).all(|status| status.ready);
        if ready { Self::Over } else { Self::UnderWay }
    }
}

/// The replicas of a group whose nodes answer.
fn replicas(nodes: &[Known], group: u16) -> impl Iterator<Item = &ReplicaStatus> {
    let all = nodes.iter().filter_map(Known::status).flat_map(|status| &status.replicas);
    all.map(|replica| &replica.order).filter(move |order| order.group == group)
}

/// The groups that do not serve.
fn standing(nodes: &[Known], config: &ClusterConfig) -> BTreeSet<u16> {
    let serves = |group| replicas(nodes, group).any(|it| it.role == Role::Leader && it.available);
    (0..config.topology.groups).filter(|group| !serves(*group)).collect()
}

impl Started {
    /// Waits until all of a durable cluster serves. Returns what does not, if that will not change by itself.
    pub(super) fn wait_served(
        &self,
        left_out: &BTreeSet<u16>,
    ) -> anyhow::Result<Option<Standstill>> {
        let begun = Instant::now();
        let count = self.manifest.nodes;
        let mut progress = Progress::new(usize::from(count));
        let mut ended = BTreeMap::new();
        let mut stands: Option<(Stage, Instant)> = None;
        loop {
            match self.events.recv_timeout(ASK_EVERY) {
                Ok(Event::Signal(signal)) => bail!("not started: {}", signals::name(signal)),
                Ok(Event::Node(Ok(Ended { node, how, .. }))) => {
                    ended.insert(node, how);
                    if ended.len() + left_out.len() == usize::from(count) {
                        let how = &ended[&node];
                        bail!("not started: node {node} {how}{}", self.logs.end(node));
                    }
                }
                Ok(Event::Node(Err(error))) => return Err(error.context("not started")),
                // No question was asked yet. This process holds a sender, so an error is a timeout.
                Ok(Event::Answer(_) | Event::AllEnded) | Err(_) => {}
            }
            let answers = nodes::statuses(&self.directory, count);
            let known = (0..).zip(answers).map(|(node, answer)| {
                Known::of(answer, ended.get(&node), left_out.contains(&node))
            });
            let known: Vec<Known> = known.collect();
            let ready = known.iter().filter_map(Known::status).filter(|status| status.ready);
            progress.show(usize::from(count) - ready.count());
            let stage = Stage::of(&known, &self.config);
            if stage == Stage::Over && ended.is_empty() && left_out.is_empty() {
                return Ok(None);
            }
            let since = match stands {
                Some((before, since)) if before == stage => since,
                _ => Instant::now(),
            };
            let over = match &stage {
                Stage::Over => true,
                Stage::UnderWay => begun.elapsed() >= READY_WITHIN,
                Stage::Stands { lost: true, .. } => since.elapsed() >= LOST_FOR,
                Stage::Stands { lost: false, .. } => since.elapsed() >= NO_QUORUM_FOR,
            };
            if over {
                let groups = standing(&known, &self.config);
                let why = self.explain(&groups, &known);
                return Ok(Some(Standstill { groups, why: why.trim_end().to_owned() }));
            }
            stands = Some((stage, since));
        }
    }

    /// Says which groups do not serve, for want of whose data, and what to do.
    fn explain(&self, groups: &BTreeSet<u16>, nodes: &[Known]) -> String {
        let Self { directory, config, .. } = self;
        let mut text = String::new();
        for &group in groups {
            let with_state = replicas(nodes, group).filter(|it| it.role != Role::Learner).count();
            let _ = writeln!(
                text,
                "g{group} has no quorum: it takes {} of its {} replicas with their data, and {with_state} {} it",
                config.topology.quorum(),
                config.topology.replicas,
                if with_state == 1 { "has" } else { "have" },
            );
        }
        let (mut elsewhere, mut gone) = (false, false);
        for (node, known) in (0..).zip(nodes) {
            let data = directory.node_data(node);
            let data = data.display();
            let disk = known.status().and_then(|status| status.disk.as_ref());
            if let Some(DiskStatus { missing: true, .. }) = disk {
                gone = true;
                let _ =
                    writeln!(text, "  n{node} found no data in {data}, though it had run before");
            }
            for DamagedLog { group, segment, offset } in disk.iter().flat_map(|disk| &disk.damaged)
            {
                gone = true;
                let _ = writeln!(
                    text,
                    "  n{node} found its log of g{group} damaged: in {data}, segment {segment:016x}, at offset {offset}"
                );
            }
            for group in disk.iter().flat_map(|disk| &disk.checkpoints_lost) {
                gone = true;
                let _ = writeln!(
                    text,
                    "  n{node} found no checkpoint of g{group} in {data}/stores that its log could begin with"
                );
            }
            match known {
                Known::LeftOut => {
                    elsewhere = true;
                    let _ = writeln!(
                        text,
                        "  n{node} is not started: its data is gone, though it had run before: {data} is empty or not there"
                    );
                }
                Known::Ended(how) => {
                    gone = true;
                    let why = self.logs.last_error(node);
                    let why = why.map_or_else(String::new, |why| format!(": {why}"));
                    let _ = writeln!(text, "  n{node} does not run: it {how}{why}");
                }
                Known::Silent => {
                    let _ =
                        writeln!(text, "  n{node} does not answer yet: it may be reading its log");
                }
                Known::Answers(status) if !status.ready && groups.is_empty() => {
                    let _ = writeln!(text, "  n{node} is not ready: its replicas lack their state");
                }
                Known::Answers(_) => {}
            }
        }
        if groups.is_empty() {
            text.push_str("All groups serve. `skein status` shows the nodes.\n");
            return text;
        }
        if groups.len() < usize::from(config.topology.groups) {
            text.push_str("The other groups answer reads. Clients that come now cannot write before all groups serve.\n");
        }
        if elsewhere {
            let _ = writeln!(
                text,
                "If the data is elsewhere, on a disk that is not mounted or in a copy: `skein down`, put it back where it \
                 was, and `skein up`."
            );
        }
        if elsewhere || gone {
            let _ = writeln!(
                text,
                "What is gone for good cannot be served again: read what you need from groups that serve; `skein down \
                 --wipe` and `skein up` begin a new cluster."
            );
        } else {
            text.push_str("`skein status` shows what each replica waits for.\n");
        }
        text
    }
}
