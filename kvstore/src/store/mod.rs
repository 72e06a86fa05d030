//! Stores of keys and values: ordered maps with versions.

pub(crate) mod compact;
mod error;
mod index;
mod key_order;
pub mod memory;
mod pairs;
pub mod sum;
#[cfg(test)]
mod tests;
pub(crate) mod tracked;

#[cfg(test)]
#[path = "../../tests/conformance/mod.rs"]
mod conformance;
#[cfg(test)]
#[path = "../../tests/failing/mod.rs"]
pub(crate) mod failing;

use std::error::Error;
use std::ops::Deref;

pub use self::error::StoreError;
use crate::command::Version;

/// The value of a key, and the version at which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<V> {
    pub value: V,
    pub version: Version,
}

/// A key of a store, its value and its version.
pub type Pair<'a, S> = (<S as Store>::Guard<'a>, Found<<S as Store>::Guard<'a>>);

/// Keys that a command reads or writes, or that a copy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// This key, whether it has a value or not.
    Key(&'a [u8]),
    /// The first pairs from `start` up to `end`, which is excluded: `pairs` of them, or pairs of `bytes` bytes, or all.
    Range { start: &'a [u8], end: Option<&'a [u8]>, pairs: usize, bytes: usize },
}

/// An ordered map from keys to values with versions. `conformance` tests these promises of every store:
///
/// 1. **One map.** A value that was put is found, at its key and at no other, with its version, until it is overwritten
///    or deleted.
/// 2. **Bytes.** Any key and any value is allowed, the empty ones included.
/// 3. **Key order.** A range is in the order of the keys' bytes, complete, and without its end.
/// 4. **Count.** `len` and `bytes` are exact after every call.
/// 5. **Digest.** `digest` depends on the pairs and their versions, and on nothing else: neither on the process nor on
///    the sequence of calls.
/// 6. **Atomicity.** A call that fails has changed nothing that other calls return. The content of the medium is not
///    known then, and the store is not used again.
/// 7. **Fetching.** What is [pinned](Self::pin) is in memory after finitely many calls of [`poll`](Self::poll), and stays
///    there until it is unpinned. Other keys come and leave in `pin`, `unpin` and `poll` only. `len`, `bytes` and `digest`
///    do not depend on what is in memory.
///
/// 8. **Keeping.** A state that was [kept](Self::keep) has exactly the pairs of that moment, whatever is written later.
///
/// If [`FETCHES`](Self::FETCHES) is set, a caller reads and writes only what the store [`has`](Self::has), besides
/// `clear` and [`load`](Self::load).
pub trait Store {
    /// The error of a call. [`Infallible`](std::convert::Infallible) for a store that cannot fail.
    type Error: Error + Into<StoreError>;

    /// Bytes of the store or of another owner: a borrow, an owned copy, or a pin of a cache entry.
    type Guard<'a>: Deref<Target = [u8]> + From<&'a [u8]>
    where
        Self: 'a;

    /// Whether pairs may be elsewhere than in memory.
    const FETCHES: bool = false;

    /// Whether this is in memory.
    fn has(&self, wanted: Wanted<'_>) -> bool {
        let _ = wanted;
        true
    }

    /// Fetches what of this is not in memory, and keeps all of it there until it was [unpinned](Self::unpin) as often.
    fn pin(&mut self, wanted: Wanted<'_>) {
        let _ = wanted;
    }

    /// Ends one [`pin`](Self::pin) of the same.
    fn unpin(&mut self, wanted: Wanted<'_>) {
        let _ = wanted;
    }

    /// Whether more may be written now. False if the medium is too slow for what was written.
    fn has_room(&self) -> bool {
        true
    }

    /// Whether [`poll`](Self::poll) has something to do.
    fn has_news(&self) -> bool {
        false
    }

    /// Takes in what was fetched. Returns whether there was anything, or room.
    fn poll(&mut self) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Sets the value of `key`, or removes it, whether or not it is in memory, while a state is restored. The sums may
    /// not contain it before [`settle`](Self::settle).
    fn load(&mut self, key: &[u8], found: Option<Found<&[u8]>>) -> Result<(), Self::Error> {
        match found {
            Some(Found { value, version }) => self.put(key, value, version),
            None => self.delete(key).map(drop),
        }
    }

    /// Waits until the sums contain what was loaded, and what is pinned is in memory.
    fn settle(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Whether it can keep states on its disk, for later starts to begin with.
    fn keeps(&self) -> bool {
        false
    }

    /// Keeps the present state. Returns the number of the kept state, which no other has. It is on disk when the store
    /// [says so](Self::has_kept).
    ///
    /// # Panics
    /// If it does not [keep](Self::keeps) any.
    fn keep(&mut self) -> u64 {
        panic!("this store keeps nothing")
    }

    /// Whether the state that was kept last is on disk. If not, [news](Self::has_news) follow when it is.
    fn has_kept(&self) -> bool {
        true
    }

    /// Removes the states that were kept before the last one, which is on disk.
    fn drop_earlier(&mut self) {}

    /// Takes a kept state in place of its own, which is empty. Waits for the disk. Returns what is wrong with the kept state.
    /// The store is not used after that.
    fn take_kept(&mut self, number: u64) -> Result<Result<(), String>, Self::Error> {
        Ok(Err(format!("state {number} was kept by another kind of store")))
    }

    /// The value and version of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Found<Self::Guard<'_>>>, Self::Error>;

    /// Sets the value of `key`, with its version.
    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), Self::Error>;

    /// Overwrites the value from byte `offset` on. Extends it if necessary, with zero bytes in between. An absent value
    /// counts as empty. Returns the new length.
    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, Self::Error>;

    /// Removes `key`. Returns whether it had a value.
    fn delete(&mut self, key: &[u8]) -> Result<bool, Self::Error>;

    /// Sets the value of each key, with its version, or removes the key if there is no value. A batch contains all
    /// writes of a command, each key once.
    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), Self::Error>;

    /// Removes all keys. Returns soon, however many there are.
    fn clear(&mut self) -> Result<(), Self::Error>;

    /// The pairs from `start` up to `end`, which is excluded. Nothing follows an error.
    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, Self::Error>>;

    /// Number of keys.
    fn len(&self) -> usize;

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of all keys and values, in bytes.
    fn bytes(&self) -> u64;

    /// Digest of all pairs, maintained incrementally.
    fn digest(&self) -> u64;
}
