//! What the replicas of our group have said to hold.

use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::record::LogRecord;
use crate::ballot::Acceptance;
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::Mutant;

/// Acceptance words as last read here, by slot.
///
/// **Invariant.** As leader, `accepted(slot) <= last`. A follower may read words above its own `last`, so it commits no further
/// than `last`.
#[derive(Clone)]
pub(super) struct AcceptanceWords(Vec<Acceptance>);

impl AcceptanceWords {
    pub(super) fn new(replicas: u8) -> Self {
        Self(vec![Acceptance::default(); usize::from(replicas)])
    }
}

/// Up to which index a word vouches in that ballot.
pub(crate) fn vouches(word: Acceptance, ballot: Ballot) -> u64 {
    let same = guard!(Mutant::AcceptanceOfAnyBallot, word.tag == ballot.tag());
    if same { word.index } else { 0 }
}

impl<R: LogRecord> GroupLog<R> {
    /// A replica of our group says up to where it holds the log.
    #[inline]
    pub(crate) fn acknowledged(&mut self, slot: u8, word: Acceptance) {
        self.words.0[usize::from(slot)] = word;
    }

    /// Our acceptance word: what we hold in the ballot in which we log, whoever wrote it. A replica that our
    /// group has not let in says nothing, and one that waits for its new leader's first words
    /// neither: it holds what it holds in no ballot that counts.
    pub(crate) fn acceptance(&self) -> Option<Acceptance> {
        let counts = guard!(Mutant::AmnesiacAccepts, !self.is_silent());
        let stays = guard!(Mutant::LeftBallotAcknowledged, self.keeps_ballot());
        let (tag, index) = (self.entries.ballot.tag(), self.entries.last);
        (counts && stays).then_some(Acceptance { tag, index })
    }

    /// Up to which index the word of `slot` vouches in the ballot in which we log.
    pub(crate) fn accepted(&self, slot: u8) -> u64 {
        vouches(self.words.0[usize::from(slot)], self.entries.ballot)
    }

    /// Whether the word of `slot` is of our ballot, and covers all that is committed.
    pub(crate) fn holds_committed(&self, slot: u8) -> bool {
        let word = self.words.0[usize::from(slot)];
        word.tag == self.entries.ballot.tag() && word.index >= self.entries.commit
    }
}
