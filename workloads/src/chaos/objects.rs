//! The objects of the recorded workload, and the next operation on them.
//!
//! Operations are chosen so that their effects can be recognised in the state: lists to which
//! unique tokens are appended, registers that are set to unique values, counters that rise by one,
//! and accounts between which money moves. Transactions append, set and read in several groups.
//! Each kind of object is one that checkers of strict serializability support. Cells, of which a
//! few are adjacent over all groups, receive all other commands (`cells`).

use hashbrown::HashMap;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::BankHeader;
use skein_client::{Compare, Operation, Outcome, ReadMode, Reply, Test, Transaction};
use skein_kvstore::slots::SlotMap;
use skein_protocol::ids::GroupId;

use super::cells::{Cells, Memory};
use crate::keys;

/// Bytes per token: four hexadecimal digits of its writer, eight of its number.
pub const TOKEN_BYTES: usize = 12;
/// Lists per group in use at a time, in normal and in alternate periods: so few that operations
/// that overlap only briefly still concern the same list.
const LISTS: u64 = 8;
const LISTS_FEW: u64 = 2;
/// How long a list is appended to, in nanoseconds, before another replaces it.
const LIST_FOR: u64 = 500_000_000;
/// Most tokens of a list before another replaces it. Reads return the whole list, so without a
/// bound a history would grow with the square of the rate.
const LIST_TOKENS_MAX: usize = 24;
/// Registers per group.
const REGISTERS: u64 = 16;
/// Counters per group.
const COUNTERS: u64 = 4;
/// Accounts in all, rounded up so that every group has equally many. One transaction reads all.
const ACCOUNTS: u16 = 16;
/// Opening balance of each account.
const OPENING: i64 = 100;
/// A transfer moves 1 to this amount.
const AMOUNT_MAX: i64 = 50;
/// Keys whose hash slots are moved.
const MOVABLE: u64 = 8;
/// Most operations of a transaction.
const PARTS_MAX: usize = 4;

/// The names of one run's objects.
#[derive(Clone, Debug)]
pub struct Objects {
    run: String,
    /// Prefix of the keys of each group, with a hash tag that maps them to it.
    stems: Vec<String>,
    accounts: Vec<String>,
    began: u64,
    /// Per group.
    lists: u64,
    registers: u64,
    counters: u64,
    cells: Cells,
}

/// A source of operations: draws them from a seed of its own, and writes unique tokens.
#[derive(Clone, Debug)]
pub struct Asker {
    pub(super) random: SmallRng,
    writer: u16,
    tokens: u32,
    pub(super) memory: Memory,
    /// How often each list of the current period was replaced because of its length.
    replaced: HashMap<Vec<u8>, u32>,
    period: u64,
}

/// The kinds of operations of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All kinds.
    Everything,
    /// Only operations on several groups, if there are several.
    ManyGroups,
    /// Only operations on one group.
    OneGroup,
    /// Appends to single lists, and reads of lists in several groups: groups do not wait for each
    /// other in these, so only the reply gate keeps them in real time.
    Looks,
    /// Keys that each have a hash slot of their own, and are removed as often as they are put: so their slots are empty now and
    /// then, and can be moved.
    Slots,
}

impl Asker {
    /// An asker with a unique `writer` number.
    pub fn new(seed: u64, writer: u16) -> Self {
        let random = SmallRng::seed_from_u64(seed ^ keys::fnv(u64::from(writer)));
        let (memory, replaced) = (Memory::default(), HashMap::new());
        Self { random, writer, tokens: 0, memory, replaced, period: 0 }
    }

    /// One of several read modes.
    pub fn mode(&mut self, modes: &[ReadMode]) -> ReadMode {
        match modes {
            [] => ReadMode::default(),
            [only] => *only,
            several => several[self.random.random_range(0..several.len())],
        }
    }

    /// Takes a reply, which may influence later operations.
    pub fn told(&mut self, asked: &Transaction, reply: &Reply) {
        self.memory.told(asked, reply);
        let branch = if reply.held { &asked.then } else { &asked.otherwise };
        for (operation, outcome) in branch.iter().zip(&reply.outcomes) {
            let length = match outcome {
                Outcome::Length(length) => *length as usize,
                Outcome::Value(Some((value, _))) => value.len(),
                _ => continue,
            };
            if length >= LIST_TOKENS_MAX * TOKEN_BYTES
                && let Some((stem, number)) = operation.key().and_then(|key| list_of_key(key))
            {
                let replaced = self.replaced.entry(stem.to_vec()).or_default();
                *replaced = (*replaced).max(number + 1);
            }
        }
    }

