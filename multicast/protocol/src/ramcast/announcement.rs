//! Announcements between leaders of different groups: their groups' proposals.

use alloc::vec::Vec;

use super::log::Remote;
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupSet, MessageId, SessionId};
use crate::timestamp::Timestamp;

/// A leader's announcement to another destination group's leader: what its group proposes for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub message: MessageId,
    /// Low-water mark of the message's session.
    pub low_water: u64,
    pub destinations: GroupSet,
    /// Its group is the announcing one.
    pub timestamp: Timestamp,
    /// Ballot of the announcing leader.
    pub ballot: Ballot,
    /// Index of the proposal in the announcing group's log, or of the first entry of `ballot` if that is higher.
    pub index: u64,
    /// `Some` if the announcing group lacks something for this message: its payload, our proposal or our result. The
    /// receiver sends again what it has. The message ends no lower than this in the announcing group.
    pub again: Option<Timestamp>,
}

impl Announcement {
    /// Least encoded length.
    pub const BYTES_MIN: usize = 16 + 4 * 8 + 1 + 1 + 1;

    /// Appends the encoded announcement to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let MessageId { session, sequence } = self.message;
        let (timestamp, ballot) = (self.timestamp.to_word(), self.ballot.to_word());
        let mut out = Writer(bytes);
        out.words([session.0, sequence, self.low_water, timestamp, ballot, self.index]);
        out.u8(u8::from(self.again.is_some()));
        if let Some(bound) = self.again {
            out.u64(bound.to_word());
        }
        out.groups(self.destinations);
    }

    /// Decodes the first announcement and returns the bytes behind it.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut from = Reader(bytes);
        let [session, sequence, low_water, timestamp, ballot, index] = from.words()?;
        let announcement = Self {
            message: MessageId::new(SessionId(session), sequence),
            low_water,
            timestamp: Timestamp::from_word(timestamp),
            ballot: Ballot::from_word(ballot),
            index,
            again: match from.u8()? {
                0 => None,
                _ => Some(Timestamp::from_word(from.u64()?)),
            },
            destinations: from.groups()?,
        };
        let sane = announcement.destinations.contains(announcement.timestamp.group());
        sane.then_some((announcement, from.0))
    }
}

/// Head of a combined announcement: a message for which several leaders of one engine announce their proposals together
/// to another engine. The [`Proposals`] follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposed {
    pub message: MessageId,
    /// Low-water mark of the message's session.
    pub low_water: u64,
    pub destinations: GroupSet,
}

/// The proposals that follow a [`Proposed`].
#[derive(Clone, Copy, Debug)]
pub struct Proposals<'a> {
    message: MessageId,
    bytes: &'a [u8],
}

impl Proposed {
    /// Encoded length of one proposal.
    pub const PROPOSAL_BYTES: usize = 24;

    /// Appends the head of a combined announcement to `bytes`; `count` proposals follow.
    pub fn encode(&self, count: u8, bytes: &mut Vec<u8>) {
        let MessageId { session, sequence } = self.message;
        let mut out = Writer(bytes);
        out.words([session.0, sequence, self.low_water]);
        out.groups(self.destinations);
        out.u8(count);
    }

    /// Appends one proposal to `bytes`.
    pub fn encode_proposal(proposal: &Remote, bytes: &mut Vec<u8>) {
        let (timestamp, ballot) = (proposal.timestamp.to_word(), proposal.ballot.to_word());
        Writer(bytes).words([timestamp, ballot, proposal.index]);
    }

    /// Decodes a head and its proposals, and returns the bytes behind them.
    pub fn decode(bytes: &[u8]) -> Option<(Self, Proposals<'_>, &[u8])> {
        let mut from = Reader(bytes);
        let [session, sequence, low_water] = from.words()?;
        let message = MessageId::new(SessionId(session), sequence);
        let proposed = Self { message, low_water, destinations: from.groups()? };
        let count = usize::from(from.u8()?);
        let bytes = from.take(count * Self::PROPOSAL_BYTES)?;
        Some((proposed, Proposals { message, bytes }, from.0))
    }
}

impl Proposals<'_> {
    /// Number of proposals.
    #[expect(clippy::len_without_is_empty, reason = "they stand behind a message")]
    pub const fn len(&self) -> usize {
        self.bytes.len() / Proposed::PROPOSAL_BYTES
    }

    /// The proposals, in the order in which they were encoded.
    pub fn iter(&self) -> impl Iterator<Item = Remote> + Clone + '_ {
        let message = self.message;
        let (proposals, _) = self.bytes.as_chunks::<{ Proposed::PROPOSAL_BYTES }>();
        proposals.iter().map(move |bytes| {
            let [timestamp, ballot, index] = Reader(bytes).words().expect("it is long enough");
            let (timestamp, ballot) = (Timestamp::from_word(timestamp), Ballot::from_word(ballot));
            Remote { message, timestamp, ballot, index }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, SessionId};

    #[test]
    fn what_is_announced_is_read_and_cut_off_bytes_are_refused() {
        let announcement = Announcement {
            message: MessageId::new(SessionId(3), 9),
            low_water: 4,
            destinations: GroupSet::first(3),
            timestamp: Timestamp::new(17, GroupId(2)),
            ballot: Ballot::new(1, 0, 0),
            index: 12,
            again: Some(Timestamp::new(1 << 40, GroupId(1))),
        };
        let mut bytes = Vec::new();
        announcement.encode(&mut bytes);
        let len = bytes.len();
        Announcement { index: 13, ..announcement }.encode(&mut bytes);
        assert_eq!(Announcement::decode(&bytes), Some((announcement, &bytes[len..])));
        assert!((0..len).all(|cut| Announcement::decode(&bytes[..cut]).is_none()));
    }

    #[test]
    fn a_group_announces_only_what_goes_to_it() {
        let of = |group| Announcement {
            message: MessageId::new(SessionId(3), 9),
            low_water: 4,
            destinations: GroupSet::first(2),
            timestamp: Timestamp::new(17, GroupId(group)),
            ballot: Ballot::new(1, 0, 0),
            index: 12,
            again: None,
        };
        for (group, decodes) in [(1, true), (2, false)] {
            let mut bytes = Vec::new();
            of(group).encode(&mut bytes);
            assert_eq!(Announcement::decode(&bytes).is_some(), decodes, "g{group}");
        }
    }

    #[test]
    fn what_is_proposed_is_read_and_cut_off_bytes_are_refused() {
        let message = MessageId::new(SessionId(3), 9);
        let head = Proposed { message, low_water: 4, destinations: GroupSet::first(3) };
        let remote = |group| {
            let timestamp = Timestamp::new(17, GroupId(group));
            Remote { message, timestamp, ballot: Ballot::new(1, 0, 0), index: 12 }
        };
        let mut bytes = Vec::new();
        head.encode(2, &mut bytes);
        [0, 2].map(remote).iter().for_each(|it| Proposed::encode_proposal(it, &mut bytes));
        let len = bytes.len();
        bytes.push(7);
        let (read, proposals, rest) = Proposed::decode(&bytes).expect("what was written");
        assert_eq!((read, proposals.len(), rest), (head, 2, &[7][..]));
        assert!(proposals.iter().eq([0, 2].map(remote)));
        assert!((0..len).all(|cut| Proposed::decode(&bytes[..cut]).is_none()));
    }
}
