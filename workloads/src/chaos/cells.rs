//! Cells: a few adjacent keys over all groups that receive every command of the store.
//!
//! A cell is set, appended to, overwritten, removed, incremented and read, with conditions of every
//! kind and with else branches. An asker remembers the last results, so conditions often hold, and
//! often do not because of concurrent writes. Other transactions are interactive, made with the
//! client library's [drafts](super::interactive).

use std::collections::BTreeMap;

use rand::RngExt;
use skein_client::{Compare, Draft, Guard, KeyRange, Operation, Outcome, ReadMode, Reply, Shape};
use skein_client::{Test, Transaction, Waiting};
use skein_kvstore::limits::Limits;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::{Topology, Tuning};
use skein_multicast::layout::Layout;
use skein_protocol::ids::GroupId;

use super::interactive::{Asked, Interactive, Open};
use super::objects::Asker;

/// Cells per group that hold tokens, and cells per group that hold numbers.
const TOKENS: u64 = 4;
const NUMBERS: u64 = 2;
/// Most pairs of a page.
const PAGE_MAX: u32 = 4;

/// The names of one run's cells.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// Prefix of all cells and of no other key.
    prefix: String,
    /// Hash tag per group, which maps a key to the group.
    tags: Vec<String>,
    slots: SlotMap,
    /// The cluster's shape, for drafts.
    shape: Shape,
    /// Token cells per group.
    tokens: u64,
}

/// An asker's last results on cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Values and versions of keys; `None` if the key had no value.
    read: BTreeMap<Vec<u8>, Option<(Vec<u8>, u64)>>,
    interactive: Interactive,
}

impl Memory {
    pub(super) fn told(&mut self, asked: &Transaction, reply: &Reply) {
        self.interactive.told(asked, reply);
        let branch = if reply.held { &asked.then } else { &asked.otherwise };
        for (operation, outcome) in branch.iter().zip(&reply.outcomes) {
            match (operation, outcome) {
                (Operation::Get { key }, Outcome::Value(found)) if is_cell(key) => {
                    self.read.insert(key.clone(), found.clone());
                }
                (Operation::Put { key, value }, Outcome::Written(version)) if is_cell(key) => {
                    self.read.insert(key.clone(), Some((value.clone(), *version)));
                }
                (Operation::Delete { key }, Outcome::Flag(_)) if is_cell(key) => {
                    self.read.insert(key.clone(), None);
                }
                _ => {}
            }
        }
    }

    fn value(&self, key: &[u8]) -> Option<&(Vec<u8>, u64)> {
        self.read.get(key).and_then(Option::as_ref)
    }
}

/// Mostly, a write that returns no version is followed by a read of the cell: without versions the
/// order of many writes to few cells could not be determined.
fn read_again(asker: &mut Asker, one: &Operation) -> Option<Operation> {
    let untold = matches!(
        one,
        Operation::Append { .. } | Operation::Increment { .. } | Operation::Patch { .. }
    );
    let key = one.key().filter(|_| untold && asker.random.random_bool(0.8))?.clone();
    Some(Operation::Get { key })
}

fn is_cell(key: &[u8]) -> bool {
    key.windows(6).any(|part| part == b"/cell/")
}

impl Cells {
    pub(super) fn new(run: &str, slots: &SlotMap, groups: u16) -> Self {
        let tag = |group| {
            let mut tags = (0..1_000_000).map(|number| format!("{{{number}}}"));
            tags.find(|tag| slots.owner(tag.as_bytes()) == GroupId(group))
                .expect("every group owns its share of hash slots")
        };
        let topology = Topology { nodes: 1, groups, replicas: 1, engines: 1 };
        let layout = Layout::propose(topology).expect("a cluster has 1 to 64 groups");
        Self {
            prefix: format!("chaos/{run}/cell/"),
            tags: (0..groups).map(tag).collect(),
            slots: slots.clone(),
            shape: Shape {
                layout,
                tuning: Tuning::default(),
                slots: slots.clone(),
                limits: Limits::default(),
                waiting: Waiting::Park,
            },
            tokens: TOKENS,
        }
    }

    /// The same with one token cell per group.
    pub(super) fn scarce(self) -> Self {
        Self { tokens: 1, ..self }
    }

