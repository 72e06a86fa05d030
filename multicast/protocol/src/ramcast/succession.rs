//! Whether a leader has all that its group is done with, whom its state is of use to, and who leads instead.

use super::Ramcast;
use crate::group::GroupRecord;
use crate::group::spread::HEIR_PATIENCE;
use crate::group::uncommitted::Uncommitted;
use crate::guard;
use crate::ids::GroupSet;
use crate::mutants::{Mutant, planted};
use crate::step::Record;
use crate::timestamp::Timestamp;

impl Ramcast {
    /// Whether all of our group that counted have applied what we have not even delivered: what it
    /// rests on may be told nobody any more. Only a state helps then.
    pub fn is_left_behind(&mut self) -> bool {
        let settled = self.shared.settled_by(self.group());
        self.order.head().is_some_and(|(bound, _)| bound <= settled)
    }

    /// As leader: whether we have delivered all that our group can be done with. **Invariant.** A group
    /// is done with what all have applied that its log waits for. While it did not wait for us, others may
    /// have let go of what we need to deliver what was logged until it did again, or until we led.
    pub(super) fn is_whole(&self) -> bool {
        let evict = Record::Group(GroupRecord::Evict { slot: self.config.me.slot });
        let evicted = self.log.uncommitted().any(|entry| entry.record == evict);
        let until = if evicted { u64::MAX } else { self.log.doubtful() };
        let until = until.min(self.log.first_index());
        let lacks = |to: GroupSet, index: u64| to.has_several() && index < until;
        let logged = |entry: &Uncommitted<Record>| match entry.record {
            Record::Local { destinations, .. } => lacks(destinations, entry.index),
            _ => false,
        };
        until == 0
            || !self.order.iter().any(|pending| lacks(pending.destinations, pending.index))
                && !self.log.uncommitted().any(logged)
    }

    /// As leader: whether our state is of use to a replica that has applied so much. It is not if we lack what
    /// others tell nobody any more, and somebody can lead who does not. If we cannot tell whether we lack
    /// something, we give our state to nobody who has applied more: it may be the last to have that. If we can,
    /// what it has applied and we have not is not settled, and is delivered again.
    pub fn may_teach(&mut self, applied: Timestamp) -> bool {
        let ours = self.shared.applied_by(self.config.me.slot);
        let whole = self.is_whole() || self.log.has_led_for_long() && applied <= ours;
        self.paths.not_whole += u64::from(!whole);
        guard!(Mutant::LeftBehindTeaches, whole) && !self.is_left_behind() && self.heir().is_none()
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
    pub fn heir(&mut self) -> Option<u8> {
        if !self.log.leads() || planted(Mutant::LeftBehindLeads) {
            return None;
        }
        let counts =
            |slot: &u8| !self.log.view().member(*slot).evicted && !self.log.is_changing(*slot);
        // A life that is not let in cannot lead, whatever the state holds that it was given.
        let let_in = |slot: &u8| {
            let fed = self.log.follower(*slot);
            fed.is_some_and(|fed| {
                guard!(Mutant::HeirNotLetIn, self.log.view().names(*slot, fed.incarnation))
            })
        };
        let counted = self.log.others().filter(counts).filter(let_in);
        let well = counted.filter(|slot| !self.log.detector().suspects(*slot));
        let heir = well.max_by_key(|slot| self.shared.applied_by(*slot))?;
        let applied = self.shared.applied_by(heir);
        let stuck = self.order.head().is_some_and(|(bound, since_ms)| {
            let settled = bound <= self.shared.settled_by(self.group());
            let for_long = self.log.now_ms() >= since_ms + HEIR_PATIENCE * self.config.patience_ms;
            applied >= bound && (settled || for_long)
        });
        let ahead = applied > self.shared.applied_by(self.config.me.slot);
        (stuck || ahead && self.log.has_led_for_long() && !self.is_whole()).then_some(heir)
    }

    /// As leader whose log does not reach back to where that slot's ends: whether another shall lead, whose log
    /// does. The slot has applied more than we have, and may be the last to have it, for all that we can tell:
    /// then it must not take our state, and cannot take over our log. Once it has read the rest of the log, from
    /// another, it can lead, and give its state to all.
    pub fn needs_another_to_serve(&self, slot: u8) -> bool {
        let ahead = self.shared.known_applied(slot) > self.shared.applied_by(self.config.me.slot);
        self.log.leads()
            && ahead
            && !self.log.detector().suspects(slot)
            && self.log.has_led_for_long()
            && !self.is_whole()
    }

    /// As leader: the slot that shall lead instead, if it is time to hand over: one that holds and has applied what others
    /// have.
    pub fn hands_over(&self) -> Option<u8> {
        let settled = self.shared.settled_by(self.group());
        self.log.hands_over().filter(|slot| self.shared.applied_by(*slot) >= settled)
    }
}
