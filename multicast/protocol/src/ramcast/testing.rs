//! Shared by the tests of this module.

use super::Config;
use crate::group::testing;
use crate::ids::ReplicaId;
use crate::tram::tree::Tree;

/// Configuration of a replica's first incarnation, in a cluster of `groups` groups.
pub(super) fn config(me: ReplicaId, groups: u16, replicas: u8) -> Config {
    let group = testing::config(me, 0, replicas);
    let (held_bytes_max, tree) = (64 << 20, Tree::breadth(groups).parents());
    Config { group, groups, fetch_after_ms: 20, held_bytes_max, tree }
}
