//! The binary, as its users run it.

mod administration;
mod chaos;
mod check;
mod clusters;
mod configuration;
mod data;
mod failover;
mod lives;
mod measurements;
mod namespaces;
mod networks;
mod operators;
mod supervision;
mod support;
