//! Unordered reads: what a leader that holds a lease, or is [confirmed](crate::group::GroupLog::is_confirmed), must
//! have delivered before it answers alone.

#[cfg(test)]
mod confirmations;
#[cfg(test)]
mod leases;

use super::Ramcast;
use crate::guard;
use crate::mutants::Mutant;
use crate::timestamp::Timestamp;

impl Ramcast {
    /// Whether this leader has delivered everything that anybody can have seen when a read arrived. At that time its
    /// clock was `clock`, and `shared` was the last entry that another replica may have answered.
    ///
    /// A message to this group alone that was logged in our ballot is answered by this leader only, after its delivery.
    /// Every other message that was delivered anywhere is in our log, by the lease, with all proposals on which it
    /// depends, and our clock was no lower. So when `shared` is committed, and no pending bound is at or below `clock`,
    /// all of it is delivered here.
    pub(super) fn has_delivered_since(&mut self, (clock, shared): (u64, u64)) -> bool {
        let committed = self.log.commit_index() >= shared;
        let above = |bound: Timestamp| bound.clock() > clock;
        let mut delivered = || self.order.least_bound().is_none_or(above);
        guard!(Mutant::ReadTooEarly, committed && delivered())
    }
}
