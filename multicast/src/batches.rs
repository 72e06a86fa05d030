//! Sizes of the batches at each stage that a message passes. A batch is whatever has accumulated when a stage
//! runs: no stage waits to fill one.

use serde::{Deserialize, Serialize};

/// Histogram of batch sizes by powers of two: sizes 1, 2 to 3, 4 to 7, and so on. The last bucket has all
/// larger sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes(pub [u64; 14]);

impl Sizes {
    /// Counts a batch. A size of zero is ignored.
    pub(crate) fn note(&mut self, size: usize) {
        let Some(power) = size.checked_ilog2() else { return };
        let last = self.0.len() - 1;
        self.0[(power as usize).min(last)] += 1;
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

/// Histograms of the batch sizes at every stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// Datagrams taken from one ring, of a session or another replica, in one scan.
    pub datagrams_per_look: Sizes,
    /// Entries in one write of a leader to its followers' logs.
    pub entries_per_write: Sizes,
    /// Entries that a follower finds in its log in one scan.
    pub entries_per_look: Sizes,
    /// Other groups' proposals in one log entry.
    pub proposals_per_entry: Sizes,
    /// Status words of peers that have changed between two scans.
    pub words_per_look: Sizes,
    pub deliveries_per_turn: Sizes,
}

impl Batches {
    /// Adds the batches of another engine.
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
