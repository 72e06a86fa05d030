//! Ratios of a file that has both orderings under the same load.

use std::collections::BTreeMap;

use skein_workloads::multicast::report::Spread;

use super::choice::Ratio;
use crate::source::Multicast;

/// The ratios of each tree to RamCast, of reports of one load; none if one of the orderings is missing.
pub(super) fn ratios(reports: &[&Multicast]) -> Vec<Ratio> {
    let mut trees: BTreeMap<&str, Vec<&Multicast>> = BTreeMap::new();
    let mut ramcast = Vec::new();
    for report in reports {
        match &report.tree {
            Some(tree) if report.order == "tram" => trees.entry(tree).or_default().push(*report),
            _ => ramcast.push(*report),
        }
    }
    let Some(base) = Both::of(&ramcast) else { return Vec::new() };
    let of = |(tree, reports): (&str, Vec<&Multicast>)| {
        let along = Both::of(&reports)?;
        Some(Ratio {
            tree: tree.to_owned(),
            throughput: along.throughput.median / base.throughput.median,
            latency: along.latency.median / base.latency.median,
            overlap: overlap(along.throughput, base.throughput)
                && overlap(along.latency, base.latency),
        })
    };
    trees.into_iter().filter_map(of).collect()
}

/// Throughput and median latency of one ordering.
struct Both {
    throughput: Spread,
    latency: Spread,
}

impl Both {
    /// Over the reports of one ordering; `None` if nothing was measured.
    fn of(reports: &[&Multicast]) -> Option<Self> {
        let throughput = joined(reports.iter().map(|report| report.messages_per_s));
        let latency = joined(reports.iter().map(|report| report.p50_us));
        let measured = throughput.median > 0.0 && latency.median > 0.0;
        measured.then_some(Self { throughput, latency })
    }
}

/// The median of medians, and the range of all runs.
fn joined(spreads: impl Iterator<Item = Spread> + Clone) -> Spread {
    let all = Spread::of(spreads.clone().flat_map(|spread| [spread.low, spread.high]));
    Spread { median: Spread::of(spreads.map(|spread| spread.median)).median, ..all }
}

fn overlap(one: Spread, other: Spread) -> bool {
    one.low <= other.high && other.low <= one.high
}
