//! How the replicas of one engine reach all others: links to engines, words, routes.
//!
//! Each engine has one region of words that peers write. What a replica says to other groups it says to
//! each engine once, however many replicas that has: it says the same to all of them. What it says to one
//! of its own group it says to that one alone. Each word has a single writer and what it said last is
//! what counts, so it can be written again whenever a link comes up. And each engine has a word that
//! shows that it is alive, which the others read.

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
use crate::endpoint::Endpoint;
use crate::introductions::{Introduction, Key, Purpose, WIRE_VERSION, key, name};
use crate::ordering::Links;
use crate::roster::{Credentials, Roster, Seen};

use status_words::{Audience, COLUMNS, meanings, words_of};
pub(crate) use status_words::{Meaning, StatusColumn};

/// Another engine, by node and engine number.
type EngineId = (u16, u16);

/// No more payloads are relayed within an engine while so many bytes of them have not been taken:
/// what a ring between replicas holds by default.
const RELAYS_HERE_MAX: usize = 256 << 10;

/// No more of what replicas tell together waits for room in a leader's log here: what is not heard is told again on demand.
const TOGETHER_HERE_MAX: usize = 256 << 10;

/// Longer datagrams within an engine leave no buffer for others.
const BUFFER_BYTES_MAX: usize = 4 << 10;

/// Datagrams that wait for room in a ring to another replica, at most, if they are told again anyway.
pub(crate) const WAITING_MAX: usize = 128;

/// Replies that may wait for room in a session's ring, in windows of that session: those that it has
/// not had, and as many that it may have had from another leader.
const REPLIES_WAITING: usize = 2;
/// Bytes that may wait for room in a session's ring when another reply comes. A session that lacks a reply for long
/// sends its message again, and is told then.
const REPLIES_WAITING_BYTES: usize = 16 << 20;
/// Bytes that may wait for room in a session's ring when another answer to a query comes. A query is asked
/// again every few milliseconds, and its answer may have megabytes.
const ANSWERS_WAITING_BYTES: usize = 1 << 20;

