//! Which pictures there are, made of the reports that are there.

use std::collections::{BTreeMap, BTreeSet};

use skein_multicast::config::Topology;

use super::peers;
use super::plot::{Axis, Plot, Point, SERIES_MAX, Scale, Series, Style};
use super::source::{Chaos, Event, Multicast, Percentiles, Source, Store, Timeline, What};
use crate::multicast::report::Spread;
use crate::neighbours::Neighbours;

/// A picture, and what it is made of.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Letters and hyphens.
    pub(super) name: String,
    /// For people.
    pub(super) title: String,
    /// What to see in it.
    pub(super) about: &'static str,
    /// The picture.
    pub(super) plot: Plot,
    /// The reports it was made of, by their numbers.
    pub(super) from: BTreeSet<usize>,
}

/// The most points of a timeline.
const MOMENTS_MAX: usize = 200;
/// What is shown around a fault, in seconds: before it, and at least and at most after it.
const BEFORE_S: f64 = 0.1;
const AFTER_S: [f64; 2] = [0.3, 2.0];
/// How wide the steps are there, in milliseconds. In shorter ones few operations are answered, and a comb
/// hides the gap.
const STEP_MS: f64 = 5.0;

/// All that can be made of `sources`.
pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut figures = multicasts(sources);
    figures.extend(stores(sources));
    figures.extend(peers::neighbourhoods(sources));
    for (number, source) in sources.iter().enumerate() {
        match &source.what {
            What::Chaos(Chaos { events, timeline, .. }) => {
                figures.extend(timelines(number, &source.file, events, timeline));
            }
            What::Store(Store { events, timeline, .. }) if !events.is_empty() => {
                figures.extend(timelines(number, &source.file, events, timeline));
            }
            What::Store(_) | What::Multicast(_) | What::Idle(_) | What::Peers(_) => {}
        }
    }
    figures.extend(failovers(sources));
    figures
}

/// A point of a series, which the report of this number made.
pub(super) struct Made {
    pub(super) from: usize,
    /// How far along its series: across, unless something else rises along it.
    pub(super) along: f64,
    pub(super) point: Point,
}

impl Made {
    fn of(from: usize, point: Point) -> Self {
        Self { from, along: point.x, point }
    }
}

/// Points by the names of their series.
pub(super) type Lines = BTreeMap<String, Vec<Made>>;

/// One figure, or several if there are more series than one can hold. Lines of one point say nothing.
pub(super) fn figure(
    name: &str,
    title: &str,
    about: &'static str,
    [x, y]: [Axis; 2],
    style: Style,
    lines: Lines,
) -> Vec<Figure> {
    let mut lines: Vec<_> = lines.into_iter().filter(|(_, made)| made.len() > 1).collect();
    let parts = lines.len().div_ceil(SERIES_MAX);
    let mut figures = Vec::new();
    for part in 1..=parts {
        let rest = lines.split_off(lines.len().min(SERIES_MAX));
        let mut from = BTreeSet::new();
        let series = std::mem::replace(&mut lines, rest).into_iter().map(|(name, made)| {
            from.extend(made.iter().map(|made| made.from));
            Series { name, points: made.into_iter().map(|made| made.point).collect(), style }
        });
        let series = series.collect();
        let plot = Plot { x, y, series, marks: Vec::new(), across: Vec::new() };
        let of = if parts > 1 { format!(" ({part} of {parts})") } else { String::new() };
        let number = if parts > 1 { format!("-{part}") } else { String::new() };
        let (name, title) = (format!("{name}{number}"), format!("{title}{of}"));
        figures.push(Figure { name, title, about, plot, from });
    }
    figures
}

pub(super) fn linear(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Linear }
}

pub(super) fn log(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Log }
}

fn doubling(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Doubling }
}

const RATE: &str = "messages per second";
pub(super) const LATENCY: &str = "latency, µs";

pub(super) fn spread(x: f64, Spread { median, low, high }: Spread) -> Point {
    Point { x, y: median, range: Some([low, high]), saturated: false }
}

fn at(x: f64, y: f64) -> Point {
    Point { x, y, range: None, saturated: false }
}

