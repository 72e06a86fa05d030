//! The keys that are in memory, or on their way.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashTable;
use skein_kvstore::command::Version;
use skein_kvstore::store::Found;
use skein_kvstore::store::sum::Sum;
use xxhash_rust::xxh3::xxh3_64;

/// Entries that are looked at together to make room.
const EVICTED_AT_ONCE: usize = 1 << 12;
/// Bytes counted for a key besides its own and those of its value.
const OVERHEAD: usize = 160;

/// A value in memory.
#[derive(Clone)]
pub(crate) struct Value {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) version: Version,
}

impl Value {
    pub(crate) fn of(Found { value, version }: Found<&[u8]>) -> Self {
        Self { bytes: value.into(), version }
    }
}

/// Knowledge of a key's value.
enum Place {
    /// It is being fetched.
    Coming,
    /// It has this value, or none.
    Here(Option<Value>),
}

struct Entry {
    key: Box<[u8]>,
    place: Place,
    pins: u32,
    /// Number of the last batch that writes it; 0 if all readers of the database see that write.
    written: u64,
    /// It was read or written since eviction last came by.
    touched: Cell<bool>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let value = match &self.place {
            Place::Here(Some(value)) => value.bytes.len(),
            Place::Here(None) | Place::Coming => 0,
        };
        OVERHEAD + self.key.len() + value
    }

    fn may_leave(&self) -> bool {
        self.pins == 0 && self.written == 0 && matches!(self.place, Place::Here(_))
    }
}

/// Entries by number, by key, and those that were written in key order.
///
/// Invariant: an entry that was written stays until every later reader of the database sees the write.
#[derive(Default)]
pub(crate) struct Hot {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// The entries that were written: `entry.written != 0`.
    overlay: BTreeMap<Box<[u8]>, u32>,
    /// Writes, the oldest first: the number of the batch, and the entry.
    writes: VecDeque<(u64, u32)>,
    /// Sum over all entries.
    bytes: usize,
    /// Place in `entries` at which eviction goes on.
    hand: usize,
}

