//! Checks [projections](super::projection) of a history whose order is not decided, on a few keys
//! at a time.
//!
//! First each key is checked alone. Then come sets of related keys: the keys of one transaction,
//! the keys that one scan covers, and keys that transactions connect with each other and with no
//! other key. The sets with the fewest transactions come first, until the [effort](super::effort)
//! is spent.

use hashbrown::HashSet;
use serde::Serialize;

use super::effort::Effort;
use super::graph::Graph;
use super::model::Model;
use super::projection::{Projection, Projector};
use super::reach::Reach;
use super::witness::{Searched, Stuck, search};
use crate::chart::grouped;

/// A larger set is checked only if no other key is related to it.
const TOGETHER_MAX: usize = 16;
/// Most sets that are checked.
const SETS_MAX: usize = 1 << 16;
/// Most keys that are reported as wrong by themselves.
const WRONG_MAX: usize = 100;

/// The result of checking some keys at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    pub keys: u64,
    /// Keys that are correct alone. `keys_right <= keys`.
    pub keys_right: u64,
    /// Sets of related keys, as far as they were counted.
    pub sets: u64,
    /// Sets whose keys are correct together. `sets_right <= sets`.
    pub sets_right: u64,
}

impl Parts {
    /// The result in words.
    pub fn text(&self) -> String {
        let Self { keys, keys_right, sets, sets_right } = *self;
        let of_keys = if keys == keys_right {
            format!("each of {} keys alone is in order", grouped(keys))
        } else {
            format!("{} of {} keys are each in order alone", grouped(keys_right), grouped(keys))
        };
        let of_sets = match sets {
            0 => String::new(),
            _ => format!(
                ", as are {} of {} sets of keys that occur together",
                grouped(sets_right),
                grouped(sets)
            ),
        };
        format!("{of_keys}{of_sets}; the order across all keys is not decided")
    }
}

/// A projection that no order explains.
pub(super) struct Wrong {
    pub(super) keys: Vec<u32>,
    /// Result of a search for an order that ignores real time.
    pub(super) in_any_time: Searched,
    pub(super) stuck: Stuck,
}

/// Checks the projections of a history in which the inference found no violation.
pub(super) fn look(
    model: &Model,
    graph: &Graph,
    happened: &[bool],
    effort: Effort,
) -> (Parts, Vec<Wrong>) {
    let reach = Reach::new(model);
    let projector = Projector::new(model, graph, happened, &reach);
    let left = effort.of_parts(model.scripts.all.len());
    let mut look = Look { projector, left };
    let mut wrong = Vec::new();
    let keys: Vec<u32> = (0..model.keys.len() as u32).collect();
    let mut parts = Parts { keys: keys.len() as u64, ..Parts::default() };
    let mut singles: Vec<Vec<u32>> = keys.into_iter().map(|key| vec![key]).collect();
    look.cheapest_first(&mut singles);
    for key in singles {
        parts.keys_right += u64::from(look.is_right(key, &mut wrong));
        if wrong.len() >= WRONG_MAX {
            break;
        }
    }
    if !wrong.is_empty() {
        return (parts, wrong);
    }
    let mut sets = together(model, &reach);
    look.cheapest_first(&mut sets);
    parts.sets = sets.len() as u64;
    for set in sets {
        parts.sets_right += u64::from(look.is_right(set, &mut wrong));
        if !wrong.is_empty() {
            break;
        }
    }
    (parts, wrong)
}

struct Look<'a> {
    projector: Projector<'a>,
    /// Executions that may still be tried.
    left: u64,
}

impl Look<'_> {
    fn cheapest_first(&self, sets: &mut [Vec<u32>]) {
        sets.sort_by_cached_key(|set| self.cost(set));
    }

    /// Transactions to execute. A transaction on several of the keys counts several times.
    fn cost(&self, set: &[u32]) -> u64 {
        set.iter().map(|key| self.projector.reach.scripts(*key).len() as u64).sum()
    }

    /// Whether an order explains the projection on some keys. If none does, it is added to `wrong`.
    fn is_right(&mut self, keys: Vec<u32>, wrong: &mut Vec<Wrong>) -> bool {
        let Some(left) = self.left.checked_sub(self.cost(&keys) + 1) else { return false };
        self.left = left;
        let part = self.projector.project(&keys);
        match self.search(&part, true) {
            Searched::Found => true,
            Searched::Undecided => false,
            Searched::Nothing(mut stuck) => {
                stuck.transaction =
                    stuck.transaction.map(|number| part.transactions[number as usize]);
                stuck.found.iter_mut().for_each(|(key, _)| *key = keys[*key as usize]);
                let in_any_time = self.search(&part, false);
                wrong.push(Wrong { keys, in_any_time, stuck });
                false
            }
        }
    }

    fn search(&mut self, part: &Projection<'_>, in_time: bool) -> Searched {
        let most = Effort::of_part(part.len()).min(self.left);
        let mut tries = most;
        let happened = |transaction: u32| part.happened[transaction as usize];
        let searched = search(&part.subject(), Some(&part.graph), happened, in_time, &mut tries);
        self.left -= most - tries;
        searched
    }
}

/// The sets of several related keys.
fn together(model: &Model, reach: &Reach<'_>) -> Vec<Vec<u32>> {
    let mut sets: HashSet<Vec<u32>> = HashSet::new();
    let mut add = |mut keys: Vec<u32>| {
        keys.sort_unstable();
        keys.dedup();
        if (2..=TOGETHER_MAX).contains(&keys.len()) && sets.len() < SETS_MAX {
            sets.insert(keys);
        }
    };
    let mut joined = Joined((0..model.keys.len() as u32).collect());
    for script in &model.scripts.all {
        let mut named = Vec::new();
        reach.keys(script, |key| named.push(key));
        let mut all = named.clone();
        reach.covers(script, |from, to| {
            let covered = reach.places.keys(from, to);
            covered.windows(2).for_each(|two| joined.join(two[0], two[1]));
            named.first().zip(covered.first()).into_iter().for_each(|(a, b)| joined.join(*a, *b));
            let few = &covered[..covered.len().min(TOGETHER_MAX + 1)];
            add(few.to_vec());
            all.extend(few);
        });
        named.windows(2).for_each(|two| joined.join(two[0], two[1]));
        add(named);
        add(all);
    }
    let apart = joined.sets();
    sets.extend(apart);
    sets.into_iter().collect()
}

/// Union-find: for each key, a key that it is joined with, or itself.
struct Joined(Vec<u32>);

impl Joined {
    fn root(&mut self, mut key: u32) -> u32 {
        while self.0[key as usize] != key {
            let next = self.0[key as usize];
            self.0[key as usize] = self.0[next as usize];
            key = next;
        }
        key
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one as usize] = other;
    }

    /// The sets of several joined keys, unless one of them is the set of all keys.
    fn sets(mut self) -> Vec<Vec<u32>> {
        let mut by_root: Vec<(u32, u32)> =
            (0..self.0.len() as u32).map(|key| (self.root(key), key)).collect();
        by_root.sort_unstable();
        let sets = by_root.chunk_by(|one, other| one.0 == other.0);
        let all = by_root.len();
        let several = sets.filter(|set| set.len() > 1 && set.len() < all);
        several.map(|set| set.iter().map(|(_, key)| *key).collect()).collect()
    }
}
