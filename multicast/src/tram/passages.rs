//! An entry on its way from a group to a child.

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::step::Event;
use skein_protocol::tram::content::Content;
use skein_protocol::tram::edges::Edge;
use skein_protocol::tram::{PeerEvent, Tram};

use crate::application::Application;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

/// An edge, the ballot of the leader that passes it on, and the payload of its message.
pub(super) struct Passage<'a> {
    pub(super) ballot: Ballot,
    pub(super) edge: Edge,
    /// If it is too large for the log, its checksum is here instead, and the receiver fetches it.
    pub(super) payload: &'a [u8],
}

impl<'a> Passage<'a> {
    /// No encoding is shorter.
    pub(super) const BYTES_MIN: usize = 8 + 4 + Edge::BYTES_MIN;

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let len = u32::try_from(self.payload.len()).expect("it fits into a log");
        bytes.extend_from_slice(&self.ballot.to_word().to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
        self.edge.encode(bytes);
        bytes.extend_from_slice(self.payload);
    }

    /// Splits one from those behind it. `None` if there is none, or it is malformed.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (ballot, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (edge, rest) = Edge::decode(rest)?;
        let ballot = Ballot::from_word(u64::from_le_bytes(*ballot));
        let (payload, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some((Self { ballot, edge, payload }, rest))
    }
}

impl<A: Application> Replica<A, Tram> {
    /// Handles an entry that our parent passes on. A follower learns from it who leads the parent.
    pub(super) fn passed<F: Fabric>(
        &mut self,
        from: ReplicaId,
        passage: &Passage<'_>,
        links: &mut ReplicaLinks<F, Tram>,
    ) {
        self.stir();
        let Passage { ballot, mut edge, payload } = *passage;
        let Some(sum) = self.sum_of(payload, &edge.content) else {
            return tracing::warn!(%from, ?edge, "dropped an entry that is not as our parent's are");
        };
        let message = edge.content.message().filter(|_| self.core.log().leads());
        let (mut held, mut hinted) = (true, false);
        if let Content::Message { message, low_water, destinations, outside, .. } =
            &mut edge.content
            && self.core.log().leads()
        {
            if *outside == 0 {
                self.payloads.insert(*message, *low_water, *destinations, payload);
                // What its session has written here under that name counts, though it may be longer.
                let len = self.payloads.get(*message).map_or(0, |held| held.bytes.len());
                *outside = self.outside(len);
            } else {
                held = self.payloads.holds(*message, *destinations, sum);
                hinted = !held && self.payloads.has_hint(*message, *destinations, sum);
            }
        }
        let event = PeerEvent::Passed { from, ballot, edge, sum, held: held || hinted };
        self.core.step(Event::Heard(event), &mut self.effects);
        if hinted {
            self.use_hint_if_logged(&edge);
        }
        self.carry_out(links);
        if let Some(message) = message.filter(|message| !self.core.may_need(*message)) {
            self.payloads.remove(message); // It was known.
        }
    }

    /// The checksum of a payload outside the log; 0 for one that is in its entry. `None` if the entry is malformed.
    fn sum_of(&self, payload: &[u8], content: &Content) -> Option<u64> {
        match content {
            Content::Message { outside: 1.., .. } => {
                payload.try_into().ok().map(u64::from_le_bytes)
            }
            Content::Message { .. } => (payload.len() <= self.inline_bytes_max()).then_some(0),
            Content::Marker { .. } => payload.is_empty().then_some(0),
        }
    }

    /// A message of which we are the lowest common ancestor is not ordered yet, because of these destinations.
    pub(super) fn refuse(&mut self, message: MessageId, closed: GroupSet) {
        tracing::debug!(%message, %closed, "a message waits: its destinations cannot take it now");
        self.outgoing.refused.wait(message, closed);
    }
}
