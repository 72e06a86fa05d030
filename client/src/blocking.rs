//! The client for threads: each call returns when its reply has arrived.

use std::collections::HashMap;
use std::iter::FusedIterator;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_fabric::Fabric;
use skein_fabric::any::AnyFabric;
use skein_kvstore::command::{Key, Operation, Transaction, Value, Version};
use skein_kvstore::reply::{Page, Reply};

use crate::connect::ConnectError;
use crate::driver::{Driver, SessionKey, Shape, Ticket};
use crate::error::Error;
use crate::operations::{self, KeyRange, Swap};
use crate::reads::ReadMode;

/// Maximum time that a waiting thread sleeps. Replicas wake it earlier.
const NAP_MAX: Duration = Duration::from_millis(100);

/// One session, polled on the caller's thread, which spins a little, yields, and parks.
///
/// ```
/// # let cluster = skein_client::local::Cluster::local()?;
/// # let mut client = cluster.client()?;
/// client.put("greeting", "hello")?;
/// client.append("greeting", ", world")?;
/// assert_eq!(client.get("greeting")?.as_deref(), Some(&b"hello, world"[..]));
/// assert_eq!(client.increment("visits", 1)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A client is for one thread at a time; several threads have a client each.
pub struct Client<F: Fabric = AnyFabric> {
    driver: Driver<F>,
    session: SessionKey,
    /// Operations under way whose replies the caller may wait for.
    pending: HashMap<u64, Slot>,
}

type Slot = Arc<Mutex<Option<Result<Reply, Error>>>>;

/// An operation under way, for [`Client::wait`]. Dropping it does not cancel the operation.
#[derive(Debug)]
#[must_use = "an operation's reply tells whether it took effect"]
pub struct Pending {
    number: u64,
    slot: Slot,
}

impl Client {
    /// A client of the cluster that runs in `dir`.
    ///
    /// ```
    /// use skein_client::{Client, ConnectError};
    ///
    /// let error = Client::connect("/no/such/directory").err().expect("there is none");
    /// assert!(matches!(error, ConnectError::Directory(_)));
    /// assert!(error.to_string().contains("skein up"), "{error}");
    /// ```
    pub fn connect(dir: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Ok(Self::over(Driver::connect(dir)?))
    }
}

impl<F: Fabric> Client<F> {
    /// A client on a driver of its own.
    pub fn over(mut driver: Driver<F>) -> Self {
        let session = driver.open();
        Self { driver, session, pending: HashMap::new() }
    }

    /// The shape of the cluster, as the driver was told it last.
    pub fn shape(&self) -> &Shape {
        self.driver.shape()
    }

