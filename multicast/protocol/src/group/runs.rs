//! The description of a log by which two replicas find their common prefix.
//!
//! An entry is identified by its index and the ballot of its birth: a leader appends once at each index. Births never
//! fall along a log, and a log that contains an entry contains everything that was before it when it was born. So a log
//! is described by one run for each ballot in which entries were born, and two logs share everything up to the end of
//! the shorter of their last common runs.

use alloc::collections::VecDeque;

use crate::ballot::Ballot;
use crate::group::frame::Cursor;

/// Number of births of committed entries that are remembered. A replica that is further behind receives the state.
const RUNS_MAX: usize = 64;

/// The births of a log's entries. Cursors are canonical here: right behind an entry, before the pad that may follow.
///
/// **Invariant.** The births of the last committed entry, and of all entries behind it, are remembered. No state
/// contains uncommitted entries, so a replica that lacks them needs a log, and the leader must know what the replica
/// holds. The log continues where the state ends: if the birth of the state's last entry were forgotten, a replica with
/// only that state would seem to share nothing with the log, and to hold less than a replica that lacks committed
/// entries. In a series of leaders of which none commits anything, each adds one run, as long as the log has room for
/// its first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The ballot of each run, and the place of its first entry.
    runs: VecDeque<(Ballot, Cursor)>,
    end: Cursor,
}

impl Runs {
    /// The runs of an empty log.
    pub const EMPTY: Self = Self { runs: VecDeque::new(), end: Cursor::START };

    /// The inverse of [`iter`](Self::iter) and [`end`](Self::end).
    pub fn new(runs: impl IntoIterator<Item = (Ballot, Cursor)>, end: Cursor) -> Self {
        Self { runs: runs.into_iter().collect(), end }
    }

    /// Each ballot of birth and the place of its first entry, rising.
    pub fn iter(&self) -> impl Iterator<Item = (Ballot, Cursor)> {
        self.runs.iter().copied()
    }

    /// The place right behind the last entry.
    pub const fn end(&self) -> Cursor {
        self.end
    }

    /// The ballot of birth of the last entry, or zero.
    pub fn last_birth(&self) -> Ballot {
        self.runs.back().map_or(Ballot::ZERO, |(birth, _)| *birth)
    }

    /// Whether the log contains the entry at `index` that was born in `birth`, and therefore everything before it. It
    /// is assumed to contain what is further back than remembered.
    pub fn holds(&self, birth: Ballot, index: u64) -> bool {
        let run = self.runs.iter().rev().find(|(_, first)| first.index <= index);
        index < self.end.index && run.is_none_or(|(of_run, _)| *of_run == birth)
    }

    /// Whether the entry at `index` is remembered to be born in `birth`. Unlike [`holds`](Self::holds), this is false
    /// for entries further back than remembered: the bytes found there may be another log's.
    pub fn remembers(&self, birth: Ballot, index: u64) -> bool {
        let run = self.runs.iter().rev().find(|(_, first)| first.index <= index);
        index < self.end.index && run.is_some_and(|(of_run, _)| *of_run == birth)
    }

    /// Adds an entry born in `birth` that ends at `position`. All entries up to the index `committed` are committed.
    #[inline]
    pub fn push(&mut self, birth: Ballot, position: u64, committed: u64) {
        if self.last_birth() != birth {
            self.begin(birth, committed);
        }
        self.end = Cursor { index: self.end.index + 1, position };
    }

    #[cold]
    fn begin(&mut self, birth: Ballot, committed: u64) {
        self.runs.push_back((birth, self.end));
        while self.runs.len() > RUNS_MAX && self.runs[1].1.index <= committed {
            self.runs.pop_front();
        }
    }

    /// Removes everything from `base` on.
    pub fn truncate(&mut self, base: Cursor) {
        while self.runs.back().is_some_and(|(_, first)| first.index >= base.index) {
            self.runs.pop_back();
        }
        self.end = base;
    }

    /// The end of the prefix that both logs share; `None` if that is further back than remembered. Two logs that
    /// remember their first entries and have no birth in common share nothing: each was begun by a leader that did not
    /// have the other log.
    pub fn shared(&self, other: &Self) -> Option<Cursor> {
        let empty = [self, other].iter().any(|log| log.end == Cursor::START);
        if empty {
            return Some(Cursor::START);
        }
        let common = self.runs.iter().rev().find_map(|(birth, _)| {
            let (mine, theirs) = (self.end_of(*birth)?, other.end_of(*birth)?);
            Some(if mine.index <= theirs.index { mine } else { theirs })
        });
        let whole = |log: &Self| log.runs.front().is_some_and(|(_, at)| *at == Cursor::START);
        common.or_else(|| (whole(self) && whole(other)).then_some(Cursor::START))
    }

