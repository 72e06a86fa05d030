//! A node: one process, its engine threads, and how operators speak to it.

pub mod admin;
mod digests;
pub mod engine;
pub mod process;
mod socket;
pub mod status;
mod upkeep;
