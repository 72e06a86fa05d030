//! The clients of a run: they multicast, take replies, die, and repeat messages.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_fabric::sim::{Rng, SimFabric, World};
use skein_fabric::wait::{Waiter, Waiting};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::properties::Violation;

use super::Driven;
use super::faults::Kind;
use super::machine::payload;
use super::world::Stage;
use super::{Coverage, Scenario};
use crate::endpoint::Endpoint;
use crate::session_transport::{Of, QueryKey, SessionKey, SessionTransport};

/// Clients sleep until they are woken, or there is something to retry.
const NAP: Duration = Duration::from_hours(1);
/// Interval at which some clients repeat messages without an answer. A successor of a dead client does: its
/// sequence numbers begin below the mark up to which its predecessor needs no replies, so no new leader
/// repeats those by itself.
const HEIR_RETRIES: Duration = Duration::from_millis(20);
/// Marks the names of sessions that a successor may continue: no node ends them.
const INHERITED: u64 = 2;

/// Returns whether a session may continue after the death of the process that opened it.
pub(super) fn is_inherited(session: SessionId) -> bool {
    session.0 & (INHERITED >> 1) != 0
}

/// A message that a session has sent or is to send.
#[derive(Clone, Copy, Debug)]
struct Sent {
    destinations: GroupSet,
    exchanges: bool,
    reply: u16,
    len: usize,
    /// The reply that its twin's message asks for, if another process sends another message under the same name.
    twin_reply: Option<u16>,
}

struct Session {
    key: SessionKey,
    /// The random bits that it was opened with.
    bits: u64,
    /// The messages that it sends, and how many of them were sent: a successor begins again.
    script: Vec<Sent>,
    sent: usize,
    unanswered: BTreeMap<u64, GroupSet>,
    /// Reads without an answer, with the group and the time of each.
    reads: BTreeMap<QueryKey, (GroupId, u64)>,
}

impl Sent {
    /// Another message to the same groups, perhaps of another length.
    fn unlike(&self, scenario: &Scenario, rng: &mut Rng) -> Self {
        let other = draw_message(scenario, rng);
        let reply = if other.reply == self.reply { other.reply + 1 } else { other.reply };
        let len = if rng.one_in(2) { self.len } else { other.len };
        Self { reply, len, twin_reply: Some(self.reply), ..*self }
    }
}

impl Session {
    fn message(&self, sequence: u64) -> MessageId {
        MessageId::new(SessionId::from_random(self.bits), sequence)
    }
}

struct Client {
    name: String,
    access: SessionTransport<SimFabric>,
    waiter: Waiter,
    sessions: Vec<Session>,
    /// Set if the client dies after the next turn in which it sends something; true if it has a successor.
    doomed: Option<bool>,
    /// Time at which it last repeated messages without an answer, if it does so.
    retried: Option<Duration>,
    /// The client that sends other messages under the same names.
    twin: Option<usize>,
}

/// All clients of a run.
pub(super) struct Clients {
    processes: Vec<Client>,
    joined: usize,
    inherit: bool,
    reopen_at: Option<u64>,
    pub(super) sent: u64,
    pub(super) sessions: usize,
    pub(super) crashes: usize,
    /// Number of groups' answers to messages.
    pub(super) answers: u64,
}

impl Clients {
    pub(super) fn new<O: Driven>(stage: &mut Stage<O>) -> Self {
        let scenario = &stage.scenario;
        let inherits = |kind: &Kind| matches!(kind, Kind::ClientCrash { again: true, .. });
        let mut clients = Self {
            processes: Vec::new(),
            joined: 0,
            inherit: !scenario.loses && scenario.faults.iter().any(|it| inherits(&it.kind)),
            reopen_at: scenario.reopen_at,
            sent: 0,
            sessions: 0,
            crashes: 0,
            answers: 0,
        };
        let (count, sessions) = scenario.clients;
        for _ in 0..count {
            let client = clients.join(stage, sessions, Vec::new());
            clients.processes.push(client);
        }
        if stage.scenario.twins {
            clients.add_twin(stage);
        }
        clients
    }

    /// Another process opens the sessions of the first client, and sends other messages under the same names.
    fn add_twin<O: Driven>(&mut self, stage: &mut Stage<O>) {
        let names: Vec<_> =
            self.processes[0].sessions.iter().map(|it| (it.bits, Vec::new())).collect();
        let twin = self.join(stage, names.len(), names);
        let at = self.processes.len();
        self.processes.push(twin);
        for (one, other) in [(0, at), (at, 0)] {
            let client = &mut self.processes[one];
            // One may need no reply to a message that the other has no reply to.
            (client.twin, client.retried) = (Some(other), Some(stage.world.now()));
        }
    }

