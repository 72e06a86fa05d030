//! Counters: numbers that only rise, so that each number is a version. The client that makes or
//! reads a number learns it.

use super::findings::Anomaly;
use super::infer::{Inference, Reader, State, Within};
use super::model::{Fate, NONE, Step};

impl Inference<'_> {
    pub(super) fn counter(&mut self, key: u32) {
        let words = self.words;
        let last_read = self.last_read(key);
        let (mut states, mut readers) = (Vec::new(), Vec::new());
        let (mut made, mut untold) = (Vec::new(), 0u64);
        let (mut passed, mut highest, mut versions) = (Vec::new(), None, Vec::new());
        let accesses: Vec<(u32, u32)> = self.accesses(key).collect();
        for (transaction, step) in accesses {
            let Within { known, rewritten, .. } = self.within[step as usize];
            match self.model.steps[step as usize] {
                Step::Incr { by, number, .. } if self.fate(transaction) != Fate::Refused => {
                    let by = by.unsigned_abs();
                    let Some(number) = number else {
                        untold = untold.saturating_add(by);
                        continue;
                    };
                    // A counter begins at zero and only rises.
                    let Some(place) = u64::try_from(number).ok().filter(|place| *place >= by)
                    else {
                        self.findings.direct(Anomaly::WrongReply, "reply", || {
                            let what = format!("adding {by} to {} made {number}", words.key(key));
                            (what, vec![words.transaction(transaction)])
                        });
                        continue;
                    };
                    made.push((place, by));
                    if rewritten { &mut passed } else { &mut states }
                        .push(State { place, writer: transaction });
                }
                Step::Get { saw, version, .. } if !(known && rewritten) => {
                    let number =
                        if saw == NONE { Some(0) } else { counted(self.model.values.text(saw)) };
                    let Some(place) = number else {
                        self.findings.direct(Anomaly::InventedValue, "garbage", || {
                            let what =
                                format!("{} was read as a value that is no count", words.key(key));
                            (what, vec![words.transaction(transaction)])
                        });
                        continue;
                    };
                    versions.push((place, version, transaction));
                    highest = highest.max(Some((place, transaction)));
                    if !known {
                        readers.push(Reader { place, transaction });
                    }
                }
                _ => {}
            }
        }
        self.versions_rise(key, versions);
        states.sort_unstable_by_key(|state| (state.place, state.writer));
        readers.sort_unstable();
        self.adds_up(key, made, &readers, untold);
        for pair in states.windows(2).filter(|pair| pair[0].place == pair[1].place) {
            let [one, other] = [pair[0], pair[1]];
            self.findings.direct(Anomaly::LostUpdate, "lost update", || {
                let (key, number) = (words.key(key), one.place);
                let what =
                    format!("increments of {key} by two transactions both returned {number}");
                (what, [one, other].map(|state| words.transaction(state.writer)).to_vec())
            });
        }
        let standing = highest.map_or(0, |(number, _)| number);
        states.retain(|state| {
            let later = last_read.filter(|reader| self.answered_before(state.writer, *reader));
            let Some(reader) = later.filter(|_| state.place > standing) else { return true };
            self.findings.direct(Anomaly::LostWrite, "lost", || {
                let (key, number) = (words.key(key), state.place);
                let what = format!(
                    "{key} was counted to {number}, acknowledged, and is less when it is read later"
                );
                (what, [state.writer, reader].map(|one| words.transaction(one)).to_vec())
            });
            false
        });
        passed.sort_unstable_by_key(|state: &State| state.place);
        readers.retain(|reader| {
            let at = passed.binary_search_by_key(&reader.place, |state| state.place);
            let Ok(at) = at else { return true };
            let writer = passed[at].writer;
            if writer == reader.transaction {
                return true;
            }
            self.findings.direct(Anomaly::IntermediateRead, "G1b", || {
                let (key, number) = (words.key(key), reader.place);
                let what = format!("{key} was read as {number}, in the middle of a transaction");
                (what, [writer, reader.transaction].map(|one| words.transaction(one)).to_vec())
            });
            false
        });
        self.chain(key, &states, &readers);
    }

    /// Between two known numbers, the difference must be covered by the increments made there and
    /// by increments of unknown outcome. `made` holds numbers with the increment that made them.
    fn adds_up(&mut self, key: u32, made: Vec<(u64, u64)>, readers: &[Reader], untold: u64) {
        let words = self.words;
        let read = readers.iter().map(|reader| (reader.place, 0));
        let mut places: Vec<(u64, u64)> = made.into_iter().chain(read).collect();
        // The increment that made a number precedes its reads.
        places.sort_unstable_by_key(|(place, by)| (*place, u64::MAX - by));
        let (mut last, mut unexplained) = (0, 0u64);
        for (place, by) in places {
            if place == last {
                continue; // Explained already, or made twice, which is reported elsewhere.
            }
            let Some(gap) = (place - last).checked_sub(by) else {
                self.findings.direct(Anomaly::LostUpdate, "lost update", || {
                    let key = words.key(key);
                    let what =
                        format!("{key} was made {place} by adding {by}, though it was {last}");
                    (what, Vec::new())
                });
                last = place;
                continue;
            };
            unexplained = unexplained.saturating_add(gap);
            last = place;
        }
        if unexplained > untold && !self.model.header.before {
            let last_reader =
                readers.iter().max().map(|reader| words.transaction(reader.transaction));
            self.findings.direct(Anomaly::DuplicateApplication, "duplicate", || {
                let what = format!(
                    "{} is {last}, which is {unexplained} more than was added to it; {untold} more may have been",
                    words.key(key)
                );
                (what, last_reader.into_iter().collect())
            });
        }
    }
}

/// The number of a counter that was incremented at least once.
fn counted(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok().filter(|number| *number > 0)?;
    // Exactly as the store writes numbers.
    (number.to_string() == text).then_some(number)
}
