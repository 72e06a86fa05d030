//! What can happen to connections: unknown callers, invalid bytes, resets, simultaneous calls, deaths.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::sim::Rng;
use skein_fabric::tcp::{Book, Net, Security, TcpFabric};
use skein_fabric::{
    Constants, Fabric, FabricError, Outcome, Peer, Permission, Region, RegionKey, Source,
};

use crate::harness::{Ground, OWNER, WATCHDOG, Wire, ends, keys, mail, put};

const CLUSTER: &str = "conformance";

fn net(names: &[&str]) -> Net {
    let book = Book::default();
    for name in names {
        book.insert(name, "127.0.0.1:0");
    }
    Net::new(CLUSTER, book, Security::Plain)
}

fn look(fabric: &mut TcpFabric) {
    fabric.park(Duration::ZERO, &mut |_| true);
}

/// Polls both fabrics until `done`.
fn until(
    a: &mut TcpFabric,
    b: &mut TcpFabric,
    done: impl Fn(&mut TcpFabric, &mut TcpFabric) -> bool,
) {
    let end = Instant::now() + WATCHDOG;
    while !done(a, b) {
        assert!(Instant::now() < end, "it never comes");
        look(a);
        look(b);
    }
}

/// Two connected processes; the first has called.
fn pair(net: &Net) -> (TcpFabric, TcpFabric, Peer, Peer) {
    let (mut a, mut b) = (net.join("a").unwrap(), net.join("b").unwrap());
    until(&mut a, &mut b, |a, b| a.dial("b").is_ok() && b.dial("a").is_ok());
    let (to_b, to_a) = (a.dial("b").unwrap(), b.dial("a").unwrap());
    (a, b, to_b, to_a)
}

/// Checks that both can write to each other.
fn check_alive(a: &mut TcpFabric, b: &mut TcpFabric, to_b: Peer) {
    let region = b.create(64, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(region)).unwrap();
    put(a, there, 0, 1, Some(1));
    until(a, b, |_, b| b.load(region, 0) == 1);
    let end = Instant::now() + WATCHDOG;
    let mut seen = Vec::new();
    while seen.is_empty() {
        look(b);
        seen = ends(a);
        assert!(Instant::now() < end, "no end is told");
    }
    assert_eq!(seen, [(1, Outcome::Done)]);
}

// Messages and frames assembled by hand. A change of the formats must raise the version.

const VERSION: u32 = 4;

