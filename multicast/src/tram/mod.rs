//! The driver's part of TRAM: entries that leaders pass on along the tree, their reports to parents and children, and what
//! they say of results to any group that shares messages with them.
//!
//! An entry travels with its payload, which every group on its path logs. If that is too large for the log, the child's
//! leader fetches it from ours, unless it has it from the session, and logs the entry when it is there. So each
//! replica of a group keeps the payload of a message until the children on its path have acknowledged it.

mod hinted;
mod passages;
mod refused;

use skein_fabric::Fabric;
use skein_protocol::check::check;
use skein_protocol::ids::{GroupSet, ReplicaId, SessionId};
use skein_protocol::message::Head;
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::properties::{About, Touch};
use skein_protocol::tram::{PeerEffect, Tram};

use self::passages::Passage;
use self::refused::Refused;
use crate::application::Application;
use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica_links::{Note, ReplicaLinks};
use crate::turn_batches::{TOGETHER_MAX, TurnBatches};

/// Length in bytes from which a datagram takes no further entry.
const TOGETHER_BYTES: usize = 1 << 10;

/// What a replica has for later.
pub struct Outgoing {
    batches: TurnBatches,
    refused: Refused,
}

#[expect(private_interfaces, reason = "only this crate can implement it")]
impl Links for Tram {
    type Outgoing = Outgoing;
    type Together = ();

    fn outgoing(by: ReplicaId, groups: u16) -> Outgoing {
        let batches = TurnBatches::new(by, groups, TOGETHER_BYTES);
        Outgoing { batches, refused: Refused::default() }
    }

    fn together(_: u16) {}

    /// An entry of the log is at most this much longer than what was passed on, counted in short entries.
    fn entries_for(kind: Kind, len: usize) -> usize {
        if kind == Kind::Order { len.div_ceil(Passage::BYTES_MIN) } else { 1 }
    }

    fn entries_behind(_: GroupSet) -> usize {
        0
    }

    fn refused(outgoing: &Outgoing) -> usize {
        outgoing.refused.len()
    }

    fn tell<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        told: PeerEffect,
        links: &mut ReplicaLinks<F, Self>,
    ) {
        let by = replica.id;
        match told {
            PeerEffect::Pass { to, edge } => {
                let ballot = replica.core.log().ballot();
                let Replica { payloads, outgoing, .. } = replica;
                let payload = edge.content.message().map_or(&[][..], |message| {
                    let about = About::Message(message);
                    links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                    &payloads.get(message).expect("kept until it is acknowledged").bytes
                });
                let sum = edge.content.is_large().then(|| check(payload).to_le_bytes());
                let payload = sum.as_ref().map_or(payload, |sum| &sum[..]);
                let passage = Passage { ballot, edge, payload };
                outgoing.batches.push(to, |bytes| passage.encode(bytes), links);
            }
            PeerEffect::Report { to, asks } => {
                let about = About::Passed;
                links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                let mut bytes = links.borrow();
                replica.core.report(to, asks, &mut bytes);
                if asks {
                    links.ask(by, to, Kind::Progress, &bytes);
                } else {
                    links.send(by, to, Kind::Progress, &bytes, &[]);
                }
                links.keep(bytes);
            }
            PeerEffect::Applied { to, asks } => {
                let about = About::Passed;
                links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                let mut bytes = links.borrow();
                replica.core.report_applied(asks, &mut bytes);
                links.ask(by, to, Kind::Progress, &bytes);
                links.keep(bytes);
            }
            PeerEffect::AskResult { to, message } => {
                let about = About::Message(message);
                links.note(|| Note::ReceivedResult(Touch { by, to, about }));
                let mut bytes = links.borrow();
                replica.core.ask_result(message, &mut bytes);
                links.ask(by, to, Kind::Progress, &bytes);
                links.keep(bytes);
            }
            PeerEffect::Refuse { message, closed } => replica.refuse(message, closed),
        }
    }

    fn log_ready<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        links: &mut ReplicaLinks<F, Self>,
    ) -> bool {
        while replica.core.has_ready() && replica.log_has_room() {
            if replica.has_ready_payload() {
                replica.intake.may_log += 1;
                replica.core.take_ready(&mut replica.effects);
            } else {
                let payloads = &replica.payloads;
                replica.core.lose_ready(|it| payloads.is_here(it), &mut replica.effects);
            }
            replica.carry_out(links);
        }
        if replica.outgoing.refused.waits_for_room() {
            replica.try_refused(links);
        }
        replica.core.has_ready()
    }

    fn tell_outgoing<F: Fabric>(
        outgoing: &mut Outgoing,
        links: &mut ReplicaLinks<F, Self>,
    ) -> bool {
        outgoing.batches.send(links)
    }

    fn tell_together<F: Fabric>(_: &mut ReplicaLinks<F, Self>) -> bool {
        false
    }

    fn hear<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        from: ReplicaId,
        kind: Kind,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    ) {
        match kind {
            Kind::Order => {
                let mut rest = datagram;
                replica.intake.may_log += Self::entries_for(kind, datagram.len());
                for _ in 0..TOGETHER_MAX {
                    let Some((passage, next)) = Passage::decode(rest) else { break };
                    replica.passed(from, &passage, links);
                    rest = next;
                }
            }
            Kind::Progress => {
                replica.stir();
                replica.core.hear_report(from, datagram, &mut replica.effects);
                replica.carry_out(links);
                replica.try_refused(links);
            }
            _ => {}
        }
    }

    /// Another replica than the leader may lead next, and does not know which messages it will not order then.
    fn holds_up(core: &Self, destinations: GroupSet) -> bool {
        core.orders(destinations)
            && destinations.has_several()
            && (!core.log().leads() || !core.refuses(destinations).is_empty())
    }

    const TAKES_HINTS: bool = true;

    fn hinted<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        session: SessionId,
        head: Head,
        payload: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    ) {
        replica.hear_hint(session, head, payload, links);
    }

    fn hear_engine<F: Fabric, A: Application>(
        _: &mut [Replica<A, Self>],
        _: ReplicaId,
        _: &[u8],
        _: &mut ReplicaLinks<F, Self>,
    ) {
    }
}
