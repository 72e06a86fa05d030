//! Detection of saturated runs: more load brings no more throughput.

use crate::lines::Made;
use crate::settings::Setting;

/// The load and the results of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Answers per second.
    pub(crate) throughput: f64,
    /// Median, in microseconds.
    pub(crate) latency: f64,
    /// Arrivals per second of an open loop.
    pub(crate) offered: Option<f64>,
    /// Operations that were due and never invoked.
    pub(crate) refused: u64,
}

/// Share of the arrivals that an open loop must answer.
const SERVED: f64 = 0.95;
/// Required growth of a closed loop's throughput per doubling of its load.
const GAIN: f64 = 1.1;

/// The rule, as the page states it.
pub(crate) const RULE: &str = "A run is saturated, and its sign hollow, if more load brings no more throughput. An open loop is \
     saturated if less than 95 % of what was due was answered in the time measured, or if anything due was never invoked. A closed \
     loop is saturated if, against the run of the same line that reached the highest throughput with less load, it gained less than \
     10 % of throughput for each doubling of the load while its median latency rose, and so did every run of the line with more load.";

impl Load {
    /// Whether an open loop was offered more than it completed.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.offered.is_some_and(|rate| self.refused > 0 || self.throughput < SERVED * rate)
    }

    /// Whether a closed loop gained too little against a run with a load `times` lighter.
    fn gains_too_little(&self, lighter: &Self, times: f64) -> bool {
        let wanted = lighter.throughput * GAIN.powf(times.log2());
        self.throughput < wanted && self.latency > lighter.latency
    }
}

/// Marks the saturated points of a line, which are sorted by `along`.
pub(crate) fn mark(made: &mut [Made], along: Option<Setting>) {
    let by_load = matches!(along, Some(Setting::Clients | Setting::Window));
    let mut best: Option<(f64, Load)> = None;
    for Made { along, point, load, .. } in made.iter_mut() {
        point.saturated = load.is_overloaded();
        if !by_load || load.offered.is_some() {
            continue;
        }
        if let Some((lighter, best)) = &best {
            point.saturated = load.gains_too_little(best, *along / lighter);
        }
        if best.is_none_or(|(_, best)| load.throughput > best.throughput) {
            best = Some((*along, *load));
        }
    }
    // A closed loop that gains again with more load was disturbed, not saturated.
    let closed = made.iter_mut().rev().filter(|made| made.load.offered.is_none());
    let gains_again = closed.skip_while(|made| made.point.saturated);
    gains_again.for_each(|made| made.point.saturated = false);
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::plot::Point;

    /// Which points are saturated, given loads, throughputs and latencies.
    fn marked(runs: &[(f64, f64, f64)]) -> Vec<bool> {
        let mut made: Vec<_> = runs
            .iter()
            .map(|&(along, throughput, latency)| Made {
                from: BTreeSet::new(),
                along,
                point: Point { x: along, y: throughput, range: None, saturated: false },
                load: Load { throughput, latency, offered: None, refused: 0 },
            })
            .collect();
        mark(&mut made, Some(Setting::Clients));
        made.iter().map(|made| made.point.saturated).collect()
    }

    /// Runs, expected saturation, reason.
    type Case = (&'static [(f64, f64, f64)], &'static [bool], &'static str);

    #[test]
    fn a_closed_loop_is_saturated_where_it_gains_little_and_waits_longer() {
        #[rustfmt::skip]
        let cases: [Case; 7] = [
            (&[(1., 10., 1.), (2., 20., 1.), (4., 39., 1.1)], &[false; 3], "it follows the load"),
            (&[(8., 100., 1.), (16., 150., 1.3), (32., 155., 2.5)], &[false, false, true], "3 % more"),
            (&[(8., 100., 1.), (16., 90., 2.), (32., 95., 4.)], &[false, true, true], "it falls"),
            (&[(8., 100., 1.), (16., 90., 2.), (32., 150., 3.)], &[false; 3], "one was a mishap"),
            (&[(10., 100., 1.), (11., 104., 1.05)], &[false, false], "much for so little load"),
            (&[(8., 100., 1.), (16., 101., 0.9)], &[false, false], "its latency does not rise"),
            (&[(64., 100., 9.)], &[false], "nothing to compare with"),
        ];
        for (runs, wanted, because) in cases {
            assert_eq!(marked(runs), wanted, "{because}");
        }
    }

    #[test]
    fn an_open_loop_is_saturated_where_it_does_not_follow_what_is_due() {
        let load =
            |throughput, refused| Load { throughput, latency: 1.0, offered: Some(100.0), refused };
        for (load, wanted, because) in [
            (load(100.0, 0), false, "all was answered"),
            (load(95.0, 0), false, "what was under way at the end"),
            (load(94.0, 0), true, "throughput does not follow"),
            (load(99.0, 1), true, "clients were short"),
            (Load { offered: None, ..load(1.0, 9) }, false, "nothing is due in a closed loop"),
        ] {
            assert_eq!(load.is_overloaded(), wanted, "{because}");
        }
    }

    proptest! {
        #[test]
        fn units_do_not_matter(
            runs in prop::collection::vec((1.0..1e6_f64, 1.0..1e5_f64), 1..8),
            [clients, rate, time] in prop::array::uniform3(-9..9_i32),
        ) {
            let line = |[clients, rate, time]: [f64; 3]| {
                let along = (0..).map(|i| clients * 2_f64.powi(i));
                let all = along.zip(&runs).map(|(n, (t, l))| (n, rate * t, time * l));
                all.collect::<Vec<_>>()
            };
            // Powers of two are exact.
            let scaled = line([clients, rate, time].map(|power| 2_f64.powi(power)));
            prop_assert_eq!(marked(&line([1.0; 3])), marked(&scaled));
        }

        #[test]
        fn only_the_heaviest_loads_are_marked_and_none_of_them_gains(
            runs in prop::collection::vec((1.0..1e6_f64, 1.0..1e5_f64), 2..8),
        ) {
            let line: Vec<_> =
                (0..).zip(&runs).map(|(i, (t, l))| (2_f64.powi(i), *t, *l)).collect();
            let marks = marked(&line);
            prop_assert!(marks.is_sorted() && !marks[0], "{marks:?}");
            let highest = |runs: &[(f64, f64, f64)]| runs.iter().fold(0.0, |most, run| run.1.max(most));
            for (number, _) in marks.iter().enumerate().filter(|(_, marked)| **marked) {
                let best = highest(&line[..number]);
                prop_assert!(line[number].1 < best * GAIN.powf(number as f64));
                prop_assert!(line[number].2 > line[..number].iter().find(|it| it.1 == best).unwrap().2);
            }
        }

        #[test]
        fn what_scales_is_never_marked_and_what_only_waits_is(
            first in 1.0..1e6_f64, gain in 1.11..2.0_f64, count in 2..9_i32,
        ) {
            let of = |gain: f64| {
                let one = |i| (2_f64.powi(i), first * gain.powi(i), 1.5_f64.powi(i));
                (0..count).map(one).collect::<Vec<_>>()
            };
            prop_assert!(marked(&of(gain)).iter().all(|marked| !marked));
            prop_assert!(marked(&of(1.0))[1..].iter().all(|marked| *marked));
        }
    }
}
