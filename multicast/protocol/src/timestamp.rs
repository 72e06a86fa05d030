//! Timestamps: places of messages in the order.

use core::fmt;

use crate::ids::GroupId;

/// A group's proposal for a message's place in the order. The highest proposal of all destinations is final. Written
/// `17@g2`.
///
/// One 64-bit word: 54 bits of clock above 10 bits of group. Words order as timestamps do: by clock, then by group, so
/// no two messages share one. At ten million proposals a second the clock lasts fifty years.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

const GROUP_BITS: u32 = 10;
const CLOCK_MAX: u64 = u64::MAX >> GROUP_BITS;

impl Timestamp {
    /// Number of groups that a timestamp can hold.
    pub const GROUPS_MAX: u16 = 1 << GROUP_BITS;

    /// Below every timestamp that a group proposes: clocks start at 1.
    pub const ZERO: Self = Self(0);

    /// The timestamp that `group` proposes at `clock`.
    pub const fn new(clock: u64, group: GroupId) -> Self {
        assert!(clock <= CLOCK_MAX, "the clock is exhausted");
        assert!((group.0 as u64) < 1 << GROUP_BITS, "a timestamp has room for 1,024 groups");
        Self(clock << GROUP_BITS | group.0 as u64)
    }

    /// The timestamp one below. `self` must be above [`ZERO`](Self::ZERO).
    #[must_use]
    pub const fn below(self) -> Self {
        Self(self.0 - 1)
    }

    /// The timestamp one above.
    #[must_use]
    pub const fn above(self) -> Self {
        Self(self.0 + 1)
    }

    /// The marker that a group sends in place of a proposal: as far as it knows, the message is over at every group.
    pub const fn over(group: GroupId) -> Self {
        Self::new(0, group)
    }

    /// Whether this is the marker of [`over`](Self::over).
    pub const fn is_over(self) -> bool {
        self.clock() == 0
    }

    /// The clock at which it was proposed.
    pub const fn clock(self) -> u64 {
        self.0 >> GROUP_BITS
    }

    /// The group that proposed it.
    pub const fn group(self) -> GroupId {
        GroupId((self.0 & ((1 << GROUP_BITS) - 1)) as u16)
    }

    /// The word that is written to memory.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The value of a word that was read from memory.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.clock(), self.group())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_orders_as_its_timestamp_does() {
        let at = |clock, group| Timestamp::new(clock, GroupId(group));
        #[rustfmt::skip]
        let cases = [
            // lower          higher                because
            (at(1, 9),        at(2, 0),             "the clock decides"),
            (at(2, 0),        at(2, 1),             "the group breaks ties"),
            (at(1, 1023),     at(2, 0),             "no group spills into the clock"),
            (at(1, 0),        at(CLOCK_MAX, 1023),  "the clock uses all its bits"),
            (Timestamp::ZERO, at(1, 0),             "clocks start at 1"),
        ];
        for (lower, higher, because) in cases {
            assert!(lower < higher, "{because}");
            assert!(lower.to_word() < higher.to_word(), "{because}");
            assert_eq!(Timestamp::new(higher.clock(), higher.group()), higher, "{because}");
        }
    }
}
