//! Machines joined by the simplest multicast: one global order, and a scheduler that picks the next delivery or
//! the next verdict to arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use skein_kvstore::backup::{Content, CopyAnswer, CopyQuery, Mark, Record};
use skein_kvstore::limits::Limits;
use skein_kvstore::points::PointLog;
use skein_kvstore::slots::SlotMap;
use skein_kvstore::wire::{Part, Request};
use skein_multicast::application::{Application, Delivery, Digest, EXCHANGE_MAX, Outbox, Speech};
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

use crate::tested::{self, Machine};

pub(crate) const REPLICAS: u8 = 3;

/// Random choices by xorshift: a seed determines a run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[derive(Clone)]
struct Sent {
    message: MessageId,
    low_water: u64,
    destinations: GroupSet,
    payload: Vec<u8>,
}

#[derive(Clone)]
struct SentVerdict {
    to: ReplicaId,
    message: MessageId,
    from: GroupId,
    bytes: Vec<u8>,
}

/// Makes the log of a replica's restore points.
type PointLogs = Box<dyn Fn((u16, u8)) -> Box<dyn PointLog>>;

pub(crate) struct Cluster {
    pub(crate) slots: SlotMap,
    limits: Limits,
    groups: u16,
    pub(crate) machines: BTreeMap<(u16, u8), Machine>,
    /// Where machines write their restore points, if they do.
    pub(crate) point_logs: Option<PointLogs>,
    orders: Vec<Vec<Sent>>,
    cursors: BTreeMap<(u16, u8), usize>,
    verdicts: Vec<SentVerdict>,
    said: BTreeMap<(MessageId, GroupId), Vec<u8>>,
    /// Verdicts that leaders have sent. Nobody knows the verdicts of followers.
    told: BTreeSet<(MessageId, GroupId)>,
    replies: BTreeMap<MessageId, BTreeMap<GroupId, Vec<u8>>>,
    reads: BTreeSet<MessageId>,
    /// A group's answer to the first, second, … delivery of a message. For a read, the answer of a replica that
    /// has executed it.
    answers: BTreeMap<(u16, MessageId, usize), Vec<u8>>,
    /// Number of answers of each replica to each message.
    answered: BTreeMap<((u16, u8), MessageId), usize>,
    /// The sessions whose end each replica has reported.
    pub(crate) ended: BTreeMap<(u16, u8), Vec<SessionId>>,
    random: Random,
    copy: Option<Copy>,
    /// Clients that copy the pairs of a group for a backup, from its replica 0, while the cluster [runs](Self::run).
    pub(crate) takers: BTreeMap<u16, Taker>,
    /// The groups' orders do not agree, and groups [object](Self::object) when nothing else happens.
    pub(crate) disagrees: bool,
    /// A machine's state after this many deliveries of its group's order.
    states: BTreeMap<(u16, usize), State>,
    /// The digest of each group at each position. It does not depend on what is under way behind the position.
    digests: BTreeMap<(u16, u64), u64>,
}

/// Bytes, keys, history, digest.
type State = (u64, u64, (u64, u64), u64);

/// A copy of the machine `from`, which will replace the machine `to`.
struct Copy {
    from: (u16, u8),
    to: (u16, u8),
    machine: Machine,
    /// It is a snapshot, whose pairs the store keeps.
    is_snapshot: bool,
}

impl Copy {
    fn begin(&self, source: &mut Machine) {
        if self.is_snapshot { source.begin_snapshot() } else { source.begin_copy() }
    }

    fn restore(&mut self, part: &[u8], last: bool) {
        if self.is_snapshot {
            self.machine.restore_snapshot(part, last).unwrap().expect("a good part");
        } else {
            self.machine.restore(part, last).unwrap().expect("a good part");
        }
    }
}

/// A client that copies the pairs of a machine for a backup.
pub(crate) struct Taker {
    session: SessionId,
    next: u32,
    pub(crate) pairs: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    /// The client has received a part after those of the walk.
    pub(crate) has_walked: bool,
    /// Position of the mark at which the copy was completed.
    pub(crate) completed: Option<u64>,
}

