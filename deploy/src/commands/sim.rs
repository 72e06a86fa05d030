//! `skein sim`: the ordering protocol under faults drawn from seeds, in virtual time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;
use skein_multicast::simulate::{
    Campaign, Failure, Kept, Profile, Reduction, Scenario, Tally, keep_panics_quiet, run_scenario,
};
use skein_workloads::chart::grouped;

use super::sim_store::simulate;
use crate::exit::{Exit, usage};
use crate::output::say;
use crate::progress::{Bars, Interrupt};

/// How long a failure is made smaller.
const MINIMISE_FOR: Duration = Duration::from_mins(1);
/// One in so many seeds is run twice, and must be the same run.
const AGAIN_ONE_IN: u64 = 50;
/// Events that are shown of a failure.
const EVENTS_SHOWN: usize = 60;

/// Runs the ordering protocol under faults drawn from seeds, and checks every run
///
/// Each seed is a whole cluster with its clients in virtual time: nodes die and come back empty,
/// stand still, are cut off from each other; clients die between any two writes. What must hold is
/// checked at every step; then the faults stop, and everything must be answered. Seeds that failed
/// in the past are run first. A seed that fails is made small, printed with its last events, and can
/// be run again: the same seed is the same run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which seeds, the last one excluded
    #[arg(long, default_value = "0..1000", value_name = "A..B", value_parser = seeds)]
    seeds: Range<u64>,
    /// Begins no seed after so many minutes
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<Duration>,
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = profile)]
    #[arg(help = format!("Which mix of faults: {}", Profile::ALL.map(|p| p.name).join(", ")))]
    profile: Profile,
    /// Runs the whole store in place of the ordering protocol: machines, sessions and clients that
    /// retry; what clients are told is checked as a history is (docs/check.md)
    #[arg(long, conflicts_with_all = ["profile", "trace"])]
    store: bool,
    /// Where to keep the history of a seed of the store that fails, for `skein check`
    #[arg(long, value_name = "FILE", requires = "store")]
    history: Option<PathBuf>,
    /// Prints everything that happens in the only seed given
    #[arg(long, conflicts_with = "json")]
    trace: bool,
    /// Leaves out what was left out to make a failure small: as its replay line says
    #[arg(long, value_name = "WHAT", requires = "trace")]
    reduced: Option<Reduction>,
    /// Prints one JSON object in place of the table
    #[arg(long)]
    json: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    let range = range.filter(|range| !range.is_empty());
    range.ok_or_else(|| "give two whole numbers, the first one lower, such as 0..1000".to_owned())
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..=100_000.0).contains(minutes));
    let minutes: f64 = minutes.ok_or("give a number of minutes, such as 10 or 0.5")?;
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let mut text = "the profiles are".to_owned();
        for Profile { name, about, .. } in Profile::ALL {
            let _ = write!(text, "\n  {name:<12}{about}");
        }
        text
    })
}

/// What was run and what came of it.
#[derive(Serialize)]
struct Summary {
    profile: &'static str,
    from: u64,
    to: u64,
    seeds: u64,
    seconds: f64,
    seeds_per_second: f64,
    simulated_seconds: f64,
    simulated_seconds_per_second: f64,
    messages: u64,
    leader_changes: u64,
    hit: BTreeMap<&'static str, u64>,
    never_hit: Vec<&'static str>,
    failure: Option<Failed>,
}

