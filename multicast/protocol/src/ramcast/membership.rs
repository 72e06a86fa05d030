//! Who counts in a group: as leader, whose logs we write, who is evicted, and who is let in.

use alloc::vec::Vec;

use super::{Fed, Ramcast};
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::step::{Effect, Record};
use crate::timestamp::Timestamp;

/// How long a dead replica's successor is waited for, in patiences.
const EVICT_PATIENCE: u64 = 4;

impl Ramcast {
    /// A follower is let in: we write its log from here on.
    pub fn feeds(&mut self, slot: u8, incarnation: u32) {
        // It tells us anew what it has applied when it reads our header. Its former incarnation may have applied
        // more; and so may the same one, if it has taken a state since of somebody who had applied less.
        self.shared.forget_applied(slot);
        // A life that is not let in yet proves that it has caught up by a word behind its `Join`.
        let joins = !self.view.names(slot, incarnation);
        let from = self.last + u64::from(joins);
        self.fed[usize::from(slot)] =
            Some(Fed { incarnation, from, landed: 0, told: false, joins });
        self.completed[usize::from(slot)] = 0;
    }

    /// A replica begins to take our state. From there on it may have applied less than it told us, and says how
    /// much when it lets us write its log again.
    pub fn gives_state(&mut self, slot: u8) {
        self.shared.forget_applied(slot);
        self.shared.granted(slot, Timestamp::ZERO);
    }

    /// A replica that grants our ballot says up to where it has applied what it delivered.
    pub fn granter_has_applied(&mut self, slot: u8, applied: Timestamp) {
        self.shared.granted(slot, applied);
    }

    /// A follower's log can be written no more, until it is let in again.
    pub fn feeds_no_more(&mut self, slot: u8) {
        self.fed[usize::from(slot)] = None;
    }

    /// Whether a member's `Join` is committed, as we know, and it has acknowledged nothing behind it. It may lack
    /// the words of others by which it would see that, and be the one without whose words nothing is committed.
    ///
    /// A follower may be the only one who knows: the leader lacks a word of a replica that has died since, and
    /// commits nothing without the words of the one that is silent.
    pub fn may_not_know_its_join(&self, slot: u8) -> bool {
        if !self.leads() {
            let join = self.joins[usize::from(slot)];
            let follows = self.promised == self.ballot() && !self.is_silent();
            let waits = join > 0 && self.accepted(self.group(), slot, self.ballot()) < join;
            return follows && waits && !self.detector.suspects(slot);
        }
        let Some(fed) = &self.fed[usize::from(slot)] else { return false };
        // A lower word is its former incarnation's. One that has let us in again may have done so before its
        // `Join` was committed, and hears of that only now.
        let (join, campaign) = (self.joins[usize::from(slot)], self.campaign.as_ref());
        let asked_before = campaign.is_some_and(|campaign| campaign.commit < join);
        let from = if fed.joins {
            fed.from
        } else if asked_before {
            join
        } else {
            0
        };
        let acknowledges = self.accepted(self.group(), slot, self.ballot()) >= from;
        self.view.names(slot, fed.incarnation) && !acknowledges
    }

    /// As leader: whether a change of the view can be logged now for that slot.
    fn may_change(&self, slot: u8) -> bool {
        self.leads() && self.changing & 1 << slot == 0 && slot != self.config.me.slot
    }

    /// Logs that the log waits for a slot no more, unless fewer than a quorum would be left that it
    /// waits for. Who has not applied what its group is done with is none of those: it may have the log
    /// and lack what nobody tells any more, and cannot do without the state of one of the others.
    /// Returns whether it was of use.
    pub fn evict(&mut self, slot: u8, effects: &mut Vec<Effect>) -> bool {
        let settled = self.shared.settled_by(self.group());
        let whole = |other: &u8| self.shared.applied_by(*other) >= settled;
        let stays = |other: &u8| {
            let leaves = self.changing & 1 << other != 0 || self.view.member(*other).evicted;
            *other != slot && !leaves
        };
        let slots = 0..self.config.replicas;
        let enough = slots.filter(stays).filter(whole).count() >= self.quorum();
        let useful = !planted(Mutant::NobodyEvicted)
            && guard!(Mutant::QuorumEvictedAway, enough)
            && self.may_change(slot)
            && !self.view.member(slot).evicted;
        if useful {
            self.changing |= 1 << slot;
            self.paths.evicted += 1;
            self.append(Record::Evict { slot }, effects);
        }
        useful
    }

    /// Logs that a life of a slot counts from here on: it holds all that this log holds.
    pub fn join(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<Effect>) {
        let news = !self.view.names(slot, incarnation) || self.view.member(slot).evicted;
        let whole = guard!(Mutant::LetInBehind, self.has_what_is_settled(slot, incarnation))
            && self.has_payloads(slot, incarnation);
        if self.may_change(slot) && news && whole && self.commit >= self.new_ballot_index {
            self.changing |= 1 << slot;
            self.append(Record::Join { slot, incarnation }, effects);
        }
    }

    /// Whether a life of a slot holds the payloads of what was logged when it let us write its log, as far as it can
    /// say so: some of them we may have let go of, which no log brings back. A life that no view has named yet
    /// says nothing.
    fn has_payloads(&self, slot: u8, incarnation: u32) -> bool {
        let accepted = self.accepted(self.group(), slot, self.ballot());
        let covered = self.fed[usize::from(slot)].is_some_and(|fed| accepted >= fed.from);
        !self.view.names(slot, incarnation) || covered
    }

    /// Whether a life of a slot has applied all that our group can be done with, or counts already. **Invariant.**
    /// f+1 lives that count have applied what our group is done with: that many were waited for when it was
    /// said, and a new life takes a former one's place only if it has, too. Others tell it nobody any more, so
    /// once all who have it are gone no log helps. A new life may hold the whole log and lack it: it was given
    /// its state by a leader that was evicted and deposed, and did not know. Nor need we know, who were elected
    /// for our log: who settled it may have died before we were told. But of any f+1 that count, one has
    /// applied it; so we wait until that many have told us what they had.
    fn has_what_is_settled(&self, slot: u8, incarnation: u32) -> bool {
        let settled = self.shared.settled_by(self.group());
        let before = self.shared.settled_before(self.quorum());
        let has_it = |before| self.shared.applied_by(slot) >= settled.max(before);
        self.view.names(slot, incarnation) || before.is_some_and(has_it)
    }

    /// Those whose process is known to have ended, and whose successor is not there yet, are waited
    /// for no more. A connection that broke looks the same for a moment.
    pub(super) fn evict_dead(&mut self, effects: &mut Vec<Effect>) {
        if self.commit < self.new_ballot_index {
            return; // Not before everybody knows where the log goes on.
        }
        let me = self.config.me.slot;
        if self.view.member(me).evicted && self.changing & 1 << me == 0 {
            // Elected for our log: it is waited for again, for it is the one that counts.
            self.changing |= 1 << me;
            let incarnation = self.config.incarnation;
            self.append(Record::Join { slot: me, incarnation }, effects);
        }
        for slot in self.others() {
            let since = self.detector.since_ms(slot);
            let for_long = self.now_ms >= since + EVICT_PATIENCE * self.config.patience_ms;
            if self.detector.is_dead(slot) && for_long {
                self.evict(slot, effects);
            }
        }
    }
}
