//! `SmallBank`: customers with a savings and a checking account each, and six kinds of
//! transactions.
//!
//! As defined by Alomari, Cahill, Fekete and Röhm, "The Cost of Serializability on Platforms That
//! Use Snapshot Isolation", ICDE 2008, with the weights and amounts of `BenchBase`. A customer's
//! accounts are on one shard; two customers' mostly are not, so payments and amalgamations cross
//! shards. Where the writes depend on the reads, a transaction first reads, and then writes on the
//! condition that nothing read has changed.
//!
//! **Invariant.** All accounts add up to their opening balances plus all acknowledged payments in,
//! minus those out. No payment overdraws an account, except by check.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::BankHeader;
use skein_client::{Compare, Operation, Outcome, Reply, Test, Transaction};

use crate::generator::{Fault, Step, Workload};
use crate::{keys, mix};

/// Opening balance of each account in cents: so much that overdrafts are rare.
pub const OPENING_BALANCE: i64 = 1_000_000;

const DEPOSIT: i64 = 130;
const PAYMENT: i64 = 500;
const WITHDRAWAL: i64 = 2_020;
const CHECK: i64 = 500;
/// For a check that is not covered.
const PENALTY: i64 = 100;

/// Each kind with its percentage.
const KINDS: [(Kind, u8); 6] = [
    (Kind::Amalgamate, 15),
    (Kind::Balance, 15),
    (Kind::Deposit, 15),
    (Kind::Payment, 25),
    (Kind::Withdrawal, 15),
    (Kind::Check, 15),
];

/// The names of the kinds, in the order of their numbers.
const NAMES: [&str; 6] = [
    "amalgamate",
    "balance",
    "deposit_checking",
    "send_payment",
    "transact_savings",
    "write_check",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Moves all money of a customer to another's checking account.
    Amalgamate,
    /// Reads both accounts of a customer.
    Balance,
    /// Pays into a checking account.
    Deposit,
    /// Pays from one customer's checking account into another's, if it is covered.
    Payment,
    /// Takes from a savings account, if it is covered.
    Withdrawal,
    /// Takes from a checking account, with a penalty if both accounts of the customer do not cover
    /// it.
    Check,
}

/// The bank, and its clients.
pub struct SmallBank {
    customers: u64,
    tellers: Vec<Teller>,
    /// Payments in minus payments out since the accounts were opened.
    paid_in: i64,
    /// Transactions that the guard against overdraft prevented.
    pub declined: u64,
    /// How often a transaction was restarted because another had changed what it had read.
    pub begun_again: u64,
}

/// The state of a client.
struct Teller {
    random: SmallRng,
    kind: Kind,
    customers: [u64; 2],
    /// Set once it has read what it needs and writes.
    writes: Option<Writes>,
}

/// The effects of the writes that follow from the reads.
#[derive(Clone, Copy)]
struct Writes {
    paid_in: i64,
    /// Balance of each account after the withdrawal, if nothing has changed meanwhile.
    left: [Option<i64>; 2],
}

impl SmallBank {
    /// A bank with this many customers, at least two.
    pub fn new(customers: u64, clients: usize, seed: u64) -> Self {
        assert!(customers >= 2, "a payment has two ends");
        let teller = |client| Teller {
            random: SmallRng::seed_from_u64(seed ^ keys::fnv(client)),
            kind: Kind::Balance,
            customers: [0, 1],
            writes: None,
        };
        let tellers = (0..clients as u64).map(teller).collect();
        Self { customers, tellers, paid_in: 0, declined: 0, begun_again: 0 }
    }

    /// Number of customers.
    pub fn customers(&self) -> u64 {
        self.customers
    }

    /// The right sum of the accounts, if nothing is in flight.
    pub fn expected_sum(&self) -> i64 {
        2 * self.customers.cast_signed() * OPENING_BALANCE + self.paid_in
    }

    /// The accounts as a history's header describes them.
    pub fn header(customers: u64) -> BankHeader {
        let both = |customer| [savings(customer), checking(customer)];
        let text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
        let accounts = (0..customers).flat_map(both).map(text).collect();
        BankHeader { accounts, opening: OPENING_BALANCE, open: true }
    }
}

impl Teller {
    fn draw(&mut self, customers: u64) {
        let percent = KINDS.map(|(_, percent)| percent);
        self.kind = KINDS[mix::draw(percent, &mut self.random)].0;
        let first = self.random.random_range(0..customers);
        let second = (first + self.random.random_range(1..customers)) % customers;
        self.customers = [first, second];
        self.writes = None;
    }

    /// The first transaction.
    fn begin(&self) -> Transaction {
        let [customer, other] = self.customers;
        let paid = |key, by| Operation::Increment { key, by };
        let enough = |number| Test::Number { compare: Compare::AtLeast, number };
        match self.kind {
            Kind::Balance | Kind::Amalgamate | Kind::Check => both(customer),
            Kind::Deposit => Transaction::of(paid(checking(customer), DEPOSIT)),
            Kind::Payment => Transaction::default()
                .guard(checking(customer), enough(PAYMENT))
                .then(paid(checking(customer), -PAYMENT))
                .then(paid(checking(other), PAYMENT)),
            Kind::Withdrawal => Transaction::of(paid(savings(customer), -WITHDRAWAL))
                .guard(savings(customer), enough(WITHDRAWAL)),
        }
    }

