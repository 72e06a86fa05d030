//! The reads and writes of an interactive transaction. A draft does not communicate with the cluster: its caller sends
//! the transactions that it returns, and passes the replies to it.

use std::collections::BTreeMap;

use skein_kvstore::command::{Guard, Key, Operation, Test, Transaction, Value, Version};
use skein_kvstore::limits::Limits;
use skein_kvstore::number;
use skein_kvstore::range::RangeDigest;
use skein_kvstore::reply::{Outcome, Page, Refusal, Reply};
use skein_kvstore::slots::SlotMap;
use skein_protocol::ids::GroupId;

use crate::driver::Shape;
use crate::error::{Error, Unavailability};
use crate::operations::{self, KeyRange};
use crate::reads::ReadMode;

/// The value of a key when it was read.
type Read = Option<(Value, Version)>;

/// The value that a transaction sees at a key: its bytes, and the version at which it was written. The version is
/// `None` if the transaction has written the value itself, or has seen it in a [scan](Draft::scan).
pub type Seen = Option<(Value, Option<Version>)>;

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction that was overtaken has changed nothing"]
pub enum Commit {
    /// It took effect at one place in the order, at which everything that it had read was unchanged.
    Done,
    /// Something that it had read was changed meanwhile; it has changed nothing.
    Overtaken,
}

/// An interactive transaction under way, for callers that drive sessions with a [`Driver`](crate::Driver). Clients have
/// [`Interactive`](crate::Interactive), which does the same as this example:
///
/// ```
/// use std::time::Duration;
/// use skein_client::{Commit, Draft, Driver, Error, Operation, ReadMode, Reply, Transaction};
///
/// # let cluster = skein_client::local::Cluster::local()?;
/// let mut driver = cluster.driver()?;
/// let session = driver.open();
/// let mut ask = |transaction: &Transaction| -> Result<Reply, Error> {
///     let ticket = driver.submit(session, transaction)?;
///     let mut reply = None;
///     while reply.is_none() {
///         if !driver.poll(&mut |of, result| reply = (of == ticket).then_some(result))? {
///             driver.wait(Duration::from_millis(100));
///         }
///     }
///     reply.expect("the loop has ended")
/// };
/// # let shape = cluster.driver()?.shape().clone();
/// let mut draft = Draft::new(&shape, ReadMode::Confirmed);
/// let stock = match draft.get("stock")? {
///     Some(seen) => seen,
///     None => draft.saw("stock", ask(&Transaction::of(Operation::Get { key: "stock".into() })))?,
/// };
/// assert_eq!(stock, None);
/// draft.put("stock", "3")?;
/// let reply = draft.commit(&shape).map(|commit| ask(&commit));
/// assert_eq!(draft.conclude(reply)?.0, Commit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    limits: Limits,
    read: BTreeMap<Key, Read>,
    /// Values that the last attempt's commit found at keys that this attempt has not read yet.
    found: BTreeMap<Key, Read>,
    scanned: Vec<Scanned>,
    write: BTreeMap<Key, Write>,
    /// Number of moments at which the cluster was read. The values in `found` are of one moment.
    moments: u32,
    uses_found: bool,
    /// Reads may return outdated values.
    is_stale: bool,
    has_failed: bool,
}

/// The change of a key by a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Put(Value),
    Delete,
    /// Changes of a value that the transaction has not read, in order. Other transactions that change the value do not
    /// overtake this one.
    Change(Vec<Change>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Add(i64),
    Append(Value),
}

/// A range that was scanned, and its pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scanned {
    start: Key,
    end: Option<Key>,
    pairs: Vec<(Key, Value)>,
}

