//! A store that can be copied while it is written, for two purposes at the same time.
//!
//! **Invariant (completeness).** A copy holds every key below the front of the walk with its present value, except
//! the keys in `dirty`. A write to a key below the front makes that key dirty. A key at the front or beyond is copied
//! when the walk reaches it. So when the walk has ended and no key is dirty, the copy equals the store.

use std::collections::BTreeSet;

use super::compact::Compact;
use super::{Found, Pair, Store};
use crate::command::Version;

/// A store and the progress of copies of it. While no copy is made, a write costs one additional branch.
pub(crate) struct Tracked<S> {
    store: S,
    /// At most one for each purpose.
    walks: Vec<Walk>,
}

/// The purpose of a copy. Copies for different purposes are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFor {
    /// A replica without a state, or a snapshot.
    Replica,
    /// A client that makes a backup.
    Backup,
}

struct Walk {
    purpose: CopyFor,
    front: Front,
    dirty: BTreeSet<Compact>,
    /// Number of keys that became dirty since the last call of [`changed`](Tracked::changed).
    changed: usize,
}

/// Progress of the walk over the keys. It never moves back.
enum Front {
    /// All keys below this one were copied.
    Below(Vec<u8>),
    /// All keys were copied.
    End,
}

impl Walk {
    fn wrote(&mut self, key: &[u8]) {
        let passed = match &self.front {
            Front::Below(front) => key < front.as_slice(),
            Front::End => true,
        };
        if passed && !self.dirty.contains(key) {
            self.dirty.insert(key.into());
            self.changed += 1;
        }
    }
}

impl<S: Store> Tracked<S> {
    pub(crate) fn new(store: S) -> Self {
        Self { store, walks: Vec::new() }
    }

    /// Begins a copy. A copy for the same purpose that is in progress is abandoned.
    pub(crate) fn begin_copy(&mut self, purpose: CopyFor) {
        self.give_up_copy(purpose);
        let front = Front::Below(Vec::new());
        self.walks.push(Walk { purpose, front, dirty: BTreeSet::new(), changed: 0 });
    }

    pub(crate) fn give_up_copy(&mut self, purpose: CopyFor) {
        self.walks.retain(|walk| walk.purpose != purpose);
    }

    /// Continues the walk: passes pairs to `take` until it returns false. Returns whether the walk has ended.
    pub(crate) fn copy(
        &mut self,
        purpose: CopyFor,
        mut take: impl FnMut(&[u8], Found<&[u8]>) -> bool,
    ) -> Result<bool, S::Error> {
        let Self { store, walks } = self;
        let walk = walk_for(walks, purpose).expect("a copy was begun");
        let Front::Below(front) = &walk.front else { return Ok(true) };
        let mut next = Front::End;
        for pair in store.range(front, None) {
            let (key, Found { value, version }) = pair?;
            if !take(&key, Found { value: &value, version }) {
                // The first key after the last one taken.
                next = Front::Below([&key, &[0][..]].concat());
                break;
            }
        }
        walk.front = next;
        Ok(matches!(walk.front, Front::End))
    }

    /// Number of keys that became dirty since the last call.
    pub(crate) fn changed(&mut self, purpose: CopyFor) -> usize {
        let walk = walk_for(&mut self.walks, purpose);
        walk.map_or(0, |walk| std::mem::take(&mut walk.changed))
    }

    /// Number of dirty keys.
    pub(crate) fn behind(&self, purpose: CopyFor) -> usize {
        let walk = self.walks.iter().find(|walk| walk.purpose == purpose);
        walk.map_or(0, |walk| walk.dirty.len())
    }

    /// Passes keys that were written after they were copied to `take`, with their present values, until it returns
    /// false. Returns whether no dirty key is left.
    pub(crate) fn copy_again(
        &mut self,
        purpose: CopyFor,
        mut take: impl FnMut(&[u8], Option<Found<&[u8]>>) -> bool,
    ) -> Result<bool, S::Error> {
        let Self { store, walks } = self;
        let walk = walk_for(walks, purpose).expect("a copy was begun");
        while let Some(key) = walk.dirty.pop_first() {
            let key = key.as_slice();
            let found = store.get(key)?;
            let found =
                found.as_ref().map(|found| Found { value: &*found.value, version: found.version });
            if !take(key, found) {
                break;
            }
        }
        Ok(walk.dirty.is_empty())
    }

    fn wrote(&mut self, key: &[u8]) {
        for walk in &mut self.walks {
            walk.wrote(key);
        }
    }
}

fn walk_for(walks: &mut [Walk], purpose: CopyFor) -> Option<&mut Walk> {
    walks.iter_mut().find(|walk| walk.purpose == purpose)
}

impl<S: Store> Store for Tracked<S> {
    type Error = S::Error;
    type Guard<'a>
        = S::Guard<'a>
    where
        S: 'a;

    fn get(&self, key: &[u8]) -> Result<Option<Found<S::Guard<'_>>>, S::Error> {
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), S::Error> {
        self.wrote(key);
        self.store.put(key, value, version)
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, S::Error> {
        self.wrote(key);
        self.store.patch(key, offset, bytes, version)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, S::Error> {
        self.wrote(key);
        self.store.delete(key)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), S::Error> {
        let Self { store, walks } = self;
        let batch = batch.into_iter().inspect(|(key, _)| {
            for walk in walks.iter_mut() {
                walk.wrote(key.as_ref());
            }
        });
        store.write(batch, version)
    }

    fn clear(&mut self) -> Result<(), S::Error> {
        self.walks.clear();
        self.store.clear()
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, S::Error>> {
        self.store.range(start, end)
    }

    fn len(&self) -> usize {
        self.store.len()
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn digest(&self) -> u64 {
        self.store.digest()
    }
}
