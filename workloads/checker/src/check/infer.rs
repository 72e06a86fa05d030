//! Versions of each key: their order, their writers and their readers.
//!
//! The order of versions is inferred from what clients observed, and only from their own
//! observations. A list shows its whole past to every reader. A counter that only rises is its own
//! version. For other keys the version is returned by each read and each set, and rises with each
//! write.
//!
//! **Unknown outcomes.** A transaction without an answer may have executed as a whole or not at
//! all, at any time after its invocation. So its writes count only where they were observed. As its
//! end is unknown, nothing follows it in real time.

use super::findings::{Anomaly, Findings};
use super::graph::{Builder, Helper, Why};
use super::model::{Fate, Kind, Model, NEVER, NONE, Step};
use super::words::Words;

/// Marks a value that several transactions wrote: it identifies none of them.
pub(super) const AMBIGUOUS: u32 = NONE - 1;

/// Relation of a step to the other steps of its transaction on the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Within {
    /// The transaction read or wrote the key before: this read says nothing about others.
    pub(super) known: bool,
    /// The transaction wrote the key before: this read is about that write.
    pub(super) own: bool,
    /// The transaction writes the key again: no other may observe what this step leaves.
    pub(super) rewritten: bool,
}

/// The state of the inference.
pub(super) struct Inference<'a> {
    pub(super) model: &'a Model,
    pub(super) words: &'a Words<'a>,
    pub(super) findings: &'a mut Findings,
    pub(super) builder: Builder,
    /// Writer of each value: a transaction, [`NONE`] or [`AMBIGUOUS`].
    pub(super) writers: Vec<u32>,
    /// Per step.
    pub(super) within: Vec<Within>,
    /// The transaction of each step.
    owners: Vec<u32>,
    /// Steps by key.
    offsets: Vec<u32>,
    by_key: Vec<u32>,
    /// Position of each value: in a list its index, from 1 on; in a register its version.
    pub(super) places: Vec<u64>,
    /// Transactions that certainly executed.
    pub(super) happened: Vec<bool>,
}

/// A version of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// Rises from one version to the next.
    pub(super) place: u64,
    /// A transaction that wrote the version, or one of the fields that differ from the version
    /// before.
    pub(super) writer: u32,
}

/// A read by a transaction that had not accessed the key before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reader {
    pub(super) place: u64,
    pub(super) transaction: u32,
}

impl<'a> Inference<'a> {
    pub(super) fn new(
        model: &'a Model,
        words: &'a Words<'a>,
        findings: &'a mut Findings,
        within: Vec<Within>,
    ) -> Self {
        let mut writers = vec![NONE; model.values.len()];
        let mut owners = vec![NONE; model.steps.len()];
        let mut offsets = vec![0u32; model.keys.len() + 1];
        for transaction in 0..model.transactions.len() as u32 {
            let (from, to) = model.range(transaction);
            for (step, owner) in model.steps[from..to].iter().zip(&mut owners[from..to]) {
                *owner = transaction;
                offsets[step.key() as usize + 1] += 1;
                let mut writes = |value: u32| {
                    let writer = &mut writers[value as usize];
                    *writer = if *writer == NONE { transaction } else { AMBIGUOUS };
                };
                match *step {
                    Step::Put { key, value, .. } if model.kind(key) == Kind::Record => {
                        let fields = model.fields(key, value).into_iter().flatten().flatten();
                        fields.for_each(&mut writes);
                    }
                    Step::Append { value, .. }
                    | Step::Put { value, .. }
                    | Step::Patch { value, .. } => writes(value),
                    _ => {}
                }
            }
        }
        for value in &model.doubtful {
            writers[*value as usize] = AMBIGUOUS;
        }
        for key in 0..model.keys.len() {
            offsets[key + 1] += offsets[key];
        }
        let mut at = offsets.clone();
        let mut by_key = vec![0; model.steps.len()];
        for (i, step) in model.steps.iter().enumerate() {
            let place = &mut at[step.key() as usize];
            by_key[*place as usize] = i as u32;
            *place += 1;
        }
        let builder = Builder::new(model.transactions.len());
        let places = vec![0; model.values.len()];
        let done = |one: &super::model::Transaction| one.fate == Fate::Done;
        let happened = model.transactions.iter().map(done).collect();
        let mut all = Self {
            model,
            words,
            findings,
            builder,
            writers,
            within,
            owners,
            offsets,
            by_key,
            places,
            happened,
        };
        all.what_was_seen_happened();
        all
    }

