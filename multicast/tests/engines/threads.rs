//! Engines and sessions on threads of one process, over each available fabric.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::any::AnyFabric;
use skein_fabric::shm::Host;
use skein_fabric::tcp::{Book, Net, Security};
use skein_fabric::wait::{Waiter, Waiting};
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::{Layout, Location};
use skein_multicast::operate::Identity;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

use crate::echo::Echo;

/// The messages that each replica of an engine delivered.
type Orders = Vec<(GroupId, Vec<MessageId>)>;

/// The fabric that engines and sessions share.
#[derive(Clone)]
enum Ground {
    Host(Host),
    Net(Net),
    #[cfg(feature = "verbs")]
    Cards(Net),
}

impl Ground {
    fn net() -> Net {
        Net::new("threads", Book::default(), Security::Plain)
    }

    /// RDMA devices, if there are any.
    #[cfg(feature = "verbs")]
    fn cards() -> Option<Self> {
        if skein_fabric::adapters::adapters().is_empty() {
            println!("verbs: not run: no RDMA device");
            return None;
        }
        Some(Self::Cards(Self::net()))
    }

    fn join(&self, name: &str) -> AnyFabric {
        if let Self::Net(net) = self {
            net.book().insert(name, "127.0.0.1:0");
        }
        match self {
            Self::Host(host) => host.join(name).unwrap().into(),
            Self::Net(net) => net.join(name).unwrap().into(),
            #[cfg(feature = "verbs")]
            Self::Cards(net) => {
                net.book().insert(name, "127.0.0.1:0");
                let config = skein_fabric::verbs::Config::default();
                skein_fabric::verbs::VerbsFabric::join(net, name, &config).unwrap().into()
            }
        }
    }

    /// Joins as a client, which waits for engines that have not started.
    fn visit(&self, name: &str) -> AnyFabric {
        match self {
            Self::Host(host) => host.join(name).unwrap().into(),
            Self::Net(net) => {
                let mut fabric = net.visit(name).unwrap();
                fabric.set_dial_timeout(Duration::from_secs(1));
                fabric.into()
            }
            #[cfg(feature = "verbs")]
            Self::Cards(net) => {
                let config = skein_fabric::verbs::Config::default();
                let mut fabric =
                    skein_fabric::verbs::VerbsFabric::visit(net, name, &config).unwrap();
                fabric.set_dial_timeout(Duration::from_secs(1));
                fabric.into()
            }
        }
    }
}

struct Cluster {
    ground: Ground,
    layout: Layout,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Orders>>,
}

