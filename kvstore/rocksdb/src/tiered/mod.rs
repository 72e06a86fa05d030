//! A store in RocksDB with a part of its keys in memory, for a thread that must not wait for a disk.
//!
//! Threads of the store [fetch](Store::pin) what is not in memory, and write what was written. A write is in memory at
//! once, and goes to RocksDB later, in the order of the calls. Until everybody who reads RocksDB sees it, its key stays in
//! memory, so what is read is always the last write. What was fetched before the store was cleared is dropped.

mod hot;
mod ranges;
mod threads;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use skein_kvstore::command::Version;
use skein_kvstore::store::{Found, Pair, Store, StoreError, Wanted};

pub(crate) use self::hot::Change;
use self::hot::{Hot, Value};
use self::ranges::Ranges;
pub use self::threads::Wake;
use self::threads::{Fetched, Shared, Threads, What, Wish, Writes, lock};
use crate::checkpoints::Checkpoints;
use crate::database::{Database, Options};
use crate::guard::Guard;
use crate::state::{Owner, State};

/// Bytes that may wait to be written to RocksDB.
const WAITING_MAX: usize = 32 << 20;
/// Time between two looks whether the threads are done, where a caller waits for them.
const POLL: Duration = Duration::from_micros(100);

/// How much memory a store takes, and how many threads.
#[derive(Clone, Copy, Debug)]
pub struct TieredOptions {
    pub database: Options,
    /// Keys and values in memory. There may be more while commands need them, or before they are written.
    pub hot_bytes: usize,
    /// Threads that fetch.
    pub readers: usize,
}

impl Default for TieredOptions {
    fn default() -> Self {
        Self { database: Options::default(), hot_bytes: 256 << 20, readers: 4 }
    }
}

/// A store in a directory, with a part of it in memory.
///
/// It begins empty, whatever is in the directory: what a replica begins with is in the log of its node, or in a checkpoint
/// that a snapshot there names.
pub struct TieredStore {
    owner: Owner,
    options: TieredOptions,
    wake: Wake,
    hot: Hot,
    ranges: Ranges,
    state: State,
    /// Number of the last checkpoint that was asked for; 0 for none.
    keeps: u64,
    threads: Threads,
    shared: Arc<Shared>,
    /// Number of the last writes.
    written: u64,
    /// Writes that are not in RocksDB yet: their numbers and bytes, and the sum of the bytes.
    waiting: VecDeque<(u64, usize)>,
    waiting_bytes: usize,
    /// Nothing is fetched before all writes up to this number are in RocksDB: they were not in memory.
    barrier: u64,
    /// Fetches that wait for the barrier.
    held: Vec<Wish>,
    /// Keys that are being fetched.
    coming: usize,
}

impl TieredStore {
    /// Opens the store in the directory `path`, which is made if it is not there, and removes what it holds. `wake` is
    /// called by threads of the store when there is something to [`poll`](Store::poll).
    ///
    /// # Errors
    /// The directory cannot be used, or holds something else than the store of `owner`.
    pub fn open(
        path: &Path,
        owner: Owner,
        options: TieredOptions,
        wake: Wake,
    ) -> Result<Self, StoreError> {
        let database = Database::open_empty(path, owner, options.database)?;
        Self::start((database, State::default()), None, owner, options, wake)
    }

