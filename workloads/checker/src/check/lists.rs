//! Lists: every reader observes all appends so far, in order.
//!
//! The values of the longest read are the versions. An append whose value is missing there follows
//! all of them, because nothing is ever removed from a list.

use super::findings::Anomaly;
use super::graph::{Helper, Why};
use super::infer::{AMBIGUOUS, Inference, Reader, State};
use super::model::{DIVERGED, Diverged, Fate, Kind, NONE, Step};

impl Inference<'_> {
    pub(super) fn list(&mut self, key: u32) {
        let readers = self.list_readers(key);
        let mut states = self.list_states(key, &readers);
        let standing = (self.model.longest(key).len() / self.model.width()) as u64;
        let unseen = self.unseen_appends(key, standing, &mut states);
        self.chain(key, &states, &readers);
        if unseen.is_empty() {
            return;
        }
        // Their order is not known, but all follow what was observed.
        let junction = self.builder.helper(Helper::Junction);
        let last = states.iter().rposition(|state| state.place <= standing);
        if let Some(at) = last {
            self.builder.edge(states[at].writer, junction, Why::Ww, key);
        }
        let from = readers.partition_point(|reader| reader.place < standing);
        for reader in &readers[from..] {
            self.builder.edge(reader.transaction, junction, Why::Rw, key);
        }
        for writer in unseen {
            self.builder.edge(junction, writer, Why::Via, key);
        }
    }

    /// Reports the reads of lists that are not prefixes of the longest.
    pub(super) fn diverged(&mut self) {
        let (model, words) = (self.model, self.words);
        for Diverged { step, value } in &model.diverged {
            let transaction = self.owner(*step);
            let key = model.steps[*step as usize].key();
            if model.kind(key) != Kind::List {
                continue;
            }
            self.findings.direct(Anomaly::IncompatibleOrder, "incompatible-order", || {
                let longest = model.longest(key);
                let common = value.bytes().zip(longest).take_while(|(a, b)| a == *b).count();
                let from = common / model.width();
                let shown = |value: &[u8]| {
                    let tokens = value.chunks(model.width()).skip(from).take(3);
                    let tokens: Vec<_> = tokens.map(String::from_utf8_lossy).collect();
                    if tokens.is_empty() { "nothing".to_owned() } else { tokens.join(" ") }
                };
                let what = format!(
                    "{} was read with {} at place {} by one, and with {} by another",
                    words.key(key),
                    shown(value.as_bytes()),
                    from + 1,
                    shown(longest),
                );
                (what, vec![words.transaction(transaction)])
            });
        }
    }

    /// The readers, by the length that they read. Reads whose length cannot be placed are reported.
    fn list_readers(&mut self, key: u32) -> Vec<Reader> {
        let width = self.model.width();
        let mut readers = Vec::new();
        let mut versions = Vec::new();
        let accesses: Vec<(u32, u32)> = self.accesses(key).collect();
        for (transaction, step) in accesses {
            let Step::Get { saw, version, .. } = self.model.steps[step as usize] else { continue };
            if self.fate(transaction) != Fate::Done || saw == DIVERGED {
                continue;
            }
            if !self.within[step as usize].rewritten {
                versions.push((u64::from(saw), version, transaction));
            }
            if self.within[step as usize].known {
                continue;
            }
            let last = (saw as usize).checked_sub(1).map(|last| last * width);
            let last = last.map(|at| &self.model.longest(key)[at..at + width]);
            let value = last.and_then(|last| self.model.values.find(key, last));
            let writer = value.map_or(NONE, |value| self.writers[value as usize]);
            if writer < AMBIGUOUS && writer != transaction && self.is_rewritten(writer, value) {
                let words = self.words;
                self.findings.direct(Anomaly::IntermediateRead, "G1b", || {
                    let what = format!(
                        "{} was read as {}, in the middle of what one transaction appended",
                        words.key(key),
                        words.list(key, saw as usize)
                    );
                    (what, vec![words.transaction(writer), words.transaction(transaction)])
                });
                continue;
            }
            readers.push(Reader { place: u64::from(saw), transaction });
        }
        readers.sort_unstable();
        self.versions_rise(key, versions);
        readers
    }

    /// Whether the transaction that appended `value` appended to the same list again.
    fn is_rewritten(&self, writer: u32, value: Option<u32>) -> bool {
        let (from, to) = self.model.range(writer);
        (from..to).any(|at| match self.model.steps[at] {
            Step::Append { value: own, .. } => Some(own) == value && self.within[at].rewritten,
            _ => false,
        })
    }

    /// The values of the list with their writers.
    fn list_states(&mut self, key: u32, readers: &[Reader]) -> Vec<State> {
        let (model, words) = (self.model, self.words);
        let mut states = Vec::with_capacity(model.longest(key).len() / model.width());
        for (place, token) in (1..).zip(model.longest(key).chunks(model.width())) {
            let seen_by = || {
                let at = readers.partition_point(|reader| reader.place < place);
                readers.get(at).map(|reader| words.transaction(reader.transaction))
            };
            let value = model.values.find(key, token);
            let writer = value.map_or(NONE, |value| self.writers[value as usize]);
            let text = String::from_utf8_lossy(token);
            let Some(value) = value.filter(|_| writer != NONE) else {
                self.findings.direct(Anomaly::InventedValue, "garbage", || {
                    let what = format!(
                        "{text} stands in {}, which no transaction appended",
                        words.key(key)
                    );
                    (what, seen_by().into_iter().collect())
                });
                continue;
            };
            if writer == AMBIGUOUS {
                continue;
            }
            let first = std::mem::replace(&mut self.places[value as usize], place);
            if first != 0 {
                self.places[value as usize] = first;
                self.findings.direct(Anomaly::DuplicateApplication, "duplicate", || {
                    let key = words.key(key);
                    let what = format!("{text} stands in {key} at places {first} and {place}");
                    (what, std::iter::once(words.transaction(writer)).chain(seen_by()).collect())
                });
                continue;
            }
            if self.fate(writer) == Fate::Refused {
                self.findings.direct(Anomaly::AbortedRead, "G1a", || {
                    let key = words.key(key);
                    let what =
                        format!("{text} stands in {key}, though its client received a refusal");
                    (what, std::iter::once(words.transaction(writer)).chain(seen_by()).collect())
                });
                continue;
            }
            states.push(State { place, writer });
        }
        states
    }

    /// The appends whose value is missing. Those that returned a length are added to `states`; the
    /// others are returned.
    fn unseen_appends(&mut self, key: u32, standing: u64, states: &mut Vec<State>) -> Vec<u32> {
        let (width, words) = (self.model.width() as u64, self.words);
        let last_read = self.last_read(key);
        let accesses: Vec<(u32, u32)> = self.accesses(key).collect();
        let mut told: Vec<State> = Vec::new();
        let mut untold = Vec::new();
        let seen = |writer: u32, places: &[u64]| {
            self.model.steps_of(writer).iter().any(|step| match step {
                Step::Append { key: of, value, .. } => *of == key && places[*value as usize] != 0,
                _ => false,
            })
        };
        let mut lost = Vec::new();
        for (writer, step) in accesses {
            let Step::Append { value, length, .. } = self.model.steps[step as usize] else {
                continue;
            };
            let place = self.places[value as usize];
            let fate = self.fate(writer);
            if self.writers[value as usize] == AMBIGUOUS || fate == Fate::Refused {
                continue;
            }
            if place != 0 {
                if length != 0 && length != place * width {
                    lost.push((writer, value, length, Some(place)));
                }
                continue;
            }
            let later = last_read.filter(|reader| self.answered_before(writer, *reader));
            if length == 0 {
                // If a transaction was observed in part, its missing part is evidence of its own.
                if !seen(writer, &self.places) && untold.last() != Some(&writer) {
                    untold.push(writer);
                }
            } else if length <= standing * width || later.is_some() {
                lost.push((writer, value, length, None));
            } else {
                told.push(State { place: length / width, writer });
            }
        }
        for (writer, value, length, place) in lost {
            let anomaly = if place.is_some() { Anomaly::WrongReply } else { Anomaly::LostWrite };
            self.findings.direct(anomaly, if place.is_some() { "reply" } else { "lost" }, || {
                let (value, key) = (words.value(value), words.key(key));
                let what = match place {
                    Some(place) => format!(
                        "{key} had {} bytes with {value}, but {length} was returned",
                        place * width
                    ),
                    None => format!(
                        "{value} was appended to {key}, acknowledged, and is not in it when it is read later"
                    ),
                };
                let reader = last_read.map(|reader| words.transaction(reader));
                (what, std::iter::once(words.transaction(writer)).chain(reader).collect())
            });
        }
        told.sort_unstable_by_key(|state| state.place);
        for pair in told.windows(2).filter(|pair| pair[0].place == pair[1].place) {
            let [one, other] = [pair[0], pair[1]];
            self.findings.direct(Anomaly::LostUpdate, "lost update", || {
                let (key, place) = (words.key(key), one.place);
                let what = format!("two appends to {key} both returned value number {place}");
                (what, [one, other].map(|state| words.transaction(state.writer)).to_vec())
            });
        }
        states.extend(told);
        untold
    }
}
