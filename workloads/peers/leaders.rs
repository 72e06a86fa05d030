//! Changes of the leaders of all groups at once, beside a load: the experiment of Table 1 of the TRAM paper.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use skein_cluster::directory::{Directory, RunningCluster};
use skein_multicast::layout::Layout;
use skein_multicast::operate::{ReplicaStatus, Role};
use skein_node::admin::{self, Action};
use skein_node::nodes;
use skein_protocol::ids::{GroupId, ReplicaId};

use crate::windows::{Met, Windows};
use crate::{Outcome, histogram};

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

/// The latency of some operations.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) operations: u64,
    pub(crate) mean_us: f64,
    pub(crate) min_us: f64,
    pub(crate) max_us: f64,
}

impl Took {
    fn of(nanoseconds: &Histogram<u64>) -> Self {
        let (min, max) = (nanoseconds.min() as f64, nanoseconds.max() as f64);
        let mean_us = nanoseconds.mean() / 1e3;
        Self { operations: nanoseconds.len(), mean_us, min_us: min / 1e3, max_us: max / 1e3 }
    }

    /// The slowest `most` operations.
    fn slowest(nanoseconds: &Histogram<u64>, most: u64) -> Self {
        let mut slowest = histogram();
        let recorded: Vec<_> = nanoseconds.iter_recorded().collect();
        for value in recorded.iter().rev() {
            let count = value.count_at_value().min(most - slowest.len());
            if count == 0 {
                break;
            }
            slowest.saturating_record_n(value.value_iterated_to(), count);
        }
        Self::of(&slowest)
    }
}

/// The latency of operations while leaders changed, as in Table 1 of the TRAM paper. An operation meets a change if it is in
/// flight at any time from the request until all new leaders are seen to lead. Of the operations of a client that met a
/// change, the slowest counts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LedAnew {
    /// For each change, milliseconds from the request until all new leaders are seen to lead, by polling.
    pub(crate) changes_ms: Vec<f64>,
    /// The operations that met each change.
    pub(crate) met: Vec<Took>,
    /// The operations that met any change.
    pub(crate) met_total: Took,
    /// The same for times without a change, one after each change and as long.
    pub(crate) quiet_total: Took,
    /// The slowest operations of the load, as many as met any change: clients × changes.
    pub(crate) slowest: Took,
}

impl LedAnew {
    /// `changes` says how long each took, `nanoseconds` what all operations of the load took.
    pub(crate) fn of(changes: &[Duration], met: &Met, nanoseconds: &Histogram<u64>) -> Self {
        let of = |first| (first..WINDOWS).step_by(2).map(|window| met.of(window));
        let total = |first| {
            let mut total = histogram();
            of(first).for_each(|it| total += it);
            total
        };
        let met_total = total(0);
        Self {
            changes_ms: changes.iter().map(|took| took.as_secs_f64() * 1e3).collect(),
            met: of(0).map(|it| Took::of(&it)).collect(),
            slowest: Took::slowest(nanoseconds, met_total.len()),
            met_total: Took::of(&met_total),
            quiet_total: Took::of(&total(1)),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_operations_are_as_many_as_asked_for() {
        let mut nanoseconds = histogram();
        nanoseconds.record_n(1_000, 10).expect("a value within the bounds");
        nanoseconds.record_n(2_000, 2).expect("a value within the bounds");
        #[rustfmt::skip]
        let cases = [
            (1,  1,  2.0,       2.0, "some of the slowest value"),
            (4,  4,  1.5,       1.0, "all of it, and some of the next"),
            (99, 12, 14. / 12., 1.0, "there are no more"),
        ];
        for (most, operations, mean, min, why) in cases {
            let took = Took::slowest(&nanoseconds, most);
            assert_eq!(took.operations, operations, "{why}");
            for (value, wanted) in [(took.mean_us, mean), (took.min_us, min), (took.max_us, 2.0)] {
                assert!((value - wanted).abs() < 0.01, "{why}: {value} instead of {wanted}");
            }
        }
    }
}
