//! The threads that call RocksDB. The thread of an engine never does.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fs, io, mem};

use skein_kvstore::command::Version;
use skein_kvstore::store::StoreError;

use super::hot::{Change, Value};
use crate::checkpoints::Checkpoints;
use crate::database::{Batch, Database};
use crate::state::State;

/// Bytes of the batches that are applied to RocksDB together.
const TOGETHER_MAX: usize = 1 << 20;
/// A run of pairs is fetched in pieces of so many pairs.
const PIECE_PAIRS: usize = 1 << 10;

/// Wakes the engine, if it sleeps.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Something to be fetched.
pub(super) enum Wish {
    Key { number: u32, key: Box<[u8]> },
    Run { id: u64, start: Box<[u8]>, end: Option<Box<[u8]>>, pairs: usize, bytes: usize },
}

/// What was fetched.
pub(super) enum Fetched {
    Key { number: u32, value: Option<Value> },
    Run { id: u64, pairs: Vec<(Box<[u8]>, Value)>, next: Option<Box<[u8]>> },
}

/// Writes of one call, in the order of the calls.
pub(super) struct Writes {
    pub(super) number: u64,
    pub(super) what: What,
}

pub(super) enum What {
    /// What the writes change in all.
    Pairs(Vec<(Box<[u8]>, Option<Value>)>, Change),
    /// Nobody knows what was there before.
    Load(Box<[u8]>, Option<Value>),
    Clear,
    /// Keep everything so far as the checkpoint of this number.
    Keep(u64),
    /// Remove all checkpoints but that of this number.
    DropOthers(u64),
}

impl What {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Pairs(pairs, _) => Self::bytes_of(pairs),
            Self::Load(key, value) => bytes_of(key, value.as_ref()),
            Self::Clear | Self::Keep(_) | Self::DropOthers(_) => 0,
        }
    }

    fn bytes_of(pairs: &[(Box<[u8]>, Option<Value>)]) -> usize {
        pairs.iter().map(|(key, value)| bytes_of(key, value.as_ref())).sum()
    }
}

/// Bytes of a write that waits.
fn bytes_of(key: &[u8], value: Option<&Value>) -> usize {
    64 + key.len() + value.map_or(0, |value| value.bytes.len())
}

/// What the threads share with the engine.
#[derive(Default)]
pub(super) struct Shared {
    /// Number of the last writes that are in the database.
    pub(super) applied: AtomicU64,
    /// Something was fetched or applied since this was last taken.
    pub(super) news: AtomicBool,
    /// What loads have changed since this was last taken.
    pub(super) loaded: Mutex<Change>,
    /// Number of the last checkpoint that is on disk; 0 for none.
    pub(super) kept: AtomicU64,
    /// Where checkpoints go, if the store makes any.
    pub(super) checkpoints: Option<Checkpoints>,
    failure: Mutex<Option<StoreError>>,
    wishes: Mutex<Wishes>,
    came: Condvar,
}

#[derive(Default)]
struct Wishes {
    waiting: VecDeque<Wish>,
    over: bool,
}

