//! Histograms of batch sizes, a figure for each stage.

use std::collections::{BTreeMap, BTreeSet};

use super::multicasts::{ends_of_load, of_multicasts};
use super::{Figure, Frame, axis, parts_of};
use crate::plot::{Axis, Point, Scale, Series, Style};
use crate::settings::differing;
use crate::source::{Multicast, Source};

const TOGETHER: Axis = axis("done together", "", Scale::Classes);
const SHARE: Axis = axis("share of batches", "%", Scale::Linear);

/// Most runs in one histogram. Their bars stand beside each other.
const RUNS_MAX: usize = 4;

pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let shown = ends_of_load(sources);
    let shown: Vec<(usize, &Multicast)> =
        of_multicasts(sources).filter(|(number, _)| shown.contains(number)).collect();
    let settings: Vec<_> = shown.iter().map(|(number, _)| sources[*number].settings()).collect();
    let differ = differing(&settings.iter().collect::<Vec<_>>());
    let common = settings.first().map(|settings| settings.words(|it| !differ.contains(&it)));
    let mut stages: BTreeMap<&str, Vec<(Series, BTreeSet<usize>)>> = BTreeMap::new();
    for ((number, multicast), settings) in shown.iter().zip(&settings) {
        let name = settings.words(|setting| differ.contains(&setting));
        let name = if name.is_empty() { sources[*number].file.clone() } else { name };
        for (stage, counts) in &multicast.batches {
            let series =
                Series { name: name.clone(), points: bars(counts), style: Style::Histogram };
            stages.entry(stage).or_default().push((series, BTreeSet::from([*number])));
        }
    }
    let mut figures = Vec::new();
    for (stage, mut series) in stages {
        series.retain(|(series, _)| !series.points.is_empty());
        let frame = Frame {
            name: "batches",
            title: "Batches",
            about: "How many are done together: batches form while there is more to do than is done. Of each line of latency against \
                    throughput, the run with the lightest load and the one with the heaviest.",
            x: TOGETHER,
            y: SHARE,
        };
        let stage_name = stage.replace('_', "-");
        let of_stage = parts_of(frame, common.as_deref().unwrap_or_default(), series, RUNS_MAX);
        figures.extend(of_stage.into_iter().map(|figure| Figure {
            name: figure.name.replacen("batches", &format!("batches-{stage_name}"), 1),
            title: figure.title.replacen(
                "Batches",
                &format!("Batches: {}", stage.replace('_', " ")),
                1,
            ),
            ..figure
        }));
    }
    figures
}

/// The share of each class in percent, up to the class after the last non-empty one, which shows
/// that there are no more; empty if nothing was counted.
fn bars(counts: &[u64]) -> Vec<Point> {
    let sum: f64 = counts.iter().map(|count| *count as f64).sum();
    let last = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let shown = if sum <= 0.0 { &[] } else { &counts[..counts.len().min(last + 1)] };
    let bar = |(power, count): (usize, &u64)| Point {
        x: (power as f64).exp2(),
        y: 100.0 * *count as f64 / sum,
        range: None,
        saturated: false,
    };
    shown.iter().enumerate().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_end_with_an_empty_class() {
        let shares =
            |counts: &[u64]| bars(counts).iter().map(|bar| [bar.x, bar.y]).collect::<Vec<_>>();
        assert_eq!(shares(&[6, 2, 0, 0]), [[1.0, 75.0], [2.0, 25.0], [4.0, 0.0]]);
        assert_eq!(shares(&[0, 5]), [[1.0, 0.0], [2.0, 100.0]], "none beyond is known");
        assert!(shares(&[0, 0]).is_empty() && shares(&[]).is_empty());
    }
}
