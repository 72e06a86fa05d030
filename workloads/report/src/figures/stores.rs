//! Figures of the store: against its clients, against the offered load, and beside neighbours.

use std::collections::{BTreeMap, BTreeSet};

use super::multicasts::OFFERED;
use super::{CLIENTS, Figure, Frame, LATENCY, axis, joined, lightest_and_heaviest, of_lines};
use crate::lines::Run;
use crate::plot::{Axis, Point, Scale};
use crate::settings::{Setting, Settings};
use crate::source::{Percentiles, Source, Store, What};

const RATE: Axis = axis("throughput", "operations/s", Scale::Linear);
const RATE_LOG: Axis = axis("throughput", "operations/s", Scale::Log);
pub(super) const NEIGHBOURS: Axis = axis("neighbours", "", Scale::Count);

/// Runs without faults: a run with a killed node measures something else.
pub(super) fn of_stores(sources: &[Source]) -> impl Iterator<Item = (usize, &Store)> {
    let stores = sources.iter().enumerate().filter_map(|(number, source)| match &source.what {
        What::Store(store) => Some((number, store)),
        What::Multicast(_) | What::Chaos(_) | What::Idle(_) | What::Peers(_) => None,
    });
    stores.filter(|(_, store)| store.events.is_empty())
}

/// The most frequent operation of each workload over all runs, so that all points of a line show
/// the same operation.
pub(crate) fn main_operations(sources: &[Source]) -> BTreeMap<&str, &str> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (_, store) in of_stores(sources) {
        for (name, operation) in &store.operations {
            let count = counts.entry(&store.workload).or_default().entry(name).or_default();
            *count = count.saturating_add(operation.count);
        }
    }
    let most = counts.into_iter().filter_map(|(workload, counts)| {
        Some((workload, counts.into_iter().max_by_key(|(_, count)| *count)?.0))
    });
    most.collect()
}

/// A point per run for each value that `y` returns, with the name of the value.
fn runs(
    sources: &[Source],
    x: impl Fn(&Store) -> f64,
    y: impl Fn(&Store, Option<Percentiles>) -> Vec<(&'static str, f64)>,
) -> Vec<Run> {
    let main = main_operations(sources);
    let mut runs = Vec::new();
    for (from, store) in of_stores(sources) {
        let operation = main.get(&store.workload[..]).copied();
        let found = operation.and_then(|name| store.operations.get(name));
        for (measure, value) in y(store, found.map(|found| found.latency_us)) {
            let measure = match operation {
                Some(name) if !measure.is_empty() => format!("{measure} of {name}"),
                _ => String::new(),
            };
            let point = Point { x: x(store), y: value, range: None, saturated: false };
            let settings = sources[from].settings();
            runs.push(Run { from, settings, measure, point, load: store.load() });
        }
    }
    runs
}

fn partition(runs: Vec<Run>) -> [Vec<Run>; 2] {
    let (closed, open) = runs.into_iter().partition(|run| run.load.offered.is_none());
    [closed, open]
}

fn throughput(store: &Store, _: Option<Percentiles>) -> Vec<(&'static str, f64)> {
    vec![("", store.ops_per_s)]
}

fn latencies(_: &Store, latency: Option<Percentiles>) -> Vec<(&'static str, f64)> {
    latency.map_or_else(Vec::new, |it| vec![("p50", it.p50), ("p99", it.p99)])
}

/// The runs with the lightest and the heaviest load of each line, and those without a line.
pub(super) fn ends_of_load(sources: &[Source]) -> BTreeSet<usize> {
    let runs = runs(sources, |_| 0.0, throughput);
    lightest_and_heaviest(&runs, &[Setting::Rate, Setting::Clients])
}

pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let [closed, _] = partition(runs(sources, |store| store.clients as f64, throughput));
    let [_, open] = partition(runs(sources, |store| store.rate.unwrap_or(0.0), throughput));
    let beside = beside(&closed);
    // A run in a line of any figure is not a single point of another.
    let mut in_lines: BTreeSet<usize> = joined(&closed, &[Setting::Clients]);
    in_lines.extend(joined(&open, &[Setting::Rate]));
    in_lines.extend(beside.values().flat_map(|runs| joined(runs, &[Setting::Neighbours])));
    let alone = |from: usize| !in_lines.contains(&from);

    let frame = Frame {
        name: "store-sessions",
        title: "Throughput of the store against its clients",
        about: "Clients of a closed loop, each with one operation in flight, and a session of its own unless the number of shared \
                sessions is given. A point without a line differs from every other run in more than one setting.",
        x: CLIENTS,
        y: RATE,
    };
    let mut figures = of_lines(frame, &closed, &[Setting::Clients], &alone);
    let [closed, _] = partition(runs(sources, |store| store.ops_per_s, latencies));
    for (name, title, measure) in [
        ("store-latency", "Median latency of the store against throughput", "p50"),
        ("store-latency-p99", "99th percentile of the store's latency against throughput", "p99"),
    ] {
        let about = "A closed loop. The latency is of the operation that there were most of. Along a line only the clients become more.";
        let frame = Frame { name, title, about, x: RATE, y: LATENCY };
        let runs: Vec<_> =
            closed.iter().filter(|run| run.measure.starts_with(measure)).cloned().collect();
        figures.extend(of_lines(frame, &runs, &[Setting::Clients], &alone));
    }
    let frame = Frame {
        name: "store-offered",
        title: "Throughput of the store against the load offered",
        about: "An open loop: operations are due at times drawn beforehand. The dotted line is the load offered.",
        x: OFFERED,
        y: RATE_LOG,
    };
    let mut offered = of_lines(frame, &open, &[Setting::Rate], &alone);
    for figure in &mut offered {
        figure.plots[0].diagonal = true;
    }
    figures.extend(offered);
    let [_, open] = partition(runs(sources, |store| store.rate.unwrap_or(0.0), latencies));
    let frame = Frame {
        name: "store-load",
        title: "Latency of the store against the load offered",
        about: "An open loop: latency runs from when an operation was due, and is of the operation that there were most of. The latency \
                of a saturated run grows with its length.",
        x: OFFERED,
        y: LATENCY,
    };
    figures.extend(of_lines(frame, &open, &[Setting::Rate], &alone));
    figures.extend(neighbourhoods(sources));
    figures
}

