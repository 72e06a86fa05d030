//! The latency of operations that met a change of leaders, as in Table 1 of the TRAM paper.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::histogram;
use crate::leaders::WINDOWS;
use crate::windows::Met;

/// The latency of some operations.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) operations: u64,
    pub(crate) mean_us: f64,
    pub(crate) min_us: f64,
    pub(crate) max_us: f64,
}

impl Took {
    fn of(nanoseconds: &Histogram<u64>) -> Self {
        let (min, max) = (nanoseconds.min() as f64, nanoseconds.max() as f64);
        let mean_us = nanoseconds.mean() / 1e3;
        Self { operations: nanoseconds.len(), mean_us, min_us: min / 1e3, max_us: max / 1e3 }
    }

    /// The slowest `most` operations.
    fn slowest(nanoseconds: &Histogram<u64>, most: u64) -> Self {
        let mut slowest = histogram();
        let recorded: Vec<_> = nanoseconds.iter_recorded().collect();
        for value in recorded.iter().rev() {
            let count = value.count_at_value().min(most - slowest.len());
            if count == 0 {
                break;
            }
            slowest.saturating_record_n(value.value_iterated_to(), count);
        }
        Self::of(&slowest)
    }
}

/// The latency of operations while leaders changed, as in Table 1 of the TRAM paper. An operation meets a change if it is in
/// flight at any time from the request until all new leaders are seen to lead. Of the operations of a client that met a
/// change, the slowest counts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LedAnew {
    /// For each change, milliseconds from the request until all new leaders are seen to lead, by polling.
    pub(crate) changes_ms: Vec<f64>,
    /// The operations that met each change.
    pub(crate) met: Vec<Took>,
    /// The operations that met any change.
    pub(crate) met_total: Took,
    /// The same for times without a change, one after each change and as long.
    pub(crate) quiet_total: Took,
    /// The slowest operations of the load, as many as met any change: clients × changes.
    pub(crate) slowest: Took,
}

impl LedAnew {
    /// `changes` says how long each took, `nanoseconds` what all operations of the load took.
    pub(crate) fn of(changes: &[Duration], met: &Met, nanoseconds: &Histogram<u64>) -> Self {
        let of = |first| (first..WINDOWS).step_by(2).map(|window| met.of(window));
        let total = |first| {
            let mut total = histogram();
            of(first).for_each(|it| total += it);
            total
        };
        let met_total = total(0);
        Self {
            changes_ms: changes.iter().map(|took| took.as_secs_f64() * 1e3).collect(),
            met: of(0).map(|it| Took::of(&it)).collect(),
            slowest: Took::slowest(nanoseconds, met_total.len()),
            met_total: Took::of(&met_total),
            quiet_total: Took::of(&total(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_operations_are_as_many_as_asked_for() {
        let mut nanoseconds = histogram();
        nanoseconds.record_n(1_000, 10).expect("a value within the bounds");
        nanoseconds.record_n(2_000, 2).expect("a value within the bounds");
        #[rustfmt::skip]
        let cases = [
            (1,  1,  2.0,       2.0, "some of the slowest value"),
            (4,  4,  1.5,       1.0, "all of it, and some of the next"),
            (99, 12, 14. / 12., 1.0, "there are no more"),
        ];
        for (most, operations, mean, min, why) in cases {
            let took = Took::slowest(&nanoseconds, most);
            assert_eq!(took.operations, operations, "{why}");
            for (value, wanted) in [(took.mean_us, mean), (took.min_us, min), (took.max_us, 2.0)] {
                assert!((value - wanted).abs() < 0.01, "{why}: {value} instead of {wanted}");
            }
        }
    }
}
