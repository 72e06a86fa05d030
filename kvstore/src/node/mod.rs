//! A node: one process, its engine threads, and what it keeps in the cluster's directory.

pub mod directory;
pub mod engine;
mod lock;
