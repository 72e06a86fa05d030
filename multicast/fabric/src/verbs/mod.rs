//! The fabric between hosts with RDMA network cards: reliable connections of the verbs.
//!
//! Writes and reads are done by the cards: the target's processor takes no part. Connecting, and everything that is
//! sent about connections, goes over a [`TcpFabric`], the *control channel*, with its names, incarnations and
//! certificates; so do control messages. The modules:
//!
//! - `fabric`: the implementation of [`Fabric`](crate::Fabric).
//! - `raw`: the calls of libibverbs.
//! - `regions`: memory, how it is registered, and the fence.
//! - `link`: one connection, its requests in order, and how it recovers from a refusal.
//! - `notes`: messages between the two sides of a connection.
//!
//! **The fence.** A revocation first takes the right to write from the peer's queue pair, which stops further writes;
//! then takes back the registration that its grant opened; and then serves the peer's other requests again. The rights
//! alone are no fence, because a card may check them and copy afterwards. Requests of the peer that were refused
//! meanwhile are posted again without its caller's notice.
//!
//! **Refused.** Cards report a refusal in several ways, for a missing right and for a missing key, and may report
//! either for both. So the writer asks: the welcome to its new beginning says whether the grant is still open.
//!
//! **Without a card.** A client may have none: then the control channel's fabric serves it as on a network without
//! cards. So the memory belongs to that fabric, and a grant is open to both or to neither.
//!
//! **Gone.** A peer is gone once its control channel has ended, or a request has received no answer.

mod fabric;
mod link;
mod notes;
mod raw;
mod regions;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use self::link::{Broken, VerbsLink};
use self::notes::Note;
use self::raw::{Adapter, CHAIN_MAX, End, How, Queue};
use self::regions::{Key, Regions};
use crate::adapters::{NoAdapter, Wish, adapters, choose};
use crate::clock::{NAP_MAX, timeout};
use crate::slab::Slab;
use crate::tcp::{Net, TcpFabric, TcpWaker};
use crate::{Completion, FabricError, Peer, Remote};

/// Longest time between two polls of the control channel while there is other work.
const CONTROL_EVERY: Duration = Duration::from_micros(50);
/// How often an awaited link is checked again.
const DIAL_AGAIN: Duration = Duration::from_millis(5);

/// Which device to use, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Device, port and address.
    pub wish: Wish,
    /// Longest packet in bytes; the port's own limit if `None`.
    pub mtu: Option<u32>,
    /// Sent in each packet, for switches that distinguish traffic.
    pub traffic_class: u8,
}

/// One process's, or thread's, end of the network. Dropping it ends all its connections.
pub struct VerbsFabric {
    // The links are dropped first, and then what they are made of.
    links: HashMap<u32, VerbsLink>,
    /// For each queue pair's number: its peer, and whether it carries our requests.
    pairs: HashMap<u32, (u32, bool)>,
    regions: Regions,
    remotes: Slab<RemoteState>,
    queue: Arc<Queue>,
    adapter: Arc<Adapter>,
    device: String,
    control: TcpFabric,
    timeout: Duration,
    completions: Vec<Completion>,
    /// Links with requests that were not posted.
    unposted: Vec<u32>,
    /// Time of the last poll of the control channel.
    looked: Instant,
    traffic: Traffic,
}

/// Traffic of a fabric so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Completions of requests, and wake-ups.
    pub ends: u64,
    pub refused: u64,
    /// Traffic of the control channel.
    pub control: crate::tcp::Traffic,
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct RemoteState {
    peer: u32,
    way: Reached,
}

/// How a peer's region is reached.
#[derive(Clone, Copy, Debug)]
enum Reached {
    ByCard {
        key: Key,
        /// Whether the peer has refused requests under the key.
        closed: bool,
    },
    /// By the control channel, because its owner has no card.
    ByControl(Remote),
}

impl VerbsFabric {
    /// Joins under a name, with a control channel that listens at its address.
    pub fn join(net: &Net, name: &str, config: &Config) -> Result<Self, FabricError> {
        Self::new(net.of_cards().join(name)?, config)
    }

