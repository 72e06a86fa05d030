//! The bank: whoever adds all accounts up finds what they were opened with.

use hashbrown::HashSet;

use super::{Key, Moment, Verdict};
use crate::history::{BankHeader, Guard, Header, Op, Out};

pub(super) struct Bank<'a> {
    header: &'a Header,
    opened: Option<&'a BankHeader>,
    accounts: HashSet<&'a str>,
}

impl<'a> Bank<'a> {
    pub(super) fn new(header: &'a Header) -> Self {
        let bank = header.bank.as_ref();
        let accounts = bank.iter().flat_map(|bank| &bank.accounts).map(String::as_str).collect();
        Self { header, opened: bank, accounts }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.accounts.contains(key)
    }

    fn is_open(&self) -> bool {
        self.opened.is_some_and(|bank| bank.open)
    }

    fn total(&self) -> i128 {
        self.opened.map_or(0, |bank| bank.accounts.len() as i128 * i128::from(bank.opening))
    }

    /// Looks at an answer: a sum, or a transfer, or something that is not the bank's.
    pub(super) fn look(
        &self,
        guards: &[Guard],
        ops: &[Op],
        out: &[Out],
        moment: Moment,
        verdict: &mut Verdict,
    ) {
        if !ops.first().is_some_and(|op| self.has(op.key())) {
            return;
        }
        for (op, out) in ops.iter().zip(out) {
            let Out::Number(number) = out else { continue };
            let of_it = |guard: &Guard| matches!(guard, Guard::AtLeast(key, _) if key == op.key());
            let guarded = guards.iter().any(of_it);
            if guarded && *number < 0 {
                verdict.wrong("overdrawn", || {
                    format!("{} is {number} ({})", op.key(), moment.show(self.header))
                });
            }
        }
        let gets = |op: &Op| matches!(op, Op::Get(_));
        let all = ops.len() == self.accounts.len() && ops.iter().all(gets);
        if self.is_open() || !all {
            return;
        }
        let sum: Option<i128> = out.iter().map(|out| balance(out).map(i128::from)).sum();
        if sum != Some(self.total()) {
            verdict.wrong("wrong_sum", || {
                let (total, who) = (self.total(), moment.show(self.header));
                let found = sum.map_or("no number".to_owned(), |sum| sum.to_string());
                format!("the accounts added up to {found} instead of {total} ({who})")
            });
        }
    }

    /// Looks at the accounts when all was over.
    pub(super) fn finish(&self, keys: &[(String, Key)], verdict: &mut Verdict) {
        let Some(bank) = self.opened else { return };
        let read = |(name, key): &&(String, Key)| self.has(name) && key.last.is_some();
        if keys.iter().filter(read).count() < bank.accounts.len() {
            // Nothing can be told without having looked, and that was not done is told elsewhere.
            return;
        }
        let mut sum = 0i128;
        let mut found = 0;
        for (name, key) in keys.iter().filter(|(name, _)| self.has(name)) {
            let value = key.last.as_ref().and_then(|last| last.value.as_ref());
            let balance = value.and_then(|(text, _)| text.parse::<i64>().ok());
            let Some(balance) = balance.map(i128::from) else {
                verdict.wrong("lost", || format!("account {name} is missing or is no number"));
                continue;
            };
            sum += balance;
            found += 1;
            // What it was opened with, and what it certainly got, and some of what it may have got.
            let (mut certain, mut less, mut more) = (i128::from(bank.opening), 0, 0);
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
                    format!(
                        "account {name} has {balance}, and its transfers make it {} to {}",
                        certain + less,
                        certain + more,
                    )
                });
            }
        }
        if found != bank.accounts.len() || (!bank.open && sum != self.total()) {
            verdict.wrong("wrong_sum", || {
                let (accounts, total) = (bank.accounts.len(), self.total());
                format!("when all was over, {found} of {accounts} accounts added up to {sum} instead of {total}")
            });
        }
    }
}

fn balance(out: &Out) -> Option<i64> {
    match out {
        Out::Value(Some((text, _))) => text.parse().ok(),
        _ => None,
    }
}
