//! A store that can be copied while it is written, for two purposes at the same time.
//!
//! **Invariant (completeness).** A copy holds every key below the front of the walk with its present value, except
//! the dirty keys. A write to a key below the front makes that key dirty. A key at the front or beyond is copied
//! when the walk reaches it. So when the walk has ended and no key is dirty, the copy equals the store.
//!
//! Keys are copied again in rounds: one that becomes dirty meanwhile belongs to the next round. Otherwise those that are
//! written often would be copied again and again in front of the others.
//!
//! The pairs that a walk comes to next are pinned in the store, and so are the dirty keys. The last part of a copy thus
//! needs nothing that is not in memory.

use hashbrown::DefaultHashBuilder;
use indexmap::IndexSet;

use super::compact::Compact;
use super::{Found, Pair, Store, Wanted};
use crate::command::Version;

/// Pairs that are pinned in front of a walk.
const WALK_PAIRS: usize = 1 << 10;
/// Bytes of pairs that are pinned in front of a walk, if they have more.
const WALK_BYTES: usize = 256 << 10;

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
    /// The disk, at restore points.
    Point,
}

type Keys = IndexSet<Compact, DefaultHashBuilder>;

struct Walk {
    purpose: CopyFor,
    front: Front,
    /// Dirty keys of this round, and of the next. No key is in both.
    dirty: Keys,
    next: Keys,
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

impl Front {
    /// The pairs that the walk comes to next.
    fn next(&self) -> Option<Wanted<'_>> {
        let Self::Below(start) = self else { return None };
        Some(Wanted::Range { start, end: None, pairs: WALK_PAIRS, bytes: WALK_BYTES })
    }
}

impl Walk {
    fn begin(purpose: CopyFor, front: Front) -> Self {
        Self { purpose, front, dirty: Keys::default(), next: Keys::default(), changed: 0 }
    }

    /// Returns whether the key became dirty.
    fn wrote(&mut self, key: &[u8]) -> bool {
        let passed = match &self.front {
            Front::Below(front) => key < front.as_slice(),
            Front::End => true,
        };
        let becomes_dirty = passed && !self.dirty.contains(key) && !self.next.contains(key);
        if becomes_dirty {
            let has_walked = matches!(self.front, Front::End);
            let round = if has_walked { &mut self.next } else { &mut self.dirty };
            round.insert(key.into());
            self.changed += 1;
        }
        becomes_dirty
    }

    /// Takes a key of this round, or, if there is none left, of the next.
    fn pop(&mut self) -> Option<Compact> {
        if self.dirty.is_empty() {
            // The memory of the round before is given back.
            self.dirty = std::mem::take(&mut self.next);
        }
        self.dirty.pop()
    }

    fn behind(&self) -> usize {
        self.dirty.len() + self.next.len()
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
        front.next().into_iter().for_each(|next| self.store.pin(next));
        self.walks.push(Walk::begin(purpose, front));
    }

    /// Notes every key that is written from now on, as if all keys had been copied.
    pub(crate) fn begin_changes(&mut self, purpose: CopyFor) {
        self.give_up_copy(purpose);
        self.walks.push(Walk::begin(purpose, Front::End));
    }

    pub(crate) fn give_up_copy(&mut self, purpose: CopyFor) {
        let Self { store, walks } = self;
        for walk in walks.extract_if(.., |walk| walk.purpose == purpose) {
            walk.front.next().into_iter().for_each(|next| store.unpin(next));
            for key in walk.dirty.iter().chain(&walk.next) {
                store.unpin(Wanted::Key(key.as_slice()));
            }
        }
    }

    /// Whether the next pairs of the walk are in memory. If not, [`copy`](Self::copy) takes none.
    pub(crate) fn can_copy(&self, purpose: CopyFor) -> bool {
        let next = self.walks.iter().find(|walk| walk.purpose == purpose);
        next.and_then(|walk| walk.front.next()).is_none_or(|next| self.store.has(next))
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
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
        if walk.front.next().is_some_and(|next| !store.has(next)) {
            return Ok(false);
        }
        let mut next = Front::End;
        let (mut pairs, mut bytes) = (0, 0);
        for pair in store.range(front, None) {
            let (key, Found { value, version }) = pair?;
            (pairs, bytes) = (pairs + 1, bytes + key.len() + value.len());
            let is_last = S::FETCHES && (pairs == WALK_PAIRS || bytes >= WALK_BYTES);
            if !take(&key, Found { value: &value, version }) || is_last {
                // The first key after the last one taken.
                next = Front::Below([&key, &[0][..]].concat());
                break;
            }
        }
        next.next().into_iter().for_each(|next| store.pin(next));
        let before = std::mem::replace(&mut walk.front, next);
        before.next().into_iter().for_each(|before| store.unpin(before));
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
        walk.map_or(0, Walk::behind)
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
        while let Some(key) = walk.pop() {
            let key = key.as_slice();
            let found = store.get(key)?;
            let borrowed =
                found.as_ref().map(|found| Found { value: &*found.value, version: found.version });
            let goes_on = take(key, borrowed);
            drop(found);
            store.unpin(Wanted::Key(key));
            if !goes_on {
                break;
            }
        }
        Ok(walk.behind() == 0)
    }

    /// To be called before a write.
    fn wrote(&mut self, key: &[u8]) {
        let Self { store, walks } = self;
        for walk in walks {
            if walk.wrote(key) {
                store.pin(Wanted::Key(key));
            }
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

    const FETCHES: bool = S::FETCHES;

    fn has(&self, wanted: Wanted<'_>) -> bool {
        self.store.has(wanted)
    }

    fn pin(&mut self, wanted: Wanted<'_>) {
        self.store.pin(wanted);
    }

    fn unpin(&mut self, wanted: Wanted<'_>) {
        self.store.unpin(wanted);
    }

    fn has_room(&self) -> bool {
        self.store.has_room()
    }

    fn has_news(&self) -> bool {
        self.store.has_news()
    }

    fn poll(&mut self) -> Result<bool, S::Error> {
        self.store.poll()
    }

    fn load(&mut self, key: &[u8], found: Option<Found<&[u8]>>) -> Result<(), S::Error> {
        self.store.load(key, found)
    }

    fn settle(&mut self) -> Result<(), S::Error> {
        self.store.settle()
    }

    fn keeps(&self) -> bool {
        self.store.keeps()
    }

    fn keep(&mut self) -> u64 {
        self.store.keep()
    }

    fn has_kept(&self) -> bool {
        self.store.has_kept()
    }

    fn drop_earlier(&mut self) {
        self.store.drop_earlier();
    }

    fn take_kept(&mut self, number: u64) -> Result<Result<(), String>, S::Error> {
        self.store.take_kept(number)
    }

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
        let mut dirty: Vec<Compact> = Vec::new();
        let batch = batch.into_iter().inspect(|(key, _)| {
            for walk in walks.iter_mut() {
                if walk.wrote(key.as_ref()) && S::FETCHES {
                    dirty.push(key.as_ref().into());
                }
            }
        });
        store.write(batch, version)?;
        for key in &dirty {
            store.pin(Wanted::Key(key.as_slice()));
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), S::Error> {
        self.give_up_copy(CopyFor::Replica);
        self.give_up_copy(CopyFor::Backup);
        self.give_up_copy(CopyFor::Point);
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
