//! Instructions that a message takes: `cargo bench -p skein-multicast --bench costs`.
//!
//! The count covers all participants: the sessions, and the engines of all three replicas of each group.
//! `costs.txt` records the counts.

mod counting;
#[path = "../tests/harness/mod.rs"]
mod harness;

use std::process::ExitCode;

use skein_multicast::Links;
use skein_multicast::application::Answer;
use skein_protocol::tram::tree::Tree;

use self::counting::Case;
use self::harness::Harness;

/// The tree of a number of groups, if messages go along one.
type Shape = Option<fn(u16) -> Tree>;
/// Name, tree, groups, sessions, busy sessions, messages that each of those has in flight, and bursts of them.
type Load = (&'static str, Shape, u16, usize, usize, usize, usize);

#[rustfmt::skip]
const LOADS: [Load; 11] = [
    ("1 group, 1 under way",                None, 1,     1,  1,  1, 2_000),
    ("1 group, 64 under way",               None, 1,     1,  1, 64,   100),
    ("1 group, 64 sessions, 1 under way",   None, 1,    64, 64,  1,   100),
    ("1 group, 10 sessions, 1 under way",   None, 1,    10, 10,  1,   400),
    ("the same beside 990 idle ones",       None, 1, 1_000, 10,  1,   400),
    ("4 groups addressed, 64 under way",    None, 4,     1,  1, 64,    40),
    ("8 groups addressed, 64 under way",    None, 8,     1,  1, 64,    20),
    ("4 groups addressed, 1 under way",     None, 4,     1,  1,  1, 1_000),
    ("8 groups along a tree of two levels, 64 under way", Some(Tree::breadth), 8, 1, 1, 64,  20),
    ("8 groups along a chain, 64 under way",              Some(Tree::depth),   8, 1, 1, 64,  20),
    ("1 group alone in a tree, 64 under way",             Some(Tree::depth),   1, 1, 1, 64, 100),
];

fn main() -> ExitCode {
    let case = |(name, _, _, _, busy, depth, bursts)| Case { name, burst: busy * depth, bursts };
    let package = env!("CARGO_MANIFEST_DIR");
    counting::count("a message", &LOADS.map(case), package, "benches/costs.txt", |case, bursts| {
        let (_, shape, groups, sessions, busy, depth, _) = LOADS[case];
        match shape {
            Some(tree) => {
                let harness = Harness::start_along(&tree(groups), sessions, |_| Answer);
                load(harness, busy, depth, bursts);
            }
            None => load(Harness::start(groups, sessions), busy, depth, bursts),
        }
    })
}

fn load<O: Links>(mut harness: Harness<Answer, O>, busy: usize, depth: usize, bursts: usize) {
    // Each session sends one message, so that all are known.
    harness.multicast(1, 1, &mut |turn| turn(), &mut |turn| turn());
    harness.keep_busy(busy);
    harness.multicast(bursts, depth, &mut |turn| turn(), &mut |turn| turn());
}