    fn end_of(&self, birth: Ballot) -> Option<Cursor> {
        let at = self.runs.iter().position(|(b, _)| *b == birth)?;
        Some(self.runs.get(at + 1).map_or(self.end, |(_, first)| *first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(births: &[u32]) -> Runs {
        let mut runs = Runs::EMPTY;
        for (i, birth) in births.iter().enumerate() {
            let index = i as u64 + 1;
            runs.push(Ballot::new(*birth, 0, 0), index * 64, index);
        }
        runs
    }

    #[test]
    fn logs_share_what_was_born_alike() {
        #[rustfmt::skip]
        let cases: [(&[u32], &[u32], u64); 7] = [
            (&[],           &[1, 1],       0),
            (&[1, 1, 1],    &[2, 2],       0),
            (&[1, 1, 1],    &[1, 1],       2),
            (&[1, 1, 2, 2], &[1, 1, 1],    2),
            (&[1, 1, 2, 4], &[1, 1, 2, 3], 3),
            (&[1, 3, 3],    &[1, 2, 2, 2], 1),
            (&[1, 2, 3],    &[1, 2, 3],    3),
        ];
        for (one, other, shared) in cases {
            let base = Cursor { index: shared + 1, position: shared * 64 };
            assert_eq!(log(one).shared(&log(other)), Some(base), "{one:?} {other:?}");
            assert_eq!(log(other).shared(&log(one)), Some(base), "{other:?} {one:?}");
            let mut cut = log(one);
            cut.truncate(base);
            assert_eq!(cut, log(&one[..shared as usize]));
        }
    }

    #[test]
    fn a_log_holds_what_was_born_where_it_says() {
        let log = log(&[1, 1, 3, 3]);
        let held = |birth: u32, index| log.holds(Ballot::new(birth, 0, 0), index);
        assert!(held(1, 1) && held(1, 2) && held(3, 3) && held(3, 4));
        assert!(!held(3, 2) && !held(1, 3) && !held(2, 3) && !held(3, 5));
        let remembered = |birth: u32, index| log.remembers(Ballot::new(birth, 0, 0), index);
        assert!(remembered(1, 1) && remembered(3, 4) && !remembered(1, 3) && !remembered(3, 5));
        let first = Cursor { index: 3, position: 128 };
        let end = Cursor { index: 5, position: 256 };
        let given = Runs::new([(Ballot::new(3, 0, 0), first)], end);
        assert!(given.holds(Ballot::new(2, 0, 0), 2) && given.remembers(Ballot::new(3, 0, 0), 3));
        assert!(!given.remembers(Ballot::new(2, 0, 0), 2), "nobody knows what was there");
    }

    #[test]
    fn logs_that_forgot_their_common_past_share_nothing_known() {
        let long: std::vec::Vec<u32> = (1..200).collect();
        assert_eq!(log(&long).shared(&log(&[1, 2, 3])), None);
        let first = Cursor { index: 2, position: 64 };
        assert_eq!(
            log(&long[..RUNS_MAX]).shared(&log(&[1])),
            Some(first),
            "it is the oldest of 64"
        );
        assert_eq!(log(&long[..=RUNS_MAX]).shared(&log(&[1])), None, "it was one of 65");
    }
    #[test]
    fn births_of_what_is_not_committed_are_remembered_however_many_they_are() {
        const COMMITTED: u64 = 7;
        let birth = |index: u64| Ballot::new(index as u32, 0, 0);
        let mut runs = Runs::EMPTY;
        let end = 200;
        for index in 1..=end {
            runs.push(birth(index), index * 64, index.min(COMMITTED));
        }
        assert!(!runs.remembers(birth(COMMITTED - 1), COMMITTED - 1));
        assert!((COMMITTED..=end).all(|index| runs.remembers(birth(index), index)));
        let mut state = runs.clone();
        state.truncate(Cursor { index: COMMITTED + 1, position: COMMITTED * 64 });
        assert_eq!(state.last_birth(), birth(COMMITTED));
        assert_eq!(runs.shared(&state), Some(state.end()), "the log goes on where the state ends");
        runs.push(birth(end + 1), (end + 1) * 64, end);
        assert!(!runs.remembers(birth(end + 1 - RUNS_MAX as u64), end + 1 - RUNS_MAX as u64));
        assert_eq!(runs.iter().count(), RUNS_MAX);
    }
}
