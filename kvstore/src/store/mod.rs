//! Where keys and values are: an ordered map with versions.

pub(crate) mod compact;
mod error;
mod index;
mod key_order;
pub mod memory;
mod pairs;
pub(crate) mod sum;
pub(crate) mod tracked;

#[cfg(test)]
mod conformance;
#[cfg(test)]
#[path = "../../tests/failing/mod.rs"]
pub(crate) mod failing;

use std::error::Error;
use std::ops::Deref;

pub use self::error::StoreError;
use crate::command::Version;

/// What stands at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<V> {
    /// The value.
    pub value: V,
    /// When it was written.
    pub version: Version,
}

/// What a store holds at a key, with the key.
pub type Pair<'a, S> = (<S as Store>::Guard<'a>, Found<<S as Store>::Guard<'a>>);

/// An ordered map from keys to values with versions. `conformance` holds every store to this:
///
/// 1. **One map.** What was put is found, at its key and nowhere else, with its version, until it is
///    overwritten or deleted.
/// 2. **Bytes.** Any key and any value, the empty ones included; nothing is special.
/// 3. **KeyOrder.** A range is in the order of the keys' bytes, whole, and without its end.
/// 4. **Count.** `len` and `bytes` are exact after every call.
/// 5. **Digest.** `digest` depends on what stands at which key since when, and on nothing else: not on the
///    process, and not on how it came there.
/// 6. **Whole or not at all.** A call that fails has changed nothing that another call shows. What the medium holds
///    then is not known, and nobody calls the store again.
pub trait Store {
    /// Why it could not read or write. [`Infallible`](std::convert::Infallible) for one that always can.
    type Error: Error + Into<StoreError>;

    /// Bytes that the store holds, or that somebody else does: a borrow, bytes of its own, or a pin of what is cached.
    type Guard<'a>: Deref<Target = [u8]> + From<&'a [u8]>
    where
        Self: 'a;

    /// What stands at `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Found<Self::Guard<'_>>>, Self::Error>;

    /// Makes `value`, written at `version`, stand at `key`.
    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), Self::Error>;

    /// Overwrites the value from byte `offset` on, growing it, with zero bytes between, if need be.
    /// Absent is the empty value. Returns the new length.
    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, Self::Error>;

    /// Leaves nothing at `key`. Returns whether there was something.
    fn delete(&mut self, key: &[u8]) -> Result<bool, Self::Error>;

    /// Makes each of these values, written at `version`, stand at its key, or nothing where there is none: all that a
    /// command writes, each key once.
    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), Self::Error>;

    /// Leaves nothing at any key, and returns soon, however much there was.
    fn clear(&mut self) -> Result<(), Self::Error>;

    /// What stands at the keys from `start` up to, and without, `end`. Nothing follows an error.
    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, Self::Error>>;

    /// How many keys have a value.
    fn len(&self) -> usize;

    /// Whether no key has.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all keys and values.
    fn bytes(&self) -> u64;

    /// A digest of all pairs, kept up to date.
    fn digest(&self) -> u64;
}