/// What distinguishes a report from others on the same page that its figures' own words leave out. Only
/// what differs among `sources` is said.
fn told_apart(sources: &[Source], of: &Source) -> String {
    let attributes: [fn(&Source) -> String; 4] = [
        |source| format!("{} nodes", source.topology().nodes),
        |source| format!("{} engines", source.topology().engines),
        |source| format!("Skein {}", source.skein),
        |source| format!("{}, {} cores", source.machine.model, source.machine.cores),
    ];
    let mut text = String::new();
    for attribute in attributes {
        if sources.iter().any(|source| attribute(source) != attribute(of)) {
            text = format!("{text}, {}", attribute(of));
        }
    }
    text
}

/// Who computed beside an experiment, in words.
fn beside(neighbours: Option<Neighbours>) -> String {
    neighbours.map_or_else(String::new, |it| format!(", beside {} {}", it.count, it.kind()))
}

/// What distinguishes experiments, in words, without what a figure varies.
fn words(multicast: &Multicast, without: &[&str]) -> String {
    let Multicast { placement, fabric, waiting, destinations, payload_bytes, topology, .. } =
        multicast;
    let to = if *destinations == topology.groups && without.contains(&"groups") {
        "to all groups".to_owned()
    } else {
        format!("to {destinations}")
    };
    let load = match multicast.rate {
        Some(_) => "open loop".to_owned(),
        None if without.contains(&"load") => "closed loop".to_owned(),
        None => format!("{} × {} under way", multicast.clients, multicast.window),
    };
    let load = match multicast.idle {
        0 => load,
        idle => format!("{load} beside {idle} idle sessions"),
    };
    let load = load + &beside(multicast.neighbours);
    let all = [
        ("destinations", to),
        (
            "groups",
            format!("{} group{}", topology.groups, if topology.groups == 1 { "" } else { "s" }),
        ),
        ("replicas", format!("{} replicas", topology.replicas)),
        ("payload", format!("{payload_bytes} B")),
        ("place", format!("{placement}, {fabric}, {waiting}")),
        ("load", load),
    ];
    // Whether a loop is closed or open is another line, whatever it has under way.
    let kept = all.into_iter().filter(|(what, _)| *what == "load" || !without.contains(what));
    kept.map(|(_, text)| text).collect::<Vec<_>>().join(", ")
}

/// A report of the multicast.
#[derive(Clone, Copy)]
struct Of<'a> {
    number: usize,
    multicast: &'a Multicast,
    sources: &'a [Source],
}

impl Of<'_> {
    /// What its line is called.
    fn words(&self, without: &[&str]) -> String {
        let apart = told_apart(self.sources, &self.sources[self.number]);
        words(self.multicast, without) + &apart
    }
}

fn of_multicasts(sources: &[Source]) -> Vec<Of<'_>> {
    let numbered = sources.iter().enumerate();
    let multicasts = numbered.filter_map(|(number, source)| match &source.what {
        What::Multicast(multicast) => Some(Of { number, multicast, sources }),
        What::Chaos(_) | What::Store(_) | What::Idle(_) | What::Peers(_) => None,
    });
    multicasts.collect()
}

/// Lines of what `y` says against what `x` says, joined as `along` rises, one for each of `words`.
fn lines(
    all: &[Of<'_>],
    without: &[&str],
    along: impl Fn(&Multicast) -> f64,
    x: impl Fn(&Multicast) -> f64,
    y: impl Fn(&Multicast) -> Spread,
) -> Lines {
    let mut lines = Lines::new();
    for of in all {
        let multicast = of.multicast;
        let (along, point) = (along(multicast), spread(x(multicast), y(multicast)));
        let line = lines.entry(of.words(without)).or_default();
        // What was measured again replaces what was measured before.
        line.retain(|earlier: &Made| earlier.along.total_cmp(&along).is_ne());
        line.push(Made { from: of.number, along, point });
    }
    join(lines.values_mut());
    lines
}

pub(super) fn join<'a>(lines: impl Iterator<Item = &'a mut Vec<Made>>) {
    lines.for_each(|line| line.sort_by(|a, b| a.along.total_cmp(&b.along)));
}

/// What experiments differ in, along a line.
struct Varied {
    /// As [`words`] calls it.
    name: &'static str,
    what: &'static str,
    axis: Axis,
    of: fn(&Multicast) -> f64,
}

