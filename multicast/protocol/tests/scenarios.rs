//! Transcripts: schedules that people argue about, written down.
//!
//! A scenario is a file of blocks: commands, a line `----`, and what follows from them, in the words
//! of the protocol. `UPDATE_TRANSCRIPTS=1 cargo test -p skein-protocol --test scenarios` writes the
//! second halves anew, to be reviewed as a difference.
//!
//! | command | what happens |
//! |---|---|
//! | `groups N replicas R` | a new cluster |
//! | `write M to G …` | the session's message lands at every replica of the groups |
//! | `write M to G … at R …` | it lands at these replicas only |
//! | `turn R …` | the replica is told everything that has landed at it, and ends its turn |
//! | `complete R` | the leader's writes of its log so far are complete at all followers |
//! | `lose ack R -> R` | that replica's acceptance words to the other are held back |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::Path;

use skein_protocol::ballot::Acceptance;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::message::Announcement;
use skein_protocol::ramcast::{Config, Ramcast};
use skein_protocol::step::{Effect, Event, Record};

struct Stage {
    replicas: BTreeMap<ReplicaId, Ramcast>,
    count: u8,
    /// Messages that have landed and were not told yet.
    inbox: BTreeMap<ReplicaId, VecDeque<(MessageId, GroupSet)>>,
    announced: BTreeMap<ReplicaId, VecDeque<(ReplicaId, Announcement)>>,
    words: BTreeMap<ReplicaId, BTreeMap<ReplicaId, Acceptance>>,
    lost: BTreeSet<(ReplicaId, ReplicaId)>,
    /// What each leader has logged, and how much of it each follower has read.
    logs: BTreeMap<GroupId, Vec<(u64, Record)>>,
    read: BTreeMap<ReplicaId, usize>,
    out: String,
}

impl Stage {
    fn new(groups: u16, count: u8) -> Self {
        let ids = (0..groups).flat_map(|g| (0..count).map(move |s| ReplicaId::new(GroupId(g), s)));
        let replica = |me| {
            let config = Config { me, groups, replicas: count, fetch_after_ms: 20 };
            (me, Ramcast::new(config))
        };
        let mut stage = Self {
            replicas: ids.map(replica).collect(),
            count,
            inbox: BTreeMap::new(),
            announced: BTreeMap::new(),
            words: BTreeMap::new(),
            lost: BTreeSet::new(),
            logs: BTreeMap::new(),
            read: BTreeMap::new(),
            out: String::new(),
        };
        for id in stage.replicas.keys().copied().collect::<Vec<_>>() {
            let mut effects = Vec::new();
            stage.replicas.get_mut(&id).unwrap().start(&mut effects);
            stage.carry_out(id, effects);
        }
        stage.out.clear(); // That every leader logs its first ballot is the same everywhere.
        stage
    }

    fn turn(&mut self, id: ReplicaId) {
        let mut effects = Vec::new();
        let core = self.replicas.get_mut(&id).unwrap();
        for (by, acceptance) in self.words.remove(&id).unwrap_or_default() {
            core.step(Event::Acknowledged { by, acceptance }, &mut effects);
        }
        if !core.leads() {
            let log = self.logs.get(&id.group).map_or(&[][..], Vec::as_slice);
            let read = self.read.entry(id).or_default();
            while let Some((index, record)) = log.get(*read).copied() {
                *read += 1;
                let last = log.get(*read).is_none_or(|(next, _)| *next != index);
                let ballot = core.ballot();
                let logged = Event::Logged { index, ballot, time_ms: 0, record, held: true, last };
                core.step(logged, &mut effects);
            }
        }
        for (message, destinations) in self.inbox.remove(&id).unwrap_or_default() {
            let received = Event::Received { message, low_water: 1, destinations, inline: true };
            core.step(received, &mut effects);
        }
        for (from, announcement) in self.announced.remove(&id).unwrap_or_default() {
            core.step(Event::Announced { from, announcement }, &mut effects);
        }
        core.step(Event::TurnEnd, &mut effects);
        self.carry_out(id, effects);
        self.deliver(id);
    }

    fn deliver(&mut self, id: ReplicaId) {
        let mut effects = Vec::new();
        while let Some(next) = self.replicas.get_mut(&id).unwrap().deliver(&mut effects) {
            let name = next.message.sequence;
            writeln!(self.out, "{id} delivers m{name} at {}", next.timestamp).unwrap();
        }
        self.carry_out(id, effects);
    }

    fn complete(&mut self, id: ReplicaId) {
        let index = self.replicas[&id].last_index();
        for slot in (0..self.count).filter(|slot| *slot != id.slot) {
            let core = self.replicas.get_mut(&id).unwrap();
            core.step(Event::Completed { slot, index }, &mut Vec::new());
        }
        self.deliver(id);
    }

