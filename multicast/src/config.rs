//! The sizes of a cluster and of its memory, with the checks that they can work.

use std::fmt;

use serde::{Deserialize, Serialize};
use skein_fabric::Constants;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};

/// The number of nodes, groups, replicas and engines. A [`Layout`](crate::layout::Layout) assigns the replicas to nodes
/// and engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Operating-system processes.
    pub nodes: u16,
    /// Shards.
    pub groups: u16,
    /// Replicas per group: 2f+1.
    pub replicas: u8,
    /// Engine threads of each node.
    pub engines: u16,
}

impl Topology {
    /// Maximum number of replicas of a group: the tag of an acceptance word names the leader in four bits.
    pub const REPLICAS_MAX: u8 = 15;
    /// Maximum number of nodes.
    pub const NODES_MAX: u16 = 64;

    /// The entries as constants, which must be equal on all nodes.
    pub fn constants(&self) -> Constants {
        Constants::default()
            .with("topology.nodes", self.nodes)
            .with("topology.groups", self.groups)
            .with("topology.replicas", self.replicas)
            .with("topology.engines", self.engines)
    }

    /// All groups.
    pub fn all_groups(&self) -> GroupSet {
        GroupSet::first(self.groups)
    }

    /// Number of replicas in a quorum: f+1 of 2f+1.
    pub fn quorum(&self) -> usize {
        usize::from(self.replicas) / 2 + 1
    }

    /// Whether the cluster has such a replica.
    pub fn has(&self, replica: ReplicaId) -> bool {
        replica.group.0 < self.groups && replica.slot < self.replicas
    }

    /// The replicas of `group`.
    pub fn replicas_of(&self, group: GroupId) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.replicas).map(move |slot| ReplicaId::new(group, slot))
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// The first conflict.
    pub fn check(&self) -> Result<(), Conflict> {
        let conflict =
            |first: String, second: String, why: &'static str| Err(Conflict { first, second, why });
        let Self { nodes, groups, replicas, engines } = *self;
        if nodes == 0 || nodes > Self::NODES_MAX {
            return conflict(format!("nodes = {nodes}"), "1 to 64".into(), "is the range of nodes");
        }
        if groups == 0 || groups > GroupSet::CAPACITY {
            return conflict(
                format!("groups = {groups}"),
                "1 to 64".into(),
                "is the range of groups",
            );
        }
        if replicas % 2 == 0 || replicas > Self::REPLICAS_MAX {
            return conflict(
                format!("replicas = {replicas}"),
                "1, 3, 5 … 15".into(),
                "are the numbers of replicas that tolerate f failures with 2f+1",
            );
        }
        if u16::from(replicas) > nodes {
            return conflict(
                format!("replicas = {replicas}"),
                format!("nodes = {nodes}"),
                "replicas of one group must run on different nodes",
            );
        }
        if engines == 0 || engines > groups {
            return conflict(
                format!("engines = {engines}"),
                format!("groups = {groups}"),
                "each engine thread needs at least one group, and each node at least one engine",
            );
        }
        Ok(())
    }
}

/// The name of an engine on the fabric: `n2e0` is engine 0 of node 2.
pub fn endpoint_name(node: u16, engine: u16) -> String {
    format!("n{node}e{engine}")
}

/// Two settings that contradict each other, or one that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// A setting and its value, as written in the configuration.
    pub first: String,
    /// The other setting and its value; or the range, which contains no `=`.
    pub second: String,
    /// The reason; or, for a range, the quantity to which it applies.
    pub why: &'static str,
}

impl Conflict {
    /// Whether a setting is out of its range, regardless of other settings.
    pub fn is_of_range(&self) -> bool {
        !self.second.contains('=')
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, why } = self;
        if self.is_of_range() {
            write!(f, "{first} is out of range: {second} {why}")
        } else {
            write!(f, "{first} does not work with {second}: {why}")
        }
    }
}

impl std::error::Error for Conflict {}

