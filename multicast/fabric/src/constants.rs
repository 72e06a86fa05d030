//! Values that must be equal at all processes of a cluster, compared when two processes connect.

use std::fmt::Display;

/// A longer value is sent as its hash. In bytes.
const VALUE_MAX: usize = 64;
/// More entries than any process sends.
const ENTRIES_MAX: usize = 256;

/// Named values on which the outcome of a command, or the layout of shared memory, depends.
///
/// Two processes exchange theirs in their hellos. If one value differs, they refuse each other, and name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constants(Vec<(String, String)>);

impl Constants {
    /// Adds an entry. Its name is that of the configuration entry, where there is one.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        let mut value = value.to_string();
        if value.len() > VALUE_MAX {
            value = format!("a value with the hash {:016x}", hash(value.as_bytes()));
        }
        self.0.push((name.to_owned(), value));
        self
    }

    /// Adds the entries of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The entries: name and value of each.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// The first entry that differs: its name, the other side's value and ours.
    pub fn difference(&self, theirs: &Self) -> Option<Difference> {
        let value = |of: &Self, name: &str| {
            let found = of.0.iter().find(|(entry, _)| entry == name);
            found.map_or_else(|| "not known".to_owned(), |(_, value)| value.clone())
        };
        let differs = |(name, _): &&(String, String)| value(self, name) != value(theirs, name);
        let (name, _) = self.0.iter().chain(&theirs.0).find(differs)?;
        let (theirs, ours) = (value(theirs, name), value(self, name));
        Some(Difference { name: name.clone(), theirs, ours })
    }

    /// Encodes a count, then for each name and value a length and the text.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.0.len() as u16).to_le_bytes().to_vec();
        for text in self.0.iter().flat_map(|(name, value)| [name, value]) {
            bytes.push(text.len() as u8);
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    /// Decodes constants, and returns the bytes behind them.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (count, mut rest) = bytes.split_first_chunk::<2>()?;
        let count = usize::from(u16::from_le_bytes(*count));
        let mut text = || {
            let (len, more) = rest.split_first()?;
            let (text, more) = more.split_at_checked(usize::from(*len))?;
            rest = more;
            let text = str::from_utf8(text).ok()?;
            (!text.contains(char::is_control)).then(|| text.to_owned())
        };
        if count > ENTRIES_MAX {
            return None;
        }
        let entries = (0..count).map(|_| Some((text()?, text()?))).collect::<Option<_>>()?;
        Some((Self(entries), rest))
    }
}

/// An entry that differs between two processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {theirs} there and {ours} here")]
pub struct Difference {
    pub name: String,
    pub theirs: String,
    pub ours: String,
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_differs_is_named() {
        let some =
            || Constants::default().with("limits.key_bytes_max", 4).with("tuning.window", 64);
        assert_eq!(some().difference(&some()), None);
        let long = "x".repeat(1000);
        #[rustfmt::skip]
        let cases = [
            (Constants::default().with("limits.key_bytes_max", 4).with("tuning.window", 9), "tuning.window is 9 there and 64 here"),
            (Constants::default().with("limits.key_bytes_max", 4),                          "tuning.window is not known there and 64 here"),
            (some().with("behaviour", 2),                                                   "behaviour is 2 there and not known here"),
        ];
        for (theirs, expected) in cases {
            let difference = some().difference(&theirs).expect("they differ");
            assert_eq!(difference.to_string(), expected);
        }
        let one = |value: &str| Constants::default().with("network.addresses", value);
        assert!(one(&long).difference(&one(&(long.clone() + "y"))).is_some());
    }

    #[test]
    fn they_come_back_and_nonsense_does_not() {
        let constants = Constants::default().with("a", 1).with("b", "z".repeat(100));
        let mut bytes = constants.encode();
        bytes.extend(b"rest");
        assert_eq!(Constants::decode(&bytes), Some((constants, &b"rest"[..])));
        for len in 0..bytes.len() - 4 {
            assert_eq!(Constants::decode(&bytes[..len]), None);
        }
        assert_eq!(Constants::decode(&[0xff, 0xff, 0]), None);
        assert_eq!(Constants::decode(&[1, 0, 1, b'\n', 0]), None);
    }
}
