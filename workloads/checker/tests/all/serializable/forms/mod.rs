//! Small random histories of every command form, of a correct store or one with a single fault.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::{
    End, Final, Guard, Held, Invoke, Op, Out, Record, Return, Unanswered,
};
use skein_kvstore::range::RangeDigest;
use skein_protocol::ids::GroupId;

/// All keys are in one group.
pub(crate) fn held_now(pairs: &[(&[u8], &[u8])]) -> Vec<Held> {
    let RangeDigest { group, pairs, bytes, digest } =
        RangeDigest::of(GroupId(0), pairs.iter().copied());
    if pairs == 0 {
        return Vec::new();
    }
    vec![Held { group, pairs, bytes, digest: format!("{digest:032x}") }]
}

/// A fault of the store in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Takes the wrong branch.
    OtherBranch,
    /// Evaluates conditions on an earlier state.
    StaleConditions,
    /// Compares only 32 bits of versions.
    ShortVersions,
    /// Answers from an earlier state, then executes on the current one.
    StaleReply,
    /// Omits the last operation, but answers it.
    Forgets,
    /// Executes twice.
    Twice,
    /// Executes in two parts, with another transaction between them.
    Torn,
    /// Returns a wrong number, flag, page or value.
    Reply,
    /// Executes before the invocation or after the answer.
    Late,
}

pub(crate) const FAULTS: [Fault; 9] = [
    Fault::OtherBranch,
    Fault::StaleConditions,
    Fault::ShortVersions,
    Fault::StaleReply,
    Fault::Forgets,
    Fault::Twice,
    Fault::Torn,
    Fault::Reply,
    Fault::Late,
];

#[derive(Clone, Default)]
struct Store {
    keys: BTreeMap<String, (String, u64)>,
    version: u64,
}

/// Why a transaction is not executed.
struct Refused;

fn number(text: Option<&str>) -> Option<i64> {
    let Some(text) = text else { return Some(0) };
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Store {
    fn text(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(|(text, _)| &text[..])
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: Option<&'a String>,
    ) -> impl Iterator<Item = (&'a String, &'a String)> {
        let all = self.keys.range(start.to_owned()..);
        let within = move |(key, _): &(&String, _)| end.is_none_or(|end| *key < end);
        all.take_while(within).map(|(key, (value, _))| (key, value))
    }

    fn held(&self, start: &str, end: Option<&String>) -> Vec<Held> {
        let pairs = self.range(start, end);
        held_now(&pairs.map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect::<Vec<_>>())
    }

    fn holds(&self, guard: &Guard, fault: Option<Fault>) -> bool {
        let compares = |key, holds: fn(i64, i64) -> bool, with| {
            number(self.text(key)).is_some_and(|ours| holds(ours, with))
        };
        match guard {
            Guard::Exists(key) => self.text(key).is_some(),
            Guard::Missing(key) => self.text(key).is_none(),
            Guard::Equals(key, value) => self.text(key) == Some(value),
            Guard::Version(key, version) => {
                let ours = self.keys.get(key).map_or(0, |(_, version)| *version);
                if fault == Some(Fault::ShortVersions) {
                    ours as u32 == *version as u32
                } else {
                    ours == *version
                }
            }
            Guard::Less(key, with) => compares(key, |a, b| a < b, *with),
            Guard::AtMost(key, with) => compares(key, |a, b| a <= b, *with),
            Guard::Equal(key, with) => compares(key, |a, b| a == b, *with),
            Guard::AtLeast(key, with) => compares(key, |a, b| a >= b, *with),
            Guard::Greater(key, with) => compares(key, |a, b| a > b, *with),
            Guard::Unchanged(start, end, held) => self.held(start, end.as_ref()) == *held,
        }
    }

    fn apply(&mut self, op: &Op) -> Result<Out, Refused> {
        let version = self.version;
        let mut set =
            |key: &String, value: String| _ = self.keys.insert(key.clone(), (value, version));
        Ok(match op {
            Op::Get(key) => Out::Value(self.keys.get(key).cloned()),
            Op::Exists(key) => Out::Flag(self.keys.contains_key(key)),
            Op::Delete(key) => Out::Flag(self.keys.remove(key).is_some()),
            Op::Put(key, value) => {
                set(key, value.clone());
                Out::Version(version)
            }
            Op::Append(key, value) => {
                let value = self.text(key).unwrap_or_default().to_owned() + value;
                let length = value.len() as u64;
                self.keys.insert(key.clone(), (value, version));
                Out::Length(length)
            }
            Op::Overwrite(key, offset, with) => {
                let mut value = self.text(key).unwrap_or_default().as_bytes().to_vec();
                let (from, to) = (*offset as usize, *offset as usize + with.len());
                value.resize(value.len().max(to), 0);
                value[from..to].copy_from_slice(with.as_bytes());
                let length = value.len() as u64;
                self.keys.insert(key.clone(), (String::from_utf8(value).unwrap(), version));
                Out::Length(length)
            }
            Op::Incr(key, by) => {
                let now =
                    number(self.text(key)).and_then(|was| was.checked_add(*by)).ok_or(Refused)?;
                self.keys.insert(key.clone(), (now.to_string(), version));
                Out::Number(now)
            }
            Op::Scan(start, end, limit) => {
                let mut range = self.range(start, end.as_ref());
                let pairs = range.by_ref().take(*limit as usize);
                let pairs = pairs.map(|(key, value)| (key.clone(), value.clone())).collect();
                Out::Page(pairs, range.next().map(|(key, _)| key.clone()))
            }
            Op::Patch(..) => unreachable!("it is not drawn"),
        })
    }

    /// Executes a branch as a whole or not at all.
    fn run(&mut self, ops: &[Op]) -> Result<Vec<Out>, Refused> {
        let before = self.clone();
        let out: Result<Vec<Out>, Refused> = ops.iter().map(|op| self.apply(op)).collect();
        if out.is_err() {
            *self = before;
        }
        out
    }

    /// Advances to an unused version, sometimes to one with the same low bits as another.
    fn advance(&mut self, random: &mut SmallRng) {
        let low = self.version as u32;
        self.version += if low > 0 && random.random_bool(0.3) { 1 << 32 } else { 1 };
    }
}

/// Parameters of a random history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) transactions: usize,
    pub(crate) clients: u64,
    /// Percentage of transactions without an answer.
    pub(crate) unknown: u32,
    /// The fault of one transaction.
    pub(crate) fault: Option<Fault>,
}

