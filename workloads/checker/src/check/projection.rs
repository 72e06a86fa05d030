//! A history restricted to some of its keys.
//!
//! If an order explains the history, the same order explains its operations on any of its keys. So
//! if no order explains a projection, the history is wrong. A projection asserts no more than the
//! history does:
//!
//! * *Reads and writes* of other keys are left out, and so are transactions of which nothing
//!   remains.
//! * *Conditions* on other keys remain without their content ([`Proviso::Elsewhere`]). A
//!   transaction whose answer reports whether its conditions held took that branch; one of unknown
//!   outcome may take either branch or none. A condition on a range is kept if all keys of the
//!   range are.
//! * *Scans* report for each key, up to the start of the next page, whether it was present. If that
//!   start is left out, the scan ends there. A limit is kept: fewer pairs do not exceed it.
//! * *OrderReport.* The edges of the graph about the keys are kept.

use super::graph::Graph;
use super::model::{Model, NONE};
use super::names::Names;
use super::reach::Reach;
use super::scripts::{Deed, Page, Proviso, Script, Scripts, Span};
use super::subject::Subject;
use crate::history::bytes;

/// Makes projections of a history in which the inference found no violation.
pub(super) struct Projector<'a> {
    model: &'a Model,
    graph: &'a Graph,
    /// Transactions that certainly executed.
    happened: &'a [bool],
    pub(super) reach: &'a Reach<'a>,
    is_account: Vec<bool>,
    /// Number of each key in the projection under construction.
    numbers: Vec<u32>,
}

/// A projection. Its keys and transactions are renumbered.
pub(super) struct Projection<'a> {
    model: &'a Model,
    names: Names,
    scripts: Scripts,
    accounts: Vec<u32>,
    pub(super) graph: Graph,
    /// Numbers of its transactions in the history.
    pub(super) transactions: Vec<u32>,
    /// Whether each certainly executed.
    pub(super) happened: Vec<bool>,
}

impl Projection<'_> {
    /// The input of a search.
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            header: &self.model.header,
            keys: &self.names,
            scripts: &self.scripts,
            accounts: self.accounts.clone(),
            opening: self.model.opening,
            transactions: self.transactions.len(),
        }
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }
}

impl<'a> Projector<'a> {
    pub(super) fn new(
        model: &'a Model,
        graph: &'a Graph,
        happened: &'a [bool],
        reach: &'a Reach<'a>,
    ) -> Self {
        let mut is_account = vec![false; model.keys.len()];
        for account in Subject::whole(model).accounts {
            is_account[account as usize] = true;
        }
        let numbers = vec![NONE; model.keys.len()];
        Self { model, graph, happened, reach, is_account, numbers }
    }

