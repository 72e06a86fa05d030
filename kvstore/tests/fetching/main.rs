//! Machines over a store that fetches late: the tests of `kvstore/tests/machines`. The result of each is that of a machine
//! that has everything in memory.

#[path = "../machines/backups.rs"]
mod backups;
#[path = "../machines/cluster.rs"]
mod cluster;
#[path = "../machines/copies.rs"]
mod copies;
#[path = "../machines/going_on.rs"]
mod going_on;
#[path = "../machines/guards.rs"]
mod guards;
#[path = "../machines/model.rs"]
mod model;
#[path = "../machines/moves.rs"]
mod moves;
#[path = "../machines/objections.rs"]
mod objections;
#[path = "../machines/sessions.rs"]
mod sessions;
#[path = "../slow/mod.rs"]
mod slow;
#[path = "../machines/strategy.rs"]
mod strategy;
#[path = "../machines/transactions.rs"]
mod transactions;

/// The store of the tested machines.
mod tested {
    use skein_kvstore::limits::Limits;
    use skein_kvstore::slots::SlotMap;
    use skein_multicast::layout::Layout;
    use skein_protocol::ids::ReplicaId;

    use crate::slow::{self, Slow};

    pub(crate) type Machine = skein_kvstore::machine::Machine<Slow>;

    /// The store fetches.
    pub(crate) const FETCHES: bool = true;
    /// The store keeps states.
    pub(crate) const KEEPS: bool = true;
    /// So often a query is made before it counts as one that is not answered.
    pub(crate) const ATTEMPTS: u32 = 20;

    /// An empty machine.
    pub(crate) fn machine(
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Machine {
        Machine::with_store(Slow::default(), replica, layout, slots, limits)
    }

    /// The state that was kept last loses a pair. Returns whether it does.
    pub(crate) fn spoil() -> bool {
        slow::spoil();
        true
    }

    /// Number of random cases of a test that has `of` cases over the memory store.
    pub(crate) const fn cases(of: u32) -> u32 {
        of
    }

    /// Checks a machine that waits for nothing and makes no copy.
    pub(crate) fn rests(machine: &Machine) {
        assert_eq!(machine.store().pins(), 0, "something stays pinned");
    }
}
