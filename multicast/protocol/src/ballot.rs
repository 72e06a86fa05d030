//! Ballots, and the part of a ballot that an acceptance word contains.

use core::fmt;

/// A leader's number in its group (RamCast: *round*). Only the holder of the highest granted ballot may write the
/// group's log. Written `4.r1i0`.
///
/// One word, ordered by counter, then replica slot, then the incarnation in which the candidate's process began: no two
/// candidates can share one, not even two processes of one replica. The counter's high bits are the group's *generation*: how often it lost more than it
/// tolerates and was recreated. Written `1:4.r1i0` if that is above 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(u64);

const SLOT_BITS: u32 = 8;
const INCARNATION_BITS: u32 = 24;
/// Number of counter bits below the generation.
const ATTEMPT_BITS: u32 = 24;
const ATTEMPT_MAX: u32 = (1 << ATTEMPT_BITS) - 1;

impl Ballot {
    /// Below every ballot of a leader.
    pub const ZERO: Self = Self(0);

    /// The ballot with this counter, of the replica in `slot` whose process began in this incarnation (24 bits).
    pub const fn new(counter: u32, slot: u8, incarnation: u32) -> Self {
        assert!(incarnation < 1 << INCARNATION_BITS, "incarnations are exhausted");
        Self(
            (counter as u64) << (SLOT_BITS + INCARNATION_BITS)
                | (slot as u64) << INCARNATION_BITS
                | incarnation as u64,
        )
    }

    /// The counter: the generation in its high bits, the number of the attempt in the others.
    pub const fn counter(self) -> u32 {
        (self.0 >> (SLOT_BITS + INCARNATION_BITS)) as u32
    }

    /// How often the group was recreated. What it proposed in an earlier generation, it has forgotten.
    pub const fn generation(self) -> u32 {
        self.counter() >> ATTEMPT_BITS
    }

    /// The highest generation.
    pub const GENERATION_MAX: u32 = (1 << (u32::BITS - ATTEMPT_BITS)) - 1;

    /// The lowest counter of a generation.
    pub const fn first_counter(generation: u32) -> u32 {
        generation << ATTEMPT_BITS
    }

    /// The counter above which a recreated group continues, given the highest one that it had reached. `None` if its
    /// generation was [the last](Self::GENERATION_MAX). The attempt number is kept, so that no tag is reused soon,
    /// unless more than half of the attempts are used up.
    pub const fn recreated(counter: u32) -> Option<u32> {
        let (generation, attempt) = (counter >> ATTEMPT_BITS, counter & ATTEMPT_MAX);
        if generation >= Self::GENERATION_MAX {
            return None;
        }
        let attempt = if attempt > ATTEMPT_MAX / 2 { 0 } else { attempt };
        Some((generation + 1) << ATTEMPT_BITS | attempt)
    }

    /// The ballot in which a lost group continues from the survivor in `slot`, given the highest counter that the group
    /// had reached. No replica leads in this ballot. `None` if [no generation is left](Self::recreated).
    pub const fn revived(counter: u32, slot: u8, incarnation: u32) -> Option<Self> {
        match Self::recreated(counter) {
            Some(counter) => Some(Self::new(counter, slot, incarnation)),
            None => None,
        }
    }

    /// The counter of the next attempt. `None` if this is the last of its generation: the next value would be mistaken
    /// for a ballot of the recreated group.
    pub const fn next_attempt(counter: u32) -> Option<u32> {
        if counter & ATTEMPT_MAX == ATTEMPT_MAX { None } else { Some(counter + 1) }
    }

    /// The replica slot of the leader.
    pub const fn slot(self) -> u8 {
        (self.0 >> INCARNATION_BITS) as u8
    }

    /// The incarnation in which the leader's process began.
    pub const fn incarnation(self) -> u32 {
        (self.0 & ((1 << INCARNATION_BITS) - 1)) as u32
    }

    /// The word that is written to memory.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The value of a word that was read from memory.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The tag of the ballot in an acceptance word: 2 bits of generation, 10 of counter, 4 of slot. Grants and headers
    /// carry full ballots, and a replica rewrites its words everywhere before it acknowledges in a new ballot, so a tag
    /// only has to differ between neighbouring ballots. A group that has forgotten its counters restarts them, and its
    /// indices too. Then only the generation distinguishes its words from those of its former self.
    pub const fn tag(self) -> u16 {
        let (generation, counter) = (self.generation() & 0x3, self.counter() & TAG_ATTEMPTS);
        (generation << 14 | counter << 4) as u16 | (self.slot() & 0xf) as u16
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.generation() > 0 {
            write!(f, "{}:", self.generation())?;
        }
        let attempt = self.counter() & ATTEMPT_MAX;
        write!(f, "{attempt}.r{}i{}", self.slot(), self.incarnation())
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A follower's promise that it holds its group's log up to an index, in one word that cannot tear: 16 bits of ballot
/// tag above 48 of index. Zero means that nothing was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acceptance {
    /// [`Ballot::tag`] of the ballot in which the entries were accepted.
    pub tag: u16,
    /// The highest log index up to which no entry is missing.
    pub index: u64,
}

const INDEX_BITS: u32 = 48;
/// The counter bits that a tag contains.
const TAG_ATTEMPTS: u32 = 0x3ff;

impl Acceptance {
    /// The counter of the ballot to which this tag belongs, given a known counter of the same group. The tag may be one
    /// generation ahead, or up to half of its counter range. A tag that seems to be further ahead is behind, and the
    /// known counter is returned.
    #[must_use]
    pub const fn counter_beyond(self, known: u32) -> u32 {
        let (generation, attempt) =
            ((self.tag >> 14) as u32, (self.tag >> 4) as u32 & TAG_ATTEMPTS);
        let ahead = attempt.wrapping_sub(known) & TAG_ATTEMPTS;
        match generation.wrapping_sub(known >> ATTEMPT_BITS) & 0x3 {
            0 if ahead <= TAG_ATTEMPTS / 2 => known.saturating_add(ahead),
            1 => known.saturating_add(1 << ATTEMPT_BITS).saturating_add(ahead),
            _ => known,
        }
    }

