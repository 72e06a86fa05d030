//! One replica: words and bytes in, events, step, effects out.

mod log;
mod said;

use std::collections::VecDeque;

use skein_fabric::{Access, Fabric, FabricError, Peer, Region};
use skein_protocol::ballot::Acceptance;
use skein_protocol::ids::{GroupId, MessageId, ReplicaId, SessionId};
use skein_protocol::log::{Cursor, HEADER, PREAMBLE, Remote, Space};
use skein_protocol::message::{Announcement, Head, encode_name};
use skein_protocol::properties::{About, Footprint, Touch};
use skein_protocol::ramcast::{Config, Ramcast};
use skein_protocol::step::{Effect, Event, Record};

use self::log::Follower;
pub(crate) use self::log::untag;
use self::said::{Said, Word};
use crate::application::{Application, Delivery, EXCHANGE_MAX};
use crate::channel::Kind;
use crate::config::{Topology, Tuning};
use crate::payloads::Payloads;
use crate::wiring::{Column, Note, Wiring, members};

/// Messages delivered in one go, before the rest of the turn gets its share.
const DELIVERIES_PER_TURN: usize = 256;

skein_protocol::paths! {
    /// Counts of paths taken where a replica meets its memory.
    ReplicaPaths:
    /// A follower looked at an entry that was not whole.
    torn_entry,
    /// The end of the log ring was skipped.
    padded,
    /// A message waited because the log was full.
    log_full,
    /// A message waited because its session had a window of others here.
    window_full,
    /// A message waited because large payloads took all of their budget.
    budget_full,
    /// Another group's result was logged.
    exchanged,
    /// A payload was sent to a replica that missed it.
    relayed,
}

/// Another group's result that waits for its log entry to be committed.
struct Exchanged {
    index: u64,
    message: MessageId,
    from: GroupId,
    result: Vec<u8>,
}

/// One replica of one group, with its memory and its state machine.
pub(crate) struct Replica<A> {
    pub id: ReplicaId,
    pub core: Ramcast,
    pub application: A,
    pub payloads: Payloads,
    tuning: Tuning,
    topology: Topology,
    /// Our copy of the group's log.
    pub log: Region,
    /// Who may write it, and by which key.
    granted: Option<(Peer, [u8; 32])>,
    space: Space,
    /// Of the next entry to read, as follower.
    cursor: Cursor,
    followers: Vec<Follower>,
    /// Ends of the entries that may not be overwritten yet: index, position.
    ends: VecDeque<(u64, u64)>,
    /// The last entry whose place may be used again, and where it ends.
    pub freed_index: u64,
    freed: u64,
    freed_told: u64,
    /// The words of our row, as last looked at.
    seen: Vec<u64>,
    exchanged: VecDeque<Exchanged>,
    effects: Vec<Effect>,
    said: Said,
    announced: usize,
    entry: Vec<u8>,
    remotes: Vec<Remote>,
    pub paths: ReplicaPaths,
}

impl<A: Application> Replica<A> {
    pub(crate) fn new<F: Fabric>(
        id: ReplicaId,
        application: A,
        wiring: &mut Wiring<F>,
        tuning: Tuning,
    ) -> Result<Self, FabricError> {
        let topology = wiring.topology;
        let log = wiring.port.fabric.create(PREAMBLE + tuning.log_bytes, Access::Granted)?;
        let core = Ramcast::new(Config {
            me: id,
            groups: topology.groups,
            replicas: topology.replicas,
            fetch_after_ms: tuning.fetch_after_ms,
        });
        Ok(Self {
            id,
            core,
            application,
            payloads: Payloads::new(tuning.inline_bytes_max),
            tuning,
            topology,
            log,
            granted: None,
            space: Space::new(tuning.log_bytes as u64),
            cursor: Cursor::START,
            followers: vec![Follower::default(); usize::from(topology.replicas)],
            ends: VecDeque::new(),
            freed_index: 0,
            freed: 0,
            freed_told: 0,
            seen: vec![0; members(topology) + usize::from(topology.replicas)],
            exchanged: VecDeque::new(),
            effects: Vec::new(),
            said: Said::default(),
            announced: 0,
            entry: Vec::new(),
            remotes: Vec::new(),
            paths: ReplicaPaths::default(),
        })
    }

