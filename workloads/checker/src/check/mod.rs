//! Checks whether a history is strictly serializable: whether its transactions can have executed
//! one after the other, each between its invocation and its answer.
//!
//! Two methods work together.
//!
//! **A witness decides** (`witness`). `state` is the sequential model of the store: one map, and
//! the effect and result of every command, including conditions, branches, deletes, scans and
//! versions. `scripts` are the commands of a history with their answers. An order of all scripts
//! that respects real time and in which the state gives every answer proves that the history is
//! correct. If all orders were tried and none does, the history is wrong. Unknowns are left open:
//! the version of a write without an answer is later than the one before, and the first answer that
//! reports it fixes it; an unknown outcome is tried both as executed and as not executed. So one
//! module defines the meaning of all commands, and no form of a command needs rules of its own.
//!
//! **Inference explains, and guides the search.** After Elle (`docs/papers.md`): the observations
//! of clients give the order of the versions of each key (`infer`), and that gives the order of
//! transactions. A condition that held on a version is a read of it. A transaction of unknown
//! outcome executed, as a whole, if any of its writes was observed. With real time (`realtime`) a
//! history is wrong if some transaction must precede itself (`cycles`), or if an observation is
//! wrong in any order: a value without a writer, a value whose write was refused, a value that
//! occurs twice or is lost. If there is no such finding, the search for a witness follows this
//! order: in a correct history with enough observations it does not backtrack, and a million
//! operations take seconds.
//!
//! **Invariant (sound).** Nothing is reported that a strictly serializable store can have done,
//! whatever operations of unknown outcome did or will do. If a witness is found, there is no
//! finding.
//!
//! **Projections find local errors.** If the search for a witness of the whole is cut off, it is
//! repeated for each key alone and for keys that occur together (`parts`, `projection`): an error
//! on a few keys is an error of the whole history.
//!
//! **Complete** it is as far as the search is not cut off: its cost is bounded, and a history that
//! is not decided within the bound is [reported as such](OrderReport::decided). Then only the inference
//! and the projections judge. Each pair of a stale scan is checked by itself, because each group
//! answers from a state of its own time.
//!
//! Departs from Elle in three ways: it trusts the versions that the store returns, which rise with
//! each write, where values do not identify their writes; it places appends by the length that they
//! returned; and it uses unknown writers, which must exist because the version changed. Versions
//! are never trusted against values: both must fit the one state.

mod components;
mod counters;
mod cycles;
mod eager;
mod edn;
mod effort;
mod findings;
mod graph;
mod hints;
mod infer;
mod internal;
mod lists;
mod model;
mod names;
mod parts;
mod places;
mod projection;
mod reach;
mod realtime;
mod records;
mod registers;
mod scripts;
mod stale;
mod state;
mod subject;
mod unseen;
mod witness;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use serde::Serialize;

pub use self::edn::Model as ElleModel;
pub use self::effort::Effort;
pub use self::findings::{Anomaly, Evidence, RulesOut};
pub use self::parts::Parts;

use self::findings::Findings;
use self::graph::Graph;
use self::infer::Inference;
use self::model::{Kind, Model};
use self::parts::Wrong;
use self::subject::Subject;
use self::witness::{Searched, Stuck, search};
use self::words::Words;
use crate::chart::{Paint, grouped};
use crate::history::{Header, ReadError, Record};

/// The result of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrderReport {
    /// Transactions, including those of unknown outcome.
    pub transactions: u64,
    /// Operations that were answered. If there is none, nothing can be judged.
    pub answered: u64,
    /// Whether an order was found that explains everything, or all were tried. If not, only
    /// findings count.
    pub decided: bool,
    /// Inferred findings that a witness refutes: errors of the inference. They are not in
    /// `anomalies`.
    pub overruled: u64,
    /// The result of the projections, if the whole history was not decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// Edges of the precedence graph.
    pub edges: u64,
    /// Number of keys by kind.
    pub keys: BTreeMap<&'static str, u64>,
    /// Whether nothing disproves serializability.
    pub serializable: bool,
    /// Whether nothing disproves strict serializability. This is a proof only if `decided` is true.
    pub strictly_serializable: bool,
    /// Number of violations by anomaly. Anomalies that did not occur are absent.
    pub anomalies: BTreeMap<&'static str, u64>,
    /// The first violations of each kind.
    pub evidence: Vec<Evidence>,
}