    /// A transaction to send, and whether it concerns several groups.
    pub(super) fn draw(&self, asker: &mut Asker) -> (Transaction, bool) {
        let transaction = match asker.random.random_range(0..100) {
            0..30 => self.alone(asker),
            30..40 => Transaction::of(self.scan(asker)),
            40..70 => self.guarded(asker),
            _ => self.interactive(asker),
        };
        let many = self.concerns_many(&transaction);
        (transaction, many)
    }

    fn concerns_many(&self, transaction: &Transaction) -> bool {
        let Transaction { guards, then, otherwise } = transaction;
        let keys = guards.iter().map(Guard::only_key);
        let keys = keys.chain(then.iter().chain(otherwise).map(Operation::key));
        let mut groups: Vec<_> = keys.map(|key| key.map(|key| self.slots.owner(key))).collect();
        groups.sort_unstable();
        groups.dedup();
        self.tags.len() > 1 && (groups.len() > 1 || groups.contains(&None))
    }

    fn tag(&self, asker: &mut Asker) -> &str {
        &self.tags[asker.random.random_range(0..self.tags.len())]
    }

    fn cell(&self, asker: &mut Asker) -> Vec<u8> {
        let number = asker.random.random_range(0..self.tokens);
        format!("{}{number}{}", self.prefix, self.tag(asker)).into_bytes()
    }

    fn number(&self, asker: &mut Asker) -> Vec<u8> {
        let number = asker.random.random_range(0..NUMBERS);
        format!("{}n{number}{}", self.prefix, self.tag(asker)).into_bytes()
    }

    fn scan(&self, asker: &mut Asker) -> Operation {
        let number = asker.random.random_range(0..=self.tokens);
        let from = if asker.random.random_bool(0.5) { String::new() } else { number.to_string() };
        let start = format!("{}{from}", self.prefix).into_bytes();
        let mut end = self.prefix.clone().into_bytes();
        end.pop();
        end.push(b'/' + 1); // The first key after all keys with the prefix.
        Operation::Scan { start, end: Some(end), limit: asker.random.random_range(1..=PAGE_MAX) }
    }

    /// A random write.
    fn write(&self, asker: &mut Asker) -> Operation {
        let key = self.cell(asker);
        match asker.random.random_range(0..12) {
            0..4 => Operation::Put { key, value: asker.token() },
            4 => Operation::Append { key, value: asker.token() },
            5 => {
                let offset = asker.random.random_range(0..20);
                Operation::Patch { key, offset, bytes: asker.token() }
            }
            6..8 => Operation::Delete { key },
            8 => Operation::Delete { key: self.number(asker) },
            _ => {
                let by = asker.random.random_range(-1..3);
                Operation::Increment { key: self.number(asker), by }
            }
        }
    }

    fn read(&self, asker: &mut Asker) -> Operation {
        match asker.random.random_range(0..4) {
            0 => Operation::Exists { key: self.cell(asker) },
            1 => Operation::Get { key: self.number(asker) },
            _ => Operation::Get { key: self.cell(asker) },
        }
    }

    /// One or two unconditional operations.
    fn alone(&self, asker: &mut Asker) -> Transaction {
        let mut transaction = Transaction::default();
        for _ in 0..asker.random.random_range(1..3) {
            let reads = asker.random.random_bool(0.5);
            let one = if reads { self.read(asker) } else { self.write(asker) };
            let again = read_again(asker, &one);
            transaction = transaction.then(one);
            transaction.then.extend(again);
        }
        transaction
    }

    /// A random condition on a key.
    fn guard(&self, asker: &mut Asker) -> Guard {
        let key = self.cell(asker);
        let known = asker.memory.value(&key).cloned();
        let test = match asker.random.random_range(0..9) {
            0 => Test::Exists,
            1 => Test::Missing,
            2 => Test::Equals(known.map_or_else(|| b"nothing".to_vec(), |(value, _)| value)),
            3 => Test::Version(known.map_or(0, |(_, version)| version)),
            of => {
                let key = self.number(asker);
                let known = asker.memory.value(&key);
                let known =
                    known.and_then(|(text, _)| std::str::from_utf8(text).ok()?.parse().ok());
                let number = known.unwrap_or(0_i64) + asker.random.random_range(-1..2);
                let compare = match of {
                    4 => Compare::Less,
                    5 => Compare::AtMost,
                    6 => Compare::Equal,
                    7 => Compare::AtLeast,
                    _ => Compare::Greater,
                };
                return Guard { key, test: Test::Number { compare, number } };
            }
        };
        Guard { key, test }
    }

