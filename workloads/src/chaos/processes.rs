//! The cluster under faults: its nodes as processes, its leaders, and the health of its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use skein_checker::history::now;
use skein_cluster::directory::Directory;
use skein_multicast::config::Topology;
use skein_multicast::operate::Role;
use skein_multicast::protocol::ids::GroupId;
use skein_node::admin::{self, Action};
use skein_node::nodes::{SignalError, ask, await_end, signal_holder};
use skein_node::status::{NodeStatus, ReplicaReport};

use super::schedule::View;

/// How long a node may take to answer before it counts as missing.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How long a killed process may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// A node that was restarted less than this ago is spared: a supervisor delays restarts of a node
/// that dies soon after its start, longer each time, and that delay is not measured here.
const YOUNG_MS: u64 = 2_200;

/// A cluster under faults. Dropping it continues all stopped nodes.
pub struct Processes {
    directory: Directory,
    topology: Topology,
    stopped: BTreeSet<u16>,
}

/// The reports of the nodes that answer.
pub struct Seen {
    nodes: BTreeMap<u16, NodeStatus>,
}

impl Processes {
    /// The cluster in `directory`. It must have no stopped nodes.
    pub fn new(directory: Directory, topology: Topology) -> Self {
        Self { directory, topology, stopped: BTreeSet::new() }
    }

    /// Asks all nodes that are not stopped.
    pub fn look(&self) -> Seen {
        let statuses = ask(self.topology.nodes, |node| {
            let stopped = self.stopped.contains(&node);
            let status = || admin::call(&self.directory, node, Action::Status, ANSWER_WITHIN);
            if stopped { None } else { status().ok() }
        });
        let nodes = (0..).zip(statuses).filter_map(|(node, status)| Some((node, status?)));
        Seen { nodes: nodes.collect() }
    }

    /// The process that runs `node`.
    pub fn pid(&self, node: u16) -> Option<u32> {
        self.directory.node(node).map(|holder| holder.pid)
    }

    /// Sends a signal to each of the nodes. Returns the time just before the first signal.
    ///
    /// # Errors
    ///
    /// If a node cannot be signalled, the nodes after it are not signalled either.
    pub fn signal(&mut self, nodes: &[u16], signal: Signal) -> Result<u64, SignalError> {
        let t = now();
        for node in nodes {
            signal_holder(|| self.pid(*node), signal)?;
            if signal == Signal::STOP {
                self.stopped.insert(*node);
            } else {
                // A stopped process that is killed is not stopped any more.
                self.stopped.remove(node);
            }
        }
        Ok(t)
    }

    /// Kills all nodes in the same instant. Returns when they have ended, with the time just before the first signal and
    /// the processes.
    pub(super) fn kill_all(&mut self) -> Result<(u64, Vec<Option<u32>>), SignalError> {
        let pids: Vec<_> = (0..self.topology.nodes).map(|node| self.pid(node)).collect();
        let mut processes = Vec::new();
        for pid in pids.iter().flatten().copied() {
            let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let opened = number.map(|number| pidfd_open(number, PidfdFlags::empty()));
            if let Some(Ok(process)) = opened
                && (0..self.topology.nodes).any(|node| self.pid(node) == Some(pid))
            {
                processes.push((pid, process));
            }
        }
        let t = now();
        for (pid, process) in &processes {
            match pidfd_send_signal(process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(source) => return Err(SignalError { pid: *pid, source: source.into() }),
            }
        }
        self.stopped.clear();
        let processes: Vec<_> = processes.into_iter().map(|(_, process)| process).collect();
        await_end(&processes);
        Ok((t, pids))
    }

