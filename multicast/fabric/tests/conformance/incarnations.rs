//! Promise 7 with processes that are killed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use skein_fabric::shm::Host;
use skein_fabric::{Fabric, FabricError, Outcome, Peer, Permission};

use crate::harness::{Ground, Harness, OWNER, WATCHDOG, ends, keys, mail, meet_owner, put};

/// Holds some of everything, and waits to be killed or dismissed.
pub(crate) fn tenant<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    let small = fabric.create(64, Permission::Shared).unwrap();
    let _large = fabric.create(1 << 20, Permission::Shared).unwrap();
    let log = fabric.create(1 << 20, Permission::Granted).unwrap();
    let log = fabric.grant(log, owner).unwrap();
    fabric.send(owner, &[fabric.key(small).0, log.0].concat()).unwrap();
    let mut bytes = Vec::new();
    while fabric.recv(&mut bytes).is_none() {
        fabric.park(WATCHDOG, &mut |_| true);
    }
}

fn files(host: &Host) -> usize {
    fn count(dir: &Path) -> usize {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
    }
    count(host.dir().unwrap())
}

#[test]
fn leftovers_of_a_killed_process_are_refused_and_cleaned_up() {
    let harness = Harness::of_processes();
    let host = harness.host();
    let mut owner = host.join(OWNER).unwrap();
    let alone = (files(host), host.bytes_reserved());
    let mut before: Option<(Peer, Vec<u8>)> = None;
    for round in 0..3 {
        let hand = harness.launch("tenant", "tenant");
        let (peer, letter) = mail(&mut owner);
        assert_eq!(host.live(), [OWNER, "tenant"]);
        assert!(matches!(host.join("tenant"), Err(FabricError::NameTaken { .. })));
        if let Some((earlier, letter)) = before {
            assert_ne!(earlier, peer);
            assert!(owner.is_gone(earlier) && !owner.is_gone(peer));
            for key in keys(&letter) {
                assert!(matches!(owner.attach(peer, &key), Err(FabricError::StaleKey)));
                assert!(matches!(owner.attach(earlier, &key), Err(FabricError::Gone)));
            }
        }
        let remotes: Vec<_> = keys(&letter).map(|key| owner.attach(peer, &key).unwrap()).collect();
        put(&mut owner, remotes[1], 0, 1, Some(round));
        assert_eq!(ends(&mut owner), [(round, Outcome::Done)]);
        hand.kill();
        assert!(owner.is_gone(peer));
        for &remote in &remotes {
            put(&mut owner, remote, 0, 1, Some(round));
        }
        assert_eq!(ends(&mut owner), [(round, Outcome::Unknown); 2]);
        assert!(matches!(owner.dial("tenant"), Err(FabricError::Unreachable { .. })));
        assert!(matches!(owner.send(peer, b"hello"), Err(FabricError::Gone)));
        assert_eq!(host.live(), [OWNER]);
        assert!(host.bytes_reserved() > alone.1 + (2 << 20), "left behind");
        // In round 1 the next process to join cleans up, otherwise `clean_dead` does.
        if round != 1 {
            let report = host.clean_dead().unwrap();
            assert_eq!(report.processes, 1);
            assert!(report.bytes > 2 << 20 && report.files >= 5, "{report:?}");
            assert_eq!((files(host), host.bytes_reserved()), alone);
            assert_eq!(host.clean_dead().unwrap().processes, 0);
        }
        before = Some((peer, letter));
    }
    assert!(host.remove().is_err(), "the owner lives there");
    drop(owner);
    host.remove().unwrap();
    assert!(!host.dir().unwrap().exists());
}

#[test]
fn an_orderly_end_leaves_nothing() {
    let harness = Harness::of_processes();
    let mut owner = harness.host().join(OWNER).unwrap();
    let alone = (files(harness.host()), harness.host().bytes_reserved());
    let hand = harness.launch("tenant", "tenant");
    let (peer, _) = mail(&mut owner);
    owner.send(peer, b"enough").unwrap();
    hand.finish();
    assert!(owner.is_gone(peer));
    assert_eq!((files(harness.host()), harness.host().bytes_reserved()), alone);
}

#[test]
fn processes_killed_together_leave_nothing_after_the_next_start() {
    let harness = Harness::of_processes();
    let host = harness.host();
    let mut owner = host.join(OWNER).unwrap();
    let hands: Vec<_> = (0..4).map(|i| harness.launch("tenant", &format!("t{i}"))).collect();
    for _ in &hands {
        mail(&mut owner);
    }
    for hand in hands {
        hand.kill();
    }
    drop(owner);
    assert!(host.live().is_empty());
    let first = host.join("first").unwrap();
    assert_eq!(host.live(), ["first"]);
    drop(first);
    assert_eq!((files(host), host.bytes_reserved()), (0, 0));
    host.remove().unwrap();
}

