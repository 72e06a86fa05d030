//! How many instructions a message takes: `cargo bench -p skein-multicast --bench costs`.
//!
//! Counted is all that takes part: the sessions, and the engines of all three replicas of each group.
//! What they took is recorded in `costs.txt`.

mod counting;
#[path = "../tests/crew/mod.rs"]
mod crew;

use std::process::ExitCode;

use self::counting::Case;
use self::crew::Crew;

/// By case: groups, sessions, messages that each has under way, and bursts of those.
type Load = (&'static str, u16, usize, usize, usize);

#[rustfmt::skip]
const LOADS: [Load; 5] = [
    ("1 group, 1 under way",                1,  1,  1, 2_000),
    ("1 group, 64 under way",               1,  1, 64,   100),
    ("1 group, 64 sessions, 1 under way",   1, 64,  1,   100),
    ("4 groups addressed, 64 under way",    4,  1, 64,    40),
    ("8 groups addressed, 64 under way",    8,  1, 64,    20),
];

fn main() -> ExitCode {
    let case = |(name, _, sessions, depth, bursts)| Case { name, burst: sessions * depth, bursts };
    let package = env!("CARGO_MANIFEST_DIR");
    counting::count("a message", &LOADS.map(case), package, "benches/costs.txt", |case, bursts| {
        let (_, groups, sessions, depth, _) = LOADS[case];
        let mut crew = Crew::start(groups, sessions);
        crew.multicast(bursts, depth, &mut |turn| turn(), &mut |turn| turn());
    })
}