    /// The same for a replica that keeps checkpoints in the directory above `path`.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn open_beside(
        checkpoints: Checkpoints,
        path: &Path,
        owner: Owner,
        options: TieredOptions,
        wake: Wake,
    ) -> Result<Self, StoreError> {
        let database = Database::open_empty(path, owner, options.database)?;
        Self::start((database, State::default()), Some(checkpoints), owner, options, wake)
    }

    fn start(
        (database, state): (Database, State),
        checkpoints: Option<Checkpoints>,
        owner: Owner,
        options: TieredOptions,
        wake: Wake,
    ) -> Result<Self, StoreError> {
        let path = database.path().to_owned();
        let failed = |source: io::Error| StoreError::System {
            attempt: "start the threads of",
            file: path,
            source,
        };
        let shared = Arc::new(Shared::beside(checkpoints));
        let started = Threads::start((database, state), options.readers, &shared, &wake);
        let this = Self::with(started.map_err(failed)?, shared, owner, options, wake);
        Ok(Self { state, ..this })
    }

    /// A store that could not be opened. The first call that may fail says why.
    pub fn failed(why: StoreError) -> Self {
        let shared = Arc::new(Shared::default());
        let wake: Wake = Arc::new(|| ());
        shared.fail(why, &wake);
        let (owner, options) = (Owner::default(), TieredOptions::default());
        Self::with(Threads::none(&shared), shared, owner, options, wake)
    }

    fn with(
        threads: Threads,
        shared: Arc<Shared>,
        owner: Owner,
        options: TieredOptions,
        wake: Wake,
    ) -> Self {
        Self {
            owner,
            options,
            wake,
            keeps: 0,
            hot: Hot::default(),
            ranges: Ranges::default(),
            state: State::default(),
            threads,
            shared,
            written: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            barrier: 0,
            held: Vec::new(),
            coming: 0,
        }
    }

    /// Bytes of everything in memory that is counted.
    pub const fn hot_bytes(&self) -> usize {
        self.hot.bytes()
    }

    /// Number of pins.
    pub fn pins(&self) -> usize {
        self.hot.pins() + self.ranges.pins()
    }

    /// Begins with the state of a checkpoint, in place of its own. Returns what is wrong with the checkpoint.
    fn begin_with(&mut self, number: u64) -> Result<Result<(), String>, StoreError> {
        let Some(checkpoints) = self.shared.checkpoints.clone() else {
            return Ok(Err("this store makes no checkpoints".to_owned()));
        };
        let path = mem::take(&mut self.threads.path);
        // The database is closed when they have ended.
        drop(mem::replace(&mut self.threads, Threads::none(&self.shared)));
        remove(&path)?;
        let (owner, options) = (self.owner, self.options);
        match open_kept(&checkpoints, number, &path, owner, options.database)? {
            Ok(opened) => {
                *self = Self::start(opened, Some(checkpoints), owner, options, self.wake.clone())?;
                Ok(Ok(()))
            }
            Err(why) => remove(&path).map(|()| Err(why)),
        }
    }

    fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::SeqCst)
    }

    fn wish(&mut self, wish: Wish) {
        if self.applied() < self.barrier {
            self.held.push(wish);
        } else {
            self.shared.wish(wish);
        }
    }

    fn send(&mut self, what: What) {
        self.written += 1;
        let bytes = what.bytes();
        self.waiting.push_back((self.written, bytes));
        self.waiting_bytes += bytes;
        self.threads.write(Writes { number: self.written, what });
    }

    /// Writes keys that are in memory.
    fn set(&mut self, pairs: Vec<(Box<[u8]>, Option<Value>)>) {
        let mut change = Change::default();
        let number = self.written + 1;
        for (key, value) in &pairs {
            let at = self.hot.find(key).expect("it is in memory");
            let removes = value.is_none();
            if let Some(value) = value {
                change.add(key, &value.bytes, value.version);
            }
            let old = self.hot.write(at, value.clone(), number);
            if let Some(old) = &old {
                change.remove(key, &old.bytes, old.version);
            }
            if removes && old.is_some() && !self.ranges.is_empty() {
                for wish in self.ranges.lost(key, &self.hot) {
                    self.wish(wish);
                }
            }
        }
        self.state.change(change);
        self.send(What::Pairs(pairs, change));
    }

    /// Notes what is in RocksDB by now.
    fn note_applied(&mut self) {
        let applied = self.applied();
        while let Some((_, bytes)) = self.waiting.pop_front_if(|(number, _)| *number <= applied) {
            self.waiting_bytes -= bytes;
        }
        self.hot.applied(applied.min(self.ranges.since()));
        let loaded = std::mem::take(&mut *lock(&self.shared.loaded));
        self.state.change(loaded);
        if applied >= self.barrier {
            self.held.drain(..).for_each(|wish| self.shared.wish(wish));
        }
    }
}

