//! Commands: one-shot transactions over any keys.
//!
//! get, put, delete, compare-and-swap, increment, append, scan and multi-key transactions all have one form: if the
//! guards hold, execute `then`, otherwise `otherwise`. A command either takes effect atomically, at one position of the
//! order, in all groups that own its keys; or it is [refused](crate::reply::Refusal) and has no effect at all.

use serde::{Deserialize, Serialize};

use crate::range::RangeDigest;
use crate::wire::Bytes;

/// A key: any bytes, up to `limits.key_bytes_max`.
pub type Key = Vec<u8>;
/// A value: any bytes, up to `limits.value_bytes_max`.
pub type Value = Vec<u8>;
/// The position at which a key was last written; 0 means that the key is absent.
pub type Version = u64;

/// If all `guards` hold, executes `then`, otherwise `otherwise`: atomically, at one position of the order.
///
/// All guards are evaluated before the first operation. The operations of a branch take effect one after the other, so
/// a read sees what the same branch wrote before it.
///
/// `B` is the type of byte strings: owned in a transaction that is built, [borrowed](Bytes) from the message in the
/// machine that reads it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction<B = Vec<u8>> {
    /// Without guards, `then` is executed.
    pub guards: Vec<Guard<B>>,
    /// Executed if every guard holds.
    pub then: Vec<Operation<B>>,
    /// Executed if any guard does not hold.
    pub otherwise: Vec<Operation<B>>,
}

/// A condition on one key, or on a range that begins at `key`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard<B = Vec<u8>> {
    pub key: B,
    pub test: Test<B>,
}

/// The condition of a guard.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test<B = Vec<u8>> {
    /// The key has a value.
    Exists,
    /// The key has no value.
    Missing,
    /// The value equals these bytes.
    Equals(B),
    /// The key was last written at this version; 0 means that it is absent.
    Version(Version),
    /// The value, read as a decimal 64-bit integer, compares with `number` in this way. An absent value counts as 0. A
    /// value that is not such an integer fails the guard. The text of an integer is an optional minus and digits,
    /// nothing else.
    Number {
        /// The value is the left operand.
        compare: Compare,
        number: i64,
    },
    /// The pairs with `key <= k < end`, where `key` is the guard's, are those that were read. Involves every group of
    /// the cluster, as a scan does.
    Unchanged {
        /// The first key after the range; `None` means no upper bound.
        end: Option<B>,
        /// Digest of each group's pairs in the range. A group without an entry held none.
        held: Vec<RangeDigest>,
    },
}

/// A comparison of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Equal,
    /// `>=`
    AtLeast,
    /// `>`
    Greater,
}

/// One read or write. [`Outcome`](crate::reply::Outcome) names the outcome of each.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation<B = Vec<u8>> {
    /// Reads the value and its version.
    Get { key: B },
    /// Reads whether there is a value.
    Exists { key: B },
    /// Sets the value.
    Put { key: B, value: B },
    /// Removes the value.
    Delete { key: B },
    /// Appends to the value, or creates it.
    Append {
        key: B,
        /// The bytes to append.
        value: B,
    },
    /// Adds to the value, a decimal 64-bit integer. An absent value counts as 0.
    Increment {
        key: B,
        /// May be negative.
        by: i64,
    },
    /// Overwrites bytes of the value from `offset` on. Extends the value if necessary, with zero bytes in between.
    /// Creates it if it is absent.
    Patch {
        key: B,
        /// In bytes.
        offset: u32,
        bytes: B,
    },
    /// Reads the next page of the pairs with `start <= key < end`, in key order, over all shards. Involves every group
    /// of the cluster. At most one per branch.
    Scan {
        start: B,
        /// The first key after the range; `None` means no upper bound.
        end: Option<B>,
        /// Maximum number of pairs; at least 1. A page may hold fewer: see `limits.scan_pairs_max` and
        /// `limits.scan_page_bytes_max`.
        limit: u32,
    },
}

