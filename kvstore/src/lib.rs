//! The replicated, sharded key-value store: what delivery does.

pub mod command;
pub mod limits;
pub mod machine;
pub mod number;
pub mod plan;
pub mod range;
pub mod reply;
mod rules;
pub mod slots;
pub mod store;
mod text;
pub mod unordered_read;
pub mod wire;

// What its own tests and those of other crates share is written as if from outside.
#[cfg(test)]
extern crate self as skein_kvstore;
