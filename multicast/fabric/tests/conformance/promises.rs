//! Promises that hold on every backend, tested in one thread.

use std::time::Duration;

use skein_fabric::shm::{Host, ShmFabric};
use skein_fabric::sim::{SimConfig, SimFabric, World};
use skein_fabric::{Fabric, FabricError, MAIL_MAX, Outcome, Permission, Region, RegionKey, Source};

use crate::harness::{ends, put, words};

/// A backend, as these tests need it.
pub(crate) trait Stage {
    type F: Fabric;
    fn join(&self, name: &str) -> Result<Self::F, FabricError>;
    /// Makes the next event happen; false if nothing is under way.
    fn step(&self) -> bool;
    fn settle(&self) {
        while self.step() {}
    }
}

impl Stage for Host {
    type F = ShmFabric;
    fn join(&self, name: &str) -> Result<ShmFabric, FabricError> {
        Host::join(self, name)
    }
    fn step(&self) -> bool {
        false
    }
}

impl Stage for World {
    type F = SimFabric;
    fn join(&self, name: &str) -> Result<SimFabric, FabricError> {
        self.try_join(name)
    }
    fn step(&self) -> bool {
        World::step(self)
    }
}

/// Makes a test of each promise for each backend.
macro_rules! promises {
    ($($name:ident)*) => {
        mod on_files {
            $(#[test] fn $name() {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("host");
                let host = skein_fabric::shm::Host::at(&path).unwrap();
                super::$name(&host);
                assert!(host.live().is_empty());
                assert_eq!(host.bytes_reserved(), 0, "all memory was given back");
                host.remove().unwrap();
                assert!(!path.exists());
            })*
        }
        mod on_anonymous_memory {
            $(#[test] fn $name() {
                let host = skein_fabric::shm::Host::anonymous();
                super::$name(&host);
                assert_eq!(host.bytes_reserved(), 0, "all memory was given back");
            })*
        }
        mod on_a_network {
            use crate::network::Network;
            use skein_fabric::tcp::TcpFabric;
            $(#[test] fn $name() {
                super::$name(&Network::<TcpFabric>::plain());
            })*
        }
        mod on_an_encrypted_network {
            use crate::network::Network;
            use skein_fabric::tcp::TcpFabric;
            $(#[test] fn $name() {
                super::$name(&Network::<TcpFabric>::encrypted());
            })*
        }
        #[cfg(feature = "verbs")]
        mod on_verbs {
            use crate::network::Network;
            use skein_fabric::verbs::VerbsFabric;
            $(#[test] fn $name() {
                if crate::harness::has_adapter() {
                    super::$name(&Network::<VerbsFabric>::plain());
                }
            })*
        }
        mod on_the_simulator {
            $(#[test] fn $name() {
                for seed in 0..50 {
                    println!("seed {seed}");
                    super::$name(&skein_fabric::sim::World::new(seed, Default::default()));
                }
            })*
        }
    };
}

promises! {
    writes_arrive_in_the_order_posted
    nothing_arrives_after_a_revocation
    a_granted_region_is_one_memory_before_under_and_after_its_grants
    what_is_prepared_changes_nothing
    only_the_grantee_may_write_and_every_key_holder_may_read
    a_key_opens_one_grant_of_one_region_of_one_life
    an_untagged_failure_shows_at_the_next_tagged_write
    a_peer_that_left_is_unknown_and_not_denied
    nothing_meant_for_an_earlier_life_reaches_a_later_one
    hanging_up_ends_what_was_attached
    a_name_has_one_live_holder
    spans_tails_and_reads_carry_the_right_bytes
    mail_comes_whole_in_order_and_from_somebody
    a_full_mailbox_is_an_error
    a_destroyed_region_denies
    a_parked_process_has_looked_again
    a_reply_reaches_who_asked
    what_changed_is_found_among_many_words
}

