//! Measured ratios of TRAM to RamCast: up to eight groups of three replicas, on simulated hardware.
//!
//! `docs/results/2026-11-27-trees.md` has the command of each row and what it measured.

use super::Weight;
use super::choice::{Basis, Choice, Ratio};

/// The page of these measurements.
pub(super) const PAGE: &str = "docs/results/2026-11-27-trees.md";

/// The trees of a row, in its order.
const TREES: [&str; 3] = ["breadth", "base", "depth"];

/// Groups addressed, the load, and of each tree the ratios of throughput and of median latency.
struct Row(u16, Weight, [(f64, f64); 3]);

/// Destinations drawn at random from eight groups.
#[rustfmt::skip]
const RANDOM: [Row; 10] = [
    Row(2, Weight::Light, [(0.90, 1.11), (0.67, 1.59), (0.47, 2.05)]),
    Row(3, Weight::Light, [(0.98, 1.01), (0.64, 1.48), (0.40, 2.33)]),
    Row(4, Weight::Light, [(1.08, 0.93), (0.67, 1.34), (0.39, 2.45)]),
    Row(6, Weight::Light, [(1.20, 0.83), (0.74, 1.43), (0.41, 2.57)]),
    Row(8, Weight::Light, [(1.24, 0.81), (0.78, 1.29), (0.43, 2.32)]),
    Row(2, Weight::Heavy, [(0.82, 1.22), (0.92, 1.13), (0.80, 1.26)]),
    Row(3, Weight::Heavy, [(0.98, 1.03), (0.82, 1.34), (0.80, 1.23)]),
    Row(4, Weight::Heavy, [(1.04, 1.00), (0.97, 1.08), (0.69, 1.35)]),
    Row(6, Weight::Heavy, [(1.21, 0.84), (1.06, 0.95), (0.56, 2.00)]),
    Row(8, Weight::Heavy, [(1.29, 0.87), (0.91, 1.24), (0.46, 2.21)]),
];

/// All groups, of as many as are addressed.
#[rustfmt::skip]
const ALL: [Row; 10] = [
    Row(2, Weight::Light, [(0.90, 1.11), (0.90, 1.11), (0.90, 1.11)]),
    Row(3, Weight::Light, [(0.98, 1.02), (0.69, 1.45), (0.69, 1.45)]),
    Row(4, Weight::Light, [(1.06, 0.94), (0.76, 1.30), (0.61, 1.63)]),
    Row(6, Weight::Light, [(1.16, 0.86), (0.68, 1.47), (0.49, 2.06)]),
    Row(8, Weight::Light, [(1.24, 0.81), (0.78, 1.29), (0.43, 2.32)]),
    Row(2, Weight::Heavy, [(0.73, 1.32), (0.73, 1.32), (0.73, 1.32)]),
    Row(3, Weight::Heavy, [(0.90, 1.24), (0.61, 1.64), (0.61, 1.64)]),
    Row(4, Weight::Heavy, [(1.01, 1.12), (0.76, 1.48), (0.55, 1.82)]),
    Row(6, Weight::Heavy, [(1.13, 1.00), (0.72, 1.57), (0.47, 2.12)]),
    Row(8, Weight::Heavy, [(1.29, 0.87), (0.91, 1.24), (0.46, 2.21)]),
];