impl Scanned {
    fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.as_deref().is_none_or(|end| key < end)
    }

    fn value(&self, key: &[u8]) -> Option<&Value> {
        let place = self.pairs.binary_search_by(|(at, _)| at.as_slice().cmp(key));
        place.ok().map(|at| &self.pairs[at].1)
    }

    /// A guard that holds if the range still has these pairs.
    fn guard(&self, slots: &SlotMap) -> Guard {
        let mut groups = BTreeMap::<GroupId, Vec<(&[u8], &[u8])>>::new();
        for (key, value) in &self.pairs {
            groups.entry(slots.owner(key)).or_default().push((key, value));
        }
        let held = groups.into_iter().map(|(group, pairs)| RangeDigest::of(group, pairs));
        let test = Test::Unchanged { end: self.end.clone(), held: held.collect() };
        Guard { key: self.start.clone(), test }
    }

    fn bytes(&self) -> u64 {
        self.pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

impl Write {
    fn len(&self) -> usize {
        if let Self::Change(changes) = self { changes.len() } else { 1 }
    }

    /// The value that results from this write on `value`.
    fn apply(&self, key: &[u8], value: Option<&Value>, limits: &Limits) -> Result<Seen, Error> {
        let changes = match self {
            Self::Put(value) => return Ok(Some((value.clone(), None))),
            Self::Delete => return Ok(None),
            Self::Change(changes) => changes,
        };
        let mut value = value.cloned();
        for change in changes {
            value = Some(change.apply(key, value, limits)?);
        }
        Ok(value.map(|value| (value, None)))
    }

    fn operations(self, key: &Key) -> Vec<Operation> {
        let key = || key.clone();
        match self {
            Self::Put(value) => vec![Operation::Put { key: key(), value }],
            Self::Delete => vec![Operation::Delete { key: key() }],
            Self::Change(changes) => {
                let operation = |change| match change {
                    Change::Add(by) => Operation::Increment { key: key(), by },
                    Change::Append(value) => Operation::Append { key: key(), value },
                };
                changes.into_iter().map(operation).collect()
            }
        }
    }
}

impl Change {
    fn apply(&self, key: &[u8], value: Option<Value>, limits: &Limits) -> Result<Value, Error> {
        match self {
            Self::Add(by) => {
                let number = number::add(key, value.as_deref(), *by).map_err(Error::Refused)?;
                Ok(number.to_string().into_bytes())
            }
            Self::Append(more) => {
                let mut value = value.unwrap_or_default();
                value.extend_from_slice(more);
                let (len, max) = (value.len() as u64, limits.value_bytes_max as u64);
                if len > max {
                    let key = key.to_vec();
                    return Err(Error::Refused(Refusal::ValueTooLarge { key, len, max }));
                }
                Ok(value)
            }
        }
    }

    /// Merges `next` into this change if one change can do both. Returns whether it could.
    fn join(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Add(by), Self::Add(more)) => match by.checked_add(*more) {
                Some(sum) => *by = sum,
                None => return false,
            },
            (Self::Append(value), Self::Append(more)) => value.extend_from_slice(more),
            _ => return false,
        }
        true
    }
}

impl Draft {
    /// An empty draft for a cluster of that shape, whose keys are read in that mode.
    pub fn new(shape: &Shape, mode: ReadMode) -> Self {
        Self::within(shape.limits, mode)
    }

    fn within(limits: Limits, mode: ReadMode) -> Self {
        Self {
            limits,
            read: BTreeMap::new(),
            found: BTreeMap::new(),
            scanned: Vec::new(),
            write: BTreeMap::new(),
            moments: 0,
            uses_found: false,
            is_stale: mode == ReadMode::Stale,
            has_failed: false,
        }
    }

    /// An empty draft with the same limits and mode.
    fn emptied(&self) -> Self {
        let mode = if self.is_stale { ReadMode::Stale } else { ReadMode::Confirmed };
        Self::within(self.limits, mode)
    }

