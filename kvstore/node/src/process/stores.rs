//! The stores of a node's replicas.

use std::sync::Arc;

use skein_kvstore::store::memory::Memory;
use skein_kvstore::store::{Store, StoreError};
use skein_multicast::application::Stopped;
use skein_protocol::ids::ReplicaId;

use super::start::Start;

/// Wakes an engine.
pub(super) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Makes the stores of the replicas that an engine runs.
pub(super) trait Stores: Sized + Send + 'static {
    /// A store.
    type Store: Store<Error: Send> + Send + 'static;

    /// Makes the first store of each replica that the engine runs. `wake` wakes it.
    fn open(start: Start<'_>, engine: u16, wake: &Wake) -> Result<Self, Stopped<StoreError>>;

    /// An empty store for a machine of `replica`.
    fn take(&mut self, replica: ReplicaId) -> Self::Store;
}

/// Stores in memory.
pub(super) struct InMemory;

impl Stores for InMemory {
    type Store = Memory;

    fn open(_: Start<'_>, _: u16, _: &Wake) -> Result<Self, Stopped<StoreError>> {
        Ok(Self)
    }

    fn take(&mut self, _: ReplicaId) -> Memory {
        Memory::default()
    }
}

#[cfg(feature = "rocksdb")]
pub(super) use on_disk::OnDisk;

#[cfg(feature = "rocksdb")]
mod on_disk {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use skein_kvstore::store::StoreError;
    use skein_multicast::application::Stopped;
    use skein_protocol::ids::ReplicaId;
    use skein_rocksdb::{Options, Owner, TieredOptions, TieredStore};
    use xxhash_rust::xxh3::xxh3_128;

    use super::{Start, Stores, Wake};

    /// The least memory for blocks of RocksDB, in bytes: indexes and filters must have room there.
    const CACHE_BYTES_MIN: usize = 32 << 20;

    /// Stores in RocksDB, each in a directory of its own.
    pub(in crate::process) struct OnDisk {
        cluster: String,
        directory: PathBuf,
        options: TieredOptions,
        wake: Wake,
        /// The stores of the first machines, until these are made.
        first: BTreeMap<ReplicaId, TieredStore>,
        /// Number of stores that were opened.
        opened: u64,
    }

    impl OnDisk {
        fn next(&mut self, replica: ReplicaId) -> Result<TieredStore, StoreError> {
            self.opened += 1;
            // A replica that joins anew has two machines for a while.
            let name = format!("g{}.{}-{}", replica.group.0, replica.slot, self.opened);
            let owner: Owner =
                xxh3_128(format!("{} {name}", self.cluster).as_bytes()).to_be_bytes();
            let path = self.directory.join(name);
            TieredStore::open(&path, owner, self.options, self.wake.clone())
        }
    }

    impl Stores for OnDisk {
        type Store = TieredStore;

        fn open(start: Start<'_>, engine: u16, wake: &Wake) -> Result<Self, Stopped<StoreError>> {
            let Start { directory, manifest, config, node, .. } = start;
            let layout = config.layout();
            let replicas = u64::from(layout.replicas_per_node_max().max(1));
            let hot_bytes = (config.hot_bytes / replicas) as usize;
            let cache_bytes = (hot_bytes / 4).max(CACHE_BYTES_MIN);
            let database = Options { cache_bytes, ..Options::default() };
            let mut this = Self {
                cluster: manifest.cluster.clone(),
                directory: directory.node_stores(node),
                options: TieredOptions { database, hot_bytes, ..TieredOptions::default() },
                wake: wake.clone(),
                first: BTreeMap::new(),
                opened: 0,
            };
            for replica in layout.replicas_on(node, engine) {
                let store = this.next(replica).map_err(|why| Stopped { replica, why })?;
                this.first.insert(replica, store);
            }
            Ok(this)
        }

        fn take(&mut self, replica: ReplicaId) -> TieredStore {
            let first = self.first.remove(&replica);
            first.unwrap_or_else(|| self.next(replica).unwrap_or_else(TieredStore::failed))
        }
    }
}
