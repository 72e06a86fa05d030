//! Figures of the multicast by itself: latency against throughput, and both against the varied
//! settings.

use std::collections::BTreeSet;

use super::{CLIENTS, Figure, Frame, LATENCY, axis, joined, lightest_and_heaviest, of_lines};
use crate::lines::Run;
use crate::plot::{Axis, Point, Scale};
use crate::settings::Setting;
use crate::source::{Multicast, Source, What};
use skein_workloads::multicast::report::Spread;

const RATE: Axis = axis("throughput", "messages/s", Scale::Log);
pub(super) const OFFERED: Axis = axis("offered load", "operations/s", Scale::Log);
pub(super) const DESTINATIONS: Axis = axis("groups addressed", "", Scale::Doubling);
pub(super) const GROUPS: Axis = axis("groups", "", Scale::Doubling);
pub(super) const PAYLOAD: Axis = axis("length of a message", "B", Scale::Doubling);

/// Settings along which the load rises.
pub(super) const LOADS: [Setting; 3] = [Setting::Rate, Setting::Clients, Setting::Window];

/// A median with its range.
pub(super) fn spread(x: f64, Spread { median, low, high }: Spread) -> Point {
    Point { x, y: median, range: Some([low, high]), saturated: false }
}

/// Reports of the multicast.
pub(super) fn of_multicasts(sources: &[Source]) -> impl Iterator<Item = (usize, &Multicast)> {
    sources.iter().enumerate().filter_map(|(number, source)| match &source.what {
        What::Multicast(multicast) => Some((number, multicast)),
        What::Chaos(_) | What::Store(_) | What::Idle(_) | What::Peers(_) => None,
    })
}

fn runs(
    sources: &[Source],
    x: impl Fn(&Multicast) -> f64,
    y: impl Fn(&Multicast) -> Spread,
) -> Vec<Run> {
    let run = |(from, multicast): (usize, &Multicast)| Run {
        from,
        settings: sources[from].settings(),
        measure: String::new(),
        point: spread(x(multicast), y(multicast)),
        load: multicast.load(),
    };
    of_multicasts(sources).map(run).collect()
}

/// The runs for figures against the number of groups: messages go to one group, or to all. With one
/// group a run counts as both.
fn one_or_all(sources: &[Source], runs: &[Run]) -> Vec<Run> {
    let mut found = Vec::new();
    for run in runs {
        let What::Multicast(multicast) = &sources[run.from].what else { continue };
        let mut add = |words: &str| {
            let mut run = run.clone();
            run.settings.set(Setting::Destinations, words.to_owned(), 0.0);
            found.push(run);
        };
        if multicast.destinations == 1 {
            add("to 1 group");
        }
        if multicast.destinations == multicast.topology.groups {
            add("to all groups");
        }
    }
    found
}

/// A setting that varies along a line.
struct Varied {
    setting: Setting,
    axis: Axis,
    names: [&'static str; 2],
    titles: [&'static str; 2],
    of: fn(&Multicast) -> f64,
}

const VARIED: [Varied; 3] = [
    Varied {
        setting: Setting::Destinations,
        axis: DESTINATIONS,
        names: ["throughput-destinations", "latency-destinations"],
        titles: [
            "Throughput against the groups addressed",
            "Median latency against the groups addressed",
        ],
        of: |multicast| f64::from(multicast.destinations),
    },
    Varied {
        setting: Setting::Groups,
        axis: GROUPS,
        names: ["throughput-groups", "latency-groups"],
        titles: [
            "Throughput against the groups there are",
            "Median latency against the groups there are",
        ],
        of: |multicast| f64::from(multicast.topology.groups),
    },
    Varied {
        setting: Setting::Payload,
        axis: PAYLOAD,
        names: ["throughput-payload", "latency-payload"],
        titles: [
            "Throughput against the length of messages",
            "Median latency against the length of messages",
        ],
        of: |multicast| multicast.payload_bytes as f64,
    },
];

/// The runs with the lightest and the heaviest load of each line along which only the load rises;
/// all runs if there is no such line.
pub(super) fn ends_of_load(sources: &[Source]) -> BTreeSet<usize> {
    let runs = runs(sources, |_| 0.0, |multicast| multicast.p50_us);
    let in_lines = joined(&runs, &LOADS);
    let all = || runs.iter().map(|run| run.from).collect();
    let ends = lightest_and_heaviest(&runs, &LOADS);
    if in_lines.is_empty() { all() } else { &ends & &in_lines }
}

pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let rate = |multicast: &Multicast| multicast.messages_per_s.median;
    let p50 = runs(sources, rate, |multicast| multicast.p50_us);
    let grouped = one_or_all(sources, &p50);
    // A run in a line of any figure is not a single point of another.
    let mut in_lines: BTreeSet<usize> = joined(&p50, &LOADS);
    in_lines.extend(joined(&p50, &[Setting::Destinations]));
    in_lines.extend(joined(&p50, &[Setting::Payload]));
    in_lines.extend(joined(&grouped, &[Setting::Groups]));
    let alone = |from: usize| !in_lines.contains(&from);

    let mut figures = Vec::new();
    let about = "A point is the median of several runs, with their range. Along a line only the load rises; a point without a line \
                 differs from every other run in more than one setting.";
    for (name, title, p99) in [
        ("latency-throughput", "Median latency against throughput", false),
        ("latency-throughput-p99", "99th percentile of latency against throughput", true),
    ] {
        let y = |multicast: &Multicast| if p99 { multicast.p99_us } else { multicast.p50_us };
        let frame = Frame { name, title, about, x: RATE, y: LATENCY };
        figures.extend(of_lines(frame, &runs(sources, rate, y), &LOADS, &alone));
    }
    figures.extend(against_load(sources));
    let about = "A point is the median of several runs, with their range.";
    for Varied { setting, axis, names, titles, of } in VARIED {
        for (number, y) in [RATE, LATENCY].into_iter().enumerate() {
            let measure = |multicast: &Multicast| match number {
                0 => multicast.messages_per_s,
                _ => multicast.p50_us,
            };
            let frame = Frame { name: names[number], title: titles[number], about, x: axis, y };
            let mut runs = runs(sources, of, measure);
            if setting == Setting::Groups {
                runs = one_or_all(sources, &runs);
            }
            figures.extend(of_lines(frame, &runs, &[setting], &|_| false));
        }
    }
    figures
}

/// Throughput against the clients of a closed loop, and against the load offered by an open loop.
fn against_load(sources: &[Source]) -> Vec<Figure> {
    let throughput = |multicast: &Multicast| multicast.messages_per_s;
    let clients = runs(sources, |multicast| multicast.clients as f64, throughput);
    let (closed, open): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|run| run.load.offered.is_none());
    let frame = Frame {
        name: "throughput-clients",
        title: "Throughput against the clients of a closed loop",
        about: "A point is the median of several runs, with their range.",
        x: CLIENTS,
        y: RATE,
    };
    let mut figures = of_lines(frame, &closed, &[Setting::Clients], &|_| false);
    let open = open.into_iter().map(|mut run| {
        run.point.x = run.load.offered.unwrap_or(0.0);
        run
    });
    let frame = Frame {
        name: "throughput-offered",
        title: "Throughput against the load offered by an open loop",
        about: "A point is the median of several runs, with their range. The dotted line is the load offered.",
        x: OFFERED,
        y: RATE,
    };
    let mut offered = of_lines(frame, &open.collect::<Vec<_>>(), &[Setting::Rate], &|_| false);
    for figure in &mut offered {
        figure.plots[0].diagonal = true;
    }
    figures.extend(offered);
    figures
}
