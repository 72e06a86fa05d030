//! Chaos: faults in random order, drawn from a seed, while a workload is recorded that tells
//! afterwards whether anything was lost.
//!
//! Some of it decides and measures: which objects there are and what is asked of them ([`objects`]), the loop that
//! asks and records ([`load`]), which fault comes next ([`schedule`]), what stands there before and after
//! ([`state`]), and what came of it all ([`report`]). The rest does it to the processes of a running cluster: a
//! [`run`] has the load asked for while `faults` are done to the nodes ([`patient`]), to client processes
//! ([`clients`]) and to the links between [`hosts`]. A program starts the cluster, names the command that runs a client,
//! shows how far the run is, and prints the report.

mod cells;
pub mod clients;
mod faults;
pub mod hosts;
mod interactive;
pub mod load;
pub mod objects;
pub mod patient;
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
