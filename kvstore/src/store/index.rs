//! A hash index from keys to the numbers of their pairs.
//!
//! **Invariant (bounded growth step).** A hash table that grows moves all of its entries, and a million entries take
//! longer than a turn may. So the index consists of tables of at most [`TABLE_MAX`] entries, selected by the first bits
//! of the hash. A full table is split in two by one more bit: extendible hashing (Fagin and others, TODS 1979). The
//! directory, which is copied when it doubles, holds only table numbers.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Entries that a table of 4,096 buckets holds before it grows.
const TABLE_MAX: usize = 4_096 / 8 * 7;
/// A table whose hashes share this many bits is not split. So many equal hashes occur only in an attack.
const BITS_MAX: u32 = 18;

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    number: u32,
}

/// The hash of an entry in its table, which uses the first and the last bits of it.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[derive(Default)]
struct Table {
    entries: HashTable<Entry>,
    /// All hashes of the table have the same first `bits` bits. `bits <= Index::bits`.
    bits: u32,
}

pub(super) struct Index {
    hasher: DefaultHashBuilder,
    tables: Vec<Table>,
    /// The directory: table numbers by the first `bits` bits of a hash. Its length is `1 << bits`.
    which: Vec<u32>,
    bits: u32,
}

impl Default for Index {
    fn default() -> Self {
        let (hasher, tables) = (DefaultHashBuilder::default(), vec![Table::default()]);
        Self { hasher, tables, which: vec![0], bits: 0 }
    }
}

impl Index {
    /// The hash of a key, as the other methods take it.
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }

    /// The number that was inserted with this hash and for which `is_it` holds.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let same = |entry: &Entry| entry.hash == hash && is_it(entry.number);
        self.tables[self.table(hash)].entries.find(spread(hash), same).map(|entry| entry.number)
    }

    /// Adds a number, which must not be present.
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        let mut at = self.table(hash);
        while self.tables[at].entries.len() >= TABLE_MAX && self.tables[at].bits < BITS_MAX {
            self.split(at, hash);
            at = self.table(hash);
        }
        let entry = Entry { hash, number };
        self.tables[at].entries.insert_unique(spread(hash), entry, |it| spread(it.hash));
    }

    /// Removes a number, which must be present.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let at = self.table(hash);
        let found = self.tables[at].entries.find_entry(spread(hash), |it| it.number == number);
        found.unwrap_or_else(|_| unreachable!("it was inserted")).remove();
    }

    /// Number of the table for `hash`.
    fn table(&self, hash: u32) -> usize {
        self.which[first(hash, self.bits)] as usize
    }

    /// Splits table `at`, which is the table for `hash`.
    fn split(&mut self, at: usize, hash: u32) {
        if self.tables[at].bits == self.bits {
            self.which = self.which.iter().flat_map(|table| [*table; 2]).collect();
            self.bits += 1;
        }
        let bits = self.tables[at].bits + 1;
        let entries = std::mem::take(&mut self.tables[at].entries);
        let half = || Table { entries: HashTable::with_capacity(TABLE_MAX / 2), bits };
        let mut halves = [half(), half()];
        for entry in entries {
            let half = &mut halves[first(entry.hash, bits) & 1];
            half.entries.insert_unique(spread(entry.hash), entry, |it| spread(it.hash));
        }
        let [low, high] = halves;
        self.tables[at] = low;
        self.tables.push(high);
        let new = (self.tables.len() - 1) as u32;
        let each = 1 << (self.bits - bits);
        let from = (first(hash, bits) | 1) * each;
        self.which[from..from + each].fill(new);
    }
}

/// The first `bits` bits of a hash.
fn first(hash: u32, bits: u32) -> usize {
    (u64::from(hash) >> (u32::BITS - bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of three kinds: spread evenly, equal in their first bits, and all equal.
    fn hash(i: u32) -> u32 {
        match i % 3 {
            0 => i.wrapping_mul(0x9E37_79B9),
            1 => i / 3,
            _ => 0xABCD_EF01,
        }
    }

    #[test]
    fn what_was_inserted_is_found_however_hashes_meet() {
        const ALL: u32 = 24_000;
        let mut index = Index::default();
        for i in 0..ALL {
            index.insert(hash(i), i);
        }
        assert!(index.tables.len() > 5, "{} tables", index.tables.len());
        let longest = index.tables.iter().map(|table| table.entries.len()).max();
        assert!(longest >= Some(TABLE_MAX), "hashes that are the same are kept together");
        let find = |index: &Index, i: u32| index.find(hash(i), |number| number == i);
        assert!((0..ALL).step_by(7).all(|i| find(&index, i) == Some(i)));
        (0..ALL).step_by(2).for_each(|i| index.remove(hash(i), i));
        assert!((0..ALL).step_by(7).all(|i| find(&index, i) == (i % 2 == 1).then_some(i)));
    }

    #[test]
    fn no_table_is_larger_than_a_turn_can_move() {
        let mut index = Index::default();
        for i in 0..200_000u64 {
            index.insert(index.hash(&i.to_le_bytes()), i as u32);
            if i % 10_000 == 0 {
                assert!(index.tables.iter().all(|table| table.entries.len() <= TABLE_MAX));
            }
        }
        let bits = |table: &Table| f64::from(table.bits).exp2().recip();
        let whole: f64 = index.tables.iter().map(bits).sum();
        assert!((whole - 1.0).abs() < 1e-9, "each hash has one table");
    }
}
