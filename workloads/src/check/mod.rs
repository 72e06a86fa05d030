//! Whether a history is strictly serializable: whether its transactions can have happened one after
//! the other, each between the moment at which it was asked for and the moment at which it was
//! answered.
//!
//! After Elle (`docs/papers.md`): what clients saw tells in which order the versions of each key came
//! (`infer`), that tells which transaction must have come before which, real time tells more
//! (`realtime`), and a history is wrong if some transaction must have come before itself (`cycles`).
//! What cannot be right in any order needs no cycle: values that nobody wrote, that were to be
//! written by who was told that they are not, that stand there twice, or are gone.
//!
//! **Invariant (sound).** Nothing is reported that a strictly serializable store can have done, whatever
//! operations of unknown outcome have done or will do. It is not complete: an order that nobody saw
//! is not known. Lists show all of theirs, so on lists little is missed.
//!
//! Departs from Elle in taking the store's word for versions, which rise with each write, where values
//! do not tell; in placing appends by the length that their clients were told; and in using writers
//! that nobody knows, who must have been there since the version changed.
//!
//! Everything is linear in what was asked for, but for sorting, and for the search of cycles, which is
//! bounded.

mod components;
mod counters;
mod cycles;
mod edn;
mod findings;
mod graph;
mod infer;
mod internal;
mod lists;
mod model;
mod names;
mod realtime;
mod records;
mod registers;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use serde::Serialize;

pub use self::edn::Model as ElleModel;
pub use self::findings::{Anomaly, Evidence, RulesOut};

use self::findings::Findings;
use self::infer::Inference;
use self::model::{Kind, Model};
use self::words::Words;
use crate::chart::{Paint, grouped};
use crate::history::{Header, ReadError, Record};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Transactions looked at, those of unknown outcome included.
    pub transactions: u64,
    /// Edges between them and what helps to order them.
    pub edges: u64,
    /// Keys, by what they are.
    pub keys: BTreeMap<&'static str, u64>,
    /// Whether nothing rules out that the transactions happened one after the other.
    pub serializable: bool,
    /// Whether nothing rules out that they did so in real time.
    pub strictly_serializable: bool,
    /// What is wrong, by name; only what occurred.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The first few of each kind in full.
    pub evidence: Vec<Evidence>,
}

impl Order {
    /// What is wrong, for people.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        for (name, count) in &self.anomalies {
            let _ = writeln!(text, "  {}", paint.bad(&format!("{} × {name}", grouped(*count))));
        }
        for one in &self.evidence {
            let Evidence { anomaly, class, rules_out, what, transactions, because } = one;
            let not = match rules_out {
                RulesOut::Serializability => "not serializable",
                RulesOut::StrictSerializability => "not strictly serializable",
            };
            let _ = writeln!(text, "\n  {} ({class}; {not}): {what}", paint.strong(anomaly));
            for line in transactions {
                let _ = writeln!(text, "    {line}");
            }
            for line in because {
                let _ = writeln!(text, "      {line}");
            }
        }
        text
    }
}

/// Takes a history, record by record.
pub struct Checker {
    model: Model,
}

impl Checker {
    /// Of the history that began with `header`.
    pub fn new(header: &Header) -> Self {
        Self { model: Model::new(header) }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record) -> Result<(), ReadError> {
        self.model.take(record)
    }

    /// Writes what was taken so far in the form that Elle reads. Nothing follows but [`finish`](Self::finish).
    pub fn write_edn(&mut self, of: ElleModel, out: &mut impl io::Write) -> io::Result<()> {
        self.model.finish();
        edn::write(&self.model, of, out)
    }

    /// Nothing follows.
    pub fn finish(mut self) -> Order {
        self.model.finish();
        look(&self.model)
    }
}

/// Looks at the `records` of a history that began with `header`.
pub fn check(
    header: &Header,
    records: impl Iterator<Item = Result<Record, ReadError>>,
) -> Result<Order, ReadError> {
    let mut checker = Checker::new(header);
    for record in records {
        checker.take(&record?)?;
    }
    Ok(checker.finish())
}

fn look(model: &Model) -> Order {
    let words = Words::new(model);
    let mut findings = Findings::default();
    for what in &model.contradictions {
        findings.direct(Anomaly::Contradiction, "history", || (what.clone(), Vec::new()));
    }
    if !model.ended {
        findings.direct(Anomaly::Contradiction, "history", || {
            ("it breaks off before its end".to_owned(), Vec::new())
        });
    }
    let within = internal::look(model, &words, &mut findings);
    let mut keys = BTreeMap::new();
    let mut infer = Inference::new(model, &words, &mut findings, within);
    infer.diverged();
    for key in 0..model.keys.len() as u32 {
        let kind = model.kind(key);
        *keys.entry(kind.name()).or_default() += 1;
        match kind {
            Kind::List => infer.list(key),
            Kind::Register | Kind::Unwritten => infer.register(key, true),
            Kind::Counter => infer.counter(key),
            Kind::Record => infer.record(key),
            Kind::Other => infer.register(key, false),
        }
    }
    let mut builder = infer.builder;
    realtime::order(model, &mut builder);
    let graph = builder.finish();
    for cycle in cycles::find(&graph) {
        let (anomaly, evidence) = cycles::explain(model, &graph, &words, &cycle);
        findings.add(anomaly, evidence);
    }
    let Findings { counts, evidence } = findings;
    let rules_out = |what| counts.keys().any(|anomaly| anomaly.rules_out() == what);
    let serializable = !rules_out(RulesOut::Serializability);
    Order {
        transactions: model.transactions.len() as u64,
        edges: graph.edges() as u64,
        keys,
        serializable,
        strictly_serializable: serializable && !rules_out(RulesOut::StrictSerializability),
        anomalies: counts.iter().map(|(anomaly, count)| (anomaly.name(), *count)).collect(),
        evidence,
    }
}
