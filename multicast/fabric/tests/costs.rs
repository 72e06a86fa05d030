//! Costs of requests in the simulation: each cost delays its own requests, and resources overlap.

use std::time::Duration;

use skein_fabric::counted::Counted;
use skein_fabric::sim::{Costs, LinkCosts, NicCosts, PostCosts, SimConfig, SimFabric, World};
use skein_fabric::{Fabric, Peer, Permission, Region, Remote, Source};

const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Each sum of these numbers has one decomposition. A cable carries a byte in a nanosecond.
const COSTS: Costs = Costs {
    post: PostCosts { request: ns(1_000), doorbell: ns(20_000) },
    nic: NicCosts {
        request: ns(300_000),
        completion: ns(5_000_000),
        fetch: ns(70_000_000),
        inline_max: 64,
    },
    link: LinkCosts { latency: ns(100_000_000_000), mbit_per_s: 8_000, mtu: 1_024, packet: 0 },
    stores: false,
};
/// Time of a request without its bytes on the cable: posting, two cards, and the latency.
const ALONE: u64 = 21_000 + 2 * 300_000 + 100_000_000_000;

/// Processes, each with a region that all others can write.
struct Scene {
    world: World,
    all: Vec<SimFabric>,
    regions: Vec<Region>,
}

impl Scene {
    fn new(costs: Costs, processes: usize) -> Self {
        let world = World::new(1, SimConfig::of_costs(costs));
        let mut all: Vec<_> = (0..processes).map(|i| world.join(&i.to_string())).collect();
        let create = |fabric: &mut SimFabric| fabric.create(1 << 20, Permission::Shared).unwrap();
        let regions = all.iter_mut().map(create).collect();
        Self { world, all, regions }
    }

    fn reach(&mut self, from: usize, to: usize) -> Remote {
        let key = self.all[to].key(self.regions[to]);
        let peer: Peer = self.all[from].dial(&to.to_string()).unwrap();
        self.all[from].attach(peer, &key).unwrap()
    }

    /// Writes so many bytes into the part of `to`'s region for `from`.
    fn write(&mut self, from: usize, to: usize, bytes: usize) {
        let remote = self.reach(from, to);
        let bytes = vec![1; bytes];
        let at = (from << 16) + 8;
        self.all[from].write(remote, at, Source::Inline(&bytes), Some(7)).unwrap();
    }

    fn post(&self, from: usize) -> Duration {
        self.world.post_all(&from.to_string())
    }

    /// Time at which the first word that `from` wrote arrives at `to`.
    fn seen(&self, from: usize, to: usize) -> u64 {
        while self.all[to].load(self.regions[to], (from << 16) + 8) == 0 {
            assert!(self.world.step(), "it never comes");
        }
        self.world.now().as_nanos() as u64
    }

    /// Time at which a single write of so many bytes arrives.
    fn alone(costs: Costs, bytes: usize) -> u64 {
        let mut scene = Self::new(costs, 2);
        scene.write(0, 1, bytes);
        scene.post(0);
        scene.seen(0, 1)
    }

    /// Time at which `from` sees the completion of its write.
    fn completed(&mut self, from: usize) -> u64 {
        let mut completions = Vec::new();
        loop {
            self.all[from].poll(&mut completions);
            if !completions.is_empty() {
                return self.world.now().as_nanos() as u64;
            }
            assert!(self.world.step(), "it never completes");
        }
    }
}

#[test]
fn a_write_passes_the_core_two_cards_and_the_cables() {
    assert_eq!(Scene::alone(COSTS, 8), ALONE + 8);
}

#[test]
fn nothing_leaves_before_the_turn_is_over() {
    let mut scene = Scene::new(COSTS, 2);
    scene.write(0, 1, 8);
    assert!(scene.world.has_unposted("0"));
    scene.world.advance(ns(1_000));
    assert_eq!(scene.world.next_due(), None);
    scene.post(0);
    assert!(!scene.world.has_unposted("0"));
    assert_eq!(scene.seen(0, 1), 1_000 + ALONE + 8);
}

