//! How far the replicas of the group have applied their logs.
//!
//! The ordering numbers its deliveries with rising ranks; the log compares ranks and does not interpret them. The group
//! is *done* with what all replicas have applied for which its log waits. Other groups no longer send it anything about
//! that, so a replica that lacks some of it can only take a state.
//!
//! **Invariants.** As leader, `applied[slot]` is at most what that slot's present incarnation has applied: it is reset
//! whenever a new incarnation may be there, or a state is taken. While we lead, what was done before we led is at most
//! `before`, once a quorum has reported what it had applied.

use alloc::vec;
use alloc::vec::Vec;

use super::record::LogRecord;
use super::{GroupLog, SLOTS};
use crate::group::followers::FollowerProgress;
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// How far each replica of our group has applied its deliveries, as far as this replica knows.
pub(super) struct Progress {
    /// By slot, as reported to us as leader; our own slot included.
    applied: Vec<Rank>,
    /// As candidate or leader: what each replica had applied when it granted our ballot.
    granted: Vec<Rank>,
    /// As leader: the slots that count and have reported what they have applied since we lead, and the highest of their
    /// first reports.
    told_by: u16,
    before: Rank,
}

impl Default for Progress {
    fn default() -> Self {
        let nothing = vec![Rank::NOTHING; SLOTS];
        Self { applied: nothing.clone(), granted: nothing, told_by: 0, before: Rank::NOTHING }
    }
}

impl Progress {
    pub(super) fn of(&self, slot: u8) -> Rank {
        self.applied[usize::from(slot)]
    }

    fn raise(&mut self, slot: u8, to: Rank) {
        let applied = &mut self.applied[usize::from(slot)];
        *applied = to.max(*applied);
    }

    /// Begins to lead with what we have applied ourselves. Other slots reported to us when we led before, and some may
    /// have begun a new incarnation since.
    pub(super) fn lead(&mut self, me: u8) {
        let ours = self.of(me);
        self.applied.fill(Rank::NOTHING);
        self.raise(me, ours);
        (self.told_by, self.before) = (1 << me, ours);
    }

    /// As leader: a slot that counts has reported what it has applied.
    pub(super) fn told_by(&mut self, slot: u8) {
        if self.told_by >> slot & 1 == 0 {
            self.told_by |= 1 << slot;
            self.before = self.of(slot).max(self.before);
        }
    }

    /// As leader: an upper bound on what was done before we led. `None` until `quorum` slots have reported what they
    /// have applied.
    pub(super) fn done_before(&self, quorum: usize) -> Option<Rank> {
        (self.told_by.count_ones() as usize >= quorum).then_some(self.before)
    }

    /// Resets a slot: it may have begun a new incarnation, or take a state.
    pub(super) fn forget(&mut self, slot: u8) {
        self.applied[usize::from(slot)] = Rank::NOTHING;
    }

    /// Resets what granters have applied: a new candidacy has no grants yet.
    pub(super) fn forget_granted(&mut self) {
        self.granted.fill(Rank::NOTHING);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// We have applied deliveries, or, as leader, one of our followers has.
    pub(crate) fn hear_applied(&mut self, slot: u8, applied: Rank) {
        if slot == self.config.me.slot {
            self.progress.raise(slot, applied);
        } else {
            self.follower_has_applied(slot, applied);
        }
    }

    /// As leader: one of our followers has applied deliveries. A report from a replica whose log we do not write is
    /// ignored: it may be about to take a state.
    fn follower_has_applied(&mut self, slot: u8, applied: Rank) {
        let Some(follower) = self.followers.progress[usize::from(slot)].as_mut() else { return };
        follower.told = true;
        let counts = self.members.view.names(slot, follower.incarnation);
        self.progress.raise(slot, applied);
        if counts {
            self.progress.told_by(slot);
        }
    }

    /// Records what a granter of our ballot reports to have applied.
    pub(super) fn granter_has_applied(&mut self, slot: u8, applied: Rank) {
        self.progress.granted[usize::from(slot)] = applied;
    }

    /// A replica begins to take our state. After that it may have applied less than it reported; it reports anew when
    /// it grants our ballot again.
    pub(crate) fn gives_state(&mut self, slot: u8) {
        self.progress.forget(slot);
        self.progress.granted[usize::from(slot)] = Rank::NOTHING;
    }

    /// What a slot has reported to us as leader.
    pub(crate) fn applied_by(&self, slot: u8) -> Rank {
        self.progress.of(slot)
    }

    /// What a granter of our ballot reported with its grant.
    pub(crate) fn granter_applied(&self, slot: u8) -> Rank {
        self.progress.granted[usize::from(slot)]
    }

    /// What a slot is known to have applied: by its reports to us as leader, or by its grant.
    pub(crate) fn known_applied(&self, slot: u8) -> Rank {
        self.applied_by(slot).max(self.granter_applied(slot))
    }

    /// As leader: the rank up to which every replica that counts has applied its deliveries, and every one that a
    /// logged `Join` may make count. The latter would otherwise lack what the group is done with in the meantime. A
    /// replica that is about to count is waited for, too: under load, if its reports take longer than those of others,
    /// it would never reach what the group is done with.
    pub(crate) fn applied_by_all(&self) -> Rank {
        let joins = |slot: u8| self.is_changing(slot) || self.is_about_to_count(slot);
        let counts = |slot: &u8| !self.members.view.member(*slot).evicted || joins(*slot);
        let counted = self.others().filter(counts);
        let counted = counted.filter(|_| !planted(Mutant::SettledTooEarly));
        let slots = counted.chain([self.config.me.slot]);
        slots.map(|slot| self.progress.of(slot)).min().expect("our own slot is included")
    }

    /// Whether a slot is not suspected, and an incarnation of it that does not count yet has applied what the group was
    /// done with before we led.
    fn is_about_to_count(&self, slot: u8) -> bool {
        let learns =
            |follower: &FollowerProgress| !self.members.view.names(slot, follower.incarnation);
        let before = self.progress.done_before(self.quorum());
        let caught_up = |before: Rank| self.progress.of(slot) >= before;
        self.follower(slot).is_some_and(learns)
            && before.is_some_and(caught_up)
            && !self.detector.suspects(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_was_done_before_than_the_most_that_a_quorum_had_applied_when_it_told_first() {
        let mut progress = Progress::default();
        let mut told = |slot, applied| {
            progress.raise(slot, Rank::new(applied));
            match slot {
                0 => progress.lead(0),
                _ => progress.told_by(slot),
            }
            progress.done_before(3)
        };
        assert_eq!((told(0, 5), told(1, 9)), (None, None), "two of five have told");
        assert_eq!(told(2, 7), Some(Rank::new(9)), "the last one has applied less");
        assert_eq!(told(2, 12), Some(Rank::new(9)), "it has applied that since we lead");
    }
}
