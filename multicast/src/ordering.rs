//! The driver's part that depends on the ordering: how its messages travel to other groups.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, ReplicaId, SessionId};
use skein_protocol::message::Head;
use skein_protocol::ordering::OrderingProtocol;

use crate::application::Application;
use crate::channel::Kind;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

/// An ordering that the driver can run.
///
/// Replicas and engines take the ordering as a type parameter, and everything outside this trait is the same
/// for all orderings. Other crates can name the trait to be generic over orderings themselves.
#[expect(private_interfaces, reason = "only this crate can implement it")]
pub trait Links: OrderingProtocol<Record: Send, PeerEffect: Send> + Send + 'static {
    /// Messages that a replica sends to other groups at the end of its turn.
    type Outgoing: Send;
    /// Messages that the replicas of an engine send to others together.
    type Together: Send;

    /// The empty outgoing messages of one replica.
    fn outgoing(by: ReplicaId, groups: u16) -> Self::Outgoing;

    /// The empty shared messages of one engine.
    fn together(groups: u16) -> Self::Together;

    /// Number of entries that a leader may log for a datagram of that kind and length.
    fn entries_for(kind: Kind, len: usize) -> usize;

    /// Number of entries that a leader may log for a message after the message's own entry.
    fn entries_behind(destinations: GroupSet) -> usize;

    /// Number of messages that cannot be ordered yet, because a group behind which they go has no room.
    fn refused(_: &Self::Outgoing) -> usize {
        0
    }

    /// Sends a message of the ordering to peers, now or at the end of the turn.
    fn tell<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        told: Self::PeerEffect,
        links: &mut ReplicaLinks<F, Self>,
    );

    /// Logs, before the end of a turn, what was kept until now, as far as the log has room. Returns whether some is left.
    fn log_ready<F: Fabric, A: Application>(
        _: &mut Replica<A, Self>,
        _: &mut ReplicaLinks<F, Self>,
    ) -> bool {
        false
    }

    /// Sends a replica's outgoing messages at the end of its turn. Returns whether there were any.
    fn tell_outgoing<F: Fabric>(
        outgoing: &mut Self::Outgoing,
        links: &mut ReplicaLinks<F, Self>,
    ) -> bool;

    /// Sends the shared messages at the end of an engine's turn. Returns whether there were any.
    fn tell_together<F: Fabric>(links: &mut ReplicaLinks<F, Self>) -> bool;

    /// Handles a datagram of one of the ordering's kinds from another replica.
    fn hear<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        from: ReplicaId,
        kind: Kind,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    );

    /// Whether a session's message to these groups may not be ordered now, and is kept until others have room.
    fn holds_up(_core: &Self, _destinations: GroupSet) -> bool {
        false
    }

    /// Whether replicas have a use for hints. If not, none is taken in several parts.
    const TAKES_HINTS: bool = false;

    /// Handles a hint: a large message from a session, to a destination which has it from another group.
    fn hinted<F: Fabric, A: Application>(
        _: &mut Replica<A, Self>,
        _: SessionId,
        _: Head,
        _payload: &[u8],
        _: &mut ReplicaLinks<F, Self>,
    ) {
    }

    /// Handles a datagram from the engine that runs `from` to all replicas here.
    fn hear_engine<F: Fabric, A: Application>(
        replicas: &mut [Replica<A, Self>],
        from: ReplicaId,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    );
}
