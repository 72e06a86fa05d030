//! What can be asked of the store: one-shot transactions over any keys.
//!
//! get, put, delete, compare-and-swap, increment, append, scan and multi-key transactions are all
//! of one form: if the guards hold, `then`, otherwise `otherwise`. A command takes effect whole, at
//! one place in the order, in all the groups it touches; or it is [refused](crate::reply::Refusal)
//! and has no effect at all.

use serde::{Deserialize, Serialize};

use crate::range::RangeDigest;
use crate::wire::Bytes;

/// A key: any bytes, up to the configured limit.
pub type Key = Vec<u8>;
/// A value: any bytes, up to the configured limit.
pub type Value = Vec<u8>;
/// The position at which a key was last written; 0 is absent.
pub type Version = u64;

/// If all `guards` hold, `then`, otherwise `otherwise`: in one place of the order, whole.
///
/// The operations of a branch take effect one after the other, so that a read sees what the same
/// branch wrote before it. All guards are evaluated before the first operation.
///
/// `B` is how bytes are held: owned by whoever writes commands, [borrowed](Bytes) from the message
/// by the machine that reads them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction<B = Vec<u8>> {
    /// What must hold for `then`. With none, `then` it is.
    pub guards: Vec<Guard<B>>,
    /// Done if every guard holds.
    pub then: Vec<Operation<B>>,
    /// Done if any guard does not.
    pub otherwise: Vec<Operation<B>>,
}

/// A condition on one key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard<B = Vec<u8>> {
    /// The key it looks at.
    pub key: B,
    /// What must be true of it.
    pub test: Test<B>,
}

/// What a guard can ask.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test<B = Vec<u8>> {
    /// There is a value.
    Exists,
    /// There is none.
    Missing,
    /// The value is exactly this.
    Equals(B),
    /// The key was last written at this version; 0 is "absent".
    Version(Version),
    /// The value, read as a decimal 64-bit integer (absent counts as 0), compares so with `number`.
    /// A value that is no such number fails the guard. Such a number is an optional minus and
    /// digits, nothing else.
    Number {
        /// How.
        compare: Compare,
        /// With what.
        number: i64,
    },
    /// The pairs with `key <= k < end`, `key` being the guard's, are those that were read. Takes every
    /// group of the cluster, as a scan does.
    Unchanged {
        /// The first key after the range; `None` is no end.
        end: Option<B>,
        /// What each group held of it. A group that is not named held nothing.
        held: Vec<RangeDigest>,
    },
}

/// An order on numbers.
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

/// One read or write. The outcome each gives is named on [`Outcome`](crate::reply::Outcome).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation<B = Vec<u8>> {
    /// The value and its version.
    Get {
        /// Which.
        key: B,
    },
    /// Whether there is a value.
    Exists {
        /// Which.
        key: B,
    },
    /// Sets the value.
    Put {
        /// Which.
        key: B,
        /// To what.
        value: B,
    },
    /// Removes the value.
    Delete {
        /// Which.
        key: B,
    },
    /// Adds to the end of the value; creates it.
    Append {
        /// Which.
        key: B,
        /// What to add.
        value: B,
    },
    /// Adds to the value, a decimal 64-bit integer; absent counts as 0.
    Increment {
        /// Which.
        key: B,
        /// How much; may be negative.
        by: i64,
    },
    /// Overwrites bytes of the value from `offset` on, growing it, with zero bytes between, if need
    /// be; creates it.
    Patch {
        /// Which.
        key: B,
        /// From which byte.
        offset: u32,
        /// With what.
        bytes: B,
    },
    /// The next page of the pairs with `start <= key < end`, in key order, over all shards. Takes
    /// every group of the cluster; at most one per branch.
    Scan {
        /// The first key.
        start: B,
        /// The first key after the range; `None` is no end.
        end: Option<B>,
        /// At most this many pairs; at least 1. A page may hold fewer: see
        /// `limits.scan_pairs_max` and `limits.scan_page_bytes_max`.
        limit: u32,
    },
}

impl<B> Default for Transaction<B> {
    fn default() -> Self {
        Self { guards: Vec::new(), then: Vec::new(), otherwise: Vec::new() }
    }
}

impl<B> Guard<B> {
    /// The key that it looks at; one of a range looks into every group.
    pub fn only_key(&self) -> Option<&B> {
        match self.test {
            Test::Unchanged { .. } => None,
            _ => Some(&self.key),
        }
    }
}

impl<B> Transaction<B> {
    /// Whether it changes nothing, whatever there is, and reads the same whatever there is.
    pub fn only_reads(&self) -> bool {
        self.guards.is_empty() && self.has_no_effect()
    }

    /// Whether it changes nothing, whatever there is.
    pub fn has_no_effect(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(Operation::is_read)
    }
}

impl Transaction {
    /// One operation, no condition.
    pub fn of(operation: Operation) -> Self {
        Self { then: vec![operation], ..Self::default() }
    }

    /// Adds a condition.
    #[must_use]
    pub fn guard(mut self, key: impl Into<Key>, test: Test) -> Self {
        self.guards.push(Guard { key: key.into(), test });
        self
    }

    /// Adds an operation for when all guards hold.
    #[must_use]
    pub fn then(mut self, operation: Operation) -> Self {
        self.then.push(operation);
        self
    }

    /// Adds an operation for when one does not.
    #[must_use]
    pub fn otherwise(mut self, operation: Operation) -> Self {
        self.otherwise.push(operation);
        self
    }

    /// The same, with bytes borrowed from this one.
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
    /// The key it concerns; a scan concerns a range, in every group.
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

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Get { .. } | Self::Exists { .. } | Self::Scan { .. })
    }
}