/// Destinations adjacent in the tree of the column, of eight groups, for both orderings. Eight of eight are the same set.
#[rustfmt::skip]
const ADJACENT: [Row; 10] = [
    Row(2, Weight::Light, [(0.90, 1.09), (0.89, 1.11), (0.89, 1.12)]),
    Row(3, Weight::Light, [(0.99, 1.01), (0.78, 1.42), (0.69, 1.46)]),
    Row(4, Weight::Light, [(1.08, 0.92), (0.72, 1.31), (0.60, 1.68)]),
    Row(6, Weight::Light, [(1.21, 0.83), (0.74, 1.44), (0.49, 2.06)]),
    Row(8, Weight::Light, [(1.24, 0.81), (0.78, 1.29), (0.43, 2.32)]),
    Row(2, Weight::Heavy, [(1.44, 0.69), (1.32, 0.74), (1.14, 0.90)]),
    Row(3, Weight::Heavy, [(1.32, 0.75), (1.54, 0.65), (1.20, 0.84)]),
    Row(4, Weight::Heavy, [(1.37, 0.74), (1.24, 0.85), (1.31, 0.77)]),
    Row(6, Weight::Heavy, [(1.35, 0.77), (1.22, 0.82), (1.11, 0.87)]),
    Row(8, Weight::Heavy, [(1.29, 0.87), (0.91, 1.24), (0.46, 2.21)]),
];

/// The choice for messages to so many of so many groups, drawn at random or adjacent in a tree.
pub(super) fn choice(
    addressed: u16,
    groups: u16,
    weight: Weight,
    adjacent: Option<&str>,
) -> Choice {
    let rows = match adjacent {
        _ if addressed == groups => &ALL,
        Some(_) => &ADJACENT,
        None => &RANDOM,
    };
    // The row of as many groups, or the next one of fewer.
    let found = rows.iter().rev().find(|row| row.1 == weight && row.0 <= addressed);
    let Some(Row(row, _, ratios)) = found else { return Choice::unknown() };
    let ratios = TREES.iter().zip(ratios);
    // Sets that are adjacent in one tree are not in another.
    let ratios = ratios.filter(|(tree, _)| adjacent.is_none_or(|wanted| wanted == **tree));
    let ratio = |(tree, (throughput, latency)): (&&str, &(f64, f64))| Ratio {
        tree: (*tree).to_owned(),
        throughput: *throughput,
        latency: *latency,
        overlap: false,
    };
    let choice = Choice::of(ratios.map(ratio).collect(), Basis::Table);
    let of = if addressed == groups { *row } else { 8 };
    let row = (choice.basis == Basis::Table).then_some([*row, of]);
    Choice { row, ..choice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Verdict;

    const WEIGHTS: [Weight; 2] = [Weight::Light, Weight::Heavy];

    #[test]
    fn rows_are_found_by_groups_addressed_and_load() {
        for rows in [&RANDOM, &ALL, &ADJACENT] {
            let of = |weight| rows.iter().filter(move |row| row.1 == weight).map(|row| row.0);
            for weight in WEIGHTS {
                assert_eq!(of(weight).collect::<Vec<_>>(), [2, 3, 4, 6, 8]);
            }
        }
        for (addressed, row) in [(2, 2), (3, 3), (5, 4), (7, 6), (8, 8), (63, 8)] {
            for weight in WEIGHTS {
                assert_eq!(choice(addressed, 64, weight, None).row, Some([row, 8]), "{addressed}");
                let all = choice(addressed, addressed, weight, None);
                assert_eq!(all.row, Some([row, row]), "{addressed}");
            }
        }
        assert_eq!(choice(1, 8, Weight::Light, None), Choice::unknown());
    }

    #[test]
    fn adjacent_sets_have_the_ratios_of_their_tree_alone() {
        for tree in TREES {
            let found = choice(4, 8, Weight::Heavy, Some(tree));
            assert_eq!(found.tree.as_deref(), Some(tree));
            assert_eq!(found.ratios.len(), 1);
        }
        assert_eq!(choice(4, 8, Weight::Heavy, Some("[-1, 0, 0]")), Choice::unknown());
    }

    #[test]
    fn all_groups_have_the_same_ratios_adjacent_or_not() {
        for weight in WEIGHTS {
            let all = choice(8, 8, weight, None);
            assert_eq!((all.verdict, all.tree.as_deref()), (Verdict::Tree, Some("breadth")));
            for ratio in &all.ratios {
                assert_eq!(choice(8, 8, weight, Some(&ratio.tree)).ratios[0], *ratio);
            }
        }
    }
}