fn message(version: u32, kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"skeintcp".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend((body.len() as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn hello(cluster: &str, from: &str, to: &str, meeting: u64) -> Vec<u8> {
    let mut body = 5u64.to_le_bytes().to_vec();
    body.extend(meeting.to_le_bytes());
    body.push(0);
    for text in [cluster, from, to] {
        body.push(text.len() as u8);
        body.extend(text.as_bytes());
    }
    body.extend(Constants::default().encode());
    message(VERSION, 1, &body)
}

fn write_frame(key: &RegionKey, at: u64, bytes: &[u8]) -> Vec<u8> {
    let mut frame = (24 + bytes.len() as u32).to_le_bytes().to_vec();
    frame.extend([1, 1, 0, 0]);
    frame.extend(&key.0[16..20]);
    frame.extend([0; 4]);
    frame.extend(&key.0[8..16]);
    frame.extend(at.to_le_bytes());
    frame.extend(bytes);
    frame
}

/// A caller whose bytes are chosen by hand.
struct Stranger(TcpStream);

impl Stranger {
    fn at(address: &str) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        Self(socket)
    }

    fn say(&mut self, bytes: &[u8]) {
        // A side that refuses us may have hung up already.
        let _ = self.0.write(bytes);
    }

    /// The answer, up to `len` bytes or the end, while `owner` polls.
    fn hear(&mut self, len: usize, owner: &mut TcpFabric) -> Vec<u8> {
        let (mut heard, end) = (Vec::new(), Instant::now() + WATCHDOG);
        while heard.len() < len {
            look(owner);
            let mut bytes = vec![0; len - heard.len()];
            match self.0.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => heard.extend(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                Err(_) => break,
            }
            assert!(Instant::now() < end, "neither an answer nor an end");
        }
        heard
    }
}

const WELCOME: usize = 33;

#[test]
fn strangers_are_told_why_they_are_refused_and_harm_nothing() {
    let net = net(&["a", "b"]);
    let (mut a, mut b, to_b, _) = pair(&net);
    let address = net.book().find("b").unwrap();
    let mut long = hello(CLUSTER, "x", "b", 0);
    long[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
    let mut card = hello(CLUSTER, "x", "b", 0);
    card[32] = 1;
    let mut other = hello(CLUSTER, "x", "b", 0);
    other.truncate(other.len() - Constants::default().encode().len());
    other.extend(Constants::default().with("limits.color", 7).encode());
    let len = (other.len() - 16) as u16;
    other[14..16].copy_from_slice(&len.to_le_bytes());
    #[rustfmt::skip]
    let strangers = [
        (hello("another", "x", "b", 0),      "belongs to cluster another, and this is cluster conformance"),
        (hello(CLUSTER, "x", "c", 0),        "looks for c, and this is b"),
        (hello(CLUSTER, "../x", "b", 0),     "not a hello"),
        (message(9, 1, &[0; 40]),            "version 9"),
        (message(1, 1, &[0; 40]),            "version 1"),
        (message(VERSION, 2, &[0; 17]),      "not a hello"),
        (message(VERSION, 1, &[255; 100]),   "not a hello"),
        (other,                              "limits.color is 7 at x, and not known at b"),
        (card,                               "its network.fabric is \"verbs\", and here it is \"tcp\""),
        (long,                               "too long"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "does not speak"),
        (b"\x16\x03\x01\x02\x00\x01".to_vec(), "speaks TLS"),
    ];
    for (bytes, why) in strangers {
        let mut stranger = Stranger::at(&address);
        stranger.say(&bytes);
        let answer = stranger.hear(2048, &mut b);
        let text = String::from_utf8_lossy(&answer[answer.len().min(16)..]).into_owned();
        assert!(answer.starts_with(b"skeintcp") && text.contains(why), "{why}: {text:?}");
        assert_eq!(u16::from_le_bytes([answer[12], answer[13]]), 4, "{why}");
    }
    check_alive(&mut a, &mut b, to_b);
}

/// All nodes of a cluster use one fabric. Nodes with different fabrics refuse each other and say so; clients need no
/// card.
#[cfg(feature = "verbs")]
#[test]
fn nodes_with_a_card_and_without_refuse_each_other() {
    use skein_fabric::verbs::{Config, VerbsFabric};
    if !crate::harness::has_adapter() {
        return;
    }
    let net = net(&["with", "without"]);
    let mut with = VerbsFabric::join(&net, "with", &Config::default()).unwrap();
    let mut without = net.join("without").unwrap();
    let mut client = net.visit("client").unwrap();
    let (mut refused, mut said) = ([false; 2], [None, None]);
    let end = Instant::now() + WATCHDOG;
    while refused != [true; 2] || client.dial("with").is_err() {
        assert!(Instant::now() < end, "{said:?}");
        said = [without.dial("with").err(), with.dial("without").err()];
        let whys = ["\"tcp\", and here it is \"verbs\"", "\"verbs\", and here it is \"tcp\""];
        for ((refused, said), why) in refused.iter_mut().zip(&said).zip(whys) {
            *refused |=
                matches!(said, Some(FabricError::Refused { why: it, .. }) if it.contains(why));
        }
        with.park(Duration::ZERO, &mut |_| true);
        look(&mut without);
        look(&mut client);
    }
}

#[test]
fn whoever_says_nothing_is_sent_away() {
    let net = net(&["b"]);
    let mut b = net.join("b").unwrap();
    let address = net.book().find("b").unwrap();
    let begun = hello(CLUSTER, "x", "b", 0);
    let mut strangers: Vec<_> = (0..20).map(|_| Stranger::at(&address)).collect();
    for (i, stranger) in strangers.iter_mut().enumerate() {
        stranger.say(&begun[..i]);
    }
    for stranger in &mut strangers {
        assert_eq!(stranger.hear(1, &mut b), [0; 0]);
    }
}

#[test]
fn any_bytes_at_the_door_and_after_it_harm_nobody_else() {
    let net = net(&["a", "b"]);
    let (mut a, mut b, to_b, _) = pair(&net);
    let address = net.book().find("b").unwrap();
    let region = b.create(1 << 10, Permission::Shared).unwrap();
    let log = b.create(1 << 10, Permission::Granted).unwrap();
    let key = b.key(region);
    let mut rng = Rng::new(1);
    let mut noise =
        |len: u64| (0..rng.below(len)).map(|_| rng.below(256) as u8).collect::<Vec<_>>();
    for round in 0..200 {
        let mut stranger = Stranger::at(&address);
        match round % 4 {
            0 => stranger.say(&noise(300)),
            1 => {
                let mut bytes = hello(CLUSTER, "x", "b", 0);
                let at = 16 + round % 30;
                bytes[at] ^= noise(100).first().copied().unwrap_or(1);
                stranger.say(&bytes);
            }
            _ => {
                // It is accepted, and then sends invalid bytes, some of them in the form of a frame.
                stranger.say(&hello(CLUSTER, &format!("x{round}"), "b", 0));
                assert_eq!(stranger.hear(WELCOME, &mut b).len(), WELCOME);
                let mut bytes = noise(300);
                if round % 4 == 3 && bytes.len() > 8 {
                    let len = bytes.len() as u32 - 8;
                    bytes[..4].copy_from_slice(&len.to_le_bytes());
                    bytes[4] %= 8;
                    bytes[5..8].copy_from_slice(&[1, 0, 0]);
                }
                stranger.say(&bytes);
            }
        }
        let _ = stranger.0.shutdown(Shutdown::Write);
        stranger.hear(1 << 16, &mut b);
        while b.recv(&mut Vec::new()).is_some() {}
    }
    assert_eq!(b.load(log, 0), 0, "granted to nobody");
    assert_eq!(b.key(region), key);
    check_alive(&mut a, &mut b, to_b);
}

#[test]
fn many_who_come_at_once_and_vanish_leave_nothing() {
    let net = net(&["a", "b"]);
    let (mut a, mut b, to_b, _) = pair(&net);
    let address = net.book().find("b").unwrap();
    for _ in 0..3 {
        let mut strangers: Vec<_> = (0..200).map(|_| Stranger::at(&address)).collect();
        for (i, stranger) in strangers.iter_mut().enumerate() {
            stranger.say(&hello(CLUSTER, &format!("x{i}"), "b", 0));
        }
        // Some disconnect before they are welcomed, and some afterwards.
        for stranger in strangers.iter_mut().skip(100) {
            assert_eq!(stranger.hear(WELCOME, &mut b).len(), WELCOME);
        }
        drop(strangers);
        check_alive(&mut a, &mut b, to_b);
    }
    let end = Instant::now() + WATCHDOG;
    while b.peers() > 1 {
        look(&mut b);
        assert!(Instant::now() < end, "{} peers are left", b.peers());
    }
}

/// When more silent callers connect than there is room for, the one that has waited for longest is dropped, and the
/// newest is accepted.
#[test]
fn who_says_nothing_keeps_nobody_out() {
    let net = net(&["b"]);
    let mut b = net.join("b").unwrap();
    let address = net.book().find("b").unwrap();
    let silent: Vec<_> = (0..300).map(|_| Stranger::at(&address)).collect();
    let mut last = Stranger::at(&address);
    last.say(&hello(CLUSTER, "x", "b", 0));
    assert_eq!(last.hear(WELCOME, &mut b).len(), WELCOME);
    drop(silent);
}

/// A caller that was accepted and was given no key reaches nothing, whatever it tries.
#[test]
fn keys_cannot_be_guessed() {
    let net = net(&["b"]);
    let mut b = net.join("b").unwrap();
    let regions: Vec<_> = (0..4).map(|_| b.create(64, Permission::Shared).unwrap()).collect();
    let mut stranger = Stranger::at(&net.book().find("b").unwrap());
    stranger.say(&hello(CLUSTER, "x", "b", 0));
    assert_eq!(stranger.hear(WELCOME, &mut b).len(), WELCOME);
    let mut tries = 0;
    for region in [0, 1, 2, 3, u32::MAX] {
        for grant in 0..50_u64 {
            let mut key = b.key(regions[0]);
            key.0[8..16].copy_from_slice(&grant.to_le_bytes());
            key.0[16..20].copy_from_slice(&region.to_le_bytes());
            stranger.say(&write_frame(&key, 0, &[9; 8]));
            tries += 1;
        }
    }
    let answers = stranger.hear(16 * tries, &mut b);
    // The fifth byte of a frame is its kind; 4 is a denial.
    assert!(answers.as_chunks::<16>().0.iter().all(|answer| answer[4] == 4));
    assert_eq!(answers.len(), 16 * tries);
    assert!(regions.iter().all(|region| b.load(*region, 0) == 0));
}

/// Promise 7, within an incarnation.
#[test]
fn nothing_of_a_connection_is_placed_once_its_successor_was_welcomed() {
    let net = net(&["b"]);
    let mut b = net.join("b").unwrap();
    let address = net.book().find("b").unwrap();
    let region = b.create(64, Permission::Shared).unwrap();
    let key = b.key(region);
    for round in 0..50 {
        let mut first = Stranger::at(&address);
        first.say(&hello(CLUSTER, "x", "b", 2 * round));
        assert_eq!(first.hear(WELCOME, &mut b)[12], 2);
        first.say(&write_frame(&key, 0, &[1; 8]));
        until_word(&mut b, region, u64::from_ne_bytes([1; 8]));
        // Sent, and not yet read, when the successor calls.
        first.say(&write_frame(&key, 0, &[2; 8]));
        let mut second = Stranger::at(&address);
        second.say(&hello(CLUSTER, "x", "b", 2 * round + 1));
        // Until the successor is welcomed, either value may be seen; from then on the value stays.
        assert_eq!(second.hear(WELCOME, &mut b)[12], 2);
        b.store(region, 0, 0);
        first.say(&write_frame(&key, 0, &[3; 8]));
        assert_eq!(first.hear(1 << 10, &mut b).len() % 16, 0, "answers, and the end");
        for _ in 0..20 {
            look(&mut b);
        }
        assert_eq!(b.load(region, 0), 0);
        // A hello that was given up long ago changes nothing.
        let mut late = Stranger::at(&address);
        late.say(&hello(CLUSTER, "x", "b", 2 * round));
        assert_eq!(late.hear(16, &mut b)[12], 3);
        second.say(&write_frame(&key, 0, &[4; 8]));
        until_word(&mut b, region, u64::from_ne_bytes([4; 8]));
    }
}

fn until_word(fabric: &mut TcpFabric, region: Region, word: u64) {
    let end = Instant::now() + WATCHDOG;
    while fabric.load(region, 0) != word {
        look(fabric);
        assert!(Instant::now() < end, "it never comes");
    }
}

/// Both call at the same moment, again and again: afterwards each has one peer, and receives the other's control
/// messages.
#[test]
fn two_calls_at_once_are_one_meeting() {
    const ROUNDS: usize = 100;
    let net = net(&["a", "b"]);
    let barrier = Arc::new(Barrier::new(2));
    let play = |me: &'static str, other: &'static str| {
        let (net, barrier) = (net.clone(), Arc::clone(&barrier));
        thread::spawn(move || {
            let mut delay = Rng::new(me.len() as u64 + u64::from(me.as_bytes()[0]));
            for round in 0..ROUNDS {
                let mut fabric = net.join(me).unwrap();
                // Both listen at their addresses.
                barrier.wait();
                for _ in 0..delay.below(3_000) {
                    std::hint::spin_loop();
                }
                let end = Instant::now() + WATCHDOG;
                let peer = loop {
                    match fabric.dial(other) {
                        Ok(peer) => break peer,
                        Err(error) => assert!(Instant::now() < end, "{error}"),
                    }
                };
                fabric.send(peer, &[round as u8; 3]).unwrap();
                let (from, letter) = mail(&mut fabric);
                assert_eq!((from, letter), (peer, vec![round as u8; 3]));
                for _ in 0..20 {
                    look(&mut fabric);
                    assert_eq!(fabric.dial(other).unwrap(), peer, "still the same");
                }
                // Neither leaves before the other has received its message.
                barrier.wait();
                drop(fabric);
                barrier.wait();
            }
        })
    };
    let threads = [play("a", "b"), play("b", "a")];
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_killed_process_is_gone_at_once_and_its_successor_is_another() {
    let wire = Wire::plain();
    let mut owner = wire.join_as_owner();
    let mut before: Option<(Peer, Vec<u8>)> = None;
    for round in 0..3 {
        let hand = wire.launch("tenant", "tenant");
        let (peer, letter) = mail(&mut owner);
        if let Some((earlier, letter)) = &before {
            assert_ne!(*earlier, peer);
            assert!(owner.is_gone(*earlier) && !owner.is_gone(peer));
            for key in keys(letter) {
                assert!(matches!(owner.attach(peer, &key), Err(FabricError::StaleKey)));
                assert!(matches!(owner.attach(*earlier, &key), Err(FabricError::Gone)));
            }
        }
        let remotes: Vec<_> = keys(&letter).map(|key| owner.attach(peer, &key).unwrap()).collect();
        put(&mut owner, remotes[1], 0, 1, Some(round));
        let end = Instant::now() + WATCHDOG;
        let mut seen = Vec::new();
        while seen.is_empty() {
            seen = ends(&mut owner);
            assert!(Instant::now() < end);
        }
        assert_eq!(seen, [(round, Outcome::Done)]);
        hand.kill();
        let killed = Instant::now();
        while !owner.is_gone(peer) {
            assert!(killed.elapsed() < Duration::from_secs(1), "the system has told nobody");
        }
        for &remote in &remotes {
            put(&mut owner, remote, 0, 1, Some(round));
        }
        assert_eq!(ends(&mut owner), [(round, Outcome::Unknown); 2]);
        assert!(matches!(owner.send(peer, b"hello"), Err(FabricError::Gone)));
        before = Some((peer, letter));
    }
    assert_eq!(owner.name(), OWNER);
}

#[test]
fn a_batch_is_one_system_call() {
    let net = net(&["a", "b"]);
    let (mut a, mut b, to_b, _) = pair(&net);
    let region = b.create(1 << 10, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(region)).unwrap();
    let before = (a.traffic().sends, b.traffic().sends);
    for i in 1..=100 {
        put(&mut a, there, 8 * (i as usize % 100), i, Some(i));
    }
    a.flush();
    assert_eq!(a.traffic().sends - before.0, 1);
    until(&mut a, &mut b, |a, _| ends(a).len() == 100);
    assert_eq!(b.traffic().sends - before.1, 1, "and so are its answers");
}

/// A proxy between two processes that can break.
struct Wall {
    address: String,
    broken: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Wall {
    /// Forwards everything to `target`, until it is broken: then it resets all connections.
    fn before(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let broken = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let (target, flags) = (target.to_owned(), (Arc::clone(&broken), Arc::clone(&stop)));
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || {
            let mut links: Vec<[TcpStream; 2]> = Vec::new();
            let mut buffer = vec![0; 64 << 10];
            while !flags.1.load(Ordering::Relaxed) {
                if let Ok((caller, _)) = listener.accept() {
                    let called = TcpStream::connect(&target).unwrap();
                    for socket in [&caller, &called] {
                        socket.set_nodelay(true).unwrap();
                        socket.set_nonblocking(true).unwrap();
                    }
                    links.push([caller, called]);
                }
                if flags.0.swap(false, Ordering::Relaxed) {
                    for socket in links.drain(..).flatten() {
                        // Closes with a reset, without sending anything more.
                        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
                            .unwrap();
                    }
                }
                for [caller, called] in &mut links {
                    for (from, to) in [(&*caller, &*called), (&*called, &*caller)] {
                        let mut from = from;
                        if let Ok(len @ 1..) = from.read(&mut buffer) {
                            let mut rest = &buffer[..len];
                            let mut to = to;
                            while !rest.is_empty() {
                                match to.write(rest) {
                                    Ok(n) => rest = &rest[n..],
                                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                                    Err(_) => break,
                                }
                            }
                        }
                    }
                }
                thread::yield_now();
            }
        });
        Self { address, broken, stop }
    }

    fn break_all(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Resets at any moment, with writes, reads and control messages under way: the end of every operation is reported,
/// both sides notice, and connect again as new peers with nothing of the earlier connection left.
#[test]
fn connections_are_reset_and_made_again() {
    let theirs = net(&["b"]);
    let mut b = theirs.join("b").unwrap();
    let wall = Wall::before(&theirs.book().find("b").unwrap());
    let book = Book::default();
    book.insert("b", &wall.address);
    let mut a = Net::new(CLUSTER, book, Security::Plain).visit("a").unwrap();
    let region = b.create(64 << 10, Permission::Shared).unwrap();
    let mine = a.create(64 << 10, Permission::Shared).unwrap();
    let mut rng = Rng::new(7);
    let (mut before, mut unknown, mut lost) = (None, 0, 0);
    for round in 0..40u64 {
        until(&mut a, &mut b, |a, _| a.dial("b").is_ok());
        let to_b = a.dial("b").unwrap();
        assert_ne!(before.replace(to_b), Some(to_b));
        let there = a.attach(to_b, &b.key(region)).unwrap();
        b.store(region, 0, 0);
        let (mut posted, mut done, mut last, mut lost_in_round) = (0u64, 0u64, 0, 0);
        let stop_at = rng.below(400);
        let end = Instant::now() + WATCHDOG;
        while !a.is_gone(to_b) {
            assert!(Instant::now() < end, "round {round}: nobody is told");
            if posted - done < 50 {
                posted += 1;
                let bytes =
                    (round << 32 | posted).to_ne_bytes().repeat(rng.between(1, 1000) as usize);
                a.write(there, 0, Source::Inline(&bytes), Some(posted)).unwrap();
                posted += 1;
                a.read(there, 0, 512, (mine, 0), posted).unwrap();
                let _ = a.send(to_b, b"letter");
            }
            for (tag, outcome) in ends(&mut a) {
                assert_eq!(tag, done + 1, "round {round}: each end, in order");
                let known = outcome == Outcome::Done;
                assert!(outcome != Outcome::Denied && (!known || lost_in_round == 0));
                lost_in_round += u64::from(!known);
                done = tag;
            }
            look(&mut b);
            let word = b.load(region, 0);
            assert!(word >= last, "round {round}: a word went back");
            assert!(word == 0 || word >> 32 == round, "of an earlier connection");
            last = word;
            while b.recv(&mut Vec::new()).is_some() {}
            if done >= stop_at {
                wall.break_all();
            }
        }
        for (tag, outcome) in ends(&mut a) {
            done += 1;
            assert_eq!(tag, done, "round {round}: each end, in order");
            lost_in_round += u64::from(outcome == Outcome::Unknown);
        }
        unknown += lost_in_round;
        assert_eq!(done, posted, "round {round}: every end is told");
        a.hang_up(to_b);
        lost += 1;
    }
    println!("{lost} connections, {unknown} operations nobody knows the end of");
    assert!(unknown > 0);
}

/// A peer that reads nothing is given up when too much waits for it, or when it has waited for too long; all other
/// peers are served meanwhile.
#[test]
fn who_reads_nothing_is_given_up() {
    let given_up = |most: u64| {
        let wire = Wire::plain();
        let mut owner = wire.join_as_owner();
        let stopped = wire.launch("tenant", "stopped");
        let (deaf, letter) = mail(&mut owner);
        let key = keys(&letter).nth(1).unwrap();
        let there = owner.attach(deaf, &key).unwrap();
        let other = wire.launch("sleeper", "other");
        let (awake, _) = mail(&mut owner);
        stopped.stop();
        let bytes = vec![1; 1 << 20];
        let begun = Instant::now();
        let mut posted = 0;
        while !owner.is_gone(deaf) {
            assert!(begun.elapsed() < WATCHDOG, "it is never given up");
            if posted < most {
                posted += 1;
                owner.write(there, 0, Source::Inline(&bytes), Some(posted)).unwrap();
            }
            owner.send(awake, b"are you there").unwrap();
            assert_eq!(mail(&mut owner).0, awake);
        }
        println!("given up after {:?} and {posted} MiB", begun.elapsed());
        assert!(ends(&mut owner).iter().any(|(_, outcome)| *outcome == Outcome::Unknown));
        stopped.go_on();
        owner.send(awake, b"enough").unwrap();
        mail(&mut owner);
        other.finish();
        posted
    };
    assert!(given_up(200) < 150, "bounded");
    assert_eq!(given_up(12), 12);
}
