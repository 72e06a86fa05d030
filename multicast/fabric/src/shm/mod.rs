//! The fabric between the processes, or threads, of one host: shared memory.
//!
//! A region is memory of its owner that peers map too, and a write is a copy done by the writer. So a write has ended
//! when it is posted, and its completion only waits to be polled. The modules and what they ensure:
//!
//! - `block`: fencing. Each grant has its own file; revoking leaves an orphan behind.
//! - `bell`: waiting. No wake-up is lost, and waking costs a load while no peer is parked.
//! - `dir`, `room`: names and incarnations, and liveness by locks that the kernel releases.
//! - `thread_end`: liveness by a mark that the kernel sets sooner.
//! - `arena`: many small regions in few files.
//! - `mail`: control messages.
//!
//! **Gone.** That a peer was killed is known once [`Fabric::is_gone`] has returned true. A write posted before that is
//! `Done`, into memory whose owner is dead, as if the owner had died just after. If a peer has left in an orderly way,
//! the write itself detects it. The check takes a descriptor: without one a peer counts as alive, because taking a live
//! process for dead would give its memory to others and its leases to its successor.
//!
//! The trust boundary is the user: a process that can open the files can do everything.

mod arena;
mod bell;
mod block;
mod dir;
mod host;
mod mail;
mod regions;
mod remotes;
mod room;
mod thread_end;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use self::bell::Bell;
use self::host::{Away, Home};
use self::mail::Mailbox;
use self::regions::Regions;
use self::remotes::{PeerState, Remotes};
use crate::clock::monotonic;
use crate::error::is_lack;
use crate::slab::Slab;
use crate::{
    Completion, Fabric, FabricError, Outcome, Peer, Permission, Region, RegionKey, Remote, Source,
    check_mail, is_name, mailbox_is_full,
};

pub use host::{CleanReport, Host};

/// One process's, or thread's, end of the shared memory of a host. Dropping it leaves the host and frees everything
/// that it held there.
pub struct ShmFabric {
    name: String,
    incarnation: u64,
    bell: Bell,
    regions: Regions,
    /// The connected peers, until they are hung up on.
    peers: Slab<PeerState>,
    by_incarnation: HashMap<u64, Peer>,
    remotes: Remotes,
    completions: Vec<Completion>,
    /// Whether something was written since the last full fence.
    unfenced: bool,
    /// Whether a peer with a contended core was rung since the last [`take_contended`](Fabric::take_contended).
    woke_contended: bool,
    naps: u32,
    /// Whether dropping it notifies no peer.
    vanishes: bool,
    mailbox: Mailbox,
    /// Messages sent, per receiving incarnation: the number of the next one.
    posted: HashMap<u64, u64>,
    // Dropped after everything that is in its files.
    home: Home,
    host: Host,
}

impl ShmFabric {
    fn new(host: Host, name: &str, incarnation: u64, home: Home, bell: Bell) -> Self {
        Self {
            name: name.to_owned(),
            incarnation,
            bell,
            regions: Regions::default(),
            peers: Slab::default(),
            by_incarnation: HashMap::new(),
            remotes: Remotes::default(),
            completions: Vec::new(),
            unfenced: false,
            woke_contended: false,
            naps: 0,
            vanishes: false,
            mailbox: Mailbox::default(),
            posted: HashMap::new(),
            home,
            host,
        }
    }

    /// The name it joined under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The incarnation of that name; different at every join.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The host it joined.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A waker for other threads of this process.
    pub fn waker(&self) -> Waker {
        Waker { bell: self.bell.clone(), rung: 0 }
    }

    /// From here on, dropping the fabric is as sudden as a process being killed: no peer sees it leave, a peer's writes
    /// are `Done` until that peer checks whether it is [gone](Fabric::is_gone), and it stays attached to what it had
    /// attached. For tests of failures within a process.
    pub fn vanish(&mut self) {
        self.vanishes = true;
    }

    /// The name and incarnation of a peer, until it is hung up on.
    pub fn who(&self, peer: Peer) -> Option<(&str, u64)> {
        self.peers.get(peer.0).map(|state| (state.name.as_str(), state.incarnation))
    }

    /// Connects to that incarnation, if it lives and is not connected already. Fails where that cannot be determined
    /// now.
    fn meet(&mut self, name: &str, incarnation: u64) -> io::Result<Option<Peer>> {
        if let Some(&peer) = self.by_incarnation.get(&incarnation) {
            return Ok(Some(peer));
        }
        let Some((away, bell)) = self.host.find(name, incarnation)? else { return Ok(None) };
        let peer = Peer(self.peers.insert(PeerState::new(name, incarnation, away, bell)));
        self.by_incarnation.insert(incarnation, peer);
        Ok(Some(peer))
    }

