//! Engines and sessions on threads of one process, over anonymous shared memory.

mod echo;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::shm::Host;
use skein_fabric::wait::{Waiter, Waiting};
use skein_multicast::access::{Access, SessionKey};
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::operate::Identity;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

use self::echo::Echo;

/// What each replica of an engine delivered.
type Orders = Vec<(GroupId, Vec<MessageId>)>;

struct Cluster {
    host: Host,
    topology: Topology,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Orders>>,
}

impl Cluster {
    fn start(topology: Topology, tuning: Tuning) -> Self {
        topology.check().unwrap();
        tuning.check().unwrap();
        let host = Host::anonymous();
        let stop = Arc::new(AtomicBool::new(false));
        let ids = (0..topology.nodes).flat_map(|n| (0..topology.engines).map(move |e| (n, e)));
        let run = |(node, engine)| {
            let (host, stop) = (host.clone(), stop.clone());
            thread::spawn(move || {
                let fabric = host.join(&endpoint_name(node, engine)).unwrap();
                let mut engine =
                    Engine::new(fabric, topology, tuning, Identity::first(node, engine), |_| {
                        Echo::default()
                    })
                    .unwrap();
                let mut waiter = Waiter::new(Waiting::Adaptive);
                while !stop.load(Ordering::Relaxed) {
                    if engine.turn() {
                        waiter.worked(engine.fabric());
                    } else {
                        engine.wait(&mut waiter, &|| true);
                    }
                }
                engine.applications().map(|(id, echo)| (id.group, echo.order.clone())).collect()
            })
        };
        let threads = ids.map(run).collect();
        Self { host, topology, stop, threads }
    }

    /// Stops, and checks that all replicas of a group have the same order as far as they got.
    fn stop(self) -> Vec<Vec<MessageId>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut longest = vec![Vec::new(); usize::from(self.topology.groups)];
        for (group, order) in self.threads.into_iter().flat_map(|t| t.join().unwrap()) {
            let longest: &mut Vec<MessageId> = &mut longest[group.index()];
            assert!(longest.starts_with(&order) || order.starts_with(longest), "{group}");
            if order.len() > longest.len() {
                *longest = order;
            }
        }
        longest
    }
}

/// Keeps `depth` messages under way on each of `sessions`, until `count` are answered.
fn drive(
    cluster: &Cluster,
    tuning: Tuning,
    sessions: usize,
    depth: usize,
    count: usize,
    destinations: impl Fn(u64) -> GroupSet,
    len: impl Fn(u64) -> usize,
) -> Duration {
    let fabric = cluster.host.join(&format!("c-{:016x}", rand::random::<u64>())).unwrap();
    let mut access = Access::new(fabric, cluster.topology, tuning);
    let keys: Vec<SessionKey> =
        (0..sessions).map(|_| access.open(SessionId(rand::random()))).collect();
    let mut under_way = vec![std::collections::BTreeMap::<u64, GroupSet>::new(); sessions];
    let mut next = vec![1_u64; sessions];
    let (mut sent, mut answered) = (0, 0);
    let mut waiter = Waiter::new(Waiting::Adaptive);
    let mut replies = Vec::new();
    let start = Instant::now();
    while answered < count {
        for (s, key) in keys.iter().enumerate() {
            while under_way[s].len() < depth && sent < count {
                let sequence = next[s];
                let to = destinations(sequence);
                let payload = vec![sequence as u8; len(sequence)];
                match access.multicast(*key, to, &payload) {
                    Ok(given) => assert_eq!(given, sequence),
                    Err(_) => break,
                }
                under_way[s].insert(sequence, to);
                next[s] += 1;
                sent += 1;
            }
        }
        let worked = access
            .turn(&mut |reply| {
                let reported = u64::from_le_bytes(reply.bytes[8..].try_into().unwrap());
                assert_eq!(reported, len(reply.sequence) as u64);
                replies.push((reply.session, reply.sequence, reply.group));
            })
            .unwrap();
        for (session, sequence, group) in replies.drain(..) {
            let s = keys.iter().position(|key| *key == session).unwrap();
            let left = under_way[s].get_mut(&sequence).expect("answered once");
            assert!(left.contains(group));
            *left = left.without(group);
            if left.is_empty() {
                under_way[s].remove(&sequence);
                access.settle(session, sequence);
                answered += 1;
            }
        }
        if worked {
            waiter.worked(access.fabric());
        } else {
            access.wait(&mut waiter, Duration::from_millis(10), &|| true);
        }
        assert!(start.elapsed() < Duration::from_mins(1), "stuck at {answered} of {count}");
    }
    start.elapsed()
}

#[test]
fn one_group_orders_what_many_sessions_send() {
    let topology = Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 };
    let tuning = Tuning::default();
    let cluster = Cluster::start(topology, tuning);
    let took = drive(&cluster, tuning, 16, 4, 50_000, |_| GroupSet::first(1), |_| 64);
    println!("50,000 messages to one group in {took:?}");
    assert_eq!(cluster.stop()[0].len(), 50_000);
}

#[test]
fn groups_agree_on_what_they_share() {
    let topology = Topology { nodes: 3, groups: 4, replicas: 3, engines: 2 };
    let tuning = Tuning::default();
    let cluster = Cluster::start(topology, tuning);
    let to = |n: u64| match n % 5 {
        0 => GroupSet::first(4),
        1 => GroupSet::single(GroupId(1)).with(GroupId(3)),
        2 => GroupSet::first(2),
        n => GroupSet::single(GroupId(n as u16 - 3)),
    };
    let took = drive(&cluster, tuning, 8, 4, 20_000, to, |n| (n % 300) as usize);
    println!("20,000 messages to 4 groups in {took:?}");
    let orders = cluster.stop();
    for (a, b) in [(0, 1), (1, 3), (0, 3), (2, 3)] {
        let shared = |x: usize, y: usize| {
            let other: std::collections::BTreeSet<_> = orders[y].iter().collect();
            orders[x].iter().filter(|m| other.contains(m)).copied().collect::<Vec<_>>()
        };
        assert_eq!(shared(a, b), shared(b, a), "g{a} and g{b}");
    }
}

#[test]
fn large_payloads_travel_in_fragments_through_small_rings() {
    let topology = Topology { nodes: 5, groups: 2, replicas: 5, engines: 1 };
    let tuning = Tuning::default();
    let cluster = Cluster::start(topology, tuning);
    let len = |n: u64| [1 << 20, 100, 5000, 300_000, 16][n as usize % 5];
    let to = |n: u64| {
        if n.is_multiple_of(3) {
            GroupSet::first(2)
        } else {
            GroupSet::single(GroupId(n as u16 % 2))
        }
    };
    let took = drive(&cluster, tuning, 4, 3, 400, to, len);
    println!("400 large messages in {took:?}");
    cluster.stop();
}
