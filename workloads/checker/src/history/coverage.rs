//! Counts of the command forms in a history, by outcome.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hashbrown::HashMap;

use super::{Guard, Invoke, Op, Process, Record};

/// Outcomes, in the order of the counts.
const ENDS: [&str; 4] = ["done", "not held", "refused", "unknown"];

/// Number of requests of each command form, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<&'static str, [u64; 4]>,
    open: HashMap<Process, Invoke>,
}

impl Coverage {
    /// All command forms: operations, conditions, and the presence of an else branch.
    pub const FORMS: [&'static str; 19] = [
        "append",
        "delete",
        "exists",
        "get",
        "increment",
        "overwrite",
        "put",
        "scan",
        "if at least",
        "if at most",
        "if equal",
        "if equals",
        "if exists",
        "if greater",
        "if less",
        "if missing",
        "if unchanged",
        "if version",
        "else",
    ];

    /// Counts the next record of a history.
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Invoke(invoke) => _ = self.open.insert(invoke.p, invoke.clone()),
            Record::Ok(end) => self.end(end.p, usize::from(!end.held)),
            Record::Fail(end) => self.end(end.p, 2),
            Record::Unknown(end) => self.end(end.p, 3),
            _ => {}
        }
    }

    fn end(&mut self, p: Process, end: usize) {
        let Some(Invoke { guards, ops, otherwise, .. }) = self.open.remove(&p) else { return };
        let mut count = |form| self.counts.entry(form).or_default()[end] += 1;
        guards.iter().map(of_guard).for_each(&mut count);
        ops.iter().map(of_op).for_each(&mut count);
        if !otherwise.is_empty() {
            count("else");
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (form, counts) in &other.counts {
            let ours = self.counts.entry(form).or_default();
            ours.iter_mut().zip(counts).for_each(|(ours, more)| *ours += more);
        }
    }

    /// The forms that were never executed, the conditions that never failed, and the forms that
    /// never had an unknown outcome.
    pub fn missing(&self) -> Vec<String> {
        let of = |form: &str| self.counts.get(form).copied().unwrap_or_default();
        let never = |end: usize| {
            let forms = Self::FORMS.iter().filter(move |form| of(form)[end] == 0);
            forms.map(move |form| format!("{form}: never {}", ENDS[end]))
        };
        let refutable = |line: &String| line.starts_with("if ") || line.starts_with("else");
        never(0).chain(never(1).filter(refutable)).chain(never(3)).collect()
    }

    /// A table with one line per form.
    pub fn text(&self) -> String {
        let mut text = format!("{:12}", "form");
        for end in ENDS {
            let _ = write!(text, "{end:>12}");
        }
        for form in Self::FORMS {
            let _ = write!(text, "\n{form:12}");
            let counts = self.counts.get(form).copied().unwrap_or_default();
            for count in counts {
                let _ = write!(text, "{count:>12}");
            }
        }
        text
    }
}

fn of_guard(guard: &Guard) -> &'static str {
    match guard {
        Guard::AtLeast(..) => "if at least",
        Guard::Version(..) => "if version",
        Guard::Exists(_) => "if exists",
        Guard::Missing(_) => "if missing",
        Guard::Equals(..) => "if equals",
        Guard::Less(..) => "if less",
        Guard::AtMost(..) => "if at most",
        Guard::Equal(..) => "if equal",
        Guard::Greater(..) => "if greater",
        Guard::Unchanged(..) => "if unchanged",
    }
}

fn of_op(op: &Op) -> &'static str {
    match op {
        Op::Get(_) => "get",
        Op::Append(..) => "append",
        Op::Put(..) => "put",
        Op::Incr(..) => "increment",
        Op::Patch(..) | Op::Overwrite(..) => "overwrite",
        Op::Delete(_) => "delete",
        Op::Exists(_) => "exists",
        Op::Scan(..) => "scan",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Return, Unanswered};

    #[test]
    fn what_was_never_asked_for_is_missing() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.missing().len(), 2 * 19 + 11);
        let (guards, ops) = (vec![Guard::Version("k".into(), 1)], vec![Op::Delete("k".into())]);
        let ends = |t, p| {
            [
                Record::Ok(Return { t, p, held: true, out: vec![] }),
                Record::Ok(Return { t, p, held: false, out: vec![] }),
                Record::Unknown(Unanswered { t, p, why: String::new() }),
            ]
        };
        for end in ends(1, 1) {
            let (guards, ops) = (guards.clone(), ops.clone());
            let invoke = Invoke { t: 0, p: 1, guards, ops, otherwise: vec![], stale: false };
            coverage.take(&Record::Invoke(invoke));
            coverage.take(&end);
        }
        let missing = coverage.missing();
        assert_eq!(missing.len(), 2 * 19 + 11 - 5, "{missing:?}");
        assert!(missing.contains(&"else: never done".to_owned()), "{missing:?}");
        assert!(
            coverage
                .text()
                .contains("delete                 1           1           0           1"),
            "{}",
            coverage.text()
        );
    }
}
