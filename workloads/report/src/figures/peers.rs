//! Skein and other stores under the same load in turn, quiet and beside increasing numbers of
//! neighbours.

use std::collections::BTreeSet;

use super::multicasts::spread;
use super::stores::NEIGHBOURS;
use super::{Figure, Frame, LATENCY, axis, of_lines};
use crate::lines::Run;
use crate::plot::Scale;
use crate::saturation::Load;
use crate::settings::Setting;
use crate::source::{Peer, Peers, Source, What};
use skein_workloads::multicast::report::Spread;

const ABOUT: &str = "Each store in turn under the same load, medians of several rounds with their range; at 0 there \
                     are no neighbours. mixed is half puts, half gets.";

/// Figures of throughput and latency, if anything was measured beside neighbours.
pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let frame = Frame {
        name: "peers-neighbours",
        title: "Throughput of Skein and other stores beside neighbours",
        about: ABOUT,
        x: NEIGHBOURS,
        y: axis("throughput", "operations/s", Scale::Linear),
    };
    let along = [Setting::Neighbours];
    let mut all = of_lines(frame, &runs(sources, |peer| peer.ops_per_s), &along, &|_| false);
    let frame = Frame {
        name: "peers-neighbours-p99",
        title: "99th percentile of latency of Skein and other stores beside neighbours",
        y: LATENCY,
        ..frame
    };
    all.extend(of_lines(frame, &runs(sources, |peer| peer.p99_us), &along, &|_| false));
    all
}

fn runs(sources: &[Source], y: fn(&Peer) -> Spread) -> Vec<Run> {
    let mut runs = Vec::new();
    for (from, source) in sources.iter().enumerate() {
        let What::Peers(Peers { peers, .. }) = &source.what else { continue };
        // Measurements in turn do not keep the cores of a quiet machine awake.
        let asleep = || peers.iter().filter(|peer| !peer.awake);
        let kinds: BTreeSet<String> =
            asleep().filter_map(|peer| peer.neighbours).map(|it| it.kind()).collect();
        for kind in &kinds {
            for peer in asleep() {
                if peer.neighbours.is_some_and(|it| it.kind() != *kind) {
                    continue;
                }
                let Peer { store, asked, clients, .. } = peer;
                let count = peer.neighbours.map_or(0.0, |it| f64::from(it.count));
                let mut settings = source.settings();
                settings.set(Setting::Workload, format!("{store}, {asked}"), 0.0);
                settings.set(Setting::Clients, format!("{clients} clients"), *clients as f64);
                settings.set(Setting::NeighbourKind, format!("beside {kind}"), 0.0);
                settings.set(Setting::Neighbours, format!("beside {count} neighbours"), count);
                let throughput = peer.ops_per_s.median;
                let load = Load { throughput, latency: 0.0, offered: None, refused: 0 };
                let (measure, point) = (String::new(), spread(count, y(peer)));
                runs.push(Run { from, settings, measure, point, load });
            }
        }
    }
    runs
}
