//! What f+1 replicas hold, and who vouches for what.

use core::cmp::Reverse;

use super::followers::Fed;
use super::record::{GroupRecord, LogRecord};
use super::{GroupLog, Role, SLOTS};
use crate::mutants::{Mutant, planted};

/// The highest index up to which so many slots hold something; any, if none is needed.
pub(crate) fn held_by(replicas: u8, needed: usize, held: impl Fn(u8) -> u64) -> u64 {
    let mut all = [0; SLOTS];
    let all = &mut all[..usize::from(replicas)];
    match needed {
        0 => u64::MAX,
        1 => (0..replicas).map(held).max().expect("no group is empty"),
        _ => {
            (0..).zip(all.iter_mut()).for_each(|(slot, index)| *index = held(slot));
            all.sort_unstable_by_key(|index| Reverse(*index));
            all[needed - 1]
        }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Our write of the log up to `index` to the follower in `slot` is complete.
    pub(crate) fn complete(&mut self, slot: u8, index: u64) {
        if !self.leads() {
            return;
        }
        let completed = &mut self.followers.completed[usize::from(slot)];
        *completed = index.max(*completed);
        let barred = self.payloads.kept.front().is_some_and(|large| large.index <= index);
        self.paths.completion_not_enough += u64::from(barred);
    }

    /// As leader: up to which index we count on the memory of that slot.
    pub(crate) fn counts_on(&self, slot: u8) -> u64 {
        let accepted = self.accepted(slot);
        accepted.max(self.vouched_by_completion(slot, accepted))
    }

    /// Write completions count only for a life of the follower that counts, and only up to the first
    /// entry whose payload it may lack; from there on only its word does. Whoever has just let us in
    /// may lack payloads that we have delivered and forgotten: its word must first cover what was
    /// logged then.
    fn vouched_by_completion(&self, slot: u8, accepted: u64) -> u64 {
        let Some(Fed { incarnation, from, .. }) = self.followers.fed[usize::from(slot)] else {
            return 0;
        };
        let completed = self.followers.completed[usize::from(slot)];
        if !self.members.view.names(slot, incarnation) {
            return if planted(Mutant::CompletionOfUnnamedLife) { completed } else { 0 };
        }
        if planted(Mutant::CompletionWithoutPayload) {
            return completed;
        }
        if accepted < from {
            return 0;
        }
        let barrier = self.payloads.kept.partition_point(|large| large.index <= accepted);
        self.payloads.kept.get(barrier).map_or(completed, |large| completed.min(large.index - 1))
    }

    /// Whether we are an incarnation that our group has not admitted: we vouch for nothing.
    ///
    /// We are admitted once we have folded our `Join`; or once we were [told](super::Control::Admitted) that it is
    /// committed, follow a leader of that ballot or a later one, and hold it in our log. Both say the same:
    /// f+1 other slots hold the `Join`, and our words cover it with all that stands before it. Words of an
    /// earlier ballot stay unsaid: there, what our former incarnation had said may be all that is known of us.
    pub fn is_silent(&self) -> bool {
        if self.role == Role::Blank || self.suspended {
            return true;
        }
        let (me, life) = (self.config.me.slot, self.config.incarnation);
        if planted(Mutant::LetInTooEarly) {
            return self.named()[usize::from(me)] != life;
        }
        !self.members.view.names(me, life) && !self.holds_join()
    }

    /// Whether our log holds a `Join` of ours that is not folded here, but committed as we were told.
    fn holds_join(&self) -> bool {
        let (slot, incarnation) = (self.config.me.slot, self.config.incarnation);
        let join = GroupRecord::Join { slot, incarnation };
        self.election.admitted_below.is_some_and(|ballot| self.ballot() >= ballot)
            && self.entries.uncommitted.iter().any(|entry| entry.record.of_group() == Some(join))
    }
}
