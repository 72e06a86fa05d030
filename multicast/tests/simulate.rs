//! The protocol and its join on the simulated fabric: thousands of seeds, every property on each.
//!
//! Seeds that failed in the past (`seeds.txt`) are run first. `SKEIN_SEEDS=100..200` runs other
//! seeds, `SKEIN_PROFILE=crashes` another profile; `skein sim` does both, and shows how a seed fails.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use skein_multicast::simulate::{Campaign, Coverage, Kept, Profile, Tally, run};

/// Seeds of every test run, and of the profiles that the default one has no room for.
const SEEDS: Range<u64> = 0..3000;
const SEEDS_OF_OTHERS: [(&str, u64); 5] =
    [("crashes", 60), ("partitions", 60), ("clients", 60), ("laps", 30), ("large", 2)];

/// One in so many seeds is run twice: the same seed is the same run, to the byte.
const AGAIN_ONE_IN: u64 = 100;

/// How long a failure is made smaller before it is shown.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the default profile need not hit: rings and logs go round in the profile of that name, and
/// an operator's words are not simulated.
const ELSEWHERE: [&str; 0] = [];

fn campaign(profile: Profile, seeds: Range<u64>, kept: Vec<Kept>) -> Tally {
    let cores = thread::available_parallelism().map_or(2, Into::into);
    let again_one_in = AGAIN_ONE_IN;
    let campaign = Campaign { profile, seeds, kept, until: None, cores, again_one_in };
    let mut tally = campaign.run(&|_| true);
    if let Some(failure) = tally.failure.take() {
        panic!("{}", failure.minimised(PATIENCE));
    }
    let without = &tally.without_leader_change;
    assert!(without.is_empty(), "{}: no leader was followed in {without:?}", profile.name);
    let Tally { seeds, messages, leader_changes, simulated, .. } = &tally;
    println!(
        "{}: {seeds} seeds, {messages} messages, {leader_changes} changes of leaders, {simulated:?}",
        profile.name
    );
    tally
}

fn seeds() -> Option<Range<u64>> {
    let range = std::env::var("SKEIN_SEEDS").ok()?;
    let (from, to) = range.split_once("..").expect("SKEIN_SEEDS=FIRST..END");
    Some(from.parse().expect("a number")..to.parse().expect("a number"))
}

#[test]
fn every_schedule_keeps_the_properties() {
    let named = std::env::var("SKEIN_PROFILE").ok();
    let name = named.as_deref().unwrap_or("default");
    let profile = Profile::named(name).expect("a profile of that name");
    let mut coverage = Coverage::default();
    coverage.add(&campaign(profile, seeds().unwrap_or(SEEDS), Kept::all()).coverage);
    if seeds().is_none() && named.is_none() {
        for (name, count) in SEEDS_OF_OTHERS {
            let profile = Profile::named(name).expect("a profile of that name");
            coverage.add(&campaign(profile, 0..count, Vec::new()).coverage);
        }
        let holes: Vec<_> = coverage.holes().filter(|name| !ELSEWHERE.contains(name)).collect();
        assert!(holes.is_empty(), "never hit: {holes:?}");
    }
    println!("{coverage}");
    assert!(coverage.all().any(|(name, count)| name == Coverage::NEVER && count == 0));
}

#[test]
fn a_seed_is_one_run() {
    let profile = Profile::ALL[0];
    assert_eq!(run(7, profile, false).unwrap(), run(7, profile, false).unwrap());
    assert_ne!(
        run(7, profile, false).unwrap().fingerprint,
        run(8, profile, false).unwrap().fingerprint
    );
}
