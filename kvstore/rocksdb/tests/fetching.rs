//! Machines over a store in RocksDB whose threads fetch what is not in memory: the tests of `kvstore/tests/machines`.

#[path = "../../tests/machines/backups.rs"]
mod backups;
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
mod opened;
#[path = "../../tests/machines/sessions.rs"]
mod sessions;
#[path = "../../tests/machines/strategy.rs"]
mod strategy;
#[path = "../../tests/machines/transactions.rs"]
mod transactions;

/// The store of the tested machines.
mod tested {
    use std::sync::Arc;

    use skein_kvstore::limits::Limits;
    use skein_kvstore::slots::SlotMap;
    use skein_multicast::layout::Layout;
    use skein_protocol::ids::ReplicaId;
    use skein_rocksdb::{TieredOptions, TieredStore};

    use crate::opened::{OWNER, SMALL, scratch};

    pub(crate) type Machine = skein_kvstore::machine::Machine<TieredStore>;

    /// The store fetches.
    pub(crate) const FETCHES: bool = true;
    /// So often a query is made before it counts as one that is not answered.
    pub(crate) const ATTEMPTS: u32 = 2_000;

    /// An empty machine. Nothing stays in memory that need not be there.
    pub(crate) fn machine(
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Machine {
        // The store removes it.
        let path = scratch().keep();
        let options = TieredOptions { database: SMALL, hot_bytes: 0, readers: 2 };
        let store = TieredStore::open(&path, OWNER, options, Arc::new(|| ())).unwrap();
        Machine::with_store(store, replica, layout, slots, limits)
    }

    /// Number of random cases of a test that has `of` cases over the memory store. Each case opens several stores.
    pub(crate) const fn cases(of: u32) -> u32 {
        of / 20
    }

    /// Checks a machine that waits for nothing and makes no copy.
    pub(crate) fn rests(machine: &Machine) {
        assert_eq!(machine.store().pins(), 0, "something stays pinned");
    }
}
