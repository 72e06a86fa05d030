//! Whether some order explains a small history: all are tried.

use std::collections::HashMap;

use skein_workloads::history::{Invoke, Op, Out, Record};

/// What was asked for, and what is known of it.
struct Transaction {
    invoked: u64,
    /// Never, if it was not answered.
    returned: u64,
    ops: Vec<Op>,
    /// None if nobody was told: it may have been done or not.
    out: Option<Vec<Out>>,
}

/// A key's value, and what is known of its version.
#[derive(Clone, Default)]
struct Value {
    text: Option<String>,
    /// The last version that somebody was told.
    told: u64,
    /// Whether it was written since, so that its version is a later one.
    written: bool,
    /// Whether the transaction that is looked at has written it, and which version it was then told.
    own: bool,
    own_told: Option<u64>,
}

impl Value {
    fn write(&mut self, text: String) {
        self.text = Some(text);
        (self.written, self.own) = (true, true);
    }

    /// The next transaction begins.
    fn settle(&mut self) {
        // One transaction writes one version, however often it writes.
        self.written &= self.own_told.is_none();
        (self.own, self.own_told) = (false, None);
    }

    /// Somebody is told that the key is at a version, if it can be.
    fn tell(&mut self, version: u64) -> Option<()> {
        let fits = match self.own_told {
            Some(own) => version == own,
            None if self.written => version > self.told,
            None => version == self.told,
        };
        (self.told, self.written) = (version, false);
        self.own_told = self.own.then_some(version);
        fits.then_some(())
    }
}

type State = HashMap<String, Value>;

/// Whether the transactions of a history can have been done one after the other, in real time.
pub(crate) fn explains(records: &[Record]) -> bool {
    let mut open: HashMap<u64, Invoke> = HashMap::new();
    let mut all = Vec::new();
    for record in records {
        match record {
            Record::Invoke(invoke) => _ = open.insert(invoke.p, invoke.clone()),
            Record::Ok(end) => {
                let Invoke { t: invoked, ops, .. } = open.remove(&end.p).unwrap();
                let out = Some(end.out.clone());
                all.push(Transaction { invoked, returned: end.t, ops, out });
            }
            Record::Fail(end) => _ = open.remove(&end.p),
            Record::Final(last) => {
                let ops = vec![Op::Get(last.key.clone())];
                let out = Some(vec![Out::Value(last.value.clone())]);
                all.push(Transaction { invoked: last.t, returned: u64::MAX, ops, out });
            }
            _ => {}
        }
    }
    let open = open.into_values();
    all.extend(open.map(|invoke| Transaction {
        invoked: invoke.t,
        returned: u64::MAX,
        ops: invoke.ops,
        out: None,
    }));
    search(&all, &mut vec![false; all.len()], &State::new())
}

fn search(all: &[Transaction], done: &mut [bool], state: &State) -> bool {
    let left = || (0..all.len()).filter(|i| !done[*i]);
    if left().all(|i| all[i].out.is_none()) {
        return true; // What nobody was told of need not have been done.
    }
    // The first of what is left was asked for before anything of it was answered.
    let first = left().map(|i| all[i].returned).min().unwrap_or(u64::MAX);
    let next: Vec<usize> = left().filter(|i| all[*i].invoked <= first).collect();
    for i in next {
        if let Some(after) = apply(&all[i], state) {
            done[i] = true;
            if search(all, done, &after) {
                return true;
            }
            done[i] = false;
        }
    }
    false
}

/// The state after a transaction, if what it was told fits.
fn apply(transaction: &Transaction, state: &State) -> Option<State> {
    let mut state = state.clone();
    state.values_mut().for_each(Value::settle);
    for (i, op) in transaction.ops.iter().enumerate() {
        let out = transaction.out.as_ref().map(|out| &out[i]);
        let value = state.entry(op.key().to_owned()).or_default();
        let number = |value: &Value| value.text.as_ref().map_or(Some(0), |text| text.parse().ok());
        match (op, out) {
            (Op::Append(_, token), out) => {
                let text = value.text.take().unwrap_or_default() + token;
                let length = text.len() as u64;
                value.write(text);
                if out.is_some_and(|out| *out != Out::Length(length)) {
                    return None;
                }
            }
            (Op::Put(_, token), out) => {
                value.write(token.clone());
                if let Some(Out::Version(version)) = out {
                    value.tell(*version)?;
                }
            }
            (Op::Incr(_, by), out) => {
                let now: i64 = number(value)? + by;
                value.write(now.to_string());
                if out.is_some_and(|out| *out != Out::Number(now)) {
                    return None;
                }
            }
            (Op::Get(_), Some(Out::Value(found))) => {
                if found.as_ref().map(|(text, _)| text) != value.text.as_ref() {
                    return None;
                }
                if let Some((_, version)) = found {
                    value.tell(*version)?;
                }
            }
            (op, _) => assert!(matches!(op, Op::Get(_)), "{op:?} is not simulated"),
        }
    }
    Some(state)
}
