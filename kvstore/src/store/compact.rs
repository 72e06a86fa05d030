//! Bytes that need no memory of their own while they are few.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// Up to [`Compact::INLINE`] bytes in place, more on the heap; four words either way.
///
/// A tree of these is walked without leaving its nodes, which is most of what a look-up costs.
#[derive(Clone, Debug)]
pub(crate) struct Compact(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline { len: u8, bytes: [u8; Compact::INLINE] },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<Compact>() == 32);

impl Compact {
    /// The most bytes that are kept in place: a YCSB key of 23, a name with a short prefix.
    pub(crate) const INLINE: usize = 30;

    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Compact {
    fn from(from: &[u8]) -> Self {
        if from.len() > Self::INLINE {
            return Self(Repr::Heap(from.into()));
        }
        let mut bytes = [0; Self::INLINE];
        bytes[..from.len()].copy_from_slice(from);
        Self(Repr::Inline { len: from.len() as u8, bytes })
    }
}

impl Borrow<[u8]> for Compact {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

// As slices compare, or a map could not be searched by a slice.
impl Ord for Compact {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        let all: Vec<u8> = (0..100).collect();
        for len in 0..all.len() {
            assert_eq!(Compact::from(&all[..len]).as_slice(), &all[..len]);
        }
    }
}
