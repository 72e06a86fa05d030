//! Proposals of the leaders here: those of a turn are sent to each other engine once.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::ramcast::announcement::{Announcement, Proposals};

use crate::channel::Kind;
use crate::replica_links::ReplicaLinks;

impl<F: Fabric> ReplicaLinks<F, Ramcast> {
    /// Adds a proposal of a leader here to the batch, for the leaders, as the proposer knows them, of all
    /// other groups that the message goes to; see [`tell_proposals`](Self::tell_proposals).
    pub(crate) fn propose(
        &mut self,
        announcement: &Announcement,
        leader_of: impl Fn(GroupId) -> ReplicaId,
    ) {
        let others = announcement.destinations.without(announcement.timestamp.group());
        if others.iter().any(|group| self.together.doubts(leader_of(group))) {
            self.tell_proposals();
        }
        others.iter().for_each(|group| self.together.trust(leader_of(group)));
        self.together.push(announcement);
    }

    /// Sends the batch to the engines of its receivers. Returns whether there was anything.
    pub(crate) fn tell_proposals(&mut self) -> bool {
        if self.together.is_empty() {
            return false;
        }
        let mut batch = std::mem::take(&mut self.together);
        batch.close();
        let (from, mut together) = (self.local[0], self.borrow());
        for leader in batch.leaders() {
            if self.number_of_engine(leader).is_some() {
                continue;
            }
            batch.tell(GroupSet::single(leader.group), &mut together, |bytes| {
                self.keep_together_here(from, leader, bytes);
            });
        }
        for engine in 0..self.engines() {
            let there = |it: &ReplicaId| self.number_of_engine(*it) == Some(engine as u16);
            let to: GroupSet = batch.leaders().filter(there).map(|it| it.group).collect();
            batch.tell(to, &mut together, |bytes| {
                self.send_to_engine(engine, Kind::OrderTogether, bytes);
            });
        }
        self.keep(together);
        batch.clear();
        self.together = batch;
        true
    }

    /// Returns whether proposals for a message are valid as proposals of leaders on the engine that runs
    /// `from`. A peer may send anything.
    pub(crate) fn may_propose(
        &self,
        from: ReplicaId,
        destinations: GroupSet,
        proposals: &Proposals<'_>,
    ) -> bool {
        let engine = self.number_of_engine(from);
        self.layout.topology().all_groups().contains_all(destinations)
            && proposals.iter().all(|it| {
                let by = ReplicaId::new(it.group(), it.ballot.slot());
                destinations.contains(by.group)
                    && by.slot < self.layout.topology().replicas
                    && self.number_of_engine(by) == engine
            })
    }
}
