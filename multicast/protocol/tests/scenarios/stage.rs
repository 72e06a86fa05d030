//! A cluster in miniature: cores that are handed everything by hand, and what joins them in so far
//! as an order of events depends on it. Logs that only the holder of a grant can write, headers,
//! reports, adoption, and a state that is given away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::runs::Runs;
use skein_protocol::group::transfer::Request;
use skein_protocol::group::{GroupConfig, GroupEvent, GroupRecord};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::announcement::Announcement;
use skein_protocol::ramcast::{Cause, Config, Heard, Ramcast, Told};
use skein_protocol::ramcast::{Effect, Event, Record};
use skein_protocol::rank::Rank;
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::{Answer, ByHand, Vote};

/// An entry of a log: its index, where it was born, what it says.
#[derive(Clone)]
struct Entry {
    index: u64,
    birth: Ballot,
    records: Vec<Record>,
}

/// With what a leader begins to write a follower's log.
struct Header {
    ballot: Ballot,
    base: Cursor,
    first: u64,
}

/// A replica with its memory.
pub(crate) struct Node {
    pub(crate) core: Ramcast,
    pub(crate) life: u32,
    /// What it holds of its group's log, and the births of all of it.
    log: Vec<Entry>,
    runs: Runs,
    /// Who may write that log, and what was written and is not read.
    writer: Option<Ballot>,
    /// As candidate or leader: whether it has others give up a leader that is well.
    forced: bool,
    header: Option<Header>,
    unread: VecDeque<Entry>,
    /// As leader: up to where each follower's log is written.
    feeding: BTreeMap<u8, u64>,
    /// Messages that have landed and were not told yet.
    inbox: VecDeque<(MessageId, GroupSet)>,
    /// All that have: whoever leads after another proposes what nobody has logged.
    held: BTreeMap<MessageId, GroupSet>,
    announced: VecDeque<(ReplicaId, Announcement)>,
    words: BTreeMap<ReplicaId, Acceptance>,
    pub(crate) applied: Timestamp,
    pub(crate) delivered: Vec<(u64, Timestamp)>,
}

/// All of them.
pub(crate) struct Stage {
    pub(crate) nodes: BTreeMap<ReplicaId, Node>,
    groups: u16,
    count: u8,
    now_ms: u64,
    /// Acceptance words as they were told last: they are told again to whoever comes back.
    told: BTreeMap<(ReplicaId, ReplicaId), Acceptance>,
    lost_words: BTreeSet<(ReplicaId, ReplicaId)>,
    lost_writes: BTreeSet<(ReplicaId, ReplicaId)>,
    /// What happened, in the words of the protocol.
    pub(crate) out: String,
}

pub(crate) fn replica(group: u16, slot: u8) -> ReplicaId {
    ReplicaId::new(GroupId(group), slot)
}

pub(crate) fn message(number: u64) -> MessageId {
    MessageId::new(SessionId(1), number)
}

/// Whether an incarnation of a slot that has applied so much, and asks for anybody's state, is sent this one's.
pub(crate) fn sends_state(core: &mut Ramcast, slot: u8, incarnation: u32, applied: Rank) -> bool {
    let needs = Some(Ballot::ZERO);
    let request = Request { slot, incarnation, needs, applied, taken: None };
    let begins = core.asked_for_state(&request, true) == Answer::Begin;
    assert_eq!(core.stops_sending(slot), begins);
    begins
}

pub(crate) fn config(me: ReplicaId, life: u32, groups: u16, replicas: u8) -> Config {
    let group = GroupConfig {
        me,
        incarnation: life,
        replicas,
        patience_ms: 20,
        beat_ms: 5,
        missed_max: 20,
        lease_ms: 40,
        evict_after_ms: 100,
        clock_skew_percent: 10,
        // The leader of the only group has nobody to spread from.
        spread_after_ms: if groups > 1 { 3_000 } else { 0 },
        lag_max: 64,
    };
    Config { group, groups, fetch_after_ms: 20 }
}

/// A log's births, with every entry as long as any other.
fn place(index: u64) -> Cursor {
    Cursor { index: index + 1, position: index * 64 }
}