    /// Joins without listening: it can call others, and is reached on the connections that it has made.
    pub fn visit(net: &Net, name: &str, config: &Config) -> Result<Self, FabricError> {
        Self::new(net.of_cards().visit(name)?, config)
    }

    fn new(control: TcpFabric, config: &Config) -> Result<Self, FabricError> {
        let choice = choose(&adapters(), &config.wish).map_err(FabricError::from)?;
        let failed = |call| {
            let path = PathBuf::from(&choice.device);
            move |source: io::Error| FabricError::System { call, path, source }
        };
        let adapter = Adapter::open(&choice, config).map_err(failed("ibv_open_device"))?;
        let adapter = Arc::new(adapter);
        let queue = Arc::new(Queue::new(&adapter).map_err(failed("ibv_create_cq"))?);
        tracing::info!(%choice, name = control.name(), "joined");
        Ok(Self {
            links: HashMap::new(),
            pairs: HashMap::new(),
            regions: Regions::new(&adapter, &choice.device),
            remotes: Slab::default(),
            queue,
            adapter,
            device: choice.device,
            control,
            timeout: Duration::ZERO,
            completions: Vec::new(),
            unposted: Vec::new(),
            looked: Instant::now(),
            traffic: Traffic::default(),
        })
    }

    /// The name it joined under.
    pub fn name(&self) -> &str {
        self.control.name()
    }

    /// The incarnation of that name; different at every join.
    pub fn incarnation(&self) -> u64 {
        self.control.incarnation()
    }

    /// The name and incarnation of a peer, until it is hung up on.
    pub fn who(&self, peer: Peer) -> Option<(&str, u64)> {
        self.control.who(peer)
    }

    /// A waker for other threads of this process.
    pub fn waker(&self) -> TcpWaker {
        self.control.waker()
    }

    /// Traffic so far.
    pub fn traffic(&self) -> Traffic {
        Traffic { control: self.control.traffic(), ..self.traffic }
    }

