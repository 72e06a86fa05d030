//! A history in memory: the steps of each transaction, with keys and values as numbers.
//!
//! **Invariant (memory).** Memory grows with the number of operations, not with the size of what
//! was read. Of a list only the longest value read is kept: a read of a prefix of it is kept as a
//! length, and any other read is evidence and kept whole. A list that grows to a hundred thousand
//! values and is read as often costs its own length, not its square.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::names::Names;
use super::scripts::{Ended, Scripts, Text};
use crate::history::{Guard, Header, Invoke, Op, Out, Process, ReadError, Record, bytes, text};

/// No number.
pub(super) const NONE: u32 = u32::MAX;
/// A read of a list that is not a prefix of the longest value.
pub(super) const DIVERGED: u32 = u32::MAX - 1;
/// Not answered.
pub(super) const NEVER: u64 = u64::MAX;
/// The process of the final reads.
pub(super) const AFTERWARDS: Process = Process::MAX;
/// Most items that can be numbered.
pub(super) const COUNT_MAX: usize = 1 << 26;

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// It did not execute and never will.
    Refused,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    pub(super) process: Process,
    pub(super) invoked: u64,
    /// [`NEVER`] if it was not answered.
    pub(super) returned: u64,
    /// Its first step. Its steps end before the next transaction's first.
    first: u32,
    pub(super) fate: Fate,
    /// A stale read of one key.
    pub(super) stale: bool,
}

/// One operation that a transaction executed or may have executed. Zero stands for a result that is
/// not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Append to a list, and the length afterwards in bytes.
    Append { key: u32, value: u32, length: u64 },
    /// Set of a register, and the new version.
    Put { key: u32, value: u32, version: u64 },
    /// Overwrite of a field of a record.
    Patch { key: u32, value: u32, field: u32 },
    /// Increment of a number.
    Incr { key: u32, by: i64, number: Option<i64> },
    /// Removal of a value.
    Delete { key: u32 },
    /// Overwrite of bytes of the value.
    Overwrite { key: u32 },
    /// A condition that held: the key is at this version.
    At { key: u32, version: u64 },
    /// A read: of a list the number of values or [`DIVERGED`], else the number of the value or
    /// [`NONE`].
    Get { key: u32, saw: u32, version: u64 },
}

impl Step {
    pub(super) fn key(self) -> u32 {
        match self {
            Self::Append { key, .. }
            | Self::Put { key, .. }
            | Self::Patch { key, .. }
            | Self::Incr { key, .. }
            | Self::Delete { key }
            | Self::Overwrite { key }
            | Self::At { key, .. }
            | Self::Get { key, .. } => key,
        }
    }

    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Get { .. } | Self::At { .. })
    }
}

/// The kind of a key, by the operations that write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unwritten,
    /// Only appended to.
    List,
    /// Only set.
    Register,
    /// Only incremented, by more than zero.
    Counter,
    /// Set, and overwritten by fields.
    Record,
    /// Anything else. Only the versions at which it was read and set are used.
    Other,
    /// Removed, or overwritten by bytes. Only the order of the returned versions is used.
    Mixed,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unwritten => "unwritten",
            Self::List => "lists",
            Self::Register => "registers",
            Self::Counter => "counters",
            Self::Record => "records",
            Self::Other => "others",
            Self::Mixed => "mixed",
        }
    }
}

/// What is kept per key.
#[derive(Default)]
struct Key {
    appended: bool,
    put: bool,
    counted: bool,
    patched: bool,
    taken_from: bool,
    /// Whether it is removed, or bytes of it are overwritten.
    mixed: bool,
    /// Whether it is set to a value that is not a record, in a history of records.
    raw: bool,
    /// The longest value read of a list.
    longest: Vec<u8>,
    /// Steps that read it before its kind was known.
    early: Vec<u32>,
}

/// A read of a list that is not a prefix of its longest value.
pub(super) struct Diverged {
    pub(super) step: u32,
    pub(super) value: String,
}

