//! Results of commands: replies and refusals.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::command::{Key, Version};
use crate::slots::SlotMap;
use crate::wire::Bytes;

/// The reply to a [`Transaction`](crate::command::Transaction) that was not refused.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<B = Vec<u8>> {
    /// Whether all guards held, so that `then` was executed.
    pub held: bool,
    /// One per operation of the executed branch, in order.
    pub outcomes: Vec<Outcome<B>>,
}

/// The result of one operation.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<B = Vec<u8>> {
    /// The value and its version as read by a get, or `None` if the key is absent.
    Value(Option<(B, Version)>),
    /// Of exists: whether there is a value. Of delete: whether there was one.
    Flag(bool),
    /// Of put: the key's new version.
    Written(Version),
    /// Length in bytes of the value after an append or a patch.
    Length(u64),
    /// Of increment: the new number.
    Number(i64),
    Page(Page<B>),
}

/// A page of a scan: an atomic snapshot of a part of a range.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<B = Vec<u8>> {
    /// In key order.
    pub pairs: Vec<(B, B)>,
    /// First key of the next page, if the range holds more.
    pub next: Option<B>,
}

impl<B> Default for Page<B> {
    fn default() -> Self {
        Self { pairs: Vec::new(), next: None }
    }
}

impl fmt::Debug for Refusal {
    /// Writes the message, in which keys are text and not lists of numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({self})")
    }
}

impl Outcome<Bytes<'_>> {
    /// The same outcome with owned bytes.
    pub fn to_owned(&self) -> Outcome {
        match self {
            Self::Value(found) => {
                Outcome::Value(found.map(|(value, version)| (value.0.to_vec(), version)))
            }
            Self::Flag(flag) => Outcome::Flag(*flag),
            Self::Written(version) => Outcome::Written(*version),
            Self::Length(len) => Outcome::Length(*len),
            Self::Number(number) => Outcome::Number(*number),
            Self::Page(page) => Outcome::Page(Page {
                pairs: page.pairs.iter().map(|(k, v)| (k.0.to_vec(), v.0.to_vec())).collect(),
                next: page.next.map(|key| key.0.to_vec()),
            }),
        }
    }
}

