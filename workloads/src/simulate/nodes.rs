//! The nodes of a run: engines with the store's machines, which crash, restart and pause.

use std::sync::Arc;
use std::time::Duration;

use skein_checker::history::Digest;
use skein_client::Shape;
use skein_fabric::sim::{SimFabric, World};
use skein_fabric::wait::{Waiter, Waiting};
use skein_kvstore::machine::Machine;
use skein_kvstore::wire::Request;
use skein_multicast::Links;
use skein_multicast::application::Application;
use skein_multicast::config::endpoint_name;
use skein_multicast::engine::Engine;
use skein_multicast::operate::{Identity, Role};
use skein_multicast::roster::Roster;
use skein_protocol::ids::ReplicaId;

/// Maximum number of sessions that a node closes with one message.
const EXPIRED_MAX: usize = 16;

/// The process of a node, with one engine.
struct Node<O: Links> {
    name: String,
    /// `None` while the node is down.
    engine: Option<Engine<SimFabric, Machine, O>>,
    waiter: Waiter,
    stands_still: bool,
    /// Number of restarts.
    incarnation: u32,
}

/// The nodes of a run.
pub(super) struct Nodes<O: Links> {
    world: World,
    shape: Shape,
    all: Vec<Node<O>>,
}

impl<O: Links> Nodes<O> {
    pub(super) fn new(world: &World, shape: &Shape) -> Self {
        let node = |node| Node {
            name: endpoint_name(node, 0),
            engine: None,
            waiter: Waiter::new(Waiting::Park),
            stands_still: false,
            incarnation: 0,
        };
        let all = (0..shape.layout.topology().nodes).map(node).collect();
        let mut nodes = Self { world: world.clone(), shape: shape.clone(), all };
        (0..nodes.len()).for_each(|at| nodes.start(at));
        nodes
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn name(&self, at: usize) -> &str {
        &self.all[at].name
    }

    fn start(&mut self, at: usize) {
        let node = &mut self.all[at];
        let me = Identity { node: at as u16, engine: 0, incarnation: node.incarnation };
        let Shape { layout, tuning, limits, slots, .. } = self.shape.clone();
        let of_machines = layout.clone();
        let machine = move |id: ReplicaId| Machine::new(id, &of_machines, slots.clone(), limits);
        let fabric = self.world.join(&node.name);
        let roster = Arc::new(Roster::unrecorded(me.node, me.incarnation));
        let engine = Engine::with_roster(fabric, &layout, tuning, me, roster, None, machine)
            .expect("simulated memory does not run out");
        node.waiter = Waiter::new(Waiting::Park);
        node.engine = Some(engine);
    }

    /// Crashes a node, which loses its memory.
    pub(super) fn crash(&mut self, at: usize) {
        let node = &mut self.all[at];
        if let Some(engine) = node.engine.take() {
            self.world.crash(&node.name);
            drop(engine);
            node.stands_still = false;
        }
    }

    /// Starts a crashed node in its next incarnation.
    pub(super) fn restart(&mut self, at: usize) {
        if self.all[at].engine.is_none() {
            self.all[at].incarnation += 1;
            self.start(at);
        }
    }

    pub(super) fn stand_still(&mut self, at: usize, still: bool) {
        self.all[at].stands_still = still;
    }

    /// Runs one turn of a node. Returns whether it found work.
    pub(super) fn turn(&mut self, at: usize) -> bool {
        let node = &mut self.all[at];
        let Some(engine) = node.engine.as_mut().filter(|_| !node.stands_still) else {
            return false;
        };
        if self.world.is_parked(&node.name) {
            return false;
        }
        self.world.stir(true);
        let worked = engine.turn();
        let dead = engine.take_dead_sessions(EXPIRED_MAX);
        if !dead.is_empty() {
            engine.originate(&Request::Expire(dead).encode());
        }
        if worked {
            node.waiter.worked(engine.fabric());
        } else {
            engine.wait(&mut node.waiter, &|| true);
        }
        self.world.stir(false);
        worked
    }

    /// The earliest end of a node's sleep.
    pub(super) fn first_alarm(&self) -> Option<Duration> {
        let awake = self.all.iter().filter(|node| node.engine.is_some() && !node.stands_still);
        awake.filter_map(|node| self.world.parked_until(&node.name)).min()
    }

    /// Whether every node runs, and none of its replicas is a learner.
    pub(super) fn are_whole(&self) -> bool {
        let counts = |engine: &Engine<SimFabric, Machine, O>| {
            engine.status().iter().all(|replica| replica.role != Role::Learner)
        };
        self.all.iter().all(|node| node.engine.as_ref().is_some_and(counts))
    }

    /// The node with a replica that considers itself the leader of the group.
    pub(super) fn leader(&self, group: u16) -> Option<usize> {
        let leads = |node: &Node<O>| {
            let status = node.engine.as_ref().map(Engine::status).unwrap_or_default();
            status.iter().any(|replica| replica.group == group && replica.role == Role::Leader)
        };
        self.all.iter().position(leads)
    }

    /// A replica's report that it or another one has diverged.
    pub(super) fn divergence(&self) -> Option<String> {
        let engines = self.all.iter().filter_map(|node| node.engine.as_ref());
        let mut replicas = engines.flat_map(Engine::status);
        let found = replicas.find(|replica| replica.divergence.is_some())?;
        Some(format!("g{}.{} reports {:?}", found.group, found.slot, found.divergence))
    }

    /// Whether all replicas have the same slot map.
    pub(super) fn have_one_map(&self) -> bool {
        let engines = self.all.iter().filter_map(|node| node.engine.as_ref());
        let mut maps = engines.flat_map(|engine| {
            engine.applications().map(|(_, machine)| machine.slots().clone()).collect::<Vec<_>>()
        });
        let Some(first) = maps.next() else { return true };
        maps.all(|map| map == first)
    }

    /// Digests of all replicas, once the replicas of each group have delivered the same messages.
    pub(super) fn digests(&self, t: u64) -> Option<Vec<Digest>> {
        let engines = self
            .all
            .iter()
            .enumerate()
            .filter_map(|(at, node)| node.engine.as_ref().map(|engine| (at as u16, engine)));
        let mut digests = Vec::new();
        for (node, engine) in engines {
            for (ReplicaId { group, slot }, machine) in engine.applications() {
                let Ok(digest) = machine.digest();
                let (position, digest) = (machine.history().0, format!("{digest:016x}"));
                if machine.under_way() > 0 {
                    return None;
                }
                digests.push(Digest { t, group: group.0, slot, node, position, digest });
            }
        }
        let same = |one: &Digest| {
            let mut group = digests.iter().filter(|other| other.group == one.group);
            group.all(|other| other.position == one.position)
        };
        digests.iter().all(same).then_some(digests)
    }
}