fn multicasts(sources: &[Source]) -> Vec<Figure> {
    let all = of_multicasts(sources);
    let mut figures = Vec::new();
    let rate = |multicast: &Multicast| multicast.messages_per_s.median;
    let load = |multicast: &Multicast| {
        multicast.rate.unwrap_or((multicast.clients * multicast.window) as f64)
    };
    let about = "Each point is the median of several runs, with their range; along a line the load \
                 rises. A closed loop cannot overload what it measures.";
    for (name, title, of) in [
        ("latency-throughput", "Median latency against throughput", false),
        ("latency-throughput-p99", "Latency of 99 % against throughput", true),
    ] {
        let y = |multicast: &Multicast| if of { multicast.p99_us } else { multicast.p50_us };
        let lines = lines(&all, &["load"], load, rate, y);
        figures.extend(figure(name, title, about, [log(RATE), log(LATENCY)], Style::Line, lines));
    }
    let varied = [
        Varied {
            name: "destinations",
            what: "the groups addressed",
            axis: doubling("groups addressed"),
            of: |multicast| f64::from(multicast.destinations),
        },
        Varied {
            name: "groups",
            what: "the groups there are",
            axis: doubling("groups"),
            of: |multicast| f64::from(multicast.topology.groups),
        },
        Varied {
            name: "payload",
            what: "the length of messages",
            axis: doubling("bytes of a message"),
            of: |multicast| multicast.payload_bytes as f64,
        },
    ];
    let about = "Each point is the median of several runs, with their range.";
    for Varied { name, what, axis, of } in varied {
        // Where the groups are varied, those addressed are one, or all of them.
        let one_or_all = |multicast: &Multicast| {
            name != "groups"
                || multicast.destinations == 1
                || multicast.destinations == multicast.topology.groups
        };
        let fitting: Vec<_> = all.iter().copied().filter(|of| one_or_all(of.multicast)).collect();
        let throughput = lines(&fitting, &[name], of, of, |multicast| multicast.messages_per_s);
        let latency = lines(&fitting, &[name], of, of, |multicast| multicast.p50_us);
        let axes = [axis, log(RATE)];
        let title = format!("Throughput against {what}");
        let name_of = |measure| format!("{measure}-{name}");
        let style = Style::Line;
        figures.extend(figure(&name_of("throughput"), &title, about, axes, style, throughput));
        let axes = [axis, log(LATENCY)];
        let title = format!("Median latency against {what}");
        figures.extend(figure(&name_of("latency"), &title, about, axes, style, latency));
    }
    figures.extend(distributions(&all));
    figures.extend(batches(&all));
    figures
}

fn distributions(all: &[Of<'_>]) -> Vec<Figure> {
    let alone = |of: &&Of<'_>| {
        of.multicast.clients * of.multicast.window == 1 && of.multicast.rate.is_none()
    };
    let mut lines = Lines::new();
    // Without queues, if there are such; they show the protocol.
    let any_alone = all.iter().any(|of| alone(&of));
    for of in all.iter().filter(|of| alone(of) || !any_alone) {
        // The last point, beyond which there is nothing, has no place on an axis of ratios.
        let shares = of.multicast.distribution_us.iter().filter(|[share, _]| *share < 1.0);
        let made = shares.map(|[share, micros]| Made::of(of.number, at(*micros, 1.0 - share)));
        lines.insert(of.words(&[]), made.collect());
    }
    let about =
        "How large a share of all messages took longer than that: 0.01 is the latency of 99 %.";
    let axes = [log(LATENCY), log("share of messages that took longer")];
    let title = "Distribution of latencies";
    figure("distribution", title, about, axes, Style::Curve, lines)
}

