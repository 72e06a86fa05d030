//! The hooks of the [group log](crate::group) for this ordering.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::content::Content;
use super::entries::{Record, Taken};
use super::gate::Unstable;
use super::pending::{Pending, PendingQueue};
use super::shared::Shared;
use super::{Effect, Tram};
use crate::ballot::Ballot;
use crate::group::on_log::OnLog;
use crate::group::ordering::{Next, Ordering};
use crate::group::payloads::Large;
use crate::group::uncommitted::Uncommitted;
use crate::group::{GroupLog, GroupRecord};
use crate::ids::{GroupId, GroupSet};
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// What our group has to deliver, and up to where it is done.
pub(crate) struct Deliveries<'a> {
    pending: &'a PendingQueue,
    shared: &'a Shared,
}

impl Ordering for Deliveries<'_> {
    fn done(&self) -> Rank {
        self.shared.settled()
    }

    /// What is committed is delivered, but a machine that waits for results takes nothing meanwhile.
    fn waits_for_others_below(&self, index: u64) -> bool {
        self.pending.has_several_before(index)
    }
}

impl Tram {
    /// The state of deliveries that our log reads.
    pub(super) const fn deliveries(&self) -> Deliveries<'_> {
        Deliveries { pending: &self.pending, shared: &self.shared }
    }
}

impl OnLog for Tram {
    type Deliveries<'a> = Deliveries<'a>;

    fn log_and_deliveries(&mut self) -> (&mut GroupLog<Record>, Deliveries<'_>) {
        let Self { log, pending, shared, .. } = self;
        (log, Deliveries { pending, shared })
    }

    fn waits_first(&mut self) -> Option<Next> {
        let Pending { rank, since_ms, .. } = *self.pending.first()?;
        Some(Next { least: rank, since_ms })
    }

    fn append(&mut self, record: Record, effects: &mut Vec<Effect>) -> u64 {
        let (index, birth, time_ms) = self.log.next_entry();
        self.log.push(Uncommitted { index, birth, time_ms, record });
        effects.push(Effect::Append { index, time_ms, record });
        if self.log.is_durable() {
            self.owe(index);
        }
        index
    }

    fn fold(&mut self, index: u64) {
        self.log.commit_to(index);
        while let Some(Uncommitted { index, birth, time_ms, record }) = self.log.next_committed() {
            match record {
                Record::Ordered { content, taken, known } => {
                    self.fold_ordered((index, birth, time_ms), content, taken, known);
                }
                Record::Exchange => {}
                Record::Group(GroupRecord::NewBallot) => self.log.commits_new_ballot(birth),
                Record::Group(GroupRecord::Evict { slot }) => self.log.commits_evict(slot),
                Record::Group(GroupRecord::Join { slot, incarnation }) => {
                    self.log.commits_join(slot, incarnation, index);
                }
            }
        }
    }

    fn truncate(&mut self, index: u64) {
        let known = &mut self.logged;
        self.log.truncate(index, |record| {
            if let Record::Ordered { content, .. } = record {
                content.message().into_iter().for_each(|message| known.cut(message));
            }
        });
        while self.repeats.pop_back_if(|(at, _)| *at > index).is_some() {}
        let last = self.log.uncommitted().rev().find_map(|entry| match entry.record {
            Record::Ordered { taken, .. } => taken,
            Record::Group(_) | Record::Exchange => None,
        });
        self.incoming.truncate(last.map(|taken| taken.number));
    }

    fn follow(&mut self, ballot: Ballot, base: u64, first: u64) {
        let granted = ballot == self.log.promised() && !self.log.leads();
        assert!(granted, "only the leader whose ballot we granted writes our log");
        self.truncate(base);
        self.log.follow(ballot, first);
        self.owe(self.log.last_index());
    }

    /// Also asks all neighbours for what they have told before, and repeats every reply that a session may have missed.
    fn lead(&mut self, effects: &mut Vec<Effect>) {
        self.log.begin_to_lead();
        self.forget_kept(effects);
        let kept = |index, message| Large { index, message, delivered: false };
        let pending = self.pending.iter().filter(|it| !it.inline);
        let mut large: Vec<_> = pending.map(|it| kept(it.index, it.message)).collect();
        let mut undelivered: BTreeSet<_> = self.pending.iter().map(|it| it.message).collect();
        self.children.iter_mut().for_each(|(_, table)| table.forget_logged());
        for Uncommitted { index, record, .. } in self.log.uncommitted() {
            let Record::Ordered { content, known, .. } = record else { continue };
            self.children.log(&self.tree, self.config.group.me.group, content);
            if let Content::Message { message, outside, .. } = *content {
                if !known {
                    undelivered.insert(message);
                }
                if outside > 0 {
                    large.push(kept(*index, message));
                }
            }
        }
        self.log.payloads.rebuild(large);
        self.last_shared = self.append(Record::Group(GroupRecord::NewBallot), effects);
        self.log.led_from(self.last_shared);
        self.mark_root(effects);
        self.meet_neighbours(effects);
        self.shared.forget_told();
        let missed = self.logged.recent().into_iter().filter(|it| !undelivered.contains(it));
        effects.extend(missed.map(|message| Effect::Repeat { message }));
    }

