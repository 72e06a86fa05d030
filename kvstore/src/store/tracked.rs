//! A store that can be copied while it is written.
//!
//! **Invariant (nothing is missed).** What was copied is every key below the walk's front, as it is
//! now, except those that are `dirty`. Whoever writes a key below the front makes it dirty; one at
//! the front or beyond will be met as the walk goes on. So when the walk has ended and nothing is
//! dirty, the copy is the store.

use std::collections::BTreeSet;

use super::compact::Compact;
use super::{Found, Pair, Store};
use crate::command::Version;

/// A store, and how far it is copied. Without a copy a write costs one branch more.
pub(crate) struct Tracked<S> {
    store: S,
    walk: Option<Box<Walk>>,
}

struct Walk {
    front: Front,
    dirty: BTreeSet<Compact>,
    /// So many keys became dirty since this was last asked.
    changed: usize,
}

/// How far the walk over the keys is. It only moves on.
enum Front {
    /// The keys below this one were copied.
    Below(Vec<u8>),
    /// All were.
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
        Self { store, walk: None }
    }

    /// Begins a copy; another that was under way is given up.
    pub(crate) fn begin_copy(&mut self) {
        self.walk = Some(Box::new(Walk {
            front: Front::Below(Vec::new()),
            dirty: BTreeSet::new(),
            changed: 0,
        }));
    }

    pub(crate) fn give_up_copy(&mut self) {
        self.walk = None;
    }

    /// Goes on with the walk: gives `take` pair after pair until it says that it has enough. Returns
    /// whether the walk has come to its end.
    pub(crate) fn copy(
        &mut self,
        mut take: impl FnMut(&[u8], Found<&[u8]>) -> bool,
    ) -> Result<bool, S::Error> {
        let walk = self.walk.as_mut().expect("a copy was begun");
        let Front::Below(front) = &walk.front else { return Ok(true) };
        let mut next = Front::End;
        for pair in self.store.range(front, None) {
            let (key, Found { value, version }) = pair?;
            if !take(&key, Found { value: &value, version }) {
                // From the first key after the last one taken.
                next = Front::Below([&key, &[0][..]].concat());
                break;
            }
        }
        walk.front = next;
        Ok(matches!(walk.front, Front::End))
    }

    /// How many keys have become dirty since this was last asked.
    pub(crate) fn changed(&mut self) -> usize {
        self.walk.as_mut().map_or(0, |walk| std::mem::take(&mut walk.changed))
    }

    /// Gives `take` key after key that was written since it was copied, with what stands there now,
    /// until it says that it has enough. Returns whether all were given.
    pub(crate) fn copy_again(
        &mut self,
        mut take: impl FnMut(&[u8], Option<Found<&[u8]>>) -> bool,
    ) -> Result<bool, S::Error> {
        let walk = self.walk.as_mut().expect("a copy was begun");
        while let Some(key) = walk.dirty.pop_first() {
            let key = key.as_slice();
            let found = self.store.get(key)?;
            let found =
                found.as_ref().map(|found| Found { value: &*found.value, version: found.version });
            if !take(key, found) {
                break;
            }
        }
        Ok(walk.dirty.is_empty())
    }

    fn wrote(&mut self, key: &[u8]) {
        if let Some(walk) = &mut self.walk {
            walk.wrote(key);
        }
    }
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
        let Self { store, walk } = self;
        let batch = batch.into_iter().inspect(|(key, _)| {
            if let Some(walk) = walk {
                walk.wrote(key.as_ref());
            }
        });
        store.write(batch, version)
    }

    fn clear(&mut self) -> Result<(), S::Error> {
        self.walk = None;
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
