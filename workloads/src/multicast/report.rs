//! Several runs of one experiment: a JSON object, lines of CSV, or a table.
//!
//! One run on a shared machine says little. Compared are medians of several runs, with their
//! ranges; each run is kept with the round trip between cores that was measured before it.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use skein_checker::chart;
use skein_cluster::config::Durability;
use skein_multicast::batches::Batches;
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_multicast::trees::Shape;
use skein_protocol::tram::tree::Tree;

use super::load::{Measured, Plan};
use super::simulated::utilisation::{Shares, Utilisation};
use crate::generator::histogram;
use crate::neighbours::Neighbours;
use crate::report::{Latency, Machine, date, distribution, millis};

/// Parameters of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Always `multicast`.
    pub workload: &'static str,
    /// The command line.
    pub command: String,
    /// `processes`, a process for each node; `threads` of one process; or `simulated`.
    pub placement: &'static str,
    /// `shm`, `tcp` or `tls`. If simulated: `shm` on `two-cores`, otherwise `rdma`.
    pub fabric: &'static str,
    /// Simulated hardware: `xl170`, `r320` or `two-cores`; null if the run is measured.
    pub hardware: Option<&'static str>,
    /// How engines and generator wait: `adaptive`, `busy` or `park`.
    pub waiting: String,
    /// Always `memory`: the replicas have no disk.
    pub durability: &'static str,
    /// `ramcast` or `tram`.
    pub order: &'static str,
    /// The tree along which `tram` orders, or in which destinations are adjacent; null if neither.
    pub tree: Option<String>,
    /// Whether the groups of each message are adjacent in the tree.
    pub adjacent: bool,
    /// Whether replies left without waiting for the order of real time.
    pub ungated: bool,
    /// Groups per message.
    pub destinations: u16,
    /// Bytes per message.
    pub payload_bytes: usize,
    /// Sessions that multicast.
    pub clients: usize,
    /// Further sessions, connected and idle.
    pub idle: usize,
    /// Most messages in flight per session.
    pub window: usize,
    /// Arrivals per second of an open loop.
    pub rate: Option<f64>,
    /// Processes that computed beside it; `None` if there were none.
    pub neighbours: Option<Neighbours>,
    /// Measured time of each run.
    pub duration_s: f64,
    /// Warm-up of each run.
    pub warmup_s: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Version of Skein, with its commit.
    pub skein: String,
    /// Date of the end, in UTC.
    pub date: String,
    pub machine: Machine,
    pub topology: Topology,
}

impl Setting {
    /// The parameters in `plan`, and the others.
    pub fn new(
        plan: &Plan,
        layout: &Layout,
        [placement, fabric]: [&'static str; 2],
        waiting: String,
        command: String,
        skein: String,
    ) -> Self {
        let (along, adjacent) = (layout.tree(), plan.adjacent.as_ref().map(Tree::from));
        Self {
            workload: "multicast",
            command,
            placement,
            fabric,
            hardware: None,
            waiting,
            durability: Durability::Memory.name(),
            order: if along.is_some() { "tram" } else { "ramcast" },
            tree: along.or(adjacent).map(|tree| Shape::from(&tree).to_string()),
            adjacent: adjacent.is_some(),
            ungated: false,
            destinations: plan.destinations,
            payload_bytes: plan.payload_bytes,
            clients: plan.clients,
            idle: plan.idle,
            window: plan.depth,
            rate: plan.rate,
            neighbours: None,
            duration_s: millis(plan.duration),
            warmup_s: millis(plan.warm_up),
            seed: plan.seed,
            skein,
            date: date::now(),
            machine: Machine::here(),
            topology: layout.topology(),
        }
    }
}

impl Setting {
    /// The ordering in words.
    pub fn order_words(&self) -> String {
        match &self.tree {
            Some(tree) if self.order == "tram" => format!("tram along {tree}"),
            _ => self.order.to_owned(),
        }
    }