    /// Sets how long [`dial`](crate::Fabric::dial) waits for an answer, see [`TcpFabric::set_dial_timeout`].
    pub fn set_dial_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.control.set_dial_timeout(timeout);
    }

    /// Whether that name is being called.
    pub fn is_calling(&self, name: &str) -> bool {
        let meeting = |(peer, link): (&u32, &VerbsLink)| {
            !link.is_up() && self.control.who(Peer(*peer)).is_some_and(|(it, _)| it == name)
        };
        self.control.is_calling(name) || self.links.iter().any(meeting)
    }

    /// Takes completions, and polls the control channel if that was not done lately, or if `now` is set. Returns
    /// whether there was anything.
    fn look(&mut self, now: bool) -> bool {
        self.post_all();
        let mut any = self.take_ends();
        if now || self.looked.elapsed() >= CONTROL_EVERY {
            any |= self.control.look(Duration::ZERO);
            self.looked = Instant::now();
            // Before anything is sent to peers that have come back.
            self.bury();
            while let Some((peer, note)) = self.control.next_note() {
                any = true;
                self.hear(peer.0, &note);
            }
            self.control.take_completions(&mut self.completions);
        }
        self.post_all();
        any
    }

    /// Ends the links whose control channel has ended.
    fn bury(&mut self) {
        let gone = |peer: &&u32| !self.control.is_linked(Peer(**peer));
        for peer in self.links.keys().filter(gone).copied().collect::<Vec<_>>() {
            self.end(peer, &Broken::Closed);
        }
    }

    /// The link to a peer. Made if there is none.
    fn link(&mut self, peer: u32) -> Result<&mut VerbsLink, FabricError> {
        if !self.links.contains_key(&peer) {
            if !self.control.is_linked(Peer(peer)) {
                return Err(FabricError::Gone);
            }
            let made = self.queue.reserve(self.links.len() + 1);
            let made = made.and_then(|()| VerbsLink::new(&self.adapter, &self.queue));
            let link = made.map_err(|source| FabricError::System {
                call: "ibv_create_qp",
                path: PathBuf::from(&self.device),
                source,
            })?;
            let (out, into) = link.pairs();
            self.pairs.insert(out, (peer, true));
            self.pairs.insert(into, (peer, false));
            self.control.note(Peer(peer), &Note::Offer(link.offer()).encode());
            self.links.insert(peer, link);
        }
        Ok(self.links.get_mut(&peer).expect("just put in, if it was not there"))
    }

    /// Handles a peer's note about its link.
    fn hear(&mut self, peer: u32, note: &[u8]) {
        if let Err(why) = self.try_hear(peer, note) {
            self.end(peer, &why);
        }
    }

    fn try_hear(&mut self, peer: u32, note: &[u8]) -> Result<(), Broken> {
        let note = Note::decode(note).ok_or(Broken::Nonsense("its note is malformed"))?;
        if !self.control.has_card(Peer(peer)) {
            return Err(Broken::Nonsense("it has no card, and sends notes of queue pairs"));
        }
        if self.link(peer).is_err() && self.control.is_linked(Peer(peer)) {
            return Err(Broken::Failed("no queue pair for it".into()));
        }
        let Some(link) = self.links.get_mut(&peer) else { return Ok(()) };
        let answer = match note {
            Note::Offer(offer) => {
                link.offered(offer)?;
                Some(Note::Ready)
            }
            Note::Ready => {
                link.ready()?;
                None
            }
            Note::Again { beginning, first, grant } => {
                link.again(first)?;
                let open = grant == 0 || self.control.is_open(grant.into());
                Some(Note::Welcome { beginning, open })
            }
            Note::Welcome { beginning, open } => {
                if let Some(grant) = link.welcome(beginning, open) {
                    link.deny(grant, &mut self.completions);
                    self.close(peer, grant);
                }
                None
            }
        };
        if let Some(answer) = answer {
            self.control.note(Peer(peer), &answer.encode());
        }
        self.owe(peer);
        Ok(())
    }

    /// Denies at once whatever is posted under that grant of the peer from now on.
    fn close(&mut self, peer: u32, grant: u32) {
        for handle in self.remotes.handles().collect::<Vec<_>>() {
            if let Some(Reached::ByCard { key, closed }) = self
                .remotes
                .get_mut(handle)
                .filter(|remote| remote.peer == peer)
                .map(|it| &mut it.way)
                && key.grant == grant
            {
                *closed = true;
            }
        }
    }

    /// Takes completions. Returns whether there were any.
    fn take_ends(&mut self) -> bool {
        let mut any = false;
        let mut ends = [End { pair: 0, id: 0, how: How::Done }; 16];
        loop {
            let count = self.queue.poll(&mut ends);
            any |= count > 0;
            self.traffic.ends += count as u64;
            for end in &ends[..count] {
                // Queue pairs of links that have ended are not in the table.
                if let Some(&(peer, ours)) = self.pairs.get(&end.pair)
                    && let Err(why) = self.take_end(peer, ours, end)
                {
                    self.end(peer, &why);
                }
            }
            if count < ends.len() {
                return any;
            }
        }
    }

    fn take_end(&mut self, peer: u32, ours: bool, end: &End) -> Result<(), Broken> {
        let Some(link) = self.links.get_mut(&peer) else { return Ok(()) };
        if !ours {
            // The peer that is refused here learns of it by itself, and begins again.
            if end.how == How::Done {
                link.woken();
            }
            return Ok(());
        }
        match end.how {
            How::Done => link.done(end.id, &mut self.completions),
            How::Refused(status) => {
                if let Some(again) = link.refuse(end.id, &mut self.completions)? {
                    tracing::debug!(peer, why = raw::explain(status), "refused");
                    self.traffic.refused += 1;
                    self.control.note(Peer(peer), &again.encode());
                }
            }
            How::Failed(status) if link.is_of_now(end.id) => {
                return Err(Broken::Failed(raw::explain(status)));
            }
            // A request before it was refused or has failed, and has its own completion.
            How::Flushed | How::Failed(_) => {}
        }
        if link.has_unposted() {
            self.owe(peer);
        }
        Ok(())
    }

    /// Notes that something is to be posted to the peer.
    fn owe(&mut self, peer: u32) {
        if !self.unposted.contains(&peer) {
            self.unposted.push(peer);
        }
    }

    fn post_all(&mut self) {
        while let Some(peer) = self.unposted.pop() {
            self.post(peer);
        }
    }

    fn post(&mut self, peer: u32) {
        let Some(link) = self.links.get_mut(&peer) else { return };
        if let Err(why) = link.post(&mut self.completions) {
            self.end(peer, &why);
        }
    }

    /// The connection to a peer has ended: the peer is gone.
    fn end(&mut self, peer: u32, why: &Broken) {
        if let Some(link) = self.links.remove(&peer) {
            let (out, into) = link.pairs();
            self.pairs.remove(&out);
            self.pairs.remove(&into);
            link.abandon(&mut self.completions);
        }
        if self.control.is_linked(Peer(peer)) {
            tracing::warn!(peer = self.who(Peer(peer)).map(|(name, _)| name), %why, "disconnected");
            self.control.break_off(Peer(peer));
        }
    }

    /// Waits until the link to a peer is up, for as long as [`dial`](crate::Fabric::dial) may.
    fn await_link(&mut self, peer: Peer) -> Result<bool, FabricError> {
        let end = Instant::now() + self.timeout;
        loop {
            if !self.control.has_card(peer) || self.link(peer.0)?.is_up() {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.sleep(left.min(DIAL_AGAIN));
            self.look(true);
        }
    }

    /// Sleeps until a request completes, or something arrives on the control channel.
    fn sleep(&mut self, longest: Duration) {
        let longest = if self.control.has_unread() { Duration::ZERO } else { longest };
        let mut fds =
            [PollFd::new(&self.control, PollFlags::IN), PollFd::new(&*self.queue, PollFlags::IN)];
        // If interrupted, the caller looks again.
        let _ = poll(&mut fds, Some(&timeout(longest)));
        self.queue.quieten();
    }

    /// Parks. `S` is the value that contains this fabric; `part` returns the fabric in it.
    pub(crate) fn nap<S>(
        whole: &mut S,
        part: fn(&mut S) -> &mut Self,
        longest: Duration,
        idle: &mut dyn FnMut(&S) -> bool,
    ) {
        let end = Instant::now() + longest.min(NAP_MAX);
        let this = part(whole);
        this.control.hush();
        this.look(true);
        loop {
            let this = part(whole);
            let news = !this.completions.is_empty()
                || this.control.has_completions()
                || this.control.has_letters();
            let left = end.saturating_duration_since(Instant::now());
            if news || !idle(whole) || left.is_zero() {
                return;
            }
            let this = part(whole);
            let links = this.links.iter_mut();
            this.unposted.extend(links.filter_map(|(peer, it)| it.go_to_sleep().then_some(*peer)));
            this.queue.arm();
            // The write that announces our sleep has a completion too, which makes this loop check once more: nothing
            // that came before the peer learned of the sleep is missed.
            if this.look(true) {
                continue;
            }
            this.sleep(left);
            this.look(true);
            if this.control.has_rung() {
                return;
            }
        }
    }

    fn remote(&self, remote: Remote) -> Result<RemoteState, FabricError> {
        self.remotes.get(remote.0).copied().ok_or(FabricError::Gone)
    }

    fn after_posting(&mut self, peer: u32) {
        self.owe(peer);
        if self.links.get(&peer).is_some_and(|link| link.backlog() >= CHAIN_MAX) {
            self.post(peer);
        }
    }
}

impl From<NoAdapter> for FabricError {
    fn from(why: NoAdapter) -> Self {
        Self::NoAdapter { why }
    }
}

impl fmt::Debug for VerbsFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsFabric({}.{:016x})", self.name(), self.incarnation())
    }
}
