//! Many seeds on all cores, until some fail or the time is up.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Coverage, Failure, Kept, Profile, Report, run};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What is drawn from the seeds.
    pub profile: Profile,
    /// The seeds.
    pub seeds: Range<u64>,
    /// Seeds that failed in the past: they are run first.
    pub kept: Vec<Kept>,
    /// No seed is begun after that, the kept ones excepted.
    pub until: Option<Instant>,
    /// On how many threads.
    pub cores: usize,
    /// One in so many seeds is run twice, and must be the same run: none if zero.
    pub again_one_in: u64,
    /// It ends when so many have failed.
    pub failures_max: usize,
}

/// What it came to, so far or in the end.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Seeds that were run to their end.
    pub seeds: u64,
    /// Messages multicast in them.
    pub messages: u64,
    /// Changes of leaders in them.
    pub leader_changes: u64,
    /// Seeds that had one.
    pub with_leader_change: u64,
    /// Virtual time that passed in them.
    pub simulated: Duration,
    /// What was hit.
    pub coverage: Coverage,
    /// What failed, in the order in which it was found.
    pub failures: Vec<Failure>,
}

impl Campaign {
    /// Runs the seeds, and tells `look` how far it is each time when one was run. Goes on as long as
    /// that says so.
    pub fn run(&self, look: &(dyn Fn(&Tally) -> bool + Sync)) -> Tally {
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let tally = Mutex::new(Tally::default());
        thread::scope(|scope| {
            for _ in 0..self.cores.max(1) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed)
                        && let Some((seed, profile)) =
                            self.pick(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let result = self.run_one(seed, profile);
                        let mut tally = tally.lock().expect("no run panics outside of its own");
                        match result {
                            Ok(report) => tally.add(&report),
                            Err(failure) => tally.failures.push(*failure),
                        }
                        if tally.failures.len() >= self.failures_max || !look(&tally) {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        tally.into_inner().expect("no run panics outside of its own")
    }

    /// Number `at` of all that is to be run, if there is time for it.
    fn pick(&self, at: u64) -> Option<(u64, Profile)> {
        if let Some(kept) = self.kept.get(at as usize) {
            return Some((kept.seed, kept.profile));
        }
        let seed = self.seeds.start + at - self.kept.len() as u64;
        let in_time = self.until.is_none_or(|until| Instant::now() < until);
        (in_time && self.seeds.contains(&seed)).then_some((seed, self.profile))
    }

    fn run_one(&self, seed: u64, profile: Profile) -> Result<Report, Box<Failure>> {
        let report = run(seed, profile, false)?;
        if self.again_one_in > 0 && seed.is_multiple_of(self.again_one_in) {
            let again = run(seed, profile, false)?;
            if again != report {
                return Err(Box::new(Failure::of_two_runs(report, &again)));
            }
        }
        Ok(report)
    }
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.messages += report.messages;
        self.leader_changes += report.leader_changes;
        self.with_leader_change += u64::from(report.leader_changes > 0);
        self.simulated += report.simulated;
        self.coverage.add(&report.coverage);
    }
}