    /// The value that the transaction sees at a key: its own write, an earlier read, or the value that the last attempt
    /// found. If it is `None`, the caller must read the key from the cluster and pass the reply to [`saw`](Self::saw).
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Seen>, Error> {
        let key = key.as_ref();
        let write = self.write.get(key);
        if let Some(write @ (Write::Put(_) | Write::Delete)) = write {
            return write.apply(key, None, &self.limits).map(Some);
        }
        if let Some((key, found)) = self.found.remove_entry(key) {
            self.moments += u32::from(!std::mem::replace(&mut self.uses_found, true));
            self.read.insert(key, found);
        }
        match self.base(key) {
            Some(seen) => self.changed(key, seen).map(Some),
            None => self.check_room(key).map(|()| None),
        }
    }

    /// The value of a key that was read or scanned before.
    fn base(&self, key: &[u8]) -> Option<Seen> {
        let versioned = |(value, version): (Value, Version)| (value, Some(version));
        if let Some(read) = self.read.get(key) {
            return Some(read.clone().map(versioned));
        }
        let range = self.scanned.iter().find(|range| range.contains(key))?;
        Some(range.value(key).map(|value| (value.clone(), None)))
    }

    /// The value after the transaction's own changes.
    fn changed(&self, key: &[u8], base: Seen) -> Result<Seen, Error> {
        match self.write.get(key) {
            Some(write) => write.apply(key, base.map(|(value, _)| value).as_ref(), &self.limits),
            None => Ok(base),
        }
    }

    /// Takes the reply to a read of `key` by a single [`Operation::Get`]. Returns the value that the transaction sees.
    pub fn saw(
        &mut self,
        key: impl AsRef<[u8]>,
        reply: Result<Reply, Error>,
    ) -> Result<Seen, Error> {
        let key = key.as_ref();
        let read = self.note(reply.and_then(operations::value))?;
        self.moments += 1;
        self.read.insert(key.to_vec(), read);
        let base = self.base(key).expect("it was read just now");
        self.changed(key, base)
    }

    /// The transaction that reads a page of `range`, at most `limit` pairs.
    pub fn scan(&self, range: &KeyRange, limit: u32) -> Result<Transaction, Error> {
        self.check_count(1)?;
        Ok(range.scan(limit))
    }

    /// Takes the reply to a scan of a page. Returns the page as the transaction sees it, including its own writes. The
    /// commit is guarded by the part of the range that the page covers.
    pub fn saw_page(
        &mut self,
        range: &KeyRange,
        limit: u32,
        reply: Result<Reply, Error>,
    ) -> Result<Page, Error> {
        let page = self.note(reply.and_then(operations::page))?;
        self.moments += 1;
        let KeyRange { start, end } = range;
        let end = page.next.as_ref().or(end.as_ref());
        let range = Scanned { start: start.clone(), end: end.cloned(), pairs: page.pairs };
        let seen = self.see(&range, limit, page.next);
        if range.end.as_ref().is_none_or(|end| *end > range.start) {
            self.keep(range)?;
        }
        seen
    }

    /// The pairs of a range as the transaction sees them.
    fn see(&self, range: &Scanned, limit: u32, next: Option<Key>) -> Result<Page, Error> {
        let mut pairs: BTreeMap<_, _> = range.pairs.iter().cloned().collect();
        let written = self.write.range(range.start.clone()..);
        for (key, write) in written.take_while(|(key, _)| range.contains(key)) {
            match write.apply(key, pairs.get(key), &self.limits)? {
                Some((value, _)) => _ = pairs.insert(key.clone(), value),
                None => _ = pairs.remove(key),
            }
        }
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        let beyond = pairs.get(limit as usize).map(|(key, _)| key.clone());
        pairs.truncate(limit as usize);
        Ok(Page { pairs, next: beyond.or(next) })
    }

