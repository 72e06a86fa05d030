//! The cores of this machine, and the latency between them at present.
//!
//! On a shared machine this latency varies by factors from hour to hour. The time that a cache line
//! takes from one core to another and back is a lower bound for any protocol between them, so it is
//! measured beside each run.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Round trips that are timed together: reading the clock takes a third as long as one.
const BATCH: u64 = 100;
const BATCHES: usize = 500;
/// Bound of the measurement when other processes use the cores.
const LONGEST: Duration = Duration::from_millis(500);

/// The cores that this process may use.
pub fn usable() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Pins the calling thread to `core`. If that is not permitted, the thread stays where it is.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(core, %error, "a thread is not pinned");
    }
}

/// Median of the nanoseconds from one core to another and back through shared memory, both
/// spinning; `None` with a single core.
pub fn round_trip_ns() -> Option<f64> {
    let cores = usable();
    let (here, there) = (*cores.first()?, *cores.last()?);
    if here == there {
        return None;
    }
    let (ball, over) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let mut took = thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            let mut seen = 0;
            while over.0.load(Ordering::Relaxed) == 0 {
                let now = ball.0.load(Ordering::Acquire);
                if now % 2 == 1 && now != seen {
                    seen = now;
                    ball.0.store(now + 1, Ordering::Release);
                }
                hint::spin_loop();
            }
        });
        let took = scope.spawn(|| {
            pin(here);
            let took = rally(&ball.0);
            over.0.store(1, Ordering::Relaxed);
            took
        });
        took.join().expect("a rally does not panic")
    });
    took.sort_unstable_by(f64::total_cmp);
    took.get(took.len() / 2).copied()
}

/// A word in a cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

fn rally(ball: &AtomicU64) -> Vec<f64> {
    let began = Instant::now();
    let mut took = Vec::with_capacity(BATCHES);
    let mut word = 0;
    while took.len() < BATCHES && began.elapsed() < LONGEST {
        let before = Instant::now();
        for _ in 0..BATCH {
            ball.store(word + 1, Ordering::Release);
            word += 2;
            while ball.load(Ordering::Acquire) != word {
                hint::spin_loop();
            }
        }
        took.push(before.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    took
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_some_nanoseconds() {
        let found = round_trip_ns();
        assert_eq!(found.is_some(), usable().len() > 1);
        assert!(found.is_none_or(|ns| ns > 1.0 && ns < 1e8), "{found:?}");
    }
}
