//! The fabric between hosts with RDMA network cards: reliable connections of the verbs.
//!
//! Writes and reads are the cards' own: the target's processor has no part in them. Meeting, and
//! everything that is said about connections, goes over a [`TcpFabric`], the *control channel*, with
//! its names, lives and certificates; so do letters. What the modules below keep:
//!
//! - `raw`: the calls of libibverbs.
//! - `regions`: memory, how it is registered, and the fence.
//! - `link`: one connection, its requests in order, and what a refusal does to them.
//! - `notes`: what the two sides of a connection tell each other.
//!
//! **The fence.** A revocation first takes the right to write from the peer's queue pair, which
//! stops what comes, then takes back the registration that its grant opened, and then serves the
//! peer's other requests again. The rights alone are no fence: a card may look at them and copy
//! afterwards. Whatever of the peer's was refused meanwhile begins anew without its caller's notice.
//!
//! **Refused.** Cards say that they refused in several ways, for a right that is missing and for a
//! key that is not there, and may say either for both. So a writer asks: the welcome to its new
//! beginning says whether the grant is still open.
//!
//! **Gone.** A peer is gone once the control channel has ended, or a request has had no answer.

mod link;
mod notes;
mod raw;
mod regions;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::link::{Broken, Link, Span, Target};
use self::notes::Note;
use self::raw::{Adapter, CHAIN_MAX, End, How, Queue, What};
use self::regions::{Key, Regions};
use crate::adapters::{NoAdapter, Wish, adapters, choose};
use crate::memory::WORD;
use crate::slab::Slab;
use crate::tcp::{Net, TcpFabric, TcpWaker};
use crate::{
    Access, Completion, Fabric, FabricError, Outcome, Peer, Region, RegionKey, Remote, Source,
};

/// How long the control channel may go without being looked at while there is other work.
const CONTROL_EVERY: Duration = Duration::from_micros(50);
/// The longest nap.
const NAP_MAX: Duration = Duration::from_hours(24);
/// How often a name is looked for again while it is waited for.
const DIAL_AGAIN: Duration = Duration::from_millis(5);

/// Which device to use, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Device, port and address.
    pub wish: Wish,
    /// The longest packet, in bytes; the port's own if not said.
    pub mtu: Option<u32>,
    /// Goes into each packet, for switches that tell traffic apart.
    pub traffic_class: u8,
}

/// One process's, or thread's, end of the network. Dropping it ends all its connections.
pub struct VerbsFabric {
    // First the links, and then what they are made of.
    links: HashMap<u32, Link>,
    /// Whose queue pair that is, by its number, and whether it carries our requests.
    pairs: HashMap<u32, (u32, bool)>,
    regions: Regions,
    remotes: Slab<RemoteState>,
    queue: Arc<Queue>,
    adapter: Arc<Adapter>,
    device: String,
    control: TcpFabric,
    patience: Duration,
    completions: Vec<Completion>,
    /// Links with requests that were not posted.
    unposted: Vec<u32>,
    /// When the control channel was looked at last.
    looked: Instant,
    traffic: Traffic,
}

/// What has passed through a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Ends of requests, and wake-ups.
    pub ends: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// What has passed through the control channel.
    pub control: crate::tcp::Traffic,
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct RemoteState {
    peer: u32,
    key: Key,
    /// The peer has refused what was posted under it.
    closed: bool,
}

impl VerbsFabric {
    /// Joins under a name, with a control channel that listens at its address.
    pub fn join(net: &Net, name: &str, config: &Config) -> Result<Self, FabricError> {
        Self::new(net.join(name)?, config)
    }

    /// Joins without listening: reaches others, and is reached on the connections it has made.
    pub fn visit(net: &Net, name: &str, config: &Config) -> Result<Self, FabricError> {
        Self::new(net.visit(name)?, config)
    }