    /// How often a list of the period was replaced.
    fn replaced(&mut self, period: u64, stem: &str) -> u32 {
        if self.period != period {
            self.period = period;
            self.replaced.clear();
        }
        self.replaced.get(stem.as_bytes()).copied().unwrap_or_default()
    }

    pub(super) fn token(&mut self) -> Vec<u8> {
        self.tokens += 1;
        format!("{:04x}{:08x}", self.writer, self.tokens).into_bytes()
    }
}

impl Objects {
    /// The objects of the run `run`, which began at `began` on the monotonic clock, distributed
    /// evenly over the `groups` of `slots`.
    pub fn new(run: &str, slots: &SlotMap, groups: u16, began: u64) -> Self {
        let stem = |group| {
            let stem = |tag| format!("chaos/{run}/{{{tag}}}/");
            (0..1_000_000)
                .map(stem)
                .find(|stem| slots.owner(stem.as_bytes()) == GroupId(group))
                .expect("every group owns its share of hash slots")
        };
        let stems: Vec<_> = (0..groups).map(stem).collect();
        let account =
            |account| format!("{}account/{account}", stems[usize::from(account % groups)]);
        let accounts = groups * ACCOUNTS.div_ceil(groups);
        let accounts = (0..accounts).map(account).collect();
        let (lists, registers, counters) = (LISTS, REGISTERS, COUNTERS);
        let cells = Cells::new(run, slots, groups);
        Self { run: run.to_owned(), stems, accounts, began, lists, registers, counters, cells }
    }

    /// The same with so few objects that operations conflict.
    #[must_use]
    pub fn scarce(self) -> Self {
        Self { lists: LISTS_FEW, registers: 2, counters: 1, cells: self.cells.scarce(), ..self }
    }

    /// The accounts as a history's header describes them.
    pub fn bank(&self) -> BankHeader {
        BankHeader { accounts: self.accounts.clone(), opening: OPENING, open: false }
    }

    /// Opens the accounts.
    pub fn opening(&self) -> Transaction {
        let put = |key: &String| Operation::Put {
            key: key.clone().into_bytes(),
            value: OPENING.to_string().into_bytes(),
        };
        Transaction { then: self.accounts.iter().map(put).collect(), ..Transaction::default() }
    }

    /// Number of groups.
    pub fn groups(&self) -> u16 {
        self.stems.len() as u16
    }

    /// The counter by which a group is probed.
    pub fn probe(&self, group: u16) -> Vec<u8> {
        format!("{}probe", self.stems[usize::from(group)]).into_bytes()
    }

    /// A transaction to send at `now`, and whether it concerns several groups.
    pub fn draw(&self, mix: Mix, asker: &mut Asker, now: u64) -> (Transaction, bool) {
        let of = |operation| (Transaction::of(operation), false);
        let many = self.groups() > 1;
        if mix == Mix::Looks {
            if asker.random.random_bool(0.5) {
                let get = |group, asker: &mut Asker| Operation::Get {
                    key: self.list_of(group, asker, now),
                };
                return (self.parts(asker, get), many);
            }
            return of(Operation::Append { key: self.list(asker, now), value: asker.token() });
        }
        if mix == Mix::Slots {
            return (self.on_slots(asker), many);
        }
        let drawn = match mix {
            Mix::Everything => asker.random.random_range(0..120),
            Mix::ManyGroups => asker.random.random_range(68..100),
            Mix::OneGroup | Mix::Looks | Mix::Slots => asker.random.random_range(0..68),
        };
        match drawn {
            100.. => self.cells.draw(asker),
            0..25 => of(Operation::Append { key: self.list(asker, now), value: asker.token() }),
            25..40 => of(Operation::Get { key: self.list(asker, now) }),
            40..48 => of(Operation::Put { key: self.register(asker), value: asker.token() }),
            48..56 => of(Operation::Get { key: self.register(asker) }),
            56..65 => of(Operation::Increment { key: self.counter(asker), by: 1 }),
            65..68 => of(Operation::Get { key: self.counter(asker) }),
            68..84 => (self.on_lists(asker, now), many),
            84..90 => (self.on_registers(asker), many),
            90..98 => (self.transfer(asker), many),
            _ => (self.sum(), many),
        }
    }

    fn list(&self, asker: &mut Asker, now: u64) -> Vec<u8> {
        let group = self.group(asker);
        self.list_of(group, asker, now)
    }