struct Drawing {
    random: SmallRng,
    tokens: u32,
}

const KEYS: [&str; 5] = ["a", "b", "c", "n", "m"];

impl Drawing {
    fn key(&mut self) -> String {
        KEYS[self.random.random_range(0..3)].to_owned()
    }

    /// A key that mostly holds a number.
    fn number_key(&mut self) -> String {
        if self.random.random_bool(0.05) {
            return self.key();
        }
        KEYS[self.random.random_range(3..5)].to_owned()
    }

    /// A mostly unique value.
    fn token(&mut self) -> String {
        if self.random.random_bool(0.8) {
            self.tokens += 1;
        }
        format!("{:02}", self.tokens)
    }

    fn range(&mut self) -> (String, Option<String>) {
        let start = ["", "a", "b", "c"][self.random.random_range(0..4)].to_owned();
        let end = [None, Some("b"), Some("c"), Some("d")][self.random.random_range(0..4)];
        (start, end.map(str::to_owned))
    }

    fn op(&mut self, scans: bool) -> Op {
        match self.random.random_range(0..20) {
            0..4 => Op::Get(self.key()),
            4 => Op::Get(self.number_key()),
            5..8 => Op::Put(self.key(), self.token()),
            8..10 => Op::Append(self.key(), self.token()),
            10..12 => Op::Delete(self.key()),
            12 => Op::Exists(self.key()),
            13..16 => Op::Incr(self.number_key(), self.random.random_range(-1..3)),
            16 => Op::Delete(self.number_key()),
            17 => Op::Overwrite(self.key(), self.random.random_range(0..3), self.token()),
            _ if scans => {
                let (start, end) = self.range();
                Op::Scan(start, end, self.random.random_range(1..4))
            }
            _ => Op::Get(self.key()),
        }
    }

    fn branch(&mut self, least: usize) -> Vec<Op> {
        let mut scans = true;
        let many = self.random.random_range(least..=3);
        let mut ops = Vec::new();
        for _ in 0..many {
            let op = self.op(scans);
            scans &= !matches!(op, Op::Scan(..));
            ops.push(op);
        }
        ops
    }

