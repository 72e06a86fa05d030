//! This fabric's implementation of [`Fabric`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::link::{Broken, Span, Target, VerbsLink};
use super::raw::What;
use super::regions::{Key, Writer};
use super::{Reached, RemoteState, VerbsFabric};
use crate::memory::check_span;
use crate::{Completion, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote, Source};

impl Fabric for VerbsFabric {
    fn now(&self) -> Duration {
        self.control.now()
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        let peer = self.control.dial(name)?;
        self.look(true);
        match self.await_link(peer) {
            Ok(true) => Ok(peer),
            Ok(false) | Err(FabricError::Gone) => {
                Err(FabricError::Unreachable { name: name.to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    fn is_gone(&mut self, peer: Peer) -> bool {
        if self.control.is_gone(peer) {
            self.bury();
            return true;
        }
        false
    }

    fn may_return(&self) -> bool {
        self.control.may_return()
    }

    fn name_of(&self, peer: Peer) -> Option<String> {
        self.who(peer).map(|(name, _)| name.to_owned())
    }

    fn hang_up(&mut self, peer: Peer) {
        self.end(peer.0, &Broken::Closed);
        self.control.hang_up(peer);
        self.remotes.retain(|remote| remote.peer != peer.0);
    }

    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        let region = self.control.create(len, permission)?;
        let (grant, memory) = self.control.share(region);
        self.regions.adopt(region, memory, grant).inspect_err(|_| self.control.destroy(region))?;
        Ok(region)
    }

    fn destroy(&mut self, region: Region) {
        self.regions.destroy(region);
        self.control.destroy(region);
    }

    fn key(&self, region: Region) -> RegionKey {
        self.regions.key(region, self.incarnation())
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        if self.is_gone(writer) {
            return Err(FabricError::Gone);
        }
        let (_, incarnation) = self.who(writer).ok_or(FabricError::Gone)?;
        let writer = Writer { peer: writer, incarnation, card: self.control.has_card(writer) };
        self.control.grant(region, writer.peer)?;
        let grant = self.control.share(region).0.expect("just granted");
        let key = self.regions.grant(region, grant, writer, self.incarnation());
        if key.is_err() {
            self.control.revoke(region)?;
        }
        key
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.control.revoke(region)?;
        let writer = self.regions.writer(region);
        if let Some(writer) = writer {
            // If the peer died during a write, its pair would keep the memory in use.
            self.is_gone(writer);
            let suspended = self.links.get(&writer.0).map(VerbsLink::suspend);
            if let Some(Err(error)) = suspended {
                // Stronger: ends the whole connection to the peer.
                self.end(writer.0, &error.into());
            }
        }
        self.regions.revoke(region).map_err(|source| {
            let path = PathBuf::from(&self.device);
            FabricError::System { call: "ibv_dereg_mr", path, source }
        })?;
        if let Some(link) = writer.and_then(|writer| self.links.get(&writer.0)) {
            link.resume();
        }
        Ok(())
    }

    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        if !self.control.has_card(peer) {
            let way = Reached::ByControl(self.control.attach(peer, key)?);
            return Ok(Remote(self.remotes.insert(RemoteState { peer: peer.0, way })));
        }
        self.link(peer.0)?;
        let (_, incarnation) = self.who(peer).ok_or(FabricError::Gone)?;
        let key = Key::from_bytes(key);
        if key.incarnation != incarnation || key.is_empty() {
            return Err(FabricError::StaleKey);
        }
        let way = Reached::ByCard { key, closed: false };
        Ok(Remote(self.remotes.insert(RemoteState { peer: peer.0, way })))
    }

    fn detach(&mut self, remote: Remote) {
        if let Some(RemoteState { way: Reached::ByControl(remote), .. }) =
            self.remotes.remove(remote.0)
        {
            self.control.detach(remote);
        }
    }

    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        let RemoteState { peer, way } = self.remote(to)?;
        let (key, closed) = match way {
            Reached::ByCard { key, closed } => (key, closed),
            Reached::ByControl(to) => return self.control.write(to, at, from, tag),
        };
        let len = from.bytes();
        // The card checks keys, and not whose they are: a process that the key does not name posts nothing.
        let denied = closed || !key.lets_write(self.incarnation());
        let target = Target { to: key.place(at, len)?, grant: key.grant, denied };
        let Some(link) = self.links.get_mut(&peer) else {
            self.completions.extend(tag.map(Completion::lost));
            return Ok(());
        };
        let posted = match from {
            Source::Inline(bytes) => {
                link.write(target, bytes, tag);
                Ok(())
            }
            Source::Span { region, at, .. } => {
                let held = Arc::clone(self.regions.hold(region));
                check_span(held.memory.len(), at, len);
                link.transfer(What::Write, target, Span { held, at, len }, tag)
            }
        };
        match posted {
            Ok(()) => self.after_posting(peer),
            Err(why) => {
                self.end(peer, &why);
                self.completions.extend(tag.map(Completion::lost));
            }
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
        let RemoteState { peer, way } = self.remote(from)?;
        let (key, closed) = match way {
            Reached::ByCard { key, closed } => (key, closed),
            Reached::ByControl(from) => return self.control.read(from, at, len, into, tag),
        };
        let target = Target { to: key.place(at, len)?, grant: key.grant, denied: closed };
        let held = Arc::clone(self.regions.hold(into.0));
        check_span(held.memory.len(), into.1, len);
        let Some(link) = self.links.get_mut(&peer) else {
            self.completions.push(Completion::lost(tag));
            return Ok(());
        };
        match link.transfer(What::Read, target, Span { held, at: into.1, len }, Some(tag)) {
            Ok(()) => self.after_posting(peer),
            Err(why) => {
                self.end(peer, &why);
                self.completions.push(Completion::lost(tag));
            }
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.post_all();
        self.control.flush();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.look(false);
        completions.append(&mut self.completions);
    }

    fn wake(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(&peer.0) {
            link.wake();
            self.post(peer.0);
        } else {
            self.control.wake(peer);
        }
    }

    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool) {
        Self::nap(self, |this| this, longest, idle);
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        self.control.send(to, bytes)
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        if !self.control.has_letters() {
            self.look(false);
            if !self.control.has_letters() {
                return None;
            }
        }
        self.control.recv(into)
    }

    fn load(&self, region: Region, at: usize) -> u64 {
        self.control.load(region, at)
    }

    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        self.control.changed(region, seen, from)
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.control.store(region, at, word);
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.control.copy_out(region, at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.control.copy_in(region, at, bytes);
    }
}