/// A client without a card writes into the memory of processes with cards, under the same promises.
#[cfg(feature = "verbs")]
mod from_a_client_without_a_card {
    use crate::network::Network;
    use skein_fabric::any::AnyFabric;

    macro_rules! promises {
        ($($name:ident)*) => {
            $(#[test] fn $name() {
                if crate::harness::has_adapter() {
                    super::$name(&Network::<AnyFabric>::plain());
                }
            })*
        };
    }

    promises! {
        writes_arrive_in_the_order_posted
        nothing_arrives_after_a_revocation
        a_granted_region_is_one_memory_before_under_and_after_its_grants
        only_the_grantee_may_write_and_every_key_holder_may_read
        a_key_opens_one_grant_of_one_region_of_one_life
        an_untagged_failure_shows_at_the_next_tagged_write
        a_peer_that_left_is_unknown_and_not_denied
        nothing_meant_for_an_earlier_life_reaches_a_later_one
        hanging_up_ends_what_was_attached
        spans_tails_and_reads_carry_the_right_bytes
        mail_comes_whole_in_order_and_from_somebody
        a_full_mailbox_is_an_error
        a_destroyed_region_denies
        a_parked_process_has_looked_again
        a_reply_reaches_who_asked
    }
}

/// Two joined and connected processes.
struct Pair<F> {
    a: F,
    b: F,
    to_a: skein_fabric::Peer,
    to_b: skein_fabric::Peer,
}

fn pair<S: Stage>(stage: &S) -> Pair<S::F> {
    let (mut a, mut b) = (stage.join("a").unwrap(), stage.join("b").unwrap());
    let (to_b, to_a) = (a.dial("b").unwrap(), b.dial("a").unwrap());
    Pair { a, b, to_a, to_b }
}

fn what_changed_is_found_among_many_words<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    let region = b.create(1 << 10, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(region)).unwrap();
    let mut seen = [0; 128];
    assert_eq!(b.changed(region, &seen, 0), None);
    for word in [127, 3, 64] {
        put(&mut a, there, 8 * word, 7, None);
    }
    stage.settle();
    while b.load(region, 8 * 64) == 0 {
        b.poll(&mut Vec::new());
    }
    assert_eq!(
        [0, 3, 4, 65, 128].map(|from| b.changed(region, &seen, from)),
        [Some(3), Some(3), Some(64), Some(127), None]
    );
    assert_eq!(b.changed(region, &seen[..64], 4), None, "what is not asked for");
    for word in [127, 3, 64] {
        seen[word] = 7;
    }
    assert_eq!(b.changed(region, &seen, 0), None);
    b.store(region, 0, 1);
    assert_eq!(b.changed(region, &seen, 0), Some(0), "our own words too");
}

// Promises 1 and 4.
fn writes_arrive_in_the_order_posted<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let shared = b.create(1 << 10, Permission::Shared).unwrap();
    let log = b.create(1 << 10, Permission::Granted).unwrap();
    let key = b.grant(log, to_a).unwrap();
    let shared_there = a.attach(to_b, &b.key(shared)).unwrap();
    let log_there = a.attach(to_b, &key).unwrap();
    for i in 1..=100u64 {
        a.write(log_there, 0, Source::Inline(&i.to_ne_bytes().repeat(20)), None).unwrap();
        put(&mut a, shared_there, 8, i, Some(i));
    }
    a.flush();
    let mut done = 0;
    loop {
        let seen = b.load(shared, 8);
        let log = words(&b, log, 20);
        assert!(log.iter().all(|&word| word >= seen), "{log:?} before {seen}");
        for (tag, outcome) in ends(&mut a) {
            assert_eq!((tag, outcome), (done + 1, Outcome::Done));
            assert!(b.load(shared, 8) >= tag, "done and not there");
            done = tag;
        }
        if !stage.step() {
            break;
        }
    }
    assert_eq!(done, 100);
}