/// Another engine, and what we know of it.
struct ReplicaLink {
    engine: EngineId,
    peer: Option<Peer>,
    /// The peer that has introduced itself as this engine, and as whom.
    met: Option<(Peer, Seen)>,
    /// Its region of words, once it has welcomed us, and its heartbeat.
    words: Option<Remote>,
    pulse: Option<Remote>,
    /// The heartbeat as last looked at.
    seen: u64,
    /// What the last look came to.
    beats: bool,
    /// In how many ticks it is greeted again, if it has not answered: it may stand still, and all
    /// greetings are answered when it goes on.
    retry_in: u32,
    /// The last audience to which this engine belongs is the one with this number.
    gathered_in: u64,
    /// The first of its replicas, which stands for all of them.
    first: ReplicaId,
    /// The channel for what is told to all of them.
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

/// Where a replica of the cluster runs.
#[derive(Clone, Copy)]
struct ReplicaLocation {
    /// The number of the link to its engine; `None` if that is ours.
    link: Option<u16>,
    /// Its number among those of its engine.
    row: u16,
}

/// Ticks between two greetings of one that does not answer.
const HANDSHAKE_EVERY: u32 = 4;

/// Completions of reads of heartbeats; those of writes to logs have another first bit.
pub(crate) const PULSE_TAG: u64 = 1 << 63;

/// A datagram from one of our replicas to another replica.
pub(crate) struct Datagram {
    pub from: ReplicaId,
    pub to: ReplicaId,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

pub(crate) struct ReplicaLinks<F, O: Links> {
    pub endpoint: Endpoint<F>,
    pub topology: Topology,
    /// What every engine of the cluster must have alike.
    pub constants: Constants,
    /// Why other engines were refused, the last reason of each.
    pub refusals: BTreeMap<EngineId, String>,
    me: EngineId,
    /// Who may speak for which node.
    pub roster: Arc<Roster>,
    /// When this turn began.
    pub began: Duration,
    /// Messages that a session may have under way.
    window: usize,
    pub local: Vec<ReplicaId>,
    /// Of every replica of the cluster.
    places: Vec<ReplicaLocation>,
    words: Region,
    /// Of each of them, what it is, and whose; and to which replica here it is said, if not to all.
    meanings: Vec<Meaning>,
    /// What they said when last looked at.
    words_seen: Vec<u64>,
    /// Our own heartbeat, and, in the order of the links, those of others as last read.
    pulse: Region,
    links: Vec<ReplicaLink>,
    routes: HashMap<(ReplicaId, ReplicaId), u32>,
    sessions: HashMap<(SessionId, ReplicaId), Vec<u32>>,
    /// What we last told others, to be told again when a link comes up: for each replica here, and each
    /// engine, ours being the last, a word of each column.
    told: Vec<u64>,
    /// Of each replica here, to whom it has told something last; and how often one was found out.
    audiences: Vec<Audience>,
    gathered: u64,
    /// One of our replicas has told another here a word since that was last asked for.
    told_here: bool,
    /// To replicas of this very engine.
    pub loopback: VecDeque<Datagram>,
    /// Bytes of relayed payloads among those, and of what others here tell each replica together.
    relays_here: usize,
    together_here: Vec<usize>,
    /// What replicas here tell others together.
    pub together: O::Together,
    /// For such, and for whatever else waits for a while.
    pub buffers: Buffers,
    scratch: Vec<u8>,
    /// What an onlooker would see, if there is one: simulations look on.
    pub journal: Option<Vec<Note<O::Record>>>,
}

/// Something that an onlooker saw.
#[derive(Clone, Debug)]
pub(crate) enum Note<R> {
    /// A replica has put a record into its log.
    Logged { by: ReplicaId, index: u64, record: R },
    /// A replica has written something about a message, or about its log, to another.
    ReceivedResult(Touch),
    /// A replica has promised a ballot.
    Promised { by: ReplicaId, ballot: Ballot },
    /// A replica has delivered a message.
    Delivered { by: ReplicaId, deliver: Deliver },
    /// A leader has said how far all of its group are done that it waits for: those of this view.
    Settled { by: ReplicaId, rank: Rank, view: View },
    /// A replica has given its state away, as of that delivery.
    Gave { by: ReplicaId, delivered: u64 },
    /// A replica goes on from another's state, or, with nothing delivered, from nothing.
    Restored { by: ReplicaId, delivered: u64 },
}

impl<F: Fabric, O: Links> ReplicaLinks<F, O> {
    pub(crate) fn new(
        mut endpoint: Endpoint<F>,
        topology: Topology,
        window: usize,
        me: EngineId,
    ) -> Result<Self, FabricError> {
        let local = topology.replicas_on(me.0, me.1);
        let mut links = Vec::new();
        let mut places = vec![ReplicaLocation { link: None, row: 0 }; members(topology)];
        for engine in (0..topology.nodes).flat_map(|n| (0..topology.engines).map(move |e| (n, e))) {
            let replicas = topology.replicas_on(engine.0, engine.1);
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
            topology,
            constants: topology.constants(),
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

    /// Whether every other engine has welcomed us.
    pub(crate) fn connected(&self) -> bool {
        self.links.iter().all(|link| link.words.is_some())
    }

    /// Introduces us to the engines that we have not met. To be called now and then. Returns the peers
    /// that they were to us before, in an incarnation or on a connection that was over before they answered:
    /// whatever was opened to those goes nowhere.
    pub(crate) fn handshake(&mut self) -> Vec<Peer> {
        let mut over = Vec::new();
        if self.roster.successor().is_some() {
            return over; // Nobody is to count on us.
        }
        for link in &mut self.links {
            if link.words.is_some() {
                continue;
            }
            // Not there yet is normal while a cluster starts.
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

    /// The engine behind `peer`, if we have greeted it.
    pub(crate) fn engine_of(&self, peer: Peer) -> Option<EngineId> {
        self.links.iter().find(|link| link.peer == Some(peer)).map(|link| link.engine)
    }

    /// Whether the process that introduces itself as an engine may be that; one that may not is told so.
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

    /// The engine as which a peer has introduced itself, if it may be that.
    pub(crate) fn met_as(&self, peer: Peer) -> Option<EngineId> {
        let is_it = |link: &&ReplicaLink| link.met.is_some_and(|(met, _)| met == peer);
        self.links.iter().find(is_it).map(|link| link.engine)
    }

    /// Lets go of peers that we have met, and have learned since to be none of the cluster any more.
    /// They are told.
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

    /// Answers an engine that introduced itself. Returns the peer that it was to us in an incarnation or on
    /// a connection that is over.
    pub(crate) fn welcome(&mut self, peer: Peer, engine: EngineId) -> Option<Peer> {
        let words = key(self.endpoint.fabric.key(self.words));
        let pulse = key(self.endpoint.fabric.key(self.pulse));
        let who = self.roster.introduction();
        self.endpoint.post(peer, Introduction::Welcome { words, pulse, who });
        let link = self.links.iter().find(|link| link.engine == engine)?;
        link.peer.filter(|known| *known != peer)
    }

    /// Takes another engine's welcome: its words can be written from here on, and are told again
    /// what they missed. Returns which engine it is.
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
                tracing::warn!(%error, ?engine, "a welcome was of no use");
                return None;
            }
        };
        let link = self.links.iter_mut().find(|link| link.engine == engine).expect("just found");
        (link.words, link.pulse) = (Some(words), Some(pulse));
        let readers = self.topology.replicas_on(engine.0, engine.1);
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

    /// Shows that we are alive.
    pub(crate) fn show_life(&mut self) {
        let fabric = &mut self.endpoint.fabric;
        let count = fabric.load(self.pulse, 0);
        fabric.store(self.pulse, 0, count + 1);
    }

    /// Shows that we are alive, and looks at who else is: at what was read since the last time. Reads
    /// are one-sided, so that nobody has to have a core to be seen alive but by its own beats.
    pub(crate) fn beat(&mut self) {
        self.show_life();
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

    /// Whether the engine that runs `replica` was seen to be alive at the last look.
    pub(crate) fn beats(&self, replica: ReplicaId) -> bool {
        self.link_to(replica).is_some_and(|link| link.beats)
    }

    /// An engine's process is gone.
    pub(crate) fn lost(&mut self, peer: Peer) {
        for link in self.links.iter_mut().filter(|link| link.peer == Some(peer)) {
            let met = link.met.filter(|(met, _)| *met != peer);
            *link = ReplicaLink { met, ..ReplicaLink::to(link.engine, link.first) };
        }
        self.routes
            .retain(|_, id| self.endpoint.get(*id).is_some_and(|channel| channel.peer != peer));
    }

    /// The engines that we have met.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.links.iter().filter_map(|link| link.peer)
    }

    fn place(&self, replica: ReplicaId) -> ReplicaLocation {
        self.places[member(self.topology, replica)]
    }

    /// The link to the engine that runs `replica`, if that is not ours.
    fn link_to(&self, replica: ReplicaId) -> Option<&ReplicaLink> {
        self.place(replica).link.map(|link| &self.links[usize::from(link)])
    }

    fn runs_here(&self, replica: ReplicaId) -> bool {
        self.place(replica).link.is_none()
    }

    /// Whether no peer has written a word, or about a channel, since the last look.
    pub(crate) fn is_quiet(&self) -> bool {
        let Self { endpoint, words, words_seen, .. } = self;
        endpoint.is_quiet() && endpoint.fabric.changed(*words, words_seen, 0).is_none()
    }

    /// The fabric to sleep on, and what to look at once more before.
    pub(crate) fn parking(&mut self) -> (&mut F, impl Fn(&F) -> bool) {
        let Self { endpoint, words, words_seen, .. } = self;
        let (fabric, quiet) = endpoint.parking();
        (fabric, move |fabric: &F| quiet(fabric) && fabric.changed(*words, words_seen, 0).is_none())
    }

    /// Sends a datagram from one of our replicas to another replica, wherever that is.
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

    /// Sends a datagram by a channel, or by a new one if that is over. Returns by which, if there is one.
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
            // What is told again on demand need not wait for one that stands still, nor twice: what is
            // asked for again and again would keep everything else from its place.
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
        // Whoever is not there is told later: all that matters is told again until it is heard.
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

    /// Sends a question that will be asked again, unless others wait for room already.
    pub(crate) fn ask(&mut self, from: ReplicaId, to: ReplicaId, kind: Kind, question: &[u8]) {
        let route = self.routes.get(&(from, to)).and_then(|id| self.endpoint.get(*id));
        if route.is_none_or(Channel::sent_all) {
            self.send(from, to, kind, question, &[]);
        }
    }

    /// Whether another payload can go from one of our replicas to another: whoever waits for it asks
    /// again, and may ask much faster than payloads are taken.
    pub(crate) fn has_room_to_relay(&self, from: ReplicaId, to: ReplicaId) -> bool {
        if self.runs_here(to) {
            return self.relays_here < RELAYS_HERE_MAX;
        }
        let route = self.routes.get(&(from, to)).and_then(|id| self.endpoint.get(*id));
        route.is_none_or(|channel| !channel.has_waiting(Kind::Relay))
    }

    /// Whether everything that one of our replicas sent to another is in its ring: more can go.
    pub(crate) fn has_sent_all(&self, from: ReplicaId, to: ReplicaId) -> bool {
        let route = self.routes.get(&(from, to)).and_then(|id| self.endpoint.get(*id));
        route.is_none_or(Channel::sent_all)
    }

    /// The next datagram to a replica of this very engine.
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

    /// Queues a datagram to a replica of this very engine.
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

    /// Queues what replicas here tell a leader here together, unless too much waits for room in its log already.
    pub(crate) fn keep_together_here(&mut self, from: ReplicaId, to: ReplicaId, told: &[u8]) {
        if self.together_here[usize::from(self.place(to).row)] < TOGETHER_HERE_MAX {
            let bytes = self.buffers.copy(told);
            self.keep_here(Datagram { from, to, kind: Kind::OrderTogether, bytes });
        }
    }

    /// How many other engines there are.
    pub(crate) const fn engines(&self) -> usize {
        self.links.len()
    }

    /// The number of the other engine that runs `replica`; `None` if it is ours.
    pub(crate) fn number_of_engine(&self, replica: ReplicaId) -> Option<u16> {
        self.place(replica).link
    }

    /// Sends a datagram to another engine, for all that it runs.
    pub(crate) fn send_to_engine(&mut self, engine: usize, kind: Kind, bytes: &[u8]) {
        let ReplicaLink { peer, first, route, .. } = self.links[engine];
        let purpose = Purpose::Engine { from: name(self.local[0]), to: name(first) };
        self.links[engine].route = self.send_by(route, peer, purpose, kind, bytes, &[]);
    }

    /// The other engine has no memory for a channel of ours: what is sent next opens another.
    pub(crate) fn refused(&mut self, channel: u32) {
        self.routes.retain(|_, id| *id != channel);
        for link in self.links.iter_mut().filter(|link| link.route == Some(channel)) {
            link.route = None;
        }
        self.endpoint.close(channel);
    }

    /// Replies to a session. Usually it has one channel to a replica; one that came back after its
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

    /// Answers a session's query, unless it does not read what it is answered: it asks again.
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

    /// A session has opened a channel to one of our replicas.
    pub(crate) fn session_opened(&mut self, session: SessionId, replica: ReplicaId, channel: u32) {
        self.sessions.entry((session, replica)).or_default().push(channel);
    }

    /// Whether a session has another channel to one of our replicas that is not over.
    pub(crate) fn has_another(&self, session: SessionId, replica: ReplicaId, channel: u32) -> bool {
        let lives = |id: &u32| *id != channel && self.endpoint.get(*id).is_some_and(|it| !it.dying);
        self.sessions.get(&(session, replica)).is_some_and(|ids| ids.iter().any(lives))
    }

    /// Whether a session has a channel to one of our replicas that is not over.
    pub(crate) fn hears(&self, session: SessionId, replica: ReplicaId) -> bool {
        let lives = |id: &u32| self.endpoint.get(*id).is_some_and(|it| !it.dying);
        self.sessions.get(&(session, replica)).is_some_and(|ids| ids.iter().any(lives))
    }

    /// Whether a session has a channel to one of our replicas.
    pub(crate) fn has_session(&self, session: SessionId, replica: ReplicaId) -> bool {
        self.sessions.contains_key(&(session, replica))
    }

    /// A session's channel is closed. Returns whether it was its last to that replica.
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

    /// Sessions with a channel to `replica`.
    pub(crate) fn sessions_of(&self, replica: ReplicaId) -> usize {
        self.sessions.keys().filter(|(_, to)| *to == replica).count()
    }

    /// The peer that runs `replica`, if it is another engine that we have met.
    pub(crate) fn peer_of(&self, replica: ReplicaId) -> Option<Peer> {
        self.link_to(replica)?.peer
    }

    /// Notes something, if there is an onlooker.
    pub(crate) fn note(&mut self, note: impl FnOnce() -> Note<O::Record>) {
        if let Some(journal) = &mut self.journal {
            journal.push(note());
        }
    }

    /// Notes that a replica goes on from another's state.
    pub(crate) fn note_restored(&mut self, by: ReplicaId, delivered: u64) {
        self.note(|| Note::Restored { by, delivered });
    }

    /// A buffer to put something together in; give it back with [`keep`](Self::keep).
    pub(crate) fn borrow(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.scratch);
        buffer.clear();
        buffer
    }

    pub(crate) fn keep(&mut self, buffer: Vec<u8>) {
        self.scratch = buffer;
    }
}

/// Replicas of the cluster.
pub(crate) fn members(topology: Topology) -> usize {
    usize::from(topology.groups) * usize::from(topology.replicas)
}

/// The number of a replica among them.
fn member(topology: Topology, replica: ReplicaId) -> usize {
    replica.group.index() * usize::from(topology.replicas) + usize::from(replica.slot)
}

#[cfg(test)]
mod tests;
