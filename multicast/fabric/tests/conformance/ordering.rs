//! Promises 1 and 2 between processes and threads that race.

use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::{Fabric, Permission, Source};

use crate::harness::{
    Ground, Harness, WATCHDOG, Wire, ends, keys, look, mail, meet_owner, put, words,
};

const BODY: usize = 128; // words
/// Bodies that may be under way.
const UNDER_WAY: usize = 64;
const LOOKS_MIN: u32 = 100_000;
const WRITES_MIN: u64 = 20_000;

/// A word whose halves are equal.
fn twin(i: u64) -> u64 {
    i << 32 | i
}

fn untwin(word: u64) -> u64 {
    assert_eq!(word >> 32, word & 0xffff_ffff, "half a word: {word:016x}");
    word >> 32
}

/// Writes a word before, a body, and a word after, again and again.
pub(crate) fn writer<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    fabric.send(owner, b"ready").unwrap();
    let (_, letter) = mail(&mut fabric);
    let remotes: Vec<_> = keys(&letter).map(|key| fabric.attach(owner, &key).unwrap()).collect();
    // Each body under way has its own span, because it may be read late.
    let source = fabric.create(UNDER_WAY * BODY * 8, Permission::Shared).unwrap();
    let mut bytes = Vec::new();
    for i in 1.. {
        let at = i as usize % UNDER_WAY * BODY * 8;
        fabric.copy_in(source, at, &twin(i).to_ne_bytes().repeat(BODY));
        put(&mut fabric, remotes[0], 0, twin(i), None);
        let from = Source::Span { region: source, at, len: BODY * 8 };
        fabric.write(remotes[1], 0, from, None).unwrap();
        let last = i.is_multiple_of(UNDER_WAY as u64);
        put(&mut fabric, remotes[2], 0, twin(i), last.then_some(i));
        // No faster than the owner reads. The owner sends a message once it has seen enough.
        let mut waiting = last;
        while waiting {
            waiting = ends(&mut fabric).is_empty();
            if fabric.recv(&mut bytes).is_some() {
                return;
            }
            thread::yield_now();
        }
    }
}

fn race(harness: &impl Ground) {
    let mut owner = harness.join_as_owner();
    let hand = harness.launch("order", "writer");
    let (peer, _) = mail(&mut owner);
    // In three regions, one of them granted: the order is that of the connection and not of the region.
    let before = owner.create(64, Permission::Shared).unwrap();
    let body = owner.create(BODY * 8, Permission::Granted).unwrap();
    let after = owner.create(512 << 10, Permission::Shared).unwrap();
    let granted = owner.grant(body, peer).unwrap();
    let letter = [owner.key(before).0, granted.0, owner.key(after).0].concat();
    owner.send(peer, &letter).unwrap();

    let end = Instant::now() + WATCHDOG;
    let (mut looks, mut torn, mut last) = (0, 0, 0);
    while looks < LOOKS_MIN || last < WRITES_MIN {
        assert!(Instant::now() < end, "only {looks} looks at {last} writes");
        look(&mut owner);
        let seen_after = untwin(owner.load(after, 0));
        let words: Vec<u64> = words(&owner, body, BODY).into_iter().map(untwin).collect();
        let (low, high) = (*words.iter().min().unwrap(), *words.iter().max().unwrap());
        let seen_before = untwin(owner.load(before, 0));
        assert!(last <= seen_after, "a word went back");
        assert!(seen_after <= low, "{seen_after} came before all of its body: {words:?}");
        assert!(high <= seen_before, "body {high} came before {seen_before}");
        torn += u64::from(low != high);
        looks += 1;
        last = seen_after;
    }
    println!("{looks} looks at {last} writes, {torn} of them torn");
    owner.send(peer, b"enough").unwrap();
    hand.finish();
    drop(owner);
    harness.check_empty();
}

#[test]
fn processes_see_writes_in_order_and_words_whole() {
    race(&Harness::of_processes());
}

#[test]
fn threads_see_writes_in_order_and_words_whole() {
    race(&Harness::of_threads());
}

#[test]
fn a_network_shows_writes_in_order_and_words_whole() {
    race(&Wire::plain());
}

#[cfg(feature = "verbs")]
#[test]
fn cards_show_writes_in_order_and_words_whole() {
    if let Some(cards) = crate::harness::Cards::plain() {
        race(&cards);
    }
}

/// A torn body of a kilobyte does not match a checksum that came with it.
#[test]
fn a_torn_body_is_noticed() {
    let harness = Harness::of_processes();
    let mut owner = harness.join_as_owner();
    let hand = harness.launch("order", "writer");
    let (peer, _) = mail(&mut owner);
    let regions = [64, BODY * 8, 64].map(|len| owner.create(len, Permission::Shared).unwrap());
    let letter: Vec<u8> = regions.iter().flat_map(|&region| owner.key(region).0).collect();
    owner.send(peer, &letter).unwrap();
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let sum = |words: &[u64]| words.iter().fold(7, |sum, &word| mix(sum, word));
    let end = Instant::now() + Duration::from_secs(2);
    let (mut torn, mut whole) = (0, 0);
    while Instant::now() < end && (torn < 100 || whole < 100) {
        let seen = words(&owner, regions[1], BODY);
        let (first, last) = (seen[0], seen[BODY - 1]);
        let is_whole = seen.iter().all(|&word| word == first);
        // As if the checksum had come with the first or the last word.
        assert_eq!(sum(&[first; BODY]) == sum(&seen), is_whole);
        assert_eq!(sum(&[last; BODY]) == sum(&seen), is_whole);
        if is_whole { whole += 1 } else { torn += 1 }
    }
    println!("{torn} torn, {whole} whole");
    assert!(whole > 0);
    if torn == 0 {
        println!("torn bodies: none seen on this machine now, so not checked here");
    }
    owner.send(peer, b"enough").unwrap();
    hand.finish();
}
