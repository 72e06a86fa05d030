//! What a change of leaders means for the order between groups: what is given up, taken over, and told again.
//! Who leads is for the [group log](crate::group) to decide.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Ramcast;
use crate::ballot::Ballot;
use crate::group::payloads::Large;
use crate::group::uncommitted::Uncommitted;
use crate::group::{Control, GroupEffect, GroupEvent, GroupRecord};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ramcast::leader::Asking;
use crate::step::{Effect, Record};

impl Ramcast {
    /// Takes in what another replica of our group tells us, appending what follows from it to `effects`.
    pub fn control(&mut self, from: u8, control: Control<'_>, effects: &mut Vec<Effect>) {
        match control {
            Control::Prepare { asked, admitted } => self.log.prepare(asked, admitted, effects),
            Control::Granted { ballot, incarnation, last, named, applied } => {
                let by = (ballot, incarnation);
                self.log.hear_grant(from, by, last, named, applied, effects);
            }
            Control::Refused { promised } => self.refused(promised),
            Control::Admitted { ballot, incarnation } => {
                if incarnation == self.config.group.incarnation {
                    self.log.hear_admitted(ballot);
                }
            }
            Control::Lease { ballot, number, now } => {
                if ballot.slot() == from && self.log.promise_lease(ballot, now) {
                    let promise = GroupEffect::PromiseLease { to: from, ballot, number };
                    effects.push(promise.into());
                }
            }
            Control::LeasePromised { ballot, number, incarnation, now } => {
                self.log.lease_promised((from, incarnation), ballot, number, now);
            }
            Control::Succeed { ballot } => self.log.succeed(ballot, effects),
        }
    }

    /// Something has happened that concerns our group alone.
    pub(super) fn step_in_group(&mut self, event: GroupEvent, effects: &mut Vec<Effect>) {
        match event {
            GroupEvent::Watched { trusted } => {
                if !self.log.watched(trusted, effects) {
                    self.hand_to_heir(effects);
                }
            }
            GroupEvent::SetOut { cause } => {
                self.log.set_out(cause, effects);
            }
            GroupEvent::LogClosed { then } => {
                self.depose();
                self.log.closed(then, effects);
            }
            GroupEvent::TookOver => self.lead(effects),
            GroupEvent::Learned { index } => self.learn_committed(index),
            GroupEvent::Followed { ballot, base, first } => self.follow(ballot, base, first),
            GroupEvent::CutOff { last } => self.truncate(last),
            GroupEvent::Feeds { slot, incarnation, held_from } => {
                self.log.feeds(slot, incarnation, held_from);
            }
            GroupEvent::OutOfReach { slot, end } => self.log.cannot_feed(slot, end),
            GroupEvent::FeedsNoMore { slot } => self.log.feeds_no_more(slot),
            GroupEvent::CaughtUp { slot, incarnation } => self.join(slot, incarnation, effects),
            GroupEvent::Landed { slot, number } => self.log.landed(slot, number),
            GroupEvent::LeaseWanted { now } => {
                let number = self.log.ask_for_lease(now);
                effects.extend(
                    number.map(|number| Effect::Group(GroupEffect::AskForLease { number })),
                );
            }
            GroupEvent::HandsOver { to } => {
                self.log.has_handed_over();
                effects.push(GroupEffect::Succeed { to }.into());
            }
            GroupEvent::LeaderDied => self.log.leader_has_died(),
        }
    }

    /// Our promise is another's from here on. The caller has told us everything that the log holds.
    pub(super) fn promise(&mut self, ballot: Ballot) {
        self.depose();
        self.log.promise(ballot);
    }

    /// Another ballot than ours is promised.
    fn depose(&mut self) {
        self.log.paths.deposed += u64::from(self.log.leads());
        self.step_down();
    }

    /// We lead no more: what we did not see committed is not ours to commit.
    pub(super) fn step_down(&mut self) {
        if !self.log.leads() {
            return;
        }
        self.log.step_down();
        self.early.clear();
        self.remotes.clear();
        self.decisions.clear();
        self.afloat.clear();
    }

    /// A replica has refused our ballot, because it has granted `promised`.
    fn refused(&mut self, promised: Ballot) {
        // Whom we have asked to succeed us is not outbid, though its question be late: we would take
        // back with every tick what we ask for.
        if self.heir() != Some(promised.slot()) && !self.log.is_successor(promised.slot()) {
            self.log.hear_of(promised);
        }
    }

    /// Cuts off what our log holds beyond `index`: another log was chosen.
    fn truncate(&mut self, index: u64) {
        let known = &mut self.known;
        self.log.truncate(index, |record| {
            if let Record::Local { message, .. } = record
                && !planted(Mutant::TruncatedRemembered)
            {
                known.remove(*message);
            }
        });
    }

