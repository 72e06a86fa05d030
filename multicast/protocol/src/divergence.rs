//! Who of a group has gone apart from the others, by the digests that its replicas have of their states at
//! one position of the order.
//!
//! Replicas that apply the same commands hold the same. Where they do not, a defect or failing memory has
//! changed a state. What f+1 of 2f+1 replicas hold counts as the group's state, as what f+1 have accepted
//! counts as committed.

/// What digests at one position come to, for one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Those that are known are equal.
    Agree,
    /// f+1 replicas hold our digest, and those of these slots another one.
    OthersDiffer(Slots),
    /// f+1 replicas, of these slots, hold a digest that is not ours.
    WeDiffer(Slots),
    /// Digests differ. One of them may be held by f+1 when the others have told theirs.
    Undecided,
    /// Digests differ, and none is held by f+1, whatever those hold that have not told theirs.
    Nobody,
}

/// Slots of a group, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots(u16);

impl Slots {
    /// Whether it is one of them.
    pub const fn contains(self, slot: u8) -> bool {
        slot < 16 && self.0 & 1 << slot != 0
    }

    /// Every one, rising.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..16).filter(move |slot| self.contains(*slot))
    }

    const fn with(self, slot: usize) -> Self {
        Self(self.0 | 1 << slot)
    }

    const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl FromIterator<u8> for Slots {
    /// # Panics
    /// If one is 16 or above.
    fn from_iter<I: IntoIterator<Item = u8>>(slots: I) -> Self {
        slots.into_iter().fold(Self::default(), |all, slot| all.with(usize::from(slot)))
    }
}

/// Compares the digests of a group's replicas, by slot, for the one in slot `me`, which knows its own.
pub fn compare(digests: &[Option<u64>], me: u8) -> Comparison {
    let Some(Some(ours)) = digests.get(usize::from(me)) else { return Comparison::Agree };
    let quorum = digests.len() / 2 + 1;
    let known = || digests.iter().enumerate().filter_map(|(slot, it)| Some((slot, (*it)?)));
    let holders = |digest: u64| {
        let holders = known().filter(|(_, held)| *held == digest);
        holders.fold(Slots::default(), |slots, (slot, _)| slots.with(slot))
    };
    let differ = known().filter(|(_, held)| held != ours);
    let differ = differ.fold(Slots::default(), |slots, (slot, _)| slots.with(slot));
    if differ.len() == 0 {
        return Comparison::Agree;
    }
    if holders(*ours).len() >= quorum {
        return Comparison::OthersDiffer(differ);
    }
    let most = known().map(|(_, digest)| holders(digest)).max_by_key(|slots| slots.len());
    let most = most.unwrap_or_default();
    if most.len() >= quorum {
        return Comparison::WeDiffer(most);
    }
    let silent = digests.len() - known().count();
    if most.len() + silent >= quorum { Comparison::Undecided } else { Comparison::Nobody }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn slots(slots: &[usize]) -> Slots {
        slots.iter().fold(Slots::default(), |all, slot| all.with(*slot))
    }

    #[test]
    fn what_a_majority_holds_is_the_state() {
        use Comparison::{Agree, Nobody, OthersDiffer, Undecided, WeDiffer};
        let (a, b, c) = (Some(1), Some(2), Some(3));
        #[rustfmt::skip]
        let cases = [
            ([a, a, a].to_vec(),             0, Agree,                          "all hold the same"),
            ([a, None, None].to_vec(),       0, Agree,                          "nobody else has told"),
            ([None, a, b].to_vec(),          0, Agree,                          "our own is not known"),
            ([a, a, b].to_vec(),             0, OthersDiffer(slots(&[2])),      "one of three"),
            ([a, a, b].to_vec(),             2, WeDiffer(slots(&[0, 1])),       "we are the one"),
            ([a, b, None].to_vec(),          0, Undecided,                      "the third may hold either"),
            ([a, b, c].to_vec(),             1, Nobody,                         "three digests"),
            ([a].to_vec(),                   0, Agree,                          "one replica"),
            ([a, a, a, b, b].to_vec(),       3, WeDiffer(slots(&[0, 1, 2])),    "two of five"),
            ([a, a, a, b, c].to_vec(),       0, OthersDiffer(slots(&[3, 4])),   "two of five, in two ways"),
            ([a, a, b, b, None].to_vec(),    0, Undecided,                      "the fifth decides"),
            ([a, a, b, b, c].to_vec(),       0, Nobody,                         "two, two and one"),
            ([a, b, c, None, None].to_vec(), 0, Undecided,                      "both may join one"),
            ([a, None, None, None, b].to_vec(), 4, Undecided,                   "most have not told"),
        ];
        for (digests, me, expected, because) in cases {
            assert_eq!(compare(&digests, me), expected, "{because}");
        }
        assert_eq!(slots(&[0, 3]).iter().collect::<Vec<_>>(), [0, 3]);
    }

    /// No two replicas come to conclusions that contradict each other, however many are heard of.
    #[test]
    fn conclusions_do_not_contradict_each_other() {
        for all in 0..3_usize.pow(5) {
            let digests: Vec<_> =
                (0..5).map(|slot| Some(all as u64 / 3_u64.pow(slot) % 3)).collect();
            let whole: Vec<_> = (0..5).map(|me| compare(&digests, me)).collect();
            assert!(!whole.contains(&Comparison::Undecided), "{digests:?}");
            let nobody = whole.iter().filter(|it| **it == Comparison::Nobody).count();
            assert!(nobody == 0 || nobody == 5, "{digests:?}: {whole:?}");
            for (me, comparison) in whole.iter().enumerate() {
                let Comparison::WeDiffer(quorum) = comparison else { continue };
                for other in quorum.iter() {
                    let theirs = whole[usize::from(other)];
                    let Comparison::OthersDiffer(differ) = theirs else { panic!("{digests:?}") };
                    assert!(differ.contains(me as u8), "{digests:?}");
                }
                // With fewer known, it is at most undecided for somebody, and nobody else is blamed.
                let mut fewer = digests.clone();
                fewer[(me + 1) % 5] = None;
                let some = compare(&fewer, me as u8);
                assert!(
                    matches!(some, Comparison::WeDiffer(_) | Comparison::Undecided),
                    "{fewer:?}: {some:?}"
                );
            }
        }
    }
}
