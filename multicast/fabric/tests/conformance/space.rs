//! Memory and descriptors: running out is an error, and a lot of memory takes few files.

use std::fs;
use std::path::Path;
use std::process::Command;

use std::thread;
use std::time::Instant;

use rustix::fs::statvfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skein_fabric::shm::{Host, ShmFabric};
use skein_fabric::{Fabric, FabricError, Outcome, Permission, Source};

use crate::harness::{Ground, Harness, WATCHDOG, ends, keys, mail, meet_owner, put, words};

/// A file system of that many bytes, unmounted when dropped.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn mount(bytes: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "skein-test"])
            .arg(dir.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(dir)),
            Ok(output) => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(e) => {
                println!("skipped: no mount: {e}");
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn no_space_is_an_error_and_leaves_nothing_behind() {
    let Some(tiny) = Tiny::mount(2 << 20) else { return };
    let host = Host::at(&tiny.0.path().join("host")).unwrap();
    let (mut a, mut b) = (host.join("a").unwrap(), host.join("b").unwrap());
    let (to_a, to_b) = (b.dial("a").unwrap(), a.dial("b").unwrap());
    let is_full = |e: &FabricError| matches!(e, FabricError::NoSpace { .. });
    let reserved = host.bytes_reserved();

    let error = b.create(4 << 20, Permission::Shared).unwrap_err();
    assert!(is_full(&error), "{error}");
    assert!(error.to_string().contains("4194"), "it says how much: {error}");
    assert_eq!(host.bytes_reserved(), reserved, "nothing is left of it");

    // There is room for one file of a log: revoking uses private memory instead of a second file.
    let log = b.create(5 << 18, Permission::Granted).unwrap();
    b.store(log, 0, 7);
    for _ in 0..3 {
        b.grant(log, to_a).unwrap();
        b.prepare(log);
        b.revoke(log).unwrap();
        assert_eq!(b.load(log, 0), 7);
    }
    // A grant that fails leaves the region as it was.
    b.prepare(log);
    let other = b.create(5 << 18, Permission::Shared).unwrap();
    let error = b.grant(log, to_a).unwrap_err();
    assert!(is_full(&error), "{error}");
    assert_eq!(b.load(log, 0), 7);
    b.destroy(other);
    b.grant(log, to_a).unwrap();
    b.destroy(log);
    assert_eq!(host.bytes_reserved(), reserved);

    // A spare file that was only prepared is given up for memory that is needed, by us or by others.
    let log = b.create(1 << 17, Permission::Granted).unwrap();
    b.store(log, 0, 7);
    b.grant(log, to_a).unwrap();
    let prepared = |b: &mut ShmFabric| {
        let before = host.bytes_reserved();
        b.prepare(log);
        host.bytes_reserved().cast_signed() - before.cast_signed()
    };
    assert!(prepared(&mut b) > 1 << 17);
    let room = || {
        let about = statvfs(tiny.0.path()).unwrap();
        (about.f_bavail * about.f_frsize) as usize
    };
    let needed = a.create(room() - (1 << 17), Permission::Shared).unwrap();
    assert!(prepared(&mut b) < -(1 << 17), "another process may need it");
    a.destroy(needed);
    assert!(prepared(&mut b) > 1 << 17);
    let needed = b.create(room() + (1 << 16), Permission::Shared).unwrap();
    b.revoke(log).unwrap();
    assert_eq!(b.load(log, 0), 7);
    b.destroy(needed);
    b.destroy(log);
    assert_eq!(host.bytes_reserved(), reserved);

    // Fill it with small regions, then with large control messages. What exists keeps working.
    let mut regions = Vec::new();
    let error = loop {
        match b.create(60 << 10, Permission::Shared) {
            Ok(region) => regions.push(region),
            Err(e) => break e,
        }
    };
    assert!(is_full(&error) && regions.len() > 10, "{error}, {}", regions.len());
    let error = loop {
        match a.send(to_b, &[1; 16 << 10]) {
            Ok(()) => {}
            Err(e) => break e,
        }
    };
    assert!(is_full(&error), "{error}");
    let error = host.join("c").unwrap_err();
    assert!(is_full(&error), "{error}");
    let ones = vec![1; 60 << 10];
    for (tag, &region) in regions.iter().enumerate() {
        let there = a.attach(to_b, &b.key(region)).unwrap();
        a.write(there, 0, Source::Inline(&ones), Some(tag as u64)).unwrap();
        assert_eq!(b.load(region, (60 << 10) - 8), u64::from_ne_bytes([1; 8]));
    }
    assert!(ends(&mut a).iter().all(|end| end.1 == Outcome::Done));

    // Once there is room again, all is as before.
    for region in regions {
        b.destroy(region);
    }
    while b.recv(&mut Vec::new()).is_some() {}
    assert_eq!(host.bytes_reserved(), reserved);
    host.join("c").unwrap();
    drop((a, b));
    host.remove().unwrap();
}

fn region_files(dir: &Path) -> usize {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            if entry.file_type().unwrap().is_dir() {
                region_files(&entry.path())
            } else {
                usize::from(entry.file_name().to_str().unwrap().starts_with('r'))
            }
        })
        .sum()
}

