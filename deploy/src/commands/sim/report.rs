//! The result of a campaign, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;
use skein_checker::chart::grouped;
use skein_multicast::simulate::{Failure, Ordering, ProfileTally, Tally};

/// Events shown of a failure.
const EVENTS_SHOWN: usize = 60;
/// Failures shown with a line each. A file of failures has all.
const FAILURES_SHOWN: usize = 20;

/// The result of a campaign.
#[derive(Serialize)]
pub(super) struct Summary {
    profile: &'static str,
    ordering: String,
    from: u64,
    to: u64,
    seeds: u64,
    failed: usize,
    seconds: f64,
    seeds_per_second: f64,
    simulated_seconds: f64,
    simulated_seconds_per_second: f64,
    messages: u64,
    leader_changes: u64,
    profiles: BTreeMap<&'static str, OfProfile>,
    hit: BTreeMap<&'static str, u64>,
    never_hit: Vec<&'static str>,
    /// All failures, a line each.
    failures: Vec<String>,
    /// The first failure, reduced.
    failure: Option<Failed>,
}

/// The result of the seeds of one profile.
#[derive(Serialize)]
struct OfProfile {
    passed: u64,
    failed: u64,
    /// On one thread.
    seeds_per_second: f64,
}

#[derive(Serialize)]
struct Failed {
    seed: u64,
    profile: &'static str,
    property: &'static str,
    evidence: String,
    faults: Vec<String>,
    messages: u64,
    /// The command that replays it.
    replay: String,
    events: Vec<String>,
}

impl From<&ProfileTally> for OfProfile {
    fn from(tally: &ProfileTally) -> Self {
        let ProfileTally { passed, failed, took } = *tally;
        let seconds = took.as_secs_f64().max(1e-9);
        Self { passed, failed, seeds_per_second: (passed + failed) as f64 / seconds }
    }
}

impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Self {
        Self {
            seed: failure.scenario.seed,
            profile: failure.scenario.profile,
            property: failure.violation.property,
            evidence: failure.violation.evidence.clone(),
            faults: failure.scenario.faults.iter().map(ToString::to_string).collect(),
            messages: failure.scenario.messages,
            replay: failure.replay(),
            events: last_events(failure).to_vec(),
        }
    }
}

impl Summary {
    /// `failure` is the first one, reduced.
    pub(super) fn of(
        (profile, ordering): (&'static str, Ordering),
        seeds: Range<u64>,
        tally: &Tally,
        failure: Option<&Failure>,
        took: Duration,
    ) -> Self {
        let (seconds, simulated) = (took.as_secs_f64(), tally.simulated.as_secs_f64());
        let line = |failure: &Failure| {
            let (seed, profile) = (failure.scenario.seed, failure.scenario.profile);
            let what = failure.violation.to_string();
            format!("{seed} {profile} {:.160}", what.lines().next().unwrap_or_default())
        };
        // A run that ended at a failure does not show which counters can be reached.
        let whole = failure.is_none() && ordering.reaches_all_counters();
        Self {
            profile,
            ordering: ordering.to_string(),
            from: seeds.start,
            to: seeds.end,
            seeds: tally.seeds,
            failed: tally.failures.len(),
            seconds,
            seeds_per_second: tally.seeds as f64 / seconds,
            simulated_seconds: simulated,
            simulated_seconds_per_second: simulated / seconds,
            messages: tally.messages,
            leader_changes: tally.leader_changes,
            profiles: tally.profiles.iter().map(|(name, of)| (*name, of.into())).collect(),
            hit: tally.coverage.all().filter(|(_, count)| *count > 0).collect(),
            never_hit: tally.coverage.never_hit().filter(|_| whole).collect(),
            failures: tally.failures.iter().map(line).collect(),
            failure: failure.map(Failed::from),
        }
    }

    pub(super) fn table(&self, failure: Option<&Failure>) -> String {
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
            "\n{:<30}{:>10}{:>8}{:>16}",
            "profile", "passed", "failed", "seeds/s a core"
        );
        for (name, OfProfile { passed, failed, seeds_per_second }) in &self.profiles {
            let (passed, failed) = (grouped(*passed), grouped(*failed));
            let _ = writeln!(text, "{name:<30}{passed:>10}{failed:>8}{seeds_per_second:>16.1}");
        }
        let of = if self.profile == "all" { "all profiles" } else { "the profile" };
        let name = if self.profile == "all" { "" } else { self.profile };
        let _ = writeln!(
            text,
            "\n{} seeds of {of}{}{name}, from {} on, in {:.1} s: {:.1} seeds/s, {:.1} simulated seconds/s; {} \
            messages, {} changes of leaders",
            grouped(self.seeds + self.failed as u64),
            if name.is_empty() { "" } else { " " },
            self.from,
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
        if self.failures.len() > 1 {
            let _ = writeln!(text, "\n{} seeds failed:", self.failures.len());
            for line in self.failures.iter().take(FAILURES_SHOWN) {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }
}

fn last_events(failure: &Failure) -> &[String] {
    &failure.trace[failure.trace.len().saturating_sub(EVENTS_SHOWN)..]
}

/// Progress in one line.
pub(super) fn how_far(tally: &Tally, took: Duration) -> String {
    let per_second = tally.seeds as f64 / took.as_secs_f64();
    let (seeds, changes) = (grouped(tally.seeds), grouped(tally.leader_changes));
    let failed = match tally.failures.len() {
        0 => String::new(),
        failed => format!(", {failed} FAILED"),
    };
    format!("{seeds} seeds, {per_second:.1} a second, {changes} changes of leaders{failed}")
}
