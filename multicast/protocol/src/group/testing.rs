//! What tests of the log, and of orderings on it, share.

use super::GroupConfig;
use crate::ids::ReplicaId;

/// One incarnation of a replica.
pub(crate) const fn config(me: ReplicaId, incarnation: u32, replicas: u8) -> GroupConfig {
    GroupConfig {
        me,
        incarnation,
        replicas,
        patience_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        evict_after_ms: 100,
        lease_ms: 40,
        clock_skew_percent: 10,
        spread_after_ms: 0,
    }
}
