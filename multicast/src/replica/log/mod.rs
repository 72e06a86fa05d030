//! The group's log in memory: our copy, reading as a follower, and writing as a leader.

mod earlier;
mod follower;
mod memory;
mod reach;
mod reader;
pub(super) mod writer;

pub(super) use self::follower::Follower;
pub(super) use self::memory::{LogMemory, announced};
pub(super) use self::reader::LogReader;
pub(crate) use self::writer::untag;
pub(super) use self::writer::{LogWriter, RESERVE_FOR_CONTROL};
