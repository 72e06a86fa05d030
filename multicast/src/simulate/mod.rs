//! A cluster in one thread, from one seed: engines and sessions on the simulated fabric, every
//! property checked while it runs.
//!
//! A run draws everything from its seed: the topology, sizes so small that every ring and log is
//! lapped, the load, which process runs next, who is slow, which client crashes. It ends when enough
//! was sent, everything was answered, and the replicas have nothing left to do; then what must have
//! happened is checked. The same seed is the same run, to the byte.

mod checker;
mod machine;
mod scenario;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use skein_fabric::sim::Counters;
use skein_protocol::properties::Violation;
use skein_protocol::ramcast::Paths;

pub use self::scenario::Scenario;
use self::world::Simulation;
use crate::port::PortPaths;
use crate::replica::ReplicaPaths;

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What was run.
    pub scenario: Scenario,
    /// Of everything that landed, and when: the same for the same seed.
    pub fingerprint: u64,
    /// Messages multicast.
    pub messages: u64,
    /// How often the least lapped log and the least lapped ring were lapped.
    pub laps: u64,
    /// What was hit.
    pub coverage: Coverage,
}

/// How often each thing happened, over one run or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// In the simulated world.
    pub world: Counters,
    /// In the protocol.
    pub protocol: Paths,
    /// In channels.
    pub ports: PortPaths,
    /// Between the protocol and its memory.
    pub replicas: ReplicaPaths,
}

/// A run that broke a property, and its last events if they were traced.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run.
    pub scenario: Scenario,
    /// What broke.
    pub violation: Violation,
    /// What led to it, the latest last.
    pub trace: Vec<String>,
}

/// Runs one seed. With `trace`, keeps what happened, for people to read.
pub fn run(seed: u64, trace: bool) -> Result<Report, Box<Failure>> {
    let scenario = Scenario::draw(seed);
    let mut simulation = Simulation::new(scenario.clone(), trace);
    // An assertion of the code under test is a violation too, and wants its seed told.
    let violation = match catch_unwind(AssertUnwindSafe(|| simulation.run())) {
        Ok(Ok(())) => return Ok(simulation.report()),
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            let evidence = said.unwrap_or_else(|| "a panic without words".to_owned());
            Violation { property: "an assertion", evidence }
        }
    };
    let trace = simulation.trace();
    Err(Box::new(Failure { scenario, violation, trace }))
}

impl Coverage {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.world.add(&other.world);
        self.protocol.add(&other.protocol);
        self.ports.add(&other.ports);
        self.replicas.add(&other.replicas);
    }

    /// Everything that is counted.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.world
            .all()
            .chain(self.protocol.all())
            .chain(self.ports.all())
            .chain(self.replicas.all())
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
        let seed = self.scenario.seed;
        writeln!(f, "seed {seed} breaks {}", self.violation)?;
        writeln!(f, "  {:?}", self.scenario)?;
        write!(
            f,
            "replay it, with its trace: SKEIN_SEED={seed} cargo test --profile simulation \
            -p skein-multicast --test simulate -- --exact one_seed --nocapture"
        )
    }
}
