//! What tests of the log, and of orderings on it, share.

use core::convert::Infallible;

use super::{GroupConfig, GroupRecord, LogRecord, LoggedMessage};
use crate::ids::ReplicaId;

/// One incarnation of a replica.
pub(crate) const fn config(me: ReplicaId, incarnation: u32, replicas: u8) -> GroupConfig {
    GroupConfig {
        me,
        incarnation,
        replicas,
        patience_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        evict_after_ms: 100,
        lease_ms: 40,
        clock_skew_percent: 10,
        spread_after_ms: 0,
        lag_max: 64,
    }
}

/// The group's record, or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Group(GroupRecord),
    Message(u64),
}

impl From<GroupRecord> for Record {
    fn from(record: GroupRecord) -> Self {
        Self::Group(record)
    }
}

impl LogRecord for Record {
    type Item = Infallible;

    fn of_group(&self) -> Option<GroupRecord> {
        if let Self::Group(record) = self { Some(*record) } else { None }
    }

    fn message(&self) -> Option<LoggedMessage> {
        None
    }

    fn is_results(&self) -> bool {
        false
    }

    fn rests_on_others(&self) -> bool {
        false
    }

    fn of_items(first: Infallible) -> Self {
        match first {}
    }

    fn first_item(&self) -> Option<Infallible> {
        None
    }
}