impl Taker {
    pub(crate) fn new(session: SessionId) -> Self {
        Self { session, next: 0, pairs: BTreeMap::new(), has_walked: false, completed: None }
    }

    /// The query for part `number`.
    pub(crate) fn query(session: SessionId, attempt: u32, number: u32) -> Vec<u8> {
        CopyQuery { session: session.0, attempt, number }.encode()
    }

    /// Asks for the next part, and if wanted `again` as if the answer were lost.
    fn pull(&mut self, machine: &mut Machine, again: bool) {
        let query = Self::query(self.session, 1, self.next);
        let (mut bytes, mut second) = (Vec::new(), Vec::new());
        if !machine.query(&query, &mut bytes).unwrap() {
            return; // The session is not open there yet.
        }
        if again {
            assert!(machine.query(&query, &mut second).unwrap());
            assert_eq!(bytes, second, "a part that is asked for again");
        }
        let answer = CopyAnswer::decode(&bytes).expect("an answer");
        let CopyAnswer::Part(part) = answer else { panic!("{answer:?}") };
        assert_eq!(part.number, self.next);
        self.next += 1;
        self.has_walked |= part.content != Content::Walk;
        let mut records = part.records;
        while let Some(Record { key, value, version }) = Record::take(&mut records) {
            match value {
                Some(value) => self.pairs.insert(key.to_vec(), (value.to_vec(), version)),
                None => self.pairs.remove(key),
            };
        }
        assert!(records.is_empty(), "whole records");
        match part.content {
            Content::Complete(position) => self.completed = Some(position),
            Content::Missed(_) => panic!("hardly anything was left"),
            Content::Walk | Content::Changes => {}
        }
    }

    /// What the pairs amount to.
    pub(crate) fn totals(&self) -> Mark {
        let mut mark = Mark {
            position: self.completed.expect("it is complete"),
            keys: self.pairs.len() as u64,
            bytes: 0,
            digest: 0,
        };
        for (key, (value, version)) in &self.pairs {
            let record = Record { key, value: Some(value), version: *version };
            mark.bytes += (key.len() + value.len()) as u64;
            mark.digest = mark.digest.wrapping_add(record.digest());
        }
        mark
    }
}

/// The output of a machine.
#[derive(Default)]
pub(crate) struct Words {
    pub(crate) replies: Vec<(MessageId, Vec<u8>)>,
    pub(crate) exchanges: Vec<(MessageId, GroupSet, Vec<u8>)>,
    pub(crate) ended: Vec<SessionId>,
}

/// Lets a machine go on until nothing is being fetched for its commands.
pub(crate) fn fetch(machine: &mut Machine, words: &mut Words) {
    while machine.go_on(words).unwrap() || machine.fetching() > 0 {
        thread::yield_now();
    }
}

/// Asks until the machine has fetched what it needs for the answer, or is likely to need something else.
pub(crate) fn query(machine: &mut Machine, query: &[u8], answer: &mut Vec<u8>) -> bool {
    (0..tested::ATTEMPTS).any(|_| {
        let mut words = Words::default();
        let answered = machine.query(query, answer).unwrap();
        while !answered && machine.go_on(&mut words).unwrap() {}
        if tested::FETCHES && !answered {
            thread::sleep(Duration::from_micros(50));
        }
        assert!(words.replies.is_empty() && words.exchanges.is_empty());
        answered
    })
}

/// Before the last part of a copy: makes parts until little is left, if that must be fetched.
pub(crate) fn ripen(machine: &mut Machine, words: &mut Words, mut take: impl FnMut(&[u8])) {
    let mut ripe = !tested::FETCHES;
    while !ripe {
        machine.go_on(words).unwrap();
        let mut part = Vec::new();
        ripe = machine.copy(1 << 10, &mut part).unwrap();
        take(&part);
    }
}

pub(crate) fn layout(groups: u16) -> Layout {
    let replicas = REPLICAS;
    Layout::propose(Topology { nodes: REPLICAS.into(), groups, replicas, engines: 1 }).unwrap()
}

