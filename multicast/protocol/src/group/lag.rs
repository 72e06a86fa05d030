//! How many deliveries a follower is behind its leader.
//!
//! A follower may read its log, give the log's room back, and yet not deliver what it has read, since a delivery
//! may rest on what other groups tell. It holds those messages, and other groups keep what they tell of them. The
//! room of the log bounds neither. So a leader takes no message of a session while a follower that it feeds has
//! yet to deliver `lag_max` messages that the leader has delivered.
//!
//! **Liveness.** The follower needs no new message to catch up: whatever it lacks was delivered by the leader,
//! which helps when it is [asked](crate::ordering::OrderingProtocol::lacks). One that does not catch up all the same
//! is evicted, like one that does not give the log's room back, and is given the state; one that is not fed is not
//! waited for here.

use alloc::collections::VecDeque;

use super::GroupLog;
use super::record::LogRecord;
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;
use crate::step::Deliver;

/// The lag is known up to one part in so many of the most.
const MARKS: u64 = 32;

/// How many messages had been delivered at some of the last ranks.
///
/// **Invariant.** `marks` rise in both, and `marks[0].1 <= delivered < next`, once there are some.
pub(super) struct Lag {
    max: u64,
    /// What we have delivered.
    delivered: u64,
    /// The next mark is made at this delivery.
    next: u64,
    /// The first is at least `max` deliveries old, once there were so many.
    marks: VecDeque<(Rank, u64)>,
}

impl Lag {
    pub(super) const fn new(max: u64) -> Self {
        Self { max, delivered: 0, next: 0, marks: VecDeque::new() }
    }

    /// Delivery number `delivered` has this rank.
    #[inline]
    pub(super) fn note(&mut self, delivered: u64, rank: Rank) {
        self.delivered = delivered;
        if delivered >= self.next {
            self.mark(delivered, rank);
        }
    }

    #[cold]
    fn mark(&mut self, delivered: u64, rank: Rank) {
        self.next = delivered + (self.max / MARKS).max(1);
        while self.marks.get(1).is_some_and(|(_, at)| delivered - at >= self.max) {
            self.marks.pop_front();
        }
        self.marks.push_back((rank, delivered));
    }

    /// Whether somebody who has applied all up to a rank has yet to deliver the most that it may. Those
    /// before the first mark count as one.
    fn is_full(&self, applied: Rank) -> bool {
        let at = self.marks.partition_point(|(at, _)| *at <= applied);
        let mark = self.marks.get(at.saturating_sub(1));
        mark.is_some_and(|(_, before)| self.delivered - before >= self.max)
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// A message is delivered. Returns whether its payload is kept, since a follower may ask for it.
    #[inline]
    pub(crate) fn delivers(&mut self, next: &Deliver) -> bool {
        self.lag.note(next.position, next.rank);
        self.payloads.note_delivered(next.message)
    }

    /// Whether a follower that we feed, as leader, has yet to deliver as many messages as it may. One that has not said
    /// what it has applied is not known to.
    pub(super) fn is_behind(&self, slot: u8) -> bool {
        let Some(follower) = self.follower(slot) else { return false };
        let applied = self.known_applied(slot);
        self.leads()
            && (follower.told || applied > Rank::NOTHING)
            && self.lag.is_full(applied)
            && !planted(Mutant::LagNotBounded)
    }

    /// As leader: whether a replica that is about to let us write its log has as many to deliver already.
    pub(super) fn is_granter_behind(&self, slot: u8) -> bool {
        self.lag.is_full(self.granter_applied(slot)) && !planted(Mutant::LagNotBounded)
    }

    /// As leader: whether a follower that we feed has yet to deliver as many messages as it may.
    pub fn is_somebody_behind(&self) -> bool {
        self.leads() && self.others().any(|slot| self.is_behind(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn at(number: u64) -> Rank {
        Rank::new(number)
    }

    #[test]
    fn a_lag_is_full_at_its_bound_and_up_to_a_mark_before_it() {
        let mut lag = Lag::new(320);
        assert!(!lag.is_full(at(0)));
        for delivered in 1..=10_000 {
            lag.note(delivered, at(2 * delivered));
            assert!(lag.marks.len() as u64 <= MARKS + 2, "{}", lag.marks.len());
            for behind in [0, 1, 300, 310, 320, 330, 5000] {
                let Some(applied) = delivered.checked_sub(behind) else { continue };
                let full = lag.is_full(at(2 * applied));
                assert!(full || behind < 320 + u64::from(applied == 0), "{behind} of {delivered}");
                assert!(!full || behind > 310, "{behind} of {delivered}");
            }
        }
    }

    #[test]
    fn whoever_took_a_state_counts_from_its_own_first_delivery() {
        let mut lag = Lag::new(320);
        lag.note(5_000, at(5_000));
        lag.note(5_319, at(5_319));
        assert!(!lag.is_full(at(4_000)));
        lag.note(5_320, at(5_320));
        assert!(lag.is_full(at(4_000)));
    }
}
