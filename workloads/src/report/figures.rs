//! Which pictures there are, made of the reports that are there.

use std::collections::{BTreeMap, BTreeSet};

use skein_multicast::config::Topology;

use super::plot::{Axis, Plot, Point, SERIES_MAX, Scale, Series, Style};
use super::source::{Chaos, Event, Multicast, Percentiles, Source, Store, Timeline, What};
use crate::multicast::report::Spread;

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
/// What is shown around a fault, in seconds.
const AROUND: [f64; 2] = [0.2, 0.8];

/// All that can be made of `sources`.
pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut figures = multicasts(sources);
    figures.extend(stores(sources));
    for (number, source) in sources.iter().enumerate() {
        match &source.what {
            What::Chaos(Chaos { events, timeline, .. }) => {
                figures.extend(timelines(number, &source.file, events, timeline));
            }
            What::Store(Store { events, timeline, .. }) if !events.is_empty() => {
                figures.extend(timelines(number, &source.file, events, timeline));
            }
            What::Store(_) | What::Multicast(_) | What::Idle(_) => {}
        }
    }
    figures.extend(failovers(sources));
    figures
}

/// A point of a series, which the report of this number made.
struct Made {
    from: usize,
    /// How far along its series: across, unless something else rises along it.
    along: f64,
    point: Point,
}

impl Made {
    fn of(from: usize, point: Point) -> Self {
        Self { from, along: point.x, point }
    }
}

/// Points by the names of their series.
type Lines = BTreeMap<String, Vec<Made>>;

/// One figure, or several if there are more series than one can hold. Lines of one point say nothing.
fn figure(
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
        let plot = Plot { x, y, series: series.collect(), marks: Vec::new() };
        let of = if parts > 1 { format!(" ({part} of {parts})") } else { String::new() };
        let number = if parts > 1 { format!("-{part}") } else { String::new() };
        let (name, title) = (format!("{name}{number}"), format!("{title}{of}"));
        figures.push(Figure { name, title, about, plot, from });
    }
    figures
}

fn linear(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Linear }
}

fn log(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Log }
}

fn doubling(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Doubling }
}

const RATE: &str = "messages per second";
const LATENCY: &str = "latency, µs";

