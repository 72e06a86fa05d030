//! The distribution of latencies in a report.

use hdrhistogram::Histogram;

use super::micros;

/// Pairs of a share of all operations and the microseconds within which they returned: nine per
/// decade of the remaining share, as long as that share is at least one operation; empty if there
/// were no operations.
pub fn distribution(nanoseconds: &Histogram<u64>) -> Vec<[f64; 2]> {
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
            // Rounded to twelve digits, so that it is printed as 0.93 and not as 0.92999….
            let share = ((1.0 - left) * 1e12).round() / 1e12;
            all.push([share, micros(nanoseconds.value_at_quantile(share))]);
        }
    }
    all.push([1.0, micros(nanoseconds.max())]);
    all
}
