//! Many seeds of one profile or of all, on several threads, until some fail or the time is up.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Coverage, Failure, Kept, Profile, Report, run};

/// Number of seeds of each profile in every test run, and ratio in which [`Part::of_all`] divides a number of
/// seeds. A seed of `laps` takes as long as a hundred others, so it has fewer.
pub const SHARES: [(&str, u64); Profile::ALL.len()] = [
    ("default", 1000),
    ("elections", 450),
    ("crashes", 400),
    ("partitions", 250),
    ("slow-replicas", 150),
    ("divergent-logs", 150),
    ("unreachable-sessions", 50),
    ("losses", 50),
    ("group-loss-and-client-crashes", 50),
    ("learners", 100),
    ("overlaps", 150),
    ("leases", 150),
    ("confirmed", 150),
    ("clients", 80),
    ("absent", 50),
    ("stalls", 50),
    ("networks", 40),
    ("calm", 40),
    ("large", 15),
    ("laps", 8),
    ("severed", 15),
    ("relayed", 30),
    ("twins", 40),
    ("uneven", 30),
    ("clocks", 15),
    ("scarce", 30),
    ("starts", 30),
    ("stops", 25),
    ("aged", 30),
    ("remains", 40),
    ("bare-quorums", 100),
    ("power", 100),
    ("disks", 60),
    ("mixed", 140),
];

/// The same for the profiles of orderings along a tree.
pub const SHARES_ALONG_TREES: [(&str, u64); Profile::ALONG_TREES.len()] =
    [("inner-groups", 200), ("dead-leaf", 80)];

/// Seeds of one profile.
#[derive(Clone, Debug)]
pub struct Part {
    pub profile: Profile,
    pub seeds: Range<u64>,
}

/// A set of seeds to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The seeds of each profile. The parts advance in step, so that a campaign that is stopped has run the
    /// same fraction of each.
    pub parts: Vec<Part>,
    /// Seeds that failed in the past, which are run first.
    pub kept: Vec<Kept>,
    /// No seed is begun after this time, except for the kept ones.
    pub until: Option<Instant>,
    /// Number of threads.
    pub jobs: usize,
    /// One in so many seeds is run twice, and both runs must be equal; none if zero.
    pub again_one_in: u64,
    /// Number of failures at which the campaign ends.
    pub failures_max: usize,
}

/// The results of a campaign, so far or in the end.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Seeds that were run to their end.
    pub seeds: u64,
    /// Messages that were multicast in them.
    pub messages: u64,
    /// Changes of leaders in them.
    pub leader_changes: u64,
    /// Seeds with a change of leader.
    pub with_leader_change: u64,
    /// Virtual time that passed in them.
    pub simulated: Duration,
    /// Counts of the paths that were taken.
    pub coverage: Coverage,
    /// Failures, in the order in which they were found.
    pub failures: Vec<Failure>,
    /// Results by profile.
    pub profiles: BTreeMap<&'static str, ProfileTally>,
}

/// The results of one profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProfileTally {
    /// Seeds that were run to their end.
    pub passed: u64,
    pub failed: u64,
    /// Time that they took, summed over the threads.
    pub took: Duration,
}

/// The next seed of each part.
struct Queue<'a> {
    kept: std::slice::Iter<'a, Kept>,
    parts: &'a [Part],
    /// Number of seeds of each part that were begun.
    begun: Vec<u64>,
    until: Option<Instant>,
}

impl Queue<'_> {
    /// The next kept seed; after those, a seed of the part of which the smallest fraction was begun.
    fn pick(&mut self) -> Option<(u64, Profile)> {
        if let Some(kept) = self.kept.next() {
            return Some((kept.seed, kept.profile));
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        let len = |part: &Part| part.seeds.end - part.seeds.start;
        let open = (0..self.parts.len()).filter(|at| self.begun[*at] < len(&self.parts[*at]));
        let fraction = |at: &usize| self.begun[*at] as f64 / len(&self.parts[*at]) as f64;
        let at = open.min_by(|a, b| fraction(a).total_cmp(&fraction(b)))?;
        let part = &self.parts[at];
        self.begun[at] += 1;
        Some((part.seeds.start + self.begun[at] - 1, part.profile))
    }
}

/// Calls `work` on so many threads until it returns false on each.
pub fn on_threads(jobs: usize, work: impl Fn() -> bool + Sync) {
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| while work() {});
        }
    });
}

