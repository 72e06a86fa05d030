//! What a backup reads from a cluster: copies of the pairs of each group, and the mark that ends all of them at one place
//! in the order.
//!
//! A client asks one replica of each group for a *copy*, part by part ([`CopyQuery`], [`CopyAnswer`]). The replica walks
//! over its keys in their order, then sends again what has changed since it was sent. Meanwhile it keeps the names of
//! changed keys, and executes commands as always.
//!
//! When little is left in every group, the client multicasts a [mark](crate::wire::Request::Mark) to all groups. It is
//! executed at its turn: all commands before it are over, and none behind it has begun. Each replica then answers with the
//! same [`Mark`], and one that makes a copy completes it there. So the completed copies of all groups, together, are the
//! state at the mark's place in the order.
//!
//! **Invariant (completeness).** A copy whose last part was completed at a mark has the keys, bytes and digest of that
//! mark. Readers of a backup compute all three anew.

use crate::command::Version;
use crate::reply::{Outcome, Reply};
use crate::store::sum::Sum;

/// Length of an encoded [`Record`] besides its key and its value.
pub const RECORD_HEAD: usize = 17;

/// A pair of a copy, or a key that was copied before and has no value any more.
///
/// ```text
///  0 kind      1: with a value, 2: without, u8
///  1 key       its length, u32
///  5 value     its length, u32; 0 without a value
///  9 version   u64; 0 without a value
/// 17           the key, then the value
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub key: &'a [u8],
    /// `None` if the key has no value any more.
    pub value: Option<&'a [u8]>,
    /// 0 without a value.
    pub version: Version,
}

const WITH_VALUE: u8 = 1;
const WITHOUT: u8 = 2;

impl<'a> Record<'a> {
    /// Appends the record to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let value = self.value.unwrap_or_default();
        bytes.push(if self.value.is_some() { WITH_VALUE } else { WITHOUT });
        bytes.extend((self.key.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(self.version.to_le_bytes());
        bytes.extend_from_slice(self.key);
        bytes.extend_from_slice(value);
    }

    /// Length of the encoded record.
    pub fn encoded_len(&self) -> usize {
        RECORD_HEAD + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }

    /// Takes a record from the front of `bytes`; `None` if there is none.
    pub fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (key_len, rest) = rest.split_first_chunk()?;
        let (value_len, rest) = rest.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        let version = u64::from_le_bytes(*version);
        let value = match *kind {
            WITH_VALUE => Some(value),
            WITHOUT if value.is_empty() && version == 0 => None,
            _ => return None,
        };
        *bytes = rest;
        Some(Self { key, value, version })
    }

    /// What the pair adds to the digest of a mark, modulo 2^64; 0 without a value.
    pub fn digest(&self) -> u64 {
        self.value.map_or(0, |value| Sum::of(self.key).pair(value, self.version))
    }
}

/// The pairs of one group at a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The mark's version: no key of the group has a higher one.
    pub position: Version,
    /// Number of keys.
    pub keys: u64,
    /// Length of all keys and values.
    pub bytes: u64,
    /// Sum of [`Record::digest`] over all pairs, modulo 2^64.
    pub digest: u64,
}

impl Mark {
    /// The bytes of the outcome by which a group answers a mark, without the position.
    pub(crate) fn totals(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.keys.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.digest.to_le_bytes());
        bytes
    }

    /// The marks in the reply to a [`Plan::mark`](crate::plan::Plan::mark), one for each group; `None` if it is no such
    /// reply.
    pub fn of(reply: &Reply) -> Option<Vec<Self>> {
        let mark = |outcome: &Outcome| {
            let Outcome::Value(Some((totals, position))) = outcome else { return None };
            let ([keys, bytes, digest], []) = totals.as_chunks() else { return None };
            let [keys, bytes, digest] = [keys, bytes, digest].map(|word| u64::from_le_bytes(*word));
            Some(Self { position: *position, keys, bytes, digest })
        };
        reply.outcomes.iter().map(mark).collect()
    }
}

/// Asks a replica for the next part of a copy.
///
/// ```text
///  0           0: no other query begins so
///  1 version   of this format, u8
///  2 session   u64
/// 10 attempt   u32
/// 14 number    u32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyQuery {
    /// The session that makes the backup. Its end ends the copy.
    pub session: u64,
    /// Rises with every copy of this group that the session begins, at whichever replica.
    pub attempt: u32,
    /// Number of the part: 0 begins the copy. The last part can be asked for again.
    pub number: u32,
}

/// Version of the format of queries and answers. Every change of the format changes it.
const VERSION: u8 = 1;

impl CopyQuery {
    /// Whether these bytes are a query for a copy, of whatever version.
    pub(crate) fn is_one(query: &[u8]) -> bool {
        query.first() == Some(&0)
    }

    /// The bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0, VERSION];
        bytes.extend(self.session.to_le_bytes());
        bytes.extend(self.attempt.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes
    }