fn empty(id: (u16, u8), slots: &SlotMap, limits: Limits, groups: u16) -> Machine {
    let replica = ReplicaId::new(GroupId(id.0), id.1);
    tested::machine(replica, &layout(groups), slots.clone(), limits)
}

fn state(machine: &Machine) -> State {
    (machine.bytes(), machine.keys(), machine.history(), machine.digest().unwrap())
}

impl Outbox for Words {
    fn reply(&mut self, message: MessageId, reply: &[u8]) {
        self.replies.push((message, reply.to_vec()));
    }

    fn exchange(&mut self, message: MessageId, to: GroupSet, result: &[u8]) {
        assert!(result.len() <= EXCHANGE_MAX);
        self.exchanges.push((message, to, result.to_vec()));
    }

    fn end_session(&mut self, session: SessionId) {
        self.ended.push(session);
    }
}

impl Cluster {
    pub(crate) fn new(groups: u16, limits: Limits, seed: u64) -> Self {
        let slots = SlotMap::even(groups);
        let ids: Vec<_> = (0..groups).flat_map(|g| (0..REPLICAS).map(move |r| (g, r))).collect();
        let machine = |id: &(u16, u8)| (*id, empty(*id, &slots, limits, groups));
        Self {
            machines: ids.iter().map(machine).collect(),
            point_logs: None,
            slots: slots.clone(),
            limits,
            groups,
            orders: vec![Vec::new(); usize::from(groups)],
            cursors: ids.iter().map(|id| (*id, 0)).collect(),
            verdicts: Vec::new(),
            said: BTreeMap::new(),
            told: BTreeSet::new(),
            replies: BTreeMap::new(),
            reads: BTreeSet::new(),
            answers: BTreeMap::new(),
            answered: BTreeMap::new(),
            ended: BTreeMap::new(),
            random: Random(seed | 1),
            copy: None,
            takers: BTreeMap::new(),
            disagrees: false,
            states: BTreeMap::new(),
            digests: BTreeMap::new(),
        }
    }

    /// Appends a message to the order of each of its groups.
    pub(crate) fn order(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        payload: &[u8],
    ) {
        let command = Request::decode(payload).ok().and_then(Request::command);
        let has_no_effect = command.is_some_and(|command| command.transaction.has_no_effect());
        if has_no_effect || Request::is_read(payload) {
            self.reads.insert(message);
        }
        let sent = Sent { message, low_water, destinations, payload: payload.to_vec() };
        for group in destinations.iter() {
            self.orders[group.index()].push(sent.clone());
        }
    }

    /// Orders a message of `group` once more in that group.
    pub(crate) fn order_again(&mut self, group: GroupId, which: usize) {
        let order = &mut self.orders[group.index()];
        if !order.is_empty() {
            order.push(order[which % order.len()].clone());
        }
    }

    /// An empty machine, which writes its restore points where the former one did.
    fn machine(&self, id: (u16, u8)) -> Machine {
        let mut machine = empty(id, &self.slots, self.limits, self.groups);
        if let Some(point_logs) = &self.point_logs {
            machine.write_points_to(point_logs(id));
        }
        machine
    }

    /// Recreates `group`: all its replicas lose their state and begin anew.
    pub(crate) fn recreate(&mut self, group: GroupId) {
        if let Some(Copy { from, .. }) = self.copy.take() {
            self.machines.get_mut(&from).expect("a replica").give_up_copy();
        }
        self.states.retain(|(of, _), _| *of != group.0);
        self.digests.retain(|(of, _), _| *of != group.0);
        for slot in 0..REPLICAS {
            let id = (group.0, slot);
            self.machines.insert(id, empty(id, &self.slots, self.limits, self.groups));
        }
    }

    /// Position of the last message that was ordered in `group`.
    pub(crate) fn last_position(&self, group: GroupId) -> u64 {
        self.orders[group.index()].len() as u64
    }

