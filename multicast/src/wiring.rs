//! How the replicas of one engine reach all others: links to engines, words, routes.
//!
//! Each engine has one region of words that peers write: a row per replica, with an acceptance word
//! for every replica of the cluster and a credit word for every slot of the row's own group. Each
//! word has a single writer and only rises, so it can be written again whenever a link comes up.

use std::collections::{BTreeMap, HashMap, VecDeque};

use skein_fabric::{Access, Fabric, FabricError, Peer, Region, RegionKey, Remote, Source};
use skein_protocol::ids::{MessageId, ReplicaId, SessionId};
use skein_protocol::properties::Touch;
use skein_protocol::step::{Deliver, Record};

use crate::channel::{Channel, Kind};
use crate::config::{Topology, endpoint_name};
use crate::mail::{Key, Mail, Name, Purpose, WIRE_VERSION, key, name};
use crate::port::Port;

/// Another engine, by node and engine number.
type EngineId = (u16, u16);

/// No more payloads are relayed within an engine while so many bytes of them have not been taken:
/// what a ring between replicas holds by default.
const RELAYS_HERE_MAX: usize = 256 << 10;

/// What we know of another engine.
#[derive(Default)]
struct Link {
    peer: Option<Peer>,
    /// Its region of words, once it has welcomed us.
    words: Option<Remote>,
}

/// A datagram from one of our replicas to another replica.
pub(crate) struct Datagram {
    pub from: ReplicaId,
    pub to: ReplicaId,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

pub(crate) struct Wiring<F> {
    pub port: Port<F>,
    pub topology: Topology,
    me: EngineId,
    /// Messages that a session may have under way.
    window: usize,
    pub local: Vec<ReplicaId>,
    words: Region,
    links: BTreeMap<EngineId, Link>,
    routes: HashMap<(ReplicaId, ReplicaId), u32>,
    sessions: HashMap<(SessionId, ReplicaId), Vec<u32>>,
    /// What we last told others: to be told again when a link comes up.
    told: BTreeMap<(ReplicaId, ReplicaId, Column), u64>,
    /// To replicas of this very engine.
    pub loopback: VecDeque<Datagram>,
    /// Bytes of relayed payloads among those.
    relays_here: usize,
    /// To replicas whose engine we have not met: sent when we do.
    unsent: VecDeque<Datagram>,
    scratch: Vec<u8>,
    /// What an onlooker would see, if there is one: simulations look on.
    pub journal: Option<Vec<Note>>,
}

/// Something that an onlooker saw.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    /// A replica has put a record into its log.
    Logged { by: ReplicaId, index: u64, record: Record },
    /// A replica has written something about a message, or about its log, to another.
    Told(Touch),
    /// A replica has delivered a message.
    Delivered { by: ReplicaId, deliver: Deliver },
}

/// Which word of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// The writer's acceptance word.
    Accepted,
    /// Up to which position a follower needs the leader's log no more.
    Freed,
}

impl<F: Fabric> Wiring<F> {
    pub(crate) fn new(
        mut port: Port<F>,
        topology: Topology,
        window: usize,
        (node, engine): (u16, u16),
    ) -> Result<Self, FabricError> {
        let local = topology.replicas_on(node, engine);
        let len = local.len().max(1) * row_words(topology) * 8;
        let words = port.fabric.create(len, Access::Shared)?;
        let links = (0..topology.nodes)
            .flat_map(|n| (0..topology.engines).map(move |e| (n, e)))
            .filter(|id| *id != (node, engine) && !topology.replicas_on(id.0, id.1).is_empty())
            .map(|id| (id, Link::default()))
            .collect();
        Ok(Self {
            port,
            topology,
            me: (node, engine),
            window,
            local,
            words,
            links,
            routes: HashMap::new(),
            sessions: HashMap::new(),
            told: BTreeMap::new(),
            loopback: VecDeque::new(),
            relays_here: 0,
            unsent: VecDeque::new(),
            scratch: Vec::new(),
            journal: None,
        })
    }

    /// Whether every other engine has welcomed us.
    pub(crate) fn connected(&self) -> bool {
        self.links.values().all(|link| link.words.is_some())
    }