    /// Decodes the bytes that were sent.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&[0, VERSION])?;
        let (session, rest) = rest.split_first_chunk()?;
        let (attempt, rest) = rest.split_first_chunk()?;
        let number = rest.try_into().ok()?;
        Some(Self {
            session: u64::from_le_bytes(*session),
            attempt: u32::from_le_bytes(*attempt),
            number: u32::from_le_bytes(number),
        })
    }
}

/// A replica's answer to a [`CopyQuery`].
///
/// ```text
/// 0 version    of this format, u8
/// 1 kind       0 gone, 1 busy, 2 a part of the walk, 3 of changes, 4 the last before a mark, u8
/// 2 number     of the part, u32
/// 6 behind     u64
/// 14 mark      u64; 0 if there is none
/// 22           records
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAnswer<'a> {
    /// The replica makes no such copy any more, or cannot read the query.
    Gone,
    /// The replica makes a copy for another session.
    Busy,
    Part(CopyPart<'a>),
}

/// A part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPart<'a> {
    /// Rises by one from part to part.
    pub number: u32,
    pub content: Content,
    /// Number of keys that have changed since they were sent, and are to be sent again.
    pub behind: u64,
    /// Encoded [`Record`]s.
    pub records: &'a [u8],
}

/// What a part of a copy contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Keys that were not sent before, above those of the part before it, in their order.
    Walk,
    /// Keys whose values have changed since they were sent, each once.
    Changes,
    /// The same. With this part, the copy is complete as of the mark at this position.
    Complete(Version),
    /// The same. The mark at this position was executed, and too much was left to complete the copy.
    Missed(Version),
}

const GONE: u8 = 0;
const BUSY: u8 = 1;
const WALK: u8 = 2;
const CHANGES: u8 = 3;
const COMPLETE: u8 = 4;
const MISSED: u8 = 5;
/// Length of an answer besides its records.
pub(crate) const ANSWER_HEAD: usize = 22;

impl<'a> CopyAnswer<'a> {
    /// Appends the answer to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(VERSION);
        let part = match self {
            Self::Gone => return bytes.push(GONE),
            Self::Busy => return bytes.push(BUSY),
            Self::Part(part) => part,
        };
        let (kind, position) = match part.content {
            Content::Walk => (WALK, 0),
            Content::Changes => (CHANGES, 0),
            Content::Complete(position) => (COMPLETE, position),
            Content::Missed(position) => (MISSED, position),
        };
        bytes.push(kind);
        bytes.extend(part.number.to_le_bytes());
        bytes.extend(part.behind.to_le_bytes());
        bytes.extend(position.to_le_bytes());
        bytes.extend_from_slice(part.records);
    }

    /// Decodes an answer.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.strip_prefix(&[VERSION])?.split_first()?;
        match *kind {
            GONE => return Some(Self::Gone),
            BUSY => return Some(Self::Busy),
            _ => {}
        }
        let (number, rest) = rest.split_first_chunk()?;
        let (behind, rest) = rest.split_first_chunk()?;
        let (position, records) = rest.split_first_chunk()?;
        let position = u64::from_le_bytes(*position);
        let content = match *kind {
            WALK => Content::Walk,
            CHANGES => Content::Changes,
            COMPLETE => Content::Complete(position),
            MISSED => Content::Missed(position),
            _ => return None,
        };
        let (number, behind) = (u32::from_le_bytes(*number), u64::from_le_bytes(*behind));
        Some(Self::Part(CopyPart { number, content, behind, records }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_as_they_were_encoded_and_no_shorter() {
        let records = [
            Record { key: b"key", value: Some(b"value"), version: 7 },
            Record { key: b"", value: Some(b""), version: 1 },
            Record { key: b"gone", value: None, version: 0 },
        ];
        let mut bytes = Vec::new();
        for record in &records {
            record.encode(&mut bytes);
        }
        assert_eq!(bytes.len(), records.iter().map(Record::encoded_len).sum::<usize>());
        let mut rest = bytes.as_slice();
        assert_eq!([(); 3].map(|()| Record::take(&mut rest)), records.map(Some));
        assert!(rest.is_empty());
        for end in 0..records[0].encoded_len() {
            assert_eq!(Record::take(&mut &bytes[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn queries_and_answers_are_decoded_as_they_were_encoded() {
        let query = CopyQuery { session: 1 << 60, attempt: 2, number: 3 };
        assert!(CopyQuery::is_one(&query.encode()));
        assert_eq!(CopyQuery::decode(&query.encode()), Some(query));
        assert_eq!(CopyQuery::decode(&query.encode()[1..]), None);
        let part = |content| {
            let records: &[u8] = &[1, 2, 3];
            CopyAnswer::Part(CopyPart { number: 9, content, behind: 4, records })
        };
        for answer in [
            CopyAnswer::Gone,
            CopyAnswer::Busy,
            part(Content::Walk),
            part(Content::Changes),
            part(Content::Complete(77)),
            part(Content::Missed(78)),
        ] {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            assert_eq!(CopyAnswer::decode(&bytes), Some(answer));
        }
    }
}
