//! The driver's part of an ordering of one group: it exchanges nothing with other groups.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, ReplicaId};
use skein_protocol::single::{Never, Single};

use crate::application::Application;
use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

#[expect(private_interfaces, reason = "only this crate can implement it")]
impl Links for Single {
    type Outgoing = ();
    type Together = ();

    fn outgoing(_: ReplicaId, _: u16) {}

    fn together(_: u16) {}

    fn entries_for(_: Kind, _: usize) -> usize {
        1
    }

    fn entries_behind(_: GroupSet) -> usize {
        0
    }

    fn tell<F: Fabric, A: Application>(
        _: &mut Replica<A, Self>,
        told: Never,
        _: &mut ReplicaLinks<F, Self>,
    ) {
        match told {}
    }

    fn tell_outgoing<F: Fabric>((): &mut (), _: &mut ReplicaLinks<F, Self>) -> bool {
        false
    }

    fn tell_together<F: Fabric>(_: &mut ReplicaLinks<F, Self>) -> bool {
        false
    }

    fn hear<F: Fabric, A: Application>(
        _: &mut Replica<A, Self>,
        _: ReplicaId,
        _: Kind,
        _: &[u8],
        _: &mut ReplicaLinks<F, Self>,
    ) {
    }

    fn hear_engine<F: Fabric, A: Application>(
        _: &mut [Replica<A, Self>],
        _: ReplicaId,
        _: &[u8],
        _: &mut ReplicaLinks<F, Self>,
    ) {
    }
}