    /// A condition that often holds.
    fn guard(&mut self, store: &Store) -> Guard {
        let key = self.key();
        let counter = self.number_key();
        let ours = number(store.text(&counter)).unwrap_or(0);
        let with = ours + self.random.random_range(-1..2);
        match self.random.random_range(0..14) {
            0..5 => {
                let ours = store.keys.get(&key).map_or(0, |(_, version)| *version);
                let other = match self.random.random_range(0..4) {
                    0 => ours + 1,
                    1 => ours ^ 1 << 32,
                    2 => ours.saturating_sub(1),
                    _ => 0,
                };
                Guard::Version(key, if self.random.random_bool(0.6) { ours } else { other })
            }
            5 => Guard::Exists(key),
            6 => Guard::Missing(key),
            7 => {
                let ours = store.text(&key).unwrap_or("00").to_owned();
                Guard::Equals(key, ours)
            }
            8 => Guard::Less(counter, with),
            9 => Guard::AtMost(counter, with),
            10 => Guard::Equal(counter, with),
            11 => Guard::AtLeast(counter, with),
            12 => Guard::Greater(counter, with),
            _ => {
                let (start, end) = self.range();
                let held = store.held(&start, end.as_ref());
                Guard::Unchanged(start, end, held)
            }
        }
    }

    /// A stale read.
    fn stale(&mut self, t: u64, p: u64) -> Invoke {
        let ops =
            (0..self.random.random_range(1..3)).map(|_| match self.random.random_range(0..4) {
                0..2 => Op::Get(self.key()),
                2 => Op::Exists(self.key()),
                _ => {
                    let (start, end) = self.range();
                    Op::Scan(start, end, self.random.random_range(1..4))
                }
            });
        Invoke { t, p, guards: vec![], ops: ops.collect(), otherwise: vec![], stale: true }
    }

    /// The results of a stale read, each from a random past state.
    fn told(&mut self, ops: &[Op], past: &[Store]) -> Vec<Out> {
        let mut out = Vec::new();
        for op in ops {
            let mut store = past[self.random.random_range(0..past.len())].clone();
            out.extend(store.apply(op).ok());
        }
        out
    }

    fn invoke(&mut self, t: u64, p: u64, store: &Store) -> Invoke {
        let guards = match self.random.random_range(0..10) {
            0..5 => 0,
            5..8 => 1,
            _ => 2,
        };
        let guards: Vec<Guard> = (0..guards).map(|_| self.guard(store)).collect();
        let otherwise =
            if guards.is_empty() || self.random.random_bool(0.5) { vec![] } else { self.branch(1) };
        Invoke { t, p, guards, ops: self.branch(1), otherwise, stale: false }
    }

    /// Replaces a result by another of the same kind.
    fn other(&mut self, out: &mut Out) {
        match out {
            Out::Flag(flag) => *flag = !*flag,
            Out::Number(number) => *number += if self.random.random_bool(0.5) { 1 } else { -1 },
            Out::Length(length) => *length += 2,
            Out::Version(version) => *version = self.version(*version),
            Out::Value(found) => match (found.take(), self.random.random_range(0..3)) {
                (Some((value, version)), 0) => *found = Some((value, self.version(version))),
                (Some((_, version)), 1) => *found = Some((self.some(), version)),
                (Some(_), _) => {}
                (None, _) => *found = Some((self.some(), self.random.random_range(1..6))),
            },
            Out::Page(pairs, next) => match self.random.random_range(0..4) {
                0 if !pairs.is_empty() => {
                    let at = self.random.random_range(0..pairs.len());
                    pairs.remove(at);
                }
                1 if !pairs.is_empty() => {
                    let at = self.random.random_range(0..pairs.len());
                    pairs[at].1 = self.some();
                }
                2 => *next = next.take().xor(Some("c".to_owned())),
                _ => pairs.push(("c".to_owned(), self.some())),
            },
        }
    }

    fn version(&mut self, version: u64) -> u64 {
        match self.random.random_range(0..3) {
            0 => version + 1,
            1 => version.saturating_sub(1).max(1),
            _ => version ^ 1 << 32,
        }
    }

    fn some(&mut self) -> String {
        format!("{:02}", self.random.random_range(0..=self.tokens))
    }
}

