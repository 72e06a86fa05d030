//! Byte strings that need no allocation while they are short.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A byte string: up to [`Compact::INLINE`] bytes in place, longer ones on the heap; four words either way.
///
/// Short keys are compared without following a pointer, which would be most of the cost of a lookup in a tree of them.
#[derive(Clone, Debug)]
pub(crate) struct Compact(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline { len: u8, bytes: [u8; Compact::INLINE] },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<Compact>() == 32);

impl Compact {
    /// Maximum number of bytes in place: enough for a YCSB key of 23 bytes, or a name with a short prefix.
    pub(crate) const INLINE: usize = 30;

    /// The bytes in place, or `None` if they are too many. Two strings in place compare fastest.
    pub(crate) fn in_place(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::INLINE];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self(Repr::Inline { len: from.len() as u8, bytes }))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Compact {
    fn from(from: &[u8]) -> Self {
        Self::in_place(from).unwrap_or_else(|| Self(Repr::Heap(from.into())))
    }
}

impl Borrow<[u8]> for Compact {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

// The order of slices, so that a map of these can be searched by a slice.
impl Ord for Compact {
    fn cmp(&self, other: &Self) -> Ordering {
        let (Repr::Inline { len, bytes }, Repr::Inline { len: other_len, bytes: others }) =
            (&self.0, &other.0)
        else {
            return self.as_slice().cmp(other.as_slice());
        };
        // Zeros follow the shorter string, and no byte is less than zero. The last word overlaps the one before.
        for at in [0, 8, 16, Self::INLINE - 8] {
            let order = word(bytes, at).cmp(&word(others, at));
            if order.is_ne() {
                return order;
            }
        }
        len.cmp(other_len)
    }
}

/// Eight bytes as a number that compares as the bytes do.
fn word(bytes: &[u8; Compact::INLINE], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl PartialOrd for Compact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Compact {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Compact {}

// The hash of a slice, so that a set of these can be searched by a slice.
impl Hash for Compact {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_compare_as_their_bytes_do() {
        let mut all =
            vec![vec![], vec![0], vec![0, 0], b"a".to_vec(), b"a\0".to_vec(), b"a\0b".to_vec()];
        // Strings with a common prefix that ends at each word boundary, shorter and longer than the bytes in place.
        for len in [1, 7, 8, 9, 16, 22, 24, 29, 30, 31, 40] {
            for last in [0, 1, b'k', 0xff] {
                let mut bytes = vec![b'k'; len];
                bytes[len - 1] = last;
                all.push(bytes);
            }
        }
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
            let order = Compact::from(&one[..]).cmp(&Compact::from(&other[..]));
            assert_eq!(order, one.cmp(other), "{one:?} {other:?}");
        }
    }

    #[test]
    fn every_length_comes_back() {
        let all: Vec<u8> = (0..100).collect();
        for len in 0..all.len() {
            assert_eq!(Compact::from(&all[..len]).as_slice(), &all[..len]);
        }
    }
}
