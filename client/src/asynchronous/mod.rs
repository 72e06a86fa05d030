//! The client for tasks: each call is a future, and any number of them may be under way.
//!
//! One thread per process and cluster waits for all clients of that cluster; the runtime's threads never spin and never
//! block. Futures work on any runtime.

mod io;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use skein_kvstore::command::{Key, Operation, Transaction, Value, Version};
use skein_kvstore::reply::{Page, Reply};
use skein_protocol::ids::GroupSet;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::connect::ConnectError;
use crate::driver::{Shape, TIMEOUT_DEFAULT};
use crate::error::{Error, Unavailability};
use crate::operations::{self, KeyRange, Swap};
use crate::reads::ReadMode;

pub(crate) use io::Io;
use io::{Call, Command};

/// One session, shared by its clones. It is cheap to clone, and to share among tasks.
///
/// At most a window of operations (`tuning.window`) is under way; further ones wait for room. Dropping a future does
/// not cancel its operation: it takes effect or not, and its reply is dropped.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let cluster = skein_client::local::Cluster::local()?;
/// let client = cluster.async_client()?; // or Client::connect("/path/to/the/cluster").await?
/// let counting: Vec<_> = (0..100)
///     .map(|_| {
///         let client = client.clone();
///         tokio::spawn(async move { client.increment("count", 1).await })
///     })
///     .collect();
/// for task in counting {
///     task.await??;
/// }
/// assert_eq!(client.get("count").await?.as_deref(), Some(&b"100"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    session: Arc<Session>,
    timeout: Duration,
    read_mode: ReadMode,
}

struct Session {
    io: Arc<Io>,
    number: u64,
    window: Arc<Semaphore>,
}

/// The clients' threads of this process, by the directory of their cluster.
static SHARED: Mutex<Vec<(PathBuf, Weak<Io>)>> = Mutex::const_new(Vec::new());

impl Client {
    /// A client of the cluster that runs in `dir`, with a session of its own.
    pub async fn connect(dir: impl AsRef<Path>) -> Result<Self, ConnectError> {
        // The directory refuses a path that cannot be made absolute, with a reason.
        let dir = std::path::absolute(dir.as_ref()).unwrap_or_else(|_| dir.as_ref().to_owned());
        let mut shared = SHARED.lock().await;
        shared.retain(|(_, io)| io.strong_count() > 0);
        let known = shared.iter().position(|(path, _)| *path == dir);
        if let Some(at) = known {
            let io = shared[at].1.upgrade();
            match io {
                Some(io) if io.is_current().await => return Ok(Self::on(io)),
                _ => _ = shared.swap_remove(at),
            }
        }
        let io = Io::connect(dir.clone()).await?;
        shared.push((dir, Arc::downgrade(&io)));
        Ok(Self::on(io))
    }

    pub(crate) fn on(io: Arc<Io>) -> Self {
        let number = io.open();
        let window = Arc::new(Semaphore::new(io.shape().tuning.window));
        let session = Arc::new(Session { io, number, window });
        Self { session, timeout: TIMEOUT_DEFAULT, read_mode: ReadMode::default() }
    }

