//! Whether a leader has all that its group is done with, whom its state is of use to, and who leads instead.

use super::{Ramcast, Uncommitted};
use crate::guard;
use crate::ids::GroupSet;
use crate::mutants::{Mutant, planted};
use crate::step::Record;
use crate::timestamp::Timestamp;

/// How long a leader cannot deliver what another has applied before it hands over, in patiences.
pub(super) const HEIR_PATIENCE: u64 = 10;

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
        let evict = Record::Evict { slot: self.config.me.slot };
        let evicted = self.suffix.iter().any(|entry| entry.record == evict);
        let until = if evicted { u64::MAX } else { self.doubtful };
        let until = until.min(self.new_ballot_index);
        let lacks = |to: GroupSet, index: u64| to.has_several() && index < until;
        let logged = |entry: &Uncommitted| match entry.record {
            Record::Local { destinations, .. } => lacks(destinations, entry.index),
            _ => false,
        };
        until == 0
            || !self.order.iter().any(|pending| lacks(pending.destinations, pending.index))
                && !self.suffix.iter().any(logged)
    }

    /// Whether we have led for so long that whoever can deliver more has told us so.
    fn has_led_for_long(&self) -> bool {
        let until_ms = self.campaign.as_ref().map_or(0, |campaign| campaign.until_ms);
        self.now_ms >= until_ms + HEIR_PATIENCE * self.config.patience_ms
    }

    /// As leader: whether our state is of use to a replica that has applied so much. It is not if we lack what
    /// others tell nobody any more, and somebody can lead who does not. If we cannot tell whether we lack
    /// something, we give our state to nobody who has applied more: it may be the last to have that. If we can,
    /// what it has applied and we have not is not settled, and is delivered again.
    pub fn may_teach(&mut self, applied: Timestamp) -> bool {
        let ours = self.shared.applied_by(self.config.me.slot);
        let whole = self.is_whole() || self.has_led_for_long() && applied <= ours;
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
        if !self.leads() || planted(Mutant::LeftBehindLeads) {
            return None;
        }
        let counts = |slot: &u8| !self.view.member(*slot).evicted && self.changing & 1 << slot == 0;
        // A life that is not let in cannot lead, whatever the state holds that it was given.
        let let_in = |slot: &u8| {
            let fed = self.fed[usize::from(*slot)].as_ref();
            fed.is_some_and(|fed| {
                guard!(Mutant::HeirNotLetIn, self.view.names(*slot, fed.incarnation))
            })
        };
        let counted = self.others().filter(counts).filter(let_in);
        let well = counted.filter(|slot| !self.detector.suspects(*slot));
        let heir = well.max_by_key(|slot| self.shared.applied_by(*slot))?;
        let applied = self.shared.applied_by(heir);
        let stuck = self.order.head().is_some_and(|(bound, since_ms)| {
            let settled = bound <= self.shared.settled_by(self.group());
            let for_long = self.now_ms >= since_ms + HEIR_PATIENCE * self.config.patience_ms;
            applied >= bound && (settled || for_long)
        });
        let ahead = applied > self.shared.applied_by(self.config.me.slot);
        (stuck || ahead && self.has_led_for_long() && !self.is_whole()).then_some(heir)
    }

    /// As leader whose log does not reach back to where that slot's ends: whether another shall lead, whose log
    /// does. The slot has applied more than we have, and may be the last to have it, for all that we can tell:
    /// then it must not take our state, and cannot take over our log. Once it has read the rest of the log, from
    /// another, it can lead, and give its state to all.
    pub fn needs_another_to_serve(&self, slot: u8) -> bool {
        let ahead = self.shared.known_applied(slot) > self.shared.applied_by(self.config.me.slot);
        self.leads()
            && ahead
            && !self.detector.suspects(slot)
            && self.has_led_for_long()
            && !self.is_whole()
    }
}
