//! Ranges that are pinned: runs of pairs as they were in the database, below what was written since.

use skein_kvstore::store::{Found, Wanted};

use super::hot::{Hot, Value};
use super::threads::Wish;
use crate::guard::Guard;

/// A pinned range.
///
/// Invariant: a key below `covered` that was written after the run was read is in the overlay.
pub(super) struct Range {
    id: u64,
    pins: usize,
    start: Box<[u8]>,
    end: Option<Box<[u8]>>,
    pairs: usize,
    bytes: usize,
    /// Pairs of the database, in key order.
    run: Vec<(Box<[u8]>, Value)>,
    covered: Covered,
    /// Number of the last writes that were in the database when the first piece of the run was asked for.
    since: u64,
    /// All that is wanted is covered.
    enough: bool,
}

/// How far the run goes.
enum Covered {
    /// The next piece is being fetched.
    Coming,
    /// Up to this key, excluded.
    Below(Box<[u8]>),
    ToEnd,
}

impl Range {
    fn is(&self, wanted: Wanted<'_>) -> bool {
        let Self { start, end, pairs, bytes, .. } = self;
        wanted == Wanted::Range { start, end: end.as_deref(), pairs: *pairs, bytes: *bytes }
    }

    fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    /// The covered pairs, with what was written since.
    fn merged<'a>(&'a self, hot: &'a Hot) -> impl Iterator<Item = (&'a [u8], &'a Value)> {
        let end = match &self.covered {
            Covered::Coming => Some(&*self.start),
            Covered::Below(next) => Some(&**next),
            Covered::ToEnd => self.end.as_deref(),
        };
        let mut run = self.run.iter().map(|(key, value)| (&**key, value)).peekable();
        let mut written = hot.overlay(&self.start, end).peekable();
        std::iter::from_fn(move || {
            loop {
                let Some((key, value)) =
                    written.next_if(|(key, _)| run.peek().is_none_or(|(ours, _)| key <= ours))
                else {
                    return run.next();
                };
                run.next_if(|(ours, _)| *ours == key);
                if let Some(value) = value {
                    return Some((key, value));
                }
            }
        })
    }

    /// Whether the covered pairs are as many as are wanted.
    fn has_enough(&self, hot: &Hot) -> bool {
        let (mut pairs, mut bytes) = (0, 0);
        let mut merged = self.merged(hot);
        while pairs < self.pairs && bytes < self.bytes {
            let Some((key, value)) = merged.next() else {
                return matches!(self.covered, Covered::ToEnd);
            };
            (pairs, bytes) = (pairs + 1, bytes + key.len() + value.bytes.len());
        }
        true
    }

    /// Asks for what follows `from`.
    fn wish(&mut self, from: Box<[u8]>) -> Wish {
        self.covered = Covered::Coming;
        let (end, pairs, bytes) = (self.end.clone(), self.pairs, self.bytes);
        Wish::Run { id: self.id, start: from, end, pairs, bytes }
    }
}

/// All pinned ranges.
#[derive(Default)]
pub(super) struct Ranges {
    all: Vec<Range>,
    last_id: u64,
}

impl Ranges {
    pub(super) fn has(&self, wanted: Wanted<'_>) -> bool {
        self.all.iter().any(|range| range.enough && range.is(wanted))
    }

    /// Pins a range. Returns what to fetch for it.
    pub(super) fn pin(&mut self, wanted: Wanted<'_>, applied: u64) -> Option<Wish> {
        let Wanted::Range { start, end, pairs, bytes } = wanted else { return None };
        if let Some(known) = self.all.iter_mut().find(|range| range.is(wanted)) {
            known.pins += 1;
            return None;
        }
        self.last_id += 1;
        let mut range = Range {
            id: self.last_id,
            pins: 1,
            start: start.into(),
            end: end.map(Into::into),
            pairs,
            bytes,
            run: Vec::new(),
            covered: Covered::Coming,
            since: applied,
            enough: false,
        };
        let wish = range.wish(start.into());
        self.all.push(range);
        Some(wish)
    }

    pub(super) fn unpin(&mut self, wanted: Wanted<'_>) {
        let at = self.all.iter().position(|range| range.is(wanted)).expect("it was pinned");
        self.all[at].pins -= 1;
        if self.all[at].pins == 0 {
            self.all.swap_remove(at);
        }
    }

    /// A piece of a run was fetched. Returns the next one to fetch, if more is needed.
    pub(super) fn came(
        &mut self,
        id: u64,
        pairs: Vec<(Box<[u8]>, Value)>,
        next: Option<Box<[u8]>>,
        hot: &Hot,
    ) -> Option<Wish> {
        let range = self.all.iter_mut().find(|range| range.id == id)?;
        range.run.extend(pairs);
        range.covered = next.map_or(Covered::ToEnd, Covered::Below);
        range.check(hot)
    }

    /// A key has lost its value. Returns what to fetch instead of the pair.
    pub(super) fn lost(&mut self, key: &[u8], hot: &Hot) -> Vec<Wish> {
        let with = self.all.iter_mut().filter(|range| range.contains(key));
        with.filter_map(|range| range.check(hot)).collect()
    }

    /// Writes up to this one may leave the overlay, if they are in the database.
    pub(super) fn since(&self) -> u64 {
        self.all.iter().map(|range| range.since).min().unwrap_or(u64::MAX)
    }