impl Node {
    fn new(me: ReplicaId, life: u32, groups: u16, replicas: u8) -> Self {
        Self {
            core: Ramcast::new(config(me, life, groups, replicas), View::first(replicas)),
            life,
            log: Vec::new(),
            runs: Runs::EMPTY,
            writer: None,
            forced: false,
            header: None,
            unread: VecDeque::new(),
            feeding: BTreeMap::new(),
            inbox: VecDeque::new(),
            held: BTreeMap::new(),
            announced: VecDeque::new(),
            words: BTreeMap::new(),
            applied: Timestamp::ZERO,
            delivered: Vec::new(),
        }
    }

    /// Takes what stands behind its log into it.
    fn take(&mut self, entry: Entry, effects: &mut Vec<Effect>) {
        let Entry { index, birth, records } = &entry;
        for (i, record) in records.iter().enumerate() {
            let (index, birth, record) = (*index, *birth, *record);
            let last = i + 1 == records.len();
            let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last };
            self.core.step(event, effects);
        }
        self.runs.push(*birth, index * 64, self.core.log().commit_index());
        self.log.push(entry);
    }

    fn cut(&mut self, base: Cursor) {
        self.runs.truncate(base);
        self.log.retain(|entry| entry.index < base.index);
    }
}

impl Stage {
    /// A cluster in which slot 0 of each group leads, and everybody knows it.
    pub(crate) fn new(groups: u16, count: u8) -> Self {
        let mut stage = Self::unled(groups, count);
        for group in 0..groups {
            let leader = replica(group, 0);
            stage.campaign(leader, Cause::Start);
            for slot in 1..count {
                stage.ask(leader, replica(group, slot));
            }
        }
        let all: Vec<_> = stage.nodes.keys().copied().collect();
        for id in all.iter().chain(&all).copied() {
            stage.turn(id);
        }
        stage.out.clear(); // It is the same everywhere.
        stage
    }

    /// A cluster in which nobody has set out to lead.
    pub(crate) fn unled(groups: u16, count: u8) -> Self {
        let ids = (0..groups).flat_map(|group| (0..count).map(move |slot| replica(group, slot)));
        Self {
            nodes: ids.map(|id| (id, Node::new(id, 0, groups, count))).collect(),
            groups,
            count,
            now_ms: 0,
            told: BTreeMap::new(),
            lost_words: BTreeSet::new(),
            lost_writes: BTreeSet::new(),
            out: String::new(),
        }
    }

    pub(crate) fn node(&mut self, id: ReplicaId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a replica of the cluster")
    }

    pub(crate) fn core(&mut self, id: ReplicaId) -> &mut Ramcast {
        &mut self.node(id).core
    }

    /// What it has delivered: numbers of messages.
    pub(crate) fn delivered(&self, id: ReplicaId) -> Vec<u64> {
        self.nodes[&id].delivered.iter().map(|(number, _)| *number).collect()
    }

