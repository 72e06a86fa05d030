//! Retwis: the operations of a small social network, as transactions on many keys.
//!
//! The mix is that of TAPIR's evaluation (Zhang et al., "Building Consistent Transactions with
//! Inconsistent Replication", SOSP 2015): each transaction reads some records and writes some,
//! atomically. Every record holds a mark of its key, which every reader checks, and a unique token,
//! which identifies its writer in a history.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::RecordHeader;
use skein_client::{Operation, Outcome, Reply, Transaction};

use crate::generator::{Fault, Step, Workload};
use crate::keys::{self, Chooser, Distribution};
use crate::mix::{self, FIELD_BYTES, RECORD, Text, has_mark};

/// Layout of a record in a history: one field.
pub const TWEET: RecordHeader = RecordHeader { fields: 1, ..RECORD };

/// Most records that a transaction reads.
const READS_MAX: u64 = 10;

/// Most keys of a transaction, repetitions included.
pub const TRANSACTION_KEYS: usize = READS_MAX as usize;

/// A kind of transaction: its percentage, and how many records it reads and writes. The records
/// read are the first of the records written.
struct Kind {
    percent: u8,
    reads: u64,
    writes: u64,
}

const NAMES: [&str; 4] = ["add_user", "follow", "post_tweet", "get_timeline"];

/// In the order of [`NAMES`]. A timeline reads from one to `reads` records.
const KINDS: [Kind; 4] = [
    Kind { percent: 5, reads: 1, writes: 3 },
    Kind { percent: 15, reads: 2, writes: 2 },
    Kind { percent: 30, reads: 3, writes: 5 },
    Kind { percent: 50, reads: READS_MAX, writes: 0 },
];
const TIMELINE: usize = 3;

/// The key of record `number`.
fn key(number: u64) -> Vec<u8> {
    format!("retwis/{number}").into_bytes()
}

fn put(number: u64, text: &Text, random: &mut SmallRng) -> Operation {
    let mut value = Vec::with_capacity(FIELD_BYTES);
    text.field(keys::fnv(number), &mut value, random);
    Operation::Put { key: key(number), value }
}

/// Puts every record.
pub struct Load {
    text: Text,
    random: SmallRng,
    left: std::ops::Range<u64>,
}

impl Load {
    /// Puts the records 0 to `records - 1`.
    pub fn new(records: u64, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        Self { text: Text::new(&mut random), random, left: 0..records }
    }
}

impl Workload for Load {
    fn kinds(&self) -> &'static [&'static str] {
        &["load"]
    }

    fn next(&mut self, _: usize, transaction: &mut Transaction) -> Option<usize> {
        let number = self.left.next()?;
        *transaction = Transaction::of(put(number, &self.text, &mut self.random));
        Some(0)
    }

    fn returned(&mut self, _: usize, reply: &Reply, _: &mut Transaction) -> Result<Step, Fault> {
        match reply.outcomes[..] {
            [Outcome::Written(_)] => Ok(Step::Complete),
            _ => Err(unexpected(reply)),
        }
    }
}

/// The network's users as a workload.
pub struct Retwis {
    records: u64,
    chooser: Chooser,
    text: Text,
    users: Vec<User>,
}

/// A client, and the records of its transaction. The first `reads` of them are read.
struct User {
    random: SmallRng,
    numbers: Vec<u64>,
    reads: usize,
}

impl Retwis {
    /// A workload over `records` records, which must be more than one transaction reads.
    pub fn new(records: u64, distribution: Distribution, clients: usize, seed: u64) -> Self {
        assert!(records > READS_MAX, "a timeline has several records");
        let user = |client| User {
            random: SmallRng::seed_from_u64(seed ^ keys::fnv(client)),
            numbers: Vec::new(),
            reads: 0,
        };
        Self {
            records,
            chooser: Chooser::new(distribution, records, 0),
            text: Text::new(&mut SmallRng::seed_from_u64(seed)),
            users: (0..clients as u64).map(user).collect(),
        }
    }
}

