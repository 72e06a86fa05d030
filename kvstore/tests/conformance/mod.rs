//! Tests the promises of [`Store`] against a simple model.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use skein_kvstore::store::Store;
use skein_kvstore::store::sum::Sum;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put(Vec<u8>, Vec<u8>),
    Patch(Vec<u8>, usize, Vec<u8>),
    Delete(Vec<u8>),
    Write(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    Clear,
    Range(Vec<u8>, Option<Vec<u8>>),
}

/// Few distinct keys, so that steps concern the same one; some are too long to be kept in place, and some are empty.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop_oneof![Just(0u8), Just(b'a'), Just(0xff)], 0..3),
        1 => (20usize..26).prop_map(|len| vec![b'k'; len]),
        1 => vec(any::<u8>(), 0..40),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let value = || vec(any::<u8>(), 0..40);
    prop_oneof![
        16 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        12 => (key(), 0usize..60, value()).prop_map(|(key, at, bytes)| Step::Patch(key, at, bytes)),
        8 => key().prop_map(Step::Delete),
        4 => btree_map(key(), prop::option::of(value()), 0..6).prop_map(Step::Write),
        1 => Just(Step::Clear),
        4 => (key(), prop::option::of(key())).prop_map(|(start, end)| Step::Range(start, end)),
    ]
}

/// Calls an empty `store`, and compares what it returns with the model.
pub(crate) fn conforms(store: &mut impl Store, steps: Vec<Step>) {
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, u64)> = BTreeMap::new();
    for (version, step) in (1..).zip(steps) {
        match step {
            Step::Put(key, value) => {
                store.put(&key, &value, version).unwrap();
                model.insert(key, (value, version));
            }
            Step::Patch(key, offset, bytes) => {
                let (value, last) = model.entry(key.clone()).or_default();
                value.resize(value.len().max(offset + bytes.len()), 0);
                value[offset..offset + bytes.len()].copy_from_slice(&bytes);
                *last = version;
                assert_eq!(store.patch(&key, offset, &bytes, version).unwrap(), value.len());
            }
            Step::Delete(key) => {
                assert_eq!(store.delete(&key).unwrap(), model.remove(&key).is_some());
            }
            Step::Write(batch) => {
                store.write(batch.clone(), version).unwrap();
                for (key, value) in batch {
                    match value {
                        Some(value) => _ = model.insert(key, (value, version)),
                        None => _ = model.remove(&key),
                    }
                }
            }
            Step::Clear => {
                store.clear().unwrap();
                model.clear();
            }
            Step::Range(start, end) => {
                let inside = |key: &[u8]| {
                    key >= start.as_slice() && end.as_deref().is_none_or(|end| key < end)
                };
                let expected = model.iter().filter(|(key, _)| inside(key));
                let expected = expected.map(|(key, (value, at))| (&key[..], &value[..], *at));
                let pairs: Vec<_> =
                    store.range(&start, end.as_deref()).map(Result::unwrap).collect();
                let found = pairs.iter().map(|(key, it)| (&key[..], &it.value[..], it.version));
                assert!(found.eq(expected));
            }
        }
        let sum = |(key, (value, at)): (&Vec<u8>, &(Vec<u8>, u64))| Sum::of(key).pair(value, *at);
        let digest = model.iter().map(sum).fold(0, u64::wrapping_add);
        assert_eq!(store.digest(), digest);
        let bytes: usize = model.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
        assert_eq!((store.len(), store.bytes()), (model.len(), bytes as u64));
    }
    for (key, (value, version)) in &model {
        let found = store.get(key).unwrap().expect("it was put");
        assert_eq!((&*found.value, found.version), (&value[..], *version));
    }
    let found = store.get(b"never put: no key above is made of these bytes").unwrap();
    assert!(found.is_none());
}