impl Part {
    /// Divides `seeds` over all profiles that this ordering can run, as every test run does. Each profile has at least one
    /// seed, and all begin at the same number.
    pub fn of_all(seeds: &Range<u64>, ordering: super::Ordering) -> Vec<Self> {
        let len = seeds.end - seeds.start;
        // Profiles that it cannot run have their share all the same: the others keep the seeds that they always have.
        let all = SHARES.iter().map(|(_, of)| of).sum::<u64>();
        let part = |(name, of): (&str, u64)| {
            let count = (len * of / all).max(1);
            let profile = Profile::named(name).expect("the table names profiles");
            let profile = profile.ordered_by(ordering)?;
            Some(Self { profile, seeds: seeds.start..seeds.start + count })
        };
        SHARES.into_iter().chain(SHARES_ALONG_TREES).filter_map(part).collect()
    }
}

impl Campaign {
    /// Runs the seeds, and calls `look` with each result. Stops when that returns false.
    pub fn run(&self, look: &(dyn Fn(&Tally, Result<&Report, &Failure>) -> bool + Sync)) -> Tally {
        let queue = Mutex::new(Queue {
            kept: self.kept.iter(),
            parts: &self.parts,
            begun: vec![0; self.parts.len()],
            until: self.until,
        });
        let (stop, tally) = (AtomicBool::new(false), Mutex::new(Tally::default()));
        on_threads(self.jobs, || {
            let next = queue.lock().expect("nobody panics with it").pick();
            let Some((seed, profile)) = next else { return false };
            let begun = Instant::now();
            let result = self.run_one(seed, profile);
            let mut tally = tally.lock().expect("no run panics outside of its own");
            tally.add(profile, &result, begun.elapsed());
            let goes_on = look(&tally, result.as_ref().map_err(|failure| &**failure));
            if tally.failures.len() >= self.failures_max || !goes_on {
                stop.store(true, Ordering::Relaxed);
            }
            !stop.load(Ordering::Relaxed)
        });
        tally.into_inner().expect("no run panics outside of its own")
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
    fn add(&mut self, profile: Profile, result: &Result<Report, Box<Failure>>, took: Duration) {
        let of = self.profiles.entry(profile.name).or_default();
        of.took += took;
        match result {
            Ok(report) => {
                of.passed += 1;
                self.seeds += 1;
                self.messages += report.messages;
                self.leader_changes += report.leader_changes;
                self.with_leader_change += u64::from(report.leader_changes > 0);
                self.simulated += report.simulated;
                self.coverage.add(&report.coverage);
            }
            Err(failure) => {
                of.failed += 1;
                self.failures.push((**failure).clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(parts: &[Part]) -> Queue<'_> {
        Queue { kept: [].iter(), parts, begun: vec![0; parts.len()], until: None }
    }

    #[test]
    fn the_parts_of_a_campaign_advance_in_step() {
        let parts = Part::of_all(&(1_000..101_000), crate::simulate::Ordering::DEFAULT);
        assert_eq!(parts.len(), Profile::ALL.len());
        let mut queue = queue(&parts);
        let all: u64 = parts.iter().map(|part| part.seeds.end - part.seeds.start).sum();
        let half: Vec<_> = (0..all / 2).map(|_| queue.pick().expect("there are more")).collect();
        let len = |part: &Part| (part.seeds.end - part.seeds.start) as f64;
        // A part is never ahead of another by more than one of its own seeds.
        let step = parts.iter().map(|part| 1.0 / len(part)).fold(0.0, f64::max);
        for part in &parts {
            let run = half.iter().filter(|(_, profile)| *profile == part.profile).count() as f64;
            let apart = (run / len(part) - 0.5).abs();
            assert!(apart <= step, "{run} of {} of {}", len(part), part.profile.name);
            assert!(half.iter().all(|(seed, _)| *seed >= 1_000));
        }
        assert_eq!(std::iter::from_fn(|| queue.pick()).count() as u64, all - all / 2);
    }

    #[test]
    fn every_profile_has_a_part_however_few_the_seeds() {
        assert!(
            Part::of_all(&(5..6), crate::simulate::Ordering::DEFAULT)
                .iter()
                .all(|part| part.seeds == (5..6))
        );
    }
}
