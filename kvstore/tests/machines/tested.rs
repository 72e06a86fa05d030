//! The store of the tested machines: the memory store.

use skein_kvstore::limits::Limits;
use skein_kvstore::slots::SlotMap;
use skein_multicast::layout::Layout;
use skein_protocol::ids::ReplicaId;

pub(crate) type Machine = skein_kvstore::machine::Machine;

/// Whether the store fetches.
pub(crate) const FETCHES: bool = false;
/// Whether the store keeps states.
pub(crate) const KEEPS: bool = false;
/// So often a query is made before it counts as one that is not answered.
pub(crate) const ATTEMPTS: u32 = 1;

/// An empty machine.
pub(crate) fn machine(
    replica: ReplicaId,
    layout: &Layout,
    slots: SlotMap,
    limits: Limits,
) -> Machine {
    Machine::new(replica, layout, slots, limits)
}

/// Nothing that was kept can be made another state.
pub(crate) const fn spoil() -> bool {
    false
}

/// Number of random cases of a test.
pub(crate) const fn cases(of: u32) -> u32 {
    of
}

/// Checks a machine that waits for nothing and makes no copy.
pub(crate) const fn rests(_: &Machine) {}
