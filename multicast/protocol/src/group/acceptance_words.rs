//! Acceptance words of the group's replicas.

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
/// **Invariant.** As leader, `accepted(slot) <= last`. A follower may read words above its own `last`, so it commits at
/// most up to `last`.
#[derive(Clone)]
pub(super) struct AcceptanceWords(Vec<Acceptance>);

impl AcceptanceWords {
    pub(super) fn new(replicas: u8) -> Self {
        Self(vec![Acceptance::default(); usize::from(replicas)])
    }
}

/// The index up to which a word counts in that ballot.
pub(crate) fn vouches(word: Acceptance, ballot: Ballot) -> u64 {
    let same = guard!(Mutant::AcceptanceOfAnyBallot, word.tag == ballot.tag());
    if same { word.index } else { 0 }
}

impl<R: LogRecord> GroupLog<R> {
    /// Records the acceptance word of a slot.
    #[inline]
    pub(crate) fn acknowledged(&mut self, slot: u8, word: Acceptance) {
        self.words.0[usize::from(slot)] = word;
    }

    /// Our acceptance word: what we hold in the ballot in which we log, whichever leader wrote it. A replica that our
    /// group has not admitted writes none. Neither does a replica that waits for its new leader's header: what it
    /// holds, it holds in no ballot that counts.
    pub(crate) fn acceptance(&self) -> Option<Acceptance> {
        let counts = guard!(Mutant::AmnesiacAccepts, !self.is_silent());
        let stays = guard!(Mutant::LeftBallotAcknowledged, self.keeps_ballot());
        let (tag, index) = (self.entries.ballot.tag(), self.entries.last);
        (counts && stays).then_some(Acceptance { tag, index })
    }

    /// The index up to which the word of `slot` counts in the ballot in which we log.
    pub(crate) fn accepted(&self, slot: u8) -> u64 {
        vouches(self.words.0[usize::from(slot)], self.entries.ballot)
    }

    /// Whether the word of `slot` is of our ballot and covers everything that is committed.
    pub(crate) fn holds_committed(&self, slot: u8) -> bool {
        let word = self.words.0[usize::from(slot)];
        word.tag == self.entries.ballot.tag() && word.index >= self.entries.commit
    }
}
