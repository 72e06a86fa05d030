//! The runs that a line connects: those that differ in one setting only.

use std::collections::{BTreeMap, BTreeSet};

use crate::plot::Point;
use crate::saturation::{self, Load};
use crate::settings::{Setting, Settings};

/// A run as a figure shows it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Number of its report.
    pub(crate) from: usize,
    pub(crate) settings: Settings,
    /// The value shown, such as `p50` or `p99`; empty if there is only one.
    pub(crate) measure: String,
    pub(crate) point: Point,
    /// Load and results, from which saturation is judged.
    pub(crate) load: Load,
}

/// A point of a line, and the numbers of its reports.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) from: BTreeSet<usize>,
    /// The value of the setting that the line varies.
    pub(crate) along: f64,
    pub(crate) point: Point,
    pub(crate) load: Load,
}

/// Connected runs, ordered by the setting that varies; or a single run.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Settings common to all its runs.
    pub(crate) settings: Settings,
    /// The setting that it varies; `None` for a single point.
    pub(crate) along: Option<Setting>,
    pub(crate) measure: String,
    pub(crate) made: Vec<Made>,
}

impl Line {
    /// The least and the greatest value of the setting that varies.
    pub(crate) fn ends(&self) -> [f64; 2] {
        let along = || self.made.iter().map(|made| made.along);
        [along().fold(f64::INFINITY, f64::min), along().fold(f64::NEG_INFINITY, f64::max)]
    }
}

/// Connects runs along the first setting of `axes` in which some differ. Runs in no such line are
/// connected along the next setting, together with other runs that belong to that line. Runs that
/// remain become single points. Runs with equal settings are repetitions: they become one point,
/// their median.
pub(crate) fn join(runs: &[Run], axes: &[Setting]) -> Vec<Line> {
    let mut joined = BTreeSet::new();
    let mut lines = Vec::new();
    for axis in axes {
        let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
        for (number, run) in runs.iter().enumerate() {
            let key = (run.settings.without(*axis).key(), run.measure.clone());
            groups.entry(key).or_default().push(number);
        }
        let mut held = Vec::new();
        for group in groups.into_values() {
            let values: BTreeSet<_> = group.iter().map(|it| runs[*it].settings.key()).collect();
            if values.len() > 1 && group.iter().any(|run| !joined.contains(run)) {
                let of: Vec<_> = group.iter().map(|it| &runs[*it]).collect();
                lines.push(line(&of, Some(*axis)));
                held.extend(group);
            }
        }
        joined.extend(held);
    }
    let mut single: BTreeMap<(String, String), Vec<&Run>> = BTreeMap::new();
    for (_, run) in runs.iter().enumerate().filter(|(number, _)| !joined.contains(number)) {
        single.entry((run.settings.key(), run.measure.clone())).or_default().push(run);
    }
    lines.extend(single.into_values().map(|runs| line(&runs, None)));
    lines
}

/// One line of runs that belong together.
fn line(runs: &[&Run], axis: Option<Setting>) -> Line {
    let along = |run: &Run| axis.map_or(0.0, |axis| run.settings.number(axis));
    let mut by_value: BTreeMap<u64, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        // The bits of non-negative numbers are ordered like the numbers.
        by_value.entry(along(run).max(0.0).to_bits()).or_default().push(run);
    }
    let mut made: Vec<_> = by_value
        .into_iter()
        .map(|(bits, repeated)| repetitions(f64::from_bits(bits), &repeated))
        .collect();
    saturation::mark(&mut made, axis);
    let settings = match axis {
        Some(axis) => runs[0].settings.without(axis),
        None => runs[0].settings.clone(),
    };
    Line { settings, along: axis, measure: runs[0].measure.clone(), made }
}

