//! What can be asked of the store: one-shot transactions over any keys.
//!
//! get, put, delete, compare-and-swap, increment, append, scan and multi-key transactions are all
//! of one form: if the guards hold, `then`, otherwise `otherwise`. A command takes effect whole, at
//! one place in the order, in all the groups it touches; or it is [refused](crate::reply::Refusal)
//! and has no effect at all.

use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// What must hold for `then`. With none, `then` it is.
    pub guards: Vec<Guard>,
    /// Done if every guard holds.
    pub then: Vec<Operation>,
    /// Done if any guard does not.
    pub otherwise: Vec<Operation>,
}

/// A condition on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The key it looks at.
    pub key: Key,
    /// What must be true of it.
    pub test: Test,
}

/// What a guard can ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    /// There is a value.
    Exists,
    /// There is none.
    Missing,
    /// The value is exactly this.
    Equals(Value),
    /// The key was last written at this version; 0 is "absent".
    Version(Version),
    /// The value, read as a decimal 64-bit integer (absent counts as 0), compares so with `number`.
    /// A value that is no such number fails the guard.
    Number {
        /// How.
        compare: Compare,
        /// With what.
        number: i64,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// The value and its version.
    Get {
        /// Which.
        key: Key,
    },
    /// Whether there is a value.
    Exists {
        /// Which.
        key: Key,
    },
    /// Sets the value.
    Put {
        /// Which.
        key: Key,
        /// To what.
        value: Value,
    },
    /// Removes the value.
    Delete {
        /// Which.
        key: Key,
    },
    /// Adds to the end of the value; creates it.
    Append {
        /// Which.
        key: Key,
        /// What to add.
        value: Value,
    },
    /// Adds to the value, a decimal 64-bit integer; absent counts as 0.
    Increment {
        /// Which.
        key: Key,
        /// How much; may be negative.
        by: i64,
    },
    /// Overwrites bytes of the value from `offset` on, growing it, with zero bytes between, if need
    /// be; creates it.
    Patch {
        /// Which.
        key: Key,
        /// From which byte.
        offset: u32,
        /// With what.
        bytes: Value,
    },
    /// The next page of the pairs with `start <= key < end`, in key order, over all shards. Takes
    /// every group of the cluster; at most one per branch.
    Scan {
        /// The first key.
        start: Key,
        /// The first key after the range; `None` is no end.
        end: Option<Key>,
        /// At most this many pairs.
        limit: u32,
    },
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
}
