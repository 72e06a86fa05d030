//! The keys and ranges that a command reads and writes in one group.

use xxhash_rust::xxh3::xxh3_64;

use super::share::Share;
use crate::command::{Key, Operation, Test};
use crate::limits::Limits;
use crate::store::Wanted;
use crate::store::compact::Compact;
use crate::wire::Bytes;

/// A key that a command reads or may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) hash: u64,
    pub(super) written: bool,
    key: Compact,
}

/// A range that a command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TouchedRange {
    start: Key,
    /// Excluded.
    end: Option<Key>,
    /// The command reads a page of so many pairs; `None` if it reads all of the range.
    limit: Option<u32>,
}

/// The keys and ranges of one group's part of a command.
///
/// Two commands *conflict* (`meets`) if one may write what the other reads or writes. Two commands that do not
/// conflict commute: in either order, each reads the same and leaves the same state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadWriteSet {
    /// In the order of the command.
    keys: Vec<Touched>,
    ranges: Vec<TouchedRange>,
}

impl ReadWriteSet {
    /// The set of a group's share, both branches included.
    pub(super) fn of(share: &Share<'_>) -> Self {
        let mut read_write_set = Self::default();
        read_write_set.become_of(share);
        read_write_set
    }

    /// Replaces this set by that of `share`, in the same memory.
    pub(super) fn become_of(&mut self, share: &Share<'_>) {
        self.clear();
        for guard in &share.ours.guards {
            match guard.test {
                Test::Unchanged { end, .. } => {
                    self.add_range(guard.key, end, None);
                }
                _ => self.add(guard.key, false),
            }
        }
        for operation in share.ours.then.iter().chain(&share.ours.otherwise) {
            match operation {
                Operation::Scan { start, end, limit } => {
                    self.add_range(*start, *end, Some(*limit));
                }
                keyed => {
                    let key = *keyed.key().expect("no scan");
                    self.add(key, !keyed.is_read());
                }
            }
        }
    }

    fn add(&mut self, key: Bytes<'_>, written: bool) {
        let hash = xxh3_64(key.0);
        // A key that is guarded is usually written next.
        match self.keys.last_mut() {
            Some(last) if last.key.as_slice() == key.0 => last.written |= written,
            _ => self.keys.push(Touched { hash, written, key: key.0.into() }),
        }
    }

    fn add_range(&mut self, start: Bytes<'_>, end: Option<Bytes<'_>>, limit: Option<u32>) {
        let (start, end) = (start.0.to_vec(), end.map(|end| end.0.to_vec()));
        self.ranges.push(TouchedRange { start, end, limit });
    }

    /// Adds all keys, which are read.
    pub(super) fn add_all(&mut self) {
        self.add_range(Bytes(&[]), None, None);
    }

    /// What of the store the command needs.
    pub(super) fn wanted<'a>(&'a self, limits: &Limits) -> impl Iterator<Item = Wanted<'a>> {
        let keys = self.keys.iter().map(|it| Wanted::Key(it.key.as_slice()));
        // A page has none of the pairs that the command itself removes, and ends in front of the pair after it.
        let more = 2 + self.keys.iter().filter(|it| it.written).count();
        let longest = limits.key_bytes_max + limits.value_bytes_max;
        let page_bytes = limits.scan_page_bytes_max + (more + 1) * (longest + 1);
        let max = limits.scan_pairs_max;
        let ranges = self.ranges.iter().map(move |TouchedRange { start, end, limit }| {
            let pairs = limit.map_or(usize::MAX, |limit| (limit as usize).min(max) + more);
            let bytes = limit.map_or(usize::MAX, |_| page_bytes);
            Wanted::Range { start, end: end.as_deref(), pairs, bytes }
        });
        keys.chain(ranges)
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.ranges.clear();
    }

    pub(super) fn keys(&self) -> &[Touched] {
        &self.keys
    }

    pub(super) fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether one command may write what the other looks at or writes.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let meets = |ours: &Touched| {
            let mut keys = other.keys.iter();
            keys.any(|it| it.hash == ours.hash && (it.written || ours.written))
        };
        self.keys.iter().any(meets) || self.meets_by_range(other)
    }

    /// Whether one set may write into a range that the other reads.
    pub(super) fn meets_by_range(&self, other: &Self) -> bool {
        self.writes_into(other) || other.writes_into(self)
    }

    fn writes_into(&self, other: &Self) -> bool {
        let within = |key: &Compact| {
            let (mut ranges, key) = (other.ranges.iter(), key.as_slice());
            ranges.any(|TouchedRange { start, end, .. }| {
                start.as_slice() <= key && end.as_ref().is_none_or(|end| key < end.as_slice())
            })
        };
        other.has_ranges() && self.keys.iter().any(|it| it.written && within(&it.key))
    }
}

#[cfg(test)]
mod tests {
    use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

    use super::super::exchange::ReceivedVerdicts;
    use super::super::under_way::{CommandPosition, Stage, UnderWay};
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
            let read_write_set = |of: &Transaction| {
                let (share, _) = Share::of(of.borrowed(), &SlotMap::even(1), GroupId(0));
                ReadWriteSet::of(&share)
            };
            let met = |first: &Transaction, then: &Transaction| {
                let mut under_way = UnderWay::default();
                let mut command = under_way.spare();
                command.read_write_set = read_write_set(first);
                let heard = ReceivedVerdicts::NOBODY;
                let place = CommandPosition {
                    message: MessageId::new(SessionId(1), 1),
                    position: 1,
                    low_water: 1,
                    destinations: GroupSet::first(1),
                };
                under_way.push(place, Stage::Blocked { command, heard, needs_turn: false });
                under_way.meets(1, &read_write_set(then))
            };
            assert_eq!((met(&one, &other), met(&other, &one)), (meet, meet), "{because}");
        }
    }
}
