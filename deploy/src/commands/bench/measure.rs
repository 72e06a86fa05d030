//! Running a workload on a cluster, with or without a recorded history.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use skein_client::Driver;
use skein_cluster::BUILD;
use skein_cluster::config::ClusterConfig;
use skein_cluster::directory::Directory;
use skein_fabric::any::AnyFabric;
use skein_multicast::config::Topology;
use skein_node::admin;
use skein_node::status::NodeStatus;
use skein_workloads::bench::{
    self, BankPlan, Cluster, RetwisPlan, SmallBankPlan, Terms, Watch, YcsbPlan,
};
use skein_workloads::mix::{Kind, RECORD};
use skein_workloads::multicast::cores;
use skein_workloads::report::Report;
use skein_workloads::retwis::{TRANSACTION_KEYS, TWEET};
use skein_workloads::smallbank::SmallBank;
use skein_workloads::waiting;

use super::super::recorded::{About, Recording};
use crate::exit::usage;

/// Measures the cluster in `dir` with YCSB, and records the history at `history`.
pub(in super::super) fn ycsb(
    dir: &Path,
    plan: &YcsbPlan,
    history: Option<&Path>,
    watch: &mut impl Watch,
) -> anyhow::Result<Report> {
    let (mut driver, cluster, _) = connect(dir, plan.terms, plan.clients)?;
    let Some(path) = history else { return Ok(bench::ycsb(&mut driver, &cluster, plan, watch)) };
    let about = About {
        workload: format!("ycsb-{}", plan.mix.letter),
        seed: plan.terms.seed,
        bank: None,
        record: Some(RECORD),
        // Keys inserted by earlier runs exist.
        before: !plan.load || plan.mix.percent_of(Kind::Insert) > 0,
    };
    let recording = Recording::begin(path, &cluster, about)?;
    let report = bench::ycsb(&mut recording.of(&mut driver), &cluster, plan, watch);
    recording.end(&mut driver, watch)?;
    Ok(report)
}

/// Runs SmallBank on the cluster in `dir`, and records the history at `history`.
pub(super) fn smallbank(
    dir: &Path,
    plan: &SmallBankPlan,
    history: Option<&Path>,
    watch: &mut impl Watch,
) -> anyhow::Result<Report> {
    let (mut driver, cluster, _) = connect(dir, plan.terms, plan.clients)?;
    let Some(path) = history else {
        return Ok(bench::smallbank(&mut driver, &cluster, plan, watch));
    };
    let about = About {
        workload: "smallbank".to_owned(),
        seed: plan.terms.seed,
        bank: Some(SmallBank::header(plan.customers)),
        record: None,
        before: true,
    };
    let recording = Recording::begin(path, &cluster, about)?;
    let report = bench::smallbank(&mut recording.of(&mut driver), &cluster, plan, watch);
    recording.end(&mut driver, watch)?;
    Ok(report)
}

/// Runs Retwis on the cluster in `dir`, and records the history at `history`.
pub(super) fn retwis(
    dir: &Path,
    plan: &RetwisPlan,
    history: Option<&Path>,
    watch: &mut impl Watch,
) -> anyhow::Result<Report> {
    let (mut driver, cluster, config) = connect(dir, plan.terms, plan.clients)?;
    let max = config.limits.transaction_keys_max;
    if max < TRANSACTION_KEYS {
        return Err(usage(format!(
            "retwis takes {TRANSACTION_KEYS} keys in a transaction: this cluster's limits.transaction_keys_max is {max}"
        )));
    }
    let Some(path) = history else {
        return Ok(bench::retwis(&mut driver, &cluster, plan, watch));
    };
    let about = About {
        workload: "retwis".to_owned(),
        seed: plan.terms.seed,
        bank: None,
        record: Some(TWEET),
        before: !plan.load,
    };
    let recording = Recording::begin(path, &cluster, about)?;
    let report = bench::retwis(&mut recording.of(&mut driver), &cluster, plan, watch);
    recording.end(&mut driver, watch)?;
    Ok(report)
}

