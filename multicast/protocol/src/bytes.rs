//! Encoding and decoding of records: consecutive little-endian fields.

use alloc::vec::Vec;

use crate::ids::{GroupSet, MessageId, SessionId};

/// Appends fields to a buffer.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn words<const N: usize>(&mut self, words: [u64; N]) {
        self.0.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
    }

    pub(crate) fn message(&mut self, message: MessageId) {
        self.words([message.session.0, message.sequence]);
    }

    /// Appends a byte count and then a bitmap with one bit for each group. The bitmap ends with the byte of the highest
    /// group in the set.
    pub(crate) fn groups(&mut self, groups: GroupSet) {
        let end = self.0.len() + groups_len(groups);
        self.u8((groups_len(groups) - 1) as u8);
        self.u64(groups.to_bits());
        self.0.truncate(end);
    }
}

/// Length in bytes of a set that [`Writer::groups`] writes.
pub(crate) const fn groups_len(groups: GroupSet) -> usize {
    1 + (u64::BITS - groups.to_bits().leading_zeros()).div_ceil(u8::BITS) as usize
}

/// Takes fields from the front of a slice. The methods return `None` if the slice is too short or the field is invalid.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("just cut to length"))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let bytes = self.take(8 * N)?;
        let words: &[[u8; 8]; N] = bytes.as_chunks().0.try_into().expect("just cut to length");
        Some(words.map(u64::from_le_bytes))
    }

    pub(crate) fn message(&mut self) -> Option<MessageId> {
        self.words().map(|[session, sequence]| MessageId::new(SessionId(session), sequence))
    }

    /// Refuses an empty set, a set with trailing zero bytes, and groups above [`GroupSet::CAPACITY`].
    pub(crate) fn groups(&mut self) -> Option<GroupSet> {
        let len = usize::from(self.u8()?);
        let (last, others) = self.take(len)?.split_last()?;
        if *last == 0 || others.len() >= size_of::<u64>() {
            return None;
        }
        let bits =
            others.iter().rev().fold(u64::from(*last), |bits, byte| bits << 8 | u64::from(*byte));
        Some(GroupSet::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;

    #[test]
    fn a_set_of_groups_is_read_as_it_was_written_and_in_no_other_way() {
        let group = |number| GroupSet::single(GroupId(number));
        #[rustfmt::skip]
        let sets = [
            (group(0),                   &[1, 1][..],                "a bit for the first group"),
            (GroupSet::first(8),         &[1, 0xff],                 "eight groups to a byte"),
            (group(8),                   &[2, 0, 1],                 "of nobody in the first one"),
            (group(63).with(GroupId(1)), &[8, 2, 0, 0, 0, 0, 0, 0, 0x80], "the last there may be"),
        ];
        for (set, bytes, because) in sets {
            let mut written = Vec::new();
            Writer(&mut written).groups(set);
            assert_eq!((&written[..], written.len()), (bytes, groups_len(set)), "{because}");
            assert_eq!(Reader(bytes).groups(), Some(set), "{because}");
            assert_eq!(Reader(&bytes[..bytes.len() - 1]).groups(), None, "{because}, cut off");
        }
        #[rustfmt::skip]
        let refused = [
            (&[0][..],                         "nobody is meant"),
            (&[2, 1, 0],                       "it would be another way to write {g0}"),
            (&[9, 0, 0, 0, 0, 0, 0, 0, 0, 1],  "no cluster has so many groups"),
        ];
        for (bytes, because) in refused {
            assert_eq!(Reader(bytes).groups(), None, "{because}");
        }
    }
}
