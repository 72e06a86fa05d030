//! The promises of [`Store`], held against a model that is too simple to be wrong.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::memory::Memory;
use super::{Found, Store};

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Patch(Vec<u8>, usize, Vec<u8>),
    Delete(Vec<u8>),
    Range(Vec<u8>, Option<Vec<u8>>),
}

/// Few keys, so that they meet; some longer than what a tree keeps in place, the empty one too.
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
        4 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (key(), 0usize..60, value()).prop_map(|(key, at, bytes)| Step::Patch(key, at, bytes)),
        2 => key().prop_map(Step::Delete),
        1 => (key(), prop::option::of(key())).prop_map(|(start, end)| Step::Range(start, end)),
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
        let bytes: usize = model.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
        assert_eq!((store.len(), store.bytes()), (model.len(), bytes as u64));
    }
    for (key, (value, version)) in &model {
        assert_eq!(store.get(key), Some(Found { value, version: *version }));
    }
    assert_eq!(store.get(b"never put: no key above is made of these bytes"), None);
}

proptest! {
    #[test]
    fn memory_conforms(steps in vec(step(), 0..200)) {
        conforms(Memory::default(), steps);
    }
}