impl OrderReport {
    /// Whether an anomaly other than an incomplete or contradictory history was found.
    pub fn is_wrong(&self) -> bool {
        self.anomalies.keys().any(|name| *name != Anomaly::Contradiction.name())
    }

    /// Whether no anomaly was found, but no order either.
    pub fn is_open(&self) -> bool {
        self.strictly_serializable && !self.decided
    }

    /// The verdict in words.
    pub fn verdict(&self) -> &'static str {
        match (self.strictly_serializable, self.serializable) {
            (true, _) if self.is_open() => {
                "nothing found wrong, and not decided: the bounded search found no order that explains all answers"
            }
            (true, _) => "strictly serializable",
            (false, true) => "not strictly serializable",
            (false, false) => "not serializable",
        }
    }

    /// The basis of the verdict, in words.
    pub fn basis(&self) -> String {
        const CUT: &str = "the bounded search found no order of all transactions";
        match (&self.parts, self.decided) {
            (None, true) => {
                "each answer was compared with a store that executes one transaction after the other"
                    .to_owned()
            }
            (None, false) => format!("{CUT}: only what was inferred is judged"),
            (Some(_), true) => format!("{CUT}, but all orders of some keys were tried"),
            (Some(parts), false) => format!("{CUT}: {}", parts.text()),
        }
    }

    /// The violations, for people.
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

/// Checks a history record by record.
pub struct Checker {
    model: Model,
}

impl Checker {
    /// A checker of the history that began with `header`.
    pub fn new(header: &Header) -> Self {
        Self { model: Model::new(header) }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record) -> Result<(), ReadError> {
        self.model.take(record)
    }

    /// Writes the history so far in Elle's format. Only [`finish`](Self::finish) may follow.
    pub fn write_edn(&mut self, of: ElleModel, out: &mut impl io::Write) -> io::Result<()> {
        self.model.finish();
        edn::write(&self.model, of, out)
    }

    /// Checks the history with the default effort.
    pub fn finish(self) -> OrderReport {
        self.finish_within(Effort::default())
    }

    /// Checks the history with the given effort.
    pub fn finish_within(mut self, effort: Effort) -> OrderReport {
        self.model.finish();
        look(&self.model, effort)
    }
}

/// Checks the `records` of a history that began with `header`.
pub fn check(
    header: &Header,
    records: impl Iterator<Item = Result<Record, ReadError>>,
) -> Result<OrderReport, ReadError> {
    check_within(header, records, Effort::default())
}

/// The same with the given effort.
pub fn check_within(
    header: &Header,
    records: impl Iterator<Item = Result<Record, ReadError>>,
    effort: Effort,
) -> Result<OrderReport, ReadError> {
    let mut checker = Checker::new(header);
    for record in records {
        checker.take(&record?)?;
    }
    Ok(checker.finish_within(effort))
}

/// The result of inference on a history, without a search.
struct Inferred {
    graph: Graph,
    /// Transactions that certainly executed.
    happened: Vec<bool>,
    keys: BTreeMap<&'static str, u64>,
}