/// Runs of a closed loop by the kind of their neighbours. A quiet run belongs to every kind.
fn beside(closed: &[Run]) -> BTreeMap<String, Vec<Run>> {
    let kind =
        |settings: &Settings| settings.get(Setting::NeighbourKind).map(|value| value.words.clone());
    let kinds: BTreeSet<String> = closed.iter().filter_map(|run| kind(&run.settings)).collect();
    let of = |wanted: &String| -> Vec<Run> {
        let fits = |run: &&Run| kind(&run.settings).is_none_or(|kind| kind == *wanted);
        let as_one = |run: &Run| {
            let mut run = run.clone();
            run.settings.set(Setting::NeighbourKind, wanted.clone(), 0.0);
            if run.settings.get(Setting::Neighbours).is_none() {
                run.settings.set(Setting::Neighbours, "beside 0 neighbours".to_owned(), 0.0);
            }
            run
        };
        closed.iter().filter(fits).map(as_one).collect()
    };
    kinds.into_iter().map(|kind| (kind.clone(), of(&kind))).collect()
}

/// Closed loops with the same clients, quiet and beside increasing numbers of neighbours.
fn neighbourhoods(sources: &[Source]) -> Vec<Figure> {
    let along = |store: &Store| store.neighbours.map_or(0.0, |it| f64::from(it.count));
    let about = "Processes that compute for as long as the benchmark runs; at 0 there are none.";
    let lines = |frame: Frame, runs: &[Run]| {
        let all: Vec<Run> = beside(runs).into_values().flatten().collect();
        of_lines(frame, &all, &[Setting::Neighbours], &|_| false)
    };
    let [closed, _] = partition(runs(sources, along, throughput));
    let (name, title) = ("store-neighbours", "Throughput of the store beside neighbours");
    let mut figures = lines(Frame { name, title, about, x: NEIGHBOURS, y: RATE }, &closed);
    let p99 = |_: &Store, latency: Option<Percentiles>| {
        latency.map_or_else(Vec::new, |latency| vec![("p99", latency.p99)])
    };
    let [closed, _] = partition(runs(sources, along, p99));
    let name = "store-neighbours-p99";
    let title = "99th percentile of the store's latency beside neighbours";
    figures.extend(lines(Frame { name, title, about, x: NEIGHBOURS, y: LATENCY }, &closed));
    figures
}