#[test]
fn a_core_writes_each_request_and_rings_once_for_a_peer_and_a_flush() {
    let mut scene = Scene::new(COSTS, 3);
    scene.write(0, 1, 8);
    scene.write(0, 1, 8);
    assert_eq!(scene.post(0), ns(22_000), "two requests, one doorbell");
    scene.write(0, 1, 8);
    scene.write(0, 2, 8);
    assert_eq!(scene.post(0), ns(42_000), "two peers, two doorbells");
    scene.write(0, 1, 8);
    scene.all[0].flush();
    scene.write(0, 1, 8);
    assert_eq!(scene.post(0), ns(42_000), "two flushes, two doorbells");
}

#[test]
fn a_card_fetches_what_does_not_fit_into_a_request() {
    assert_eq!(Scene::alone(COSTS, 64), ALONE + 64);
    assert_eq!(Scene::alone(COSTS, 72), ALONE + 72 + 70_000_000);
}

#[test]
fn half_the_bandwidth_doubles_the_time_of_a_large_write() {
    let half = LinkCosts { mbit_per_s: 4_000, ..COSTS.link };
    let (whole, half) = (
        Scene::alone(COSTS, 60_000) - Scene::alone(COSTS, 72),
        Scene::alone(Costs { link: half, ..COSTS }, 60_000)
            - Scene::alone(Costs { link: half, ..COSTS }, 72),
    );
    assert_eq!((whole, half), (60_000 - 72, 2 * (60_000 - 72)));
}

#[test]
fn each_packet_has_a_header() {
    let link = LinkCosts { packet: 100, ..COSTS.link };
    let costs = Costs { link, ..COSTS };
    for (bytes, packets) in [(0, 1), (8, 1), (1_024, 1), (1_032, 2), (10_240, 10)] {
        // A write has at least one word.
        let bytes = bytes.max(8);
        let with = Scene::alone(costs, bytes) - Scene::alone(COSTS, bytes);
        assert_eq!(with, packets * 100, "{bytes} bytes");
    }
}

#[test]
fn a_busy_card_and_a_busy_cable_delay_what_comes_next() {
    // Whether the writers share a host, the second receiver, and the delay of the second write.
    let cases: [(bool, usize, u64, &str); 3] = [
        (false, 3, 0, "two hosts to two hosts"),
        (true, 3, 300_000, "one card and two hosts"),
        (false, 2, 300_000, "two hosts to one card"),
    ];
    for (shared, to, later, case) in cases {
        let mut scene = Scene::new(COSTS, 4);
        if shared {
            scene.world.share_host("1", "0");
        }
        scene.write(0, 2, 8);
        scene.write(1, to, 8);
        scene.post(0);
        scene.post(1);
        scene.seen(0, 2);
        assert_eq!(scene.seen(1, to), ALONE + 8 + later, "{case}");
    }
    // A cable slower than the card delays in the same way, at either end.
    let slow = LinkCosts { mbit_per_s: 8, ..COSTS.link };
    for (shared, to, case) in [(true, 3, "one cable away"), (false, 2, "one cable there")] {
        let mut scene = Scene::new(Costs { link: slow, ..COSTS }, 4);
        if shared {
            scene.world.share_host("1", "0");
        }
        scene.write(0, 2, 1_000);
        scene.write(1, to, 1_000);
        scene.post(0);
        scene.post(1);
        let first = scene.seen(0, 2);
        let second = scene.seen(1, to);
        assert_eq!(second - first, 1_000_000, "{case}");
    }
}

#[test]
fn the_directions_of_a_cable_and_of_a_card_overlap() {
    let mut scene = Scene::new(COSTS, 2);
    for (from, to) in [(0, 1), (1, 0)] {
        scene.write(from, to, 60_000);
        scene.post(from);
    }
    let fetched = ALONE + 60_000 + 70_000_000;
    assert_eq!((scene.seen(0, 1), scene.seen(1, 0)), (fetched, fetched));
}

