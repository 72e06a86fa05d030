//! Acceptance words of the group's replicas.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::record::LogRecord;
use crate::ballot::Acceptance;
use crate::ballot::Ballot;
use crate::guard;
use crate::ids::GroupSet;
use crate::mutants::Mutant;

/// Acceptance words as last read here, by slot.
///
/// **Invariant.** As leader, `accepted(slot) <= last`. A follower may read words above its own `last`, so it commits at
/// most up to `last`.
#[derive(Clone)]
pub(super) struct AcceptanceWords {
    read: Vec<Acceptance>,
    /// The highest words in the ballot in which we log that others have followed, which may be lower: a slot that has an
    /// older disk now has forgotten them.
    former: Vec<Acceptance>,
}

impl AcceptanceWords {
    pub(super) fn new(replicas: u8) -> Self {
        let words = vec![Acceptance::default(); usize::from(replicas)];
        Self { read: words.clone(), former: words }
    }
}

/// The groups to which we are to send our acceptance word.
///
/// **Invariant.** The indices of `later` never fall.
#[derive(Clone, Default)]
pub(super) struct Owed {
    /// Groups that are owed a word now.
    now: GroupSet,
    /// Groups that are owed a word as soon as it covers an index.
    later: VecDeque<(u64, GroupSet)>,
}

impl Owed {
    /// Nobody is owed a word of the ballot that we leave.
    pub(super) fn leave_ballot(&mut self) {
        self.later.clear();
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
        let before = core::mem::replace(&mut self.words.read[usize::from(slot)], word);
        if before.tag != word.tag || word.index < before.index {
            self.remember(slot, before);
        }
    }

    #[cold]
    fn remember(&mut self, slot: u8, word: Acceptance) {
        let former = &mut self.words.former[usize::from(slot)];
        if vouches(word, self.entries.ballot) > vouches(*former, self.entries.ballot) {
            *former = word;
        }
    }

    /// Our acceptance word: what we hold in the ballot in which we log, whichever leader wrote it; if the cluster is
    /// durable, what our disk holds of that. A replica that our
    /// group has not admitted writes none. Neither does a replica that waits for its new leader's header: what it
    /// holds, it holds in no ballot that counts.
    pub(crate) fn acceptance(&self) -> Option<Acceptance> {
        let counts = guard!(Mutant::AmnesiacAccepts, !self.is_silent());
        let stays = guard!(Mutant::LeftBallotAcknowledged, self.keeps_ballot());
        let (tag, index) = (self.entries.ballot.tag(), self.durable_index()?);
        (counts && stays).then_some(Acceptance { tag, index })
    }

    /// We owe these groups an acceptance word that covers the entry at `index`.
    #[inline]
    pub(crate) fn owe(&mut self, index: u64, groups: GroupSet) {
        if self.config.durable {
            self.owe_later(index, groups);
        } else {
            self.owed.now = self.owed.now.union(groups);
        }
    }

    #[inline(never)]
    fn owe_later(&mut self, index: u64, groups: GroupSet) {
        match self.owed.later.back_mut() {
            Some((last, owed)) if *last == index => *owed = owed.union(groups),
            _ => self.owed.later.push_back((index, groups)),
        }
    }

    /// Takes our acceptance word, and the groups to which it is to be sent, if there are any. Without disks a leader
    /// sends none: it is known to hold what it has logged.
    pub(crate) fn take_word(&mut self) -> Option<(GroupSet, Acceptance)> {
        if !self.config.durable {
            if self.owed.now.is_empty() || self.leads() {
                return None;
            }
            let acceptance = self.acceptance()?;
            return Some((core::mem::take(&mut self.owed.now), acceptance));
        }
        self.take_durable_word()
    }

    #[inline(never)]
    fn take_durable_word(&mut self) -> Option<(GroupSet, Acceptance)> {
        if self.owed.now.is_empty() && self.owed.later.is_empty() {
            return None;
        }
        let acceptance = self.acceptance()?;
        let covered = |(index, _): &mut (u64, GroupSet)| *index <= acceptance.index;
        while let Some((_, groups)) = self.owed.later.pop_front_if(covered) {
            self.owed.now = self.owed.now.union(groups);
        }
        let groups = core::mem::take(&mut self.owed.now);
        (!groups.is_empty()).then_some((groups, acceptance))
    }

    /// The index up to which the word of `slot` counts in the ballot in which we log.
    pub(crate) fn accepted(&self, slot: u8) -> u64 {
        vouches(self.words.read[usize::from(slot)], self.entries.ballot)
    }

    /// The highest index that a word of `slot` has covered in the ballot in which we log, as far as we know.
    pub(super) fn once_accepted(&self, slot: u8) -> u64 {
        let former = self.words.former[usize::from(slot)];
        self.accepted(slot).max(vouches(former, self.entries.ballot))
    }

    /// Whether the word of `slot` is of our ballot and covers everything that is committed.
    pub(crate) fn holds_committed(&self, slot: u8) -> bool {
        let word = self.words.read[usize::from(slot)];
        word.tag == self.entries.ballot.tag() && word.index >= self.entries.commit
    }
}

