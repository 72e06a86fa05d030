//! Schedules: several cores, and every event in an order that somebody chose.

mod elections;
mod leaders;
mod quorums;
mod script;
mod stage;
mod states;