    fn report(&mut self, peer: u32, outcome: Outcome, tag: Option<u64>) {
        if tag.is_none() && outcome == Outcome::Done {
            return;
        }
        let failed = self.peers.get_mut(peer).map(|state| &mut state.failed);
        match tag {
            Some(tag) => {
                let outcome = failed.and_then(Option::take).unwrap_or(outcome);
                self.completions.push(Completion { tag, outcome });
            }
            None => _ = failed.map(|failed| failed.get_or_insert(outcome)),
        }
    }

    /// Makes everything written so far visible before anything that is read from here on.
    fn full_fence(&mut self) {
        if self.unfenced {
            fence(Ordering::SeqCst);
            self.unfenced = false;
        }
    }

    /// Parks. `S` is the value that contains this fabric; `part` returns the fabric in it.
    pub(crate) fn nap<S>(
        whole: &mut S,
        part: fn(&mut S) -> &mut Self,
        longest: Duration,
        idle: &mut dyn FnMut(&S) -> bool,
    ) {
        let this = part(whole);
        if !this.completions.is_empty() {
            return;
        }
        // Zero means no nap.
        this.naps = this.naps.wrapping_add(1).max(1);
        let (bell, nap) = (this.bell.clone(), this.naps);
        bell.nap(nap, longest, || !part(whole).has_mail() && idle(whole));
    }

    fn has_mail(&self) -> bool {
        match &self.home {
            Home::Dir(_) => !self.mailbox.is_empty(self.bell.mail_sent()),
            Home::Room(_) => self.bell.mail_waiting() > 0,
        }
    }

    /// Takes the next message: its sender, if that is connected or lives, and its content.
    fn next_letter(&mut self) -> Option<(Option<Peer>, Option<Vec<u8>>)> {
        match &self.home {
            Home::Dir(home) => {
                let sent = self.bell.mail_sent();
                if self.mailbox.is_empty(sent) {
                    return None;
                }
                let found = self.mailbox.next(sent, &home.mail_dir())?;
                let sender = self.meet(&found.name, found.incarnation);
                let read = sender.and_then(|sender| Ok((sender, found.open()?)));
                if let Err(error) = &read {
                    tracing::debug!(%error, from = found.name, "mail cannot be read now");
                    self.mailbox.close();
                    return None;
                }
                self.mailbox.take();
                self.bell.take_mail();
                read.ok()
            }
            Home::Room(home) => {
                if self.bell.mail_waiting() == 0 {
                    return None;
                }
                let message = home.room.take()?;
                self.bell.take_mail();
                let sender = self.meet(&message.name, message.incarnation);
                Some((sender.ok().flatten(), Some(message.bytes)))
            }
        }
    }
}

impl Fabric for ShmFabric {
    fn now(&self) -> Duration {
        monotonic()
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        let unreachable = || FabricError::Unreachable { name: name.to_owned() };
        if !is_name(name) {
            return Err(unreachable());
        }
        // A process that cannot be examined now, for lack of descriptors for instance, may well be running.
        let unseen = |source: io::Error| {
            if is_lack(&source) {
                FabricError::System { call: "open", path: PathBuf::from(name), source }
            } else {
                unreachable()
            }
        };
        let incarnation = self.host.incarnation(name).map_err(unseen)?.ok_or_else(unreachable)?;
        let peer = self.meet(name, incarnation).map_err(unseen)?.ok_or_else(unreachable)?;
        if self.is_gone(peer) { Err(unreachable()) } else { Ok(peer) }
    }

    fn is_gone(&mut self, peer: Peer) -> bool {
        self.peers.get_mut(peer.0).is_none_or(PeerState::is_gone)
    }

    fn name_of(&self, peer: Peer) -> Option<String> {
        self.who(peer).map(|(name, _)| name.to_owned())
    }

