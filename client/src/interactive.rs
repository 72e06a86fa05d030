//! Transactions that read, think, and write: what they have read is guarded when they commit.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use skein_fabric::Fabric;
use skein_kvstore::command::{Key, Operation, Test, Transaction, Value, Version};
use skein_kvstore::reply::{Outcome, Refusal, Reply};

use crate::error::Error;
use crate::{asynchronous, blocking};

/// What a key held when it was read.
type Read = Option<(Value, Version)>;

/// What a commit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction that was overtaken has changed nothing"]
pub enum Commit {
    /// It took effect, at one place in the order, at which everything that it had read still stood.
    Done,
    /// Something that it had read has changed meanwhile: it has changed nothing.
    Overtaken,
}

/// A transaction under way, of [`begin`](blocking::Client::begin).
///
/// Reads go to the cluster one by one; writes stay here until [`commit`](Self::commit), and reads see
/// them. Nothing is locked: whoever commits first wins, and who has read what is no more is
/// [overtaken](Commit::Overtaken). A transaction that is dropped has done nothing.
///
/// What was read comes from different moments until the commit says that it still stood together. Of
/// a transaction that is overtaken nothing may be used but to try again.
///
/// `C` is the client that it goes through: a borrowed [blocking](blocking::Client) one, or an
/// [asynchronous](asynchronous::Client) one, whose transactions are awaited.
pub struct Interactive<C> {
    client: C,
    draft: Draft,
}

/// What was read and what is to be written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Draft {
    read: BTreeMap<Key, Read>,
    /// What the last attempt's commit found where this one has not looked yet.
    found: BTreeMap<Key, Read>,
    write: BTreeMap<Key, Option<Value>>,
}

impl Draft {
    /// The value of a key as the transaction sees it: its own write, what it read before, or what the
    /// last attempt found.
    fn value(&mut self, key: &[u8]) -> Result<Option<Value>, Unread> {
        if let Some(value) = self.write.get(key) {
            return Ok(value.clone());
        }
        if let Some((key, found)) = self.found.remove_entry(key) {
            self.read.insert(key, found);
        }
        self.read.get(key).map(value_of).ok_or(Unread)
    }

    /// The cluster was asked for a key, and this is what it holds.
    fn saw(&mut self, key: &[u8], read: Read) -> Option<Value> {
        let value = value_of(&read);
        self.read.insert(key.to_vec(), read);
        value
    }

    /// The commit: if all versions are still those that were read, the writes; otherwise a look at
    /// what is there now. None if there is nothing to ask: what one read saw, it saw at one moment.
    fn commit(&self) -> Option<Transaction> {
        if self.write.is_empty() && self.read.len() < 2 {
            return None;
        }
        let mut transaction = Transaction::default();
        for (key, read) in &self.read {
            let version = read.as_ref().map_or(0, |(_, version)| *version);
            transaction = transaction.guard(key.clone(), Test::Version(version));
            transaction = transaction.otherwise(Operation::Get { key: key.clone() });
        }
        for (key, value) in &self.write {
            let key = key.clone();
            transaction = transaction.then(match value.clone() {
                Some(value) => Operation::Put { key, value },
                None => Operation::Delete { key },
            });
        }
        Some(transaction)
    }

    /// Takes in the answer to the commit, or that there was nothing to ask. An attempt that was
    /// overtaken leaves what it found there.
    fn conclude(self, reply: Option<Result<Reply, Error>>) -> Result<(Commit, Self), Error> {
        let Some(reply) = reply else { return Ok((Commit::Done, Self::default())) };
        let found = match reply {
            Ok(Reply { held: true, .. }) => return Ok((Commit::Done, Self::default())),
            Ok(Reply { outcomes, .. }) => outcomes,
            // Writes have short replies: it was the look at what is there now.
            Err(Error::Refused(Refusal::ReplyTooLarge { .. })) => Vec::new(),
            Err(error) => return Err(error),
        };
        let found = self.read.into_keys().zip(found).filter_map(|(key, outcome)| match outcome {
            Outcome::Value(read) => Some((key, read)),
            _ => None,
        });
        Ok((Commit::Overtaken, Self { found: found.collect(), ..Self::default() }))
    }
}