/// Sizes of memory, bounds of queues, and times. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Size of a replica's log ring.
    pub log_bytes: usize,
    /// Longest payload that travels in the log. A longer one is held in each replica's own memory, at least until it is
    /// delivered.
    pub inline_bytes_max: usize,
    /// Initial size of a session's ring at a replica, and of a replica's reply ring at a session.
    pub ring_bytes: usize,
    /// Maximum size of such a ring.
    pub ring_bytes_max: usize,
    /// Total size of the rings of one engine beyond which none of them grows.
    pub rings_bytes_max: usize,
    /// Size of the ring between two replicas.
    pub peer_ring_bytes: usize,
    /// Maximum number of outstanding messages of one session.
    pub window: usize,
    pub payload_bytes_max: usize,
    /// Total size of payloads longer than `inline_bytes_max` that one replica holds before sessions must wait.
    pub held_bytes_max: usize,
    /// Time for which a payload may be missing before it is fetched from another replica.
    pub fetch_after_ms: u64,
    /// Interval at which an engine raises its heartbeat and reads those of others. An engine that has had no work for a
    /// while does so less often, up to ten times.
    pub heartbeat_ms: u64,
    /// Consecutive unchanged reads of a heartbeat after which its engine is suspected. A changed one compensates for
    /// fifteen, up to this limit.
    pub heartbeats_missed_max: u32,
    /// Time for which a follower may block its leader before it is evicted.
    pub evict_after_ms: u64,
    /// Time for which a follower, when it grants a lease for reads, promises its leader to let no other replica lead.
    pub lease_ms: u64,
    /// Bound on the error of a clock's rate, in percent.
    pub clock_skew_percent: u8,
    /// Time for which a leader in a slot other than 0, and the replica in slot 0, must have been well before leadership
    /// returns to slot 0, so that leaders are spread over the nodes; 0 means never.
    pub spread_after_ms: u64,
}

impl Tuning {
    /// The entries that must be equal on all nodes: sizes of memory that several nodes write, and times that nodes
    /// promise each other.
    pub fn constants(&self) -> Constants {
        Constants::default()
            .with("tuning.log_bytes", self.log_bytes)
            .with("tuning.inline_bytes_max", self.inline_bytes_max)
            .with("tuning.ring_bytes", self.ring_bytes)
            .with("tuning.ring_bytes_max", self.ring_bytes_max)
            .with("tuning.rings_bytes_max", self.rings_bytes_max)
            .with("tuning.peer_ring_bytes", self.peer_ring_bytes)
            .with("tuning.window", self.window)
            .with("tuning.payload_bytes_max", self.payload_bytes_max)
            .with("tuning.held_bytes_max", self.held_bytes_max)
            .with("tuning.fetch_after_ms", self.fetch_after_ms)
            .with("tuning.heartbeat_ms", self.heartbeat_ms)
            .with("tuning.heartbeats_missed_max", self.heartbeats_missed_max)
            .with("tuning.evict_after_ms", self.evict_after_ms)
            .with("tuning.lease_ms", self.lease_ms)
            .with("tuning.clock_skew_percent", self.clock_skew_percent)
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            log_bytes: 4 << 20,
            inline_bytes_max: 4 << 10,
            ring_bytes: 16 << 10,
            ring_bytes_max: 256 << 10,
            rings_bytes_max: 512 << 20,
            peer_ring_bytes: 256 << 10,
            window: 64,
            payload_bytes_max: 4 << 20,
            held_bytes_max: 64 << 20,
            fetch_after_ms: 20,
            heartbeat_ms: 5,
            heartbeats_missed_max: 20,
            evict_after_ms: 100,
            lease_ms: 40,
            clock_skew_percent: 10,
            spread_after_ms: 3_000,
        }
    }
}