/// Locks, also if a thread has panicked: its data is whole between calls.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// For a store that makes these checkpoints.
    pub(super) fn beside(checkpoints: Option<Checkpoints>) -> Self {
        Self { checkpoints, ..Self::default() }
    }

    pub(super) fn wish(&self, wish: Wish) {
        lock(&self.wishes).waiting.push_back(wish);
        self.came.notify_one();
    }

    pub(super) fn take_failure(&self) -> Option<StoreError> {
        lock(&self.failure).take()
    }

    /// The next wish; `None` at the end.
    fn next(&self) -> Option<Wish> {
        let mut wishes = lock(&self.wishes);
        loop {
            if wishes.over {
                return None;
            }
            if let Some(wish) = wishes.waiting.pop_front() {
                return Some(wish);
            }
            wishes = self.came.wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn tell(&self, wake: &Wake) {
        if !self.news.swap(true, Ordering::SeqCst) {
            wake();
        }
    }

    pub(super) fn fail(&self, why: StoreError, wake: &Wake) {
        if let (StoreError::Damaged { what, .. }, Some(checkpoints)) = (&why, &self.checkpoints) {
            // A start would find the same again. If this cannot be written either, it will say so.
            let _ = checkpoints.mark_damaged(what);
        }
        lock(&self.failure).get_or_insert(why);
        self.tell(wake);
    }
}

/// The threads of a store. They end when it is dropped, and its directory is removed.
pub(super) struct Threads {
    writes: Option<Sender<Writes>>,
    pub(super) fetched: Receiver<Fetched>,
    shared: Arc<Shared>,
    running: Vec<JoinHandle<()>>,
    pub(super) path: PathBuf,
}

impl Threads {
    pub(super) fn start(
        (database, state): (Database, State),
        readers: usize,
        shared: &Arc<Shared>,
        wake: &Wake,
    ) -> io::Result<Self> {
        let (path, database) = (database.path().to_owned(), Arc::new(database));
        let ((writes, to_write), (found, fetched)) = (channel(), channel());
        let (running, ours) = (Vec::new(), shared.clone());
        let mut this = Self { writes: None, fetched, shared: ours, running, path };
        for _ in 0..readers {
            let (database, found) = (database.clone(), found.clone());
            let (shared, wake) = (shared.clone(), wake.clone());
            let run = move || read(&database, &found, &shared, &wake);
            this.running.push(thread::Builder::new().name("store-read".to_owned()).spawn(run)?);
        }
        let (shared, wake) = (shared.clone(), wake.clone());
        let run = move || Writer { database, state }.run(&to_write, &shared, &wake);
        this.running.push(thread::Builder::new().name("store-write".to_owned()).spawn(run)?);
        this.writes = Some(writes);
        Ok(this)
    }

    /// No threads, for a store that has failed.
    pub(super) fn none(shared: &Arc<Shared>) -> Self {
        let (_, fetched) = channel();
        let (running, path) = (Vec::new(), PathBuf::new());
        Self { writes: None, fetched, shared: shared.clone(), running, path }
    }

    pub(super) fn write(&self, writes: Writes) {
        // If the thread has ended, it has left a failure, which is found next.
        let _ = self.writes.as_ref().map(|sender| sender.send(writes));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.wishes).over = true;
        self.writes = None;
        self.shared.came.notify_all();
        for thread in self.running.drain(..) {
            let _ = thread.join();
        }
        // Nothing of it is needed any more. A start removes what is left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn read(database: &Database, found: &Sender<Fetched>, shared: &Shared, wake: &Wake) {
    while let Some(wish) = shared.next() {
        match fetch(database, wish) {
            Ok(fetched) => _ = found.send(fetched),
            Err(why) => return shared.fail(why, wake),
        }
        shared.tell(wake);
    }
}

fn fetch(database: &Database, wish: Wish) -> Result<Fetched, StoreError> {
    let value = |bytes: &[u8], version: Version| Value { bytes: bytes.into(), version };
    match wish {
        Wish::Key { number, key } => {
            let found = database.get(&key)?;
            let value = found.map(|found| value(&found.value, found.version));
            Ok(Fetched::Key { number, value })
        }
        Wish::Run { id, start, end, pairs: most, bytes: bytes_max } => {
            let (mut pairs, mut bytes) = (Vec::new(), 0);
            let mut iterator = database.range(&start, end.as_deref());
            let mut next = None;
            while let Some((key, found)) = iterator.item() {
                let key = &key[1..];
                if pairs.len() == most.min(PIECE_PAIRS) || bytes >= bytes_max {
                    next = Some(key.into());
                    break;
                }
                let (version, found) = database.split(found)?;
                bytes += key.len() + found.len();
                pairs.push((key.into(), value(found, version)));
                iterator.next();
            }
            iterator.status().map_err(|error| database.explain_read(&error))?;
            Ok(Fetched::Run { id, pairs, next })
        }
    }
}

/// Applies writes, and knows the state after them.
struct Writer {
    database: Arc<Database>,
    state: State,
}

impl Writer {
    fn run(mut self, writes: &Receiver<Writes>, shared: &Shared, wake: &Wake) {
        while let Ok(first) = writes.recv() {
            if lock(&shared.wishes).over {
                return;
            }
            let next = || writes.try_recv().ok();
            let mut waiting = Some(first);
            while let Some(first) = waiting.take() {
                match self.apply(first, next, &mut waiting, shared) {
                    Ok(number) => shared.applied.store(number, Ordering::SeqCst),
                    Err(why) => return shared.fail(why, wake),
                }
                shared.tell(wake);
            }
        }
    }

    /// Applies some writes in one batch. Returns the number of the last; `rest` is the one after it, if it was taken.
    fn apply(
        &mut self,
        first: Writes,
        next: impl Fn() -> Option<Writes>,
        rest: &mut Option<Writes>,
        shared: &Shared,
    ) -> Result<u64, StoreError> {
        let (mut batch, mut bytes) = (Batch::default(), first.what.bytes());
        let mut number = first.number;
        match first.what {
            What::Clear => {
                batch.clear();
                self.state = State::default();
            }
            What::Keep(kept) => {
                self.state.kept = kept;
                self.keep(shared)?;
                return Ok(number);
            }
            What::DropOthers(kept) => {
                if let Some(checkpoints) = &shared.checkpoints {
                    checkpoints.remove_others(kept)?;
                }
                return Ok(number);
            }
            What::Load(key, value) => {
                let mut loaded = HashSet::new();
                let mut waiting = Some((key, value));
                while let Some((key, value)) = waiting.take() {
                    self.load(&mut batch, &key, value.as_ref(), shared)?;
                    loaded.insert(key);
                    match next() {
                        Some(Writes { number: last, what: What::Load(key, value) })
                            if bytes < TOGETHER_MAX && !loaded.contains(&key) =>
                        {
                            bytes += key.len() + value.as_ref().map_or(0, |it| it.bytes.len());
                            number = last;
                            waiting = Some((key, value));
                        }
                        other => *rest = other,
                    }
                }
            }
            What::Pairs(pairs, change) => {
                self.add(&mut batch, &pairs, change);
                while bytes < TOGETHER_MAX {
                    match next() {
                        Some(Writes { number: last, what: What::Pairs(pairs, change) }) => {
                            bytes += What::bytes_of(&pairs);
                            number = last;
                            self.add(&mut batch, &pairs, change);
                        }
                        other => {
                            *rest = other;
                            break;
                        }
                    }
                }
            }
        }
        self.database.apply(batch, &self.state)?;
        Ok(number)
    }

    /// Makes a checkpoint, of which the state names the number.
    fn keep(&self, shared: &Shared) -> Result<(), StoreError> {
        self.database.apply(Batch::default(), &self.state)?;
        if let Some(checkpoints) = &shared.checkpoints {
            checkpoints.make(self.state.kept, &self.database)?;
        }
        shared.kept.store(self.state.kept, Ordering::SeqCst);
        Ok(())
    }

    fn add(&mut self, batch: &mut Batch, pairs: &[(Box<[u8]>, Option<Value>)], change: Change) {
        for (key, value) in pairs {
            match value {
                Some(value) => batch.put(key, &value.bytes, value.version),
                None => batch.delete(key),
            }
        }
        self.state.change(change);
    }

    fn load(
        &mut self,
        batch: &mut Batch,
        key: &[u8],
        value: Option<&Value>,
        shared: &Shared,
    ) -> Result<(), StoreError> {
        let mut change = Change::default();
        if let Some(found) = self.database.get(key)? {
            change.remove(key, &found.value, found.version);
        }
        match value {
            Some(value) => {
                change.add(key, &value.bytes, value.version);
                batch.put(key, &value.bytes, value.version);
            }
            None => batch.delete(key),
        }
        self.state.change(change);
        let mut loaded = lock(&shared.loaded);
        let before = mem::take(&mut *loaded);
        *loaded = before.and(change);
        Ok(())
    }
}