#[cfg(test)]
mod tests {
    use super::super::OnDisk;
    use super::super::testing::{Record, all_on_disk, append, leads, log_of, read_to};
    use super::*;
    use crate::ids::GroupId;

    /// The ballots in which slot 0 leads.
    const LED: Ballot = Ballot::new(1, 0, 0);
    const NEXT: Ballot = Ballot::new(2, 0, 0);

    /// Slot 1 of three, which has read three entries of the leader of `LED`.
    fn follower(durable: bool) -> GroupLog<Record> {
        let mut log = log_of(3, durable);
        log.promise(LED);
        log.follow(LED, 1);
        read_to(&mut log, 3);
        log
    }

    /// The disk holds the log in `ballot` up to `last`, and the log's promise.
    fn on_disk(log: &mut GroupLog<Record>, ballot: Ballot, last: u64) {
        log.has_on_disk(OnDisk { ballot, last, promised: log.promised() });
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with what may be none")]
    fn word(ballot: Ballot, index: u64) -> Option<Acceptance> {
        Some(Acceptance { tag: ballot.tag(), index })
    }

    fn groups<const N: usize>(groups: [u16; N]) -> GroupSet {
        groups.into_iter().map(GroupId).collect()
    }

    #[test]
    fn a_word_covers_what_the_disk_holds_and_no_more() {
        let mut log = follower(true);
        assert_eq!(log.acceptance(), None, "not even the ballot is on disk");
        for last in 0..=3 {
            on_disk(&mut log, LED, last);
            assert_eq!(log.acceptance(), word(LED, last));
        }
        log.truncate(2, |_| {});
        assert_eq!(log.acceptance(), word(LED, 2), "what was cut off is not held");
    }

    #[test]
    fn nothing_is_said_in_a_ballot_that_is_not_on_disk() {
        let mut log = follower(true);
        all_on_disk(&mut log);
        log.promise(NEXT);
        all_on_disk(&mut log);
        assert_eq!(log.acceptance(), None, "the leader's header is not there");
        log.follow(NEXT, 4);
        read_to(&mut log, 4);
        assert_eq!(log.acceptance(), None, "the disk holds entries, in another ballot");
        on_disk(&mut log, NEXT, 3);
        assert_eq!(log.acceptance(), word(NEXT, 3));
    }

    #[test]
    fn words_are_sent_to_whom_they_are_owed_when_the_disk_has_the_entry() {
        let mut log = follower(true);
        log.owe(1, groups([0]));
        log.owe(1, groups([1]));
        log.owe(3, groups([2]));
        assert_eq!(log.take_word(), None);
        on_disk(&mut log, LED, 0);
        assert_eq!(log.take_word(), None, "they are owed a word of the first entry");
        on_disk(&mut log, LED, 2);
        assert_eq!(log.take_word(), word(LED, 2).map(|word| (groups([0, 1]), word)));
        assert_eq!(log.take_word(), None, "it was sent");
        on_disk(&mut log, LED, 3);
        assert_eq!(log.take_word(), word(LED, 3).map(|word| (groups([2]), word)));
    }

    #[test]
    fn no_word_is_owed_of_a_ballot_that_was_left() {
        let mut log = follower(true);
        on_disk(&mut log, LED, 0);
        log.owe(3, groups([1]));
        log.promise(NEXT);
        log.follow(NEXT, 3);
        log.owe(3, groups([0]));
        all_on_disk(&mut log);
        assert_eq!(log.take_word(), word(NEXT, 3).map(|word| (groups([0]), word)));
    }

    #[test]
    fn who_leads_owes_no_word_of_the_ballot_that_it_followed() {
        let mut log = log_of(5, true);
        log.promise(LED);
        log.follow(LED, 1);
        read_to(&mut log, 2);
        log.owe(2, groups([1]));
        let mut log = leads(log);
        all_on_disk(&mut log);
        assert_eq!(log.take_word(), None);
    }

    #[test]
    fn a_leader_tells_what_its_disk_holds() {
        for durable in [false, true] {
            let mut log = leads(log_of(5, durable));
            let index = append(&mut log, Record::Message(1));
            log.owe(index, groups([0, 1]));
            assert_eq!(log.take_word(), None);
            all_on_disk(&mut log);
            let told = word(log.ballot(), index).map(|word| (groups([0, 1]), word));
            assert_eq!(log.take_word(), told.filter(|_| durable), "without disks it is implied");
        }
    }

    #[test]
    fn without_disks_a_word_covers_the_log_and_is_sent_at_once() {
        let mut log = follower(false);
        assert_eq!(log.acceptance(), word(LED, 3));
        log.owe(2, groups([0]));
        log.owe(3, groups([1]));
        assert_eq!(log.take_word(), word(LED, 3).map(|word| (groups([0, 1]), word)));
        assert_eq!(log.take_word(), None);
    }
}
