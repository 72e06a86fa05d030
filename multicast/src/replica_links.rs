//! Links between the engines of a cluster: status words, heartbeats, and channels to other replicas.
//!
//! Each engine has one region of status words that its peers write. A replica writes a word for other groups
//! once for each engine, which serves all replicas that the engine runs. It writes a word for a replica of
//! its own group to that replica alone. Each word has a single writer and only its last value counts, so it
//! can be written again whenever a link comes up. Each engine also has a heartbeat word, which the other
//! engines read.

mod status_words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use skein_fabric::{Constants, Fabric, FabricError, Peer, Permission, Region, RegionKey, Remote};
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{MessageId, ReplicaId, SessionId};
use skein_protocol::properties::Touch;
use skein_protocol::rank::Rank;
use skein_protocol::step::Deliver;
use skein_protocol::view::View;

use crate::buffers::Buffers;
use crate::channel::{Channel, Kind};
use crate::config::{Topology, endpoint_name};
use crate::disk::Disk;
use crate::endpoint::Endpoint;
use crate::introductions::{Introduction, Key, Purpose, WIRE_VERSION, key, name};
use crate::layout::Layout;
use crate::ordering::Links;
use crate::roster::{Credentials, Roster, Seen};

use status_words::{Audience, COLUMNS, meanings, words_of};
pub(crate) use status_words::{Meaning, StatusColumn};

/// Another engine, by node and engine number.
type EngineId = (u16, u16);

/// Limit in bytes of relayed payloads that are queued within an engine: the default size of a ring between replicas.
const RELAYS_HERE_MAX: usize = 256 << 10;

/// Limit in bytes of shared messages that are queued for one leader here while its log has no room. Messages
/// beyond it are dropped, and sent again on demand.
const TOGETHER_HERE_MAX: usize = 256 << 10;

/// Buffers that have grown beyond this size are not kept for reuse.
const BUFFER_BYTES_MAX: usize = 4 << 10;

/// Number of datagrams waiting for room in a ring to another replica beyond which datagrams that are sent
/// again anyway are dropped.
pub(crate) const WAITING_MAX: usize = 128;

/// Limit of replies that wait for room in a session's ring, in windows of that session: one window of replies
/// that it has not received, and one that it may have received from another leader.
const REPLIES_WAITING: usize = 2;
/// Limit in bytes of the replies that wait for room in a session's ring. A session that lacks a reply for
/// long sends its message again, and receives the reply then.
const REPLIES_WAITING_BYTES: usize = 16 << 20;
/// Limit in bytes of the answers to queries that wait for room in a session's ring. A session repeats a query
/// every few milliseconds, and an answer may have megabytes.
const ANSWERS_WAITING_BYTES: usize = 1 << 20;

/// The link to another engine.
struct ReplicaLink {
    engine: EngineId,
    peer: Option<Peer>,
    /// The last peer that introduced itself as this engine and was accepted, and its process.
    met: Option<(Peer, Seen)>,
    /// The engine's status words and heartbeat; `None` until it has answered our introduction.
    words: Option<Remote>,
    pulse: Option<Remote>,
    /// Heartbeat value at the last tick.
    seen: u64,
    /// Whether the heartbeat had advanced at the last tick.
    beats: bool,
    /// Ticks until the next introduction, if the engine does not answer. It may be suspended, and it answers
    /// all introductions when it resumes.
    retry_in: u32,
    /// Number of the last audience that includes this engine; see [`ReplicaLinks::gathered`].
    gathered_in: u64,
    /// The engine's first replica, which stands for all of them.
    first: ReplicaId,
    /// The channel for datagrams to all of its replicas.
    route: Option<u32>,
}

impl ReplicaLink {
    const fn to(engine: EngineId, first: ReplicaId) -> Self {
        Self {
            engine,
            peer: None,
            met: None,
            words: None,
            pulse: None,
            seen: 0,
            beats: false,
            retry_in: 0,
            gathered_in: 0,
            first,
            route: None,
        }
    }
}

#[derive(Clone, Copy)]
struct ReplicaLocation {
    /// Index of the link to its engine; `None` if this engine runs it.
    link: Option<u16>,
    /// Its index among the replicas of its engine.
    row: u16,
}

/// Ticks between two introductions to an engine that does not answer.
const HANDSHAKE_EVERY: u32 = 4;

