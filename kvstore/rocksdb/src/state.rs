//! Sums over all pairs of a store, and their position: an entry of each batch.

use skein_kvstore::command::Version;
use skein_kvstore::store::sum::Sum;

use crate::tiered::Change;

/// Version of the keys and values in RocksDB.
const FORMAT: u16 = 2;
const LEN: usize = 2 + 16 + 5 * 8;

/// Name of the replica whose state it is. No other replica has it, in any cluster.
pub type Owner = [u8; 16];

/// The position of a state, and the sums over its pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Place of the last command whose writes the state contains.
    pub(crate) position: u64,
    pub(crate) keys: u64,
    /// Length of all keys and values.
    pub(crate) bytes: u64,
    pub(crate) digest: u64,
    /// Number of the last checkpoint that was made of the store; 0 for none. A checkpoint's state has its own number.
    pub(crate) kept: u64,
}

impl State {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], version: Version) {
        self.keys += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.digest = self.digest.wrapping_add(Sum::of(key).pair(value, version));
    }

    pub(crate) fn remove(&mut self, key: &[u8], value: &[u8], version: Version) {
        self.keys -= 1;
        self.bytes -= (key.len() + value.len()) as u64;
        self.digest = self.digest.wrapping_sub(Sum::of(key).pair(value, version));
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.keys = self.keys.wrapping_add_signed(change.keys);
        self.bytes = self.bytes.wrapping_add_signed(change.bytes);
        self.digest = self.digest.wrapping_add(change.digest);
    }

    pub(crate) fn encode(&self, owner: &Owner) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[2..18].copy_from_slice(owner);
        let numbers = [self.position, self.keys, self.bytes, self.digest, self.kept];
        for (place, number) in bytes[18..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The state, or why it is not one of `owner`.
    pub(crate) fn decode(bytes: &[u8], owner: &Owner) -> Result<Self, String> {
        let (format, rest) = bytes.split_first_chunk().ok_or("its state has no format")?;
        let format = u16::from_le_bytes(*format);
        if format != FORMAT {
            return Err(format!("it has format {format}, and this binary reads format {FORMAT}"));
        }
        let (of, rest) = rest.split_first_chunk().ok_or("its state has no owner")?;
        if of != owner {
            return Err("it holds the state of another replica".to_owned());
        }
        let (numbers, []) = rest.as_chunks::<8>() else {
            return Err("its state has another length".to_owned());
        };
        let [position, keys, bytes, digest, kept] = *numbers else {
            return Err("its state has another length".to_owned());
        };
        let [position, keys, bytes, digest, kept] =
            [position, keys, bytes, digest, kept].map(u64::from_le_bytes);
        Ok(Self { position, keys, bytes, digest, kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_and_nothing_else_is_one() {
        let (owner, other) = ([7; 16], [8; 16]);
        let state = State { position: 1, keys: 2, bytes: 3, digest: u64::MAX, kept: 4 };
        let bytes = state.encode(&owner);
        assert_eq!(State::decode(&bytes, &owner), Ok(state));
        assert!(State::decode(&bytes, &other).unwrap_err().contains("another replica"));
        for len in 0..bytes.len() {
            assert!(State::decode(&bytes[..len], &owner).is_err(), "{len} bytes");
        }
        assert!(State::decode(&[&bytes[..], &[0]].concat(), &owner).is_err());
        let newer = [&(FORMAT + 1).to_le_bytes()[..], &bytes[2..]].concat();
        assert!(State::decode(&newer, &owner).unwrap_err().contains("format 3"));
    }
}
