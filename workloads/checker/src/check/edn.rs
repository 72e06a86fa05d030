//! Histories in the format of Jepsen's Elle, so that another checker can judge them.
//!
//! Elle has separate models for transactions on lists and on registers. So each file contains only
//! the operations on keys of its kind: if an order explains the whole history, it explains this
//! part. Events are sorted by time, because Elle derives real time from their order. A refused
//! operation is `:fail`, one of unknown outcome is `:info`. The final reads are transactions of
//! processes of their own.

use std::io::{self, Write};

use super::model::{AFTERWARDS, DIVERGED, Fate, Kind, Model as History, NEVER, NONE, Step};

/// Elle's model that a file is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `list-append`.
    ListAppend,
    /// `rw-register`.
    RwRegister,
}

impl Model {
    /// Elle's name of the model.
    pub fn name(self) -> &'static str {
        match self {
            Self::ListAppend => "list-append",
            Self::RwRegister => "rw-register",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::ListAppend => Kind::List,
            Self::RwRegister => Kind::Register,
        }
    }
}

/// The two events of a transaction. Of one moment, invocations come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Invoked,
    Ended,
}

pub(super) fn write(history: &History, model: Model, out: &mut impl Write) -> io::Result<()> {
    let kind = model.kind();
    let of_kind =
        |step: &Step| !matches!(step, Step::At { .. }) && history.kind(step.key()) == kind;
    let concerned = |transaction: &u32| {
        !history.transactions[*transaction as usize].stale
            && history.steps_of(*transaction).iter().any(of_kind)
    };
    let all = (0..history.transactions.len() as u32).filter(concerned);
    let mut events = Vec::new();
    for transaction in all {
        let one = history.transactions[transaction as usize];
        events.push((one.invoked, Event::Invoked, transaction));
        events.push((one.returned, Event::Ended, transaction));
    }
    events.sort_unstable();
    // A transaction without an end ends after everything.
    let last = events.iter().map(|(t, ..)| *t).filter(|t| *t != NEVER).max().unwrap_or_default();
    let processes = history.transactions.iter().map(|one| one.process);
    let processes = processes.filter(|process| *process != AFTERWARDS).max().unwrap_or_default();
    for (index, (t, event, transaction)) in events.into_iter().enumerate() {
        let one = history.transactions[transaction as usize];
        let process = match one.process {
            AFTERWARDS => processes + 1 + u64::from(transaction),
            process => process,
        };
        let name = match (event, one.fate) {
            (Event::Invoked, _) => "invoke",
            (Event::Ended, Fate::Done) => "ok",
            (Event::Ended, Fate::Refused) => "fail",
            (Event::Ended, Fate::Unknown) => "info",
        };
        let time = t.min(last).saturating_sub(history.header.t);
        write!(
            out,
            "{{:index {index}, :time {time}, :type :{name}, :process {process}, :f :txn, :value ["
        )?;
        let (from, to) = history.range(transaction);
        let mut between = "";
        for at in (from..to).filter(|at| of_kind(&history.steps[*at])) {
            out.write_all(between.as_bytes())?;
            between = " ";
            let answered = event == Event::Ended && one.fate == Fate::Done;
            step(history, model, at, answered, out)?;
        }
        out.write_all(b"]}\n")?;
    }
    Ok(())
}

fn step(
    history: &History,
    model: Model,
    at: usize,
    answered: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let step = history.steps[at];
    let key = quoted(history.keys.text(step.key()));
    match step {
        Step::Append { value, .. } => {
            write!(out, "[:append {key} {}]", quoted(history.values.text(value)))
        }
        Step::Put { value, .. } => write!(out, "[:w {key} {}]", quoted(history.values.text(value))),
        Step::Get { .. } if !answered => write!(out, "[:r {key} nil]"),
        Step::Get { saw: NONE, .. } => write!(out, "[:r {key} nil]"),
        Step::Get { key: of, saw, .. } if model == Model::ListAppend => {
            let diverged = || history.diverged.iter().find(|one| one.step as usize == at);
            let bytes = match diverged().filter(|_| saw == DIVERGED) {
                Some(one) => one.value.as_bytes(),
                None => &history.longest(of)[..saw as usize * history.width()],
            };
            let tokens = bytes.chunks(history.width());
            let tokens: Vec<String> =
                tokens.map(|token| quoted(&String::from_utf8_lossy(token))).collect();
            write!(out, "[:r {key} [{}]]", tokens.join(" "))
        }
        Step::Get { saw, .. } => write!(out, "[:r {key} {}]", quoted(history.values.text(saw))),
        _ => unreachable!("neither a list nor a register"),
    }
}