    /// Delivers everything everywhere, in an order that the scheduler chooses. Now and then it copies a machine
    /// meanwhile, and the copy replaces another one.
    pub(crate) fn run(&mut self) {
        loop {
            if self.random.below(4) == 0 {
                self.copy();
            }
            if !self.takers.is_empty() && self.random.below(3) == 0 {
                let group = self.random.below(usize::from(self.groups)) as u16;
                self.pull(group);
            }
            self.go_on();
            let behind: Vec<_> = self
                .cursors
                .iter()
                .filter(|(id, at)| **at < self.orders[usize::from(id.0)].len())
                .filter(|(id, _)| self.machines[id].ready())
                .map(|(id, _)| *id)
                .collect();
            let choices = behind.len() + self.verdicts.len();
            if choices == 0 {
                if self.machines.values().any(|machine| machine.fetching() > 0)
                    || self.disagrees && self.object()
                {
                    continue;
                }
                break;
            }
            let choice = self.random.below(choices);
            match behind.get(choice) {
                Some(id) => self.deliver(*id),
                None => self.exchange(choice - behind.len()),
            }
        }
        for ((group, slot), machine) in &self.machines {
            assert_eq!(machine.under_way(), 0, "g{group}.{slot} waits for ever");
            if self.disagrees {
                continue; // A group may never have a message about which it has a verdict.
            }
            assert_eq!(machine.early(), 0, "g{group}.{slot} keeps verdicts for ever");
        }
        self.check_replicas();
        if self.copy.is_none() && self.takers.is_empty() {
            let resting = self.machines.values().filter(|machine| !machine.makes_backup());
            resting.for_each(tested::rests);
        }
    }

    /// Exchanges two messages that follow each other in the order of `group`.
    pub(crate) fn swap(&mut self, group: GroupId, which: usize) {
        let order = &mut self.orders[group.index()];
        if order.len() > 2 {
            // The first message opens a session.
            let at = 1 + which % (order.len() - 2);
            order.swap(at, at + 1);
        }
    }

    /// Takes a message out of the order of `group`, which has forgotten it.
    pub(crate) fn omit(&mut self, group: GroupId, which: usize) {
        let order = &mut self.orders[group.index()];
        if order.len() > 1 {
            order.remove(1 + which % (order.len() - 1));
        }
    }

    /// Everything has come to a standstill. Lets a group object to a message for whose verdict another one waits, if it is
    /// yet to speak about it. Returns whether one did.
    fn object(&mut self) -> bool {
        let mut may = Vec::new();
        for (at, order) in self.orders.iter().enumerate() {
            let delivered = &order[..self.cursors[&(at as u16, 0)]];
            for Sent { message, destinations, .. } in delivered {
                for group in destinations.iter().filter(|group| group.index() != at) {
                    let has = self.orders[group.index()].iter().any(|it| it.message == *message);
                    let silent = !self.told.contains(&(*message, group));
                    let speech = self.machines[&(group.0, 0)].speech(*message);
                    let may_object =
                        if has { speech == Speech::Blocked } else { speech != Speech::Given };
                    if silent && may_object && !may.contains(&(*message, group, *destinations)) {
                        may.push((*message, group, *destinations));
                    }
                }
            }
        }
        if may.is_empty() {
            return false;
        }
        let (message, group, destinations) = may[self.random.below(may.len())];
        for slot in 0..REPLICAS {
            let (id, mut words) = ((group.0, slot), Words::default());
            let machine = self.machines.get_mut(&id).expect("a replica");
            machine.exchanged(message, group, &[], &mut words).unwrap();
            self.take(id, words);
        }
        // A machine that does not have the message says nothing: its replica does.
        if !self.told.contains(&(message, group)) {
            let to = destinations.without(group);
            self.take(
                (group.0, 0),
                Words { exchanges: vec![(message, to, vec![0])], ..Words::default() },
            );
        }
        true
    }

    /// Lets the client of `group` ask for a part, unless its copy is complete.
    pub(crate) fn pull(&mut self, group: u16) {
        let again = self.random.below(4) == 0;
        let machine = self.machines.get_mut(&(group, 0)).expect("a replica");
        if let Some(taker) = self.takers.get_mut(&group)
            && taker.completed.is_none()
        {
            taker.pull(machine, again);
        }
    }

