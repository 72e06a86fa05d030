//! Tests that only the simulator allows: every bad moment, again and again.

use std::time::Duration;

use skein_fabric::sim::{Counters, SimConfig, SimFabric, World};
use skein_fabric::{Fabric, FabricError, Outcome, Peer, Permission, Region, Remote, Source};

use crate::harness::{ends, put, words};

struct Pair {
    world: World,
    a: SimFabric,
    b: SimFabric,
    to_b: Peer,
    region: Region,
    there: Remote,
}

fn pair(seed: u64, len: usize) -> Pair {
    let world = World::new(seed, SimConfig::default());
    let (mut a, mut b) = (world.join("a"), world.join("b"));
    let to_b = a.dial("b").unwrap();
    let region = b.create(len, Permission::Shared).unwrap();
    let there = a.attach(to_b, &b.key(region)).unwrap();
    Pair { world, a, b, to_b, region, there }
}

#[test]
fn a_torn_write_is_seen_and_its_words_are_whole() {
    let (mut torn, mut offered) = (0, 0);
    for seed in 0..50 {
        let Pair { world, mut a, b, region, there, .. } = pair(seed, 512);
        for i in 1..=20u64 {
            let word = i << 32 | i;
            a.write(there, 0, Source::Inline(&word.to_ne_bytes().repeat(64)), None).unwrap();
        }
        let mut last = 0;
        while world.step() {
            let seen = words(&b, region, 64);
            assert!(seen.iter().all(|word| word >> 32 == word & 0xffff_ffff), "half a word");
            let (low, high) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            torn += u64::from(low != high);
            // One write at a time: never words of three.
            assert!((high >> 32) - (low >> 32) <= 1 && low >> 32 >= last, "seed {seed}: {seen:?}");
            last = low >> 32;
        }
        assert_eq!(last, 20);
        offered += world.counters().torn_reads;
    }
    assert!(torn > 500, "only {torn} torn views");
    assert_eq!(torn, offered, "the world counts what it offers");
}

/// A busy world with faults; every choice is drawn from the seed.
fn storm(seed: u64) -> (u64, Counters, Vec<String>) {
    let stirred_looks_one_in = if seed.is_multiple_of(3) { 8 } else { 0 };
    let world = World::new(
        seed,
        SimConfig {
            memory_outlives: seed % 2 == 1,
            stirred_looks_one_in,
            stirred_copies_one_in: stirred_looks_one_in,
            ..SimConfig::default()
        },
    );
    world.stir(true);
    world.start_trace();
    let mut rng = world.fork_rng();
    let names = ["n0", "n1", "n2"];
    let mut processes: Vec<SimFabric> = names.iter().map(|name| world.join(name)).collect();
    let mut logs: Vec<Region> = Vec::new();
    let mut shared: Vec<Region> = Vec::new();
    for process in &mut processes {
        logs.push(process.create(1 << 12, Permission::Granted).unwrap());
        shared.push(process.create(1 << 12, Permission::Shared).unwrap());
    }
    let mut remotes: Vec<(usize, Remote)> = Vec::new();
    let mut out = Vec::new();
    for tag in 0..600 {
        let (from, to) = (rng.index(3), rng.index(3));
        match rng.below(12) {
            0 => {
                let owner = &mut processes[to];
                if let Ok(writer) = owner.dial(names[from]) {
                    owner.revoke(logs[to]).unwrap();
                    let key = owner.grant(logs[to], writer).unwrap();
                    let peer = processes[from].dial(names[to]);
                    if let Ok(remote) = peer.and_then(|peer| processes[from].attach(peer, &key)) {
                        remotes.push((from, remote));
                    }
                }
            }
            1 => {
                let key = processes[to].key(shared[to]);
                let peer = processes[from].dial(names[to]);
                if let Ok(remote) = peer.and_then(|peer| processes[from].attach(peer, &key)) {
                    remotes.push((from, remote));
                    if let Ok(peer) = processes[from].dial(names[to]) {
                        let _ = processes[from].send(peer, &[to as u8; 30]);
                        processes[from].wake(peer);
                    }
                }
            }
            2 => processes[to].park(Duration::from_micros(50), &mut |_| true),
            3 if rng.one_in(10) => {
                world.crash(names[to]);
                world.advance(Duration::from_micros(rng.below(20)));
                processes[to] = world.join(names[to]);
                logs[to] = processes[to].create(1 << 12, Permission::Granted).unwrap();
                shared[to] = processes[to].create(1 << 12, Permission::Shared).unwrap();
                remotes.retain(|&(owner, _)| owner != to);
            }
            4 if rng.one_in(8) => world.partition(names[from], names[to]),
            5 if rng.one_in(4) => world.heal_all(),
            6 if rng.one_in(4) => world.slow(names[from], 1 + rng.below(10)),
            8 if rng.one_in(8) => world.stop_inside(names[to], rng.between(1, 8), 4),
            9 if rng.one_in(8) => world.scarce(names[to], rng.one_in(2)),
            7 if !remotes.is_empty() => {
                let &(from, remote) = rng.pick(&remotes);
                let into = (shared[from], 0);
                let _ = processes[from].read(remote, 0, 1 << 10, into, tag);
            }
            _ if !remotes.is_empty() => {
                let &(from, remote) = rng.pick(&remotes);
                let len = 8 * rng.between(1, 256) as usize;
                let bytes = vec![tag as u8; len];
                let source = match rng.below(2) {
                    0 => Source::Inline(&bytes),
                    _ => Source::Span { region: shared[from], at: 0, len },
                };
                let _ = processes[from].write(remote, 0, source, Some(tag));
            }
            _ => {}
        }
        for _ in 0..rng.below(6) {
            world.step();
        }
        for process in &mut processes {
            process.poll(&mut out);
            process.recv(&mut Vec::new());
        }
        let look = vec![0; 256];
        processes[to].copy_out(shared[to], 0, &mut look.clone());
    }
    world.heal_all();
    while world.step() {}
    (world.fingerprint(), world.counters(), world.take_trace())
}

