//! The fabric between processes of any hosts: a network card in software, over TCP.
//!
//! Reads, writes and answers are sent as frames on one connection per pair of processes. The *target's own thread*
//! places the bytes, whenever its owner polls or parks; there is no extra thread for it. So a placed byte needs no
//! hand-over between cores, a revocation needs no fence but the table in which every frame is looked up, and a process
//! whose engine stands still answers nothing. The price is that nothing is placed, and no heartbeat answered, while the
//! owner does not poll. The modules:
//!
//! - `fabric`: the implementation of [`Fabric`](crate::Fabric). `polling`: what a card would do by itself.
//! - `regions`: memory, grants, and the access check of each frame.
//! - `meeting`: which names are called, which callers are accepted. `link`: one connection, its requests in order, its
//!   buffers and their bounds.
//! - `frame`: the wire format. `stream`: the bytes below it.
//! - `door`: listening and calling, off the fabric's thread. `hello`: the handshake.
//! - `net`: names, addresses, and which processes may connect. `tls`: authentication.
//!
//! **Waiting.** A parked process sleeps in the system's wait for its sockets, and whatever arrives wakes it. So
//! [`wake`](crate::Fabric::wake) only has to send what was posted.
//!
//! **Meeting.** Between two processes there is at most one connection that either has welcomed. If both call at once,
//! the call of the process whose name sorts first is accepted, and the other is answered *later*. A process that begins
//! a new meeting ends an earlier connection before the new one is welcomed (promise 7).
//!
//! **Gone.** A peer is gone once its connection has ended, for whatever reason: a process that died and a network that
//! failed look alike. Dialling again gives a new peer.

#[cfg(feature = "verbs")]
mod control;
mod door;
mod fabric;
mod frame;
mod hello;
mod link;
mod meeting;
mod net;
mod polling;
mod regions;
mod stream;
mod tls;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};

use self::door::{Door, ring};
use self::hello::Side;
use self::link::{BUFFER, TcpLink};
use self::meeting::Call;
use self::regions::{Key, Regions};
use crate::fork::Process;
use crate::slab::Slab;
use crate::{Completion, FabricError, Peer, Remote, is_name};

pub use net::{Book, Net, Security};
#[cfg(all(test, feature = "verbs"))]
pub(crate) use regions::CardKey;
pub use tls::{Tls, TlsError};

/// Posted bytes are sent once there are this many, without waiting for the end of the batch.
const EAGER: usize = 256 << 10;
/// Identifies the bell among the sockets of the epoll set.
const BELL: u64 = u64::MAX;

/// One process's, or thread's, end of the network. Dropping it ends all its connections.
pub struct TcpFabric {
    process: Process,
    name: String,
    incarnation: u64,
    net: Net,
    door: Door,
    timeout: Duration,
    regions: Regions,
    peers: Slab<PeerState>,
    /// The peers that are not gone.
    by_name: HashMap<String, Peer>,
    remotes: Slab<RemoteState>,
    calls: HashMap<String, Call>,
    /// For each process that can be called, how many meetings with it have ended.
    meetings: HashMap<String, u64>,
    completions: Vec<Completion>,
    messages: VecDeque<(u32, Vec<u8>)>,
    /// Notes of peers to the fabric whose control channel this is; `None` if this is none.
    notes: Option<VecDeque<(u32, Vec<u8>)>>,
    epoll: OwnedFd,
    bell: Arc<OwnedFd>,
    /// Links that may have something to send, and links that were not read to their end.
    unsent: Vec<u32>,
    unread: Vec<u32>,
    buffer: Vec<u8>,
    /// Whether [`recv`](crate::Fabric::recv) has read the sockets, and nothing was sent since.
    looked: bool,
    /// Whether another thread has rung the bell.
    rung: bool,
    traffic: Traffic,
}

/// Traffic of a fabric so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub sent: u64,
    pub received: u64,
    /// System calls that sent something.
    pub sends: u64,
}

/// State of a peer.
#[derive(Debug)]
struct PeerState {
    name: String,
    /// The peer's side of the handshake.
    side: Side,
    /// Our connection; `None` if it has ended.
    link: Option<TcpLink>,
    /// Whether the system takes no more bytes now: it was asked to report when it does.
    blocked: bool,
    /// Whether it is in `unsent`.
    posted: bool,
    /// Whether the fabric's user has received this peer, and will hang up.
    known: bool,
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct RemoteState {
    peer: u32,
    key: Key,
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
            process: Process::current(),
            name: name.to_owned(),
            incarnation: rand::random(),
            door,
            timeout: Duration::ZERO,
            regions: Regions::new(net.has_cards()),
            peers: Slab::default(),
            by_name: HashMap::new(),
            remotes: Slab::default(),
            calls: HashMap::new(),
            meetings: HashMap::new(),
            completions: Vec::new(),
            messages: VecDeque::new(),
            notes: net.has_cards().then(VecDeque::new),
            net,
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

    /// The incarnation of that name; different at every join.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The name and incarnation of a peer, until it is hung up on.
    pub fn who(&self, peer: Peer) -> Option<(&str, u64)> {
        self.peers.get(peer.0).map(|state| (state.name.as_str(), state.side.incarnation))
    }

    /// A waker for other threads of this process.
    pub fn waker(&self) -> TcpWaker {
        TcpWaker(Arc::clone(&self.bell))
    }

    /// Traffic so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Number of peers: connected, or gone and not hung up on by a user that has received them.
    pub fn peers(&self) -> usize {
        self.peers.handles().count()
    }

    /// Sets how long [`dial`](crate::Fabric::dial) waits for an answer. At first it does not wait at all, and finds the
    /// peer when it is called again after the answer. If a name has once taken longer, `dial` does not wait for it
    /// until it has answered.
    pub fn set_dial_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Whether that name is being called.
    pub fn is_calling(&self, name: &str) -> bool {
        self.calls.get(name).is_some_and(|call| call.under_way && !call.overtaken)
    }

    fn remote(&self, remote: Remote) -> Result<RemoteState, FabricError> {
        self.remotes.get(remote.0).copied().ok_or(FabricError::Gone)
    }

    fn after_posting(&mut self, peer: u32, backlog: usize) {
        self.owe(peer);
        if backlog >= EAGER {
            self.send(peer);
            // Listed again, for what is blocked or was added during the send.
            self.owe(peer);
        }
    }
}

/// Wakes a fabric that is parked, from another thread of its process.
#[derive(Clone, Debug)]
pub struct TcpWaker(Arc<OwnedFd>);

impl TcpWaker {
    /// Wakes the fabric if it is parked. Whatever `idle` looks at must have been written before.
    pub fn wake(&mut self) {
        ring(&self.0);
    }
}

impl Drop for TcpFabric {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return; // The connections are the parent's.
        }
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