    fn carry_out(&mut self, id: ReplicaId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Append { index, record, .. } => {
                    self.logs.entry(id.group).or_default().push((index, record));
                    let what = match record {
                        Record::NewBallot => "NewBallot".to_owned(),
                        Record::Exchange => "Exchange".to_owned(),
                        Record::Local { message, timestamp, .. } => {
                            format!("Local m{} {timestamp}", message.sequence)
                        }
                        Record::Remote(remote) => {
                            format!("Remote m{} {}", remote.message.sequence, remote.timestamp)
                        }
                    };
                    writeln!(self.out, "{id} logs {index}: {what}").unwrap();
                }
                Effect::Announce { to, announcement } => {
                    let (name, at) = (announcement.message.sequence, announcement.timestamp);
                    writeln!(self.out, "{id} announces m{name} {at} to {to}").unwrap();
                    self.announced.entry(to).or_default().push_back((id, announcement));
                }
                Effect::Acknowledge { groups, acceptance } => {
                    let index = acceptance.index;
                    writeln!(self.out, "{id} acknowledges {index} to {groups}").unwrap();
                    let count = self.count;
                    for to in groups.iter().flat_map(|group| members(group, count)) {
                        if to != id && !self.lost.contains(&(id, to)) {
                            self.words.entry(to).or_default().insert(id, acceptance);
                        }
                    }
                }
                Effect::Fetch { message, from } => {
                    writeln!(self.out, "{id} fetches m{} from {from}", message.sequence).unwrap();
                }
                Effect::Repeat { message } => {
                    writeln!(self.out, "{id} repeats its reply to m{}", message.sequence).unwrap();
                }
                Effect::Forget { .. } => {}
            }
        }
    }

    fn command(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        match words.next().expect("no empty commands") {
            "write" => {
                let message = MessageId::new(SessionId(1), number(words.next().unwrap(), "m"));
                assert_eq!(words.next(), Some("to"));
                let (groups, at): (Vec<_>, Vec<_>) =
                    words.filter(|word| *word != "at").partition(|word| !word.contains('.'));
                let groups: GroupSet = groups.into_iter().map(group).collect();
                let everywhere =
                    groups.iter().flat_map(|group| members(group, self.count)).collect();
                let at: Vec<_> =
                    if at.is_empty() { everywhere } else { at.into_iter().map(replica).collect() };
                for id in at {
                    self.inbox.entry(id).or_default().push_back((message, groups));
                }
            }
            "turn" => words.map(replica).for_each(|id| self.turn(id)),
            "complete" => words.map(replica).for_each(|id| self.complete(id)),
            "lose" => {
                assert_eq!(words.next(), Some("ack"));
                let from = replica(words.next().unwrap());
                assert_eq!(words.next(), Some("->"));
                self.lost.insert((from, replica(words.next().unwrap())));
            }
            other => panic!("what is {other}?"),
        }
    }
}

fn members(group: GroupId, count: u8) -> impl Iterator<Item = ReplicaId> {
    (0..count).map(move |slot| ReplicaId::new(group, slot))
}

fn number(word: &str, prefix: &str) -> u64 {
    word.strip_prefix(prefix).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{word}?"))
}

fn group(word: &str) -> GroupId {
    GroupId(number(word, "g") as u16)
}

fn replica(word: &str) -> ReplicaId {
    let (of, slot) = word.split_once('.').unwrap_or_else(|| panic!("{word} is no replica"));
    ReplicaId::new(group(of), slot.parse().expect("a slot"))
}

/// The file as it should be.
fn play(script: &str) -> String {
    let mut stage = None;
    let mut written = String::new();
    let mut commands = Vec::new();
    let mut expected = false;
    for line in script.lines() {
        if line == "----" {
            expected = true;
            writeln!(written, "----").unwrap();
            for command in commands.drain(..) {
                let command: &str = command;
                if let Some(shape) = command.strip_prefix("groups ") {
                    let (groups, replicas) = shape.split_once(" replicas ").expect("a shape");
                    stage = Some(Stage::new(groups.parse().unwrap(), replicas.parse().unwrap()));
                } else {
                    stage.as_mut().expect("a cluster first").command(command);
                }
            }
            written += &std::mem::take(&mut stage.as_mut().expect("a cluster first").out);
        } else if line.is_empty() {
            expected = false;
            writeln!(written).unwrap();
        } else if !expected {
            writeln!(written, "{line}").unwrap();
            if !line.starts_with('#') {
                commands.push(line);
            }
        }
    }
    written
}

#[test]
fn transcripts_are_as_written() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut played = 0;
    for entry in std::fs::read_dir(scenarios).unwrap() {
        let path = entry.unwrap().path();
        let script = std::fs::read_to_string(&path).unwrap();
        let result = play(&script);
        if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
            std::fs::write(&path, &result).unwrap();
        } else {
            assert!(script == result, "{}\n\nis now\n\n{result}", path.display());
        }
        played += 1;
    }
    assert!(played >= 3, "the scenarios are not where they were");
}
