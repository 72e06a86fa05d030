//! The digests of a machine at its last checkpoints, for replicas to compare.

use skein_multicast::application::Digest;

use crate::command::Version;

/// Number of checkpoints that are kept: the digests of other replicas may arrive late.
const REMEMBERED: usize = 256;

/// The last checkpoints, in a ring that is allocated at the first one.
#[derive(Default)]
pub(super) struct Checkpoints {
    all: Vec<Digest>,
    /// Index of the next checkpoint, which overwrites the oldest once the ring is full.
    next: usize,
}

impl Checkpoints {
    pub(super) fn note(&mut self, position: Version, digest: u64) {
        let checkpoint = Digest { position, digest };
        if self.all.len() < REMEMBERED {
            self.all.reserve_exact(REMEMBERED - self.all.len());
            self.all.push(checkpoint);
        } else {
            self.all[self.next] = checkpoint;
        }
        self.next = (self.next + 1) % REMEMBERED;
    }

    pub(super) fn last(&self) -> Option<Digest> {
        let last = (self.next + REMEMBERED - 1) % REMEMBERED;
        self.all.get(last).copied()
    }

    pub(super) fn find(&self, position: Version) -> Option<u64> {
        let found = self.all.iter().find(|checkpoint| checkpoint.position == position);
        found.map(|checkpoint| checkpoint.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_found_and_older_ones_are_not() {
        let mut checkpoints = Checkpoints::default();
        assert!(checkpoints.last().is_none() && checkpoints.find(0).is_none());
        for number in 1..=600 {
            checkpoints.note(64 * number, number);
            assert_eq!(checkpoints.last(), Some(Digest { position: 64 * number, digest: number }));
            assert_eq!(checkpoints.find(64), (number <= 256).then_some(1));
        }
        assert_eq!(checkpoints.find(64 * 345), Some(345));
        assert_eq!(checkpoints.find(64 * 344), None);
        assert_eq!(checkpoints.find(64 * 600 + 1), None);
    }
}
