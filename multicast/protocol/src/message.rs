//! How messages travel in the rings: their heads, and their names.
//!
//! The ring says from whom (a session's ring carries no session); the frame says which of these.

use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::ids::{GroupSet, MessageId};

/// What a session writes before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The message's number in its session.
    pub sequence: u64,
    /// Below this number the session has all its replies.
    pub low_water: u64,
    /// The groups it is multicast to.
    pub destinations: GroupSet,
}

impl Head {
    /// Appends it to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut out = Writer(bytes);
        out.words([self.sequence, self.low_water]);
        out.groups(self.destinations);
    }

    /// Splits a head from the payload behind it.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut from = Reader(bytes);
        let [sequence, low_water] = from.words()?;
        let head = Self { sequence, low_water, destinations: from.groups()? };
        (head.low_water <= head.sequence && head.sequence > 0).then_some((head, from.0))
    }
}

/// Appends a message's name, alone (to fetch it) or before something about it.
pub fn encode_name(message: MessageId, bytes: &mut Vec<u8>) {
    Writer(bytes).message(message);
}

/// Splits a message's name from what is said about it.
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