/// How large batches are, a figure for each stage.
fn batches(all: &[Of<'_>]) -> Vec<Figure> {
    let mut stages: BTreeMap<&str, Lines> = BTreeMap::new();
    for of in all {
        for (stage, counts) in &of.multicast.batches {
            let sum = counts.iter().sum::<u64>().max(1) as f64;
            let made = |(power, count): (usize, &u64)| {
                Made::of(of.number, at((1_u64 << power) as f64, *count as f64 / sum))
            };
            let last = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            // And that there are none beyond.
            let shown = &counts[..counts.len().min(last + 1)];
            let made = shown.iter().enumerate().map(made).collect();
            stages.entry(stage).or_default().insert(of.words(&[]), made);
        }
    }
    let about = "How many are done together: at 1 the share of those that were alone, at 2 of two or \
                 three together, at 4 of four to seven, and so on. Batches form while there is more to do \
                 than is done.";
    let axes = [doubling("done together"), linear("share of batches")];
    let stages = stages.into_iter().map(|(stage, lines)| {
        let title = format!("Batches: {}", stage.replace('_', " "));
        let name = format!("batches-{}", stage.replace('_', "-"));
        figure(&name, &title, about, axes, Style::Bars, lines)
    });
    stages.flatten().collect()
}

/// The operation that there were most of in all runs of a workload together, so that a line has one.
fn main_operation<'a>(sources: &[Source], store: &'a Store) -> Option<(&'a String, Percentiles)> {
    let same = || of_stores(sources).filter(|(_, _, other)| other.workload == store.workload);
    let count = |name: &String| -> u64 {
        same().filter_map(|(_, _, run)| run.operations.get(name)).map(|it| it.count).sum()
    };
    let most = store.operations.iter().max_by_key(|(name, _)| count(name))?;
    Some((most.0, most.1.latency_us))
}

/// Runs without faults: one in which a node is killed measures something else.
fn of_stores(sources: &[Source]) -> impl Iterator<Item = (usize, &Source, &Store)> {
    let numbered = sources.iter().enumerate();
    let stores = numbered.filter_map(|(number, source)| match &source.what {
        What::Store(store) => Some((number, source, store)),
        What::Multicast(_) | What::Chaos(_) | What::Idle(_) | What::Peers(_) => None,
    });
    stores.filter(|(_, _, store)| store.events.is_empty())
}

/// What a run's line is called: all that runs of one line have in common, but for their neighbours.
fn store_words(sources: &[Source], source: &Source, store: &Store) -> String {
    let Store { workload, topology: Topology { groups, replicas, .. }, records, .. } = store;
    let shared = store.shared().map_or_else(String::new, |n| format!(", {n} sessions"));
    let read = store.read().map_or_else(String::new, |mode| format!(", {mode} reads"));
    let others = || of_stores(sources).filter(|(_, _, other)| other.workload == *workload);
    let records = if others().any(|(_, _, other)| other.records != *records) {
        format!(", {records} records")
    } else {
        String::new()
    };
    // In a closed loop clients are what rises along a line.
    let clients = match store.rate {
        Some(_) => format!(", {} clients", store.clients),
        None => String::new(),
    };
    let apart = told_apart(sources, source);
    format!("{workload}, {groups} groups × {replicas}{clients}{shared}{read}{records}{apart}")
}

/// Adds a point to a line. What was measured again replaces what was measured before.
fn add(lines: &mut Lines, name: String, made: Made) {
    let line = lines.entry(name).or_default();
    line.retain(|earlier| earlier.along.total_cmp(&made.along).is_ne());
    line.push(made);
}

fn stores(sources: &[Source]) -> Vec<Figure> {
    let mut throughput = Lines::new();
    let mut latency = Lines::new();
    let mut load = Lines::new();
    for (from, source, store) in of_stores(sources) {
        let Store { clients, ops_per_s, rate, .. } = store;
        let name = store_words(sources, source, store) + &beside(store.neighbours);
        if let Some(rate) = rate {
            // What comes at given times says nothing of how much more could have come.
            if let Some((operation, Percentiles { p50, p99 })) = main_operation(sources, store) {
                for (share, latency) in [("50 %", p50), ("99 %", p99)] {
                    let saturated = store.is_saturated();
                    let point = Point { saturated, ..at(*rate, latency) };
                    add(&mut load, format!("{name}: {operation}, {share}"), Made::of(from, point));
                }
            }
            continue;
        }
        let along = *clients as f64;
        if let Some((operation, Percentiles { p50, .. })) = main_operation(sources, store) {
            let point = at(*ops_per_s, p50);
            add(&mut latency, format!("{name}: {operation}"), Made { from, along, point });
        }
        add(&mut throughput, name, Made::of(from, at(along, *ops_per_s)));
    }
    join(throughput.values_mut().chain(latency.values_mut()).chain(load.values_mut()));
    let about = "Clients of a closed loop, each with one operation under way, and a session of its own unless it says how many they share.";
    let axes = [doubling("clients"), linear("operations per second")];
    let title = "Operations of the store against clients";
    let mut all = figure("store-sessions", title, about, axes, Style::Line, throughput);
    let axes = [linear("operations per second"), log(LATENCY)];
    let title = "Median latency of the store against throughput";
    let about = "Of the operation that there were most of. Along a line the clients become more.";
    all.extend(figure("store-latency", title, about, axes, Style::Line, latency));
    let axes = [log("operations due per second"), log(LATENCY)];
    let title = "Latency of the store against the load offered";
    let about = "An open loop: operations are due at times drawn beforehand, and latency runs from when \
                 one was due. Of the operation that there were most of. A point that is crossed out was \
                 offered more than could be done: its latency grows with the length of the run.";
    all.extend(figure("store-load", title, about, axes, Style::Line, load));
    all.extend(neighbourhoods(sources));
    all
}

