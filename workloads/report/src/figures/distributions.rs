//! Distributions of latencies as 1 − F, both axes logarithmic.

use std::collections::BTreeSet;

use super::multicasts::of_multicasts;
use super::stores::{ends_of_load, main_operations, of_stores};
use super::{Figure, Frame, LATENCY, axis, parts};
use crate::ccdf;
use crate::plot::{Axis, Point, Scale, Series, Style};
use crate::settings::{Settings, differing};
use crate::source::{Multicast, Source};

/// 1 − F of a latency.
const LEFT: Axis = axis("share that took longer, 1 − F", "", Scale::Tail);

/// A distribution: settings, number of the report, points of 1 − F.
type Curve = (Settings, usize, Vec<[f64; 2]>);

pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut figures = multicasts(sources);
    figures.extend(stores(sources));
    figures
}

fn multicasts(sources: &[Source]) -> Vec<Figure> {
    let alone = |it: &Multicast| it.clients == 1 && it.window == 1 && it.rate.is_none();
    // Runs without queues, if there are any: they show the protocol itself.
    let any_alone = of_multicasts(sources).any(|(_, multicast)| alone(multicast));
    let shown = of_multicasts(sources).filter(|(_, it)| alone(it) || !any_alone);
    let curve = |(number, it): (usize, &Multicast)| {
        (sources[number].settings(), number, ccdf::points(&it.distribution_us))
    };
    let frame = Frame {
        name: "distribution",
        title: "Distribution of the multicast's latencies",
        about: if any_alone {
            "Of all messages of all runs, with one message in flight."
        } else {
            "Of all messages of all runs."
        },
        x: LATENCY,
        y: LEFT,
    };
    curves(sources, frame, shown.map(curve).collect())
}

fn stores(sources: &[Source]) -> Vec<Figure> {
    let main = main_operations(sources);
    let curve = |(number, store): (usize, &crate::source::Store)| {
        let operation = store.operations.get(*main.get(&store.workload[..])?)?;
        Some((sources[number].settings(), number, ccdf::of_operation(operation)))
    };
    let frame = Frame {
        name: "store-distribution",
        title: "Distribution of the store's latencies",
        about: "Of the operation that there were most of, of the runs with the lightest and the heaviest load of each line above. Of \
                reports that tell percentiles alone, these are drawn.",
        x: LATENCY,
        y: LEFT,
    };
    let shown = ends_of_load(sources);
    let stores = of_stores(sources).filter(|(number, _)| shown.contains(number));
    curves(sources, frame, stores.filter_map(curve).collect())
}

fn curves(sources: &[Source], frame: Frame, mut curves: Vec<Curve>) -> Vec<Figure> {
    curves.retain(|(_, _, points)| points.len() > 1);
    curves.sort_by_cached_key(|(settings, number, _)| (settings.order(), *number));
    let differ = differing(&curves.iter().map(|(settings, ..)| settings).collect::<Vec<_>>());
    let common = curves.first().map(|(settings, ..)| settings.words(|it| !differ.contains(&it)));
    let series: Vec<_> = curves
        .iter()
        .map(|(settings, number, points)| {
            let mut name = settings.words(|setting| differ.contains(&setting));
            // Runs with equal settings are distinguished by their files.
            let repeats = |other: &&Curve| other.0.key() == settings.key();
            if name.is_empty() || curves.iter().filter(repeats).count() > 1 {
                let file = &sources[*number].file;
                name = if name.is_empty() { file.clone() } else { format!("{name}, {file}") };
            }
            let point = |[x, y]: &[f64; 2]| Point { x: *x, y: *y, range: None, saturated: false };
            let points = points.iter().map(point).collect();
            (Series { name, points, style: Style::Curve }, BTreeSet::from([*number]))
        })
        .collect();
    parts(frame, &common.unwrap_or_default(), series)
}
