//! The session's half: rings at the replicas, credits, replies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use skein_fabric::wait::Waiter;
use skein_fabric::{Fabric, FabricError, Peer};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId, SessionId};
use skein_protocol::message::Head;

use crate::channel::Kind;
use crate::config::{Topology, Tuning};
use crate::mail::{Mail, Purpose, replica};
use crate::port::{Opening, Port, RingSizes};

/// How often channels that could not be opened are tried again.
const RETRY: Duration = Duration::from_millis(20);
/// Payloads longer than this are copied once for all the rings they go to.
const SHARED_FROM: usize = 2 << 10;

/// The sessions of one thread and the fabric they share. Never blocks.
pub struct Access<F> {
    port: Port<F>,
    topology: Topology,
    tuning: Tuning,
    sessions: Vec<Option<Session>>,
    free: Vec<u32>,
    ready: Vec<u32>,
    /// Sessions that wait for a channel to be opened again.
    unopened: BTreeSet<u32>,
    last_retry: Duration,
    failure: Option<FabricError>,
    head: Vec<u8>,
    datagram: Vec<u8>,
    mail: Vec<u8>,
}

/// One session of an [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u32);

/// The session has as many messages under way as its window allows: turn, and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session's window is full")]
pub struct WindowFull;

/// One group's reply to one message.
#[derive(Clone, Copy, Debug)]
pub struct GroupReply<'a> {
    /// To whom.
    pub session: SessionKey,
    /// To what.
    pub sequence: u64,
    /// From whom.
    pub group: GroupId,
    /// What its state machine said.
    pub bytes: &'a [u8],
}

struct Session {
    id: SessionId,
    next: u64,
    /// Messages from the low-water mark on, oldest first.
    window: VecDeque<UnderWay>,
    routes: BTreeMap<ReplicaId, Route>,
}

/// A message that is not settled, or not answered by every group.
struct UnderWay {
    unanswered: GroupSet,
    settled: bool,
}

/// A session's way to one replica.
enum Route {
    Open(u32),
    /// Its engine is not there. What was sent meanwhile waits, to be sent when it is.
    Waiting(VecDeque<Arc<[u8]>>),
}

impl<F: Fabric> Access<F> {
    /// No sessions yet.
    pub fn new(fabric: F, topology: Topology, tuning: Tuning) -> Self {
        let sizes = RingSizes {
            session: tuning.ring_bytes as u64,
            session_max: tuning.ring_bytes_max as u64,
            replica: 0,
            total_max: tuning.rings_bytes_max as u64,
        };
        Self {
            port: Port::new(fabric, sizes),
            topology,
            tuning,
            sessions: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            unopened: BTreeSet::new(),
            last_retry: Duration::ZERO,
            failure: None,
            head: Vec::new(),
            datagram: Vec::new(),
            mail: Vec::new(),
        }
    }

