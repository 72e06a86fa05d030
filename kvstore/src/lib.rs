//! The replicated, sharded key-value store: what delivery does.

pub mod command;
pub mod reply;
pub mod slots;
