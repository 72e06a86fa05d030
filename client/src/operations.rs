//! Converts single operations into transactions, and their outcomes into the results that callers expect. Shared by the
//! blocking and the asynchronous client, which are otherwise independent.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use skein_kvstore::command::{Key, Operation, Test, Transaction, Value, Version};
use skein_kvstore::reply::{Outcome, Page, Reply, show};

use crate::error::Error;

/// Outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The value was the expected one; the new one has this version.
    Swapped(Version),
    /// The value was another one, and nothing was changed. Holds the value and its version, if there is a value.
    Different(Option<(Value, Version)>),
}

impl Swap {
    /// Whether the new value is in place.
    pub fn swapped(&self) -> bool {
        matches!(self, Self::Swapped(_))
    }
}

/// The keys of a scan: `start <= key < end`, in the order of their bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Key,
    /// First key after the range; `None` if the range has no end.
    pub end: Option<Key>,
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.end.as_deref().map_or(String::new(), show);
        write!(f, "KeyRange({}..{end})", show(&self.start))
    }
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// The keys that begin with `prefix`.
    ///
    /// ```
    /// use skein_client::KeyRange;
    /// let users = KeyRange::prefix("user:");
    /// assert_eq!(users.start, b"user:");
    /// assert_eq!(users.end.as_deref(), Some(&b"user;"[..]));
    /// assert_eq!(format!("{users:?}"), r#"KeyRange("user:".."user;")"#);
    /// ```
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let start = prefix.as_ref().to_vec();
        // The first key after all of them: the last byte that can be raised is raised, and ends it.
        let end = start.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
            let mut end = start[..=last].to_vec();
            end[last] += 1;
            end
        });
        Self { start, end }
    }

    /// The keys within `bounds`, such as `"a".."b"`, `"a"..` or `"a"..="b"`.
    pub fn of<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Self {
        let after = |key: &K| key.as_ref().iter().copied().chain([0]).collect::<Key>();
        let start = match bounds.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Key::new(),
        };
        let end = match bounds.end_bound() {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        Self { start, end }
    }

    pub(crate) fn scan(&self, limit: u32) -> Transaction {
        let Self { start, end } = self.clone();
        Transaction::of(Operation::Scan { start, end, limit })
    }
}

pub(crate) fn swap(key: &[u8], expected: Option<&[u8]>, new: &[u8]) -> Transaction {
    let test = expected.map_or(Test::Missing, |value| Test::Equals(value.to_vec()));
    Transaction::default()
        .guard(key, test)
        .then(Operation::Put { key: key.to_vec(), value: new.to_vec() })
        .otherwise(Operation::Get { key: key.to_vec() })
}

pub(crate) fn swapped(reply: Reply) -> Result<Swap, Error> {
    let held = reply.held;
    match only(reply)? {
        Outcome::Written(version) if held => Ok(Swap::Swapped(version)),
        Outcome::Value(found) if !held => Ok(Swap::Different(found)),
        other => Err(mismatch("a compare-and-swap", &other)),
    }
}

pub(crate) fn value(reply: Reply) -> Result<Option<(Value, Version)>, Error> {
    match only(reply)? {
        Outcome::Value(found) => Ok(found),
        other => Err(mismatch("a get", &other)),
    }
}

pub(crate) fn flag(reply: Reply) -> Result<bool, Error> {
    match only(reply)? {
        Outcome::Flag(flag) => Ok(flag),
        other => Err(mismatch("exists or delete", &other)),
    }
}

pub(crate) fn written(reply: Reply) -> Result<Version, Error> {
    match only(reply)? {
        Outcome::Written(version) => Ok(version),
        other => Err(mismatch("a put", &other)),
    }
}

pub(crate) fn length(reply: Reply) -> Result<u64, Error> {
    match only(reply)? {
        Outcome::Length(length) => Ok(length),
        other => Err(mismatch("append or patch", &other)),
    }
}

pub(crate) fn number(reply: Reply) -> Result<i64, Error> {
    match only(reply)? {
        Outcome::Number(number) => Ok(number),
        other => Err(mismatch("an increment", &other)),
    }
}

pub(crate) fn page(reply: Reply) -> Result<Page, Error> {
    match only(reply)? {
        Outcome::Page(page) => Ok(page),
        other => Err(mismatch("a scan", &other)),
    }
}

fn only(mut reply: Reply) -> Result<Outcome, Error> {
    match (reply.outcomes.pop(), reply.outcomes.len()) {
        (Some(outcome), 0) => Ok(outcome),
        (_, others) => Err(Error::BadReply(format!("{others} outcomes beside the expected one"))),
    }
}

fn mismatch(of: &str, got: &Outcome) -> Error {
    let got = match got {
        Outcome::Value(_) => "a value",
        Outcome::Flag(_) => "a flag",
        Outcome::Written(_) => "a version",
        Outcome::Length(_) => "a length",
        Outcome::Number(_) => "a number",
        Outcome::Page(_) => "a page",
    };
    Error::BadReply(format!("{got} as the outcome of {of}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range() {
        let cases = [
            (&b"a"[..], Some(&b"b"[..]), "the next byte"),
            (b"a\xff", Some(b"b"), "0xff cannot be raised, what stands before it can"),
            (b"\xff\xff", None, "nothing comes after them"),
            (b"", None, "every key"),
        ];
        for (prefix, end, because) in cases {
            assert_eq!(KeyRange::prefix(prefix).end.as_deref(), end, "{because}");
        }
    }

    #[test]
    fn bounds_are_a_range() {
        let range = |start: &[u8], end: Option<&[u8]>| KeyRange {
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
        };
        assert_eq!(KeyRange::of("a".."b"), range(b"a", Some(b"b")));
        assert_eq!(KeyRange::of("a"..="b"), range(b"a", Some(b"b\0")));
        assert_eq!(KeyRange::of("a"..), range(b"a", None));
        assert_eq!(KeyRange::of::<&str>(..), KeyRange::all());
    }

    #[test]
    fn an_outcome_of_another_kind_is_no_panic() {
        let reply = |outcomes| Reply { held: true, outcomes };
        assert!(matches!(value(reply(vec![Outcome::Flag(true)])), Err(Error::BadReply(_))));
        assert!(matches!(value(reply(vec![])), Err(Error::BadReply(_))));
        let two = vec![Outcome::Number(1), Outcome::Number(2)];
        assert!(matches!(number(reply(two)), Err(Error::BadReply(_))));
    }
}