/// Tag bit of completions of heartbeat reads. Completions of log writes have the bit clear.
pub(crate) const PULSE_TAG: u64 = 1 << 63;

/// A datagram from a replica here to another replica.
pub(crate) struct Datagram {
    pub from: ReplicaId,
    pub to: ReplicaId,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

/// What was appended to the log on disk and not yet asked to be written. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unwritten {
    Nothing,
    /// Nobody waits for it: it is written with the next record that somebody waits for, or when the engine has nothing
    /// else to do.
    Later,
    /// Others wait until it is on disk.
    Now,
}

pub(crate) struct ReplicaLinks<F, O: Links> {
    pub endpoint: Endpoint<F>,
    pub layout: Layout,
    /// Settings that all engines of the cluster must have in common.
    pub constants: Constants,
    /// The last reason for refusing each engine that is refused.
    pub refusals: BTreeMap<EngineId, String>,
    me: EngineId,
    /// Decides which process may speak for which node.
    pub roster: Arc<Roster>,
    /// Time at which this turn began.
    pub began: Duration,
    /// Messages that a session may have in flight.
    window: usize,
    pub local: Vec<ReplicaId>,
    /// The log on this node's disk; `None` if the cluster keeps everything in memory.
    pub disk: Option<Box<dyn Disk>>,
    /// The position up to which what is on disk was handled.
    pub durable: u64,
    /// How soon what was appended to it is to be written.
    pub unwritten: Unwritten,
    /// Locations of all replicas of the cluster, by [`member`].
    places: Vec<ReplicaLocation>,
    words: Region,
    /// Meaning of each status word.
    meanings: Vec<Meaning>,
    /// The status words at the last scan.
    words_seen: Vec<u64>,
    /// This engine's heartbeat, then the last values read from the other engines, in the order of `links`.
    pulse: Region,
    links: Vec<ReplicaLink>,
    routes: HashMap<(ReplicaId, ReplicaId), u32>,
    sessions: HashMap<(SessionId, ReplicaId), Vec<u32>>,
    /// Last words written to others, to be written again when a link comes up: for each replica here and each
    /// engine (this one last), one word of each column.
    told: Vec<u64>,
    /// For each replica here, the engines to which it last wrote a word for other groups.
    audiences: Vec<Audience>,
    /// Number of audiences gathered so far.
    gathered: u64,
    /// A replica here has written a word to another replica here since the last
    /// [`take_told_here`](Self::take_told_here).
    told_here: bool,
    /// Datagrams to replicas of this engine.
    pub loopback: VecDeque<Datagram>,
    /// Bytes of relayed payloads in `loopback`; and, for each replica here, bytes of shared messages in it.
    relays_here: usize,
    together_here: Vec<usize>,
    /// Messages that the replicas here send to others together.
    pub together: O::Together,
    /// Buffers for datagrams to replicas here and for other data that waits.
    pub buffers: Buffers,
    scratch: Vec<u8>,
    /// Events for an observer, such as the simulator; `None` if there is none.
    pub journal: Option<Vec<Note<O::Record>>>,
}

/// An event for an observer.
#[derive(Clone, Debug)]
pub(crate) enum Note<R> {
    /// A replica has appended a record to its log.
    Logged { by: ReplicaId, index: u64, record: R },
    /// A replica has written something about a message, or about its log, to another replica.
    ReceivedResult(Touch),
    /// A replica has promised a ballot. `granted` says that it tells so.
    Promised { by: ReplicaId, ballot: Ballot, granted: bool },
    /// A replica has delivered a message.
    Delivered { by: ReplicaId, deliver: Deliver },
    /// A leader has reported how far all replicas of its group's `view` are done with messages that
    /// groups share.
    Settled { by: ReplicaId, rank: Rank, view: View },
    /// A replica has sent its state, as of that number of deliveries.
    Gave { by: ReplicaId, delivered: u64 },
    /// A replica resumes from another replica's state, or from an empty state if `delivered` is 0.
    Restored { by: ReplicaId, delivered: u64 },
}

