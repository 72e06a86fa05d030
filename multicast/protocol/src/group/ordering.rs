//! What the log asks of the ordering that stands on it.

use crate::rank::Rank;

/// What waits to be delivered first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// It is delivered under this number, or a higher one.
    pub(crate) least: Rank,
    /// Since when it waits, by our time.
    pub(crate) since_ms: u64,
}

/// What is delivered, and what waits, as the ordering counts it.
///
/// What a leader may do for its group depends on it: a replica that lacks what the group is done with can serve nobody,
/// and must not be one of the quorum that is waited for.
pub(crate) trait Ordering {
    /// Up to here our group is done with what it delivers, as we were told.
    fn done(&self) -> Rank;

    /// Whether something that is committed below that index and not delivered [rests on
    /// others](super::LogRecord::depends_on_others).
    fn waits_for_others_below(&self, index: u64) -> bool;
}

/// Nothing rests on other groups, for there are none.
pub(crate) struct NoOthers;

impl Ordering for NoOthers {
    fn done(&self) -> Rank {
        Rank::NOTHING
    }

    fn waits_for_others_below(&self, _: u64) -> bool {
        false
    }
}
