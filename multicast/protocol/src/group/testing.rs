//! Shared by tests of the log and of orderings on it.

use core::convert::Infallible;
use std::vec;

use super::uncommitted::Uncommitted;
use super::{Cause, GroupConfig, GroupLog, GroupRecord, LogRecord, LoggedMessage, OnDisk};
use crate::ids::{GroupId, ReplicaId};
use crate::view::View;

/// The configuration of one incarnation of a replica.
pub(crate) const fn config(me: ReplicaId, incarnation: u32, replicas: u8) -> GroupConfig {
    GroupConfig {
        me,
        incarnation,
        began_as: incarnation,
        replicas,
        timeout_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        evict_after_ms: 100,
        lease_ms: 40,
        clock_skew_percent: 10,
        spread_after_ms: 0,
        lag_max: 64,
        durable: false,
    }
}

/// The log of slot 1 of a group of that size. Replicas say only what their disks hold if the cluster is `durable`.
pub(crate) fn log_of(replicas: u8, durable: bool) -> GroupLog<Record> {
    let config = config(ReplicaId::new(GroupId(0), 1), 0, replicas);
    let mut log = GroupLog::new(GroupConfig { durable, ..config }, View::first(replicas));
    log.tick(1_000);
    log
}

/// The log of slot 1 of five.
pub(crate) fn log() -> GroupLog<Record> {
    log_of(5, false)
}

/// The same log as leader. It contains only the ballot's first entry, which is not committed.
pub(crate) fn leader() -> GroupLog<Record> {
    leads(log())
}

/// That log of slot 1 of five, as leader. It ends with the ballot's first entry, which is not committed.
pub(crate) fn leads(mut log: GroupLog<Record>) -> GroupLog<Record> {
    log.campaign(Cause::Start);
    for slot in [2, 3] {
        log.granted(slot, 0, (log.last_birth(), log.last_index()), vec![0; 5]);
    }
    log.begin_to_lead();
    let first = append(&mut log, GroupRecord::NewBallot.into());
    log.led_from(first);
    log
}

/// Logs a record. Returns its index.
pub(crate) fn append(log: &mut GroupLog<Record>, record: Record) -> u64 {
    let (index, birth, time_ms) = log.next_entry();
    log.push(Uncommitted { index, birth, time_ms, record });
    index
}

/// As follower: reads entries up to an index, which were born in the ballot in which we log.
pub(crate) fn read_to(log: &mut GroupLog<Record>, last: u64) {
    for index in log.last_index() + 1..=last {
        let (birth, record) = (log.ballot(), Record::Message(index));
        log.push(Uncommitted { index, birth, time_ms: 0, record });
        log.note_accepted(index, 0, true);
    }
}

/// The disk holds everything that the log contains, and its promise.
pub(crate) fn all_on_disk(log: &mut GroupLog<Record>) {
    let (ballot, last, promised) = (log.ballot(), log.last_index(), log.promised());
    log.has_on_disk(OnDisk { ballot, last, promised });
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