impl<F: Fabric, O: Links> ReplicaLinks<F, O> {
    pub(crate) fn new(
        mut endpoint: Endpoint<F>,
        layout: &Layout,
        window: usize,
        me: EngineId,
    ) -> Result<Self, FabricError> {
        let topology = layout.topology();
        let local = layout.replicas_on(me.0, me.1);
        let mut links = Vec::new();
        let mut places = vec![ReplicaLocation { link: None, row: 0 }; members(topology)];
        for engine in (0..topology.nodes).flat_map(|n| (0..topology.engines).map(move |e| (n, e))) {
            let replicas = layout.replicas_on(engine.0, engine.1);
            let link = (engine != me).then_some(links.len() as u16);
            if let (Some(_), Some(first)) = (link, replicas.first()) {
                links.push(ReplicaLink::to(engine, *first));
            }
            for (row, replica) in (0..).zip(replicas) {
                places[member(topology, replica)] = ReplicaLocation { link, row };
            }
        }
        let told = local.len() * (links.len() + 1) * COLUMNS.len();
        let len = words_of(topology, local.len()) * 8;
        let words = endpoint.fabric.create(len, Permission::Shared)?;
        let pulse = endpoint.fabric.create((1 + links.len()) * 8, Permission::Shared)?;
        Ok(Self {
            endpoint,
            layout: layout.clone(),
            constants: layout.constants(),
            refusals: BTreeMap::new(),
            me,
            roster: Arc::new(Roster::unrecorded(me.0, 0)),
            began: Duration::ZERO,
            window,
            meanings: meanings(topology, &local),
            audiences: vec![Audience::default(); local.len()],
            together_here: vec![0; local.len()],
            places,
            words,
            words_seen: vec![0; len / 8],
            pulse,
            links,
            routes: HashMap::new(),
            sessions: HashMap::new(),
            told: vec![0; told],
            local,
            disk: None,
            durable: 0,
            unwritten: Unwritten::Nothing,
            gathered: 0,
            told_here: false,
            loopback: VecDeque::new(),
            relays_here: 0,
            together: O::together(topology.groups),
            buffers: Buffers::new(BUFFER_BYTES_MAX),
            scratch: Vec::new(),
            journal: None,
        })
    }

    /// Returns whether every other engine has answered our introduction.
    pub(crate) fn connected(&self) -> bool {
        self.links.iter().all(|link| link.words.is_some())
    }

    /// Introduces this engine to the engines that have not answered yet. To be called now and then. Returns
    /// former peers of these engines whose incarnation or connection ended before they answered: channels to
    /// those lead nowhere.
    pub(crate) fn handshake(&mut self) -> Vec<Peer> {
        let mut over = Vec::new();
        // No process is to count on one that was replaced. An engine without replicas has nothing to say, and no machine
        // whose settings others could compare with their own.
        if self.roster.successor().is_some() || self.local.is_empty() {
            return over;
        }
        for link in &mut self.links {
            if link.words.is_some() {
                continue;
            }
            // While a cluster starts, it is normal that an engine cannot be dialled.
            let name = endpoint_name(link.engine.0, link.engine.1);
            let Ok(peer) = self.endpoint.fabric.dial(&name) else { continue };
            if let Some(former) = link.peer.filter(|former| *former != peer) {
                over.push(former);
                continue;
            }
            if link.peer == Some(peer) && link.retry_in > 0 {
                link.retry_in -= 1;
                continue;
            }
            let (node, engine) = self.me;
            let (version, who) = (WIRE_VERSION, self.roster.introduction());
            let constants = self.constants.encode();
            let hello = Introduction::Hello { version, constants, node, engine, who };
            if self.endpoint.fabric.send(peer, &hello.encode()).is_ok() {
                link.peer = Some(peer);
                link.retry_in = HANDSHAKE_EVERY;
            }
        }
        over
    }

    /// The engine behind `peer`, if this engine has introduced itself to it.
    pub(crate) fn engine_of(&self, peer: Peer) -> Option<EngineId> {
        self.links.iter().find(|link| link.peer == Some(peer)).map(|link| link.engine)
    }

    /// Checks whether a process may speak for the engine as which it introduces itself. If not, sends it the reason.
    pub(crate) fn meet(&mut self, peer: Peer, engine: EngineId, who: &Credentials) -> bool {
        if self.roster.meet(engine.0, who).is_err() {
            self.turn_away(peer, engine.0);
            return false;
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.engine == engine) {
            link.met = Some((peer, who.seen));
        }
        true
    }

    fn turn_away(&mut self, peer: Peer, node: u16) {
        if let Some(known) = self.roster.known(node) {
            self.endpoint.post(peer, Introduction::Unwelcome { known });
        }
    }

