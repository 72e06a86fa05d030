//! The promises of [`Store`], held against a model that is too simple to be wrong.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::memory::Memory;
use super::sum::Sum;
use super::tracked::Tracked;
use super::{Found, Store};

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Patch(Vec<u8>, usize, Vec<u8>),
    Delete(Vec<u8>),
    Clear,
    Range(Vec<u8>, Option<Vec<u8>>),
}

/// Few keys, so that they meet; some longer than what is kept in place, the empty one too.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop_oneof![Just(0u8), Just(b'a'), Just(0xff)], 0..3),
        1 => (20usize..26).prop_map(|len| vec![b'k'; len]),
        1 => vec(any::<u8>(), 0..40),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let value = || vec(any::<u8>(), 0..40);
    prop_oneof![
        16 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        12 => (key(), 0usize..60, value()).prop_map(|(key, at, bytes)| Step::Patch(key, at, bytes)),
        8 => key().prop_map(Step::Delete),
        1 => Just(Step::Clear),
        4 => (key(), prop::option::of(key())).prop_map(|(start, end)| Step::Range(start, end)),
    ]
}

fn conforms(mut store: impl Store, steps: Vec<Step>) {
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, u64)> = BTreeMap::new();
    for (version, step) in (1..).zip(steps) {
        match step {
            Step::Put(key, value) => {
                store.put(&key, &value, version);
                model.insert(key, (value, version));
            }
            Step::Patch(key, offset, bytes) => {
                let (value, last) = model.entry(key.clone()).or_default();
                value.resize(value.len().max(offset + bytes.len()), 0);
                value[offset..offset + bytes.len()].copy_from_slice(&bytes);
                *last = version;
                assert_eq!(store.patch(&key, offset, &bytes, version), value.len());
            }
            Step::Delete(key) => assert_eq!(store.delete(&key), model.remove(&key).is_some()),
            Step::Clear => {
                store.clear();
                model.clear();
            }
            Step::Range(start, end) => {
                let inside = |key: &[u8]| {
                    key >= start.as_slice() && end.as_deref().is_none_or(|end| key < end)
                };
                let expected = model.iter().filter(|(key, _)| inside(key));
                assert!(
                    store
                        .range(&start, end.as_deref())
                        .map(|(key, found)| (key, found.value, found.version))
                        .eq(expected.map(|(key, (value, at))| (&key[..], &value[..], *at)))
                );
            }
        }
        let sum = |(key, (value, at)): (&Vec<u8>, &(Vec<u8>, u64))| Sum::of(key).pair(value, *at);
        let digest = model.iter().map(sum).fold(0, u64::wrapping_add);
        assert_eq!(store.digest(), digest);
        let bytes: usize = model.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
        assert_eq!((store.len(), store.bytes()), (model.len(), bytes as u64));
    }
    for (key, (value, version)) in &model {
        assert_eq!(store.get(key), Some(Found { value, version: *version }));
    }
    assert_eq!(store.get(b"never put: no key above is made of these bytes"), None);
}

fn write(store: &mut impl Store, step: Step, versions: &mut impl Iterator<Item = u64>) {
    let version = versions.next().expect("there is always one more");
    match step {
        Step::Put(key, value) => store.put(&key, &value, version),
        Step::Patch(key, at, bytes) => _ = store.patch(&key, at, &bytes, version),
        Step::Delete(key) => _ = store.delete(&key),
        Step::Clear | Step::Range(..) => {}
    }
}

/// Copies up to so many pairs, then up to so many again. Returns whether nothing is left.
fn copy_some(
    store: &mut Tracked<Memory>,
    copy: &mut Memory,
    mut pairs: usize,
    mut again: usize,
) -> bool {
    let walked = store.copy(|key, found| {
        copy.put(key, found.value, found.version);
        pairs -= 1;
        pairs > 0
    });
    let clean = store.copy_again(|key, found| {
        match found {
            Some(found) => copy.put(key, found.value, found.version),
            None => _ = copy.delete(key),
        }
        again -= 1;
        again > 0
    });
    walked && clean
}

proptest! {
    #[test]
    fn memory_conforms(steps in vec(step(), 0..200)) {
        conforms(Memory::default(), steps);
    }

    #[test]
    fn what_is_tracked_conforms(steps in vec(step(), 0..200)) {
        conforms(Tracked::new(Memory::default()), steps);
    }

    /// What was copied, and copied again, is at the end what is there, whatever was written
    /// meanwhile and however little was copied at a time.
    #[test]
    fn a_copy_is_the_store(
        before in vec(step(), 0..60),
        meanwhile in vec((vec(step(), 0..8), 1usize..6, 1usize..6), 0..20),
    ) {
        let mut store = Tracked::new(Memory::default());
        let mut versions = 1..;
        for step in before {
            write(&mut store, step, &mut versions);
        }
        store.begin_copy();
        let mut copy = Memory::default();
        for (steps, pairs, again) in meanwhile {
            copy_some(&mut store, &mut copy, pairs, again);
            for step in steps {
                write(&mut store, step, &mut versions);
            }
        }
        while !copy_some(&mut store, &mut copy, 1, 1) {}
        prop_assert!(copy.range(b"", None).eq(store.range(b"", None)));
        prop_assert_eq!((copy.len(), copy.bytes()), (store.len(), store.bytes()));
    }
}
