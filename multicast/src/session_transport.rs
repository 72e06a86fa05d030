//! The sessions' side: rings at the replicas, credits, replies, and replicas that fail and come back.
//!
//! **Invariant (nothing is lost with a replica).** A message stays here, whole, until every destination group
//! has answered it. A session writes nothing to a replica that is unreachable. As soon as the replica's next
//! incarnation can be reached, the session sends it everything that its group has not answered, oldest first,
//! and then new messages. So at any moment, each replica of a group has either been sent every unanswered
//! message or is about to be, and any replica that comes to lead the group can order them. Replicas recognise
//! duplicates by the message's name.
//!
//! Followers find a message that fits into the log there. The session sends it to them only if their leader
//! does not answer soon (`docs/decisions/0012-messages-go-to-leaders-first.md`).
//!
//! If the cluster orders along a tree, the groups have a message from their parents, and the session writes it to their
//! lowest common ancestor alone. It opens channels to the others, since each group answers for itself. A group repeats
//! what it answered before there was one. A message that is too large for the log is written to the other destinations as
//! a hint, which spares them to fetch it. Nothing depends on hints, and none is written again.

mod leaders;
mod queries;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use skein_fabric::wait::Waiter;
use skein_fabric::{Fabric, FabricError, Peer};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId, SessionId};
use skein_protocol::message::Head;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::tram::tree::Tree;

pub use self::queries::{Of, QueryKey};

use self::leaders::Leaders;
use self::queries::{Queries, Query};
use crate::channel::{Channel, Kind};
use crate::config::{Tuning, endpoint_name};
use crate::endpoint::{Endpoint, Opening, RingSizes};
use crate::introductions::{Introduction, Purpose, replica};
use crate::layout::Layout;
use crate::ordered_window::OrderedWindow;
use crate::work::Work;

/// Interval between attempts to reach replicas that are unreachable.
const RETRY: Duration = Duration::from_millis(20);
/// Interval between probes of the engines that are written to.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Interval at which an idle transport checks its connections: a fraction of the time that it has to return
/// when one breaks.
const RETURN_WITHIN: Duration = Duration::from_secs(1);
/// Messages longer than this, in bytes, are copied once for all rings that they go to.
const SHARED_FROM: usize = 2 << 10;
/// Buffers of short messages that are kept for reuse, so that the steady state allocates nothing.
const POOL_MAX: usize = 4096;

/// The sessions of one thread and the fabric that they share. Never blocks, except in [`wait`](Self::wait).
pub struct SessionTransport<F> {
    endpoint: Endpoint<F>,
    layout: Layout,
    /// The tree along which messages are ordered, if they are.
    tree: Option<Tree>,
    tuning: Tuning,
    /// In the order of nodes, and within a node of its engines.
    engines: Vec<Engine>,
    sessions: Vec<Option<Session>>,
    free: Vec<u32>,
    ready: Vec<u32>,
    /// Sessions with a route to a replica that is unreachable.
    unopened: BTreeSet<u32>,
    /// Time at which the last turn began.
    turned_at: Duration,
    last_retry: Duration,
    last_probe: Duration,
    refusal: Option<FabricError>,
    failure: Option<FabricError>,
    /// Messages that some group has not answered.
    under_way: usize,
    leaders: Leaders,
    queries: Queries,
    pool: Vec<Vec<u8>>,
    datagram: Vec<u8>,
    mail: Vec<u8>,
    work: Work,
}

struct Engine {
    name: String,
    /// Its present incarnation, once dialled; `None` once that is known to be gone.
    peer: Option<Peer>,
}

/// One session of a [`SessionTransport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u32);

/// The session has as many messages in flight as its window allows. The caller takes a turn and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session's window is full")]
pub struct WindowFull;

/// One group's reply to one message.
#[derive(Clone, Copy, Debug)]
pub struct GroupReply<'a> {
    pub session: SessionKey,
    pub sequence: u64,
    pub group: GroupId,
    /// The reply of the group's state machine.
    pub bytes: &'a [u8],
}

/// Which engines run, as far as the fabric can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Groups that can order nothing, because fewer than a quorum of their replicas are on engines that run.
    pub without_quorum: GroupSet,
    /// No engine of the cluster runs.
    pub nobody: bool,
}

