//! What leaders of other groups propose, as far as they may.

use skein_protocol::ids::ReplicaId;
use skein_protocol::message::{Announcement, Proposals, Proposed};
use skein_protocol::step::Event;

use super::Replica;
use crate::application::Application;

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

    /// Leaders of one engine announced what they propose for a message; see
    /// [`Wiring::may_propose`](crate::wiring::Wiring::may_propose).
    pub(crate) fn proposed(&mut self, proposed: &Proposed, proposals: &Proposals<'_>) {
        let own = self.id.group;
        if proposed.destinations.contains(own) {
            self.stir();
            self.announced += proposals.len();
            let others = proposals.iter().filter(|it| it.group() != own);
            self.core.hear_together(proposed, others, &mut self.effects);
        }
    }
}