    /// Opens a session, named after 64 bits that must be drawn at random. Rings are opened at first
    /// use.
    pub fn open(&mut self, random: SessionId) -> SessionKey {
        let id = SessionId::from_random(random.0);
        let session = Session { id, next: 1, window: VecDeque::new(), routes: BTreeMap::new() };
        let key = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() as u32 - 1
        });
        self.sessions[key as usize] = Some(session);
        SessionKey(key)
    }

    /// Multicasts `payload` to `destinations` and returns the message's sequence number. The bytes
    /// are taken; they are written as the rings have room.
    pub fn multicast(
        &mut self,
        session: SessionKey,
        destinations: GroupSet,
        payload: &[u8],
    ) -> Result<u64, WindowFull> {
        assert!(self.topology.all_groups().contains_all(destinations) && !destinations.is_empty());
        assert!(payload.len() <= self.tuning.payload_bytes_max, "check before you multicast");
        let window = self.tuning.window;
        let at = self.get(session);
        if at.window.len() >= window {
            return Err(WindowFull);
        }
        let sequence = at.next;
        at.next += 1;
        at.window.push_back(UnderWay { unanswered: destinations, settled: false });
        let low_water = at.low_water();
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        Head { sequence, low_water, destinations }.encode(&mut head);
        let mut shared: Option<Arc<[u8]>> =
            (payload.len() > SHARED_FROM).then(|| [&head[..], payload].concat().into());
        for group in destinations.iter() {
            for to in self.topology.replicas_of(group) {
                self.send(session, to, &head, payload, &mut shared);
            }
        }
        self.head = head;
        Ok(sequence)
    }

    /// A replica that cannot be reached now does not stop the others: its messages wait.
    fn send(
        &mut self,
        session: SessionKey,
        to: ReplicaId,
        head: &[u8],
        payload: &[u8],
        shared: &mut Option<Arc<[u8]>>,
    ) {
        if !self.get(session).routes.contains_key(&to) {
            let route = match self.open_route(session, to) {
                Ok(channel) => Route::Open(channel),
                Err(error) => {
                    tracing::debug!(%to, %error, "a replica cannot be reached");
                    if !matches!(error, FabricError::Unreachable { .. } | FabricError::Gone) {
                        self.failure = Some(error);
                    }
                    self.unopened.insert(session.0);
                    Route::Waiting(VecDeque::new())
                }
            };
            self.get(session).routes.insert(to, route);
        }
        match self.sessions[session.0 as usize].as_mut().expect("open").routes.get_mut(&to) {
            Some(Route::Open(channel)) => {
                let channel = *channel;
                match shared {
                    Some(bytes) => self.port.send_shared(channel, Kind::Message, Arc::clone(bytes)),
                    None => self.port.send(channel, Kind::Message, head, payload),
                }
            }
            Some(Route::Waiting(waiting)) => {
                let bytes = shared.get_or_insert_with(|| [head, payload].concat().into());
                waiting.push_back(Arc::clone(bytes));
            }
            None => unreachable!("just inserted"),
        }
    }

    fn open_route(&mut self, session: SessionKey, to: ReplicaId) -> Result<u32, FabricError> {
        let id = self.get(session).id;
        let peer = self.port.fabric.dial(&self.topology.endpoint_of(to))?;
        let channel = self.port.open(peer, Purpose::session(id, to))?;
        self.port.channel_mut(channel).owner = session.0;
        Ok(channel)
    }

    /// Nobody waits for replies to message `sequence` any more; those still to come are not given
    /// out. The message leaves the window when every destination group has replied, so that the
    /// session's low-water mark never passes one that may yet be delivered. To be called once for
    /// every message.
    pub fn settle(&mut self, session: SessionKey, sequence: u64) {
        let session = self.get(session);
        if let Some(message) = session.under_way(sequence) {
            message.settled = true;
        }
        session.shrink();
    }

    /// Writes what the rings have room for and takes the replies that are in. Returns whether there
    /// was anything to do, or why no rings could be made.
    pub fn turn(&mut self, replies: &mut dyn FnMut(GroupReply<'_>)) -> Result<bool, FabricError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut any = self.read_mail();
        if !self.unopened.is_empty() {
            self.retry();
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.port.look(&mut ready);
        any |= !ready.is_empty();
        for channel in ready.drain(..) {
            self.read_channel(channel, replies);
        }
        self.ready = ready;
        self.port.tell();
        Ok(any)
    }

    /// Waits, as `waiter` sees fit after a turn that found nothing, until a reply may be in or
    /// `longest` has passed. Sleeps only while `undisturbed` says so: what other threads ask comes
    /// with a wake-up of its own.
    pub fn wait(&mut self, waiter: &mut Waiter, longest: Duration, undisturbed: &dyn Fn() -> bool) {
        let longest = if self.port.has_unposted() { longest.min(RETRY) } else { longest };
        let (fabric, quiet) = self.port.parking();
        waiter.idle(fabric, longest, &mut |fabric: &F| undisturbed() && quiet(fabric));
    }

    /// Gives the session's rings back. Its unsettled messages may or may not be delivered.
    pub fn close(&mut self, session: SessionKey) {
        let closed = self.sessions[session.0 as usize].take().expect("an open session");
        for route in closed.routes.into_values() {
            if let Route::Open(channel) = route
                && self.port.get(channel).is_some()
            {
                self.port.close(channel);
            }
        }
        self.unopened.remove(&session.0);
        self.free.push(session.0);
    }

    /// The groups that cannot order a message now: their leader or a majority of their replicas is
    /// on nodes that are not running. Asks the system: not for the hot path.
    pub fn unavailable(&mut self) -> GroupSet {
        let mut reachable = BTreeMap::new();
        let mut lost = Vec::new();
        let topology = self.topology;
        let mut set = GroupSet::EMPTY;
        for group in topology.all_groups().iter() {
            let mut alive = 0;
            for to in topology.replicas_of(group) {
                let name = topology.endpoint_of(to);
                let here = *reachable.entry(name).or_insert_with_key(|name| {
                    let Ok(peer) = self.port.fabric.dial(name) else { return false };
                    let gone = self.port.fabric.is_gone(peer);
                    if gone {
                        lost.push(peer);
                    }
                    !gone
                });
                alive += usize::from(here);
                if to.slot == 0 && !here {
                    set = set.with(group);
                }
            }
            if alive < topology.quorum() {
                set = set.with(group);
            }
        }
        for peer in lost {
            self.forget(peer);
        }
        set
    }

    /// An engine is gone: nothing more goes there.
    fn forget(&mut self, peer: Peer) {
        for channel in self.port.lost(peer) {
            self.give_up(channel);
        }
    }

    /// A channel is of no use any more. What is sent to its replica waits until another is there.
    fn give_up(&mut self, channel: u32) {
        let (owner, purpose) =
            (self.port.channel(channel).owner, self.port.channel(channel).purpose);
        if let Purpose::Session { replica: to, .. } = purpose
            && let Some(Some(session)) = self.sessions.get_mut(owner as usize)
        {
            session.routes.insert(replica(to), Route::Waiting(VecDeque::new()));
            self.unopened.insert(owner);
        }
        self.port.close(channel);
    }

    /// The fabric.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.port.fabric
    }

    /// The port, for an onlooker.
    pub(crate) const fn port(&self) -> &Port<F> {
        &self.port
    }

    fn get(&mut self, session: SessionKey) -> &mut Session {
        self.sessions[session.0 as usize].as_mut().expect("an open session")
    }

    /// Tries again to reach the replicas that were not there.
    fn retry(&mut self) {
        let now = self.port.fabric.now();
        if now < self.last_retry + RETRY {
            return;
        }
        self.last_retry = now;
        for key in std::mem::take(&mut self.unopened) {
            let session = SessionKey(key);
            let waiting: Vec<_> = self
                .get(session)
                .routes
                .iter()
                .filter(|(_, route)| matches!(route, Route::Waiting(_)))
                .map(|(to, _)| *to)
                .collect();
            for to in waiting {
                let Ok(channel) = self.open_route(session, to) else {
                    self.unopened.insert(key);
                    continue;
                };
                let route = self.get(session).routes.insert(to, Route::Open(channel));
                let Some(Route::Waiting(messages)) = route else { unreachable!("filtered") };
                for bytes in messages {
                    self.port.send_shared(channel, Kind::Message, bytes);
                }
            }
        }
    }

    fn read_mail(&mut self) -> bool {
        let mut any = false;
        let mut bytes = std::mem::take(&mut self.mail);
        while let Some(from) = self.port.fabric.recv(&mut bytes) {
            any = true;
            let Some(mail) = Mail::decode(&bytes) else { continue };
            match self.port.receive_mail(from, mail, |_| false) {
                Opening::Refused(channel) => self.give_up(channel),
                Opening::Accepted(_) | Opening::Nothing => {}
            }
        }
        self.mail = bytes;
        any
    }

    fn read_channel(&mut self, id: u32, replies: &mut dyn FnMut(GroupReply<'_>)) {
        let Some(channel) = self.port.get(id) else { return };
        let (owner, purpose) = (channel.owner, channel.purpose);
        if !channel.sent_all() {
            self.port.pump(id);
        }
        let Purpose::Session { replica: to, .. } = purpose else { return };
        let group = replica(to).group;
        let mut datagram = std::mem::take(&mut self.datagram);
        while let Some(next) = self.port.next(id) {
            if !self.port.take(id, &mut datagram) {
                break;
            }
            let Some((sequence, bytes)) = datagram.split_first_chunk::<8>() else { continue };
            let sequence = u64::from_le_bytes(*sequence);
            let Some(Some(session)) = self.sessions.get_mut(owner as usize) else { continue };
            let Some(message) = session.under_way(sequence) else { continue };
            if next.kind != Kind::Reply || !message.unanswered.contains(group) {
                continue; // A reply repeated: the first one counted.
            }
            message.unanswered = message.unanswered.without(group);
            if !message.settled {
                replies(GroupReply { session: SessionKey(owner), sequence, group, bytes });
            }
            session.shrink();
        }
        self.datagram = datagram;
        if self.port.get(id).is_some_and(|channel| channel.dying) {
            tracing::warn!(?purpose, "a replica gave up a session's channel");
            self.give_up(id);
        }
    }
}

impl Session {
    /// The lowest sequence number that is still under way.
    fn low_water(&self) -> u64 {
        self.next - self.window.len() as u64
    }

    fn under_way(&mut self, sequence: u64) -> Option<&mut UnderWay> {
        let index = sequence.checked_sub(self.low_water())?;
        self.window.get_mut(index as usize)
    }

    fn shrink(&mut self) {
        while self.window.pop_front_if(|m| m.settled && m.unanswered.is_empty()).is_some() {}
    }
}
