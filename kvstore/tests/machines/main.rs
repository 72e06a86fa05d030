//! Tests machines of several groups against a model that is one map. `kvstore/rocksdb/tests/machines.rs` runs most of
//! them over its store.

mod backups;
mod cluster;
mod copies;
#[path = "../failing/mod.rs"]
mod failing;
mod failures;
mod going_on;
mod guards;
mod model;
mod moves;
mod objections;
mod points;
mod sessions;
mod strategy;
mod tape;
mod tested;
mod transactions;
