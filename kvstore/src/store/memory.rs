//! A store in the memory of this process.
//!
//! Pairs have numbers. One index maps the hash of a key to a number, and another holds all numbers in key order. So a
//! read or an overwrite of an existing key costs one access to the hash index and one to the pair, however many pairs
//! there are. Only new keys, deletions and ranges need the order. The number of a removed pair is reused.

use std::convert::Infallible;
use std::thread;

use super::compact::Compact;
use super::index::Index;
use super::key_order::KeyOrder;
use super::pairs::{Pair, Pairs};
use super::sum::Sum;
use super::{Found, Store};
use crate::command::Version;

/// As many pairs can be freed within a turn.
const PAIRS_FREED_AT_ONCE: usize = 1_000;

/// An in-memory store. With values of 100 bytes it takes at most twice the bytes of its keys and values, as a test
/// shows.
#[derive(Default)]
pub struct Memory {
    pairs: Pairs,
    index: Index,
    order: KeyOrder,
    len: usize,
    bytes: u64,
    digest: u64,
}

impl Pair {
    fn found(&self) -> Found<&[u8]> {
        Found { value: &self.value, version: self.version }
    }
}

impl Memory {
    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |number| self.pairs.get(number).key.as_slice() == key)
    }

    fn add(&mut self, hash: u32, key: &[u8], value: Box<[u8]>, version: Version) {
        self.len += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let sum = Sum::of(key).pair(&value, version);
        self.digest = self.digest.wrapping_add(sum);
        let number = self.pairs.insert(Pair { key: key.into(), value, version, sum });
        self.index.insert(hash, number);
        self.order.insert(number, &self.pairs);
    }
}

impl Store for Memory {
    type Error = Infallible;
    type Guard<'a> = &'a [u8];

    fn get(&self, key: &[u8]) -> Result<Option<Found<&[u8]>>, Infallible> {
        let number = self.find(self.index.hash(key), key);
        Ok(number.map(|number| self.pairs.get(number).found()))
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version) -> Result<(), Infallible> {
        let hash = self.index.hash(key);
        let Some(number) = self.find(hash, key) else {
            self.add(hash, key, value.into(), version);
            return Ok(());
        };
        let pair = self.pairs.get_mut(number);
        let sum = Sum::of(key).pair(value, version);
        self.digest = self.digest.wrapping_sub(pair.sum).wrapping_add(sum);
        self.bytes = self.bytes + value.len() as u64 - pair.value.len() as u64;
        if pair.value.len() == value.len() {
            pair.value.copy_from_slice(value);
        } else {
            pair.value = value.into();
        }
        (pair.version, pair.sum) = (version, sum);
        Ok(())
    }

    fn patch(
        &mut self,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
        version: Version,
    ) -> Result<usize, Infallible> {
        let (hash, end) = (self.index.hash(key), offset + bytes.len());
        let Some(number) = self.find(hash, key) else {
            let mut value = vec![0; end];
            value[offset..].copy_from_slice(bytes);
            self.add(hash, key, value.into(), version);
            return Ok(end);
        };
        let pair = self.pairs.get_mut(number);
        let sum = Sum::of(key);
        let start = offset.min(pair.value.len());
        let changed = |pair: &Pair| {
            let head = sum.head(pair.value.len(), pair.version);
            head.wrapping_add(sum.blocks(&pair.value, start, end))
        };
        let old = changed(pair);
        if end > pair.value.len() {
            let mut value = std::mem::take(&mut pair.value).into_vec();
            self.bytes += (end - value.len()) as u64;
            value.reserve_exact(end - value.len());
            value.resize(end, 0);
            pair.value = value.into();
        }
        pair.value[offset..end].copy_from_slice(bytes);
        pair.version = version;
        let change = changed(pair).wrapping_sub(old);
        pair.sum = pair.sum.wrapping_add(change);
        self.digest = self.digest.wrapping_add(change);
        Ok(pair.value.len())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Infallible> {
        let hash = self.index.hash(key);
        let Some(number) = self.find(hash, key) else { return Ok(false) };
        self.order.remove(number, &self.pairs);
        self.index.remove(hash, number);
        let pair = self.pairs.remove(number);
        self.len -= 1;
        self.bytes -= (key.len() + pair.value.len()) as u64;
        self.digest = self.digest.wrapping_sub(pair.sum);
        Ok(true)
    }

    fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        batch: impl IntoIterator<Item = (K, Option<V>)>,
        version: Version,
    ) -> Result<(), Infallible> {
        for (key, value) in batch {
            match value {
                Some(value) => self.put(key.as_ref(), value.as_ref(), version)?,
                None => _ = self.delete(key.as_ref())?,
            }
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        let old = std::mem::take(self);
        if old.len > PAIRS_FREED_AT_ONCE {
            // Freeing a million pairs takes a tenth of a second, in which others would suspect this process. If no
            // thread can be started, the pairs are freed here.
            let _ = thread::Builder::new().name("free".to_owned()).spawn(move || drop(old));
        }
        Ok(())
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = Result<(&'a [u8], Found<&'a [u8]>), Infallible>> {
        let end = end.map(Compact::from);
        let pairs = self.order.from(&start.into(), &self.pairs).map(|at| self.pairs.get(at));
        let inside = move |pair: &&Pair| end.as_ref().is_none_or(|end| pair.key < *end);
        pairs.take_while(inside).map(|pair| Ok((pair.key.as_slice(), pair.found())))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn digest(&self) -> u64 {
        self.digest
    }
}
