//! Every backend keeps every promise of [`skein_fabric::Fabric`].

use std::time::Duration;

use skein_fabric::shm::Host;
use skein_fabric::{Access, Fabric, Outcome, Source};

#[test]
fn a_write_arrives_and_a_revoked_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    for host in [Host::anonymous(), Host::at(&dir.path().join("shm")).unwrap()] {
        let mut a = host.join("a").unwrap();
        let mut b = host.join("b").unwrap();
        assert!(host.join("a").is_err());
        let to_b = a.dial("b").unwrap();
        let region = b.create(64, Access::Shared).unwrap();
        a.send(to_b, b"hello").unwrap();
        let mut mail = Vec::new();
        let to_a = b.recv(&mut mail).unwrap();
        assert_eq!(mail, b"hello");
        assert_eq!(b.recv(&mut mail), None);
        let remote = a.attach(to_b, &b.key(region)).unwrap();
        a.write(remote, 8, Source::Inline(&7u64.to_ne_bytes()), Some(1)).unwrap();
        assert_eq!(b.load(region, 8), 7);
        let log = b.create(1 << 20, Access::Granted).unwrap();
        b.store(log, 0, 5);
        let key = b.grant(log, to_a).unwrap();
        let granted = a.attach(to_b, &key).unwrap();
        a.write(granted, 8, Source::Inline(&9u64.to_ne_bytes()), Some(2)).unwrap();
        b.revoke(log).unwrap();
        a.write(granted, 16, Source::Inline(&9u64.to_ne_bytes()), Some(3)).unwrap();
        assert_eq!([0, 8, 16].map(|at| b.load(log, at)), [5, 9, 0]);
        let mut completions = Vec::new();
        a.poll(&mut completions);
        let ends: Vec<_> = completions.iter().map(|c| (c.tag, c.outcome)).collect();
        assert_eq!(ends, [(1, Outcome::Done), (2, Outcome::Done), (3, Outcome::Denied)]);
        assert!(!a.is_gone(to_b));
        b.park(Duration::from_millis(1), &mut |_| true);
        drop(b);
        assert!(a.is_gone(to_b));
        assert!(a.dial("b").is_err());
        drop(a);
        assert_eq!(host.bytes_reserved(), 0);
        assert!(host.live().is_empty());
        host.remove().unwrap();
    }
    assert!(!dir.path().join("shm").exists());
}

#[test]
fn the_simulator_does_the_same() {
    use skein_fabric::sim::{SimConfig, World};
    let run = |seed| {
        let world = World::new(seed, SimConfig::default());
        let (mut a, mut b) = (world.join("a"), world.join("b"));
        let to_b = a.dial("b").unwrap();
        let to_a = b.dial("a").unwrap();
        let log = b.create(1 << 12, Access::Granted).unwrap();
        let key = b.grant(log, to_a).unwrap();
        let remote = a.attach(to_b, &key).unwrap();
        for tag in 0..20 {
            a.write(remote, 0, Source::Inline(&[tag as u8; 100]), Some(tag)).unwrap();
        }
        a.send(to_b, b"x").unwrap();
        for _ in 0..15 {
            assert!(world.step());
        }
        b.revoke(log).unwrap();
        while world.step() {}
        let mut completions = Vec::new();
        a.poll(&mut completions);
        assert_eq!(completions.len(), 20);
        world.fingerprint()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
