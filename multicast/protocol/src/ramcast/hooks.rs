//! The hooks of the [group log](crate::group): what a leader change discards, adopts, and announces to other groups
//! again.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::deliveries::Deliveries;
use super::{Effect, PeerEffect, Ramcast, Record};
use crate::ballot::Ballot;
use crate::group::on_log::OnLog;
use crate::group::ordering::Next;
use crate::group::payloads::Large;
use crate::group::uncommitted::Uncommitted;
use crate::group::{GroupLog, GroupRecord};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ordering::OrderingProtocol;
use crate::ramcast::leader::Asking;
use crate::rank::Rank;

impl OnLog for Ramcast {
    type Deliveries<'a> = Deliveries<'a>;

    fn log_and_deliveries(&mut self) -> (&mut GroupLog<Record>, Deliveries<'_>) {
        let Self { log, order, retained, config, .. } = self;
        (log, Deliveries { own: config.group.me.group, order, retained })
    }

    fn waits_first(&mut self) -> Option<Next> {
        let (bound, since_ms) = self.order.head()?;
        Some(Next { least: bound.into(), since_ms })
    }

    fn append(&mut self, record: Record, effects: &mut Vec<Effect>) -> u64 {
        self.append_all([record], effects);
        self.log.last_index()
    }

    fn fold(&mut self, index: u64) {
        self.log.commit_to(index);
        while let Some(entry) = self.log.next_committed() {
            self.fold_record(entry);
        }
    }

    /// Every group that shares a message with us which may still be undelivered there must receive our acceptance word
    /// in this ballot.
    fn owe_all(&mut self) {
        let uncommitted = self.log.uncommitted().filter_map(|entry| match entry.record {
            Record::Local { destinations, .. } => Some(destinations),
            _ => None,
        });
        let pending = self.order.iter().map(|pending| pending.destinations);
        let delivered = self.retained.iter().map(|retained| retained.destinations);
        let groups = uncommitted.chain(pending).chain(delivered);
        let groups = groups.fold(GroupSet::single(self.group()), GroupSet::union);
        self.log.owe(self.log.last_index(), groups);
    }

    fn has_delivered(&mut self, rank: Rank) {
        self.replayed.reach(rank);
    }

    fn step_down(&mut self) {
        if !self.log.leads() {
            return;
        }
        self.log.step_down();
        self.unreceived.clear();
        self.remotes.clear();
        self.decisions.clear();
        self.uncommitted_multi_group.clear();
    }

    fn truncate(&mut self, index: u64) {
        let known = &mut self.logged;
        self.log.truncate(index, |record| {
            if let Record::Local { message, .. } = record
                && !planted(Mutant::TruncatedRemembered)
            {
                known.remove(*message);
            }
        });
    }

    fn follow(&mut self, ballot: Ballot, base: u64, first: u64) {
        let granted = ballot == self.log.promised() && !self.log.leads();
        assert!(granted, "only the leader whose ballot we granted writes our log");
        self.truncate(base);
        self.log.follow(ballot, first);
        let own = GroupSet::single(self.group());
        self.log.owe(self.log.last_index(), own);
        if base >= first {
            self.owe_all();
        }
    }

    /// Sends again everything that other groups may still need, and every reply that a session may have missed.
    fn lead(&mut self, effects: &mut Vec<Effect>) {
        self.log.begin_to_lead();
        self.asking = Asking::default();
        self.hear_of_logged();
        self.retained.forget_told();
        self.passed.lead();
        self.forget_kept(effects);
        self.rebuild();
        let first = self.append(Record::Group(GroupRecord::NewBallot), effects);
        self.log.led_from(first);
        if self.log.is_durable() {
            self.owe_all();
        }
        for group in (0..self.config.groups).map(GroupId) {
            self.tell_all(group, effects);
            self.announce_leader(group, effects);
        }
        let logged: BTreeSet<_> =
            self.log.uncommitted().filter_map(|it| it.record.local()).collect();
        for message in self.logged.recent() {
            if planted(Mutant::RepliesNotRepeated) {
                break;
            }
            if !self.order.contains(message) && !logged.contains(&message) {
                effects.push(Effect::Repeat { message });
            }
        }
    }
}

impl Ramcast {
    /// Raises the seen ballots to those in our log, some of which were never announced to this replica. A proposal of
    /// an earlier leader of that group does not count when it is folded in, so it is not to be logged.
    fn hear_of_logged(&mut self) {
        for (group, known) in (0..self.config.groups).map(GroupId).zip(&mut self.ballots) {
            *known = self.order.highest_ballot_of(group).max(*known);
        }
        for remote in self.log.uncommitted_items() {
            let known = &mut self.ballots[remote.group().index()];
            *known = remote.ballot.max(*known);
        }
    }

    /// Rebuilds what only a leader keeps of its log.
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
                    self.uncommitted_multi_group.insert(message);
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

    /// The leader of a group with which we share a message may have died together with our predecessor. One
    /// announcement to each of the group's other replicas names our leader; the group's next leader then announces the
    /// rest.
    fn announce_leader(&self, group: GroupId, effects: &mut Vec<Effect>) {
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
                effects.push(Effect::Tell(PeerEffect::Announce { to, announcement }));
            }
        }
    }

    /// Every message shared with a group that the group may not be done with, sorted.
    fn shared_with(&self, group: GroupId) -> Vec<MessageId> {
        let goes = |destinations: GroupSet| destinations.contains(group);
        let pending = self.order.iter().filter(|p| goes(p.destinations)).map(|p| p.message);
        let uncommitted = self.log.uncommitted().filter_map(|entry| match entry.record {
            Record::Local { message, destinations, .. } if goes(destinations) => Some(message),
            _ => None,
        });
        let retained = self.retained.iter();
        let retained =
            retained.filter(|o| goes(o.destinations) && self.retained.unsettled_in(group, o));
        let mut all: Vec<_> =
            pending.chain(uncommitted).chain(retained.map(|o| o.message)).collect();
        all.sort_unstable();
        all
    }
}
