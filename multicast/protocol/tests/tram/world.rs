//! A tree of groups, each with one log, and its clients.
//!
//! A leader appends, a quorum holds that some time later, and the leader knows that later still. A change of leader cuts
//! the log off anywhere behind what a quorum holds, and the new leader has heard nothing from other groups. Clients
//! have one operation under way at a time and join the answers of all destinations. Channels keep the order of what
//! they carry, and some are slow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::rank::Rank;
use skein_protocol::tram::content::Content;
use skein_protocol::tram::edges::{Children, Edge, EdgeNumber, Incoming, Judgement};
use skein_protocol::tram::gate::{Gate, Unstable};
use skein_protocol::tram::tree::Tree;

use crate::history::{Operation, Outcome, judge};
use crate::random::Random;

/// What the caller of the structs does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Sound,
    /// Passes on what is logged and not committed.
    ForwardsAppended,
    /// Tells what is logged as if it were committed.
    GatesAppended,
    /// A client takes the first answer for that of all.
    TakesFirstAnswer,
    /// A group tells what is committed before its leader knows, and reads from what the leader knows.
    FollowersTell,
}

/// A tree and its load.
pub(crate) struct Shape {
    tree: Tree,
    clients: usize,
    operations: usize,
    /// Share of operations at one group.
    alone: f64,
    changes: usize,
}

impl Shape {
    /// A random tree of two to six groups.
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let groups = 2 + random.below(5);
        let mut parents = vec![None];
        for group in 1..groups {
            parents.push(Some(random.below(group) as u16));
        }
        let shape = Self::of(&Tree::of(&parents).expect("a tree by construction"));
        Self { changes: random.of(&[0, 0, 1, 2, 4]), ..shape.loaded(&mut random) }
    }

    /// This tree, with two changes of leaders.
    pub(crate) fn of(tree: &Tree) -> Self {
        Self { tree: *tree, clients: 5, operations: 5, alone: 0.45, changes: 2 }
    }

    fn loaded(self, random: &mut Random) -> Self {
        let (clients, operations) = (3 + random.below(5), 3 + random.below(5));
        Self { clients, operations, alone: random.of(&[0.2, 0.45, 0.7]), ..self }
    }
}

/// An end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Channel {
    Request { client: usize, group: usize },
    Reply { group: usize, term: u32, client: usize },
    Think { client: usize },
    Log { group: usize, term: u32, known: bool },
    Groups { from: usize, term: u32, to: usize },
}

#[derive(Clone, Debug)]
enum Event {
    Start { client: usize },
    Submit { group: usize, name: usize },
    Read { group: usize, name: usize },
    Reply { name: usize, group: usize },
    Edge { group: usize, edge: Edge },
    Ask { group: usize, child: usize, taken: EdgeNumber, rewinds: bool },
    Up { group: usize, destination: usize, word: u64 },
    Down { group: usize, destination: usize, word: u64 },
    Hello { group: usize, from: usize },
    Held { group: usize, term: u32, index: usize },
    Known { group: usize, term: u32, index: usize },
    Change { group: usize },
}

#[derive(Clone, Copy)]
struct Entry {
    name: usize,
    taken: Option<(EdgeNumber, Rank)>,
}

struct Group {
    log: Vec<Entry>,
    /// Held by a quorum, known to be, and the end of the log when this leader began.
    committed: usize,
    known: usize,
    floor: usize,
    term: u32,
    /// Names to indices.
    logged: BTreeMap<usize, usize>,
    inbox: Vec<usize>,
    incoming: Incoming,
    children: Children,
    gate: Gate,
    /// Entries that the edges and the gate have been given.
    edges_at: usize,
    gate_at: usize,
    told: BTreeMap<(usize, usize), u64>,
    /// Messages that wait to be answered, reads that wait for the log, and reads that wait for the gate.
    waiting: Vec<usize>,
    answered: BTreeSet<usize>,
    asked: Vec<(usize, usize)>,
    served: Vec<(usize, usize)>,
    delivered: Vec<usize>,
    early: Option<u64>,
}

