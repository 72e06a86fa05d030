//! How many things are done together, at each stage that a message passes: batches form by themselves
//! while there is more to do than is done, and cost nothing while there is not.

use serde::{Deserialize, Serialize};

/// How often so many were done together, by powers of two: first 1, then 2 and 3, then 4 to 7, and so on.
/// The last is of all that are larger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes(pub [u64; 14]);

impl Sizes {
    /// So many were done together. Nothing at all does not count.
    pub(crate) fn note(&mut self, size: usize) {
        let Some(power) = size.checked_ilog2() else { return };
        let last = self.0.len() - 1;
        self.0[(power as usize).min(last)] += 1;
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

/// The batches at every stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// Datagrams taken from a ring, of a session or another replica, at one look.
    pub datagrams_per_look: Sizes,
    /// Entries that a leader writes into its followers' logs at a time.
    pub entries_per_write: Sizes,
    /// Entries that a follower finds in its log at one look.
    pub entries_per_look: Sizes,
    /// Other groups' proposals in a log entry.
    pub proposals_per_entry: Sizes,
    /// Words of others that have changed between two looks.
    pub words_per_look: Sizes,
    /// Messages delivered in a turn.
    pub deliveries_per_turn: Sizes,
}

impl Batches {
    /// Adds another engine's.
    pub fn add(&mut self, other: &Self) {
        self.datagrams_per_look.add(&other.datagrams_per_look);
        self.entries_per_write.add(&other.entries_per_write);
        self.entries_per_look.add(&other.entries_per_look);
        self.proposals_per_entry.add(&other.proposals_per_entry);
        self.words_per_look.add(&other.words_per_look);
        self.deliveries_per_turn.add(&other.deliveries_per_turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_by_powers_of_two() {
        let mut sizes = Sizes::default();
        for size in [0, 1, 2, 3, 4, 7, 8, 8191, 8192, usize::MAX] {
            sizes.note(size);
        }
        assert_eq!(sizes.0, [1, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let mut twice = sizes.clone();
        twice.add(&sizes);
        assert_eq!(twice.0.iter().sum::<u64>(), 18);
    }
}
