//! Consistency of each transaction with itself: it observes what it has read or written before.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::findings::{Anomaly, Findings};
use super::infer::Within;
use super::model::{DIVERGED, Fate, Kind, Model, NONE, Step};
use super::words::Words;

/// What a transaction has done to a key so far.
#[derive(Default)]
struct Before {
    /// The last step that wrote it.
    wrote: Option<usize>,
    /// The steps that read it after that write.
    read_own: Vec<usize>,
    /// The versions returned before the transaction's first write, and after.
    versions: [Option<u64>; 2],
    /// What the next read must find.
    known: Known,
}

/// Knowledge of a key within a transaction.
#[derive(Clone, Debug, Default)]
enum Known {
    #[default]
    Nothing,
    /// A list that ends with these values, and its whole length in values if that is known.
    List { length: Option<u32>, own: Vec<u32> },
    /// Number of the value, or [`NONE`].
    Value(u32),
    /// Number of a counter.
    Number(i64),
}

/// Checks every transaction by itself. Returns the relations between its steps.
pub(super) fn look(model: &Model, words: &Words, findings: &mut Findings) -> Vec<Within> {
    let mut within = vec![Within::default(); model.steps.len()];
    let mut before: HashMap<u32, Before> = HashMap::new();
    for transaction in 0..model.transactions.len() as u32 {
        let (from, to) = model.range(transaction);
        if to - from < 2 {
            continue;
        }
        let done = model.transactions[transaction as usize].fate == Fate::Done;
        before.clear();
        for at in from..to {
            let step = model.steps[at];
            if matches!(step, Step::At { .. }) {
                continue; // The condition was evaluated before the first step.
            }
            // Reads of these keys are not kept in a form that can be compared.
            let is_mixed = matches!(model.kind(step.key()), Kind::Mixed | Kind::Other);
            let Before { wrote, read_own, versions, known } = match before.entry(step.key()) {
                Entry::Occupied(entry) => {
                    within[at].known = true;
                    entry.into_mut()
                }
                Entry::Vacant(entry) => entry.insert(Before::default()),
            };
            within[at].own = wrote.is_some();
            if step.writes() {
                for earlier in wrote.replace(at).into_iter().chain(read_own.drain(..)) {
                    within[earlier].rewritten = true;
                }
            } else if wrote.is_some() {
                read_own.push(at);
            }
            let of = &mut versions[usize::from(wrote.is_some())];
            let same = match (told(step), *of) {
                (Some(version), Some(before)) => version == before,
                (version, _) => {
                    *of = version.or(*of);
                    true
                }
            };
            let rises = versions[1].is_none_or(|new| versions[0].is_none_or(|old| old < new));
            if done && !is_mixed && !(same && rises && fits(model, step, known)) {
                findings.direct(Anomaly::InternalInconsistency, "internal", || {
                    let what = "a transaction does not see what it has read or written itself";
                    (what.to_owned(), vec![words.transaction(transaction)])
                });
            }
            *known = after(model, step, std::mem::take(known));
        }
    }
    within
}

/// The version that a step returned.
fn told(step: Step) -> Option<u64> {
    match step {
        Step::Put { version, .. } => Some(version).filter(|version| *version != 0),
        Step::Get { version, .. } => Some(version),
        _ => None,
    }
}

/// Whether the result of a step agrees with `known`.
fn fits(model: &Model, step: Step, known: &Known) -> bool {
    let number = |value: u32| {
        if value == NONE { Some(0) } else { model.values.text(value).parse::<i64>().ok() }
    };
    match (step, known) {
        (Step::Get { key, saw, .. }, Known::List { length, own }) => {
            let length = length.unwrap_or(saw);
            saw == DIVERGED || saw == length && ends_with(model, key, saw as usize, own)
        }
        (Step::Get { saw, .. }, Known::Value(value)) => saw == *value,
        (Step::Get { saw, .. }, Known::Number(is)) => number(saw) == Some(*is),
        (Step::Append { length, .. }, Known::List { length: Some(before), .. }) => {
            length == 0 || length == (u64::from(*before) + 1) * model.width() as u64
        }
        (Step::Incr { by, number: Some(made), .. }, Known::Number(was)) => {
            was.checked_add(by) == Some(made)
        }
        (Step::Incr { by, number: Some(made), .. }, Known::Value(was)) => {
            number(*was).and_then(|was| was.checked_add(by)) == Some(made)
        }
        _ => true,
    }
}

fn ends_with(model: &Model, key: u32, length: usize, own: &[u32]) -> bool {
    let Some(first) = length.checked_sub(own.len()) else { return false };
    let mut tokens = model.longest(key).chunks(model.width()).skip(first);
    own.iter().all(|value| tokens.next() == Some(model.values.bytes(*value)))
}

/// The knowledge after a step.
fn after(model: &Model, step: Step, known: Known) -> Known {
    match step {
        Step::Get { saw: DIVERGED, .. }
        | Step::Patch { .. }
        | Step::Delete { .. }
        | Step::Overwrite { .. }
        | Step::At { .. } => Known::Nothing,
        Step::Get { key, saw, .. } if model.kind(key) == Kind::List => {
            Known::List { length: Some(saw), own: Vec::new() }
        }
        Step::Get { saw, .. } => Known::Value(saw),
        Step::Put { value, .. } => Known::Value(value),
        Step::Incr { number, .. } => number.map_or(Known::Nothing, Known::Number),
        Step::Append { key, .. } if model.kind(key) != Kind::List => Known::Nothing,
        Step::Append { value, .. } => match known {
            Known::List { length, mut own } => {
                own.push(value);
                Known::List { length: length.map(|length| length.saturating_add(1)), own }
            }
            _ => Known::List { length: None, own: vec![value] },
        },
    }
}
