//! Little-endian fields, one after the other: how records are written and read.

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

    /// A count, then the groups rising.
    pub(crate) fn groups(&mut self, groups: GroupSet) {
        if let Some(only) = groups.iter().next().filter(|_| !groups.has_several()) {
            return self.u32(1 | u32::from(only.0) << 16);
        }
        let mut list = [[0; 2]; 1 + GroupSet::CAPACITY as usize];
        let numbers = [groups.len() as u16].into_iter().chain(groups.iter().map(|group| group.0));
        list.iter_mut().zip(numbers).for_each(|(at, number)| *at = number.to_le_bytes());
        self.0.extend_from_slice(list[..=groups.len()].as_flattened());
    }
}

/// Takes fields off the front of a slice; `None` where it is too short or makes no sense.
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

    /// Refuses an empty list, one that does not rise, and groups that no cluster has.
    pub(crate) fn groups(&mut self) -> Option<GroupSet> {
        let count = self.u16()?;
        let list = self.take(2 * usize::from(count))?;
        let numbers = list.as_chunks().0.iter().map(|number| u16::from_le_bytes(*number));
        GroupSet::from_rising(numbers).filter(|set| !set.is_empty())
    }
}
