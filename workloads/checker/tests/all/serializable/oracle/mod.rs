//! An oracle for small histories: it tries all orders, with all commands of the store.
//!
//! It is simple and shares nothing with the checker: versions are unknowns. An order says that each
//! is higher than the one before, and the answers say what they are or are not.

use std::collections::{BTreeMap, HashMap};

use skein_checker::history::{Guard, Invoke, Op, Out, Record};

/// A transaction, and what is known of it.
struct Transaction {
    invoked: u64,
    /// `u64::MAX` if it was not answered.
    returned: u64,
    invoke: Invoke,
    /// Whether the conditions held, and the results. `None` if the outcome is unknown.
    told: Option<(bool, Vec<Out>)>,
    /// Time of the answer of a stale read: it reads one key in a state without writes invoked after
    /// that time.
    stale: Option<u64>,
}

impl Transaction {
    fn is_tied_to(&self, before: &Self) -> bool {
        let is_one = self.invoke.p == before.invoke.p && self.invoked == before.returned;
        is_one && self.stale.is_none() && before.stale.is_none()
    }
}

/// What is known of the version of one write.
#[derive(Clone, Default)]
struct Version {
    is: Option<u64>,
    is_not: Vec<u64>,
}

/// A key: its value, and all versions that it had. The last is that of the value.
#[derive(Clone, Default)]
struct Key {
    value: Option<String>,
    versions: Vec<Version>,
    /// Whether the transaction under execution made the last version.
    own: bool,
    /// `asked` is the latest invocation of the transactions that wrote it; `now` that of the
    /// transaction under execution.
    asked: u64,
    now: u64,
}

type State = BTreeMap<String, Key>;

impl Key {
    /// Whether there is an assignment of increasing numbers to all its versions.
    fn is_possible(&self) -> bool {
        let mut least = 1;
        for version in &self.versions {
            let lowest = (least..u64::MAX)
                .find(|it| !version.is_not.contains(it))
                .expect("few are excluded");
            let is = version.is.unwrap_or(lowest);
            if is < least || version.is_not.contains(&is) {
                return false;
            }
            least = is + 1;
        }
        true
    }

    fn write(&mut self, value: Option<String>) {
        if value.is_some() || self.value.is_some() {
            self.asked = self.asked.max(self.now);
        }
        // A removed key has no version, and a transaction makes one version per key.
        if value.is_some() && !self.own {
            self.versions.push(Version::default());
            self.own = true;
        }
        self.value = value;
    }

    fn tell(&mut self, version: u64) -> Option<()> {
        let last = self.versions.last_mut()?;
        if last.is.is_some_and(|is| is != version) {
            return None;
        }
        last.is = Some(version);
        self.is_possible().then_some(())
    }
}

/// Whether the transactions of a history can have executed one after the other, in real time.
pub(crate) fn explains(records: &[Record]) -> bool {
    let mut open: HashMap<u64, Invoke> = HashMap::new();
    let mut all = Vec::new();
    for record in records {
        match record {
            Record::Invoke(invoke) => _ = open.insert(invoke.p, invoke.clone()),
            Record::Ok(end) => {
                let invoke = open.remove(&end.p).unwrap();
                if invoke.stale {
                    all.extend(stale(&invoke, end.t, &end.out));
                    continue;
                }
                let told = Some((end.held, end.out.clone()));
                all.push(Transaction {
                    invoked: invoke.t,
                    returned: end.t,
                    invoke,
                    told,
                    stale: None,
                });
            }
            Record::Fail(end) => _ = open.remove(&end.p),
            Record::Final(last) => {
                let (guards, otherwise) = (vec![], vec![]);
                let ops = vec![Op::Get(last.key.clone())];
                let invoke = Invoke { t: last.t, p: 0, guards, ops, otherwise, stale: false };
                let told = Some((true, vec![Out::Value(last.value.clone())]));
                let (invoked, returned) = (last.t, u64::MAX);
                all.push(Transaction { invoked, returned, invoke, told, stale: None });
            }
            _ => {}
        }
    }
    let open = open.into_values();
    all.extend(open.map(|invoke| Transaction {
        invoked: invoke.t,
        returned: u64::MAX,
        invoke,
        told: None,
        stale: None,
    }));
    search(&all, &mut vec![false; all.len()], &State::new())
}