    /// Marks transactions as executed if one of their writes was observed.
    fn what_was_seen_happened(&mut self) {
        let model = self.model;
        if model.header.before {
            return self.what_was_seen_later_happened();
        }
        let mut seen = |value: u32| {
            let writer = self.writers[value as usize];
            if writer < AMBIGUOUS && model.transactions[writer as usize].fate == Fate::Unknown {
                self.happened[writer as usize] = true;
            }
        };
        for key in 0..model.keys.len() as u32 {
            if model.kind(key) == Kind::List {
                for token in model.longest(key).chunks(model.width()) {
                    model.values.find(key, token).into_iter().for_each(&mut seen);
                }
            }
        }
        for step in &model.steps {
            match *step {
                Step::Get { key, saw, .. }
                    if saw < AMBIGUOUS && model.kind(key) == Kind::Register =>
                {
                    seen(saw);
                }
                Step::Get { key, saw, .. }
                    if saw < AMBIGUOUS && model.kind(key) == Kind::Record =>
                {
                    model.fields(key, saw).into_iter().flatten().flatten().for_each(&mut seen);
                }
                _ => {}
            }
        }
    }

    /// The same where keys may have values from before the history. The oldest known version of a
    /// key may be such a value. Versions rise with each write, so a value at a later version was
    /// written in the history, and so was a field that differs from that of the oldest known
    /// record.
    fn what_was_seen_later_happened(&mut self) {
        let model = self.model;
        for key in 0..model.keys.len() as u32 {
            let kind = model.kind(key);
            if !matches!(kind, Kind::Register | Kind::Record) {
                continue;
            }
            let values = |value| match kind {
                Kind::Record if value < AMBIGUOUS => model.fields(key, value),
                Kind::Record => Some(Vec::new()),
                _ => Some(vec![Some(value)]),
            };
            let told = self.accesses(key).filter_map(|(transaction, step)| {
                let is_done = self.fate(transaction) == Fate::Done;
                match model.steps[step as usize] {
                    Step::Get { saw, version, .. } if is_done => Some((version, values(saw)?)),
                    Step::Put { value, version, .. } if is_done && version != 0 => {
                        Some((version, values(value)?))
                    }
                    _ => None,
                }
            });
            let told: Vec<_> = told.collect();
            let Some((first, old)) = told.iter().min_by_key(|(version, _)| *version) else {
                continue;
            };
            let is_old = |at: usize, value| kind == Kind::Record && old.get(at) == Some(&value);
            for (_, values) in told.iter().filter(|(version, _)| version > first) {
                for (at, value) in values.iter().enumerate() {
                    let Some(value) = value.filter(|_| !is_old(at, *value)) else { continue };
                    let writer =
                        if value < AMBIGUOUS { self.writers[value as usize] } else { NONE };
                    if writer < AMBIGUOUS && self.fate(writer) == Fate::Unknown {
                        self.happened[writer as usize] = true;
                    }
                }
            }
        }
    }

    /// Accesses to a key: transactions and their steps.
    pub(super) fn accesses(&self, key: u32) -> impl Iterator<Item = (u32, u32)> + use<'_, 'a> {
        let [from, to] = [key, key + 1].map(|key| self.offsets[key as usize] as usize);
        self.by_key[from..to].iter().map(|step| (self.owners[*step as usize], *step))
    }

    /// The transaction of a step.
    pub(super) fn owner(&self, step: u32) -> u32 {
        self.owners[step as usize]
    }