impl Workload for Retwis {
    fn kinds(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        let Self { records, chooser, text, users } = self;
        let User { random, numbers, reads } = &mut users[client];
        let kind = mix::draw(KINDS.iter().map(|kind| kind.percent), random);
        let Kind { reads: most, writes, .. } = KINDS[kind];
        let count = if kind == TIMELINE { random.random_range(1..=most) } else { most };
        *reads = count as usize;
        numbers.clear();
        while (numbers.len() as u64) < count.max(writes) {
            let number = chooser.draw(*records, random);
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        transaction.then.clear();
        let get = |number: &u64| Operation::Get { key: key(*number) };
        transaction.then.extend(numbers[..*reads].iter().map(get));
        let written = numbers.iter().take(writes as usize);
        transaction.then.extend(written.map(|number| put(*number, text, random)));
        Some(kind)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Result<Step, Fault> {
        let User { numbers, reads, .. } = &self.users[client];
        if reply.outcomes.len() != transaction.then.len() {
            return Err(unexpected(reply));
        }
        let (read, written) = reply.outcomes.split_at(*reads);
        for (outcome, number) in read.iter().zip(numbers) {
            match outcome {
                Outcome::Value(Some((value, _))) if is_of(*number, value) => {}
                Outcome::Value(Some(_)) => {
                    let what = format!("record {number} holds what belongs to another");
                    return Err(Fault { kind: "wrong_value", what });
                }
                Outcome::Value(None) => {
                    let what = format!("record {number} is missing");
                    return Err(Fault { kind: "missing_record", what });
                }
                _ => return Err(unexpected(reply)),
            }
        }
        let all = written.iter().all(|outcome| matches!(outcome, Outcome::Written(_)));
        if all { Ok(Step::Complete) } else { Err(unexpected(reply)) }
    }
}

fn is_of(number: u64, value: &[u8]) -> bool {
    value.len() == FIELD_BYTES && has_mark(keys::fnv(number), value)
}

fn unexpected(reply: &Reply) -> Fault {
    Fault { kind: "wrong_reply", what: format!("{reply:?}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;
    use crate::generator::{Measured, Pace, Settings, run};
    use crate::model::Model;

    const RECORDS: u64 = 200;

    fn measure(model: &mut Model, pace: Option<Pace>) -> Measured {
        let settings = Settings::to_the_end(2, 2);
        run(model, &mut Load::new(RECORDS, 1), settings, &mut |_| true);
        let mut retwis = Retwis::new(RECORDS, Distribution::Zipfian, 4, 1);
        let duration = Some(Duration::from_millis(200));
        let settings = Settings { duration, pace, ..Settings::to_the_end(4, 1) };
        run(model, &mut retwis, settings, &mut |_| true)
    }

    #[test]
    fn everyone_finds_what_belongs_there() {
        let measured = measure(&mut Model::default(), None);
        assert_eq!((measured.errors.total(), measured.ended_early), (0, None));
        let counts: Vec<u64> = measured.latency_ns.iter().map(Histogram::len).collect();
        let all: u64 = counts.iter().sum();
        for (kind, count) in KINDS.iter().zip(counts) {
            let share = count as f64 / all as f64;
            assert!((share - f64::from(kind.percent) / 100.0).abs() < 0.03, "{share}");
        }
    }

    #[test]
    fn no_record_is_taken_twice_and_those_read_are_written() {
        let mut retwis = Retwis::new(RECORDS, Distribution::Zipfian, 1, 3);
        let mut transaction = Transaction::default();
        for _ in 0..2_000 {
            let kind = retwis.next(0, &mut transaction).unwrap();
            let User { numbers, reads, .. } = &retwis.users[0];
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), numbers.len());
            let written = transaction.then.len() - reads;
            assert_eq!(written as u64, KINDS[kind].writes);
            assert!((1..=10).contains(reads));
        }
    }

    #[test]
    fn another_records_value_is_noticed() {
        let swap = |transaction: &mut Transaction| {
            for operation in &mut transaction.then {
                if let Operation::Put { key, .. } = operation
                    && key == b"retwis/0"
                {
                    *key = b"retwis/1".to_vec();
                }
            }
        };
        let mut model = Model::default();
        model.before = Some(swap);
        let errors = measure(&mut model, None).errors.counts;
        assert!(errors.contains_key("wrong_value") && errors.contains_key("missing_record"));
    }

    #[test]
    fn an_open_loop_asks_as_often_as_it_was_told_and_counts_what_it_could_not_ask() {
        let slow = Pace { rate: 2_000.0, seed: 1 };
        let measured = measure(&mut Model::default(), Some(slow));
        assert_eq!(measured.errors.total(), 0);
        assert!((250..550).contains(&measured.operations()), "{}", measured.operations());
        assert!(measured.never_invoked < 100, "{}", measured.never_invoked);
        let fast = Pace { rate: 2e7, seed: 1 };
        let measured = measure(&mut Model::default(), Some(fast));
        assert!(measured.never_invoked > 10 * measured.operations(), "{}", measured.never_invoked);
        // A late invocation counts with all of its wait.
        let longest = measured.latency_ns.iter().map(Histogram::max).max().unwrap();
        assert!(longest > 10_000_000, "{longest} ns");
    }
}
