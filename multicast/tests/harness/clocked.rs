//! Shared memory with a manual clock, so that periodic work is due in the same turn of every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skein_fabric::shm::ShmFabric;
use skein_fabric::{
    Completion, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote, Source,
};

/// The clock of all processes, in nanoseconds.
#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct Clocked {
    fabric: ShmFabric,
    clock: Clock,
}

impl Clocked {
    pub(crate) fn new(fabric: ShmFabric, clock: &Clock) -> Self {
        Self { fabric, clock: clock.clone() }
    }
}

impl Fabric for Clocked {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        self.fabric.dial(name)
    }

    fn is_gone(&mut self, peer: Peer) -> bool {
        self.fabric.is_gone(peer)
    }

    fn may_return(&self) -> bool {
        self.fabric.may_return()
    }

    fn name_of(&self, peer: Peer) -> Option<String> {
        self.fabric.name_of(peer)
    }

    fn hang_up(&mut self, peer: Peer) {
        self.fabric.hang_up(peer);
    }

    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        self.fabric.create(len, permission)
    }

    fn destroy(&mut self, region: Region) {
        self.fabric.destroy(region);
    }

    fn key(&self, region: Region) -> RegionKey {
        self.fabric.key(region)
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        self.fabric.grant(region, writer)
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.fabric.revoke(region)
    }

    fn prepare(&mut self, region: Region) {
        self.fabric.prepare(region);
    }

    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        self.fabric.attach(peer, key)
    }

    fn detach(&mut self, remote: Remote) {
        self.fabric.detach(remote);
    }

    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        self.fabric.write(to, at, from, tag)
    }

    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError> {
        self.fabric.read(from, at, len, into, tag)
    }

    fn flush(&mut self) {
        self.fabric.flush();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.fabric.poll(completions);
    }

    fn wake(&mut self, peer: Peer) {
        self.fabric.wake(peer);
    }

    fn park(&mut self, _: Duration, _: &mut dyn FnMut(&Self) -> bool) {
        unreachable!("whoever has others on its thread does not sleep")
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        self.fabric.send(to, bytes)
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        self.fabric.recv(into)
    }

    fn load(&self, region: Region, at: usize) -> u64 {
        self.fabric.load(region, at)
    }

    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        self.fabric.changed(region, seen, from)
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.fabric.store(region, at, word);
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.fabric.copy_out(region, at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.fabric.copy_in(region, at, bytes);
    }
}
