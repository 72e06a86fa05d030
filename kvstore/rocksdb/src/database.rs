//! RocksDB as the store needs it: how it is opened, and what its keys and values are.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, DBPinnableSlice,
    LogLevel, ReadOptions, WriteBatch, WriteOptions, checkpoint::Checkpoint,
};
use skein_kvstore::command::Version;
use skein_kvstore::store::{Found, StoreError};

use crate::error::explain;
use crate::guard::Guard;
use crate::state::{Owner, State};

/// The key of the state. No pair's key begins with this byte.
const STATE: [u8; 1] = [0];
/// The first byte of each pair's key. The key itself follows.
const PAIR: u8 = 1;
/// Above the keys of all pairs.
const PAIRS_END: [u8; 1] = [PAIR + 1];

/// Length of the version in front of each value.
pub(crate) const VERSION_BYTES: usize = size_of::<Version>();

/// A page of the medium: an uncached read reads one block.
const BLOCK_BYTES: usize = 4 << 10;
/// One absent key in a hundred costs a read of a block.
const FILTER_BITS_PER_KEY: f64 = 10.0;
/// Compactions and flushes at a time. With RocksDB's default, one compaction at a time, compactions fell behind random puts
/// of 8 MB/s on two cores, until a flush waited for seconds.
const JOBS: i32 = 4;
/// Threads of one compaction of the level to which memtables are flushed, which no other runs beside.
const THREADS_OF_FIRST_LEVEL: u32 = 2;
/// Files of that level from which on RocksDB delays writes; it stops them at twice as many. A flush for a checkpoint
/// waits until there are fewer, and with it everything that is written later.
const FILES_DELAY: i32 = 40;
/// RocksDB's own report of what it does. The node's log has the errors.
const REPORT_BYTES: usize = 1 << 20;

/// How much memory a store takes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Blocks of pairs, indexes and filters that were read.
    pub cache_bytes: usize,
    /// Pairs that are not on disk yet, per memtable. There are up to three.
    pub memtable_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, memtable_bytes: 32 << 20 }
    }
}

/// An open database. Its methods may be called by several threads.
pub(crate) struct Database {
    db: DB,
    path: PathBuf,
    owner: Owner,
}

/// Writes that are applied together, with the state after them.
#[derive(Default)]
pub(crate) struct Batch {
    writes: WriteBatch,
    /// Reused for the bytes of each write.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Batch {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], version: Version) {
        become_pair_key(&mut self.key, key);
        self.value.clear();
        self.value.extend_from_slice(&version.to_le_bytes());
        self.value.extend_from_slice(value);
        self.writes.put(&self.key, &self.value);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        become_pair_key(&mut self.key, key);
        self.writes.delete(&self.key);
    }

    /// Removes all pairs, with one entry.
    pub(crate) fn clear(&mut self) {
        self.writes.delete_range([PAIR], PAIRS_END);
    }
}

fn become_pair_key(bytes: &mut Vec<u8>, key: &[u8]) {
    bytes.clear();
    bytes.push(PAIR);
    bytes.extend_from_slice(key);
}

fn pair_key(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + key.len());
    become_pair_key(&mut bytes, key);
    bytes
}

impl Database {
    /// Opens the database in the directory `path`, or makes it. Returns it with its state.
    pub(crate) fn open(
        path: &Path,
        owner: Owner,
        options: Options,
    ) -> Result<(Self, State), StoreError> {
        let failed = |error| explain(&error, "open", path);
        let mut options = rocksdb_options(options);
        // RocksDB would take a directory without a manifest for a new one, and remove what is there.
        options.create_if_missing(!has_tables(path)?);
        let db = DB::open(&options, path).map_err(failed)?;
        let this = Self { db, path: path.to_owned(), owner };
        let state = match this.db.get_pinned(STATE).map_err(failed)? {
            Some(bytes) => State::decode(&bytes, &owner)
                .map_err(|what| StoreError::Foreign { file: path.to_owned(), what })?,
            None if this.range(b"", None).valid() => {
                let what = "it has pairs and no state".to_owned();
                return Err(StoreError::Damaged { file: path.to_owned(), what });
            }
            None => State::default(),
        };
        Ok((this, state))
    }