    /// Sets the time that operations wait for their replies from now on. It is
    /// [`TIMEOUT_DEFAULT`](crate::TIMEOUT_DEFAULT) initially.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.driver.set_timeout(timeout);
    }

    /// Sets the mode of operations that only read, from now on.
    ///
    /// ```
    /// use skein_client::ReadMode;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// client.put("key", "value")?;
    /// client.set_read_mode(ReadMode::Lease);
    /// assert_eq!(client.get("key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_read_mode(&mut self, mode: ReadMode) {
        self.driver.set_read_mode(mode);
    }

    /// Mode of operations that only read.
    pub fn read_mode(&self) -> ReadMode {
        self.driver.read_mode()
    }

    /// This client with another read mode, for one or a few calls.
    ///
    /// ```
    /// use skein_client::ReadMode;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// client.put("key", "value")?;
    /// let value = client.with_read_mode(ReadMode::Lease).get("key")?;
    /// assert_eq!(value.as_deref(), Some(&b"value"[..]));
    /// assert_eq!(client.read_mode(), ReadMode::Confirmed, "as before");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_read_mode(&mut self, mode: ReadMode) -> Within<'_, F> {
        let within = Within::new(self);
        within.client.set_read_mode(mode);
        within
    }

    /// This client with another timeout, for one or a few calls.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// client.within(Duration::from_millis(900)).put("key", "value")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn within(&mut self, timeout: Duration) -> Within<'_, F> {
        let within = Within::new(self);
        within.client.set_timeout(timeout);
        within
    }

    /// The value of `key`.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        Ok(self.get_versioned(key)?.map(|(value, _)| value))
    }

    /// The value of `key` and the version at which it was written, for a later
    /// [`Test::Version`](skein_kvstore::command::Test::Version).
    pub fn get_versioned(
        &mut self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Value, Version)>, Error> {
        operations::value(self.one(Operation::Get { key: key.as_ref().to_vec() })?)
    }

    /// Whether `key` has a value.
    pub fn exists(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        operations::flag(self.one(Operation::Exists { key: key.as_ref().to_vec() })?)
    }

    /// Sets the value of `key`. Returns its new version.
    pub fn put(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Version, Error> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        operations::written(self.one(Operation::Put { key, value })?)
    }

    /// Removes the value of `key`. Returns whether there was one.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        operations::flag(self.one(Operation::Delete { key: key.as_ref().to_vec() })?)
    }

    /// Sets the value of `key` to `new` if it is `expected`; `None` expects that there is none.
    ///
    /// ```
    /// use skein_client::Swap;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// assert!(client.compare_and_swap("lock", None, "mine")?.swapped());
    /// let again = client.compare_and_swap("lock", None, "yours")?;
    /// let Swap::Different(Some((value, version))) = again else { panic!("{again:?}") };
    /// assert_eq!(value, b"mine", "and a guard on its version holds until somebody writes it");
    /// # assert!(version > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_and_swap(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<Swap, Error> {
        let swap = operations::swap(key.as_ref(), expected, new.as_ref());
        operations::swapped(self.transact(&swap)?)
    }

    /// Adds `by` to the value of `key`, a decimal 64-bit integer; absent counts as 0. Returns the
    /// new number.
    pub fn increment(&mut self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, Error> {
        operations::number(self.one(Operation::Increment { key: key.as_ref().to_vec(), by })?)
    }

    /// Adds `value` to the end of `key`'s value, creating it. Returns the new length.
    pub fn append(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, Error> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        operations::length(self.one(Operation::Append { key, value })?)
    }

    /// Overwrites bytes of `key`'s value from `offset` on, growing it with zero bytes if need be.
    /// Returns the new length.
    pub fn patch(
        &mut self,
        key: impl AsRef<[u8]>,
        offset: u32,
        bytes: impl AsRef<[u8]>,
    ) -> Result<u64, Error> {
        let (key, bytes) = (key.as_ref().to_vec(), bytes.as_ref().to_vec());
        operations::length(self.one(Operation::Patch { key, offset, bytes })?)
    }

    /// The next page of `range`, at most `limit` pairs, read atomically over all shards.
    pub fn scan(&mut self, range: &KeyRange, limit: u32) -> Result<Page, Error> {
        operations::page(self.transact(&range.scan(limit))?)
    }

    /// The pairs of `range` in key order, read page by page. Each page is atomic; the whole is not. An error ends the
    /// iteration; [`Pairs::rest`] is then the part that was not read.
    ///
    /// ```
    /// use skein_client::KeyRange;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// for name in ["ann", "bob", "cid"] {
    ///     client.put(format!("user:{name}"), "…")?;
    /// }
    /// let users: Vec<_> =
    ///     client.pairs(KeyRange::prefix("user:"), 2).collect::<Result<_, _>>()?;
    /// assert_eq!(users[2].0, b"user:cid");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pairs(&mut self, range: KeyRange, page: u32) -> Pairs<'_, F> {
        let read = Vec::new().into_iter();
        Pairs { client: self, rest: Some(range), has_failed: false, page, read }
    }

    /// Executes `transaction` and returns its reply.
    ///
    /// ```
    /// use skein_client::{Compare, Operation, Test, Transaction};
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// client.put("alice", "100")?;
    /// let by = |key: &str, by| Operation::Increment { key: key.into(), by };
    /// let transfer = Transaction::default()
    ///     .guard("alice", Test::Number { compare: Compare::AtLeast, number: 30 })
    ///     .then(by("alice", -30))
    ///     .then(by("bob", 30));
    /// assert!(client.transact(&transfer)?.held);
    /// assert_eq!(client.get("bob")?.as_deref(), Some(&b"30"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transact(&mut self, transaction: &Transaction) -> Result<Reply, Error> {
        let ticket = self.submit_when_there_is_room(transaction)?;
        let mut result = None;
        loop {
            let turned = self.turn(Some((ticket, &mut result)));
            match (result.take(), turned) {
                (Some(result), _) => return result,
                (None, turned) => turned?,
            }
        }
    }

    /// Submits `transaction`, and waits only while the session's window is full. Operations that are under way at the
    /// same time may take effect in any order.
    ///
    /// ```
    /// use skein_client::{Operation, Transaction};
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// let put = |n: u8| {
    ///     Transaction::of(Operation::Put { key: vec![n], value: b"value".to_vec() })
    /// };
    /// let mut pending = Vec::new();
    /// for n in 0..100 {
    ///     pending.push(client.submit(&put(n))?);
    /// }
    /// for operation in pending {
    ///     client.wait(operation)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit(&mut self, transaction: &Transaction) -> Result<Pending, Error> {
        let ticket = self.submit_when_there_is_room(transaction)?;
        let slot = Slot::default();
        self.pending.insert(ticket.number, Arc::clone(&slot));
        Ok(Pending { number: ticket.number, slot })
    }

    /// Waits for the reply to an operation of this client. Replies to other operations that arrive meanwhile are kept.
    pub fn wait(&mut self, pending: Pending) -> Result<Reply, Error> {
        let mut turned = Ok(());
        loop {
            if let Some(result) = lock(&pending.slot).take() {
                return result;
            }
            turned?;
            assert!(
                self.pending.contains_key(&pending.number),
                "an operation is waited for with the client that submitted it"
            );
            turned = self.turn(None);
        }
    }

    fn one(&mut self, operation: Operation) -> Result<Reply, Error> {
        self.transact(&Transaction::of(operation))
    }

    fn submit_when_there_is_room(&mut self, transaction: &Transaction) -> Result<Ticket, Error> {
        loop {
            match self.driver.submit(self.session, transaction) {
                Err(Error::WindowFull { .. }) => self.turn(None)?,
                submitted => return submitted,
            }
        }
    }

    /// Takes the replies that have arrived, or waits a little. The result of `awaited` goes into its reference, and
    /// results of other operations into their slots.
    fn turn(
        &mut self,
        awaited: Option<(Ticket, &mut Option<Result<Reply, Error>>)>,
    ) -> Result<(), Error> {
        let pending = &mut self.pending;
        let mut awaited = awaited;
        let busy = self.driver.poll(&mut |ticket, result| match &mut awaited {
            Some((of, into)) if *of == ticket => **into = Some(result),
            _ => {
                if let Some(slot) = pending.remove(&ticket.number) {
                    *lock(&slot) = Some(result);
                }
            }
        })?;
        if !busy {
            self.driver.wait(NAP_MAX);
        }
        Ok(())
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Result<Reply, Error>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client with another timeout or read mode, for one or a few calls. See [`Client::within`] and
/// [`Client::with_read_mode`].
pub struct Within<'a, F: Fabric = AnyFabric> {
    client: &'a mut Client<F>,
    timeout: Duration,
    read_mode: ReadMode,
}