    /// Completes what earlier calls have left undone, before anything else.
    pub(crate) fn go_on(&mut self) {
        let ids: Vec<_> = self.machines.keys().copied().collect();
        for id in ids {
            let mut words = Words::default();
            while self.machines.get_mut(&id).expect("a replica").go_on(&mut words).unwrap() {}
            self.take(id, words);
        }
    }

    /// Begins a copy, or continues the one under way.
    fn copy(&mut self) {
        let Some(mut copy) = self.copy.take() else {
            let group = self.random.below(usize::from(self.groups)) as u16;
            let slot = self.random.below(usize::from(REPLICAS)) as u8;
            let other = 1 + self.random.below(usize::from(REPLICAS) - 1) as u8;
            // The leader, which is replica 0, is never replaced.
            let (from, to) = match (slot, (slot + other) % REPLICAS) {
                (from, 0) => ((group, 0), (group, from)),
                (from, to) => ((group, from), (group, to)),
            };
            let is_snapshot = tested::KEEPS && self.random.below(2) == 0;
            let copy = Copy { from, to, machine: self.machine(to), is_snapshot };
            copy.begin(self.machines.get_mut(&from).expect("a replica"));
            self.copy = Some(copy);
            return;
        };
        let source = self.machines.get_mut(&copy.from).expect("a replica");
        let mut part = b"before it".to_vec();
        let bytes = 1 << self.random.below(11);
        let little = source.copy(bytes, &mut part).unwrap();
        copy.restore(&part[9..], false);
        match self.random.below(16) {
            0 => return source.give_up_copy(),
            // The receiver of the first parts may restore those of another copy.
            1 => copy.begin(source),
            2..4 => return self.replace(copy),
            _ if little => return self.replace(copy),
            _ => {}
        }
        self.copy = Some(copy);
    }

    fn replace(&mut self, mut copy: Copy) {
        let (from, to) = (copy.from, copy.to);
        let source = self.machines.get_mut(&from).expect("a replica");
        let mut words = Words::default();
        ripen(source, &mut words, |part| copy.restore(part, false));
        let mut part = Vec::new();
        source.finish_copy(&mut part).unwrap();
        while !source.has_kept() {
            thread::yield_now();
        }
        copy.restore(&part, true);
        let machine = copy.machine;
        self.take(from, words);
        let source = &self.machines[&from];
        assert_eq!(state(&machine), state(source), "a copy of {from:?}");
        assert_eq!(machine.early(), source.early(), "a copy of {from:?}");
        self.machines.insert(to, machine);
        self.cursors.insert(to, self.cursors[&from]);
        let ended = self.ended.get(&from).cloned().unwrap_or_default();
        self.ended.insert(to, ended);
        self.answered.retain(|(id, _), _| *id != to);
        let answered = self.answered.iter().filter(|((id, _), _)| *id == from);
        let answered: Vec<_> = answered.map(|((_, message), n)| ((to, *message), *n)).collect();
        self.answered.extend(answered);
        // The copy has yet to receive the verdicts that its source has yet to receive.
        let replica = |id: (u16, u8)| ReplicaId::new(GroupId(id.0), id.1);
        self.verdicts.retain(|verdict| verdict.to != replica(to));
        let unheard = self.verdicts.iter().filter(|verdict| verdict.to == replica(from));
        let unheard: Vec<_> =
            unheard.map(|verdict| SentVerdict { to: replica(to), ..verdict.clone() }).collect();
        self.verdicts.extend(unheard);
    }

    fn deliver(&mut self, id: (u16, u8)) {
        let at = self.cursors.get_mut(&id).expect("a replica");
        let sent = &self.orders[usize::from(id.0)][*at];
        *at += 1;
        let delivery = Delivery {
            message: sent.message,
            low_water: sent.low_water,
            destinations: sent.destinations,
            clock: *at as u64,
            position: *at as u64,
            time_ms: 0,
            payload: &sent.payload,
            // Replica 0 leads throughout. Others may have led for a while, which changes nothing but this
            // field.
            answers: id.1 == 0 || self.random.below(2) == 0,
        };
        let mut words = Words::default();
        self.machines.get_mut(&id).expect("a replica").deliver(delivery, &mut words).unwrap();
        self.take(id, words);
    }

