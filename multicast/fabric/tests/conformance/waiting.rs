//! Promise 6: no process sleeps through a wake-up.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::sim::Rng;
use skein_fabric::wait::{Waiter, Waiting, Yields};
use skein_fabric::{Fabric, Peer, Permission, Region, Remote};

use crate::harness::{Ground, Harness, WATCHDOG, Wire, keys, mail, meet_owner, put};

const ROUNDS: u64 = 20_000;
/// Much longer than a wake-up takes: a process that sleeps this long was not woken.
const FOREVER: Duration = Duration::from_secs(20);

/// Exchanges regions of a word with a peer.
fn meet<F: Fabric>(fabric: &mut F, peer: Peer) -> (Region, Remote) {
    let ours = fabric.create(64, Permission::Shared).unwrap();
    fabric.send(peer, &fabric.key(ours).0).unwrap();
    let (from, letter) = mail(fabric);
    assert_eq!(from, peer);
    let theirs = fabric.attach(peer, &keys(&letter).next().unwrap()).unwrap();
    (ours, theirs)
}

/// Plays ping-pong: parks for every ball, and hits at moments around the other's parking.
fn rally<F: Fabric>(fabric: &mut F, peer: Peer, serve: bool, seed: u64, rounds: u64) {
    let (ours, theirs) = meet(fabric, peer);
    let mut rng = Rng::new(seed);
    let mut naps = 0u64;
    for i in 1..=rounds {
        if !serve || i > 1 {
            let ball = i - u64::from(serve);
            // So that the ball arrives before, while and after we go to sleep.
            for _ in 0..rng.below(200) {
                hint::spin_loop();
            }
            while fabric.load(ours, 0) < ball {
                let before = Instant::now();
                fabric.park(FOREVER, &mut |fabric| {
                    naps += 1;
                    fabric.load(ours, 0) < ball
                });
                assert!(before.elapsed() < FOREVER, "a wake-up was lost at ball {i}");
            }
        }
        for _ in 0..rng.below(200) {
            hint::spin_loop();
        }
        put(fabric, theirs, 0, i, None);
        fabric.flush();
        fabric.wake(peer);
    }
    println!("{rounds} balls, asked {naps} times before sleeping");
}

pub(crate) fn partner<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    fabric.send(owner, b"ready").unwrap();
    let rounds = u64::from_le_bytes(mail(&mut fabric).1.try_into().unwrap());
    rally(&mut fabric, owner, false, 1, rounds);
    mail(&mut fabric);
}

fn play(harness: &impl Ground, rounds: u64) {
    let mut owner = harness.join_as_owner();
    let hand = harness.launch("partner", "partner");
    let (peer, _) = mail(&mut owner);
    owner.send(peer, &rounds.to_le_bytes()).unwrap();
    rally(&mut owner, peer, true, 2, rounds);
    owner.send(peer, b"enough").unwrap();
    hand.finish();
}

/// Plays it with a waiter whose yields were late: it parks for each ball until it may yield again.
fn patient_rally<F: Fabric>(fabric: &mut F, peer: Peer, serve: bool, seed: u64, rounds: u64) {
    let (ours, theirs) = meet(fabric, peer);
    let mut rng = Rng::new(seed);
    let mut yields = Yields::default();
    let mut naps = 0u64;
    let mut waiter = Waiter::new(Waiting::Adaptive);
    for i in 1..=rounds {
        if i % PAUSED_FOR == 1 {
            // As beside a computing thread, yields return late now and then.
            let now = fabric.now();
            yields.returned(now, now + Duration::from_millis(4));
            waiter = Waiter::with_yields(Waiting::Adaptive, yields.clone());
        }
        if !serve || i > 1 {
            let ball = i - u64::from(serve);
            let before = Instant::now();
            for _ in 0..rng.below(200) {
                hint::spin_loop();
            }
            while fabric.load(ours, 0) < ball {
                waiter.idle(fabric, FOREVER, &mut |fabric| {
                    naps += 1;
                    fabric.load(ours, 0) < ball
                });
                assert!(before.elapsed() < FOREVER, "a wake-up was lost at ball {i}");
            }
            waiter.worked(fabric);
        }
        put(fabric, theirs, 0, i, None);
        fabric.flush();
        fabric.wake(peer);
    }
    println!("{rounds} balls, asked {naps} times before sleeping");
    assert!(naps > 0, "nobody slept");
}

