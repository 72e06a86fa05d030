//! The rank of a delivery: its place in a group's order.

use core::fmt;

/// The place at which a group delivers a message. Ranks rise with each delivery of a group, and all its replicas
/// deliver a message at the same rank. Code above an ordering compares ranks and does no arithmetic with them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u64);

impl Rank {
    /// Below the rank of every delivery.
    pub const NOTHING: Self = Self(0);

    /// The lowest rank of a message. Words [0 and 1](Self::to_word) mean that nothing was delivered. A group's first
    /// entry is its leader's `NewBallot`, so the ranks of an ordering that uses log indices begin at 2.
    pub const LEAST: u64 = 2;

    /// The rank with this number. The rank of a message is at least [`LEAST`](Self::LEAST).
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number that the ordering chose.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Decodes a status word. 0 is memory that was never written; 1 is an encoded [`NOTHING`](Self::NOTHING).
    pub const fn from_word(word: u64) -> Self {
        Self(if word < Self::LEAST { 0 } else { word })
    }

    /// Encodes a status word. It is never 0, so the reader can tell it from memory that was never written.
    pub const fn to_word(self) -> u64 {
        if self.0 < Self::LEAST { 1 } else { self.0 }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_by_a_word_that_no_memory_begins_with() {
        assert_eq!(Rank::NOTHING.to_word(), 1);
        for word in [0, 1] {
            assert_eq!(Rank::from_word(word), Rank::NOTHING);
        }
        for number in [Rank::LEAST, 1 << 40] {
            assert_eq!(Rank::from_word(Rank::new(number).to_word()).number(), number);
        }
    }
}