struct Name {
    destinations: GroupSet,
    client: usize,
    read: bool,
    got: GroupSet,
}

pub(crate) struct World {
    shape: Shape,
    caller: Caller,
    seed: u64,
    random: Random,
    now: f64,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    last: BTreeMap<Channel, f64>,
    paces: BTreeMap<String, f64>,
    groups: Vec<Group>,
    names: Vec<Name>,
    operations: Vec<Operation>,
    current: Vec<Option<usize>>,
    left: Vec<usize>,
}

impl World {
    pub(crate) fn new(seed: u64, shape: Shape, caller: Caller) -> Self {
        let tree = shape.tree;
        let groups = (0..tree.groups()).map(|group| Group::new(&tree, GroupId(group))).collect();
        let mut world = Self {
            caller,
            seed,
            random: Random::new(seed),
            now: 0.0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            last: BTreeMap::new(),
            paces: BTreeMap::new(),
            groups,
            names: Vec::new(),
            operations: Vec::new(),
            current: vec![None; shape.clients],
            left: vec![shape.operations; shape.clients],
            shape,
        };
        for client in 0..world.shape.clients {
            let at = world.random.share() * 20.0;
            world.put(at, Event::Start { client });
        }
        for _ in 0..world.shape.changes {
            let (at, group) = (world.random.share() * 80.0, world.random.below(world.groups.len()));
            world.put(at, Event::Change { group });
        }
        world
    }

    /// Plays the schedule to its end.
    pub(crate) fn run(mut self) -> Outcome {
        let mut steps = 0;
        while let Some(Reverse((at, number))) = self.queue.pop() {
            self.now = f64::from_bits(at);
            let event = self.events[number].take().expect("once");
            self.step(event);
            steps += 1;
            if steps > 300_000 {
                return Outcome::Stuck;
            }
        }
        let orders: Vec<_> = self.groups.iter().map(|group| group.delivered.clone()).collect();
        judge(&self.operations, &orders, self.left.iter().all(|left| *left == 0))
    }

    fn put(&mut self, at: f64, event: Event) {
        // The bits of numbers that are not negative are in the order of the numbers.
        self.queue.push(Reverse((at.to_bits(), self.events.len())));
        self.events.push(Some(event));
    }

    fn post(&mut self, channel: Channel, event: Event) {
        let seed = self.seed;
        // A leader's channels are as slow as its predecessor's or not.
        let pace = *self.paces.entry(format!("{channel:?}")).or_insert_with_key(|key| {
            let hash = key
                .bytes()
                .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            Random::new(hash).of(&[0.3, 1.0, 1.0, 3.0, 15.0, 40.0])
        });
        let last = self.last.entry(channel).or_default();
        let at = (self.now + self.random.delay(pace)).max(*last + 1e-9);
        *last = at;
        self.put(at, event);
    }

