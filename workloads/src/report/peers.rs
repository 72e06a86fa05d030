//! Skein and other stores under the same load in turn, quiet and beside more and more neighbours.

use std::collections::BTreeSet;

use super::figures::{Figure, LATENCY, Lines, Made, figure, join, linear, log, spread};
use super::plot::{Axis, Style};
use super::source::{Peer, Peers, Source, What};
use crate::multicast::report::Spread;

/// A figure of the throughput and one of the latency, if anything was measured beside neighbours.
pub(super) fn neighbourhoods(sources: &[Source]) -> Vec<Figure> {
    let measure = |y: fn(&Peer) -> Spread, name, title, axis| {
        let axes = [linear("neighbours"), axis];
        figure(name, title, ABOUT, axes, Style::Line, lines(sources, y))
    };
    let rate: Axis = linear("operations per second");
    let mut all = measure(
        |peer| peer.ops_per_s,
        "peers-neighbours",
        "Skein and other stores beside neighbours",
        rate,
    );
    all.extend(measure(
        |peer| peer.p99_us,
        "peers-neighbours-p99",
        "Latency of 99 % of Skein and other stores beside neighbours",
        log(LATENCY),
    ));
    all
}

const ABOUT: &str = "Each store in turn under the same load, medians of several rounds with their range; at 0 there \
                     are no neighbours. mixed is half puts, half gets.";

fn lines(sources: &[Source], y: fn(&Peer) -> Spread) -> Lines {
    let mut lines = Lines::new();
    for (from, source) in sources.iter().enumerate() {
        let What::Peers(Peers { peers, .. }) = &source.what else { continue };
        // Whoever measures in turn leaves the cores of a quiet machine as they are.
        let asleep = || peers.iter().filter(|peer| !peer.awake);
        let kinds: BTreeSet<String> =
            asleep().filter_map(|peer| peer.neighbours).map(|it| it.kind()).collect();
        for kind in &kinds {
            for peer in asleep() {
                if peer.neighbours.is_some_and(|it| it.kind() != *kind) {
                    continue;
                }
                let Peer { store, asked, clients, .. } = peer;
                let name = format!("{store}, {asked}, {clients} clients, beside {kind}");
                let along = peer.neighbours.map_or(0.0, |it| f64::from(it.count));
                let made = Made { from, along, point: spread(along, y(peer)) };
                lines.entry(name).or_default().push(made);
            }
        }
    }
    join(lines.values_mut());
    lines
}
