//! What an onlooker may look at: operators, the simulator's rules and tests. Nothing here changes anything.

use super::record::LogRecord;
use super::{GroupLog, GroupPaths};
use crate::ballot::Ballot;
use crate::detector::Detector;

/// A replica's part of its group's log, as it stands.
#[derive(Clone, Copy)]
pub struct GroupInspection<'a, R: LogRecord>(&'a GroupLog<R>);

impl<R: LogRecord> GroupLog<R> {
    /// What stands here, for an onlooker.
    pub const fn inspect(&self) -> GroupInspection<'_, R> {
        GroupInspection(self)
    }
}

impl<'a, R: LogRecord> GroupInspection<'a, R> {
    /// How often each path was taken that is not the common one.
    pub const fn paths(&self) -> &'a GroupPaths {
        self.0.paths()
    }

    /// Who seems to be alive.
    pub const fn detector(&self) -> &'a Detector {
        self.0.detector()
    }

    /// Whether a quorum of us seems to be alive.
    pub fn has_quorum_alive(&self) -> bool {
        self.0.has_quorum_alive()
    }

    /// The highest ballot counter that we have heard of in our group.
    pub fn ballot_counter(&self) -> u32 {
        self.0.ballot_counter()
    }

    /// The ballot of birth of the last entry in our log.
    pub fn last_birth(&self) -> Ballot {
        self.0.last_birth()
    }

    /// The ballot of birth of the last entry that is committed.
    pub const fn commit_birth(&self) -> Ballot {
        self.0.commit_birth()
    }

    /// As leader: up to which index we count on a slot.
    pub fn counts_on(&self, slot: u8) -> u64 {
        self.0.counts_on(slot)
    }

    /// How many payloads are kept of messages that were logged before we led, and are delivered: no budget has admitted these.
    pub fn inherited_payloads(&self) -> usize {
        self.0.inherited_payloads()
    }

    /// Whether we keep the oldest payload that is not in the log, and was delivered, for that slot.
    pub fn keeps_payload_for(&self, slot: u8) -> bool {
        self.0.keeps_payload_for(slot)
    }

    /// Whether somebody has told us that our present incarnation is admitted.
    pub fn is_admitted(&self) -> bool {
        self.0.is_admitted()
    }

    /// Whether we have promised to let nobody else lead for a while.
    pub fn is_bound(&self) -> bool {
        self.0.is_bound()
    }
}
