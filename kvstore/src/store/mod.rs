//! Where keys and values are: an ordered map with versions.

pub(crate) mod compact;
mod index;
mod key_order;
pub mod memory;
mod pairs;
pub(crate) mod sum;
pub(crate) mod tracked;

#[cfg(test)]
mod conformance;

use crate::command::Version;

/// What stands at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The value.
    pub value: &'a [u8],
    /// When it was written.
    pub version: Version,
}

/// An ordered map from keys to values with versions. `conformance` holds every store to this:
///
/// 1. **One map.** What was put is found, at its key and nowhere else, with its version, until it is
///    overwritten or deleted.
/// 2. **Bytes.** Any key and any value, the empty ones included; nothing is special.
/// 3. **KeyOrder.** A range is in the order of the keys' bytes, whole, and without its end.
/// 4. **Count.** `len` and `bytes` are exact after every call.
/// 5. **Digest.** `digest` depends on what stands at which key since when, and on nothing else: not on the
///    process, and not on how it came there.
pub trait Store {
    /// What stands at `key`.
    fn get(&self, key: &[u8]) -> Option<Found<'_>>;

    /// Makes `value`, written at `version`, stand at `key`.
    fn put(&mut self, key: &[u8], value: &[u8], version: Version);

    /// Overwrites the value from byte `offset` on, growing it, with zero bytes between, if need be.
    /// Absent is the empty value. Returns the new length.
    fn patch(&mut self, key: &[u8], offset: usize, bytes: &[u8], version: Version) -> usize;

    /// Leaves nothing at `key`. Returns whether there was something.
    fn delete(&mut self, key: &[u8]) -> bool;

    /// Leaves nothing at any key, and returns soon, however much there was.
    fn clear(&mut self);

    /// What stands at the keys from `start` up to, and without, `end`.
    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Found<'a>)>;

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
