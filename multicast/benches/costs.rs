//! Instructions that a message takes: `cargo bench -p skein-multicast --bench costs`.
//!
//! The count covers all participants: the sessions, and the engines of all three replicas of each group.
//! `costs.txt` records the counts.

mod counting;
#[path = "../tests/harness/mod.rs"]
mod harness;

use std::process::ExitCode;

use self::counting::Case;
use self::harness::Harness;

/// Name, groups, sessions, busy sessions, messages that each of those has in flight, and bursts of them.
type Load = (&'static str, u16, usize, usize, usize, usize);

#[rustfmt::skip]
const LOADS: [Load; 8] = [
    ("1 group, 1 under way",                1,     1,  1,  1, 2_000),
    ("1 group, 64 under way",               1,     1,  1, 64,   100),
    ("1 group, 64 sessions, 1 under way",   1,    64, 64,  1,   100),
    ("1 group, 10 sessions, 1 under way",   1,    10, 10,  1,   400),
    ("the same beside 990 idle ones",       1, 1_000, 10,  1,   400),
    ("4 groups addressed, 64 under way",    4,     1,  1, 64,    40),
    ("8 groups addressed, 64 under way",    8,     1,  1, 64,    20),
    ("4 groups addressed, 1 under way",     4,     1,  1,  1, 1_000),
];

fn main() -> ExitCode {
    let case = |(name, _, _, busy, depth, bursts)| Case { name, burst: busy * depth, bursts };
    let package = env!("CARGO_MANIFEST_DIR");
    counting::count("a message", &LOADS.map(case), package, "benches/costs.txt", |case, bursts| {
        let (_, groups, sessions, busy, depth, _) = LOADS[case];
        let mut harness = Harness::start(groups, sessions);
        // Each session sends one message, so that all are known.
        harness.multicast(1, 1, &mut |turn| turn(), &mut |turn| turn());
        harness.keep_busy(busy);
        harness.multicast(bursts, depth, &mut |turn| turn(), &mut |turn| turn());
    })
}
