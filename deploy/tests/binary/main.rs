//! The binary as its users run it.

mod administration;
mod adversity;
mod advice;
mod backup;
mod chaos;
mod check;
mod clusters;
mod configuration;
mod constants;
mod data;
mod disks;
mod durable;
mod failover;
mod formats;
mod full_memory;
mod incarnations;
mod inspect;
mod measurements;
mod namespaces;
mod networks;
mod operators;
mod orderings;
mod refusals;
mod returning;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod rollbacks;
mod standstill;
mod supervision;
mod support;
mod tampering;
mod trees;
