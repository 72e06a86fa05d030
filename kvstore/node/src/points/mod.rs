//! Restore points of a cluster with durability `async`: what a node writes to its disk, who makes them, and to which of them the
//! cluster returns.

pub mod choice;
mod lag;
pub(crate) mod log;
pub(crate) mod marker;