/// Runs the bank on the cluster in `dir`, and records the history at `history`.
pub(in super::super) fn bank(
    dir: &Path,
    plan: &BankPlan,
    history: Option<&Path>,
    watch: &mut impl Watch,
) -> anyhow::Result<Report> {
    let (mut driver, cluster, config) = connect(dir, plan.terms, plan.clients + plan.readers)?;
    let max = config.limits.transaction_keys_max;
    if plan.accounts > max {
        let accounts = plan.accounts;
        return Err(usage(format!(
            "--accounts {accounts} cannot be read in one transaction: this cluster's limits.transaction_keys_max is {max}"
        )));
    }
    let before = waiting::leaders(dir, config.topology);
    let began = Instant::now();
    let mut report = match history {
        None => bench::bank(&mut driver, &cluster, plan, watch),
        Some(path) => {
            let bank = bench::open_bank(&cluster, plan).header();
            let about = About {
                workload: "bank".to_owned(),
                seed: plan.terms.seed,
                bank: Some(bank),
                record: None,
                before: true,
            };
            let recording = Recording::begin(path, &cluster, about)?;
            let report = bench::bank(&mut recording.of(&mut driver), &cluster, plan, watch);
            recording.end(&mut driver, watch)?;
            report
        }
    };
    let elapsed = began.elapsed();
    drop(driver);
    if let Some(bank) = &mut report.bank {
        bank.waiting = waiting::between(&before, &waiting::leaders(dir, config.topology), elapsed);
        bank.pending = pending(dir, config.topology);
    }
    Ok(report)
}

/// Connects sessions for `clients` clients on these terms.
fn connect(
    dir: &Path,
    terms: Terms,
    clients: usize,
) -> anyhow::Result<(Driver<AnyFabric>, Cluster, ClusterConfig)> {
    let running = Directory::connect(dir)?;
    let config = running.config.clone();
    let (sessions, window) = (terms.sessions_of(clients), config.tuning.window);
    if sessions > clients {
        return Err(usage(format!(
            "--sessions {sessions} are more than there are clients: give {clients} at most"
        )));
    }
    let each = clients.div_ceil(sessions);
    if each > window {
        let least = clients.div_ceil(window);
        return Err(usage(format!(
            "--sessions {sessions} leave each session {each} operations in flight, and this cluster's tuning.window is {window}: give {least} sessions at least"
        )));
    }
    let driver = Driver::to(&running).context("cannot reach the cluster's memory")?;
    let cluster = Cluster {
        topology: config.topology,
        durability: config.durability.name().to_owned(),
        store: config.store.name().to_owned(),
        slots: driver.shape().slots.clone(),
        window: config.tuning.window,
        skein: BUILD.text().to_owned(),
        cross_core_ns: cores::round_trip_ns(),
    };
    Ok((driver, cluster, config))
}

/// Number of messages that the running nodes of the cluster in `dir` hold undelivered after a time
/// for delivery; `None` if a node does not answer. Messages of other users of the cluster come and
/// go: only those that stay are counted.
fn pending(dir: &Path, topology: Topology) -> Option<u64> {
    let directory = Directory::at(dir).ok()?;
    let until = Instant::now() + DELIVERED_WITHIN;
    loop {
        let running = (0..topology.nodes).filter(|node| directory.node(*node).is_some());
        let statuses = running.map(|node| admin::status(&directory, node).ok());
        let statuses: Option<Vec<NodeStatus>> = statuses.collect();
        let late = Instant::now() >= until;
        // A node that was just restarted may not answer yet.
        let Some(statuses) = statuses.filter(|statuses| !statuses.is_empty()) else {
            if late {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let replicas = || statuses.iter().flat_map(|status| &status.replicas).map(|r| &r.order);
        if replicas().all(|replica| replica.pending == 0) {
            return Some(0);
        }
        if late {
            let limit = DELIVERED_WITHIN.as_millis() as u64 / 2;
            let blocked = replicas().filter(|replica| replica.oldest_pending_ms >= limit);
            return Some(blocked.map(|replica| replica.pending).sum());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How long a message may take from its session to every replica, at the end of a run.
const DELIVERED_WITHIN: Duration = Duration::from_secs(4);
