//! Shared by tests of the log and of orderings on it.

use core::convert::Infallible;
use std::vec;

use super::uncommitted::Uncommitted;
use super::{Cause, GroupConfig, GroupLog, GroupRecord, LogRecord, LoggedMessage};
use crate::ids::{GroupId, ReplicaId};
use crate::view::View;

/// The configuration of one incarnation of a replica.
pub(crate) const fn config(me: ReplicaId, incarnation: u32, replicas: u8) -> GroupConfig {
    GroupConfig {
        me,
        incarnation,
        replicas,
        timeout_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        evict_after_ms: 100,
        lease_ms: 40,
        clock_skew_percent: 10,
        spread_after_ms: 0,
        lag_max: 64,
    }
}

/// The log of slot 1 of five.
pub(crate) fn log() -> GroupLog<Record> {
    let mut log = GroupLog::new(config(ReplicaId::new(GroupId(0), 1), 0, 5), View::first(5));
    log.tick(1_000);
    log
}

/// The same log as leader. It contains only the ballot's first entry, which is not committed.
pub(crate) fn leader() -> GroupLog<Record> {
    let mut log = log();
    log.campaign(Cause::Start);
    for slot in [2, 3] {
        log.granted(slot, 0, (log.last_birth(), log.last_index()), vec![0; 5]);
    }
    log.begin_to_lead();
    let (index, birth, time_ms) = log.next_entry();
    log.push(Uncommitted { index, birth, time_ms, record: GroupRecord::NewBallot.into() });
    log.led_from(index);
    log
}

/// A record of the group, or a message.
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

    fn depends_on_others(&self) -> bool {
        false
    }

    fn of_items(first: Infallible) -> Self {
        match first {}
    }

    fn first_item(&self) -> Option<Infallible> {
        None
    }
}
