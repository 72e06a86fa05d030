//! The view: which incarnation counts in each slot, and changes of that.
//!
//! **Invariants.** `view` is what the committed log says. A slot is in `changing` if the log of a leader contains an
//! uncommitted `Evict` or `Join` of it; a leader logs one change of a slot at a time. `joins[slot] <= commit`.

use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::ordering::Ordering;
use super::record::{GroupRecord, LogRecord};
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::view::View;

/// Time for which a dead replica's successor is waited for, in timeouts.
const EVICT_TIMEOUTS: u64 = 4;

/// The members of a group, as one replica knows them.
pub(crate) struct Membership {
    pub(super) view: View,
    /// As leader: slots for which our log contains an uncommitted view change.
    pub(super) changing: u16,
    /// Index of the last `Join` of each slot that was folded here; 0 if there was none.
    pub(super) joins: Vec<u64>,
    /// Recovery barrier: our group may be done with entries below this index that we have not delivered. It is 0 if
    /// there are none, and `u64::MAX` while we are evicted.
    pub(super) recovery_barrier: u64,
}

impl Membership {
    pub(super) fn new(view: View) -> Self {
        let joins = vec![0; view.members().len()];
        Self { view, changing: 0, joins, recovery_barrier: 0 }
    }

    /// Replaces the view by one that an operator declares.
    pub(super) fn declare(&mut self, view: View) {
        (self.view, self.changing, self.recovery_barrier) = (view, 0, 0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Applies a committed `Evict`.
    pub(crate) fn commits_evict(&mut self, slot: u8) {
        self.members.view.evict(slot);
        if slot == self.config.me.slot {
            self.members.recovery_barrier = u64::MAX;
        }
        self.members.changing &= !(1 << slot);
    }

    /// Applies a `Join` that is committed at `index`.
    pub(crate) fn commits_join(&mut self, slot: u8, incarnation: u32, index: u64) {
        self.members.view.join(slot, incarnation);
        self.members.changing &= !(1 << slot);
        // It may have reported once, before we knew that it counts, and does not repeat the report.
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

    /// The index below which our group may be done with entries that we have not delivered; 0 if there are none.
    pub const fn recovery_barrier(&self) -> u64 {
        self.members.recovery_barrier
    }

    /// Begins with a state that this replica saved itself. A leader gives its state only if that lacks nothing that its
    /// group is done with; this one may have been saved between our `Join` and the deliveries of what stands below it.
    pub(crate) fn resumes_own_state(&mut self, recovery_barrier: u64) {
        if !planted(Mutant::OwnStateTakenForWhole) {
            self.members.recovery_barrier = recovery_barrier;
        }
    }

    /// As leader: whether our log contains an uncommitted view change of that slot.
    pub(crate) fn is_changing(&self, slot: u8) -> bool {
        self.members.changing >> slot & 1 == 1
    }

    /// Removes a follower: its log cannot be written until it is admitted again.
    pub(crate) fn remove_follower(&mut self, slot: u8) {
        self.followers.progress[usize::from(slot)] = None;
    }

    /// Whether a member's `Join` is committed, as we know, and it has acknowledged nothing behind it. It may lack the
    /// words of others from which it would learn that, and be the one without whose words nothing is committed.
    ///
    /// A follower may be the only one that knows. The leader lacks the word of a replica that has crashed since, and
    /// commits nothing without the words of the silent one.
    pub(super) fn may_not_know_its_join(&self, slot: u8) -> bool {
        if !self.leads() {
            let join = self.members.joins[usize::from(slot)];
            let follows = self.election.promised == self.ballot() && !self.is_silent();
            let waits = join > 0 && self.accepted(slot) < join;
            return follows && waits && !self.detector.suspects(slot);
        }
        let Some(follower) = &self.followers.progress[usize::from(slot)] else { return false };
        // A lower word is its former incarnation's. A member that has granted again may have done so before its `Join`
        // was committed, and learns of that only now.
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

    /// As leader: whether a view change of that slot can be logged now.
    fn may_change(&self, slot: u8) -> bool {
        self.leads() && !self.is_changing(slot) && slot != self.config.me.slot
    }

    /// As leader: the `Evict` of a slot, to be logged now. `None` if it would have no effect, or if fewer than a quorum
    /// would remain for which the log waits. A replica that has not applied what its group is done with does not count
    /// towards that quorum: it may have the log and lack what other groups no longer send, and then it needs the state
    /// of one of the others.
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

    /// As leader: the `Join` of an incarnation that holds all of our log, to be logged now. `None` if it counts
    /// already, must not count yet, or can never count.
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
        if !(may && news && whole && self.is_on_disk(slot, incarnation)) {
            return None;
        }
        self.members.changing |= 1 << slot;
        Some(GroupRecord::Join { slot, incarnation })
    }

    /// Whether an incarnation of a slot that is to be admitted has said that its disk holds the log with which we began to
    /// write to it: in a durable cluster it reports nothing before. That our writes are in its memory says nothing of
    /// its disk. If it counted before, and its power failed, it would have lost what it counts for; and the group may not
    /// tolerate that, as another may have lost its disk because this one counted.
    fn is_on_disk(&self, slot: u8, incarnation: u32) -> bool {
        let follower = self.follower(slot);
        let told = follower.is_some_and(|it| it.told && it.incarnation == incarnation);
        !self.config.durable || told
    }

    /// Whether an incarnation of a slot is known to hold the payloads of what was logged when it granted our ballot. We
    /// may have dropped some of them, and no log brings those back. An incarnation that no view contains yet cannot
    /// report this, and is not required to.
    fn has_payloads(&self, slot: u8, incarnation: u32) -> bool {
        let covered = self.covers_what_it_may_lack(slot);
        !self.members.view.names(slot, incarnation) || covered
    }

    /// Whether an incarnation of a slot counts already, or has applied everything that our group can be done with.
    /// **Invariant.** f+1 incarnations that count have applied what our group is done with: that many were waited for
    /// when it was reported, and a new incarnation replaces a former one only if it has applied it, too. Other groups
    /// no longer send it, so once all replicas that have it are gone, no log helps. A new incarnation may hold the
    /// whole log and lack it, if its state came from a leader that was evicted and deposed and had not learned so. We
    /// may not know either, if we were elected for our log: the replica that settled it may have crashed before it
    /// reported so. But of any f+1 incarnations that count, one has applied it. So we wait until that many have
    /// reported what they had applied.
    fn has_what_is_done(&self, slot: u8, incarnation: u32, ordering: &impl Ordering) -> bool {
        let before = self.progress.done_before(self.quorum());
        let has_it = |before| self.applied_by(slot) >= ordering.done().max(before);
        self.members.view.names(slot, incarnation) || before.is_some_and(has_it)
    }

    /// As leader: the view changes that are due, to be logged now. A slot is evicted if its process is known to have
    /// ended and its successor has not appeared for a while. A broken connection looks the same for a moment.
    pub(crate) fn due_changes(&mut self, ordering: &impl Ordering) -> Vec<GroupRecord> {
        let mut due = Vec::new();
        if self.entries.commit < self.entries.first {
            return due; // Not before all followers have learned where the log continues.
        }
        let me = self.config.me.slot;
        if self.members.view.member(me).evicted && !self.is_changing(me) {
            // We were elected for our log while evicted: our log counts, so the log waits for this slot again.
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
