//! Whether a leader has all that its group is done with, whom its state is of use to, and who leads instead.

use alloc::vec::Vec;

use super::followers::FollowerProgress;
use super::ordering::{Next, Ordering};
use super::record::{GroupRecord, LogRecord};
use super::spread::TRANSFER_TIMEOUTS;
use super::{GroupEffect, GroupLog};
use crate::divergence::Slots;
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// Whether all of our group that counted have applied what we have not even delivered: what it rests on may be told
/// nobody any more. Only a state helps then.
pub(crate) fn is_lagging(next: Option<Next>, ordering: &impl Ordering) -> bool {
    next.is_some_and(|next| next.least <= ordering.done())
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: whether we have delivered all that our group can be done with. **Invariant.** A group
    /// is done with what all have applied that its log waits for. While it did not wait for us, others may
    /// have let go of what we need to deliver what was logged until it did again, or until we led.
    pub(crate) fn is_whole(&self, ordering: &impl Ordering) -> bool {
        let evict = GroupRecord::Evict { slot: self.config.me.slot };
        let mut uncommitted = self.uncommitted();
        let evicted = uncommitted.any(|entry| entry.record.of_group() == Some(evict));
        let until = if evicted { u64::MAX } else { self.members.recovery_barrier };
        let until = until.min(self.entries.first);
        let lacks = |index: u64, record: &R| index < until && record.depends_on_others();
        until == 0
            || !ordering.waits_for_others_below(until)
                && !self.uncommitted().any(|entry| lacks(entry.index, &entry.record))
    }

    /// As leader: whether our state is of use to a replica that has applied so much. It is not if we lack what
    /// others tell nobody any more, and somebody can lead who does not. If we cannot tell whether we lack
    /// something, we give our state to nobody who has applied more: it may be the last to have that. If we can,
    /// what it has applied and we have not is not settled, and is delivered again.
    pub(super) fn may_send_state(
        &mut self,
        applied: Rank,
        next: Option<Next>,
        ordering: &impl Ordering,
    ) -> bool {
        let ours = self.applied_by(self.config.me.slot);
        let whole = self.is_whole(ordering) || self.has_led_for_long() && applied <= ours;
        self.paths.not_whole += u64::from(!whole);
        guard!(Mutant::LaggingSendsState, whole)
            && !is_lagging(next, ordering)
            && self.transferee(next, ordering).is_none()
    }

    /// As leader that is left behind: we were elected for our log, having been evicted before, and
    /// cannot be given a state while we lead. The slot that shall lead instead is the one that has
    /// applied most. Who settled what we lack may have died before we were told; then what tells is
    /// that we cannot deliver for long what somebody has applied. One that is evicted is no transferee: it may
    /// lack what our log has let go of, and then neither can lead without the state of the other. Those
    /// that count have all that our group is done with; what it is not, others still tell. Nor is one a transferee
    /// whose log we cannot write, since ours does not reach back to its end: it could not take over our log
    /// either, and would ask us to lead. That one [takes our state](Self::may_send_state), or is
    /// [served by another](Self::needs_another_to_serve).
    pub(crate) fn transferee(&self, next: Option<Next>, ordering: &impl Ordering) -> Option<u8> {
        if !self.leads() || planted(Mutant::LaggingLeads) {
            return None;
        }
        let counts =
            |slot: &u8| !self.members.view.member(*slot).evicted && !self.is_changing(*slot);
        // An incarnation that is not let in cannot lead, whatever the state holds that it was given.
        let admitted = |slot: &u8| {
            let follower = self.follower(*slot);
            follower.is_some_and(|follower| {
                guard!(
                    Mutant::TransfereeNotAdmitted,
                    self.members.view.names(*slot, follower.incarnation)
                )
            })
        };
        let counted = self.others().filter(counts).filter(admitted);
        let well = counted.filter(|slot| !self.detector.suspects(*slot));
        let transferee = well.max_by_key(|slot| self.applied_by(*slot))?;
        let applied = self.applied_by(transferee);
        let blocked = next.is_some_and(|Next { least, since_ms }| {
            let done = least <= ordering.done();
            let for_long = self.now_ms >= since_ms + TRANSFER_TIMEOUTS * self.config.timeout_ms;
            applied >= least && (done || for_long)
        });
        let ahead = applied > self.applied_by(self.config.me.slot);
        (blocked || ahead && self.has_led_for_long() && !self.is_whole(ordering))
            .then_some(transferee)
    }

    /// As leader: who shall lead instead, so that a replica is served that we can give neither our log nor our
    /// state: one whose log reaches back to where that one's ends.
    pub(crate) fn other_server(&self, ordering: &impl Ordering) -> Option<u8> {
        let behind = self.others().find(|slot| self.needs_another_to_serve(*slot, ordering))?;
        let end = self.followers.out_of_reach[usize::from(behind)]?;
        self.others().find(|slot| {
            let counts = |follower: &FollowerProgress| {
                let member = self.members.view.member(*slot);
                follower.held_from <= end
                    && follower.incarnation == member.incarnation
                    && !member.evicted
            };
            self.follower(*slot).is_some_and(counts) && !self.detector.suspects(*slot)
        })
    }

    /// As leader whose log does not reach back to where that slot's ends: whether another shall lead, whose log
    /// does. The slot has applied more than we have, and may be the last to have it, for all that we can tell:
    /// then it must not take our state, and cannot take over our log. Once it has read the rest of the log, from
    /// another, it can lead, and give its state to all.
    fn needs_another_to_serve(&self, slot: u8, ordering: &impl Ordering) -> bool {
        let ahead = self.known_applied(slot) > self.applied_by(self.config.me.slot);
        self.leads()
            && ahead
            && !self.detector.suspects(slot)
            && self.has_led_for_long()
            && !self.is_whole(ordering)
    }

    /// As leader: asks another to lead.
    pub(crate) fn timeout_now(&self, to: u8) -> GroupEffect {
        GroupEffect::TimeoutNow { to, ballot: self.ballot() }
    }

    /// As candidate that is elected for the log of another, which it cannot adopt: that one shall lead, and give us its state.
    /// It may never find the time to set out by itself: we would ask it again and again.
    pub(crate) fn cannot_adopt<E: From<GroupEffect>>(&mut self, of: u8, effects: &mut Vec<E>) {
        let ballot = self.promised();
        self.lags_behind(ballot);
        effects.push(GroupEffect::TimeoutNow { to: of, ballot }.into());
    }

    /// Our state is not the group's: as leader, has one of those lead who hold that; then needs the leader's.
    pub(crate) fn gives_up_state<E: From<GroupEffect>>(
        &mut self,
        held_by: Slots,
        effects: &mut Vec<E>,
    ) {
        if self.leads() {
            let well = |slot: &u8| {
                !self.detector.suspects(*slot) && !self.members.view.member(*slot).evicted
            };
            let transferee = held_by.iter().find(well);
            effects.extend(transferee.map(|to| self.timeout_now(to).into()));
        } else if self.leader().is_some() {
            self.lags_behind(self.promised());
        }
    }

    /// As leader: the slot that shall lead instead, if it is time to hand over: one that holds and has applied what others
    /// have and is not among those that `lag` with their logs, while nobody is sent our state.
    pub(crate) fn hands_over(&self, lag: Slots, ordering: &impl Ordering) -> Option<u8> {
        let well = |slot: &u8| self.applied_by(*slot) >= ordering.done() && !lag.contains(*slot);
        self.preferred().filter(well).filter(|_| self.sends_state().is_none())
    }
}

