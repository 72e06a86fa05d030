//! The report of a benchmark: a JSON object for programs, a table for people.
//!
//! Scripts read its field names and compare them between versions. They are described in
//! `docs/schema.md`, and a test below checks that.

pub mod date;
mod distribution;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use skein_checker::chart;
use skein_multicast::config::Topology;

pub use self::distribution::distribution;
use crate::bank::Bank;
use crate::bench::Terms;
use crate::generator::{Errors, Measured, TIMELINE_INTERVAL};
use crate::neighbours::Neighbours;
use crate::smallbank::SmallBank;

/// One run of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `ycsb-a` to `ycsb-f`, `bank`, `smallbank` or `retwis`.
    pub workload: String,
    /// Operations that returned in the measured time, per second.
    pub ops_per_s: f64,
    /// Operations without a correct reply, those of the warm-up included.
    pub errors: u64,
    /// The same by kind. Kinds without errors are absent.
    pub errors_by_kind: BTreeMap<&'static str, u64>,
    /// Description of the first error.
    pub first_error: Option<String>,
    /// Why the run ended early. Then this report is of a part of it.
    pub ended_early: Option<String>,
    /// By kind of operation.
    pub operations: BTreeMap<&'static str, OperationReport>,
    /// Records that existed when the run began.
    pub records: u64,
    /// The load before the run, if there was one.
    pub load: Option<LoadReport>,
    /// Clients, each with one operation in flight.
    pub clients: usize,
    /// Sessions that the clients share. `sessions <= clients`.
    pub sessions: usize,
    /// Mode of read-only operations: `confirmed`, `ordered`, `lease` or `stale`.
    pub read_mode: String,
    /// What survives when all nodes lose their power: `memory` (nothing) or `sync`.
    pub durability: String,
    /// Where replicas hold keys and values: `memory` or `rocksdb`.
    pub store: String,
    /// Measured time.
    pub duration_s: f64,
    /// Warm-up before it.
    pub warmup_s: f64,
    /// Arrivals per second; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Operations of an open loop that were due and never invoked.
    pub never_invoked: u64,
    /// Processes that computed beside it; `None` if there were none.
    pub neighbours: Option<Neighbours>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Version of Skein, with its commit.
    pub skein: String,
    /// Date of the end, in UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    pub machine: Machine,
    /// Nanoseconds from one core to another and back, just before; `None` with a single core.
    pub cross_core_ns: Option<f64>,
    pub topology: Topology,
    /// Throughput over time.
    pub timeline: Timeline,
    /// Faults injected during the run.
    pub events: Vec<Event>,
    /// Only of the bank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bank: Option<BankReport>,
    /// Only of `SmallBank`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallbank: Option<SmallBankReport>,
}

/// A fault injected during a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// In seconds of the measured time.
    pub at_s: f64,
    /// `kill`.
    pub what: &'static str,
    /// The nodes hit.
    pub nodes: Vec<u16>,
    /// Groups that these nodes led.
    pub led: Vec<u16>,
}

/// The records that were put before the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    pub records: u64,
    /// Time with many puts in flight.
    pub duration_s: f64,
}

/// The operations of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationReport {
    /// Operations that returned in the measured time.
    pub count: u64,
    /// From invocation to return.
    pub latency_us: Latency,
    /// Pairs of a share of the operations and the microseconds within which they returned.
    pub distribution_us: Vec<[f64; 2]>,
}

/// Percentiles of latency in microseconds: `p999` is of 99.9 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(nanoseconds: &Histogram<u64>) -> Self {
        let at = |quantile| micros(nanoseconds.value_at_quantile(quantile));
        let max = micros(nanoseconds.max());
        Self { p50: at(0.5), p95: at(0.95), p99: at(0.99), p999: at(0.999), max }
    }
}

/// Nanoseconds in microseconds, rounded to ten nanoseconds: the fastest operations take a
/// microsecond or two.
pub(crate) fn micros(nanoseconds: u64) -> f64 {
    (nanoseconds as f64 / 10.0).round() / 100.0
}

/// Operations returned in each interval of the measured time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeline {
    pub interval_ms: u64,
    /// Per interval.
    pub ops: Vec<u64>,
    /// Longest latency per interval, in microseconds; only of `bench chaos`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worst_us: Vec<u64>,
}