/// Closed loops of the same clients, quiet and beside more and more neighbours.
fn neighbourhoods(sources: &[Source]) -> Vec<Figure> {
    let closed = || of_stores(sources).filter(|(_, _, store)| store.rate.is_none());
    let kinds: BTreeSet<String> =
        closed().filter_map(|(_, _, store)| store.neighbours).map(|it| it.kind()).collect();
    let (mut throughput, mut latency) = (Lines::new(), Lines::new());
    for (from, source, store) in closed() {
        let name = format!("{}, {} clients", store_words(sources, source, store), store.clients);
        let along = store.neighbours.map_or(0.0, |it| f64::from(it.count));
        // Without neighbours it is of every kind.
        for kind in
            kinds.iter().filter(|kind| store.neighbours.is_none_or(|it| it.kind() == **kind))
        {
            let name = format!("{name}, beside {kind}");
            if let Some((operation, Percentiles { p99, .. })) = main_operation(sources, store) {
                let point = Made::of(from, at(along, p99));
                add(&mut latency, format!("{name}: {operation}"), point);
            }
            add(&mut throughput, name, Made::of(from, at(along, store.ops_per_s)));
        }
    }
    // A line that has no neighbours on it says what other figures say.
    for lines in [&mut throughput, &mut latency] {
        lines.retain(|_, made| made.iter().any(|made| made.along > 0.0));
    }
    join(throughput.values_mut().chain(latency.values_mut()));
    let about = "Processes that compute for as long as the benchmark runs; at 0 there are none.";
    let axes = [linear("neighbours"), linear("operations per second")];
    let title = "Operations of the store beside neighbours";
    let mut all = figure("store-neighbours", title, about, axes, Style::Line, throughput);
    let axes = [linear("neighbours"), log(LATENCY)];
    let title = "Latency of 99 % beside neighbours";
    all.extend(figure("store-neighbours-p99", title, about, axes, Style::Line, latency));
    all
}

/// The whole run, and what is around the kill after which nobody was answered for longest.
fn timelines(number: usize, file: &str, events: &[Event], timeline: &Timeline) -> Vec<Figure> {
    let interval = timeline.interval_ms / 1e3;
    let len = timeline.ops.len();
    let chunk = len.div_ceil(MOMENTS_MAX).max(1);
    let rate = |(i, ops): (usize, &[u64])| {
        let seconds = ops.len() as f64 * interval;
        let y = ops.iter().sum::<u64>() as f64 / seconds;
        Made::of(number, at((i * chunk) as f64 * interval, y))
    };
    let whole = timeline.ops.chunks(chunk).enumerate().map(rate).collect();
    let whole = Lines::from([("all clients".to_owned(), whole)]);
    let axes = [linear("seconds"), linear("operations per second")];
    let about =
        "Operations answered over time. A dashed line is a fault; its number is explained below.";
    let stem = file.trim_end_matches(".json");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = stem.chars().map(plain).collect();
    let title = format!("Faults over time: {file}");
    let mut figures = figure(&format!("timeline-{stem}"), &title, about, axes, Style::Curve, whole);
    for figure in &mut figures {
        figure.plot.marks = events.iter().map(|event| (event.at_s, event.words())).collect();
    }
    let took = |event: &Event| {
        let written = event.next_write_ms.values().flatten().copied().fold(0.0, f64::max);
        event.silence_ms.unwrap_or(0.0).max(written)
    };
    let kills = events.iter().filter(|event| event.what == "kill");
    if let Some(longest) = kills.max_by(|a, b| took(a).total_cmp(&took(b))) {
        let after = (3.0 * took(longest) / 1e3).clamp(AFTER_S[0], AFTER_S[1]);
        figures.extend(around(number, file, &stem, [longest.at_s, after], events, timeline));
    }
    figures
}