    /// The writes after the customer's accounts were read.
    fn write(&mut self, read: [(i64, u64); 2]) -> Transaction {
        let [customer, other] = self.customers;
        let [(saved, at), (checked, and_at)] = read;
        let unchanged = Transaction::default()
            .guard(savings(customer), Test::Version(at))
            .guard(checking(customer), Test::Version(and_at));
        let paid = |key, by| Operation::Increment { key, by };
        if self.kind == Kind::Check {
            let covered = saved + checked >= CHECK;
            let amount = if covered { CHECK } else { CHECK + PENALTY };
            self.writes = Some(Writes { paid_in: -amount, left: [Some(checked - amount), None] });
            return unchanged.then(paid(checking(customer), -amount));
        }
        self.writes = Some(Writes { paid_in: 0, left: [Some(0), Some(0)] });
        unchanged
            .then(paid(savings(customer), -saved))
            .then(paid(checking(customer), -checked))
            .then(paid(checking(other), saved + checked))
    }
}

impl Workload for SmallBank {
    fn kinds(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        let teller = &mut self.tellers[client];
        teller.draw(self.customers);
        *transaction = teller.begin();
        Some(teller.kind as usize)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Result<Step, Fault> {
        let teller = &mut self.tellers[client];
        if let Some(Writes { paid_in, left }) = teller.writes {
            if reply.held {
                self.paid_in += paid_in;
                let mut left = left.into_iter().flatten().zip(&reply.outcomes);
                if left.all(|(left, outcome)| *outcome == Outcome::Number(left)) {
                    return Ok(Step::Complete);
                }
                let (kind, customer) = (teller.kind, teller.customers[0]);
                let what = format!("{kind:?} on a stale balance of customer {customer}: {reply:?}");
                return Err(Fault { kind: "stale_read", what });
            }
            self.begun_again += 1;
            teller.writes = None;
            *transaction = teller.begin();
            return Ok(Step::More);
        }
        match (teller.kind, reply.held, &reply.outcomes[..]) {
            (Kind::Balance, true, _) => balances(teller.customers[0], reply).map(|_| ())?,
            (Kind::Amalgamate | Kind::Check, true, _) => {
                let read = balances(teller.customers[0], reply)?;
                *transaction = teller.write(read);
                return Ok(Step::More);
            }
            (Kind::Deposit, true, [Outcome::Number(_)]) => self.paid_in += DEPOSIT,
            (Kind::Payment, true, [Outcome::Number(left), Outcome::Number(_)]) if *left >= 0 => {}
            (Kind::Withdrawal, true, [Outcome::Number(left)]) if *left >= 0 => {
                self.paid_in -= WITHDRAWAL;
            }
            (Kind::Payment | Kind::Withdrawal, true, [Outcome::Number(left), ..]) => {
                let customer = teller.customers[0];
                let what = format!("customer {customer} has paid more than the balance: {left}");
                return Err(Fault { kind: "overdraft", what });
            }
            (Kind::Payment | Kind::Withdrawal, false, []) => self.declined += 1,
            (kind, ..) => {
                let what = format!("to {kind:?}: {reply:?}");
                return Err(Fault { kind: "wrong_reply", what });
            }
        }
        Ok(Step::Complete)
    }
}

/// Balance and version of both accounts of a customer.
fn balances(customer: u64, reply: &Reply) -> Result<[(i64, u64); 2], Fault> {
    let [Outcome::Value(savings), Outcome::Value(checking)] = &reply.outcomes[..] else {
        let what = format!("to a read of customer {customer}: {reply:?}");
        return Err(Fault { kind: "wrong_reply", what });
    };
    let balance = |value: &Option<(Vec<u8>, u64)>| {
        let Some((text, version)) = value else {
            let what = format!("an account of customer {customer} is missing");
            return Err(Fault { kind: "missing_record", what });
        };
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let what = || format!("an account of customer {customer} is no number");
        let number = number.ok_or_else(|| Fault { kind: "wrong_value", what: what() })?;
        Ok((number, *version))
    };
    Ok([balance(savings)?, balance(checking)?])
}

/// A read of both accounts of a customer.
fn both(customer: u64) -> Transaction {
    Transaction::of(Operation::Get { key: savings(customer) })
        .then(Operation::Get { key: checking(customer) })
}

/// The hash tag keeps a customer's accounts on one shard.
fn savings(customer: u64) -> Vec<u8> {
    format!("smallbank/{{{customer}}}/savings").into_bytes()
}

fn checking(customer: u64) -> Vec<u8> {
    format!("smallbank/{{{customer}}}/checking").into_bytes()
}

/// Opens the accounts of all customers, or resets those of earlier runs.
pub struct Opening(std::ops::Range<u64>);

impl Opening {
    /// Opens the accounts of this many customers.
    pub fn new(customers: u64) -> Self {
        Self(0..customers)
    }
}

impl Workload for Opening {
    fn kinds(&self) -> &'static [&'static str] {
        &["open"]
    }

