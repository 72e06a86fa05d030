//! Distributions of latencies: how large a share of all operations took how long.

use hdrhistogram::Histogram;

use super::micros;

/// Pairs of a share of all operations and the microseconds within which they returned, ten to each decade
/// of the share that is left, as far as single operations make up such a share; empty if there were none.
pub(crate) fn distribution(nanoseconds: &Histogram<u64>) -> Vec<[f64; 2]> {
    let count = nanoseconds.len();
    if count == 0 {
        return Vec::new();
    }
    let mut all = vec![[0.0, micros(nanoseconds.min())]];
    'decades: for decade in 1..12 {
        for tenths in (1..10).rev() {
            let left = f64::from(tenths) / 10_f64.powi(decade);
            if left * (count as f64) < 1.0 {
                break 'decades;
            }
            // To twelve digits, so that it is told as 0.93 and not as 0.92999….
            let share = ((1.0 - left) * 1e12).round() / 1e12;
            all.push([share, micros(nanoseconds.value_at_quantile(share))]);
        }
    }
    all.push([1.0, micros(nanoseconds.max())]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_goes_as_far_as_one_operation() {
        let mut all = Histogram::new_with_bounds(1, 1_000_000_000, 3).expect("bounds");
        (1..=1_000_u64).for_each(|i| all.record(i * 1_000).expect("within bounds"));
        let all = distribution(&all);
        let at = |share: f64| all.iter().find(|[it, _]| *it == share).map(|[_, us]| us.round());
        assert_eq!([at(0.0), at(0.5), at(0.93), at(0.99)], [1.0, 500.0, 930.0, 990.0].map(Some));
        assert_eq!([at(0.999), at(0.9991), at(1.0)], [Some(999.0), None, Some(1_000.0)]);
        let none = Histogram::new_with_bounds(1, 1_000_000_000, 3).expect("bounds");
        assert!(distribution(&none).is_empty());
    }
}