impl Tuning {
    /// Checks each entry, and the entries against each other.
    ///
    /// # Errors
    /// The first conflict.
    pub fn check(&self) -> Result<(), Conflict> {
        #[rustfmt::skip]
        let rules: [(bool, String, String, &'static str); 16] = [
            (self.log_bytes.is_power_of_two() && self.log_bytes >= 16 << 10,
             format!("log_bytes = {}", self.log_bytes), "a power of two from 16384".into(), "is required of a log ring"),
            (self.ring_bytes.is_power_of_two() && self.ring_bytes >= 4 << 10,
             format!("ring_bytes = {}", self.ring_bytes), "a power of two from 4096".into(), "is required of a ring"),
            (self.ring_bytes_max <= 1 << 30,
             format!("ring_bytes_max = {}", self.ring_bytes_max), "1 GiB".into(), "is the most a ring can hold"),
            (self.peer_ring_bytes <= 1 << 30,
             format!("peer_ring_bytes = {}", self.peer_ring_bytes), "1 GiB".into(), "is the most a ring can hold"),
            (self.ring_bytes_max.is_power_of_two() && self.ring_bytes_max >= self.ring_bytes,
             format!("ring_bytes_max = {}", self.ring_bytes_max), format!("ring_bytes = {}", self.ring_bytes),
             "a ring grows from one to the other by doubling"),
            (self.peer_ring_bytes.is_power_of_two() && self.peer_ring_bytes >= 4 << 10,
             format!("peer_ring_bytes = {}", self.peer_ring_bytes), "a power of two from 4096".into(),
             "is required of a ring between replicas"),
            (self.inline_bytes_max <= self.log_bytes / 16,
             format!("inline_bytes_max = {}", self.inline_bytes_max), format!("log_bytes = {}", self.log_bytes),
             "a log must have room for sixteen of the largest entries"),
            (self.inline_bytes_max <= self.payload_bytes_max,
             format!("inline_bytes_max = {}", self.inline_bytes_max), format!("payload_bytes_max = {}", self.payload_bytes_max),
             "an inline payload cannot exceed the largest payload"),
            (self.held_bytes_max >= 2 * self.payload_bytes_max,
             format!("held_bytes_max = {}", self.held_bytes_max), format!("payload_bytes_max = {}", self.payload_bytes_max),
             "two of the largest payloads must fit"),
            (self.payload_bytes_max <= 1 << 30,
             format!("payload_bytes_max = {}", self.payload_bytes_max), "1 GiB".into(), "is the most a message can carry"),
            ((1..=4096).contains(&self.window),
             format!("window = {}", self.window), "1 to 4096".into(), "is the range of a session's window"),
            ((1..=1000).contains(&self.heartbeat_ms),
             format!("heartbeat_ms = {}", self.heartbeat_ms), "1 to 1000".into(), "is the range of the time between heartbeats"),
            ((2..=1000).contains(&self.heartbeats_missed_max),
             format!("heartbeats_missed_max = {}", self.heartbeats_missed_max), "2 to 1000".into(), "is the range of heartbeats missed"),
            ((1..=10_000).contains(&self.lease_ms),
             format!("lease_ms = {}", self.lease_ms), "1 to 10000".into(), "is the range of a lease"),
            (self.clock_skew_percent < 100,
             format!("clock_skew_percent = {}", self.clock_skew_percent), "0 to 99".into(), "is the range of the error of a clock's rate"),
            (self.spread_after_ms <= 3_600_000,
             format!("spread_after_ms = {}", self.spread_after_ms), "0 to 3600000".into(), "is the range of the time before leaders spread"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, first, second, why)) => Err(Conflict { first, second, why }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_cannot_work_together_is_named() {
        let good = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };
        assert_eq!(good.check(), Ok(()));
        #[rustfmt::skip]
        let cases = [
            (Topology { replicas: 5, ..good }, "replicas = 5", "nodes = 3"),
            (Topology { replicas: 2, ..good }, "replicas = 2", "1, 3"),
            (Topology { engines: 3, ..good },  "engines = 3",  "groups = 2"),
            (Topology { groups: 65, ..good },  "groups = 65",  "1 to 64"),
            (Topology { nodes: 0, ..good },    "nodes = 0",    "1 to 64"),
        ];
        for (topology, first, second) in cases {
            let conflict = topology.check().unwrap_err();
            assert!(conflict.first == first && conflict.second.starts_with(second), "{conflict}");
        }
        assert_eq!(Tuning::default().check(), Ok(()));
        let small = Tuning { held_bytes_max: 1 << 20, ..Tuning::default() };
        assert!(small.check().unwrap_err().to_string().contains("payload_bytes_max"));
        let long = Tuning { ring_bytes_max: 2 << 30, ..Tuning::default() };
        assert!(long.check().unwrap_err().to_string().contains("ring_bytes_max = 2147483648"));
        let long = Tuning { peer_ring_bytes: 2 << 30, ..Tuning::default() };
        assert!(long.check().unwrap_err().to_string().contains("peer_ring_bytes = 2147483648"));
    }
}
