//! Distributions as 1 − F: the share of operations that took longer than a time.

use crate::source::Operation;

/// Points of 1 − F over time, from pairs of F and a time. The last pair, with a remaining share of
/// 0, has no position on a logarithmic axis.
pub(crate) fn points(distribution: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut points: Vec<[f64; 2]> = Vec::with_capacity(distribution.len());
    for [share, time] in distribution {
        let left = ((1.0 - share) * 1e12).round() / 1e12;
        let falls = points.last().is_none_or(|[x, y]| time >= x && left < *y);
        if left > 0.0 && *time > 0.0 && falls {
            points.push([*time, left]);
        }
    }
    points
}

/// The distribution in an operation's report: in full, or by percentiles in reports of older
/// versions, where the longest of n operations gets 1/n.
pub(crate) fn of_operation(operation: &Operation) -> Vec<[f64; 2]> {
    if !operation.distribution_us.is_empty() {
        return points(&operation.distribution_us);
    }
    let latency = operation.latency_us;
    let longest = 1.0 - 1.0 / operation.count.max(1) as f64;
    let told = [
        (0.5, Some(latency.p50)),
        (0.95, latency.p95),
        (0.99, Some(latency.p99)),
        (0.999, latency.p999),
        (longest, latency.max),
    ];
    let pairs: Vec<_> = told.iter().filter_map(|(share, time)| Some([*share, (*time)?])).collect();
    points(&pairs)
}

/// Steps of 1 − F of single times: the share that took at least this long, so that the longest of n
/// gets 1/n.
pub(crate) fn of_times(mut times: Vec<f64>) -> Vec<[f64; 2]> {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    times.into_iter().enumerate().map(|(i, time)| [time, (count - i as f64) / count]).collect()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;
    use skein_workloads::report::distribution;

    use super::*;
    use crate::source::Percentiles;

    fn histogram(times: &[u64]) -> Histogram<u64> {
        let mut all = Histogram::new_with_bounds(1, 1_000_000_000, 3).expect("bounds");
        for time in times {
            all.record(*time).expect("within bounds");
        }
        all
    }

    #[test]
    fn the_tail_goes_as_far_as_one_operation() {
        let thousand: Vec<u64> = (1..=1_000).map(|i| i * 1_000).collect();
        let all = distribution(&histogram(&thousand));
        let at = |share: f64| all.iter().find(|[it, _]| *it == share).map(|[_, us]| us.round());
        assert_eq!([at(0.0), at(0.5), at(0.93), at(0.99)], [1.0, 500.0, 930.0, 990.0].map(Some));
        assert_eq!([at(0.999), at(0.9991), at(1.0)], [Some(999.0), None, Some(1_000.0)]);
        assert_eq!(points(&all).last().map(|[_, left]| *left), Some(0.001));
        assert!(distribution(&histogram(&[])).is_empty());
        assert_eq!(points(&distribution(&histogram(&[7_000]))), [[7.0, 1.0]]);
    }

    #[test]
    fn reports_without_a_distribution_are_drawn_by_their_percentiles() {
        let old = |max| Operation {
            count: 10_000,
            latency_us: Percentiles { p50: 5.0, p95: None, p99: 9.0, p999: Some(20.0), max },
            distribution_us: Vec::new(),
        };
        assert_eq!(of_operation(&old(None)), [[5.0, 0.5], [9.0, 0.01], [20.0, 0.001]]);
        assert_eq!(of_operation(&old(Some(80.0))).last(), Some(&[80.0, 1e-4]));
    }

    #[test]
    fn steps_of_single_times_end_at_one_of_them() {
        assert_eq!(of_times(vec![9.0, 4.0]), [[4.0, 1.0], [9.0, 0.5]]);
        assert!(of_times(Vec::new()).is_empty());
    }

    proptest! {
        #[test]
        fn the_share_left_is_the_share_that_took_longer(
            times in prop::collection::vec(1_u64..100_000_000, 1..400),
        ) {
            let points = points(&distribution(&histogram(&times)));
            prop_assert!(points.windows(2).all(|pair| pair[0][0] <= pair[1][0]));
            prop_assert!(points.windows(2).all(|pair| pair[0][1] > pair[1][1]));
            let count = times.len() as f64;
            for [time, left] in points {
                prop_assert!(left > 0.0 && left <= 1.0);
                // The histogram keeps three digits, and the report is rounded to ten nanoseconds.
                let (low, high) = (time * 1e3 * 0.998 - 10.0, time * 1e3 * 1.002 + 10.0);
                let share = |f: &dyn Fn(f64) -> bool| {
                    times.iter().filter(|time| f(**time as f64)).count() as f64 / count
                };
                prop_assert!(share(&|it| it > high) <= left + 1e-9);
                prop_assert!(share(&|it| it >= low) >= left - 1e-9);
            }
        }
    }
}