fn infer(model: &Model, words: &Words<'_>, findings: &mut Findings) -> Inferred {
    let within = internal::look(model, words, findings);
    let mut keys = BTreeMap::new();
    let mut infer = Inference::new(model, words, findings, within);
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
            Kind::Mixed => infer.versions(key),
        }
    }
    let happened = std::mem::take(&mut infer.happened);
    let mut builder = infer.builder;
    realtime::order(model, &mut builder);
    let graph = builder.finish();
    for cycle in cycles::find(&graph) {
        let (anomaly, evidence) = cycles::explain(model, &graph, words, &cycle);
        findings.add(anomaly, evidence);
    }
    Inferred { graph, happened, keys }
}

fn look(model: &Model, effort: Effort) -> OrderReport {
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
    let inferred = infer(model, &words, &mut findings);
    let Decision { decided, overruled, parts } =
        decide(model, &inferred, &words, &mut findings, effort);
    let Inferred { graph, keys, .. } = inferred;
    let Findings { counts, evidence } = findings;
    let rules_out = |what| counts.keys().any(|anomaly| anomaly.rules_out() == what);
    let serializable = !rules_out(RulesOut::Serializability);
    OrderReport {
        transactions: model.transactions.len() as u64 - model.not_taken,
        answered: model.answered,
        decided,
        overruled,
        parts,
        edges: graph.edges() as u64,
        keys,
        serializable,
        strictly_serializable: serializable && !rules_out(RulesOut::StrictSerializability),
        anomalies: counts.iter().map(|(anomaly, count)| (anomaly.name(), *count)).collect(),
        evidence,
    }
}

/// The result of the search.
#[derive(Default)]
struct Decision {
    /// Whether the existence of an order is decided.
    decided: bool,
    /// Number of findings that the witness refutes.
    overruled: u64,
    parts: Option<Parts>,
}

/// Searches for a witness. If there is one, only contradictions of the record itself are wrong. If
/// there is none and nothing else was found, its absence is the finding. If the search is cut off,
/// projections are searched.
fn decide(
    model: &Model,
    inferred: &Inferred,
    words: &Words,
    findings: &mut Findings,
    effort: Effort,
) -> Decision {
    let Inferred { graph, happened, .. } = inferred;
    let broken = findings.counts.contains_key(&Anomaly::Contradiction);
    let is_clean = findings.counts.keys().all(|anomaly| *anomaly == Anomaly::Contradiction);
    let hints = is_clean.then_some(graph);
    let certain = |transaction: u32| is_clean && happened[transaction as usize];
    let whole = Subject::whole(model);
    let look = |in_time| {
        let mut tries = effort.of_whole(model.scripts.all.len());
        search(&whole, hints, certain, in_time, &mut tries)
    };
    let mut decision = Decision { decided: true, ..Decision::default() };
    match look(true) {
        Searched::Undecided if is_clean => {
            let (parts, wrong) = parts::look(model, graph, happened, effort);
            decision.decided = !wrong.is_empty();
            decision.parts = Some(parts);
            for Wrong { keys, in_any_time, stuck } in wrong {
                let (anomaly, keys) = (none(&in_any_time), words.alone(&keys));
                findings.direct(anomaly, "no-order", || explain(model, words, &stuck, &keys));
            }
        }
        Searched::Undecided => decision.decided = false,
        // The two methods may judge a broken history differently.
        Searched::Found if broken => {}
        Searched::Found => {
            decision.overruled = findings.counts.values().sum();
            findings.counts.clear();
            findings.evidence.clear();
        }
        Searched::Nothing(stuck) => {
            if is_clean {
                let anomaly = none(&look(false));
                findings.direct(anomaly, "no-order", || explain(model, words, &stuck, ""));
            }
        }
    }
    decision
}

/// The anomaly of a history without an order in real time. The argument is the result of a search
/// that ignores real time: if it was cut off, the weaker anomaly is reported.
fn none(in_any_time: &Searched) -> Anomaly {
    match in_any_time {
        Searched::Nothing(_) => Anomaly::NoOrder,
        Searched::Found | Searched::Undecided => Anomaly::NoOrderInTime,
    }
}