/// Balls between two late yields.
const PAUSED_FOR: u64 = 500;

pub(crate) fn patient<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    fabric.send(owner, b"ready").unwrap();
    let rounds = u64::from_le_bytes(mail(&mut fabric).1.try_into().unwrap());
    patient_rally(&mut fabric, owner, false, 1, rounds);
    mail(&mut fabric);
}

fn play_patiently(harness: &impl Ground, rounds: u64) {
    let mut owner = harness.join_as_owner();
    let hand = harness.launch("patient", "partner");
    let (peer, _) = mail(&mut owner);
    owner.send(peer, &rounds.to_le_bytes()).unwrap();
    patient_rally(&mut owner, peer, true, 2, rounds);
    owner.send(peer, b"enough").unwrap();
    hand.finish();
}

#[test]
fn no_wake_up_is_lost_after_late_yields() {
    play_patiently(&Harness::of_processes(), ROUNDS);
    play_patiently(&Harness::of_threads(), ROUNDS);
    play_patiently(&Wire::plain(), ROUNDS / 4);
}

#[test]
fn no_wake_up_is_lost_between_processes() {
    play(&Harness::of_processes(), ROUNDS);
}

#[test]
fn no_wake_up_is_lost_between_threads() {
    play(&Harness::of_threads(), ROUNDS);
}

#[test]
fn no_wake_up_is_lost_on_a_network() {
    play(&Wire::plain(), ROUNDS / 4);
}

#[cfg(feature = "verbs")]
#[test]
fn no_wake_up_is_lost_between_cards() {
    if let Some(cards) = crate::harness::Cards::plain() {
        play(&cards, ROUNDS / 20);
    }
}

/// A peer's core is contended or is not; its bell reports that to a process that wakes it.
#[test]
fn whoever_wakes_a_peer_learns_whether_its_core_is_contended() {
    let harness = Harness::of_threads();
    let (mut one, mut other) = (harness.join_as_owner(), harness.host().join("other").unwrap());
    let peer = one.dial("other").unwrap();
    for contended in [false, true, true, false] {
        other.set_contended(contended);
        assert!(!one.take_contended(), "nobody was woken since");
        one.wake(peer);
        assert_eq!((one.take_contended(), one.take_contended()), (contended, false));
    }
}

/// Sleeps until there is a control message, and answers it.
pub(crate) fn sleeper<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    fabric.send(owner, b"ready").unwrap();
    let mut waiter = Waiter::new(Waiting::Adaptive);
    let mut bytes = Vec::new();
    loop {
        match fabric.recv(&mut bytes) {
            Some(peer) if bytes == b"enough" => {
                return fabric.send(peer, b"bye").unwrap();
            }
            Some(peer) => {
                waiter.worked(&fabric);
                fabric.send(peer, &bytes).unwrap();
            }
            None => waiter.idle(&mut fabric, FOREVER, &mut |_| true),
        }
    }
}

fn mail_wakes(harness: &impl Ground) {
    let mut owner = harness.join_as_owner();
    let hand = harness.launch("sleeper", "sleeper");
    let (peer, _) = mail(&mut owner);
    let mut rng = Rng::new(3);
    for i in 0..200u64 {
        thread::sleep(Duration::from_micros(rng.below(2_000)));
        let before = Instant::now();
        owner.send(peer, &i.to_le_bytes()).unwrap();
        assert_eq!(mail(&mut owner).1, i.to_le_bytes());
        assert!(before.elapsed() < FOREVER, "letter {i} did not wake");
    }
    owner.send(peer, b"enough").unwrap();
    mail(&mut owner);
    hand.finish();
}

#[test]
fn mail_wakes_a_process() {
    mail_wakes(&Harness::of_processes());
}