    /// The engine as which `peer` introduced itself and was accepted.
    pub(crate) fn met_as(&self, peer: Peer) -> Option<EngineId> {
        let is_it = |link: &&ReplicaLink| link.met.is_some_and(|(met, _)| met == peer);
        self.links.iter().find(is_it).map(|link| link.engine)
    }

    /// Forgets the peers that were met and may no longer speak for their nodes. Sends each of them the
    /// reason, and returns them.
    pub(crate) fn turn_away_former(&mut self) -> Vec<Peer> {
        let Self { links, roster, .. } = self;
        let former = links.iter_mut().filter_map(|link| {
            let (peer, _) = link.met.take_if(|(_, seen)| !roster.trusts(link.engine.0, *seen))?;
            Some((peer, link.engine.0))
        });
        let former: Vec<_> = former.collect();
        for (peer, node) in &former {
            self.turn_away(*peer, *node);
        }
        former.into_iter().map(|(peer, _)| peer).collect()
    }

    /// Answers an engine that introduced itself. Returns its former peer here, of an incarnation or a
    /// connection that is over.
    pub(crate) fn welcome(&mut self, peer: Peer, engine: EngineId) -> Option<Peer> {
        let words = key(self.endpoint.fabric.key(self.words));
        let pulse = key(self.endpoint.fabric.key(self.pulse));
        let who = self.roster.introduction();
        self.endpoint.post(peer, Introduction::Welcome { words, pulse, who });
        let link = self.links.iter().find(|link| link.engine == engine)?;
        link.peer.filter(|known| *known != peer)
    }

    /// Handles another engine's welcome: its words can be written from now on, and the last values of those
    /// meant for it are written again. Returns the engine.
    pub(crate) fn welcomed(&mut self, peer: Peer, words: Key, pulse: Key) -> Option<EngineId> {
        let engine = self.engine_of(peer)?;
        let fabric = &mut self.endpoint.fabric;
        let attached = fabric.attach(peer, &RegionKey(words)).and_then(|words| {
            let pulse = fabric.attach(peer, &RegionKey(pulse));
            let pulse = pulse.inspect_err(|_| fabric.detach(words))?;
            Ok((words, pulse))
        });
        let (words, pulse) = match attached {
            Ok(attached) => attached,
            Err(error) => {
                tracing::warn!(%error, ?engine, "cannot use a welcome");
                return None;
            }
        };
        let link = self.links.iter_mut().find(|link| link.engine == engine).expect("just found");
        (link.words, link.pulse) = (Some(words), Some(pulse));
        let readers = self.layout.replicas_on(engine.0, engine.1);
        for (from, column) in self.local.clone().into_iter().flat_map(|f| COLUMNS.map(|c| (f, c))) {
            let reads = |to: &&ReplicaId| !column.is_to_one() || to.group == from.group;
            let Some(to) = readers.iter().find(reads) else { continue };
            let word = self.told[self.told_at(from, self.place(*to).link, column)];
            if word != 0 {
                self.write_word(from, *to, column, word);
            }
        }
        Some(engine)
    }

    /// Advances this engine's heartbeat.
    pub(crate) fn show_incarnation(&mut self) {
        let fabric = &mut self.endpoint.fabric;
        let count = fabric.load(self.pulse, 0);
        fabric.store(self.pulse, 0, count + 1);
    }

    /// Advances this engine's heartbeat, and evaluates the reads of the others' heartbeats that the last tick
    /// began. Reads are one-sided, so an engine needs a core only to advance its own heartbeat.
    pub(crate) fn beat(&mut self) {
        self.show_incarnation();
        let fabric = &mut self.endpoint.fabric;
        for (i, link) in self.links.iter_mut().enumerate() {
            let at = (1 + i) * 8;
            let word = fabric.load(self.pulse, at);
            link.beats = link.pulse.is_some() && word != link.seen;
            link.seen = word;
            if let Some(pulse) = link.pulse {
                let tag = PULSE_TAG | i as u64;
                if let Err(error) = fabric.read(pulse, 0, 8, (self.pulse, at), tag) {
                    tracing::debug!(%error, "a heartbeat cannot be read");
                }
            }
        }
        fabric.flush();
    }

    /// Returns whether the heartbeat of the engine that runs `replica` had advanced at the last tick.
    pub(crate) fn beats(&self, replica: ReplicaId) -> bool {
        self.link_to(replica).is_some_and(|link| link.beats)
    }

