//! What a command looks at and changes in one group.

use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_64;

use super::share::Share;
use crate::command::{Key, Operation};
use crate::store::compact::Compact;
use crate::wire::Bytes;

/// The keys and ranges of one group's part of a command.
///
/// Two commands that do not [meet](Self::meets) commute: done in either order, each finds the same and
/// leaves the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// In their order, each once, with whether it may be written.
    keys: Vec<(Compact, bool)>,
    /// Ranges that are read: start, end.
    ranges: Vec<(Key, Option<Key>)>,
    /// A bit for each key, which many share; all of them if there is a range.
    bits: u64,
}

impl Footprint {
    /// Of a group's share, in both branches.
    pub(super) fn of(share: &Share<'_>) -> Self {
        let mut footprint = Self::default();
        for guard in &share.ours.guards {
            footprint.add(guard.key, false);
        }
        for operation in share.ours.then.iter().chain(&share.ours.otherwise) {
            match operation {
                Operation::Scan { start, end, .. } => {
                    let end = end.map(|end| end.0.to_vec());
                    footprint.ranges.push((start.0.to_vec(), end));
                    footprint.bits = u64::MAX;
                }
                keyed => {
                    let key = *keyed.key().expect("no scan");
                    footprint.add(key, !keyed.is_read());
                }
            }
        }
        // Of one key a write stands before its reads, and for them.
        footprint.keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        footprint.keys.dedup_by(|next, first| next.0 == first.0);
        footprint
    }

    fn add(&mut self, key: Bytes<'_>, written: bool) {
        self.keys.push((key.0.into(), written));
        self.bits |= 1 << (xxh3_64(key.0) % 64);
    }

    /// Two that share none do not meet; all of them of one with a range.
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// Whether one may write what the other looks at or writes.
    pub(super) fn meets(&self, other: &Self) -> bool {
        if self.bits & other.bits == 0 {
            return false;
        }
        self.writes_into(other) || other.writes_into(self) || self.shares_written(other)
    }

    fn writes_into(&self, other: &Self) -> bool {
        let within = |key: &Compact| {
            let (mut ranges, key) = (other.ranges.iter(), key.as_slice());
            ranges.any(|(start, end)| {
                start.as_slice() <= key && end.as_ref().is_none_or(|end| key < end.as_slice())
            })
        };
        !other.ranges.is_empty() && self.keys.iter().any(|(key, written)| *written && within(key))
    }

    fn shares_written(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.keys.iter(), other.keys.iter());
        let (mut our, mut their) = (ours.next(), theirs.next());
        while let (Some(one), Some(two)) = (our, their) {
            match one.0.cmp(&two.0) {
                Ordering::Less => our = ours.next(),
                Ordering::Greater => their = theirs.next(),
                Ordering::Equal if one.1 || two.1 => return true,
                Ordering::Equal => (our, their) = (ours.next(), theirs.next()),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use skein_protocol::ids::GroupId;

    use super::*;
    use crate::command::{Test, Transaction};
    use crate::slots::SlotMap;

    #[test]
    fn commands_meet_where_one_writes_what_the_other_touches() {
        let get = |key: &str| Operation::Get { key: key.into() };
        let put = |key: &str| Operation::Put { key: key.into(), value: b"1".to_vec() };
        let scan = |start: &str, end: Option<&str>| Operation::Scan {
            start: start.into(),
            end: end.map(Into::into),
            limit: 1,
        };
        let of = Transaction::of;
        let guarded = of(put("b")).guard("a", Test::Exists);
        let otherwise = Transaction::default().guard("x", Test::Exists).otherwise(put("a"));
        #[rustfmt::skip]
        let cases = [
            // one            other                   meet   because
            (of(get("a")),     of(get("a")),           false, "both only read"),
            (of(get("a")),     of(put("a")),           true,  "one writes what the other reads"),
            (of(put("a")),     of(put("a")),           true,  "both write it"),
            (of(put("a")),     of(put("b")),           false, "they write other keys"),
            (guarded.clone(),  of(put("a")),           true,  "a guard looks at it"),
            (guarded.clone(),  of(get("a")),           false, "a guard only looks"),
            (otherwise,        of(get("a")),           true,  "either branch may be taken"),
            (of(scan("a", Some("c"))), of(put("b")),   true,  "it is in the range"),
            (of(scan("a", Some("c"))), of(put("c")),   false, "the end is not in the range"),
            (of(scan("b", None)), of(put("z")),        true,  "the range has no end"),
            (of(scan("b", None)), of(put("a")),        false, "it is before the range"),
            (of(scan("a", None)), of(get("b")),        false, "both only read"),
            (of(scan("a", None)), of(scan("a", None)), false, "both only read"),
            (of(get("a")).then(put("a")), of(get("a")), true, "it reads and writes it"),
        ];
        for (one, other, meet, because) in cases {
            let footprint = |of: &Transaction| {
                let (share, _) = Share::of(of.borrowed(), &SlotMap::even(1), GroupId(0));
                Footprint::of(&share)
            };
            let (one, other) = (footprint(&one), footprint(&other));
            assert_eq!((one.meets(&other), other.meets(&one)), (meet, meet), "{because}");
        }
    }
}
