//! A node: one process, its engine threads, and its admin interface. Also the node processes of a cluster, seen from
//! outside.

pub mod admin;
pub mod closing;
mod digests;
mod disk;
pub mod engine;
mod engine_log;
pub mod inspect;
pub mod missing;
pub mod nodes;
pub mod points;
pub mod process;
mod reading;
mod snapshots_due;
mod socket;
pub mod status;
pub mod supervise;
mod upkeep;
mod vanished;

#[cfg(test)]
#[path = "../../tests/failing/mod.rs"]
mod failing;
