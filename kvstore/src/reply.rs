//! What a command comes to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::command::{Key, Version};
use crate::slots::SlotMap;
use crate::wire::Bytes;

/// The answer to a [`Transaction`](crate::command::Transaction) that was not refused.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<B = Vec<u8>> {
    /// Whether all guards held, and `then` was the branch taken.
    pub held: bool,
    /// One per operation of the branch taken, in order.
    pub outcomes: Vec<Outcome<B>>,
}

/// What one operation gave.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<B = Vec<u8>> {
    /// Of a get: the value and its version, if there is one.
    Value(Option<(B, Version)>),
    /// Of exists: whether there is a value. Of delete: whether there was one.
    Flag(bool),
    /// Of put: the key's new version.
    Written(Version),
    /// Of append and patch: the value's new length in bytes.
    Length(u64),
    /// Of increment: the new number.
    Number(i64),
    /// Of scan: a page.
    Page(Page<B>),
}

/// A page of a scan: one atomic look at a range.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<B = Vec<u8>> {
    /// In key order.
    pub pairs: Vec<(B, B)>,
    /// Where the next page starts, if the range holds more: the first key of it.
    pub next: Option<B>,
}

impl<B> Default for Page<B> {
    fn default() -> Self {
        Self { pairs: Vec::new(), next: None }
    }
}

impl fmt::Debug for Refusal {
    /// The sentence: keys are text in it, and not numbers one by one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({self})")
    }
}

impl Outcome<Bytes<'_>> {
    /// The same, with bytes of its own.
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

/// Why a command was refused. It had no effect in any group; of [`Unreadable`](Refusal::Unreadable)
/// alone that is not known.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
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
    #[error("the value of {} would have {len} bytes; limits.value_bytes_max is {max}", show(.key))]
    ValueTooLarge {
        /// Whose value.
        key: Key,
        /// Its length, had it been written.
        len: u64,
        /// `limits.value_bytes_max`
        max: u64,
    },
    /// The key is too long.
    #[error("a key of {len} bytes; limits.key_bytes_max is {max}")]
    KeyTooLarge {
        /// Its length.
        len: u64,
        /// `limits.key_bytes_max`
        max: u64,
    },
    /// Too many keys in one transaction.
    #[error("a transaction of {keys} keys; limits.transaction_keys_max is {max}")]
    TooManyKeys {
        /// Its keys, each counted once, and its ranges; of more than four times the limit, its mentions.
        keys: u64,
        /// `limits.transaction_keys_max`
        max: u64,
    },
    /// Too large a command: send several.
    #[error("a transaction of {len} bytes; limits.transaction_bytes_max is {max}")]
    TransactionTooLarge {
        /// Its length as sent.
        len: u64,
        /// `limits.transaction_bytes_max`
        max: u64,
    },
    /// Append and patch make whole values anew, and together these are too much for one transaction.
    #[error(
        "the values that it appends to and patches have {len} bytes together; limits.transaction_bytes_max is {max}: send several transactions"
    )]
    WritesTooLarge {
        /// Bytes of the values made anew, as far as they were counted.
        len: u64,
        /// `limits.transaction_bytes_max`
        max: u64,
    },
    /// The ranges that it guards hold too much to be compared in one transaction.
    #[error(
        "the ranges that it guards held {pairs} pairs of {bytes} bytes; limits.scan_pairs_max is {pairs_max} and limits.reply_bytes_max is {bytes_max}: scan less in one transaction"
    )]
    RangesTooLarge {
        /// Pairs in all ranges together.
        pairs: u64,
        /// Their bytes.
        bytes: u64,
        /// `limits.scan_pairs_max`
        pairs_max: u64,
        /// `limits.reply_bytes_max`
        bytes_max: u64,
    },
    /// What it reads in one group is too much for one reply: read less at a time.
    #[error(
        "group {group} would reply with more than {max} bytes (limits.reply_bytes_max): read less at a time"
    )]
    ReplyTooLarge {
        /// Which group.
        group: u16,
        /// `limits.reply_bytes_max`
        max: u64,
    },
    /// The group's memory ceiling is reached: delete keys, or overwrite values with shorter ones. The ceiling
    /// follows from `limits.memory_bytes_max`, which stays as it is while the cluster lives.
    #[error(
        "group {group} holds {used} bytes and its ceiling is {ceiling}: delete keys, or overwrite values with shorter ones; for more room, start another cluster with a higher limits.memory_bytes_max and copy the data to it"
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
    /// The cluster has as many open sessions as it takes: close some.
    #[error("{max} sessions are open, which is the limit: close some")]
    TooManySessions {
        /// How many there can be.
        max: u64,
    },
    /// The command only read, and its reply was lost, for replies to mere reads are not kept. Open
    /// sessions of the client library read again by themselves.
    #[error("the reply to this read was lost with the leader that gave it: read again")]
    Forgotten,
    /// The sender's slot map is not ours. Clients of the library ask again by the map that they are told, unless the command
    /// rests on what was scanned: that is scanned again.
    #[error("the slot map has changed, and is of epoch {} now: ask again by it", .slots.epoch)]
    WrongEpoch {
        /// The group's map.
        slots: Box<SlotMap>,
    },
    /// A slot that holds keys is not moved.
    #[error("hash slot {slot} holds keys of group {group}: only an empty slot can be moved")]
    SlotInUse {
        /// Which slot.
        slot: u16,
        /// Its owner.
        group: u16,
    },
    /// Not a command of this version.
    #[error("malformed command: {0}")]
    Malformed(String),
    /// A group's reply is not one of this version. Whether the command took effect is not known:
    /// look, with a client of the cluster's version.
    #[error("the reply of group {group} is not one of this version: {why}")]
    Unreadable {
        /// Which group.
        group: u16,
        /// What is wrong with it.
        why: String,
    },
}

/// Bytes for people: text if it is, hexadecimal otherwise, cut after 64 characters.
pub fn show(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => bytes.iter().take(32).fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    if text.chars().count() <= 64 { text } else { text.chars().take(63).chain(['…']).collect() }
}
