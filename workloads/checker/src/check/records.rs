//! Records: values of several fields, each of which is overwritten by itself.
//!
//! A record's version rises with each write of any of its fields. So reads and sets are ordered by
//! version, and the writer of a field that differs between two versions lies between them.
//!
//! A value that is not a record says nothing of its fields and is skipped. If keys may have values
//! from before the history, the fields of the oldest known record identify no writer, unless a set
//! returned that version. A field that differs at a later version was written in the history.

use std::collections::HashSet;

use super::findings::Anomaly;
use super::infer::{AMBIGUOUS, Inference, Reader, State};
use super::model::{Fate, NONE, Step};
use super::unseen::{Span, Stands};
use crate::history::bytes;

/// A record that was set or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    version: u64,
    /// Sets of a version sort before its reads.
    read: bool,
    value: u32,
    transaction: u32,
}

impl Inference<'_> {
    pub(super) fn record(&mut self, key: u32) {
        let words = self.words;
        let (mut states, mut readers) = (Vec::new(), Vec::new());
        let mut last: Option<Vec<Option<u32>>> = None;
        // Whether each field is as in the oldest known record, and may be from before the history.
        let mut old: Vec<bool> = Vec::new();
        // Whether a version was skipped since the last record.
        let mut has_skipped = false;
        let mut stands = Stands::default();
        let known = self.known(key);
        for of in known.chunk_by(|a, b| a.version == b.version) {
            let place = of[0].version;
            let read = || of.iter().filter(|one| one.read).map(|one| one.transaction);
            readers.extend(read().map(|transaction| Reader { place, transaction }));
            if let Some(other) = of.iter().find(|one| one.value != of[0].value) {
                self.findings.direct(Anomaly::IncompatibleOrder, "incompatible-order", || {
                    let what =
                        format!("{} was read in two ways at version {place}", words.key(key));
                    (what, [of[0], *other].map(|one| words.transaction(one.transaction)).to_vec())
                });
            }
            let fields = match of[0].value {
                NONE => Some(Vec::new()),
                value => self.model.fields(key, value),
            };
            // A field written to a missing value, or to a value that is not a record, makes no
            // record either.
            let Some(fields) = fields else {
                has_skipped = true;
                continue;
            };
            let is_first = last.is_none() && self.model.header.before;
            let before = last.take().unwrap_or_default();
            old.resize(fields.len(), false);
            let set_by = |writer: u32| !of[0].read && of[0].transaction == writer;
            let mut writers = Vec::new();
            let span = self.span(read());
            for (i, token) in fields.iter().enumerate() {
                if self.is_zero(of[0].value, i) {
                    continue;
                }
                if before.get(i) != Some(token) {
                    let writer = token.map_or(NONE, |token| self.writers[token as usize]);
                    old[i] = is_first && !set_by(writer);
                    if !old[i]
                        && let Some(writer) = self.field(key, *token, of[0])
                        && !writers.contains(&writer)
                    {
                        writers.push(writer);
                    }
                }
                if !old[i] {
                    self.stands(&mut stands, i, *token, place, span);
                }
            }
            // A field may have been set before a skipped version. Only a write that returned this
            // version has a position.
            writers.retain(|writer| !has_skipped || set_by(*writer));
            has_skipped = false;
            states.extend(writers.into_iter().map(|writer| State { place, writer }));
            last = Some(fields);
        }
        let lost = self.lost_fields(key);
        self.unseen(key, stands, &readers, &lost);
        self.chain(key, &states, &readers);
    }

    /// Takes the observation of a field. If its writer is known, it orders the other writes of the
    /// field.
    fn stands(
        &self,
        stands: &mut Stands,
        field: usize,
        token: Option<u32>,
        place: u64,
        span: Span,
    ) {
        let Some(token) = token else { return };
        let writer = self.writers[token as usize];
        if writer < AMBIGUOUS {
            let returned = self.model.transactions[writer as usize].returned;
            let answered = span.answered.min(returned);
            stands.saw(field, token, writer, place, Span { answered, ..span });
        }
    }

    /// The sets and reads, in order.
    fn known(&self, key: u32) -> Vec<Known> {
        let told = self.accesses(key).filter_map(|(transaction, step)| {
            let within = self.within[step as usize];
            match self.model.steps[step as usize] {
                _ if self.fate(transaction) != Fate::Done => None,
                Step::Put { value, version, .. } if version != 0 && !within.rewritten => {
                    Some(Known { version, read: false, value, transaction })
                }
                Step::Get { saw, version, .. } if !within.known => {
                    Some(Known { version, read: true, value: saw, transaction })
                }
                _ => None,
            }
        });
        let mut told: Vec<Known> = told.collect();
        told.sort_unstable();
        told
    }

    /// Whether a field of a record is zero bytes, as in a gap before another field that was set.
    fn is_zero(&self, value: u32, field: usize) -> bool {
        let width = self.model.header.record.map_or(1, |record| record.token_bytes);
        let value = bytes(self.model.values.text(value));
        let token = value.chunks(width).nth(field);
        token.is_some_and(|token| token.iter().all(|byte| *byte == 0))
    }

    /// The transaction of the history that set a field to this, if it is known.
    fn field(&mut self, key: u32, token: Option<u32>, seen: Known) -> Option<u32> {
        let words = self.words;
        let writer = token.map_or(NONE, |token| self.writers[token as usize]);
        let Some(token) = token.filter(|_| writer != NONE) else {
            self.findings.direct(Anomaly::InventedValue, "garbage", || {
                let what =
                    format!("a field of {} had a value that no transaction wrote", words.key(key));
                (what, vec![words.transaction(seen.transaction)])
            });
            return None;
        };
        if writer == AMBIGUOUS {
            return None;
        }
        let before = std::mem::replace(&mut self.places[token as usize], seen.version);
        let both = || [writer, seen.transaction].map(|one| words.transaction(one)).to_vec();
        if before != 0 {
            self.findings.direct(Anomaly::DuplicateApplication, "duplicate", || {
                let (token, key, version) = (words.value(token), words.key(key), seen.version);
                let what = format!(
                    "a field of {key} was {token} at version {before}, then something else, and {token} again at version {version}"
                );
                (what, both())
            });
            return None;
        }
        if self.fate(writer) == Fate::Refused {
            self.findings.direct(Anomaly::AbortedRead, "G1a", || {
                let (token, key) = (words.value(token), words.key(key));
                let what =
                    format!("a field of {key} was {token}, though its client received a refusal");
                (what, both())
            });
            return None;
        }
        Some(writer)
    }

    /// Reports fields that are as before a write, though they were read after that write was
    /// acknowledged. Returns the lost values.
    fn lost_fields(&mut self, key: u32) -> HashSet<u32> {
        let (model, words) = (self.model, self.words);
        let mut lost = HashSet::new();
        let Some(reader) = self.last_read(key) else { return lost };
        let steps = model.steps_of(reader).iter();
        let mut saw = steps.filter_map(|step| match *step {
            Step::Get { key: of, saw, .. } if of == key && saw < AMBIGUOUS => Some(saw),
            _ => None,
        });
        let Some(fields) = saw.next_back().and_then(|saw| model.fields(key, saw)) else {
            return lost;
        };
        let patches: Vec<(u32, u32, u32)> = self
            .accesses(key)
            .filter_map(|(transaction, step)| match model.steps[step as usize] {
                Step::Patch { value, field, .. } if self.fate(transaction) == Fate::Done => {
                    Some((transaction, value, field))
                }
                _ => None,
            })
            .collect();
        for (writer, value, field) in patches {
            let Some(Some(stands)) = fields.get(field as usize).copied() else { continue };
            let before = self.writers[stands as usize];
            if self.places[value as usize] == 0
                && before < AMBIGUOUS
                && self.answered_before(before, writer)
                && self.answered_before(writer, reader)
            {
                lost.insert(value);
                self.findings.direct(Anomaly::LostWrite, "lost", || {
                    let (value, key) = (words.value(value), words.key(key));
                    let what = format!(
                        "field {field} of {key} was set to {value}, acknowledged, and is what it was before when it is read later"
                    );
                    (what, [before, writer, reader].map(|one| words.transaction(one)).to_vec())
                });
            }
        }
        lost
    }
}
