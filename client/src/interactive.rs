//! Transactions that read, compute, and write: their commits guard what they have read.

use std::time::Duration;

use skein_fabric::Fabric;
use skein_kvstore::command::{Operation, Transaction, Value};
use skein_kvstore::reply::Page;

use crate::draft::{Commit, Draft, Seen};
use crate::error::Error;
use crate::operations::KeyRange;
use crate::{asynchronous, blocking};

/// Maximum pause before the third attempt. It doubles with each further attempt.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Maximum number of doublings.
const PAUSE_DOUBLINGS: u32 = 7;

/// An interactive transaction under way, from [`begin`](blocking::Client::begin).
///
/// Reads go to the cluster one by one; writes stay in the client until [`commit`](Self::commit), and reads and scans
/// see them. Nothing is locked: the first transaction to commit wins, and one that has read a value which was changed
/// since is [overtaken](Commit::Overtaken). A transaction that is dropped has no effect.
///
/// The values read may be of different moments, until the commit confirms that they existed together. The values that
/// an overtaken transaction has read must not be used, except to try again.
///
/// A key counts once towards `limits.transaction_keys_max`, however often it is read and written, except that
/// increments and appends which cannot be merged count one each. A range that was scanned counts once. The call that
/// exceeds the limit returns an error.
///
/// `C` is the client that executes it: a borrowed [blocking](blocking::Client) one, or an
/// [asynchronous](asynchronous::Client) one, whose transactions are awaited. For drivers there is the [`Draft`].
pub struct Interactive<C> {
    client: C,
    draft: Draft,
}

fn get(key: &[u8]) -> Transaction {
    Transaction::of(Operation::Get { key: key.to_vec() })
}

fn value(seen: Seen) -> Option<Value> {
    seen.map(|(value, _)| value)
}

/// Random pause after having been overtaken this often in a row. There is none after the first time, because the commit
/// has returned the current values. If many transactions compete for hot keys, the pauses let one of them pass.
fn pause(overtaken: u32) -> Duration {
    let Some(doublings) = overtaken.checked_sub(2) else { return Duration::ZERO };
    let most = PAUSE_MIN * 2_u32.pow(doublings.min(PAUSE_DOUBLINGS));
    most.mul_f64(rand::random_range(0.0..=1.0))
}

impl<C> Interactive<C> {
    fn new(client: C, draft: Draft) -> Self {
        Self { client, draft }
    }

    /// Sets the value of `key`, if the transaction commits.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.draft.put(key, value)
    }

    /// Removes the value of `key`, if the transaction commits.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.draft.delete(key)
    }

    /// Adds `by` to the value of `key`, a decimal 64-bit integer, absent counting as 0, if the transaction commits.
    /// Unless the transaction reads the key, others that change the number do not overtake it, and it does not overtake
    /// them: a counter that all transactions raise need not be hot. In that case, the commit finds out whether the
    /// value is a number; if the key was read, this call does.
    pub fn increment(&mut self, key: impl AsRef<[u8]>, by: i64) -> Result<(), Error> {
        self.draft.increment(key, by)
    }

    /// Adds `value` to the end of `key`'s value, creating it, if the transaction commits. Unless the
    /// transaction reads the key, others that change it do not overtake the transaction.
    pub fn append(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.draft.append(key, value)
    }
}

impl<F: Fabric> Interactive<&mut blocking::Client<F>> {
    /// The value of `key` as this transaction sees it: its own write, or the value at its first read.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        Ok(value(self.get_versioned(key)?))
    }

    /// Same with the version, unless the transaction has written the value itself or has seen it in a scan.
    pub fn get_versioned(&mut self, key: impl AsRef<[u8]>) -> Result<Seen, Error> {
        let key = key.as_ref();
        match self.draft.get(key)? {
            Some(seen) => Ok(seen),
            None => self.draft.saw(key, self.client.transact(&get(key))),
        }
    }

    /// The next page of `range`, at most `limit` pairs, as this transaction sees them, including its own writes. The
    /// commit takes effect only if the part of the range that was scanned is unchanged, new and deleted keys included.
    ///
    /// ```
    /// use skein_client::{Commit, KeyRange};
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let (mut client, mut other) = (cluster.client()?, cluster.client()?);
    /// client.put("seat:1", "ann")?;
    /// let mut book = client.begin();
    /// book.put("seat:2", "bob")?;
    /// let taken = book.scan(&KeyRange::prefix("seat:"), 100)?;
    /// assert_eq!(taken.pairs.len(), 2, "it sees its own writes");
    /// other.put("seat:3", "cid")?;
    /// assert_eq!(book.commit()?, Commit::Overtaken, "it has seen no third seat taken");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&mut self, range: &KeyRange, limit: u32) -> Result<Page, Error> {
        let scan = self.draft.scan(range, limit)?;
        self.draft.saw_page(range, limit, self.client.transact(&scan))
    }

    /// Applies all writes at one place in the order, over any shards, in one round of ordering, if everything that was
    /// read is unchanged there. [`Error::UnknownOutcome`] has its usual meaning: this commit takes effect once or not
    /// at all, and another attempt would be a second transaction.
    pub fn commit(self) -> Result<Commit, Error> {
        Ok(self.end()?.0)
    }

    fn end(self) -> Result<(Commit, Draft), Error> {
        let commit = self.draft.commit(self.client.shape());
        self.draft.conclude(commit.map(|commit| self.client.transact(&commit)))
    }

    /// Verifies that the values read existed together; writes nothing.
    fn verify(mut self) -> Result<(Commit, Draft), Error> {
        self.draft.forget_writes();
        self.end()
    }
}

