//! The protocol and its join on the simulated fabric: thousands of seeds, every property on each.
//!
//! `SKEIN_SEEDS=100..200` runs other seeds, `SKEIN_PROFILE=crashes` another profile,
//! `SKEIN_SEED=17` replays one with its trace.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use skein_multicast::simulate::{Coverage, Profile, run};

/// Seeds of every test run.
const SEEDS: std::ops::Range<u64> = 0..3000;

/// One in so many seeds is run twice: the same seed is the same run, to the byte.
const AGAIN_ONE_IN: u64 = 50;

/// What must never happen: that a span changed while a write that names it was under way. A leader's
/// log is overwritten only where every follower has what stood there.
const NEVER: &str = "late_spans";

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("SKEIN_SEEDS") else { return SEEDS };
    let (from, to) = range.split_once("..").expect("SKEIN_SEEDS=FIRST..END");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn profile() -> Profile {
    let name = std::env::var("SKEIN_PROFILE").unwrap_or_else(|_| "default".to_owned());
    Profile::named(&name).expect("a profile of that name")
}

#[test]
fn every_schedule_keeps_the_properties() {
    let (range, profile) = (seeds(), profile());
    let (next, coverage) = (AtomicU64::new(range.start), Mutex::new(Coverage::default()));
    let messages = AtomicU64::new(0);
    let failed = Mutex::new(None);
    let cores = thread::available_parallelism().map_or(2, Into::into);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= range.end {
                        break;
                    }
                    match run(seed, profile, false) {
                        Ok(report) => {
                            if report.scenario.leader_falls {
                                assert!(report.leader_changes > 0, "seed {seed}: nobody led anew");
                            }
                            if seed.is_multiple_of(AGAIN_ONE_IN) {
                                let again = run(seed, profile, false).unwrap();
                                assert_eq!(again, report, "seed {seed} again");
                            }
                            messages.fetch_add(report.messages, Ordering::Relaxed);
                            coverage.lock().unwrap().add(&report.coverage);
                        }
                        Err(failure) => *failed.lock().unwrap() = Some(failure),
                    }
                }
            });
        }
    });
    if let Some(failure) = failed.into_inner().unwrap() {
        panic!("{failure}");
    }
    let coverage = coverage.into_inner().unwrap();
    println!("{} seeds, {} messages\n{coverage}", range.end - range.start, messages.into_inner());
    assert!(coverage.all().any(|(name, count)| name == NEVER && count == 0), "{NEVER}");
}

#[test]
fn one_seed() {
    let seed = std::env::var("SKEIN_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    let trace = std::env::var("SKEIN_SEED").is_ok();
    match (run(seed, profile(), trace), run(seed, profile(), false)) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first, second, "seed {seed} ran differently");
            println!("seed {seed}: {} messages, {} laps", first.messages, first.laps);
        }
        (Err(failure), _) | (_, Err(failure)) => panic!("{failure}"),
    }
}
