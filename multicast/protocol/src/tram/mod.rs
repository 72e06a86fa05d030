//! Ordering along a tree of groups: TRAM (Middleware '22), on the group log.
//!
//! `docs/protocols/tram.md` says what of it is built.

pub mod content;
pub mod edges;
pub mod gate;
pub mod tree;
