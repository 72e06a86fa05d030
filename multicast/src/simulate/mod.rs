//! A cluster in one thread, from one seed: engines and sessions on the simulated fabric, with every property
//! checked while it runs.
//!
//! A run draws everything from its seed: the topology, sizes so small that every ring and log is lapped, the
//! load, which process runs next, which is slow, which client crashes. It ends when enough was sent,
//! everything was answered, and the replicas have nothing left to do; then it checks what must have happened
//! by the end. Equal seeds give equal runs, to the byte.

mod branches;
mod campaign;
mod checker;
mod checkpoints;
mod clients;
mod disks;
mod faults;
mod injector;
mod kept;
mod machine;
mod minimise;
mod nodes;
mod operator;
mod ordering;
mod profile;
mod reduction;
mod rules;
mod scenario;
mod schedules;
mod surroundings;
mod world;

use std::cell::Cell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use skein_fabric::sim::Counters;
use skein_protocol::group::GroupPaths;
use skein_protocol::properties::Violation;
use skein_protocol::ramcast::Paths;

pub use self::campaign::{
    Campaign, Part, ProfileTally, SHARES, SHARES_ALONG_TREES, Tally, on_threads,
};
pub use self::faults::{Fault, Kind, Mix, Target};
pub use self::injector::FaultCounts;
pub use self::kept::{Kept, lines as kept_lines};
pub use self::operator::LossCounts;
use self::ordering::Driven;
pub use self::ordering::Ordering;
pub use self::profile::Profile;
pub use self::reduction::{MalformedReduction, Reduction};
pub use self::scenario::{Scenario, draw_tree};
use self::world::Simulation;
use crate::endpoint::EndpointPaths;
use crate::replica::ReplicaPaths;

/// The result of a run that kept all properties.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub scenario: Scenario,
    /// Hash of everything that landed, and when. Equal seeds give equal fingerprints.
    pub fingerprint: u64,
    /// Messages that were multicast.
    pub messages: u64,
    /// Number of times that the least lapped log, or ring, was lapped.
    pub laps: u64,
    /// Changes of a group's leader.
    pub leader_changes: u64,
    /// Virtual time that has passed.
    pub simulated: Duration,
    /// Counts of the paths that were taken.
    pub coverage: Coverage,
    /// The events of the run, if they were traced.
    pub trace: Vec<String>,
}

/// Counts of events, over one run or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Faults of the scenario.
    pub faults: FaultCounts,
    /// Losses of groups that lost more than they tolerate.
    pub losses: LossCounts,
    /// Events of the simulated world.
    pub world: Counters,
    /// Paths in the group log.
    pub group: GroupPaths,
    /// Paths in the ordering between groups.
    pub protocol: Paths,
    /// Paths in channels.
    pub endpoints: EndpointPaths,
    /// Paths in the replicas' drivers.
    pub replicas: ReplicaPaths,
}

/// A run that broke a property, and its last events if they were traced.
#[derive(Clone, Debug)]
pub struct Failure {
    pub scenario: Scenario,
    pub violation: Violation,
    /// The events that led to it, the latest last.
    pub trace: Vec<String>,
}

thread_local! {
    /// Location of this thread's last panic, if panics are kept quiet.
    static PANICKED_AT: Cell<Option<String>> = const { Cell::new(None) };
}

/// Suppresses the messages of panics from here on: a run that panics has failed, and the panic's message and
/// location are reported with its seed.
pub fn keep_panics_quiet() {
    panic::set_hook(Box::new(|panic| PANICKED_AT.set(panic.location().map(ToString::to_string))));
}

/// The location of this thread's panic since the last call, if panics are [kept quiet](keep_panics_quiet).
pub fn panicked_at() -> Option<String> {
    PANICKED_AT.take()
}

/// Runs the scenario that a profile draws from a seed. With `trace`, keeps the events, for people to read.
///
/// # Errors
///
/// The property that the run broke.
pub fn run(seed: u64, profile: Profile, trace: bool) -> Result<Report, Box<Failure>> {
    run_scenario(&Scenario::draw(seed, profile), trace)
}

