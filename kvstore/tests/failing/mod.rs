//! A store that fails on request. Its guards own their bytes, as those of a store on disk may.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skein_kvstore::command::Version;
use skein_kvstore::store::memory::Memory;
use skein_kvstore::store::{Found, Pair, Store, StoreError};

/// The kinds of operations. Each kind fails with a different error.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A read of one key.
    Read,
    /// A step to the next pair of a range.
    Walk,
    Write,
}

/// Controls a failing store after the store was given to a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fuse {
    /// Operations until the store fails, the failing one included; 0 for never.
    left: Arc<AtomicU64>,
    failures: Arc<AtomicU64>,
}

impl Fuse {
    /// Makes the store fail at the `nth` operation from now on, counted from 1.
    pub(crate) fn burn(&self, nth: u64) {
        self.left.store(nth, Ordering::SeqCst);
    }

    /// Whether the store has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.load(Ordering::SeqCst) > 0
    }

    /// Called at the start of each operation. Each pair of a range is one operation, since the medium may have
    /// lost any of them.
    fn operation(&self, operation: Operation) -> Result<(), StoreError> {
        assert!(!self.has_failed(), "{operation:?} of a store that has failed");
        let left = self.left.load(Ordering::SeqCst);
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        if left != 1 {
            return Ok(());
        }
        self.failures.fetch_add(1, Ordering::SeqCst);
        let file = "store/000007.sst".into();
        Err(match operation {
            Operation::Read => {
                let source = io::Error::other("the disk is gone");
                StoreError::System { attempt: "read", file, source }
            }
            Operation::Walk => StoreError::Damaged { file, what: "a block's checksum".to_owned() },
            Operation::Write => StoreError::Full { file },
        })
    }
}

/// A store in memory that fails when its [`Fuse`] has burnt down. The failing operation changes nothing.
#[derive(Default)]
pub(crate) struct Failing {
    memory: Memory,
    fuse: Fuse,
}

impl Failing {
    pub(crate) fn with(fuse: &Fuse) -> Self {
        Self { fuse: fuse.clone(), ..Self::default() }
    }
}

/// Bytes with an owner of their own. Unlike a borrow, they are dropped where their owner ends, and the store is
/// borrowed until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned(Vec<u8>);

impl Deref for Owned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Owned {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Makes a read after the drop visible.
        self.0.fill(0xEE);
    }
}

fn owned(found: Found<&[u8]>) -> Found<Owned> {
    Found { value: found.value.into(), version: found.version }
}

impl Store for Failing {
    type Error = StoreError;
    type Guard<'a> = Owned;

    fn get(&self, key: &[u8]) -> Result<Option<Found<Owned>>, StoreError> {
        self.fuse.operation(Operation::Read)?;
        let Ok(found) = self.memory.get(key);
        Ok(found.map(owned))
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), StoreError> {
        self.fuse.operation(Operation::Write)?;
        let Ok(()) = self.memory.put(key, value, version);
        Ok(())
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, StoreError> {
        self.fuse.operation(Operation::Write)?;
        let Ok(len) = self.memory.patch(key, offset, bytes, version);
        Ok(len)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.fuse.operation(Operation::Write)?;
        let Ok(existed) = self.memory.delete(key);
        Ok(existed)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), StoreError> {
        self.fuse.operation(Operation::Write)?;
        let Ok(()) = self.memory.write(batch, version);
        Ok(())
    }

    fn clear(&mut self) -> Result<(), StoreError> {
        self.fuse.operation(Operation::Write)?;
        let Ok(()) = self.memory.clear();
        Ok(())
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, StoreError>> {
        self.memory.range(start, end).map(|pair| {
            self.fuse.operation(Operation::Walk)?;
            let Ok((key, found)) = pair;
            Ok((key.into(), owned(found)))
        })
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn digest(&self) -> u64 {
        self.memory.digest()
    }
}
