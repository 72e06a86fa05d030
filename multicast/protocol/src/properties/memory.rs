//! Bounded memory: no queue, table or buffer grows with the length of the run.

use alloc::format;

use super::Violation;
use crate::ids::ReplicaId;

/// Memory use of a replica at one moment, and the bounds that follow from its sessions and rings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Messages in the pending table.
    pub pending: usize,
    /// Number of payloads held.
    pub payloads: usize,
    /// Bytes of held payloads that are too large for the log.
    pub large_bytes: usize,
    /// Number of hints, and their bytes, those included of which not all has come.
    pub hints: usize,
    pub hint_bytes: usize,
    /// Number of payloads that were taken although they exceeded the budget for large ones.
    pub beyond_budget: usize,
    /// Log entries that must not be overwritten.
    pub log_entries: usize,
    /// Datagrams that wait for room in other processes' rings.
    pub waiting: usize,
    /// Sessions that can have sent messages to the replica.
    pub sessions: usize,
    /// Maximum number of messages in flight per session.
    pub window: usize,
    /// Maximum bytes of large payloads that the replica may hold and may be assembling.
    pub large_bytes_max: usize,
    /// Maximum bytes of hints: what large payloads leave of the budget for them.
    pub hint_bytes_max: usize,
    /// Maximum number of entries in the log's ring: its size divided by the shortest entry.
    pub log_entries_max: usize,
    /// Maximum number of additional datagrams that may wait for paused replicas. These are repeated anyway.
    pub repeated_max: usize,
    /// Number of groups in the cluster.
    pub groups: usize,
}

/// Checks the bounds. They hold at any time.
pub fn check_memory(replica: ReplicaId, footprint: &Footprint) -> Result<(), Violation> {
    let Footprint { sessions, window, groups, .. } = *footprint;
    // A lagging follower holds the messages that sessions have in flight, and also those in its log: the leader may
    // have delivered and answered all of the latter.
    let messages = sessions * window;
    let logged = messages + footprint.log_entries_max;
    #[rustfmt::skip]
    let bounds = [
        ("pending messages",       footprint.pending,     logged),
        ("payloads",               footprint.payloads,    logged),
        ("bytes of large payloads", footprint.large_bytes, footprint.large_bytes_max),
        ("hints",                  footprint.hints,       messages),
        ("bytes of hints",         footprint.hint_bytes,  footprint.hint_bytes_max),
        ("payloads beyond the budget", footprint.beyond_budget, logged),
        ("log entries",            footprint.log_entries, footprint.log_entries_max),
        ("waiting datagrams",      footprint.waiting,     3 * groups * messages + footprint.repeated_max),
    ];
    for (what, have, most) in bounds {
        if have > most {
            let evidence = format!("{replica} holds {have} {what}, more than the bound of {most}");
            return Err(Violation { property: "bounded memory", evidence });
        }
    }
    Ok(())
}