    /// The pairs of a range that is in memory.
    pub(super) fn pairs<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
        hot: &'a Hot,
    ) -> impl Iterator<Item = (Guard<'a>, Found<Guard<'a>>)> {
        let these =
            |range: &&Range| range.enough && *range.start == *start && range.end.as_deref() == end;
        // The one with the most.
        let range = self.all.iter().filter(these).max_by_key(|range| (range.pairs, range.bytes));
        let range = range.expect("the range is in memory");
        range.merged(hot).map(|(key, value)| {
            (Guard::from(key), Found { value: Guard::from(&*value.bytes), version: value.version })
        })
    }

    /// No ranges. What was asked for this one is not taken for anything.
    pub(super) const fn cleared(&self) -> Self {
        Self { all: Vec::new(), last_id: self.last_id }
    }

    /// Whether all pinned ranges are in memory.
    pub(super) fn are_here(&self) -> bool {
        self.all.iter().all(|range| range.enough)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of pins.
    pub(super) fn pins(&self) -> usize {
        self.all.iter().map(|range| range.pins).sum()
    }
}

impl Range {
    fn check(&mut self, hot: &Hot) -> Option<Wish> {
        if matches!(self.covered, Covered::Coming) {
            return None; // It is checked when the piece has come.
        }
        self.enough = self.has_enough(hot);
        if self.enough {
            return None;
        }
        match &self.covered {
            Covered::Below(next) => {
                let next = next.clone();
                Some(self.wish(next))
            }
            Covered::Coming | Covered::ToEnd => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8) -> Value {
        Value { bytes: [byte; 4].as_slice().into(), version: u64::from(byte) }
    }

    fn run(keys: &[u8]) -> Vec<(Box<[u8]>, Value)> {
        keys.iter().map(|key| ([*key].as_slice().into(), value(1))).collect()
    }

    /// Writes a key, which is in memory, by the batch of that number.
    fn write(hot: &mut Hot, key: u8, to: Option<u8>, batch: u64) {
        let number = hot.find(&[key]).unwrap_or_else(|| {
            let number = hot.add(&[key]);
            hot.came(number, None);
            number
        });
        hot.write(number, to.map(value), batch);
    }

    fn seen(ranges: &Ranges, hot: &Hot) -> Vec<(u8, u8)> {
        let pairs = ranges.pairs(b"a", Some(b"z"), hot);
        pairs.map(|(key, found)| (key[0], found.value[0])).collect()
    }

    const ALL: Wanted<'_> =
        Wanted::Range { start: b"a", end: Some(b"z"), pairs: usize::MAX, bytes: usize::MAX };
    const TWO: Wanted<'_> =
        Wanted::Range { start: b"a", end: Some(b"z"), pairs: 2, bytes: usize::MAX };

    fn id(wish: Option<Wish>) -> (u64, Vec<u8>) {
        match wish {
            Some(Wish::Run { id, start, .. }) => (id, start.to_vec()),
            _ => panic!("a run is to be fetched"),
        }
    }

    #[test]
    fn what_was_written_since_lies_above_the_run() {
        let (mut ranges, mut hot) = (Ranges::default(), Hot::default());
        write(&mut hot, b'b', Some(2), 5);
        let (run_id, start) = id(ranges.pin(ALL, 4));
        assert_eq!(start, b"a");
        write(&mut hot, b'c', None, 6);
        assert!(!ranges.has(ALL));
        let more = ranges.came(run_id, run(b"abcd"), None, &hot);
        assert!(more.is_none() && ranges.has(ALL));
        assert_eq!(seen(&ranges, &hot), [(b'a', 1), (b'b', 2), (b'd', 1)]);
        // All of it is in the database, but was not when the run was asked for.
        write(&mut hot, b'e', Some(3), 7);
        hot.applied(7.min(ranges.since()));
        hot.evict(0);
        hot.evict(0);
        assert_eq!(seen(&ranges, &hot), [(b'a', 1), (b'b', 2), (b'd', 1), (b'e', 3)]);
        ranges.unpin(ALL);
        hot.applied(7.min(ranges.since()));
        (0..3).for_each(|_| hot.evict(0));
        assert_eq!((hot.bytes(), hot.find(b"e")), (0, None));
    }

    #[test]
    fn pairs_that_are_lost_are_replaced_by_those_behind_the_run() {
        let (mut ranges, mut hot) = (Ranges::default(), Hot::default());
        let (run_id, _) = id(ranges.pin(TWO, 0));
        write(&mut hot, b'a', None, 1);
        let next = ranges.came(run_id, run(b"ab"), Some(b"c".as_slice().into()), &hot);
        assert_eq!(id(next), (run_id, b"c".to_vec()), "one of the two is gone");
        assert!(!ranges.has(TWO));
        let next = ranges.came(run_id, run(b"cd"), Some(b"e".as_slice().into()), &hot);
        assert!(next.is_none() && ranges.has(TWO));
        write(&mut hot, b'b', None, 2);
        assert!(ranges.lost(b"b", &hot).is_empty() && ranges.has(TWO), "there is one more");
        write(&mut hot, b'c', None, 3);
        let mut wishes = ranges.lost(b"c", &hot);
        assert_eq!(id(wishes.pop()), (run_id, b"e".to_vec()));
        assert!(!ranges.has(TWO));
        assert!(ranges.came(run_id, Vec::new(), None, &hot).is_none() && ranges.has(TWO));
        assert_eq!(seen(&ranges, &hot), [(b'd', 1)], "that is all there is");
    }

    #[test]
    fn what_was_asked_for_before_a_clear_is_nobodys() {
        let (mut ranges, hot) = (Ranges::default(), Hot::default());
        let (old, _) = id(ranges.pin(ALL, 0));
        let mut ranges = ranges.cleared();
        let (new, _) = id(ranges.pin(ALL, 0));
        assert!(ranges.came(old, run(b"a"), None, &hot).is_none() && !ranges.has(ALL));
        ranges.came(new, Vec::new(), None, &hot);
        assert!(ranges.has(ALL) && seen(&ranges, &hot).is_empty());
    }
}
