//! What leaders of other groups propose, as far as they may.

use skein_fabric::Fabric;
use skein_protocol::ids::ReplicaId;
use skein_protocol::log::Remote;
use skein_protocol::message::{Announcement, Proposals, Proposed};
use skein_protocol::step::Event;

use super::Replica;
use crate::application::Application;
use crate::wiring::Wiring;

impl<A: Application> Replica<A> {
    /// Another group's leader announced its proposal.
    pub(crate) fn announced(&mut self, from: ReplicaId, announcement: Announcement) {
        self.stir();
        let sane = announcement.timestamp.group() == from.group
            && announcement.ballot.slot() < self.topology.replicas
            && announcement.destinations.contains(self.id.group)
            && self.topology.all_groups().contains_all(announcement.destinations);
        if sane {
            self.announced += 1;
            self.core.step(Event::Announced { from, announcement }, &mut self.effects);
        }
    }

    /// Leaders of the engine that runs `from` announced what they propose for a message.
    pub(crate) fn proposed<F: Fabric>(
        &mut self,
        from: ReplicaId,
        proposed: &Proposed,
        proposals: &Proposals<'_>,
        wiring: &Wiring<F>,
    ) {
        let (own, destinations) = (self.id.group, proposed.destinations);
        if !destinations.contains(own) {
            return;
        }
        let others = proposals.iter().filter(|it| it.group() != own);
        let sane = |it: Remote| {
            let by = ReplicaId::new(it.group(), it.ballot.slot());
            destinations.contains(by.group) && wiring.run_together(by, from)
        };
        if self.topology.all_groups().contains_all(destinations) && others.clone().all(sane) {
            self.stir();
            self.announced += proposals.len();
            self.core.hear_together(proposed, others, &mut self.effects);
        }
    }
}
