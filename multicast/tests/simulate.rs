//! The protocol and its driver on the simulated fabric: thousands of seeds, and every property on each.
//!
//! Seeds that failed in the past (`seeds.txt`) are run first. `SKEIN_SEEDS=100..200` runs other seeds, and
//! `SKEIN_PROFILE=crashes` another profile, and `SKEIN_ORDERING=tram` has another ordering run it; `skein sim` does all
//! of that, and shows how a seed fails.

use std::fmt::Write;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use skein_multicast::simulate::{
    Campaign, Coverage, Kept, Ordering, Part, Profile, SHARES, SHARES_ALONG_TREES, Tally, run,
};

/// Number of seeds, at least, in which a leader is followed by another.
const LEADER_CHANGES: u64 = 3000;

/// A path that need not be taken. A grant of an incarnation that the adopted view does not contain requires a
/// candidate that receives one grant, and no other before that replica has died, come back and been admitted
/// by the old leader: `a_grant_counts_only_from_a_life_that_the_best_log_names` has the schedule.
const SELDOM: &str = "grant_not_counted";

/// One in so many seeds is run twice: equal seeds must give equal runs, to the byte.
const AGAIN_ONE_IN: u64 = 100;
/// Number of failures at which a campaign stops.
const FAILURES_MAX: usize = 100;
/// Time limit for minimising a failure before it is shown.
const TIMEOUT: Duration = Duration::from_mins(1);

fn campaign(profile: Profile, seeds: Range<u64>, kept: Vec<Kept>) -> Tally {
    let campaign = Campaign {
        parts: vec![Part { profile, seeds }],
        kept,
        until: None,
        jobs: thread::available_parallelism().map_or(2, Into::into),
        again_one_in: AGAIN_ONE_IN,
        failures_max: FAILURES_MAX,
    };
    let tally = campaign.run(&|_, _| true);
    let Tally { seeds, messages, leader_changes, simulated, .. } = &tally;
    println!(
        "{}: {seeds} seeds, {messages} messages, {leader_changes} changes of leaders, {simulated:?}",
        profile.name
    );
    tally
}

/// Lists all failures, one a line, and shows the first of them minimised.
fn check(tallies: &[Tally]) {
    let failures = || tallies.iter().flat_map(|tally| &tally.failures);
    let mut text = String::new();
    for failure in failures() {
        let (scenario, violation) = (&failure.scenario, failure.violation.to_string());
        let what = violation.lines().next().unwrap_or_default();
        let _ = writeln!(text, "{} {} {what:.160}", scenario.seed, scenario.profile);
    }
    if let Some(first) = failures().next() {
        panic!("{}\n\n{text}", first.clone().minimised(TIMEOUT));
    }
}

fn seeds() -> Option<Range<u64>> {
    let range = std::env::var("SKEIN_SEEDS").ok()?;
    let (from, to) = range.split_once("..").expect("SKEIN_SEEDS=FIRST..END");
    Some(from.parse().expect("a number")..to.parse().expect("a number"))
}

#[test]
fn every_schedule_keeps_the_properties() {
    let named = |name: &str| Profile::named(name).expect("a profile of that name");
    let chosen = seeds();
    let tallies: Vec<Tally> = if let Some(seeds) = chosen.clone() {
        let name = std::env::var("SKEIN_PROFILE").unwrap_or_else(|_| "default".to_owned());
        let ordering = std::env::var("SKEIN_ORDERING").map(|name| name.parse());
        let ordering = ordering.unwrap_or(Ok(Ordering::DEFAULT)).expect("an ordering");
        let profile = named(&name).ordered_by(ordering).expect("a profile that it can run");
        vec![campaign(profile, seeds, Vec::new())]
    } else {
        let runs = SHARES.into_iter().enumerate().map(|(i, (name, count))| {
            let kept = if i == 0 { Kept::all() } else { Vec::new() };
            campaign(named(name), 0..count, kept)
        });
        runs.collect()
    };
    let mut coverage = Coverage::default();
    for tally in &tallies {
        coverage.add(&tally.coverage);
    }
    println!("{coverage}");
    check(&tallies);
    let reached = |path: &&str| *path != SELDOM && Ordering::DEFAULT.reaches(path);
    let holes: Vec<_> = coverage.holes().filter(reached).collect();
    if chosen.is_some() {
        return println!("never hit: {holes:?}");
    }
    let changes: u64 = tallies.iter().map(|tally| tally.with_leader_change).sum();
    assert!(changes >= LEADER_CHANGES, "a leader was followed in {changes} seeds only");
    assert!(holes.is_empty(), "never hit, and so holes in what was run: {holes:?}");
}

/// One in so many seeds of each profile is run with each other ordering too.
const OTHERS_ONE_IN: u64 = 8;

#[test]
fn every_schedule_that_another_ordering_can_run_keeps_the_properties() {
    Ordering::others().for_each(keeps_the_properties);
}

fn keeps_the_properties(ordering: Ordering) {
    println!("{ordering}:");
    let shares = SHARES.into_iter().chain(SHARES_ALONG_TREES);
    let runs = shares.filter_map(|(name, count)| {
        let profile = Profile::named(name).expect("a profile of that name");
        let profile = profile.ordered_by(ordering)?;
        Some(campaign(profile, 0..count.div_ceil(OTHERS_ONE_IN), Vec::new()))
    });
    let tallies: Vec<Tally> = runs.collect();
    check(&tallies);
    let mut coverage = Coverage::default();
    for tally in &tallies {
        coverage.add(&tally.coverage);
    }
    // Paths of a group by itself: elections, members and states.
    let changes: u64 = tallies.iter().map(|tally| tally.with_leader_change).sum();
    assert!(changes >= LEADER_CHANGES / (2 * OTHERS_ONE_IN), "{ordering}: {changes}");
    let hit = |name: &str| coverage.all().any(|(path, count)| path == name && count > 0);
    let paths = [
        "admitted",
        "parts_taken",
        "truncated",
        "relayed",
        "read_answered",
        "revived",
        "hint_used",
    ];
    for path in paths.into_iter().filter(|path| ordering.reaches(path)) {
        assert!(hit(path), "{ordering}: never hit: {path}");
    }
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
