//! Operations on records: the YCSB core workloads A to F.
//!
//! A record is one value of ten fields of 100 bytes. YCSB's tables have columns; here an update
//! patches the hundred bytes of one field within the value, and reads take the whole record.

use rand::{Rng, RngExt};
use skein_checker::history::RecordHeader;
use skein_kvstore::command::{Operation, Transaction};
use skein_kvstore::reply::Page;

use crate::keys::{self, Distribution};

/// Fields of a record.
pub const FIELDS: usize = 10;
/// Bytes per field.
pub const FIELD_BYTES: usize = 100;
/// Bytes of a record's value.
pub const RECORD_BYTES: usize = FIELDS * FIELD_BYTES;
/// A scan reads 1 to this many records, uniformly distributed.
pub const SCAN_RECORDS_MAX: u32 = 100;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read a record.
    Read,
    /// Overwrite one field of a record.
    Update,
    /// Add a record.
    Insert,
    /// Read some records in key order, starting at a record.
    Scan,
    /// Read a record, then overwrite one field of it.
    ReadModifyWrite,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];
    /// Names in reports.
    pub const NAMES: [&str; 5] = ["read", "update", "insert", "scan", "read_modify_write"];
}

/// One of the core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    pub letter: char,
    /// Short description.
    pub about: &'static str,
    /// Percentage of each kind, in the order of [`Kind::ALL`].
    pub percent: [u8; 5],
    /// Popularity of records.
    pub distribution: Distribution,
}

/// The core workloads.
#[rustfmt::skip]
pub const CORE: [Mix; 6] = {
    use Distribution::{Latest, Zipfian};
    const fn mix(letter: char, about: &'static str, percent: [u8; 5], distribution: Distribution) -> Mix {
        Mix { letter, about, percent, distribution }
    }
    [
        //                               read update insert scan rmw
        mix('a', "update heavy",        [50,  50,    0,     0,   0 ], Zipfian),
        mix('b', "read mostly",         [95,  5,     0,     0,   0 ], Zipfian),
        mix('c', "read only",           [100, 0,     0,     0,   0 ], Zipfian),
        mix('d', "read latest",         [95,  0,     5,     0,   0 ], Latest),
        mix('e', "short ranges",        [0,   0,     5,     95,  0 ], Zipfian),
        mix('f', "read, modify, write", [50,  0,     0,     0,   50], Zipfian),
    ]
};

impl Mix {
    /// The workload with this letter.
    pub fn named(letter: char) -> Option<Self> {
        CORE.into_iter().find(|mix| mix.letter == letter.to_ascii_lowercase())
    }

    /// The percentage of operations of `kind`.
    pub fn percent_of(&self, kind: Kind) -> u8 {
        self.percent[kind as usize]
    }

    /// A random kind in the mix's proportions.
    pub fn draw(&self, random: &mut impl Rng) -> Kind {
        Kind::ALL[draw(self.percent, random)]
    }
}

/// A random index, drawn with these percentages.
pub(crate) fn draw(percent: impl IntoIterator<Item = u8>, random: &mut impl Rng) -> usize {
    let mut drawn: u8 = random.random_range(0..100);
    let found = percent.into_iter().position(|percent| match drawn.checked_sub(percent) {
        Some(rest) => {
            drawn = rest;
            false
        }
        None => true,
    });
    found.expect("shares add up to a hundred")
}

/// Printable random bytes that fields are cut from: drawing each byte anew would cost more than the
/// operation itself.
#[derive(Clone, Debug)]
pub struct Text(Vec<u8>);

impl Text {
    /// Bytes drawn from `random`.
    pub fn new(random: &mut impl Rng) -> Self {
        Self((0..64 << 10).map(|_| random.random_range(b' '..=b'~')).collect())
    }

    /// Appends a field of the record whose key was printed from `hash`: its mark, a unique token,
    /// then text.
    pub(crate) fn field(&self, hash: u64, into: &mut Vec<u8>, random: &mut impl Rng) {
        const TEXT: usize = FIELD_BYTES - MARK - TOKEN;
        let at = random.random_range(0..self.0.len() - TEXT);
        into.extend_from_slice(&mark(hash));
        into.extend_from_slice(&sixths::<TOKEN>(random.random()));
        into.extend_from_slice(&self.0[at..at + TEXT]);
    }

