//! Chaos: random faults, drawn from a seed, during a recorded workload that shows afterwards
//! whether anything was lost.
//!
//! Some modules decide and measure: the objects and the operations on them ([`objects`]), the loop
//! that sends and records ([`load`]), the next fault ([`schedule`]), the state before and after
//! ([`state`]), and the results ([`report`]). The others act on a running cluster: a [`run`] drives
//! the load while `faults` are injected into the nodes ([`processes`]), the client processes
//! ([`clients`]) and the links between [`hosts`]. A program starts the cluster, names the command
//! that runs a client, shows progress, and prints the report.

mod cells;
pub mod clients;
mod faults;
pub mod hosts;
mod interactive;
pub mod load;
pub mod objects;
pub mod processes;
pub mod report;
pub mod run;
pub mod schedule;
pub mod silence;
pub mod state;

use std::error::Error;

/// An error and its causes, on one line.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