    /// Begins: the leader of the first ballot logs it.
    pub(crate) fn start<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        self.core.start(&mut self.effects);
        self.carry_out(wiring);
    }

    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.core.step(Event::Tick { now_ms }, &mut self.effects);
    }

    /// Looks at the words that peers write. Returns whether any has changed.
    pub(crate) fn look_at_words<F: Fabric>(&mut self, row: usize, wiring: &Wiring<F>) -> bool {
        let mut changed = false;
        let acceptances = members(self.topology);
        for (i, word) in wiring.row(row).enumerate() {
            if word == self.seen[i] {
                continue;
            }
            self.seen[i] = word;
            changed = true;
            if i < acceptances {
                let replicas = usize::from(self.topology.replicas);
                let by = ReplicaId::new(GroupId((i / replicas) as u16), (i % replicas) as u8);
                let acceptance = Acceptance::from_word(word);
                self.core.step(Event::Acknowledged { by, acceptance }, &mut self.effects);
            } else {
                self.followers[i - acceptances].freed = word;
            }
        }
        changed
    }

    /// Whether [`look_at_words`](Self::look_at_words) or [`read_log`](Self::read_log) would find
    /// something.
    pub(crate) fn is_quiet<F: Fabric>(
        &self,
        row: usize,
        words: (Region, usize),
        fabric: &F,
    ) -> bool {
        let (region, row_words) = words;
        let same =
            |(i, seen): (usize, &u64)| fabric.load(region, (row * row_words + i) * 8) == *seen;
        self.seen.iter().enumerate().all(same) && !self.log_has_more(fabric)
    }

    /// Whether a datagram of `len` bytes from a session may be read now, when `assembling` bytes
    /// of others are being put together.
    pub(crate) fn admits(&mut self, session: SessionId, len: usize, assembling: usize) -> bool {
        let large = len > self.tuning.inline_bytes_max;
        let budget = self.tuning.held_bytes_max;
        let within_budget = !large || self.payloads.large_bytes() + assembling + len <= budget;
        let within_window = self.payloads.of_session(session) < self.tuning.window;
        let has_room = !self.core.leads() || self.log_has_room();
        self.paths.budget_full += u64::from(!within_budget);
        self.paths.window_full += u64::from(!within_window);
        self.paths.log_full += u64::from(!has_room);
        // What the log waits for comes before any bound: it may be behind this very datagram. Other
        // sessions' rings cannot hold it.
        let waited_for = self.core.stalled_on().is_some_and(|m| m.session == session);
        has_room && (waited_for || (within_window && within_budget))
    }

    /// Whether a datagram from another replica may be read now. A fetch always may: our log can be
    /// full because the follower that asks waits for the payload, and holds everything back.
    pub(crate) fn admits_from_replica(&self, kind: Kind) -> bool {
        kind == Kind::Fetch || !self.core.leads() || self.log_has_room()
    }

    /// A message is whole in our memory. Anything that makes no sense is dropped: it can harm only
    /// the session that sent it.
    pub(crate) fn receive<F: Fabric>(
        &mut self,
        session: SessionId,
        head: Head,
        payload: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        let Head { sequence, low_water, destinations } = head;
        let message = MessageId::new(session, sequence);
        let valid = destinations.contains(self.id.group)
            && self.topology.all_groups().contains_all(destinations)
            && payload.len() <= self.tuning.payload_bytes_max;
        if !valid {
            tracing::warn!(%message, %destinations, "dropped a message that makes no sense");
            return;
        }
        if !self.core.is_known(message) {
            self.payloads.insert(message, low_water, destinations, payload);
        }
        let inline = payload.len() <= self.tuning.inline_bytes_max;
        let event = Event::Received { message, low_water, destinations, inline };
        self.core.step(event, &mut self.effects);
        self.announced += destinations.len() - 1;
        self.carry_out(wiring);
    }

    /// Another group's leader announced its proposal.
    pub(crate) fn announced(&mut self, from: ReplicaId, announcement: Announcement) {
        let sane = announcement.timestamp.group() == from.group
            && announcement.destinations.contains(self.id.group)
            && self.topology.all_groups().contains_all(announcement.destinations);
        if sane {
            self.announced += 1;
            self.core.step(Event::Announced { from, announcement }, &mut self.effects);
        }
    }

    /// Another group's leader sent its state machine's result.
    pub(crate) fn exchange<F: Fabric>(
        &mut self,
        from: GroupId,
        message: MessageId,
        result: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        if !self.core.leads() || result.len() > EXCHANGE_MAX {
            return;
        }
        self.paths.exchanged += 1;
        let index = self.core.last_index() + 1;
        self.exchanged.push_back(Exchanged { index, message, from, result: result.to_vec() });
        self.core.step(Event::Exchanged, &mut self.effects);
        self.carry_out(wiring);
    }

    /// Somebody misses a payload that we may have.
    pub(crate) fn fetch<F: Fabric>(
        &mut self,
        message: MessageId,
        by: ReplicaId,
        wiring: &mut Wiring<F>,
    ) {
        let Some(held) = self.payloads.get(message) else { return };
        if !wiring.has_room_to_relay(self.id, by) {
            return;
        }
        let mut head = wiring.borrow();
        encode_name(message, &mut head);
        let sequence = message.sequence;
        Head { sequence, low_water: held.low_water, destinations: held.destinations }
            .encode(&mut head);
        self.paths.relayed += 1;
        let about = About::Message(message);
        wiring.note(|| Note::Told(Touch { by: self.id, to: by, about }));
        wiring.send(self.id, by, Kind::Relay, &head, &held.bytes);
        wiring.keep(head);
    }

    /// Everything readable was told: logs, writes and acknowledges what came together.
    pub(crate) fn end_turn<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.announced = 0;
        self.carry_out(wiring);
        self.write_followers(wiring);
        self.free_log(wiring);
    }

    /// Does what the protocol asks for, in order.
    fn carry_out<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut remaining = effects.drain(..).peekable();
        while let Some(effect) = remaining.next() {
            let by = self.id;
            if let Effect::Append { index, record, .. } = effect {
                wiring.note(|| Note::Logged { by, index, record });
            }
            match effect {
                Effect::Append { index, time_ms, record: Record::Remote(remote) } => {
                    self.remotes.push(remote);
                    let more = matches!(remaining.peek(),
                        Some(Effect::Append { index: next, .. }) if *next == index);
                    if !more {
                        self.append(wiring, index, time_ms, None);
                    }
                }
                Effect::Append { index, time_ms, record } => {
                    self.append(wiring, index, time_ms, Some(record));
                }
                Effect::Announce { to, announcement } => {
                    let about = About::Message(announcement.message);
                    wiring.note(|| Note::Told(Touch { by, to, about }));
                    let mut bytes = wiring.borrow();
                    announcement.encode(&mut bytes);
                    wiring.send(self.id, to, Kind::Announce, &bytes, &[]);
                    wiring.keep(bytes);
                }
                Effect::Acknowledge { groups, acceptance } => {
                    for to in groups.iter().flat_map(|group| self.topology.replicas_of(group)) {
                        if to != self.id {
                            let about = About::Log(acceptance.index);
                            wiring.note(|| Note::Told(Touch { by, to, about }));
                            wiring.tell_word(self.id, to, Column::Accepted, acceptance.to_word());
                        }
                    }
                }
                Effect::Fetch { message, from } => {
                    let about = About::Message(message);
                    wiring.note(|| Note::Told(Touch { by, to: from, about }));
                    let mut bytes = wiring.borrow();
                    encode_name(message, &mut bytes);
                    wiring.ask(self.id, from, Kind::Fetch, &bytes);
                    wiring.keep(bytes);
                }
                Effect::Forget { message } => self.payloads.remove(message),
                Effect::Repeat { message } => {
                    self.application.repeat(message, &mut self.said);
                    self.speak(wiring);
                }
            }
        }
        drop(remaining);
        self.effects = effects;
    }

    /// Hands to the state machine what is its turn. Returns whether there was anything.
    pub(crate) fn deliver<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        let mut any = false;
        for _ in 0..DELIVERIES_PER_TURN {
            let commit = self.core.commit_index();
            if let Some(next) = self.exchanged.pop_front_if(|next| next.index <= commit) {
                let Exchanged { message, from, result, .. } = next;
                self.application.exchanged(message, from, &result, &mut self.said);
            } else if self.application.ready()
                && let Some(next) = self.core.deliver(&mut self.effects)
            {
                wiring.note(|| Note::Delivered { by: self.id, deliver: next });
                let held = self.payloads.get(next.message).expect("accepted with its payload");
                let delivery = Delivery {
                    message: next.message,
                    low_water: next.low_water,
                    destinations: next.destinations,
                    timestamp: next.timestamp,
                    position: next.position,
                    time_ms: next.time_ms,
                    payload: &held.bytes,
                };
                self.application.deliver(delivery, &mut self.said);
                if next.message.session.is_own() {
                    self.core.end_session(next.message.session);
                }
            } else {
                break;
            }
            any = true;
            self.speak(wiring);
            self.carry_out(wiring);
        }
        any
    }

    /// Sends what the state machine said, if it is ours to say.
    fn speak<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        let mut said = std::mem::take(&mut self.said);
        let mut from = 0;
        for word in said.words.drain(..) {
            match word {
                Word::Reply { message, len } => {
                    let bytes = &said.bytes[from..from + len];
                    from += len;
                    if self.core.leads() {
                        wiring.reply(message, self.id, bytes);
                    }
                }
                Word::Exchange { message, to, len } => {
                    let bytes = &said.bytes[from..from + len];
                    from += len;
                    if self.core.leads() {
                        let mut head = wiring.borrow();
                        encode_name(message, &mut head);
                        for group in to.without(self.id.group).iter() {
                            let leader = self.core.leader_of(group);
                            let about = About::Message(message);
                            wiring.note(|| Note::Told(Touch { by: self.id, to: leader, about }));
                            wiring.send(self.id, leader, Kind::Exchange, &head, bytes);
                        }
                        wiring.keep(head);
                    }
                }
                Word::End(session) => self.core.end_session(session),
            }
        }
        said.bytes.clear();
        self.said = said;
    }

    /// The session's process is gone: what it sent and nobody logged is of no use any more.
    pub(crate) fn session_gone(&mut self, session: SessionId) {
        let core = &self.core;
        self.payloads.retain(session, |message| core.is_known(message));
    }

    /// What it holds at this moment, and what it may.
    pub(crate) fn footprint(&self, sessions: usize, waiting: usize) -> Footprint {
        let groups = usize::from(self.topology.groups);
        Footprint {
            pending: self.core.pending(),
            payloads: self.payloads.len(),
            large_bytes: self.payloads.large_bytes(),
            log_entries: self.ends.len(),
            waiting,
            sessions,
            window: self.tuning.window,
            large_bytes_max: self.tuning.held_bytes_max + sessions * self.tuning.payload_bytes_max,
            log_entries_max: self.tuning.log_bytes / HEADER,
            groups,
        }
    }

    /// Replicas of its group.
    pub(crate) const fn replicas(&self) -> u8 {
        self.topology.replicas
    }

    /// Bytes of the log ring.
    pub(crate) const fn log_bytes(&self) -> usize {
        self.tuning.log_bytes
    }
}