#[cfg(test)]
mod tests {

    use super::super::Cause;
    use super::super::testing::{Record, leader, log};
    use super::*;
    use crate::ballot::Ballot;
    use crate::detector::Pulse;

    /// The ballot that slot 1 has let slot 0 lead in.
    const LED: Ballot = Ballot::new(1, 0, 0);

    fn follower() -> GroupLog<Record> {
        let mut log = log();
        log.promise(LED);
        log.follow(LED, 1);
        log
    }

    fn diverged(log: &mut GroupLog<Record>, held_by: &[u8]) -> Vec<GroupEffect> {
        let mut effects = Vec::new();
        log.gives_up_state(held_by.iter().copied().collect(), &mut effects);
        effects
    }

    #[test]
    fn a_leader_that_has_diverged_asks_the_first_that_is_well_and_counts() {
        let mut log = leader();
        let ballot = log.ballot();
        assert_eq!(diverged(&mut log, &[2, 3]), [GroupEffect::TimeoutNow { to: 2, ballot }]);
        log.saw_pulse(2, Pulse::Dead);
        log.members.view.evict(3);
        assert_eq!(diverged(&mut log, &[2, 3]), []);
        assert_eq!(diverged(&mut log, &[2, 3, 4]), [GroupEffect::TimeoutNow { to: 4, ballot }]);
        assert_eq!(log.lagging(), None, "it takes no state while it leads");
    }

    #[test]
    fn a_follower_that_has_diverged_needs_the_state_of_its_leader() {
        let mut candidate = log();
        candidate.campaign(Cause::Start);
        let mut own = follower();
        let ours = Ballot::new(2, 1, 0);
        own.promise(ours);
        own.follow(ours, 1);
        #[rustfmt::skip]
        let cases = [
            // it         needs the state of   because
            (follower(),  Some(LED),           "it follows"),
            (log(),       None,                "nobody leads"),
            (candidate,   None,                "it may lead itself"),
            (own,         None,                "it is to lead itself"),
        ];
        for (mut log, lagging, because) in cases {
            assert_eq!(diverged(&mut log, &[0, 2]), [], "{because}");
            assert_eq!(log.lagging(), lagging, "{because}");
        }
    }

    #[test]
    fn a_candidate_asks_whose_log_it_cannot_adopt_and_needs_a_state() {
        let mut log = follower();
        let ballot = log.campaign(Cause::Silence);
        let mut effects: Vec<GroupEffect> = Vec::new();
        log.cannot_adopt(3, &mut effects);
        assert_eq!(effects, [GroupEffect::TimeoutNow { to: 3, ballot }]);
        assert_eq!(log.lagging(), Some(ballot));
    }
}
