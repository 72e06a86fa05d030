//! Hints: payloads that sessions write to destinations below the group that orders their messages.
//!
//! A hint is ordered by nobody. It is compared with the entry, which has the checksum of what was ordered. While
//! an entry waits behind others, its payload remains a hint, which may go: a payload that an earlier entry needs
//! must find room. If the hint is gone when the entry can be logged, the payload is fetched.

use skein_fabric::Fabric;
use skein_protocol::check::check;
use skein_protocol::guard;
use skein_protocol::ids::{MessageId, SessionId};
use skein_protocol::message::Head;
use skein_protocol::mutants::Mutant;
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::tram::Tram;
use skein_protocol::tram::content::Content;
use skein_protocol::tram::edges::Edge;

use crate::application::Application;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

impl<A: Application> Replica<A, Tram> {
    /// Handles a hint. If our log waits for that payload, it is taken at once; otherwise it is kept as far as there
    /// is room. An invalid one is dropped.
    pub(super) fn hear_hint<F: Fabric>(
        &mut self,
        session: SessionId,
        head: Head,
        payload: &[u8],
        links: &mut ReplicaLinks<F, Tram>,
    ) {
        let Head { sequence, low_water, destinations } = head;
        let message = MessageId::new(session, sequence);
        let valid = self.is_valid(head, payload)
            && payload.len() > self.inline_bytes_max()
            && destinations.contains(self.id.group)
            && !self.core.orders(destinations);
        if !valid {
            return tracing::warn!(%message, %destinations, "dropped an invalid hint");
        }
        if self.core.log().stalled_on() == Some(message) {
            return self.receive(session, head, payload, links);
        }
        if self.core.is_logged(message) {
            return; // It comes too late.
        }
        let awaited = self.core.awaits(message);
        let fits = awaited.is_none_or(|awaited| awaited == (destinations, check(payload)));
        if !guard!(Mutant::PayloadNotCompared, fits) {
            return tracing::warn!(%message, "dropped a hint that differs from what was passed on");
        }
        let (window, assembling) = (self.window(), links.endpoint.assembling().hints);
        let named = (message, low_water, destinations);
        let kept = self.payloads.insert_hint(named, payload, window, assembling);
        if kept && awaited.is_some() {
            self.stir();
            self.core.hear_hint(message);
        }
    }

    /// Turns the hint for the message of an entry into its payload, if the entry is in our log.
    pub(super) fn use_hint_if_logged(&mut self, edge: &Edge) {
        if let Content::Message { message, low_water, destinations, .. } = edge.content
            && self.core.is_logged(message)
        {
            self.payloads.use_hint(message, low_water, destinations);
            self.paths.hint_used += 1;
        }
    }

    /// As leader: returns whether the payload of the entry that can be logged next is here. A hint becomes it.
    pub(super) fn has_ready_payload(&mut self) -> bool {
        let Some((edge, sum)) = self.core.ready() else { return false };
        match edge.content {
            Content::Message { message, low_water, destinations, outside: 1.., .. } => {
                if self.payloads.get(message).is_some() {
                    return true;
                }
                let used = self.payloads.take_hint(message, low_water, destinations, sum);
                self.paths.hint_used += u64::from(used);
                used
            }
            Content::Message { .. } | Content::Marker { .. } => true,
        }
    }
}
