//! The replicated, sharded key-value store: its commands, and the deterministic machine that executes delivered
//! messages.

pub mod backup;
pub mod command;
pub mod limits;
pub mod machine;
pub mod number;
pub mod plan;
pub mod points;
pub mod range;
pub mod reply;
mod rules;
pub mod slots;
pub mod store;
mod text;
pub mod unordered_read;
pub mod wire;

// Test code that is shared with other crates names this crate as they do.
#[cfg(test)]
extern crate self as skein_kvstore;
