//! The group's log where it meets memory: our copy of it, what we read as follower, what we write as leader.

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
