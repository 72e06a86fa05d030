//! Changes of the leaders of all groups at once, beside a load: the experiment of Table 1 of the TRAM paper.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use skein_cluster::directory::{Directory, RunningCluster};
use skein_multicast::layout::Layout;
use skein_multicast::operate::{ReplicaStatus, Role};
use skein_node::admin::{self, Action};
use skein_node::nodes;
use skein_protocol::ids::{GroupId, ReplicaId};

use crate::Outcome;
use crate::windows::Windows;

/// Changes during a load, at equal distances.
const CHANGES: usize = 3;
/// A window for each change, followed by one without a change.
pub(crate) const WINDOWS: usize = 2 * CHANGES;
/// How long a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// How long a change may take until all new leaders lead.
const DONE_WITHIN: Duration = Duration::from_secs(10);
/// Interval of checks whether all new leaders lead.
const POLL: Duration = Duration::from_millis(10);

/// The leaders of a running cluster, all of whose nodes run on this host.
pub(crate) struct Leaders {
    directory: Directory,
    layout: Layout,
}

impl Leaders {
    pub(crate) fn of(dir: &str, running: &RunningCluster) -> Outcome<Self> {
        let directory = Directory::at(Path::new(dir))?;
        let layout = running.config.layout();
        if layout.topology().replicas < 2 {
            return Err(format!(
                "the groups of the cluster in {dir} have one replica each, which cannot change \
                 leaders: start one with `skein up --replicas 3`"
            )
            .into());
        }
        Ok(Self { directory, layout })
    }

    /// Makes [`CHANGES`] changes within a load of length `time` that begins now. Returns the time that each took.
    pub(crate) fn change(
        &self,
        time: Duration,
        windows: &Windows,
    ) -> Result<Vec<Duration>, String> {
        let begun = Instant::now();
        // Distance from a change to the quiet window after it, and from there to the next change.
        let distance = time / (WINDOWS as u32 + 1);
        let mut at = begun;
        let mut wait = || {
            at += distance;
            thread::sleep(at.saturating_duration_since(Instant::now()));
        };
        let mut changes = Vec::new();
        for number in 1..=CHANGES {
            wait();
            windows.open();
            let took = self.change_once().map_err(|why| format!("change {number}: {why}"))?;
            windows.close();
            wait();
            windows.open();
            thread::sleep(took);
            windows.close();
            changes.push(took);
        }
        if begun.elapsed() < time {
            return Ok(changes);
        }
        let took: Vec<_> = changes.iter().map(|took| format!("{} ms", took.as_millis())).collect();
        let took = took.join(", ");
        Err(format!(
            "the load ended before the changes, which took {took}: give it more `--seconds`"
        ))
    }

    /// Has the replica in the slot after the leader's lead, in all groups at once, and waits until all of them do.
    fn change_once(&self) -> Result<Duration, String> {
        let slots = self.layout.topology().replicas;
        let next = |slot: u8| (slot + 1) % slots;
        let wanted = self.leaders()?.into_iter().map(next).collect::<Vec<_>>();
        let asked = Instant::now();
        nodes::ask(self.layout.topology().groups, |group| {
            self.lead(ReplicaId::new(GroupId(group), wanted[usize::from(group)]))
        })
        .into_iter()
        .collect::<Result<(), _>>()?;
        while self.leaders().ok().as_ref() != Some(&wanted) {
            if asked.elapsed() >= DONE_WITHIN {
                return Err(format!(
                    "not all groups have their new leaders after {} seconds: `skein status` shows which lead",
                    DONE_WITHIN.as_secs()
                ));
            }
            thread::sleep(POLL);
        }
        Ok(asked.elapsed())
    }

    fn lead(&self, replica: ReplicaId) -> Result<(), String> {
        let (group, node) = (replica.group.0, self.layout.node_of(replica));
        let done = admin::call(&self.directory, node, Action::Lead { group }, ANSWER_WITHIN);
        done.map(drop).map_err(|error| {
            format!(
                "node {node} was asked to lead group {group} and did not: {error}; \
                 measure again when `skein status` shows that all groups have a quorum"
            )
        })
    }

    /// The slot of each group's leader.
    fn leaders(&self) -> Result<Vec<u8>, String> {
        let topology = self.layout.topology();
        let mut statuses = Vec::new();
        for (node, status) in (0..).zip(nodes::statuses(&self.directory, topology.nodes)) {
            let status = status.map_err(|error| {
                format!("node {node} does not report who leads: {error}; all must run on this host")
            })?;
            statuses.push(status);
        }
        let leader = |group| {
            let replicas = statuses.iter().flat_map(|status| &status.replicas);
            let leads = |order: &&ReplicaStatus| order.group == group && order.role == Role::Leader;
            let leading = replicas.map(|replica| &replica.order).filter(leads);
            let last = leading.max_by_key(|order| order.ballot_counter);
            last.map(|order| order.slot).ok_or_else(|| {
                format!("group {group} has no leader: `skein status` shows which replicas answer")
            })
        };
        (0..topology.groups).map(leader).collect()
    }
}
