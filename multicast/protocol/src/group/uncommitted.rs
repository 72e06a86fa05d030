//! Entries of our log that are not known to be committed.

use alloc::collections::VecDeque;

use crate::ballot::Ballot;
use crate::group::record::LogRecord;

/// The record of an entry that is not known to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncommitted<R> {
    pub(crate) index: u64,
    pub(crate) birth: Ballot,
    pub(crate) time_ms: u64,
    pub(crate) record: R,
}

/// Records in log order. An entry may have dozens of items: they are stored together, and the entry's record names the
/// first of them.
pub(crate) struct Suffix<R: LogRecord> {
    records: VecDeque<Uncommitted<R>>,
    /// The items of all entries that have some. `counts` has the number of items of each such entry: its sum is
    /// `items.len()`.
    items: VecDeque<R::Item>,
    counts: VecDeque<usize>,
}

impl<R: LogRecord> Default for Suffix<R> {
    fn default() -> Self {
        Self { records: VecDeque::new(), items: VecDeque::new(), counts: VecDeque::new() }
    }
}

impl<R: LogRecord> Suffix<R> {
    /// All items, in log order.
    pub(crate) fn items(&self) -> impl Iterator<Item = &R::Item> {
        self.items.iter()
    }

    /// Appends a record.
    pub(crate) fn push(&mut self, record: Uncommitted<R>) {
        match record.record.first_item() {
            Some(item) => {
                let Uncommitted { index, birth, time_ms, .. } = record;
                self.push_items(index, birth, time_ms, [item].into_iter());
            }
            None => self.records.push_back(record),
        }
    }

    /// Appends items of one entry, all or some of them.
    pub(crate) fn push_items(
        &mut self,
        index: u64,
        birth: Ballot,
        time_ms: u64,
        items: impl Iterator<Item = R::Item>,
    ) {
        let before = self.items.len();
        self.items.extend(items);
        if self.records.back().is_none_or(|last| last.index != index) {
            let Some(first) = self.items.get(before) else { return };
            let record = R::of_items(*first);
            self.records.push_back(Uncommitted { index, birth, time_ms, record });
            self.counts.push_back(0);
        }
        let count = self.counts.back_mut().expect("the last entry is of items");
        *count += self.items.len() - before;
    }

    /// Takes the first record, if its entry's index is at most `index`.
    pub(crate) fn pop_front(&mut self, index: u64) -> Option<Uncommitted<R>> {
        self.records.pop_front_if(|record| record.index <= index)
    }

    /// Takes the items of the entry whose record was taken last, in at most two slices.
    pub(crate) fn take_items(&mut self, mut take: impl FnMut(&[R::Item])) {
        let count = self.counts.pop_front().expect("an entry of items was taken");
        let (front, back) = self.items.as_slices();
        if let Some((all, _)) = front.split_at_checked(count) {
            take(all);
        } else {
            take(front);
            take(&back[..count - front.len()]);
        }
        self.items.drain(..count);
    }

    /// Takes the last record behind `index`, and the number of records that it stands for.
    pub(crate) fn pop_back(&mut self, index: u64) -> Option<(Uncommitted<R>, usize)> {
        let record = self.records.pop_back_if(|record| record.index > index)?;
        let mut count = 1;
        if record.record.first_item().is_some() {
            count = self.counts.pop_back().expect("an entry of items was taken");
            self.items.truncate(self.items.len() - count);
        }
        Some((record, count))
    }

    /// The last record.
    pub(crate) fn back(&self) -> Option<&Uncommitted<R>> {
        self.records.back()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records in log order; for an entry of items, the one that stands for them.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Uncommitted<R>> {
        self.records.iter()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::group::LoggedMessage;
    use crate::group::record::GroupRecord;

    /// The records of a test ordering.
    #[derive(Clone, Copy, Debug)]
    enum Record {
        Group(GroupRecord),
        Number(u64),
    }

    impl From<GroupRecord> for Record {
        fn from(record: GroupRecord) -> Self {
            Self::Group(record)
        }
    }

    impl LogRecord for Record {
        type Item = u64;

        fn of_group(&self) -> Option<GroupRecord> {
            if let Self::Group(record) = self { Some(*record) } else { None }
        }

        fn message(&self) -> Option<LoggedMessage> {
            None
        }

        fn is_results(&self) -> bool {
            false
        }

        fn depends_on_others(&self) -> bool {
            false
        }

        fn of_items(first: u64) -> Self {
            Self::Number(first)
        }

        fn first_item(&self) -> Option<u64> {
            if let Self::Number(number) = self { Some(*number) } else { None }
        }
    }

    /// Entries: three numbers, a new ballot, one number.
    fn suffix() -> Suffix<Record> {
        let (mut suffix, birth) = (Suffix::default(), Ballot::new(1, 0, 0));
        let record = |index, record| Uncommitted { index, birth, time_ms: 0, record };
        suffix.push(record(1, Record::Number(1)));
        suffix.push_items(1, birth, 0, [2, 3].into_iter());
        suffix.push(record(2, GroupRecord::NewBallot.into()));
        suffix.push_items(3, birth, 0, [4].into_iter());
        suffix
    }

    #[test]
    fn an_entry_keeps_its_items_from_both_ends() {
        let mut front = suffix();
        let mut taken = Vec::new();
        while let Some(record) = front.pop_front(3) {
            if record.record.first_item().is_some() {
                front.take_items(|some| taken.extend(some.iter().map(|it| (record.index, *it))));
            }
        }
        assert_eq!(taken, [(1, 1), (1, 2), (1, 3), (3, 4)]);

        let mut back = suffix();
        let popped = core::iter::from_fn(|| back.pop_back(0));
        assert!(popped.map(|(record, count)| (record.index, count)).eq([(3, 1), (2, 1), (1, 3)]));
        assert!(back.is_empty() && back.items.is_empty() && back.counts.is_empty());
        assert!(suffix().pop_back(3).is_none() && suffix().pop_front(0).is_none());
    }
}