// Promises 1 and 4, from the called process to the caller.
fn a_reply_reaches_who_asked<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let ring = a.create(1 << 10, Permission::Granted).unwrap();
    let key = a.grant(ring, to_b).unwrap();
    let ring_there = b.attach(to_a, &key).unwrap();
    let ours = b.create(1 << 10, Permission::Shared).unwrap();
    for i in 0..8u64 {
        b.store(ours, 8 * i as usize, 100 + i);
    }
    b.write(ring_there, 64, Source::Span { region: ours, at: 0, len: 61 }, Some(1)).unwrap();
    put(&mut b, ring_there, 0, 7, Some(2));
    b.read(ring_there, 64, 16, (ours, 512), 3).unwrap();
    b.flush();
    b.wake(to_a);
    stage.settle();
    let done = |tag| (tag, Outcome::Done);
    assert_eq!(ends(&mut b), [done(1), done(2), done(3)]);
    assert_eq!((a.load(ring, 0), a.load(ring, 64), a.load(ring, 112)), (7, 100, 106));
    assert_eq!(a.load(ring, 120), 107, "a tail");
    assert_eq!((b.load(ours, 512), b.load(ours, 520)), (100, 101));
    a.revoke(ring).unwrap();
    put(&mut b, ring_there, 0, 8, Some(4));
    b.flush();
    stage.settle();
    assert_eq!(ends(&mut b), [(4, Outcome::Denied)]);
    assert_eq!(a.load(ring, 0), 7);
    b.detach(ring_there);
    drop(a);
    stage.settle();
    assert!(b.is_gone(to_a));
}

// Promise 3.
fn nothing_arrives_after_a_revocation<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let log = b.create(1 << 12, Permission::Granted).unwrap();
    for round in 0..20u64 {
        let key = b.grant(log, to_a).unwrap();
        let there = a.attach(to_b, &key).unwrap();
        for i in 1..=10 {
            let bytes = (round * 100 + i).to_ne_bytes().repeat(64);
            a.write(there, 0, Source::Inline(&bytes), Some(i)).unwrap();
        }
        for _ in 0..round * 3 {
            stage.step();
        }
        b.revoke(log).unwrap();
        let kept = words(&b, log, 64);
        put(&mut a, there, 0, u64::MAX, Some(11));
        stage.settle();
        assert_eq!(words(&b, log, 64), kept, "late bytes");
        let ends = ends(&mut a);
        let done = ends.iter().filter(|end| end.1 == Outcome::Done).count();
        assert!(ends[..done].iter().all(|end| end.1 == Outcome::Done), "{ends:?}");
        assert!(ends[done..].iter().all(|end| end.1 == Outcome::Denied), "{ends:?}");
        assert_eq!((ends.len(), ends[10]), (11, (11, Outcome::Denied)));
        if done > 0 {
            let floor = round * 100 + done as u64;
            assert!(kept.iter().all(|&word| word >= floor), "done and not kept: {kept:?}");
        }
        a.detach(there);
    }
}

fn a_granted_region_is_one_memory_before_under_and_after_its_grants<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let log = b.create(1 << 20, Permission::Granted).unwrap();
    b.store(log, 0, 1);
    let key = b.grant(log, to_a).unwrap();
    assert_eq!(b.load(log, 0), 1);
    let there = a.attach(to_b, &key).unwrap();
    put(&mut a, there, 8, 2, Some(0));
    stage.settle();
    b.copy_in(log, 16, &3u64.to_ne_bytes());
    assert_eq!(words(&b, log, 4), [1, 2, 3, 0]);
    b.revoke(log).unwrap();
    b.revoke(log).unwrap();
    b.store(log, 24, 4);
    assert_eq!(words(&b, log, 5), [1, 2, 3, 4, 0]);
    let key = b.grant(log, to_a).unwrap();
    let there = a.attach(to_b, &key).unwrap();
    put(&mut a, there, 32, 5, Some(1));
    stage.settle();
    assert_eq!(words(&b, log, 6), [1, 2, 3, 4, 5, 0]);
    b.destroy(log);
}

