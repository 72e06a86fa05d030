//! The fabric between processes of any hosts: a network card made of software, over TCP.
//!
//! Reads, writes and answers travel as frames on one connection for each pair of processes. The
//! *target's own thread* places the bytes, whenever its owner polls or parks, and not a thread of
//! its own: a placed byte then needs no hand-over between cores, a revocation needs no fence but the
//! table that every frame is looked up in, and nothing is answered by a process whose engine stands
//! still. The price is that nothing is placed, and no heartbeat answered, while the owner does not
//! poll. What the modules below keep:
//!
//! - `regions`: memory, grants, and what each frame may reach.
//! - `link`: one connection, its requests in order, its buffers and their bounds.
//! - `frame`: the wire format. `stream`: the bytes below it.
//! - `door`: listening and calling, off the fabric's thread. `hello`: what is said first.
//! - `net`: names, addresses, and who may meet. `tls`: how they know each other.
//!
//! **Waiting.** A process that parks sleeps in the system's wait for its sockets, and whatever
//! arrives wakes it. So [`Fabric::wake`] has nothing to do but to send what was posted.
//!
//! **Meeting.** Between two processes there is at most one connection that either has welcomed. If
//! both call at once, the call of the name that sorts first is taken and the other is told to wait.
//! One that begins a new meeting ends an earlier connection before it is welcomed (promise 7).
//!
//! **Gone.** A peer is gone once its connection has ended, whatever has ended it: a process that
//! died and a network that failed look alike. Who dials again finds a new peer.

#[cfg(feature = "verbs")]
mod control;
mod door;
mod frame;
mod hello;
mod link;
mod net;
mod regions;
mod stream;
mod tls;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::time::{ClockId, clock_gettime};

use self::door::{Arrival, Door, ring};
use self::hello::{Answer, Hello, NotMet, Side};
use self::link::{BUFFER, Ended, Link, Reach};
use self::regions::{Key, Regions};
use self::stream::Stream;
use crate::memory::WORD;
use crate::slab::Slab;
use crate::{
    Access, Completion, Fabric, FabricError, MAIL_MAX, Outcome, Peer, Region, RegionKey, Remote,
    Source, is_name,
};

pub use net::{Book, Net, Security};
pub use tls::{Tls, TlsError};

/// How soon a name is called again that was not there.
const CALL_AGAIN: Duration = Duration::from_millis(25);
/// What was posted goes out when it has become so much, without waiting for the batch's end.
const EAGER: usize = 256 << 10;
/// The longest sleep.
const NAP_MAX: Duration = Duration::from_hours(1);
/// Marks the bell among the sockets that are waited for.
const BELL: u64 = u64::MAX;
/// Sockets looked at in one system call.
const READY_MAX: usize = 64;

/// One process's, or thread's, end of the network. Dropping it ends all its connections.
pub struct TcpFabric {
    name: String,
    incarnation: u64,
    net: Net,
    door: Door,
    patience: Duration,
    regions: Regions,
    peers: Slab<PeerState>,
    /// The peers that are not gone.
    by_name: HashMap<String, Peer>,
    remotes: Slab<RemoteState>,
    calls: HashMap<String, Call>,
    /// How many meetings with each process that can be called have ended.
    meetings: HashMap<String, u64>,
    completions: Vec<Completion>,
    letters: VecDeque<(u32, Vec<u8>)>,
    /// What the peers say to the fabric whose control channel this is, if it is one.
    notes: Option<VecDeque<(u32, Vec<u8>)>>,
    epoll: OwnedFd,
    bell: Arc<OwnedFd>,
    /// Links that may have something to send, and those that were not read to their end.
    unsent: Vec<u32>,
    unread: Vec<u32>,
    buffer: Vec<u8>,
    /// [`Fabric::recv`] has looked at the sockets, and nothing was sent since.
    looked: bool,
    /// The bell has rung.
    rung: bool,
    traffic: Traffic,
}

/// What has passed through a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes given to the system.
    pub sent: u64,
    /// Bytes taken from it.
    pub received: u64,
    /// How often something was given to it: system calls.
    pub sends: u64,
}