#[test]
fn mail_wakes_a_thread() {
    mail_wakes(&Harness::of_threads());
}

#[test]
fn mail_wakes_a_process_elsewhere() {
    mail_wakes(&Wire::plain());
}

#[cfg(feature = "verbs")]
#[test]
fn mail_wakes_a_process_with_a_card() {
    if let Some(cards) = crate::harness::Cards::plain() {
        mail_wakes(&cards);
    }
}

/// A process that was stopped in the middle of waking does not keep others from waking.
#[test]
fn a_stopped_waker_keeps_nobody_asleep() {
    a_waker_is_stopped(&Harness::of_processes());
}

#[test]
fn a_stopped_waker_elsewhere_keeps_nobody_asleep() {
    a_waker_is_stopped(&Wire::plain());
}

#[cfg(feature = "verbs")]
#[test]
fn a_stopped_waker_with_a_card_keeps_nobody_asleep() {
    if let Some(cards) = crate::harness::Cards::plain() {
        a_waker_is_stopped(&cards);
    }
}

fn a_waker_is_stopped(harness: &impl Ground) {
    let mut owner = harness.join_as_owner();
    let first = harness.launch("partner", "p1");
    let (stopped, _) = mail(&mut owner);
    owner.send(stopped, &ROUNDS.to_le_bytes()).unwrap();
    let (ours, theirs) = meet(&mut owner, stopped);
    let second = harness.launch("sleeper", "p2");
    let (sleeper, _) = mail(&mut owner);
    let mut balls = 0;
    for round in 0..20 {
        // Some balls, then a stop at any moment of the partner's, waking included.
        for _ in 0..50 {
            balls += 1;
            put(&mut owner, theirs, 0, balls, None);
            owner.wake(stopped);
            let end = Instant::now() + WATCHDOG;
            while owner.load(ours, 0) < balls {
                owner.park(Duration::from_millis(1), &mut |o| o.load(ours, 0) < balls);
                assert!(Instant::now() < end, "no ball {balls}");
            }
        }
        first.stop();
        let before = Instant::now();
        owner.send(sleeper, b"wake me").unwrap();
        let mut bytes = Vec::new();
        while owner.recv(&mut bytes).is_none() {
            owner.park(FOREVER, &mut |_| true);
            assert!(before.elapsed() < FOREVER, "not woken in round {round}");
        }
        first.go_on();
    }
    owner.send(sleeper, b"enough").unwrap();
    mail(&mut owner);
    second.finish();
}

#[cfg(feature = "verbs")]
#[test]
fn who_has_a_card_sleeps_in_full_and_parks_when_idle() {
    if let Some(cards) = crate::harness::Cards::plain() {
        sleeps_in_full(cards.join_as_owner());
        parks_when_idle(cards.join_as_owner());
    }
}

#[test]
fn a_sleeper_sleeps_as_long_as_it_may() {
    sleeps_in_full(Harness::of_threads().join_as_owner());
    sleeps_in_full(Wire::plain().join_as_owner());
}

fn sleeps_in_full<F: Fabric>(mut alone: F) {
    let before = Instant::now();
    alone.park(Duration::from_millis(30), &mut |_| true);
    assert!(before.elapsed() >= Duration::from_millis(25), "{:?}", before.elapsed());
}

/// An idle poll loop with a heartbeat every few milliseconds costs next to nothing.
#[test]
fn an_idle_waiter_parks() {
    parks_when_idle(Harness::of_threads().join_as_owner());
    parks_when_idle(Wire::plain().join_as_owner());
}

fn parks_when_idle<F: Fabric>(mut alone: F) {
    let mut waiter = Waiter::new(Waiting::Adaptive);
    let end = Instant::now() + Duration::from_millis(500);
    let mut polls = 0u64;
    while Instant::now() < end {
        polls += 1;
        waiter.idle(&mut alone, Duration::from_millis(5), &mut |_| true);
    }
    println!("{polls} polls in half a second");
    // 100 naps of a few polls each, and the first few hundred microseconds.
    assert!(polls < 100_000, "{polls} polls");
}
