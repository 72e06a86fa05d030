//! Received proposals of other groups' leaders, with their validation, and reports of passed messages.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, ReplicaId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::properties::{About, Touch};
use skein_protocol::ramcast::announcement::{Announcement, Proposals, Proposed};
use skein_protocol::ramcast::{Event, PeerEvent, Ramcast};

use super::proposal_batch;
use crate::application::Application;
use crate::channel::Kind;
use crate::replica::Replica;
use crate::replica_links::{Note, ReplicaLinks};

impl<A: Application> Replica<A, Ramcast> {
    /// Handles the proposal that another group's leader announced.
    pub(crate) fn announced(&mut self, from: ReplicaId, announcement: Announcement) {
        self.stir();
        let sane = announcement.timestamp.group() == from.group
            && announcement.ballot.slot() < self.topology.replicas
            && announcement.destinations.contains(self.id.group)
            && self.topology.all_groups().contains_all(announcement.destinations);
        if sane {
            self.intake.may_log += 1;
            self.step(Event::Heard(PeerEvent::Announced { from, announcement }));
        }
    }

    /// Handles the proposals of one engine's leaders for a message; see
    /// [`ReplicaLinks::may_propose`](crate::replica_links::ReplicaLinks::may_propose).
    pub(crate) fn proposed(&mut self, proposed: &Proposed, proposals: &Proposals<'_>) {
        let own = self.id.group;
        if proposed.destinations.contains(own) {
            self.stir();
            self.intake.may_log += proposals.len();
            let others = proposals.iter().filter(|it| it.group() != own);
            self.core.hear_together(proposed, others, &mut self.effects);
        }
    }

    /// Handles another replica's report of delivered and passed messages.
    pub(crate) fn hear_passed<F: Fabric>(
        &mut self,
        from: ReplicaId,
        report: &[u8],
        links: &mut ReplicaLinks<F, Ramcast>,
    ) {
        self.stir();
        if self.core.hear_passed(from, report, &mut self.effects) && self.log_has_room() {
            self.intake.may_log += 1; // It may need an entry. If there is no room, it asks again.
            self.step(Event::Heard(PeerEvent::Awaited { by: from.group }));
        }
        self.carry_out(links);
    }

    /// Reports to another replica which messages of these groups have passed.
    pub(super) fn tell_passed<F: Fabric>(
        &self,
        to: ReplicaId,
        rows: GroupSet,
        asks: bool,
        links: &mut ReplicaLinks<F, Ramcast>,
    ) {
        let about = About::Passed;
        links.note(|| Note::ReceivedResult(Touch { by: self.id, to, about }));
        let mut bytes = links.borrow();
        self.core.report_passed(rows, asks, &mut bytes);
        if asks {
            links.ask(self.id, to, Kind::Progress, &bytes);
        } else {
            links.send(self.id, to, Kind::Progress, &bytes, &[]);
        }
        links.keep(bytes);
    }
}

/// Hands the proposals of another engine's leaders to all leaders here. A leader whose log has no room
/// receives them later, and the others do not wait for it.
pub(super) fn take_proposals<F: Fabric, A: Application>(
    replicas: &mut [Replica<A, Ramcast>],
    from: ReplicaId,
    datagram: &[u8],
    links: &mut ReplicaLinks<F, Ramcast>,
) {
    if datagram.len() > proposal_batch::TOGETHER_MAX {
        return tracing::warn!(len = datagram.len(), %from, "dropped a batch of proposals that is too long");
    }
    let mut hear = std::mem::take(&mut links.together.hear);
    for (at, ours) in replicas.iter().enumerate().filter(|(_, it)| it.core.log().leads()) {
        if ours.admits_from_replica(from.group, Kind::OrderTogether, datagram.len()) {
            hear.push(at);
        } else {
            links.keep_together_here(from, ours.id, datagram);
        }
    }
    let mut rest = datagram;
    while let Some((proposed, proposals, next)) = Proposed::decode(rest) {
        if links.may_propose(from, proposed.destinations, &proposals) {
            for at in &hear {
                replicas[*at].proposed(&proposed, &proposals);
            }
        }
        rest = next;
    }
    hear.clear();
    links.together.hear = hear;
}
