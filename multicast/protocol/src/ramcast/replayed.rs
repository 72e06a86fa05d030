//! What a replica that begins with what its disk holds knows of the deliveries that it had made.
//!
//! It had seen quorums hold other groups' proposals, and those groups may have forgotten them since: once all replicas
//! of a group have applied a message, nobody sends it again. So what proved a delivery cannot be asked for a second
//! time, and need not be. Let the replica have delivered everything up to `through`, and nothing above, with the
//! entries that it now knows to be committed. Take a message that is pending now, and whose bound is not above
//! `through`.
//!
//! - If every destination's proposal is there and none is above `through`, it ended at the highest of them, and was
//!   delivered: otherwise nothing above its bound would have been.
//! - Otherwise it was not delivered, and did not hold up what was. So its bound was above `through`, by a proposal that
//!   a quorum was seen to hold. That is one of those above `through` that are there: it ends at the lowest of them, or
//!   above.

use super::delivery::{Pending, Proposal};
use crate::ids::GroupSet;
use crate::rank::Rank;
use crate::timestamp::Timestamp;

/// How far a replica had delivered before it began with what its disk holds, or the leader whose log it was fed.
#[derive(Default)]
pub(super) struct Replayed {
    through: Timestamp,
}

impl Replayed {
    /// Everything up to this rank had been delivered, by what is committed so far.
    pub(super) fn reach(&mut self, rank: Rank) {
        self.through = self.through.max(rank.into());
    }

    /// The groups whose proposals for a pending message are proven, and the timestamp at or above which it ends.
    #[inline]
    pub(super) fn known_of(&self, pending: &Pending) -> (GroupSet, Timestamp) {
        let seen = (pending.proven(), pending.bound());
        if pending.bound() > self.through { seen } else { self.known_again(pending) }
    }

    #[cold]
    fn known_again(&self, pending: &Pending) -> (GroupSet, Timestamp) {
        let timestamps = || pending.remotes().iter().map(|remote| remote.timestamp);
        let above = timestamps().filter(|timestamp| *timestamp > self.through).min();
        match above {
            Some(least) => (pending.proven(), least),
            None if pending.has_all_proposals() => {
                let all = pending.remotes().iter().map(Proposal::group).collect();
                (all, timestamps().fold(pending.bound(), Timestamp::max))
            }
            None => (pending.proven(), pending.bound()),
        }
    }
}

#[cfg(test)]
mod tests;
