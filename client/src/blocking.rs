//! The client for threads: each call returns when its reply is in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_fabric::Fabric;
use skein_fabric::shm::ShmFabric;
use skein_kvstore::command::{Key, Operation, Transaction, Value, Version};
use skein_kvstore::reply::{Page, Reply};

use crate::driver::{Driver, SessionKey, Ticket};
use crate::error::Error;
use crate::operations::{self, KeyRange, Swap};

/// One session, polled on the caller's thread.
pub struct Client<F: Fabric = ShmFabric> {
    driver: Driver<F>,
    session: SessionKey,
    pending: Vec<(Ticket, Slot)>,
}

type Slot = Arc<Mutex<Option<Result<Reply, Error>>>>;

/// An operation under way, for [`Client::wait`].
#[derive(Debug)]
pub struct Pending {
    slot: Slot,
}

impl<F: Fabric> Client<F> {
    /// A client of its own session over a driver of its own.
    pub fn over(mut driver: Driver<F>) -> Self {
        let session = driver.open();
        Self { driver, session, pending: Vec::new() }
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

    /// The next page of `range`, at most `limit` pairs: one atomic look over all shards.
    pub fn scan(&mut self, range: &KeyRange, limit: u32) -> Result<Page, Error> {
        operations::page(self.transact(&range.scan(limit))?)
    }

    /// The pairs of `range` in key order, read page by page. Each page is atomic; the whole is not.
    pub fn pairs(&mut self, range: KeyRange, page: u32) -> Pairs<'_, F> {
        Pairs { client: self, rest: Some(range), page, read: Vec::new().into_iter() }
    }

    /// Does `transaction` and returns its reply.
    pub fn transact(&mut self, transaction: &Transaction) -> Result<Reply, Error> {
        let pending = self.submit(transaction)?;
        self.wait(pending)
    }

    /// Sends `transaction` on its way, waiting only while the session's window is full. Operations
    /// submitted one after the other may take effect in any order.
    pub fn submit(&mut self, transaction: &Transaction) -> Result<Pending, Error> {
        let ticket = loop {
            match self.driver.submit(self.session, transaction) {
                Err(Error::WindowFull { .. }) => self.turn()?,
                other => break other?,
            }
        };
        let slot = Slot::default();
        self.pending.push((ticket, Arc::clone(&slot)));
        Ok(Pending { slot })
    }

    /// Waits for the reply to an operation. Replies to others that come meanwhile are kept.
    pub fn wait(&mut self, pending: Pending) -> Result<Reply, Error> {
        loop {
            if let Some(result) = take(&pending.slot) {
                return result;
            }
            self.turn()?;
        }
    }

    fn one(&mut self, operation: Operation) -> Result<Reply, Error> {
        self.transact(&Transaction::of(operation))
    }

    fn turn(&mut self) -> Result<(), Error> {
        let pending = &mut self.pending;
        let busy = self.driver.poll(&mut |ticket, result| {
            if let Some(at) = pending.iter().position(|(of, _)| *of == ticket) {
                let (_, slot) = pending.swap_remove(at);
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        })?;
        if !busy {
            self.driver.wait(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn take(slot: &Slot) -> Option<Result<Reply, Error>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// See [`Client::pairs`].
pub struct Pairs<'a, F: Fabric> {
    client: &'a mut Client<F>,
    rest: Option<KeyRange>,
    page: u32,
    read: std::vec::IntoIter<(Key, Value)>,
}

impl<F: Fabric> Iterator for Pairs<'_, F> {
    type Item = Result<(Key, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pair) = self.read.next() {
                return Some(Ok(pair));
            }
            let range = self.rest.take()?;
            match self.client.scan(&range, self.page) {
                Ok(page) => {
                    self.read = page.pairs.into_iter();
                    self.rest = page.next.map(|start| KeyRange { start, end: range.end });
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