fn spread(x: f64, Spread { median, low, high }: Spread) -> Point {
    Point { x, y: median, range: Some([low, high]) }
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

fn of_multicasts(sources: &[Source]) -> Vec<(usize, &Multicast)> {
    let numbered = sources.iter().enumerate();
    let multicasts = numbered.filter_map(|(number, source)| match &source.what {
        What::Multicast(multicast) => Some((number, multicast)),
        What::Chaos(_) | What::Store(_) | What::Idle(_) => None,
    });
    multicasts.collect()
}

/// Lines of what `y` says against what `x` says, joined as `along` rises, one for each of `words`.
fn lines(
    all: &[(usize, &Multicast)],
    without: &[&str],
    along: impl Fn(&Multicast) -> f64,
    x: impl Fn(&Multicast) -> f64,
    y: impl Fn(&Multicast) -> Spread,
) -> Lines {
    let mut lines = Lines::new();
    for (from, multicast) in all {
        let (along, point) = (along(multicast), spread(x(multicast), y(multicast)));
        let line = lines.entry(words(multicast, without)).or_default();
        // What was measured again replaces what was measured before.
        line.retain(|earlier: &Made| earlier.along.total_cmp(&along).is_ne());
        line.push(Made { from: *from, along, point });
    }
    join(lines.values_mut());
    lines
}

fn join<'a>(lines: impl Iterator<Item = &'a mut Vec<Made>>) {
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
        let fitting: Vec<_> = all.iter().copied().filter(|(_, m)| one_or_all(m)).collect();
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

fn distributions(all: &[(usize, &Multicast)]) -> Vec<Figure> {
    let alone = |m: &Multicast| m.clients * m.window == 1 && m.rate.is_none();
    let mut lines = Lines::new();
    // Without queues, if there are such; they show the protocol.
    let any_alone = all.iter().any(|(_, multicast)| alone(multicast));
    for (from, multicast) in all.iter().filter(|(_, multicast)| alone(multicast) || !any_alone) {
        let made = multicast
            .distribution_us
            .iter()
            .map(|[share, micros]| Made::of(*from, Point { x: *micros, y: *share, range: None }));
        lines.insert(words(multicast, &[]), made.collect());
    }
    let about = "How large a share of all messages was answered within which time.";
    let axes = [log(LATENCY), linear("share of messages")];
    let title = "Distribution of latencies";
    figure("distribution", title, about, axes, Style::Curve, lines)
}

/// How large batches are, a figure for each stage.
fn batches(all: &[(usize, &Multicast)]) -> Vec<Figure> {
    let mut stages: BTreeMap<&str, Lines> = BTreeMap::new();
    for (from, multicast) in all {
        for (stage, counts) in &multicast.batches {
            let sum = counts.iter().sum::<u64>().max(1) as f64;
            let made = |(power, count): (usize, &u64)| {
                let (x, y) = ((1_u64 << power) as f64, *count as f64 / sum);
                Made::of(*from, Point { x, y, range: None })
            };
            let last = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            // And that there are none beyond.
            let shown = &counts[..counts.len().min(last + 1)];
            let made = shown.iter().enumerate().map(made).collect();
            stages.entry(stage).or_default().insert(words(multicast, &[]), made);
        }
    }
    let about = "How many are done together: at 1 the share of those that were alone, at 2 of two or \
                 three together, at 4 of four to seven, and so on. Batches form while there is more to do \
                 than is done.";
    let axes = [doubling("done together"), linear("share of batches")];
    let stages = stages.into_iter().map(|(stage, lines)| {
        let title = format!("Batches: {}", stage.replace('_', " "));
        let name = format!("batches-{}", stage.replace('_', "-"));
        figure(&name, &title, about, axes, Style::Line, lines)
    });
    stages.flatten().collect()
}

/// The operation that there were most of.
fn main_operation(store: &Store) -> Option<(&String, Percentiles)> {
    let most = store.operations.iter().max_by_key(|(_, operation)| operation.count)?;
    Some((most.0, most.1.latency_us))
}

fn stores(sources: &[Source]) -> Vec<Figure> {
    let mut throughput = Lines::new();
    let mut latency = Lines::new();
    let mut load = Lines::new();
    for (from, source) in sources.iter().enumerate() {
        let What::Store(store) = &source.what else { continue };
        let Store { workload, topology, clients, ops_per_s, rate, .. } = store;
        let at = |x, y| Made::of(from, Point { x, y, range: None });
        let shared = store.shared().map_or_else(String::new, |n| format!(", {n} sessions"));
        let read = store.read().map_or_else(String::new, |mode| format!(", {mode} reads"));
        let Topology { groups, replicas, .. } = topology;
        let name = format!("{workload}, {groups} groups × {replicas}{shared}{read}");
        if let Some(rate) = rate {
            // What comes at given times says nothing of how much more could have come.
            if let Some((operation, Percentiles { p50, p99 })) = main_operation(store) {
                for (share, latency) in [("50 %", p50), ("99 %", p99)] {
                    let line = load.entry(format!("{name}: {operation}, {share}")).or_default();
                    line.push(at(*rate, latency));
                }
            }
            continue;
        }
        if let Some((operation, Percentiles { p50, .. })) = main_operation(store) {
            let line = latency.entry(format!("{name}: {operation}")).or_default();
            line.push(Made { along: *clients as f64, ..at(*ops_per_s, p50) });
        }
        throughput.entry(name).or_default().push(at(*clients as f64, *ops_per_s));
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
                 one was due. Of the operation that there were most of.";
    all.extend(figure("store-load", title, about, axes, Style::Line, load));
    all
}

/// The whole run, and what is around the fault after which the next write took longest.
fn timelines(number: usize, file: &str, events: &[Event], timeline: &Timeline) -> Vec<Figure> {
    let interval = timeline.interval_ms / 1e3;
    let moments = |chunk: usize, range: std::ops::Range<usize>| {
        let ops = timeline.ops.get(range.clone()).unwrap_or_default();
        let rate = move |(i, ops): (usize, &[u64])| {
            let seconds = ops.len() as f64 * interval;
            let x = (range.start + i * chunk) as f64 * interval;
            let y = ops.iter().sum::<u64>() as f64 / seconds;
            Made::of(number, Point { x, y, range: None })
        };
        ops.chunks(chunk).enumerate().map(rate).collect::<Vec<_>>()
    };
    let marks = |from: f64, to: f64| {
        let inside = events.iter().filter(move |e| (from..to).contains(&e.at_s));
        inside.map(|e| (e.at_s - from, format!("{} {:?}", e.what, e.nodes))).collect()
    };
    let axes = [linear("seconds"), linear("operations per second")];
    let len = timeline.ops.len();
    let about =
        "Operations answered over time. A dashed line is a fault: hold the pointer over it.";
    let whole = Lines::from([(
        "all clients".to_owned(),
        moments(len.div_ceil(MOMENTS_MAX).max(1), 0..len),
    )]);
    let stem = file.trim_end_matches(".json");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = stem.chars().map(plain).collect();
    let title = format!("Faults over time: {file}");
    let mut figures = figure(&format!("timeline-{stem}"), &title, about, axes, Style::Curve, whole);
    for figure in &mut figures {
        figure.plot.marks = marks(0.0, f64::INFINITY);
    }
    let took = |event: &Event| event.next_write_ms.values().flatten().copied().fold(0.0, f64::max);
    let kills = events.iter().filter(|event| event.what == "kill");
    let Some(longest) = kills.max_by(|a, b| took(a).total_cmp(&took(b))) else { return figures };
    let from = (longest.at_s - AROUND[0]).max(0.0);
    let index = |seconds: f64| crate::chart::whole(seconds / interval) as usize;
    let range = index(from)..index(longest.at_s + AROUND[1]).min(len);
    let mut points = moments(1, range);
    for made in &mut points {
        made.point.x -= from;
    }
    let lines = Lines::from([(format!("all clients, {} ms a step", timeline.interval_ms), points)]);
    let title = format!("Around the kill after which a group's next write took longest: {file}");
    let about = "The same, from 0.2 s before the kill. Groups that the node did not lead go on; others \
                 resume when another of their replicas leads.";
    let mut close = figure(&format!("failover-{stem}"), &title, about, axes, Style::Curve, lines);
    for figure in &mut close {
        figure.plot.marks = marks(from, longest.at_s + AROUND[1]);
    }
    figures.extend(close);
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
            Made::of(from, Point { x: ms, y: (i + 1) as f64 / count, range: None })
        };
        (name, times.into_iter().enumerate().map(made).collect())
    };
    let lines: Lines = times.into_iter().map(line).collect();
    let axes = [log("milliseconds"), linear("share of failovers")];
    let about = "From a fault of a leader's node to the next acknowledged write of its group.";
    figure("failovers", "Distribution of failover times", about, axes, Style::Curve, lines)
}
