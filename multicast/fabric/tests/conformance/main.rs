//! Every backend keeps every promise of [`skein_fabric::Fabric`].
//!
//! `promises` runs on all backends in one thread, and checks what must hold however slowly things happen. `ordering`,
//! `fencing`, `waiting` and `incarnations` let real processes (this binary, started again) and threads race each other.
//! `simulated` checks in the simulator what no real machine can be made to do, and `space` what happens when memory
//! runs out. `connections` and `certificates` are about networks alone.

mod certificates;
mod connections;
mod fencing;
mod harness;
mod incarnations;
mod network;
mod ordering;
mod promises;
mod simulated;
mod space;
mod waiting;
