//! A store in this process's memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::thread;

use super::compact::Compact;
use super::{Found, Store};
use crate::command::Version;

/// To free so many pairs takes no longer than a turn may.
const PAIRS_FREED_AT_ONCE: usize = 1_000;

/// A tree with the keys, if they are short, in its nodes. For values of 100 bytes it takes at most
/// twice the bytes of keys and values; a test counts them.
#[derive(Default)]
pub struct Memory {
    map: Map,
    bytes: u64,
}

struct Pair {
    // Boxed to its length: spare room in a million values is memory nobody asked for.
    value: Box<[u8]>,
    version: Version,
}

impl Pair {
    fn found(&self) -> Found<'_> {
        Found { value: &self.value, version: self.version }
    }
}

type Map = BTreeMap<Compact, Pair>;

fn pair_mut<'a>(map: &'a mut Map, key: &[u8]) -> Option<&'a mut Pair> {
    match Compact::in_place(key) {
        Some(key) => map.get_mut(&key),
        None => map.get_mut(key),
    }
}

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Option<Found<'_>> {
        let pair = match Compact::in_place(key) {
            Some(key) => self.map.get(&key),
            None => self.map.get(key),
        };
        pair.map(Pair::found)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) {
        self.bytes += value.len() as u64;
        let Some(pair) = pair_mut(&mut self.map, key) else {
            self.bytes += key.len() as u64;
            self.map.insert(key.into(), Pair { value: value.into(), version });
            return;
        };
        self.bytes -= pair.value.len() as u64;
        if pair.value.len() == value.len() {
            pair.value.copy_from_slice(value);
        } else {
            pair.value = value.into();
        }
        pair.version = version;
    }

    fn patch(&mut self, key: &[u8], offset: usize, bytes: &[u8], version: Version) -> usize {
        let end = offset + bytes.len();
        let Some(pair) = pair_mut(&mut self.map, key) else {
            let mut value = vec![0; end];
            value[offset..].copy_from_slice(bytes);
            self.bytes += (key.len() + end) as u64;
            self.map.insert(key.into(), Pair { value: value.into(), version });
            return end;
        };
        if end > pair.value.len() {
            let mut value = std::mem::take(&mut pair.value).into_vec();
            self.bytes += (end - value.len()) as u64;
            value.reserve_exact(end - value.len());
            value.resize(end, 0);
            pair.value = value.into();
        }
        pair.value[offset..end].copy_from_slice(bytes);
        pair.version = version;
        pair.value.len()
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let removed = self.map.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |pair| (key.len() + pair.value.len()) as u64);
        removed.is_some()
    }

    fn clear(&mut self) {
        self.bytes = 0;
        let old = std::mem::take(&mut self.map);
        if old.len() > PAIRS_FREED_AT_ONCE {
            // A million take a tenth of a second, in which whoever calls would seem dead to others.
            // If no thread is to be had, they are freed here after all.
            let _ = thread::Builder::new().name("free".to_owned()).spawn(move || drop(old));
        }
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Found<'a>)> {
        // The map would panic at a range that ends before it starts; to us it is an empty one.
        let bounds = match end {
            Some(end) if end <= start => (Bound::Included(start), Bound::Excluded(start)),
            Some(end) => (Bound::Included(start), Bound::Excluded(end)),
            None => (Bound::Included(start), Bound::Unbounded),
        };
        self.map.range::<[u8], _>(bounds).map(|(key, pair)| (key.as_slice(), pair.found()))
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