    /// Makes `into` the insertion of record `number`.
    pub fn insert(&self, number: u64, into: &mut Transaction, random: &mut impl Rng) {
        let hash = keys::fnv(number);
        let mut value = Vec::with_capacity(RECORD_BYTES);
        for _ in 0..FIELDS {
            self.field(hash, &mut value, random);
        }
        only(into, Operation::Put { key: keys::key(number), value });
    }

    /// Makes `into` an update of one field of record `number`.
    pub fn update(&self, number: u64, into: &mut Transaction, random: &mut impl Rng) {
        let mut bytes = Vec::with_capacity(FIELD_BYTES);
        self.field(keys::fnv(number), &mut bytes, random);
        let offset = (random.random_range(0..FIELDS) * FIELD_BYTES) as u32;
        only(into, Operation::Patch { key: keys::key(number), offset, bytes });
    }
}

/// Makes `into` a read of record `number`.
pub fn read(number: u64, into: &mut Transaction) {
    only(into, Operation::Get { key: keys::key(number) });
}

/// Makes `into` a scan of `limit` records from `start` on.
pub fn scan(start: Vec<u8>, limit: u32, into: &mut Transaction) {
    only(into, Operation::Scan { start, end: Some(keys::END.to_vec()), limit });
}

fn only(into: &mut Transaction, operation: Operation) {
    into.then.clear();
    into.then.push(operation);
}

/// Length of the mark at the start of every field. It is derived from the record's key, so that a
/// reader detects a value of another record and a torn value.
const MARK: usize = 8;

fn mark(hash: u64) -> [u8; MARK] {
    sixths(hash)
}

/// Whether `field` belongs to the record whose key was printed from `hash`.
pub(crate) fn has_mark(hash: u64, field: &[u8]) -> bool {
    field.starts_with(&mark(hash))
}

/// Length of the token that follows the mark: a random number of 64 bits, unlikely to repeat among
/// a hundred million fields.
const TOKEN: usize = 11;

/// Layout of records in a history.
pub const RECORD: RecordHeader =
    RecordHeader { fields: FIELDS, field_bytes: FIELD_BYTES, token_at: MARK, token_bytes: TOKEN };

/// The low bits of a number, six in a byte.
fn sixths<const N: usize>(number: u64) -> [u8; N] {
    std::array::from_fn(|i| b'0' + (number >> (6 * i) & 0x3F) as u8)
}

/// What is wrong with a record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It must exist: it was loaded, or its insertion was acknowledged.
    #[error("the record is missing")]
    Missing,
    /// Records never change their length.
    #[error("a value of {0} bytes instead of {RECORD_BYTES}")]
    Length(usize),
    /// The mark is of another record or missing.
    #[error("field {0} of the value belongs to another record")]
    Mark(usize),
    /// Out of order, out of the range, or more than the limit.
    #[error("the scan gave {0}")]
    Scan(&'static str),
}

/// Whether `value` is the record whose key was printed from `hash`.
pub fn check_value(hash: u64, value: &[u8]) -> Result<(), Wrong> {
    if value.len() != RECORD_BYTES {
        return Err(Wrong::Length(value.len()));
    }
    match value.chunks_exact(FIELD_BYTES).position(|field| !has_mark(hash, field)) {
        Some(field) => Err(Wrong::Mark(field)),
        None => Ok(()),
    }
}