    /// Introduces us to the engines that we have not met. To be called now and then.
    pub(crate) fn greet(&mut self) {
        for ((node, engine), link) in &mut self.links {
            if link.words.is_some() {
                continue;
            }
            // Not there yet is normal while a cluster starts.
            let Ok(peer) = self.port.fabric.dial(&endpoint_name(*node, *engine)) else { continue };
            let (node, engine) = self.me;
            let hello =
                Mail::Hello { version: WIRE_VERSION, topology: self.topology, node, engine };
            if self.port.fabric.send(peer, &hello.encode()).is_ok() {
                link.peer = Some(peer);
            }
        }
        for Datagram { from, to, kind, bytes } in std::mem::take(&mut self.unsent) {
            self.send(from, to, kind, &bytes, &[]);
        }
    }

    /// The engine behind `peer`, if we have greeted it.
    pub(crate) fn engine_of(&self, peer: Peer) -> Option<EngineId> {
        self.links.iter().find(|(_, link)| link.peer == Some(peer)).map(|(id, _)| *id)
    }

    /// Answers an engine that introduced itself, granting it the `logs` of those replicas of ours
    /// that it leads.
    pub(crate) fn welcome(&mut self, peer: Peer, logs: Vec<(Name, Key)>) {
        let words = key(self.port.fabric.key(self.words));
        self.port.post(peer, Mail::Welcome { words, logs });
    }

    /// Takes another engine's welcome: its words can be written from here on, and are told again
    /// what they missed.
    pub(crate) fn welcomed(&mut self, peer: Peer, words: Key) {
        let Some(engine) = self.engine_of(peer) else { return };
        let words = match self.port.fabric.attach(peer, &RegionKey(words)) {
            Ok(words) => words,
            Err(error) => return tracing::warn!(%error, ?engine, "a welcome was of no use"),
        };
        self.links.get_mut(&engine).expect("just found").words = Some(words);
        let missed: Vec<_> = self
            .told
            .iter()
            .filter(|((_, to, _), _)| self.engine_running(*to) == engine)
            .map(|((from, to, column), word)| (*from, *to, *column, *word))
            .collect();
        for (from, to, column, word) in missed {
            self.write_word(from, to, column, word);
        }
    }

    /// An engine's process is gone.
    pub(crate) fn lost(&mut self, peer: Peer) {
        for link in self.links.values_mut().filter(|link| link.peer == Some(peer)) {
            *link = Link::default();
        }
        self.routes.retain(|_, id| self.port.get(*id).is_none_or(|channel| channel.peer != peer));
    }

