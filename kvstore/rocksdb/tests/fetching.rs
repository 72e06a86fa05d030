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
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, OnceLock};

    use skein_kvstore::limits::Limits;
    use skein_kvstore::slots::SlotMap;
    use skein_multicast::layout::Layout;
    use skein_protocol::ids::ReplicaId;
    use skein_rocksdb::{Checkpoints, TieredOptions, TieredStore};

    use crate::opened::{OWNER, SMALL, scratch};

    pub(crate) type Machine = skein_kvstore::machine::Machine<TieredStore>;

    /// The store fetches.
    pub(crate) const FETCHES: bool = true;
    /// The store keeps states.
    pub(crate) const KEEPS: bool = true;
    /// So often a query is made before it counts as one that is not answered.
    pub(crate) const ATTEMPTS: u32 = 2_000;

    static OPENED: AtomicU64 = AtomicU64::new(0);

    /// The checkpoints of all machines: each may begin with one of another.
    fn checkpoints() -> Checkpoints {
        static ALL: OnceLock<Checkpoints> = OnceLock::new();
        let open = || Checkpoints::open(&scratch().keep(), Arc::new(AtomicU64::new(1))).unwrap();
        ALL.get_or_init(open).clone()
    }

    /// An empty machine. Nothing stays in memory that need not be there.
    pub(crate) fn machine(
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Machine {
        let options = TieredOptions { database: SMALL, hot_bytes: 0, readers: 2 };
        let (checkpoints, opened) = (checkpoints(), OPENED.fetch_add(1, Ordering::Relaxed));
        // The store removes it.
        let path = checkpoints.directory().join(format!("live-{opened}"));
        let wake = Arc::new(|| ());
        let store = TieredStore::open_beside(checkpoints, &path, OWNER, options, wake).unwrap();
        Machine::with_store(store, replica, layout, slots, limits)
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
    pub(crate) fn rests(machine: &Machine) {
        assert_eq!(machine.store().pins(), 0, "something stays pinned");
    }
}
