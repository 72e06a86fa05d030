//! Unordered reads: confirmed reads and reads under leases are as strict as ordered ones; stale reads return values
//! that were written.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skein_client::local::Cluster;
use skein_client::{Client, Operation, Outcome, ReadMode, Transaction, asynchronous};

use crate::clusters::local;

/// Keys in group 1 and in group 0, of two groups.
const IN_G1: &str = "foo";
const IN_G0: &str = "";
/// Timeout for steps that take milliseconds, on a machine with other load.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Modes in which a leader answers alone.
const OF_LEADERS: [ReadMode; 2] = [ReadMode::Confirmed, ReadMode::Lease];

fn get(key: &str) -> Operation {
    Operation::Get { key: key.into() }
}

fn increment(key: &str, by: i64) -> Operation {
    Operation::Increment { key: key.into(), by }
}

fn number(outcome: &Outcome) -> i64 {
    match outcome {
        Outcome::Value(Some((value, _))) => std::str::from_utf8(value).unwrap().parse().unwrap(),
        Outcome::Value(None) => 0,
        other => panic!("{other:?} of a get"),
    }
}

fn reader(cluster: &Cluster, mode: ReadMode) -> Client {
    let mut client = cluster.client().unwrap();
    client.set_timeout(TIMEOUT);
    client.set_read_mode(mode);
    client
}

#[test]
fn a_read_of_a_leader_misses_nothing_that_was_answered() {
    OF_LEADERS.into_iter().for_each(misses_nothing);
}

fn misses_nothing(mode: ReadMode) {
    let cluster = local();
    let (acknowledged, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = cluster.client().unwrap();
            while !stop.load(Ordering::Relaxed) {
                let count = client.increment(IN_G1, 1).unwrap();
                acknowledged.store(count, Ordering::SeqCst);
            }
        });
        let mut client = reader(&cluster, mode);
        for _ in 0..500 {
            let before = acknowledged.load(Ordering::SeqCst);
            let reply = client.transact(&Transaction::of(get(IN_G1))).unwrap();
            let found = number(&reply.outcomes[0]);
            assert!(found >= before, "{before} was acknowledged, and {found} read");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_leader_that_stood_still_while_another_led_answers_nothing_old() {
    OF_LEADERS.into_iter().for_each(answers_nothing_old);
}

fn answers_nothing_old(mode: ReadMode) {
    let cluster = local();
    let (acknowledged, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = cluster.client().unwrap();
            client.set_timeout(TIMEOUT);
            while !stop.load(Ordering::Relaxed) {
                let count = client.increment(IN_G1, 1).unwrap();
                acknowledged.store(count, Ordering::SeqCst);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = reader(&cluster, mode);
                while !stop.load(Ordering::Relaxed) {
                    let before = acknowledged.load(Ordering::SeqCst);
                    let reply = client.transact(&Transaction::of(get(IN_G1))).unwrap();
                    let found = number(&reply.outcomes[0]);
                    assert!(found >= before, "{before} was acknowledged, and {found} read");
                }
            });
        }
        // While the leader is paused, another one is elected and answers; the pause lasts as long as that takes.
        let more_is_written = || {
            let (from, deadline) = (acknowledged.load(Ordering::SeqCst), Instant::now() + TIMEOUT);
            while acknowledged.load(Ordering::SeqCst) < from + 20 {
                if Instant::now() > deadline {
                    stop.store(true, Ordering::Relaxed);
                    panic!("nothing was written for {TIMEOUT:?}");
                }
                thread::yield_now();
            }
        };
        for _ in 0..3 {
            more_is_written();
            if let Some(leader) = cluster.leader_of(1) {
                cluster.pause_node(leader).unwrap();
                more_is_written();
                cluster.resume_node(leader).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn reads_of_several_groups_under_leases_see_one_cut() {
    let cluster = local();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = cluster.client().unwrap();
            while !stop.load(Ordering::Relaxed) {
                let both = Transaction::of(increment(IN_G0, 1)).then(increment(IN_G1, -1));
                client.transact(&both).unwrap();
            }
        });
        let mut client = reader(&cluster, ReadMode::Lease);
        let both = Transaction::of(get(IN_G0)).then(get(IN_G1));
        for _ in 0..300 {
            let outcomes = client.transact(&both).unwrap().outcomes;
            assert_eq!(number(&outcomes[0]) + number(&outcomes[1]), 0, "{outcomes:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn stale_reads_see_what_was_written_in_the_end_and_write_modes_change_nothing() {
    let cluster = local();
    let mut clients: Vec<_> = (0..3).map(|_| reader(&cluster, ReadMode::Stale)).collect();
    assert_eq!(clients[0].increment(IN_G0, 5).unwrap(), 5, "a write is ordered in every mode");
    for client in &mut clients {
        while client.get(IN_G0).unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(client.exists(IN_G0).unwrap());
        assert_eq!(client.scan(&skein_client::KeyRange::all(), 10).unwrap().pairs.len(), 1);
    }
}

#[test]
fn what_confirms_a_read_takes_nothing_of_followers() {
    let cluster = local();
    let mut client = reader(&cluster, ReadMode::Confirmed);
    client.put(IN_G1, "1").unwrap();
    let leader = cluster.leader_of(1).unwrap();
    let others = || (0..3).filter(|node| *node != leader);
    others().for_each(|node| cluster.pause_node(node).unwrap());
    // A paused node first finishes its current turn.
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        assert_eq!(client.get(IN_G1).unwrap().unwrap(), b"1");
    }
    others().for_each(|node| cluster.resume_node(node).unwrap());
    assert_eq!(client.get(IN_G1).unwrap().unwrap(), b"1");
}

#[test]
fn reading_goes_on_when_a_leader_dies() {
    OF_LEADERS.into_iter().for_each(goes_on);
}

fn goes_on(mode: ReadMode) {
    let cluster = local();
    let mut client = reader(&cluster, mode);
    client.put(IN_G0, "0").unwrap();
    client.put(IN_G1, "1").unwrap();
    assert_eq!(client.get(IN_G0).unwrap().unwrap(), b"0");
    cluster.kill_node(0).unwrap();
    assert_eq!(client.get(IN_G0).unwrap().unwrap(), b"0");
    assert_eq!(client.get(IN_G1).unwrap().unwrap(), b"1");
}

#[test]
fn tasks_choose_for_each_call() {
    let cluster = local();
    let client: asynchronous::Client = cluster.async_client().unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        client.put(IN_G1, "1").await.unwrap();
        for mode in [ReadMode::Confirmed, ReadMode::Ordered, ReadMode::Lease] {
            let found = client.with_read_mode(mode).get(IN_G1).await.unwrap();
            assert_eq!(found.as_deref(), Some(&b"1"[..]), "{mode:?}");
        }
    });
}
