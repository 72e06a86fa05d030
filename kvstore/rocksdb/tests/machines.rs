//! Machines over this store: the tests of `kvstore/tests/machines`, with the memory store beside it.

#[path = "../../tests/machines/backups.rs"]
mod backups;
mod both;
#[path = "../../tests/machines/cluster.rs"]
mod cluster;
#[path = "../../tests/machines/copies.rs"]
mod copies;
#[path = "../../tests/machines/going_on.rs"]
mod going_on;
#[path = "../../tests/machines/guards.rs"]
mod guards;
#[path = "../../tests/machines/model.rs"]
mod model;
#[path = "../../tests/machines/moves.rs"]
mod moves;
#[path = "../../tests/machines/objections.rs"]
mod objections;
mod opened;
#[path = "../../tests/machines/sessions.rs"]
mod sessions;
#[path = "../../tests/machines/strategy.rs"]
mod strategy;
#[path = "../../tests/machines/transactions.rs"]
mod transactions;

/// The store of the tested machines.
mod tested {
    use skein_kvstore::limits::Limits;
    use skein_kvstore::slots::SlotMap;
    use skein_multicast::layout::Layout;
    use skein_protocol::ids::ReplicaId;

    use crate::both::Both;

    pub(crate) type Machine = skein_kvstore::machine::Machine<Both>;

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
        Machine::with_store(Both::default(), replica, layout, slots, limits)
    }

    /// Nothing that was kept can be made another state.
    pub(crate) const fn spoil() -> bool {
        false
    }

    /// Number of random cases of a test that has `of` cases over the memory store. Each case opens several stores.
    pub(crate) const fn cases(of: u32) -> u32 {
        of / 20
    }

    /// Checks a machine that waits for nothing and makes no copy.
    pub(crate) const fn rests(_: &Machine) {}
}
