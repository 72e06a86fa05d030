//! A leader's number in its group, and what an acceptance word keeps of it.

use core::fmt;

/// A leader's number in its group (RamCast: *round*). Only the holder of the highest granted ballot
/// may write the group's log. Written `4.r1i0`.
///
/// One word, ordered by counter, then replica slot, then incarnation: no two candidates can share
/// one, not even two incarnations of one replica. The counter's first bits are the group's
/// *generation*: how often it lost more than it tolerates and was recreated. Written `1:4.r1i0` then.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(u64);

const SLOT_BITS: u32 = 8;
const INCARNATION_BITS: u32 = 24;
/// Of the counter, those below the generation.
const ATTEMPT_BITS: u32 = 24;

impl Ballot {
    /// Below every ballot of a leader.
    pub const ZERO: Self = Self(0);

    /// Round `counter` of the replica in `slot`, in its life number `incarnation` (24 bits).
    pub const fn new(counter: u32, slot: u8, incarnation: u32) -> Self {
        assert!(incarnation < 1 << INCARNATION_BITS, "incarnations are exhausted");
        Self(
            (counter as u64) << (SLOT_BITS + INCARNATION_BITS)
                | (slot as u64) << INCARNATION_BITS
                | incarnation as u64,
        )
    }

    /// Which attempt at leading the group.
    pub const fn counter(self) -> u32 {
        (self.0 >> (SLOT_BITS + INCARNATION_BITS)) as u32
    }

    /// How often the group was recreated before: what it had proposed until then, it has forgotten.
    pub const fn generation(self) -> u32 {
        self.counter() >> ATTEMPT_BITS
    }

    /// The counter above which a group goes on that had reached this one and is recreated. Attempts go
    /// on being counted, so that no tag comes again soon.
    pub const fn recreated(counter: u32) -> u32 {
        counter + (1 << ATTEMPT_BITS)
    }

    /// The replica slot of the leader.
    pub const fn slot(self) -> u8 {
        (self.0 >> INCARNATION_BITS) as u8
    }

    /// The life of the leader.
    pub const fn incarnation(self) -> u32 {
        (self.0 & ((1 << INCARNATION_BITS) - 1)) as u32
    }

    /// As written to memory.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// As read from memory.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// What an acceptance word keeps of it: 2 bits of generation, 10 of counter, 4 of slot. Full ballots
    /// stand in grants and headers, and a replica rewrites its words everywhere before it
    /// acknowledges in a new ballot, so a tag only has to tell neighbours apart. A group that has
    /// forgotten its counters begins them again, and its indices too: only the generation tells what
    /// it writes from what others still have of its former self.
    pub const fn tag(self) -> u16 {
        let (generation, counter) = (self.generation() & 0x3, self.counter() & 0x3ff);
        (generation << 14 | counter << 4) as u16 | (self.slot() & 0xf) as u16
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.generation() > 0 {
            write!(f, "{}:", self.generation())?;
        }
        let attempt = self.counter() & ((1 << ATTEMPT_BITS) - 1);
        write!(f, "{attempt}.r{}i{}", self.slot(), self.incarnation())
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A follower's promise that it holds its group's log up to an index, in one word that cannot tear:
/// 16 bits of ballot tag above 48 of index. Zero is "nothing yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acceptance {
    /// [`Ballot::tag`] of the ballot in which it was accepted.
    pub tag: u16,
    /// The highest log index up to which nothing is missing.
    pub index: u64,
}

const INDEX_BITS: u32 = 48;

impl Acceptance {
    /// As written to memory.
    pub const fn to_word(self) -> u64 {
        assert!(self.index >> INDEX_BITS == 0, "log indices are exhausted");
        (self.tag as u64) << INDEX_BITS | self.index
    }

    /// As read from memory.
    pub const fn from_word(word: u64) -> Self {
        Self { tag: (word >> INDEX_BITS) as u16, index: word & ((1 << INDEX_BITS) - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_order_by_counter_then_slot_then_incarnation() {
        let sorted = [
            Ballot::ZERO,
            Ballot::new(1, 0, 0),
            Ballot::new(1, 0, 9),
            Ballot::new(1, 2, 0),
            Ballot::new(2, 0, 0),
        ];
        assert!(sorted.is_sorted_by(|a, b| a < b));
        assert_ne!(sorted[1].tag(), sorted[3].tag());
        assert_ne!(sorted[1].tag(), sorted[4].tag());
    }

    #[test]
    fn a_recreated_group_goes_on_above_all_it_had_reached() {
        let old = Ballot::new(7, 2, 0);
        let new = Ballot::new(Ballot::recreated(old.counter()) + 1, 0, 0);
        assert!(new > old && new.generation() == 1 && old.generation() == 0);
        assert_ne!(new.tag(), Ballot::new(7, 0, 0).tag(), "words of old say nothing of it");
        // All of its members have lost their memory, and nobody knows what it had reached.
        let forgotten = Ballot::new(Ballot::recreated(0) + 7, 2, 0);
        assert!(forgotten > old && forgotten.tag() != old.tag());
        assert_eq!(std::format!("{old} {new}"), "7.r2i0 1:8.r0i0");
    }

    #[test]
    fn an_acceptance_word_keeps_tag_and_index() {
        let word = Acceptance { tag: 0xfff1, index: (1 << 48) - 1 };
        assert_eq!(Acceptance::from_word(word.to_word()), word);
        assert_eq!(Acceptance::from_word(0), Acceptance::default());
    }
}