    /// Records a range. Consecutive pages are one range.
    fn keep(&mut self, mut range: Scanned) -> Result<(), Error> {
        let follows = |before: &&mut Scanned| before.end.as_ref() == Some(&range.start);
        if let Some(before) = self.scanned.iter_mut().find(follows) {
            before.end = range.end;
            before.pairs.append(&mut range.pairs);
        } else if !self.scanned.contains(&range) {
            self.scanned.push(range);
        }
        let pairs = self.scanned.iter().map(|range| range.pairs.len() as u64).sum();
        let bytes = self.scanned.iter().map(Scanned::bytes).sum();
        let pairs_max = self.limits.scan_pairs_max as u64;
        let bytes_max = self.limits.reply_bytes_max as u64;
        if pairs > pairs_max || bytes > bytes_max {
            let refusal = Refusal::RangesTooLarge { pairs, bytes, pairs_max, bytes_max };
            return Err(Error::before_sending(refusal));
        }
        Ok(())
    }

    /// Sets the value of `key`, if the transaction commits.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write(key.as_ref(), Write::Put(value.as_ref().to_vec()))
    }

    /// Removes the value of `key`, if the transaction commits.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write(key.as_ref(), Write::Delete)
    }

    /// Adds `by` to the value of `key`, a decimal 64-bit integer, absent counting as 0, if the transaction commits. If
    /// the transaction has not read the key and does not read it later, other transactions may change the number
    /// without overtaking this one; a value that is not a number is then found at the commit.
    pub fn increment(&mut self, key: impl AsRef<[u8]>, by: i64) -> Result<(), Error> {
        self.change(key.as_ref(), Change::Add(by))
    }

    /// Adds `value` to the end of `key`'s value, creating it, if the transaction commits. If the transaction has not
    /// read the key and does not read it later, other transactions may change the value without overtaking this one.
    pub fn append(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.change(key.as_ref(), Change::Append(value.as_ref().to_vec()))
    }

    fn write(&mut self, key: &[u8], write: Write) -> Result<(), Error> {
        self.check_room(key)?;
        if let Write::Put(value) = &write {
            let (len, max) = (value.len() as u64, self.limits.value_bytes_max as u64);
            if len > max {
                let refusal = Refusal::ValueTooLarge { key: key.to_vec(), len, max };
                return Err(Error::before_sending(refusal));
            }
        }
        self.write.insert(key.to_vec(), write);
        Ok(())
    }

    fn change(&mut self, key: &[u8], change: Change) -> Result<(), Error> {
        let base = match self.write.get(key) {
            Some(write @ (Write::Put(_) | Write::Delete)) => {
                Some(write.apply(key, None, &self.limits)?)
            }
            _ => None,
        };
        if let Some(base) = base {
            let value = change.apply(key, base.map(|(value, _)| value), &self.limits)?;
            return self.write(key, Write::Put(value));
        }
        self.check_room(key)?;
        if let Some(Write::Change(changes)) = self.write.get_mut(key) {
            let joined = changes.last_mut().is_some_and(|last| last.join(&change));
            if !joined {
                changes.push(change);
                return self.check_count(0);
            }
            return Ok(());
        }
        self.write(key, Write::Change(vec![change]))
    }

    /// Fails if `key` is too long, or would be one key too many.
    fn check_room(&self, key: &[u8]) -> Result<(), Error> {
        let (len, max) = (key.len() as u64, self.limits.key_bytes_max as u64);
        if len > max {
            return Err(Error::before_sending(Refusal::KeyTooLarge { len, max }));
        }
        let is_known = self.read.contains_key(key) || self.write.contains_key(key);
        self.check_count(usize::from(!is_known))
    }

    /// Fails if `more` further keys and ranges would be too many.
    fn check_count(&self, more: usize) -> Result<(), Error> {
        let unread = self.write.iter().filter(|(key, _)| !self.read.contains_key(*key)).count();
        // Changes that could not be merged are sent one by one.
        let again: usize = self.write.values().map(|write| write.len() - 1).sum();
        let keys = (self.read.len() + unread + again + self.scanned.len() + more) as u64;
        let max = self.limits.transaction_keys_max as u64;
        if keys > max {
            return Err(Error::before_sending(Refusal::TooManyKeys { keys, max }));
        }
        Ok(())
    }

    /// Records an error that is not about the data, but of the request.
    fn note<T>(&mut self, reply: Result<T, Error>) -> Result<T, Error> {
        let is_of_data =
            |error: &Error| matches!(error, Error::Refused(_) | Error::TooLarge { .. });
        self.has_failed |= reply.as_ref().is_err_and(|error| !is_of_data(error));
        reply
    }

    /// Whether a request to the cluster has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether the values read may not have existed together. One read shows one moment, unless any replica may have
    /// answered it from an outdated state.
    fn is_doubtful(&self) -> bool {
        self.moments >= 2 || self.moments == 1 && self.is_stale
    }

    /// The commit: if everything is unchanged since it was read, the writes; otherwise reads of the current values.
    /// `None` if there is nothing to send: the transaction writes nothing, and has read at one moment only.
    pub fn commit(&self, shape: &Shape) -> Option<Transaction> {
        self.commit_by(&shape.slots)
    }

    fn commit_by(&self, slots: &SlotMap) -> Option<Transaction> {
        if self.write.is_empty() {
            return self.verification_by(slots);
        }
        let mut transaction = self.guarded(slots);
        for (key, write) in &self.write {
            transaction.then.extend(write.clone().operations(key));
        }
        Some(transaction)
    }

    /// Same without the writes: verifies that the values read existed together. Only then is another conclusion from
    /// them valid, such as an error.
    pub fn verification(&self, shape: &Shape) -> Option<Transaction> {
        self.verification_by(&shape.slots)
    }

    fn verification_by(&self, slots: &SlotMap) -> Option<Transaction> {
        self.is_doubtful().then(|| self.guarded(slots))
    }

    fn guarded(&self, slots: &SlotMap) -> Transaction {
        let mut transaction = Transaction::default();
        for (key, read) in &self.read {
            let version = read.as_ref().map_or(0, |(_, version)| *version);
            transaction = transaction.guard(key.clone(), Test::Version(version));
            transaction = transaction.otherwise(Operation::Get { key: key.clone() });
        }
        transaction.guards.extend(self.scanned.iter().map(|range| range.guard(slots)));
        transaction
    }

    /// Forgets the writes, in order to [verify](Self::verification) the reads and write nothing.
    pub fn forget_writes(&mut self) {
        self.write.clear();
    }

    /// Takes the reply to the [commit](Self::commit) or the [verification](Self::verification); `None` if there was
    /// nothing to send. Also returns the draft for another attempt: if this attempt was overtaken, that draft holds the
    /// values found at the keys that this one had read.
    pub fn conclude(self, reply: Option<Result<Reply, Error>>) -> Result<(Commit, Self), Error> {
        let mut next = self.emptied();
        let Some(reply) = reply else { return Ok((Commit::Done, next)) };
        let found = match reply {
            Ok(Reply { held: true, .. }) => return Ok((Commit::Done, next)),
            Ok(Reply { outcomes, .. }) => outcomes,
            // Replies to writes are short, so this one was to hold the current values.
            // With another slot map, nothing took effect, and the next attempt reads again.
            Err(Error::Refused(Refusal::ReplyTooLarge { .. } | Refusal::WrongEpoch { .. })) => {
                Vec::new()
            }
            // A transaction that writes nothing has no outcome that could be unknown.
            Err(Error::UnknownOutcome { after, silent }) if self.write.is_empty() => {
                let why = Unavailability::NotSent { after, silent };
                return Err(Error::Unavailable { why, sent: false });
            }
            Err(Error::Unavailable { why: why @ Unavailability::HeldUp { .. }, .. })
                if self.write.is_empty() =>
            {
                return Err(Error::Unavailable { why, sent: false });
            }
            Err(error) => return Err(error),
        };
        let found = self.read.into_keys().zip(found).filter_map(|(key, outcome)| match outcome {
            Outcome::Value(read) => Some((key, read)),
            _ => None,
        });
        next.found = found.collect();
        Ok((Commit::Overtaken, next))
    }
}

#[cfg(test)]
mod tests;
