//! Configuration, directory and network of a cluster, for nodes and clients.

mod build;
pub mod claim;
pub mod config;
mod data;
pub mod directory;
pub mod files;
pub mod identity;
pub mod incarnations;
pub mod lock;
mod manifest;
pub mod network;
pub mod refusals;
pub mod regions;
pub mod shared;
mod strays;

pub use build::{BUILD, Build};