#[test]
fn the_same_seed_is_the_same_run_and_everything_happens() {
    let mut all = Counters::default();
    let mut prints = Vec::new();
    for seed in 0..60 {
        println!("seed {seed}");
        let (first, again) = (storm(seed), storm(seed));
        assert_eq!(first, again);
        assert!(first.2.len() > 100, "a readable line for each event");
        prints.push(first.0);
        all.add(&first.1);
    }
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), 60, "seeds differ");
    println!("{all}");
    // Connections flap in the simulations of the multicast, whose processes connect again.
    for (name, count) in all.all().filter(|(name, _)| !name.starts_with("flap")) {
        assert!(count > 0, "{name} never happened");
    }
}

#[test]
fn connections_overtake_each_other() {
    let (mut overtaken, mut reorders) = (0, 0);
    for seed in 0..20 {
        let Pair { world, mut a, b, region, there, .. } = pair(seed, 64);
        let mut c = world.join("c");
        let to_b = c.dial("b").unwrap();
        let c_there = c.attach(to_b, &b.key(region)).unwrap();
        for i in 1..=20 {
            put(&mut a, there, 0, i, None);
            put(&mut c, c_there, 8, i, None);
            while b.load(region, 0) < i && b.load(region, 8) < i {
                assert!(world.step());
            }
            overtaken += u32::from(b.load(region, 0) < i);
        }
        while world.step() {}
        println!("seed {seed}: {}", world.counters());
        reorders += world.counters().reorders;
    }
    assert!(reorders > 100, "{reorders} reorders");
    assert!(overtaken > 50, "posted second and there first: {overtaken}");
}

#[test]
fn a_completion_comes_after_its_bytes_and_some_time_later() {
    let mut later = 0;
    for seed in 0..50 {
        let Pair { world, mut a, b, region, there, .. } = pair(seed, 64);
        put(&mut a, there, 0, 1, Some(1));
        while world.step() {
            let done = !ends(&mut a).is_empty();
            assert!(!done || b.load(region, 0) == 1);
            later += u32::from(!done && b.load(region, 0) == 1);
        }
    }
    assert!(later >= 50);
}

#[test]
fn a_one_way_partition_holds_back_one_way() {
    let Pair { world, mut a, mut b, to_b, region, there } = pair(1, 64);
    let to_a = b.dial("a").unwrap();
    world.partition("b", "a");
    put(&mut a, there, 0, 1, Some(1));
    b.send(to_a, b"hello").unwrap();
    while world.step() {}
    assert_eq!(b.load(region, 0), 1, "there, but no answer comes back");
    assert!(ends(&mut a).is_empty() && a.recv(&mut Vec::new()).is_none());
    assert!(!a.is_gone(to_b) && a.dial("b").is_err());
    world.heal("b", "a");
    while world.step() {}
    assert_eq!(ends(&mut a), [(1, Outcome::Done)]);
    assert_eq!(a.recv(&mut Vec::new()), Some(to_b));

    world.partition("a", "b");
    put(&mut a, there, 0, 2, Some(2));
    while world.step() {}
    assert_eq!(b.load(region, 0), 1);
    world.heal_all();
    while world.step() {}
    assert_eq!((b.load(region, 0), ends(&mut a)), (2, vec![(2, Outcome::Done)]));
}

