//! What stands in our log and is not known to be committed.

use alloc::collections::VecDeque;

use crate::ballot::Ballot;
use crate::ids::MessageId;
use crate::log::Remote;
use crate::step::Record;

/// An entry's record that is not known to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncommitted {
    pub(crate) index: u64,
    pub(crate) birth: Ballot,
    pub(crate) time_ms: u64,
    pub(crate) record: Record,
}

impl Uncommitted {
    /// The message that it gives its place in the order, if that is what it does.
    pub(crate) fn message(&self) -> Option<MessageId> {
        match self.record {
            Record::Local { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// Records in log order. Of several groups' messages most are proposals, dozens to an entry: they are kept
/// together, and an entry's record names the first of them.
#[derive(Default)]
pub(crate) struct Suffix {
    records: VecDeque<Uncommitted>,
    /// The proposals of entries that begin with one, that one included, and how many each of these has.
    proposals: VecDeque<Remote>,
    counts: VecDeque<usize>,
}

impl Suffix {
    /// All proposals of other groups, in log order.
    pub(crate) fn proposals(&self) -> impl Iterator<Item = &Remote> {
        self.proposals.iter()
    }

    /// Appends a record.
    pub(crate) fn push(&mut self, record: Uncommitted) {
        match record.record {
            Record::Remote(remote) => {
                let Uncommitted { index, birth, time_ms, .. } = record;
                self.push_proposals(index, birth, time_ms, [remote].into_iter());
            }
            _ => self.records.push_back(record),
        }
    }

    /// Appends proposals of one entry, all or some.
    pub(crate) fn push_proposals(
        &mut self,
        index: u64,
        birth: Ballot,
        time_ms: u64,
        proposals: impl Iterator<Item = Remote>,
    ) {
        let before = self.proposals.len();
        self.proposals.extend(proposals);
        if self.records.back().is_none_or(|last| last.index != index) {
            let Some(first) = self.proposals.get(before) else { return };
            let record = Record::Remote(*first);
            self.records.push_back(Uncommitted { index, birth, time_ms, record });
            self.counts.push_back(0);
        }
        let count = self.counts.back_mut().expect("the last entry is of proposals");
        *count += self.proposals.len() - before;
    }

    /// Takes the first record, if its entry's index is not above `index`.
    pub(crate) fn pop_front(&mut self, index: u64) -> Option<Uncommitted> {
        self.records.pop_front_if(|record| record.index <= index)
    }

    /// Takes the proposals of the entry whose record was taken just now, a few slices of them.
    pub(crate) fn take_proposals(&mut self, mut take: impl FnMut(&[Remote])) {
        let count = self.counts.pop_front().expect("an entry of proposals was taken");
        let (front, back) = self.proposals.as_slices();
        let (front, rest) = front.split_at(count.min(front.len()));
        take(front);
        if rest.is_empty() {
            take(&back[..count - front.len()]);
        }
        self.proposals.drain(..count);
    }

    /// Takes what is logged behind `index`, last first: each record, and how many there are in it.
    pub(crate) fn pop_back(&mut self, index: u64) -> Option<(Uncommitted, usize)> {
        let record = self.records.pop_back_if(|record| record.index > index)?;
        let mut count = 1;
        if let Record::Remote(_) = record.record {
            count = self.counts.pop_back().expect("an entry of proposals was taken");
            self.proposals.truncate(self.proposals.len() - count);
        }
        Some((record, count))
    }

    /// The last record.
    pub(crate) fn back(&self) -> Option<&Uncommitted> {
        self.records.back()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// In log order; of an entry of proposals, the first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Uncommitted> {
        self.records.iter()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::ids::{GroupId, SessionId};
    use crate::timestamp::Timestamp;

    fn remote(number: u64) -> Remote {
        let message = MessageId::new(SessionId(1), number);
        let timestamp = Timestamp::new(number, GroupId(1));
        Remote { message, timestamp, ballot: Ballot::new(1, 0, 0), index: number }
    }

    /// Entries: three proposals, a new ballot, one proposal.
    fn suffix() -> Suffix {
        let (mut suffix, birth) = (Suffix::default(), Ballot::new(1, 0, 0));
        let record = |index, record| Uncommitted { index, birth, time_ms: 0, record };
        suffix.push(record(1, Record::Remote(remote(1))));
        suffix.push_proposals(1, birth, 0, [2, 3].map(remote).into_iter());
        suffix.push(record(2, Record::NewBallot));
        suffix.push_proposals(3, birth, 0, [4].map(remote).into_iter());
        suffix
    }

    #[test]
    fn an_entry_keeps_its_proposals_from_both_ends() {
        let mut front = suffix();
        let mut taken = Vec::new();
        while let Some(record) = front.pop_front(3) {
            if let Record::Remote(_) = record.record {
                front
                    .take_proposals(|some| taken.extend(some.iter().map(|it| (record.index, *it))));
            }
        }
        assert_eq!(taken, [(1, 1), (1, 2), (1, 3), (3, 4)].map(|(at, n)| (at, remote(n))));

        let mut back = suffix();
        let popped = core::iter::from_fn(|| back.pop_back(0));
        assert!(popped.map(|(record, count)| (record.index, count)).eq([(3, 1), (2, 1), (1, 3)]));
        assert!(back.is_empty() && back.proposals.is_empty() && back.counts.is_empty());
        assert!(suffix().pop_back(3).is_none() && suffix().pop_front(0).is_none());
    }
}
