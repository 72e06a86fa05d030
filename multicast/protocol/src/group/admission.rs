//! Admission: whose log a leader writes, from which place on, and for whom it retains its own.

use core::ops::Range;

use super::GroupLog;
use super::frame::Cursor;
use super::record::LogRecord;
use super::transfer::Stage;
use crate::guard;
use crate::mutants::{Mutant, planted};

/// A log that a replica lets us, its leader, write, in comparison with ours.
#[derive(Clone, Copy, Debug)]
pub struct OpenedLog {
    pub slot: u8,
    pub incarnation: u32,
    /// The place from which it differs from ours. `None` if our ring no longer contains the entries from there on, or
    /// if entries that must always be written may overwrite them.
    pub base: Option<Cursor>,
    /// Whether the part of it that the replica has not freed fits into our ring, too.
    pub fits: bool,
}

/// A leader's decision about a log that it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The place from which to write it. `None`: our log does not reach back to the end of its log, and this is
    /// reported to it.
    pub base: Option<Cursor>,
    /// The replica does not count, and is to be admitted when it has all of our log.
    pub joins: bool,
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: whether we write a log that a replica has opened to us.
    pub fn admits(&self, log: &OpenedLog) -> Admission {
        let OpenedLog { slot, incarnation, base, fits } = *log;
        let member = self.members.view.member(slot);
        let joins = member.incarnation != incarnation || member.evicted;
        // A replica that joins and is at the bound of its lag would only receive more entries that it cannot deliver:
        // it needs the state. But it refuses our state if its log continues behind our last committed entry: others may
        // count on those entries, and perhaps we can commit nothing without the replica. Then we write its log.
        let given = self.sends_state() == Some((slot, Stage::Sent));
        let refuses = given && base.is_some_and(|base| base.index - 1 > self.entries.commit);
        let needs_state = joins && (planted(Mutant::KeptLogNotWritten) || !refuses);
        let base = base.filter(|_| !(needs_state && self.is_granter_behind(slot)));
        // A replica that joins and sees nothing committed, because it receives words of its leader only, is not written
        // to either: the part of the log that it keeps would grow with each admission.
        let base = base.filter(|_| guard!(Mutant::LogKeptBeyondRing, fits || !needs_state));
        Admission { base, joins }
    }

    /// As leader: whether a slot may still need what our log contains: it counts, or it was sent our state and has yet
    /// to let us write its log, or it `joins`.
    pub fn keeps_log_for(&self, slot: u8, joins: bool) -> bool {
        let given = self.sends_state() == Some((slot, Stage::Sent));
        let counts = !self.members.view.member(slot).evicted;
        let joins = joins && !planted(Mutant::LogNotHeldForJoiner);
        slot != self.config.me.slot && (counts || given || joins)
    }
}

/// As leader: the part of our log before everything that a replica's memory holds of it. We write it as well when the
/// replica lets us write its log from `base` on. It is empty, at `base`, if there is none. The replica's memory holds
/// its log from `theirs` on. `needed` is the first position that any other replica still needs for which [we keep our
/// log](GroupLog::keeps_log_for).
///
/// **Invariant.** Every log that counts has, in memory, all committed entries that a replica that counts still needs.
/// Otherwise, once the others are gone, a leader that received a state could not serve a replica that has applied more
/// than that state, and must not send the state away either.
///
/// What the replica itself holds is never written again: a write that ends halfway would destroy entries that it has
/// acknowledged.
pub fn written_before(base: u64, theirs: u64, needed: u64) -> Range<u64> {
    let to = if planted(Mutant::HeldLogWritten) { base } else { theirs.min(base) };
    if needed < to && !planted(Mutant::LogBeforeStateNotWritten) { needed..to } else { base..base }
}

#[cfg(test)]
mod tests {
    use super::super::ordering::NoOthers;
    use super::super::testing::{Record, leader};
    use super::super::transfer::{Left, Request};
    use super::super::uncommitted::Uncommitted;
    use super::*;
    use crate::ballot::Ballot;
    use crate::divergence::Slots;
    use crate::rank::Rank;

    /// Our log has two entries: the ballot's first entry, which is committed, and a message, which is not.
    const COMMITTED: u64 = 1;

    fn log() -> GroupLog<Record> {
        let mut log = leader();
        let (index, birth, time_ms) = log.next_entry();
        log.push(Uncommitted { index, birth, time_ms, record: Record::Message(1) });
        log.commit_to(COMMITTED);
        log
    }