    fn list_of(&self, group: usize, asker: &mut Asker, now: u64) -> Vec<u8> {
        let period = now.saturating_sub(self.began) / LIST_FOR;
        let lists = if period % 2 == 1 { LISTS_FEW.min(self.lists) } else { self.lists };
        let list = asker.random.random_range(0..lists);
        let stem = format!("{}list/{list}.{period}", self.stems[group]);
        let replaced = asker.replaced(period, &stem);
        format!("{stem}.{replaced}").into_bytes()
    }

    fn register(&self, asker: &mut Asker) -> Vec<u8> {
        let group = self.group(asker);
        self.register_of(group, asker)
    }

    fn register_of(&self, group: usize, asker: &mut Asker) -> Vec<u8> {
        let register = asker.random.random_range(0..self.registers);
        format!("{}register/{register}", self.stems[group]).into_bytes()
    }

    fn counter(&self, asker: &mut Asker) -> Vec<u8> {
        let group = self.group(asker);
        let counter = asker.random.random_range(0..self.counters);
        format!("{}counter/{counter}", self.stems[group]).into_bytes()
    }

    fn group(&self, asker: &mut Asker) -> usize {
        asker.random.random_range(0..self.stems.len())
    }

    /// Appends to and reads lists, in at least two groups.
    fn on_lists(&self, asker: &mut Asker, now: u64) -> Transaction {
        self.parts(asker, |group, asker| {
            let key = self.list_of(group, asker, now);
            if asker.random.random_bool(0.6) {
                Operation::Append { key, value: asker.token() }
            } else {
                Operation::Get { key }
            }
        })
    }

    /// Sets and reads registers, in at least two groups.
    fn on_registers(&self, asker: &mut Asker) -> Transaction {
        self.parts(asker, |group, asker| {
            let key = self.register_of(group, asker);
            if asker.random.random_bool(0.5) {
                Operation::Put { key, value: asker.token() }
            } else {
                Operation::Get { key }
            }
        })
    }

    fn parts(
        &self,
        asker: &mut Asker,
        part: impl Fn(usize, &mut Asker) -> Operation,
    ) -> Transaction {
        let parts = asker.random.random_range(2..=PARTS_MAX);
        let first = self.group(asker);
        let mut transaction = Transaction::default();
        for i in 0..parts {
            let operation = part((first + i) % self.stems.len(), asker);
            // Two writes of one register in a transaction would hide the first from all readers.
            if transaction.then.iter().all(|other| other.key() != operation.key()) {
                transaction.then.push(operation);
            }
        }
        transaction
    }

    /// Keys whose slots may be moved.
    pub(crate) fn movable(&self) -> Vec<Vec<u8>> {
        (0..MOVABLE).map(|number| self.movable_key(number)).collect()
    }

    fn movable_key(&self, number: u64) -> Vec<u8> {
        format!("{}-movable/{number}", self.run).into_bytes()
    }

    /// Puts, reads and removes up to three of them, half the time on a condition.
    fn on_slots(&self, asker: &mut Asker) -> Transaction {
        let mut transaction = Transaction::default();
        for _ in 0..asker.random.random_range(1..=3) {
            let key = self.movable_key(asker.random.random_range(0..MOVABLE));
            let operation = match asker.random.random_range(0..10) {
                0..4 => Operation::Put { key, value: asker.token() },
                4..7 => Operation::Delete { key },
                _ => Operation::Get { key },
            };
            if transaction.then.iter().all(|other| other.key() != operation.key()) {
                transaction.then.push(operation);
            }
        }
        if asker.random.random_bool(0.5) {
            let key = self.movable_key(asker.random.random_range(0..MOVABLE));
            let test = if asker.random.random_bool(0.5) { Test::Missing } else { Test::Exists };
            transaction = transaction.guard(key.clone(), test).otherwise(Operation::Get { key });
        }
        transaction
    }

    fn transfer(&self, asker: &mut Asker) -> Transaction {
        let accounts = self.accounts.len();
        let from = asker.random.random_range(0..accounts);
        // Account i is on group i modulo the number of groups, and every group has equally many.
        let to = (from + asker.random.random_range(1..self.stems.len().max(2))) % accounts;
        let amount = asker.random.random_range(1..=AMOUNT_MAX);
        let [from, to] = [from, to].map(|account| self.accounts[account].clone().into_bytes());
        let enough = Test::Number { compare: Compare::AtLeast, number: amount };
        Transaction::default()
            .guard(from.clone(), enough)
            .then(Operation::Increment { key: from.clone(), by: -amount })
            .then(Operation::Increment { key: to.clone(), by: amount })
            // Versions give the order of transfers, which recurring balances do not.
            .then(Operation::Get { key: from })
            .then(Operation::Get { key: to })
    }

    fn sum(&self) -> Transaction {
        let get = |key: &String| Operation::Get { key: key.clone().into_bytes() };
        Transaction { then: self.accounts.iter().map(get).collect(), ..Transaction::default() }
    }
}

