//! The report of a run under faults: a JSON object for programs, tables and charts for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use skein_checker::chart::{self, Paint, grouped};
use skein_checker::check::OrderReport;
use skein_checker::verify::Judgement;
use skein_cluster::config::{Durability, StoreKind};
use skein_multicast::config::Topology;

use super::load::{Loaded, Probe, Sample};
use super::silence::{self, ByKind, Silence};
use crate::report::{Machine, Timeline, date};

/// A fault as it was injected. Times are in nanoseconds of the monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Just before the signal was sent.
    pub t: u64,
    /// Name of its kind.
    pub what: &'static str,
    /// The nodes hit; empty for a client.
    pub nodes: Vec<u16>,
    /// The groups that they led.
    pub led: Vec<u16>,
    /// When the fault was over, so that the cluster could serve: for a loss of power, when the first node was started;
    /// otherwise `t`.
    pub on: u64,
    /// When all their replicas were followers again.
    pub recovered: Option<u64>,
}

/// Parameters of the run.
#[derive(Clone, Debug)]
pub struct About {
    pub seed: u64,
    pub skein: String,
    pub topology: Topology,
    pub durability: Durability,
    pub store: StoreKind,
    /// Sessions with one operation in flight each.
    pub clients: usize,
    /// Operations per second of all sessions, if limited.
    pub rate: Option<f64>,
    /// Records put before the run.
    pub state: State,
    /// When the load began, and when it was stopped.
    pub ran: [u64; 2],
}

/// The report of a run under faults.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `chaos`.
    pub workload: &'static str,
    /// Whether no problem was found.
    pub good: bool,
    /// Problems that are not in the verdicts.
    pub problems: Vec<String>,
    pub seed: u64,
    /// Version of Skein, with its commit.
    pub skein: String,
    /// Date of the end, in UTC.
    pub date: String,
    /// The command line of the run.
    pub command: String,
    pub machine: Machine,
    pub topology: Topology,
    /// The durability of the cluster.
    pub durability: Durability,
    /// Where its replicas hold keys and values.
    pub store: StoreKind,
    /// Time during which faults were injected.
    pub duration_s: f64,
    /// Sessions with one operation in flight each.
    pub clients: usize,
    /// Operations per second of all sessions, if limited.
    pub rate: Option<f64>,
    /// Answered operations of these sessions per second.
    pub ops_per_s: f64,
    /// Records put before the run.
    pub state: State,
    /// Number of faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// From the kill of a leader to the next acknowledged write of its group, in milliseconds.
    pub failover_ms: Option<Spread>,
    /// The same after a leader was stopped for longer than that took.
    pub stop_ms: Option<Spread>,
    /// From the start of the first node after a loss of power to the next acknowledged write of each group.
    pub power_on_ms: Option<Spread>,
    /// From the fault until all replicas of the node were followers again, in milliseconds.
    pub readmission_ms: Option<Spread>,
    /// Longest time after a fault without an answer to any client, by kind of fault, in
    /// milliseconds.
    pub silence_ms: ByKind,
    /// Longest wait of one client after a fault, by kind of fault, in milliseconds.
    pub wait_ms: ByKind,
    pub events: Vec<Event>,
    /// Latency of clients' operations before the first fault, while a node was missing or being
    /// re-admitted, and at other times.
    pub latency_us: BTreeMap<&'static str, Latency>,
    /// Operations answered over time.
    pub timeline: Timeline,
    /// The first operation without an answer.
    pub first_error: Option<String>,
    /// Judgement on single keys, replicas and bank sums.
    pub verdict: Judgement,
    /// Judgement on all transactions together.
    pub order: OrderReport,
    /// The history, if it was kept.
    pub history: Option<PathBuf>,
}

/// The records put before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct State {
    pub records: u64,
    /// Bytes of the value of each record.
    pub value_bytes: usize,
    /// Time to put them.
    pub load_s: f64,
}

/// Distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub count: usize,
    pub p50: f64,
    pub p90: f64,
    pub worst: f64,
}

/// Distribution of latencies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    pub count: usize,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// A fault in a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Since the load began.
    pub at_s: f64,
    /// Name of its kind.
    pub what: &'static str,
    /// The nodes hit; empty for a client.
    pub nodes: Vec<u16>,
    /// For each group that they led, the time to its next acknowledged write, after a loss of power
    /// from the start of the first node; `None` if there was none before the end.
    pub next_write_ms: BTreeMap<u16, Option<f64>>,
    /// Time until all their replicas were followers again; `None` if they were not at the end.
    pub recovered_ms: Option<f64>,
    /// Longest time without an answer to any client, until the next fault.
    pub silence_ms: f64,
    /// Longest wait of one client.
    pub wait_ms: f64,
}

