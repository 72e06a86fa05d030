//! Checks whether a history is one that a correct cluster can produce, after the run and key by
//! key.
//!
//! Properties of every key, whatever faults the cluster had:
//!
//! * **No loss.** Every acknowledged write is in the final state.
//! * **No duplicates.** No write is applied twice, and none that was reported as failed is applied.
//! * **No invention.** Every value was written by a client.
//! * **Real time.** If an operation returned before another was invoked, it precedes the other in
//!   the key's order and is visible to it (`frontier`).
//! * **Replicas agree.** All replicas of a group are at one position and hold the same state.
//! * **Conserved sums.** Every read of all accounts finds the sum of their opening balances, and no
//!   account is overdrawn.
//!
//! These are properties of single keys and of the bank's sums, cheap enough for millions of
//! operations. They do not compare the order of transactions across keys: that is the task of the
//! checker of strict serializability ([`check`](crate::check)).

mod bank;
mod counter;
mod frontier;
mod list;
mod register;
mod replicas;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use self::bank::Bank;
use self::replicas::Replicas;
use crate::history::{
    Final, Header, Invoke, Op, Out, Process, ReadError, Record, Return, readable,
};

/// Pieces of evidence kept per kind. All are counted.
const EVIDENCE_MAX: usize = 5;

/// The result of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Operations invoked.
    pub operations: u64,
    pub acknowledged: u64,
    /// Operations that certainly had no effect.
    pub failed: u64,
    /// Operations of unknown outcome, including those of killed clients.
    pub unknown: u64,
    pub keys: u64,
    /// Replicas compared.
    pub replicas: u64,
    /// Number of violations by kind. Kinds without violations are absent.
    pub wrong: BTreeMap<&'static str, u64>,
    /// Descriptions of the first violations of each kind.
    pub evidence: Vec<String>,
}

impl Judgement {
    /// Whether no violation was found.
    pub fn is_good(&self) -> bool {
        self.wrong.is_empty()
    }

    fn wrong(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        let count = self.wrong.entry(kind).or_default();
        *count += 1;
        if *count <= EVIDENCE_MAX as u64 {
            self.evidence.push(format!("{kind}: {}", readable(&what())));
        }
    }
}

/// Checks the `records` of a history that began with `header`.
pub fn verify(
    header: &Header,
    records: impl Iterator<Item = Result<Record, ReadError>>,
) -> Result<Judgement, ReadError> {
    let mut verifier = Verifier::new(header);
    for record in records {
        verifier.take(record?);
    }
    Ok(verifier.finish())
}

/// The interval of one operation on a key.
#[derive(Clone, Copy, Debug)]
struct Moment {
    process: Process,
    invoked: u64,
    /// [`NEVER`] if the outcome is unknown.
    returned: u64,
}

const NEVER: u64 = u64::MAX;

/// A write, and its result if it is known.
#[derive(Debug)]
struct Written<T, R> {
    moment: Moment,
    what: T,
    result: Option<R>,
}

/// A read and its result.
#[derive(Debug)]
struct Got {
    moment: Moment,
    found: Option<(Text, u64)>,
}

/// A value that was read. The values of a growing list are prefixes of the longest one: a copy of
/// each would take memory quadratic in its length.
#[derive(Debug)]
enum Text {
    /// A prefix of this many bytes of the key's longest value.
    Beginning(usize),
    Own(String),
}

/// All operations on one key.
#[derive(Debug, Default)]
struct Key {
    appends: Vec<Written<String, u64>>,
    puts: Vec<Written<String, u64>>,
    increments: Vec<Written<i64, i64>>,
    gets: Vec<Got>,
    /// Whether the key has writes that its value does not reflect one by one: of fields, of bytes,
    /// or removals. Then only the order of all transactions determines the right value.
    mixed: bool,
    /// The longest value read, of a chain of prefixes.
    longest: String,
    /// Values of puts that were reported as failed.
    not_written: HashSet<String>,
    last: Option<Final>,
}

impl Key {
    fn keep(&mut self, value: String) -> Text {
        if self.longest.starts_with(&value) {
            return Text::Beginning(value.len());
        }
        if value.starts_with(&self.longest) {
            self.longest = value;
            return Text::Beginning(self.longest.len());
        }
        Text::Own(value)
    }

    fn text<'a>(&'a self, text: &'a Text) -> &'a str {
        match text {
            Text::Beginning(bytes) => &self.longest[..*bytes],
            Text::Own(value) => value,
        }
    }

    /// The value and version that a read returned.
    fn found<'a>(&'a self, got: &'a Got) -> Option<(&'a str, u64)> {
        got.found.as_ref().map(|(value, version)| (self.text(value), *version))
    }
}

