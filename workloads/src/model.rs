//! A store in one map, for tests: correct unless it is configured to be wrong.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use skein_client::{Compare, Error, Guard, Operation, Outcome, Page, SessionKey, Test, Ticket};
use skein_client::{Reply, Transaction};
use skein_kvstore::range::RangeDigest;
use skein_kvstore::slots::SlotMap;
use skein_protocol::ids::GroupId;

use crate::generator::Sessions;

pub(crate) struct Model {
    pub(crate) pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Changes a transaction before it is executed.
    pub(crate) before: Option<fn(&mut Transaction)>,
    /// Answers the operation with this number, and later ones, with this error.
    pub(crate) fails: Option<(u64, Error)>,
    /// Most pairs of a scan's page.
    pub(crate) page_max: Option<u32>,
    /// Whether scans return one record too many.
    pub(crate) page_extra: bool,
    /// Group of each key.
    slots: SlotMap,
    /// Version of the last write of each key, then the last version of all.
    versions: BTreeMap<Vec<u8>, u64>,
    version: u64,
    sessions: u32,
    number: u64,
    finished: VecDeque<(Ticket, Result<Reply, Error>)>,
}

impl Default for Model {
    fn default() -> Self {
        Self::over(SlotMap::even(1))
    }
}

impl Model {
    /// The store of a cluster with these slots.
    pub(crate) fn over(slots: SlotMap) -> Self {
        Self {
            pairs: BTreeMap::new(),
            before: None,
            fails: None,
            page_max: None,
            page_extra: false,
            slots,
            versions: BTreeMap::new(),
            version: 0,
            sessions: 0,
            number: 0,
            finished: VecDeque::new(),
        }
    }
}

impl Sessions for Model {
    fn open(&mut self) -> SessionKey {
        self.sessions += 1;
        SessionKey(self.sessions)
    }

    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error> {
        self.number += 1;
        let ticket = Ticket { session, number: self.number };
        let mut transaction = transaction.clone();
        if let Some(before) = self.before {
            before(&mut transaction);
        }
        let result = match &self.fails {
            Some((from, error)) if self.number >= *from => Err(error.clone()),
            _ => Ok(self.apply(&transaction)),
        };
        self.finished.push_back((ticket, result));
        Ok(ticket)
    }

    fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error> {
        let any = !self.finished.is_empty();
        self.finished.drain(..).for_each(|(ticket, result)| finished(ticket, result));
        Ok(any)
    }

    fn wait(&mut self, longest: Duration) {
        std::thread::sleep(longest.min(Duration::from_millis(1)));
    }

    fn close(&mut self, _session: SessionKey) {}
}

impl Model {
    fn apply(&mut self, transaction: &Transaction) -> Reply {
        let held = transaction.guards.iter().all(|guard| self.holds(guard));
        let branch = if held { &transaction.then } else { &transaction.otherwise };
        Reply { held, outcomes: branch.iter().map(|operation| self.outcome(operation)).collect() }
    }

    fn holds(&self, guard: &Guard) -> bool {
        let key = &guard.key;
        match &guard.test {
            Test::Exists => self.pairs.contains_key(key),
            Test::Missing => !self.pairs.contains_key(key),
            Test::Equals(value) => self.pairs.get(key) == Some(value),
            Test::Version(version) => self.version_of(key) == *version,
            Test::Number { compare, number } => {
                let ours = self.number(key);
                match compare {
                    Compare::Less => ours < *number,
                    Compare::AtMost => ours <= *number,
                    Compare::Equal => ours == *number,
                    Compare::AtLeast => ours >= *number,
                    Compare::Greater => ours > *number,
                }
            }
            Test::Unchanged { end, held } => {
                let within = |key: &Vec<u8>| end.as_ref().is_none_or(|end| key < end);
                let pairs = self.pairs.range(key.clone()..).filter(|(key, _)| within(key));
                let mut groups = BTreeMap::<GroupId, Vec<(&[u8], &[u8])>>::new();
                for (key, value) in pairs {
                    groups.entry(self.slots.owner(key)).or_default().push((key, value));
                }
                let now = groups.into_iter().map(|(group, pairs)| RangeDigest::of(group, pairs));
                now.collect::<Vec<_>>() == *held
            }
        }
    }

    /// The version of a key. A missing key has version 0.
    fn version_of(&self, key: &[u8]) -> u64 {
        let version = self.versions.get(key).filter(|_| self.pairs.contains_key(key));
        version.copied().unwrap_or_default()
    }

    fn number(&self, key: &[u8]) -> i64 {
        self.pairs.get(key).map_or(0, |v| String::from_utf8_lossy(v).parse().unwrap())
    }

    fn written(&mut self, key: &[u8]) -> u64 {
        self.version += 1;
        self.versions.insert(key.to_vec(), self.version);
        self.version
    }

    fn outcome(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Get { key } => {
                let version = self.version_of(key);
                Outcome::Value(self.pairs.get(key).map(|value| (value.clone(), version)))
            }
            Operation::Append { key, value } => {
                self.written(key);
                let old = self.pairs.entry(key.clone()).or_default();
                old.extend_from_slice(value);
                Outcome::Length(old.len() as u64)
            }
            Operation::Exists { key } => Outcome::Flag(self.pairs.contains_key(key)),
            Operation::Put { key, value } => {
                self.pairs.insert(key.clone(), value.clone());
                Outcome::Written(self.written(key))
            }
            Operation::Patch { key, offset, bytes } => {
                let value = self.pairs.entry(key.clone()).or_default();
                let end = *offset as usize + bytes.len();
                value.resize(value.len().max(end), 0);
                value[*offset as usize..end].copy_from_slice(bytes);
                Outcome::Length(value.len() as u64)
            }
            Operation::Increment { key, by } => {
                let number = self.number(key) + by;
                self.written(key);
                self.pairs.insert(key.clone(), number.to_string().into_bytes());
                Outcome::Number(number)
            }
            Operation::Scan { start, end, limit } => {
                let limit = self.page_max.map_or(*limit, |max| max.min(*limit)) as usize;
                let limit = limit + usize::from(self.page_extra);
                let within = |key: &Vec<u8>| end.as_ref().is_none_or(|end| key < end);
                let mut range = self.pairs.range(start.clone()..).filter(|(key, _)| within(key));
                let take = range.by_ref().take(limit);
                let pairs = take.map(|(key, value)| (key.clone(), value.clone())).collect();
                Outcome::Page(Page { pairs, next: range.next().map(|(key, _)| key.clone()) })
            }
            Operation::Delete { key } => Outcome::Flag(self.pairs.remove(key).is_some()),
        }
    }
}