/// The results of the bank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BankReport {
    pub accounts: usize,
    /// Clients that added up the accounts; the others moved money.
    pub readers: usize,
    /// Transfers prevented by the guard against overdraft, those of the warm-up included. They
    /// count as operations.
    pub declined: u64,
    /// Reads with the right sum, those of the warm-up included. A wrong sum is an error.
    pub right_sums: u64,
    /// Number of accounts among which money moved.
    pub hot: usize,
    /// Transfers of the client with the fewest, those of the warm-up included.
    pub transfers_least: u64,
    /// Transfers of the client with the most, those of the warm-up included.
    pub transfers_most: u64,
    /// The right sum of the accounts.
    pub expected_sum: i64,
    /// The final sum, if it could be read and was right.
    pub final_sum: Option<i64>,
    /// Undelivered messages on any replica long after the end; `None` if the nodes could not be
    /// asked.
    pub pending: Option<u64>,
    /// Wait of each group for other groups; empty if the nodes could not be asked.
    pub waiting: Vec<WaitingReport>,
}

/// How much a group's leader waited for other groups during a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingReport {
    pub group: u16,
    /// Share of the time in which some transaction waited for other groups' results. Unrelated
    /// transactions continued.
    pub results: f64,
    /// Share of the time in which nothing could be delivered before such results arrived.
    pub stalled: f64,
    /// Replies that were held back until their dependencies had passed.
    pub replies_held: u64,
    /// Mean time that a reply was held back, in microseconds.
    pub held_us: f64,
}

/// The results of `SmallBank`. Sums are in cents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SmallBankReport {
    /// Customers, with two accounts each.
    pub customers: u64,
    /// Transactions prevented by the guard against overdraft. They count as operations.
    pub declined: u64,
    /// How often a transaction was restarted because another had changed what it had read.
    pub begun_again: u64,
    /// The right sum of the accounts according to the acknowledgements.
    pub expected_sum: i64,
    /// The final sum, if it could be read and was right.
    pub final_sum: Option<i64>,
}

/// The machine of a benchmark, shared by its generator and the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The processor's model name.
    pub model: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            ["model name", "Model", "cpu"].contains(&name.trim()).then(|| value.trim().to_owned())
        });
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            model: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct About {
    /// Its name.
    pub workload: String,
    /// Records that existed when the run began.
    pub records: u64,
    pub clients: usize,
    pub terms: Terms,
    pub skein: String,
    pub topology: Topology,
    /// The name of the cluster's durability.
    pub durability: String,
    /// The name of the cluster's store.
    pub store: String,
    /// Nanoseconds from one core of the machine to another and back, just before.
    pub cross_core_ns: Option<f64>,
}

