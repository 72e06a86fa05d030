//! Workloads that measure Skein, and checks that its answers were correct during the measurement.

mod arrivals;
pub mod bank;
pub mod bench;
pub mod chaos;
pub mod drill;
pub mod generator;
pub mod keys;
pub mod mix;
#[cfg(test)]
mod model;
pub mod multicast;
pub mod neighbours;
pub mod recorded;
pub mod report;
pub mod retwis;
pub mod simulate;
pub mod smallbank;
pub mod waiting;
pub mod ycsb;
