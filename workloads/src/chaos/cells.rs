//! Cells: a few keys side by side, over all groups, that get every command of the store.
//!
//! A cell is set, appended to, overwritten, removed, counted in and looked for, with conditions of every kind and
//! with something else to do if they do not hold. Who asks remembers what it was told last: so conditions often
//! hold, and often do not, because somebody else was there meanwhile. What an interactive transaction commits
//! is of this kind: conditions on the versions that were read, and on a range that was scanned.

use std::collections::BTreeMap;

use rand::RngExt;
use skein_client::{Compare, Guard, Operation, Outcome, Reply, Test, Transaction};
use skein_kvstore::range::RangeDigest;
use skein_kvstore::slots::SlotMap;
use skein_protocol::ids::GroupId;

use super::objects::Asker;

/// Cells of a group that hold tokens, and of those that hold numbers.
const TOKENS: u64 = 2;
const NUMBERS: u64 = 1;
/// A page has so many pairs at most.
const PAGE_MAX: u32 = 4;

/// The names of one run's cells.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// All begin with this, and no other key does.
    prefix: String,
    /// What stands in the keys of each group, and takes them there.
    tags: Vec<String>,
    slots: SlotMap,
    /// Of each group.
    tokens: u64,
}

/// What somebody was told last of the cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// The values and versions of keys; nothing, where there was nothing.
    read: BTreeMap<Vec<u8>, Option<(Vec<u8>, u64)>>,
    /// The last page: where it began, where it ended, and its pairs.
    page: Option<Range>,
}

type Range = (Vec<u8>, Option<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>);

impl Memory {
    pub(super) fn told(&mut self, asked: &Transaction, reply: &Reply) {
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
                (Operation::Scan { start, end, .. }, Outcome::Page(page)) if reply.held => {
                    let end = page.next.clone().or_else(|| end.clone());
                    // What it wrote itself is not what it found.
                    let only = branch.len() == 1;
                    self.page = only.then(|| (start.clone(), end, page.pairs.clone()));
                }
                _ => {}
            }
        }
    }

    fn value(&self, key: &[u8]) -> Option<&(Vec<u8>, u64)> {
        self.read.get(key).and_then(Option::as_ref)
    }
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
        Self {
            prefix: format!("chaos/{run}/cell/"),
            tags: (0..groups).map(tag).collect(),
            slots: slots.clone(),
            tokens: TOKENS,
        }
    }

    /// The same with one of each group.
    pub(super) fn scarce(self) -> Self {
        Self { tokens: 1, ..self }
    }

    /// Something to ask for, and whether it concerns several groups.
    pub(super) fn draw(&self, asker: &mut Asker) -> (Transaction, bool) {
        let transaction = match asker.random.random_range(0..100) {
            0..30 => self.alone(asker),
            30..40 => Transaction::of(self.scan(asker)),
            40..70 => self.guarded(asker),
            _ => self.committed(asker),
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
        end.push(b'/' + 1); // The first key after all that begin with the prefix.
        Operation::Scan { start, end: Some(end), limit: asker.random.random_range(1..=PAGE_MAX) }
    }

    /// Writes something.
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

    /// One or two things, unconditionally.
    fn alone(&self, asker: &mut Asker) -> Transaction {
        let mut transaction = Transaction::default();
        for _ in 0..asker.random.random_range(1..3) {
            let reads = asker.random.random_bool(0.5);
            let one = if reads { self.read(asker) } else { self.write(asker) };
            transaction = transaction.then(one);
        }
        transaction
    }

    /// A condition of any kind on a key.
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

    /// One thing if conditions hold, and another if not.
    fn guarded(&self, asker: &mut Asker) -> Transaction {
        let mut transaction = Transaction::default();
        for _ in 0..asker.random.random_range(1..3) {
            transaction.guards.push(self.guard(asker));
        }
        let written = self.write(asker);
        let read = self.read(asker);
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

    /// What an interactive transaction commits that has read some cells, and perhaps a page.
    fn committed(&self, asker: &mut Asker) -> Transaction {
        let mut transaction = Transaction::default();
        if let Some((start, end, pairs)) = asker.memory.page.take() {
            let mut groups = BTreeMap::<GroupId, Vec<(&[u8], &[u8])>>::new();
            for (key, value) in &pairs {
                groups.entry(self.slots.owner(key)).or_default().push((key, value));
            }
            let held = groups.into_iter().map(|(group, pairs)| RangeDigest::of(group, pairs));
            let test = Test::Unchanged { end, held: held.collect() };
            transaction.guards.push(Guard { key: start, test });
        }
        for key in [self.cell(asker), self.number(asker)] {
            if let Some(read) = asker.memory.read.get(&key) {
                let version = read.as_ref().map_or(0, |(_, version)| *version);
                transaction = transaction.guard(key.clone(), Test::Version(version));
            }
            transaction = transaction.otherwise(Operation::Get { key });
        }
        if transaction.guards.is_empty() {
            // Nothing is known yet: these are its first reads.
            return Transaction { then: transaction.otherwise, ..Transaction::default() };
        }
        let first = self.write(asker);
        let second = self.write(asker);
        transaction.then(first).then(second)
    }
}
