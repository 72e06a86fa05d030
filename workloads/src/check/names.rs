//! Texts that stand for something, each kept once: keys, and the values of a key.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Texts, numbered in the order in which they were first met. The same text in two scopes has two
/// numbers: a value names its writer only together with its key.
#[derive(Default)]
pub(super) struct Names {
    text: Vec<u8>,
    ends: Vec<usize>,
    scopes: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
    /// The number of `text` in `scope`.
    pub(super) fn intern(&mut self, scope: u32, text: &[u8]) -> u32 {
        if let Some(number) = self.find(scope, text) {
            return number;
        }
        let number = self.ends.len() as u32;
        self.text.extend_from_slice(text);
        self.ends.push(self.text.len());
        self.scopes.push(scope);
        let Self { text: all, ends, scopes, table, hasher } = self;
        table.insert_unique(hasher.hash_one((scope, text)), number, |number| {
            hasher.hash_one((scopes[*number as usize], slice(all, ends, *number)))
        });
        number
    }

    /// The same, if it was met before.
    pub(super) fn find(&self, scope: u32, text: &[u8]) -> Option<u32> {
        let same =
            |number: &u32| self.scopes[*number as usize] == scope && self.bytes(*number) == text;
        self.table.find(self.hasher.hash_one((scope, text)), same).copied()
    }

    pub(super) fn bytes(&self, number: u32) -> &[u8] {
        slice(&self.text, &self.ends, number)
    }

    /// The text with this number.
    pub(super) fn text(&self, number: u32) -> &str {
        std::str::from_utf8(self.bytes(number)).expect("what was interned was text")
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn slice<'a>(text: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let at = number as usize;
    let start = at.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start..ends[at]]
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