impl Cluster {
    fn start(ground: Ground, layout: Layout, tuning: Tuning) -> Self {
        let topology = layout.topology();
        tuning.check().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ids = (0..topology.nodes).flat_map(|n| (0..topology.engines).map(move |e| (n, e)));
        let run = |(node, engine)| {
            let (ground, stop, layout) = (ground.clone(), stop.clone(), layout.clone());
            thread::spawn(move || {
                let fabric = ground.join(&endpoint_name(node, engine));
                let mut engine =
                    Engine::new(fabric, &layout, tuning, Identity::first(node, engine), |_| {
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
        Self { ground, layout, stop, threads }
    }

    /// Stops the engines, and checks that all replicas of a group have the same order, as far as they got.
    fn stop(self) -> Vec<Vec<MessageId>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut longest = vec![Vec::new(); usize::from(self.layout.topology().groups)];
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

/// Keeps `depth` messages in flight on each of `sessions` sessions, until `count` are answered.
fn drive(
    cluster: &Cluster,
    tuning: Tuning,
    sessions: usize,
    depth: usize,
    count: usize,
    destinations: impl Fn(u64) -> GroupSet,
    len: impl Fn(u64) -> usize,
) -> Duration {
    let fabric = cluster.ground.visit(&format!("c-{:016x}", rand::random::<u64>()));
    let mut access = SessionTransport::new(fabric, &cluster.layout, tuning);
    let keys: Vec<SessionKey> =
        (0..sessions).map(|_| access.open(SessionId::from_random(rand::random()))).collect();
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

/// The tests on each fabric, with as many messages as it carries in a short time.
macro_rules! on {
    ($fabric:ident, $ground:expr, $many:expr) => {
        mod $fabric {
            use super::*;

            #[test]
            fn one_group_orders_what_many_sessions_send() {
                if let Some(ground) = $ground {
                    super::one_group_orders_what_many_sessions_send(ground, $many);
                }
            }

            #[test]
            fn groups_agree_on_what_they_share() {
                if let Some(ground) = $ground {
                    super::groups_agree_on_what_they_share(ground, $many / 2);
                }
            }

            #[test]
            fn groups_agree_where_no_sizes_propose_their_layout() {
                if let Some(ground) = $ground {
                    super::groups_agree_where_no_sizes_propose_their_layout(ground, $many / 4);
                }
            }

            #[test]
            fn large_payloads_travel_in_fragments_through_small_rings() {
                if let Some(ground) = $ground {
                    super::large_payloads_travel_in_fragments(ground, $many / 100);
                }
            }
        }
    };
}

on!(on_shared_memory, Some(Ground::Host(Host::anonymous())), 50_000);
on!(on_a_network, Some(Ground::Net(Ground::net())), 20_000);
// Without real devices, emulated ones carry little.
#[cfg(feature = "verbs")]
on!(on_cards, Ground::cards(), 500);

/// With emulated devices, all processes share one slow processor.
fn tuning(ground: &Ground) -> Tuning {
    match ground {
        #[cfg(feature = "verbs")]
        Ground::Cards(_) => Tuning { heartbeat_ms: 50, ..Tuning::default() },
        _ => Tuning::default(),
    }
}

fn one_group_orders_what_many_sessions_send(ground: Ground, count: usize) {
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 }).unwrap();
    let tuning = tuning(&ground);
    let cluster = Cluster::start(ground, layout, tuning);
    let took = drive(&cluster, tuning, 16, 4, count, |_| GroupSet::first(1), |_| 64);
    println!("{count} messages to one group in {took:?}");
    assert_eq!(cluster.stop()[0].len(), count);
}

fn groups_agree_on_what_they_share(ground: Ground, count: usize) {
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 4, replicas: 3, engines: 2 }).unwrap();
    four_groups_agree(ground, layout, count);
}

/// Slot 0 of all groups lives on the last node, every group lacks another of the other nodes or has them in
/// another order, and most run on different engines of their nodes.
fn groups_agree_where_no_sizes_propose_their_layout(ground: Ground, count: usize) {
    let topology = Topology { nodes: 4, groups: 4, replicas: 3, engines: 2 };
    let at = |node, engine| Location { node, engine };
    let locations = [
        vec![at(3, 1), at(1, 0), at(2, 1)],
        vec![at(3, 0), at(2, 0), at(0, 1)],
        vec![at(3, 0), at(0, 0), at(1, 1)],
        vec![at(3, 1), at(2, 0), at(1, 0)],
    ];
    four_groups_agree(ground, Layout::new(topology, &locations).unwrap(), count);
}

fn four_groups_agree(ground: Ground, layout: Layout, count: usize) {
    let tuning = tuning(&ground);
    let cluster = Cluster::start(ground, layout, tuning);
    let to = |n: u64| match n % 5 {
        0 => GroupSet::first(4),
        1 => GroupSet::single(GroupId(1)).with(GroupId(3)),
        2 => GroupSet::first(2),
        n => GroupSet::single(GroupId(n as u16 - 3)),
    };
    let took = drive(&cluster, tuning, 8, 4, count, to, |n| (n % 300) as usize);
    println!("{count} messages to 4 groups in {took:?}");
    let orders = cluster.stop();
    for (a, b) in [(0, 1), (1, 3), (0, 3), (2, 3)] {
        let shared = |x: usize, y: usize| {
            let other: std::collections::BTreeSet<_> = orders[y].iter().collect();
            orders[x].iter().filter(|m| other.contains(m)).copied().collect::<Vec<_>>()
        };
        assert_eq!(shared(a, b), shared(b, a), "g{a} and g{b}");
    }
}

fn large_payloads_travel_in_fragments(ground: Ground, count: usize) {
    let layout =
        Layout::propose(Topology { nodes: 5, groups: 2, replicas: 5, engines: 1 }).unwrap();
    let tuning = tuning(&ground);
    let cluster = Cluster::start(ground, layout, tuning);
    let len = |n: u64| [1 << 20, 100, 5000, 300_000, 16][n as usize % 5];
    let to = |n: u64| {
        if n.is_multiple_of(3) {
            GroupSet::first(2)
        } else {
            GroupSet::single(GroupId(n as u16 % 2))
        }
    };
    let took = drive(&cluster, tuning, 4, 3, count, to, len);
    println!("{count} large messages in {took:?}");
    cluster.stop();
}
