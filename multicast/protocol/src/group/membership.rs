//! Who counts: whose memory is meant by a slot, and changes of that.
//!
//! **Invariants.** `view` is what the committed log says. A slot is in `changing` if the log of a leader holds an `Evict` or a
//! `Join` of it that is not committed: one leader logs one at a time. `joins[slot] <= commit`.

use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::record::LogRecord;
use crate::view::View;

/// The members of a group, as one replica knows them.
pub(crate) struct Membership {
    pub(super) view: View,
    /// Slots for which a change of the view is in our log and not committed: leaders only.
    pub(super) changing: u16,
    /// Index of the last `Join` of each slot that was folded here; 0 if there was none.
    joins: Vec<u64>,
    /// Our group may be done with what is logged before this, though we have not delivered it.
    pub(super) doubtful: u64,
}

impl Membership {
    pub(super) fn new(view: View) -> Self {
        let joins = vec![0; view.members().len()];
        Self { view, changing: 0, joins, doubtful: 0 }
    }

    /// An operator declares a view.
    pub(super) fn declare(&mut self, view: View) {
        (self.view, self.changing, self.doubtful) = (view, 0, 0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// An `Evict` is committed.
    pub(crate) fn commits_evict(&mut self, slot: u8) {
        self.members.view.evict(slot);
        if slot == self.config.me.slot {
            self.members.doubtful = u64::MAX;
        }
        self.members.changing &= !(1 << slot);
    }

    /// A `Join` is committed, at `index`.
    pub(crate) fn commits_join(&mut self, slot: u8, incarnation: u32, index: u64) {
        self.members.view.join(slot, incarnation);
        self.members.changing &= !(1 << slot);
        self.members.joins[usize::from(slot)] = index;
        self.paths.joined += u64::from(self.leads());
        if slot == self.config.me.slot {
            self.members.doubtful = index;
        }
    }

    /// As leader: whether our log holds a change of the view for that slot which is not committed.
    pub(crate) fn is_changing(&self, slot: u8) -> bool {
        self.members.changing >> slot & 1 == 1
    }

    /// As leader: we log a change of the view for that slot.
    pub(crate) fn changes(&mut self, slot: u8) {
        self.members.changing |= 1 << slot;
    }

    /// Our group may be done with what is logged before this, though we have not delivered it.
    pub(crate) const fn doubtful(&self) -> u64 {
        self.members.doubtful
    }

    /// A follower's log can be written no more, until it is let in again.
    pub fn feeds_no_more(&mut self, slot: u8) {
        self.followers.fed[usize::from(slot)] = None;
    }

    /// Whether a member's `Join` is committed, as we know, and it has acknowledged nothing behind it. It may lack
    /// the words of others by which it would see that, and be the one without whose words nothing is committed.
    ///
    /// A follower may be the only one who knows: the leader lacks a word of a replica that has died since, and
    /// commits nothing without the words of the one that is silent.
    pub fn may_not_know_its_join(&self, slot: u8) -> bool {
        if !self.leads() {
            let join = self.members.joins[usize::from(slot)];
            let follows = self.election.promised == self.ballot() && !self.is_silent();
            let waits = join > 0 && self.accepted(slot) < join;
            return follows && waits && !self.detector.suspects(slot);
        }
        let Some(fed) = &self.followers.fed[usize::from(slot)] else { return false };
        // A lower word is its former incarnation's. One that has let us in again may have done so before its
        // `Join` was committed, and hears of that only now.
        let (join, campaign) =
            (self.members.joins[usize::from(slot)], self.election.campaign.as_ref());
        let asked_before = campaign.is_some_and(|campaign| campaign.commit < join);
        let from = if fed.joins {
            fed.from
        } else if asked_before {
            join
        } else {
            0
        };
        let acknowledges = self.accepted(slot) >= from;
        self.members.view.names(slot, fed.incarnation) && !acknowledges
    }

    /// As leader: whether a change of the view can be logged now for that slot.
    pub(crate) fn may_change(&self, slot: u8) -> bool {
        self.leads() && self.members.changing & 1 << slot == 0 && slot != self.config.me.slot
    }
}
