//! A store that has few of its keys in memory, and fetches the others late. It panics if anything else is read or written.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;

use skein_kvstore::command::Version;
use skein_kvstore::store::memory::Memory;
use skein_kvstore::store::{Found, Pair, Store, Wanted};

/// A fetch takes up to so many calls of `poll`.
const POLLS_MAX: u64 = 4;

/// A pair, with its version.
type KeptPair = (Vec<u8>, Vec<u8>, Version);

thread_local! {
    /// The states that stores of this thread have kept. The number of a state is its place, from 1 on.
    static KEPT: RefCell<Vec<Vec<KeptPair>>> = const { RefCell::new(Vec::new()) };
}

/// The state that was kept last loses a pair.
pub(crate) fn spoil() {
    KEPT.with_borrow_mut(|kept| kept.last_mut().and_then(Vec::pop).expect("it had one"));
}

/// Something that is pinned, or in memory.
#[derive(Clone, Copy)]
struct Entry {
    /// Calls of `poll` until it is in memory.
    left: u64,
    pins: usize,
}

struct Range {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    pairs: usize,
    bytes: usize,
    entry: Entry,
}

impl Range {
    fn is(&self, wanted: Wanted<'_>) -> bool {
        let Self { start, end, pairs, bytes, .. } = self;
        wanted == Wanted::Range { start, end: end.as_deref(), pairs: *pairs, bytes: *bytes }
    }
}

/// A store in memory that acts as if most of it were elsewhere.
pub(crate) struct Slow {
    memory: Memory,
    keys: BTreeMap<Vec<u8>, Entry>,
    ranges: Vec<Range>,
    random: u64,
    /// Calls of `has_kept` until the state that was kept last is on disk.
    keeps: Cell<u64>,
}

impl Default for Slow {
    fn default() -> Self {
        Self {
            memory: Memory::default(),
            keys: BTreeMap::new(),
            ranges: Vec::new(),
            random: 0x9E37_79B9_7F4A_7C15,
            keeps: Cell::new(0),
        }
    }
}

impl Slow {
    /// Number of pins.
    pub(crate) fn pins(&self) -> usize {
        self.entries().map(|entry| entry.pins).sum()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.keys.values().chain(self.ranges.iter().map(|range| &range.entry))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn requires(&self, key: &[u8]) {
        assert!(self.has(Wanted::Key(key)), "{key:?} is not in memory");
    }
}

impl Store for Slow {
    type Error = Infallible;
    type Guard<'a> = &'a [u8];

    const FETCHES: bool = true;

    fn has(&self, wanted: Wanted<'_>) -> bool {
        match wanted {
            Wanted::Key(key) => self.keys.get(key).is_some_and(|entry| entry.left == 0),
            Wanted::Range { .. } => {
                self.ranges.iter().any(|range| range.is(wanted) && range.entry.left == 0)
            }
        }
    }

    fn pin(&mut self, wanted: Wanted<'_>) {
        let entry = Entry { left: 1 + self.below(POLLS_MAX), pins: 0 };
        let entry = match wanted {
            Wanted::Key(key) => self.keys.entry(key.to_vec()).or_insert(entry),
            Wanted::Range { start, end, pairs, bytes } => {
                let at = self.ranges.iter().position(|range| range.is(wanted));
                let at = at.unwrap_or_else(|| {
                    let (start, end) = (start.to_vec(), end.map(<[u8]>::to_vec));
                    self.ranges.push(Range { start, end, pairs, bytes, entry });
                    self.ranges.len() - 1
                });
                &mut self.ranges[at].entry
            }
        };
        entry.pins += 1;
    }

    fn unpin(&mut self, wanted: Wanted<'_>) {
        let entry = match wanted {
            Wanted::Key(key) => self.keys.get_mut(key),
            Wanted::Range { .. } => {
                let found = self.ranges.iter_mut().find(|range| range.is(wanted));
                found.map(|range| &mut range.entry)
            }
        };
        let entry = entry.filter(|entry| entry.pins > 0);
        entry.expect("it was pinned").pins -= 1;
    }

    fn poll(&mut self) -> Result<bool, Infallible> {
        let mut any = false;
        let ranges = self.ranges.iter_mut().map(|range| &mut range.entry);
        for entry in self.keys.values_mut().chain(ranges).filter(|entry| entry.left > 0) {
            entry.left -= 1;
            any |= entry.left == 0;
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.retain(|_, entry| entry.left > 0 || entry.pins > 0 || self.below(2) == 0);
        self.keys = keys;
        self.ranges.retain(|range| range.entry.pins > 0);
        Ok(any)
    }

    fn load(&mut self, key: &[u8], found: Option<Found<&[u8]>>) -> Result<(), Infallible> {
        match found {
            Some(Found { value, version }) => self.memory.put(key, value, version),
            None => self.memory.delete(key).map(drop),
        }
    }

    fn settle(&mut self) -> Result<(), Infallible> {
        while self.entries().any(|entry| entry.pins > 0 && entry.left > 0) {
            self.poll()?;
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn keep(&mut self) -> u64 {
        self.keeps = Cell::new(self.below(POLLS_MAX));
        let pairs = self
            .memory
            .range(b"", None)
            .map(|Ok((key, found))| (key.to_vec(), found.value.to_vec(), found.version));
        let pairs = pairs.collect();
        KEPT.with_borrow_mut(|kept| {
            kept.push(pairs);
            kept.len() as u64
        })
    }

    fn has_kept(&self) -> bool {
        self.keeps.replace(self.keeps.get().saturating_sub(1)) == 0
    }

    fn take_kept(&mut self, number: u64) -> Result<Result<(), String>, Infallible> {
        assert!(self.memory.is_empty(), "it is taken by an empty store");
        let kept = KEPT.with_borrow(|kept| kept.get(number as usize - 1).cloned());
        let Some(pairs) = kept else { return Ok(Err(format!("state {number} is gone"))) };
        for (key, value, version) in pairs {
            self.memory.put(&key, &value, version)?;
        }
        Ok(Ok(()))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Found<&[u8]>>, Infallible> {
        self.requires(key);
        self.memory.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), Infallible> {
        self.requires(key);
        self.memory.put(key, value, version)
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, Infallible> {
        self.requires(key);
        self.memory.patch(key, offset, bytes, version)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Infallible> {
        self.requires(key);
        self.memory.delete(key)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), Infallible> {
        let keys = &self.keys;
        let requires = |(key, _): &(K, Option<V>)| {
            let entry = keys.get(key.as_ref());
            assert!(entry.is_some_and(|entry| entry.left == 0), "{:?}", key.as_ref());
        };
        self.memory.write(batch.into_iter().inspect(requires), version)
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.keys.clear();
        self.ranges.clear();
        self.memory.clear()
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, Infallible>> {
        let these = |range: &&Range| {
            range.start == start && range.end.as_deref() == end && range.entry.left == 0
        };
        let in_memory: Vec<_> = self.ranges.iter().filter(these).collect();
        let (mut pairs, mut bytes) = (0, 0);
        self.memory.range(start, end).map(move |Ok((key, found))| {
            let more = in_memory.iter().any(|range| pairs < range.pairs && bytes < range.bytes);
            assert!(more, "pair {pairs} of the range is not in memory");
            (pairs, bytes) = (pairs + 1, bytes + key.len() + found.value.len());
            Ok((key, found))
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
