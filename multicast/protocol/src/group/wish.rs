//! An operator's request that this replica lead.

use alloc::vec::Vec;

use super::record::LogRecord;
use super::{Cause, GroupEffect, GroupLog, Role};

/// Time for which this replica tries to lead because an operator wants it. The operator waits as long.
const WISH_MS: u64 = 10_000;
/// Time after which an unsuccessful campaign is repeated, in timeouts.
const TRY_AGAIN: u64 = 20;

/// An operator's request that is not fulfilled yet and for which the operator still waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish(Option<Pending>);

#[derive(Clone, Copy, Debug)]
struct Pending {
    until_ms: u64,
    /// The earliest time of the next campaign; `None` before the first.
    next_ms: Option<u64>,
}

impl<R: LogRecord> GroupLog<R> {
    /// Records an operator's request. From now on, [`pursue_wish`](Self::pursue_wish) tries to lead.
    pub(crate) fn is_wanted_to_lead(&mut self) {
        if !self.leads() {
            let until_ms = self.now_ms + WISH_MS;
            self.wish = Wish(Some(Pending { until_ms, next_ms: None }));
        }
    }

    /// Sets out to lead because an operator wants it, as soon as possible. One campaign may not be enough: a replica
    /// that was paused may have to take a state first, and another candidate may win. `awaits_leader` says whether the
    /// header of the leader that we granted has yet to arrive; `trusted` says whether our state may be the group's.
    pub(crate) fn pursue_wish<E: From<GroupEffect>>(
        &mut self,
        trusted: bool,
        awaits_leader: bool,
        effects: &mut Vec<E>,
    ) {
        let Some(wish) = self.wish.0 else { return };
        let now = self.now_ms;
        if now >= wish.until_ms || self.won().is_some() {
            self.wish = Wish::default();
            return;
        }
        // A replica that lacks entries which the leader's log no longer contains cannot lead: it would only depose a
        // leader that is well.
        let whole = self.lagging().is_none() && !self.takes_state() && !self.is_silent();
        let due = wish.next_ms.is_none_or(|next| now >= next && !awaits_leader);
        if whole && due && self.role == Role::Follower {
            let next_ms = Some(now + TRY_AGAIN * self.config.timeout_ms);
            self.wish = Wish(Some(Pending { next_ms, ..wish }));
            if trusted {
                self.set_out(Cause::Operator, effects);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::super::testing::{Record, config};
    use super::super::transfer::{CopyId, Part};
    use super::super::{Closing, GroupRecord};
    use super::*;
    use crate::ballot::Ballot;
    use crate::group::uncommitted::Uncommitted;
    use crate::ids::{GroupId, ReplicaId};
    use crate::view::View;

    const START_MS: u64 = 1_000;
    /// The ballot in which slot 0 leads, granted by slot 1.
    const LED: Ballot = Ballot::new(1, 0, 0);

    /// Slot 1 of three, which follows slot 0.
    fn log() -> GroupLog<Record> {
        let me = ReplicaId::new(GroupId(0), 1);
        let mut log = GroupLog::new(config(me, 0, 3), View::first(3));
        log.tick(START_MS);
        log.promise(LED);
        log.follow(LED, 1);
        log
    }

    /// Whether it sets out for the operator at that time.
    fn sets_out(log: &mut GroupLog<Record>, now_ms: u64, trusted: bool, awaits: bool) -> bool {
        log.tick(now_ms);
        let mut effects: Vec<GroupEffect> = Vec::new();
        log.pursue_wish(trusted, awaits, &mut effects);
        match effects[..] {
            [] => false,
            [GroupEffect::CloseLog { then: Closing::SetOut(Cause::Operator) }] => true,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wish_is_pursued_at_once_and_again_after_twenty_timeouts() {
        let mut log = log();
        assert!(!sets_out(&mut log, START_MS, true, false), "nobody wants it");
        log.is_wanted_to_lead();
        assert!(sets_out(&mut log, START_MS, true, true), "the first waits for no leader");
        let next = START_MS + 20 * 20;
        assert!(!sets_out(&mut log, next - 1, true, false));
        assert!(!sets_out(&mut log, next, true, true), "another was let lead and has not begun");
        assert!(sets_out(&mut log, next + 5, true, false));
    }

    #[test]
    fn a_wish_ends_when_the_operator_waits_no_more() {
        for (now_ms, pursued) in [(START_MS + 9_999, true), (START_MS + 10_000, false)] {
            let mut log = log();
            log.is_wanted_to_lead();
            assert_eq!(sets_out(&mut log, now_ms, true, false), pursued, "at {now_ms}");
        }
    }

    #[test]
    fn a_wish_ends_when_we_lead_and_our_first_entry_is_committed() {
        let mut log = log();
        log.is_wanted_to_lead();
        log.campaign(Cause::Operator);
        log.granted(2, 0, (log.last_birth(), log.last_index()), vec![0; 3]);
        log.begin_to_lead();
        let (index, birth, time_ms) = log.next_entry();
        log.push(Uncommitted { index, birth, time_ms, record: GroupRecord::NewBallot.into() });
        log.led_from(index);
        log.pursue_wish(true, false, &mut Vec::<GroupEffect>::new());
        assert!(log.wish.0.is_some(), "another may still win");
        log.commit_to(index);
        assert!(log.won().is_some());
        log.pursue_wish(true, false, &mut Vec::<GroupEffect>::new());
        assert!(log.wish.0.is_none());
        log.is_wanted_to_lead();
        assert!(log.wish.0.is_none(), "we lead already");
    }

    #[test]
    fn a_wish_waits_until_we_can_lead() {
        let mut log = log();
        log.is_wanted_to_lead();
        log.lags_behind(LED);
        assert!(!sets_out(&mut log, START_MS, true, false), "it lacks a state");
        let copy = CopyId { sender: 0, number: 1 };
        log.takes_part(0, &Part { incarnation: 0, copy, number: 0 }, false);
        log.lags_no_more();
        assert!(!sets_out(&mut log, START_MS + 1, true, false), "it takes a state");
        log.stops_receiving();
        assert!(!sets_out(&mut log, START_MS + 2, false, false), "its state is not the group's");
        // The attempt above counted as a campaign.
        assert!(sets_out(&mut log, START_MS + 402, true, false));
        log.campaign(Cause::Operator);
        assert!(!sets_out(&mut log, START_MS + 900, true, false), "it is a candidate");
    }

    #[test]
    fn a_learner_does_not_lead_for_an_operator_before_it_is_admitted() {
        for (incarnation, leads) in [(0, true), (7, false)] {
            let me = ReplicaId::new(GroupId(0), 1);
            let mut log: GroupLog<Record> =
                GroupLog::new(config(me, incarnation, 3), View::first(3));
            log.tick(START_MS);
            log.restore(4, LED, 0, View::first(3), LED);
            log.is_wanted_to_lead();
            assert_eq!(sets_out(&mut log, START_MS, true, false), leads, "{incarnation}");
        }
    }

    #[test]
    fn a_wish_outlives_the_log_that_a_state_replaces() {
        let mut log = log();
        log.is_wanted_to_lead();
        let mut restored = log.blank();
        assert!(!sets_out(&mut restored, START_MS, true, false), "it has no state");
        restored.restore(4, LED, 0, View::first(3), LED);
        assert!(sets_out(&mut restored, START_MS + 1, true, false));
        let mut anew = log.anew(View::first(3), 1);
        assert!(sets_out(&mut anew, START_MS + 1_000, true, false), "its lease is over");
    }
}
