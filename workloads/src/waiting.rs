//! How much groups waited for each other during a benchmark.

use std::path::Path;
use std::time::Duration;

use skein_cluster::directory::Directory;
use skein_multicast::config::Topology;
use skein_multicast::operate::{ReplicaStatus, Role};
use skein_node::admin;

use crate::report::WaitingReport;

/// The reports of the leaders of all groups of the cluster in `dir`, as far as they can be asked.
pub fn leaders(dir: &Path, topology: Topology) -> Vec<ReplicaStatus> {
    let Ok(directory) = Directory::at(dir) else { return Vec::new() };
    let running = (0..topology.nodes).filter(|node| directory.node(*node).is_some());
    let statuses = running.filter_map(|node| admin::status(&directory, node).ok());
    let replicas = statuses.flat_map(|status| status.replicas).map(|replica| replica.order);
    let mut leaders: Vec<_> = replicas.filter(|replica| replica.role == Role::Leader).collect();
    leaders.sort_unstable_by_key(|leader| leader.group);
    leaders
}

/// How much the replicas that led both before and after have waited in between.
pub fn between(
    before: &[ReplicaStatus],
    after: &[ReplicaStatus],
    elapsed: Duration,
) -> Vec<WaitingReport> {
    let incarnation = |it: &ReplicaStatus| (it.group, it.slot, it.incarnation);
    let share = |before: u64, after: u64| {
        let waited = Duration::from_micros(after.saturating_sub(before));
        (waited.as_secs_f64() / elapsed.as_secs_f64()).min(1.0)
    };
    let report = |after: &ReplicaStatus| {
        let before = before.iter().find(|before| incarnation(before) == incarnation(after))?;
        let replies_held = after.held.count.saturating_sub(before.held.count);
        let held_us = after.held.waited_us.saturating_sub(before.held.waited_us);
        Some(WaitingReport {
            group: after.group,
            results: share(before.results.waited_us, after.results.waited_us),
            stalled: share(before.results.stalled_us, after.results.stalled_us),
            replies_held,
            held_us: held_us as f64 / replies_held.max(1) as f64,
        })
    };
    after.iter().filter_map(report).collect()
}