fn what_is_prepared_changes_nothing<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let log = b.create(1 << 12, Permission::Granted).unwrap();
    let mut earlier = None;
    for round in 0..16 {
        // Before and after granting and revoking: often enough for everything there is to prepare, or not at all.
        let times = |bit: u32| if round >> bit & 1 == 0 { 0 } else { 3 };
        (0..times(0)).for_each(|_| b.prepare(log));
        let key = b.grant(log, to_a).unwrap();
        let there = a.attach(to_b, &key).unwrap();
        put(&mut a, there, 8 * round as usize, round + 1, Some(0));
        stage.settle();
        assert_eq!(ends(&mut a), [(0, Outcome::Done)]);
        (0..times(1)).for_each(|_| b.prepare(log));
        put(&mut a, there, 8 * 16, round + 1, Some(1));
        stage.settle();
        assert_eq!(ends(&mut a), [(1, Outcome::Done)]);
        (0..times(2)).for_each(|_| b.prepare(log));
        b.revoke(log).unwrap();
        (0..times(3)).for_each(|_| b.prepare(log));
        put(&mut a, there, 0, u64::MAX, Some(2));
        stage.settle();
        assert_ne!(ends(&mut a)[0].1, Outcome::Done, "round {round}");
        let kept: Vec<u64> = (1..=round + 1).chain([0; 16]).take(16).chain([round + 1]).collect();
        assert_eq!(words(&b, log, 17), kept, "round {round}");
        for stale in [Some(key), earlier.replace(key)].into_iter().flatten() {
            if let Ok(there) = a.attach(to_b, &stale) {
                put(&mut a, there, 0, u64::MAX, Some(3));
                stage.settle();
                assert_ne!(ends(&mut a)[0].1, Outcome::Done, "round {round}");
                a.detach(there);
            }
        }
        a.detach(there);
        assert_eq!(words(&b, log, 17), kept, "round {round}");
    }
    b.destroy(log);
}

fn only_the_grantee_may_write_and_every_key_holder_may_read<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let mut c = stage.join("c").unwrap();
    let c_to_b = c.dial("b").unwrap();
    let log = b.create(64, Permission::Granted).unwrap();
    b.store(log, 0, 7);
    let key = b.grant(log, to_a).unwrap();
    let there = a.attach(to_b, &key).unwrap();
    let read_only = c.attach(c_to_b, &key).unwrap();
    let mine = c.create(64, Permission::Shared).unwrap();
    put(&mut c, read_only, 8, 9, Some(1));
    c.read(read_only, 0, 16, (mine, 8), 2).unwrap();
    put(&mut a, there, 16, 5, Some(1));
    stage.settle();
    assert_eq!(ends(&mut c), [(1, Outcome::Denied), (2, Outcome::Done)]);
    assert_eq!(words(&c, mine, 3), [0, 7, 0]);
    assert_eq!(words(&b, log, 3), [7, 0, 5]);
    b.revoke(log).unwrap();
    c.read(read_only, 0, 16, (mine, 8), 3).unwrap();
    stage.settle();
    assert_eq!(ends(&mut c), [(3, Outcome::Denied)]);
}

