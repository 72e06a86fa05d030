//! How many groups the operations of a load address, as far as its definition or its report says it.

use crate::source::Store;

/// What an operation of some kind addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// So many groups.
    Groups(u16),
    /// It is not ordered: leaders or replicas answer by themselves.
    Unordered,
    /// Neither the report nor the definition says it.
    Unreported,
}

/// What an operation of a store's load addresses.
pub(super) fn touched(store: &Store, kind: &str) -> Touched {
    let groups = store.topology.groups;
    if groups == 1 {
        return Touched::Groups(1);
    }
    // Reads of several groups are ordered, except in these modes.
    let unordered = matches!(store.read_mode.as_deref(), Some("lease" | "stale"));
    let all = if unordered { Touched::Unordered } else { Touched::Groups(groups) };
    match (store.workload.as_str(), kind) {
        // A scan reads every group; all other operations have one key.
        (workload, "scan") if workload.starts_with("ycsb-") => all,
        (workload, _) if workload.starts_with("ycsb-") => Touched::Groups(1),
        ("bank", "sum") if store.records >= u64::from(groups) => all,
        // Both accounts of a customer are on one shard.
        ("smallbank", kind) if !TWO_CUSTOMERS.contains(&kind) => Touched::Groups(1),
        // Accounts are dealt evenly to the groups, and a transfer is between two of them.
        ("bank", "transfer") | ("smallbank", _) => Touched::Groups(2),
        _ => Touched::Unreported,
    }
}

/// The kinds of SmallBank's transactions that concern two customers.
const TWO_CUSTOMERS: [&str; 2] = ["amalgamate", "send_payment"];
