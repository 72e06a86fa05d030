//! Every backend keeps every promise of [`skein_fabric::Fabric`].
//!
//! `promises` runs over all backends in one thread: what must hold however slowly things happen.
//! `ordering`, `fencing`, `waiting` and `incarnations` let real processes (this binary, started
//! again) and threads race each other on shared memory. `simulated` asks of the simulator what no
//! real machine can be asked for, and `space` what happens when memory runs out. `connections` and
//! `certificates` are about what only a network has.

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