    /// The engines that we have met.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.links.values().filter_map(|link| link.peer)
    }

    fn engine_running(&self, replica: ReplicaId) -> EngineId {
        (self.topology.node_of(replica), self.topology.engine_of(replica.group))
    }

    /// Tells `to` a word of `from`'s; it is told again if the link is down now.
    pub(crate) fn tell_word(&mut self, from: ReplicaId, to: ReplicaId, column: Column, word: u64) {
        self.told.insert((from, to, column), word);
        self.write_word(from, to, column, word);
    }

    fn write_word(&mut self, from: ReplicaId, to: ReplicaId, column: Column, word: u64) {
        let engine = self.engine_running(to);
        let at = self.word_at(engine, to, from, column);
        if engine == self.me {
            self.port.fabric.store(self.words, at, word);
            return;
        }
        let link = &self.links[&engine];
        let (Some(peer), Some(words)) = (link.peer, link.words) else { return };
        match self.port.fabric.write(words, at, Source::Inline(&word.to_le_bytes()), None) {
            Ok(()) => self.port.wake_later(peer),
            Err(error) => tracing::debug!(%error, %to, "a word was not told"),
        }
    }

    /// Offset, in `engine`'s words, of what `writer` tells `reader`.
    fn word_at(
        &self,
        engine: EngineId,
        reader: ReplicaId,
        writer: ReplicaId,
        column: Column,
    ) -> usize {
        let rows = self.topology.replicas_on(engine.0, engine.1);
        let row = rows.iter().position(|replica| *replica == reader).expect("it runs there");
        let word = match column {
            Column::Accepted => {
                writer.group.index() * usize::from(self.topology.replicas)
                    + usize::from(writer.slot)
            }
            Column::Freed => members(self.topology) + usize::from(writer.slot),
        };
        (row * row_words(self.topology) + word) * 8
    }

    /// All words of a local replica's row, acceptance words first, then credits by slot.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = u64> {
        let start = row * row_words(self.topology);
        (start..start + row_words(self.topology)).map(|w| self.port.fabric.load(self.words, w * 8))
    }

    /// The region of words and the number of words in a row.
    pub(crate) fn words(&self) -> (Region, usize) {
        (self.words, row_words(self.topology))
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
        let engine = self.engine_running(to);
        let datagram = || Datagram { from, to, kind, bytes: [head, body].concat() };
        if engine == self.me {
            self.keep_here(datagram());
            return;
        }
        if let Some(channel) = self.routes.get(&(from, to)) {
            return self.port.send(*channel, kind, head, body);
        }
        let Some(peer) = self.links[&engine].peer else {
            return self.unsent.push_back(datagram());
        };
        let purpose = Purpose::Replica { from: name(from), to: name(to) };
        match self.port.open(peer, purpose) {
            Ok(channel) => {
                self.routes.insert((from, to), channel);
                self.port.send(channel, kind, head, body);
            }
            Err(error) => {
                tracing::warn!(%error, %from, %to, "cannot open a channel, will try again");
                self.unsent.push_back(datagram());
            }
        }
    }

    /// Sends a question that will be asked again, unless others wait for room already.
    pub(crate) fn ask(&mut self, from: ReplicaId, to: ReplicaId, kind: Kind, question: &[u8]) {
        let route = self.routes.get(&(from, to)).and_then(|id| self.port.get(*id));
        if route.is_none_or(Channel::sent_all) {
            self.send(from, to, kind, question, &[]);
        }
    }

    /// Whether another payload can go from one of our replicas to another: whoever waits for it asks
    /// again, and may ask much faster than payloads are taken.
    pub(crate) fn has_room_to_relay(&self, from: ReplicaId, to: ReplicaId) -> bool {
        if self.engine_running(to) == self.me {
            return self.relays_here < RELAYS_HERE_MAX;
        }
        let route = self.routes.get(&(from, to)).and_then(|id| self.port.get(*id));
        route.is_none_or(|channel| !channel.has_waiting(Kind::Relay))
            && !self.unsent.iter().any(|unsent| unsent.kind == Kind::Relay)
    }

    /// The next datagram to a replica of this very engine.
    pub(crate) fn next_here(&mut self) -> Option<Datagram> {
        let datagram = self.loopback.pop_front()?;
        if datagram.kind == Kind::Relay {
            self.relays_here -= datagram.bytes.len();
        }
        Some(datagram)
    }

    /// Queues a datagram to a replica of this very engine.
    pub(crate) fn keep_here(&mut self, datagram: Datagram) {
        if datagram.kind == Kind::Relay {
            self.relays_here += datagram.bytes.len();
        }
        self.loopback.push_back(datagram);
    }

    /// The other engine has no memory for a channel of ours: what is sent next opens another.
    pub(crate) fn refused(&mut self, channel: u32) {
        self.routes.retain(|_, id| *id != channel);
        self.port.close(channel);
    }

    /// Replies to a session. Usually it has one channel to a replica; one that came back after its
    /// process died has another, until the first is found to be dead.
    pub(crate) fn reply(&mut self, message: MessageId, from: ReplicaId, reply: &[u8]) {
        let head = message.sequence.to_le_bytes();
        for channel in self.sessions.get(&(message.session, from)).into_iter().flatten() {
            // A session that has a whole window of replies to read and does not is dead.
            if self.port.channel(*channel).waiting() < self.window {
                self.port.send(*channel, Kind::Reply, &head, reply);
            }
        }
    }

    /// A session has opened a channel to one of our replicas.
    pub(crate) fn session_opened(&mut self, session: SessionId, replica: ReplicaId, channel: u32) {
        self.sessions.entry((session, replica)).or_default().push(channel);
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
        self.links.get(&self.engine_running(replica))?.peer
    }

    /// Notes something, if there is an onlooker.
    pub(crate) fn note(&mut self, note: impl FnOnce() -> Note) {
        if let Some(journal) = &mut self.journal {
            journal.push(note());
        }
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

fn row_words(topology: Topology) -> usize {
    members(topology) + usize::from(topology.replicas)
}
