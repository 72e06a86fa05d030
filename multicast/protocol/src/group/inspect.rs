//! Read-only inspection, for operators, the simulator's checks, and tests.

use super::record::LogRecord;
use super::{GroupLog, GroupPaths};
use crate::ballot::Ballot;
use crate::detector::Detector;

/// A view of a replica's part of its group's log.
#[derive(Clone, Copy)]
pub struct GroupInspection<'a, R: LogRecord>(&'a GroupLog<R>);

impl<R: LogRecord> GroupLog<R> {
    /// The read-only view of this log.
    pub const fn inspect(&self) -> GroupInspection<'_, R> {
        GroupInspection(self)
    }
}

impl<'a, R: LogRecord> GroupInspection<'a, R> {
    /// Counters of uncommon code paths.
    pub const fn paths(&self) -> &'a GroupPaths {
        self.0.paths()
    }

    /// The failure detector.
    pub const fn detector(&self) -> &'a Detector {
        self.0.detector()
    }

    /// Whether a quorum of our group seems to be alive.
    pub fn has_quorum_alive(&self) -> bool {
        self.0.has_quorum_alive()
    }

    /// The highest ballot counter of our group that is known here.
    pub fn ballot_counter(&self) -> u32 {
        self.0.ballot_counter()
    }

    /// The ballot of birth of the last entry in our log.
    pub fn last_birth(&self) -> Ballot {
        self.0.last_birth()
    }

    /// Index of the last `Join` of a slot that was folded here; 0 if there was none.
    pub fn joined_at(&self, slot: u8) -> u64 {
        self.0.members.joins[usize::from(slot)]
    }

    /// The ballot of birth of the last committed entry.
    pub const fn commit_birth(&self) -> Ballot {
        self.0.commit_birth()
    }

    /// As leader: the index up to which we count on a slot's memory.
    pub fn counts_on(&self, slot: u8) -> u64 {
        self.0.counts_on(slot)
    }

    /// Number of kept payloads of delivered messages that were logged before we led. No budget has admitted them.
    pub fn inherited_payloads(&self) -> usize {
        self.0.inherited_payloads()
    }

    /// Whether the oldest payload that we keep outside the log is of a delivered message and is kept for that slot.
    pub fn keeps_payload_for(&self, slot: u8) -> bool {
        self.0.keeps_payload_for(slot)
    }

    /// Whether our present incarnation is known to be admitted.
    pub fn is_admitted(&self) -> bool {
        self.0.is_admitted()
    }

    /// Whether a promised lease keeps us from setting out to lead.
    pub fn is_bound(&self) -> bool {
        self.0.is_bound()
    }
}