/// Runs with equal settings as one point: medians, with the range of all of them.
fn repetitions(along: f64, runs: &[&Run]) -> Made {
    let median = |of: &dyn Fn(&Run) -> f64| {
        let mut values: Vec<_> = runs.iter().map(|run| of(run)).collect();
        values.sort_by(f64::total_cmp);
        values[(values.len() - 1) / 2]
    };
    let ends = || runs.iter().flat_map(|run| run.point.range.unwrap_or([run.point.y; 2]));
    let (low, high) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    let has_range = runs.len() > 1 || runs[0].point.range.is_some();
    let point = Point {
        x: median(&|run| run.point.x),
        y: median(&|run| run.point.y),
        range: has_range.then_some([low, high]),
        saturated: false,
    };
    let load = Load {
        throughput: median(&|run| run.load.throughput),
        latency: median(&|run| run.load.latency),
        offered: runs[0].load.offered,
        refused: runs.iter().map(|run| run.load.refused).max().unwrap_or(0),
    };
    Made { from: runs.iter().map(|run| run.from).collect(), along, point, load }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(from: usize, values: [u8; 3], y: f64) -> Run {
        let mut settings = Settings::default();
        let all = [Setting::Clients, Setting::Window, Setting::Payload];
        for (setting, value) in all.into_iter().zip(values) {
            settings.set(setting, format!("{value}"), f64::from(value));
        }
        let point = Point { x: f64::from(values[0]), y, range: None, saturated: false };
        let load = Load { throughput: y, latency: 1.0, offered: None, refused: 0 };
        Run { from, settings, measure: String::new(), point, load }
    }

    fn shape(runs: &[Run], axes: &[Setting]) -> Vec<(Option<Setting>, Vec<f64>)> {
        let along = |line: &Line| line.made.iter().map(|made| made.along).collect();
        join(runs, axes).iter().map(|line| (line.along, along(line))).collect()
    }

    #[test]
    fn a_line_varies_one_setting_and_what_fits_none_is_a_point() {
        let axes = [Setting::Clients, Setting::Window];
        // Clients, window, payload.
        let clients = [run(0, [1, 1, 8], 1.0), run(1, [4, 1, 8], 2.0), run(2, [2, 1, 8], 3.0)];
        assert_eq!(shape(&clients, &axes), [(Some(Setting::Clients), vec![1.0, 2.0, 4.0])]);
        let both = [&clients[..], &[run(3, [1, 4, 8], 1.0), run(4, [9, 9, 9], 1.0)]].concat();
        let wanted = [
            (Some(Setting::Clients), vec![1.0, 2.0, 4.0]),
            (Some(Setting::Window), vec![1.0, 4.0]),
            (None, vec![0.0]),
        ];
        assert_eq!(shape(&both, &axes), wanted, "4 under way belong to 1 under way");
        let two = [run(0, [1, 1, 8], 1.0), run(1, [4, 4, 8], 2.0)];
        assert_eq!(shape(&two, &axes), [(None, vec![0.0]), (None, vec![0.0])], "two things differ");
    }

    #[test]
    fn repetitions_are_one_point_with_their_range() {
        let runs = [run(0, [1, 1, 8], 5.0), run(1, [1, 1, 8], 9.0), run(2, [1, 1, 8], 6.0)];
        let lines = join(&runs, &[Setting::Clients]);
        assert_eq!((lines.len(), lines[0].along), (1, None), "they vary nothing");
        let Made { from, point, .. } = &lines[0].made[0];
        assert_eq!((from.len(), point.y, point.range), (3, 6.0, Some([5.0, 9.0])));
    }

    fn runs() -> impl Strategy<Value = Vec<Run>> {
        let one = (prop::array::uniform3(0..3_u8), 1.0..9.0_f64);
        let number = |(from, (values, y))| run(from, values, y);
        prop::collection::vec(one, 1..24)
            .prop_map(move |all| all.into_iter().enumerate().map(number).collect())
    }

    proptest! {
        #[test]
        fn runs_of_a_line_differ_in_nothing_else(runs in runs()) {
            let lines = join(&runs, &[Setting::Clients, Setting::Window]);
            let mut seen = BTreeSet::new();
            for line in &lines {
                let members: Vec<_> = line.made.iter().flat_map(|made| &made.from).collect();
                seen.extend(members.iter().copied().copied());
                for (a, b) in members.iter().zip(members.iter().skip(1)) {
                    let differ = crate::settings::differing(
                        &[&runs[**a].settings, &runs[**b].settings],
                    );
                    prop_assert!(differ.iter().all(|it| Some(*it) == line.along), "{differ:?}");
                }
                let rises = line.made.windows(2).all(|pair| pair[0].along < pair[1].along);
                prop_assert!(rises, "joined as the setting rises");
                prop_assert_eq!(line.along.is_some(), line.made.len() > 1);
            }
            prop_assert_eq!(seen.len(), runs.len(), "no run is lost");
        }

        #[test]
        fn runs_that_differ_in_the_first_setting_alone_are_joined(runs in runs()) {
            let lines = join(&runs, &[Setting::Clients]);
            let with = |number: usize| {
                lines.iter().position(|line| line.made.iter().any(|it| it.from.contains(&number)))
            };
            for (a, one) in runs.iter().enumerate() {
                for (b, other) in runs.iter().enumerate() {
                    let rest = |run: &Run| run.settings.without(Setting::Clients).key();
                    prop_assert_eq!(rest(one) == rest(other), with(a) == with(b));
                }
            }
        }

        #[test]
        fn the_order_of_files_does_not_matter(runs in runs()) {
            let axes = [Setting::Clients, Setting::Window];
            let mut reversed = runs.clone();
            reversed.reverse();
            prop_assert_eq!(shape(&runs, &axes), shape(&reversed, &axes));
        }
    }
}
