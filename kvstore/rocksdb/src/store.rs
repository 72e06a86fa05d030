//! The store over RocksDB.

use std::path::Path;

use skein_kvstore::command::Version;
use skein_kvstore::store::{Found, Pair, Store, StoreError};

use crate::database::{Batch, Database, Options};
use crate::guard::Guard;
use crate::range::Range;
use crate::state::{Owner, State};

/// A store in a directory.
///
/// Nothing is on disk before a [flush](Self::flush), except that RocksDB also flushes by itself when its memory is full.
/// After its process was killed, a store opens with the state of some flush, and names its [position](Self::position).
pub struct RocksStore {
    database: Database,
    state: State,
}

impl RocksStore {
    /// Opens the store in the directory `path`, which is made if it is not there. At most one process may have it open.
    ///
    /// # Errors
    /// The directory cannot be used, or holds something else than the store of `owner`.
    pub fn open(path: &Path, owner: Owner, options: Options) -> Result<Self, StoreError> {
        let (database, state) = Database::open(path, owner, options)?;
        Ok(Self { database, state })
    }

    /// Place of the last command whose writes are here; 0 for none.
    pub fn position(&self) -> u64 {
        self.state.position
    }

    /// Names the command whose writes follow. It stands in the same batch as they do. Positions never fall, unless the
    /// store was cleared.
    pub fn set_position(&mut self, position: u64) {
        assert!(self.state.position <= position, "commands are written in their order");
        self.state.position = position;
    }

    /// Returns when everything that was written is on disk, with the position.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.database.apply(Batch::default(), &self.state)?;
        self.database.flush()
    }

    /// Applies writes, and then shows the state after them.
    fn apply(&mut self, batch: Batch, after: State) -> Result<(), StoreError> {
        self.database.apply(batch, &after)?;
        self.state = after;
        Ok(())
    }

    /// Adds a write to `batch`. `after` is the state after the batch. Returns whether the key had a value.
    fn add(
        &self,
        (batch, after): (&mut Batch, &mut State),
        key: &[u8],
        value: Option<&[u8]>,
        version: Version,
    ) -> Result<bool, StoreError> {
        let found = self.database.get(key)?;
        if let Some(found) = &found {
            after.remove(key, &found.value, found.version);
        }
        if let Some(value) = value {
            after.add(key, value, version);
            batch.put(key, value, version);
        } else if found.is_some() {
            batch.delete(key);
        }
        Ok(found.is_some())
    }
}

impl Store for RocksStore {
    type Error = StoreError;
    type Guard<'a> = Guard<'a>;

    fn get(&self, key: &[u8]) -> Result<Option<Found<Guard<'_>>>, StoreError> {
        self.database.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), StoreError> {
        self.write([(key, Some(value))], version)
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, StoreError> {
        let found = self.database.get(key)?;
        let mut value = found.map(|found| found.value.to_vec()).unwrap_or_default();
        let end = offset + bytes.len();
        value.resize(value.len().max(end), 0);
        value[offset..end].copy_from_slice(bytes);
        self.put(key, &value, version)?;
        Ok(value.len())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let (mut batch, mut after) = (Batch::default(), self.state);
        let existed = self.add((&mut batch, &mut after), key, None, 0)?;
        self.apply(batch, after)?;
        Ok(existed)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        writes: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), StoreError> {
        let (mut batch, mut after) = (Batch::default(), self.state);
        for (key, value) in writes {
            let value = value.as_ref().map(AsRef::as_ref);
            self.add((&mut batch, &mut after), key.as_ref(), value, version)?;
        }
        self.apply(batch, after)
    }

    fn clear(&mut self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.clear();
        self.apply(batch, State::default())
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, StoreError>> {
        Range::of(&self.database, start, end)
    }

    fn len(&self) -> usize {
        self.state.keys as usize
    }

    fn bytes(&self) -> u64 {
        self.state.bytes
    }

    fn digest(&self) -> u64 {
        self.state.digest
    }
}
