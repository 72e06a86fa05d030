//! The driver's part of RamCast: leaders' proposals to each other, and replicas' reports of passed messages.

mod heard;
pub(crate) mod proposal_batch;
mod proposals;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, ReplicaId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::properties::{About, Touch};
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::ramcast::{PeerEffect, Ramcast};

use self::proposal_batch::ProposalBatch;
use crate::application::Application;
use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica_links::{Note, ReplicaLinks};
use crate::turn_batches::TurnBatches;

#[expect(private_interfaces, reason = "only this crate can implement it")]
impl Links for Ramcast {
    type Outgoing = TurnBatches;
    type Together = ProposalBatch;

    fn outgoing(by: ReplicaId, groups: u16) -> TurnBatches {
        TurnBatches::new(by, groups, usize::MAX)
    }

    fn together(groups: u16) -> ProposalBatch {
        ProposalBatch::new(groups)
    }

    fn entries_for(kind: Kind, len: usize) -> usize {
        match kind {
            Kind::Order => len / Announcement::BYTES_MIN,
            Kind::OrderTogether => len / Proposed::PROPOSAL_BYTES,
            _ => 1,
        }
    }

    /// One for each other group's proposal.
    fn entries_behind(destinations: GroupSet) -> usize {
        destinations.len() - 1
    }

    fn tell<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        told: PeerEffect,
        links: &mut ReplicaLinks<F, Self>,
    ) {
        let by = replica.id;
        match told {
            PeerEffect::Propose { announcement } => {
                let about = About::Message(announcement.message);
                if links.journal.is_some() {
                    for group in announcement.destinations.without(by.group).iter() {
                        let to = replica.core.leader_of(group);
                        links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                    }
                }
                links.propose(&announcement, |group| replica.core.leader_of(group));
            }
            PeerEffect::Announce { to, announcement } => {
                let about = About::Message(announcement.message);
                links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                if announcement.again.is_some() {
                    let mut bytes = links.borrow();
                    announcement.encode(&mut bytes);
                    links.ask(by, to, Kind::Order, &bytes);
                    links.keep(bytes);
                } else {
                    replica.outgoing.push(to, |bytes| announcement.encode(bytes), links);
                }
            }
            PeerEffect::Pass { to, rows, asks } => replica.tell_passed(to, rows, asks, links),
        }
    }

    fn tell_outgoing<F: Fabric>(
        outgoing: &mut TurnBatches,
        links: &mut ReplicaLinks<F, Self>,
    ) -> bool {
        outgoing.send(links)
    }

    fn tell_together<F: Fabric>(links: &mut ReplicaLinks<F, Self>) -> bool {
        links.tell_proposals()
    }

    fn hear<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        from: ReplicaId,
        kind: Kind,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    ) {
        let mut rest = datagram;
        match kind {
            Kind::Order => {
                while let Some((announcement, next)) = Announcement::decode(rest) {
                    replica.announced(from, announcement);
                    rest = next;
                }
            }
            Kind::OrderTogether => {
                while let Some((proposed, proposals, next)) = Proposed::decode(rest) {
                    if links.may_propose(from, proposed.destinations, &proposals) {
                        replica.proposed(&proposed, &proposals);
                    }
                    rest = next;
                }
            }
            Kind::Progress => replica.hear_passed(from, datagram, links),
            _ => {}
        }
    }

    fn hear_engine<F: Fabric, A: Application>(
        replicas: &mut [Replica<A, Self>],
        from: ReplicaId,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    ) {
        heard::take_proposals(replicas, from, datagram, links);
    }
}
