//! Histories of records whose fields are overwritten, and an exhaustive search over their orders.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::{End, Header, Invoke, Op, Out, Record, RecordHeader, Return};

use super::simulated;

/// Parameters of a random history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) transactions: usize,
    pub(crate) fields: usize,
    pub(crate) keys: usize,
    /// Average number of concurrent transactions.
    pub(crate) overlap: u64,
    /// Percentage of transactions that read.
    pub(crate) reads: u32,
}

/// A transaction and its answer. Each has a process of its own.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    invoked: u64,
    returned: u64,
    /// Reads come before writes.
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Key, fields read, version.
    Get(usize, Vec<u32>, u64),
    /// Key, all fields, returned version.
    Put(usize, Vec<u32>, u64),
    /// Key, field, token.
    Patch(usize, usize, u32),
}

const TOKEN_BYTES: usize = 6;
const FIELD_BYTES: usize = 9;

pub(crate) fn header(fields: usize) -> Header {
    let record =
        RecordHeader { fields, field_bytes: FIELD_BYTES, token_at: 1, token_bytes: TOKEN_BYTES };
    Header { record: Some(record), ..simulated::header() }
}

/// Generates transactions. Each executes at a moment between its invocation and its answer.
pub(crate) fn deeds(plan: Plan) -> Vec<Deed> {
    let Plan { seed, transactions, fields, keys, overlap, reads } = plan;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut tokens = 0..;
    let mut token = move || tokens.next().expect("they have no end");
    let mut records: Vec<(u64, Vec<u32>)> = vec![(0, Vec::new()); keys];
    let mut deeds = Vec::new();
    for i in 0..(keys + transactions) as u64 {
        let loads = i < keys as u64;
        let key = if loads { i as usize } else { random.random_range(0..keys) };
        let version = i + 1;
        let mut steps = Vec::new();
        let hit = random.random_range(0..100);
        if !loads && (hit < reads || hit % 5 == 0) {
            let (version, record) = &records[key];
            steps.push(Step::Get(key, record.clone(), *version));
        }
        if loads || hit == 99 {
            let all: Vec<u32> = (0..fields).map(|_| token()).collect();
            records[key] = (version, all.clone());
            steps.push(Step::Put(key, all, version));
        } else if hit >= reads {
            // Sometimes also a field of another record, or of the same one.
            for _ in 0..=u32::from(hit % 4 == 0) {
                let key = if steps.len() > 1 { random.random_range(0..keys) } else { key };
                let (field, token) = (random.random_range(0..fields), token());
                records[key].0 = version;
                records[key].1[field] = token;
                steps.push(Step::Patch(key, field, token));
            }
        }
        // Transactions execute ten time units apart, and their invocations and answers often
        // coincide.
        let at = (keys as u64 + i) * 10 + 1_000 * u64::from(!loads) * overlap;
        let span = if loads { 1 } else { 10 * overlap };
        let [before, after] = [(); 2].map(|()| random.random_range(0..span));
        deeds.push(Deed { invoked: at - before, returned: at + 1 + after, steps });
    }
    deeds
}

/// Changes one result of a field, or a time. Returns whether there was anything to change.
pub(crate) fn spoil(deeds: &mut [Deed], random: &mut SmallRng) -> bool {
    let saw = |step: &Step| if let Step::Get(_, saw, _) = step { Some(saw.clone()) } else { None };
    let others: Vec<Vec<u32>> = deeds.iter().flat_map(|deed| &deed.steps).filter_map(saw).collect();
    let deed = &mut deeds[random.random_range(0..deeds.len())];
    if let [Step::Get(_, saw, _), ..] = &mut deed.steps[..] {
        let field = random.random_range(0..saw.len());
        let other = others[random.random_range(0..others.len())][field];
        return std::mem::replace(&mut saw[field], other) != other;
    }
    let later = random.random_range(1..60);
    deed.invoked += later;
    deed.returned += later;
    true
}

/// The records of a history in the order of time. Each value has `fields` fields.
pub(crate) fn history(deeds: &[Deed], fields: usize) -> Vec<Record> {
    let text = |tokens: &[u32]| -> String {
        let tokens: Vec<String> =
            tokens.iter().map(|token| format!("{token:0TOKEN_BYTES$}")).collect();
        tokens.concat()
    };
    let mut records = Vec::new();
    for (p, deed) in (1..).zip(deeds) {
        let key = |key: &usize| format!("k{key}");
        let both = |step: &Step| match step {
            Step::Get(at, saw, version) => {
                (Op::Get(key(at)), Out::Value(Some((text(saw), *version))))
            }
            Step::Put(at, all, version) => (Op::Put(key(at), text(all)), Out::Version(*version)),
            Step::Patch(at, field, token) => {
                let length = (fields * FIELD_BYTES) as u64;
                (Op::Patch(key(at), *field, text(&[*token])), Out::Length(length))
            }
        };
        let (ops, out) = deed.steps.iter().map(both).unzip();
        let (guards, otherwise) = (Vec::new(), Vec::new());
        let invoke = Invoke { t: deed.invoked, p, guards, ops, otherwise, stale: false };
        records.push(Record::Invoke(invoke));
        records.push(Record::Ok(Return { t: deed.returned, p, held: true, out }));
    }
    records.sort_by_key(|record| match record {
        Record::Invoke(invoke) => (invoke.t, 0),
        Record::Ok(end) => (end.t, 1),
        _ => unreachable!("there are no others"),
    });
    let end = deeds.iter().map(|deed| deed.returned).max().unwrap_or_default();
    records.push(Record::End(End { t: end + 1 }));
    records
}

/// A record by key: its fields, the last returned version, and whether it was written since.
type Stands = BTreeMap<usize, (Vec<u32>, u64, bool)>;

/// Whether some order in real time explains every answer.
pub(crate) fn explains(deeds: &[Deed]) -> bool {
    fn go_on(deeds: &[Deed], left: u32, records: &Stands) -> bool {
        let waiting = || deeds.iter().enumerate().filter(|(i, _)| left & 1 << i != 0);
        let Some(first) = waiting().map(|(_, deed)| deed.returned).min() else { return true };
        waiting().filter(|(_, deed)| deed.invoked <= first).any(|(i, deed)| {
            let mut records = records.clone();
            let mut wrote = BTreeSet::new();
            let fits = deed.steps.iter().all(|step| match step {
                Step::Get(key, saw, version) => {
                    let (fields, told, written) = records.entry(*key).or_default();
                    let is_it = if *written { version > told } else { version == told };
                    (*told, *written) = (*version, false);
                    is_it && saw == fields
                }
                Step::Put(key, all, version) => {
                    let (fields, told, written) = records.entry(*key).or_default();
                    let fits = *version > *told + u64::from(*written);
                    (*fields, *told, *written) = (all.clone(), *version, false);
                    fits
                }
                Step::Patch(key, field, token) => {
                    let (fields, told, written) = records.entry(*key).or_default();
                    if wrote.insert(*key) {
                        // Each transaction takes one version per key.
                        *told += u64::from(std::mem::replace(written, true));
                    }
                    fields.get_mut(*field).map(|it| *it = *token).is_some()
                }
            });
            fits && go_on(deeds, left & !(1 << i), &records)
        })
    }
    go_on(deeds, (1 << deeds.len()) - 1, &Stands::new())
}