struct Session {
    id: SessionId,
    next: u64,
    /// Number of queries so far.
    asked: u64,
    /// The queries without an answer.
    queries: OrderedWindow<Query>,
    /// Messages from the low-water mark on, oldest first.
    window: VecDeque<UnderWay>,
    /// In the order of groups, and within a group of its slots.
    routes: Vec<Route>,
    /// Groups of which every replica was sent something, or is about to be.
    met: GroupSet,
}

/// A message that is not settled, or that some group has not answered.
struct UnderWay {
    unanswered: GroupSet,
    /// The group that orders it first, if that is no destination.
    bystander: Option<GroupId>,
    settled: bool,
    bytes: Bytes,
}

/// A message's head and payload, kept until every group has answered.
enum Bytes {
    /// The buffer belongs to the pool.
    Short(Vec<u8>),
    Long(Arc<[u8]>),
    Answered,
}

/// A session's connection to one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Nothing was sent there yet.
    Unused,
    Open(u32),
    /// The replica's engine is unreachable.
    Waiting,
}

impl<F: Fabric> SessionTransport<F> {
    /// A transport without sessions.
    pub fn new(fabric: F, layout: &Layout, tuning: Tuning) -> Self {
        let topology = layout.topology();
        let sizes = RingSizes {
            session: tuning.ring_bytes as u64,
            session_max: tuning.ring_bytes_max as u64,
            replica: 0,
            total_max: tuning.rings_bytes_max as u64,
        };
        let engine = |node, engine| Engine { name: endpoint_name(node, engine), peer: None };
        let engines = (0..topology.nodes)
            .flat_map(|node| (0..topology.engines).map(move |e| engine(node, e)))
            .collect();
        Self {
            endpoint: Endpoint::new(fabric, sizes),
            layout: layout.clone(),
            tree: layout.tree(),
            tuning,
            engines,
            sessions: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            unopened: BTreeSet::new(),
            turned_at: Duration::ZERO,
            last_retry: Duration::ZERO,
            last_probe: Duration::ZERO,
            refusal: None,
            failure: None,
            under_way: 0,
            leaders: Leaders::new(topology.groups),
            queries: Queries::default(),
            pool: Vec::new(),
            datagram: Vec::new(),
            mail: Vec::new(),
            work: Work::default(),
        }
    }

