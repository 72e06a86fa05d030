//! Space on disk that the log of a node takes, with the snapshots in it.

use skein_multicast::config::Conflict;

use super::{ClusterConfig, Durability, exact_bytes, show_bytes};

/// Bytes of a group's log after which its state is written; if the state is larger, as many as that has.
pub const SNAPSHOT_AFTER: u64 = 256 << 20;

/// Length of a segment of the log in bytes.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Segments that are there beside those with records that are needed.
const SEGMENTS_BESIDE: u64 = 4;

/// Bytes to which a log may grow before all that is in front of the next snapshots is recycled, given the bytes in the states
/// of a node's replicas. The state of a group is written when as much log as this has been written since the last time
/// ([`held_back_max`]), whatever the group has to do with it; the old state and the new one are there at once.
pub fn log_bytes_max(states: impl Iterator<Item = u64>) -> u64 {
    let each = states.map(|state| 2 * (state + state.max(SNAPSHOT_AFTER)));
    each.sum::<u64>() + SEGMENTS_BESIDE * SEGMENT_BYTES
}

/// Bytes of log, of all groups of a node together, that a group may hold back before its state is written: twice what is
/// written if all of them write as much.
pub fn held_back_max(groups: u64, snapshot: u64) -> u64 {
    2 * groups * snapshot.max(SNAPSHOT_AFTER)
}

impl ClusterConfig {
    /// Bytes to which the log of a node may grow when its replicas hold as much as they may.
    pub fn log_bytes_max(&self) -> u64 {
        let layout = self.layout();
        let (replicas, state) =
            (layout.replicas_per_node_max(), self.limits.group_bytes_max(&layout));
        log_bytes_max((0..replicas).map(|_| state))
    }

    /// Fails if what a node may hold does not fit into what it may take on disk.
    pub(super) fn check_disk(&self) -> Result<(), Conflict> {
        let Some(most) = self.disk_bytes_max else { return Ok(()) };
        if self.durability == Durability::Memory {
            return Err(Conflict {
                first: "node.durability = memory".to_owned(),
                second: format!("node.disk_bytes_max = {}", exact_bytes(most)),
                why: "a cluster in memory writes no data anywhere",
            });
        }
        let needed = self.log_bytes_max();
        if needed <= most {
            return Ok(());
        }
        Err(Conflict {
            first: format!(
                "node.disk_bytes_max = {} ({} may be needed)",
                exact_bytes(most),
                show_bytes(needed)
            ),
            second: format!(
                "limits.memory_bytes_max = {}",
                exact_bytes(self.limits.memory_bytes_max)
            ),
            why: "the log of a node must fit, with the states in it: raise the first, or lower the second",
        })
    }
}