/// A history.
pub(super) struct Model {
    pub(super) header: Header,
    pub(super) keys: Names,
    pub(super) values: Names,
    pub(super) transactions: Vec<Transaction>,
    pub(super) steps: Vec<Step>,
    pub(super) diverged: Vec<Diverged>,
    /// Commands and results, as the store executes them.
    pub(super) scripts: Scripts,
    /// Opening balance of the accounts, if nothing else is known of the state before the history.
    pub(super) opening: Option<Text>,
    /// Keys below this number are accounts.
    accounts: u32,
    /// Values that may never have been requested: their transactions have another branch, and the
    /// branch taken is not known.
    pub(super) doubtful: Vec<u32>,
    /// Operations that were answered.
    pub(super) answered: u64,
    /// Transactions that stand for a branch that was not taken.
    pub(super) not_taken: u64,
    /// Whether an end record was taken.
    pub(super) ended: bool,
    /// Whether these contradictions were already reported, which is done once: records after the
    /// end, and a token whose length differs from the header's.
    goes_on: bool,
    odd_token: bool,
    /// Contradictions of the history itself, such as answers without an invocation.
    pub(super) contradictions: Vec<String>,
    facts: Vec<Key>,
    open: HashMap<Process, Invoke>,
    /// Time of each process's last answer, and its transaction.
    last: HashMap<Process, (u64, u32)>,
}

impl Model {
    pub(super) fn new(header: &Header) -> Self {
        let mut model = Self {
            header: header.clone(),
            keys: Names::default(),
            values: Names::default(),
            transactions: Vec::new(),
            steps: Vec::new(),
            diverged: Vec::new(),
            opening: None,
            accounts: 0,
            scripts: Scripts::new(header.record),
            doubtful: Vec::new(),
            answered: 0,
            not_taken: 0,
            ended: false,
            goes_on: false,
            odd_token: false,
            contradictions: Vec::new(),
            facts: Vec::new(),
            open: HashMap::new(),
            last: HashMap::new(),
        };
        model.opening = model.scripts.opening(header);
        // Accounts have a value from before the history and are decremented, whether or not the
        // history shows it.
        for account in header.bank.iter().flat_map(|bank| &bank.accounts) {
            let key = model.key(account) as usize;
            model.facts[key].taken_from = true;
        }
        model.accounts = model.facts.len() as u32;
        model
    }

    /// Takes the next record of the history.
    pub(super) fn take(&mut self, record: &Record) -> Result<(), ReadError> {
        if self.ended && !self.goes_on {
            self.goes_on = true;
            self.contradicts(|| "it goes on after its end".to_owned());
        }
        match record {
            Record::Invoke(invoke) => {
                for op in invoke.ops.iter().chain(&invoke.otherwise) {
                    self.asked(op);
                    self.measure(op, invoke.p);
                }
                let conditional = !invoke.guards.is_empty() || !invoke.otherwise.is_empty();
                if invoke.stale && (conditional || invoke.ops.iter().any(Op::writes)) {
                    self.contradicts(|| {
                        let p = invoke.p;
                        format!("process {p} asks for a stale transaction that does more than read")
                    });
                }
                if let Some(before) = self.open.insert(invoke.p, invoke.clone()) {
                    let p = before.p;
                    self.contradicts(|| format!("process {p} asks twice at a time"));
                    self.end(&before, NEVER, Fate::Unknown, true, &[]);
                }
            }
            Record::Ok(end) => {
                self.answered += 1;
                let Some(invoke) = self.opened(end.p, end.t) else { return Ok(()) };
                let branch = if end.held { &invoke.ops } else { &invoke.otherwise };
                if branch.len() == end.out.len() {
                    self.end(&invoke, end.t, Fate::Done, end.held, &end.out);
                } else {
                    self.contradicts(|| {
                        let (p, asked, got) = (end.p, branch.len(), end.out.len());
                        format!("process {p} requested {asked} results and received {got}")
                    });
                    self.end(&invoke, end.t, Fate::Unknown, true, &[]);
                }
            }
            Record::Fail(end) => {
                let Some(invoke) = self.opened(end.p, end.t) else { return Ok(()) };
                self.end(&invoke, end.t, Fate::Refused, true, &[]);
            }
            Record::Unknown(end) => {
                let Some(invoke) = self.opened(end.p, end.t) else { return Ok(()) };
                self.end(&invoke, NEVER, Fate::Unknown, true, &[]);
            }
            Record::Final(last) => {
                let (t, p) = (last.t, AFTERWARDS);
                let ops = vec![Op::Get(last.key.clone())];
                let (guards, otherwise) = (Vec::new(), Vec::new());
                let invoke = Invoke { t, p, guards, ops, otherwise, stale: false };
                self.end(&invoke, NEVER, Fate::Done, true, &[Out::Value(last.value.clone())]);
            }
            Record::End(_) => self.ended = true,
            Record::Header(_) => self.contradicts(|| "a second header".to_owned()),
            Record::Fault(_) | Record::Digest(_) => {}
        }
        let most = self.steps.len().max(self.transactions.len()).max(self.values.len());
        if most >= COUNT_MAX { Err(ReadError::TooMany { max: COUNT_MAX }) } else { Ok(()) }
    }

