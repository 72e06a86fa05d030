//! A store in RocksDB beside one in memory: each call goes to both, and both must return the same.

use skein_kvstore::command::Version;
use skein_kvstore::store::memory::Memory;
use skein_kvstore::store::{Found, Pair, Store, StoreError};
use skein_rocksdb::{Guard, RocksStore};
use tempfile::TempDir;

use crate::opened::{OWNER, SMALL, scratch};

/// One write of so many is followed by a flush: what comes before it is read from disk.
const FLUSH_EVERY: u64 = 16;
/// One of so many is followed by a restart.
const REOPEN_EVERY: u64 = 64;

/// Both stores. The directory is removed at the end.
pub(crate) struct Both {
    /// `None` while it is closed.
    rocks: Option<RocksStore>,
    memory: Memory,
    scratch: TempDir,
    writes: u64,
}

impl Default for Both {
    fn default() -> Self {
        let mut this =
            Self { rocks: None, memory: Memory::default(), scratch: scratch(), writes: 0 };
        this.reopen();
        this
    }
}

impl Both {
    fn rocks(&self) -> &RocksStore {
        self.rocks.as_ref().expect("it is open")
    }

    fn rocks_mut(&mut self) -> &mut RocksStore {
        self.rocks.as_mut().expect("it is open")
    }

    /// Closes the store on disk, if it is open, and opens it.
    fn reopen(&mut self) {
        if let Some(mut rocks) = self.rocks.take() {
            rocks.flush().unwrap();
        }
        let path = self.scratch.path().join("store");
        self.rocks = Some(RocksStore::open(&path, OWNER, SMALL).unwrap());
    }

    /// Called after each write: compares what the stores return without reading pairs.
    fn wrote(&mut self) {
        self.writes += 1;
        if self.writes.is_multiple_of(REOPEN_EVERY) {
            self.reopen();
        } else if self.writes.is_multiple_of(FLUSH_EVERY) {
            self.rocks_mut().flush().unwrap();
        }
        let (rocks, memory) = (self.rocks(), &self.memory);
        let shown = (rocks.len(), rocks.bytes(), rocks.digest());
        assert_eq!(shown, (memory.len(), memory.bytes(), memory.digest()));
    }
}

impl Store for Both {
    type Error = StoreError;
    type Guard<'a> = Guard<'a>;

    fn get(&self, key: &[u8]) -> Result<Option<Found<Guard<'_>>>, StoreError> {
        let (found, Ok(expected)) = (self.rocks().get(key)?, self.memory.get(key));
        let seen = found.as_ref().map(|found| (&*found.value, found.version));
        assert_eq!(seen, expected.map(|found| (found.value, found.version)), "{key:?}");
        Ok(found)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), StoreError> {
        let Ok(()) = self.memory.put(key, value, version);
        self.rocks_mut().put(key, value, version)?;
        self.wrote();
        Ok(())
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, StoreError> {
        let Ok(expected) = self.memory.patch(key, offset, bytes, version);
        assert_eq!(self.rocks_mut().patch(key, offset, bytes, version)?, expected);
        self.wrote();
        Ok(expected)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let Ok(expected) = self.memory.delete(key);
        assert_eq!(self.rocks_mut().delete(key)?, expected);
        self.wrote();
        Ok(expected)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), StoreError> {
        let owned = |(key, value): (K, Option<V>)| {
            (key.as_ref().to_vec(), value.map(|value| value.as_ref().to_vec()))
        };
        let batch: Vec<_> = batch.into_iter().map(owned).collect();
        let Ok(()) = self.memory.write(batch.iter().cloned(), version);
        self.rocks_mut().write(batch, version)?;
        self.wrote();
        Ok(())
    }

    fn clear(&mut self) -> Result<(), StoreError> {
        let Ok(()) = self.memory.clear();
        self.rocks_mut().clear()?;
        self.wrote();
        Ok(())
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, StoreError>> {
        let mut expected = self.memory.range(start, end);
        let mut pairs = self.rocks().range(start, end);
        std::iter::from_fn(move || {
            let pair = pairs.next();
            let seen = pair.as_ref().map(|pair| {
                let (key, found) = pair.as_ref().unwrap();
                (&**key, &*found.value, found.version)
            });
            let expected =
                expected.next().map(|Ok((key, found))| (key, found.value, found.version));
            assert_eq!(seen, expected);
            pair
        })
    }

    fn len(&self) -> usize {
        self.rocks().len()
    }

    fn bytes(&self) -> u64 {
        self.rocks().bytes()
    }

    fn digest(&self) -> u64 {
        self.rocks().digest()
    }
}