#[derive(Serialize)]
struct Failed {
    seed: u64,
    profile: &'static str,
    property: &'static str,
    evidence: String,
    faults: Vec<String>,
    messages: u64,
    /// The command that shows it.
    replay: String,
    events: Vec<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        // What a run panics with is told with its seed.
        keep_panics_quiet();
        if self.store {
            let until = self.minutes.map(|minutes| Instant::now() + minutes);
            return simulate(self.seeds, until, self.history.as_deref(), self.json);
        }
        if self.trace {
            return self.replay();
        }
        let begun = Instant::now();
        let interrupt = Interrupt::listen()?;
        let bars = Bars::new(interrupt.clone());
        let (line, drawn) = (bars.line(), Mutex::new(begun));
        let campaign = Campaign {
            profile: self.profile,
            seeds: self.seeds.clone(),
            kept: Kept::all(),
            until: self.minutes.map(|minutes| begun + minutes),
            cores: std::thread::available_parallelism().map_or(2, Into::into),
            again_one_in: AGAIN_ONE_IN,
            failures_max: 1,
        };
        let tally = campaign.run(&|tally| {
            let mut drawn = drawn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if drawn.elapsed() > Duration::from_millis(200) {
                *drawn = Instant::now();
                line.set_message(how_far(tally, begun.elapsed()));
                line.tick();
            }
            !interrupt.asked()
        });
        let took = begun.elapsed();
        let failure = tally.failures.first().map(|failure| {
            line.set_message(format!("seed {} fails: making it small", failure.scenario.seed));
            line.tick();
            failure.clone().minimised(MINIMISE_FOR)
        });
        line.finish_and_clear();
        let summary = self.summary(&tally, failure.as_ref(), took);
        if self.json {
            say(serde_json::to_string(&summary)? + "\n")?;
        } else {
            say(summary.table(failure.as_ref()))?;
        }
        Ok(if failure.is_some() { Exit::No } else { Exit::Ok })
    }

    /// Runs one seed and says everything that happens.
    fn replay(&self) -> anyhow::Result<Exit> {
        if self.seeds.end - self.seeds.start != 1 {
            let seed = self.seeds.start;
            return Err(usage(format!("--trace shows one seed: say --seeds {seed}..{}", seed + 1)));
        }
        let reduction = self.reduced.clone().unwrap_or_default();
        match run_scenario(&Scenario::reduced(self.seeds.start, self.profile, &reduction), true) {
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

    fn summary(&self, tally: &Tally, failure: Option<&Failure>, took: Duration) -> Summary {
        let (seconds, simulated) = (took.as_secs_f64(), tally.simulated.as_secs_f64());
        let failed = |failure: &Failure| Failed {
            seed: failure.scenario.seed,
            profile: failure.scenario.profile,
            property: failure.violation.property,
            evidence: failure.violation.evidence.clone(),
            faults: failure.scenario.faults.iter().map(ToString::to_string).collect(),
            messages: failure.scenario.messages,
            replay: failure.replay(),
            events: last_events(failure).to_vec(),
        };
        Summary {
            profile: self.profile.name,
            from: self.seeds.start,
            to: self.seeds.end,
            seeds: tally.seeds,
            seconds,
            seeds_per_second: tally.seeds as f64 / seconds,
            simulated_seconds: simulated,
            simulated_seconds_per_second: simulated / seconds,
            messages: tally.messages,
            leader_changes: tally.leader_changes,
            hit: tally.coverage.all().filter(|(_, count)| *count > 0).collect(),
            // Of seeds that were not run there is nothing to say.
            never_hit: tally.coverage.never_hit().filter(|_| failure.is_none()).collect(),
            failure: failure.map(failed),
        }
    }
}

impl Summary {
    fn table(&self, failure: Option<&Failure>) -> String {
        let mut text = String::new();
        for (name, count) in &self.hit {
            let _ = writeln!(text, "{:>14}  {}", grouped(*count), name.replace('_', " "));
        }
        if !self.never_hit.is_empty() {
            let never = self.never_hit.join(", ").replace('_', " ");
            let _ = writeln!(text, "never hit, and so holes in what was run: {never}");
        }
        let _ = writeln!(
            text,
            "{} seeds of the profile {} in {:.1} s: {:.1} seeds/s, {:.1} simulated seconds/s; {} \
            messages, {} changes of leaders",
            grouped(self.seeds),
            self.profile,
            self.seconds,
            self.seeds_per_second,
            self.simulated_seconds_per_second,
            grouped(self.messages),
            grouped(self.leader_changes),
        );
        if let Some(failure) = failure {
            let small = Failure { trace: last_events(failure).to_vec(), ..failure.clone() };
            let _ = writeln!(text, "\n{small}");
        }
        text
    }
}

fn last_events(failure: &Failure) -> &[String] {
    &failure.trace[failure.trace.len().saturating_sub(EVENTS_SHOWN)..]
}

fn how_far(tally: &Tally, took: Duration) -> String {
    let per_second = tally.seeds as f64 / took.as_secs_f64();
    let (seeds, changes) = (grouped(tally.seeds), grouped(tally.leader_changes));
    format!("{seeds} seeds, {per_second:.1} a second, {changes} changes of leaders")
}
