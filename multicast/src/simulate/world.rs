//! The run itself: who does what next, drawn from the seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use skein_fabric::sim::{Rng, SimFabric, World};
use skein_fabric::wait::{Waiter, Waiting};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::properties::Violation;

use super::checker::Onlooker;
use super::machine::{Machine, payload};
use super::{Coverage, Report, Scenario};
use crate::access::{Access, SessionKey};
use crate::channel::Channel;
use crate::config::endpoint_name;
use crate::engine::Engine;
use crate::mail::Purpose;
use crate::operate::{Identity, ReplicaStatus};
use crate::replica::Replica;

/// Messages after which a run stops sending, lapped or not.
const MESSAGES_MAX: u64 = 20_000;
/// Steps that a run may take.
const STEPS_MAX: u64 = 30_000_000;
/// Virtual time that a run may take.
const TIME_MAX: Duration = Duration::from_mins(2);
/// How long engines sleep at most; clients sleep until they are woken.
const ENGINE_NAP: Duration = Duration::from_millis(20);
const CLIENT_NAP: Duration = Duration::from_hours(1);
/// How long everything must have been quiet before a run is over: dead sessions are noticed and
/// ended in that time.
const QUIET: Duration = Duration::from_millis(400);
/// Lines of trace that are kept.
const TRACE_MAX: usize = 4000;

/// A message as its session remembers it.
#[derive(Clone, Copy)]
struct Sent {
    destinations: GroupSet,
    exchanges: bool,
    reply: u16,
    len: usize,
}

struct Session {
    key: SessionKey,
    /// The random bits it was opened with.
    bits: u64,
    sent: Vec<Sent>,
    /// What a crashed predecessor had sent, to be sent again.
    again: VecDeque<Sent>,
    unanswered: BTreeMap<u64, GroupSet>,
}

struct Client {
    name: String,
    access: Access<SimFabric>,
    waiter: Waiter,
    sessions: Vec<Session>,
    /// A client that will crash can also stop in the middle of a turn's writes.
    lives: bool,
}

pub(super) struct Simulation {
    scenario: Scenario,
    world: World,
    rng: Rng,
    engines: Vec<Engine<SimFabric, Machine>>,
    names: Vec<String>,
    waiters: Vec<Waiter>,
    clients: Vec<Client>,
    onlooker: Onlooker,
    sent: u64,
    /// As they were when sending ended.
    laps: u64,
    sessions: usize,
    steps: u64,
    joined: usize,
    /// Turns in a row, of whomever, that found nothing.
    idle: usize,
    quiet_since: Option<Duration>,
    cut: Option<(String, String, Duration)>,
    trace: Option<Vec<String>>,
}

impl Simulation {
    pub(super) fn new(scenario: Scenario, trace: bool) -> Self {
        let world = World::new(scenario.seed, scenario.world());
        let rng = world.fork_rng();
        let topology = scenario.topology;
        topology.check().expect("a scenario that can be");
        scenario.tuning.check().expect("sizes that can be");
        let ids: Vec<_> = (0..topology.nodes)
            .flat_map(|node| (0..topology.engines).map(move |engine| (node, engine)))
            .filter(|(node, engine)| !topology.replicas_on(*node, *engine).is_empty())
            .collect();
        let names: Vec<_> =
            ids.iter().map(|(node, engine)| endpoint_name(*node, *engine)).collect();
        let engines = ids
            .iter()
            .map(|(node, engine)| {
                let fabric = world.join(&endpoint_name(*node, *engine));
                let machine = |id: skein_protocol::ids::ReplicaId| Machine::new(id.group);
                let mut engine = Engine::new(
                    fabric,
                    topology,
                    scenario.tuning,
                    Identity::first(*node, *engine),
                    machine,
                )
                .expect("simulated memory does not run out");
                engine.look_on();
                engine
            })
            .collect();
        let mut onlooker = Onlooker::default();
        onlooker.history.correct =
            topology.all_groups().iter().flat_map(|group| topology.replicas_of(group)).collect();
        let mut simulation = Self {
            waiters: vec![Waiter::new(Waiting::Park); names.len()],
            scenario,
            world,
            rng,
            engines,
            names,
            clients: Vec::new(),
            onlooker,
            sent: 0,
            laps: 0,
            sessions: 0,
            steps: 0,
            joined: 0,
            idle: 0,
            quiet_since: None,
            cut: None,
            trace: trace.then(Vec::new),
        };
        for _ in 0..simulation.scenario.clients.0 {
            let sessions = simulation.scenario.clients.1;
            let client = simulation.join(sessions, &[]);
            simulation.clients.push(client);
        }
        simulation
    }

