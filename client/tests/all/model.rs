//! Many concurrent clients; a model checks each reply.
//!
//! Every transaction also counts on one key, so its reply gives its place in the order: the counts are a serial order,
//! and the model must give every reply when it executes the transactions in that order.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use skein_client::{Compare, KeyRange, Operation, Outcome, Page, Reply, Test, Transaction};

use crate::clusters::builder;

const CLIENTS: u64 = 16;
const EACH: usize = 150;
const KEYS: u32 = 24;
const COUNT: &[u8] = b"the count";

#[test]
fn sixteen_clients_agree_with_one_order() {
    let cluster = builder().groups(4).start().unwrap();
    let mut history: Vec<(Transaction, Reply)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                let mut client = cluster.client().unwrap();
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed);
                    let mut done = Vec::new();
                    while done.len() < EACH {
                        // A session also executes several at once.
                        let few = random.random_range(1..=4);
                        let transactions: Vec<_> =
                            (0..few).map(|_| transaction(&mut random)).collect();
                        let pending: Vec<_> =
                            transactions.iter().map(|t| client.submit(t).unwrap()).collect();
                        for (transaction, pending) in transactions.into_iter().zip(pending) {
                            done.push((transaction, client.wait(pending).unwrap()));
                        }
                    }
                    done
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let place = |reply: &Reply| match reply.outcomes[0] {
        Outcome::Number(number) => number,
        ref other => panic!("{other:?}"),
    };
    history.sort_by_key(|(_, reply)| place(reply));
    let mut model = Model::default();
    let (mut held, mut not) = (0, 0);
    for (expected_place, (transaction, reply)) in (1..).zip(&history) {
        assert_eq!(place(reply), expected_place, "no place is skipped or taken twice");
        let expected = model.run(transaction);
        let got = without_versions(reply.clone());
        assert_eq!(got, expected, "at place {expected_place}: {transaction:?}");
        *(if reply.held { &mut held } else { &mut not }) += 1;
    }
    assert!(held > 300 && not > 300, "both branches: {held} held, {not} did not");
}

fn transaction(random: &mut SmallRng) -> Transaction {
    let count = || Operation::Increment { key: COUNT.to_vec(), by: 1 };
    let mut transaction = Transaction { then: vec![count()], ..Transaction::default() };
    transaction.otherwise.push(count());
    for _ in 0..random.random_range(0..3) {
        let test = match random.random_range(0..4) {
            0 => Test::Exists,
            1 => Test::Missing,
            2 => Test::Equals(number(random)),
            _ => {
                let all = [Compare::Less, Compare::AtMost, Compare::AtLeast, Compare::Greater];
                let compare = all[random.random_range(0..4)];
                Test::Number { compare, number: random.random_range(0..20) }
            }
        };
        transaction = transaction.guard(key(random), test);
    }
    for _ in 0..random.random_range(1..5) {
        let operation = operation(random);
        transaction.then.push(operation);
    }
    for _ in 0..random.random_range(0..3) {
        let operation = operation(random);
        transaction.otherwise.push(operation);
    }
    if random.random_range(0..10) == 0 {
        let KeyRange { start, end } = KeyRange::prefix("k");
        transaction.then.push(Operation::Scan { start, end, limit: 1_000 });
    }
    transaction
}

/// Values stay numbers, so that no transaction is refused.
fn operation(random: &mut SmallRng) -> Operation {
    let key = key(random);
    match random.random_range(0..6) {
        0 => Operation::Put { key, value: number(random) },
        1 => Operation::Delete { key },
        2 => Operation::Exists { key },
        3 | 4 => Operation::Increment { key, by: random.random_range(-5..=5) },
        _ => Operation::Get { key },
    }
}

fn key(random: &mut SmallRng) -> Vec<u8> {
    format!("k{}", random.random_range(0..KEYS)).into_bytes()
}

fn number(random: &mut impl Rng) -> Vec<u8> {
    random.random_range(0..20).to_string().into_bytes()
}

#[derive(Default)]
struct Model {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Model {
    fn run(&mut self, transaction: &Transaction) -> Reply {
        let held = transaction.guards.iter().all(|guard| {
            let value = self.map.get(&guard.key);
            match &guard.test {
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::Equals(expected) => value == Some(expected),
                Test::Version(_) | Test::Unchanged { .. } => unreachable!("the model has none"),
                Test::Number { compare, number } => {
                    let value = self.number(&guard.key);
                    match compare {
                        Compare::Less => value < *number,
                        Compare::AtMost => value <= *number,
                        Compare::Equal => value == *number,
                        Compare::AtLeast => value >= *number,
                        Compare::Greater => value > *number,
                    }
                }
            }
        });
        let branch = if held { &transaction.then } else { &transaction.otherwise };
        let outcomes = branch.iter().map(|operation| self.apply(operation)).collect();
        Reply { held, outcomes }
    }

    fn number(&self, key: &[u8]) -> i64 {
        self.map.get(key).map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap())
    }

    fn apply(&mut self, operation: &Operation) -> Outcome {
        match operation.clone() {
            Operation::Get { key } => Outcome::Value(self.map.get(&key).map(|v| (v.clone(), 0))),
            Operation::Exists { key } => Outcome::Flag(self.map.contains_key(&key)),
            Operation::Put { key, value } => {
                self.map.insert(key, value);
                Outcome::Written(0)
            }
            Operation::Delete { key } => Outcome::Flag(self.map.remove(&key).is_some()),
            Operation::Increment { key, by } => {
                let number = self.number(&key) + by;
                self.map.insert(key, number.to_string().into_bytes());
                Outcome::Number(number)
            }
            Operation::Scan { start, end, .. } => {
                let end = end.expect("a prefix has one");
                let pairs = self.map.range(start..end).map(|(k, v)| (k.clone(), v.clone()));
                Outcome::Page(Page { pairs: pairs.collect(), next: None })
            }
            Operation::Append { .. } | Operation::Patch { .. } => unreachable!("not drawn"),
        }
    }
}

fn without_versions(mut reply: Reply) -> Reply {
    for outcome in &mut reply.outcomes {
        match outcome {
            Outcome::Value(Some((_, version))) | Outcome::Written(version) => {
                assert!(*version > 0, "what exists has a version");
                *version = 0;
            }
            _ => {}
        }
    }
    reply
}