#[test]
fn resources_work_at_the_same_time() {
    // The card takes as long for a request as the cable for its bytes.
    let nic = NicCosts { request: ns(1_000), fetch: ns(0), completion: ns(0), ..COSTS.nic };
    let mut scene = Scene::new(Costs { nic, ..COSTS }, 2);
    let alone = Scene::alone(Costs { nic, ..COSTS }, 1_000);
    for _ in 0..10 {
        scene.write(0, 1, 1_000);
    }
    scene.post(0);
    while scene.world.step() {}
    let busy = scene.world.busy("0");
    assert_eq!((busy.nic, busy.link), (ns(10_000), ns(10_000)));
    let mut scene = Scene::new(Costs { nic, ..COSTS }, 2);
    for _ in 0..9 {
        let remote = scene.reach(0, 1);
        scene.all[0].write(remote, 0x80_000, Source::Inline(&[1; 1_000]), None).unwrap();
    }
    scene.write(0, 1, 1_000);
    scene.post(0);
    // Each waits for the one before at the slowest resource, and the core posts all before the doorbell. No two
    // requests of one connection arrive in the same nanosecond.
    let (core, waits, apart) = (9 * 1_000, 9 * 1_000, 9);
    assert_eq!(scene.seen(0, 1), alone + core + waits + apart, "and not the sum of all");
}

#[test]
fn a_completion_takes_the_way_back_and_the_card() {
    let mut scene = Scene::new(COSTS, 2);
    scene.write(0, 1, 8);
    scene.post(0);
    let seen = scene.seen(0, 1);
    assert_eq!(scene.completed(0), seen + 100_000_000_000 + 5_000_000);
}

#[test]
fn within_a_host_nothing_passes_a_cable() {
    let mut scene = Scene::new(COSTS, 2);
    scene.world.share_host("1", "0");
    scene.write(0, 1, 8);
    scene.post(0);
    assert_eq!(scene.seen(0, 1), 21_000 + 2 * 300_000);
    assert_eq!(scene.world.busy("0").link, ns(0));
}

#[test]
fn a_store_is_complete_when_it_is_posted() {
    let mut scene = Scene::new(Costs { stores: true, ..COSTS }, 2);
    scene.write(0, 1, 8);
    assert_eq!(scene.completed(0), 0);
    scene.post(0);
    assert_eq!(scene.seen(0, 1), ALONE + 8);
    let mut completions = Vec::new();
    while scene.world.step() {}
    scene.all[0].poll(&mut completions);
    assert!(completions.is_empty(), "it completes once");
}

#[test]
fn a_process_that_does_not_sleep_is_not_woken() {
    let mut scene = Scene::new(COSTS, 2);
    let peer = scene.all[0].dial("1").unwrap();
    scene.all[0].wake(peer);
    assert!(!scene.world.has_unposted("0"));
    scene.all[1].park(ns(1_000), &mut |_| true);
    scene.all[0].wake(peer);
    assert!(scene.world.has_unposted("0"));
}

#[test]
fn what_is_asked_of_a_fabric_is_counted() {
    let world = World::new(1, SimConfig::default());
    let [mut one, mut other] = ["0", "1"].map(|name| Counted::new(world.join(name)));
    let region = other.create(64, Permission::Shared).unwrap();
    let mine = one.create(64, Permission::Shared).unwrap();
    let peer = one.dial("1").unwrap();
    let remote = one.attach(peer, &other.key(region)).unwrap();
    let before = one.asked();
    one.write(remote, 0, Source::Inline(&[1; 16]), Some(1)).unwrap();
    one.write(remote, 0, Source::Span { region: mine, at: 0, len: 8 }, None).unwrap();
    one.copy_in(mine, 0, &[1; 24]);
    one.copy_out(mine, 0, &mut [0; 32]);
    assert_eq!(one.changed(mine, &[u64::from_ne_bytes([1; 8]); 8], 0), Some(3));
    assert_eq!(one.changed(mine, &[0; 8], 3), None);
    let asked = one.asked() - before;
    assert_eq!((asked.requests, asked.copied), (2, 16 + 24 + 32));
    assert_eq!(asked.words, 4 + 5, "the first word that differs is compared, too");
}
