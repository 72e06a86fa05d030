//! The records put before a run, and the reads of the final state.

use skein_checker::history::{Final, RecordHeader, now, short};
use skein_client::{Operation, Outcome, Reply, Transaction};

use crate::generator::{Fault, Step, Workload};
use crate::keys;

/// Records that the load does not touch: state that must be transferred to replicas that lost it.
#[derive(Clone, Debug)]
pub struct Records {
    pub count: u64,
    /// Bytes of the value of each record.
    pub value_bytes: usize,
    /// Part of their keys.
    pub run: String,
}

impl Records {
    /// The key of record `number`.
    fn key(&self, number: u64) -> Vec<u8> {
        format!("chaos/{}/record/{number}", self.run).into_bytes()
    }

    /// The value of record `number`, a function of the number.
    fn value(&self, number: u64) -> Vec<u8> {
        let pattern = format!("{:016x}", keys::fnv(number));
        pattern.into_bytes().into_iter().cycle().take(self.value_bytes).collect()
    }
}

/// Puts or checks every record once.
pub struct Over {
    records: Records,
    looks: bool,
    next: u64,
    again: Vec<u64>,
    under_way: Vec<u64>,
}

impl Over {
    /// Puts every record.
    pub fn put(records: Records, clients: usize) -> Self {
        Self { records, looks: false, next: 0, again: Vec::new(), under_way: vec![0; clients] }
    }

    /// Checks that every record is as it was put.
    pub fn look(records: Records, clients: usize) -> Self {
        Self { looks: true, ..Self::put(records, clients) }
    }
}

impl Workload for Over {
    fn kinds(&self) -> &'static [&'static str] {
        &["record"]
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        let number = match self.again.pop() {
            Some(number) => number,
            None if self.next >= self.records.count => return None,
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        self.under_way[client] = number;
        let key = self.records.key(number);
        *transaction = Transaction::of(if self.looks {
            Operation::Get { key }
        } else {
            Operation::Put { key, value: self.records.value(number) }
        });
        Some(0)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        _: &mut Transaction,
    ) -> Result<Step, Fault> {
        let number = self.under_way[client];
        match &reply.outcomes[..] {
            [Outcome::Written(_)] => Ok(Step::Complete),
            [Outcome::Value(Some((value, _)))] if *value == self.records.value(number) => {
                Ok(Step::Complete)
            }
            other => {
                let found = match other {
                    [Outcome::Value(None)] => "missing",
                    _ => "not what was put",
                };
                Err(Fault { kind: "lost", what: format!("record {number} is {found}") })
            }
        }
    }

    fn failed(&mut self, client: usize) {
        self.again.push(self.under_way[client]);
    }
}

/// Reads every key that was accessed.
pub struct Survey {
    keys: Vec<String>,
    under_way: Vec<(String, u64)>,
    record: Option<RecordHeader>,
    /// The final values.
    pub found: Vec<Final>,
}

impl Survey {
    /// Reads these keys. `record` is the layout of values that are records.
    pub fn new(keys: Vec<String>, clients: usize, record: Option<RecordHeader>) -> Self {
        let found = Vec::with_capacity(keys.len());
        Self { keys, under_way: vec![(String::new(), 0); clients], record, found }
    }
}

impl Workload for Survey {
    fn kinds(&self) -> &'static [&'static str] {
        &["key"]
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        let key = self.keys.pop()?;
        *transaction = Transaction::of(Operation::Get { key: key.clone().into_bytes() });
        self.under_way[client] = (key, now());
        Some(0)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        _: &mut Transaction,
    ) -> Result<Step, Fault> {
        let (key, t) = std::mem::take(&mut self.under_way[client]);
        let [Outcome::Value(value)] = &reply.outcomes[..] else {
            let what = format!("reading {key} gave {reply:?}");
            return Err(Fault { kind: "wrong_reply", what });
        };
        let short = |value: &Vec<u8>| short(value, self.record.as_ref());
        let value = value.as_ref().map(|(value, version)| (short(value), *version));
        self.found.push(Final { t, key, value });
        Ok(Step::Complete)
    }

    fn failed(&mut self, client: usize) {
        self.keys.push(std::mem::take(&mut self.under_way[client].0));
    }
}

#[cfg(test)]
mod tests {
    use skein_checker::history::text;

    use super::*;
    use crate::generator::{Settings, run};
    use crate::model::Model;

    const SETTINGS: Settings = Settings::to_the_end(4, 2);

    fn records() -> Records {
        Records { count: 100, value_bytes: 50, run: "test".into() }
    }

    #[test]
    fn a_record_that_is_gone_or_changed_is_found() {
        let mut model = Model::default();
        let put = run(&mut model, &mut Over::put(records(), 8), SETTINGS, &mut |_| true);
        assert_eq!((put.operations(), model.pairs.len()), (100, 100));
        let look = |model: &mut Model| {
            run(model, &mut Over::look(records(), 8), SETTINGS, &mut |_| true).errors.total()
        };
        assert_eq!(look(&mut model), 0);
        model.pairs.remove(&records().key(7));
        model.pairs.insert(records().key(8), records().value(9));
        assert_eq!(look(&mut model), 2);
    }

    #[test]
    fn every_key_is_read_once() {
        let mut model = Model::default();
        run(&mut model, &mut Over::put(records(), 8), SETTINGS, &mut |_| true);
        let keys = (50..150).map(|number| text(&records().key(number))).collect();
        let mut survey = Survey::new(keys, 8, None);
        run(&mut model, &mut survey, SETTINGS, &mut |_| true);
        assert_eq!(survey.found.len(), 100);
        assert_eq!(survey.found.iter().filter(|found| found.value.is_some()).count(), 50);
    }
}
