//! A non-negative least-squares fit.

use skein_workloads::multicast::simulated::cpu::{Amounts, Instructions};

/// The name of a case, the work done in it, and the instructions counted.
pub(super) type Row = (String, Amounts, f64);

/// Rounds of the descent, which converges much earlier.
const ROUNDS: usize = 200_000;

/// The costs with the least sum of squared relative errors, by coordinate descent: each cost in turn gets its best value
/// for the present others, and never a negative one.
pub(super) fn fit(rows: &[Row]) -> Instructions {
    // Relative errors: each row is divided by its count.
    let scaled: Vec<Vec<f64>> = rows
        .iter()
        .map(|(_, amounts, took)| amounts.0.iter().map(|it| it / took).collect())
        .collect();
    let mut costs = Instructions::default();
    let mut off: Vec<f64> = vec![-1.0; rows.len()];
    for _ in 0..ROUNDS {
        for (at, cost) in costs.0.iter_mut().enumerate() {
            let norm: f64 = scaled.iter().map(|row| row[at] * row[at]).sum();
            if norm == 0.0 {
                continue;
            }
            let slope: f64 = scaled.iter().zip(&off).map(|(row, off)| row[at] * off).sum();
            let better = (*cost - slope / norm).max(0.0);
            let step = better - *cost;
            *cost = better;
            for (row, off) in scaled.iter().zip(&mut off) {
                *off += step * row[at];
            }
        }
    }
    costs
}