    /// Waits until the process of a node that was killed has released it.
    pub(super) fn await_end(&self, node: u16) {
        let since = Instant::now();
        while self.directory.node_or_dying(node).is_some() && since.elapsed() < END_WITHIN {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes the data of a node that does not run.
    pub(super) fn remove_data(&self, node: u16) -> std::io::Result<()> {
        std::fs::remove_dir_all(self.directory.node_data(node))
    }

    /// Sends an action to a node, which may refuse it.
    pub(super) fn tell(&self, node: u16, action: Action) {
        if let Err(error) = admin::call(&self.directory, node, action, ANSWER_WITHIN) {
            tracing::debug!(%error, node, "a node refused an action");
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for node in std::mem::take(&mut self.stopped) {
            // The process may be gone.
            let _ = signal_holder(|| self.pid(node), Signal::CONT);
        }
    }
}

/// Start counts of the nodes at some moment.
pub struct Incarnations {
    directory: Directory,
    before: Vec<u32>,
}

impl Incarnations {
    /// The current start counts.
    pub fn of(directory: &Directory, nodes: u16) -> Self {
        let before =
            (0..nodes).map(|node| directory.incarnations(node).unwrap_or_default()).collect();
        Self { directory: directory.clone(), before }
    }

    /// Describes each node that was started more often since then than `expected`, with its last
    /// words: it died by itself.
    pub fn unexpected(&self, expected: &BTreeMap<u16, u32>) -> Vec<String> {
        let now = Self::of(&self.directory, self.before.len() as u16).before;
        let more = |((node, before), now): ((u16, &u32), u32)| {
            let expected = expected.get(&node).copied().unwrap_or_default();
            let more = now.saturating_sub(*before).saturating_sub(expected);
            let said = last_line(&self.directory, node);
            (more > 0).then(|| format!("node {node} has died {more} times by itself{said}"))
        };
        (0..).zip(&self.before).zip(now).filter_map(more).collect()
    }
}

/// The message of a node's panic, if there is one.
fn last_line(directory: &Directory, node: u16) -> String {
    let text = std::fs::read(directory.log(node)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let said = lines.iter().rposition(|line| line.contains("panicked at"));
    let said = said.map(|at| lines[at..].iter().take(2).flat_map(|line| ["; ", line]).collect());
    said.unwrap_or_default()
}

impl Seen {
    /// The view for the schedule. `away` are nodes that are known to be missing.
    pub fn view(&self, topology: Topology, away: &BTreeSet<u16>) -> View {
        let leader = |group| self.leader(group).map(|(node, _)| node);
        let missing =
            (0..topology.nodes).filter(|node| away.contains(node) || !self.is_well(*node));
        let young = |(node, status): (&u16, &NodeStatus)| {
            (status.incarnation > 0 && status.uptime_ms < YOUNG_MS).then_some(*node)
        };
        View {
            leaders: (0..topology.groups).map(leader).collect(),
            missing: missing.collect(),
            without_data: BTreeSet::new(),
            spared: self.nodes.iter().filter_map(young).collect(),
        }
    }

    /// The groups that `node` leads.
    pub fn led_by(&self, node: u16) -> Vec<u16> {
        let replicas = self.nodes.get(&node).into_iter().flat_map(|status| &status.replicas);
        let groups = replicas.map(|replica| replica.order.group);
        groups.filter(|group| self.leader(*group).is_some_and(|(at, _)| at == node)).collect()
    }

    /// The node that leads `group`.
    pub(super) fn leader_of(&self, group: GroupId) -> Option<u16> {
        self.leader(group.0).map(|(node, _)| node)
    }

    /// The replica that leads `group`, and its node. If several report that they lead, the one with
    /// the highest ballot.
    fn leader(&self, group: u16) -> Option<(u16, &ReplicaReport)> {
        let leads = |replica: &&ReplicaReport| {
            replica.order.group == group && replica.order.role == Role::Leader
        };
        let replicas = self.nodes.iter().flat_map(|(node, status)| {
            status.replicas.iter().filter(leads).map(|replica| (*node, replica))
        });
        replicas.max_by_key(|(_, replica)| replica.order.ballot_counter)
    }

    /// The process id that `node` reports.
    pub fn pid(&self, node: u16) -> Option<u32> {
        self.nodes.get(&node).map(|status| status.pid)
    }

    /// Whether every replica of `node` leads, or follows a leader that counts it as a member.
    pub fn is_well(&self, node: u16) -> bool {
        self.nodes
            .get(&node)
            .is_some_and(|status| status.replicas.iter().all(|replica| self.counts(replica)))
    }

    fn counts(&self, replica: &ReplicaReport) -> bool {
        let order = &replica.order;
        let Some((_, leader)) = self.leader(order.group) else { return false };
        let member = leader.order.view.iter().find(|member| member.slot == order.slot);
        matches!(order.role, Role::Leader | Role::Follower)
            && order.available
            && !order.lost
            && order.leader == Some(leader.order.slot)
            && member
                .is_some_and(|member| !member.evicted && member.incarnation == order.incarnation)
    }
}
