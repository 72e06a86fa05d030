//! Whether a leader has everything that its group is done with, who may receive its state, and who should lead instead.

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

/// Whether all replicas of our group that counted have applied a message that this replica has not delivered. Other
/// groups may no longer send what it depends on; then only a state transfer helps.
pub(crate) fn is_lagging(next: Option<Next>, ordering: &impl Ordering) -> bool {
    next.is_some_and(|next| next.least <= ordering.done())
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: whether we have delivered everything that our group can be done with. **Invariant.** A group is done
    /// with what all replicas have applied for which its log waits. While the log did not wait for this replica, others
    /// may have dropped what we need to deliver the entries from before our `Join`, or from before we led.
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

    /// As leader: whether a replica that has applied everything up to `applied` may receive our state. It may not if we
    /// lack what others no longer send and a replica that does not lack it can lead. If we cannot tell whether we lack
    /// something, no replica that has applied more than we have receives our state: it may be the last one with those
    /// deliveries. If we can tell, the group is not done with what that replica has applied and we have not, and it is
    /// delivered again.
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

    /// As leader that lags: the slot that should lead instead, which is the one that has applied most. A replica that
    /// was evicted before may be elected for its log, and cannot receive a state while it leads. The replica that
    /// settled what we lack may have crashed before it reported so; then the sign is that for long we cannot deliver
    /// what another replica has applied. An evicted replica is no transferee: it may lack entries that our log no
    /// longer contains, and then neither of the two can lead without the state of the other. The replicas that count
    /// have everything that our group is done with, and what it is not done with, other groups still send. A replica
    /// whose log we cannot write, because ours does not reach back to its end, is no transferee either: it could not
    /// adopt our log, and would ask us to lead. Such a replica [receives our state](Self::may_send_state), or is
    /// [served by another](Self::needs_another_to_serve).
    pub(crate) fn transferee(&self, next: Option<Next>, ordering: &impl Ordering) -> Option<u8> {
        if !self.leads() || planted(Mutant::LaggingLeads) {
            return None;
        }
        let counts =
            |slot: &u8| !self.members.view.member(*slot).evicted && !self.is_changing(*slot);
        // An incarnation that is not admitted cannot lead, whatever the state that it received contains.
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

    /// As leader: the slot that should lead instead, so that a replica is served to which we can give neither our log
    /// nor our state. It is one whose log reaches back to the end of that replica's log.
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

    /// As leader whose log does not reach back to the end of that slot's log: whether a replica whose log does should
    /// lead instead. The slot has applied more than we have, and as far as we can tell it may be the last one with
    /// those deliveries. So it must not take our state, and it cannot adopt our log. Once it has read the rest of the
    /// log from another leader, it can lead and send its state to all.
    fn needs_another_to_serve(&self, slot: u8, ordering: &impl Ordering) -> bool {
        let ahead = self.known_applied(slot) > self.applied_by(self.config.me.slot);
        self.leads()
            && ahead
            && !self.detector.suspects(slot)
            && self.has_led_for_long()
            && !self.is_whole(ordering)
    }

    /// As leader: the request to another replica to lead.
    pub(crate) fn timeout_now(&self, to: u8) -> GroupEffect {
        GroupEffect::TimeoutNow { to, ballot: self.ballot() }
    }

    /// As candidate that was elected with the log of another replica, and cannot adopt that log: asks the other to lead
    /// and to send us its state. Without the request it might never set out by itself, because we would ask for its
    /// grant again and again.
    pub(crate) fn cannot_adopt<E: From<GroupEffect>>(&mut self, of: u8, effects: &mut Vec<E>) {
        let ballot = self.promised();
        self.lags_behind(ballot);
        effects.push(GroupEffect::TimeoutNow { to: of, ballot }.into());
    }

    /// Our state differs from the group's. A leader asks a replica that holds the group's state to lead. A follower
    /// then needs its leader's state.
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

    /// As leader: the slot that should lead instead, if it is time to hand over. It holds and has applied what our
    /// group is done with, and is not in `lag`; and no replica is being sent our state.
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

    /// The ballot in which slot 0 leads, granted by slot 1.
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