impl Hot {
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let same = |number: &u32| *self.entry(*number).key == *key;
        self.index.find(xxh3_64(key), same).copied()
    }

    fn entry(&self, number: u32) -> &Entry {
        self.entries[number as usize].as_ref().expect("it is in use")
    }

    fn entry_mut(&mut self, number: u32) -> &mut Entry {
        self.entries[number as usize].as_mut().expect("it is in use")
    }

    /// The value of a key that is in memory.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Value> {
        let entry = self.entry(self.find(key).expect("it is in memory"));
        entry.touched.set(true);
        let Place::Here(value) = &entry.place else { panic!("it is being fetched") };
        value.as_ref()
    }

    pub(crate) fn pin(&mut self, number: u32) {
        self.entry_mut(number).pins += 1;
    }

    pub(crate) fn unpin(&mut self, key: &[u8]) {
        let number = self.find(key).expect("it was pinned");
        self.entry_mut(number).pins -= 1;
    }

    /// Number of pins.
    pub(crate) fn pins(&self) -> usize {
        self.entries.iter().flatten().map(|entry| entry.pins as usize).sum()
    }

    pub(crate) fn is_here(&self, key: &[u8]) -> bool {
        let entry = self.find(key).map(|number| self.entry(number));
        entry.is_some_and(|entry| matches!(entry.place, Place::Here(_)))
    }

    /// Adds a key that is being fetched.
    pub(crate) fn add(&mut self, key: &[u8]) -> u32 {
        let (place, touched) = (Place::Coming, Cell::new(true));
        let entry = Entry { key: key.into(), place, pins: 0, written: 0, touched };
        self.bytes += entry.bytes();
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("so many have no room in any memory")
        });
        self.entries[number as usize] = Some(entry);
        let entries = &self.entries;
        let hash =
            |number: &u32| entries[*number as usize].as_ref().map_or(0, |it| xxh3_64(&it.key));
        self.index.insert_unique(xxh3_64(key), number, hash);
        number
    }

    /// The value of an entry that was fetched.
    pub(crate) fn came(&mut self, number: u32, value: Option<Value>) {
        let entry = self.entry_mut(number);
        let before = entry.bytes();
        entry.place = Place::Here(value);
        let after = entry.bytes();
        self.bytes = self.bytes + after - before;
    }

    /// Writes an entry that is in memory, by the batch of that number. Returns the value before.
    pub(crate) fn write(&mut self, number: u32, value: Option<Value>, batch: u64) -> Option<Value> {
        let entry = self.entry_mut(number);
        entry.touched.set(true);
        let (before, first) = (entry.bytes(), entry.written == 0);
        entry.written = batch;
        let Place::Here(old) = std::mem::replace(&mut entry.place, Place::Here(value)) else {
            panic!("it is being fetched");
        };
        let (after, key) = (entry.bytes(), first.then(|| entry.key.clone()));
        self.bytes = self.bytes + after - before;
        self.writes.push_back((batch, number));
        if let Some(key) = key {
            self.overlay.insert(key, number);
        }
        old
    }

    /// The writes of all batches up to this one are in the database, for everybody who will read it.
    pub(crate) fn applied(&mut self, batch: u64) {
        while let Some((_, number)) = self.writes.pop_front_if(|(first, _)| *first <= batch) {
            let entry = self.entry_mut(number);
            // Otherwise it was written again.
            if entry.written <= batch && entry.written != 0 {
                entry.written = 0;
                let key = entry.key.clone();
                self.overlay.remove(&key);
            }
        }
    }

    /// The entries of a range that were written, in key order.
    pub(crate) fn overlay<'a>(
        &'a self,
        start: &'a [u8],
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a Value>)> {
        let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
        let is_empty = end.is_some_and(|end| end <= start);
        let range = (!is_empty).then(|| self.overlay.range::<[u8], _>(bounds));
        range.into_iter().flatten().map(|(key, number)| {
            let Place::Here(value) = &self.entry(*number).place else {
                panic!("it was written, so it is in memory");
            };
            (&**key, value.as_ref())
        })
    }

    /// Removes entries that may leave, those that were not used for long first, until the others have at most `max`
    /// bytes.
    pub(crate) fn evict(&mut self, max: usize) {
        // In the first round it only forgets that entries were touched.
        let mut left = EVICTED_AT_ONCE.min(2 * self.entries.len());
        while self.bytes > max && left > 0 {
            left -= 1;
            self.hand = (self.hand + 1) % self.entries.len();
            let at = self.hand;
            let leaves = |entry: &Entry| entry.may_leave() && !entry.touched.replace(false);
            if self.entries[at].as_ref().is_some_and(leaves) {
                self.remove(at as u32);
            }
        }
    }

    fn remove(&mut self, number: u32) {
        let entry = self.entries[number as usize].take().expect("it is in use");
        self.bytes -= entry.bytes();
        if let Ok(found) = self.index.find_entry(xxh3_64(&entry.key), |it| *it == number) {
            found.remove();
        }
        self.free.push(number);
    }

    /// Bytes of everything in memory.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Difference that a pair makes to the sums of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) keys: i64,
    pub(crate) bytes: i64,
    pub(crate) digest: u64,
}

impl Change {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            bytes: self.bytes + other.bytes,
            digest: self.digest.wrapping_add(other.digest),
        }
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], version: Version) {
        self.keys += 1;
        self.bytes += (key.len() + value.len()).cast_signed() as i64;
        self.digest = self.digest.wrapping_add(Sum::of(key).pair(value, version));
    }

    pub(crate) fn remove(&mut self, key: &[u8], value: &[u8], version: Version) {
        self.keys -= 1;
        self.bytes -= (key.len() + value.len()).cast_signed() as i64;
        self.digest = self.digest.wrapping_sub(Sum::of(key).pair(value, version));
    }
}
