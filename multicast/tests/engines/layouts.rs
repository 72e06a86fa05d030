//! Clusters whose layouts no sizes propose: whatever asks where a replica lives looks it up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use skein_fabric::sim::Rng;
use skein_multicast::config::Topology;
use skein_multicast::layout::{Layout, Location};
use skein_multicast::simulate::{Profile, Scenario, on_threads, run_scenario};

/// Seeds of each profile.
const SEEDS: u64 = 3;

/// A layout for the groups and replicas of a scenario, on one node more than it had, or two: each group on nodes in
/// any order, on any of their engines. In every other layout one node has slot 0 of all groups.
fn any_layout(topology: Topology, rng: &mut Rng) -> Layout {
    let nodes = topology.nodes + 1 + rng.below(2) as u16;
    let topology = Topology { nodes, engines: topology.groups.min(2), ..topology };
    let first = rng.one_in(2).then(|| rng.below(nodes.into()) as u16);
    let mut of_group = || {
        let mut all: Vec<u16> = (0..nodes).collect();
        rng.shuffle(&mut all);
        all.sort_by_key(|node| Some(*node) != first);
        all.truncate(topology.replicas.into());
        let mut location =
            |node| Location { node, engine: rng.below(topology.engines.into()) as u16 };
        all.into_iter().map(&mut location).collect()
    };
    let locations: Vec<Vec<_>> = (0..topology.groups).map(|_| of_group()).collect();
    Layout::new(topology, &locations).expect("each replica of a group is on another node")
}

#[test]
fn every_profile_keeps_the_properties_in_layouts_that_no_sizes_propose() {
    let all = Profile::ALL.into_iter();
    let runs: Vec<_> = all.flat_map(|it| (0..SEEDS).map(move |seed| (seed, it))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let Some((seed, profile)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) else {
            return false;
        };
        let mut scenario = Scenario::draw(*seed, *profile);
        let layout = any_layout(scenario.topology(), &mut Rng::new(seed ^ 0x001a_4007));
        assert_ne!(Ok(&layout), Layout::propose(layout.topology()).as_ref());
        scenario.layout = layout;
        if let Err(failure) = run_scenario(&scenario, false) {
            panic!("{failure}");
        }
        true
    };
    on_threads(thread::available_parallelism().map_or(2, Into::into), work);
}