#[test]
fn tens_of_thousands_of_regions_take_few_files_and_little_more_than_their_size() {
    let harness = Harness::of_processes();
    let mut a = harness.host().join("a").unwrap();
    let mut b = harness.host().join("b").unwrap();
    let to_b = a.dial("b").unwrap();
    // A thousand sessions, 24 replicas, two regions each.
    let count = 48_000;
    let len = 448;
    let regions: Vec<_> = (0..count).map(|_| b.create(len, Permission::Shared).unwrap()).collect();
    let remotes: Vec<_> =
        regions.iter().map(|&region| a.attach(to_b, &b.key(region)).unwrap()).collect();
    for (i, &remote) in remotes.iter().enumerate() {
        put(&mut a, remote, len - 8, i as u64, None);
    }
    for (i, &region) in regions.iter().enumerate() {
        assert_eq!(b.load(region, len - 8), i as u64);
        assert_eq!(b.load(region, 0), 0);
    }
    let files = region_files(harness.host().dir().unwrap());
    let reserved = harness.host().bytes_reserved();
    println!("{count} regions of {len} bytes: {files} files, {reserved} bytes");
    assert!(files <= 20, "{files} files");
    assert!(reserved < 2 * (count * len) as u64, "{reserved} bytes");
    for remote in remotes {
        a.detach(remote);
    }
    for region in regions {
        b.destroy(region);
    }
    assert_eq!(region_files(harness.host().dir().unwrap()), 0);
}

/// A new region is never placed where a process may still write to an old one.
#[test]
fn memory_is_not_reused_under_a_writer() {
    let harness = Harness::of_processes();
    let (mut a, mut b) = (harness.host().join("a").unwrap(), harness.host().join("b").unwrap());
    let to_b = a.dial("b").unwrap();
    // Keeps the arena from being freed.
    let _anchor = b.create(64, Permission::Shared).unwrap();
    let reserved = harness.host().bytes_reserved();
    let first = b.create(4096, Permission::Shared).unwrap();
    let key = b.key(first);
    let there = a.attach(to_b, &key).unwrap();
    b.destroy(first);
    let others: Vec<_> = (0..5).map(|_| b.create(4096, Permission::Shared).unwrap()).collect();
    // A key begins with the place. It must be another place: a writer that was stopped after it had found the region
    // open will write, whatever happens meanwhile.
    assert!(others.iter().all(|&other| b.key(other).0[..24] != key.0[..24]));
    put(&mut a, there, 0, 1, Some(1));
    assert_eq!(ends(&mut a), [(1, Outcome::Denied)]);
    assert!(others.iter().all(|&other| words(&b, other, 512) == [0; 512]));
    a.detach(there);
    for other in others {
        b.destroy(other);
    }
    // Once the writer has detached, the same few places are reused for ever, zeroed.
    for i in 0..1000 {
        let next = b.create(4096, Permission::Shared).unwrap();
        assert_eq!(words(&b, next, 512), [0; 512], "round {i}");
        let there = a.attach(to_b, &b.key(next)).unwrap();
        put(&mut a, there, 8, 1, None);
        b.copy_in(next, 16, &[1; 100]);
        // Either side may be first.
        if i % 2 == 0 {
            a.detach(there);
            b.destroy(next);
        } else {
            b.destroy(next);
            a.detach(there);
        }
    }
    assert_eq!(harness.host().bytes_reserved(), reserved);
}

/// Runs without descriptors for a while. Its word tells it when the control messages to it have been sent.
pub(crate) fn pauper<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    let word = fabric.create(8, Permission::Shared).unwrap();
    fabric.send(owner, &fabric.key(word).0).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let end = Instant::now() + WATCHDOG;
    while fabric.load(word, 0) == 0 {
        assert!(Instant::now() < end, "no letters were sent");
        thread::yield_now();
    }
    assert!(!fabric.is_gone(owner), "nothing was learned of it");
    let mut bytes = Vec::new();
    assert_eq!(fabric.recv(&mut bytes), None);
    let unsent = fabric.send(owner, b"letter").unwrap_err();
    assert!(unsent.is_lack(), "{unsent}");
    let unmade = fabric.create(1 << 20, Permission::Shared).unwrap_err();
    assert!(unmade.is_lack(), "{unmade}");

    setrlimit(Resource::Nofile, limit).unwrap();
    let mut letters: Vec<Vec<u8>> = (0..3).map(|_| mail(&mut fabric).1).collect();
    let of_owner: Vec<_> = letters.extract_if(.., |letter| letter[0] == b'o').collect();
    assert_eq!((of_owner, letters), (vec![vec![b'o', 1], vec![b'o', 2]], vec![vec![b's']]));
    fabric.send(owner, b"letter").unwrap();
}

#[test]
fn without_descriptors_nobody_counts_as_dead_and_no_letter_is_lost() {
    let harness = Harness::of_processes();
    let (mut owner, mut stranger) =
        (harness.join_as_owner(), harness.host().join("stranger").unwrap());
    let hand = harness.launch("pauper", "pauper");
    let (pauper, letter) = mail(&mut owner);
    let word = owner.attach(pauper, &keys(&letter).next().unwrap()).unwrap();
    owner.send(pauper, b"o\x01").unwrap();
    owner.send(pauper, b"o\x02").unwrap();
    let to_pauper = stranger.dial("pauper").unwrap();
    stranger.send(to_pauper, b"s").unwrap();
    put(&mut owner, word, 0, 1, None);
    hand.finish();
    assert_eq!(mail(&mut owner).1, b"letter");
}