/// What we know of a peer.
#[derive(Debug)]
struct PeerState {
    name: String,
    /// What it said of itself.
    side: Side,
    /// Our connection; none if that has ended.
    link: Option<Link>,
    /// The system takes no more now: it is asked to say when it does.
    blocked: bool,
    /// Whether it is among the unsent.
    posted: bool,
    /// Somebody outside knows it, and will hang up.
    known: bool,
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct RemoteState {
    peer: u32,
    key: Key,
}

/// How calling a name stands.
#[derive(Clone, Debug, Default)]
struct Call {
    /// A call is under way; what comes of it is of no use any more if `overtaken`.
    under_way: bool,
    overtaken: bool,
    /// It has taken longer than our patience.
    slow: bool,
    /// Not before.
    again: Option<Instant>,
    /// How the last one has failed.
    failed: Option<Failed>,
}

/// How a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failed {
    Absent,
    /// They call us.
    Later,
    Refused(String),
}

impl TcpFabric {
    fn new(net: Net, name: &str, socket: Option<TcpListener>) -> Result<Self, FabricError> {
        assert!(is_name(name), "{name:?} is not a process name");
        let failed = |call| {
            let path = name.into();
            move |source: rustix::io::Errno| FabricError::System {
                call,
                path,
                source: source.into(),
            }
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(failed("eventfd"))?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
        let data = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &bell, data, epoll::EventFlags::IN).map_err(failed("epoll"))?;
        let mut door = Door::new(net.clone(), name, Arc::clone(&bell));
        if let Some(socket) = socket {
            door.listen(socket).map_err(|source| FabricError::System {
                call: "listen",
                path: name.into(),
                source,
            })?;
        }
        Ok(Self {
            name: name.to_owned(),
            incarnation: rand::random(),
            net,
            door,
            patience: Duration::ZERO,
            regions: Regions::default(),
            peers: Slab::default(),
            by_name: HashMap::new(),
            remotes: Slab::default(),
            calls: HashMap::new(),
            meetings: HashMap::new(),
            completions: Vec::new(),
            letters: VecDeque::new(),
            notes: None,
            epoll,
            bell,
            unsent: Vec::new(),
            unread: Vec::new(),
            buffer: vec![0; BUFFER],
            looked: false,
            rung: false,
            traffic: Traffic::default(),
        })
    }

    /// The name it joined under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which life of that name this is; different at every join.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The name and incarnation of a peer, until it is hung up on.
    pub fn who(&self, peer: Peer) -> Option<(&str, u64)> {
        self.peers.get(peer.0).map(|state| (state.name.as_str(), state.side.incarnation))
    }

    /// What other threads of this process wake it with.
    pub fn waker(&self) -> TcpWaker {
        TcpWaker(Arc::clone(&self.bell))
    }

    /// What has passed through it so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// How many peers it has: connected, or gone and not hung up on by those who know them.
    pub fn peers(&self) -> usize {
        self.peers.handles().count()
    }

    /// From here on [`dial`](Fabric::dial) waits so long for somebody to answer. At first it does
    /// not wait at all, and finds the peer when it is called again after the answer. A name that has
    /// once taken longer is not waited for until it has answered.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Whether that name is being called.
    pub fn is_calling(&self, name: &str) -> bool {
        self.calls.get(name).is_some_and(|call| call.under_way && !call.overtaken)
    }

