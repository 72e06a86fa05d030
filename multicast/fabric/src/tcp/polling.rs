//! What a network card would do by itself: sends what was posted, and places what has arrived.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::link::{Ended, Reach};
use super::{BELL, TcpFabric};
use crate::Peer;
use crate::clock::{NAP_MAX, timeout};

/// Most sockets reported by one system call.
const READY_MAX: usize = 64;

impl TcpFabric {
    /// Handles and answers what has arrived. Returns whether there was anything. Waits for it, for at most `longest`.
    pub(crate) fn look(&mut self, longest: Duration) -> bool {
        self.send_all();
        let mut any = self.accept_new();
        let now = if any || !self.unread.is_empty() { Duration::ZERO } else { longest };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); READY_MAX];
        // If interrupted, the caller looks again.
        let ready = epoll::wait(&self.epoll, &mut events[..], Some(&timeout(now)));
        let ready = ready.map_or(&mut [][..], |(ready, _)| ready);
        let mut readable: Vec<u32> = std::mem::take(&mut self.unread);
        for event in ready.iter() {
            let (flags, data) = (event.flags, event.data.u64());
            if data == BELL {
                // A thread that rings has stored its reason before.
                let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
                self.rung = true;
                any = true;
                continue;
            }
            let peer = data as u32;
            if flags.contains(epoll::EventFlags::OUT) {
                self.send(peer);
            }
            if flags != epoll::EventFlags::OUT && !readable.contains(&peer) {
                readable.push(peer);
            }
        }
        for peer in readable.drain(..) {
            any = true;
            self.receive(peer);
        }
        if self.unread.is_empty() {
            self.unread = readable;
        }
        any
    }

    /// Takes what has arrived from a peer.
    pub(super) fn receive(&mut self, peer: u32) {
        let Some(state) = self.peers.get_mut(peer) else { return };
        let Some(link) = &mut state.link else { return };
        let mut reach = Reach {
            regions: &self.regions,
            writer: state.side.incarnation,
            peer,
            messages: &mut self.messages,
            notes: self.notes.as_mut(),
            completions: &mut self.completions,
            traffic: &mut self.traffic,
        };
        match link.receive(&mut self.buffer, &mut reach) {
            Ok(more) => {
                if more && !self.unread.contains(&peer) {
                    self.unread.push(peer);
                }
                if link.has_unsent() {
                    self.owe(peer);
                }
            }
            Err(ended) => self.end(peer, &ended),
        }
    }

    /// Notes that something is to be sent to the peer.
    pub(super) fn owe(&mut self, peer: u32) {
        self.looked = false;
        if let Some(state) = self.peers.get_mut(peer)
            && !std::mem::replace(&mut state.posted, true)
        {
            self.unsent.push(peer);
        }
    }

    pub(super) fn send_all(&mut self) {
        for peer in std::mem::take(&mut self.unsent) {
            self.send(peer);
        }
    }

    /// Gives the system what is to be sent to a peer, and asks for a report if it does not take all.
    pub(super) fn send(&mut self, peer: u32) {
        let Some(state) = self.peers.get_mut(peer) else { return };
        state.posted = false;
        let Some(link) = &mut state.link else { return };
        if let Err(ended) = link.flush(&mut self.traffic) {
            // What the peer sent before is still there to be read, up to its end.
            self.receive(peer);
            return self.end(peer, &ended);
        }
        let blocked = link.has_unsent();
        if state.blocked != blocked {
            state.blocked = blocked;
            let out = if blocked { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(peer.into());
            let armed = epoll::modify(&self.epoll, &*link, data, epoll::EventFlags::IN | out);
            debug_assert!(armed.is_ok());
        }
    }

    /// The connection to a peer has ended: the peer is gone.
    pub(super) fn end(&mut self, peer: u32, why: &Ended) {
        let Some(state) = self.peers.get_mut(peer) else { return };
        let Some(mut link) = state.link.take() else { return };
        if matches!(why, Ended::Closed) {
            tracing::debug!(peer = state.name, %why, "a connection has ended");
        } else {
            tracing::warn!(peer = state.name, %why, "a connection has ended");
        }
        link.abandon(&mut self.completions);
        let _ = epoll::delete(&self.epoll, &link);
        if self.by_name.get(&state.name) == Some(&Peer(peer)) {
            self.by_name.remove(&state.name);
        }
        if self.net.book().find(&state.name).is_some() {
            *self.meetings.entry(state.name.clone()).or_default() += 1;
        }
        // A peer that the fabric's user has not received, and that has left no message, is removed.
        if !state.known && self.messages.iter().all(|(from, _)| *from != peer) {
            self.peers.remove(peer);
        }
    }

    /// Parks. `S` is the value that contains this fabric; `part` returns the fabric in it.
    pub(crate) fn nap<S>(
        whole: &mut S,
        part: fn(&mut S) -> &mut Self,
        longest: Duration,
        idle: &mut dyn FnMut(&S) -> bool,
    ) {
        let end = Instant::now() + longest.min(NAP_MAX);
        part(whole).look(Duration::ZERO);
        loop {
            let this = part(whole);
            let news = !this.completions.is_empty() || !this.messages.is_empty();
            let left = end.saturating_duration_since(Instant::now());
            if news || !idle(whole) || left.is_zero() {
                return;
            }
            let this = part(whole);
            this.rung = false;
            this.look(left);
            if this.rung {
                return;
            }
        }
    }
}