impl<'a, F: Fabric> Within<'a, F> {
    /// Keeps the client's settings, which are restored when this is dropped.
    fn new(client: &'a mut Client<F>) -> Self {
        let (timeout, read_mode) = (client.driver.timeout(), client.driver.read_mode());
        Self { client, timeout, read_mode }
    }
}

impl<F: Fabric> Deref for Within<'_, F> {
    type Target = Client<F>;

    fn deref(&self) -> &Client<F> {
        self.client
    }
}

impl<F: Fabric> DerefMut for Within<'_, F> {
    fn deref_mut(&mut self) -> &mut Client<F> {
        self.client
    }
}

impl<F: Fabric> Drop for Within<'_, F> {
    fn drop(&mut self) {
        self.client.set_timeout(self.timeout);
        self.client.set_read_mode(self.read_mode);
    }
}

/// See [`Client::pairs`].
///
/// After an error it returns nothing more, because callers that take iterators to their end would otherwise repeat the
/// request forever. [`rest`](Self::rest) shows whether the whole range was read.
pub struct Pairs<'a, F: Fabric = AnyFabric> {
    client: &'a mut Client<F>,
    rest: Option<KeyRange>,
    has_failed: bool,
    page: u32,
    read: std::vec::IntoIter<(Key, Value)>,
}

impl<F: Fabric> Pairs<'_, F> {
    /// The rest of the range, with which other [`pairs`](Client::pairs) can continue after an error; `None` if
    /// everything was read. Pairs of the last page that were not taken yet do not belong to it.
    ///
    /// ```
    /// use skein_client::KeyRange;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// let mut pairs = client.pairs(KeyRange::all(), 0); // a page of nothing
    /// assert!(pairs.next().is_some_and(|pair| pair.is_err()));
    /// assert!(pairs.next().is_none(), "it is over");
    /// assert_eq!(pairs.rest(), Some(&KeyRange::all()), "and has not read everything");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rest(&self) -> Option<&KeyRange> {
        self.rest.as_ref()
    }
}

impl<F: Fabric> Iterator for Pairs<'_, F> {
    type Item = Result<(Key, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pair) = self.read.next() {
                return Some(Ok(pair));
            }
            let range = self.rest.as_ref().filter(|_| !self.has_failed)?;
            match self.client.scan(range, self.page) {
                Ok(page) => {
                    self.read = page.pairs.into_iter();
                    let end = self.rest.take().and_then(|range| range.end);
                    self.rest = page.next.map(|start| KeyRange { start, end });
                }
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<F: Fabric> FusedIterator for Pairs<'_, F> {}