impl<B> Default for Transaction<B> {
    fn default() -> Self {
        Self { guards: Vec::new(), then: Vec::new(), otherwise: Vec::new() }
    }
}

impl<B> Guard<B> {
    /// The key of the guard, or `None` for a guard on a range, which involves every group.
    pub fn only_key(&self) -> Option<&B> {
        match self.test {
            Test::Unchanged { .. } => None,
            _ => Some(&self.key),
        }
    }
}

impl<B> Transaction<B> {
    /// Whether the transaction changes nothing and always executes the same branch.
    pub fn only_reads(&self) -> bool {
        self.guards.is_empty() && self.has_no_effect()
    }

    /// Whether no branch of the transaction changes anything.
    pub fn has_no_effect(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(Operation::is_read)
    }
}

impl Transaction {
    /// A transaction of one operation without a condition.
    pub fn of(operation: Operation) -> Self {
        Self { then: vec![operation], ..Self::default() }
    }

    /// Adds a guard.
    #[must_use]
    pub fn guard(mut self, key: impl Into<Key>, test: Test) -> Self {
        self.guards.push(Guard { key: key.into(), test });
        self
    }

    /// Adds an operation to the branch for guards that all hold.
    #[must_use]
    pub fn then(mut self, operation: Operation) -> Self {
        self.then.push(operation);
        self
    }

    /// Adds an operation to the branch for a guard that does not hold.
    #[must_use]
    pub fn otherwise(mut self, operation: Operation) -> Self {
        self.otherwise.push(operation);
        self
    }

    /// The same transaction, with bytes borrowed from this one.
    pub fn borrowed(&self) -> Transaction<Bytes<'_>> {
        Transaction {
            guards: self.guards.iter().map(Guard::borrowed).collect(),
            then: self.then.iter().map(Operation::borrowed).collect(),
            otherwise: self.otherwise.iter().map(Operation::borrowed).collect(),
        }
    }
}

impl Guard {
    fn borrowed(&self) -> Guard<Bytes<'_>> {
        let test = match &self.test {
            Test::Exists => Test::Exists,
            Test::Missing => Test::Missing,
            Test::Equals(value) => Test::Equals(Bytes(value)),
            Test::Version(version) => Test::Version(*version),
            Test::Number { compare, number } => Test::Number { compare: *compare, number: *number },
            Test::Unchanged { end, held } => {
                Test::Unchanged { end: end.as_deref().map(Bytes), held: held.clone() }
            }
        };
        Guard { key: Bytes(&self.key), test }
    }
}

impl Operation {
    fn borrowed(&self) -> Operation<Bytes<'_>> {
        match self {
            Self::Get { key } => Operation::Get { key: Bytes(key) },
            Self::Exists { key } => Operation::Exists { key: Bytes(key) },
            Self::Put { key, value } => Operation::Put { key: Bytes(key), value: Bytes(value) },
            Self::Delete { key } => Operation::Delete { key: Bytes(key) },
            Self::Append { key, value } => {
                Operation::Append { key: Bytes(key), value: Bytes(value) }
            }
            Self::Increment { key, by } => Operation::Increment { key: Bytes(key), by: *by },
            Self::Patch { key, offset, bytes } => {
                Operation::Patch { key: Bytes(key), offset: *offset, bytes: Bytes(bytes) }
            }
            Self::Scan { start, end, limit } => Operation::Scan {
                start: Bytes(start),
                end: end.as_deref().map(Bytes),
                limit: *limit,
            },
        }
    }
}

impl<B> Operation<B> {
    /// The key of the operation, or `None` for a scan, which involves every group.
    pub fn key(&self) -> Option<&B> {
        match self {
            Self::Get { key }
            | Self::Exists { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Append { key, .. }
            | Self::Increment { key, .. }
            | Self::Patch { key, .. } => Some(key),
            Self::Scan { .. } => None,
        }
    }

    /// Whether the operation changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Get { .. } | Self::Exists { .. } | Self::Scan { .. })
    }
}
