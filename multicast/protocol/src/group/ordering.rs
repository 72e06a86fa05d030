//! Queries of the log to the ordering that runs on it.

use crate::rank::Rank;

/// The first message that waits to be delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// Lower bound on the rank of its delivery.
    pub(crate) least: Rank,
    /// Time at which it began to wait.
    pub(crate) since_ms: u64,
}

/// What the ordering has delivered, and what waits.
///
/// A leader's decisions depend on it: a replica that lacks what the group is done with can serve no other, and must not
/// be part of the quorum for which the log waits.
pub(crate) trait Ordering {
    /// The rank up to which our group is known to be done with its deliveries.
    fn done(&self) -> Rank;

    /// Whether an entry below that index is committed, not delivered, and [depends on other
    /// groups](super::LogRecord::depends_on_others).
    fn waits_for_others_below(&self, index: u64) -> bool;
}

/// For an ordering of a single group: nothing depends on other groups.
pub(crate) struct NoOthers;

impl Ordering for NoOthers {
    fn done(&self) -> Rank {
        Rank::NOTHING
    }

    fn waits_for_others_below(&self, _: u64) -> bool {
        false
    }
}