    /// A client process with `count` sessions, or with those of a crashed one.
    fn join(&mut self, count: usize, heirs: &[(u64, Vec<Sent>)]) -> Client {
        self.joined += 1;
        let name = format!("c-{:016x}", self.joined);
        let (topology, tuning) = (self.scenario.topology, self.scenario.tuning);
        let access = Access::new(self.world.join(&name), topology, tuning);
        let waiter = Waiter::new(Waiting::Park);
        let mut client = Client { name, access, waiter, sessions: Vec::new(), lives: true };
        for i in 0..count {
            let (bits, again) = match heirs.get(i) {
                Some((bits, sent)) => (*bits, sent.clone()),
                None => (self.rng.word(), Vec::new()),
            };
            client.sessions.push(open(&mut client.access, bits, again));
        }
        self.sessions += count;
        client
    }

    /// Runs to the end, and checks everything.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let mut sending = true;
        while sending || !self.is_over() {
            self.steps += 1;
            if self.steps > STEPS_MAX || self.world.now() > TIME_MAX {
                return Err(self.stuck());
            }
            if self.rng.below(100) < self.scenario.landing_percent {
                self.world.step();
            } else {
                self.turn(sending)?;
            }
            self.stand_still()?;
            self.cut_off();
            if self.steps.is_multiple_of(256) {
                for engine in &self.engines {
                    Onlooker::inspect(engine, self.sessions + self.sent as usize / 16)?;
                }
            }
            if sending && self.steps.is_multiple_of(256) && self.sent >= self.scenario.messages {
                self.laps = self.laps();
                sending = self.laps < 2 && self.sent < MESSAGES_MAX;
                if !sending {
                    self.world.heal_all();
                    self.cut = None;
                }
            }
            if self.steps.is_power_of_two() {
                self.onlooker.history.check_safety()?;
            }
        }
        self.check_nothing_left()?;
        self.onlooker.history.check_complete()
    }

    /// Lets one process, chosen at random, do a turn.
    fn turn(&mut self, sending: bool) -> Result<(), Violation> {
        let chosen = self.rng.index(self.engines.len() + self.clients.len());
        if chosen >= self.engines.len() {
            self.turn_client(chosen - self.engines.len(), sending);
            return Ok(());
        }
        if self.world.is_parked(&self.names[chosen]) {
            self.idle += 1;
            return Ok(());
        }
        let engine = &mut self.engines[chosen];
        let worked = engine.turn().expect("simulated memory does not run out");
        for session in engine.take_dead_sessions() {
            engine.originate(&session.0.to_le_bytes());
        }
        if worked {
            self.idle = 0;
            self.waiters[chosen].worked(engine.fabric());
        } else {
            self.idle += 1;
            engine.wait(&mut self.waiters[chosen], ENGINE_NAP, &|| true);
        }
        self.onlooker.look_at(&mut self.engines, chosen, self.trace.as_mut())?;
        if let Some(trace) = &mut self.trace {
            let excess = trace.len().saturating_sub(TRACE_MAX);
            trace.drain(..excess);
        }
        Ok(())
    }

    fn turn_client(&mut self, at: usize, sending: bool) {
        if sending && self.crash_or_reopen(at) {
            return;
        }
        let client = &mut self.clients[at];
        if !client.lives {
            self.idle += 1;
            return;
        }
        let mut submitted = false;
        let s = self.rng.index(client.sessions.len());
        if sending || !client.sessions[s].again.is_empty() {
            submitted = self.submit(at, s);
        }
        let client = &mut self.clients[at];
        if !submitted && self.world.is_parked(&client.name) {
            self.idle += 1;
            return;
        }
        let sessions = &mut client.sessions;
        let mut answered = Vec::new();
        let worked = client
            .access
            .turn(&mut |reply| {
                let Some(s) = sessions.iter().position(|s| s.key == reply.session) else { return };
                let Session { unanswered, sent, .. } = &mut sessions[s];
                let Some(left) = unanswered.get_mut(&reply.sequence) else { return };
                let sent = sent[reply.sequence as usize - 1];
                assert!(left.contains(reply.group), "one reply of each group");
                assert_eq!(reply.bytes, vec![reply.sequence as u8; usize::from(sent.reply)]);
                *left = left.without(reply.group);
                if left.is_empty() {
                    answered.push((s, reply.sequence));
                }
            })
            .expect("simulated memory does not run out");
        for (s, sequence) in answered {
            client.sessions[s].unanswered.remove(&sequence);
            client.access.settle(client.sessions[s].key, sequence);
        }
        if worked || submitted {
            self.idle = 0;
            client.waiter.worked(client.access.fabric());
        } else {
            self.idle += 1;
            client.access.wait(&mut client.waiter, CLIENT_NAP, &|| true);
        }
    }

    /// Multicasts one message on session `s` of client `at`, if its window allows.
    fn submit(&mut self, at: usize, s: usize) -> bool {
        let sent = match self.clients[at].sessions[s].again.front() {
            Some(sent) => *sent,
            None => self.draw_message(),
        };
        let session = &mut self.clients[at].sessions[s];
        let sequence = session.sent.len() as u64 + 1;
        let message = MessageId::new(SessionId::from_random(session.bits), sequence);
        let bytes = payload(message, sent.exchanges, sent.reply, sent.len);
        let (key, destinations) = (session.key, sent.destinations);
        let Ok(given) = self.clients[at].access.multicast(key, destinations, &bytes) else {
            return false;
        };
        assert_eq!(given, sequence);
        let session = &mut self.clients[at].sessions[s];
        session.again.pop_front();
        session.sent.push(sent);
        session.unanswered.insert(sequence, destinations);
        self.onlooker.multicast(message, destinations);
        self.sent += 1;
        true
    }

    fn draw_message(&mut self) -> Sent {
        let groups = u64::from(self.scenario.topology.groups);
        let mut destinations = GroupSet::single(GroupId(self.rng.below(groups) as u16));
        if self.rng.below(100) < self.scenario.shared_percent {
            for _ in 0..self.rng.below(groups) {
                destinations = destinations.with(GroupId(self.rng.below(groups) as u16));
            }
        }
        let inline = self.scenario.tuning.inline_bytes_max as u64;
        let len = if self.rng.one_in(self.scenario.large_one_in) {
            self.rng.between(inline, self.scenario.tuning.payload_bytes_max as u64 - 3)
        } else {
            self.rng.below(inline - 3)
        };
        let reply_max = if self.rng.one_in(20) { 3000 } else { 300 };
        let reply = self.rng.below(reply_max) as u16;
        Sent { destinations, exchanges: self.rng.one_in(3), reply, len: len as usize }
    }

    /// The client's crash, or the closing of sessions, if it is time. True if it crashed just now.
    fn crash_or_reopen(&mut self, at: usize) -> bool {
        if let Some((_, after, again)) =
            self.scenario.crash.filter(|(who, after, _)| *who == at && self.sent >= *after)
        {
            self.scenario.crash = None;
            let _ = after;
            let client = &mut self.clients[at];
            client.lives = false;
            self.world.crash(&client.name);
            let heirs: Vec<_> = client.sessions.iter().map(|s| (s.bits, s.sent.clone())).collect();
            let successor = self.join(heirs.len(), if again { &heirs } else { &[] });
            self.clients.push(successor);
            if !again {
                for (bits, sent) in heirs {
                    for sequence in 1..=sent.len() as u64 {
                        let message = MessageId::new(SessionId::from_random(bits), sequence);
                        self.onlooker.sender_crashed(message);
                    }
                }
            }
            return true;
        }
        if self.scenario.reopen_at.is_some_and(|after| self.sent >= after) {
            for client in self.clients.iter_mut().filter(|client| client.lives) {
                for session in client.sessions.iter_mut().step_by(2) {
                    if session.unanswered.is_empty() && session.again.is_empty() {
                        client.access.close(session.key);
                        *session = open(&mut client.access, self.rng.word(), Vec::new());
                        self.sessions += 1;
                        self.scenario.reopen_at = None;
                    }
                }
            }
        }
        false
    }

    /// When nothing is under way and nobody finds anything to do, time passes; and whoever sleeps
    /// has nothing to read, or a wake-up was lost.
    fn stand_still(&mut self) -> Result<(), Violation> {
        if self.idle < 8 * (self.engines.len() + self.clients.len()) {
            return Ok(());
        }
        self.idle = 0;
        if self.world.next_due().is_some() {
            self.world.step();
            return Ok(());
        }
        for (name, engine) in self.names.iter().zip(&self.engines) {
            if self.world.is_parked(name) && engine.has_news() && self.cut.is_none() {
                let evidence = format!("{name} sleeps, and has something to read");
                return Err(Violation { property: "no lost wake-up", evidence });
            }
        }
        self.world.advance(Duration::from_millis(2));
        Ok(())
    }

    /// Cuts two processes off from each other, and heals them again.
    fn cut_off(&mut self) {
        if !self.scenario.partitions || !self.steps.is_multiple_of(512) {
            return;
        }
        let now = self.world.now();
        match self.cut.take_if(|(_, _, until)| now >= *until) {
            Some((from, to, _)) => self.world.heal(&from, &to),
            None if self.cut.is_none() && self.rng.one_in(4) => {
                let from = self.rng.pick(&self.names).clone();
                let to = self.rng.pick(&self.names).clone();
                if from != to {
                    self.world.partition(&from, &to);
                    let until = now + Duration::from_micros(self.rng.below(20_000));
                    self.cut = Some((from, to, until));
                }
            }
            None => {}
        }
    }

    /// Whether everything is answered and has been quiet for long enough. Closes the sessions when
    /// the last answer is in.
    fn is_over(&mut self) -> bool {
        let answered = |client: &Client| {
            client.sessions.iter().all(|s| s.unanswered.is_empty() && s.again.is_empty())
        };
        if !self.clients.iter().filter(|client| client.lives).all(answered) {
            return false;
        }
        let now = self.world.now();
        let Some(since) = self.quiet_since else {
            for client in self.clients.iter_mut().filter(|client| client.lives) {
                for session in &client.sessions {
                    client.access.close(session.key);
                }
                let _ = client.access.turn(&mut |_| ());
            }
            self.quiet_since = Some(now);
            return false;
        };
        now >= since + QUIET
    }

    /// Nothing pending, nothing held, no ring of a session that is gone.
    fn check_nothing_left(&self) -> Result<(), Violation> {
        let left = |evidence| Err(Violation { property: "nothing is left", evidence });
        for engine in &self.engines {
            let (replicas, port) = engine.inside();
            for replica in replicas {
                let (pending, held) = (replica.core.pending(), replica.payloads.len());
                if pending + held > 0 {
                    let id = replica.id;
                    return left(format!("{id}: {pending} messages pending, {held} payloads held"));
                }
            }
            let session = |purpose| matches!(purpose, Purpose::Session { .. });
            if let Some((_, channel)) = port.iter().find(|(_, c)| session(c.purpose)) {
                let (leaving, dying, silent) = (channel.leaving, channel.dying, channel.silent);
                return left(format!(
                    "a channel for {:?}, leaving {leaving}, dying {dying}, silent {silent}",
                    channel.purpose
                ));
            }
        }
        Ok(())
    }

    fn stuck(&self) -> Violation {
        let mut evidence = format!("after {} messages and {:?}", self.sent, self.world.now());
        for client in self.clients.iter().filter(|client| client.lives) {
            for session in &client.sessions {
                for (sequence, groups) in session.unanswered.iter().take(2) {
                    let id = SessionId::from_random(session.bits);
                    let _ = write!(evidence, "; {id}:{sequence} has no answer of {groups}");
                }
            }
        }
        for status in self.engines.iter().flat_map(Engine::status) {
            let ReplicaStatus { group, slot, log_index, commit_index, pending, .. } = status;
            let _ = write!(
                evidence,
                "\n  g{group}.{slot}: log {log_index}, commit {commit_index}, pending {pending}"
            );
        }
        Violation { property: "liveness", evidence }
    }

    /// How often the least lapped log went round, or the least lapped ring: a session's, a reply
    /// ring that anything came through, or one by which leaders announce to each other.
    fn laps(&self) -> u64 {
        let logs =
            self.engines.iter().flat_map(|engine| engine.inside().0.iter().map(Replica::laps));
        let lives = || self.clients.iter().filter(|client| client.lives);
        let open: BTreeSet<_> = lives()
            .flat_map(|client| &client.sessions)
            .map(|session| SessionId::from_random(session.bits).0)
            .collect();
        let rings = |(_, channel): (u32, &Channel)| {
            let (position, capacity) = (channel.incoming.position(), channel.incoming.capacity());
            let counts = match channel.purpose {
                Purpose::Session { session, .. } => open.contains(&session),
                Purpose::Replica { from, to } => from.0 != to.0 && from.1 + to.1 == 0,
            };
            (counts && position > 0).then(|| position / capacity.max(1))
        };
        let engines = self.engines.iter().flat_map(|e| e.inside().1.iter().filter_map(rings));
        let clients = lives().flat_map(|client| client.access.port().iter().filter_map(rings));
        logs.chain(engines).chain(clients).min().unwrap_or(0)
    }

    pub(super) fn report(&self) -> Report {
        let mut coverage = Coverage { world: self.world.counters(), ..Coverage::default() };
        for engine in &self.engines {
            let (replicas, port) = engine.inside();
            coverage.ports.add(&port.paths);
            for replica in replicas {
                coverage.protocol.add(replica.core.paths());
                coverage.replicas.add(&replica.paths);
            }
        }
        for client in &self.clients {
            coverage.ports.add(&client.access.port().paths);
        }
        Report {
            scenario: self.scenario.clone(),
            fingerprint: self.world.fingerprint(),
            messages: self.sent,
            laps: self.laps,
            coverage,
        }
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }
}

fn open(access: &mut Access<SimFabric>, bits: u64, again: Vec<Sent>) -> Session {
    let key = access.open(SessionId(bits));
    let again = again.into();
    Session { key, bits, sent: Vec::new(), again, unanswered: BTreeMap::new() }
}
