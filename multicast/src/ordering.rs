//! What a driver does for one ordering alone: how what that tells other groups travels.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, ReplicaId};
use skein_protocol::ordering::OrderingProtocol;

use crate::application::Application;
use crate::channel::Kind;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

/// An ordering that can be driven.
///
/// Everything else is the same for all: a replica, and an engine, take the ordering as a type parameter. Other crates can name it,
/// to be generic in it themselves.
#[expect(private_interfaces, reason = "only this crate can implement it")]
pub trait Links: OrderingProtocol<Record: Send, PeerEffect: Send> + Send + 'static {
    /// Messages that a replica tells other groups at its turn's end.
    type Outgoing: Send;
    /// Messages that the replicas of an engine tell others together.
    type Together: Send;

    /// Nothing, of one replica.
    fn outgoing(by: ReplicaId, groups: u16) -> Self::Outgoing;

    /// Nothing, of one engine.
    fn together(groups: u16) -> Self::Together;

    /// The number of entries that a leader may log for a datagram of that kind and length.
    fn entries_for(kind: Kind, len: usize) -> usize;

    /// The number of entries that a leader may log for a message behind its own entry.
    fn entries_behind(destinations: GroupSet) -> usize;

    /// Tells others what the ordering tells them, now or at the turn's end.
    fn tell<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        told: Self::PeerEffect,
        links: &mut ReplicaLinks<F, Self>,
    );

    /// A replica's turn ends: sends what it has to tell. Returns whether there was anything.
    fn tell_outgoing<F: Fabric>(
        outgoing: &mut Self::Outgoing,
        links: &mut ReplicaLinks<F, Self>,
    ) -> bool;

    /// An engine's turn ends: sends what its replicas tell together. Returns whether there was anything.
    fn tell_together<F: Fabric>(links: &mut ReplicaLinks<F, Self>) -> bool;

    /// Another replica has sent a datagram of one of the ordering's kinds.
    fn hear<F: Fabric, A: Application>(
        replica: &mut Replica<A, Self>,
        from: ReplicaId,
        kind: Kind,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    );

    /// The engine that runs `from` tells all replicas here something.
    fn hear_engine<F: Fabric, A: Application>(
        replicas: &mut [Replica<A, Self>],
        from: ReplicaId,
        datagram: &[u8],
        links: &mut ReplicaLinks<F, Self>,
    );
}
