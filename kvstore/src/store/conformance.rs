//! Tests the promises of [`Store`] against a simple model.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::Store;
use super::failing::{Failing, Fuse};
use super::memory::Memory;
use super::sum::Sum;
use super::tracked::{CopyFor, Tracked};

#[derive(Clone, Debug)]
enum Step {
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

fn step() -> impl Strategy<Value = Step> {
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

fn conforms(mut store: impl Store, steps: Vec<Step>) {
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

fn write<S: Store>(
    store: &mut S,
    step: Step,
    versions: &mut impl Iterator<Item = u64>,
) -> Result<(), S::Error> {
    let version = versions.next().expect("there is always one more");
    match step {
        Step::Put(key, value) => store.put(&key, &value, version)?,
        Step::Patch(key, at, bytes) => _ = store.patch(&key, at, &bytes, version)?,
        Step::Delete(key) => _ = store.delete(&key)?,
        Step::Write(batch) => store.write(batch, version)?,
        Step::Clear | Step::Range(..) => {}
    }
    Ok(())
}

/// Copies up to `pairs` pairs, then up to `again` dirty keys. Returns whether nothing is left to copy.
fn copy_some<S: Store>(
    store: &mut Tracked<S>,
    purpose: CopyFor,
    copy: &mut Memory,
    mut pairs: usize,
    mut again: usize,
) -> Result<bool, S::Error> {
    let walked = store.copy(purpose, |key, found| {
        let Ok(()) = copy.put(key, found.value, found.version);
        pairs -= 1;
        pairs > 0
    })?;
    let clean = store.copy_again(purpose, |key, found| {
        match found {
            Some(found) => copy.put(key, found.value, found.version).unwrap(),
            None => _ = copy.delete(key).unwrap(),
        }
        again -= 1;
        again > 0
    })?;
    Ok(walked && clean)
}

/// The values that a store returns without reading pairs.
fn shown(store: &impl Store) -> (usize, u64, u64) {
    (store.len(), store.bytes(), store.digest())
}

proptest! {
    #[test]
    fn memory_conforms(steps in vec(step(), 0..200)) {
        conforms(Memory::default(), steps);
    }

    #[test]
    fn what_owns_its_bytes_conforms(steps in vec(step(), 0..200)) {
        conforms(Failing::default(), steps);
    }

    #[test]
    fn what_is_tracked_conforms(steps in vec(step(), 0..200)) {
        conforms(Tracked::new(Memory::default()), steps.clone());
        conforms(Tracked::new(Failing::default()), steps);
    }

    /// A call that fails returns an error and has changed nothing.
    #[test]
    fn what_fails_shows_what_it_did_before(steps in vec(step(), 0..60), nth in 1u64..60) {
        let fuse = Fuse::default();
        let mut store = Tracked::new(Failing::with(&fuse));
        store.begin_copy(CopyFor::Replica);
        let (mut copy, mut versions) = (Memory::default(), 1..);
        fuse.burn(nth);
        for step in steps {
            let before = shown(&store);
            let gone_on = write(&mut store, step, &mut versions);
            if gone_on.is_ok() {
                prop_assert!(!fuse.has_failed(), "a write that failed is said to be done");
                let _ = copy_some(&mut store, CopyFor::Replica, &mut copy, 2, 2);
            } else {
                prop_assert_eq!(shown(&store), before);
            }
            if fuse.has_failed() {
                return Ok(());
            }
        }
    }

    #[test]
    fn a_copy_that_cannot_be_read_says_so(steps in vec(step(), 1..60), nth in 1u64..40) {
        let fuse = Fuse::default();
        let mut store = Tracked::new(Failing::with(&fuse));
        store.begin_copy(CopyFor::Replica);
        let (mut copy, mut versions) = (Memory::default(), 1..);
        for step in steps {
            write(&mut store, step, &mut versions).unwrap();
        }
        fuse.burn(nth);
        let copied = loop {
            match copy_some(&mut store, CopyFor::Replica, &mut copy, 3, 3) {
                Ok(false) if !fuse.has_failed() => {}
                end => break end,
            }
        };
        prop_assert_eq!(copied.is_err(), fuse.has_failed());
    }

    /// Once nothing is left to copy, a copy equals the store, whatever was written meanwhile, however little was copied at a
    /// time, and whenever another copy was begun.
    #[test]
    fn a_copy_is_the_store(
        before in vec(step(), 0..60),
        meanwhile in vec((vec(step(), 0..8), 1usize..6, 1usize..6), 0..20),
        later in 0usize..20,
    ) {
        let mut store = Tracked::new(Memory::default());
        let mut versions = 1..;
        for step in before {
            write(&mut store, step, &mut versions).unwrap();
        }
        store.begin_copy(CopyFor::Replica);
        store.begin_copy(CopyFor::Backup);
        let (mut replica, mut backup) = (Memory::default(), Memory::default());
        for (at, (steps, pairs, again)) in meanwhile.into_iter().enumerate() {
            if at == later {
                store.give_up_copy(CopyFor::Backup);
                store.begin_copy(CopyFor::Backup);
                backup = Memory::default();
            }
            copy_some(&mut store, CopyFor::Replica, &mut replica, pairs, again).unwrap();
            copy_some(&mut store, CopyFor::Backup, &mut backup, again, pairs).unwrap();
            for step in steps {
                write(&mut store, step, &mut versions).unwrap();
            }
        }
        for (purpose, mut copy) in [(CopyFor::Replica, replica), (CopyFor::Backup, backup)] {
            while !copy_some(&mut store, purpose, &mut copy, 1, 1).unwrap() {}
            prop_assert_eq!(store.behind(purpose), 0);
            prop_assert!(copy.range(b"", None).eq(store.range(b"", None)));
            prop_assert_eq!((copy.len(), copy.bytes()), (store.len(), store.bytes()));
        }
    }
}