impl Final {
    fn found(&self) -> Option<(&str, u64)> {
        self.value.as_ref().map(|(value, version)| (value.as_str(), *version))
    }
}

/// Checks a history record by record.
pub struct Verifier<'a> {
    header: &'a Header,
    keys: HashMap<String, Key>,
    open: HashMap<Process, Invoke>,
    bank: Bank<'a>,
    replicas: Replicas,
    ended: bool,
    verdict: Judgement,
}

impl<'a> Verifier<'a> {
    /// A verifier of the history that began with `header`.
    pub fn new(header: &'a Header) -> Self {
        Self {
            header,
            keys: HashMap::new(),
            open: HashMap::new(),
            bank: Bank::new(header),
            replicas: Replicas::default(),
            ended: false,
            verdict: Judgement::default(),
        }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: Record) {
        match record {
            Record::Invoke(invoke) => {
                self.verdict.operations += 1;
                let p = invoke.p;
                if self.open.insert(p, invoke).is_some() {
                    self.verdict.wrong("history", || format!("process {p} asks twice at a time"));
                }
            }
            Record::Ok(end) => {
                if let Some(invoke) = self.opened(end.p) {
                    self.verdict.acknowledged += 1;
                    self.acknowledged(invoke, end);
                }
            }
            Record::Fail(end) => {
                if let Some(invoke) = self.opened(end.p) {
                    self.verdict.failed += 1;
                    self.failed(invoke);
                }
            }
            Record::Unknown(end) => {
                if let Some(invoke) = self.opened(end.p) {
                    self.unknown(invoke);
                }
            }
            Record::Final(last) => {
                let key = self.keys.entry_ref(last.key.as_str()).or_default();
                key.last = Some(last);
            }
            Record::Digest(digest) => self.replicas.take(digest),
            Record::End(_) => self.ended = true,
            Record::Fault(_) => {}
            Record::Header(_) => {
                self.verdict.wrong("history", || "a second header".to_owned());
            }
        }
    }

    fn opened(&mut self, p: Process) -> Option<Invoke> {
        let invoke = self.open.remove(&p);
        if invoke.is_none() {
            self.verdict.wrong("history", || format!("process {p} is answered without asking"));
        }
        invoke
    }

    fn acknowledged(&mut self, invoke: Invoke, end: Return) {
        let Invoke { t, p, guards, ops, otherwise, stale } = invoke;
        if !end.held && guards.is_empty() {
            self.verdict.wrong("wrong_reply", || {
                format!("process {p}: answers to conditions that it did not give")
            });
            return;
        }
        let ops = if end.held { ops } else { otherwise };
        if ops.len() != end.out.len() {
            let (asked, got) = (ops.len(), end.out.len());
            self.verdict.wrong("wrong_reply", || {
                format!("process {p} requested {asked} results and received {got}")
            });
            return;
        }
        // A stale read observes a state of any time, each key's by itself, and later operations
        // need not observe it.
        let (invoked, returned) = if stale { (0, NEVER) } else { (t, end.t) };
        let moment = Moment { process: p, invoked, returned };
        self.bank.asked(&ops);
        if !stale {
            let held = if end.held { &guards[..] } else { &[] };
            self.bank.look(held, &ops, &end.out, moment, &mut self.verdict);
        }
        let mut written = HashSet::new();
        for op in ops.iter().filter(|op| op.writes()) {
            if !written.insert(op.key()) {
                // A second write of a key in one transaction hides the effect of the first.
                self.keys.entry_ref(op.key()).or_default().mixed = true;
            }
        }
        drop(written);
        for (op, out) in ops.into_iter().zip(end.out) {
            let key = self.keys.entry_ref(op.key()).or_default();
            match (op, out) {
                (Op::Append(_, what), Out::Length(result)) => {
                    key.appends.push(Written { moment, what, result: Some(result) });
                }
                (Op::Put(_, what), Out::Version(result)) => {
                    key.puts.push(Written { moment, what, result: Some(result) });
                }
                (Op::Incr(_, what), Out::Number(result)) => {
                    key.increments.push(Written { moment, what, result: Some(result) });
                }
                (Op::Patch(..) | Op::Overwrite(..), Out::Length(_))
                | (Op::Delete(_), Out::Flag(_)) => key.mixed = true,
                // Their results say nothing that can be checked on a single key.
                (Op::Exists(_), Out::Flag(_)) | (Op::Scan(..), Out::Page(..)) => {}
                (Op::Get(_), Out::Value(found)) => {
                    let found = found.map(|(value, version)| (key.keep(value), version));
                    key.gets.push(Got { moment, found });
                }
                (op, out) => {
                    self.verdict.wrong("wrong_reply", || format!("process {p}: {out:?} to {op:?}"));
                }
            }
        }
    }

