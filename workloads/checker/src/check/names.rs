//! Interned texts: keys, and the values of a key.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Texts, numbered in the order of their first occurrence. The same text in two scopes has two
/// numbers: a value identifies its writer only together with its key.
///
/// A history of a million transactions has millions of texts, so a look-up costs its cache misses:
/// one line of each vector and of the table.
#[derive(Default)]
pub(super) struct Names {
    text: Vec<u8>,
    all: Vec<Name>,
    table: HashTable<Entry>,
    hasher: DefaultHashBuilder,
}

/// Position of a text, and its scope.
#[derive(Clone, Copy)]
struct Name {
    start: usize,
    len: u32,
    scope: u32,
}

/// An entry of the table with half of its hash: most other texts are excluded without reading them,
/// and the table grows without rehashing them.
#[derive(Clone, Copy)]
struct Entry {
    number: u32,
    hash: u32,
}

impl Entry {
    /// The hash in the table.
    fn spread(self) -> u64 {
        u64::from(self.hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl Names {
    /// The number of `text` in `scope`. Interns it if it is new.
    ///
    /// # Panics
    ///
    /// If the text is longer than 4 GiB, or is the 2^32nd.
    pub(super) fn intern(&mut self, scope: u32, text: &[u8]) -> u32 {
        let hash = self.hash(scope, text);
        if let Some(number) = self.look(hash, scope, text) {
            return number;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 texts");
        let len = u32::try_from(text.len()).expect("a text of less than 4 GiB");
        self.all.push(Name { start: self.text.len(), len, scope });
        self.text.extend_from_slice(text);
        let entry = Entry { number, hash };
        self.table.insert_unique(entry.spread(), entry, |entry| entry.spread());
        number
    }

    /// The number of `text` in `scope`, if it was interned.
    pub(super) fn find(&self, scope: u32, text: &[u8]) -> Option<u32> {
        self.look(self.hash(scope, text), scope, text)
    }

    fn hash(&self, scope: u32, text: &[u8]) -> u32 {
        (self.hasher.hash_one((scope, text)) >> 32) as u32
    }

    fn look(&self, hash: u32, scope: u32, text: &[u8]) -> Option<u32> {
        let is_it = |entry: &Entry| {
            let is_near = entry.hash == hash && self.all[entry.number as usize].scope == scope;
            is_near && self.bytes(entry.number) == text
        };
        let wanted = Entry { number: 0, hash };
        self.table.find(wanted.spread(), is_it).map(|entry| entry.number)
    }

    pub(super) fn bytes(&self, number: u32) -> &[u8] {
        let Name { start, len, .. } = self.all[number as usize];
        &self.text[start..start + len as usize]
    }

    /// The text with this number.
    pub(super) fn text(&self, number: u32) -> &str {
        std::str::from_utf8(self.bytes(number)).expect("what was interned was text")
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_in_each_scope() {
        let mut names = Names::default();
        let numbers: Vec<u32> =
            (0..2_000u32).map(|i| names.intern(i % 2, (i / 2).to_string().as_bytes())).collect();
        assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
        assert_eq!((names.intern(1, b"7"), names.find(0, b"7")), (15, Some(14)));
        assert_eq!((names.text(15), names.find(2, b"7"), names.len()), ("7", None, 2_000));
        assert_eq!((names.intern(0, b""), names.text(2_000)), (2_000, ""));
    }
}
