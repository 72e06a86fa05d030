//! Detection of replicas whose state differs from their group's, by the digests of all replicas' states at one position
//! of the order.
//!
//! Replicas that apply the same commands hold the same state. If states differ, a defect or failing memory has changed
//! one. The state that f+1 of 2f+1 replicas hold counts as the group's, as an entry that f+1 have accepted counts as
//! committed.

/// Result of comparing the digests at one position, for one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// All known digests are equal.
    Agree,
    /// f+1 replicas hold our digest, and the replicas of these slots another one.
    OthersDiffer(Slots),
    /// f+1 replicas, those of these slots, hold a digest that differs from ours.
    WeDiffer(Slots),
    /// Digests differ. Digests that are still unknown decide whether f+1 replicas hold the same one.
    Undecided,
    /// Digests differ, and f+1 replicas cannot hold the same one, whatever the unknown digests are.
    Nobody,
}

/// A set of slots of a group, as a bitmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots(u16);

impl Slots {
    /// Whether `slot` is in the set.
    pub const fn contains(self, slot: u8) -> bool {
        slot < 16 && self.0 & 1 << slot != 0
    }

    /// The slots in rising order.
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

/// Compares the digests of a group's replicas, by slot, for the replica in slot `me`. The result is
/// [`Agree`](Comparison::Agree) while its own digest is unknown.
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

    /// No two replicas reach contradicting results, however many digests each of them has.
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
                // With one digest fewer, the replica may be undecided, but no other replica is blamed.
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