    /// A line about the order, with what does not hold of it.
    fn ordered(&self) -> String {
        let mut text = format!("  ordered by {}", self.order_words());
        if let Some(tree) = self.tree.as_ref().filter(|_| self.adjacent) {
            let _ = write!(text, ", to groups adjacent in {tree}");
        }
        if self.ungated {
            text.push_str(", ungated: not strictly real-time, as no cluster runs it");
        }
        text + "\n"
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Messages answered by all their groups in the measured time, per second.
    pub messages_per_s: f64,
    /// From the multicast or due time of a message to its last group's reply.
    pub latency_us: Latency,
    /// From one core to another and back, just before; `None` on one core.
    pub cross_core_ns: Option<f64>,
    /// Wrong or missing replies.
    pub errors: u64,
    pub first_error: Option<String>,
    /// Why the run ended early, if it did.
    pub ended_early: Option<String>,
}

/// Median and range over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Spread of the values of several runs; zeros if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (values.first().copied(), values.last().copied());
        // Of an even number, the lower of the two middle values, so that it is a measured one.
        let median = values.get(values.len().saturating_sub(1) / 2).copied();
        let or = Option::unwrap_or_default;
        Self { median: or(median), low: or(low), high: or(high) }
    }
}

/// All runs of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub setting: Setting,
    /// Over the runs, like the fields below.
    pub messages_per_s: Spread,
    pub p50_us: Spread,
    pub p95_us: Spread,
    pub p99_us: Spread,
    pub cross_core_ns: Option<Spread>,
    /// Pairs of a share of all messages of all runs and the microseconds within which they
    /// returned.
    pub distribution_us: Vec<[f64; 2]>,
    /// Batch sizes over all engines of all runs: per stage, the number of batches of size 1, 2 and
    /// 3, 4 to 7, and so on.
    pub batches: Batches,
    /// Utilisation of the busiest resources, the highest over the runs; null unless simulated.
    pub utilisation: Option<Utilisation>,
    pub runs: Vec<Run>,
    /// Whether every run completed without an error.
    pub good: bool,
}

impl Report {
    /// The report of runs, each with the round trip between cores that was measured before it.
    pub fn new(setting: Setting, measured: &[(Option<f64>, Measured)]) -> Self {
        let mut all: Histogram<u64> = histogram();
        for (_, measured) in measured {
            all.add(&measured.latency_ns).expect("histograms with the same bounds");
        }
        let mut batches = Batches::default();
        for (_, one) in measured {
            batches.add(&one.batches);
        }
        let used: Vec<_> = measured.iter().filter_map(|(_, one)| one.utilisation).collect();
        let runs: Vec<_> = measured.iter().map(|(round_trip, one)| run(*round_trip, one)).collect();
        let over = |what: fn(&Run) -> f64| Spread::of(runs.iter().map(what));
        let round_trips: Option<Vec<_>> = runs.iter().map(|run| run.cross_core_ns).collect();
        Self {
            setting,
            messages_per_s: over(|run| run.messages_per_s),
            p50_us: over(|run| run.latency_us.p50),
            p95_us: over(|run| run.latency_us.p95),
            p99_us: over(|run| run.latency_us.p99),
            cross_core_ns: round_trips.map(|all| Spread::of(all.into_iter())),
            distribution_us: distribution(&all),
            batches,
            utilisation: used.into_iter().reduce(Utilisation::max),
            good: runs.iter().all(|run| run.errors == 0 && run.ended_early.is_none()),
            runs,
        }
    }

