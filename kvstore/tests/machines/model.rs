//! The simplest model of transactions: one map, and one command at a time.

use std::collections::{BTreeMap, BTreeSet};

use skein_kvstore::command::{Compare, Guard, Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::range::RangeDigest;
use skein_kvstore::reply::{Outcome, Page, Refusal, Reply};
use skein_kvstore::slots::SlotMap;
use skein_protocol::ids::GroupId;

pub(crate) type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) map: Map,
}

impl Model {
    /// Applies one transaction. Scans are answered whole, without a limit: see [`assert_same`].
    pub(crate) fn apply(
        &mut self,
        transaction: &Transaction,
        slots: &SlotMap,
        limits: &Limits,
        position: impl Fn(GroupId) -> u64,
    ) -> Result<Reply, Refusal> {
        let held = transaction.guards.iter().all(|guard| self.holds(guard, slots));
        let mut next = self.map.clone();
        let mut outcomes = Vec::new();
        let mut refused: BTreeMap<GroupId, Refusal> = BTreeMap::new();
        for operation in if held { &transaction.then } else { &transaction.otherwise } {
            let group = operation.key().map_or(GroupId(0), |key| slots.owner(key));
            match step(&mut next, operation, position(group), limits) {
                Ok(outcome) => outcomes.push(outcome),
                Err(refusal) => _ = refused.entry(group).or_insert(refusal),
            }
        }
        if let Some((_, refusal)) = refused.into_iter().next() {
            return Err(refusal);
        }
        self.map = next;
        Ok(Reply { held, outcomes })
    }

    /// The digest of the range from `start` in each group that has any pair of it.
    pub(crate) fn held(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        slots: &SlotMap,
    ) -> Vec<RangeDigest> {
        let groups = slots.groups();
        let of = groups.iter().map(|group| {
            let inside = |key: &[u8]| {
                key >= start && end.is_none_or(|end| key < end) && slots.owner(key) == group
            };
            let pairs = self.map.iter().filter(|(key, _)| inside(key));
            RangeDigest::of(group, pairs.map(|(key, (value, _))| (&key[..], &value[..])))
        });
        of.filter(|held| held.pairs > 0).collect()
    }

    fn holds(&self, guard: &Guard, slots: &SlotMap) -> bool {
        let found = self.map.get(&guard.key);
        match &guard.test {
            Test::Exists => found.is_some(),
            Test::Missing => found.is_none(),
            Test::Equals(value) => found.is_some_and(|found| found.0 == *value),
            Test::Unchanged { end, held } => self.held(&guard.key, end.as_deref(), slots) == *held,
            Test::Version(version) => found.map_or(0, |found| found.1) == *version,
            Test::Number { compare, number } => {
                let ours = found.map_or(Some(0), |found| integer(&found.0));
                ours.is_some_and(|ours| match compare {
                    Compare::Less => ours < *number,
                    Compare::AtMost => ours <= *number,
                    Compare::Equal => ours == *number,
                    Compare::AtLeast => ours >= *number,
                    Compare::Greater => ours > *number,
                })
            }
        }
    }
}

fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { text.parse().ok() } else { None }
}

fn step(
    map: &mut Map,
    operation: &Operation,
    position: u64,
    limits: &Limits,
) -> Result<Outcome, Refusal> {
    Ok(match operation {
        Operation::Get { key } => Outcome::Value(map.get(key).cloned()),
        Operation::Exists { key } => Outcome::Flag(map.contains_key(key)),
        Operation::Put { key, value } => {
            put(map, key, value.clone(), position, limits)?;
            Outcome::Written(position)
        }
        Operation::Delete { key } => Outcome::Flag(map.remove(key).is_some()),
        Operation::Append { key, value } => {
            let before = map.get(key).map(|found| found.0.clone()).unwrap_or_default();
            let after = [before, value.clone()].concat();
            let len = after.len() as u64;
            put(map, key, after, position, limits)?;
            Outcome::Length(len)
        }
        Operation::Patch { key, offset, bytes } => {
            let mut value = map.get(key).map(|found| found.0.clone()).unwrap_or_default();
            let end = *offset as usize + bytes.len();
            value.resize(value.len().max(end), 0);
            value[*offset as usize..end].copy_from_slice(bytes);
            let len = value.len() as u64;
            put(map, key, value, position, limits)?;
            Outcome::Length(len)
        }
        Operation::Increment { key, by } => {
            let number = match map.get(key) {
                None => 0,
                Some((value, _)) => {
                    integer(value).ok_or_else(|| Refusal::NotANumber { key: key.clone() })?
                }
            };
            let number =
                number.checked_add(*by).ok_or_else(|| Refusal::Overflow { key: key.clone() })?;
            put(map, key, number.to_string().into_bytes(), position, limits)?;
            Outcome::Number(number)
        }
        Operation::Scan { start, end, .. } => {
            let inside =
                |key: &[u8]| key >= &start[..] && end.as_deref().is_none_or(|end| key < end);
            let pairs = map.iter().filter(|(key, _)| inside(key));
            let pairs = pairs.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
            Outcome::Page(Page { pairs, next: None })
        }
    })
}

fn put(
    map: &mut Map,
    key: &[u8],
    value: Vec<u8>,
    position: u64,
    limits: &Limits,
) -> Result<(), Refusal> {
    if value.len() > limits.value_bytes_max {
        let (len, max) = (value.len() as u64, limits.value_bytes_max as u64);
        return Err(Refusal::ValueTooLarge { key: key.to_vec(), len, max });
    }
    map.insert(key.to_vec(), (value, position));
    Ok(())
}

/// Asserts that `reply` is what the model expects. Pages may be cut, but they have no holes, make progress and
/// name the key at which the next page starts.
pub(crate) fn assert_same(
    reply: &Result<Reply, Refusal>,
    expected: &Result<Reply, Refusal>,
    transaction: &Transaction,
    limits: &Limits,
) {
    let (Ok(reply), Ok(expected)) = (reply, expected) else {
        assert_eq!(reply, expected, "{transaction:?}");
        return;
    };
    assert_eq!(reply.held, expected.held, "{transaction:?}");
    assert_eq!(reply.outcomes.len(), expected.outcomes.len(), "{transaction:?}");
    let branch = if reply.held { &transaction.then } else { &transaction.otherwise };
    for ((operation, outcome), expected) in
        branch.iter().zip(&reply.outcomes).zip(&expected.outcomes)
    {
        let (Operation::Scan { limit, .. }, Outcome::Page(page), Outcome::Page(whole)) =
            (operation, outcome, expected)
        else {
            assert_eq!(outcome, expected, "{operation:?} of {transaction:?}");
            continue;
        };
        let len = page.pairs.len();
        assert_eq!(page.pairs[..], whole.pairs[..len], "a page with a hole, or out of order");
        let next = whole.pairs.get(len).map(|(key, _)| key);
        assert_eq!(page.next.as_ref(), next, "the next page starts elsewhere");
        assert!(len > 0 || whole.pairs.is_empty(), "a page without progress");
        assert!(len <= (*limit as usize).min(limits.scan_pairs_max), "too long a page");
        let bytes = |(key, value): &(Vec<u8>, Vec<u8>)| key.len() + value.len();
        let total: usize = page.pairs.iter().map(bytes).sum();
        assert!(len <= 1 || total <= limits.scan_page_bytes_max, "too large a page");
        let keys: BTreeSet<_> = page.pairs.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), len, "a key twice");
    }
}