#[test]
fn many_join_leave_and_clean_at_once() {
    let harness = Harness::of_processes();
    let host = harness.host();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let host = host.clone();
            std::thread::spawn(move || {
                for round in 0..50 {
                    let mut mine = host.join(&format!("own{i}")).unwrap();
                    let region = mine.create(4096, Permission::Shared).unwrap();
                    host.clean_dead().unwrap();
                    assert!(host.live().contains(&format!("own{i}")), "round {round}");
                    let me = mine.dial(&format!("own{i}")).unwrap();
                    let there = mine.attach(me, &mine.key(region)).unwrap();
                    put(&mut mine, there, 0, round, Some(round));
                    assert_eq!(ends(&mut mine), [(round, Outcome::Done)]);
                    // All processes try to join under this name; all but the first get an error.
                    match host.join("contested") {
                        Ok(_) | Err(FabricError::NameTaken { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((files(host), host.bytes_reserved()), (0, 0));
}

#[test]
fn garbage_in_the_mailbox_is_dropped() {
    let harness = Harness::of_processes();
    let mut owner = harness.host().join(OWNER).unwrap();
    let mut other = harness.host().join("other").unwrap();
    let (name, incarnation) = (owner.name().to_owned(), owner.incarnation());
    let dir = harness.host().dir().unwrap().join(format!("{name}.{incarnation:016x}")).join("mail");
    for name in ["x", "nobody.00000000000000ff.0000000000000000", "..", "other.zz.0", "é.1.2"] {
        let _ = fs::write(dir.join(name), b"garbage");
    }
    let to_owner = meet_owner(&mut other);
    other.send(to_owner, b"mail").unwrap();
    let (from, bytes) = mail(&mut owner);
    assert_eq!(owner.who(from).map(|who| who.0), Some("other"));
    assert_eq!(bytes, b"mail");
    assert_eq!(owner.recv(&mut Vec::new()), None);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn asking_whether_peers_live_is_cheap() {
    let harness = Harness::of_processes();
    let mut owner = harness.host().join(OWNER).unwrap();
    let mut others = Vec::new();
    for i in 0..100 {
        let mut other = harness.host().join(&format!("c-{i:016x}")).unwrap();
        let to_owner = meet_owner(&mut other);
        other.send(to_owner, b"ready").unwrap();
        others.push(other);
    }
    let peers: Vec<Peer> = others.iter().map(|_| mail(&mut owner).0).collect();
    let before = Instant::now();
    for _ in 0..10 {
        assert!(peers.iter().all(|&peer| !owner.is_gone(peer)));
    }
    let took = before.elapsed();
    println!("1,000 peers in {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn who_was_hung_up_on_takes_no_memory() {
    let harness = Harness::of_processes();
    let host = harness.host();
    let mut owner = host.join(OWNER).unwrap();
    let alone = files(host);
    let dir = host.dir().unwrap().to_owned();
    let incarnation = owner.incarnation();
    let letters = dir.join(format!("{OWNER}.{incarnation:016x}")).join("mail");
    for round in 0..8 {
        let hand = harness.launch("tenant", "tenant");
        let (peer, letter) = mail(&mut owner);
        for key in keys(&letter) {
            owner.attach(peer, &key).unwrap();
        }
        hand.kill();
        // As if it had died while it wrote a control message, and between two control messages.
        let (name, it) = owner.who(peer).unwrap();
        let left = [format!(".{name}.{it:016x}"), format!("{name}.{it:016x}.0000000000000001")];
        for letter in &left {
            fs::write(letters.join(letter), b"half").unwrap();
        }
        assert!(owner.is_gone(peer));
        owner.hang_up(peer);
        assert!(owner.who(peer).is_none(), "round {round}");
        assert!(owner.is_gone(peer) && matches!(owner.send(peer, b"x"), Err(FabricError::Gone)));
    }
    host.clean_dead().unwrap();
    assert_eq!(files(host), alone);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let dir = dir.to_str().unwrap();
    let theirs = maps.lines().filter(|line| line.contains(dir) && line.contains("/tenant."));
    assert_eq!(theirs.collect::<Vec<_>>(), [""; 0]);
}