    fn exchange(&mut self, at: usize) {
        let verdict = self.verdicts.swap_remove(at);
        // A new leader may repeat a verdict.
        if self.random.below(4) == 0 {
            self.verdicts.push(verdict.clone());
        }
        let mut words = Words::default();
        let to = (verdict.to.group.0, verdict.to.slot);
        let machine = self.machines.get_mut(&to).expect("a replica");
        machine.exchanged(verdict.message, verdict.from, &verdict.bytes, &mut words).unwrap();
        self.take(to, words);
    }

    /// Records the output of one replica, and checks it against that of its group's other replicas.
    fn take(&mut self, id: (u16, u8), words: Words) {
        let from = GroupId(id.0);
        self.ended.entry(id).or_default().extend(words.ended);
        for (message, reply) in words.replies {
            let said = self.replies.entry(message).or_default();
            let first = said.entry(from).or_insert_with(|| reply.clone());
            let mut times = 0;
            if !self.reads.contains(&message) {
                times = *self.answered.entry((id, message)).and_modify(|n| *n += 1).or_insert(1);
            } else if !matches!(Part::decode(&reply), Ok(Part::Done { .. })) {
                // No reply to a read is retained, and the replicas that did not lead have not executed it.
                continue;
            } else {
                first.clone_from(&reply);
            }
            let place = (id.0, message, times);
            let answer = self.answers.entry(place).or_insert_with(|| reply.clone());
            assert_eq!(*answer, reply, "{from} answers {message} in two ways");
        }
        for (message, to, bytes) in words.exchanges {
            assert!(!to.contains(from), "a group tells itself");
            if id.1 == 0 {
                self.told.insert((message, from));
            }
            if let Some(said) = self.said.get(&(message, from)) {
                assert_eq!(*said, bytes, "{from} says two things about {message}");
                continue;
            }
            for group in to.iter() {
                for slot in 0..REPLICAS {
                    let to = ReplicaId::new(group, slot);
                    self.verdicts.push(SentVerdict { to, message, from, bytes: bytes.clone() });
                }
            }
            self.said.insert((message, from), bytes);
        }
        let machine = &self.machines[&id];
        for Digest { position, digest } in machine.digests() {
            let first = *self.digests.entry((id.0, position)).or_insert(digest);
            assert_eq!(first, digest, "{id:?} at position {position}");
            assert_eq!(machine.digest_at(position), Some(digest));
        }
        if machine.under_way() == 0 {
            let state = state(machine);
            let first = *self.states.entry((id.0, self.cursors[&id])).or_insert(state);
            assert_eq!(first, state, "{id:?} after {} deliveries", self.cursors[&id]);
        }
    }

    fn check_replicas(&self) {
        for (id, machine) in &self.machines {
            let first = &self.machines[&(id.0, 0)];
            assert_eq!(
                machine.digest().unwrap(),
                first.digest().unwrap(),
                "replicas of g{} differ",
                id.0
            );
            assert_eq!(machine.history(), first.history(), "replicas of g{} answered apart", id.0);
            assert_eq!((machine.keys(), machine.bytes()), (first.keys(), first.bytes()));
        }
    }

    /// The groups' replies to a message.
    pub(crate) fn parts(&self, message: MessageId) -> Vec<(GroupId, &[u8])> {
        let parts = self.replies.get(&message).into_iter().flatten();
        parts.map(|(group, bytes)| (*group, &bytes[..])).collect()
    }

    /// The reply of every replica of `group` to a duplicate of `message`.
    pub(crate) fn repeat(&mut self, group: GroupId, message: MessageId) -> Option<Vec<u8>> {
        let mut said = BTreeSet::new();
        for slot in 0..REPLICAS {
            let mut words = Words::default();
            let machine = self.machines.get_mut(&(group.0, slot)).expect("a replica");
            machine.repeat(message, &mut words);
            assert!(words.exchanges.is_empty() && words.replies.len() <= 1);
            said.insert(words.replies.pop().map(|(_, reply)| reply));
        }
        assert_eq!(said.len(), 1, "replicas repeat different things");
        said.pop_first().expect("one")
    }
}