fn a_key_opens_one_grant_of_one_region_of_one_life<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let log = b.create(64, Permission::Granted).unwrap();
    let first = b.grant(log, to_a).unwrap();
    b.revoke(log).unwrap();
    let second = b.grant(log, to_a).unwrap();
    assert_ne!(first, second);
    let shared = b.create(64, Permission::Shared).unwrap();
    let of_shared = b.key(shared);
    assert!(a.attach(to_b, &of_shared).is_ok());
    b.destroy(shared);
    let reused = b.create(64, Permission::Shared).unwrap();
    let mine = a.create(64, Permission::Shared).unwrap();
    #[rustfmt::skip]
    let stale = [
        (first,                 "of an earlier grant"),
        (of_shared,             "of a region destroyed, whose memory may be another's now"),
        (a.key(mine),           "of another process"),
        (RegionKey([0; 32]),    "of nobody"),
        (RegionKey([0xff; 32]), "garbage"),
    ];
    b.store(log, 0, 7);
    b.store(reused, 0, 7);
    for (key, why) in stale {
        match a.attach(to_b, &key) {
            Err(e) => assert!(matches!(e, FabricError::StaleKey), "{why}: {e}"),
            // Only the region's owner can detect it.
            Ok(remote) => {
                put(&mut a, remote, 0, 9, Some(1));
                a.read(remote, 0, 8, (mine, 0), 2).unwrap();
                stage.settle();
                let denied = [(1, Outcome::Denied), (2, Outcome::Denied)];
                assert_eq!(ends(&mut a), denied, "{why}");
                a.detach(remote);
            }
        }
    }
    assert_eq!((b.load(log, 0), b.load(reused, 0), a.load(mine, 0)), (7, 7, 0));
    assert!(a.attach(to_b, &second).is_ok());
    assert!(a.attach(to_b, &b.key(reused)).is_ok());
    // Every byte of a key counts, or is not used.
    for at in 0..32 {
        let mut key = second;
        key.0[at] ^= 1;
        match a.attach(to_b, &key) {
            Ok(remote) => a.detach(remote),
            Err(e) => assert!(matches!(e, FabricError::StaleKey), "{e}"),
        }
    }
}

// Promise 4.
fn an_untagged_failure_shows_at_the_next_tagged_write<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_a, to_b } = pair(stage);
    let log = b.create(64, Permission::Granted).unwrap();
    let shared = b.create(64, Permission::Shared).unwrap();
    let key = b.grant(log, to_a).unwrap();
    let there = a.attach(to_b, &key).unwrap();
    let elsewhere = a.attach(to_b, &b.key(shared)).unwrap();
    put(&mut a, there, 0, 1, None);
    put(&mut a, elsewhere, 0, 1, Some(1));
    stage.settle();
    assert_eq!(ends(&mut a), [(1, Outcome::Done)]);
    b.revoke(log).unwrap();
    put(&mut a, there, 0, 2, None);
    put(&mut a, elsewhere, 0, 2, Some(2));
    put(&mut a, elsewhere, 0, 3, Some(3));
    stage.settle();
    assert_eq!(ends(&mut a), [(2, Outcome::Denied), (3, Outcome::Done)]);
}

fn a_peer_that_left_is_unknown_and_not_denied<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    let shared = b.create(64, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(shared)).unwrap();
    assert!(!a.is_gone(to_b));
    drop(b);
    assert!(a.is_gone(to_b));
    put(&mut a, there, 0, 1, Some(1));
    stage.settle();
    assert_eq!(ends(&mut a), [(1, Outcome::Unknown)]);
    assert!(matches!(a.dial("b"), Err(FabricError::Unreachable { .. })));
    assert!(matches!(a.dial("nobody"), Err(FabricError::Unreachable { .. })));
    assert!(matches!(a.dial("../b"), Err(FabricError::Unreachable { .. })));
    assert!(matches!(a.send(to_b, b"hello"), Err(FabricError::Gone)));
}

