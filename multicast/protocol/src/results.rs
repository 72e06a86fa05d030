//! Results that a group's state machine sends to other groups, one after another: all that one turn produces. The same
//! bytes go from leader to leader and into the log of the receiving group.

use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::ids::MessageId;

/// Results of one group, each with the message to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Results<'a>(pub &'a [u8]);

impl<'a> Results<'a> {
    /// Length in bytes of a result of `len` bytes with its header.
    pub const fn len_of(len: usize) -> usize {
        16 + 2 + len
    }

    /// Appends a result.
    ///
    /// # Panics
    /// If the result has 64 KiB or more.
    pub fn push(message: MessageId, result: &[u8], bytes: &mut Vec<u8>) {
        let len = u16::try_from(result.len()).expect("results are short");
        let mut out = Writer(bytes);
        out.message(message);
        out.u16(len);
        out.0.extend_from_slice(result);
    }

    /// The results in the order in which they were appended, up to the first one that is cut off.
    pub fn iter(self) -> impl Iterator<Item = (MessageId, &'a [u8])> + use<'a> {
        let mut from = Reader(self.0);
        core::iter::from_fn(move || {
            let (message, len) = (from.message()?, from.u16()?);
            Some((message, from.take(usize::from(len))?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    #[test]
    fn what_is_told_is_read_up_to_where_it_is_cut_off() {
        let message = |number| MessageId::new(SessionId(7), number);
        let told = [(message(1), &b"yes"[..]), (message(2), b""), (message(3), &[9; 300])];
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for (message, result) in told {
            Results::push(message, result, &mut bytes);
            ends.push(bytes.len());
        }
        assert_eq!(bytes.len(), [3, 0, 300].map(Results::len_of).iter().sum());
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert!(Results(&bytes[..cut]).iter().eq(told[..whole].iter().copied()));
        }
    }
}