    /// A client process with `count` sessions, or with those of a dead one.
    fn join<O: Driven>(
        &mut self,
        stage: &mut Stage<O>,
        count: usize,
        heirs: Vec<(u64, Vec<Sent>)>,
    ) -> Client {
        self.joined += 1;
        let name = format!("c-{:016x}", self.joined);
        let Stage { scenario, world, rng, .. } = stage;
        let mut access =
            SessionTransport::new(world.join(&name), &scenario.layout, scenario.tuning);
        let heir = !heirs.is_empty();
        let mut heirs = heirs.into_iter();
        let mut open = || {
            let (bits, script) = heirs.next().unwrap_or_else(|| (self.draw_bits(rng), Vec::new()));
            open(&mut access, bits, script)
        };
        let sessions = (0..count).map(|_| open()).collect();
        self.sessions += count;
        // A replica forgets the messages that it was sent before its group was recreated.
        let retried = (heir || stage.scenario.loses).then(|| stage.world.now());
        let waiter = Waiter::new(Waiting::Park);
        Client { name, access, waiter, sessions, doomed: None, retried, twin: None }
    }

    fn draw_bits(&self, rng: &mut Rng) -> u64 {
        let bits = rng.word();
        if self.inherit { bits | INHERITED } else { bits & !INHERITED }
    }

    pub(super) fn len(&self) -> usize {
        self.processes.len()
    }

    /// Lets a client take a turn. Returns whether it found anything to do.
    pub(super) fn turn<O: Driven>(
        &mut self,
        at: usize,
        sending: bool,
        stage: &mut Stage<O>,
    ) -> Result<bool, Violation> {
        if sending {
            self.reopen(stage);
        }
        if self.processes[at].sessions.is_empty() {
            return Ok(self.idle_turn(at));
        }
        let s = stage.rng.index(self.processes[at].sessions.len());
        let session = &self.processes[at].sessions[s];
        let mut submitted = false;
        if sending || session.sent < session.script.len() {
            submitted = self.submit(at, s, stage);
        }
        if let Some(of) = stage.scenario.reads.filter(|_| sending) {
            submitted |= self.ask(at, s, of, stage);
        }
        let now = stage.world.now();
        if self.processes[at].retried.is_some_and(|last| now >= last + HEIR_RETRIES) {
            self.processes[at].retried = Some(now);
            self.resend(at);
        }
        let client = &mut self.processes[at];
        if !submitted && stage.world.is_parked(&client.name) {
            return Ok(false);
        }
        let (sessions, mut answered, mut broken) = (&mut client.sessions, Vec::new(), None);
        let answers = &mut self.answers;
        let worked = client
            .access
            .turn(&mut |reply| {
                let Some(s) = sessions.iter().position(|s| s.key == reply.session) else { return };
                let name = sessions[s].message(reply.sequence);
                let Session { unanswered, script, .. } = &mut sessions[s];
                let Some(left) = unanswered.get_mut(&reply.sequence) else { return };
                let sent = script[reply.sequence as usize - 1];
                assert!(left.contains(reply.group), "one reply of each group");
                let twins =
                    sent.twin_reply.is_some_and(|len| usize::from(len) == reply.bytes.len());
                let len = if twins { reply.bytes.len() } else { usize::from(sent.reply) };
                assert_eq!(reply.bytes, vec![reply.sequence as u8; len]);
                *left = left.without(reply.group);
                *answers += 1;
                if left.is_empty() {
                    answered.push((s, reply.sequence));
                }
                if let Err(violation) = stage.onlooker.history.answered(name, reply.group) {
                    broken = Some(violation);
                }
            })
            .expect("simulated memory does not run out");
        if let Some(violation) = broken {
            return Err(violation);
        }
        while let Some((key, answer)) = client.access.take_answer() {
            let position = u64::from_le_bytes(answer[..].try_into().expect("a position"));
            let mut sessions = client.sessions.iter_mut();
            let asked = sessions.find(|s| s.key == key.session).and_then(|s| s.reads.remove(&key));
            let (group, asked_at) = asked.expect("an answer to a question");
            stage.onlooker.history.read(group, asked_at, position);
            client.access.give_back(answer);
            self.answers += 1;
        }
        for (s, sequence) in answered {
            client.sessions[s].unanswered.remove(&sequence);
            client.access.settle(client.sessions[s].key, sequence);
        }
        if let Some(again) = client.doomed.filter(|_| submitted) {
            self.crash(at, again, stage);
            return Ok(true);
        }
        if worked || submitted {
            client.waiter.worked(client.access.fabric());
        } else {
            client.access.wait(&mut client.waiter, NAP, &|| true);
        }
        Ok(worked || submitted)
    }

