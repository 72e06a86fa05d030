//! Checksum of data in memory that other processes read: 64-bit xxh3.
//!
//! Most entries have a length for which the library, which supports every secret and every seed, takes twice as long as
//! necessary. This module computes the checksum for these lengths itself, with the default secret and seed.

use xxhash_rust::xxh3::xxh3_64;

/// Lengths, in bytes, for which this module computes the checksum itself.
const SHORTEST: usize = 129;
const LONGEST: usize = 240;

/// The default secret of xxh3, as far as these lengths use it.
const SECRET: [u8; 136] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3,
];

/// Parts of the secret for the first eight blocks of 16 bytes, for the blocks that follow, and for the last 16 bytes.
const FIRST: [[u64; 2]; 8] = secrets(0);
const NEXT: [[u64; 2]; 7] = secrets(3);
const LAST: [[u64; 2]; 1] = secrets(119);

const fn secrets<const N: usize>(from: usize) -> [[u64; 2]; N] {
    let (mut secrets, mut i) = ([[0; 2]; N], 0);
    while i < 2 * N {
        let (mut word, mut byte) = (0, 8);
        while byte > 0 {
            byte -= 1;
            word = word << 8 | SECRET[from + 8 * i + byte] as u64;
        }
        secrets[i / 2][i % 2] = word;
        i += 1;
    }
    secrets
}

/// The checksum of `bytes`.
pub fn check(bytes: &[u8]) -> u64 {
    if !(SHORTEST..=LONGEST).contains(&bytes.len()) {
        return xxh3_64(bytes);
    }
    let (Some((first, _)), Some(last)) = (bytes.split_first_chunk::<128>(), bytes.last_chunk())
    else {
        unreachable!("the length is at least 129");
    };
    let sum =
        |sum: u64, (block, secret): (&[u8; 16], &[u64; 2])| sum.wrapping_add(mix(block, secret));
    let begun = (bytes.len() as u64).wrapping_mul(0x9e37_79b1_85eb_ca87);
    let first = first.as_chunks().0.iter().zip(&FIRST).fold(begun, sum);
    let next = bytes[128..].as_chunks().0.iter().zip(&NEXT).fold(avalanche(first), sum);
    avalanche(sum(next, (last, &LAST[0])))
}

fn mix(block: &[u8; 16], secret: &[u64; 2]) -> u64 {
    let both = u128::from_le_bytes(*block);
    let product = u128::from(both as u64 ^ secret[0]) * u128::from((both >> 64) as u64 ^ secret[1]);
    product as u64 ^ (product >> 64) as u64
}

const fn avalanche(mut sum: u64) -> u64 {
    sum ^= sum >> 37;
    sum = sum.wrapping_mul(0x1656_6791_9e37_79f9);
    sum ^ sum >> 32
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn it_is_what_the_library_says_of_every_length() {
        let bytes: Vec<u8> = (0..600_u32).map(|i| (i.wrapping_mul(i) >> 3 ^ i) as u8).collect();
        for from in [0, 1, 8] {
            for len in 0..500 {
                let part = &bytes[from..from + len];
                assert_eq!(check(part), xxh3_64(part), "{len} bytes from {from}");
            }
        }
    }
}
