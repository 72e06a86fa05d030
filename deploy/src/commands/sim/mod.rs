//! `skein sim`: the ordering protocol under faults drawn from seeds, in virtual time.

mod failures;
mod fingerprints;
mod report;
mod seeds;
mod store;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use skein_multicast::simulate::{
    Campaign, Kept, Ordering, Part, Profile, Reduction, Scenario, keep_panics_quiet, run_scenario,
};

use self::failures::{Failures, STORE};
use self::fingerprints::Fingerprints;
use self::report::{Summary, how_far};
use self::seeds::{From, Seeds};
use crate::exit::{Exit, usage};
use crate::output::say;
use crate::progress::{Bars, Interrupt};

/// Time limit of the reduction of a failure.
const MINIMISE_FOR: Duration = Duration::from_mins(1);
/// One in this many seeds is run twice, and both runs must be equal.
const AGAIN_ONE_IN: u64 = 50;

/// Runs the ordering protocol under faults drawn from seeds, and checks every run
///
/// Each seed is a whole cluster with its clients in virtual time: nodes die and return without their
/// state, are suspended, are cut off from each other; clients die between any two writes. The
/// properties are checked at every step; then the faults stop, and everything must be answered. Seeds
/// that failed in the past are run first. A seed that fails is reduced, printed with its last events,
/// and can be run again: the same seed is the same run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many seeds, or which, the last one excluded
    #[arg(long, default_value = "0..1000", value_name = "N|A..B")]
    seeds: Seeds,
    /// Counts the seeds from this one, or from a random one
    #[arg(long, value_name = "random|SEED")]
    from: Option<From>,
    /// Begins no seed after this many minutes
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<Duration>,
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = profile)]
    #[arg(help = format!("Which mix of faults: {}", Profile::every().map(|p| p.name).collect::<Vec<_>>().join(", ")))]
    profile: Profile,
    #[arg(long, default_value_t = Ordering::DEFAULT, value_name = "NAME")]
    #[arg(help = format!("The ordering protocol: {}", Ordering::ALL.map(Ordering::about).join(", or ")))]
    ordering: Ordering,
    /// Divides the seeds over all profiles, as the gate divides its own
    #[arg(long, conflicts_with_all = ["profile", "trace", "store"])]
    all_profiles: bool,
    /// Runs the whole store in place of the ordering protocol: machines, sessions and clients that
    /// retry; the answers to clients are checked as a history is (docs/check.md)
    #[arg(long, conflicts_with_all = ["profile", "trace"])]
    store: bool,
    /// Where to keep the history of a seed of the store that fails, for `skein check`
    #[arg(long, value_name = "FILE", requires = "store")]
    history: Option<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Continues after failures and keeps them in this file, a line each; seeds that are in it already
    /// run first, and those that pass are removed
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    failures: Option<PathBuf>,
    /// Writes the fingerprint of each run to a file; if the file exists, compares: exit code 1 if a run differs
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    fingerprints: Option<PathBuf>,
    /// Prints everything that happens in the only seed given
    #[arg(long, conflicts_with = "json")]
    trace: bool,
    /// Repeats a reduced failure, as its replay line says
    #[arg(long, value_name = "WHAT", requires = "trace")]
    reduced: Option<Reduction>,
    /// Prints one JSON object in place of the table
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..=100_000.0).contains(minutes));
    let minutes: f64 = minutes.ok_or("give a number of minutes, such as 10 or 0.5")?;
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let mut text = "the profiles are".to_owned();
        for Profile { name, about, .. } in Profile::every() {
            let _ = write!(text, "\n  {name:<30}{about}");
        }
        text
    })
}

/// The files that keep the results of a run.
struct Files {
    failures: Option<Failures>,
    fingerprints: Option<Fingerprints>,
}

impl Files {
    fn open(args: &Args) -> anyhow::Result<Self> {
        Ok(Self {
            failures: args.failures.clone().map(Failures::open).transpose()?,
            fingerprints: args.fingerprints.clone().map(Fingerprints::open).transpose()?,
        })
    }

    /// Number of failures after which a run ends. Without a file of failures the first one is
    /// shown.
    fn failures_max(&self) -> usize {
        if self.failures.is_some() { usize::MAX } else { 1 }
    }

    fn passed(&self, profile: &str, seed: u64, fingerprint: u64) {
        if let Some(file) = &self.fingerprints {
            file.add(profile, seed, fingerprint);
        }
    }

    fn failed(&self, profile: &str, seed: u64, what: &str) -> anyhow::Result<()> {
        self.failures.as_ref().map_or(Ok(()), |file| file.add(seed, profile, what))
    }

    /// Writes the remaining results. `whole` says whether all seeds that `ours` selects from the
    /// file of failures were run. Returns the text to print, and whether no fingerprint differs.
    fn close(self, whole: bool, ours: fn(&str) -> bool) -> anyhow::Result<(String, bool)> {
        if let Some(failures) = self.failures.filter(|_| whole) {
            failures.close(ours)?;
        }
        self.fingerprints.map_or(Ok((String::new(), true)), Fingerprints::close)
    }
}