/// Whether `page` can be the result of a scan of `limit` records from `start`, an existing record
/// if it is `Some`.
pub fn check_page(start: Option<&[u8]>, limit: u32, page: &Page) -> Result<(), Wrong> {
    let pairs = &page.pairs;
    let first = pairs.first().map(|(key, _)| key.as_slice());
    if start.is_some() && start != first {
        return Err(Wrong::Missing);
    }
    if pairs.len() > limit as usize {
        return Err(Wrong::Scan("more records than requested"));
    }
    if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(Wrong::Scan("records out of order"));
    }
    if pairs.last().is_some_and(|(key, _)| key.as_slice() >= keys::END) {
        return Err(Wrong::Scan("a record from beyond its end"));
    }
    // Keys of other users may lie between. They are not checked.
    let ours = pairs.iter().filter_map(|(key, value)| Some((keys::hash_of(key)?, value)));
    ours.into_iter().try_for_each(|(hash, value)| check_value(hash, value))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn every_mix_has_the_proportions_of_its_definition() {
        let mut random = SmallRng::seed_from_u64(3);
        for mix in CORE {
            assert_eq!(mix.percent.iter().sum::<u8>(), 100, "{mix:?}");
            let mut counts = [0u32; 5];
            for _ in 0..100_000 {
                counts[mix.draw(&mut random) as usize] += 1;
            }
            for (kind, count) in Kind::ALL.into_iter().zip(counts) {
                let wanted = u32::from(mix.percent_of(kind)) * 1_000;
                assert!(count.abs_diff(wanted) < 1_000, "{}: {count} {kind:?}", mix.letter);
                assert_eq!(count == 0, wanted == 0, "{}: {kind:?}", mix.letter);
            }
        }
        assert_eq!(Mix::named('E').unwrap().letter, 'e');
        assert_eq!(Mix::named('g'), None);
    }

    fn inserted(number: u64) -> Vec<u8> {
        let mut random = SmallRng::seed_from_u64(number);
        let mut transaction = Transaction::default();
        Text::new(&mut random).insert(number, &mut transaction, &mut random);
        match transaction.then.pop() {
            Some(Operation::Put { key, value }) if key == keys::key(number) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_is_ten_fields_of_a_hundred_printable_bytes_and_stays_so_when_updated() {
        let mut value = inserted(5);
        assert_eq!(value.len(), 1_000);
        assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
        let mut random = SmallRng::seed_from_u64(1);
        let text = Text::new(&mut random);
        let mut transaction = Transaction::default();
        for _ in 0..100 {
            text.update(5, &mut transaction, &mut random);
            let [Operation::Patch { key, offset, bytes }] = &transaction.then[..] else {
                panic!("{transaction:?}")
            };
            assert_eq!((key, bytes.len(), offset % 100), (&keys::key(5), 100, 0));
            let at = *offset as usize;
            value[at..at + 100].copy_from_slice(bytes);
        }
        assert_eq!(check_value(keys::fnv(5), &value), Ok(()));
    }

    #[test]
    fn what_does_not_belong_to_the_record_is_noticed() {
        let (hash, mut value) = (keys::fnv(5), inserted(5));
        assert_eq!(check_value(hash, &value), Ok(()));
        assert_eq!(check_value(hash, &inserted(6)), Err(Wrong::Mark(0)));
        assert_eq!(check_value(hash, &value[..999]), Err(Wrong::Length(999)));
        value[300..400].copy_from_slice(&inserted(6)[300..400]);
        assert_eq!(check_value(hash, &value), Err(Wrong::Mark(3)));
    }

    #[test]
    fn a_page_that_cannot_be_is_noticed() {
        let mut all: Vec<_> = (0..50).map(|n| (keys::key(n), inserted(n))).collect();
        all.sort();
        let start = all[0].0.clone();
        let page = |pairs: &[(Vec<u8>, Vec<u8>)]| Page { pairs: pairs.to_vec(), next: None };
        let mut swapped = page(&all);
        swapped.pairs.swap(3, 4);
        let mut beyond = page(&all);
        beyond.pairs.push((b"user:".to_vec(), vec![]));
        let mut short = page(&all);
        short.pairs[7].1.pop();
        let mut foreign = page(&all[..2]);
        foreign.pairs[1].0 = b"user9x".to_vec();
        #[rustfmt::skip]
        let cases = [
            (page(&all),       50, Ok(()),                                                "as asked"),
            (page(&all[..20]), 50, Ok(()),                                                "the range may end"),
            (foreign,          50, Ok(()),                                                "not ours to check"),
            (page(&all),       49, Err(Wrong::Scan("more records than requested")), "one too many"),
            (page(&all[1..]),  50, Err(Wrong::Missing),                                   "the start exists"),
            (page(&[]),        50, Err(Wrong::Missing),                                   "the start exists"),
            (swapped,          50, Err(Wrong::Scan("records out of order")),              "key order"),
            (beyond,           60, Err(Wrong::Scan("a record from beyond its end")),      "the end"),
            (short,            50, Err(Wrong::Length(999)),                               "values too"),
        ];
        for (page, limit, wanted, because) in cases {
            assert_eq!(check_page(Some(&start), limit, &page), wanted, "{because}");
        }
    }
}