    /// Multicasts one message on session `s` of client `at`, if its window allows.
    fn submit<O: Driven>(&mut self, at: usize, s: usize, stage: &mut Stage<O>) -> bool {
        let Client { access, sessions, twin, .. } = &self.processes[at];
        let session = &sessions[s];
        let said = session.script.get(session.sent).copied();
        let mut sent = said.unwrap_or_else(|| draw_message(&stage.scenario, &mut stage.rng));
        if !access.has_room(session.key) {
            return false;
        }
        if said.is_none() {
            if let Some(twin) = *twin {
                let other = sent.unlike(&stage.scenario, &mut stage.rng);
                sent.twin_reply = Some(other.reply);
                self.processes[twin].sessions[s].script.push(other);
            }
            self.processes[at].sessions[s].script.push(sent);
            self.sent += 1;
        }
        let Client { access, sessions, .. } = &mut self.processes[at];
        let session = &mut sessions[s];
        let sequence = session.sent as u64 + 1;
        let message = session.message(sequence);
        let bytes = payload(message, sent.exchanges, sent.reply, sent.len);
        let given = access.multicast(session.key, sent.destinations, &bytes);
        assert_eq!(given, Ok(sequence));
        session.sent += 1;
        session.unanswered.insert(sequence, sent.destinations);
        stage.onlooker.history.multicast(message, sent.destinations);
        true
    }

    /// Sends one query on session `s` of client `at`, unless one has no answer yet.
    fn ask<O: Driven>(&mut self, at: usize, s: usize, of: Of, stage: &mut Stage<O>) -> bool {
        let Client { access, sessions, .. } = &mut self.processes[at];
        let session = &mut sessions[s];
        if !session.reads.is_empty() {
            return false;
        }
        let groups = u64::from(stage.scenario.topology().groups);
        let group = GroupId(stage.rng.below(groups) as u16);
        let one_in: u16 = if stage.rng.one_in(4) { 1 << stage.rng.below(8) } else { 1 };
        let query = one_in.to_le_bytes();
        let (asked_at, now) = (stage.onlooker.history.asks(), access.fabric().now());
        // Some queries go to the last known leader, some to a replica that may still assume that it leads.
        let key = if stage.rng.one_in(2) {
            let slot = stage.rng.below(u64::from(stage.scenario.topology().replicas)) as u8;
            access.query_at(now, session.key, ReplicaId::new(group, slot), of, &query)
        } else {
            access.query(now, session.key, group, of, &query)
        };
        session.reads.insert(key, (group, asked_at));
        true
    }

    /// Forgets all queries: clients read no more.
    pub(super) fn stop_reading(&mut self) {
        for Client { access, sessions, .. } in &mut self.processes {
            for key in sessions.iter_mut().flat_map(|session| std::mem::take(&mut session.reads)) {
                access.forget_query(key.0);
            }
        }
    }

    /// A client dies: at once, or right after the next turn in which it sends something.
    pub(super) fn doom<O: Driven>(
        &mut self,
        at: usize,
        midway: bool,
        again: bool,
        stage: &mut Stage<O>,
    ) {
        if midway {
            self.processes[at].doomed = Some(again);
        } else {
            self.crash(at, again, stage);
        }
    }

    fn crash<O: Driven>(&mut self, at: usize, again: bool, stage: &mut Stage<O>) {
        // A successor begins below the mark up to which its predecessor had all replies. A group that was
        // recreated meanwhile goes by that mark, and has forgotten the replies.
        let again = again && !stage.scenario.loses;
        self.crashes += 1;
        stage.world.crash(&self.processes[at].name);
        let sessions = std::mem::take(&mut self.processes[at].sessions);
        if !again {
            for session in &sessions {
                for sequence in 1..=session.script.len() as u64 {
                    stage.onlooker.history.sender_crashed(session.message(sequence));
                }
            }
        }
        let count = sessions.len();
        let heirs = sessions.into_iter().filter(|_| again).map(|s| (s.bits, s.script)).collect();
        self.processes[at] = self.join(stage, count, heirs);
    }

    /// The name of a client's process.
    pub(super) fn name(&self, at: usize) -> &str {
        &self.processes[at].name
    }

