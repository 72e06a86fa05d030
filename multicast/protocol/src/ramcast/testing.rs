//! What the tests of this module share.

use super::Config;
use crate::group::GroupConfig;
use crate::ids::ReplicaId;

/// The first incarnation of a replica of a cluster of so many groups.
pub(super) const fn config(me: ReplicaId, groups: u16, replicas: u8) -> Config {
    let group = GroupConfig {
        me,
        incarnation: 0,
        replicas,
        patience_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        lease_ms: 40,
        clock_skew_percent: 10,
        spread_after_ms: 0,
    };
    Config { group, groups, fetch_after_ms: 20, lag_max: 64 }
}
