//! Our peers, and those of their regions that we have attached.

use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use super::bell::Bell;
use super::block::{Block, Key};
use super::host::Away;
use super::regions::Regions;
use crate::memory::{Memory, check_remote_span};
use crate::slab::Slab;
use crate::{FabricError, Outcome, Region, RegionKey, Remote, Source};

/// State of a peer.
#[derive(Debug)]
pub(super) struct PeerState {
    pub(super) name: String,
    pub(super) incarnation: u64,
    pub(super) bell: Bell,
    pub(super) away: Away,
    /// The peer is known to be dead. Never reset.
    pub(super) gone: bool,
    /// How an untagged write failed, until a tagged one reports it.
    pub(super) failed: Option<Outcome>,
    /// The last nap of the peer that we ended.
    rung: u32,
    /// One mapping per file, however many of its regions are attached.
    maps: HashMap<u64, Weak<Memory>>,
}

impl PeerState {
    pub(super) fn new(name: &str, incarnation: u64, away: Away, bell: Bell) -> Self {
        Self {
            name: name.to_owned(),
            incarnation,
            bell,
            away,
            gone: false,
            failed: None,
            rung: 0,
            maps: HashMap::new(),
        }
    }

    pub(super) fn is_gone(&mut self) -> bool {
        self.gone = self.gone
            || self.bell.has_left()
            || self.bell.has_lost_thread()
            || !self.away.is_alive();
        self.gone
    }

    /// Whether the peer is known to be dead, or seen to have left.
    fn has_ended(&self) -> bool {
        self.gone || self.bell.has_left()
    }

    pub(super) fn ring(&mut self) -> bool {
        self.bell.ring(&mut self.rung)
    }

    fn map(&mut self, file: u64) -> Result<Arc<Memory>, FabricError> {
        if let Some(memory) = self.maps.get(&file).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = self.away.open(file)?;
        self.maps.retain(|_, memory| memory.strong_count() > 0);
        self.maps.insert(file, Arc::downgrade(&memory));
        Ok(memory)
    }
}

/// The regions of peers that we have attached.
#[derive(Debug, Default)]
pub(super) struct Remotes(Slab<RemoteState>);

/// A peer's region.
#[derive(Debug)]
pub(super) struct RemoteState {
    pub(super) peer: u32,
    block: Block,
    generation: u32,
    len: usize,
    may_write: bool,
    /// Whether it can be revoked: if so, a write has to check after a full fence that it was not.
    pub(super) fenced: bool,
}

impl Remotes {
    /// The region of a handle. An error if its peer was hung up on meanwhile, which is normal.
    pub(super) fn get(&self, remote: Remote) -> Result<&RemoteState, FabricError> {
        match self.0.get(remote.0) {
            Some(state) => Ok(state),
            None => Err(FabricError::Gone),
        }
    }

    pub(super) fn attach(
        &mut self,
        peer: u32,
        state: &mut PeerState,
        key: &RegionKey,
        me: u64,
    ) -> Result<Remote, FabricError> {
        let key = Key::from_bytes(key);
        if state.gone {
            return Err(FabricError::Gone);
        }
        if key.incarnation != state.incarnation {
            return Err(FabricError::StaleKey);
        }
        let memory = state.map(key.file)?;
        if !key.fits(memory.len()) {
            return Err(FabricError::StaleKey);
        }
        let block = Block::new(memory, key.header as usize);
        if !block.attach(&key, me) {
            return Err(FabricError::StaleKey);
        }
        let (generation, len) = (key.generation, key.bytes() as usize);
        let (may_write, fenced) = (block.may_write(me), block.is_granted());
        let state = RemoteState { peer, block, generation, len, may_write, fenced };
        Ok(Remote(self.0.insert(state)))
    }

    pub(super) fn detach(&mut self, remote: Remote, me: u64) {
        if let Some(state) = self.0.remove(remote.0) {
            // Even if the region has ended: its memory is not reused until we detach.
            state.block.detach(me);
        }
    }

    pub(super) fn detach_all(&mut self, peer: u32, me: u64) {
        let of_peer = |handle| self.0.get(handle).is_some_and(|remote| remote.peer == peer);
        let handles: Vec<u32> = self.0.handles().filter(|&handle| of_peer(handle)).collect();
        for handle in handles {
            self.detach(Remote(handle), me);
        }
    }

    pub(super) fn clear(&mut self, me: u64) {
        let handles: Vec<u32> = self.0.handles().collect();
        for handle in handles {
            self.detach(Remote(handle), me);
        }
    }
}

impl RemoteState {
    pub(super) fn write(
        &self,
        at: usize,
        from: Source<'_>,
        regions: &Regions,
        peer: &PeerState,
    ) -> Result<Outcome, FabricError> {
        let to = self.place(at, from.bytes())?;
        if !self.may_write || !self.block.is_open(self.generation) {
            return Ok(refusal(peer));
        }
        match from {
            Source::Inline(bytes) => self.block.memory.put(to, bytes),
            Source::Span { region, at, len } => {
                let source = regions.get(region);
                self.block.memory.copy(to, &source.memory, source.place(at, len), len);
            }
        }
        if !self.fenced {
            return Ok(if peer.has_ended() { Outcome::Unknown } else { Outcome::Done });
        }
        // See the invariant of `block`: bytes, fence, check.
        fence(Ordering::SeqCst);
        Ok(self.outcome(peer))
    }

    pub(super) fn read(
        &self,
        at: usize,
        len: usize,
        (region, into): (Region, usize),
        regions: &Regions,
        peer: &PeerState,
    ) -> Result<Outcome, FabricError> {
        let from = self.place(at, len)?;
        if !self.block.is_open(self.generation) {
            return Ok(refusal(peer));
        }
        let target = regions.get(region);
        target.memory.copy(target.place(into, len), &self.block.memory, from, len);
        Ok(self.outcome(peer))
    }

    /// The outcome of the operation that was just done.
    fn outcome(&self, peer: &PeerState) -> Outcome {
        if peer.has_ended() {
            Outcome::Unknown
        } else if self.block.is_open(self.generation) {
            Outcome::Done
        } else {
            Outcome::Denied
        }
    }

    fn place(&self, at: usize, len: usize) -> Result<usize, FabricError> {
        check_remote_span(self.len, at, len)?;
        Ok(self.block.data() + at)
    }
}

/// The outcome if nothing was written: a peer that is gone does not deny anything.
fn refusal(peer: &PeerState) -> Outcome {
    if peer.has_ended() { Outcome::Unknown } else { Outcome::Denied }
}
