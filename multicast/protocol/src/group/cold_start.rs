//! The start of a whole group: who is to be elected first waits for the log of everyone.
//!
//! **Why.** A disk may be an older one than its replica has spoken of: a copy that was put back, or a medium that lied
//! about a flush. Such a log votes, and with that of a replica which had lagged it makes a quorum in which an
//! acknowledged entry is missing. The replica that holds the entry is there as well after a loss of power, perhaps a
//! moment later. So a candidate that has not had a leader since its start takes f+1 grants only when [`WAITS_MS`] are
//! over, and until then only those of all slots that have a log.
//!
//! Nobody knows by its log who leads. Before it has had a leader since its start, a replica refuses no candidate because
//! the leader of its last ballot seems well: that one may have started, too, and does not lead any more. And when half of
//! the time is over it stands itself, as the one that should may have forgotten that it led.
//!
//! This is no promise: if the one replica that holds the entry returns later than that, the group goes on without it.
//! Decision 0024 lists what else it does not cover.

use crate::guard;
use crate::mutants::Mutant;

/// Time for which the others may be awaited, from our own start.
const WAITS_MS: u64 = 3_000;
/// Time from our own start within which a leader that has not started itself would have written to us. The rest is for
/// elections in which all are heard.
const LEADS_WITHIN_MS: u64 = WAITS_MS / 2;

/// Whether we have had a leader since we began with what our disk held.
pub(super) struct ColdStart {
    /// Until then all members are awaited, if we have had none.
    until_ms: Option<u64>,
    /// That time is over.
    over: bool,
    /// Slots, as bits, whose present incarnation has no log to report.
    blank: u16,
}

impl ColdStart {
    /// A replica without a disk has no cold start.
    pub(super) const fn new() -> Self {
        Self { until_ms: None, over: false, blank: 0 }
    }

    /// We begin with what our disk held.
    pub(super) const fn begin(&mut self, now_ms: u64) {
        (self.until_ms, self.over) = (Some(now_ms + WAITS_MS), false);
    }

    /// Somebody leads us, or we lead.
    pub(super) const fn end(&mut self) {
        self.until_ms = None;
    }

    /// A slot's incarnation asks for a state: it has none.
    pub(super) const fn saw_blank(&mut self, slot: u8) {
        self.blank |= 1 << slot;
    }

    /// Whether we have had no leader since we began with our disk.
    pub(super) const fn is_leaderless(&self) -> bool {
        self.until_ms.is_some()
    }

    /// Whether we have had none, though a leader would have written to us by now.
    pub(super) fn is_left_alone(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until_ms| now_ms + WAITS_MS - LEADS_WITHIN_MS >= until_ms)
    }

    /// Until when members are awaited, if they are.
    pub(super) fn awaits_until_ms(&self) -> Option<u64> {
        self.until_ms.filter(|_| !self.over)
    }

    /// Whether a candidate with the grants of these slots, of so many, waits for others. Evicted ones may be members again:
    /// our own log may be the old one.
    pub(super) fn awaits_others(&self, replicas: u8, granted: u16) -> bool {
        let all = u16::MAX >> (u16::BITS - u32::from(replicas));
        let awaited = all & !(granted | self.blank);
        let waits = self.awaits_until_ms().is_some() && awaited != 0;
        !guard!(Mutant::ColdStartDoesNotWait, !waits)
    }

    /// Ends the waiting when its time has come. Returns whether that is now.
    pub(super) fn watch(&mut self, now_ms: u64) -> bool {
        let over = self.awaits_until_ms().is_some_and(|until_ms| now_ms >= until_ms);
        self.over |= over;
        over
    }
}

#[cfg(test)]
mod tests {
    use super::super::election::GrantDecision;
    use super::super::testing::{Record, config};
    use super::super::{Cause, GroupLog};
    use super::*;
    use crate::ballot::Ballot;
    use crate::detector::Pulse;
    use crate::ids::{GroupId, ReplicaId};
    use crate::view::View;

    const START_MS: u64 = 100;

    /// Slot 1 of three, which has begun with what its disk held, and stands.
    fn candidate() -> GroupLog<Record> {
        let mut log = GroupLog::new(config(ReplicaId::new(GroupId(0), 1), 0, 3), View::first(3));
        log.tick(START_MS);
        log.promised_before(Ballot::new(1, 0, 0));
        log.replayed();
        log.campaign(Cause::Silence);
        log
    }

    fn granted(log: &mut GroupLog<Record>, slot: u8) -> Option<u8> {
        let named = log.named();
        log.granted(slot, 0, (Ballot::ZERO, 0), named)
    }

    #[test]
    fn a_quorum_waits_for_the_last_member_and_not_for_ever() {
        let mut log = candidate();
        assert_eq!(granted(&mut log, 2), None, "slot 0 may hold more");
        log.tick(START_MS + WAITS_MS - 1);
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
    fn who_has_lost_its_log_is_not_awaited() {
        let mut log = candidate();
        log.saw_learner(0, 1);
        assert_eq!(granted(&mut log, 2), Some(1));
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
        assert_eq!(stands(&mut log, START_MS + WAITS_MS - 1_000), Some(Cause::Silence));
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