    fn owe_all(&mut self) {
        self.owe(self.log.last_index());
    }

    /// Every committed entry is delivered at once.
    fn has_delivered(&mut self, _: Rank) {}

    fn step_down(&mut self) {
        if self.log.leads() {
            self.waiting.clear();
            self.log.step_down();
        }
    }
}

impl Tram {
    /// Something that is ordered is committed: it is numbered for the children, and waits for delivery if it is for us.
    fn fold_ordered(
        &mut self,
        (index, birth, time_ms): (u64, Ballot, u64),
        content: Content,
        taken: Option<Taken>,
        known: bool,
    ) {
        if let Content::Message { message, low_water, .. } = content {
            self.logged.commit(message, low_water, known);
        }
        if known {
            self.repeats.pop_front_if(|(at, _)| *at == index);
        }
        let rank = Self::rank(birth, index);
        let place = taken.map_or(rank, |taken| taken.place);
        let destinations = content.destinations(&self.tree);
        // A message to our group alone touches no other.
        let is_alone = taken.is_none() && !destinations.has_several() && !known;
        let here = is_alone && content.message().is_some()
            || self.fold_shared((rank, place), destinations, content, taken, known);
        match content {
            Content::Message { message, low_water, outside, .. } if here => {
                let since_ms = self.log.now_ms();
                self.pending.push(Pending {
                    message,
                    low_water,
                    destinations,
                    index,
                    rank,
                    place,
                    time_ms,
                    since_ms,
                    inline: outside == 0,
                    clock: self.clock + index,
                });
            }
            _ => self.note_not_delivered(index, &content),
        }
    }

    /// Something that concerns other groups is committed. Returns whether it is to be delivered here, if it is a message.
    fn fold_shared(
        &mut self,
        (rank, place): (Rank, Rank),
        destinations: GroupSet,
        content: Content,
        taken: Option<Taken>,
        known: bool,
    ) -> bool {
        let lca = content.lca(&self.tree);
        let from_parent = taken.map(|taken| taken.number.number);
        if let Some(Taken { number, place }) = taken {
            if number.generation > self.incoming.committed().generation {
                self.gate.parent_recreated();
            }
            if !self.incoming.fold(number, place, lca) {
                // This entry brings nothing: a destination that has nothing else of the message lacks it.
                if let Some(message) = content.message().filter(|_| !known) {
                    self.logged.forget(message);
                    self.stale.push(message);
                }
                self.children.commit_stale(&self.tree, self.config.group.me.group, &content);
                self.gate.note_edges(from_parent, &[]);
                return false;
            }
        }
        if let Content::Marker { group, generation } = content {
            self.fold_marker(group, generation, lca);
        }
        let mut hops = self.gate.spare();
        let next = self.tree.next_hops(self.own(), destinations).iter();
        hops.extend(next.map(|child| (child, self.children.push(child, place, content))));
        let had = known && !planted(Mutant::OrderedAgainDelivered);
        let here = destinations.contains(self.own()) && !had || planted(Mutant::BystanderDelivers);
        let delivered = content.message().filter(|_| here);
        let since_ms = self.log.now_ms();
        let entry = Unstable::new(rank, delivered, destinations, from_parent, hops);
        self.gate.commit(Unstable { since_ms, ..entry });
        here
    }

    /// What is committed and never delivered here: its payload is kept for our followers, and then for our children, only.
    fn note_not_delivered(&mut self, index: u64, content: &Content) {
        if content.is_large() {
            self.log.payloads.note_not_delivered(index);
        }
    }

    fn fold_marker(&mut self, group: GroupId, generation: u32, lca: GroupId) {
        if group == self.own() {
            self.incoming.mark(generation);
        } else if lca == self.own() {
            let Some(table) = self.children.get_mut(group) else { return };
            table.recreated(generation);
            return self.gate.child_recreated(group);
        }
        self.incoming.disturb();
    }
}