/// The transaction knows nothing of a key: the cluster must be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unread;

fn value_of(read: &Read) -> Option<Value> {
    read.as_ref().map(|(value, _)| value.clone())
}

impl<C> Interactive<C> {
    fn new(client: C, draft: Draft) -> Self {
        Self { client, draft }
    }

    /// Sets the value of `key`, if the transaction commits.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.draft.write.insert(key.as_ref().to_vec(), Some(value.as_ref().to_vec()));
    }

    /// Removes the value of `key`, if the transaction commits.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.draft.write.insert(key.as_ref().to_vec(), None);
    }
}

impl<F: Fabric> Interactive<&mut blocking::Client<F>> {
    /// The value of `key`, as this transaction sees it: what it has put there itself, or what it read
    /// when it first asked.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        match self.draft.value(key) {
            Ok(value) => Ok(value),
            Err(Unread) => Ok(self.draft.saw(key, self.client.get_versioned(key)?)),
        }
    }

    /// Makes everything take effect at one place in the order, if all that was read still stands
    /// there, over any shards, in one round of ordering. [`Error::UnknownOutcome`] means what it says
    /// of any command: this commit takes effect once or not at all, and another attempt would be a
    /// second transaction.
    pub fn commit(self) -> Result<Commit, Error> {
        Ok(self.end()?.0)
    }

    fn end(self) -> Result<(Commit, Draft), Error> {
        let reply = self.draft.commit().map(|commit| self.client.transact(&commit));
        self.draft.conclude(reply)
    }
}

impl Interactive<asynchronous::Client> {
    /// The value of `key`, as this transaction sees it: what it has put there itself, or what it read
    /// when it first asked.
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        match self.draft.value(key) {
            Ok(value) => Ok(value),
            Err(Unread) => Ok(self.draft.saw(key, self.client.get_versioned(key).await?)),
        }
    }

    /// Makes everything take effect at one place in the order, if all that was read still stands
    /// there, over any shards, in one round of ordering. [`Error::UnknownOutcome`] means what it says
    /// of any command: this commit takes effect once or not at all, and another attempt would be a
    /// second transaction.
    pub async fn commit(self) -> Result<Commit, Error> {
        Ok(self.end().await?.0)
    }

    async fn end(self) -> Result<(Commit, Draft), Error> {
        let reply = match self.draft.commit() {
            Some(commit) => Some(self.client.transact(&commit).await),
            None => None,
        };
        self.draft.conclude(reply)
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
    /// order.put("stock", (stock - 1).to_string());
    /// order.put("order:1", "one");
    /// assert_eq!(order.get("stock")?.as_deref(), Some(&b"2"[..]), "it sees its own writes");
    /// assert_eq!(order.commit()?, Commit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&mut self) -> Interactive<&mut Self> {
        Interactive::new(self, Draft::default())
    }

    /// Does a transaction, and again if it was overtaken, at most so many times. What an attempt that
    /// was overtaken found is where the next one begins, so that it need not read again, and hot keys
    /// go round quickly. Errors of `body` end it, and nothing was changed.
    ///
    /// ```
    /// # use std::num::NonZeroU32;
    /// # use skein_client::Error;
    /// # let cluster = skein_client::local::Cluster::local()?;
    /// # let mut client = cluster.client()?;
    /// let attempts = NonZeroU32::new(10).expect("ten");
    /// let visits = client.attempt(attempts, |transaction| {
    ///     let visits = transaction.get("visits")?.map_or(0, |visits| visits.len());
    ///     transaction.put("visits", "x".repeat(visits + 1));
    ///     Ok::<_, Error>(visits + 1)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        attempts: NonZeroU32,
        mut body: impl FnMut(&mut Interactive<&mut Self>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut draft = Draft::default();
        for _ in 0..attempts.get() {
            let mut transaction = Interactive::new(&mut *self, draft);
            let result = body(&mut transaction)?;
            match transaction.end()? {
                (Commit::Done, _) => return Ok(result),
                (Commit::Overtaken, found) => draft = found,
            }
        }
        Err(Error::Overtaken { attempts: attempts.get() }.into())
    }
}