    fn new(mut control: TcpFabric, config: &Config) -> Result<Self, FabricError> {
        let choice = choose(&adapters(), &config.wish).map_err(FabricError::from)?;
        let failed = |call| {
            let path = PathBuf::from(&choice.device);
            move |source: io::Error| FabricError::System { call, path, source }
        };
        let adapter = Adapter::open(&choice, config).map_err(failed("ibv_open_device"))?;
        let adapter = Arc::new(adapter);
        let queue = Arc::new(Queue::new(&adapter).map_err(failed("ibv_create_cq"))?);
        tracing::info!(%choice, name = control.name(), "joined");
        control.listen_to_notes();
        Ok(Self {
            links: HashMap::new(),
            pairs: HashMap::new(),
            regions: Regions::new(&adapter, &choice.device),
            remotes: Slab::default(),
            queue,
            adapter,
            device: choice.device,
            control,
            patience: Duration::ZERO,
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

    /// Which life of that name this is; different at every join.
    pub fn incarnation(&self) -> u64 {
        self.control.incarnation()
    }

    /// The name and incarnation of a peer, until it is hung up on.
    pub fn who(&self, peer: Peer) -> Option<(&str, u64)> {
        self.control.who(peer)
    }

    /// What other threads of this process wake it with.
    pub fn waker(&self) -> TcpWaker {
        self.control.waker()
    }

    /// What has passed through it so far.
    pub fn traffic(&self) -> Traffic {
        Traffic { control: self.control.traffic(), ..self.traffic }
    }

    /// From here on [`dial`](Fabric::dial) waits so long for somebody to answer, as
    /// [`TcpFabric::set_patience`] has it.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
        self.control.set_patience(patience);
    }

    /// Whether that name is being called.
    pub fn is_calling(&self, name: &str) -> bool {
        let meeting = |(peer, link): (&u32, &Link)| {
            !link.is_up() && self.control.who(Peer(*peer)).is_some_and(|(it, _)| it == name)
        };
        self.control.is_calling(name) || self.links.iter().any(meeting)
    }

    /// Takes what has ended, and what is said on the control channel if it was not looked at
    /// lately, or `now`. Returns whether there was anything.
    fn look(&mut self, now: bool) -> bool {
        self.post_all();
        let mut any = self.take_ends();
        if now || self.looked.elapsed() >= CONTROL_EVERY {
            any |= self.control.look(Duration::ZERO);
            self.looked = Instant::now();
            // Before anything is said to those who have come back.
            self.bury();
            while let Some((peer, note)) = self.control.next_note() {
                any = true;
                self.hear(peer.0, &note);
            }
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

    /// The link to a peer, one that begins now if need be.
    fn link(&mut self, peer: u32) -> Result<&mut Link, FabricError> {
        if !self.links.contains_key(&peer) {
            if !self.control.is_linked(Peer(peer)) {
                return Err(FabricError::Gone);
            }
            let made = self.queue.reserve(self.links.len() + 1);
            let made = made.and_then(|()| Link::new(&self.adapter, &self.queue));
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

    /// Hears what a peer says about its link.
    fn hear(&mut self, peer: u32, note: &[u8]) {
        if let Err(why) = self.try_hear(peer, note) {
            self.end(peer, &why);
        }
    }

    fn try_hear(&mut self, peer: u32, note: &[u8]) -> Result<(), Broken> {
        let note = Note::decode(note).ok_or(Broken::Nonsense("its note is none"))?;
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
                let open = grant == 0 || self.regions.is_open(grant);
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

    /// What is posted under that grant of a peer's from now on is denied at once.
    fn close(&mut self, peer: u32, grant: u32) {
        for handle in self.remotes.handles().collect::<Vec<_>>() {
            if let Some(remote) = self.remotes.get_mut(handle)
                && (remote.peer, remote.key.grant) == (peer, grant)
            {
                remote.closed = true;
            }
        }
    }

    /// Takes what has ended. Returns whether there was anything.
    fn take_ends(&mut self) -> bool {
        let mut any = false;
        let mut ends = [End { pair: 0, id: 0, how: How::Done }; 16];
        loop {
            let count = self.queue.poll(&mut ends);
            any |= count > 0;
            self.traffic.ends += count as u64;
            for end in &ends[..count] {
                // The pairs of links that have ended are nobody's.
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
            // What is refused here is known to the one who is refused, and begins again.
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
            // Something before it was refused or has failed, and says so itself.
            How::Flushed | How::Failed(_) => {}
        }
        if link.has_unposted() {
            self.owe(peer);
        }
        Ok(())
    }

    /// Something is to be posted to the peer.
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

    /// Waits until the link to a peer is up, as long as we have patience.
    fn await_link(&mut self, peer: Peer) -> Result<bool, FabricError> {
        let end = Instant::now() + self.patience;
        loop {
            if self.link(peer.0)?.is_up() {
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

    /// Sleeps until something has ended, or is said on the control channel.
    fn sleep(&mut self, longest: Duration) {
        let longest = if self.control.has_unread() { Duration::ZERO } else { longest };
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let mut fds =
            [PollFd::new(&self.control, PollFlags::IN), PollFd::new(&*self.queue, PollFlags::IN)];
        // Interrupted: whoever waits looks again.
        let _ = poll(&mut fds, Some(&timeout));
        self.queue.quieten();
    }

    /// Parks as part of a whole.
    pub(crate) fn nap<S>(
        whole: &mut S,
        part: fn(&mut S) -> &mut Self,
        longest: Duration,
        idle: &mut dyn FnMut(&S) -> bool,
    ) {
        // Nobody sleeps for that long; what is added to a time must not overflow it.
        let end = Instant::now() + longest.min(NAP_MAX);
        let this = part(whole);
        this.control.hush();
        this.look(true);
        loop {
            let this = part(whole);
            let news = !this.completions.is_empty() || this.control.has_letters();
            let left = end.saturating_duration_since(Instant::now());
            if news || !idle(whole) || left.is_zero() {
                return;
            }
            let this = part(whole);
            let links = this.links.iter_mut();
            this.unposted.extend(links.filter_map(|(peer, it)| it.go_to_sleep().then_some(*peer)));
            this.queue.arm();
            // That a peer was told ends a request, which makes us ask once more: nothing that came
            // before it knew is slept through.
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

    /// What is posted to a peer whose connection has ended goes nowhere.
    fn lost(&mut self, tag: Option<u64>) {
        let outcome = Outcome::Unknown;
        self.completions.extend(tag.map(|tag| Completion { tag, outcome }));
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

    fn hang_up(&mut self, peer: Peer) {
        self.end(peer.0, &Broken::Closed);
        self.control.hang_up(peer);
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
        self.regions.key(region, self.incarnation())
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        if self.is_gone(writer) {
            return Err(FabricError::Gone);
        }
        let (_, incarnation) = self.who(writer).ok_or(FabricError::Gone)?;
        let ours = self.incarnation();
        self.regions.grant(region, (writer, incarnation), ours)
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        let failed = |call: &'static str, device: &str| {
            let path = PathBuf::from(device);
            move |source: io::Error| FabricError::System { call, path, source }
        };
        if let Some(writer) = self.regions.writer(region) {
            // A pair of one who died in a write would hold on to the memory.
            self.is_gone(writer);
            let suspended = self.links.get(&writer.0).map(Link::suspend);
            if let Some(Err(error)) = suspended {
                // Harder, and it ends all that the peer has with us.
                self.end(writer.0, &error.into());
            }
            self.regions.revoke(region).map_err(failed("ibv_dereg_mr", &self.device))?;
            if let Some(link) = self.links.get(&writer.0) {
                link.resume();
            }
        }
        Ok(())
    }

    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        self.link(peer.0)?;
        let (_, incarnation) = self.who(peer).ok_or(FabricError::Gone)?;
        let key = Key::from_bytes(key);
        if key.incarnation != incarnation || key.is_empty() {
            return Err(FabricError::StaleKey);
        }
        Ok(Remote(self.remotes.insert(RemoteState { peer: peer.0, key, closed: false })))
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
        let RemoteState { peer, key, closed } = self.remote(to)?;
        let len = match from {
            Source::Span { len, .. } => len,
            Source::Inline(bytes) => bytes.len(),
        };
        // The card knows keys, and not whose they are: whom the key does not name does not post.
        let denied = closed || !key.lets_write(self.incarnation());
        let target = Target { to: key.place(at, len), grant: key.grant, denied };
        let Some(link) = self.links.get_mut(&peer) else {
            self.lost(tag);
            return Ok(());
        };
        let posted = match from {
            Source::Inline(bytes) => {
                link.write(target, bytes, tag);
                Ok(())
            }
            Source::Span { region, at, .. } => {
                let held = Arc::clone(self.regions.hold(region));
                check_span(&held.memory, at, len);
                link.transfer(What::Write, target, Span { held, at, len }, tag)
            }
        };
        match posted {
            Ok(()) => self.after_posting(peer),
            Err(why) => {
                self.end(peer, &why);
                self.lost(tag);
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
        let RemoteState { peer, key, closed } = self.remote(from)?;
        let target = Target { to: key.place(at, len), grant: key.grant, denied: closed };
        let held = Arc::clone(self.regions.hold(into.0));
        check_span(&held.memory, into.1, len);
        let Some(link) = self.links.get_mut(&peer) else {
            self.lost(Some(tag));
            return Ok(());
        };
        match link.transfer(What::Read, target, Span { held, at: into.1, len }, Some(tag)) {
            Ok(()) => self.after_posting(peer),
            Err(why) => {
                self.end(peer, &why);
                self.lost(Some(tag));
            }
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.post_all();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.look(false);
        completions.append(&mut self.completions);
    }

    fn wake(&mut self, peer: Peer) {
        if let Some(link) = self.links.get_mut(&peer.0) {
            link.wake();
            self.post(peer.0);
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
        self.regions.get(region).word(at).load(Ordering::Acquire)
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.regions.get(region).word(at).store(word, Ordering::Release);
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.regions.get(region).get(at, into);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.regions.get(region).put(at, bytes);
    }
}

/// A span of our own memory that leaves it is a bug of the caller's.
fn check_span(memory: &crate::memory::Memory, at: usize, len: usize) {
    let size = memory.len();
    assert!(at.is_multiple_of(WORD), "offset {at} is not that of a word");
    assert!(at <= size && len <= size - at, "span {at}+{len} leaves {size}");
}

impl fmt::Debug for VerbsFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsFabric({}.{:016x})", self.name(), self.incarnation())
    }
}