    /// The log of slot 2 with this incarnation; the view contains incarnation 0.
    fn opened(incarnation: u32) -> OpenedLog {
        OpenedLog { slot: 2, incarnation, base: Some(at(COMMITTED)), fits: true }
    }

    /// The place right behind an entry.
    const fn at(index: u64) -> Cursor {
        Cursor { index: index + 1, position: 64 * index }
    }

    fn send_state(log: &mut GroupLog<Record>, slot: u8, left: Left) {
        let request = Request {
            slot,
            incarnation: 1,
            needs: Some(Ballot::ZERO),
            applied: Rank::NOTHING,
            taken: None,
            log: None,
        };
        log.asked_for_state(&request, true, None, &NoOthers);
        log.sends_part(left);
    }

    #[test]
    fn whoever_is_not_named_or_is_evicted_joins() {
        let mut log = log();
        assert_eq!(log.admits(&opened(0)), Admission { base: Some(at(1)), joins: false });
        assert_eq!(log.admits(&opened(1)), Admission { base: Some(at(1)), joins: true });
        log.members.view.evict(2);
        assert!(log.admits(&opened(0)).joins);
    }

    #[test]
    fn who_joins_and_has_too_much_to_deliver_needs_the_state_and_who_counts_does_not() {
        let mut log = log();
        for delivered in 1..=65 {
            log.lag.note(delivered, Rank::new(delivered));
        }
        assert_eq!(log.admits(&opened(0)).base, Some(at(1)), "it counts");
        assert_eq!(log.admits(&opened(1)).base, None, "it has applied nothing");
        log.granter_has_applied(2, Rank::new(60));
        assert_eq!(log.admits(&opened(1)).base, Some(at(1)));
    }

    #[test]
    fn who_joins_and_keeps_more_than_a_ring_needs_the_state_and_who_counts_does_not() {
        let log = log();
        let opened = |incarnation| OpenedLog { fits: false, ..opened(incarnation) };
        assert_eq!(log.admits(&opened(0)).base, Some(at(1)), "it counts");
        assert_eq!(log.admits(&opened(1)).base, None);
    }

    #[test]
    fn who_was_sent_our_state_and_has_more_than_is_committed_is_fed() {
        let mut log = log();
        let beyond = OpenedLog { base: Some(at(COMMITTED + 1)), fits: false, ..opened(1) };
        let within = OpenedLog { fits: false, ..opened(1) };
        assert_eq!(log.admits(&beyond).base, None, "it can still take a state");
        send_state(&mut log, 2, Left::Little);
        assert_eq!(log.admits(&beyond).base, None, "it has yet to see all of it");
        log.sends_part(Left::Nothing);
        assert_eq!(log.admits(&beyond), Admission { base: Some(at(2)), joins: true });
        assert_eq!(log.admits(&within).base, None, "nothing keeps it from taking the state");
    }

    #[test]
    fn our_log_is_kept_for_those_that_count_or_are_about_to() {
        let mut log = log();
        let kept = |log: &GroupLog<Record>, joins| {
            (0..5).filter(|slot| log.keeps_log_for(*slot, joins)).collect::<Slots>()
        };
        let slots = |slots: &[u8]| slots.iter().copied().collect::<Slots>();
        assert_eq!(kept(&log, false), slots(&[0, 2, 3, 4]), "we are slot 1");
        log.members.view.evict(2);
        log.members.view.evict(3);
        assert_eq!(kept(&log, false), slots(&[0, 4]));
        assert_eq!(kept(&log, true), slots(&[0, 2, 3, 4]));
        send_state(&mut log, 3, Left::Little);
        assert_eq!(kept(&log, false), slots(&[0, 4]), "the rest of the state holds it");
        log.sends_part(Left::Nothing);
        assert_eq!(kept(&log, false), slots(&[0, 3, 4]));
    }

    #[test]
    fn what_a_replica_lacks_and_others_need_is_written_before_the_rest() {
        #[rustfmt::skip]
        let cases = [
            // base theirs needed  written     because
            (500,   300,   300,    500..500,   "it holds all that is needed"),
            (500,   300,   400,    500..500,   "it holds more than is needed"),
            (500,   300,   100,    100..300,   "it holds only the rest"),
            (500,   900,   100,    100..500,   "from where the logs differ on all is written anyway"),
            (500,   900,   500,    500..500,   "nothing in front of that is needed"),
        ];
        for (base, theirs, needed, written, because) in cases {
            assert_eq!(written_before(base, theirs, needed), written, "{because}");
        }
    }
}