    /// A heading line, then a line for each run.
    pub fn csv(&self) -> String {
        let mut text =
            "order,tree,adjacent,ungated,placement,fabric,waiting,groups,destinations,replicas,payload_bytes,clients,\
                        idle,window,rate,run,messages_per_s,p50_us,p95_us,p99_us,p999_us,max_us,\
                        cross_core_ns,errors\n"
                .to_owned();
        let Setting { order, adjacent, ungated, placement, fabric, .. } = &self.setting;
        let Setting { waiting, destinations, payload_bytes, clients, .. } = &self.setting;
        let Setting { idle, window, rate, topology, .. } = &self.setting;
        // Commas divide columns.
        let tree = self.setting.tree.clone().unwrap_or_default().replace(", ", " ");
        let or_empty =
            |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
        for (i, run) in self.runs.iter().enumerate() {
            let Latency { p50, p95, p99, p999, max } = run.latency_us;
            let (rate, round_trip) = (or_empty(*rate), or_empty(run.cross_core_ns));
            let _ = writeln!(
                text,
                "{order},{tree},{adjacent},{ungated},{placement},{fabric},{waiting},{},{destinations},{},{payload_bytes},{clients},\
                 {idle},{window},{rate},{i},{},{p50},{p95},{p99},{p999},{max},{round_trip},{}",
                topology.groups, topology.replicas, run.messages_per_s, run.errors
            );
        }
        text
    }

    /// The report for people. `colour` is for terminals.
    pub fn table(&self, colour: bool) -> String {
        let paint = chart::Paint(colour);
        let Setting { placement, fabric, waiting, durability, topology, .. } = &self.setting;
        let Setting { destinations, payload_bytes, clients, idle, window, rate, .. } =
            &self.setting;
        let Topology { nodes, groups, replicas, engines } = topology;
        let mut text = String::new();
        let each = if *engines > 1 { format!(", {engines} engines each") } else { String::new() };
        let _ = writeln!(
            text,
            "{}   {payload_bytes} B to {destinations} of {groups} groups × {replicas} replicas, {nodes} \
             nodes as {placement} over {fabric}{each}, {waiting} waiting, durability {durability}",
            paint.strong("multicast")
        );
        text.push_str(&self.setting.ordered());
        let loops = match rate {
            Some(rate) => {
                format!("open loop of {} messages/s", chart::grouped(chart::whole(*rate)))
            }
            None => "closed loop".to_owned(),
        };
        let beside = if *idle > 0 { format!(" beside {idle} idle ones") } else { String::new() };
        let _ = writeln!(
            text,
            "  {loops}, {clients} sessions with {window} in flight{beside}, {} s a run\n",
            self.setting.duration_s
        );
        let _ = writeln!(
            text,
            "  {:<8}{:>12}{:>10}{:>10}{:>10}{:>10}{:>12}{:>14}",
            "run", "messages/s", "p50 µs", "p95", "p99", "p99.9", "max", "cross-core ns"
        );
        for (i, run) in self.runs.iter().enumerate() {
            let Latency { p50, p95, p99, p999, max } = run.latency_us;
            let rate = chart::grouped(chart::whole(run.messages_per_s));
            let trip = run.cross_core_ns.map_or("–".to_owned(), |ns| format!("{ns:.0}"));
            let [p50, p95, p99, p999, max] = [p50, p95, p99, p999, max].map(of_a_column);
            let _ = writeln!(
                text,
                "  {i:<8}{rate:>12}{p50:>10}{p95:>10}{p99:>10}{p999:>10}{max:>12}{trip:>14}"
            );
        }
        let _ = writeln!(
            text,
            "  {:<8}{:>12}{:>10}{:>10}{:>10}",
            "median",
            paint.strong(&format!(
                "{:>12}",
                chart::grouped(chart::whole(self.messages_per_s.median))
            )),
            of_a_column(self.p50_us.median),
            of_a_column(self.p95_us.median),
            of_a_column(self.p99_us.median)
        );
        text.push('\n');
        if let Some(Utilisation { engines, sessions }) = self.utilisation {
            let hardware = self.setting.hardware.unwrap_or_default();
            let _ = writeln!(text, "  busiest of {hardware}, % of the time   core    card   cable");
            for (whose, Shares { core, nic, link }) in
                [("engines", engines), ("sessions", sessions)]
            {
                let _ = writeln!(text, "  {whose:<32}{core:>8.1}{nic:>8.1}{link:>8.1}");
            }
            text.push('\n');
        }
        for run in &self.runs {
            if let Some(why) = &run.ended_early {
                let _ = writeln!(text, "  {}", paint.bad(&format!("ended early: {why}")));
            }
            if let Some(first) = &run.first_error {
                let _ =
                    writeln!(text, "  {}", paint.bad(&format!("{} errors: {first}", run.errors)));
            }
        }
        if self.good {
            let _ = writeln!(text, "  {}", paint.good("no errors"));
        }
        text
    }
}

