//! Reads that are not ordered: what a leader that holds a lease, or is
//! [confirmed](crate::group::GroupLog::is_confirmed), must have delivered before it answers of its own.

#[cfg(test)]
mod confirmations;
#[cfg(test)]
mod leases;

use super::Ramcast;
use crate::guard;
use crate::mutants::Mutant;
use crate::timestamp::Timestamp;

impl Ramcast {
    /// Whether we have delivered everything that anybody can have seen when a read came: then our clock was `clock`, and
    /// `shared` the last entry that others than we may have answered.
    ///
    /// What our group alone was sent in our ballot, nobody answers but we, when we have delivered it. Of
    /// the rest, whatever was delivered anywhere is in our log, the lease says, with all proposals that
    /// it rests on, and our clock was no lower. So when that much is committed, and no bound is left at
    /// or below that clock, it is delivered here.
    pub(super) fn has_delivered_since(&mut self, (clock, shared): (u64, u64)) -> bool {
        let committed = self.log.commit_index() >= shared;
        let above = |bound: Timestamp| bound.clock() > clock;
        let mut delivered = || self.order.least_bound().is_none_or(above);
        guard!(Mutant::ReadTooEarly, committed && delivered())
    }
}