/// The point at which the longest attempt at an order ended. `alone` names the keys of a
/// projection.
fn explain(model: &Model, words: &Words, stuck: &Stuck, alone: &str) -> (String, Vec<String>) {
    let Some(transaction) = stuck.transaction else {
        return (format!("{alone}no order explains the answers"), Vec::new());
    };
    let mut lines = vec![words.transaction(transaction)];
    let script = model.scripts.all.iter().find(|script| script.transaction == transaction);
    lines.extend(script.and_then(|script| words.script(script)));
    let found = stuck.found.iter().map(|(key, found)| format!("{} was {found}", words.key(*key)));
    lines.push(format!("there, in the longest attempt: {}", found.collect::<Vec<_>>().join(", ")));
    let what = "all orders were tried, and none explains the answers; the longest attempt ends before this transaction";
    (format!("{alone}{what}"), lines)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::history::Reader;

    const HEADER: &str = r#"{"header":{"format":3,"workload":"inference","skein":"test","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":2,"bank":null}}"#;

    /// The anomalies that inference alone finds, and the transactions that certainly executed. A
    /// search could refute some of these anomalies.
    fn inferred(lines: &[&str]) -> (BTreeMap<Anomaly, u64>, Vec<bool>) {
        inferred_of(HEADER, lines)
    }

    fn inferred_of(header: &str, lines: &[&str]) -> (BTreeMap<Anomaly, u64>, Vec<bool>) {
        let text = [&[header], lines, &[r#"{"end":{"t":1000}}"#]].concat().join("\n") + "\n";
        let reader = Reader::over(text.as_bytes(), Path::new("inference")).unwrap();
        let mut model = Model::new(&reader.header);
        reader.for_each(|record| model.take(&record.unwrap()).unwrap());
        model.finish();
        let mut findings = Findings::default();
        let Inferred { happened, .. } = infer(&model, &Words::new(&model), &mut findings);
        (findings.counts, happened)
    }

    #[test]
    fn a_write_of_unknown_outcome_has_happened_once_it_was_seen() {
        let unknown = [
            r#"{"invoke":{"t":10,"p":1,"ops":[{"put":["r","v1"]},{"put":["s","v2"]}]}}"#,
            r#"{"unknown":{"t":20,"p":1,"why":"gone"}}"#,
            r#"{"invoke":{"t":30,"p":2,"ops":[{"get":"r"}]}}"#,
        ];
        for (seen, happened) in [(r#"["v1",1]"#, true), ("null", false)] {
            let answer = format!(r#"{{"ok":{{"t":40,"p":2,"out":[{{"value":{seen}}}]}}}}"#);
            let lines = [&unknown[..], &[&answer]].concat();
            assert_eq!(inferred(&lines), (BTreeMap::new(), vec![happened, true]), "{seen}");
        }
    }

    #[test]
    fn a_record_may_have_been_set_by_the_other_branch_of_an_unknown_outcome() {
        let record = r#""record":{"fields":2,"field_bytes":5,"token_at":1,"token_bytes":2}"#;
        let header = HEADER.replace(r#""bank":null"#, &format!(r#""bank":null,{record}"#));
        let lines = [
            r#"{"invoke":{"t":10,"p":1,"if":[{"exists":"z"}],"ops":[{"get":"z"}],"else":[{"put":["r","t1t2"]}]}}"#,
            r#"{"unknown":{"t":15,"p":1,"why":"gone"}}"#,
            r#"{"invoke":{"t":20,"p":2,"ops":[{"patch":["r",0,"t3"]},{"get":"r"}]}}"#,
            r#"{"ok":{"t":25,"p":2,"out":[{"length":10},{"value":["t3t2",2]}]}}"#,
            r#"{"invoke":{"t":30,"p":3,"stale":true,"ops":[{"get":"r"}]}}"#,
            r#"{"ok":{"t":35,"p":3,"out":[{"value":["t3t2",2]}]}}"#,
        ];
        assert_eq!(inferred_of(&header, &lines).0, BTreeMap::new());
    }

    #[test]
    fn what_was_there_before_the_history_is_neither_invented_nor_counted() {
        let header = HEADER.replace(r#""bank":null"#, r#""bank":null,"before":true"#);
        for (asked, told, value) in [
            (r#"{"append":["r","t1"]}"#, r#"{"length":5}"#, "oldt1"),
            (r#"{"append":["r","t1"]}"#, r#"{"length":4}"#, "t9t1"),
            (r#"{"incr":["r",2]}"#, r#"{"number":-3}"#, "-3"),
            (r#"{"append":["r","\u0000xff00"]}"#, r#"{"length":2}"#, "\\u0000xff00"),
        ] {
            let lines = [
                format!(r#"{{"invoke":{{"t":10,"p":1,"ops":[{asked}]}}}}"#),
                format!(r#"{{"ok":{{"t":15,"p":1,"out":[{told}]}}}}"#),
                r#"{"invoke":{"t":20,"p":2,"ops":[{"get":"r"}]}}"#.to_owned(),
                format!(r#"{{"ok":{{"t":25,"p":2,"out":[{{"value":["{value}",2]}}]}}}}"#),
            ];
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(inferred_of(&header, &lines).0, BTreeMap::new(), "{value}");
        }
    }

    /// A lagging replica may not have delivered the opening of the accounts, which is not in the
    /// history.
    #[test]
    fn a_stale_read_may_be_from_before_the_accounts_were_opened() {
        let bank = r#""bank":{"accounts":["a","b"],"opening":5,"open":false}"#;
        let header = HEADER.replace(r#""bank":null"#, bank);
        for (op, out) in
            [(r#"{"get":"a"}"#, r#"{"value":null}"#), (r#"{"exists":"b"}"#, r#"{"flag":false}"#)]
        {
            for (stale, right) in [(true, true), (false, false)] {
                let lines = [
                    format!(r#"{{"invoke":{{"t":10,"p":1,"stale":{stale},"ops":[{op}]}}}}"#),
                    format!(r#"{{"ok":{{"t":15,"p":1,"out":[{out}]}}}}"#),
                ];
                let text = format!("{header}\n{}\n{{\"end\":{{\"t\":1000}}}}\n", lines.join("\n"));
                let reader = Reader::over(text.as_bytes(), Path::new("stale")).unwrap();
                let header = reader.header.clone();
                let order = check(&header, reader).unwrap();
                assert_eq!(order.strictly_serializable, right, "{op} {stale}: {order:?}");
            }
        }
    }

    #[test]
    fn that_there_is_no_order_at_all_is_said_only_if_all_were_tried() {
        let said = [Searched::Found, Searched::Undecided, Searched::Nothing(Stuck::default())];
        let of = said.map(|in_any_time| none(&in_any_time));
        assert_eq!(of, [Anomaly::NoOrderInTime, Anomaly::NoOrderInTime, Anomaly::NoOrder]);
        assert_eq!(of[1].rules_out(), RulesOut::StrictSerializability);
    }

    #[test]
    fn who_is_answered_when_another_asks_need_not_be_seen_by_it() {
        for (answered, lost) in [(29, true), (30, false)] {
            let put = format!(r#"{{"ok":{{"t":{answered},"p":1,"out":[{{"version":1}}]}}}}"#);
            let lines = [
                r#"{"invoke":{"t":10,"p":1,"ops":[{"put":["r","v1"]}]}}"#,
                &put,
                r#"{"invoke":{"t":30,"p":2,"ops":[{"get":"r"}]}}"#,
                r#"{"ok":{"t":40,"p":2,"out":[{"value":null}]}}"#,
            ];
            let (found, _) = inferred(&lines);
            assert_eq!(found.keys().any(|it| *it == Anomaly::LostWrite), lost, "{found:?}");
        }
    }
}