impl Interactive<asynchronous::Client> {
    /// The value of `key` as this transaction sees it: its own write, or the value at its first read.
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        Ok(value(self.get_versioned(key).await?))
    }

    /// Same with the version, unless the transaction has written the value itself or has seen it in a scan.
    pub async fn get_versioned(&mut self, key: impl AsRef<[u8]>) -> Result<Seen, Error> {
        let key = key.as_ref();
        match self.draft.get(key)? {
            Some(seen) => Ok(seen),
            None => self.draft.saw(key, self.client.transact(&get(key)).await),
        }
    }

    /// The next page of `range`, at most `limit` pairs, as this transaction sees them, including its own writes. The
    /// commit takes effect only if the part of the range that was scanned is unchanged, new and deleted keys included.
    ///
    /// ```
    /// # use skein_client::{Commit, KeyRange};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let client = cluster.async_client()?;
    /// client.put("seat:1", "ann").await?;
    /// let mut book = client.begin();
    /// book.append("seat:1", " and bob")?;
    /// let taken = book.scan(&KeyRange::prefix("seat:"), 100).await?;
    /// assert_eq!(taken.pairs[0].1, b"ann and bob", "it sees its own writes");
    /// assert_eq!(book.commit().await?, Commit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn scan(&mut self, range: &KeyRange, limit: u32) -> Result<Page, Error> {
        let scan = self.draft.scan(range, limit)?;
        self.draft.saw_page(range, limit, self.client.transact(&scan).await)
    }

    /// Applies all writes at one place in the order, over any shards, in one round of ordering, if everything that was
    /// read is unchanged there. [`Error::UnknownOutcome`] has its usual meaning: this commit takes effect once or not
    /// at all, and another attempt would be a second transaction.
    pub async fn commit(self) -> Result<Commit, Error> {
        Ok(self.end().await?.0)
    }

    async fn end(self) -> Result<(Commit, Draft), Error> {
        let reply = match self.draft.commit(&self.client.shape()) {
            Some(commit) => Some(self.client.transact(&commit).await),
            None => None,
        };
        self.draft.conclude(reply)
    }

    /// Verifies that the values read existed together; writes nothing.
    async fn verify(mut self) -> Result<(Commit, Draft), Error> {
        self.draft.forget_writes();
        self.end().await
    }
}

impl<F: Fabric> blocking::Client<F> {
    /// Begins a transaction that reads and writes in the application's own order.
    ///
    /// ```
    /// use skein_client::Commit;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// client.put("stock", "3")?;
    /// let mut order = client.begin();
    /// let stock: u32 = String::from_utf8(order.get("stock")?.unwrap())?.parse()?;
    /// order.put("stock", (stock - 1).to_string())?;
    /// order.put("order:1", "one")?;
    /// order.increment("orders", 1)?;
    /// assert_eq!(order.get("stock")?.as_deref(), Some(&b"2"[..]), "it sees its own writes");
    /// assert_eq!(order.commit()?, Commit::Done);
    /// assert_eq!(client.get("orders")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&mut self) -> Interactive<&mut Self> {
        let draft = Draft::new(self.shape(), self.read_mode());
        Interactive::new(self, draft)
    }

    /// Executes a transaction, and repeats it if it was overtaken: at most `attempts` times in all, and at least once.
    /// After it was overtaken once, the next attempt begins with the values that its commit found, so that it need not
    /// read them again. After it was overtaken more than once in a row, the next attempt first waits for a random time
    /// of at most some tens of milliseconds, and then reads again.
    ///
    /// If `body` fails, nothing is changed. Unless a request to the cluster had failed, the values read are then
    /// verified: if they did not exist together, the error is not valid, and the transaction is repeated.
    ///
    /// ```
    /// # use skein_client::Error;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// let visits = client.attempt(10, |transaction| {
    ///     let visits = transaction.get("visits")?.map_or(0, |visits| visits.len());
    ///     transaction.put("visits", "x".repeat(visits + 1))?;
    ///     Ok::<_, Error>(visits + 1)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        attempts: u32,
        mut body: impl FnMut(&mut Interactive<&mut Self>) -> Result<T, E>,
    ) -> Result<T, E> {
        let new = Draft::new(self.shape(), self.read_mode());
        let mut draft = new.clone();
        let attempts = attempts.max(1);
        for overtaken in 0..attempts {
            let pause = pause(overtaken);
            if !pause.is_zero() {
                std::thread::sleep(pause);
                draft = new.clone(); // The values found are old by now.
            }
            let mut transaction = Interactive::new(&mut *self, draft);
            let result = body(&mut transaction);
            if result.is_err() && transaction.draft.has_failed() {
                return result;
            }
            let ended = if result.is_ok() { transaction.end() } else { transaction.verify() };
            match ended? {
                (Commit::Done, _) => return result,
                (Commit::Overtaken, found) => draft = found,
            }
        }
        Err(Error::Overtaken { attempts }.into())
    }
}

