//! Bytes of a value or a key.

use std::ops::Deref;

use rocksdb::DBPinnableSlice;

use crate::database::VERSION_BYTES;

/// Bytes that a store has returned.
pub struct Guard<'a>(Bytes<'a>);

enum Bytes<'a> {
    Borrowed(&'a [u8]),
    /// A value of RocksDB, pinned in its memory, behind its version.
    Pinned(DBPinnableSlice<'a>),
    Copied(Box<[u8]>),
}

impl<'a> Guard<'a> {
    /// The value behind its version. `found` is at least as long as a version.
    pub(crate) fn of_pinned(found: DBPinnableSlice<'a>) -> Self {
        Self(Bytes::Pinned(found))
    }

    pub(crate) fn copied(bytes: &[u8]) -> Self {
        Self(Bytes::Copied(bytes.into()))
    }
}

impl<'a> From<&'a [u8]> for Guard<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Bytes::Borrowed(bytes))
    }
}

impl Deref for Guard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Pinned(found) => &found[VERSION_BYTES..],
            Bytes::Copied(bytes) => bytes,
        }
    }
}