/// Interval of the timeline, in nanoseconds.
const INTERVAL: u64 = 1_000_000;
/// Intervals shown around a kill: before it, and in all.
const AROUND: [usize; 2] = [200, 800];
/// Characters of that chart.
const AROUND_WIDTH: usize = 80;

impl Report {
    /// Puts the report together.
    pub fn new(
        about: About,
        faults: &[Injected],
        loaded: &Loaded,
        verdict: Judgement,
        order: OrderReport,
    ) -> Self {
        let About { seed, skein, topology, durability, store, clients, rate, state, ran } = about;
        let [from, to] = ran;
        let within = loaded.samples.iter().filter(|sample| sample.returned < to).count();
        let duration_s = seconds(to.saturating_sub(from));
        let mut counts = BTreeMap::new();
        for fault in faults {
            *counts.entry(fault.what).or_default() += 1;
        }
        let silences = silence::after(faults, loaded, to);
        let with_silences = faults.iter().zip(silences);
        let events: Vec<Event> = with_silences
            .map(|(fault, silence)| {
                let mut cuts = faults.iter().filter(|other| other.what == "power");
                let cut = cuts.find(|cut| cut.t > fault.t).map(|cut| cut.t);
                event(fault, cut, silence, from, &loaded.probes)
            })
            .collect();
        let next_writes = |what: &'static str| {
            let of = events.iter().filter(move |event| event.what == what);
            spread(of.flat_map(|event| event.next_write_ms.values().copied().flatten()))
        };
        let away = |event: &&Event| ["kill", "restart", "disk-loss"].contains(&event.what);
        let away = events.iter().filter(away);
        Self {
            workload: "chaos",
            good: false,
            problems: Vec::new(),
            seed,
            skein,
            date: date::now(),
            command: date::command(),
            machine: Machine::here(),
            topology,
            durability,
            store,
            duration_s,
            clients,
            rate,
            ops_per_s: round(within as f64 / duration_s.max(1e-9)),
            state,
            faults: counts,
            failover_ms: next_writes("kill"),
            stop_ms: next_writes("stop"),
            power_on_ms: next_writes("power"),
            readmission_ms: spread(away.filter_map(|event| event.recovered_ms)),
            silence_ms: silence::by_kind(&events, |event| event.silence_ms),
            wait_ms: silence::by_kind(&events, |event| event.wait_ms),
            latency_us: latencies(faults, &loaded.samples),
            timeline: timeline(&loaded.samples, from, to),
            first_error: loaded.first_error.clone(),
            events,
            verdict,
            order,
            history: None,
        }
    }

    /// Decides whether the run was good. Called after all problems are known.
    #[must_use]
    pub fn judged(mut self) -> Self {
        let led =
            self.events.iter().filter(|event| ["kill", "power", "disk-loss"].contains(&event.what));
        for event in led {
            for (group, _) in event.next_write_ms.iter().filter(|(_, took)| took.is_none()) {
                let Event { what, at_s, .. } = event;
                let what = format!(
                    "no write of group {group} was acknowledged after the {what} at {at_s} s"
                );
                self.problems.push(what);
            }
        }
        let orderly = self.order.strictly_serializable;
        self.good = self.problems.is_empty() && self.verdict.is_good() && orderly;
        self
    }

    /// The report for people. `colour` is for terminals.
    pub fn table(&self, colour: bool) -> String {
        let paint = Paint(colour);
        let mut text = String::new();
        let Topology { nodes, groups, replicas, .. } = self.topology;
        let pace = self.rate.map_or(String::new(), |rate| {
            format!(" at {} operations/s", grouped(chart::whole(rate)))
        });
        let _ = writeln!(
            text,
            "{}   {} s, {} clients{pace}, seed {}   {nodes} nodes, {groups} groups × {replicas} replicas, durability {}, store {}",
            paint.strong(self.workload),
            self.duration_s,
            self.clients,
            self.seed,
            self.durability.name(),
            self.store.name(),
        );
        if self.state.records > 0 {
            let State { records, value_bytes, load_s } = self.state;
            let records = grouped(records);
            let _ = writeln!(
                text,
                "  state       {records} records of {value_bytes} bytes, put in {load_s} s"
            );
        }
        let faults: Vec<_> =
            self.faults.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let _ = writeln!(text, "  faults      {}", or_none(&faults.join(", ")));
        let Judgement { operations, acknowledged, failed, unknown, .. } = self.verdict;
        let _ = writeln!(
            text,
            "  operations  {}, {} acknowledged, {} failed, {} unknown; {} a second",
            grouped(operations),
            grouped(acknowledged),
            grouped(failed),
            grouped(unknown),
            grouped(chart::whole(self.ops_per_s)),
        );
        self.pictures(&mut text);
        for (name, times) in [
            ("from a leader's kill to its group's next write", self.failover_ms),
            ("from a leader's stop to its group's next write", self.stop_ms),
            ("from power on to each group's next write", self.power_on_ms),
            ("from a node's death to its re-admission", self.readmission_ms),
        ] {
            if let Some(Spread { count, p50, p90, worst }) = times {
                let _ = writeln!(
                    text,
                    "  {name:<47} {count:>5} times   p50 {p50:>8.1} ms   p90 {p90:>8.1} ms   worst {worst:>8.1} ms"
                );
            }
        }
        let silent = "longest silence after a fault, ms";
        silence::table(&mut text, silent, &self.silence_ms, paint);
        silence::table(&mut text, "longest wait of one client, ms", &self.wait_ms, paint);
        let _ = writeln!(
            text,
            "\n  {:<18}{:>10}{:>12}{:>12}{:>12}",
            "latency in µs", "count", "p50", "p99", "max"
        );
        for (phase, Latency { count, p50, p99, max }) in &self.latency_us {
            let count = grouped(*count as u64);
            let _ = writeln!(
                text,
                "  {:<18}{count:>10} {p50:>11.1} {p99:>11.1} {max:>11.1}",
                phase.replace('_', " ")
            );
        }
        self.verdict(&mut text, paint);
        text
    }

    /// Charts of the throughput over the run, and around the kills of leaders.
    fn pictures(&self, text: &mut String) {
        let rates: Vec<u64> = self.timeline.ops.iter().map(|ops| ops * per_second()).collect();
        let marks: Vec<usize> = self.events.iter().map(|event| interval(event.at_s)).collect();
        let to = format!("{} s", self.duration_s);
        let _ = writeln!(text, "\n  throughput; ▲ is a fault");
        text.push_str(&chart::timeline(&rates, &marks, [90, 5], ["0 s", &to]));
        if let Some(around) = self.around_kills() {
            let _ = writeln!(text, "\n  throughput around the kill of a leader, mean of all");
            let times = AROUND.map(|intervals| seconds(intervals as u64 * INTERVAL));
            let [from, to] = [format!("-{} s", times[0]), format!("{:.1} s", times[1] - times[0])];
            text.push_str(&chart::timeline(&around, &[AROUND[0]], [AROUND_WIDTH, 5], [&from, &to]));
        }
        text.push('\n');
    }

    /// Mean rate around the kills of leaders, per interval.
    pub fn around_kills(&self) -> Option<Vec<u64>> {
        let kills = self
            .events
            .iter()
            .filter(|event| event.what == "kill" && !event.next_write_ms.is_empty());
        let mut sums = vec![0; AROUND[1]];
        let mut count = 0;
        for kill in kills {
            let Some(from) = interval(kill.at_s).checked_sub(AROUND[0]) else { continue };
            let Some(ops) = self.timeline.ops.get(from..from + AROUND[1]) else { continue };
            sums.iter_mut().zip(ops).for_each(|(sum, ops)| *sum += ops);
            count += 1;
        }
        (count > 0).then(|| sums.into_iter().map(|sum| sum * per_second() / count).collect())
    }

    fn verdict(&self, text: &mut String, paint: Paint) {
        let Judgement { keys, replicas, wrong, evidence, .. } = &self.verdict;
        text.push('\n');
        for problem in &self.problems {
            let _ = writeln!(text, "  {}", paint.bad(problem));
        }
        for (kind, count) in wrong {
            let _ = writeln!(text, "  {}", paint.bad(&format!("{} × {kind}", grouped(*count))));
        }
        for piece in evidence {
            let _ = writeln!(text, "    {piece}");
        }
        text.push_str(&self.order.text(paint));
        if let Some(error) = self.first_error.as_ref().filter(|_| !self.good) {
            let _ = writeln!(text, "  the first operation without an answer: {error}");
        }
        if self.good {
            let keys = grouped(*keys);
            let all = format!(
                "nothing lost, nothing twice, nothing out of order: {keys} keys, and {replicas} replicas that hold the same"
            );
            let _ = writeln!(text, "  {}", paint.good(&all));
            let transactions = grouped(self.order.transactions);
            let how = format!("{transactions} transactions: {}", self.order.verdict());
            let open = self.order.is_open();
            let how = if open { paint.strong(&how) } else { paint.good(&how) };
            let _ = writeln!(text, "  {how}");
            if open {
                let _ = writeln!(text, "  {}", self.order.basis());
            }
        }
        if let Some(history) = &self.history {
            let _ = writeln!(text, "  history     {}", history.display());
        }
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// The interval of the timeline that contains a time.
fn interval(at_s: f64) -> usize {
    (chart::whole(at_s * 1e9) / INTERVAL) as usize
}

fn per_second() -> u64 {
    1_000_000_000 / INTERVAL
}

/// `cut` is the next loss of power after the fault.
fn event(
    fault: &Injected,
    cut: Option<u64>,
    silence: Silence,
    from: u64,
    probes: &[Vec<Probe>],
) -> Event {
    let next_write = |group: &u16| {
        let probes = probes.get(usize::from(*group)).into_iter().flatten();
        // What was sent before a loss of power, and is answered after it, was answered by those that were started.
        let after = |probe: &&Probe| {
            if fault.on > fault.t { probe.returned >= fault.on } else { probe.invoked >= fault.t }
        };
        let returned = probes.filter(after).map(|probe| probe.returned).min();
        // Another loss of power came first: then nothing was to be expected.
        let in_time = returned.is_some_and(|returned| cut.is_none_or(|cut| returned < cut));
        let took = returned.map(|returned| millis(returned.saturating_sub(fault.on)));
        (cut.is_none() || in_time).then_some((*group, took))
    };
    Event {
        at_s: seconds(fault.t.saturating_sub(from)),
        what: fault.what,
        nodes: fault.nodes.clone(),
        next_write_ms: fault.led.iter().filter_map(next_write).collect(),
        recovered_ms: fault.recovered.map(|at| millis(at.saturating_sub(fault.t))),
        silence_ms: millis(silence.nobody),
        wait_ms: millis(silence.client),
    }
}

fn timeline(samples: &[Sample], from: u64, to: u64) -> Timeline {
    let mut ops = vec![0; (to.saturating_sub(from)).div_ceil(INTERVAL) as usize];
    let mut worst_us = vec![0; ops.len()];
    for sample in samples {
        let interval = (sample.returned.saturating_sub(from) / INTERVAL) as usize;
        if let Some(ops) = ops.get_mut(interval) {
            *ops += 1;
            worst_us[interval] = (sample.took / 1_000).max(worst_us[interval]);
        }
    }
    Timeline { interval_ms: INTERVAL / 1_000_000, ops, worst_us }
}

fn latencies(faults: &[Injected], samples: &[Sample]) -> BTreeMap<&'static str, Latency> {
    let nodes = faults.iter().filter(|fault| !fault.nodes.is_empty());
    let away: Vec<(u64, u64)> =
        nodes.map(|fault| (fault.t, fault.recovered.unwrap_or(u64::MAX))).collect();
    let first = away.iter().map(|(from, _)| *from).min().unwrap_or(u64::MAX);
    let mut times: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    for Sample { returned, took, .. } in samples {
        let invoked = returned.saturating_sub(*took);
        let phase = if *returned < first {
            "before"
        } else if away.iter().any(|(from, to)| invoked <= *to && *returned >= *from) {
            "during"
        } else {
            "after"
        };
        times.entry(phase).or_default().push(*took);
    }
    let latency = |mut times: Vec<u64>| {
        times.sort_unstable();
        let at = |share: f64| round(quantile(&times, share) as f64 / 1e3);
        Latency { count: times.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) }
    };
    times.into_iter().map(|(phase, times)| (phase, latency(times))).collect()
}