    /// The same session, with another timeout for operations; it is [`TIMEOUT_DEFAULT`] initially.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use skein_client::{Error, asynchronous::Client};
    /// # async fn quickly(client: &Client) -> Result<(), Error> {
    /// client.with_timeout(Duration::from_millis(100)).get("key").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same session, with another mode for operations that only read.
    ///
    /// ```
    /// # use skein_client::{Error, ReadMode, asynchronous::Client};
    /// # async fn cheaply(client: &Client) -> Result<(), Error> {
    /// client.with_read_mode(ReadMode::Lease).get("key").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_read_mode(&self, read_mode: ReadMode) -> Self {
        Self { read_mode, ..self.clone() }
    }

    /// The shape of the cluster, as the driver was told it last.
    pub fn shape(&self) -> Arc<Shape> {
        self.session.io.shape()
    }

    /// Mode of operations that only read.
    pub fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// The value of `key`.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        Ok(self.get_versioned(key).await?.map(|(value, _)| value))
    }

    /// The value of `key` and the version at which it was written, for a later
    /// [`Test::Version`](skein_kvstore::command::Test::Version).
    pub async fn get_versioned(
        &self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Value, Version)>, Error> {
        operations::value(self.one(Operation::Get { key: key.as_ref().to_vec() }).await?)
    }

    /// Whether `key` has a value.
    pub async fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        operations::flag(self.one(Operation::Exists { key: key.as_ref().to_vec() }).await?)
    }

    /// Sets the value of `key`. Returns its new version.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Version, Error> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        operations::written(self.one(Operation::Put { key, value }).await?)
    }

    /// Removes the value of `key`. Returns whether there was one.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        operations::flag(self.one(Operation::Delete { key: key.as_ref().to_vec() }).await?)
    }

    /// Sets the value of `key` to `new` if it is `expected`; `None` expects that there is none.
    pub async fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<Swap, Error> {
        let swap = operations::swap(key.as_ref(), expected, new.as_ref());
        operations::swapped(self.transact(&swap).await?)
    }

    /// Adds `by` to the value of `key`, a decimal 64-bit integer; absent counts as 0. Returns the
    /// new number.
    pub async fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, Error> {
        operations::number(self.one(Operation::Increment { key: key.as_ref().to_vec(), by }).await?)
    }

    /// Adds `value` to the end of `key`'s value, creating it. Returns the new length.
    pub async fn append(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<u64, Error> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        operations::length(self.one(Operation::Append { key, value }).await?)
    }

    /// Overwrites bytes of `key`'s value from `offset` on, growing it with zero bytes if need be.
    /// Returns the new length.
    pub async fn patch(
        &self,
        key: impl AsRef<[u8]>,
        offset: u32,
        bytes: impl AsRef<[u8]>,
    ) -> Result<u64, Error> {
        let (key, bytes) = (key.as_ref().to_vec(), bytes.as_ref().to_vec());
        operations::length(self.one(Operation::Patch { key, offset, bytes }).await?)
    }

    /// The next page of `range`, at most `limit` pairs, read atomically over all shards.
    pub async fn scan(&self, range: &KeyRange, limit: u32) -> Result<Page, Error> {
        operations::page(self.transact(&range.scan(limit)).await?)
    }

    /// The pairs of `range` in key order, read page by page. Each page is atomic; the whole is not.
    ///
    /// ```
    /// # use skein_client::{Error, KeyRange, asynchronous::Client};
    /// # async fn list(client: &Client) -> Result<(), Error> {
    /// let mut users = client.pairs(KeyRange::prefix("user:"), 100);
    /// while let Some((key, value)) = users.next().await? {
    ///     println!("{} bytes at {}", value.len(), String::from_utf8_lossy(&key));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn pairs(&self, range: KeyRange, page: u32) -> Pairs {
        Pairs { client: self.clone(), rest: Some(range), page, read: Vec::new().into_iter() }
    }

    /// Executes `transaction` and returns its reply.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Reply, Error> {
        let deadline = far(Instant::now(), self.timeout);
        let plan = self.session.io.shape().plan(transaction)?;
        let room = self.room(deadline).await?;
        let (answer, answered) = oneshot::channel();
        let (session, timeout, mode) = (self.session.number, self.timeout, self.read_mode);
        let call = Call { session, plan, mode, deadline, timeout, answer, room };
        self.session.io.tell(Command::Submit(Box::new(call)))?;
        answered.await.unwrap_or_else(|_| Err(self.session.io.ended()))
    }

    /// Waits for that time.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<(), Error> {
        let (ring, rung) = oneshot::channel();
        self.session.io.tell(Command::Alarm { at: far(Instant::now(), time), ring })?;
        // If the thread has ended, the alarm does not ring, and the next operation reports it.
        let _ = rung.await;
        Ok(())
    }

    async fn one(&self, operation: Operation) -> Result<Reply, Error> {
        self.transact(&Transaction::of(operation)).await
    }

    /// Waits until `deadline` for room in the session's window.
    async fn room(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        let window = &self.session.window;
        if let Ok(room) = Arc::clone(window).try_acquire_owned() {
            return Ok(room);
        }
        let (ring, rung) = oneshot::channel();
        self.session.io.tell(Command::Alarm { at: deadline, ring })?;
        tokio::select! {
            room = Arc::clone(window).acquire_owned() => Ok(room.expect("nobody closes a window")),
            _ = rung => {
                let why = Unavailability::NotSent { after: self.timeout, silent: GroupSet::EMPTY };
                Err(Error::Unavailable { why, sent: false })
            }
        }
    }
}

/// `now + time`, or `now` and 30 years if the clock cannot represent that.
fn far(now: Instant, time: Duration) -> Instant {
    const YEARS: Duration = Duration::from_hours(30 * 365 * 24);
    now.checked_add(time).unwrap_or_else(|| now + YEARS)
}

impl Drop for Session {
    fn drop(&mut self) {
        // A thread that has ended has closed its sessions.
        let _ = self.io.tell(Command::Close { session: self.number });
    }
}

/// See [`Client::pairs`].
pub struct Pairs {
    client: Client,
    rest: Option<KeyRange>,
    page: u32,
    read: std::vec::IntoIter<(Key, Value)>,
}

impl Pairs {
    /// The next pair, or `None` after the last.
    pub async fn next(&mut self) -> Result<Option<(Key, Value)>, Error> {
        loop {
            if let Some(pair) = self.read.next() {
                return Ok(Some(pair));
            }
            let Some(range) = &self.rest else { return Ok(None) };
            let page = self.client.scan(range, self.page).await?;
            let end = self.rest.take().and_then(|range| range.end);
            self.rest = page.next.map(|start| KeyRange { start, end });
            self.read = page.pairs.into_iter();
        }
    }
}
