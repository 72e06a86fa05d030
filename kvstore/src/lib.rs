//! The replicated, sharded key-value store: what delivery does.

mod build;
pub mod command;
pub mod config;
pub mod node;
pub mod reply;
pub mod slots;

pub use build::{BUILD, Build};
