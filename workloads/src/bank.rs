//! The bank: money moves between accounts on different shards while readers add up all accounts.
//!
//! **Invariant.** A transfer takes from one account exactly what it adds to another, and only if
//! the first has enough. So at every position in the order the accounts add up to their opening
//! balances, and none is overdrawn. A reader that finds another sum has observed half a transfer; a
//! negative balance means that a guard on one shard did not prevent a write on another.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::BankHeader;
use skein_client::{Compare, Operation, Outcome, Reply, Test, Transaction};
use skein_kvstore::slots::SlotMap;

use crate::generator::{Fault, Step, Workload};
use crate::keys;

/// Opening balance of each account: so little that transfers are often declined.
pub const OPENING_BALANCE: i64 = 100;
/// A transfer moves 1 to this amount.
const AMOUNT_MAX: i64 = 50;

const TRANSFER: usize = 0;
const SUM: usize = 1;

/// A bank's accounts and clients.
pub struct Bank {
    accounts: Vec<Vec<u8>>,
    groups: usize,
    /// Money moves among the first `hot` accounts. `2 <= hot <= accounts`.
    hot: usize,
    transferring: usize,
    random: Vec<SmallRng>,
    /// Transfers per client, including declined ones.
    transfers: Vec<u64>,
    /// Transfers that the guard against overdraft prevented.
    pub declined: u64,
    /// Reads that found the right sum.
    pub right_sums: u64,
}

impl Bank {
    /// A bank of `accounts`, at least two, distributed evenly over the `groups` of `slots`, with
    /// `transferring` clients that move money and `reading` clients that add up.
    pub fn new(
        slots: &SlotMap,
        groups: u16,
        accounts: usize,
        transferring: usize,
        reading: usize,
        seed: u64,
    ) -> Self {
        assert!(accounts >= 2, "a transfer has two ends");
        let groups = usize::from(groups);
        let client = |client| SmallRng::seed_from_u64(seed ^ keys::fnv(client));
        Self {
            accounts: (0..accounts).map(|account| key(slots, groups, accounts, account)).collect(),
            groups,
            hot: accounts,
            transferring,
            transfers: vec![0; transferring],
            random: (0..(transferring + reading) as u64).map(client).collect(),
            declined: 0,
            right_sums: 0,
        }
    }

    /// Moves money only among the first `hot` accounts, at least two, so that transfers conflict.
    #[must_use]
    pub fn with_hot(mut self, hot: usize) -> Self {
        self.hot = hot.clamp(2, self.accounts.len());
        self
    }

    /// Number of accounts among which money moves.
    pub fn hot(&self) -> usize {
        self.hot
    }

    /// The transfers of the client with the fewest, and of the client with the most.
    pub fn least_and_most(&self) -> (u64, u64) {
        let transfers = || self.transfers.iter().copied();
        (transfers().min().unwrap_or(0), transfers().max().unwrap_or(0))
    }

    /// Number of accounts.
    pub fn accounts(&self) -> usize {
        self.accounts.len()
    }

    /// The accounts as a history's header describes them.
    pub fn header(&self) -> BankHeader {
        let text = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        BankHeader {
            accounts: self.accounts.iter().map(text).collect(),
            opening: OPENING_BALANCE,
            open: false,
        }
    }

    /// Number of clients that add up.
    pub fn readers(&self) -> usize {
        self.random.len() - self.transferring
    }

    /// The right sum of the accounts.
    pub fn total(&self) -> i64 {
        self.accounts.iter().map(|_| OPENING_BALANCE).sum()
    }

    /// Sets every account to its opening balance in one transaction: banks of earlier runs, or
    /// running beside this one, keep their sum.
    pub fn opening(&self) -> Transaction {
        let value = OPENING_BALANCE.to_string().into_bytes();
        let put = |key: &Vec<u8>| Operation::Put { key: key.clone(), value: value.clone() };
        Transaction { then: self.accounts.iter().map(put).collect(), ..Transaction::default() }
    }

