//! What the tests of this module share.

use super::Config;
use crate::group::testing;
use crate::ids::ReplicaId;

/// The first incarnation of a replica of a cluster of so many groups.
pub(super) const fn config(me: ReplicaId, groups: u16, replicas: u8) -> Config {
    let group = testing::config(me, 0, replicas);
    Config { group, groups, fetch_after_ms: 20 }
}