    fn next(&mut self, _: usize, transaction: &mut Transaction) -> Option<usize> {
        let customer = self.0.next()?;
        let value = OPENING_BALANCE.to_string().into_bytes();
        *transaction =
            Transaction::of(Operation::Put { key: savings(customer), value: value.clone() })
                .then(Operation::Put { key: checking(customer), value });
        Some(0)
    }

    fn returned(&mut self, _: usize, reply: &Reply, _: &mut Transaction) -> Result<Step, Fault> {
        match reply.outcomes[..] {
            [Outcome::Written(_), Outcome::Written(_)] => Ok(Step::Complete),
            _ => Err(Fault { kind: "wrong_reply", what: format!("to an opening: {reply:?}") }),
        }
    }
}

/// Adds up all accounts, when no client is active.
pub struct Audit {
    left: std::ops::Range<u64>,
    pub sum: i64,
}

impl Audit {
    /// Adds up the accounts of this many customers.
    pub fn new(customers: u64) -> Self {
        Self { left: 0..customers, sum: 0 }
    }
}

impl Workload for Audit {
    fn kinds(&self) -> &'static [&'static str] {
        &["audit"]
    }

    fn next(&mut self, _: usize, transaction: &mut Transaction) -> Option<usize> {
        *transaction = both(self.left.next()?);
        Some(0)
    }

    fn returned(&mut self, _: usize, reply: &Reply, _: &mut Transaction) -> Result<Step, Fault> {
        let [(saved, _), (checked, _)] = balances(0, reply)?;
        self.sum += saved + checked;
        Ok(Step::Complete)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::generator::{Measured, Settings, run};
    use crate::model::Model;

    const CUSTOMERS: u64 = 20;

    fn measure(model: &mut Model) -> (Measured, SmallBank) {
        run(model, &mut Opening::new(CUSTOMERS), Settings::to_the_end(2, 2), &mut |_| true);
        let mut bank = SmallBank::new(CUSTOMERS, 8, 1);
        let duration = Some(Duration::from_millis(150));
        let settings = Settings { duration, ..Settings::to_the_end(8, 1) };
        (run(model, &mut bank, settings, &mut |_| true), bank)
    }

    fn sum(model: &mut Model) -> i64 {
        let mut audit = Audit::new(CUSTOMERS);
        run(model, &mut audit, Settings::to_the_end(2, 2), &mut |_| true);
        audit.sum
    }

    #[test]
    fn all_kinds_of_business_leave_the_sum_that_was_acknowledged() {
        let mut model = Model::default();
        let (measured, bank) = measure(&mut model);
        assert_eq!((measured.errors.total(), measured.ended_early), (0, None));
        assert!(measured.latency_ns.iter().all(|latencies| !latencies.is_empty()));
        assert!(bank.begun_again > 0, "eight clients and twenty customers");
        assert_eq!(sum(&mut model), bank.expected_sum());
    }

    #[test]
    fn the_shares_are_those_of_the_definition() {
        assert_eq!(KINDS.iter().map(|(_, percent)| percent).sum::<u8>(), 100);
        let mut bank = SmallBank::new(CUSTOMERS, 1, 7);
        let mut counts = [0_u32; 6];
        for _ in 0..100_000 {
            counts[bank.next(0, &mut Transaction::default()).unwrap()] += 1;
            let [one, other] = bank.tellers[0].customers;
            assert!(one != other && one < CUSTOMERS && other < CUSTOMERS);
        }
        for ((kind, percent), count) in KINDS.into_iter().zip(counts) {
            assert!(count.abs_diff(u32::from(percent) * 1_000) < 1_000, "{kind:?}: {count}");
        }
    }

    #[test]
    fn a_store_that_is_wrong_is_found_out() {
        // A check is paid twice; values read may have changed.
        type Plant = fn(&mut Transaction);
        let plants: [Plant; 2] = [
            |transaction| {
                if let [Operation::Increment { by, .. }] = &mut transaction.then[..] {
                    *by *= 2;
                }
            },
            |transaction| {
                transaction.guards.retain(|guard| !matches!(guard.test, Test::Version(_)));
            },
        ];
        for plant in plants {
            let mut model = Model::default();
            model.before = Some(plant);
            let (measured, bank) = measure(&mut model);
            assert!(measured.errors.total() > 0 || sum(&mut model) != bank.expected_sum());
        }
        let poor: Plant = |transaction| {
            transaction.guards.clear();
            if let [Operation::Put { value, .. }, ..] = &mut transaction.then[..] {
                *value = b"1".to_vec();
            }
        };
        let mut model = Model::default();
        model.before = Some(poor);
        assert!(measure(&mut model).0.errors.counts.contains_key("overdraft"));
    }
}