    /// Ends the history. Operations without an answer have an unknown outcome.
    pub(super) fn finish(&mut self) {
        let mut open: Vec<Invoke> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_unstable_by_key(|invoke| (invoke.t, invoke.p));
        for invoke in open {
            self.end(&invoke, NEVER, Fate::Unknown, true, &[]);
        }
    }

    pub(super) fn steps_of(&self, transaction: u32) -> &[Step] {
        let (from, to) = self.range(transaction);
        &self.steps[from..to]
    }

    /// Range of a transaction's [`steps`](Self::steps).
    pub(super) fn range(&self, transaction: u32) -> (usize, usize) {
        let at = transaction as usize;
        let end =
            self.transactions.get(at + 1).map_or(self.steps.len(), |next| next.first as usize);
        (self.transactions[at].first as usize, end)
    }

    pub(super) fn kind(&self, key: u32) -> Kind {
        let Key { appended, put, counted, taken_from, patched, mixed, raw, .. } =
            self.facts[key as usize];
        // If the value may not be a record, its fields cannot be distinguished.
        let fields = self.header.record.is_some() && !(appended || counted || taken_from || raw);
        if mixed || patched && !fields {
            return Kind::Mixed;
        }
        if patched {
            return Kind::Record;
        }
        match (appended, put, counted, taken_from) {
            (false, false, false, false) => Kind::Unwritten,
            (false, true, false, false) => Kind::Register,
            // Lists and counters show their past only if they began empty.
            _ if self.header.before => Kind::Other,
            (true, false, false, false) => Kind::List,
            (false, false, true, false) => Kind::Counter,
            _ => Kind::Other,
        }
    }

    /// The longest value of a list.
    pub(super) fn longest(&self, key: u32) -> &[u8] {
        &self.facts[key as usize].longest
    }

    /// Bytes of each value of a list.
    pub(super) fn width(&self) -> usize {
        self.header.token_bytes
    }

    /// The open operation of process `p`, which is answered at `t`.
    fn opened(&mut self, p: Process, t: u64) -> Option<Invoke> {
        let invoke = self.open.remove(&p);
        match &invoke {
            None => self.contradicts(|| format!("process {p} is answered without having asked")),
            Some(Invoke { t: asked, .. }) if t < *asked => {
                self.contradicts(|| {
                    format!("process {p} was invoked at {asked} and answered at {t}")
                });
            }
            Some(_) => {}
        }
        invoke
    }

    /// Checks a token's length against the header. Concatenated tokens are split by it.
    fn measure(&mut self, op: &Op, p: Process) {
        let (token, wanted) = match op {
            Op::Append(_, token) => (token, Some(self.header.token_bytes)),
            Op::Patch(.., token) => (token, self.header.record.map(|record| record.token_bytes)),
            _ => return,
        };
        if wanted != Some(bytes(token).len()) && !self.odd_token {
            self.odd_token = true;
            let wanted = wanted.map_or("none".to_owned(), |wanted| format!("{wanted} bytes"));
            self.contradicts(|| {
                format!("process {p} writes the token {token:?}, and its header says {wanted}")
            });
        }
    }

    fn contradicts(&mut self, what: impl FnOnce() -> String) {
        self.contradictions.push(what());
    }

    fn key(&mut self, key: &str) -> u32 {
        number(&mut self.keys, &mut self.facts, key)
    }

