//! Who counts: whose memory is meant by a slot, and changes of that.
//!
//! **Invariants.** `view` is what the committed log says. A slot is in `changing` if the log of a leader holds an `Evict` or a
//! `Join` of it that is not committed: one leader logs one at a time. `joins[slot] <= commit`.

use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::ordering::Ordering;
use super::record::{GroupRecord, LogRecord};
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::view::View;

/// How long a dead replica's successor is waited for, in timeouts.
const EVICT_TIMEOUTS: u64 = 4;

/// The members of a group, as one replica knows them.
pub(crate) struct Membership {
    pub(super) view: View,
    /// Slots for which a change of the view is in our log and not committed: leaders only.
    pub(super) changing: u16,
    /// Index of the last `Join` of each slot that was folded here; 0 if there was none.
    joins: Vec<u64>,
    /// Recovery barrier: our group may be done with entries below this index that we have not delivered. 0 if with none;
    /// `u64::MAX` while we are evicted.
    pub(super) recovery_barrier: u64,
}

impl Membership {
    pub(super) fn new(view: View) -> Self {
        let joins = vec![0; view.members().len()];
        Self { view, changing: 0, joins, recovery_barrier: 0 }
    }

    /// An operator declares a view.
    pub(super) fn declare(&mut self, view: View) {
        (self.view, self.changing, self.recovery_barrier) = (view, 0, 0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// An `Evict` is committed.
    pub(crate) fn commits_evict(&mut self, slot: u8) {
        self.members.view.evict(slot);
        if slot == self.config.me.slot {
            self.members.recovery_barrier = u64::MAX;
        }
        self.members.changing &= !(1 << slot);
    }

    /// A `Join` is committed, at `index`.
    pub(crate) fn commits_join(&mut self, slot: u8, incarnation: u32, index: u64) {
        self.members.view.join(slot, incarnation);
        self.members.changing &= !(1 << slot);
        // It may have told us before we knew that it counts, and tells us once.
        let follower = self.followers.progress[usize::from(slot)];
        if follower.is_some_and(|follower| follower.told && follower.incarnation == incarnation) {
            self.progress.told_by(slot);
        }
        self.members.joins[usize::from(slot)] = index;
        self.paths.joined += u64::from(self.leads());
        if slot == self.config.me.slot {
            self.members.recovery_barrier = index;
        }
    }

    /// As leader: whether our log holds a change of the view for that slot which is not committed.
    pub(crate) fn is_changing(&self, slot: u8) -> bool {
        self.members.changing >> slot & 1 == 1
    }

    /// A follower's log can be written no more, until it is let in again.
    pub(crate) fn remove_follower(&mut self, slot: u8) {
        self.followers.progress[usize::from(slot)] = None;
    }

    /// Whether a member's `Join` is committed, as we know, and it has acknowledged nothing behind it. It may lack
    /// the words of others by which it would see that, and be the one without whose words nothing is committed.
    ///
    /// A follower may be the only one who knows: the leader lacks a word of a replica that has died since, and
    /// commits nothing without the words of the one that is silent.
    pub(super) fn may_not_know_its_join(&self, slot: u8) -> bool {
        if !self.leads() {
            let join = self.members.joins[usize::from(slot)];
            let follows = self.election.promised == self.ballot() && !self.is_silent();
            let waits = join > 0 && self.accepted(slot) < join;
            return follows && waits && !self.detector.suspects(slot);
        }
        let Some(follower) = &self.followers.progress[usize::from(slot)] else { return false };
        // A lower word is its former incarnation's. One that has let us in again may have done so before its
        // `Join` was committed, and hears of that only now.
        let (join, campaign) =
            (self.members.joins[usize::from(slot)], self.election.campaign.as_ref());
        let asked_before = campaign.is_some_and(|campaign| campaign.commit < join);
        let from = if follower.joins {
            follower.from
        } else if asked_before {
            join
        } else {
            0
        };
        let acknowledges = self.accepted(slot) >= from;
        self.members.view.names(slot, follower.incarnation) && !acknowledges
    }

    /// As leader: whether a change of the view can be logged now for that slot.
    fn may_change(&self, slot: u8) -> bool {
        self.leads() && !self.is_changing(slot) && slot != self.config.me.slot
    }

    /// As leader: the record by which the log waits for a slot no more, to be logged now; `None` if it is of no use, or fewer
    /// than a quorum would be left that the log waits for. Who has not applied what its group is done with is none of
    /// those: it may have the log and lack what nobody tells any more, and cannot do without the state of one of the
    /// others.
    pub(crate) fn evict(&mut self, slot: u8, ordering: &impl Ordering) -> Option<GroupRecord> {
        let done = ordering.done();
        let whole = |other: &u8| self.applied_by(*other) >= done;
        let stays = |other: &u8| {
            let leaves = self.is_changing(*other) || self.members.view.member(*other).evicted;
            *other != slot && !leaves
        };
        let slots = 0..self.config.replicas;
        let enough = slots.filter(stays).filter(whole).count() >= self.quorum();
        let useful = !planted(Mutant::NobodyEvicted)
            && guard!(Mutant::QuorumEvictedAway, enough)
            && self.may_change(slot)
            && !self.members.view.member(slot).evicted;
        if !useful {
            return None;
        }
        self.members.changing |= 1 << slot;
        self.paths.evicted += 1;
        Some(GroupRecord::Evict { slot })
    }

    /// As leader: the record by which an incarnation of a slot counts from here on, to be logged now: it holds all that this
    /// log holds. `None` if it counts already, must not count yet, or may never.
    pub(crate) fn join(
        &mut self,
        slot: u8,
        incarnation: u32,
        ordering: &impl Ordering,
    ) -> Option<GroupRecord> {
        let view = &self.members.view;
        let news = !view.names(slot, incarnation) || view.member(slot).evicted;
        let whole =
            guard!(Mutant::AdmittedLagging, self.has_what_is_done(slot, incarnation, ordering))
                && self.has_payloads(slot, incarnation);
        let may = self.may_change(slot) && self.entries.commit >= self.entries.first;
        if !(may && news && whole) {
            return None;
        }
        self.members.changing |= 1 << slot;
        Some(GroupRecord::Join { slot, incarnation })
    }

    /// Whether an incarnation of a slot holds the payloads of what was logged when it let us write its log, as far as it
    /// can say so: some of them we may have let go of, which no log brings back. One that no view has named yet says
    /// nothing.
    fn has_payloads(&self, slot: u8, incarnation: u32) -> bool {
        let covered = self.covers_what_it_may_lack(slot);
        !self.members.view.names(slot, incarnation) || covered
    }

    /// Whether an incarnation of a slot has applied all that our group can be done with, or counts already. **Invariant.**
    /// f+1 incarnations that count have applied what our group is done with: that many were waited for when it was
    /// said, and a new incarnation takes a former one's place only if it has, too. Others tell it nobody any more, so
    /// once all who have it are gone no log helps. A new incarnation may hold the whole log and lack it: it was given
    /// its state by a leader that was evicted and deposed, and did not know. Nor need we know, who were elected
    /// for our log: who settled it may have died before we were told. But of any f+1 that count, one has
    /// applied it; so we wait until that many have told us what they had.
    fn has_what_is_done(&self, slot: u8, incarnation: u32, ordering: &impl Ordering) -> bool {
        let before = self.progress.done_before(self.quorum());
        let has_it = |before| self.applied_by(slot) >= ordering.done().max(before);
        self.members.view.names(slot, incarnation) || before.is_some_and(has_it)
    }

    /// As leader: the changes of the view that are due, to be logged now. Those whose process is known to have ended, and
    /// whose successor is not there yet, are waited for no more. A connection that broke looks the same for a moment.
    pub(crate) fn due_changes(&mut self, ordering: &impl Ordering) -> Vec<GroupRecord> {
        let mut due = Vec::new();
        if self.entries.commit < self.entries.first {
            return due; // Not before everybody knows where the log goes on.
        }
        let me = self.config.me.slot;
        if self.members.view.member(me).evicted && !self.is_changing(me) {
            // Elected for our log: it is waited for again, for it is the one that counts.
            self.members.changing |= 1 << me;
            due.push(GroupRecord::Join { slot: me, incarnation: self.config.incarnation });
        }
        for slot in self.others() {
            let since = self.detector.since_ms(slot);
            let for_long = self.now_ms >= since + EVICT_TIMEOUTS * self.config.timeout_ms;
            if self.detector.is_dead(slot) && for_long {
                due.extend(self.evict(slot, ordering));
            }
        }
        due
    }
}
