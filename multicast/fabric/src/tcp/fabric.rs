//! This fabric's implementation of [`Fabric`].

use std::time::Duration;

use super::link::{Ended, TcpLink};
use super::meeting::Failed;
use super::regions::{CardKey, Key};
use super::{RemoteState, TcpFabric};
use crate::clock::monotonic;
use crate::memory::check_span;
use crate::{
    Completion, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote, Source,
    check_mail, mailbox_is_full,
};

impl Fabric for TcpFabric {
    fn now(&self) -> Duration {
        monotonic()
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        self.accept_new();
        if !self.by_name.contains_key(name) {
            self.call(name);
            self.await_call(name);
        }
        let peer = self.by_name.get(name).copied();
        if let Some(peer) = peer.filter(|peer| !self.is_gone(*peer)) {
            self.peers.get_mut(peer.0).expect("it is connected").known = true;
            return Ok(peer);
        }
        let name = name.to_owned();
        match self.calls.get(&name).and_then(|call| call.failed.as_ref()) {
            Some(Failed::Refused(why)) => Err(FabricError::Refused { name, why: why.clone() }),
            _ => Err(FabricError::Unreachable { name }),
        }
    }

    fn is_gone(&mut self, peer: Peer) -> bool {
        self.accept_new();
        // Once for what has arrived, and once to find out whether the connection has ended.
        self.receive(peer.0);
        self.receive(peer.0);
        self.peers.get(peer.0).is_none_or(|state| state.link.is_none())
    }

    fn may_return(&self) -> bool {
        true
    }

    fn name_of(&self, peer: Peer) -> Option<String> {
        self.who(peer).map(|(name, _)| name.to_owned())
    }

    fn hang_up(&mut self, peer: Peer) {
        self.end(peer.0, &Ended::Closed);
        self.peers.remove(peer.0);
        self.messages.retain(|(from, _)| *from != peer.0);
        self.remotes.retain(|remote| remote.peer != peer.0);
    }

    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        self.regions.create(len, permission)
    }

    fn destroy(&mut self, region: Region) {
        self.regions.destroy(region);
    }

    fn key(&self, region: Region) -> RegionKey {
        self.regions.key(region, self.incarnation)
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        if self.is_gone(writer) {
            return Err(FabricError::Gone);
        }
        let writer = self.peers.get(writer.0).ok_or(FabricError::Gone)?.side.incarnation;
        Ok(self.regions.grant(region, writer, self.incarnation))
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.regions.revoke(region);
        Ok(())
    }

    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        let state = self.peers.get(peer.0).filter(|state| state.link.is_some());
        let state = state.ok_or(FabricError::Gone)?;
        let card = state.side.card && !self.net.has_cards();
        let key = if card { CardKey::from_bytes(key).into() } else { Key::from_bytes(key) };
        if key.incarnation != state.side.incarnation || key.len == 0 {
            return Err(FabricError::StaleKey);
        }
        Ok(Remote(self.remotes.insert(RemoteState { peer: peer.0, key })))
    }

    fn detach(&mut self, remote: Remote) {
        self.remotes.remove(remote.0);
    }

    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        let RemoteState { peer, key } = self.remote(to)?;
        let len = from.bytes();
        let place = key.place(at, len)?;
        let state = self.peers.get_mut(peer).ok_or(FabricError::Gone)?;
        let Some(link) = &mut state.link else {
            self.completions.extend(tag.map(Completion::lost));
            return Ok(());
        };
        match from {
            Source::Inline(bytes) => link.write(place, len, tag, |at, into| {
                into.copy_from_slice(&bytes[at..at + into.len()]);
            }),
            Source::Span { region, at: start, .. } => {
                let memory = self.regions.get(region);
                check_span(memory.len(), start, len);
                link.write(place, len, tag, |at, into| memory.get(start + at, into));
            }
        }
        let backlog = link.backlog();
        self.after_posting(peer, backlog);
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
        let RemoteState { peer, key } = self.remote(from)?;
        let place = key.place(at, len)?;
        check_span(self.regions.get(into.0).len(), into.1, len);
        let state = self.peers.get_mut(peer).ok_or(FabricError::Gone)?;
        let Some(link) = &mut state.link else {
            self.completions.push(Completion::lost(tag));
            return Ok(());
        };
        link.read(place, len, into, tag);
        let backlog = link.backlog();
        self.after_posting(peer, backlog);
        Ok(())
    }

    fn flush(&mut self) {
        self.send_all();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        // If `recv` has just read the sockets, this need not.
        if !std::mem::take(&mut self.looked) {
            self.look(Duration::ZERO);
        }
        completions.append(&mut self.completions);
    }

    fn wake(&mut self, peer: Peer) {
        self.send(peer.0);
    }

    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool) {
        Self::nap(self, |fabric| fabric, longest, idle);
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        check_mail(bytes)?;
        let room = |fabric: &Self| {
            let state = fabric.peers.get(to.0);
            state.and_then(|state| state.link.as_ref()).map(TcpLink::has_room_for_mail)
        };
        if room(self) == Some(false) {
            self.receive(to.0);
        }
        match room(self) {
            None => return Err(FabricError::Gone),
            Some(false) => return Err(mailbox_is_full(bytes)),
            Some(true) => {}
        }
        let link = self.peers.get_mut(to.0).and_then(|state| state.link.as_mut());
        link.expect("it has room").mail(bytes);
        // A control message is rare, and its receiver waits for it alone.
        TcpFabric::send(self, to.0);
        if self.peers.get(to.0).is_some_and(|state| state.link.is_some()) {
            Ok(())
        } else {
            Err(FabricError::Gone)
        }
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        if self.messages.is_empty() {
            self.look(Duration::ZERO);
            self.looked = true;
        }
        let (peer, bytes) = self.messages.pop_front()?;
        *into = bytes;
        if let Some(state) = self.peers.get_mut(peer) {
            state.known = true;
            if let Some(link) = &mut state.link {
                link.letter_read();
                self.owe(peer);
            }
        }
        Some(Peer(peer))
    }

    fn load(&self, region: Region, at: usize) -> u64 {
        self.regions.get(region).load(at)
    }

    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        self.regions.get(region).changed(0, seen, from)
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.regions.get(region).store(at, word);
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.regions.get(region).get(at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.regions.get(region).put(at, bytes);
    }
}