/// A string in EDN, which uses the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is written")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::check::Checker;
    use crate::history::Reader;

    const HISTORY: &str = r#"{"header":{"format":2,"workload":"w","skein":"s","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":10,"unix_ms":0,"token_bytes":2,"bank":null}}
{"invoke":{"t":11,"p":1,"ops":[{"append":["x","t1"]},{"get":"r"},{"incr":["c",1]},{"append":["x","t2"]}]}}
{"invoke":{"t":12,"p":2,"ops":[{"put":["r","v\"1"]}]}}
{"ok":{"t":15,"p":1,"out":[{"length":2},{"value":null},{"number":1},{"length":4}]}}
{"unknown":{"t":16,"p":2,"why":"w"}}
{"invoke":{"t":17,"p":1,"ops":[{"get":"x"},{"get":"r"}]}}
{"invoke":{"t":18,"p":3,"ops":[{"append":["x","t3"]}]}}
{"fail":{"t":19,"p":3,"why":"w"}}
{"ok":{"t":20,"p":1,"out":[{"value":["t1t2",1]},{"value":["v\"1",2]}]}}
{"final":{"t":21,"key":"x","value":["t1t2",1]}}
{"end":{"t":22}}
"#;

    fn written(model: Model) -> String {
        let reader = Reader::over(HISTORY.as_bytes(), Path::new("history")).unwrap();
        let mut checker = Checker::new(&reader.header.clone());
        reader.for_each(|record| checker.take(&record.unwrap()).unwrap());
        let mut out = Vec::new();
        checker.write_edn(model, &mut out).unwrap();
        assert!(checker.finish().strictly_serializable);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lists_and_registers_are_files_of_their_own() {
        let lists = r#"{:index 0, :time 1, :type :invoke, :process 1, :f :txn, :value [[:append "x" "t1"] [:append "x" "t2"]]}
{:index 1, :time 5, :type :ok, :process 1, :f :txn, :value [[:append "x" "t1"] [:append "x" "t2"]]}
{:index 2, :time 7, :type :invoke, :process 1, :f :txn, :value [[:r "x" nil]]}
{:index 3, :time 8, :type :invoke, :process 3, :f :txn, :value [[:append "x" "t3"]]}
{:index 4, :time 9, :type :fail, :process 3, :f :txn, :value [[:append "x" "t3"]]}
{:index 5, :time 10, :type :ok, :process 1, :f :txn, :value [[:r "x" ["t1" "t2"]]]}
{:index 6, :time 11, :type :invoke, :process 8, :f :txn, :value [[:r "x" nil]]}
{:index 7, :time 11, :type :ok, :process 8, :f :txn, :value [[:r "x" ["t1" "t2"]]]}
"#;
        let registers = r#"{:index 0, :time 1, :type :invoke, :process 1, :f :txn, :value [[:r "r" nil]]}
{:index 1, :time 2, :type :invoke, :process 2, :f :txn, :value [[:w "r" "v\"1"]]}
{:index 2, :time 5, :type :ok, :process 1, :f :txn, :value [[:r "r" nil]]}
{:index 3, :time 7, :type :invoke, :process 1, :f :txn, :value [[:r "r" nil]]}
{:index 4, :time 10, :type :ok, :process 1, :f :txn, :value [[:r "r" "v\"1"]]}
{:index 5, :time 10, :type :info, :process 2, :f :txn, :value [[:w "r" "v\"1"]]}
"#;
        assert_eq!(written(Model::ListAppend), lists);
        assert_eq!(written(Model::RwRegister), registers);
    }
}
