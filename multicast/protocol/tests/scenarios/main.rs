//! Schedules: several cores, and every event in an order that somebody chose.

mod asking;
mod clocks;
mod duplicates;
mod elections;
mod leaders;
mod memory;
mod payloads;
mod quorums;
mod revival;
mod script;
mod spread;
mod stage;
mod states;
