//! Tests of the stores of this crate, and of copies of them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::Store;
use super::conformance::{Step, conforms, step};
use super::failing::{Failing, Fuse};
use super::memory::Memory;
use super::tracked::{CopyFor, Tracked};

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
        conforms(&mut Memory::default(), steps);
    }

    #[test]
    fn what_owns_its_bytes_conforms(steps in vec(step(), 0..200)) {
        conforms(&mut Failing::default(), steps);
    }

    #[test]
    fn what_is_tracked_conforms(steps in vec(step(), 0..200)) {
        conforms(&mut Tracked::new(Memory::default()), steps.clone());
        conforms(&mut Tracked::new(Failing::default()), steps);
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

#[test]
fn what_is_written_again_waits_until_all_were_copied_again_once() {
    let mut store = Tracked::new(Memory::default());
    store.begin_changes(CopyFor::Replica);
    let put = |store: &mut Tracked<Memory>, key: u8| store.put(&[key], b"", 1).unwrap();
    (0..5).for_each(|key| put(&mut store, key));
    let mut copied = Vec::new();
    for _ in 0..10 {
        store
            .copy_again(CopyFor::Replica, |key, _| {
                copied.push(key[0]);
                false
            })
            .unwrap();
        // One is written all the time.
        put(&mut store, 4);
    }
    copied.truncate(6);
    copied.sort_unstable();
    assert_eq!(copied, [0, 1, 2, 3, 4, 4]);
    assert_eq!(store.behind(CopyFor::Replica), 1);
}
