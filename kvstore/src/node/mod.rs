//! A node: one process, its engine threads, and what it keeps in the cluster's directory.

pub mod admin;
pub mod claim;
mod digests;
pub mod directory;
pub mod engine;
mod files;
pub mod identity;
mod lives;
mod lock;
pub mod network;
pub mod process;
pub mod regions;
mod socket;
pub mod status;
mod strays;
mod upkeep;

pub use lock::Holder;