    /// Repeats all messages of a client that are in flight.
    pub(super) fn resend(&mut self, at: usize) {
        let Client { access, sessions, .. } = &mut self.processes[at];
        for session in sessions {
            for sequence in session.unanswered.keys() {
                access.retry(session.key, *sequence);
            }
        }
    }

    /// If it is time, closes every other session with nothing in flight, and opens others. A client that
    /// closes a session is awake, and takes a turn before it sleeps.
    fn reopen<O: Driven>(&mut self, stage: &mut Stage<O>) {
        if self.reopen_at.is_none_or(|after| self.sent < after) {
            return;
        }
        for at in 0..self.processes.len() {
            let bits = self.draw_bits(&mut stage.rng);
            let client = &mut self.processes[at];
            let idle = |s: &&mut Session| {
                s.unanswered.is_empty() && s.sent == s.script.len() && s.reads.is_empty()
            };
            if let Some(session) = client.sessions.iter_mut().step_by(2).find(idle) {
                client.access.close(session.key);
                *session = open(&mut client.access, bits, Vec::new());
                stage.world.wake(&client.name);
                self.sessions += 1;
                self.reopen_at = None;
            }
        }
    }

    /// Returns whether every message has all its answers.
    pub(super) fn all_answered(&self) -> bool {
        let sessions = || self.processes.iter().flat_map(|client| &client.sessions);
        sessions().all(|s| s.unanswered.is_empty() && s.sent == s.script.len())
    }

    pub(super) fn unanswered(&self) -> impl Iterator<Item = (MessageId, GroupSet)> {
        let sessions = self.processes.iter().flat_map(|client| &client.sessions);
        sessions.flat_map(|s| s.unanswered.iter().map(|(n, groups)| (s.message(*n), *groups)))
    }

    /// Names of the open sessions.
    pub(super) fn open_sessions(&self) -> impl Iterator<Item = SessionId> {
        let sessions = self.processes.iter().flat_map(|client| &client.sessions);
        sessions.map(|session| SessionId::from_random(session.bits))
    }

    /// Names of the processes that are alive.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.processes.iter().map(|client| client.name.as_str())
    }

    /// Returns whether a client that is awake has written something for which it has not woken the reader yet.
    pub(super) fn owe_wake_ups(&self, world: &World) -> bool {
        let awake = self.processes.iter().filter(|client| !world.is_parked(&client.name));
        awake.map(|client| client.access.endpoint()).any(Endpoint::has_untold)
    }

    pub(super) fn accesses(&self) -> impl Iterator<Item = &SessionTransport<SimFabric>> {
        self.processes.iter().map(|client| &client.access)
    }

    /// Closes all sessions.
    pub(super) fn close(&mut self) {
        for client in &mut self.processes {
            for session in client.sessions.drain(..) {
                client.access.close(session.key);
            }
            let _ = client.access.turn(&mut |_| ());
        }
    }

    /// Lets a client without sessions take a turn.
    fn idle_turn(&mut self, at: usize) -> bool {
        let Client { access, waiter, .. } = &mut self.processes[at];
        let worked = access.turn(&mut |_| ()).expect("simulated memory does not run out");
        if !worked {
            access.wait(waiter, NAP, &|| true);
        }
        worked
    }

    pub(super) fn cover(&self, coverage: &mut Coverage) {
        for client in &self.processes {
            coverage.endpoints.add(&client.access.endpoint().paths);
        }
    }
}

fn draw_message(scenario: &Scenario, rng: &mut Rng) -> Sent {
    let groups = u64::from(scenario.topology().groups);
    let mut destinations = GroupSet::single(GroupId(rng.below(groups) as u16));
    if rng.below(100) < scenario.shared_percent {
        for _ in 0..rng.below(groups) {
            destinations = destinations.with(GroupId(rng.below(groups) as u16));
        }
    }
    let inline = scenario.tuning.inline_bytes_max as u64;
    let len = if rng.one_in(scenario.large_one_in) {
        rng.between(inline, scenario.tuning.payload_bytes_max as u64 - 3)
    } else {
        rng.below(inline - 3)
    };
    let reply_max = if rng.one_in(20) { 3000 } else { 300 };
    let reply = rng.below(reply_max) as u16;
    // Results of a lost group's state machine for others are lost with it.
    let exchanges = rng.one_in(3);
    Sent { destinations, exchanges, reply, len: len as usize, twin_reply: None }
}

fn open(access: &mut SessionTransport<SimFabric>, bits: u64, script: Vec<Sent>) -> Session {
    let key = access.open(SessionId::from_random(bits));
    let (unanswered, reads) = (BTreeMap::new(), BTreeMap::new());
    Session { key, bits, script, sent: 0, unanswered, reads }
}