    pub(super) fn fate(&self, transaction: u32) -> Fate {
        self.model.transactions[transaction as usize].fate
    }

    /// The last invoked of the transactions that read the key before writing it. It must observe
    /// all writes answered before its invocation.
    pub(super) fn last_read(&self, key: u32) -> Option<u32> {
        let reads = self.accesses(key).filter(|(transaction, step)| {
            matches!(self.model.steps[*step as usize], Step::Get { .. })
                && !self.within[*step as usize].known
                && self.fate(*transaction) == Fate::Done
        });
        reads
            .map(|(transaction, _)| transaction)
            .max_by_key(|transaction| self.model.transactions[*transaction as usize].invoked)
    }

    /// Whether `writer` was answered before `reader` was invoked.
    pub(super) fn answered_before(&self, writer: u32, reader: u32) -> bool {
        let returned = self.model.transactions[writer as usize].returned;
        returned != NEVER && returned < self.model.transactions[reader as usize].invoked
    }

    /// Checks that later positions were read at later versions, and equal ones at the same. Takes
    /// positions, versions and readers.
    pub(super) fn versions_rise(&mut self, key: u32, mut read: Vec<(u64, u64, u32)>) {
        read.sort_unstable();
        for pair in read.windows(2) {
            let [(place, version, one), (further, later, other)] = [pair[0], pair[1]];
            let fits = if place == further { version == later } else { version < later };
            if !fits {
                let words = self.words;
                self.findings.direct(Anomaly::WrongReply, "version", || {
                    let key = words.key(key);
                    let what = format!(
                        "{key} was read at version {version} with {place}, and at version {later} with {further}"
                    );
                    (what, vec![words.transaction(one), words.transaction(other)])
                });
            }
        }
    }

    /// Adds the edges between a key's versions and its readers. Both are sorted by position.
    pub(super) fn chain(&mut self, key: u32, states: &[State], readers: &[Reader]) {
        let mut tail: Option<u32> = None;
        let mut before: &[Reader] = &[];
        let mut rest = readers;
        let mut states = states.iter().copied().peekable();
        let mut writers: Vec<u32> = Vec::new();
        loop {
            // A version that was read but not written here has an unknown writer.
            let read = rest.first().map(|reader| reader.place);
            let written = states.peek().map(|state| state.place);
            let Some(place) = [read, written].into_iter().flatten().min() else { break };
            let here = rest.partition_point(|reader| reader.place == place);
            let (here, later) = rest.split_at(here);
            rest = later;
            writers.clear();
            while let Some(state) = states.next_if(|state| state.place == place) {
                writers.push(state.writer);
            }
            if place == 0 {
                before = here; // The initial state, without a writer.
                continue;
            }
            let (head, last) = match writers[..] {
                [] => {
                    let somebody = self.builder.helper(Helper::Writer { key, version: place });
                    (somebody, somebody)
                }
                [writer] => (writer, writer),
                // The order of these writers is not known. All follow the version before.
                _ => {
                    let [head, last] = [(); 2].map(|()| self.builder.helper(Helper::Junction));
                    for writer in &writers {
                        self.builder.edge(head, *writer, Why::Via, key);
                        self.builder.edge(*writer, last, Why::Via, key);
                    }
                    (head, last)
                }
            };
            if let Some(tail) = tail {
                self.builder.edge(tail, head, Why::Ww, key);
            }
            // A reader that is itself among several writers needs no edge to itself.
            let other = |reader: &&Reader| head == last || !writers.contains(&reader.transaction);
            for reader in before.iter().filter(other) {
                self.builder.edge(reader.transaction, head, Why::Rw, key);
            }
            for reader in here.iter().filter(other) {
                self.builder.edge(last, reader.transaction, Why::Wr, key);
                if let [writer] = writers[..]
                    && self.model.transactions[reader.transaction as usize].stale
                    && self.answered_before(reader.transaction, writer)
                {
                    self.builder.in_time(reader.transaction, writer);
                }
            }
            (tail, before) = (Some(last), here);
        }
    }
}