/// Splits a stale read of several keys into stale reads of single keys.
fn stale(invoke: &Invoke, answered: u64, out: &[Out]) -> Vec<Transaction> {
    let mut all = Vec::new();
    let mut add = |op: Op, out: Out| {
        let (guards, otherwise) = (vec![], vec![]);
        let invoke = Invoke { ops: vec![op], guards, otherwise, ..*invoke };
        let told = Some((true, vec![out]));
        let stale = Some(answered);
        all.push(Transaction { invoked: 0, returned: u64::MAX, invoke, told, stale });
    };
    for (op, out) in invoke.ops.iter().zip(out) {
        let (Op::Scan(start, end, limit), Out::Page(pairs, _)) = (op, out) else {
            add(op.clone(), out.clone());
            continue;
        };
        for (i, pair) in pairs.iter().enumerate() {
            let key = &pair.0;
            let within = key >= start && end.as_ref().is_none_or(|end| key < end);
            // A key outside of the range or beyond the limit can never be found.
            let limit = u32::from(within && i < *limit as usize);
            let op = Op::Scan(key.clone(), Some(format!("{key}\0")), limit);
            add(op, Out::Page(vec![pair.clone()], None));
        }
    }
    all
}

fn search(all: &[Transaction], done: &mut [bool], state: &State) -> bool {
    let left = || (0..all.len()).filter(|i| !done[*i]);
    if left().all(|i| all[i].told.is_none()) {
        return true; // Transactions of unknown outcome need not have executed.
    }
    // The next transaction was invoked before any of the remaining ones was answered.
    let first = left().map(|i| all[i].returned).min().unwrap_or(u64::MAX);
    let next = left().filter(|i| all[*i].invoked <= first);
    // An invocation of a process at the moment of its last answer follows that answer.
    let is_tied = |i: &usize| left().any(|before| all[*i].is_tied_to(&all[before]));
    let next: Vec<usize> = next.filter(|i| !is_tied(i)).collect();
    for i in next {
        for after in apply(&all[i], state) {
            done[i] = true;
            if search(all, done, &after) {
                return true;
            }
            done[i] = false;
        }
    }
    false
}

/// The possible states after a transaction, if its answer fits.
fn apply(transaction: &Transaction, state: &State) -> Vec<State> {
    let Transaction { invoke: Invoke { guards, ops, otherwise, .. }, told, .. } = transaction;
    let mut state = state.clone();
    for key in state.values_mut() {
        key.own = false;
    }
    // Each condition may hold or not where versions leave that open.
    let mut found = vec![(true, state)];
    for guard in guards {
        let mut next = Vec::new();
        for (held, state) in found {
            for (holds, state) in look(guard, &state) {
                next.push((held && holds, state));
            }
        }
        found = next;
    }
    let mut states = Vec::new();
    for (held, state) in found {
        if told.as_ref().is_some_and(|(was, _)| *was != held) || !held && guards.is_empty() {
            continue;
        }
        let out = told.as_ref().map(|(_, out)| &out[..]);
        let ops = if held { ops } else { otherwise };
        states.extend(run(ops, out, transaction, state));
    }
    states
}

