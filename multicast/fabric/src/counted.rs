//! A fabric that counts its requests, over any backend: the input of a model of costs.

use std::cell::Cell;
use std::ops::Sub;
use std::time::Duration;

use crate::{Completion, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote, Source};

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Words of local regions compared with their former values.
    pub words: u64,
    /// Bytes copied from and to local regions, and inline with requests.
    pub copied: u64,
    /// Writes and reads posted.
    pub requests: u64,
}

impl Sub for Asked {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            words: self.words - before.words,
            copied: self.copied - before.copied,
            requests: self.requests - before.requests,
        }
    }
}

/// A fabric with counts.
#[derive(Debug)]
pub struct Counted<F> {
    fabric: F,
    asked: Cell<Asked>,
}

impl<F> Counted<F> {
    /// Starts to count.
    pub fn new(fabric: F) -> Self {
        Self { fabric, asked: Cell::default() }
    }

    /// The counts so far.
    pub fn asked(&self) -> Asked {
        self.asked.get()
    }

    fn note(&self, note: impl FnOnce(&mut Asked)) {
        let mut asked = self.asked.get();
        note(&mut asked);
        self.asked.set(asked);
    }

    fn note_copy(&self, len: usize) {
        self.note(|asked| asked.copied += len as u64);
    }
}

impl<F: Fabric> Fabric for Counted<F> {
    fn now(&self) -> Duration {
        self.fabric.now()
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

    fn has_died(&mut self, peer: Peer) -> bool {
        self.fabric.has_died(peer)
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
        self.note(|asked| {
            asked.requests += 1;
            if let Source::Inline(bytes) = from {
                asked.copied += bytes.len() as u64;
            }
        });
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
        self.note(|asked| asked.requests += 1);
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

    /// # Panics
    /// Always: the model of costs has no cost of sleeping.
    fn park(&mut self, _: Duration, _: &mut dyn FnMut(&Self) -> bool) {
        unreachable!("a process whose requests are counted never sleeps")
    }

    fn set_contended(&mut self, contended: bool) {
        self.fabric.set_contended(contended);
    }

    fn take_contended(&mut self) -> bool {
        self.fabric.take_contended()
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
        let found = self.fabric.changed(region, seen, from);
        let looked = found.map_or(seen.len(), |at| at + 1).saturating_sub(from);
        self.note(|asked| asked.words += looked as u64);
        found
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.fabric.store(region, at, word);
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.note_copy(into.len());
        self.fabric.copy_out(region, at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.note_copy(bytes.len());
        self.fabric.copy_in(region, at, bytes);
    }
}