/// Throughput and the worst latency around a moment, and so many seconds after it.
fn around(
    number: usize,
    file: &str,
    stem: &str,
    [moment, after]: [f64; 2],
    events: &[Event],
    timeline: &Timeline,
) -> Vec<Figure> {
    let interval = timeline.interval_ms;
    let step = skein_checker::chart::whole((STEP_MS / interval).ceil()).max(1) as usize;
    let index = |seconds: f64| skein_checker::chart::whole(seconds * 1e3 / interval) as usize;
    // Steps begin at the moment, so that none is half before it.
    let back = (index(BEFORE_S) / step).min(index(moment) / step) * step;
    let from = index(moment) - back;
    let steps = (back + index(after)).div_ceil(step);
    let of = |values: &[u64], sum: fn(&[u64]) -> u64| -> Vec<(f64, u64)> {
        let chunk = |i: usize| values.get(from + i * step..from + (i + 1) * step);
        let at = |i: usize| ((i * step) as f64 - back as f64 + step as f64 / 2.0) * interval;
        (0..steps).filter_map(|i| Some((at(i), sum(chunk(i)?)))).collect()
    };
    let seconds = step as f64 * interval / 1e3;
    let rates = of(&timeline.ops, |ops| ops.iter().sum());
    let rates = rates.into_iter().map(|(x, ops)| Made::of(number, at(x, ops as f64 / seconds)));
    let worst = of(&timeline.worst_us, |worst| worst.iter().copied().max().unwrap_or(0));
    let worst = worst.into_iter().filter(|(_, us)| *us > 0);
    let worst = worst.map(|(x, us)| Made::of(number, at(x, us as f64 / 1e3)));
    let name = format!("all clients, in steps of {} ms", step as f64 * interval);
    let since = linear("milliseconds since the kill");
    let mut figures = figure(
        &format!("failover-{stem}"),
        &format!("Throughput around the kill that was felt for longest: {file}"),
        "Groups that the node did not lead go on; others resume when another of their replicas leads.",
        [since, linear("operations per second")],
        Style::Bars,
        Lines::from([(name.clone(), rates.collect())]),
    );
    figures.extend(figure(
        &format!("failover-latency-{stem}"),
        &format!("Worst latency around the kill that was felt for longest: {file}"),
        "The longest latency of the operations that were answered in each step. Where there is no column, none was.",
        [since, log("worst latency, ms")],
        Style::Bars,
        Lines::from([(name, worst.collect())]),
    ));
    let inside = events.iter().filter(|e| (moment - BEFORE_S..moment + after).contains(&e.at_s));
    let marks: Vec<_> = inside.map(|e| ((e.at_s - moment) * 1e3, e.words())).collect();
    for figure in &mut figures {
        figure.plot.marks.clone_from(&marks);
        figure.plot.across = vec![-BEFORE_S * 1e3, after * 1e3];
    }
    figures
}

/// How long groups were without a leader, of all runs of a kind together.
fn failovers(sources: &[Source]) -> Vec<Figure> {
    let mut times: BTreeMap<String, Vec<(f64, usize)>> = BTreeMap::new();
    for (from, source) in sources.iter().enumerate() {
        let What::Chaos(chaos) = &source.what else { continue };
        for event in chaos.events.iter().filter(|e| ["kill", "stop"].contains(&e.what.as_str())) {
            let after = format!("after a {}, {} groups", event.what, chaos.topology.groups);
            let next = event.next_write_ms.values().flatten().map(|ms| (*ms, from));
            times.entry(after).or_default().extend(next);
        }
    }
    let line = |(name, mut times): (String, Vec<(f64, usize)>)| {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = times.len() as f64;
        let made = |(i, (ms, from)): (usize, (f64, usize))| {
            Made::of(from, at(ms, (count - i as f64) / count))
        };
        (name, times.into_iter().enumerate().map(made).collect())
    };
    let lines: Lines = times.into_iter().map(line).collect();
    let axes = [log("milliseconds"), log("share of failovers that took so long")];
    let about = "From a fault of a leader's node to the next acknowledged write of its group: how large a \
                 share of them took at least so long.";
    figure("failovers", "Distribution of failover times", about, axes, Style::Curve, lines)
}