/// A latency in microseconds, in at most nine characters as long as it is below a quarter of an hour.
fn of_a_column(us: f64) -> String {
    if us < 1e5 { format!("{us:.2}") } else { format!("{us:.0}") }
}

fn run(cross_core_ns: Option<f64>, measured: &Measured) -> Run {
    let seconds = measured.measured_for.as_secs_f64();
    let rate = if seconds > 0.0 { measured.latency_ns.len() as f64 / seconds } else { 0.0 };
    let tenth = |number: f64| (number * 10.0).round() / 10.0;
    Run {
        messages_per_s: tenth(rate),
        latency_us: (&measured.latency_ns).into(),
        cross_core_ns: cross_core_ns.map(tenth),
        errors: measured.errors.total(),
        first_error: measured.errors.first.clone(),
        ended_early: measured.ended_early.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::generator::Errors;

    fn report() -> Report {
        let plan = Plan {
            groups: 4,
            destinations: 2,
            adjacent: None,
            payload_bytes: 64,
            clients: 1,
            idle: 0,
            depth: 1,
            window: 64,
            rate: None,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(2),
            seed: 1,
        };
        let topology = Topology { nodes: 3, groups: 4, replicas: 3, engines: 1 };
        let layout = Layout::propose(topology).unwrap();
        let words = ["processes", "shm"];
        let (waiting, command) = ("adaptive".into(), "skein bench multicast".into());
        let setting = Setting::new(&plan, &layout, words, waiting, command, "0.1.0".into());
        let measured = |micros: u64| {
            let mut latency_ns = histogram();
            latency_ns.record_n(micros * 1_000, 100).unwrap();
            let measured_for = plan.duration;
            Measured {
                measured_for,
                latency_ns,
                errors: Errors::default(),
                ended_early: None,
                batches: Batches::default(),
                utilisation: Some(Utilisation::default()),
            }
        };
        let runs: Vec<_> = [7, 2, 3].map(|micros| (Some(90.04), measured(micros))).into();
        Report::new(setting, &runs)
    }

    #[test]
    fn the_names_that_scripts_read_do_not_change() {
        let found = serde_json::to_value(report()).unwrap();
        let keys = |value: &Value| {
            let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys.join(" ")
        };
        assert_eq!(
            keys(&found),
            "adjacent batches clients command cross_core_ns date destinations distribution_us durability duration_s fabric good \
             hardware idle machine messages_per_s neighbours order p50_us p95_us p99_us payload_bytes placement rate \
             runs seed skein topology tree ungated utilisation waiting warmup_s window workload"
        );
        assert_eq!(keys(&found["utilisation"]), "engines sessions");
        assert_eq!(keys(&found["utilisation"]["engines"]), "core link nic");
        assert_eq!(
            keys(&found["runs"][0]),
            "cross_core_ns ended_early errors first_error latency_us messages_per_s"
        );
        crate::report::assert_described(&found, "## `bench multicast`");
        assert_eq!(found["cross_core_ns"], json!({"median": 90.0, "low": 90.0, "high": 90.0}));
        assert_eq!((&found["workload"], &found["good"]), (&json!("multicast"), &json!(true)));
    }

    #[test]
    fn the_median_is_of_the_runs_and_the_range_beside_it() {
        let report = report();
        let close = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.01;
        let Spread { median, low, high } = report.p50_us;
        assert!(close(median, 3.0) && close(low, 2.0) && close(high, 7.0), "{:?}", report.p50_us);
        assert!(close(report.messages_per_s.median, 50.0));
        assert!(report.distribution_us.is_sorted());
        assert_eq!(report.csv().lines().count(), 4);
        let columns = |line: &str| line.split(',').count();
        let widths: Vec<_> = report.csv().lines().map(columns).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}");
        assert!(report.table(false).contains("2 of 4 groups × 3 replicas"));
    }
}
