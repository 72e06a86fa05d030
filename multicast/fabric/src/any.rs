//! A fabric that is chosen when a process starts. For clients, which learn only at run time which fabric their cluster
//! runs on, and which need not be as fast as possible.

use std::time::Duration;

use crate::shm::{ShmFabric, Waker};
use crate::tcp::{TcpFabric, TcpWaker};
#[cfg(feature = "verbs")]
use crate::verbs::VerbsFabric;
use crate::{Completion, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote, Source};

/// One of the real fabrics.
#[derive(Debug)]
pub enum AnyFabric {
    /// Within one host.
    Shm(Box<ShmFabric>),
    /// Between any hosts.
    Tcp(Box<TcpFabric>),
    /// Between hosts with RDMA cards.
    #[cfg(feature = "verbs")]
    Verbs(Box<VerbsFabric>),
}

/// Wakes an [`AnyFabric`] that is parked, from another thread of its process.
#[derive(Clone, Debug)]
pub enum AnyWaker {
    Shm(Waker),
    /// Of a network, with cards or without.
    Tcp(TcpWaker),
}

impl From<ShmFabric> for AnyFabric {
    fn from(fabric: ShmFabric) -> Self {
        Self::Shm(Box::new(fabric))
    }
}

impl From<TcpFabric> for AnyFabric {
    fn from(fabric: TcpFabric) -> Self {
        Self::Tcp(Box::new(fabric))
    }
}

#[cfg(feature = "verbs")]
impl From<VerbsFabric> for AnyFabric {
    fn from(fabric: VerbsFabric) -> Self {
        Self::Verbs(Box::new(fabric))
    }
}

impl AnyFabric {
    /// A waker for other threads of this process.
    pub fn waker(&self) -> AnyWaker {
        match self {
            Self::Shm(fabric) => AnyWaker::Shm(fabric.waker()),
            Self::Tcp(fabric) => AnyWaker::Tcp(fabric.waker()),
            #[cfg(feature = "verbs")]
            Self::Verbs(fabric) => AnyWaker::Tcp(fabric.waker()),
        }
    }
}

impl AnyWaker {
    /// Wakes the fabric if it is parked. Whatever `idle` looks at must have been written before.
    pub fn wake(&mut self) {
        match self {
            Self::Shm(waker) => waker.wake(),
            Self::Tcp(waker) => waker.wake(),
        }
    }
}

/// Applies an expression to the fabric, whichever it is.
macro_rules! either {
    ($self:ident, $fabric:ident => $act:expr) => {
        match $self {
            Self::Shm($fabric) => $act,
            Self::Tcp($fabric) => $act,
            #[cfg(feature = "verbs")]
            Self::Verbs($fabric) => $act,
        }
    };
}

impl Fabric for AnyFabric {
    fn now(&self) -> Duration {
        either!(self, fabric => fabric.now())
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        either!(self, fabric => fabric.dial(name))
    }

    fn is_gone(&mut self, peer: Peer) -> bool {
        either!(self, fabric => fabric.is_gone(peer))
    }

    fn may_return(&self) -> bool {
        either!(self, fabric => fabric.may_return())
    }

    fn name_of(&self, peer: Peer) -> Option<String> {
        either!(self, fabric => fabric.name_of(peer))
    }

    fn hang_up(&mut self, peer: Peer) {
        either!(self, fabric => fabric.hang_up(peer));
    }

    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        either!(self, fabric => fabric.create(len, permission))
    }

    fn destroy(&mut self, region: Region) {
        either!(self, fabric => fabric.destroy(region));
    }

    fn key(&self, region: Region) -> RegionKey {
        either!(self, fabric => fabric.key(region))
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        either!(self, fabric => fabric.grant(region, writer))
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        either!(self, fabric => fabric.revoke(region))
    }

    fn prepare(&mut self, region: Region) {
        either!(self, fabric => fabric.prepare(region));
    }

    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        either!(self, fabric => fabric.attach(peer, key))
    }

    fn detach(&mut self, remote: Remote) {
        either!(self, fabric => fabric.detach(remote));
    }

    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        either!(self, fabric => fabric.write(to, at, from, tag))
    }

    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError> {
        either!(self, fabric => fabric.read(from, at, len, into, tag))
    }

    fn flush(&mut self) {
        either!(self, fabric => fabric.flush());
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        either!(self, fabric => fabric.poll(completions));
    }

    fn wake(&mut self, peer: Peer) {
        either!(self, fabric => fabric.wake(peer));
    }

    fn set_contended(&mut self, contended: bool) {
        either!(self, fabric => fabric.set_contended(contended));
    }

    fn take_contended(&mut self) -> bool {
        either!(self, fabric => fabric.take_contended())
    }

    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool) {
        match self {
            Self::Shm(_) => ShmFabric::nap(self, Self::as_shm, longest, idle),
            Self::Tcp(_) => TcpFabric::nap(self, Self::as_tcp, longest, idle),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => VerbsFabric::nap(self, Self::as_verbs, longest, idle),
        }
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        either!(self, fabric => fabric.send(to, bytes))
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        either!(self, fabric => fabric.recv(into))
    }

    fn load(&self, region: Region, at: usize) -> u64 {
        either!(self, fabric => fabric.load(region, at))
    }

    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        either!(self, fabric => fabric.changed(region, seen, from))
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        either!(self, fabric => fabric.store(region, at, word));
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        either!(self, fabric => fabric.copy_out(region, at, into));
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        either!(self, fabric => fabric.copy_in(region, at, bytes));
    }
}

impl AnyFabric {
    fn as_shm(&mut self) -> &mut ShmFabric {
        let Self::Shm(fabric) = self else { unreachable!("it was shared memory a moment ago") };
        fabric
    }

    fn as_tcp(&mut self) -> &mut TcpFabric {
        let Self::Tcp(fabric) = self else { unreachable!("it was a network a moment ago") };
        fabric
    }

    #[cfg(feature = "verbs")]
    fn as_verbs(&mut self) -> &mut VerbsFabric {
        let Self::Verbs(fabric) = self else { unreachable!("it had a card a moment ago") };
        fabric
    }
}
