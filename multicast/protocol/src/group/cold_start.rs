//! The start of a whole group: who is to be elected first waits for the log of everyone.
//!
//! **Why.** A disk may be an older one than its replica has spoken of: a copy that was put back, or a medium that lied
//! about a flush. Such a log votes, and with that of a replica which had lagged it makes a quorum in which an
//! acknowledged entry is missing. The replica that holds the entry is there as well after a loss of power, perhaps a
//! moment later. So a candidate that has not had a leader since its start takes f+1 grants only when [`WAITS_MS`] are
//! over, and until then only those of all slots that have a log.
//!
//! The time begins when f+1 have granted a candidate first: a replica that is there alone for long, or replays for long, has
//! waited for nobody.
//!
//! Nobody knows by its log who leads. Before it has had a leader since its start, a replica refuses no candidate because
//! the leader of its last ballot seems well: that one may have started, too, and does not lead any more. And after
//! [`LEADS_WITHIN_MS`] it stands itself, as the one that should may have forgotten that it led.
//!
//! **Old copies beside nodes that run.** A candidate that has had a leader knows by the acceptance words what its granters
//! have held. If no reported log is as long as that, one of them has an older disk now, and the candidate waits for the
//! others in the same way.
//!
//! This is no promise: if the one replica that holds the entry returns later than that, the group goes on without it.
//! Decision 0024 lists what else it does not cover.

use crate::guard;
use crate::mutants::{Mutant, planted};

/// Time for which the others may be awaited, from the first time that f+1 have granted us.
const WAITS_MS: u64 = 3_000;
/// Time for which a candidate's question may be under way: so much is left of the wait when it stands again.
const HEARD_WITHIN_MS: u64 = 500;
/// Heartbeats for which an engine without work may sleep, and more. Only longer times did not run.
const SLEEPS_HEARTBEATS: u64 = 20;
/// Time from our own start within which a leader that has not started itself would have written to us.
const LEADS_WITHIN_MS: u64 = 1_500;

/// Whether we have had a leader since we began with what our disk held.
pub(super) struct ColdStart {
    /// From then on nobody leads us who has not started as well. `None` if we have had a leader.
    left_alone_ms: Option<u64>,
    /// Until then those are awaited that have not granted us. `None` if there were never f+1 grants.
    until_ms: Option<u64>,
    /// That time is over.
    over: bool,
    /// Slots, as bits, whose present incarnation has no log to report.
    blank: u16,
}

impl ColdStart {
    /// A replica without a disk has no cold start.
    pub(super) const fn new() -> Self {
        Self { left_alone_ms: None, until_ms: None, over: false, blank: 0 }
    }