    /// Reads every account in one transaction.
    pub fn reading(&self) -> Transaction {
        let get = |key: &Vec<u8>| Operation::Get { key: key.clone() };
        Transaction { then: self.accounts.iter().map(get).collect(), ..Transaction::default() }
    }

    /// The sum of the accounts that a [`reading`](Self::reading) returned, or an error if it is
    /// wrong.
    pub fn check(&self, reply: &Reply) -> Result<i64, Fault> {
        if reply.outcomes.len() != self.accounts.len() {
            return Err(wrong("wrong_reply", format!("{} outcomes", reply.outcomes.len())));
        }
        let mut sum = 0;
        for (outcome, key) in reply.outcomes.iter().zip(&self.accounts) {
            let account = || String::from_utf8_lossy(key);
            let Outcome::Value(value) = outcome else {
                return Err(wrong("wrong_reply", format!("account {}: {outcome:?}", account())));
            };
            let Some((value, _)) = value else {
                return Err(wrong("missing_record", format!("account {} is missing", account())));
            };
            let balance: i64 =
                std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(
                    || wrong("wrong_value", format!("account {} is no number", account())),
                )?;
            if balance < 0 {
                return Err(overdrawn(&account(), balance));
            }
            sum += balance;
        }
        if sum != self.total() {
            let (accounts, total) = (self.accounts.len(), self.total());
            let what = format!("{accounts} accounts add up to {sum} instead of {total}");
            return Err(wrong("wrong_sum", what));
        }
        Ok(sum)
    }

    /// A guarded transfer between accounts, which are on different shards if there are several.
    fn transfer(&mut self, client: usize, transaction: &mut Transaction) {
        let (accounts, random) = (self.hot, &mut self.random[client]);
        let from = random.random_range(0..accounts);
        let to = loop {
            let to = random.random_range(0..accounts);
            // Account i is on group i modulo the number of groups.
            let shares_group = to % self.groups == from % self.groups;
            if to != from && !(shares_group && self.groups > 1) {
                break to;
            }
        };
        let amount = random.random_range(1..=AMOUNT_MAX);
        let [from, to] = [from, to].map(|account| self.accounts[account].clone());
        let enough = Test::Number { compare: Compare::AtLeast, number: amount };
        *transaction = Transaction::default()
            .guard(from.clone(), enough)
            .then(Operation::Increment { key: from, by: -amount })
            .then(Operation::Increment { key: to, by: amount });
    }

    fn check_transfer(&mut self, reply: &Reply, transaction: &Transaction) -> Result<(), Fault> {
        match (reply.held, &reply.outcomes[..]) {
            (false, []) => self.declined += 1,
            (true, [Outcome::Number(from), Outcome::Number(_)]) => {
                if *from < 0 {
                    let account = String::from_utf8_lossy(&transaction.guards[0].key);
                    return Err(overdrawn(&account, *from));
                }
            }
            _ => return Err(wrong("wrong_reply", format!("to a transfer: {reply:?}"))),
        }
        Ok(())
    }
}

impl Workload for Bank {
    fn kinds(&self) -> &'static [&'static str] {
        &["transfer", "sum"]
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        if client < self.transferring {
            self.transfer(client, transaction);
            return Some(TRANSFER);
        }
        // A reader's transaction is always the same.
        if transaction.then.is_empty() {
            *transaction = self.reading();
        }
        Some(SUM)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Result<Step, Fault> {
        if client < self.transferring {
            self.check_transfer(reply, transaction)?;
            self.transfers[client] += 1;
        } else {
            self.check(reply)?;
            self.right_sums += 1;
        }
        Ok(Step::Complete)
    }
}

