//! Headers of messages and message names, as they are written into rings.
//!
//! The ring identifies the sender: a frame in a session's ring does not carry the session.

use alloc::vec::Vec;

use crate::bytes::{Reader, Writer, groups_len};
use crate::ids::{GroupSet, MessageId};

/// The header that a session writes before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the message in its session, from 1.
    pub sequence: u64,
    /// The session has received all replies below this number: `low_water <= sequence`.
    pub low_water: u64,
    pub destinations: GroupSet,
}

impl Head {
    /// No encoding is longer.
    pub const BYTES_MAX: usize = 8 + 8 + groups_len(GroupSet::from_bits(u64::MAX));

    /// Appends the header to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut out = Writer(bytes);
        out.words([self.sequence, self.low_water]);
        out.groups(self.destinations);
    }

    /// Splits a header from the payload behind it. `None` if the header is invalid.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut from = Reader(bytes);
        let [sequence, low_water] = from.words()?;
        let head = Self { sequence, low_water, destinations: from.groups()? };
        (head.low_water <= head.sequence && head.sequence > 0).then_some((head, from.0))
    }
}

/// Appends a message's name: alone, in a fetch request, or before data about the message.
pub fn encode_name(message: MessageId, bytes: &mut Vec<u8>) {
    Writer(bytes).message(message);
}

/// Splits a message's name from the data behind it.
pub fn decode_name(bytes: &[u8]) -> Option<(MessageId, &[u8])> {
    let mut from = Reader(bytes);
    Some((from.message()?, from.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_cut_off_bytes_are_refused() {
        let head = Head { sequence: 9, low_water: 4, destinations: GroupSet::first(3) };
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        let len = bytes.len();
        bytes.extend_from_slice(b"payload");
        assert_eq!(Head::decode(&bytes), Some((head, &b"payload"[..])));
        assert!((0..len).all(|cut| Head::decode(&bytes[..cut]).is_none()));
    }

    #[test]
    fn heads_that_make_no_sense_are_refused() {
        let head = Head { sequence: 9, low_water: 4, destinations: GroupSet::first(2) };
        let encoded = |head: Head| {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            bytes
        };
        let refused = |bytes: &[u8]| Head::decode(bytes).is_none();
        assert!(!refused(&encoded(Head { low_water: 9, ..head })), "all before it are answered");
        assert!(refused(&encoded(Head { low_water: 10, ..head })), "a mark above the message");
        assert!(
            refused(&encoded(Head { sequence: 0, low_water: 0, ..head })),
            "numbers start at 1"
        );
        assert!(refused(&encoded(Head { destinations: GroupSet::EMPTY, ..head })), "to nobody");
    }
}