    /// We begin with what our disk held.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.left_alone_ms = Some(now_ms + LEADS_WITHIN_MS);
        self.until_ms = planted(Mutant::ColdStartCountsOwnTime).then_some(now_ms + WAITS_MS);
        self.over = false;
    }

    /// Somebody leads us, or we lead.
    pub(super) const fn end(&mut self) {
        *self = Self::new();
    }

    /// A slot's incarnation asks for a state: it has none.
    pub(super) const fn saw_blank(&mut self, slot: u8) {
        self.blank |= 1 << slot;
    }

    /// Whether we have had no leader since we began with our disk.
    pub(super) const fn is_leaderless(&self) -> bool {
        self.left_alone_ms.is_some()
    }

    /// Whether we have had none, though a leader would have written to us by now.
    pub(super) fn is_left_alone(&self, now_ms: u64) -> bool {
        self.left_alone_ms.is_some_and(|from_ms| now_ms >= from_ms)
    }

    /// Time for which a candidate that we grant now may wait for others, if this may be a cold start.
    pub(super) const fn stands_back_ms(&self) -> u64 {
        if self.is_leaderless() && !self.over { WAITS_MS } else { 0 }
    }

    /// Whether a candidate waits for others. It has the grants of these slots, of so many: f+1 at least, and its time begins if
    /// it had never so many. Evicted ones are awaited, since they may be members again: our own log may be the old one. If
    /// their logs are `short`, it waits though it has had a leader.
    pub(super) fn awaits_others(
        &mut self,
        now_ms: u64,
        replicas: u8,
        granted: u16,
        short: bool,
    ) -> bool {
        if !self.is_leaderless() && !short {
            return false;
        }
        self.until_ms.get_or_insert(now_ms + WAITS_MS);
        let all = u16::MAX >> (u16::BITS - u32::from(replicas));
        let waits = !self.over && all & !(granted | self.blank) != 0;
        !guard!(Mutant::ColdStartDoesNotWait, !waits)
    }

    /// Ends the waiting when its time has come. Returns whether that is now.
    pub(super) fn watch(&mut self, now_ms: u64) -> bool {
        let over = !self.over && self.until_ms.is_some_and(|until_ms| now_ms >= until_ms);
        self.over |= over;
        over
    }

    /// We stand, perhaps once more: those that have just come have not been asked in this ballot.
    pub(super) fn stands(&mut self, now_ms: u64) {
        let waits = self.is_leaderless() && !self.over;
        if let Some(until_ms) = self.until_ms.as_mut().filter(|_| waits) {
            *until_ms = (*until_ms).max(now_ms + HEARD_WITHIN_MS);
        }
    }

    /// A candidate that has waited asks us to lead instead.
    pub(super) const fn waited_for_us(&mut self) {
        self.over |= self.is_leaderless() || self.until_ms.is_some();
    }

    /// This tick comes so long after the last one. A process that did not run has awaited nobody.
    pub(super) fn postpone(&mut self, passed_ms: u64, beat_ms: u64) {
        let late_ms = passed_ms.saturating_sub(SLEEPS_HEARTBEATS * beat_ms);
        for time_ms in [&mut self.left_alone_ms, &mut self.until_ms].into_iter().flatten() {
            *time_ms += late_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::control::GroupEffect;
    use super::super::election::GrantDecision;
    use super::super::testing::{Record, config, log_of, read_to};
    use super::super::{Cause, GroupLog};
    use super::*;
    use crate::ballot::{Acceptance, Ballot};
    use crate::detector::Pulse;
    use crate::ids::{GroupId, ReplicaId};
    use crate::view::View;

    const START_MS: u64 = 100;
    /// A ballot in which slot 0 leads.
    const LED: Ballot = Ballot::new(1, 0, 0);

    /// Slot 1 of three, which has begun with what its disk held, and stands.
    fn candidate() -> GroupLog<Record> {
        let mut log = GroupLog::new(config(ReplicaId::new(GroupId(0), 1), 0, 3), View::first(3));
        log.tick(START_MS);
        log.promised_before(Ballot::new(1, 0, 0));
        log.replayed();
        log.campaign(Cause::Silence);
        log
    }

    /// Ticks each millisecond, as a candidate that runs all the time.
    fn tick_until(log: &mut GroupLog<Record>, until_ms: u64) {
        (log.now_ms()..=until_ms).for_each(|now_ms| log.tick(now_ms));
    }

    fn granted(log: &mut GroupLog<Record>, slot: u8) -> Option<u8> {
        let named = log.named();
        log.granted(slot, 0, (Ballot::ZERO, 0), named)
    }

    #[test]
    fn a_quorum_waits_for_the_last_member_and_not_for_ever() {
        let mut log = candidate();
        assert_eq!(granted(&mut log, 2), None, "slot 0 may hold more");
        tick_until(&mut log, START_MS + WAITS_MS - 1);
        assert!(!log.waited_long_enough());
        log.tick(START_MS + WAITS_MS);
        assert!(log.waited_long_enough() && !log.waited_long_enough(), "once");
        assert_eq!(log.elected(), Some(1));
    }

    #[test]
    fn all_members_elect_at_once() {
        let mut log = candidate();
        assert_eq!(granted(&mut log, 2), None);
        assert_eq!(granted(&mut log, 0), Some(1));
    }

    #[test]
    fn who_has_lost_its_log_is_not_awaited_and_who_asks_for_its_admission_is() {
        let mut log = candidate();
        log.saw_learner(0, 1, false);
        assert_eq!(granted(&mut log, 2), None);
        log.saw_learner(0, 1, true);
        assert_eq!(granted(&mut log, 2), Some(1));
    }

    #[test]
    fn who_was_alone_for_long_waits_when_the_second_one_is_there() {
        let mut log = candidate();
        let late_ms = START_MS + 3 * WAITS_MS;
        tick_until(&mut log, late_ms);
        assert!(!log.waited_long_enough());
        assert_eq!(granted(&mut log, 2), None);
        tick_until(&mut log, late_ms + WAITS_MS - 1);
        assert!(!log.waited_long_enough());
        assert_eq!(granted(&mut log, 0), Some(1), "the third one is there in time");
    }

    #[test]
    fn time_in_which_the_candidate_did_not_run_does_not_count() {
        let mut log = candidate();
        assert_eq!(granted(&mut log, 2), None);
        let sleeps_ms = SLEEPS_HEARTBEATS * config(ReplicaId::new(GroupId(0), 1), 0, 3).beat_ms;
        let late_ms = START_MS + 3 * WAITS_MS;
        log.tick(late_ms);
        assert!(!log.waited_long_enough(), "it may have to read what has arrived");
        tick_until(&mut log, late_ms + WAITS_MS - sleeps_ms - 1);
        assert!(!log.waited_long_enough());
        tick_until(&mut log, late_ms + WAITS_MS - sleeps_ms);
        assert!(log.waited_long_enough());
    }

    #[test]
    fn an_engine_that_sleeps_for_lack_of_work_waits_no_longer() {
        let mut log = candidate();
        assert_eq!(granted(&mut log, 2), None);
        let sleeps_ms = SLEEPS_HEARTBEATS / 2 * config(ReplicaId::new(GroupId(0), 1), 0, 3).beat_ms;
        let mut ticks = (START_MS..).step_by(sleeps_ms as usize);
        let waited = ticks.find(|now_ms| {
            log.tick(*now_ms);
            log.waited_long_enough()
        });
        assert!(waited.is_some_and(|at_ms| at_ms < START_MS + WAITS_MS + sleeps_ms), "{waited:?}");
    }

    #[test]
    fn who_stands_again_at_the_end_of_its_time_waits_for_answers() {
        let mut log = candidate();
        assert_eq!(granted(&mut log, 2), None);
        tick_until(&mut log, START_MS + WAITS_MS - 1);
        log.campaign(Cause::Preempted);
        tick_until(&mut log, START_MS + WAITS_MS);
        assert!(!log.waited_long_enough());
        assert_eq!(granted(&mut log, 2), None);
        assert_eq!(granted(&mut log, 0), Some(1));
    }

    #[test]
    fn who_is_asked_to_lead_by_one_that_has_waited_does_not_wait_again() {
        let mut log = candidate();
        let asks = Ballot::new(9, 2, 0);
        log.promise(asks);
        let mut effects: Vec<GroupEffect> = Vec::new();
        log.succeed(asks, &mut effects);
        log.campaign(Cause::Transfer);
        assert_eq!(granted(&mut log, 2), Some(1));
    }

    /// Slot 1 of three, which has followed `LED` up to its third entry while slot 2 held the fifth, and stands.
    fn candidate_that_was_led(durable: bool) -> GroupLog<Record> {
        let mut log = log_of(3, durable);
        log.promise(LED);
        log.follow(LED, 1);
        read_to(&mut log, 3);
        log.acknowledged(2, Acceptance { tag: LED.tag(), index: 5 });
        log.campaign(Cause::Death);
        log
    }

    fn granted_with(log: &mut GroupLog<Record>, slot: u8, last: (Ballot, u64)) -> Option<u8> {
        let named = log.named();
        log.granted(slot, 0, last, named)
    }

    #[test]
    fn who_held_more_than_it_reports_elects_nobody_without_the_others() {
        let mut log = candidate_that_was_led(true);
        assert_eq!(granted_with(&mut log, 2, (LED, 4)), None, "slot 0 holds the fifth entry");
        for (ballot, index) in [(Ballot::new(0, 2, 0), 9), (LED, 4)] {
            log.acknowledged(2, Acceptance { tag: ballot.tag(), index });
            assert_eq!(log.elected(), None, "what it says now is of its older disk");
        }
        assert_eq!(granted_with(&mut log, 0, (LED, 5)), Some(0));
    }

    #[test]
    fn those_who_may_hold_more_are_not_awaited_for_ever() {
        let mut log = candidate_that_was_led(true);
        for _ in 0..2 {
            assert_eq!(granted_with(&mut log, 2, (LED, 4)), None);
            let until_ms = log.now_ms() + WAITS_MS;
            tick_until(&mut log, until_ms - 1);
            assert!(!log.waited_long_enough());
            log.tick(until_ms);
            assert!(log.waited_long_enough());
            assert_eq!(log.elected(), Some(2), "slot 0 may be gone for good");
            // Whoever leads next, and has held more, is waited for again.
            log.follow(LED, 3);
            log.campaign(Cause::Death);
        }
    }

    #[test]
    fn who_once_asked_for_a_state_and_has_one_is_awaited() {
        let mut log = log_of(3, true);
        log.saw_learner(0, 1, true);
        log.promise(LED);
        log.follow(LED, 1);
        read_to(&mut log, 3);
        log.acknowledged(2, Acceptance { tag: LED.tag(), index: 5 });
        log.campaign(Cause::Death);
        assert_eq!(granted_with(&mut log, 2, (LED, 4)), None);
    }

    #[test]
    fn who_reports_what_it_held_or_a_later_ballot_is_waited_for_by_nobody() {
        let later = Ballot::new(2, 2, 0);
        for last in [(LED, 5), (later, 4)] {
            assert_eq!(granted_with(&mut candidate_that_was_led(true), 2, last), Some(2));
        }
        let mut log = candidate_that_was_led(false);
        assert_eq!(granted_with(&mut log, 2, (LED, 4)), Some(2), "without disks, none is older");
    }

    #[test]
    fn who_grants_stands_back_for_as_long_as_the_candidate_may_wait() {
        let mut log = candidate();
        let granted_ms = START_MS + 2 * WAITS_MS;
        tick_until(&mut log, granted_ms);
        log.promise(Ballot::new(9, 2, 0));
        let stands = (1..=2 * WAITS_MS).find(|after_ms| {
            log.tick(granted_ms + after_ms);
            log.saw_pulse(2, Pulse::Beat);
            log.wants_to_lead().is_some()
        });
        assert!(stands.is_some_and(|after_ms| after_ms > WAITS_MS), "{stands:?}");
    }

    #[test]
    fn nobody_is_refused_for_a_leader_that_has_only_started_again() {
        let mut log = candidate();
        let (led, asked) = (Ballot::new(9, 0, 0), Ballot::new(10, 2, 0));
        log.promise(led);
        log.follow(led, 1);
        assert_eq!(log.judge(asked, false, false), GrantDecision::Refuse);
        log.replayed();
        assert_eq!(log.judge(asked, false, false), GrantDecision::Grant);
    }

    #[test]
    fn when_half_of_the_time_is_over_somebody_stands_though_all_think_that_another_leads() {
        let mut log = candidate();
        let led = Ballot::new(9, 0, 0);
        log.promise(led);
        log.follow(led, 1);
        log.replayed();
        let mut now_ms = START_MS;
        let mut stands = |log: &mut GroupLog<Record>, until_ms| {
            while now_ms < until_ms && log.wants_to_lead().is_none() {
                now_ms += 5;
                log.tick(now_ms);
                log.saw_pulse(0, Pulse::Beat);
                log.waited_long_enough();
            }
            log.wants_to_lead()
        };
        assert_eq!(stands(&mut log, START_MS + LEADS_WITHIN_MS - 5), None);
        assert_eq!(stands(&mut log, START_MS + LEADS_WITHIN_MS + 500), Some(Cause::Silence));
    }

    #[test]
    fn who_has_had_a_leader_since_its_start_does_not_wait() {
        let mut log = candidate();
        let led = Ballot::new(9, 0, 0);
        log.promise(led);
        log.follow(led, 1);
        log.campaign(Cause::Death);
        assert_eq!(granted(&mut log, 2), Some(1));
    }
}
