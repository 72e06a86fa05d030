//! Limits on the size of commands, and on the memory of a node.

use serde::{Deserialize, Serialize};
use skein_fabric::Constants;
use skein_multicast::config::Conflict;
use skein_multicast::layout::Layout;

/// Part of the cluster's configuration. All groups must decide alike, so the limits are equal on all nodes and clients.
/// Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
    /// Maximum number of distinct keys in one transaction, in its guards and both branches together. On average a key
    /// may be mentioned four times.
    pub transaction_keys_max: usize,
    /// Maximum length of a transaction as sent; also, of the values that append and patch write in one transaction,
    /// together.
    pub transaction_bytes_max: usize,
    /// Maximum length of one group's answer to one transaction.
    pub reply_bytes_max: usize,
    /// Maximum number of pairs in a page of a scan.
    pub scan_pairs_max: usize,
    /// Maximum length of keys and values in a page of a scan. A page of a single pair may exceed it.
    pub scan_page_bytes_max: usize,
    /// Memory of the replicas of one node together: keys, values, replies kept for sessions, and an overhead for each.
    /// Each group has an equal share, `memory_bytes_max` divided by the most replicas that any node hosts. Writes
    /// beyond the share are refused.
    pub memory_bytes_max: u64,
    /// The same for replicas that hold keys and values on disk: it bounds them in place of `memory_bytes_max`. 0 if they
    /// hold them in memory.
    pub store_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes_max: 4 << 10,
            value_bytes_max: 1 << 20,
            transaction_keys_max: 128,
            transaction_bytes_max: 4 << 20,
            reply_bytes_max: 4 << 20,
            scan_pairs_max: 10_000,
            scan_page_bytes_max: 1 << 20,
            memory_bytes_max: 1 << 30,
            store_bytes_max: 0,
        }
    }
}

/// Bound on the bytes of a command besides its longest key and value.
const COMMAND_OVERHEAD: usize = 64;

impl Limits {
    /// The limits as constants, which must be equal on all nodes.
    pub fn constants(&self) -> Constants {
        Constants::default()
            .with("limits.key_bytes_max", self.key_bytes_max)
            .with("limits.value_bytes_max", self.value_bytes_max)
            .with("limits.transaction_keys_max", self.transaction_keys_max)
            .with("limits.transaction_bytes_max", self.transaction_bytes_max)
            .with("limits.reply_bytes_max", self.reply_bytes_max)
            .with("limits.scan_pairs_max", self.scan_pairs_max)
            .with("limits.scan_page_bytes_max", self.scan_page_bytes_max)
            .with("limits.memory_bytes_max", self.memory_bytes_max)
            .with("limits.store_bytes_max", self.store_bytes_max)
    }

    /// The entry that bounds what a node holds, and its value.
    pub const fn node_bytes_max(&self) -> (&'static str, u64) {
        match self.store_bytes_max {
            0 => ("limits.memory_bytes_max", self.memory_bytes_max),
            most => ("limits.store_bytes_max", most),
        }
    }

    /// The ceiling of each group: [`node_bytes_max`](Self::node_bytes_max) divided by the most replicas that any node
    /// hosts. Each replica decides by itself whether a command is refused at the ceiling, so the ceiling must not depend on
    /// the node: some nodes host fewer replicas than others.
    pub fn group_bytes_max(&self, layout: &Layout) -> u64 {
        self.node_bytes_max().1 / u64::from(layout.replicas_per_node_max().max(1))
    }

