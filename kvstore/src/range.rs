//! Digests of key ranges, for guards that a range is unchanged.
//!
//! A client that has scanned a range has its pairs and, by the slot map, the group that owns each of them. A group
//! compares a digest of the pairs that it holds in the range now with a digest of the pairs that were scanned. Keys and
//! values are compared, not versions: a range with the same pairs as before counts as unchanged.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use skein_protocol::ids::GroupId;
use xxhash_rust::xxh3::Xxh3;

/// Digest of the pairs of a key range in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeDigest {
    pub group: u16,
    /// Number of pairs.
    pub pairs: u32,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// 128-bit hash of the pairs in key order.
    pub digest: u128,
}

/// A digest under construction.
struct Summing {
    pairs: u32,
    bytes: u64,
    hash: Xxh3,
}

impl Summing {
    fn new() -> Self {
        Self { pairs: 0, bytes: 0, hash: Xxh3::new() }
    }

    fn count(&mut self, key: &[u8], value: &[u8]) {
        self.pairs = self.pairs.saturating_add(1);
        self.bytes += (key.len() + value.len()) as u64;
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        for bytes in [key, value] {
            self.hash.update(&(bytes.len() as u64).to_le_bytes());
            self.hash.update(bytes);
        }
    }

    fn digest(&self, group: GroupId) -> RangeDigest {
        let (pairs, bytes) = (self.pairs, self.bytes);
        RangeDigest { group: group.0, pairs, bytes, digest: self.hash.digest128() }
    }
}

impl RangeDigest {
    /// The digest of a group's pairs, which must be in key order.
    pub fn of<'a>(group: GroupId, pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut sum = Summing::new();
        for (key, value) in pairs {
            sum.count(key, value);
            sum.add(key, value);
        }
        sum.digest(group)
    }

    /// Whether this is the digest of `pairs`, which must be in key order. Hashes no more bytes than the digest counts,
    /// and looks at no more than one further pair.
    pub(crate) fn is_of<B: Deref<Target = [u8]>, E>(
        &self,
        pairs: impl Iterator<Item = Result<(B, B), E>>,
    ) -> Result<bool, E> {
        let mut sum = Summing::new();
        for pair in pairs {
            let (key, value) = pair?;
            sum.count(&key, &value);
            if sum.pairs > self.pairs || sum.bytes > self.bytes {
                return Ok(false);
            }
            sum.add(&key, &value);
        }
        Ok(sum.digest(GroupId(self.group)) == *self)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_range_is_the_same_if_it_holds_the_same_pairs() {
        type Pairs = &'static [(&'static str, &'static str)];
        let of = |pairs: Pairs| pairs.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        let then: Pairs = &[("a", "1"), ("b", "22")];
        let digest = RangeDigest::of(GroupId(1), of(then));
        #[rustfmt::skip]
        let cases: [(Pairs, bool, &str); 7] = [
            (&[("a", "1"), ("b", "22")],             true,  "nothing happened"),
            (&[("a", "1"), ("b", "23")],             false, "another value"),
            (&[("a", "1"), ("c", "22")],             false, "another key"),
            (&[("a", "1")],                          false, "one is gone"),
            (&[("a", "1"), ("b", "22"), ("c", "")],  false, "one came"),
            (&[("a", "12"), ("b", "2")],             false, "as many bytes, elsewhere"),
            (&[("a1", ""), ("b", "22")],             false, "the key took a byte of the value"),
        ];
        let is_of = |digest: RangeDigest, pairs| digest.is_of(of(pairs).map(Ok::<_, Infallible>));
        for (now, same, because) in cases {
            assert_eq!(is_of(digest, now), Ok(same), "{because}");
        }
        let nothing = RangeDigest::of(GroupId(1), []);
        assert_eq!((is_of(nothing, &[]), is_of(nothing, then)), (Ok(true), Ok(false)));
    }

    #[test]
    fn no_more_is_looked_at_than_there_was() {
        let value = [7; 100];
        let pair = || (&b"key"[..], &value[..]);
        let digest = RangeDigest::of(GroupId(0), [pair(), pair()]);
        let mut seen = 0;
        let pairs = (0..1_000_000).map(|_| Ok::<_, Infallible>(pair()));
        assert_eq!(digest.is_of(pairs.inspect(|_| seen += 1)), Ok(false));
        assert_eq!(seen, 3);
    }
}