/// Runs a scenario.
///
/// # Errors
///
/// The property that the run broke.
pub fn run_scenario(scenario: &Scenario, trace: bool) -> Result<Report, Box<Failure>> {
    scenario.ordering.run(scenario, trace)
}

fn run_ordered_by<O: Driven>(scenario: &Scenario, trace: bool) -> Result<Report, Box<Failure>> {
    let mut simulation = None;
    // A failed assertion of the code under test is a violation too, and is reported with its seed.
    let run = catch_unwind(AssertUnwindSafe(|| {
        let simulation = simulation.insert(Simulation::<O>::new(scenario.clone(), trace)?);
        simulation.run()?;
        let trace = simulation.trace();
        Ok(Report { trace, ..simulation.report() })
    }));
    let violation = match run {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            let said = said.unwrap_or_else(|| "a panic without a message".to_owned());
            let at = panicked_at().map(|at| format!(", at {at}")).unwrap_or_default();
            let evidence = format!("{said}{at}");
            Violation { property: "an assertion", evidence }
        }
    };
    let trace = simulation.map(|mut simulation| simulation.trace()).unwrap_or_default();
    Err(Box::new(Failure { scenario: scenario.clone(), violation, trace }))
}

impl Coverage {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.faults.add(&other.faults);
        self.losses.add(&other.losses);
        self.world.add(&other.world);
        self.group.add(&other.group);
        self.protocol.add(&other.protocol);
        self.endpoints.add(&other.endpoints);
        self.replicas.add(&other.replicas);
    }

    /// Names of the counters that are zero.
    pub fn never_hit(&self) -> impl Iterator<Item = &'static str> {
        self.all().filter(|(_, count)| *count == 0).map(|(name, _)| name)
    }

    /// Names of the counters that are zero although they can rise: each is a hole in what was run.
    pub fn holes(&self) -> impl Iterator<Item = &'static str> {
        self.never_hit().filter(|name| *name != Self::SELDOM)
    }

    /// A counter that may stay zero: a span changed while a write from it was in flight. A leader overwrites
    /// its log only where every voting follower has what was there. But a deposed leader that adopts
    /// another's log may have writes in flight to a replica that has not seen the change yet. What lands
    /// there is of another ballot than that replica reads.
    pub const SELDOM: &'static str = "late_spans";

    /// All counters.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.faults
            .all()
            .chain(self.losses.all())
            .chain(self.world.all())
            .chain(self.group.all())
            .chain(self.protocol.all())
            .chain(self.endpoints.all())
            .chain(self.replicas.all())
    }
}

impl Failure {
    /// The command that runs it again, with the same reduction.
    pub fn replay(&self) -> String {
        let Scenario { seed, profile, ordering, reduction, .. } = &self.scenario;
        let end = seed + 1;
        let ordering = ordering.option();
        let reduced = match reduction.to_string() {
            text if text.is_empty() => text,
            text => format!(" --reduced {text}"),
        };
        format!("skein sim{ordering} --profile {profile} --seeds {seed}..{end}{reduced} --trace")
    }

    /// Two runs of one seed differed.
    fn of_two_runs(first: Report, second: &Report) -> Self {
        let evidence = format!(
            "two runs of one seed differ: {:016x} and {:016x} after {:?} and {:?}",
            first.fingerprint, second.fingerprint, first.simulated, second.simulated
        );
        let violation = Violation { property: "determinism", evidence };
        Self { scenario: first.scenario, violation, trace: Vec::new() }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.all() {
            writeln!(f, "{count:>12}  {}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        let Scenario { seed, profile, layout, clients, messages, .. } = &self.scenario;
        writeln!(f, "seed {seed} of the profile {profile} breaks {}", self.violation)?;
        writeln!(f, "  {:?}: {layout}", layout.topology())?;
        if let Some(tree) = layout.tree() {
            writeln!(f, "  along the tree with the parents {tree:?}")?;
        }
        writeln!(f, "  {} clients, {} sessions each, {messages} messages", clients.0, clients.1)?;
        for fault in &self.scenario.faults {
            writeln!(f, "  {fault}")?;
        }
        write!(f, "replay it: {}", self.replay())
    }
}
