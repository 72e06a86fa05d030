//! What a command comes to.

use serde::{Deserialize, Serialize};

use crate::command::{Key, Value, Version};

/// The answer to a [`Transaction`](crate::command::Transaction) that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Whether all guards held, and `then` was the branch taken.
    pub held: bool,
    /// One per operation of the branch taken, in order.
    pub outcomes: Vec<Outcome>,
}

/// What one operation gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Of a get: the value and its version, if there is one.
    Value(Option<(Value, Version)>),
    /// Of exists: whether there is a value. Of delete: whether there was one.
    Flag(bool),
    /// Of put: the key's new version.
    Written(Version),
    /// Of append and patch: the value's new length in bytes.
    Length(u64),
    /// Of increment: the new number.
    Number(i64),
    /// Of scan: a page.
    Page(Page),
}

/// A page of a scan: one atomic look at a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// In key order.
    pub pairs: Vec<(Key, Value)>,
    /// Where the next page starts, if the range may hold more.
    pub next: Option<Key>,
}

/// Why a command was refused. It had no effect in any group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Increment of something else. Look at the value, or put a number first.
    #[error("the value of {} is not a decimal 64-bit integer", show(.key))]
    NotANumber {
        /// Whose value.
        key: Key,
    },
    /// The sum does not fit 64 bits.
    #[error("incrementing {} overflows a 64-bit integer", show(.key))]
    Overflow {
        /// Whose value.
        key: Key,
    },
    /// Append, patch or put would make the value too large.
    #[error("the value of {} would have {len} bytes; the limit is {max}", show(.key))]
    ValueTooLarge {
        /// Whose value.
        key: Key,
        /// Its length, had it been written.
        len: u64,
        /// `limits.value_bytes_max`
        max: u64,
    },
    /// The key is too long.
    #[error("a key of {len} bytes; the limit is {max}")]
    KeyTooLarge {
        /// Its length.
        len: u64,
        /// `limits.key_bytes_max`
        max: u64,
    },
    /// Too many keys in one transaction.
    #[error("a transaction of {keys} keys; the limit is {max}")]
    TooManyKeys {
        /// Its keys, each mention counted.
        keys: u64,
        /// `limits.transaction_keys_max`
        max: u64,
    },
    /// The group's memory ceiling is reached: delete something, or raise `limits.memory_bytes_max`.
    #[error(
        "group {group} holds {used} bytes and its ceiling is {ceiling}: delete something, or raise limits.memory_bytes_max"
    )]
    OutOfMemory {
        /// Which group.
        group: u16,
        /// Bytes of keys and values it holds, overhead included.
        used: u64,
        /// What it may hold.
        ceiling: u64,
    },
    /// The session was closed or has expired: open another. Whether earlier commands with unknown
    /// outcomes took effect is not known to it.
    #[error("the session is closed or has expired: open another")]
    SessionExpired,
    /// The sender's slot map is not ours: read the cluster's configuration again.
    #[error("the slot map has changed: read the cluster's configuration again")]
    WrongEpoch,
    /// Not a command of this version.
    #[error("malformed command: {0}")]
    Malformed(String),
}

/// Bytes for people: text if it is, hexadecimal otherwise, cut after 64 characters.
pub fn show(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => bytes.iter().take(32).fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    if text.chars().count() <= 64 { text } else { text.chars().take(63).chain(['…']).collect() }
}