    /// Resets the link to `peer`: the connection or the process behind it is gone.
    pub(crate) fn lost(&mut self, peer: Peer) {
        for link in self.links.iter_mut().filter(|link| link.peer == Some(peer)) {
            let met = link.met.filter(|(met, _)| *met != peer);
            *link = ReplicaLink { met, ..ReplicaLink::to(link.engine, link.first) };
        }
        self.routes
            .retain(|_, id| self.endpoint.get(*id).is_some_and(|channel| channel.peer != peer));
    }

    /// The other engines that this engine has introduced itself to.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.links.iter().filter_map(|link| link.peer)
    }

    fn place(&self, replica: ReplicaId) -> ReplicaLocation {
        self.places[member(self.layout.topology(), replica)]
    }

    /// The link to the engine that runs `replica`; `None` if it runs here.
    fn link_to(&self, replica: ReplicaId) -> Option<&ReplicaLink> {
        self.place(replica).link.map(|link| &self.links[usize::from(link)])
    }

    fn runs_here(&self, replica: ReplicaId) -> bool {
        self.place(replica).link.is_none()
    }

    /// Returns whether no peer has written a status word or a channel's slot since the last scan.
    pub(crate) fn is_quiet(&self) -> bool {
        let Self { endpoint, words, words_seen, .. } = self;
        endpoint.is_quiet()
            && endpoint.fabric.changed(*words, words_seen, 0).is_none()
            && !has_news(self.disk.as_deref(), self.durable)
    }

    /// The fabric to sleep on, and the check for news that must be repeated before sleeping.
    pub(crate) fn parking(&mut self) -> (&mut F, impl Fn(&F) -> bool) {
        let Self { endpoint, words, words_seen, disk, durable, .. } = self;
        let (fabric, quiet) = endpoint.parking();
        let quiet = move |fabric: &F| {
            quiet(fabric)
                && fabric.changed(*words, words_seen, 0).is_none()
                && !has_news(disk.as_deref(), *durable)
        };
        (fabric, quiet)
    }

    /// Has the disk write what was appended, if it is to be written as soon as this, or sooner.
    #[inline(never)]
    pub(crate) fn write_to_disk(&mut self, soon: Unwritten) {
        if self.unwritten >= soon
            && let Some(disk) = &mut self.disk
        {
            disk.flush();
            self.unwritten = Unwritten::Nothing;
        }
    }

    /// Sends a datagram from a replica here to another replica, here or elsewhere.
    pub(crate) fn send(
        &mut self,
        from: ReplicaId,
        to: ReplicaId,
        kind: Kind,
        head: &[u8],
        body: &[u8],
    ) {
        if self.runs_here(to) {
            let mut bytes = self.buffers.copy(head);
            bytes.extend_from_slice(body);
            self.keep_here(Datagram { from, to, kind, bytes });
            return;
        }
        let route = self.routes.get(&(from, to)).copied();
        let purpose = Purpose::Replica { from: name(from), to: name(to) };
        let goes = self.send_by(route, self.peer_of(to), purpose, kind, head, body);
        if goes != route {
            match goes {
                Some(channel) => self.routes.insert((from, to), channel),
                None => self.routes.remove(&(from, to)),
            };
        }
    }

    /// Sends a datagram by the channel `route`, or by a new one if that is closed. Returns the channel, if
    /// there is one.
    fn send_by(
        &mut self,
        route: Option<u32>,
        to: Option<Peer>,
        purpose: Purpose,
        kind: Kind,
        head: &[u8],
        body: &[u8],
    ) -> Option<u32> {
        if let Some((id, channel)) = route.and_then(|id| Some((id, self.endpoint.get(id)?)))
            && !channel.dying
            && channel.purpose == purpose
        {
            // A datagram that is sent again on demand need not wait for a stalled reader, nor wait twice:
            // otherwise repeated requests would crowd out everything else.
            let told_again = matches!(
                kind,
                Kind::Order | Kind::OrderTogether | Kind::Exchange | Kind::Fetch | Kind::Progress
            );
            let waits = |channel: &Channel| {
                channel.waiting() >= WAITING_MAX || channel.holds(kind, head, body)
            };
            if !(told_again && waits(channel)) {
                self.endpoint.send(id, kind, head, body);
            }
            return route;
        }
        // A datagram to an engine without a link is dropped: everything that matters is sent again until it
        // is received.
        match self.endpoint.open(to?, purpose) {
            Ok(channel) => {
                self.endpoint.send(channel, kind, head, body);
                Some(channel)
            }
            Err(error) => {
                tracing::warn!(%error, ?purpose, "cannot open a channel");
                None
            }
        }
    }

    /// Sends a question that is asked again anyway, unless other datagrams wait for room already.
    pub(crate) fn ask(&mut self, from: ReplicaId, to: ReplicaId, kind: Kind, question: &[u8]) {
        let route = self.routes.get(&(from, to)).and_then(|id| self.endpoint.get(*id));
        if route.is_none_or(Channel::sent_all) {
            self.send(from, to, kind, question, &[]);
        }
    }

    /// Returns whether another payload may be relayed from a replica here to another. The receiver repeats
    /// its requests, perhaps much faster than it takes payloads.
    pub(crate) fn has_room_to_relay(&self, from: ReplicaId, to: ReplicaId) -> bool {
        if self.runs_here(to) {
            return self.relays_here < RELAYS_HERE_MAX;
        }
        let route = self.routes.get(&(from, to)).and_then(|id| self.endpoint.get(*id));
        route.is_none_or(|channel| !channel.has_waiting(Kind::Relay))
    }

    /// Returns whether everything that a replica here sent to another is in that replica's ring, so that more
    /// can be sent.
    pub(crate) fn has_sent_all(&self, from: ReplicaId, to: ReplicaId) -> bool {
        let route = self.routes.get(&(from, to)).and_then(|id| self.endpoint.get(*id));
        route.is_none_or(Channel::sent_all)
    }

    /// Takes the next datagram to a replica of this engine.
    pub(crate) fn next_here(&mut self) -> Option<Datagram> {
        let datagram = self.loopback.pop_front()?;
        match datagram.kind {
            Kind::Relay => self.relays_here -= datagram.bytes.len(),
            Kind::OrderTogether => {
                let row = usize::from(self.place(datagram.to).row);
                self.together_here[row] -= datagram.bytes.len();
            }
            _ => {}
        }
        Some(datagram)
    }

    /// Queues a datagram to a replica of this engine.
    pub(crate) fn keep_here(&mut self, datagram: Datagram) {
        match datagram.kind {
            Kind::Relay => self.relays_here += datagram.bytes.len(),
            Kind::OrderTogether => {
                let row = usize::from(self.place(datagram.to).row);
                self.together_here[row] += datagram.bytes.len();
            }
            _ => {}
        }
        self.loopback.push_back(datagram);
    }

    /// Queues shared messages of replicas here for a leader here, unless too many wait for room in its log already.
    pub(crate) fn keep_together_here(&mut self, from: ReplicaId, to: ReplicaId, told: &[u8]) {
        if self.together_here[usize::from(self.place(to).row)] < TOGETHER_HERE_MAX {
            let bytes = self.buffers.copy(told);
            self.keep_here(Datagram { from, to, kind: Kind::OrderTogether, bytes });
        }
    }

    /// Number of other engines.
    pub(crate) const fn engines(&self) -> usize {
        self.links.len()
    }

    /// Index of the other engine that runs `replica`; `None` if it runs here.
    pub(crate) fn number_of_engine(&self, replica: ReplicaId) -> Option<u16> {
        self.place(replica).link
    }

    /// Sends a datagram to all replicas of another engine.
    pub(crate) fn send_to_engine(&mut self, engine: usize, kind: Kind, bytes: &[u8]) {
        let ReplicaLink { peer, first, route, .. } = self.links[engine];
        let purpose = Purpose::Engine { from: name(self.local[0]), to: name(first) };
        self.links[engine].route = self.send_by(route, peer, purpose, kind, bytes, &[]);
    }

    /// Closes a channel that the other engine has refused. The next datagram opens another.
    pub(crate) fn refused(&mut self, channel: u32) {
        self.routes.retain(|_, id| *id != channel);
        for link in self.links.iter_mut().filter(|link| link.route == Some(channel)) {
            link.route = None;
        }
        self.endpoint.close(channel);
    }

    /// Replies to a session. A session usually has one channel to a replica. One that came back after its
    /// process died has another, until the first is found to be dead.
    pub(crate) fn reply(&mut self, message: MessageId, from: ReplicaId, reply: &[u8]) {
        let head = message.sequence.to_le_bytes();
        for channel in self.sessions.get(&(message.session, from)).into_iter().flatten() {
            let waits = REPLIES_WAITING * self.window;
            let fits =
                self.endpoint.has_room_for_reply(*channel, reply.len(), REPLIES_WAITING_BYTES);
            if fits && self.endpoint.makes_room_for_reply(*channel, message.sequence, waits) {
                self.endpoint.send(*channel, Kind::Reply, &head, reply);
            }
        }
    }

    /// Answers a session's query, unless the session does not read its ring: it repeats the query.
    pub(crate) fn answer(&mut self, to: SessionId, from: ReplicaId, number: u64, answer: &[u8]) {
        let head = number.to_le_bytes();
        for channel in self.sessions.get(&(to, from)).into_iter().flatten() {
            let most = REPLIES_WAITING * self.window;
            let takes = |channel: &Channel| {
                channel.takes_answer(number, answer.len(), most, ANSWERS_WAITING_BYTES)
            };
            if self.endpoint.get(*channel).is_some_and(takes) {
                self.endpoint.send(*channel, Kind::Answer, &head, answer);
            }
        }
    }

    /// Records a channel that a session opened to a replica here.
    pub(crate) fn session_opened(&mut self, session: SessionId, replica: ReplicaId, channel: u32) {
        self.sessions.entry((session, replica)).or_default().push(channel);
    }

    /// Returns whether a session has an open channel to a replica here besides `channel`.
    pub(crate) fn has_another(&self, session: SessionId, replica: ReplicaId, channel: u32) -> bool {
        let lives = |id: &u32| *id != channel && self.endpoint.get(*id).is_some_and(|it| !it.dying);
        self.sessions.get(&(session, replica)).is_some_and(|ids| ids.iter().any(lives))
    }

    /// Returns whether a session has an open channel to a replica here.
    pub(crate) fn hears(&self, session: SessionId, replica: ReplicaId) -> bool {
        let lives = |id: &u32| self.endpoint.get(*id).is_some_and(|it| !it.dying);
        self.sessions.get(&(session, replica)).is_some_and(|ids| ids.iter().any(lives))
    }

    /// Returns whether a session has a channel to a replica here, open or dying.
    pub(crate) fn has_session(&self, session: SessionId, replica: ReplicaId) -> bool {
        self.sessions.contains_key(&(session, replica))
    }

    /// Forgets a session's channel that was closed. Returns whether it was the session's last to that replica.
    pub(crate) fn session_closed(
        &mut self,
        session: SessionId,
        replica: ReplicaId,
        channel: u32,
    ) -> bool {
        let Some(channels) = self.sessions.get_mut(&(session, replica)) else { return true };
        channels.retain(|id| *id != channel);
        let last = channels.is_empty();
        if last {
            self.sessions.remove(&(session, replica));
        }
        last
    }

    /// Number of sessions with a channel to `replica`.
    pub(crate) fn sessions_of(&self, replica: ReplicaId) -> usize {
        self.sessions.keys().filter(|(_, to)| *to == replica).count()
    }

    /// The peer that runs `replica`, if that is another engine that this engine has introduced itself to.
    pub(crate) fn peer_of(&self, replica: ReplicaId) -> Option<Peer> {
        self.link_to(replica)?.peer
    }

    /// Records an event, if there is an observer.
    pub(crate) fn note(&mut self, note: impl FnOnce() -> Note<O::Record>) {
        if let Some(journal) = &mut self.journal {
            journal.push(note());
        }
    }

    /// Records that a replica resumes from another replica's state.
    pub(crate) fn note_restored(&mut self, by: ReplicaId, delivered: u64) {
        self.note(|| Note::Restored { by, delivered });
    }

    /// A scratch buffer; return it with [`keep`](Self::keep).
    pub(crate) fn borrow(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.scratch);
        buffer.clear();
        buffer
    }

    pub(crate) fn keep(&mut self, buffer: Vec<u8>) {
        self.scratch = buffer;
    }
}

/// Whether more is on a disk than was handled.
fn has_news(disk: Option<&dyn Disk>, handled: u64) -> bool {
    disk.is_some_and(|disk| disk.durable() > handled)
}

/// Number of replicas of the cluster.
pub(crate) fn members(topology: Topology) -> usize {
    usize::from(topology.groups) * usize::from(topology.replicas)
}

/// Index of a replica among those of the cluster.
fn member(topology: Topology, replica: ReplicaId) -> usize {
    replica.group.index() * usize::from(topology.replicas) + usize::from(replica.slot)
}

#[cfg(test)]
mod tests;