    /// Opens the database in the directory `path` and removes what it holds, or makes it.
    pub(crate) fn open_empty(
        path: &Path,
        owner: Owner,
        options: Options,
    ) -> Result<Self, StoreError> {
        match Self::open(path, owner, options) {
            Ok(_) | Err(StoreError::Damaged { .. }) => {}
            Err(why) => return Err(why),
        }
        let destroyed = DB::destroy(&rocksdb_options(options), path);
        destroyed.map_err(|error| explain(&error, "empty", path))?;
        Ok(Self::open(path, owner, options)?.0)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Found<Guard<'_>>>, StoreError> {
        let found = self.db.get_pinned(pair_key(key)).map_err(|error| self.explain_read(&error))?;
        found.map(|found| self.pinned(found)).transpose()
    }

    fn pinned<'a>(&self, found: DBPinnableSlice<'a>) -> Result<Found<Guard<'a>>, StoreError> {
        let version = self.split(&found)?.0;
        Ok(Found { value: Guard::of_pinned(found), version })
    }

    /// The version and the value in a value of RocksDB.
    pub(crate) fn split<'b>(&self, bytes: &'b [u8]) -> Result<(Version, &'b [u8]), StoreError> {
        let Some((version, value)) = bytes.split_first_chunk::<VERSION_BYTES>() else {
            let what = "a value has no version".to_owned();
            return Err(StoreError::Damaged { file: self.path.clone(), what });
        };
        Ok((Version::from_le_bytes(*version), value))
    }

    /// Iterates over the pairs from `start` up to `end`. The iterator sees the pairs as they are now.
    pub(crate) fn range(&self, start: &[u8], end: Option<&[u8]>) -> rocksdb::DBRawIterator<'_> {
        let mut bounds = ReadOptions::default();
        bounds.set_iterate_upper_bound(end.map_or_else(|| PAIRS_END.to_vec(), pair_key));
        let mut iterator = self.db.raw_iterator_opt(bounds);
        iterator.seek(pair_key(start));
        iterator
    }

    /// Applies a batch, after which the state is `state`. It is on disk after the next [flush](Self::flush).
    pub(crate) fn apply(&self, mut batch: Batch, state: &State) -> Result<(), StoreError> {
        batch.writes.put(STATE, state.encode(&self.owner));
        let mut no_log = WriteOptions::default();
        no_log.disable_wal(true);
        self.db.write_opt(batch.writes, &no_log).map_err(|error| self.explain_write(&error))
    }

    /// Returns when everything that was applied is on disk.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.db.flush().map_err(|error| self.explain_write(&error))
    }

    /// Links its files into the directory `path`, which is made, with everything that was applied.
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<(), StoreError> {
        let made = Checkpoint::new(&self.db).and_then(|it| it.create_checkpoint(path));
        made.map_err(|error| explain(&error, "make", path))
    }

    pub(crate) fn explain_read(&self, error: &rocksdb::Error) -> StoreError {
        explain(error, "read", &self.path)
    }

    fn explain_write(&self, error: &rocksdb::Error) -> StoreError {
        explain(error, "write", &self.path)
    }
}

/// Whether there are pairs on disk.
fn has_tables(path: &Path) -> Result<bool, StoreError> {
    let failed = |source| StoreError::System { attempt: "open", file: path.to_owned(), source };
    let files = match fs::read_dir(path) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    for file in files {
        let name = file.map_err(failed)?.file_name();
        if Path::new(&name).extension().is_some_and(|it| it == "sst") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn rocksdb_options(Options { cache_bytes, memtable_bytes }: Options) -> rocksdb::Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes));
    blocks.set_block_size(BLOCK_BYTES);
    blocks.set_bloom_filter(FILTER_BITS_PER_KEY, false);
    // Otherwise they are all in memory, beside the cache.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // In blocks of their own. An index and a filter of a whole file are hundreds of times as long as a block of pairs, and
    // each get would read them where the cache does not hold those of all files.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_metadata_block_size(BLOCK_BYTES);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    let mut options = rocksdb::Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(memtable_bytes);
    options.set_max_write_buffer_number(3);
    options.set_max_background_jobs(JOBS);
    options.set_max_subcompactions(THREADS_OF_FIRST_LEVEL);
    options.set_level_zero_slowdown_writes_trigger(FILES_DELAY);
    options.set_level_zero_stop_writes_trigger(2 * FILES_DELAY);
    // The page cache would hold every block twice, and count as memory of the process.
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(REPORT_BYTES);
    options.set_keep_log_file_num(2);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}
