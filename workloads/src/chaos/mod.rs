//! Chaos: faults in random order, drawn from a seed, while a workload is recorded that tells
//! afterwards whether anything was lost.
//!
//! What is here decides and measures: which objects there are and what is asked of them
//! ([`objects`]), the loop that asks and records ([`load`]), which fault comes next ([`schedule`]),
//! what stands there before and after ([`state`]), and what came of it all ([`report`]). Killing real processes is the binary's part.

mod cells;
mod interactive;
pub mod load;
pub mod objects;
pub mod report;
pub mod schedule;
pub mod silence;
pub mod state;
