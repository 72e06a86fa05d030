//! Histories of records whose fields are overwritten, and an exhaustive search over their orders.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_workloads::history::{End, Header, Invoke, Op, Out, Record, RecordHeader, Return};

use super::simulated;

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) transactions: usize,
    pub(crate) fields: usize,
    pub(crate) keys: usize,
    /// How many transactions are under way at a time, about.
    pub(crate) overlap: u64,
    /// Of a hundred transactions, so many read.
    pub(crate) reads: u32,
}

/// One operation on one record, and its answer. A process does nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) invoked: u64,
    pub(crate) returned: u64,
    key: usize,
    op: Set,
    /// A read's, or a put's.
    version: u64,
    /// What a read saw.
    pub(crate) saw: Vec<u32>,
}

/// What is set.
#[derive(Clone, Debug)]
enum Set {
    All(Vec<u32>),
    Field(usize, u32),
    Nothing,
}

const TOKEN_BYTES: usize = 6;
const FIELD_BYTES: usize = 9;

pub(crate) fn header(fields: usize) -> Header {
    let record =
        RecordHeader { fields, field_bytes: FIELD_BYTES, token_at: 1, token_bytes: TOKEN_BYTES };
    Header { record: Some(record), ..simulated::header() }
}

/// Each is done at a moment between the one at which it was asked for and the one at which it was answered.
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
        let op = match random.random_range(0..100) {
            _ if loads => Set::All((0..fields).map(|_| token()).collect()),
            hit if hit < reads => Set::Nothing,
            99 => Set::All((0..fields).map(|_| token()).collect()),
            _ => Set::Field(random.random_range(0..fields), token()),
        };
        let (version, record) = &mut records[key];
        match &op {
            Set::All(all) => (*version, *record) = (i + 1, all.clone()),
            Set::Field(field, token) => {
                *version = i + 1;
                record[*field] = *token;
            }
            Set::Nothing => {}
        }
        // Two moments for each, so that no two of them are the same.
        let at = (keys as u64 + i) * 10 + 1_000 * u64::from(!loads) * overlap;
        let span = if loads { 1 } else { 10 * overlap };
        let [before, after] = [(); 2].map(|()| random.random_range(0..span));
        let saw = if matches!(op, Set::Nothing) { record.clone() } else { Vec::new() };
        let (invoked, returned) = (at - before, at + 1 + after);
        deeds.push(Deed { invoked, returned, key, op, version: *version, saw });
    }
    deeds
}

/// Changes one thing that somebody was told of a field, or when. Returns whether there was anything to change.
pub(crate) fn spoil(deeds: &mut [Deed], random: &mut SmallRng) -> bool {
    let at = random.random_range(0..deeds.len());
    let others: Vec<u32> = deeds.iter().flat_map(|deed| deed.saw.clone()).collect();
    let deed = &mut deeds[at];
    if deed.saw.is_empty() || others.is_empty() {
        let later = random.random_range(1..60);
        deed.invoked += later;
        deed.returned += later;
        return true;
    }
    let field = random.random_range(0..deed.saw.len());
    let other =
        others[random.random_range(0..others.len() / deed.saw.len()) * deed.saw.len() + field];
    std::mem::replace(&mut deed.saw[field], other) != other
}

/// The records of a history, whose records have so many fields, in the order of time.
pub(crate) fn history(deeds: &[Deed], fields: usize) -> Vec<Record> {
    let text = |tokens: &[u32]| -> String {
        tokens.iter().map(|token| format!("{token:0width$}", width = TOKEN_BYTES)).collect()
    };
    let mut records = Vec::new();
    for (p, deed) in (1..).zip(deeds) {
        let key = format!("k{}", deed.key);
        let (op, out) = match &deed.op {
            Set::All(all) => (Op::Put(key, text(all)), Out::Version(deed.version)),
            Set::Field(field, token) => {
                let length = (fields * FIELD_BYTES) as u64;
                (Op::Patch(key, *field, text(&[*token])), Out::Length(length))
            }
            Set::Nothing => (Op::Get(key), Out::Value(Some((text(&deed.saw), deed.version)))),
        };
        let (guards, otherwise) = (Vec::new(), Vec::new());
        let ops = vec![op];
        let invoke = Invoke { t: deed.invoked, p, guards, ops, otherwise, stale: false };
        records.push(Record::Invoke(invoke));
        records.push(Record::Ok(Return { t: deed.returned, p, held: true, out: vec![out] }));
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

/// A record as it stands: its fields, the version that was last told, and whether it was written since.
type Stands = BTreeMap<usize, (Vec<u32>, u64, bool)>;

/// Whether some order of them, in real time, gives every answer.
pub(crate) fn explains(deeds: &[Deed]) -> bool {
    fn go_on(deeds: &[Deed], left: u32, records: &Stands) -> bool {
        let waiting = || deeds.iter().enumerate().filter(|(i, _)| left & 1 << i != 0);
        let Some(first) = waiting().map(|(_, deed)| deed.returned).min() else { return true };
        waiting().filter(|(_, deed)| deed.invoked <= first).any(|(i, deed)| {
            let mut records = records.clone();
            let (fields, told, written) = records.entry(deed.key).or_default();
            let fits = match &deed.op {
                Set::All(all) => {
                    let fits = deed.version > *told + u64::from(*written);
                    (*fields, *told, *written) = (all.clone(), deed.version, false);
                    fits
                }
                Set::Field(field, token) => {
                    let there = !fields.is_empty();
                    if there {
                        fields[*field] = *token;
                        // Each write takes a version of its own.
                        *told += u64::from(std::mem::replace(written, true));
                    }
                    there
                }
                Set::Nothing => {
                    let is_it = if *written { deed.version > *told } else { deed.version == *told };
                    let fits = is_it && deed.saw == *fields;
                    (*told, *written) = (deed.version, false);
                    fits
                }
            };
            fits && go_on(deeds, left & !(1 << i), &records)
        })
    }
    go_on(deeds, (1 << deeds.len()) - 1, &Stands::new())
}