/// The key of `account`, on group `account` modulo the number of groups: with the first ending that
/// hashes there. Banks of different sizes share no account.
fn key(slots: &SlotMap, groups: usize, accounts: usize, account: usize) -> Vec<u8> {
    let group = account % groups;
    (0..1_000_000)
        .map(|ending| format!("bank/{accounts}/{account}.{ending}").into_bytes())
        .find(|key| usize::from(slots.owner(key).0) == group)
        .expect("every group owns its share of hash slots")
}

fn overdrawn(account: &str, balance: i64) -> Fault {
    wrong("overdraft", format!("account {account} is overdrawn: {balance}"))
}

fn wrong(kind: &'static str, what: String) -> Fault {
    Fault { kind, what }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skein_protocol::ids::GroupId;

    use super::*;
    use crate::generator::{Measured, Settings, once, run};
    use crate::model::Model;

    const GROUPS: u16 = 4;

    fn bank() -> Bank {
        Bank::new(&SlotMap::even(GROUPS), GROUPS, 16, 8, 2, 1)
    }

    fn measure(model: &mut Model, bank: &mut Bank) -> Measured {
        let settings = Settings {
            clients: 10,
            sessions: 10,
            warm_up: Duration::ZERO,
            duration: Some(Duration::from_millis(150)),
            pace: None,
        };
        once(model, &bank.opening()).unwrap();
        run(model, bank, settings, &mut |_| true)
    }

    #[test]
    fn every_transfer_crosses_shards_and_nothing_is_lost() {
        let (mut bank, slots) = (bank(), SlotMap::even(GROUPS));
        let mut transaction = Transaction::default();
        for _ in 0..1_000 {
            bank.transfer(0, &mut transaction);
            let groups = [0, 1].map(|i| match &transaction.then[i] {
                Operation::Increment { key, .. } => slots.owner(key),
                other => panic!("{other:?}"),
            });
            assert_ne!(groups[0], groups[1]);
        }
        assert_eq!(slots.owner(&bank.accounts[6]), GroupId(2));

        let mut model = Model::default();
        let measured = measure(&mut model, &mut bank);
        assert_eq!((measured.errors.total(), measured.ended_early), (0, None));
        assert!(bank.declined > 0 && bank.right_sums > 0);
        let (least, most) = bank.least_and_most();
        assert!(0 < least && least <= most, "{least} to {most} of each client");
        let last = once(&mut model, &bank.reading()).unwrap();
        assert_eq!(bank.check(&last), Ok(bank.total()));
    }

    #[test]
    fn money_moves_among_the_hot_accounts_only() {
        let mut bank = bank().with_hot(3);
        let hot = bank.accounts[..3].to_vec();
        let mut transaction = Transaction::default();
        for _ in 0..100 {
            bank.transfer(0, &mut transaction);
            let mut keys = transaction.then.iter().filter_map(Operation::key);
            assert!(keys.all(|key| hot.contains(key)));
        }
        assert_eq!((self::bank().with_hot(1).hot(), self::bank().with_hot(99).hot()), (2, 16));
    }

    #[test]
    fn a_store_that_is_wrong_is_found_out() {
        type Plant = fn(&mut Transaction);
        #[rustfmt::skip]
        let cases: [(&str, Plant); 3] = [
            ("overdraft",      |transaction| transaction.guards.clear()),
            ("wrong_sum",      |transaction| if transaction.then.len() == 2 { transaction.then[1] = match &transaction.then[1] {
                                   Operation::Increment { key, .. } => Operation::Increment { key: key.clone(), by: 0 },
                                   other => other.clone(),
                               } }),
            ("wrong_reply",    |transaction| if transaction.then.len() == 2 { transaction.then.truncate(1) }),
        ];
        for (kind, plant) in cases {
            let mut model = Model::default();
            model.before = Some(plant);
            let measured = measure(&mut model, &mut bank());
            assert!(measured.errors.counts.contains_key(kind), "{kind}: {:?}", measured.errors);
        }
    }
}