    /// Opens a session of that name, which no other session may ever have had: it is drawn at random, as by
    /// [`SessionId::from_random`]. Rings are opened at their first use.
    ///
    /// # Panics
    /// If the name is that of a node's own message.
    pub fn open(&mut self, id: SessionId) -> SessionKey {
        assert!(!id.is_own(), "{id} is the name of a node's own message");
        let replicas = usize::from(self.layout.topology().groups)
            * usize::from(self.layout.topology().replicas);
        let session = Session {
            id,
            next: 1,
            asked: 0,
            queries: OrderedWindow::default(),
            window: VecDeque::new(),
            routes: vec![Route::Unused; replicas],
            met: GroupSet::EMPTY,
        };
        let key = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() as u32 - 1
        });
        self.sessions[key as usize] = Some(session);
        SessionKey(key)
    }

    /// The name of an open session.
    pub fn id(&self, session: SessionKey) -> SessionId {
        self.sessions[session.0 as usize].as_ref().expect("an open session").id
    }

    /// Returns whether the session's window has room for another message.
    pub fn has_room(&self, session: SessionKey) -> bool {
        let session = self.sessions[session.0 as usize].as_ref().expect("an open session");
        session.window.len() < self.tuning.window
    }

    /// Multicasts `payload` to `destinations` and returns the message's sequence number. The payload is
    /// copied, and written as the rings have room.
    pub fn multicast(
        &mut self,
        session: SessionKey,
        destinations: GroupSet,
        payload: &[u8],
    ) -> Result<u64, WindowFull> {
        assert!(
            self.layout.topology().all_groups().contains_all(destinations)
                && !destinations.is_empty()
        );
        assert!(payload.len() <= self.tuning.payload_bytes_max, "check before you multicast");
        if !self.has_room(session) {
            return Err(WindowFull);
        }
        let at = self.sessions[session.0 as usize].as_mut().expect("an open session");
        let sequence = at.next;
        at.next += 1;
        self.work.multicasts += 1;
        // The low-water mark once the message is in the window.
        let low_water = sequence - at.window.len() as u64;
        let mut bytes = self.pool.pop().unwrap_or_default();
        bytes.clear();
        Head { sequence, low_water, destinations }.encode(&mut bytes);
        let long = bytes.len() + payload.len() > SHARED_FROM;
        let bytes = if long {
            let whole = [&bytes[..], payload].concat().into();
            self.pool.push(bytes);
            Bytes::Long(whole)
        } else {
            bytes.extend_from_slice(payload);
            Bytes::Short(bytes)
        };
        let logged = payload.len() <= self.tuning.inline_bytes_max;
        let mut to_leaders = GroupSet::EMPTY;
        let first = self.tree.as_ref().map(|tree| tree.lca(destinations));
        let bystander = first.filter(|first| !destinations.contains(*first));
        for group in destinations.iter().chain(bystander) {
            if first.is_some_and(|first| group != first) {
                self.meet(session, group);
                continue; // It has it from its parent.
            }
            if logged && let Some(channel) = self.way_to_leader(session, group) {
                bytes.write(&mut self.endpoint, Kind::Message, channel);
                to_leaders = to_leaders.with(group);
                continue;
            }
            for to in self.layout.topology().replicas_of(group) {
                if let Some(channel) = self.route(session, to) {
                    bytes.write(&mut self.endpoint, Kind::Message, channel);
                }
            }
            let at = self.get(session);
            at.met = at.met.with(group);
        }
        if let Some(first) = first.filter(|_| !logged) {
            self.hint(session, destinations.without(first), &bytes);
        }
        if !to_leaders.is_empty() {
            self.leaders.sent_first(session, sequence, to_leaders);
        }
        let unanswered = destinations;
        let message = UnderWay { unanswered, bystander, settled: false, bytes };
        self.get(session).window.push_back(message);
        self.under_way += 1;
        Ok(sequence)
    }

    /// Writes a large message to the replicas of groups that have it from their parents. Where a window of datagrams waits
    /// for room, it is left out.
    fn hint(&mut self, session: SessionKey, groups: GroupSet, bytes: &Bytes) {
        let topology = self.layout.topology();
        for to in groups.iter().flat_map(|group| topology.replicas_of(group)) {
            let at = self.route_to(to);
            if let Route::Open(channel) = self.get(session).routes[at]
                && self.endpoint.channel(channel).waiting() < self.tuning.window
            {
                bytes.write(&mut self.endpoint, Kind::Hint, channel);
            }
        }
    }

    /// Opens channels to every replica of a group, by which it answers.
    fn meet(&mut self, session: SessionKey, group: GroupId) {
        if self.get(session).met.contains(group) {
            return;
        }
        for to in self.layout.topology().replicas_of(group) {
            self.route(session, to);
        }
        let at = self.get(session);
        at.met = at.met.with(group);
    }

    /// Writes a message again to every replica of the groups that have not answered it. A replica that has
    /// received it before recognises its name, and repeats the reply if the session still needs it; a message
    /// is never delivered twice. A replica whose ring still has no room for earlier datagrams is skipped: it
    /// has lost nothing.
    pub fn retry(&mut self, session: SessionKey, sequence: u64) {
        let at = self.get(session);
        let Some(message) = at.under_way(sequence) else { return };
        for group in message.waited_for().iter() {
            for to in self.layout.topology().replicas_of(group) {
                let at = self.route_to(to);
                if let Route::Open(channel) = self.get(session).routes[at]
                    && self.endpoint.get(channel).is_some_and(Channel::sent_all)
                {
                    self.write(session, sequence, channel);
                }
            }
        }
    }

    /// The session's channel to a replica, opened at its first use; `None` if the replica is unreachable now,
    /// which does not affect the others.
    fn route(&mut self, session: SessionKey, to: ReplicaId) -> Option<u32> {
        let at = self.route_to(to);
        match self.get(session).routes[at] {
            Route::Open(channel) => Some(channel),
            Route::Waiting => None,
            Route::Unused => self.first_route(session, to),
        }
    }

    #[cold]
    fn first_route(&mut self, session: SessionKey, to: ReplicaId) -> Option<u32> {
        let opened = self.open_route(session, to);
        if opened.is_none() {
            let at = self.route_to(to);
            self.get(session).routes[at] = Route::Waiting;
            self.unopened.insert(session.0);
        }
        opened
    }

    /// Index of a replica among a session's routes.
    fn route_to(&self, to: ReplicaId) -> usize {
        to.group.index() * usize::from(self.layout.topology().replicas) + usize::from(to.slot)
    }

    fn open_route(&mut self, session: SessionKey, to: ReplicaId) -> Option<u32> {
        let id = self.get(session).id;
        let reached = self.reach(to);
        let unseen = reached.is_err();
        let opened = reached.and_then(|peer| self.endpoint.open(peer, Purpose::session(id, to)));
        match opened {
            Ok(channel) => {
                self.endpoint.channel_mut(channel).owner = session.0;
                let at = self.route_to(to);
                self.get(session).routes[at] = Route::Open(channel);
                Some(channel)
            }
            Err(error) => {
                tracing::debug!(%to, %error, "a replica cannot be reached");
                // An engine that refuses this process, or that this process lacks the means to look for,
                // counts as gone. If this holds for all engines, the cause is here, as it is if memory for
                // rings is lacking.
                let none = self.engines.iter().all(|engine| engine.peer.is_none());
                let fatal = match &error {
                    FabricError::Unreachable { .. } | FabricError::Gone => false,
                    FabricError::Refused { .. } => none,
                    lack if lack.is_lack() && unseen => none,
                    _ => true,
                };
                if fatal {
                    self.failure = Some(error);
                }
                None
            }
        }
    }

    /// Index of the engine that runs a replica.
    fn engine_of(&self, to: ReplicaId) -> usize {
        let (node, engine) = (self.layout.node_of(to), self.layout.engine_of(to));
        usize::from(node) * usize::from(self.layout.topology().engines) + usize::from(engine)
    }

    /// The engine that runs a replica, if it can be reached.
    fn reach(&mut self, to: ReplicaId) -> Result<Peer, FabricError> {
        let at = self.engine_of(to);
        let engine = &mut self.engines[at];
        match engine.peer {
            Some(peer) => Ok(peer),
            None => Ok(*engine.peer.insert(self.endpoint.fabric.dial(&engine.name)?)),
        }
    }

    /// Sends a message of the session's window into a channel.
    fn write(&mut self, session: SessionKey, sequence: u64, channel: u32) {
        let at = self.sessions[session.0 as usize].as_mut().expect("an open session");
        let message = at.under_way(sequence).expect("only what is under way is sent");
        message.bytes.write(&mut self.endpoint, Kind::Message, channel);
    }

    /// Marks message `sequence` as settled: its caller needs no further replies, and none are reported. The
    /// message leaves the window when every destination group has replied, so the session's low-water mark
    /// never passes a message that may yet be delivered. To be called once for every message.
    pub fn settle(&mut self, session: SessionKey, sequence: u64) {
        let session = self.get(session);
        if let Some(message) = session.under_way(sequence) {
            message.settled = true;
        }
        session.shrink();
    }

    /// Writes what the rings have room for and takes the replies that have arrived. Returns whether there was
    /// anything to do.
    ///
    /// # Errors
    ///
    /// The reason why no rings could be created.
    pub fn turn(&mut self, replies: &mut dyn FnMut(GroupReply<'_>)) -> Result<bool, FabricError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.work.turns += 1;
        let now = self.endpoint.fabric.now();
        self.turned_at = now;
        let mut any = self.read_mail();
        if self.endpoint.take_failed() || now >= self.last_probe + PROBE_EVERY {
            self.last_probe = now;
            self.probe_peers();
        }
        if !self.unopened.is_empty() && now >= self.last_retry + RETRY {
            self.last_retry = now;
            self.reopen();
        }
        self.ask_again(now);
        let mut ready = std::mem::take(&mut self.ready);
        self.endpoint.look(&mut ready);
        any |= !ready.is_empty();
        for channel in ready.drain(..) {
            self.read_channel(channel, replies);
        }
        self.ready = ready;
        // A message that is answered by now is not late.
        self.spread(now);
        self.endpoint.tell();
        Ok(any)
    }

    /// Time at which the last turn began, for callers that need no better clock.
    pub const fn turned_at(&self) -> Duration {
        self.turned_at
    }

    /// Waits, as `waiter` decides after a turn that found nothing, until a reply may have arrived or
    /// `longest` has passed. Sleeps only while `undisturbed` returns true: requests of other threads come
    /// with a wake-up of their own.
    pub fn wait(&mut self, waiter: &mut Waiter, longest: Duration, undisturbed: &dyn Fn() -> bool) {
        // A probe ran, or a session was closed, since the last turn: the next turn handles what follows.
        if !self.ready.is_empty() || self.endpoint.has_untold() {
            return;
        }
        let Some(longest) = self.queries.wait_for(longest) else { return };
        let longest = if self.endpoint.has_errands() || !self.unopened.is_empty() {
            longest.min(RETRY)
        } else if self.under_way > 0 {
            longest.min(PROBE_EVERY)
        } else if self.endpoint.fabric.may_return() && !planted(Mutant::IdleStaysAway) {
            // On fabrics where connections may break, an idle transport must still return in time.
            longest.min(RETURN_WITHIN)
        } else {
            longest
        };
        let late = self.leaders.wait_for_them(self.turned_at).filter(|_| self.under_way > 0);
        let longest = late.map_or(longest, |late| longest.min(late));
        let (fabric, quiet) = self.endpoint.parking();
        waiter.idle(fabric, longest, &mut |fabric: &F| undisturbed() && quiet(fabric));
    }

    /// Closes a session and frees its rings. Its unsettled messages may or may not be delivered.
    pub fn close(&mut self, session: SessionKey) {
        let closed = self.sessions[session.0 as usize].take().expect("an open session");
        self.queries.forget_all(session, &closed.queries);
        for route in closed.routes {
            if let Route::Open(channel) = route
                && self.endpoint.get(channel).is_some()
            {
                self.endpoint.close(channel);
            }
        }
        for message in closed.window {
            self.under_way -= usize::from(!message.unanswered.is_empty());
            self.pool.extend(message.bytes.into_buffer().filter(|_| self.pool.len() < POOL_MAX));
        }
        self.unopened.remove(&session.0);
        self.free.push(session.0);
    }

    /// Probes which engines run. It makes system calls, so it is not for the hot path.
    pub fn presence(&mut self) -> Presence {
        self.probe_peers();
        let topology = self.layout.topology();
        let mut presence = Presence { without_quorum: GroupSet::EMPTY, nobody: true };
        self.refusal = None;
        for engine in &mut self.engines {
            if engine.peer.is_none() {
                match self.endpoint.fabric.dial(&engine.name) {
                    Ok(peer) => engine.peer = Some(peer),
                    Err(error @ FabricError::Refused { .. }) => self.refusal = Some(error),
                    Err(lack) if lack.is_lack() => self.refusal = Some(lack),
                    Err(_) => {}
                }
            }
            presence.nobody &= engine.peer.is_none();
        }
        for group in topology.all_groups().iter() {
            let here = |to: &ReplicaId| self.engines[self.engine_of(*to)].peer.is_some();
            if topology.replicas_of(group).filter(here).count() < topology.quorum() {
                presence.without_quorum = presence.without_quorum.with(group);
            }
        }
        presence
    }

    /// The reason why a running engine has not admitted this process, as of the last [`presence`](Self::presence).
    pub fn refusal(&self) -> Option<&FabricError> {
        self.refusal.as_ref()
    }

    /// Probes which engines are gone. Whole datagrams in the rings that they wrote are read before their
    /// channels are given up.
    fn probe_peers(&mut self) {
        for engine in &mut self.engines {
            if let Some(peer) = engine.peer.filter(|peer| self.endpoint.fabric.is_gone(*peer)) {
                tracing::info!(engine = engine.name, "an engine is gone");
                engine.peer = None;
                self.ready.append(&mut self.endpoint.lost(peer));
            }
        }
        // The engines of failed channels may still run: another channel to them is opened.
        let failed = self.endpoint.iter().filter(|(_, c)| c.failed && !c.leaving);
        self.ready.extend(failed.map(|(id, _)| id));
    }

    /// Gives up a channel, and schedules another to the same replica.
    fn give_up(&mut self, channel: u32) {
        let (owner, purpose) =
            (self.endpoint.channel(channel).owner, self.endpoint.channel(channel).purpose);
        if let Purpose::Session { replica: to, .. } = purpose
            && let at = self.route_to(replica(to))
            && let Some(Some(session)) = self.sessions.get_mut(owner as usize)
            && session.routes[at] == Route::Open(channel)
        {
            session.routes[at] = Route::Waiting;
            self.unopened.insert(owner);
        }
        self.endpoint.close(channel);
    }

    /// The work done so far.
    pub const fn work(&self) -> Work {
        self.work
    }

    /// The fabric that the sessions share.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.endpoint.fabric
    }

    /// The endpoint, for an observer.
    pub(crate) const fn endpoint(&self) -> &Endpoint<F> {
        &self.endpoint
    }

    fn get(&mut self, session: SessionKey) -> &mut Session {
        self.sessions[session.0 as usize].as_mut().expect("an open session")
    }

    /// Tries again to reach the unreachable replicas, and sends those that it reaches what their groups have
    /// not answered.
    fn reopen(&mut self) {
        for key in std::mem::take(&mut self.unopened) {
            let session = SessionKey(key);
            let topology = self.layout.topology();
            let groups = topology.all_groups();
            for to in groups.iter().flat_map(|group| topology.replicas_of(group)) {
                let at = self.route_to(to);
                if self.get(session).routes[at] != Route::Waiting {
                    continue;
                }
                let Some(channel) = self.open_route(session, to) else {
                    self.unopened.insert(key);
                    continue;
                };
                let at = self.get(session);
                let low_water = at.low_water();
                for sequence in low_water..at.next {
                    let message = self.get(session).under_way(sequence);
                    if message.is_some_and(|m| m.waited_for().contains(to.group)) {
                        self.write(session, sequence, channel);
                    }
                }
            }
        }
    }

    fn read_mail(&mut self) -> bool {
        let mut any = false;
        let mut bytes = std::mem::take(&mut self.mail);
        while let Some(from) = self.endpoint.fabric.recv(&mut bytes) {
            any = true;
            let Some(mail) = Introduction::decode(&bytes) else { continue };
            match self.endpoint.receive_mail(from, mail, |_| false) {
                Opening::Refused(channel) => self.give_up(channel),
                Opening::Accepted(_) | Opening::Nothing => {}
            }
        }
        self.mail = bytes;
        any
    }

    fn read_channel(&mut self, id: u32, replies: &mut dyn FnMut(GroupReply<'_>)) {
        let Some(channel) = self.endpoint.get(id) else { return };
        let (owner, purpose) = (channel.owner, channel.purpose);
        if !channel.sent_all() {
            self.endpoint.pump(id);
        }
        let Purpose::Session { replica: to, .. } = purpose else { return };
        let group = replica(to).group;
        self.work.rings += 1;
        let mut datagram = std::mem::take(&mut self.datagram);
        while let Some(next) = self.endpoint.next(id) {
            if !self.endpoint.take(id, next, &mut datagram) {
                break;
            }
            self.work.datagrams += 1;
            let Some((sequence, bytes)) = datagram.split_first_chunk::<8>() else { continue };
            let sequence = u64::from_le_bytes(*sequence);
            let Some(Some(session)) = self.sessions.get_mut(owner as usize) else { continue };
            if next.kind == Kind::Answer {
                let key = QueryKey { session: SessionKey(owner), number: sequence };
                let of = self.queries.answered(&mut session.queries, key, bytes);
                if of.is_some_and(Of::leads) {
                    self.leaders.answered(self.turned_at, replica(to));
                }
                continue;
            }
            let Some(message) = session.under_way(sequence) else { continue };
            if next.kind != Kind::Reply || !message.unanswered.contains(group) {
                continue; // A repeated reply: the first one counted.
            }
            message.unanswered = message.unanswered.without(group);
            self.leaders.answered(self.turned_at, replica(to));
            if !message.settled {
                replies(GroupReply { session: SessionKey(owner), sequence, group, bytes });
            }
            if message.unanswered.is_empty() {
                self.under_way -= 1;
                let kept = std::mem::replace(&mut message.bytes, Bytes::Answered);
                self.pool.extend(kept.into_buffer().filter(|_| self.pool.len() < POOL_MAX));
            }
            session.shrink();
        }
        self.datagram = datagram;
        if self.endpoint.get(id).is_some_and(|channel| channel.dying || channel.failed) {
            tracing::debug!(?purpose, "a session's channel is over");
            self.give_up(id);
        }
    }
}

impl UnderWay {
    /// The groups that have yet to answer it, or to order it for them.
    fn waited_for(&self) -> GroupSet {
        let bystander = self.bystander.filter(|_| !self.unanswered.is_empty());
        bystander.map_or(self.unanswered, |bystander| self.unanswered.with(bystander))
    }
}

impl Bytes {
    /// Sends the message into a channel.
    fn write<F: Fabric>(&self, endpoint: &mut Endpoint<F>, kind: Kind, channel: u32) {
        match self {
            Self::Short(bytes) => endpoint.send(channel, kind, bytes, &[]),
            Self::Long(bytes) => endpoint.send_shared(channel, kind, Arc::clone(bytes)),
            Self::Answered => {}
        }
    }

    /// The buffer, if it belongs to the pool.
    fn into_buffer(self) -> Option<Vec<u8>> {
        match self {
            Self::Short(buffer) => Some(buffer),
            Self::Long(_) | Self::Answered => None,
        }
    }
}

impl Session {
    /// The lowest sequence number in the window.
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

#[cfg(test)]
mod tests;