    /// The projection on some keys.
    pub(super) fn project(&mut self, keys: &[u32]) -> Projection<'a> {
        let mut names = Names::default();
        for key in keys {
            self.numbers[*key as usize] = names.intern(0, self.model.keys.bytes(*key));
        }
        let mut members: Vec<u32> =
            keys.iter().flat_map(|key| self.reach.scripts(*key)).copied().collect();
        members.sort_unstable();
        members.dedup();
        let mut scripts = self.model.scripts.none_of();
        let mut transactions = Vec::new();
        for member in members {
            let script = &self.model.scripts.all[member as usize];
            if self.script(script, keys, transactions.len() as u32, &mut scripts) {
                transactions.push(script.transaction);
            }
        }
        let number = |one: u32| transactions.binary_search(&one).ok().map(|number| number as u32);
        let ties = self.model.scripts.ties.iter();
        let ties = ties.filter_map(|(one, before)| Some((number(*one)?, number(*before)?)));
        scripts.ties = ties.collect();
        let is_ours = |key: u32| key != NONE && self.numbers[key as usize] != NONE;
        let graph = self.graph.of_keys(&transactions, is_ours);
        let accounts = keys.iter().filter(|key| self.is_account[**key as usize]);
        let accounts = accounts.map(|key| self.numbers[*key as usize]).collect();
        for key in keys {
            self.numbers[*key as usize] = NONE;
        }
        let happened =
            transactions.iter().map(|transaction| self.happened[*transaction as usize]).collect();
        Projection { model: self.model, names, scripts, accounts, graph, transactions, happened }
    }

    /// Adds what remains of a script. Returns `false` if nothing remains.
    fn script(&self, script: &Script, keys: &[u32], number: u32, into: &mut Scripts) -> bool {
        let (guards, deeds) = (into.guards.len(), into.deeds.len());
        self.guards(script, keys, into);
        let mut branch = |of| {
            let from = into.deeds.len() as u32;
            for deed in self.model.scripts.branch_of(of) {
                if let Some(deed) = self.deed(*deed, keys, into) {
                    into.deeds.push(deed);
                }
            }
            from..into.deeds.len() as u32
        };
        let (then, otherwise) = (branch(&script.then), branch(&script.otherwise));
        let looks = |guard: &Proviso| !matches!(guard, Proviso::Elsewhere);
        let has_looked = script.held.is_some() && into.guards[guards..].iter().any(looks);
        if into.deeds.len() == deeds && !has_looked {
            into.guards.truncate(guards);
            return false;
        }
        let guards = guards as u32..into.guards.len() as u32;
        into.all.push(Script { transaction: number, guards, then, otherwise, ..*script });
        true
    }

    fn guards(&self, script: &Script, keys: &[u32], into: &mut Scripts) {
        let from = into.guards.len();
        let mut elsewhere = false;
        for guard in self.model.scripts.guards_of(script) {
            let mut guard = *guard;
            if let Some(key) = guard.key_mut() {
                let number = self.numbers[*key as usize];
                elsewhere |= number == NONE;
                if number != NONE {
                    *key = number;
                    into.guards.push(guard);
                }
            } else if let Proviso::Unchanged(range, held) = guard {
                let (first, last) = self.reach.places.span(range);
                if self.among(keys, first, last) < (last - first) as usize {
                    elsewhere = true;
                    continue;
                }
                into.spans.push(self.model.scripts.spans[range as usize].clone());
                into.held.push(self.model.scripts.held[held as usize].clone());
                let (range, held) = (into.spans.len() as u32 - 1, into.held.len() as u32 - 1);
                into.guards.push(Proviso::Unchanged(range, held));
            }
        }
        if elsewhere && script.held == Some(false) {
            into.guards.truncate(from); // Any of them may have failed.
        }
        if elsewhere && script.held != Some(true) {
            into.guards.push(Proviso::Elsewhere);
        }
    }

    /// Number of `keys` with ranks in `from..to`.
    fn among(&self, keys: &[u32], from: u32, to: u32) -> usize {
        let is_there = |key: &&u32| {
            self.reach.places.rank(**key).is_some_and(|rank| (from..to).contains(&rank))
        };
        keys.iter().filter(is_there).count()
    }

    fn deed(&self, mut deed: Deed, keys: &[u32], into: &mut Scripts) -> Option<Deed> {
        if let Some(key) = deed.key_mut() {
            *key = self.numbers[*key as usize];
            return (*key != NONE).then_some(deed);
        }
        let Deed::Scan { range, limit, page } = deed else { return None };
        let all = &self.model.scripts;
        let page = &all.pages[page as usize];
        let ours = |key: u32| Some(self.numbers[key as usize]).filter(|number| *number != NONE);
        let pairs = page.pairs.iter().filter_map(|(key, seen)| Some((ours(*key)?, *seen)));
        let pairs: Vec<_> = pairs.collect();
        let (from, to) = self.reach.told(range, page);
        let next = page.next.and_then(ours);
        if pairs.is_empty() && next.is_none() && self.among(keys, from, to) == 0 {
            return None;
        }
        let Span { start, mut end } = all.spans[range as usize].clone();
        if let Some(stop) = page.next.filter(|_| next.is_none()) {
            let stop = bytes(self.model.keys.text(stop)).into_owned();
            if end.as_ref().is_none_or(|end| stop < *end) {
                end = Some(stop);
            }
        }
        into.spans.push(Span { start, end });
        into.pages.push(Page { pairs, next });
        let (range, page) = (into.spans.len() as u32 - 1, into.pages.len() as u32 - 1);
        Some(Deed::Scan { range, limit, page })
    }
}