/// The reason for a refusal. The command had no effect in any group, except that after
/// [`Unreadable`](Refusal::Unreadable) this is not known.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// An increment of a value that is not a number. Read the value, or put a number first.
    #[error("the value of {} is not a decimal 64-bit integer", show(.key))]
    NotANumber { key: Key },
    /// The sum of an increment does not fit 64 bits.
    #[error("incrementing {} overflows a 64-bit integer", show(.key))]
    Overflow { key: Key },
    /// Append, patch or put would make the value too long.
    #[error("the value of {} would have {len} bytes; limits.value_bytes_max is {max}", show(.key))]
    ValueTooLarge {
        key: Key,
        /// The length that the value would have had.
        len: u64,
        /// `limits.value_bytes_max`
        max: u64,
    },
    #[error("a key of {len} bytes; limits.key_bytes_max is {max}")]
    KeyTooLarge {
        len: u64,
        /// `limits.key_bytes_max`
        max: u64,
    },
    /// The transaction has too many keys.
    #[error("a transaction of {keys} keys; limits.transaction_keys_max is {max}")]
    TooManyKeys {
        /// Number of distinct keys and ranges. If keys are mentioned more than four times the limit, the number of
        /// mentions.
        keys: u64,
        /// `limits.transaction_keys_max`
        max: u64,
    },
    /// The command is too long. Split it into several.
    #[error("a transaction of {len} bytes; limits.transaction_bytes_max is {max}")]
    TransactionTooLarge {
        /// Its length as sent.
        len: u64,
        /// `limits.transaction_bytes_max`
        max: u64,
    },
    /// Append and patch write whole values, which together are too long for one transaction.
    #[error(
        "its appends and patches write values of {len} bytes together; limits.transaction_bytes_max is {max}: send several transactions"
    )]
    WritesTooLarge {
        /// Total length of the values to write, as far as they were counted.
        len: u64,
        /// `limits.transaction_bytes_max`
        max: u64,
    },
    /// The guarded ranges hold too much to be compared in one transaction.
    #[error(
        "the guarded ranges held {pairs} pairs of {bytes} bytes; limits.scan_pairs_max is {pairs_max} and limits.reply_bytes_max is {bytes_max}: scan less in one transaction"
    )]
    RangesTooLarge {
        /// Pairs in all ranges together.
        pairs: u64,
        /// Bytes of these pairs.
        bytes: u64,
        /// `limits.scan_pairs_max`
        pairs_max: u64,
        /// `limits.reply_bytes_max`
        bytes_max: u64,
    },
    /// The reads in one group are too long for one reply. Read less at a time.
    #[error(
        "group {group} would reply with more than {max} bytes (limits.reply_bytes_max): read less at a time"
    )]
    ReplyTooLarge {
        group: u16,
        /// `limits.reply_bytes_max`
        max: u64,
    },
    /// The group has reached its ceiling. Delete keys, or overwrite values with shorter ones. The ceiling follows from
    /// `limits.memory_bytes_max`, or `limits.store_bytes_max` with a store on disk: constants of the cluster.
    #[error(
        "group {group} holds {used} bytes and its ceiling is {ceiling}: delete keys, or overwrite values with shorter ones; for more room, start another cluster with a higher limits.memory_bytes_max, or limits.store_bytes_max if its store is on disk, and copy the data to it"
    )]
    OutOfMemory {
        group: u16,
        /// Bytes that the group holds, overhead included.
        used: u64,
        /// The ceiling in bytes.
        ceiling: u64,
    },
    /// The session was closed or has expired. Open another. The refusal does not show whether earlier commands with
    /// unknown outcomes took effect.
    #[error("the session is closed or has expired: open another")]
    SessionExpired,
    /// The cluster has as many open sessions as it allows. Close some.
    #[error("{max} sessions are open, which is the limit: close some")]
    TooManySessions {
        /// Maximum number of open sessions.
        max: u64,
    },
    /// The command only read, and its reply was lost: replies to read-only commands are not kept. Open sessions of the
    /// client library repeat such a read by themselves.
    #[error("the reply to this read was lost with the leader that gave it: read again")]
    Forgotten,
    /// The command was sent by a slot map of another epoch. The client library sends it again by the map in the
    /// refusal, unless the command depends on an earlier scan, which must then be repeated.
    #[error("the slot map has changed to epoch {}: send the request again by that map", .slots.epoch)]
    WrongEpoch {
        /// The current map of the group.
        slots: Box<SlotMap>,
    },
    /// The slot to be moved holds keys.
    #[error("hash slot {slot} holds keys of group {group}: only an empty slot can be moved")]
    SlotInUse {
        slot: u16,
        /// The group that owns the slot.
        group: u16,
    },
    /// Not a valid command of this version.
    #[error("malformed command: {0}")]
    Malformed(String),
    /// A group's reply cannot be decoded by this version. Whether the command took effect is not known: read the keys
    /// with a client of the cluster's version.
    #[error("the reply of group {group} is not one of this version: {why}")]
    Unreadable { group: u16, why: String },
    /// The cluster is being stopped. It opens no session any more.
    #[error("the cluster is being stopped, and opens no session any more")]
    Stopping,
    /// The transaction was under way when a group was recreated, and the groups that it concerns could not agree on it any
    /// more. Do it again.
    #[error(
        "group {group} objects to the transaction, which was under way when a group was recreated: do it again"
    )]
    Objected {
        /// The group that lacked it, or had it behind another one.
        group: u16,
    },
}

/// Bytes for display: as text if they are text, otherwise hexadecimal, truncated after 64 characters.
pub fn show(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => bytes.iter().take(32).fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    if text.chars().count() <= 64 { text } else { text.chars().take(63).chain(['…']).collect() }
}