/// Whether a line of a file of failures is about the store.
fn of_the_store(line: &str) -> bool {
    line.split(' ').nth(1) == Some(STORE)
}

fn of_a_profile(line: &str) -> bool {
    !of_the_store(line)
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        // The message of a panic is reported with its seed.
        keep_panics_quiet();
        if self.store {
            return store::simulate(&self);
        }
        if self.trace {
            return self.replay();
        }
        let (begun, seeds) = (Instant::now(), self.seeds.range(self.from).map_err(usage)?);
        let files = Files::open(&self)?;
        let ordering = self.ordering;
        let mut kept = Kept::all();
        // A kept seed failed with one ordering. Another ordering draws another scenario from it.
        kept.retain(|it| it.profile.ordering == ordering);
        if let Some(failures) = &files.failures {
            let known = failures.known(of_a_profile, Kept::parse)?;
            let ordered = |it: Kept| Some(Kept { profile: it.profile.ordered_by(ordering)?, ..it });
            kept.extend(known.into_iter().filter_map(ordered));
        }
        let kept_seeds = kept.len() as u64;
        let interrupt = Interrupt::listen()?;
        let bars = Bars::new(interrupt.clone());
        let (line, drawn) = (bars.line(), Mutex::new(begun));
        let parts = if self.all_profiles {
            Part::of_all(&seeds, ordering)
        } else {
            vec![Part { profile: self.profile()?, seeds: seeds.clone() }]
        };
        let campaign = Campaign {
            parts,
            kept,
            until: self.until(begun),
            jobs: self.jobs(),
            again_one_in: AGAIN_ONE_IN,
            failures_max: files.failures_max(),
        };
        let unkept = Mutex::new(None);
        let tally = campaign.run(&|tally, result| {
            let written = match result {
                Ok(report) => {
                    let of = &report.scenario;
                    files.passed(of.profile, of.seed, report.fingerprint);
                    Ok(())
                }
                Err(failure) => {
                    let of = &failure.scenario;
                    files.failed(of.profile, of.seed, &failure.violation.to_string())
                }
            };
            let goes_on = written.is_ok() && !interrupt.asked();
            if let Err(error) = written {
                unkept.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
            let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
            if drawn.elapsed() > Duration::from_millis(200) {
                *drawn = Instant::now();
                line.set_message(how_far(tally, begun.elapsed()));
                line.tick();
            }
            goes_on
        });
        if let Some(error) = unkept.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let took = begun.elapsed();
        let failure = tally.failures.first().map(|failure| {
            line.set_message(format!("seed {} fails: making it small", failure.scenario.seed));
            line.tick();
            failure.clone().minimised(MINIMISE_FOR)
        });
        line.finish_and_clear();
        let run = tally.seeds + tally.failures.len() as u64;
        let (compared, same) = files.close(run >= kept_seeds, of_a_profile)?;
        let name = if self.all_profiles { "all" } else { self.profile.name };
        let summary = Summary::of((name, ordering), seeds, &tally, failure.as_ref(), took);
        if self.json {
            say(serde_json::to_string(&summary)? + "\n")?;
        } else {
            say(summary.table(failure.as_ref()) + &compared)?;
        }
        Ok(if failure.is_some() || !same { Exit::No } else { Exit::Ok })
    }

    fn profile(&self) -> anyhow::Result<Profile> {
        let (profile, ordering) = (self.profile, self.ordering);
        profile.ordered_by(ordering).ok_or_else(|| {
            let (name, lacks) = (profile.name, ordering.lacks_for(&profile).unwrap_or_default());
            usage(format!(
                "the ordering {ordering} cannot run the profile {name}: {lacks}; name another"
            ))
        })
    }

    fn until(&self, begun: Instant) -> Option<Instant> {
        self.minutes.map(|minutes| begun + minutes)
    }

    fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, Into::into);
        self.jobs.map_or_else(cores, usize::from)
    }

    /// Runs one seed and prints all its events.
    fn replay(&self) -> anyhow::Result<Exit> {
        let seeds = self.seeds.range(self.from).map_err(usage)?;
        if seeds.end - seeds.start != 1 {
            let seed = seeds.start;
            return Err(usage(format!("--trace shows one seed: use --seeds {seed}..{}", seed + 1)));
        }
        let reduction = self.reduced.clone().unwrap_or_default();
        let profile = self.profile()?;
        match run_scenario(&Scenario::reduced(seeds.start, profile, &reduction), true) {
            Ok(report) => {
                say(report.trace.join("\n") + "\n")?;
                let (messages, simulated) = (report.messages, report.simulated);
                say(format!("all is well: {messages} messages in {simulated:?}\n"))?;
                Ok(Exit::Ok)
            }
            Err(failure) => {
                say(format!("{failure}\n"))?;
                Ok(Exit::No)
            }
        }
    }
}
