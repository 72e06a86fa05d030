//! An incremental digest of a store: the sum of a hash of each pair.
//!
//! A sum does not depend on the order in which pairs were added. So replicas with the same pairs have the same digest,
//! even if one of them received its state by state transfer. A value is hashed in blocks, each with its number, and the
//! hashes of the blocks are added too. So a patch costs as much as the bytes that it overwrites, whatever the length of
//! the value. Since every write pays for the digest, a block costs one multiplication and no call. The digest detects
//! replicas that diverged because of a defect. It is not collision-resistant against an attacker.

use crate::command::Version;

/// Bytes that are hashed together.
const BLOCK: usize = 16;
const PLACE: u64 = 0xD6E8_FEB8_6659_FD93;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// The key's part in the hash of a pair.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    low: u64,
    high: u64,
}

impl Sum {
    /// The part of this key.
    pub fn of(key: &[u8]) -> Self {
        let (blocks, rest) = key.as_chunks::<BLOCK>();
        let chain = |hash: u64, block: u128| fold(hash ^ block as u64, (block >> 64) as u64 ^ SEED);
        let mut hash = key.len() as u64 ^ PLACE;
        for block in blocks {
            hash = chain(hash, u128::from_le_bytes(*block));
        }
        if !rest.is_empty() {
            hash = chain(hash, tail(key, rest.len()));
        }
        Self { low: hash, high: hash.rotate_left(32) ^ SEED }
    }

    /// The hash of the whole pair.
    pub fn pair(self, value: &[u8], version: Version) -> u64 {
        self.blocks(value, 0, value.len()).wrapping_add(self.head(value.len(), version))
    }

    /// The part of the hash for the value's length and version.
    pub(super) fn head(self, len: usize, version: Version) -> u64 {
        fold(self.low ^ len as u64, self.high.wrapping_add(version.rotate_left(1) | 1))
    }

    /// The part of the hash for the blocks of a value that contain a byte of `start..end`.
    #[inline]
    pub(super) fn blocks(self, value: &[u8], start: usize, end: usize) -> u64 {
        let first = start / BLOCK;
        let rest = value.get(first * BLOCK..end.next_multiple_of(BLOCK).min(value.len()));
        let (blocks, last) = rest.unwrap_or_default().as_chunks::<BLOCK>();
        let mut number = first as u64;
        let mut sum = 0u64;
        for block in blocks {
            number += 1;
            sum = sum.wrapping_add(self.block(number, u128::from_le_bytes(*block)));
        }
        if !last.is_empty() {
            sum = sum.wrapping_add(self.block(number + 1, tail(value, last.len())));
        }
        sum
    }

    #[inline]
    fn block(self, number: u64, block: u128) -> u64 {
        let place = self.low.wrapping_add(number.wrapping_mul(PLACE));
        fold(block as u64 ^ place, (block >> 64) as u64 ^ self.high)
    }
}

/// The last `len` bytes, followed by zeros. `0 < len < BLOCK`.
#[inline]
fn tail(bytes: &[u8], len: usize) -> u128 {
    if let Some(block) = bytes.last_chunk::<BLOCK>() {
        return u128::from_le_bytes(*block) >> (8 * (BLOCK - len));
    }
    let mut block = [0; BLOCK];
    block[..len].copy_from_slice(bytes);
    u128::from_le_bytes(block)
}

/// The exclusive or of both halves of the product.
#[inline]
pub(crate) fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_pair_counts() {
        let (key, value) = (b"key".to_vec(), (0..100).collect::<Vec<u8>>());
        let whole = Sum::of(&key).pair(&value, 7);
        for bit in 0..8 * value.len() {
            let mut other = value.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Sum::of(&key).pair(&other, 7), whole, "bit {bit}");
        }
        assert_ne!(Sum::of(&key).pair(&value, 8), whole);
        assert_ne!(Sum::of(b"kez").pair(&value, 7), whole);
        assert_ne!(Sum::of(&key).pair(&[&value[..], &[0]].concat(), 7), whole, "zeros count");
        let mut swapped = value.clone();
        swapped.rotate_left(BLOCK);
        assert_ne!(Sum::of(&key).pair(&swapped, 7), whole, "blocks have places");
    }

    #[test]
    fn every_bit_of_a_key_counts() {
        for len in 1..70 {
            let key: Vec<u8> = (0..len).collect();
            let whole = Sum::of(&key).pair(b"value", 7);
            for bit in 0..8 * key.len() {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(Sum::of(&other).pair(b"value", 7), whole, "{len} bytes, bit {bit}");
            }
            assert_ne!(Sum::of(&[&key[..], &[0]].concat()).pair(b"value", 7), whole, "zeros count");
        }
    }

    /// The last block of a short value stands alone, that of a long one follows others.
    #[test]
    fn every_bit_of_the_last_block_counts() {
        for len in 1..40 {
            let value: Vec<u8> = (1..=len).collect();
            let whole = Sum::of(b"key").pair(&value, 7);
            for bit in 0..8 * value.len() {
                let mut other = value.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(Sum::of(b"key").pair(&other, 7), whole, "{len} bytes, bit {bit}");
            }
        }
    }

    #[test]
    fn parts_are_the_whole() {
        let (sum, value) = (Sum::of(b"k"), (0..77).collect::<Vec<u8>>());
        for cut in (0..=80).step_by(BLOCK) {
            let parts = sum.blocks(&value, 0, cut).wrapping_add(sum.blocks(&value, cut, 77));
            assert_eq!(parts, sum.blocks(&value, 0, 77), "cut at {cut}");
        }
    }
}
