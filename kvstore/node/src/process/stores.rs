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
pub(super) use on_disk::{OnDisk, remove_strangers};

#[cfg(feature = "rocksdb")]
mod on_disk {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::{fs, io};

    use skein_cluster::config::Durability;
    use skein_cluster::directory::{DirectoryError, failed};
    use skein_kvstore::store::StoreError;
    use skein_multicast::application::Stopped;
    use skein_protocol::ids::ReplicaId;
    use skein_rocksdb::{Checkpoints, Options, Owner, TieredOptions, TieredStore};
    use xxhash_rust::xxh3::xxh3_128;

    use super::{Start, Stores, Wake};

    /// The least memory for blocks of RocksDB, in bytes: indexes and filters must have room there.
    const CACHE_BYTES_MIN: usize = 32 << 20;

    /// Name of the directory of a replica, for its stores and their checkpoints.
    fn name_of(replica: ReplicaId) -> String {
        format!("g{}.{}", replica.group.0, replica.slot)
    }

    /// Removes what no replica of the node begins with: everything, unless a log on disk names checkpoints.
    pub(in crate::process) fn remove_strangers(start: Start<'_>) -> Result<(), DirectoryError> {
        let Start { directory, config, node, .. } = start;
        let (stores, layout) = (directory.node_stores(node), config.layout());
        let engines = 0..config.topology.engines;
        let hosted = engines.flat_map(|engine| layout.replicas_on(node, engine)).map(name_of);
        let keeps = config.durability == Durability::Sync;
        let names: Vec<_> = if keeps { hosted.collect() } else { Vec::new() };
        let entries = match fs::read_dir(&stores) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed("read", &stores))?,
        };
        for entry in entries {
            let entry = entry.map_err(failed("read", &stores))?;
            if names.iter().any(|name| entry.file_name() == **name) {
                continue;
            }
            let path = entry.path();
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(failed("remove", &path))?;
        }
        Ok(())
    }

    /// Stores in RocksDB, each in a directory of its own.
    pub(in crate::process) struct OnDisk {
        cluster: String,
        directory: PathBuf,
        options: TieredOptions,
        wake: Wake,
        /// The checkpoints of each replica, if there is a log on disk to name them.
        checkpoints: BTreeMap<ReplicaId, Checkpoints>,
        /// The stores of the first machines, until these are made.
        first: BTreeMap<ReplicaId, TieredStore>,
        /// Number of stores that were opened.
        opened: u64,
    }

    impl OnDisk {
        fn next(&mut self, replica: ReplicaId) -> Result<TieredStore, StoreError> {
            self.opened += 1;
            let name = name_of(replica);
            let owner: Owner =
                xxh3_128(format!("{} {name}", self.cluster).as_bytes()).to_be_bytes();
            // A replica that joins anew has two machines for a while.
            let path = self.directory.join(name).join(format!("live-{}", self.opened));
            let (options, wake) = (self.options, self.wake.clone());
            match self.checkpoints.get(&replica) {
                Some(checkpoints) => {
                    TieredStore::open_beside(checkpoints.clone(), &path, owner, options, wake)
                }
                None => TieredStore::open(&path, owner, options, wake),
            }
        }
    }

    impl Stores for OnDisk {
        type Store = TieredStore;

        fn open(start: Start<'_>, engine: u16, wake: &Wake) -> Result<Self, Stopped<StoreError>> {
            let Start { directory, manifest, config, node, incarnation, .. } = start;
            let layout = config.layout();
            let replicas = u64::from(layout.replicas_per_node_max().max(1));
            let hot_bytes = (config.hot_bytes / replicas) as usize;
            let cache_bytes = (hot_bytes / 4).max(CACHE_BYTES_MIN);
            let database = Options { cache_bytes, ..Options::default() };
            let mut this = Self {
                cluster: manifest.data_name().to_owned(),
                directory: directory.node_stores(node),
                options: TieredOptions { database, hot_bytes, ..TieredOptions::default() },
                wake: wake.clone(),
                checkpoints: BTreeMap::new(),
                first: BTreeMap::new(),
                opened: 0,
            };
            // No other start of this node has had the number of this one.
            let next = Arc::new(AtomicU64::new(u64::from(incarnation) << 32 | 1));
            for replica in layout.replicas_on(node, engine) {
                if config.durability == Durability::Sync {
                    let path = this.directory.join(name_of(replica));
                    let opened = Checkpoints::open(&path, next.clone());
                    let checkpoints = opened.map_err(|why| Stopped { replica, why })?;
                    this.checkpoints.insert(replica, checkpoints);
                }
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
