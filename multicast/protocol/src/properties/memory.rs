//! Bounded memory: no queue, table or buffer grows with the length of the run.

use alloc::format;

use super::Violation;
use crate::ids::ReplicaId;

/// What a replica holds at some moment, and what its sessions and rings allow it to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Messages in its pending table.
    pub pending: usize,
    /// Payloads it holds, in number.
    pub payloads: usize,
    /// And in bytes, those too large for the log.
    pub large_bytes: usize,
    /// And in number, those that were taken although they exceeded the budget for large ones.
    pub beyond_budget: usize,
    /// Entries of its log that may not be overwritten.
    pub log_entries: usize,
    /// Datagrams that wait for room in other processes' rings.
    pub waiting: usize,
    /// Sessions that can have sent it messages.
    pub sessions: usize,
    /// Messages that each may have under way.
    pub window: usize,
    /// Bytes of large payloads that it may hold, and that it may be putting together besides.
    pub large_bytes_max: usize,
    /// The shortest log entry divides the log's ring into so many.
    pub log_entries_max: usize,
    /// Datagrams that may wait besides for replicas that stand still, and are told again anyway.
    pub told_again_max: usize,
    /// Groups of the cluster.
    pub groups: usize,
}

/// Holds at any time.
pub fn check_memory(replica: ReplicaId, footprint: &Footprint) -> Result<(), Violation> {
    let Footprint { sessions, window, groups, .. } = *footprint;
    // A follower that lags holds, besides what the sessions have under way, what its log holds:
    // the leader may have delivered and answered all of that.
    let messages = sessions * window;
    let logged = messages + footprint.log_entries_max;
    #[rustfmt::skip]
    let bounds = [
        ("pending messages",       footprint.pending,     logged),
        ("payloads",               footprint.payloads,    logged),
        ("bytes of large payloads", footprint.large_bytes, footprint.large_bytes_max),
        ("payloads beyond the budget", footprint.beyond_budget, logged),
        ("log entries",            footprint.log_entries, footprint.log_entries_max),
        ("waiting datagrams",      footprint.waiting,     3 * groups * messages + footprint.told_again_max),
    ];
    for (what, have, most) in bounds {
        if have > most {
            let evidence =
                format!("{replica} holds {have} {what}, and at most {most} are accounted for");
            return Err(Violation { property: "bounded memory", evidence });
        }
    }
    Ok(())
}
