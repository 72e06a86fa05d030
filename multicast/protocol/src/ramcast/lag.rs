//! How many deliveries a follower is behind its leader.
//!
//! A follower that hears its leader and not the quorums of other groups reads its log, gives the log's room
//! back, and cannot deliver what it has read: that stays in its pending table, and in what every other group
//! keeps for it. The room of the log bounds neither. So a leader takes no message of a session while a
//! follower that it feeds has yet to deliver `lag_max` messages that the leader has delivered.
//!
//! **Liveness.** The follower needs no new message to catch up: whatever it lacks was delivered by the leader,
//! which logs decisions when it is [asked](Ramcast::lacks). One that does not catch up all the same is evicted,
//! like one that does not give the log's room back, and is given the state; one that is not fed is not waited for
//! here.

use alloc::collections::VecDeque;

use super::Ramcast;
use crate::group::GroupLog;
use crate::mutants::{Mutant, planted};
use crate::step::Record;
use crate::timestamp::Timestamp;

/// The lag is known up to one part in so many of the most.
const MARKS: u64 = 32;

/// How many messages had been delivered at some of the last final timestamps.
pub(super) struct Lag {
    max: u64,
    /// The next mark is made at this delivery.
    next: u64,
    /// Rising; the first is at least `max` deliveries old, once there were so many.
    marks: VecDeque<(Timestamp, u64)>,
}

impl Lag {
    pub(super) const fn new(max: u64) -> Self {
        Self { max, next: 0, marks: VecDeque::new() }
    }

    /// Delivery number `delivered` has this timestamp.
    #[inline]
    pub(super) fn note(&mut self, delivered: u64, timestamp: Timestamp) {
        if delivered >= self.next {
            self.mark(delivered, timestamp);
        }
    }

    #[cold]
    fn mark(&mut self, delivered: u64, timestamp: Timestamp) {
        self.next = delivered + (self.max / MARKS).max(1);
        while self.marks.get(1).is_some_and(|(_, at)| delivered - at >= self.max) {
            self.marks.pop_front();
        }
        self.marks.push_back((timestamp, delivered));
    }

    /// Whether somebody who has applied all up to a timestamp has yet to deliver the most that it may. Those
    /// before the first mark count as one.
    fn is_full(&self, applied: Timestamp, delivered: u64) -> bool {
        let at = self.marks.partition_point(|(at, _)| *at <= applied);
        let mark = self.marks.get(at.saturating_sub(1));
        mark.is_some_and(|(_, before)| delivered - before >= self.max)
    }

    /// Whether a follower that we feed, as leader who has delivered so much, has yet to deliver as many messages as it may.
    /// One that has not said what it has applied is not known to.
    pub(super) fn is_behind(&self, log: &GroupLog<Record>, slot: u8, delivered: u64) -> bool {
        let Some(fed) = log.follower(slot) else { return false };
        let applied: Timestamp = log.known_applied(slot).into();
        log.leads()
            && (fed.told || applied > Timestamp::ZERO)
            && self.is_full(applied, delivered)
            && !planted(Mutant::LagNotBounded)
    }
}

impl Ramcast {
    /// As leader: whether a replica that is about to let us write its log has as many to deliver already.
    pub fn is_granter_behind(&self, slot: u8) -> bool {
        let applied = self.log.granter_applied(slot).into();
        self.lag.is_full(applied, self.delivered()) && !planted(Mutant::LagNotBounded)
    }

    /// As leader: whether a follower that we feed has yet to deliver as many messages as it may.
    pub fn is_somebody_behind(&self) -> bool {
        let behind = |slot| self.lag.is_behind(&self.log, slot, self.delivered());
        self.log.leads() && self.log.others().any(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;

    fn at(clock: u64) -> Timestamp {
        Timestamp::new(clock, GroupId(0))
    }

    #[test]
    fn a_lag_is_full_at_its_bound_and_up_to_a_mark_before_it() {
        let mut lag = Lag::new(320);
        assert!(!lag.is_full(at(0), 0));
        for delivered in 1..=10_000 {
            lag.note(delivered, at(2 * delivered));
            assert!(lag.marks.len() as u64 <= MARKS + 2, "{}", lag.marks.len());
            for behind in [0, 1, 300, 310, 320, 330, 5000] {
                let Some(applied) = delivered.checked_sub(behind) else { continue };
                let full = lag.is_full(at(2 * applied), delivered);
                assert!(full || behind < 320 + u64::from(applied == 0), "{behind} of {delivered}");
                assert!(!full || behind > 310, "{behind} of {delivered}");
            }
        }
    }

    #[test]
    fn whoever_took_a_state_counts_from_its_own_first_delivery() {
        let mut lag = Lag::new(320);
        lag.note(5_000, at(5_000));
        assert!(!lag.is_full(at(4_000), 5_319));
        assert!(lag.is_full(at(4_000), 5_320));
    }
}