    /// Derives the kind of a key from an operation on it.
    fn asked(&mut self, op: &Op) {
        if matches!(op, Op::Exists(_) | Op::Scan(..)) {
            return;
        }
        let key = self.key(op.key());
        let facts = &mut self.facts[key as usize];
        match op {
            // The concatenation of bytes that are not valid UTF-8 is not the concatenation of their
            // texts.
            Op::Append(_, token) if matches!(bytes(token), Cow::Owned(_)) => facts.mixed = true,
            Op::Append(..) => {
                facts.appended = true;
                for step in std::mem::take(&mut facts.early) {
                    self.reread(key, step);
                }
            }
            Op::Put(_, value) => {
                facts.put = true;
                let record = self.header.record;
                facts.raw |= record.is_some_and(|it| bytes(value).len() != it.tokens_len());
            }
            Op::Incr(_, by) if *by > 0 => facts.counted = true,
            Op::Incr(..) => facts.taken_from = true,
            Op::Patch(..) => facts.patched = true,
            Op::Delete(_) | Op::Overwrite(..) => facts.mixed = true,
            Op::Get(_) | Op::Exists(_) | Op::Scan(..) => {}
        }
        let facts = &mut self.facts[key as usize];
        if facts.put || facts.counted || facts.taken_from || facts.patched || facts.mixed {
            facts.early = Vec::new();
        }
    }

    /// Takes the end of an operation. A stale read of several keys becomes one read per key, and a
    /// stale scan one per key found: each observed its key's state at some time before the answer,
    /// not necessarily the same or a late one. Absent keys of a scan say nothing, because before
    /// the history there were none. A missing account says nothing, because before the history it
    /// was not opened.
    fn end(&mut self, invoke: &Invoke, returned: u64, fate: Fate, held: bool, out: &[Out]) {
        if !invoke.stale {
            return self.transaction(invoke, returned, fate, held, out);
        }
        if self.header.before {
            return; // It may be older than any value observed in the history.
        }
        for (i, op) in invoke.ops.iter().enumerate() {
            let out = out.get(i);
            if let (Op::Scan(start, end, limit), Some(Out::Page(pairs, _))) = (op, out) {
                for (i, (key, value)) in pairs.iter().enumerate() {
                    let rest = limit.saturating_sub(u32::try_from(i).unwrap_or(u32::MAX));
                    let op = found_at(start, end.as_deref(), key, rest.min(1));
                    let found = Out::Page(vec![(key.clone(), value.clone())], None);
                    self.stale(invoke.p, op, returned, fate, &[found]);
                }
            } else if !out.is_some_and(|out| self.is_unopened(op, out)) {
                self.stale(
                    invoke.p,
                    op.clone(),
                    returned,
                    fate,
                    out.map_or(&[], std::slice::from_ref),
                );
            }
        }
    }

    /// Whether an account was not found.
    fn is_unopened(&mut self, op: &Op, out: &Out) -> bool {
        matches!(out, Out::Value(None) | Out::Flag(false)) && self.key(op.key()) < self.accounts
    }

    fn stale(&mut self, p: Process, op: Op, returned: u64, fate: Fate, out: &[Out]) {
        let (guards, otherwise) = (Vec::new(), Vec::new());
        let one = Invoke { t: 0, p, guards, ops: vec![op], otherwise, stale: true };
        self.transaction(&one, returned, fate, true, out);
    }

    fn transaction(&mut self, invoke: &Invoke, returned: u64, fate: Fate, held: bool, out: &[Out]) {
        let first = self.steps.len() as u32;
        let mut fate = fate;
        if fate == Fate::Done && held {
            self.conditions(&invoke.guards);
        }
        let (branch, other) =
            if held { (&invoke.ops, &invoke.otherwise) } else { (&invoke.otherwise, &invoke.ops) };
        if fate != Fate::Unknown || other.is_empty() {
            self.branch(branch, invoke.p, out, &mut fate);
        } else {
            self.doubt(branch);
            self.doubt(other);
        }
        let Invoke { t: invoked, p: process, stale, .. } = *invoke;
        let transaction = self.transactions.len() as u32;
        let returned = if fate == Fate::Unknown { NEVER } else { returned };
        self.transactions.push(Transaction { process, invoked, returned, first, fate, stale });
        if fate != Fate::Refused && !stale {
            let before = self.last.get(&process).filter(|(answered, _)| *answered == invoked);
            self.scripts.ties.extend(before.map(|(_, before)| (transaction, *before)));
            if returned != NEVER {
                self.last.insert(process, (returned, transaction));
            }
        }
        if fate == Fate::Done && other.iter().any(Op::writes) {
            let first = self.steps.len() as u32;
            let mut fate = Fate::Refused;
            self.branch(other, process, &[], &mut fate);
            self.transactions.push(Transaction { process, invoked, returned, first, fate, stale });
            self.not_taken += 1;
        }
        let Self { scripts, keys, facts, .. } = self;
        let mut key = |key: &str| number(keys, facts, key);
        scripts.take(transaction, invoke, Ended { returned, fate, held, out }, &mut key);
    }