fn spread(times: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&times, share);
    let spread = || Spread { count: times.len(), p50: at(0.5), p90: at(0.9), worst: at(1.0) };
    (!times.is_empty()).then(spread)
}

/// The smallest of the ascending `times` that is at least as long as this share of them.
fn quantile<T: Copy + Default>(times: &[T], share: f64) -> T {
    let rank = chart::whole((times.len() as f64 * share).ceil()).max(1) as usize;
    times.get(rank - 1).copied().unwrap_or_default()
}

fn seconds(nanoseconds: u64) -> f64 {
    (nanoseconds / 1_000_000) as f64 / 1e3
}

fn millis(nanoseconds: u64) -> f64 {
    round(nanoseconds as f64 / 1e6)
}

fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn right() -> OrderReport {
        let decided = true;
        OrderReport {
            decided,
            serializable: true,
            strictly_serializable: true,
            ..OrderReport::default()
        }
    }

    fn about() -> About {
        About {
            seed: 1,
            skein: "test".into(),
            topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
            durability: Durability::Sync,
            store: StoreKind::Memory,
            clients: 4,
            rate: Some(1_000.0),
            state: State::default(),
            ran: [1_000 * MS, 3_000 * MS],
        }
    }

    fn kill(recovered: Option<u64>) -> Injected {
        Injected {
            t: 2_000 * MS,
            what: "kill",
            nodes: vec![1],
            led: vec![1],
            on: 2_000 * MS,
            recovered,
        }
    }

    /// An operation each millisecond, except for 20 ms after the kill.
    fn loaded() -> Loaded {
        let quiet = 2_000..2_020;
        let times = (1_000..3_000).filter(|ms| !quiet.contains(ms));
        let sample = |ms| Sample { returned: ms * MS, took: 100_000, many: false };
        let probe = |ms| Probe { invoked: ms * MS - 200_000, returned: ms * MS };
        let mut probes: Vec<Probe> = times.clone().map(probe).collect();
        // Sent before the kill and answered after it: it does not show which leader answered.
        probes.push(Probe { invoked: 1_999 * MS, returned: 2_001 * MS });
        // Sent just after the kill, and answered with those sent later.
        probes.push(Probe { invoked: 2_001 * MS, returned: 2_019 * MS + 500_000 });
        Loaded {
            samples: times.map(sample).collect(),
            probes: vec![vec![], probes],
            first_error: None,
            given_up: Vec::new(),
        }
    }

    #[test]
    fn a_failover_ends_with_the_first_answer_to_what_was_sent_after_the_kill() {
        let report = Report::new(
            about(),
            &[kill(Some(2_500 * MS))],
            &loaded(),
            Judgement::default(),
            right(),
        );
        let Some(Spread { count, p50, worst, .. }) = report.failover_ms else {
            panic!("no failover")
        };
        assert_eq!((count, p50, worst), (1, 19.5, 19.5));
        assert_eq!(report.readmission_ms.map(|spread| spread.worst), Some(500.0));
        assert_eq!(report.silence_ms.get("kill of a leader").map(|all| all.worst), Some(21.0));
        assert!(report.table(false).contains("longest silence after a fault"));
        assert_eq!(report.events[0].next_write_ms, BTreeMap::from([(1, Some(19.5))]));
        let report = report.judged();
        assert!(report.good, "{:?}", report.problems);
        let around = report.around_kills().unwrap();
        assert_eq!((around[0], around[AROUND[0]], around[AROUND[0] + 30]), (1_000, 0, 1_000));
        assert!(report.table(false).contains('▲'));
    }

    #[test]
    fn operations_are_told_apart_by_what_happened_meanwhile() {
        let report = Report::new(
            about(),
            &[kill(Some(2_500 * MS))],
            &loaded(),
            Judgement::default(),
            right(),
        );
        let count = |phase| report.latency_us.get(phase).map(|latency: &Latency| latency.count);
        assert_eq!(
            (count("before"), count("during"), count("after")),
            (Some(1_000), Some(481), Some(499))
        );
    }

    #[test]
    fn what_was_not_decided_is_good_and_not_called_strictly_serializable() {
        for decided in [true, false] {
            let order = OrderReport { decided, ..right() };
            let report = Report::new(about(), &[], &loaded(), Judgement::default(), order).judged();
            let text = report.table(false);
            assert!(report.good, "{:?}", report.problems);
            assert_eq!(text.contains("strictly serializable"), decided, "{text}");
            assert_eq!(text.contains("nothing found wrong, and not decided: "), !decided, "{text}");
        }
    }

    #[test]
    fn a_group_that_never_went_on_is_a_problem() {
        let mut silent = loaded();
        silent.probes[1].retain(|probe| probe.returned < 2_000 * MS);
        let report =
            Report::new(about(), &[kill(None)], &silent, Judgement::default(), right()).judged();
        assert!(!report.good && report.problems[0].contains("group 1"), "{:?}", report.problems);
        assert!(report.table(false).contains("no write of group 1"));
    }
}
