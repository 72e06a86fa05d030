//! What a write over shared memory costs: `cargo bench -p skein-fabric`.
//!
//! Single runs on a shared machine differ by a factor of two; compare what one run prints.

use std::env;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::shm::{Host, ShmFabric};
use skein_fabric::wait::{Waiter, Waiting};
use skein_fabric::{Fabric, Peer, Permission, Region, RegionKey, Remote, Source};

const ROUNDS: u64 = 50_000;
const PARTNER: &str = "SKEIN_BENCH_DIR";

fn main() {
    if let Ok(dir) = env::var(PARTNER) {
        let mut fabric = Host::at(dir.as_ref()).unwrap().join("partner").unwrap();
        let peer = fabric.dial("main").unwrap();
        for waiting in [Waiting::Busy, Waiting::Adaptive, Waiting::Park] {
            rally(&mut fabric, peer, waiting, false);
        }
        return;
    }
    let dir = env::temp_dir().join(format!("skein-bench-{}", std::process::id()));
    let dir = env::var_os("SKEIN_SHM").map_or(dir, Into::into);
    let host = Host::at(&dir).unwrap();
    copies(&host);
    grants(&host);
    let mut fabric = host.join("main").unwrap();
    let mut partner = Command::new(env::current_exe().unwrap())
        .env(PARTNER, host.dir().unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let peer = loop {
        match fabric.dial("partner") {
            Ok(peer) => break peer,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    for waiting in [Waiting::Busy, Waiting::Adaptive, Waiting::Park] {
        let mut took = rally(&mut fabric, peer, waiting, true);
        took.sort_unstable();
        let at = |share: usize| took[took.len() * share / 1000];
        println!("round trip of 64 B, {waiting:8}: p50 {:?}, p99 {:?}", at(500), at(990));
    }
    partner.wait().unwrap();
    drop(fabric);
    host.remove().unwrap();
}

/// Copies of some sizes, from warm memory into a peer's.
fn copies(host: &Host) {
    let (mut a, mut b) = (host.join("a").unwrap(), host.join("b").unwrap());
    let (to_a, to_b) = (b.dial("a").unwrap(), a.dial("b").unwrap());
    let len = 256 << 10;
    let source = a.create(len, Permission::Shared).unwrap();
    let (shared, log) =
        (b.create(len, Permission::Shared).unwrap(), b.create(len, Permission::Granted).unwrap());
    let granted = b.grant(log, to_a).unwrap();
    let shared = a.attach(to_b, &b.key(shared)).unwrap();
    let granted = a.attach(to_b, &granted).unwrap();
    let mut ends = Vec::new();
    for (name, there) in [("shared", shared), ("granted", granted)] {
        for size in [8, 64, 1 << 10, 16 << 10, len] {
            let rounds = (1 << 30) / (size + 1024);
            let before = Instant::now();
            for tag in 0..rounds {
                let from = Source::Span { region: source, at: 0, len: size };
                a.write(there, 0, from, Some(tag as u64)).unwrap();
                a.poll(&mut ends);
                ends.clear();
            }
            let each = before.elapsed().as_secs_f64() / rounds as f64;
            let rate = size as f64 / each / 1e9;
            println!("write of {size:6} B, {name:7}: {:8.1} ns, {rate:5.1} GB/s", each * 1e9);
        }
    }
}

/// Moving a grant, as a change of leaders does.
fn grants(host: &Host) {
    let (_a, mut b) = (host.join("a").unwrap(), host.join("b").unwrap());
    let to_a = b.dial("a").unwrap();
    for len in [256 << 10, 4 << 20, 64 << 20] {
        let log = b.create(len, Permission::Granted).unwrap();
        b.grant(log, to_a).unwrap();
        let before = Instant::now();
        b.revoke(log).unwrap();
        let revoked = before.elapsed();
        let before = Instant::now();
        b.grant(log, to_a).unwrap();
        println!("{len:9} B: revoke {revoked:?}, grant {:?}", before.elapsed());
        b.destroy(log);
    }
}

fn rally(fabric: &mut ShmFabric, peer: Peer, waiting: Waiting, serve: bool) -> Vec<Duration> {
    let ours = fabric.create(64, Permission::Shared).unwrap();
    fabric.send(peer, &fabric.key(ours).0).unwrap();
    let mut message = Vec::new();
    while fabric.recv(&mut message).is_none() {
        thread::yield_now();
    }
    let theirs = fabric.attach(peer, &RegionKey(message.try_into().unwrap())).unwrap();
    let mut waiter = Waiter::new(waiting);
    let mut took = Vec::new();
    for i in 1..=ROUNDS {
        let before = Instant::now();
        if serve {
            hit(fabric, peer, theirs, i);
            catch(fabric, &mut waiter, ours, i);
        } else {
            catch(fabric, &mut waiter, ours, i);
            hit(fabric, peer, theirs, i);
        }
        took.push(before.elapsed());
    }
    took
}

fn hit(fabric: &mut ShmFabric, peer: Peer, theirs: Remote, ball: u64) {
    let mut bytes = [0; 64];
    bytes[56..].copy_from_slice(&ball.to_ne_bytes());
    fabric.write(theirs, 0, Source::Inline(&bytes), None).unwrap();
    fabric.wake(peer);
}

fn catch(fabric: &mut ShmFabric, waiter: &mut Waiter, ours: Region, ball: u64) {
    while fabric.load(ours, 56) < ball {
        waiter.idle(fabric, Duration::from_secs(1), &mut |fabric| fabric.load(ours, 56) < ball);
    }
    waiter.worked(fabric);
}