/// The records of a history without its header, and whether the planned fault occurred.
pub(crate) fn history(plan: Plan) -> (Vec<Record>, bool) {
    let mut drawing = Drawing { random: SmallRng::seed_from_u64(plan.seed), tokens: 0 };
    let mut store = Store::default();
    let mut before = Store::default();
    let mut free: Vec<(u64, u64)> = (0..plan.clients).map(|client| (client, client + 1)).collect();
    let mut processes = plan.clients;
    // Times of invocation, execution and answer per transaction. The transaction with the number
    // `wrong` has the fault.
    let wrong = drawing.random.random_range(0..plan.transactions);
    let mut times = Vec::new();
    for number in 0..plan.transactions {
        let client = (0..free.len()).min_by_key(|client| free[*client].0).unwrap();
        let (at, p) = free[client];
        // Sometimes at the moment of the previous answer.
        let invoked = at + drawing.random.random_range(0..4);
        let returned = invoked + drawing.random.random_range(1..12);
        let mut done = drawing.random.random_range(invoked..=returned);
        let unknown = drawing.random.random_range(0..100) < plan.unknown;
        if plan.fault == Some(Fault::Late) && number == wrong {
            done = drawing.random.random_range(invoked.saturating_sub(8)..returned + 8);
        }
        if unknown {
            done = invoked + drawing.random.random_range(0..60);
            processes += 1;
            free[client] = (returned, processes);
        } else {
            free[client] = (returned, p);
        }
        times.push((done, number, p, invoked, returned, unknown, invoked == at));
    }
    let end = times.iter().map(|time| time.4).max().unwrap();
    times.sort_unstable();
    let mut records = Vec::new();
    let mut went_wrong = false;
    let mut torn: Option<Vec<Op>> = None;
    let mut past = vec![store.clone()];
    for (done, number, p, invoked, returned, unknown, tied) in times {
        let rest = torn.take();
        let is_stale = !unknown && rest.is_none() && drawing.random.random_bool(0.12);
        let invoke =
            if is_stale { drawing.stale(invoked, p) } else { drawing.invoke(invoked, p, &store) };
        let fault = plan.fault.filter(|_| number == wrong);
        let is_done = !unknown || done <= end && drawing.random.random_bool(0.7);
        let record = |t| Record::Unknown(Unanswered { t, p, why: "simulated".into() });
        let asks = if tied { 2 } else { 0 };
        records.push((invoked, asks, Record::Invoke(invoke.clone())));
        if !is_done {
            records.push((returned, 1, record(returned)));
            torn = rest;
            continue;
        }
        if is_stale {
            let mut out = drawing.told(&invoke.ops, &past);
            if fault == Some(Fault::Reply) && !out.is_empty() {
                let at = drawing.random.random_range(0..out.len());
                drawing.other(&mut out[at]);
            }
            went_wrong |= fault.is_some();
            records.push((returned, 1, Record::Ok(Return { t: returned, p, held: true, out })));
            continue;
        }
        let was = store.clone();
        store.advance(&mut drawing.random);
        let looked_at = if fault == Some(Fault::StaleConditions) { &before } else { &store };
        let holds = |guard: &Guard| looked_at.holds(guard, fault);
        let mut held = invoke.guards.iter().all(holds);
        went_wrong |= fault.is_some();
        if fault == Some(Fault::OtherBranch) && !invoke.guards.is_empty() {
            held = !held;
        }
        let ops = if held { &invoke.ops } else { &invoke.otherwise };
        let mut out = match fault {
            Some(Fault::StaleReply) => {
                before.version = store.version;
                let out = before.clone().run(ops);
                let _ = store.run(ops);
                out
            }
            Some(Fault::Forgets) => {
                let mut all = store.clone();
                let out = all.run(ops);
                let _ = store.run(&ops[..ops.len().saturating_sub(1)]);
                out
            }
            Some(Fault::Torn) if ops.len() > 1 => {
                let mut all = store.clone();
                let out = all.run(ops);
                let (first, rest) = ops.split_at(1);
                let _ = store.run(first);
                torn = Some(rest.to_vec());
                out
            }
            _ => store.run(ops),
        };
        if fault == Some(Fault::Twice) {
            store.advance(&mut drawing.random);
            let _ = store.run(ops);
        }
        if let (Some(Fault::Reply), Ok(out)) = (fault, &mut out)
            && !out.is_empty()
        {
            let at = drawing.random.random_range(0..out.len());
            drawing.other(&mut out[at]);
        }
        before = was;
        // Other transactions ran between the two parts.
        if let Some(rest) = rest {
            let _ = store.run(&rest);
        }
        past.push(store.clone());
        let record = match out {
            _ if unknown => record(returned),
            Ok(out) => Record::Ok(Return { t: returned, p, held, out }),
            Err(Refused) => Record::Fail(Unanswered { t: returned, p, why: "simulated".into() }),
        };
        records.push((returned, 1, record));
    }
    if let Some(rest) = torn.take() {
        let _ = store.run(&rest);
    }
    // Of one moment, invocations come first, but not before an answer of the same process.
    records.sort_by_key(|(t, order, _)| (*t, *order));
    let mut records: Vec<Record> = records.into_iter().map(|(.., record)| record).collect();
    let t = end + 1;
    for key in KEYS.iter().filter(|_| drawing.random.random_bool(0.6)) {
        let (key, value) = ((*key).to_owned(), store.keys.get(*key).cloned());
        records.push(Record::Final(Final { t, key, value }));
    }
    records.push(Record::End(End { t }));
    (records, went_wrong)
}