    /// The leader of the ballot that we granted rewrites our log from behind `base` on. Its own first
    /// entry is, or will be, `first`.
    pub(super) fn follow(&mut self, ballot: Ballot, base: u64, first: u64) {
        let granted = ballot == self.log.promised() && !self.log.leads();
        assert!(granted, "only whom we let in writes our log");
        self.truncate(base);
        self.log.follow(ballot, first);
        self.owed = self.owed.with(self.group());
        if base >= first {
            self.owe_everybody();
        }
    }

    /// The campaign is won, and our log is the one adopted: begins to lead. Everything that other
    /// groups may still need is told again, and every reply that a session may have missed.
    pub(super) fn lead(&mut self, effects: &mut Vec<Effect>) {
        self.log.begin_to_lead();
        self.asking = Asking::default();
        self.hear_of_logged();
        self.shared.forget_told();
        self.passed.lead();
        self.forget_kept(effects);
        self.rebuild();
        let first = self.append(Record::Group(GroupRecord::NewBallot), effects);
        self.log.led_from(first);
        for group in (0..self.config.groups).map(GroupId) {
            self.tell_all(group, effects);
            self.greet(group, effects);
        }
        let logged: BTreeSet<_> =
            self.log.uncommitted().filter_map(|it| it.record.message()).collect();
        for message in self.known.recent() {
            if planted(Mutant::RepliesNotRepeated) {
                break;
            }
            if !self.order.contains(message) && !logged.contains(&message) {
                effects.push(Effect::Repeat { message });
            }
        }
    }

    /// Our log may have proposals of ballots that were never announced to us. What earlier leaders of their groups
    /// announce to us does not count when it is folded in, so it is not to be logged.
    fn hear_of_logged(&mut self) {
        for (group, known) in (0..self.config.groups).map(GroupId).zip(&mut self.ballots) {
            *known = self.order.highest_ballot_of(group).max(*known);
        }
        for remote in self.log.uncommitted_items() {
            let known = &mut self.ballots[remote.group().index()];
            *known = remote.ballot.max(*known);
        }
    }

    /// What only a leader keeps of its log.
    fn rebuild(&mut self) {
        let kept = |index, message| Large { index, message, delivered: false };
        let pending = self.order.iter().filter(|pending| !pending.inline);
        let mut large: Vec<_> = pending.map(|it| kept(it.index, it.message)).collect();
        for Uncommitted { index, record, .. } in self.log.uncommitted() {
            if let Record::Local { message, destinations, inline, .. } = *record {
                if !inline {
                    large.push(kept(*index, message));
                }
                if destinations.has_several() {
                    self.afloat.insert(message);
                }
            }
        }
        large.sort_unstable_by_key(|large| large.index);
        self.log.payloads.rebuild(large);
    }

    /// Announces to a group's leader everything that the group may need, and sends the results.
    pub(super) fn tell_all(&mut self, group: GroupId, effects: &mut Vec<Effect>) {
        if group == self.group() {
            return;
        }
        let to = self.leader_of(group);
        for message in self.shared_with(group) {
            self.tell(message, to, false, effects);
        }
    }

    /// Whoever led a group that we share a message with may have died with our predecessor. One
    /// announcement tells all its replicas who we are, and its next leader will tell us the rest.
    fn greet(&self, group: GroupId, effects: &mut Vec<Effect>) {
        if group == self.group() || planted(Mutant::NotAnnouncedAgain) {
            return;
        }
        let first = self.shared_with(group).first().copied();
        let Some(announcement) = first.and_then(|first| self.announcement(first, false)) else {
            return;
        };
        for slot in 0..self.config.group.replicas {
            let to = ReplicaId::new(group, slot);
            if to != self.leader_of(group) {
                effects.push(Effect::Announce { to, announcement });
            }
        }
    }

    /// Every message shared with a group that it may not be done with, sorted.
    fn shared_with(&self, group: GroupId) -> Vec<MessageId> {
        let goes = |destinations: GroupSet| destinations.contains(group);
        let pending = self.order.iter().filter(|p| goes(p.destinations)).map(|p| p.message);
        let afloat = self.log.uncommitted().filter_map(|entry| match entry.record {
            Record::Local { message, destinations, .. } if goes(destinations) => Some(message),
            _ => None,
        });
        let owed = self.shared.iter();
        let owed = owed.filter(|o| goes(o.destinations) && self.shared.unsettled_in(group, o));
        let mut all: Vec<_> = pending.chain(afloat).chain(owed.map(|o| o.message)).collect();
        all.sort_unstable();
        all
    }
}
