//! Whether a leader has all that its group is done with, whom its state is of use to, and who leads instead.

use super::GroupLog;
use super::followers::Fed;
use super::ordering::{Next, Ordering};
use super::record::{GroupRecord, LogRecord};
use super::spread::HEIR_PATIENCE;
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// Whether all of our group that counted have applied what we have not even delivered: what it rests on may be told
/// nobody any more. Only a state helps then.
pub(crate) fn is_left_behind(next: Option<Next>, ordering: &impl Ordering) -> bool {
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
        let lacks = |index: u64, record: &R| index < until && record.rests_on_others();
        until == 0
            || !ordering.waits_for_others_below(until)
                && !self.uncommitted().any(|entry| lacks(entry.index, &entry.record))
    }

    /// As leader: whether our state is of use to a replica that has applied so much. It is not if we lack what
    /// others tell nobody any more, and somebody can lead who does not. If we cannot tell whether we lack
    /// something, we give our state to nobody who has applied more: it may be the last to have that. If we can,
    /// what it has applied and we have not is not settled, and is delivered again.
    pub(super) fn may_teach(
        &mut self,
        applied: Rank,
        next: Option<Next>,
        ordering: &impl Ordering,
    ) -> bool {
        let ours = self.applied_by(self.config.me.slot);
        let whole = self.is_whole(ordering) || self.has_led_for_long() && applied <= ours;
        self.paths.not_whole += u64::from(!whole);
        guard!(Mutant::LeftBehindTeaches, whole)
            && !is_left_behind(next, ordering)
            && self.heir(next, ordering).is_none()
    }

    /// As leader that is left behind: we were elected for our log, having been evicted before, and
    /// cannot be given a state while we lead. The slot that shall lead instead is the one that has
    /// applied most. Who settled what we lack may have died before we were told; then what tells is
    /// that we cannot deliver for long what somebody has applied. One that is evicted is no heir: it may
    /// lack what our log has let go of, and then neither can lead without the state of the other. Those
    /// that count have all that our group is done with; what it is not, others still tell. Nor is one an heir
    /// whose log we cannot write, since ours does not reach back to its end: it could not take over our log
    /// either, and would ask us to lead. That one [takes our state](Self::may_teach), or is
    /// [served by another](Self::needs_another_to_serve).
    pub(crate) fn heir(&self, next: Option<Next>, ordering: &impl Ordering) -> Option<u8> {
        if !self.leads() || planted(Mutant::LeftBehindLeads) {
            return None;
        }
        let counts =
            |slot: &u8| !self.members.view.member(*slot).evicted && !self.is_changing(*slot);
        // An incarnation that is not let in cannot lead, whatever the state holds that it was given.
        let let_in = |slot: &u8| {
            let fed = self.follower(*slot);
            fed.is_some_and(|fed| {
                guard!(Mutant::HeirNotLetIn, self.members.view.names(*slot, fed.incarnation))
            })
        };
        let counted = self.others().filter(counts).filter(let_in);
        let well = counted.filter(|slot| !self.detector.suspects(*slot));
        let heir = well.max_by_key(|slot| self.applied_by(*slot))?;
        let applied = self.applied_by(heir);
        let stuck = next.is_some_and(|Next { least, since_ms }| {
            let done = least <= ordering.done();
            let for_long = self.now_ms >= since_ms + HEIR_PATIENCE * self.config.patience_ms;
            applied >= least && (done || for_long)
        });
        let ahead = applied > self.applied_by(self.config.me.slot);
        (stuck || ahead && self.has_led_for_long() && !self.is_whole(ordering)).then_some(heir)
    }

    /// As leader: who shall lead instead, so that a replica is served that we can give neither our log nor our
    /// state: one whose log reaches back to where that one's ends.
    pub(crate) fn other_server(&self, ordering: &impl Ordering) -> Option<u8> {
        let behind = self.others().find(|slot| self.needs_another_to_serve(*slot, ordering))?;
        let end = self.followers.out_of_reach[usize::from(behind)]?;
        self.others().find(|slot| {
            let counts = |fed: &Fed| {
                let member = self.members.view.member(*slot);
                fed.held_from <= end && fed.incarnation == member.incarnation && !member.evicted
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

    /// As leader: the slot that shall lead instead, if it is time to hand over: one that holds and has applied what others
    /// have.
    pub(crate) fn hands_over(&self, ordering: &impl Ordering) -> Option<u8> {
        self.preferred().filter(|slot| self.applied_by(*slot) >= ordering.done())
    }
}
