//! The protocol and its join on the simulated fabric: thousands of seeds, every property on each.
//!
//! `SKEIN_SEEDS=100..200` runs other seeds, `SKEIN_SEED=17` replays one with its trace.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use skein_multicast::simulate::{Coverage, run};

/// Seeds of every test run.
const SEEDS: std::ops::Range<u64> = 0..2000;

/// One in so many seeds is run twice: the same seed is the same run, to the byte.
const AGAIN_ONE_IN: u64 = 50;

/// What the simulations need not hit yet: no node dies and no log is revoked, so that only a client
/// that hangs up denies anything; and nobody reads one-sidedly.
const NOT_YET: [&str; 2] = ["denied_half_way", "reads"];

/// What must never happen: that a span changed while a write that names it was under way. A leader's
/// log is overwritten only where every follower has what stood there.
const NEVER: &str = "late_spans";

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("SKEIN_SEEDS") else { return SEEDS };
    let (from, to) = range.split_once("..").expect("SKEIN_SEEDS=FIRST..END");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn every_schedule_keeps_the_properties() {
    let range = seeds();
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
                    match run(seed, false) {
                        Ok(report) => {
                            assert!(report.messages >= 200, "seed {seed} is too short");
                            assert!(report.laps >= 2, "seed {seed} lapped only {}", report.laps);
                            if seed.is_multiple_of(AGAIN_ONE_IN) {
                                assert_eq!(run(seed, false).unwrap(), report, "seed {seed} again");
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
    if range == SEEDS {
        let missed: Vec<_> = coverage
            .all()
            .filter(|(name, count)| *count == 0 && *name != NEVER && !NOT_YET.contains(name))
            .map(|(name, _)| name)
            .collect();
        assert!(missed.is_empty(), "never hit: {missed:?}");
    }
}

#[test]
fn one_seed() {
    let seed = std::env::var("SKEIN_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    let trace = std::env::var("SKEIN_SEED").is_ok();
    match (run(seed, trace), run(seed, false)) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first.fingerprint, second.fingerprint, "seed {seed} ran differently");
            assert_eq!(first.coverage, second.coverage, "seed {seed} ran differently");
            println!("seed {seed}: {} messages, {} laps", first.messages, first.laps);
        }
        (Err(failure), _) | (_, Err(failure)) => panic!("{failure}"),
    }
}
