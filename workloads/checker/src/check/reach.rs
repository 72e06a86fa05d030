//! The transactions related to each key.

use super::model::Model;
use super::places::Places;
use super::scripts::{Deed, Page, Proviso, Script, Scripts};

/// Keys covered by scans that are kept: at least the first; beyond it, the second per transaction.
/// A scan beyond that counts only for the keys that it found.
const COVERED_MIN: u64 = 4_000_000;
const COVERED_EACH: u64 = 8;

pub(super) struct Reach<'a> {
    scripts: &'a Scripts,
    pub(super) places: Places,
    /// Scripts by key.
    offsets: Vec<u32>,
    by_key: Vec<u32>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        let scripts = &model.scripts;
        let places = Places::new(&model.keys, &scripts.spans);
        let mut reach = Self { scripts, places, offsets: Vec::new(), by_key: Vec::new() };
        let mut left = COVERED_MIN.max(COVERED_EACH * scripts.all.len() as u64);
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (number, script) in (0..).zip(&scripts.all) {
            reach.keys(script, |key| pairs.push((key, number)));
            reach.covers(script, |from, to| {
                let covered = reach.places.keys(from, to);
                if let Some(rest) = left.checked_sub(covered.len() as u64) {
                    left = rest;
                    pairs.extend(covered.iter().map(|key| (*key, number)));
                }
            });
        }
        pairs.sort_unstable();
        pairs.dedup();
        let ends = (0..=model.keys.len() as u32)
            .map(|key| pairs.partition_point(|(other, _)| *other < key) as u32);
        reach.offsets = ends.collect();
        reach.by_key = pairs.into_iter().map(|(_, script)| script).collect();
        reach
    }

    /// The scripts related to a key, in the order of their numbers.
    pub(super) fn scripts(&self, key: u32) -> &[u32] {
        let [from, to] = [key, key + 1].map(|key| self.offsets[key as usize] as usize);
        &self.by_key[from..to]
    }

    /// The keys that a script names, and those that its scans found.
    pub(super) fn keys(&self, script: &Script, mut take: impl FnMut(u32)) {
        for guard in self.scripts.guards_of(script) {
            if let Some(key) = { *guard }.key_mut() {
                take(*key);
            }
        }
        for deed in self.scripts.deeds_of(script) {
            if let Some(key) = { *deed }.key_mut() {
                take(*key);
            }
            if let Deed::Scan { page, .. } = deed {
                let page = &self.scripts.pages[*page as usize];
                page.pairs.iter().map(|(key, _)| *key).chain(page.next).for_each(&mut take);
            }
        }
    }

    /// The ranks covered by a script's scans and conditions on ranges.
    pub(super) fn covers(&self, script: &Script, mut take: impl FnMut(u32, u32)) {
        for guard in self.scripts.guards_of(script) {
            if let Proviso::Unchanged(range, _) = guard {
                let (from, to) = self.places.span(*range);
                take(from, to);
            }
        }
        for deed in self.scripts.deeds_of(script) {
            if let Deed::Scan { range, page, .. } = deed {
                let (from, to) = self.told(*range, &self.scripts.pages[*page as usize]);
                take(from, to);
            }
        }
    }

    /// The ranks that a page of a range covers: up to the key at which the next page begins.
    pub(super) fn told(&self, range: u32, page: &Page) -> (u32, u32) {
        let (from, to) = self.places.span(range);
        let next = page.next.and_then(|next| self.places.rank(next)).map_or(to, |rank| rank + 1);
        (from, to.min(next).max(from))
    }
}