    /// Adds the reads implied by conditions that held.
    fn conditions(&mut self, guards: &[Guard]) {
        for guard in guards {
            if let Guard::Version(key, version) = guard
                && *version > 0
            {
                let key = self.key(key);
                self.steps.push(Step::At { key, version: *version });
            }
        }
    }

    /// Marks the values of a branch that may not have been taken.
    fn doubt(&mut self, ops: &[Op]) {
        for op in ops {
            if let Op::Incr(key, _) = op {
                // The amount of its increments is no longer certain.
                let key = self.key(key);
                self.facts[key as usize].taken_from = true;
            }
            let (Op::Append(key, value) | Op::Put(key, value) | Op::Patch(key, _, value)) = op
            else {
                continue;
            };
            let key = self.key(key);
            // Each field of a record is a value that a transaction may have written.
            let tokens = self.tokens(key, value);
            self.doubtful.extend(tokens);
            let value = self.value(key, value);
            self.doubtful.push(value);
            if let Op::Patch(_, field, _) = op {
                self.patched(key, *field, None);
            }
        }
    }

    fn branch(&mut self, ops: &[Op], p: Process, out: &[Out], fate: &mut Fate) {
        let mut answered = out.iter();
        for op in ops {
            let out = answered.next();
            let key = match op {
                // Only the search for a witness uses their results.
                Op::Exists(_) | Op::Scan(..) => NONE,
                _ => self.key(op.key()),
            };
            let step = match (op, out) {
                (Op::Append(_, value), out @ (None | Some(Out::Length(_)))) => {
                    let value = self.value(key, value);
                    let length = if let Some(Out::Length(length)) = out { *length } else { 0 };
                    Step::Append { key, value, length }
                }
                (Op::Put(_, value), out @ (None | Some(Out::Version(_)))) => {
                    self.tokens(key, value);
                    let value = self.value(key, value);
                    let version = if let Some(Out::Version(version)) = out { *version } else { 0 };
                    Step::Put { key, value, version }
                }
                (Op::Patch(_, field, value), out @ (None | Some(Out::Length(_)))) => {
                    let length =
                        if let Some(Out::Length(length)) = out { Some(*length) } else { None };
                    if *fate != Fate::Refused {
                        self.patched(key, *field, length);
                    }
                    let value = self.value(key, value);
                    Step::Patch { key, value, field: *field as u32 }
                }
                (Op::Incr(_, by), out @ (None | Some(Out::Number(_)))) => {
                    let number =
                        if let Some(Out::Number(number)) = out { Some(*number) } else { None };
                    Step::Incr { key, by: *by, number }
                }
                (Op::Delete(_), None | Some(Out::Flag(_))) => Step::Delete { key },
                (Op::Overwrite(..), None | Some(Out::Length(_))) => Step::Overwrite { key },
                (Op::Get(_), Some(Out::Value(found))) => self.got(key, found.as_ref()),
                (Op::Exists(_), Some(Out::Flag(_))) | (Op::Scan(..), Some(Out::Page(..))) => {
                    continue;
                }
                // A read without an answer observed nothing.
                (Op::Get(_) | Op::Exists(_) | Op::Scan(..), None) => continue,
                (op, Some(out)) => {
                    self.contradicts(|| format!("process {p} was answered {out:?} to {op:?}"));
                    *fate = Fate::Unknown;
                    continue;
                }
            };
            self.steps.push(step);
        }
    }

    /// The number of a value. Both encodings of the same bytes have one number.
    fn value(&mut self, key: u32, value: &str) -> u32 {
        match bytes(value) {
            Cow::Borrowed(value) => self.values.intern(key, value),
            Cow::Owned(value) => self.values.intern(key, coded(&value).as_bytes()),
        }
    }