impl asynchronous::Client {
    /// Begins a transaction that reads and writes in the application's own order.
    ///
    /// ```
    /// # use skein_client::{Commit, Error, asynchronous::Client};
    /// # async fn order(client: &Client) -> Result<Commit, Error> {
    /// let mut order = client.begin();
    /// let stock = order.get("stock").await?.unwrap_or_default();
    /// order.put("stock", &stock[1..]);
    /// order.put("order:1", "one");
    /// order.commit().await
    /// # }
    /// ```
    pub fn begin(&self) -> Interactive<Self> {
        Interactive::new(self.clone(), Draft::default())
    }

    /// Does a transaction, and again if it was overtaken, at most so many times. What an attempt that
    /// was overtaken found is where the next one begins, so that it need not read again, and hot keys
    /// go round quickly. Errors of `body` end it, and nothing was changed.
    ///
    /// ```
    /// # use std::num::NonZeroU32;
    /// # use skein_client::{Error, asynchronous::Client};
    /// # async fn visit(client: &Client) -> Result<usize, Error> {
    /// let attempts = NonZeroU32::new(10).expect("ten");
    /// client
    ///     .attempt(attempts, async |transaction| {
    ///         let visits = transaction.get("visits").await?.map_or(0, |visits| visits.len());
    ///         transaction.put("visits", "x".repeat(visits + 1));
    ///         Ok(visits + 1)
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn attempt<T, E: From<Error>>(
        &self,
        attempts: NonZeroU32,
        mut body: impl AsyncFnMut(&mut Interactive<Self>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut draft = Draft::default();
        for _ in 0..attempts.get() {
            let mut transaction = Interactive::new(self.clone(), draft);
            let result = body(&mut transaction).await?;
            match transaction.end().await? {
                (Commit::Done, _) => return Ok(result),
                (Commit::Overtaken, found) => draft = found,
            }
        }
        Err(Error::Overtaken { attempts: attempts.get() }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(of: &[(&str, Option<(&str, Version)>)]) -> BTreeMap<Key, Read> {
        let read = |value: &(&str, Version)| (value.0.into(), value.1);
        of.iter().map(|(key, value)| (Key::from(*key), value.as_ref().map(read))).collect()
    }

    #[test]
    fn a_commit_guards_what_was_read_and_nothing_else() {
        let mut draft =
            Draft { read: read(&[("a", Some(("1", 7))), ("b", None)]), ..Draft::default() };
        draft.write.insert("b".into(), Some("2".into()));
        draft.write.insert("c".into(), None);
        let commit = draft.commit().unwrap();
        let guards: Vec<_> = commit.guards.iter().map(|it| (&it.key[..], &it.test)).collect();
        assert_eq!(guards, [(&b"a"[..], &Test::Version(7)), (&b"b"[..], &Test::Version(0))]);
        let keys: Vec<_> = commit.then.iter().filter_map(|it| it.key()).collect();
        assert_eq!(keys, [b"b", b"c"]);
        assert_eq!(commit.otherwise.len(), 2, "a look at what has changed");
    }

    #[test]
    fn what_one_moment_showed_needs_no_commit() {
        let one = Draft { read: read(&[("a", None)]), ..Draft::default() };
        assert_eq!((one.commit(), Draft::default().commit()), (None, None));
        let two = Draft { read: read(&[("a", None), ("b", None)]), ..Draft::default() };
        assert!(two.commit().is_some(), "two reads are of two moments");
    }

    #[test]
    fn who_was_overtaken_goes_on_from_what_is_there() {
        let draft = Draft { read: read(&[("a", Some(("1", 7))), ("b", None)]), ..Draft::default() };
        let outcomes = vec![Outcome::Value(Some(("9".into(), 12))), Outcome::Value(None)];
        let reply = Reply { held: false, outcomes };
        let (commit, mut draft) = draft.conclude(Some(Ok(reply))).unwrap();
        assert_eq!(commit, Commit::Overtaken);
        assert_eq!(draft.value(b"a"), Ok(Some(b"9".to_vec())));
        assert_eq!(draft.value(b"c"), Err(Unread), "of this it knows nothing");
        assert_eq!(
            draft.read,
            read(&[("a", Some(("9", 12)))]),
            "only what is asked for is guarded"
        );
    }
}