// Promise 7.
fn nothing_meant_for_an_earlier_life_reaches_a_later_one<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    let shared = b.create(64, Permission::Shared).unwrap();
    let key = b.key(shared);
    let there = a.attach(to_b, &key).unwrap();
    a.send(to_b, b"for the first incarnation").unwrap();
    drop(b);
    let mut b = stage.join("b").unwrap();
    let again = b.create(64, Permission::Shared).unwrap();
    put(&mut a, there, 0, 1, Some(1));
    stage.settle();
    assert_eq!(ends(&mut a), [(1, Outcome::Unknown)]);
    assert_eq!(b.load(again, 0), 0);
    assert_eq!(b.recv(&mut Vec::new()), None);
    assert!(a.is_gone(to_b));
    let to_new = a.dial("b").unwrap();
    assert_ne!(to_b, to_new);
    assert!(!a.is_gone(to_new));
    assert!(matches!(a.attach(to_new, &key), Err(FabricError::StaleKey)));
    let there = a.attach(to_new, &b.key(again)).unwrap();
    put(&mut a, there, 0, 2, Some(2));
    stage.settle();
    assert_eq!(b.load(again, 0), 2);
    assert_eq!(ends(&mut a), [(2, Outcome::Done)]);
}

fn hanging_up_ends_what_was_attached<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    assert_eq!(a.dial("b").unwrap(), to_b, "the same peer while it lives");
    let shared = b.create(1 << 10, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(shared)).unwrap();
    for i in 1..=20u64 {
        a.write(there, 0, Source::Inline(&i.to_ne_bytes().repeat(30)), Some(i)).unwrap();
    }
    stage.step();
    stage.step();
    a.hang_up(to_b);
    assert!(a.is_gone(to_b));
    let refused = a.write(there, 0, Source::Inline(&[0; 8]), None);
    assert!(matches!(refused, Err(FabricError::Gone)));
    let again = a.dial("b").unwrap();
    assert_ne!(again, to_b);
    let left = words(&b, shared, 30);
    stage.settle();
    assert_eq!(words(&b, shared, 30), left, "posted before the successor was there");
    assert_eq!(ends(&mut a).len(), 20, "every end is told");
    let there = a.attach(again, &b.key(shared)).unwrap();
    put(&mut a, there, 0, 99, Some(99));
    stage.settle();
    assert_eq!(b.load(shared, 0), 99);
}

fn a_name_has_one_live_holder<S: Stage>(stage: &S) {
    let first = stage.join("n0e1").unwrap();
    assert!(matches!(stage.join("n0e1"), Err(FabricError::NameTaken { .. })));
    drop(first);
    stage.join("n0e1").unwrap();
}

fn spans_tails_and_reads_carry_the_right_bytes<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    let len = 300 << 10;
    let target = b.create(len, Permission::Shared).unwrap();
    let source = a.create(len, Permission::Shared).unwrap();
    let back = a.create(len, Permission::Shared).unwrap();
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8 + 1).collect();
    a.copy_in(source, 0, &bytes);
    let there = a.attach(to_b, &b.key(target)).unwrap();
    for (tag, len) in
        [0, 1, 7, 8, 9, 63, 64, 65, 1000, 4099, 100_000, len - 8].into_iter().enumerate()
    {
        let tag = tag as u64;
        b.copy_in(target, 0, &vec![0; bytes.len()]);
        a.copy_in(back, 0, &vec![0; bytes.len()]);
        let from = Source::Span { region: source, at: 8, len };
        a.write(there, 8, from, Some(2 * tag)).unwrap();
        a.read(there, 8, len, (back, 8), 2 * tag + 1).unwrap();
        stage.settle();
        assert_eq!(ends(&mut a), [(2 * tag, Outcome::Done), (2 * tag + 1, Outcome::Done)]);
        for (name, seen) in [("target", copy(&b, target)), ("back", copy(&a, back))] {
            assert_eq!(seen[8..8 + len], bytes[8..8 + len], "{name}, {len} bytes");
            let untouched = seen[..8].iter().chain(&seen[8 + len..]).all(|&byte| byte == 0);
            assert!(untouched, "{name}, {len} bytes: nothing around them");
        }
    }
}

fn copy<F: Fabric>(fabric: &F, region: Region) -> Vec<u8> {
    let mut bytes = vec![0; 300 << 10];
    fabric.copy_out(region, 0, &mut bytes);
    bytes
}

