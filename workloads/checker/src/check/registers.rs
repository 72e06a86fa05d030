//! Registers, and other keys of which only versions are used.
//!
//! A version rises with each write of a key, and is returned to each transaction that sets or reads
//! it. So known versions are ordered, whatever unknown ones lie between them.

use super::findings::Anomaly;
use super::infer::{AMBIGUOUS, Inference, Reader, State};
use super::model::{Fate, NONE, Step};

/// The value of a version whose value is not known. It sorts behind all values. Reads of a key
/// without values of its own get it too: the model keeps some of them as lengths, which identify no
/// value.
const UNTOLD: u32 = NONE;

/// A version as one transaction reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    version: u64,
    /// Sets of a version sort before its reads.
    read: bool,
    value: u32,
    transaction: u32,
}

/// A version as all its reports give it.
#[derive(Clone, Copy)]
struct Version {
    /// The write that returned this version.
    setter: Option<Told>,
    /// The first report.
    first: Told,
    /// Whether its value may be from before the history: no earlier version is known.
    is_oldest: bool,
}

impl Inference<'_> {
    /// For a key of which only versions are known. It need not have a value later.
    pub(super) fn versions(&mut self, key: u32) {
        let mut states = Vec::new();
        let mut readers = Vec::new();
        for of in self.told(key, false).chunk_by(|a, b| a.version == b.version) {
            let place = of[0].version;
            if place == 0 {
                continue; // There was no value: before, between, or after.
            }
            let (written, read) = of.split_at(of.partition_point(|one| !one.read));
            states.extend(
                self.setter(key, written).map(|one| State { place, writer: one.transaction }),
            );
            readers.extend(read.iter().map(|one| Reader { place, transaction: one.transaction }));
        }
        self.chain(key, &states, &readers);
    }

    /// `values` is true if each write of the key has a unique value, which identifies it.
    pub(super) fn register(&mut self, key: u32, values: bool) {
        let told = self.told(key, values);
        let last = told.iter().rev().find(|one| one.read).map_or(0, |one| one.version);
        let last_read = self.last_read(key);
        let mut states = Vec::new();
        let mut readers = Vec::new();
        let mut may_be_older = self.model.header.before;
        for of in told.chunk_by(|a, b| a.version == b.version) {
            let version = of[0].version;
            let is_oldest = std::mem::replace(&mut may_be_older, false);
            let writes = of.partition_point(|one| !one.read);
            let (written, read) = of.split_at(writes);
            let setter = self.setter(key, written);
            if let (Some(setter), Some(reader)) = (setter, last_read)
                && version > last
                && self.answered_before(setter.transaction, reader)
            {
                self.lost(key, setter, reader);
                continue;
            }
            let mut writer = setter.map_or(NONE, |one| one.transaction);
            let mut skip = NONE;
            if values {
                let valued = read.partition_point(|one| one.value != UNTOLD);
                let at = Version { setter, first: of[0], is_oldest };
                for values in read[..valued].chunk_by(|a, b| a.value == b.value) {
                    match self.judge(key, at, values[0]) {
                        Judged::By(transaction) => writer = transaction,
                        Judged::Unknown => {}
                        Judged::Wrong => skip = values[0].value,
                    }
                }
            }
            if writer != NONE {
                states.push(State { place: version, writer });
            }
            let place = |one: &Told| Reader { place: version, transaction: one.transaction };
            readers.extend(read.iter().filter(|one| skip == NONE || one.value != skip).map(place));
        }
        self.chain(key, &states, &readers);
    }

    /// The reports of the key's versions, in order.
    fn told(&mut self, key: u32, values: bool) -> Vec<Told> {
        let mut told = Vec::new();
        let accesses: Vec<(u32, u32)> = self.accesses(key).collect();
        for (transaction, step) in accesses {
            if self.fate(transaction) != Fate::Done {
                continue;
            }
            match self.model.steps[step as usize] {
                Step::Put { value, version, .. }
                    if version != 0 && !self.within[step as usize].rewritten =>
                {
                    told.push(Told { version, read: false, value, transaction });
                }
                // A read of the transaction's own write returns the version that the write made.
                Step::Get { version, .. }
                    if !values
                        && version != 0
                        && self.within[step as usize].own
                        && !self.within[step as usize].rewritten =>
                {
                    told.push(Told { version, read: false, value: UNTOLD, transaction });
                }
                Step::Get { saw, version, .. } if !self.within[step as usize].known => {
                    // An absent key has version 0, and a present one a higher version.
                    if values && (saw == NONE) != (version == 0) {
                        let words = self.words;
                        self.findings.direct(Anomaly::WrongReply, "version", || {
                            let what = format!("{} was read at version {version}", words.key(key));
                            (what, vec![words.transaction(transaction)])
                        });
                        continue;
                    }
                    let value = if values { saw } else { UNTOLD };
                    told.push(Told { version, read: true, value, transaction });
                }
                Step::At { version, .. } => {
                    told.push(Told { version, read: true, value: UNTOLD, transaction });
                }
                _ => {}
            }
        }
        told.sort_unstable();
        let same = |one: &mut Told, before: &mut Told| {
            let of = |told: &Told| (told.read, told.version, told.transaction);
            !one.read && of(one) == of(before)
        };
        told.dedup_by(same);
        told
    }

    /// The write that returned a version. Several such writes are a violation.
    fn setter(&mut self, key: u32, written: &[Told]) -> Option<Told> {
        if let [one, other, ..] = written {
            let words = self.words;
            self.findings.direct(Anomaly::LostUpdate, "lost update", || {
                let (key, version) = (words.key(key), one.version);
                let what = format!("two transactions both returned version {version} of {key}");
                (what, [one, other].map(|one| words.transaction(one.transaction)).to_vec())
            });
        }
        written.first().copied()
    }

    fn lost(&mut self, key: u32, setter: Told, reader: u32) {
        let words = self.words;
        self.findings.direct(Anomaly::LostWrite, "lost", || {
            let (key, version) = (words.key(key), setter.version);
            let written = match setter.value {
                UNTOLD => "written".to_owned(),
                value => format!("set to {}", words.value(value)),
            };
            let what = format!(
                "{key} was {written} as version {version}, acknowledged, and is at an earlier version when it is read later"
            );
            (what, [setter.transaction, reader].map(|one| words.transaction(one)).to_vec())
        });
    }

    /// The writer of a value that was read at a version. A value from before the history may be
    /// written again in it. So a value at the oldest known version identifies its writer only if
    /// that write returned this version.
    fn judge(&mut self, key: u32, at: Version, read: Told) -> Judged {
        let Version { setter, first, is_oldest } = at;
        let words = self.words;
        let mut writer = if read.value == NONE { NONE } else { self.writers[read.value as usize] };
        let mut put = self.put_of(writer, read.value);
        if is_oldest && self.version_of(put) != read.version {
            (writer, put) = (NONE, None);
        }
        let both = || vec![words.transaction(writer), words.transaction(read.transaction)];
        if put.is_some_and(|put| self.within[put].rewritten) {
            self.findings.direct(Anomaly::IntermediateRead, "G1b", || {
                let (value, key) = (words.value(read.value), words.key(key));
                let what =
                    format!("{key} was read as {value}, which its transaction then wrote over");
                (what, both())
            });
            return Judged::Wrong;
        }
        if first.value != read.value {
            self.findings.direct(Anomaly::IncompatibleOrder, "incompatible-order", || {
                let show =
                    |value| if value == NONE { "nothing".into() } else { words.value(value) };
                let what = format!(
                    "{} was both {} and {} at version {}",
                    words.key(key),
                    show(first.value),
                    show(read.value),
                    read.version
                );
                (what, [first, read].map(|one| words.transaction(one.transaction)).to_vec())
            });
            return Judged::Wrong;
        }
        if read.value == NONE || is_oldest && writer == NONE {
            return Judged::Unknown;
        }
        let before = std::mem::replace(&mut self.places[read.value as usize], read.version);
        if writer == AMBIGUOUS {
            return Judged::Unknown;
        }
        if writer == NONE {
            self.findings.direct(Anomaly::InventedValue, "garbage", || {
                let what = format!(
                    "{} was {}, which no transaction wrote",
                    words.key(key),
                    words.value(read.value)
                );
                (what, vec![words.transaction(read.transaction)])
            });
            return Judged::Unknown;
        }
        if self.fate(writer) == Fate::Refused {
            self.findings.direct(Anomaly::AbortedRead, "G1a", || {
                let (value, key) = (words.value(read.value), words.key(key));
                let what = format!("{key} was {value}, though its client received a refusal");
                (what, both())
            });
            return Judged::Wrong;
        }
        // It stands at one version, the one that its write returned.
        let told = match self.version_of(put) {
            0 => before,
            told => told,
        };
        if told != 0 && told != read.version {
            self.findings.direct(Anomaly::DuplicateApplication, "duplicate", || {
                let (value, key, version) = (words.value(read.value), words.key(key), read.version);
                (format!("{value} was written to {key} at versions {told} and {version}"), both())
            });
            return Judged::Unknown;
        }
        debug_assert!(setter.is_none_or(|setter| setter.transaction == writer));
        Judged::By(writer)
    }
}

impl Inference<'_> {
    /// The step by which a transaction set a register to a value.
    fn put_of(&self, writer: u32, value: u32) -> Option<usize> {
        if writer >= AMBIGUOUS {
            return None;
        }
        let (from, to) = self.model.range(writer);
        let puts = |at: &usize| matches!(self.model.steps[*at], Step::Put { value: own, .. } if own == value);
        (from..to).find(puts)
    }

    /// The version that the set returned; 0 if it is not known.
    fn version_of(&self, put: Option<usize>) -> u64 {
        match put.map(|put| self.model.steps[put]) {
            Some(Step::Put { version, .. }) => version,
            _ => 0,
        }
    }
}

/// The judgement of a value that was read.
enum Judged {
    /// Written by this transaction.
    By(u32),
    /// The writer is not known.
    Unknown,
    /// It cannot have been read. The read is ignored from here on.
    Wrong,
}
