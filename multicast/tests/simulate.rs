//! The protocol and its join on the simulated fabric: thousands of seeds, every property on each.
//!
//! Seeds that failed in the past (`seeds.txt`) are run first. `SKEIN_SEEDS=100..200` runs other
//! seeds, `SKEIN_PROFILE=crashes` another profile; `skein sim` does both, and shows how a seed fails.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use skein_multicast::simulate::{Campaign, Coverage, Kept, Profile, Tally, run};

/// What every test run runs: so many seeds of each profile, from 0 on, and those of them that are
/// known to fail still, or to take too long (`docs/testing.md` says how).
const RUNS: [(&str, u64, &[u64]); 4] =
    [("default", 80, &[30, 45]), ("calm", 250, &[]), ("clients", 100, &[]), ("laps", 6, &[0, 4])];

/// One in so many seeds is run twice: the same seed is the same run, to the byte.
const AGAIN_ONE_IN: u64 = 100;

/// How long a failure is made smaller before it is shown.
const PATIENCE: Duration = Duration::from_mins(1);

fn campaign(profile: Profile, seeds: Range<u64>, except: &[u64], kept: Vec<Kept>) -> Tally {
    let cores = thread::available_parallelism().map_or(2, Into::into);
    let (again_one_in, except) = (AGAIN_ONE_IN, except.to_vec());
    let campaign = Campaign { profile, seeds, except, kept, until: None, cores, again_one_in };
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
    let mut coverage = Coverage::default();
    let named = |name: &str| Profile::named(name).expect("a profile of that name");
    if let Some(seeds) = seeds() {
        let name = std::env::var("SKEIN_PROFILE").unwrap_or_else(|_| "default".to_owned());
        coverage.add(&campaign(named(&name), seeds, &[], Vec::new()).coverage);
    } else {
        for (i, (name, count, except)) in RUNS.into_iter().enumerate() {
            let kept = if i == 0 { Kept::all() } else { Vec::new() };
            coverage.add(&campaign(named(name), 0..count, except, kept).coverage);
        }
    }
    println!("never hit: {:?}", coverage.holes().collect::<Vec<_>>());
    println!("{coverage}");
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