    fn unknown(&mut self, invoke: Invoke) {
        self.verdict.unknown += 1;
        self.bank.unknown(&invoke.ops);
        self.bank.unknown(&invoke.otherwise);
        let moment = Moment { process: invoke.p, invoked: invoke.t, returned: NEVER };
        for op in invoke.ops.into_iter().chain(invoke.otherwise) {
            let key = self.keys.entry_ref(op.key()).or_default();
            match op {
                Op::Append(_, what) => key.appends.push(Written { moment, what, result: None }),
                Op::Put(_, what) => key.puts.push(Written { moment, what, result: None }),
                Op::Incr(_, what) => key.increments.push(Written { moment, what, result: None }),
                Op::Patch(..) | Op::Overwrite(..) | Op::Delete(_) => key.mixed = true,
                Op::Get(_) | Op::Exists(_) | Op::Scan(..) => {}
            }
        }
    }

    fn failed(&mut self, invoke: Invoke) {
        for op in invoke.ops.into_iter().chain(invoke.otherwise) {
            let key = self.keys.entry_ref(op.key()).or_default();
            if let Op::Append(_, what) | Op::Put(_, what) = op {
                key.not_written.insert(what);
            }
        }
    }

    /// Checks all keys and returns the verdict.
    pub fn finish(mut self) -> Judgement {
        // Operations still open at the end have an unknown outcome.
        for invoke in std::mem::take(&mut self.open).into_values() {
            self.unknown(invoke);
        }
        let Self { header, keys, bank, replicas, ended, mut verdict, .. } = self;
        if !ended {
            verdict.wrong("history", || "it breaks off before its end".to_owned());
        }
        let mut names: Vec<_> = keys.into_iter().collect();
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        let looked = names.iter().any(|(_, key)| key.last.is_some());
        for (name, key) in &names {
            verdict.keys += 1;
            check_key(header, name, key, &bank, looked, &mut verdict);
        }
        bank.finish(&names, &mut verdict);
        replicas.finish(header, &mut verdict);
        verdict
    }
}

/// Checks one key by its operations. A key without a final read is a violation if other keys have
/// one. If no key has one, the key's order is [checked](crate::check) nevertheless.
fn check_key(
    header: &Header,
    name: &str,
    key: &Key,
    bank: &Bank,
    looked: bool,
    verdict: &mut Judgement,
) {
    let written = key.appends.len() + key.puts.len() + key.increments.len();
    let Some(last) = &key.last else {
        if written > 0 && looked {
            verdict.wrong("history", || format!("{name} was not read when all was over"));
        }
        return;
    };
    if bank.has(name) || key.mixed {
        return; // Checked with the other accounts, or in the order of all transactions.
    }
    match (key.appends.is_empty(), key.puts.is_empty(), key.increments.is_empty()) {
        (false, true, true) => list::check(header, name, key, last, verdict),
        (true, false, true) => register::check(header, name, key, last, verdict),
        // The initial value is unknown.
        (true, true, _) if header.before => {}
        (true, true, false) if key.increments.iter().any(|one| one.what != 1) => {}
        (true, true, false) => counter::check(header, name, key, last, verdict),
        (true, true, true) => nothing_written(name, key, last, verdict),
        // Only the order of all transactions determines the right value.
        _ => {}
    }
}

fn nothing_written(name: &str, key: &Key, last: &Final, verdict: &mut Judgement) {
    let found = key.gets.iter().filter_map(|got| key.found(got)).chain(last.found()).next();
    if let Some((value, _)) = found {
        verdict.wrong("invented", || {
            format!("{name} has the value {value:?}, which no transaction wrote")
        });
    }
}

impl Moment {
    /// Process and times, for evidence.
    fn show(&self, header: &Header) -> String {
        let at = |t: u64| seconds(header, t);
        let Self { process, invoked, returned } = *self;
        if returned == NEVER {
            return format!("process {process}, invoked at {} s and never answered", at(invoked));
        }
        format!(
            "process {process}, invoked at {} s and answered at {} s",
            at(invoked),
            at(returned)
        )
    }
}

/// Seconds since the history began.
fn seconds(header: &Header, t: u64) -> String {
    format!("{:.6}", t.saturating_sub(header.t) as f64 / 1e9)
}

impl Op {
    /// Whether it can change a value.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Get(_) | Self::Exists(_) | Self::Scan(..))
    }

    /// The key of the operation; the first key of a scan.
    pub fn key(&self) -> &str {
        match self {
            Self::Get(key)
            | Self::Append(key, _)
            | Self::Put(key, _)
            | Self::Incr(key, _)
            | Self::Patch(key, ..)
            | Self::Overwrite(key, ..)
            | Self::Delete(key)
            | Self::Exists(key)
            | Self::Scan(key, ..) => key,
        }
    }
}