    fn content(&self, name: usize) -> Content {
        let (destinations, message) = (self.names[name].destinations, message(name));
        Content::Message { message, low_water: 1, destinations, outside: 0, again: false }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Start { client } => self.start(client),
            Event::Reply { name, group } => self.reply(name, group),
            Event::Submit { group, name } => {
                if !self.groups[group].inbox.contains(&name) {
                    self.groups[group].inbox.push(name);
                    self.order_all(group);
                }
                self.turn(group);
            }
            Event::Read { group, name } => {
                let this = &mut self.groups[group];
                this.asked.push((name, this.known));
                self.turn(group);
            }
            Event::Edge { group, edge } => {
                self.hear_edge(group, &edge);
                self.turn(group);
            }
            Event::Ask { group, child, taken, rewinds } => {
                let table = self.groups[group].children.get_mut(id(child)).expect("a child");
                table.acknowledge(0, taken, 0);
                if rewinds {
                    table.rewind();
                }
                self.turn(group);
            }
            Event::Up { group, destination, word } => {
                self.groups[group].gate.hear_up(id(destination), word);
                self.turn(group);
            }
            Event::Down { group, destination, word } => {
                self.groups[group].gate.hear_down(id(destination), word);
                self.turn(group);
            }
            Event::Hello { group, from } => {
                self.groups[group].told.retain(|(to, _), _| *to != from);
                if self.parent(group) == Some(from) {
                    self.ask(group, true);
                } else {
                    self.groups[group].children.get_mut(id(from)).expect("a child").rewind();
                }
                self.turn(group);
            }
            Event::Held { group, term, index } => self.held(group, term, index),
            Event::Known { group, term, index } => {
                let this = &mut self.groups[group];
                if term == this.term && index >= this.floor.max(this.known) {
                    this.known = index;
                    self.turn(group);
                }
            }
            Event::Change { group } => self.change_leader(group),
        }
    }

    fn start(&mut self, client: usize) {
        if self.left[client] == 0 {
            return;
        }
        self.left[client] -= 1;
        let groups = self.groups.len();
        let read = self.random.share() < 0.2;
        let one = GroupSet::single(id(self.random.below(groups)));
        let destinations = if read || self.random.share() < self.shape.alone {
            one
        } else {
            let count = self.random.of(&[2, 2, 2, 3, 4]).min(groups);
            let mut several = one;
            while several.len() < count {
                several.insert(id(self.random.below(groups)));
            }
            several
        };
        let name = self.names.len();
        self.names.push(Name { destinations, client, read, got: GroupSet::EMPTY });
        self.operations.push(Operation { asked: self.now, answered: None, read: None });
        self.current[client] = Some(name);
        let group = self.shape.tree.lca(destinations).index();
        let event = if read { Event::Read { group, name } } else { Event::Submit { group, name } };
        self.post(Channel::Request { client, group }, event);
    }

    fn reply(&mut self, name: usize, group: usize) {
        let Name { destinations, client, got, .. } = &mut self.names[name];
        got.insert(id(group));
        let all = got == destinations || self.caller == Caller::TakesFirstAnswer;
        let client = *client;
        if self.current[client] == Some(name) && all {
            self.operations[name].answered = Some(self.now);
            self.current[client] = None;
            self.post(Channel::Think { client }, Event::Start { client });
        }
    }

    fn order_all(&mut self, group: usize) {
        for name in self.groups[group].inbox.clone() {
            if !self.groups[group].logged.contains_key(&name) {
                self.append(group, Entry { name, taken: None });
            }
        }
    }

    fn append(&mut self, group: usize, entry: Entry) {
        let this = &mut self.groups[group];
        this.logged.insert(entry.name, this.log.len() + 1);
        this.log.push(entry);
        let (term, index) = (this.term, this.log.len());
        self.post(Channel::Log { group, term, known: false }, Event::Held { group, term, index });
    }

    fn hear_edge(&mut self, group: usize, edge: &Edge) {
        let this = &mut self.groups[group];
        match this.incoming.judge(edge, 0) {
            Judgement::Next => {
                let Some(message) = edge.content.message() else { panic!("nobody is recreated") };
                let name = message.sequence as usize - 1;
                if this.logged.contains_key(&name) {
                    return; // With a mutant.
                }
                this.incoming.log(edge.number);
                this.early = None;
                self.append(group, Entry { name, taken: Some((edge.number, edge.place)) });
            }
            Judgement::Early => {
                let wanted = this.incoming.logged().number + 1;
                if this.early.replace(wanted) != Some(wanted) {
                    self.ask(group, true);
                }
            }
            Judgement::Known | Judgement::Former => {}
        }
    }

    /// Acknowledges what is committed, and asks for what is not in the log.
    fn ask(&mut self, group: usize, rewinds: bool) {
        let Some(parent) = self.parent(group) else { return };
        let this = &self.groups[group];
        let (term, taken) = (this.term, this.incoming.committed());
        let event = Event::Ask { group: parent, child: group, taken, rewinds };
        self.post(Channel::Groups { from: group, term, to: parent }, event);
    }

    fn held(&mut self, group: usize, term: u32, index: usize) {
        let this = &mut self.groups[group];
        if term != this.term {
            return;
        }
        for at in this.committed..index {
            let name = this.log[at].name;
            if self.names[name].destinations.contains(id(group)) {
                this.delivered.push(name);
            }
        }
        this.committed = this.committed.max(index);
        self.post(Channel::Log { group, term, known: true }, Event::Known { group, term, index });
        if self.caller == Caller::FollowersTell {
            self.turn(group);
        }
    }

    fn change_leader(&mut self, group: usize) {
        let tree = self.shape.tree;
        let this = &mut self.groups[group];
        let keep = this.committed + self.random.below(this.log.len() - this.committed + 1);
        let mut log = std::mem::take(&mut this.log);
        log.truncate(keep);
        let asked = this.asked.iter().chain(&this.served).map(|(name, _)| (*name, keep)).collect();
        let mut next = Group::new(&tree, id(group));
        next.term = this.term + 1;
        next.floor = keep;
        next.committed = this.committed;
        next.logged = log.iter().enumerate().map(|(i, entry)| (entry.name, i + 1)).collect();
        next.inbox = std::mem::take(&mut this.inbox);
        next.answered = std::mem::take(&mut this.answered);
        next.delivered = std::mem::take(&mut this.delivered);
        (next.log, next.asked) = (log, asked);
        let last = next.log.iter().rev().find_map(|entry| entry.taken);
        next.incoming.truncate(last.map(|(number, _)| number));
        let term = next.term;
        self.groups[group] = next;
        self.post(
            Channel::Log { group, term, known: false },
            Event::Held { group, term, index: keep },
        );
        self.order_all(group);
        let children: Vec<_> = tree.children(id(group)).iter().map(GroupId::index).collect();
        for to in children.into_iter().chain(self.parent(group)) {
            self.post(
                Channel::Groups { from: group, term, to },
                Event::Hello { group: to, from: group },
            );
        }
        self.ask(group, true);
        self.turn(group);
    }

    fn parent(&self, group: usize) -> Option<usize> {
        self.shape.tree.parent(id(group)).map(GroupId::index)
    }

    fn turn(&mut self, group: usize) {
        self.fold(group);
        self.forward(group);
        self.tell(group);
        self.answer(group);
    }

    /// Gives the edges and the gate what is committed by now.
    fn fold(&mut self, group: usize) {
        let this = &self.groups[group];
        let (known, last) = (this.known, this.log.len());
        let edges = if self.caller == Caller::ForwardsAppended { last } else { known };
        let gate = match self.caller {
            Caller::GatesAppended => last,
            Caller::FollowersTell => this.committed.max(known),
            _ => edges,
        };
        let (tree, own) = (self.shape.tree, id(group));
        for at in self.groups[group].edges_at..edges.max(gate) {
            let Entry { name, taken } = self.groups[group].log[at];
            let content = self.content(name);
            let destinations = self.names[name].destinations;
            let this = &mut self.groups[group];
            let rank = rank(at);
            let place = taken.map_or(rank, |(_, place)| place);
            if let Some((number, place)) = taken {
                let new = this.incoming.fold(number, place, content.lca(&tree));
                assert!(new, "nobody is recreated");
            }
            let hops = tree.next_hops(own, destinations).iter();
            let hops = hops.map(|child| {
                let table = this.children.get_mut(child).expect("a child");
                (child, table.push(place, content))
            });
            let hops = hops.collect();
            let delivered = destinations.contains(own).then(|| message(name));
            let from = taken.map(|(number, _)| number.number);
            this.gate.commit(Unstable::new(rank, delivered, destinations, from, hops));
            this.edges_at = at + 1;
            if taken.is_some() && at < known {
                self.ask(group, false);
            }
        }
        for at in self.groups[group].gate_at..known {
            let this = &mut self.groups[group];
            let name = this.log[at].name;
            if self.names[name].destinations.contains(own) && !this.answered.contains(&name) {
                this.waiting.push(name);
            }
            this.gate_at = at + 1;
        }
    }

    fn forward(&mut self, group: usize) {
        let this = &mut self.groups[group];
        let (term, committed) = (this.term, rank(this.known));
        // Edges that are numbered early for a gate that is given too much must not be sent early.
        let early = !matches!(
            self.caller,
            Caller::Sound | Caller::ForwardsAppended | Caller::TakesFirstAnswer
        );
        let mut sent = Vec::new();
        for (child, table) in this.children.iter_mut() {
            if early && this.edges_at > this.known && committed < rank(this.edges_at) {
                continue;
            }
            sent.extend(table.send(0, usize::MAX).map(|edge| (child.index(), edge)));
        }
        for (to, edge) in sent {
            self.post(Channel::Groups { from: group, term, to }, Event::Edge { group: to, edge });
        }
    }

    fn tell(&mut self, group: usize) {
        let tree = self.shape.tree;
        let this = &mut self.groups[group];
        this.gate.settle();
        let (term, mut words) = (this.term, Vec::new());
        for destination in tree.below(id(group)).iter() {
            if let Some(parent) = tree.parent(id(group)) {
                words.push((parent.index(), destination, this.gate.tells_up(destination), true));
            }
            if let Some(child) = tree.child_towards(id(group), destination) {
                words.push((child.index(), destination, this.gate.tells_down(destination), false));
            }
        }
        for (to, destination, word, up) in words {
            let destination = destination.index();
            let told = self.groups[group].told.entry((to, destination)).or_default();
            if word <= *told {
                continue;
            }
            *told = word;
            let event = if up {
                Event::Up { group: to, destination, word }
            } else {
                Event::Down { group: to, destination, word }
            };
            self.post(Channel::Groups { from: group, term, to }, event);
        }
    }

    fn answer(&mut self, group: usize) {
        let this = &mut self.groups[group];
        let (term, mut replies) = (this.term, Vec::new());
        for name in std::mem::take(&mut this.waiting) {
            let index = this.logged[&name];
            // A repeated answer waits for all that was delivered when it is repeated.
            let below = if index > this.floor { index - 1 } else { this.floor };
            let rests = this.gate.reply_dependency(self.names[name].destinations, rank(below));
            if this.gate.has_passed(rests) {
                this.answered.insert(name);
                replies.push((name, None));
            } else {
                this.waiting.push(name);
            }
        }
        for (name, index) in std::mem::take(&mut this.asked) {
            if this.known >= index.max(this.floor) {
                this.served.push((name, this.known));
            } else {
                this.asked.push((name, index));
            }
        }
        for (name, index) in std::mem::take(&mut this.served) {
            let rests = this.gate.read_dependency(rank(index));
            if this.gate.has_passed(rests) {
                let saw = this.log[..index].iter();
                let here = |it: &&Entry| self.names[it.name].destinations.contains(id(group));
                replies.push((name, Some(saw.filter(here).count())));
            } else {
                this.served.push((name, index));
            }
        }
        for (name, saw) in replies {
            debug_assert_eq!(saw.is_some(), self.names[name].read);
            if let Some(position) = saw {
                self.operations[name].read = Some((group, position));
            }
            let client = self.names[name].client;
            self.post(Channel::Reply { group, term, client }, Event::Reply { name, group });
        }
    }
}

impl Group {
    fn new(tree: &Tree, group: GroupId) -> Self {
        Self {
            log: Vec::new(),
            committed: 0,
            known: 0,
            floor: 0,
            term: 0,
            logged: BTreeMap::new(),
            inbox: Vec::new(),
            incoming: Incoming::new(tree.groups()),
            children: Children::of(tree, group, u64::MAX),
            gate: Gate::new(*tree, group),
            edges_at: 0,
            gate_at: 0,
            told: BTreeMap::new(),
            waiting: Vec::new(),
            answered: BTreeSet::new(),
            asked: Vec::new(),
            served: Vec::new(),
            delivered: Vec::new(),
            early: None,
        }
    }
}

fn id(group: usize) -> GroupId {
    GroupId(group as u16)
}

fn message(name: usize) -> MessageId {
    MessageId::new(SessionId(1), name as u64 + 1)
}

/// The rank of the entry at this place, from 0.
fn rank(at: usize) -> Rank {
    Rank::new(at as u64 + Rank::LEAST)
}