    /// What happened since this was asked last.
    pub(crate) fn told(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn say(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{what}").expect("memory");
    }

    pub(crate) fn members(&self, group: GroupId) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.count).map(move |slot| ReplicaId::new(group, slot))
    }

    /// Its acceptance words to the other are held back, until they are told anew.
    pub(crate) fn lose_words(&mut self, from: ReplicaId, to: ReplicaId) {
        self.lost_words.insert((from, to));
    }

    /// Its writes into the other's log do not arrive.
    pub(crate) fn lose_writes(&mut self, from: ReplicaId, to: ReplicaId) {
        self.lost_writes.insert((from, to));
    }

    /// Words and writes arrive again; words are told anew.
    pub(crate) fn heal(&mut self) {
        self.lost_words.clear();
        self.lost_writes.clear();
        for ((by, to), acceptance) in self.told.clone() {
            self.node(to).words.insert(by, acceptance);
        }
    }

    /// The others of its group see its heartbeats no more.
    pub(crate) fn silence(&mut self, id: ReplicaId) {
        for other in self.members(id.group).filter(|other| *other != id) {
            for _ in 0..500 {
                let event = Event::Heartbeat { slot: id.slot, pulse: Pulse::Missed };
                self.core(other).step(event, &mut Vec::new());
            }
        }
    }

    /// A session's message lands in a replica's memory.
    pub(crate) fn land(&mut self, id: ReplicaId, message: MessageId, destinations: GroupSet) {
        let node = self.node(id);
        node.inbox.push_back((message, destinations));
        node.held.insert(message, destinations);
    }

    /// The replica is told everything that has landed in its memory, and ends its turn.
    pub(crate) fn turn(&mut self, id: ReplicaId) {
        let mut effects = Vec::new();
        let node = self.node(id);
        for (by, acceptance) in std::mem::take(&mut node.words) {
            node.core.step(Event::Acknowledged { by, acceptance }, &mut effects);
        }
        self.read_log(id, &mut effects);
        let node = self.node(id);
        for (message, destinations) in std::mem::take(&mut node.inbox) {
            let received = Event::Received { message, low_water: 1, destinations, inline: true };
            node.core.step(received, &mut effects);
        }
        for (message, destinations) in node.held.clone() {
            if node.core.log().leads() && !node.core.is_known(message) {
                let received =
                    Event::Received { message, low_water: 1, destinations, inline: true };
                node.core.step(received, &mut effects);
            }
        }
        for (from, announcement) in std::mem::take(&mut node.announced) {
            node.core.step(Event::Heard(Heard::Announced { from, announcement }), &mut effects);
        }
        node.core.step(Event::TurnEnd, &mut effects);
        self.carry_out(id, effects);
        self.deliver(id);
    }

    fn read_log(&mut self, id: ReplicaId, effects: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(&id).expect("a replica of the cluster");
        if let Some(Header { ballot, base, first }) = node.header.take() {
            let lost = node.core.log().last_index().saturating_sub(base.index - 1);
            node.core.begin_to_follow(ballot, base.index - 1, first);
            node.cut(base);
            if lost > 0 {
                let from = base.index;
                writeln!(self.out, "{id} cuts its log off from {from} on").expect("memory");
            }
            let (slot, timestamp) = (id.slot, node.applied);
            let leader = ReplicaId::new(id.group, ballot.slot());
            self.core(leader)
                .step(Event::Applied { slot, rank: timestamp.into() }, &mut Vec::new());
        }
        let node = self.nodes.get_mut(&id).expect("a replica of the cluster");
        while let Some(entry) = node.unread.pop_front() {
            node.take(entry, effects);
        }
    }

    fn deliver(&mut self, id: ReplicaId) {
        while let Some(next) = self.core(id).deliver() {
            let (name, at) = (next.message.sequence, Timestamp::from(next.rank));
            self.say(format_args!("{id} delivers m{name} at {at}"));
            let node = self.node(id);
            node.delivered.push((name, at));
            node.applied = at;
        }
    }

    /// The leader learns that all it wrote is in its followers' memory, or that it is denied.
    pub(crate) fn complete(&mut self, id: ReplicaId) {
        let (ballot, feeding) = (self.core(id).log().ballot(), self.node(id).feeding.clone());
        for (slot, index) in feeding {
            let follower = ReplicaId::new(id.group, slot);
            if self.node(follower).writer == Some(ballot) {
                if !self.lost_writes.contains(&(id, follower)) {
                    self.core(id).step(Event::Completed { slot, index }, &mut Vec::new());
                }
            } else if self.core(id).log().leads() {
                self.say(format_args!("{id} is denied by {follower}, and steps down"));
                self.core(id).step(Event::Denied, &mut Vec::new());
                self.node(id).feeding.clear();
            }
        }
        self.deliver(id);
    }

    /// Time passes for all but those that are down: everybody is seen to be alive, and says how far
    /// it has applied what it delivers.
    pub(crate) fn pass(&mut self, ms: u64, down: &[ReplicaId]) {
        self.now_ms += ms;
        let up: Vec<_> = self.nodes.keys().copied().filter(|id| !down.contains(id)).collect();
        for id in up.iter().copied() {
            let others: Vec<_> = self.members(id.group).filter(|other| *other != id).collect();
            for other in others {
                let (slot, timestamp) = (other.slot, self.nodes[&other].applied);
                let dead = down.contains(&other);
                let pulse = if dead { Pulse::Dead } else { Pulse::Beat };
                let core = self.core(id);
                core.step(Event::Heartbeat { slot, pulse }, &mut Vec::new());
                if !dead {
                    core.step(Event::Applied { slot, rank: timestamp.into() }, &mut Vec::new());
                }
            }
        }
        for id in up {
            let (now_ms, applied) = (self.now_ms, self.node(id).applied);
            let mut effects = Vec::new();
            let core = self.core(id);
            core.step(Event::Applied { slot: id.slot, rank: applied.into() }, &mut effects);
            core.step(Event::Tick { now_ms }, &mut effects);
            self.carry_out(id, effects);
        }
    }

    /// A replica sets out to lead.
    pub(crate) fn campaign(&mut self, id: ReplicaId, cause: Cause) {
        self.close_log(id);
        let ballot = self.core(id).campaign(cause);
        self.say(format_args!("{id} sets out to lead in {ballot}"));
        let node = self.node(id);
        node.feeding.clear();
        node.forced = matches!(cause, Cause::Transfer | Cause::Succession | Cause::Outbid);
        node.writer = Some(ballot);
        let (life, last) =
            (node.life, (node.core.log().inspect().last_birth(), node.core.log().last_index()));
        let named = node.core.log().named();
        let won = node.core.granted(id.slot, life, last, named);
        assert!(won.is_none(), "nobody is a quorum");
    }

    /// A replica sets out to lead whatever others think of it, in a ballot above all of theirs.
    pub(crate) fn run(&mut self, id: ReplicaId, asking: &[ReplicaId]) {
        for other in asking {
            let promised = self.core(*other).log().promised();
            self.core(id).hear_refusal(promised);
        }
        self.campaign(id, Cause::Transfer);
        for other in asking {
            self.ask(id, *other);
        }
    }

    /// A candidate, or a leader, asks to write another's log.
    pub(crate) fn ask(&mut self, from: ReplicaId, to: ReplicaId) {
        let core = self.core(from);
        let leads = core.log().leads();
        let (ballot, admitted) = (core.log().promised(), core.log().admitted());
        let forced = self.node(from).forced;
        self.core(to).hear_admitted(ballot, admitted[usize::from(to.slot)]);
        match self.core(to).judge(ballot, leads, forced) {
            Vote::Nothing => {
                self.say(format_args!("{to} does not answer {from}"));
            }
            Vote::Refuse => {
                let promised = self.core(to).log().promised();
                self.say(format_args!("{to} refuses {ballot}, by its promise of {promised}"));
                self.core(from).hear_refusal(promised);
            }
            Vote::GrantAgain => {
                self.close_log(to);
                self.report(to, from, ballot);
            }
            Vote::Grant => {
                self.close_log(to);
                self.core(to).let_lead(ballot);
                self.node(to).feeding.clear();
                self.report(to, from, ballot);
            }
        }
    }

    /// Nobody can write the log any more; what is in it is read.
    fn close_log(&mut self, id: ReplicaId) {
        let mut effects = Vec::new();
        self.node(id).writer = None;
        self.read_log(id, &mut effects);
        self.core(id).step(Event::TurnEnd, &mut effects);
        self.carry_out(id, effects);
    }

    fn report(&mut self, by: ReplicaId, to: ReplicaId, ballot: Ballot) {
        let node = self.node(by);
        node.writer = Some(ballot);
        let (birth, last, named) = (
            node.core.log().inspect().last_birth(),
            node.core.log().last_index(),
            node.core.log().named(),
        );
        let life = node.life;
        match birth {
            Ballot::ZERO => self.say(format_args!("{by} grants {ballot}; its log is empty")),
            _ => self.say(format_args!("{by} grants {ballot}; its log ends at {last}, of {birth}")),
        }
        if self.core(to).log().leads() {
            self.admit(to, by);
        } else if let Some(best) = self.core(to).granted(by.slot, life, (birth, last), named) {
            self.win(to, ReplicaId::new(to.group, best));
        }
    }

    fn win(&mut self, id: ReplicaId, best: ReplicaId) {
        let mut effects = Vec::new();
        if best != id {
            self.say(format_args!("{id} takes over the log of {best}"));
            let (runs, log) = (self.nodes[&best].runs.clone(), self.nodes[&best].log.clone());
            let node = self.node(id);
            let base = node.runs.shared(&runs).expect("few leaders");
            node.core.happens(GroupEvent::CutOff { last: base.index - 1 });
            node.cut(base);
            for entry in log.into_iter().filter(|entry| entry.index >= base.index) {
                node.take(entry, &mut effects);
            }
            node.core.step(Event::TurnEnd, &mut effects);
        }
        self.core(id).begin_to_lead(&mut effects);
        self.carry_out(id, effects);
        let ballot = self.core(id).log().ballot();
        for slot in 0..self.count {
            let granter = ReplicaId::new(id.group, slot);
            if slot != id.slot && self.nodes[&granter].writer == Some(ballot) {
                self.admit(id, granter);
            }
        }
    }

    /// The leader begins to write a log that was opened to it, from where it differs from its own.
    fn admit(&mut self, leader: ReplicaId, follower: ReplicaId) {
        let (runs, life) = (self.nodes[&follower].runs.clone(), self.nodes[&follower].life);
        let node = self.node(leader);
        let base = node.runs.shared(&runs).expect("few leaders");
        let (ballot, first) = (node.core.log().ballot(), node.core.log().first_index());
        node.core.feeds(follower.slot, life);
        node.feeding.insert(follower.slot, base.index - 1);
        if !self.lost_writes.contains(&(leader, follower)) {
            let node = self.node(follower);
            node.header = Some(Header { ballot, base, first });
            node.unread.clear();
        }
        self.write_followers(leader);
    }

    fn write_followers(&mut self, leader: ReplicaId) {
        let node = &self.nodes[&leader];
        let (ballot, last, log) =
            (node.core.log().ballot(), node.core.log().last_index(), node.log.clone());
        for (slot, sent) in node.feeding.clone() {
            let id = ReplicaId::new(leader.group, slot);
            self.node(leader).feeding.insert(slot, last);
            let lost = self.lost_writes.contains(&(leader, id));
            let follower = self.node(id);
            if follower.writer == Some(ballot) && !lost {
                follower.unread.extend(log.iter().filter(|entry| entry.index > sent).cloned());
            }
        }
    }

    /// A replica's process is started anew, without its memory.
    pub(crate) fn restart(&mut self, id: ReplicaId) {
        let life = self.node(id).life + 1;
        let (groups, count) = (self.groups, self.count);
        *self.node(id) = Node::new(id, life, groups, count);
        for member in self.members(id.group) {
            self.node(member).feeding.remove(&id.slot);
        }
        self.told.retain(|(by, _), _| *by != id);
        let words = self.told.iter().filter(|((_, to), _)| *to == id);
        self.node(id).words = words.map(|((by, _), word)| (*by, *word)).collect();
    }

    /// A leader gives its state to a replica that has none, and writes its log from there on.
    pub(crate) fn teach(&mut self, leader: ReplicaId, learner: ReplicaId) {
        self.give_state(leader, learner);
        self.ask(leader, learner);
    }

    /// A leader gives its state to a replica that has none.
    pub(crate) fn give_state(&mut self, leader: ReplicaId, learner: ReplicaId) {
        let mut state = Vec::new();
        let node = self.node(leader);
        node.core.save(&mut state);
        let (commit, applied) = (node.core.log().commit_index(), node.applied);
        let mut runs = node.runs.clone();
        runs.truncate(place(commit));
        let delivered = node.delivered.clone();
        let node = self.node(learner);
        node.core.takes(&state);
        (node.runs, node.applied) = (runs, applied);
        (node.log, node.delivered) = (Vec::new(), delivered);
        (node.header, node.unread) = (None, VecDeque::new());
        self.say(format_args!("{leader} gives {learner} its state, up to {commit}"));
    }

    /// A leader logs that a life of a follower counts from here on.
    pub(crate) fn let_in(&mut self, leader: ReplicaId, follower: ReplicaId) {
        let (mut effects, life) = (Vec::new(), self.node(follower).life);
        self.core(leader).caught_up(follower.slot, life, &mut effects);
        self.carry_out(leader, effects);
    }

    /// A leader logs that the log waits for a slot no more.
    pub(crate) fn evict(&mut self, leader: ReplicaId, slot: u8) -> bool {
        let mut effects = Vec::new();
        let done = self.core(leader).evicts(slot, &mut effects);
        self.carry_out(leader, effects);
        done
    }

    fn announce(&mut self, id: ReplicaId, to: ReplicaId, announcement: Announcement) {
        let (name, at) = (announcement.message.sequence, announcement.timestamp);
        let (index, ballot) = (announcement.index, announcement.ballot);
        let again = if announcement.again.is_some() { ", and asks about it" } else { "" };
        let of = match ballot.counter() {
            1 => String::new(),
            _ => format!(", {index} of {ballot}"),
        };
        self.say(format_args!("{id} announces m{name} {at}{of} to {to}{again}"));
        self.node(to).announced.push_back((id, announcement));
    }

    pub(crate) fn carry_out(&mut self, id: ReplicaId, effects: Vec<Effect>) {
        let birth = self.core(id).log().ballot();
        for effect in effects {
            match effect {
                Effect::Append { index, record, .. } => {
                    let records = self.core(id).logged(index, record);
                    for record in records {
                        self.say(format_args!("{id} logs {index}: {}", told(record)));
                        let node = self.node(id);
                        let last = node.log.last_mut();
                        if let Some(entry) = last.filter(|entry| entry.index == index) {
                            entry.records.push(record);
                        } else {
                            node.runs.push(birth, index * 64, node.core.log().commit_index());
                            node.log.push(Entry { index, birth, records: vec![record] });
                        }
                    }
                }
                Effect::Tell(Told::Propose { announcement }) => {
                    for group in announcement.destinations.without(id.group).iter() {
                        let to = self.core(id).leader_of(group);
                        self.announce(id, to, announcement);
                    }
                }
                Effect::Tell(Told::Announce { to, announcement }) => {
                    self.announce(id, to, announcement);
                }
                Effect::Acknowledge { groups, acceptance } => {
                    let index = acceptance.index;
                    self.say(format_args!("{id} acknowledges {index} to {groups}"));
                    let all: Vec<_> = groups.iter().flat_map(|group| self.members(group)).collect();
                    for to in all.into_iter().filter(|to| *to != id) {
                        self.told.insert((id, to), acceptance);
                        if !self.lost_words.contains(&(id, to)) {
                            self.node(to).words.insert(id, acceptance);
                        }
                    }
                }
                Effect::Settle { group, rank } => {
                    let timestamp = Timestamp::from(rank);
                    self.say(format_args!(
                        "{id} tells {group}: all of us are done up to {timestamp}"
                    ));
                    for to in self.members(group).filter(|to| *to != id) {
                        let event = Event::Settled { group: id.group, rank: timestamp.into() };
                        self.core(to).step(event, &mut Vec::new());
                    }
                }
                Effect::Fetch { message, from } => {
                    self.say(format_args!("{id} fetches m{} from {from}", message.sequence));
                }
                Effect::Repeat { message } => {
                    self.say(format_args!("{id} repeats its reply to m{}", message.sequence));
                }
                Effect::Forget { .. }
                | Effect::Group(_)
                | Effect::Tell(Told::Pass { .. })
                | Effect::Resend { .. }
                | Effect::Settled { .. } => {}
            }
        }
        if self.core(id).log().leads() {
            self.write_followers(id);
        }
    }
}

fn told(record: Record) -> String {
    match record {
        Record::Group(GroupRecord::NewBallot) => "NewBallot".to_owned(),
        Record::Exchange => "Exchange".to_owned(),
        Record::Local { message, timestamp, .. } => {
            format!("Local m{} {timestamp}", message.sequence)
        }
        Record::Remote(remote) => {
            format!("Remote m{} {}", remote.message.sequence, remote.timestamp)
        }
        Record::Decided(decision) => {
            format!("Decided m{} {}", decision.message.sequence, decision.timestamp)
        }
        Record::Raise { timestamp } => format!("Raise {timestamp}"),
        Record::Group(GroupRecord::Evict { slot }) => format!("Evict {slot}"),
        Record::Group(GroupRecord::Join { slot, incarnation }) => {
            format!("Join {slot}, life {incarnation}")
        }
    }
}
