//! Where writes belong that nobody saw: somebody wrote over the field of a record before it was read.
//!
//! A value that was seen of a field has one writer, and stood there from that write until after the last read that
//! saw it. So any other write of the field came before that writer, or after those reads. Real time often tells
//! which of the two: a read that was asked for after the write was answered has seen what came later, and a read that
//! was answered before the write was asked for has seen what came earlier.

use std::collections::{HashMap, HashSet};

use super::graph::{Helper, Why};
use super::infer::{AMBIGUOUS, Inference, Reader};
use super::model::{Fate, NEVER, Step};

/// A value of a field, from its write to the last read that saw it.
#[derive(Clone, Copy, Debug)]
struct Stand {
    value: u32,
    writer: u32,
    /// The last version at which it was read.
    place: u64,
    /// The latest moment at which any read was asked for that saw it, or a value before it.
    asked: u64,
    /// The earliest moment at which the writer, or a read that saw it, or that of a value after it, was answered.
    answered: u64,
}

/// The values of the fields of a record that were seen, in the order of its versions.
#[derive(Default)]
pub(super) struct Stands {
    fields: Vec<Vec<Stand>>,
}

/// When reads of a version were asked for and answered: the last and the first of them. Stale reads are left out, for
/// they may see what was there long before they were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) asked: u64,
    pub(super) answered: u64,
}

impl Stands {
    /// A field was seen at a version to hold `value`, of this one writer.
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

    /// Nothing more was seen: makes `asked` and `answered` rise from one to the next.
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
    /// Puts the writes of a record's fields that nobody saw in order with those that were seen. `readers` are in the
    /// order of their places; of values that are `lost` it is known that they have no place.
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
        // All reads of a version come before one junction, and that before each of the writes.
        let mut junctions = HashMap::new();
        for (place, writer) in late {
            let from = readers.partition_point(|reader| reader.place < place);
            let until = readers.partition_point(|reader| reader.place <= place);
            let here = &readers[from..until];
            // They are in order. One that has read there itself comes before itself, which is no news.
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

    /// When the reads among `transactions` were asked for and answered.
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