impl asynchronous::Client {
    /// Begins a transaction that reads and writes in the application's own order.
    ///
    /// ```
    /// # use skein_client::{Commit, Error, asynchronous::Client};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let client = cluster.async_client()?;
    /// let mut order = client.begin();
    /// let stock = order.get("stock").await?.unwrap_or_default();
    /// order.put("stock", [&stock[..], b"!"].concat())?;
    /// order.put("order:1", "one")?;
    /// assert_eq!(order.commit().await?, Commit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&self) -> Interactive<Self> {
        Interactive::new(self.clone(), Draft::new(&self.shape(), self.read_mode()))
    }

    /// Executes a transaction, and repeats it if it was overtaken: at most `attempts` times in all, and at least once.
    /// After it was overtaken once, the next attempt begins with the values that its commit found, so that it need not
    /// read them again. After it was overtaken more than once in a row, the next attempt first waits for a random time
    /// of at most some tens of milliseconds, and then reads again.
    ///
    /// If `body` fails, nothing is changed. Unless a request to the cluster had failed, the values read are then
    /// verified: if they did not exist together, the error is not valid, and the transaction is repeated.
    ///
    /// ```
    /// # use skein_client::{Error, asynchronous::Client};
    /// # async fn visit(client: &Client) -> Result<usize, Error> {
    /// client
    ///     .attempt(10, async |transaction| {
    ///         let visits = transaction.get("visits").await?.map_or(0, |visits| visits.len());
    ///         transaction.put("visits", "x".repeat(visits + 1))?;
    ///         Ok(visits + 1)
    ///     })
    ///     .await
    /// # }
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # assert_eq!(runtime.block_on(async { visit(&cluster.async_client().unwrap()).await })?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn attempt<T, E: From<Error>>(
        &self,
        attempts: u32,
        mut body: impl AsyncFnMut(&mut Interactive<Self>) -> Result<T, E>,
    ) -> Result<T, E> {
        let new = Draft::new(&self.shape(), self.read_mode());
        let mut draft = new.clone();
        let attempts = attempts.max(1);
        for overtaken in 0..attempts {
            let pause = pause(overtaken);
            if !pause.is_zero() {
                self.sleep(pause).await?;
                draft = new.clone(); // The values found are old by now.
            }
            let mut transaction = Interactive::new(self.clone(), draft);
            let result = body(&mut transaction).await;
            if result.is_err() && transaction.draft.has_failed() {
                return result;
            }
            let ended =
                if result.is_ok() { transaction.end().await } else { transaction.verify().await };
            match ended? {
                (Commit::Done, _) => return result,
                (Commit::Overtaken, found) => draft = found,
            }
        }
        Err(Error::Overtaken { attempts }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_overtaken_again_keeps_still_for_a_random_and_bounded_time() {
        assert_eq!([pause(0), pause(1)], [Duration::ZERO; 2], "what is there now is known");
        let longest = PAUSE_MIN * 2_u32.pow(PAUSE_DOUBLINGS);
        assert!(longest < Duration::from_millis(50));
        for overtaken in [2, 3, 8, 9, 1_000, u32::MAX] {
            let most = PAUSE_MIN * 2_u32.pow((overtaken - 2).min(PAUSE_DOUBLINGS));
            let pauses: Vec<_> = (0..100).map(|_| pause(overtaken)).collect();
            assert!(pauses.iter().all(|pause| *pause <= most), "{overtaken}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "all are alike");
        }
    }
}
