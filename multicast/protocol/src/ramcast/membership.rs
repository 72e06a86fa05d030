//! Who counts in a group: as leader, whose logs we write, who is evicted, and who is let in.

use alloc::vec::Vec;

use super::Ramcast;
use crate::group::GroupRecord;
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
        self.log.feeds(slot, incarnation);
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

    /// Logs that the log waits for a slot no more, unless fewer than a quorum would be left that it
    /// waits for. Who has not applied what its group is done with is none of those: it may have the log
    /// and lack what nobody tells any more, and cannot do without the state of one of the others.
    /// Returns whether it was of use.
    pub fn evict(&mut self, slot: u8, effects: &mut Vec<Effect>) -> bool {
        let settled = self.shared.settled_by(self.group());
        let whole = |other: &u8| self.shared.applied_by(*other) >= settled;
        let stays = |other: &u8| {
            let leaves = self.log.is_changing(*other) || self.log.view().member(*other).evicted;
            *other != slot && !leaves
        };
        let slots = 0..self.config.replicas;
        let enough = slots.filter(stays).filter(whole).count() >= self.log.quorum();
        let useful = !planted(Mutant::NobodyEvicted)
            && guard!(Mutant::QuorumEvictedAway, enough)
            && self.log.may_change(slot)
            && !self.log.view().member(slot).evicted;
        if useful {
            self.log.changes(slot);
            self.log.paths.evicted += 1;
            self.append(Record::Group(GroupRecord::Evict { slot }), effects);
        }
        useful
    }

    /// Logs that a life of a slot counts from here on: it holds all that this log holds.
    pub fn join(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<Effect>) {
        let news =
            !self.log.view().names(slot, incarnation) || self.log.view().member(slot).evicted;
        let whole = guard!(Mutant::LetInBehind, self.has_what_is_settled(slot, incarnation))
            && self.has_payloads(slot, incarnation);
        if self.log.may_change(slot)
            && news
            && whole
            && self.log.commit_index() >= self.log.first_index()
        {
            self.log.changes(slot);
            self.append(Record::Group(GroupRecord::Join { slot, incarnation }), effects);
        }
    }

    /// Whether a life of a slot holds the payloads of what was logged when it let us write its log, as far as it can
    /// say so: some of them we may have let go of, which no log brings back. A life that no view has named yet
    /// says nothing.
    fn has_payloads(&self, slot: u8, incarnation: u32) -> bool {
        let covered = self.log.covers_what_it_may_lack(slot);
        !self.log.view().names(slot, incarnation) || covered
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
        let before = self.shared.settled_before(self.log.quorum());
        let has_it = |before| self.shared.applied_by(slot) >= settled.max(before);
        self.log.view().names(slot, incarnation) || before.is_some_and(has_it)
    }

    /// Those whose process is known to have ended, and whose successor is not there yet, are waited
    /// for no more. A connection that broke looks the same for a moment.
    pub(super) fn evict_dead(&mut self, effects: &mut Vec<Effect>) {
        if self.log.commit_index() < self.log.first_index() {
            return; // Not before everybody knows where the log goes on.
        }
        let me = self.config.me.slot;
        if self.log.view().member(me).evicted && !self.log.is_changing(me) {
            // Elected for our log: it is waited for again, for it is the one that counts.
            self.log.changes(me);
            let incarnation = self.config.incarnation;
            self.append(Record::Group(GroupRecord::Join { slot: me, incarnation }), effects);
        }
        for slot in self.log.others() {
            let since = self.log.detector().since_ms(slot);
            let for_long = self.log.now_ms() >= since + EVICT_PATIENCE * self.config.patience_ms;
            if self.log.detector().is_dead(slot) && for_long {
                self.evict(slot, effects);
            }
        }
    }
}