/// Opens the state of a checkpoint in the directory `path`, which is made. Returns what is wrong with the checkpoint.
fn open_kept(
    checkpoints: &Checkpoints,
    number: u64,
    path: &Path,
    owner: Owner,
    options: Options,
) -> Result<Result<(Database, State), String>, StoreError> {
    if let Err(why) = checkpoints.link(number, path)? {
        return Ok(Err(why));
    }
    match Database::open(path, owner, options) {
        Ok((_, state)) if state.kept != number => {
            Ok(Err(checkpoints.describe(number, "its state names another number")))
        }
        Ok(opened) => Ok(Ok(opened)),
        Err(why) => checkpoints.unfit(number, why).map(Err),
    }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::System { attempt: "remove", file: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

impl Store for TieredStore {
    type Error = StoreError;
    type Guard<'a> = Guard<'a>;

    const FETCHES: bool = true;

    fn has(&self, wanted: Wanted<'_>) -> bool {
        match wanted {
            Wanted::Key(key) => self.hot.is_here(key),
            Wanted::Range { .. } => self.ranges.has(wanted),
        }
    }

    fn pin(&mut self, wanted: Wanted<'_>) {
        let Wanted::Key(key) = wanted else {
            let wish = self.ranges.pin(wanted, self.applied());
            return wish.into_iter().for_each(|wish| self.wish(wish));
        };
        let number = self.hot.find(key).unwrap_or_else(|| {
            let number = self.hot.add(key);
            self.coming += 1;
            self.wish(Wish::Key { number, key: key.into() });
            number
        });
        self.hot.pin(number);
    }

    fn unpin(&mut self, wanted: Wanted<'_>) {
        match wanted {
            Wanted::Key(key) => self.hot.unpin(key),
            Wanted::Range { .. } => self.ranges.unpin(wanted),
        }
    }

    fn has_room(&self) -> bool {
        self.waiting_bytes < WAITING_MAX
    }

    fn has_news(&self) -> bool {
        self.shared.news.load(Ordering::Relaxed)
    }

    fn poll(&mut self) -> Result<bool, StoreError> {
        if !self.shared.news.swap(false, Ordering::SeqCst) {
            return Ok(false);
        }
        if let Some(why) = self.shared.take_failure() {
            return Err(why);
        }
        let had_room = self.has_room();
        self.note_applied();
        let mut any = !had_room && self.has_room();
        while let Ok(fetched) = self.threads.fetched.try_recv() {
            match fetched {
                Fetched::Key { number, value } => {
                    self.coming -= 1;
                    self.hot.came(number, value);
                }
                Fetched::Run { id, pairs, next } => {
                    if let Some(wish) = self.ranges.came(id, pairs, next, &self.hot) {
                        self.wish(wish);
                    }
                }
            }
            any = true;
        }
        self.hot.evict(self.options.hot_bytes);
        Ok(any)
    }

    fn load(&mut self, key: &[u8], found: Option<Found<&[u8]>>) -> Result<(), StoreError> {
        while !self.has_room() {
            thread::sleep(POLL);
            self.poll()?;
        }
        let value = found.map(Value::of);
        if self.hot.find(key).is_some() {
            self.settle()?;
            self.set(vec![(key.into(), value)]);
        } else {
            self.send(What::Load(key.into(), value));
            self.barrier = self.written;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        while self.applied() < self.barrier || self.coming > 0 || !self.ranges.are_here() {
            thread::sleep(POLL);
            self.poll()?;
        }
        self.note_applied();
        Ok(())
    }

    fn keeps(&self) -> bool {
        self.shared.checkpoints.is_some()
    }

    fn keep(&mut self) -> u64 {
        let checkpoints = self.shared.checkpoints.as_ref();
        self.keeps = checkpoints.expect("it was asked whether it keeps any").number();
        self.send(What::Keep(self.keeps));
        self.keeps
    }

    fn has_kept(&self) -> bool {
        self.shared.kept.load(Ordering::SeqCst) == self.keeps
    }

    fn drop_earlier(&mut self) {
        if self.keeps != 0 {
            self.send(What::DropOthers(self.keeps));
        }
    }

    fn take_kept(&mut self, number: u64) -> Result<Result<(), String>, StoreError> {
        self.begin_with(number)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Found<Guard<'_>>>, StoreError> {
        let found = self.hot.get(key);
        Ok(found.map(|Value { bytes, version }| Found {
            value: Guard::from(&**bytes),
            version: *version,
        }))
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), StoreError> {
        self.set(vec![(key.into(), Some(Value { bytes: value.into(), version }))]);
        Ok(())
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, StoreError> {
        let found = self.hot.get(key);
        let mut value = found.map(|found| found.bytes.to_vec()).unwrap_or_default();
        let end = offset + bytes.len();
        value.resize(value.len().max(end), 0);
        value[offset..end].copy_from_slice(bytes);
        let len = value.len();
        self.set(vec![(key.into(), Some(Value { bytes: value.into(), version }))]);
        Ok(len)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let existed = self.hot.get(key).is_some();
        if existed {
            self.set(vec![(key.into(), None)]);
        }
        Ok(existed)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        writes: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), StoreError> {
        let pair = |(key, value): (K, Option<V>)| {
            let value = value.map(|value| Value { bytes: value.as_ref().into(), version });
            (key.as_ref().into(), value)
        };
        let pairs: Vec<_> = writes.into_iter().map(pair).collect();
        if !pairs.is_empty() {
            self.set(pairs);
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), StoreError> {
        // What is being fetched, or loaded, must not be taken for something later.
        self.settle()?;
        (self.hot, self.ranges) = (Hot::default(), self.ranges.cleared());
        self.held.clear();
        self.send(What::Clear);
        self.barrier = self.written;
        self.state = State::default();
        Ok(())
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<Pair<'a, Self>, StoreError>> {
        self.ranges.pairs(start, end, &self.hot).map(Ok)
    }

    fn len(&self) -> usize {
        self.state.keys as usize
    }

    fn bytes(&self) -> u64 {
        self.state.bytes
    }

    fn digest(&self) -> u64 {
        self.state.digest
    }
}