    /// Interns the fields of a record that is set as values of their own.
    fn tokens(&mut self, key: u32, value: &str) -> Vec<u32> {
        let Some(record) = self.header.record else { return Vec::new() };
        let value = bytes(value);
        if value.len() != record.fields * record.token_bytes {
            return Vec::new();
        }
        let tokens = value.chunks(record.token_bytes);
        tokens.map(|token| self.values.intern(key, coded(token).as_bytes())).collect()
    }

    /// The tokens of the fields of a record that was set or read; `None` if it is not a record.
    pub(super) fn fields(&self, key: u32, value: u32) -> Option<Vec<Option<u32>>> {
        let record = self.header.record?;
        let value = bytes(self.values.text(value));
        let tokens = value.chunks(record.token_bytes);
        let tokens = tokens.map(|token| self.values.find(key, coded(token).as_bytes()));
        (value.len() == record.fields * record.token_bytes).then(|| tokens.collect())
    }

    /// Takes the write of a field, after which the value had the length `told`. If that is not the
    /// length of a record, or is unknown and may be that of the tokens, a value as long as the
    /// tokens need not be a record.
    fn patched(&mut self, key: u32, field: usize, told: Option<u64>) {
        let Some(record) = self.header.record else { return };
        let (tokens, whole) = (record.tokens_len(), record.whole_len());
        let longest = whole.max(record.end_of(field)) as u64;
        let is_raw = match told {
            Some(told) => told != longest,
            None => tokens != whole && record.end_of(field) == tokens,
        };
        self.facts[key as usize].raw |= is_raw;
    }

    /// The step of a read that found `found`. It must be pushed next.
    fn got(&mut self, key: u32, found: Option<&(String, u64)>) -> Step {
        let step = self.steps.len() as u32;
        let facts = &mut self.facts[key as usize];
        let Some((value, version)) = found else {
            let saw = if facts.appended { 0 } else { NONE };
            if !facts.appended && !facts.put && !facts.counted && !facts.taken_from {
                facts.early.push(step);
            }
            return Step::Get { key, saw, version: 0 };
        };
        let version = *version;
        if facts.appended {
            return Step::Get { key, saw: self.beginning(key, value, step), version };
        }
        if !facts.put && !facts.counted && !facts.taken_from {
            facts.early.push(step);
        }
        Step::Get { key, saw: self.value(key, value), version }
    }

    /// Converts a read made before the key was known to be a list.
    fn reread(&mut self, key: u32, step: u32) {
        let Step::Get { saw, version, .. } = self.steps[step as usize] else {
            unreachable!("only reads are early")
        };
        let saw = if saw == NONE {
            0
        } else {
            let value = self.values.text(saw).to_owned();
            self.beginning(key, &value, step)
        };
        self.steps[step as usize] = Step::Get { key, saw, version };
    }

    /// Number of values of the list that was read as `value`.
    fn beginning(&mut self, key: u32, value: &str, step: u32) -> u32 {
        let width = self.width();
        let facts = &mut self.facts[key as usize];
        if matches!(bytes(value), Cow::Owned(_)) {
            // The value is encoded as digits as a whole, not token by token.
            facts.mixed = true;
            return DIVERGED;
        }
        let longest = &mut facts.longest;
        let common = longest.len().min(value.len());
        if value.len().is_multiple_of(width) && value.as_bytes()[..common] == longest[..common] {
            longest.extend_from_slice(&value.as_bytes()[common..]);
            return (value.len() / width) as u32;
        }
        self.diverged.push(Diverged { step, value: value.to_owned() });
        DIVERGED
    }
}

/// The scan restricted to one key.
fn found_at(start: &str, end: Option<&str>, key: &str, limit: u32) -> Op {
    let mut behind = bytes(key).into_owned();
    behind.push(0);
    let end = end.map(bytes).filter(|end| **end < behind[..]);
    let from = if bytes(start) > bytes(key) { start } else { key };
    Op::Scan(from.to_owned(), Some(text(end.as_deref().unwrap_or(&behind))), limit)
}

/// Bytes as a history holds them.
fn coded(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with('\0') => Cow::Borrowed(text),
        _ => Cow::Owned(text(bytes)),
    }
}

/// The number of a key.
fn number(keys: &mut Names, facts: &mut Vec<Key>, key: &str) -> u32 {
    let number = keys.intern(0, key.as_bytes());
    if number as usize == facts.len() {
        facts.push(Key::default());
    }
    number
}
