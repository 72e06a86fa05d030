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
/// of a node's replicas. The old state of a group and the new one are there at once, each with the log behind it: that of
/// the new one is written meanwhile. A group that logs little may [hold back](held_back_for) more
/// than that.
pub fn log_bytes_max(states: impl Iterator<Item = u64>) -> u64 {
    let each = states.map(|state| 2 * (state + state.max(SNAPSHOT_AFTER)));
    each.sum::<u64>() + SEGMENTS_BESIDE * SEGMENT_BYTES
}

/// Bytes of log beside states that each group of a node may hold back before its state is written, because of a group
/// whose state has `state` bytes: half more than what that group logs until it is due, since blocks of the log may be half
/// empty. A group may hold back the sum of this for all groups of the node.
pub const fn held_back_for(state: u64) -> u64 {
    3 * if state > SNAPSHOT_AFTER { state } else { SNAPSHOT_AFTER } / 2
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
        let (entry, held) = self.limits.node_bytes_max();
        Err(Conflict {
            first: format!(
                "node.disk_bytes_max = {} ({} may be needed)",
                exact_bytes(most),
                show_bytes(needed)
            ),
            second: format!("{entry} = {}", exact_bytes(held)),
            why: "the log of a node must fit, with the states in it: raise the first, or lower the second",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{ConfigError, Draft};

    fn of(text: &str) -> Result<ClusterConfig, ConfigError> {
        Draft::parse(text, Path::new("skein.toml")).and_then(Draft::finish)
    }

    #[test]
    fn a_store_on_disk_has_a_budget_of_its_own() {
        let text = "[topology]\ngroups = 1\n[node]\nstore = \"rocksdb\"\nhot_bytes = \"64MiB\"\n[limits]\n";
        let config =
            of(&format!("{text}memory_bytes_max = \"16MiB\"\nstore_bytes_max = \"12GiB\"\n"))
                .expect("it needs no such memory");
        assert_eq!(config.limits.group_bytes_max(&config.layout()), 12 << 30);
        assert_eq!(config.bytes_in_memory(), ("node.hot_bytes", 64 << 20));
        assert_eq!(of(&config.print()), Ok(config), "it is the same when it is read again");
        for unset in ["", "store_bytes_max = 0\n"] {
            let config = of(&format!("{text}{unset}")).expect("it has a default");
            assert_eq!(config.limits.group_bytes_max(&config.layout()), 64 << 30);
        }
        let error = of(&format!("{text}store_bytes_max = \"1MiB\"\n")).unwrap_err().to_string();
        assert!(error.starts_with("skein.toml:7: limits.store_bytes_max = 1MiB"), "{error}");
        let bound = text.replace("[limits]", "disk_bytes_max = \"40GiB\"\n[limits]");
        let error = of(&format!("{bound}store_bytes_max = \"12GiB\"\n")).unwrap_err().to_string();
        assert!(error.contains("limits.store_bytes_max = 12GiB"), "{error}");
    }

    #[test]
    fn a_store_in_memory_has_none() {
        let config = of("").expect("the defaults");
        assert_eq!(config.limits.store_bytes_max, 0);
        let error = of("[limits]\nstore_bytes_max = \"12GiB\"\n").unwrap_err().to_string();
        assert!(error.starts_with("skein.toml:2: limits.store_bytes_max = 12GiB"), "{error}");
        assert!(error.contains("node.store = memory"), "{error}");
    }
}