    fn hang_up(&mut self, peer: Peer) {
        self.remotes.detach_all(peer.0, self.incarnation);
        let Some(mut state) = self.peers.remove(peer.0) else { return };
        self.by_incarnation.remove(&state.incarnation);
        if state.is_gone() {
            // It sends and receives nothing any more, so the count of messages is not needed.
            self.posted.remove(&state.incarnation);
            if let Home::Dir(home) = &self.home {
                self.mailbox.forget(state.incarnation, &home.mail_dir());
            }
        }
    }

    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        self.regions.create(len, permission, self.incarnation, &self.host, &self.home)
    }

    fn destroy(&mut self, region: Region) {
        self.regions.destroy(region, &self.home);
    }

    fn key(&self, region: Region) -> RegionKey {
        self.regions.key(region)
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        let writer = self.peers.get_mut(writer.0).ok_or(FabricError::Gone)?;
        if writer.is_gone() {
            return Err(FabricError::Gone);
        }
        let writer = writer.incarnation;
        self.regions.grant(region, writer, self.incarnation, &self.home)
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.regions.revoke(region, &self.home)
    }

    fn prepare(&mut self, region: Region) {
        if matches!(self.home, Home::Dir(_)) {
            // Whoever does this is the one who uses the fabric.
            self.bell.watch_thread();
        }
        self.regions.prepare(region, &self.home);
    }

    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        let state = self.peers.get_mut(peer.0).ok_or(FabricError::Gone)?;
        self.remotes.attach(peer.0, state, key, self.incarnation)
    }

    fn detach(&mut self, remote: Remote) {
        self.remotes.detach(remote, self.incarnation);
    }

    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        let remote = self.remotes.get(to)?;
        let Some(state) = self.peers.get(remote.peer) else { return Err(FabricError::Gone) };
        let outcome = remote.write(at, from, &self.regions, state)?;
        // A fence covers the writes before it too.
        self.unfenced = !remote.fenced;
        let peer = remote.peer;
        if tag.is_some() || outcome != Outcome::Done {
            self.report(peer, outcome, tag);
        }
        Ok(())
    }

    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError> {
        let remote = self.remotes.get(from)?;
        let Some(state) = self.peers.get(remote.peer) else { return Err(FabricError::Gone) };
        let outcome = remote.read(at, len, into, &self.regions, state)?;
        self.unfenced = true;
        self.completions.push(Completion { tag, outcome });
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completions);
    }

    fn wake(&mut self, peer: Peer) {
        self.full_fence();
        if let Some(state) = self.peers.get_mut(peer.0) {
            self.woke_contended |= state.ring();
        }
    }

    fn set_contended(&mut self, contended: bool) {
        self.bell.set_contended(contended);
    }

    fn take_contended(&mut self) -> bool {
        std::mem::take(&mut self.woke_contended)
    }

    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool) {
        Self::nap(self, |fabric| fabric, longest, idle);
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        check_mail(bytes)?;
        let state = self.peers.get_mut(to.0).ok_or(FabricError::Gone)?;
        if state.gone || state.bell.has_left() {
            return Err(FabricError::Gone);
        }
        if state.bell.mail_waiting() >= mail::WAITING_MAX {
            return Err(mailbox_is_full(bytes));
        }
        match &state.away {
            Away::Dir(away) => {
                let number = self.posted.entry(state.incarnation).or_default();
                let sender = (self.name.as_str(), self.incarnation);
                mail::post(&away.mail_dir(), sender, *number, bytes)?;
                *number += 1;
            }
            Away::Room(room) => {
                let (name, incarnation) = (self.name.clone(), self.incarnation);
                room.post(room::Message { name, incarnation, bytes: bytes.to_owned() });
            }
        }
        state.bell.count_mail();
        fence(Ordering::SeqCst);
        state.ring();
        Ok(())
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        loop {
            // A sender that is neither connected nor alive cannot be answered.
            if let (Some(sender), Some(bytes)) = self.next_letter()? {
                *into = bytes;
                return Some(sender);
            }
            tracing::debug!("control message of an unknown or dead sender dropped");
        }
    }

    #[inline]
    fn load(&self, region: Region, at: usize) -> u64 {
        self.regions.get(region).load(at)
    }

    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        self.regions.get(region).changed(seen, from)
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.regions.get(region).store(at, word);
        self.unfenced = true;
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.regions.get(region).copy_out(at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.regions.get(region).copy_in(at, bytes);
        self.unfenced = true;
    }
}

/// Wakes a fabric that is parked, from another thread of its process.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Bell,
    rung: u32,
}

impl Waker {
    /// Wakes the fabric if it is parked. Whatever `idle` looks at must have been written before.
    pub fn wake(&mut self) {
        fence(Ordering::SeqCst);
        self.bell.ring(&mut self.rung);
    }
}

impl Drop for ShmFabric {
    fn drop(&mut self) {
        self.bell.let_thread_go();
        if !self.vanishes && self.home.is_ours() {
            self.bell.leave();
            self.remotes.clear(self.incarnation);
        }
    }
}

impl fmt::Debug for ShmFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShmFabric({}.{:016x})", self.name, self.incarnation)
    }
}