    /// Takes what has arrived and answers it. Returns whether there was anything. Waits for it, at
    /// most for `longest`.
    pub(crate) fn look(&mut self, longest: Duration) -> bool {
        self.send_all();
        let mut any = self.let_in();
        let now = if any || !self.unread.is_empty() { Duration::ZERO } else { longest };
        let timeout = Timespec {
            tv_sec: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: now.subsec_nanos().into(),
        };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); READY_MAX];
        // Interrupted: whoever waits looks again.
        let ready = epoll::wait(&self.epoll, &mut events[..], Some(&timeout));
        let ready = ready.map_or(&mut [][..], |(ready, _)| ready);
        let mut readable: Vec<u32> = std::mem::take(&mut self.unread);
        for event in ready.iter() {
            let (flags, data) = (event.flags, event.data.u64());
            if data == BELL {
                // The threads that rang have put down why they did, or have nothing to say.
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
    fn receive(&mut self, peer: u32) {
        let Some(state) = self.peers.get_mut(peer) else { return };
        let Some(link) = &mut state.link else { return };
        let mut reach = Reach {
            regions: &self.regions,
            writer: state.side.incarnation,
            peer,
            letters: &mut self.letters,
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

    /// Something is to be sent to the peer.
    fn owe(&mut self, peer: u32) {
        self.looked = false;
        if let Some(state) = self.peers.get_mut(peer)
            && !std::mem::replace(&mut state.posted, true)
        {
            self.unsent.push(peer);
        }
    }

    fn send_all(&mut self) {
        for peer in std::mem::take(&mut self.unsent) {
            self.send(peer);
        }
    }

    /// Gives the system what is to be sent to a peer, or asks to be told when it takes it.
    fn send(&mut self, peer: u32) {
        let Some(state) = self.peers.get_mut(peer) else { return };
        state.posted = false;
        let Some(link) = &mut state.link else { return };
        if let Err(ended) = link.flush(&mut self.traffic) {
            // What it has sent before is still there to be read, up to its end.
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
    fn end(&mut self, peer: u32, why: &Ended) {
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
        // Who came and went without a word leaves nothing behind.
        if !state.known && self.letters.iter().all(|(from, _)| *from != peer) {
            self.peers.remove(peer);
        }
    }

    /// Who is at the door becomes a peer. Returns whether anybody was.
    fn let_in(&mut self) -> bool {
        let arrivals = self.door.arrivals();
        let any = !arrivals.is_empty();
        for arrival in arrivals {
            match arrival {
                Arrival::Caller { stream, hello } => self.answer(stream, &hello),
                Arrival::Called { name, met } => self.called(&name, met),
            }
        }
        any
    }

    /// Welcomes a caller, unless there is a better connection.
    fn answer(&mut self, mut stream: Stream, hello: &Hello) {
        let Hello { from, side, .. } = hello;
        let known = self.by_name.get(from).copied();
        let known = known.and_then(|peer| Some((peer, self.peers.get(peer.0)?.side)));
        let known = known.filter(|(_, known)| known.incarnation == side.incarnation);
        let met = known.is_some_and(|(_, known)| side.meeting <= known.meeting);
        // A call of ours goes first if our name does.
        if met || self.is_calling(from) && self.name < *from {
            let _ = stream.send(&Answer::Later.encode());
            return;
        }
        if let Some((peer, _)) = known {
            self.end(peer.0, &Ended::Closed);
        }
        if let Some(call) = self.calls.get_mut(from) {
            call.overtaken = call.under_way;
        }
        let ours = self.side(from);
        self.meet(from, *side, stream, &Answer::Welcome(ours).encode());
    }

    /// A call of ours has come to its end.
    fn called(&mut self, name: &str, met: Result<(Stream, Side), NotMet>) {
        let call = self.calls.entry(name.to_owned()).or_default();
        let overtaken = call.overtaken;
        (call.under_way, call.overtaken) = (false, false);
        call.again = Some(Instant::now() + CALL_AGAIN);
        if overtaken {
            return;
        }
        match met {
            Ok((stream, side)) => {
                *call = Call::default();
                self.meet(name, side, stream, &[]);
            }
            Err(error) => {
                let refused = |kind| kind == ErrorKind::ConnectionRefused;
                let failed = match error {
                    NotMet::Absent(error) => {
                        tracing::trace!(peer = name, %error, "nobody there");
                        call.slow &= !refused(error.kind());
                        Failed::Absent
                    }
                    NotMet::Later => Failed::Later,
                    NotMet::Refused(why) => Failed::Refused(why),
                };
                // It is tried again and again, and said once.
                if let Failed::Refused(why) = &failed
                    && call.failed.as_ref() != Some(&failed)
                {
                    tracing::error!(peer = name, why, "no connection");
                }
                call.failed = Some(failed);
            }
        }
    }

    fn meet(&mut self, name: &str, side: Side, stream: Stream, first: &[u8]) {
        let mut link = Link::new(stream);
        link.say(first);
        let name = name.to_owned();
        let state = PeerState {
            name: name.clone(),
            side,
            link: None,
            blocked: false,
            posted: false,
            known: false,
        };
        let peer = self.peers.insert(state);
        let data = epoll::EventData::new_u64(peer.into());
        if let Err(error) = epoll::add(&self.epoll, &link, data, epoll::EventFlags::IN) {
            tracing::warn!(name, %error, "cannot wait for a connection");
            self.peers.remove(peer);
            return;
        }
        tracing::debug!(name, incarnation = side.incarnation, "connected");
        self.peers.get_mut(peer).expect("just put in").link = Some(link);
        // Another life of that name, if we knew one, goes on until its connection ends.
        self.by_name.insert(name, Peer(peer));
        self.owe(peer);
        // What came with its first words is not waited for.
        self.unread.push(peer);
    }

    /// What we say of ourselves to `name`.
    fn side(&self, name: &str) -> Side {
        let meeting = self.meetings.get(name).copied().unwrap_or_default();
        Side { incarnation: self.incarnation, meeting }
    }

    /// Calls `name`, unless it is being called or was only just.
    fn call(&mut self, name: &str) {
        let Some(address) = self.net.book().find(name).filter(|_| name != self.name) else {
            return;
        };
        let side = self.side(name);
        let call = self.calls.entry(name.to_owned()).or_default();
        if call.under_way || call.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let (cluster, from) = (self.net.cluster().to_owned(), self.name.clone());
        let hello = Hello { cluster, from, to: name.to_owned(), side };
        match self.door.call(name, address, hello) {
            Ok(()) => call.under_way = true,
            Err(error) => {
                tracing::warn!(name, %error, "cannot start a thread to connect");
                call.again = Some(Instant::now() + CALL_AGAIN);
            }
        }
    }

    /// Waits for the end of a call, one that begins only now if need be, as long as we have patience.
    fn await_call(&mut self, name: &str) {
        if self.patience.is_zero() || self.calls.get(name).is_none_or(|call| call.slow) {
            return;
        }
        let end = Instant::now() + self.patience;
        let mut called = false;
        while !self.by_name.contains_key(name) {
            self.call(name);
            let Some(call) = self.calls.get_mut(name) else { return };
            if called && !call.under_way && call.failed != Some(Failed::Later) {
                return;
            }
            called |= call.under_way;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                call.slow = true;
                return;
            }
            self.look(left.min(CALL_AGAIN));
        }
    }

    /// Parks, as what `whole` is a part of.
    pub(crate) fn nap<S>(
        whole: &mut S,
        part: fn(&mut S) -> &mut Self,
        longest: Duration,
        idle: &mut dyn FnMut(&S) -> bool,
    ) {
        // Nobody sleeps for that long; what is added to a time must not overflow it.
        let end = Instant::now() + longest.min(NAP_MAX);
        part(whole).look(Duration::ZERO);
        loop {
            let this = part(whole);
            let news = !this.completions.is_empty() || !this.letters.is_empty();
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

    fn remote(&self, remote: Remote) -> Result<RemoteState, FabricError> {
        self.remotes.get(remote.0).copied().ok_or(FabricError::Gone)
    }

    /// What is posted to a peer whose connection has ended goes nowhere.
    fn lost(&mut self, tag: Option<u64>) {
        let outcome = Outcome::Unknown;
        self.completions.extend(tag.map(|tag| Completion { tag, outcome }));
    }

    fn after_posting(&mut self, peer: u32, backlog: usize) {
        self.owe(peer);
        if backlog >= EAGER {
            self.send(peer);
            // Still there for what is blocked, or came back while it was sent.
            self.owe(peer);
        }
    }
}

impl Fabric for TcpFabric {
    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned() as u32)
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        self.let_in();
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
        self.let_in();
        self.receive(peer.0);
        self.peers.get(peer.0).is_none_or(|state| state.link.is_none())
    }

    fn may_return(&self) -> bool {
        true
    }

    fn hang_up(&mut self, peer: Peer) {
        self.end(peer.0, &Ended::Closed);
        self.peers.remove(peer.0);
        self.letters.retain(|(from, _)| *from != peer.0);
        let of_peer = |handle: &u32| self.remotes.get(*handle).is_some_and(|it| it.peer == peer.0);
        for handle in self.remotes.handles().filter(of_peer).collect::<Vec<_>>() {
            self.remotes.remove(handle);
        }
    }

    fn create(&mut self, len: usize, access: Access) -> Result<Region, FabricError> {
        self.regions.create(len, access)
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
        let key = Key::from_bytes(key);
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
        let len = match from {
            Source::Span { len, .. } => len,
            Source::Inline(bytes) => bytes.len(),
        };
        let place = key.place(at, len);
        let state = self.peers.get_mut(peer).ok_or(FabricError::Gone)?;
        let Some(link) = &mut state.link else {
            self.lost(tag);
            return Ok(());
        };
        match from {
            Source::Inline(bytes) => link.write(place, len, tag, |at, into| {
                into.copy_from_slice(&bytes[at..at + into.len()]);
            }),
            Source::Span { region, at: start, .. } => {
                assert!(start.is_multiple_of(WORD), "offset {start} is not that of a word");
                let memory = self.regions.get(region);
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
        let place = key.place(at, len);
        let size = self.regions.get(into.0).len();
        assert!(into.1.is_multiple_of(WORD), "offset {} is not that of a word", into.1);
        assert!(into.1 <= size && len <= size - into.1, "span {}+{len} leaves {size}", into.1);
        let state = self.peers.get_mut(peer).ok_or(FabricError::Gone)?;
        let Some(link) = &mut state.link else {
            self.lost(Some(tag));
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
        // Whoever has just looked for mail has looked for everything.
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
        let refused = |why| Err(FabricError::Mail { len: bytes.len(), why });
        if bytes.len() > MAIL_MAX {
            return refused("it is too long");
        }
        let room = |fabric: &Self| {
            let state = fabric.peers.get(to.0);
            state.and_then(|state| state.link.as_ref()).map(Link::has_room_for_mail)
        };
        if room(self) == Some(false) {
            self.receive(to.0);
        }
        match room(self) {
            None => return Err(FabricError::Gone),
            Some(false) => return refused("the mailbox is full"),
            Some(true) => {}
        }
        let link = self.peers.get_mut(to.0).and_then(|state| state.link.as_mut());
        link.expect("it has room").mail(bytes);
        // Mail is rare, and whoever waits for it waits for it alone.
        TcpFabric::send(self, to.0);
        if self.peers.get(to.0).is_some_and(|state| state.link.is_some()) {
            Ok(())
        } else {
            Err(FabricError::Gone)
        }
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        if self.letters.is_empty() {
            self.look(Duration::ZERO);
            self.looked = true;
        }
        let (peer, bytes) = self.letters.pop_front()?;
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
        self.regions.get(region).word(at).load(Ordering::Relaxed)
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.regions.get(region).word(at).store(word, Ordering::Relaxed);
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.regions.get(region).get(at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.regions.get(region).put(at, bytes);
    }
}

/// Wakes a fabric that is parked, from another thread of its process.
#[derive(Clone, Debug)]
pub struct TcpWaker(Arc<OwnedFd>);

impl TcpWaker {
    /// Wakes it if it is parked. What `idle` looks at must have been written before.
    pub fn wake(&mut self) {
        ring(&self.0);
    }
}

impl Drop for TcpFabric {
    fn drop(&mut self) {
        for peer in self.peers.handles().collect::<Vec<_>>() {
            if let Some(link) = self.peers.get_mut(peer).and_then(|state| state.link.as_mut()) {
                link.end(&mut self.traffic);
            }
        }
    }
}

impl fmt::Debug for TcpFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpFabric({}.{:016x})", self.name, self.incarnation)
    }
}