/// The prefix of a list's key, and how often the list had been replaced.
fn list_of_key(key: &[u8]) -> Option<(&[u8], u32)> {
    key.windows(6).find(|part| part == b"/list/")?;
    let dot = key.iter().rposition(|byte| *byte == b'.')?;
    let number = std::str::from_utf8(&key[dot + 1..]).ok()?.parse().ok()?;
    Some((&key[..dot], number))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::generator::once;
    use crate::model::Model;

    const GROUPS: u16 = 3;

    fn destinations(transaction: &Transaction, slots: &SlotMap) -> BTreeSet<GroupId> {
        let keys = transaction.then.iter().filter_map(Operation::key);
        keys.map(|key| slots.owner(key)).collect()
    }

    fn is_of_cells(transaction: &Transaction) -> bool {
        let is_cell = |key: &Vec<u8>| key.windows(6).any(|part| part == b"/cell/");
        let scans = |one: &Operation| matches!(one, Operation::Scan { .. });
        let of_cell = |one: &Operation| scans(one) || one.key().is_some_and(is_cell);
        transaction.then.iter().any(of_cell)
    }

    #[test]
    fn it_is_known_which_operations_concern_several_groups() {
        let slots = SlotMap::even(GROUPS);
        let objects = Objects::new("test", &slots, GROUPS, 0);
        let mut asker = Asker::new(1, 7);
        let mut counted = [0; 2];
        for now in 0..2_000 {
            let (transaction, many) = objects.draw(Mix::Everything, &mut asker, now * 1_000_000);
            if !is_of_cells(&transaction) {
                assert_eq!(destinations(&transaction, &slots).len() > 1, many, "{transaction:?}");
            }
            counted[usize::from(many)] += 1;
            let (transaction, _) = objects.draw(Mix::ManyGroups, &mut asker, now * 1_000_000);
            assert!(destinations(&transaction, &slots).len() > 1, "{transaction:?}");
        }
        assert!(counted.iter().all(|count| *count > 400), "{counted:?}");
        for group in 0..GROUPS {
            assert_eq!(slots.owner(&objects.probe(group)), GroupId(group));
        }
    }

    #[test]
    fn nobody_writes_the_same_token_twice() {
        let objects = Objects::new("test", &SlotMap::even(GROUPS), GROUPS, 0);
        let mut askers = [Asker::new(1, 1), Asker::new(1, 2)];
        let mut tokens = BTreeSet::new();
        for now in 0..2_000 {
            for asker in &mut askers {
                let (transaction, _) = objects.draw(Mix::Everything, asker, now);
                for operation in transaction.then {
                    if let Operation::Append { value, .. } | Operation::Put { value, .. } =
                        operation
                    {
                        if value.len() < TOKEN_BYTES {
                            continue; // A number.
                        }
                        assert_eq!(value.len(), TOKEN_BYTES);
                        assert!(tokens.insert(value));
                    }
                }
            }
        }
    }

    #[test]
    fn a_list_does_not_become_long_however_much_is_asked_for() {
        let objects = Objects::new("test", &SlotMap::even(GROUPS), GROUPS, 0);
        let mut asker = Asker::new(1, 7);
        let mut model = Model::over(SlotMap::even(GROUPS));
        once(&mut model, &objects.opening()).unwrap();
        for _ in 0..50_000 {
            // All within one period.
            let (transaction, _) = objects.draw(Mix::Everything, &mut asker, 1);
            if let Ok(reply) = once(&mut model, &transaction) {
                asker.told(&transaction, &reply);
            }
        }
        let lists = model.pairs.iter().filter(|(key, _)| list_of_key(key).is_some());
        let lengths: Vec<usize> = lists.map(|(_, value)| value.len() / TOKEN_BYTES).collect();
        assert!(lengths.len() > 100, "{}", lengths.len());
        // A transaction appends at most once to each list.
        assert!(lengths.iter().all(|length| *length <= LIST_TOKENS_MAX), "{lengths:?}");
        let longest = model.pairs.values().map(Vec::len).max().unwrap_or_default();
        assert!(longest < 2 * LIST_TOKENS_MAX * TOKEN_BYTES, "{longest}");
    }

    #[test]
    fn one_group_is_enough() {
        let slots = SlotMap::even(1);
        let objects = Objects::new("test", &slots, 1, 0);
        let mut asker = Asker::new(1, 1);
        for now in 0..500 {
            let (_, many) = objects.draw(Mix::ManyGroups, &mut asker, now);
            assert!(!many);
        }
    }
}