    /// Checks each limit, and the limits against each other.
    ///
    /// # Errors
    /// The first conflict.
    pub fn check(&self) -> Result<(), Conflict> {
        let pair = self.key_bytes_max.saturating_add(self.value_bytes_max);
        let largest = pair.saturating_add(COMMAND_OVERHEAD);
        let page = self.scan_page_bytes_max.saturating_add(largest);
        let entry = |name: &str, value: usize| format!("{name} = {value}");
        // A conflict names the longer of the two.
        let longest = if self.key_bytes_max > self.value_bytes_max {
            entry("key_bytes_max", self.key_bytes_max)
        } else {
            entry("value_bytes_max", self.value_bytes_max)
        };
        #[rustfmt::skip]
        let rules: [(bool, String, String, &'static str); 9] = [
            (self.key_bytes_max >= 1,
             entry("key_bytes_max", self.key_bytes_max), "at least 1".into(), "is the length of the shortest useful key"),
            (self.value_bytes_max <= 1 << 28,
             entry("value_bytes_max", self.value_bytes_max), "268435456".into(), "is the longest value that can be sent"),
            ((1..=1 << 12).contains(&self.transaction_keys_max),
             entry("transaction_keys_max", self.transaction_keys_max), "1 to 4096".into(), "is what a transaction can name"),
            (self.scan_pairs_max >= 1,
             entry("scan_pairs_max", self.scan_pairs_max), "at least 1".into(), "is the shortest page that makes progress"),
            (self.transaction_bytes_max >= largest,
             entry("transaction_bytes_max", self.transaction_bytes_max), longest.clone(),
             "a transaction must have room for 64 bytes, the longest key and the longest value"),
            (self.reply_bytes_max >= largest,
             entry("reply_bytes_max", self.reply_bytes_max), longest.clone(),
             "a reply must have room for 64 bytes, the longest key and the longest value"),
            (self.reply_bytes_max >= page,
             entry("reply_bytes_max", self.reply_bytes_max), entry("scan_page_bytes_max", self.scan_page_bytes_max),
             "a reply must have room for a page, 64 bytes, the longest key and the longest value"),
            // The outcome of a write, or of exists, is no longer than 16 bytes. Only values that were read can make a
            // reply too long.
            (self.reply_bytes_max / 64 >= self.transaction_keys_max,
             entry("reply_bytes_max", self.reply_bytes_max), entry("transaction_keys_max", self.transaction_keys_max),
             "a reply must have room for four outcomes of 16 bytes for each key"),
            (self.memory_bytes_max >= 16 << 20,
             format!("memory_bytes_max = {}", self.memory_bytes_max), "at least 16777216".into(), "is what a node can work with"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, first, second, why)) => Err(Conflict { first, second, why }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;

    use super::*;

    #[test]
    fn a_budget_on_disk_takes_the_place_of_the_memory_ceiling() {
        let topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };
        let layout = Layout::propose(topology).unwrap();
        let on_disk =
            Limits { memory_bytes_max: 16 << 20, store_bytes_max: 24 << 30, ..Limits::default() };
        assert_eq!(on_disk.group_bytes_max(&layout), 12 << 30);
        let in_memory = Limits { store_bytes_max: 0, ..on_disk };
        assert_eq!(in_memory.group_bytes_max(&layout), 8 << 20);
        assert_ne!(
            on_disk.constants(),
            in_memory.constants(),
            "nodes with another one are refused"
        );
    }

    #[test]
    fn what_cannot_work_together_is_named() {
        let good = Limits::default();
        assert_eq!(good.check(), Ok(()));
        #[rustfmt::skip]
        let cases = [
            (Limits { transaction_bytes_max: 1 << 20, ..good }, "transaction_bytes_max", "value_bytes_max"),
            (Limits { value_bytes_max: 4 << 20, ..good },       "transaction_bytes_max", "value_bytes_max"),
            (Limits { scan_page_bytes_max: 4 << 20, ..good },   "reply_bytes_max",       "scan_page_bytes_max"),
            (Limits { transaction_keys_max: 1 << 12, reply_bytes_max: 1 << 17, value_bytes_max: 1000, scan_page_bytes_max: 1000, ..good },
                                                                "reply_bytes_max",       "transaction_keys_max"),
            (Limits { scan_pairs_max: 0, ..good },              "scan_pairs_max",        "at least 1"),
            (Limits { transaction_keys_max: 0, ..good },        "transaction_keys_max",  "1 to 4096"),
            (Limits { key_bytes_max: usize::MAX, ..good },      "transaction_bytes_max", "key_bytes_max"),
            (Limits { memory_bytes_max: 1, ..good },            "memory_bytes_max",      "at least"),
        ];
        for (limits, first, second) in cases {
            let conflict = limits.check().unwrap_err();
            assert!(
                conflict.first.starts_with(first) && conflict.second.starts_with(second),
                "{conflict}"
            );
        }
    }
}