    /// The word that is written to memory.
    pub const fn to_word(self) -> u64 {
        assert!(self.index >> INDEX_BITS == 0, "log indices are exhausted");
        (self.tag as u64) << INDEX_BITS | self.index
    }

    /// The value of a word that was read from memory.
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
        let recreated = |counter| Ballot::recreated(counter).expect("a generation is left");
        let new = Ballot::new(recreated(old.counter()) + 1, 0, 0);
        assert!(new > old && new.generation() == 1 && old.generation() == 0);
        assert_ne!(new.tag(), Ballot::new(7, 0, 0).tag(), "words of old say nothing of it");
        // All members have lost their memory, and the counter that the group had reached is unknown.
        let forgotten = Ballot::new(recreated(0) + 7, 2, 0);
        assert!(forgotten > old && forgotten.tag() != old.tag());
        assert_eq!(std::format!("{old} {new}"), "7.r2i0 1:8.r0i0");
    }

    #[test]
    fn counters_end_and_run_into_nothing_else() {
        let of = |generation: u32, attempt: u32| generation << ATTEMPT_BITS | attempt;
        let (last, half) = (Ballot::GENERATION_MAX, ATTEMPT_MAX / 2);
        #[rustfmt::skip]
        let cases = [
            // counter               recreated             next attempt               because
            (of(0, 0),               Some(of(1, 0)),       Some(of(0, 1)),            "it is the first"),
            (of(3, half),            Some(of(4, half)),    Some(of(3, half + 1)),     "half of them are left"),
            (of(3, half + 1),        Some(of(4, 0)),       Some(of(3, half + 2)),     "few are left"),
            (of(3, ATTEMPT_MAX),     Some(of(4, 0)),       None,                      "the next is of generation 4"),
            (of(last - 1, 7),        Some(of(last, 7)),    Some(of(last - 1, 8)),     "one generation is left"),
            (of(last, 7),            None,                 Some(of(last, 8)),         "no generation is left"),
            (of(last, ATTEMPT_MAX),  None,                 None,                      "nothing is left"),
        ];
        for (counter, recreated, next, because) in cases {
            let ends = (Ballot::recreated(counter), Ballot::next_attempt(counter));
            assert_eq!(ends, (recreated, next), "{because}");
        }
        let word = Acceptance { tag: Ballot::new(of(0, 7), 0, 0).tag(), index: 1 };
        assert_eq!(
            word.counter_beyond(of(last, 7)),
            u32::MAX,
            "it seems to be of a generation behind the last"
        );
    }

    #[test]
    fn a_tag_tells_a_thousand_neighbours_and_four_generations_apart() {
        let of = |generation: u32, attempt| generation << ATTEMPT_BITS | attempt;
        let tag = |generation, attempt| Ballot::new(of(generation, attempt), 1, 0).tag();
        for other in 1..1024 {
            assert_ne!(tag(0, 7), tag(0, 7 + other));
        }
        assert_eq!(tag(0, 7), tag(0, 7 + 1024));
        assert!((1..4).all(|generation| tag(0, 7) != tag(generation, 7)));
    }

    #[test]
    fn a_word_tells_of_ballots_that_nobody_announced() {
        let of = |generation: u32, attempt: u32| generation << ATTEMPT_BITS | attempt;
        #[rustfmt::skip]
        let cases = [
            // known       word           beyond
            (of(0, 0),     of(0, 3),      of(0, 3)),
            (of(0, 5),     of(0, 3),      of(0, 5)),
            (of(1, 5),     of(0, 9),      of(1, 5)),
            (of(0, 0),     of(1, 2),      of(1, 2)),
            (of(3, 1023),  of(3, 1025),   of(3, 1025)),
            (of(0, 0),     of(0, 511),    of(0, 511)),
            (of(0, 0),     of(0, 512),    of(0, 0)),
        ];
        for (known, said, beyond) in cases {
            let word = Acceptance { tag: Ballot::new(said, 2, 7).tag(), index: 1 };
            assert_eq!(word.counter_beyond(known), beyond, "{known:x} {said:x}");
        }
    }

    #[test]
    fn an_acceptance_word_keeps_tag_and_index() {
        let word = Acceptance { tag: 0xfff1, index: (1 << 48) - 1 };
        assert_eq!(Acceptance::from_word(word.to_word()), word);
        assert_eq!(Acceptance::from_word(0), Acceptance::default());
    }
}