    /// A transaction with conditions and an else branch.
    fn guarded(&self, asker: &mut Asker) -> Transaction {
        let mut transaction = Transaction::default();
        for _ in 0..asker.random.random_range(1..3) {
            transaction.guards.push(self.guard(asker));
        }
        let written = self.write(asker);
        let read = read_again(asker, &written).unwrap_or_else(|| self.read(asker));
        let transaction = transaction.then(written).then(read);
        match asker.random.random_range(0..3) {
            0 => transaction,
            1 => {
                let other = self.write(asker);
                transaction.otherwise(other)
            }
            _ => {
                let other = self.read(asker);
                transaction.otherwise(other)
            }
        }
    }

    /// The next transaction of a draft, or an unrelated one while the draft waits for an answer.
    fn interactive(&self, asker: &mut Asker) -> Transaction {
        let begin = |reads| {
            let draft = Draft::new(&self.shape, ReadMode::Confirmed);
            Open { draft, reads }
        };
        let reads = asker.random.random_range(1..4);
        let Some(mut open) = asker.memory.interactive.take(|| begin(reads)) else {
            return self.guarded(asker);
        };
        while let Some(left) = open.reads.checked_sub(1) {
            open.reads = left;
            let (asked, transaction) = match asker.random.random_range(0..4) {
                0 => {
                    let Operation::Scan { start, end, limit } = self.scan(asker) else {
                        unreachable!("a scan was drawn")
                    };
                    let end = end.expect("it ends before other keys");
                    let range = KeyRange::of(start..end);
                    let Ok(transaction) = open.draft.scan(&range, limit) else { continue };
                    (Asked::Page(range, limit), transaction)
                }
                which => {
                    let key = if which == 1 { self.number(asker) } else { self.cell(asker) };
                    // The draft does not read a key that it already knows.
                    let Ok(None) = open.draft.get(&key) else { continue };
                    (Asked::Key(key.clone()), Transaction::of(Operation::Get { key }))
                }
            };
            asker.memory.interactive.wait(open, asked, &transaction);
            return transaction;
        }
        let draft = &mut open.draft;
        for number in 0..asker.random.random_range(1..3) {
            // A draft that refuses an operation goes on without it.
            let _ = match asker.random.random_range(0..5) {
                0 => draft.delete(self.cell(asker)),
                // Two appends to a cell would form a token of another length.
                1 if number == 0 => draft.append(self.cell(asker), asker.token()),
                2 => draft.increment(self.number(asker), asker.random.random_range(-1..3)),
                _ => draft.put(self.cell(asker), asker.token()),
            };
        }
        match draft.commit(&self.shape) {
            Some(transaction) => {
                asker.memory.interactive.wait(open, Asked::Commit, &transaction);
                transaction
            }
            None => self.alone(asker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::once;
    use crate::model::Model;

    #[test]
    fn interactive_transactions_read_commit_and_are_overtaken() {
        let slots = SlotMap::even(2);
        let cells = Cells::new("test", &slots, 2);
        let mut askers = [Asker::new(1, 1), Asker::new(1, 2)];
        let mut model = Model::over(slots);
        let (mut done, mut overtaken, mut ranges) = (0, 0, 0);
        for round in 0..4_000 {
            let asker = &mut askers[round % 2];
            let transaction = cells.interactive(asker);
            let Ok(reply) = once(&mut model, &transaction) else { continue };
            let commits = matches!(
                &asker.memory.interactive,
                Interactive::Waiting { asked: Asked::Commit, .. }
            );
            if commits && !transaction.guards.is_empty() {
                *if reply.held { &mut done } else { &mut overtaken } += 1;
                let is_range = |guard: &Guard| matches!(guard.test, Test::Unchanged { .. });
                ranges += usize::from(transaction.guards.iter().any(is_range));
            }
            asker.told(&transaction, &reply);
        }
        assert!(done > 100 && overtaken > 100 && ranges > 100, "{done} {overtaken} {ranges}");
    }
}