fn mail_comes_whole_in_order_and_from_somebody<S: Stage>(stage: &S) {
    let (mut a, mut b) = (stage.join("a").unwrap(), stage.join("b").unwrap());
    let to_b = a.dial("b").unwrap();
    let too_long = a.send(to_b, &vec![0; MAIL_MAX + 1]);
    assert!(matches!(too_long, Err(FabricError::Mail { .. })));
    for i in 0..50u8 {
        a.send(to_b, &vec![i; usize::from(i)]).unwrap();
    }
    a.send(to_b, &vec![50; MAIL_MAX]).unwrap();
    let mut from = None;
    for i in 0..=50u8 {
        let mut bytes = Vec::new();
        let sender = loop {
            if let Some(sender) = b.recv(&mut bytes) {
                break sender;
            }
            assert!(stage.step(), "letter {i} is lost");
        };
        assert_eq!(*from.get_or_insert(sender), sender);
        let len = if i == 50 { MAIL_MAX } else { usize::from(i) };
        assert_eq!(bytes, vec![i; len]);
    }
    // The sender is a peer now, and can be answered.
    let to_a = from.unwrap();
    assert_eq!(b.dial("a").unwrap(), to_a);
    b.send(to_a, b"got it").unwrap();
    stage.settle();
    let mut bytes = Vec::new();
    assert_eq!(a.recv(&mut bytes), Some(to_b));
    assert_eq!((bytes.as_slice(), a.recv(&mut Vec::new())), (b"got it".as_slice(), None));
}

fn a_full_mailbox_is_an_error<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    let taken = (0..10_000).take_while(|_| a.send(to_b, b"x").is_ok()).count();
    assert!((1000..10_000).contains(&taken), "{taken} letters");
    assert!(matches!(a.send(to_b, b"x"), Err(FabricError::Mail { .. })));
    stage.settle();
    let read = std::iter::from_fn(|| b.recv(&mut Vec::new())).count();
    assert_eq!(read, taken);
    a.send(to_b, b"x").unwrap();
}

fn a_destroyed_region_denies<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    // Some that go into an arena together, and some that have their own file.
    for len in [64, 64, 4096, 300 << 10] {
        let first = b.create(len, Permission::Shared).unwrap();
        let there = a.attach(to_b, &b.key(first)).unwrap();
        put(&mut a, there, 0, 1, Some(1));
        stage.settle();
        b.destroy(first);
        let second = b.create(len, Permission::Shared).unwrap();
        put(&mut a, there, 0, 2, Some(2));
        stage.settle();
        assert_eq!(ends(&mut a), [(1, Outcome::Done), (2, Outcome::Denied)]);
        assert_eq!(words(&b, second, 8), [0; 8]);
    }
}

// Promise 6, as far as one thread can test it.
fn a_parked_process_has_looked_again<S: Stage>(stage: &S) {
    let Pair { mut a, mut b, to_b, .. } = pair(stage);
    let shared = b.create(64, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(shared)).unwrap();
    let longest = Duration::from_hours(1);
    put(&mut a, there, 0, 1, None);
    a.wake(to_b);
    stage.settle();
    let mut asked = 0;
    b.park(longest, &mut |b| {
        asked += 1;
        b.load(shared, 0) == 0
    });
    assert_eq!(asked, 1);
    // Waiting control messages and completions keep it awake, whatever `idle` returns.
    a.send(to_b, b"hello").unwrap();
    stage.settle();
    b.park(longest, &mut |_| true);
    assert!(b.recv(&mut Vec::new()).is_some());
    put(&mut a, there, 0, 2, Some(1));
    stage.settle();
    a.park(longest, &mut |_| true);
    assert_eq!(ends(&mut a).len(), 1);
}

#[test]
fn a_simulated_world_is_rough_by_default() {
    assert!(SimConfig::default().tear_one_in > 0 && SimConfig::default().late_spans);
}
