//! Leadership returns to slot 0, so that leaders are spread over the nodes as at the start.
//!
//! After a few failures one node may lead most groups, and when it fails, all of them lose their leader. The layout puts
//! the slots 0 on different nodes. So a leader in another slot hands over to the replica in slot 0, the *preferred*
//! one, by the same request as to a transferee (`leadership_transfer`), once both have been well for
//! `spread_after_ms` and the preferred replica has caught up.
//!
//! **No loop.** By this rule leadership moves only to slot 0, and slot 0 hands over to no other. A leader asks at most
//! [`ASKS_MAX`] times in one ballot. If it has to lead again soon after it handed over, it waits twice as long the next
//! time, up to sixteen times as long.
//!
//! **An operator's choice stays.** A leader that an operator asked for does not hand over, until leadership changes for
//! another reason.

use super::record::LogRecord;
use super::{Cause, GroupLog};

/// Time for which a leader fails to deliver what another has applied before it hands over, in timeouts.
pub(super) const TRANSFER_TIMEOUTS: u64 = 10;

/// The slot that leads if nothing prevents it.
const PREFERRED: u8 = 0;
/// Maximum number of requests in one ballot: the first may be lost.
const ASKS_MAX: u8 = 3;
/// Leading again within this many waits after a handover doubles the wait.
const SOON: u64 = 8;
const DOUBLINGS_MAX: u32 = 4;

/// State of this rule at one replica.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    /// An operator wants this replica to lead.
    chosen: bool,
    /// Time of its election, or of its last request to the preferred replica.
    since_ms: u64,
    /// Number of requests in this ballot.
    asks: u8,
    /// Time of its last request in any ballot.
    asked_ms: Option<u64>,
    doublings: u32,
}

impl Spread {
    /// Sets out to lead. A campaign that preempts another candidate keeps the reason for which this replica leads.
    pub(super) fn set_out(&mut self, cause: Cause) {
        self.chosen = cause == Cause::Operator || cause == Cause::Preempted && self.chosen;
    }

    /// This replica is elected.
    pub(super) fn lead(&mut self, now_ms: u64, wait_ms: u64) {
        if let Some(asked) = self.asked_ms.filter(|_| self.asks > 0) {
            let soon = now_ms < asked + SOON * (wait_ms << self.doublings);
            self.doublings = if soon { (self.doublings + 1).min(DOUBLINGS_MAX) } else { 0 };
        }
        (self.since_ms, self.asks) = (now_ms, 0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: the preferred slot, if it is time to hand over to it. It counts, holds everything that is committed,
    /// and has reported what it has applied.
    pub(super) fn preferred(&self) -> Option<u8> {
        let wait = self.config.spread_after_ms << self.spread.doublings;
        let Spread { chosen, since_ms, asks, .. } = self.spread;
        let wanted = self.leads()
            && self.config.me.slot != PREFERRED
            && wait > 0
            && !chosen
            && asks < ASKS_MAX
            && self.entries.commit >= self.entries.first
            && self.now_ms >= since_ms + wait
            && self.detector.well_for_ms(PREFERRED, self.now_ms) >= wait;
        let holds = |slot: u8| {
            let named = |incarnation| self.members.view.names(slot, incarnation);
            let told = self
                .follower(slot)
                .is_some_and(|follower| follower.told && named(follower.incarnation));
            let counts = !self.members.view.member(slot).evicted && !self.is_changing(slot);
            counts && told && self.holds_committed(slot)
        };
        (wanted && holds(PREFERRED)).then_some(PREFERRED)
    }

    /// Records a request to the preferred replica to lead.
    pub(crate) fn has_handed_over(&mut self) {
        self.spread.since_ms = self.now_ms;
        self.spread.asked_ms = Some(self.now_ms);
        self.spread.asks += 1;
        self.paths.spread += 1;
    }

    /// Whether `slot` was recently asked to lead: its candidacy must not be preempted.
    pub(crate) fn is_transferee(&self, slot: u8) -> bool {
        let asked = self.spread.asked_ms.filter(|_| self.leads() && slot == PREFERRED);
        asked.is_some_and(|asked| self.now_ms < asked + TRANSFER_TIMEOUTS * self.config.timeout_ms)
    }
}