fn number(value: Option<&String>) -> Option<i64> {
    let Some(text) = value else { return Some(0) };
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Whether a condition can hold and can fail, each with the knowledge that follows.
fn look(guard: &Guard, state: &State) -> Vec<(bool, State)> {
    let value = |key: &String| state.get(key).and_then(|key| key.value.as_ref());
    let compare = |key: &String, holds: &dyn Fn(i64) -> bool| {
        vec![(number(value(key)).is_some_and(holds), state.clone())]
    };
    let sure = |holds: bool| vec![(holds, state.clone())];
    match guard {
        Guard::Exists(key) => sure(value(key).is_some()),
        Guard::Missing(key) => sure(value(key).is_none()),
        Guard::Equals(key, wanted) => sure(value(key) == Some(wanted)),
        Guard::Less(key, with) => compare(key, &|ours| ours < *with),
        Guard::AtMost(key, with) => compare(key, &|ours| ours <= *with),
        Guard::Equal(key, with) => compare(key, &|ours| ours == *with),
        Guard::AtLeast(key, with) => compare(key, &|ours| ours >= *with),
        Guard::Greater(key, with) => compare(key, &|ours| ours > *with),
        Guard::Version(key, version) if value(key).is_none() => sure(*version == 0),
        Guard::Version(key, version) => {
            let (mut is, mut is_not) = (state.clone(), state.clone());
            let mut found = Vec::new();
            if is.get_mut(key).unwrap().tell(*version).is_some() {
                found.push((true, is));
            }
            let of = is_not.get_mut(key).unwrap();
            of.versions.last_mut().unwrap().is_not.push(*version);
            if of.is_possible() {
                found.push((false, is_not));
            }
            found
        }
        Guard::Unchanged(start, end, held) => {
            let within = state
                .iter()
                .filter(|(key, _)| *key >= start && end.as_ref().is_none_or(|end| *key < end));
            let pairs: Vec<(&[u8], &[u8])> = within
                .filter_map(|(key, of)| Some((key.as_bytes(), of.value.as_ref()?.as_bytes())))
                .collect();
            sure(super::forms::held_now(&pairs) == *held)
        }
    }
}

/// The state after a branch, if its results fit.
fn run(
    ops: &[Op],
    out: Option<&[Out]>,
    transaction: &Transaction,
    mut state: State,
) -> Option<State> {
    let is_ahead = |key: &Key| transaction.stale.is_some_and(|answered| key.asked > answered);
    for (i, op) in ops.iter().enumerate() {
        let out = out.map(|out| &out[i]);
        let expected = |what: Out| out.is_none_or(|out| *out == what).then_some(());
        if let Op::Scan(start, end, limit) = op {
            let Some(out) = out else { continue };
            let within = |key: &&String| *key >= start && end.as_ref().is_none_or(|end| *key < end);
            let mut there = state
                .iter()
                .filter(|(key, _)| within(key))
                .filter_map(|(key, of)| Some((key.clone(), of.value.clone()?)));
            let Out::Page(pairs, next) = out else { return None };
            if pairs.len() > *limit as usize {
                return None;
            }
            let same = pairs.iter().all(|pair| there.next().as_ref() == Some(pair));
            let is_ahead = |(key, _): &(String, String)| state.get(key).is_some_and(is_ahead);
            if pairs.iter().any(is_ahead) {
                return None;
            }
            if !same || there.next().map(|(key, _)| key) != *next {
                return None;
            }
            continue;
        }
        let key = state.entry(op.key().to_owned()).or_default();
        key.now = transaction.invoked;
        if is_ahead(key) {
            return None;
        }
        match op {
            Op::Get(_) => match out {
                None => {}
                Some(Out::Value(found)) => {
                    if found.as_ref().map(|(text, _)| text) != key.value.as_ref() {
                        return None;
                    }
                    if let Some((_, version)) = found {
                        key.tell(*version)?;
                    }
                }
                Some(_) => return None,
            },
            Op::Exists(_) => expected(Out::Flag(key.value.is_some()))?,
            Op::Delete(_) => {
                expected(Out::Flag(key.value.is_some()))?;
                key.write(None);
            }
            Op::Put(_, value) => {
                key.write(Some(value.clone()));
                match out {
                    None => {}
                    Some(Out::Version(version)) => key.tell(*version)?,
                    Some(_) => return None,
                }
            }
            Op::Append(_, token) => {
                let value = key.value.clone().unwrap_or_default() + token;
                expected(Out::Length(value.len() as u64))?;
                key.write(Some(value));
            }
            Op::Overwrite(_, offset, token) => {
                let mut value = key.value.clone().unwrap_or_default().into_bytes();
                let (from, to) = (*offset as usize, *offset as usize + token.len());
                value.resize(value.len().max(to), 0);
                value[from..to].copy_from_slice(token.as_bytes());
                expected(Out::Length(value.len() as u64))?;
                key.write(Some(String::from_utf8(value).unwrap()));
            }
            Op::Incr(_, by) => {
                // A command on a value that is not a number is refused and has no effect.
                let now = number(key.value.as_ref())?.checked_add(*by)?;
                expected(Out::Number(now))?;
                key.write(Some(now.to_string()));
            }
            Op::Patch(..) | Op::Scan(..) => panic!("{op:?} is not simulated"),
        }
    }
    Some(state)
}
