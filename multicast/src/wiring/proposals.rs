//! What leaders here propose in a turn goes to each other engine once.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::message::{Announcement, Proposals};

use super::{Datagram, Link, PROPOSED_HERE_MAX, Wiring};
use crate::channel::Kind;
use crate::mail::{Purpose, name};

impl<F: Fabric> Wiring<F> {
    /// Gathers what a leader here proposes, for the leaders of all other groups that the message goes to,
    /// as it knows them; see [`tell_proposals`](Self::tell_proposals).
    pub(crate) fn propose(
        &mut self,
        announcement: &Announcement,
        leader_of: impl Fn(GroupId) -> ReplicaId,
    ) {
        let others = announcement.destinations.without(announcement.timestamp.group());
        if others.iter().any(|group| self.gathered_proposals.doubts(leader_of(group))) {
            self.tell_proposals();
        }
        others.iter().for_each(|group| self.gathered_proposals.trust(leader_of(group)));
        self.gathered_proposals.push(announcement);
    }

    /// Tells each engine what was gathered for its leaders. Returns whether there was anything.
    pub(crate) fn tell_proposals(&mut self) -> bool {
        if self.gathered_proposals.is_empty() {
            return false;
        }
        let mut gathered = std::mem::take(&mut self.gathered_proposals);
        gathered.close();
        let (from, mut together) = (self.local[0], self.borrow());
        for leader in gathered.leaders() {
            if !self.runs_here(leader) {
                continue;
            }
            gathered.tell(GroupSet::single(leader.group), &mut together, |bytes| {
                self.propose_here(from, leader, bytes);
            });
        }
        for link in 0..self.links.len() {
            let there = |it: &ReplicaId| self.place(*it).link == Some(link as u16);
            let to: GroupSet = gathered.leaders().filter(there).map(|it| it.group).collect();
            let Link { peer, first, .. } = self.links[link];
            let purpose = Purpose::Engine { from: name(from), to: name(first) };
            gathered.tell(to, &mut together, |bytes| {
                let route = self.links[link].route;
                let goes = self.send_by(route, peer, purpose, Kind::Propose, bytes, &[]);
                self.links[link].route = goes;
            });
        }
        self.keep(together);
        gathered.clear();
        self.gathered_proposals = gathered;
        true
    }

    /// Whether what is proposed for a message makes sense, of leaders of the engine that runs `from`: what
    /// others say may be anything.
    pub(crate) fn may_propose(
        &self,
        from: ReplicaId,
        destinations: GroupSet,
        proposals: &Proposals<'_>,
    ) -> bool {
        let engine = self.place(from).link;
        self.topology.all_groups().contains_all(destinations)
            && proposals.iter().all(|it| {
                let by = ReplicaId::new(it.group(), it.ballot.slot());
                destinations.contains(by.group)
                    && by.slot < self.topology.replicas
                    && self.place(by).link == engine
            })
    }

    /// Queues what is proposed to a leader here, unless too much waits for room in its log already.
    pub(crate) fn propose_here(&mut self, from: ReplicaId, to: ReplicaId, proposed: &[u8]) {
        if self.proposed_here[usize::from(self.place(to).row)] < PROPOSED_HERE_MAX {
            let bytes = self.buffers.copy(proposed);
            self.keep_here(Datagram { from, to, kind: Kind::Propose, bytes });
        }
    }
}
