//! The number of deliveries by which a follower lags behind its leader.
//!
//! A follower may read its log, free the log's room, and yet not deliver what it has read, because a delivery may
//! depend on what other groups send. It holds those messages, and other groups retain their proposals for them. The
//! room of the log bounds neither. So a leader accepts no message of a session while a follower to which it writes is
//! `lag_max` messages or more behind its own deliveries.
//!
//! **Liveness.** The follower needs no new message to catch up. The leader has delivered everything that the follower
//! lacks, and helps when it is [asked](crate::ordering::OrderingProtocol::lacks). A follower that still does not catch
//! up is evicted, like one that does not free the log's room, and receives the state. A replica whose log is not
//! written is not waited for here.

use alloc::collections::VecDeque;

use super::GroupLog;
use super::record::LogRecord;
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;
use crate::step::Deliver;

/// Resolution of the lag: it is known up to `max / MARKS`.
const MARKS: u64 = 32;

/// The number of deliveries at some of the last ranks.
///
/// **Invariant.** `marks` rise in both components. Once there is a mark, `marks[0].1 <= delivered < next`.
pub(super) struct Lag {
    max: u64,
    /// Number of our deliveries.
    delivered: u64,
    /// The next mark is made at this delivery.
    next: u64,
    /// The first mark is at least `max` deliveries old, once there are so many.
    marks: VecDeque<(Rank, u64)>,
}

impl Lag {
    pub(super) const fn new(max: u64) -> Self {
        Self { max, delivered: 0, next: 0, marks: VecDeque::new() }
    }

    /// Records that delivery number `delivered` has this rank.
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

    /// Whether a replica that has applied everything up to a rank is `max` deliveries behind. A rank before the first
    /// mark counts as the first mark.
    fn is_full(&self, applied: Rank) -> bool {
        let at = self.marks.partition_point(|(at, _)| *at <= applied);
        let mark = self.marks.get(at.saturating_sub(1));
        mark.is_some_and(|(_, before)| self.delivered - before >= self.max)
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Records a delivery. Returns whether the message's payload is kept because a follower may request it.
    #[inline]
    pub(crate) fn delivers(&mut self, next: &Deliver) -> bool {
        self.lag.note(next.position, next.rank);
        self.payloads.note_delivered(next.message)
    }

    /// As leader: whether a follower that we write to is at the bound of its lag. A follower that has not reported what
    /// it has applied counts as unknown, and is not.
    pub(super) fn is_behind(&self, slot: u8) -> bool {
        let Some(follower) = self.follower(slot) else { return false };
        let applied = self.known_applied(slot);
        self.leads()
            && (follower.told || applied > Rank::NOTHING)
            && self.lag.is_full(applied)
            && !planted(Mutant::LagNotBounded)
    }

    /// As leader: whether a replica that has granted our ballot, and whose log we do not write yet, is at the bound of
    /// its lag.
    pub(super) fn is_granter_behind(&self, slot: u8) -> bool {
        self.lag.is_full(self.granter_applied(slot)) && !planted(Mutant::LagNotBounded)
    }

    /// As leader: whether any follower that we write to is at the bound of its lag.
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