impl Report {
    /// The report of a workload with these `kinds` of operations. A kind without returned
    /// operations is left out.
    pub fn new(about: About, kinds: &[&'static str], measured: &Measured) -> Self {
        let seconds = measured.measured_for.as_secs_f64();
        let ops_per_s = if seconds > 0.0 { measured.operations() as f64 / seconds } else { 0.0 };
        let operation = |(kind, latency): (&&'static str, &Histogram<u64>)| {
            let report = || OperationReport {
                count: latency.len(),
                latency_us: latency.into(),
                distribution_us: distribution(latency),
            };
            (!latency.is_empty()).then(|| (*kind, report()))
        };
        let Errors { counts, first } = measured.errors.clone();
        Self {
            workload: about.workload,
            ops_per_s: (ops_per_s * 10.0).round() / 10.0,
            errors: measured.errors.total(),
            errors_by_kind: counts,
            first_error: first,
            ended_early: measured.ended_early.clone(),
            operations: kinds.iter().zip(&measured.latency_ns).filter_map(operation).collect(),
            records: about.records,
            load: None,
            clients: about.clients,
            sessions: about.terms.sessions_of(about.clients),
            read_mode: about.terms.read_mode.to_string(),
            durability: about.durability,
            store: about.store,
            duration_s: millis(measured.measured_for),
            warmup_s: millis(about.terms.warm_up),
            rate: about.terms.rate,
            never_invoked: measured.never_invoked,
            neighbours: None,
            seed: about.terms.seed,
            skein: about.skein,
            date: date::now(),
            command: date::command(),
            machine: Machine::here(),
            cross_core_ns: about.cross_core_ns,
            topology: about.topology,
            timeline: Timeline {
                interval_ms: TIMELINE_INTERVAL.as_millis() as u64,
                ops: measured.timeline.clone(),
                worst_us: Vec::new(),
            },
            events: Vec::new(),
            bank: None,
            smallbank: None,
        }
    }

    /// Adds the results of the bank. `last` is the final sum. A caller that can ask the nodes sets
    /// `pending`.
    #[must_use]
    pub fn with_bank(mut self, bank: &Bank, last: Option<i64>) -> Self {
        let (transfers_least, transfers_most) = bank.least_and_most();
        self.bank = Some(BankReport {
            accounts: bank.accounts(),
            hot: bank.hot(),
            transfers_least,
            transfers_most,
            readers: bank.readers(),
            declined: bank.declined,
            right_sums: bank.right_sums,
            expected_sum: bank.total(),
            final_sum: last,
            pending: None,
            waiting: Vec::new(),
        });
        self
    }

    /// Adds the results of `SmallBank`. `last` is the final sum.
    #[must_use]
    pub fn with_smallbank(mut self, bank: &SmallBank, last: Option<i64>) -> Self {
        self.smallbank = Some(SmallBankReport {
            customers: bank.customers(),
            declined: bank.declined,
            begun_again: bank.begun_again,
            expected_sum: bank.expected_sum(),
            final_sum: last,
        });
        self
    }

    /// Whether the run completed and nothing was wrong.
    pub fn is_good(&self) -> bool {
        let settled = |bank: &BankReport| bank.final_sum.is_some() && bank.pending == Some(0);
        self.errors == 0
            && self.ended_early.is_none()
            && self.bank.as_ref().is_none_or(settled)
            && self.smallbank.as_ref().is_none_or(|bank| bank.final_sum.is_some())
    }

    /// The report for people. `colour` is for terminals.
    pub fn table(&self, colour: bool) -> String {
        let paint = chart::Paint(colour);
        let mut text = String::new();
        let Topology { nodes, groups, replicas, .. } = self.topology;
        let shared = if self.sessions < self.clients {
            format!(" in {} sessions", self.sessions)
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "{}   {} records, {} clients{shared}, {} reads, {} s   {nodes} nodes, {groups} groups × {replicas} replicas, durability {}, store {}",
            paint.strong(&self.workload),
            chart::grouped(self.records),
            self.clients,
            self.read_mode,
            self.duration_s,
            self.durability,
            self.store,
        );
        let rate = paint.strong(&chart::grouped(chart::whole(self.ops_per_s)));
        let due = self.rate.map_or_else(String::new, |due| {
            format!(" of {} that were due", chart::grouped(chart::whole(due)))
        });
        let over_time = chart::sparkline(self.timeline_without_tail());
        let line = format!("  {rate} operations/s{due}   {over_time}");
        let _ = writeln!(text, "{}", line.trim_end());
        if let Some(trip) = self.cross_core_ns {
            let _ =
                writeln!(text, "  from one core to another and back, just before: {trip:.0} ns");
        }
        if let Some(neighbours) = &self.neighbours {
            let _ =
                writeln!(text, "  beside {} processes: {}", neighbours.count, neighbours.kind());
        }
        for Event { at_s, what, nodes, led } in &self.events {
            let _ = writeln!(text, "  {what} of node {nodes:?}, leader of {led:?}, at {at_s:.3} s");
        }
        if self.operations.is_empty() {
            self.verdict(&mut text, paint);
            return text;
        }
        let _ = writeln!(
            text,
            "\n  {:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}   █ p50 ▓ p95 ▒ p99 ░ p99.9",
            "latency in µs", "count", "p50", "p95", "p99", "p99.9", "max"
        );
        let longest = self.operations.values().map(|o| o.latency_us.p999).fold(1.0, f64::max);
        for (kind, OperationReport { count, latency_us, .. }) in &self.operations {
            let Latency { p50, p95, p99, p999, max } = *latency_us;
            let bar = chart::steps(&[p50, p95, p99, p999], longest, 24);
            let _ = writeln!(
                text,
                "  {:<18}{:>10} {p50:>9.1} {p95:>9.1} {p99:>9.1} {p999:>9.1} {max:>9.1}   {bar}",
                kind.replace('_', "-"),
                chart::grouped(*count),
            );
        }
        self.verdict(&mut text, paint);
        text
    }

    /// Writes what was right and what was wrong.
    fn verdict(&self, text: &mut String, paint: chart::Paint) {
        text.push('\n');
        if let Some(bank) = &self.bank {
            let _ = writeln!(
                text,
                "  {} sums over {} accounts were right, {} transfers declined for want of money, warm-up included",
                chart::grouped(bank.right_sums),
                bank.accounts,
                chart::grouped(bank.declined),
            );
            let _ = writeln!(
                text,
                "  each client moved money {} to {} times, among {} accounts; nothing was aborted",
                chart::grouped(bank.transfers_least),
                chart::grouped(bank.transfers_most),
                bank.hot,
            );
            for WaitingReport { group, results, stalled, replies_held, held_us } in &bank.waiting {
                let (results, stalled) = (100.0 * results, 100.0 * stalled);
                let _ = writeln!(
                    text,
                    "  g{group} waited for results {results:.1} % of the time, and {stalled:.1} % delivered nothing meanwhile; held {} replies for {held_us:.0} µs each",
                    chart::grouped(*replies_held),
                );
            }
            let _ = match (bank.final_sum, bank.pending) {
                (Some(sum), Some(0)) => writeln!(text, "  final sum {sum}, nothing pending"),
                (Some(sum), Some(n)) => {
                    writeln!(
                        text,
                        "  {}",
                        paint.bad(&format!("final sum {sum}, {n} messages still pending"))
                    )
                }
                (Some(sum), None) => {
                    writeln!(
                        text,
                        "  {}",
                        paint.bad(&format!(
                            "final sum {sum}, the nodes did not say what is pending"
                        ))
                    )
                }
                (None, _) => {
                    let wanted = bank.expected_sum;
                    writeln!(
                        text,
                        "  {}",
                        paint.bad(&format!("the final sum is not {wanted}, or could not be read"))
                    )
                }
            };
        }
        if let Some(bank) = &self.smallbank {
            let (declined, again) =
                (chart::grouped(bank.declined), chart::grouped(bank.begun_again));
            let _ = writeln!(
                text,
                "  {declined} transactions declined for want of money, {again} begun again, warm-up included"
            );
            let wanted = bank.expected_sum;
            let wrong = || format!("the final sum is not {wanted} cents, or could not be read");
            let sum = bank.final_sum.map(|sum| format!("final sum {sum} cents"));
            let _ = writeln!(text, "  {}", sum.unwrap_or_else(|| paint.bad(&wrong())));
        }
        if self.never_invoked > 0 {
            let never = chart::grouped(self.never_invoked);
            let what = format!("{never} operations were due and never invoked: all clients waited");
            let _ = writeln!(text, "  {}", paint.bad(&what));
        }
        if let Some(why) = &self.ended_early {
            let _ = writeln!(text, "  {}", paint.bad(&format!("ended early: {why}")));
        }
        if self.errors == 0 {
            let _ = writeln!(text, "  {}", paint.good("no errors"));
            return;
        }
        let kinds: Vec<_> =
            self.errors_by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let _ = writeln!(
            text,
            "  {}",
            paint.bad(&format!("{} errors: {}", self.errors, kinds.join(", ")))
        );
        if let Some(first) = &self.first_error {
            let _ = writeln!(text, "  the first: {first}");
        }
    }

    /// The timeline without the last interval, which is incomplete.
    fn timeline_without_tail(&self) -> &[u64] {
        let ops = &self.timeline.ops;
        let whole = (chart::whole(self.duration_s * 1e3) / self.timeline.interval_ms) as usize;
        &ops[..ops.len().min(whole.max(1))]
    }
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1e3
}

/// Asserts that each field name of an object is described in the part of `docs/schema.md` with this
/// heading.
#[cfg(test)]
pub(crate) fn assert_described(object: &serde_json::Value, heading: &str) {
    let page = include_str!("../../docs/schema.md");
    let part = page.split("\n## ").find(|part| part.starts_with(&heading[3..]));
    let part = part.unwrap_or_else(|| panic!("{heading} is no part of it"));
    for name in object.as_object().expect("an object").keys() {
        assert!(part.contains(&format!("`{name}`")), "{name} is not told under {heading}");
    }
}

#[cfg(test)]
mod tests;
