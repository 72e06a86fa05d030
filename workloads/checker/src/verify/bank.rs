//! The bank: a read of all accounts finds the sum of their opening balances.

use hashbrown::{HashMap, HashSet};

use super::{Judgement, Key, Moment};
use crate::history::{BankHeader, Guard, Header, Op, Out};

pub(super) struct Bank<'a> {
    header: &'a Header,
    opened: Option<&'a BankHeader>,
    accounts: HashSet<&'a str>,
    /// Whether accounts were written other than by transfers and openings. Then their sum may
    /// change.
    is_disturbed: bool,
    /// Reads of all accounts whose sum is not the total; `None` if an account held no number.
    wrong_sums: Vec<(Moment, Option<i128>)>,
    /// The most that transactions of unknown outcome may take from all accounts together (at most
    /// 0), and add to them (at least 0).
    unknown: (i128, i128),
    /// Whether an opening has an unknown outcome. It may change the accounts by any amount.
    may_open: bool,
}

impl<'a> Bank<'a> {
    pub(super) fn new(header: &'a Header) -> Self {
        let bank = header.bank.as_ref();
        let accounts = bank.iter().flat_map(|bank| &bank.accounts).map(String::as_str).collect();
        Self {
            header,
            opened: bank,
            accounts,
            is_disturbed: false,
            wrong_sums: Vec::new(),
            unknown: (0, 0),
            may_open: false,
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.accounts.contains(key)
    }

    fn is_open(&self) -> bool {
        self.opened.is_some_and(|bank| bank.open)
    }

    fn total(&self) -> i128 {
        self.opened.map_or(0, |bank| self.accounts.len() as i128 * i128::from(bank.opening))
    }

    /// Takes a branch that was or may have been executed, and notes whether it keeps the sum of all
    /// accounts.
    pub(super) fn asked(&mut self, ops: &[Op]) {
        let writes: Vec<&Op> = ops.iter().filter(|op| op.writes() && self.has(op.key())).collect();
        let by = |op: &&Op| if let Op::Incr(_, by) = op { Some(i128::from(*by)) } else { None };
        let is_transfer = writes.iter().map(by).sum::<Option<i128>>() == Some(0);
        if !is_transfer && !self.is_opening(&writes) {
            self.is_disturbed = true;
        }
    }

    /// Takes a branch of a transaction of unknown outcome. It may be executed between two of the
    /// final reads, which then observe a part of it.
    pub(super) fn unknown(&mut self, ops: &[Op]) {
        self.asked(ops);
        for op in ops.iter().filter(|op| self.accounts.contains(op.key())) {
            match op {
                Op::Incr(_, by) if *by < 0 => self.unknown.0 += i128::from(*by),
                Op::Incr(_, by) => self.unknown.1 += i128::from(*by),
                op => self.may_open |= op.writes(),
            }
        }
    }

    /// Whether every account is set to its opening balance.
    fn is_opening(&self, writes: &[&Op]) -> bool {
        let Some(bank) = self.opened else { return false };
        let value = bank.opening.to_string();
        let opens = |op: &&Op| matches!(op, Op::Put(_, with) if *with == value);
        let keys: HashSet<&str> = writes.iter().map(|op| op.key()).collect();
        keys.len() == self.accounts.len() && writes.iter().all(opens)
    }

    /// Takes the branch that was executed and its results. `guards` are the conditions that held:
    /// none if the else branch was executed.
    pub(super) fn look(
        &mut self,
        guards: &[Guard],
        ops: &[Op],
        out: &[Out],
        moment: Moment,
        verdict: &mut Judgement,
    ) {
        self.overdrawn(guards, ops, out, moment, verdict);
        let gets = |op: &Op| matches!(op, Op::Get(key) if self.has(key));
        let keys: HashSet<&str> = ops.iter().map(Op::key).collect();
        let all = ops.len() == self.accounts.len() && ops.iter().all(gets);
        if self.is_open() || !all || keys.len() < ops.len() || ops.is_empty() {
            return;
        }
        let sum: Option<i128> = out.iter().map(|out| balance(out).map(i128::from)).sum();
        if sum != Some(self.total()) {
            self.wrong_sums.push((moment, sum));
        }
    }

    /// A condition that held gives a lower bound of the balance. After the additions of the same
    /// transaction the balance is at least this bound plus their sum.
    fn overdrawn(
        &self,
        guards: &[Guard],
        ops: &[Op],
        out: &[Out],
        moment: Moment,
        verdict: &mut Judgement,
    ) {
        let mut least: HashMap<&str, i128> = HashMap::new();
        for guard in guards {
            if let Guard::AtLeast(key, limit) = guard
                && self.has(key)
            {
                let least = least.entry(key).or_insert(i128::from(*limit));
                *least = (*least).max(i128::from(*limit));
            }
        }
        for (op, out) in ops.iter().zip(out).filter(|(op, _)| op.writes()) {
            let (Op::Incr(key, by), Out::Number(number)) = (op, out) else {
                least.remove(op.key());
                continue;
            };
            let Some(least) = least.get_mut(key.as_str()) else { continue };
            *least += i128::from(*by);
            if i128::from(*number) < *least {
                verdict.wrong("overdrawn", || {
                    let who = moment.show(self.header);
                    format!("{key} is {number}, and must be {least} at least ({who})")
                });
            }
        }
    }

    /// Checks the final balances.
    pub(super) fn finish(&self, keys: &[(String, Key)], verdict: &mut Judgement) {
        let Some(bank) = self.opened else { return };
        for (moment, sum) in self.wrong_sums.iter().filter(|_| !self.is_disturbed) {
            verdict.wrong("wrong_sum", || {
                let (total, who) = (self.total(), moment.show(self.header));
                let found = sum.map_or("no number".to_owned(), |sum| sum.to_string());
                format!("the accounts added up to {found} instead of {total} ({who})")
            });
        }
        let read = |(name, key): &&(String, Key)| self.has(name) && key.last.is_some();
        if keys.iter().filter(read).count() < self.accounts.len() {
            // Without the final read of every account nothing can be concluded. A missing read is
            // reported elsewhere.
            return;
        }
        let mut sum = 0i128;
        let mut found = 0;
        for (name, key) in keys.iter().filter(|(name, _)| self.has(name)) {
            let value = key.last.as_ref().and_then(|last| last.value.as_ref());
            let balance = value.and_then(|(text, _)| text.parse::<i64>().ok()).map(i128::from);
            sum += balance.unwrap_or_default();
            found += usize::from(balance.is_some());
            if let Some(opening) = self.opened_with(bank, key) {
                account(name, opening, key, balance, verdict);
            }
        }
        let (from, to) = (self.total() + self.unknown.0, self.total() + self.unknown.1);
        let is_sum = self.may_open || (from..=to).contains(&sum);
        let is_right = found == self.accounts.len() && is_sum;
        if !bank.open && !self.is_disturbed && !is_right {
            verdict.wrong("wrong_sum", || {
                let accounts = self.accounts.len();
                let total = if from == to { from.to_string() } else { format!("{from} to {to}") };
                format!("when all was over, {found} of {accounts} accounts added up to {sum} instead of {total}")
            });
        }
    }

    /// The balance of an account before all increments, if it is written in no other way.
    fn opened_with(&self, bank: &BankHeader, key: &Key) -> Option<i128> {
        if key.mixed || !key.appends.is_empty() {
            return None;
        }
        match &key.puts[..] {
            [] if !self.header.before => Some(i128::from(bank.opening)),
            [put] if put.result.is_some() => {
                let returned = put.moment.returned;
                let is_first = key.increments.iter().all(|one| returned < one.moment.invoked);
                put.what.parse::<i64>().ok().filter(|_| is_first).map(i128::from)
            }
            _ => None,
        }
    }
}

/// Checks the final balance of an account that was opened once and then only incremented.
fn account(name: &str, opening: i128, key: &Key, balance: Option<i128>, verdict: &mut Judgement) {
    let Some(balance) = balance else {
        verdict.wrong("lost", || format!("account {name} is missing or is no number"));
        return;
    };
    // The opening balance, the acknowledged increments, and bounds of the unknown ones.
    let (mut certain, mut less, mut more) = (opening, 0, 0);
    for increment in &key.increments {
        match (increment.result, i128::from(increment.what)) {
            (Some(_), by) => certain += by,
            (None, by) if by < 0 => less += by,
            (None, by) => more += by,
        }
    }
    let kind = if balance < certain + less { "lost" } else { "twice" };
    if !(certain + less..=certain + more).contains(&balance) {
        verdict.wrong(kind, || {
            let (from, to) = (certain + less, certain + more);
            format!("account {name} has {balance}, and its transfers make it {from} to {to}")
        });
    }
}

fn balance(out: &Out) -> Option<i64> {
    match out {
        Out::Value(Some((text, _))) => text.parse().ok(),
        _ => None,
    }
}
