//! What the nodes and the clients of a cluster both need: its configuration, its directory, and its network.

mod build;
pub mod claim;
pub mod config;
pub mod directory;
pub mod files;
pub mod identity;
pub mod lives;
pub mod lock;
pub mod network;
pub mod regions;
pub mod shared;
mod strays;

pub use build::{BUILD, Build};
