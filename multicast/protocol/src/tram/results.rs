//! How groups that exchange results find each other's leaders, and when they drop their results.
//!
//! Results go from leader to leader of a message's destinations, which need not be neighbours in the tree. Three datagrams
//! between any two groups that share messages belong to that, each with the sender's ballot, by which leaders are known:
//!
//! - *Applied*: the rank in its own log up to which the sender's group has applied everything, and the
//!   [places](super::shared) of that. A leader tells that once a tick to all replicas of the groups that share it, and a new leader tells it again.
//! - *How far have you applied?* asks for that: a replica that keeps only what another group is yet to apply may have
//!   missed it.
//! - *What is your result?* about a message, to all replicas of a group: a leader whose machine waits does not know who
//!   leads there. The one that does sends its result again, to the leader that has asked.

use alloc::vec::Vec;

use super::{Effect, PeerEffect, Tram};
use crate::backoff::longer;
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// Tags of datagrams, behind those of [reports](super::neighbours).
pub(super) const APPLIED: u8 = 3;
pub(super) const ASKS_APPLIED: u8 = 4;
pub(super) const ASKS_RESULT: u8 = 5;

/// Time after which a replica asks for what another group may have told.
const ASK_MS: u64 = 20;

impl Tram {
    /// As leader, once a tick: tells the groups that share messages with us, our own among them, what we have applied.
    pub(super) fn tell_applied(&mut self, effects: &mut Vec<Effect>) {
        let own = self.own();
        let applied = self.log.applied_by_all();
        let untold = self.shared.take_untold(applied);
        self.shared.settle(applied);
        if untold.contains(own) {
            effects.push(Effect::Settle { group: own, rank: self.shared.settled() });
        }
        for group in untold.without(own).iter() {
            self.to_all(group, |to| PeerEffect::Applied { to, asks: false }, effects);
        }
    }

    /// Once a tick: drops what all groups have applied, and asks the groups that keep us from it.
    pub(super) fn drop_results(&mut self, effects: &mut Vec<Effect>) {
        self.shared.trim(|message| effects.push(Effect::DropResult { message }));
        let now_ms = self.log.now_ms();
        let asked = &self.retries.applied_asked;
        let due = |group: &GroupId| {
            let (at, count) = asked[group.index()];
            now_ms >= at + longer(ASK_MS, count)
        };
        let others = GroupSet::first(self.config.groups).without(self.own());
        let due: GroupSet = others.iter().filter(due).collect();
        if due.is_empty() {
            return;
        }
        let lacks = self.shared.lacks();
        for group in due.iter() {
            let asked = &mut self.retries.applied_asked[group.index()];
            *asked = if lacks.contains(group) {
                (now_ms, asked.1.saturating_add(1))
            } else {
                (now_ms, 0)
            };
        }
        for group in due.intersection(lacks).iter() {
            self.to_all(group, |to| PeerEffect::Applied { to, asks: true }, effects);
        }
    }

    /// As leader: our machine waits for results about a message. They may have been sent to a leader that is gone, or to
    /// a replica that does not lead.
    pub(super) fn wait_for_results(
        &self,
        message: MessageId,
        heard: GroupSet,
        effects: &mut Vec<Effect>,
    ) {
        if !self.log.leads() || planted(Mutant::ResultsNotAskedFor) {
            return;
        }
        let Some(destinations) = self.shared.destinations(message) else { return };
        for group in destinations.without(self.own()).minus(heard).iter() {
            self.to_all(group, |to| PeerEffect::AskResult { to, message }, effects);
        }
    }

    fn to_all(
        &self,
        group: GroupId,
        effect: impl Fn(ReplicaId) -> PeerEffect,
        effects: &mut Vec<Effect>,
    ) {
        let all = (0..self.config.group.replicas).map(|slot| ReplicaId::new(group, slot));
        effects.extend(all.map(|to| Effect::Tell(effect(to))));
    }

    /// Appends what our group has applied, or a question how far another one has.
    pub fn report_applied(&self, asks: bool, bytes: &mut Vec<u8>) {
        let mut out = Writer(bytes);
        out.u8(if asks { ASKS_APPLIED } else { APPLIED });
        out.u64(self.log.ballot().to_word());
        if !asks {
            out.u64(self.shared.settled().number());
            self.shared.places().for_each(|place| out.u64(place.number()));
        }
    }

    /// Appends a question for a result.
    pub fn ask_result(&self, message: MessageId, bytes: &mut Vec<u8>) {
        let mut out = Writer(bytes);
        out.u8(ASKS_RESULT);
        out.u64(self.log.ballot().to_word());
        out.message(message);
    }

    /// Handles what follows the tag and the ballot of such a datagram. A malformed one is ignored.
    pub(super) fn hear_of_results(
        &mut self,
        from: ReplicaId,
        (tag, ballot): (u8, Ballot),
        reader: &mut Reader<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<()> {
        if from.group == self.own() {
            return None;
        }
        match tag {
            APPLIED => {
                let settled = Rank::new(reader.u64()?);
                let mut places = [Rank::NOTHING; GroupSet::CAPACITY as usize];
                let places = &mut places[..self.tree.ancestors(from.group).count()];
                for place in &mut *places {
                    *place = Rank::new(reader.u64()?);
                }
                if self.shared.hear(from.group, settled, places) {
                    self.retries.applied_asked[from.group.index()] = (self.log.now_ms(), 0);
                }
            }
            ASKS_APPLIED if self.log.leads() => {
                effects.push(Effect::Tell(PeerEffect::Applied { to: from, asks: false }));
            }
            ASKS_RESULT if self.log.leads() => {
                effects.push(Effect::Resend { message: reader.message()?, to: from.group });
            }
            _ => {}
        }
        // A result goes to the leader that has asked.
        self.hears_ballot(from.group, ballot);
        Some(())
    }
}