#[test]
fn a_crashed_writer_leaves_any_prefix_and_a_crashed_target_is_unknown() {
    let mut lengths = std::collections::BTreeSet::new();
    let mut torn = 0;
    for seed in 0..200 {
        let Pair { world, mut a, mut b, region, there, .. } = pair(seed, 512);
        for i in 1..=5u64 {
            a.write(there, 0, Source::Inline(&i.to_ne_bytes().repeat(64)), Some(i)).unwrap();
        }
        world.crash("a");
        assert!(!a.is_alive() && a.write(there, 0, Source::Inline(&[0; 8]), None).is_err());
        while world.step() {}
        let seen = words(&b, region, 64);
        lengths.insert(*seen.iter().min().unwrap());
        torn += u32::from(seen[0] != seen[63]);
        assert!(ends(&mut a).is_empty());
        world.advance(Duration::from_millis(1));

        let mut a = world.join("a");
        let to_b = a.dial("b").unwrap();
        let there = a.attach(to_b, &b.key(region)).unwrap();
        put(&mut a, there, 0, 9, Some(1));
        world.crash("b");
        while world.step() {}
        assert_eq!(ends(&mut a), [(1, Outcome::Unknown)]);
        world.advance(Duration::from_millis(1));
        assert!(a.is_gone(to_b) && a.dial("b").is_err());
        b = world.join("b");
        assert_eq!(b.recv(&mut Vec::new()), None);
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(torn > 20, "half a write for ever, {torn} times");
}

#[test]
fn a_wake_up_that_nobody_sends_is_a_world_that_stands_still() {
    let Pair { world, mut a, mut b, to_b, region, there } = pair(1, 64);
    let hour = Duration::from_hours(1);
    b.park(hour, &mut |b| b.load(region, 0) == 0);
    assert!(world.is_parked("b"));
    put(&mut a, there, 0, 1, None);
    while world.step() {}
    assert_eq!(b.load(region, 0), 1);
    assert!(world.is_parked("b"), "written, not woken");
    a.wake(to_b);
    while world.step() {}
    assert!(!world.is_parked("b"));
    b.park(hour, &mut |b| b.load(region, 0) == 0);
    assert!(!world.is_parked("b"), "it looked again");
    // A control message wakes, and so does time.
    b.park(hour, &mut |_| true);
    a.send(to_b, b"hello").unwrap();
    while world.step() {}
    assert!(!world.is_parked("b"));
    b.recv(&mut Vec::new()).unwrap();
    b.park(hour, &mut |_| true);
    assert_eq!(world.parked_until("b"), Some(world.now() + hour));
    world.advance(hour);
    assert!(!world.is_parked("b"));
}

#[test]
fn who_dies_before_it_has_woken_its_reader_leaves_it_asleep() {
    let hour = Duration::from_hours(1);
    let (mut left, mut woken) = (0, 0);
    for seed in 0..100 {
        let Pair { world, mut a, mut b, to_b, region, there } = pair(seed, 64);
        b.park(hour, &mut |b| b.load(region, 0) == 0);
        put(&mut a, there, 0, 1, None);
        a.wake(to_b);
        world.crash("a");
        while world.step() {}
        let asleep = world.is_parked("b");
        assert_eq!(asleep, world.is_left_asleep("b"), "seed {seed}");
        left += u32::from(asleep && b.load(region, 0) == 1);
        woken += u32::from(!asleep);
        // If it looks once more, it does not count as left asleep.
        world.wake("b");
        b.park(hour, &mut |_| true);
        assert!(world.is_parked("b") && !world.is_left_asleep("b"));
    }
    assert!(left > 0 && woken > 0, "{left} were left with something to read, {woken} were woken");
}

#[test]
fn a_span_is_read_when_it_lands_unless_told_otherwise() {
    for late in [true, false] {
        let world = World::new(1, SimConfig { late_spans: late, ..SimConfig::default() });
        let (mut a, mut b) = (world.join("a"), world.join("b"));
        let to_b = a.dial("b").unwrap();
        let (mine, theirs) =
            (a.create(64, Permission::Shared).unwrap(), b.create(64, Permission::Shared).unwrap());
        let there = a.attach(to_b, &b.key(theirs)).unwrap();
        a.store(mine, 0, 1);
        a.write(there, 0, Source::Span { region: mine, at: 0, len: 8 }, None).unwrap();
        a.store(mine, 0, 2);
        while world.step() {}
        assert_eq!(b.load(theirs, 0), if late { 2 } else { 1 });
        assert_eq!(world.counters().late_spans, u64::from(late));
    }
}

#[test]
fn a_process_that_was_stopped_in_a_turn_sees_what_was_there_and_then_what_is() {
    let Pair { world, mut a, mut b, region, there, .. } = pair(7, 64);
    let write = |a: &mut SimFabric, word: u64| {
        a.write(there, 0, Source::Inline(&word.to_ne_bytes()), None).unwrap();
        while world.step() {}
    };
    write(&mut a, 1);
    world.stop_inside("b", 2, u64::MAX);
    write(&mut a, 2);
    assert_eq!(b.load(region, 0), 2, "a harness that looks for itself is in no turn");
    world.stir(true);
    assert_eq!([b.load(region, 0), b.load(region, 0), b.load(region, 0)], [1, 1, 2]);
    world.stir(false);

    let before = b.now();
    world.stop_inside("b", u64::MAX, 1);
    world.advance(Duration::from_millis(5));
    world.stir(true);
    assert_eq!(b.now(), before);
    assert_eq!(b.now(), before + Duration::from_millis(5));
    world.stir(false);

    world.stop_inside("b", u64::MAX, u64::MAX);
    write(&mut a, 3);
    world.stir(true);
    assert_eq!(b.load(region, 0), 2);
    b.store(region, 8, 9);
    assert_eq!(b.load(region, 0), 3, "what others may notice is done after it went on");
    world.stir(false);
    assert_eq!(world.counters().stopped_turns, 3);
}

#[test]
fn a_clock_stands_still_goes_on_and_jumps() {
    let Pair { world, a, mut b, .. } = pair(3, 64);
    world.skew("b", 0);
    let stopped = b.now();
    b.park(Duration::from_millis(1), &mut |_| true);
    world.advance(Duration::from_secs(1));
    assert!(b.now() == stopped && a.now() == world.now());
    assert!(world.is_parked("b"), "its time is never up");
    world.skew("b", 1000);
    assert!(!world.is_parked("b"), "it may be up, for all that it knows");
    world.advance(Duration::from_secs(1));
    assert_eq!(b.now(), stopped + Duration::from_secs(1));
    world.jump("b", Duration::from_hours(1));
    assert_eq!(b.now(), stopped + Duration::from_secs(3601));
}

#[test]
fn a_process_without_memory_neither_creates_a_region_nor_attaches_one() {
    let Pair { world, mut a, to_b, b, region, there, .. } = pair(3, 64);
    world.scarce("a", true);
    assert!(matches!(a.create(64, Permission::Shared), Err(FabricError::NoSpace { len: 64, .. })));
    assert!(matches!(a.attach(to_b, &b.key(region)), Err(FabricError::System { .. })));
    a.write(there, 0, Source::Inline(&[1; 8]), None).unwrap();
    world.scarce("a", false);
    a.create(64, Permission::Shared).unwrap();
    a.attach(to_b, &b.key(region)).unwrap();
    assert_eq!(world.counters().refused_regions, 2);
}

#[test]
fn anybodys_memory_can_be_looked_at() {
    let Pair { world, mut b, region, .. } = pair(1, 64);
    b.store(region, 8, 5);
    let mut word = [0; 8];
    world.peek("b", region, 8, &mut word);
    assert_eq!(u64::from_ne_bytes(word), 5);
}

#[test]
fn nothing_of_a_peer_lands_after_hanging_up_on_it() {
    let mut stopped = 0;
    for seed in 0..50 {
        let Pair { world, mut a, mut b, region, there, .. } = pair(seed, 512);
        let to_a = b.dial("a").unwrap();
        for i in 1..=20u64 {
            a.write(there, 0, Source::Inline(&i.to_ne_bytes().repeat(64)), None).unwrap();
        }
        world.step();
        world.crash("a");
        b.hang_up(to_a);
        let left = words(&b, region, 64);
        while world.step() {}
        assert_eq!(words(&b, region, 64), left, "seed {seed}");
        stopped += u64::from(left[0] < 20);
    }
    assert!(stopped > 0, "everything had landed already");
}
