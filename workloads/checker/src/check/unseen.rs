//! OrderReport of the writes of a record's fields that were overwritten before they were read.
//!
//! An observed value of a field has one writer, and stood from that write until after the last read
//! that observed it. So any other write of the field precedes that writer or follows those reads.
//! Real time often decides which: a read invoked after the write was answered observed the write or
//! a later one, and a read answered before the write was invoked observed an earlier one.

use std::collections::{HashMap, HashSet};

use super::graph::{Helper, Why};
use super::infer::{AMBIGUOUS, Inference, Reader};
use super::model::{Fate, NEVER, Step};

/// A value of a field, from its write to the last read that observed it.
#[derive(Clone, Copy, Debug)]
struct Stand {
    value: u32,
    writer: u32,
    /// The last version at which it was read.
    place: u64,
    /// Latest invocation of a read that observed this value or an earlier one.
    asked: u64,
    /// Earliest answer of the writer, of a read that observed this value, or of the same for a
    /// later value.
    answered: u64,
}

/// The observed values of the fields of a record, in the order of versions.
#[derive(Default)]
pub(super) struct Stands {
    fields: Vec<Vec<Stand>>,
}

/// Latest invocation and earliest answer of the reads of a version. Stale reads are left out,
/// because they may observe a state from long before their invocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) asked: u64,
    pub(super) answered: u64,
}

impl Stands {
    /// Takes the observation at a version that a field holds `value`, written by `writer`.
    pub(super) fn saw(&mut self, field: usize, value: u32, writer: u32, place: u64, span: Span) {
        if self.fields.len() <= field {
            self.fields.resize_with(field + 1, Vec::new);
        }
        match self.fields[field].last_mut() {
            Some(stand) if stand.value == value => {
                stand.place = place;
                stand.asked = stand.asked.max(span.asked);
                stand.answered = stand.answered.min(span.answered);
            }
            _ => {
                let Span { asked, answered } = span;
                self.fields[field].push(Stand { value, writer, place, asked, answered });
            }
        }
    }

    /// Makes `asked` and `answered` non-decreasing in the order of versions.
    fn finish(&mut self) {
        for stands in &mut self.fields {
            for i in 1..stands.len() {
                stands[i].asked = stands[i].asked.max(stands[i - 1].asked);
            }
            for i in (1..stands.len()).rev() {
                stands[i - 1].answered = stands[i - 1].answered.min(stands[i].answered);
            }
        }
    }
}

impl Inference<'_> {
    /// Orders the unobserved writes of a record's fields relative to the observed ones. `readers`
    /// are sorted by position. Values in `lost` have no position.
    pub(super) fn unseen(
        &mut self,
        key: u32,
        mut stands: Stands,
        readers: &[Reader],
        lost: &HashSet<u32>,
    ) {
        stands.finish();
        let mut hidden = Vec::new();
        let mut late: Vec<(u64, u32)> = Vec::new();
        for (writer, step) in self.accesses(key) {
            let Step::Patch { value, field, .. } = self.model.steps[step as usize] else {
                continue;
            };
            let is_unseen = self.fate(writer) == Fate::Done
                && self.places[value as usize] == 0
                && self.writers[value as usize] < AMBIGUOUS
                && !lost.contains(&value);
            let Some(stands) = stands.fields.get(field as usize).filter(|_| is_unseen) else {
                continue;
            };
            let one = self.model.transactions[writer as usize];
            let later = stands.partition_point(|stand| stand.asked <= one.returned);
            if let Some(stand) = stands.get(later).filter(|stand| stand.writer != writer) {
                hidden.push((writer, stand.writer));
            }
            let earlier = stands.partition_point(|stand| stand.answered < one.invoked);
            if let Some(stand) = earlier.checked_sub(1).map(|last| stands[last])
                && stand.writer != writer
            {
                late.push((stand.place, writer));
            }
        }
        for (from, to) in hidden {
            self.builder.edge(from, to, Why::Hidden, key);
        }
        // All reads of a version precede one junction, and the junction precedes each of the
        // writes.
        let mut junctions = HashMap::new();
        for (place, writer) in late {
            let from = readers.partition_point(|reader| reader.place < place);
            let until = readers.partition_point(|reader| reader.place <= place);
            let here = &readers[from..until];
            // The readers are sorted. A writer that read this version itself needs no edge to
            // itself.
            if here.binary_search(&Reader { place, transaction: writer }).is_ok() {
                continue;
            }
            let junction = *junctions.entry(place).or_insert_with(|| {
                let junction = self.builder.helper(Helper::Junction);
                for reader in here {
                    self.builder.edge(reader.transaction, junction, Why::Late, key);
                }
                junction
            });
            self.builder.edge(junction, writer, Why::Via, key);
        }
    }

    /// Latest invocation and earliest answer of the reads among `transactions`.
    pub(super) fn span(&self, transactions: impl Iterator<Item = u32>) -> Span {
        let mut span = Span { asked: 0, answered: NEVER };
        for transaction in transactions {
            let one = self.model.transactions[transaction as usize];
            if !one.stale {
                span.asked = span.asked.max(one.invoked);
                span.answered = span.answered.min(one.returned);
            }
        }
        span
    }
}
