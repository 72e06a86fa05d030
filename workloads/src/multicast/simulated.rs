//! What the protocol would do on hardware that is not here: the same engines and sessions, in virtual
//! time, each with a core of its own.
//!
//! A process takes turns one after the other. A turn takes what looking at everything takes, and then
//! as long as what it has posted takes to post; a request that was posted is seen some time after it
//! has left. No process sends or takes more bytes than its cable carries. Nothing else takes time: how
//! the protocol's own instructions compare is for `docs/performance.md`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_fabric::FabricError;
use skein_fabric::sim::{Costs, SimConfig, SimFabric, World};
use skein_multicast::application::Answer;
use skein_multicast::batches::Batches;
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupSet, SessionId};

use super::load::{Measured, Plan, draw};
use crate::generator::{Errors, Progress, histogram};

/// How long the cards of the papers take: a write 1.7 µs from when it leaves (Spindle, section 3.1); a
/// fifth of a microsecond to post it, as those to one peer leave with one doorbell (by itself, and
/// through a library, Spindle found one); a network of 10 Gbit/s (RamCast, section 5.2).
pub const COSTS: Costs = Costs {
    write: Duration::from_nanos(1_700),
    post: Duration::from_nanos(200),
    bytes_per_us: 1_250,
};
/// How long a turn takes that finds nothing.
pub const POLL: Duration = Duration::from_nanos(300);
/// Until everybody has had an answer nothing is measured, and whoever finds nothing takes his time:
/// leaders are elected by a clock that passes in milliseconds.
const POLL_AT_START: Duration = Duration::from_micros(20);

/// Messages without an answer for so long will never have one.
const STUCK_AFTER: Duration = Duration::from_millis(500);
const WATCH_EVERY: u64 = 100_000;

/// A node for each replica of a group, and on each node an engine for each group: so that every
/// replica has a core.
pub const fn topology(groups: u16, replicas: u8) -> Topology {
    Topology { nodes: replicas as u16, groups, replicas, engines: groups }
}

/// Whoever has a core.
enum Actor {
    Engine(Box<Engine<SimFabric, Answer>>),
    Client(Box<Client>),
}

/// A process with one session.
struct Client {
    access: SessionTransport<SimFabric>,
    key: SessionKey,
    random: SmallRng,
    /// What is under way, and since when.
    under_way: Vec<(u64, GroupSet, Duration)>,
    /// It has had an answer.
    known: bool,
}

struct Simulation<'a> {
    plan: &'a Plan,
    world: World,
    names: Vec<String>,
    actors: Vec<Actor>,
    measured: Measured,
    returned: u64,
    last_answer: Duration,
    /// Clients that have had no answer yet: their channels are being opened.
    strangers: usize,
    /// From when on is measured, once everybody has had an answer.
    from: Option<Duration>,
}

/// Runs `plan`, whose times are virtual, on `layout`. `watch` sees the progress now and then; false
/// ends the run.
pub fn run(
    plan: &Plan,
    layout: &Layout,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<Measured, FabricError> {
    let world = World::new(plan.seed, SimConfig::of_costs(COSTS));
    // A small log is soon full, as it is where a cluster runs for long.
    let tuning = Tuning { log_bytes: 256 << 10, window: plan.window, ..Tuning::default() };
    let mut simulation = Simulation {
        plan,
        world,
        names: Vec::new(),
        actors: Vec::new(),
        measured: Measured {
            measured_for: plan.duration,
            latency_ns: histogram(),
            errors: Errors::default(),
            ended_early: None,
            batches: Batches::default(),
        },
        returned: 0,
        last_answer: Duration::ZERO,
        strangers: plan.clients,
        from: None,
    };
    simulation.start(layout, tuning)?;
    simulation.drive(watch);
    for actor in &simulation.actors {
        if let Actor::Engine(engine) = actor {
            simulation.measured.batches.add(&engine.batches());
        }
    }
    Ok(simulation.measured)
}

impl Simulation<'_> {
    /// Has everybody meet.
    fn start(&mut self, layout: &Layout, tuning: Tuning) -> Result<(), FabricError> {
        let topology = layout.topology();
        for node in 0..topology.nodes {
            for engine in 0..topology.engines {
                let name = endpoint_name(node, engine);
                let (fabric, me) = (self.world.join(&name), Identity::first(node, engine));
                let engine = Engine::new(fabric, layout, tuning, me, |_| Answer)?;
                self.names.push(name);
                self.actors.push(Actor::Engine(Box::new(engine)));
            }
        }
        let met = |actor: &Actor| matches!(actor, Actor::Engine(engine) if engine.connected());
        while !self.actors.iter().all(met) {
            self.world.advance(Duration::from_millis(tuning.heartbeat_ms));
            for actor in &mut self.actors {
                if let Actor::Engine(engine) = actor {
                    engine.turn();
                }
            }
        }
        let mut random = SmallRng::seed_from_u64(self.plan.seed);
        for client in 0..self.plan.clients {
            let name = format!("client{client}");
            let mut access = SessionTransport::new(self.world.join(&name), layout, tuning);
            let key = access.open(SessionId(random.random()));
            let random = SmallRng::seed_from_u64(random.random());
            self.names.push(name);
            let client = Client { access, key, random, under_way: Vec::new(), known: false };
            self.actors.push(Actor::Client(Box::new(client)));
        }
        Ok(())
    }

    fn drive(&mut self, watch: &mut dyn FnMut(Progress) -> bool) {
        let began = self.world.now();
        self.last_answer = began;
        // Nobody looks at the same moment as another.
        let mut random = SmallRng::seed_from_u64(self.plan.seed);
        let mut turns: BinaryHeap<_> = (0..self.actors.len())
            .map(|actor| Reverse((began + POLL.mul_f64(random.random()), actor)))
            .collect();
        let mut looks = 0_u64;
        while let Some(Reverse((at, actor))) = turns.pop() {
            self.world.advance(at.saturating_sub(self.world.now()));
            if self.from.is_some_and(|from| at >= from + self.plan.duration) {
                return;
            }
            self.turn(actor, at);
            if self.strangers == 0 {
                self.from.get_or_insert(at + self.plan.warm_up);
            }
            let poll = if self.from.is_some() { POLL } else { POLL_AT_START };
            let next = (at + poll).max(self.world.busy_until(&self.names[actor]));
            turns.push(Reverse((next, actor)));
            looks += 1;
            if looks.is_multiple_of(WATCH_EVERY) {
                let (elapsed, errors) = (at.saturating_sub(began), self.measured.errors.total());
                let stuck = at > self.last_answer + STUCK_AFTER;
                if stuck || !watch(Progress { elapsed, returned: self.returned, errors }) {
                    let why = if stuck { "nothing is answered any more" } else { "interrupted" };
                    self.measured.ended_early = Some(why.to_owned());
                    self.measured.measured_for =
                        self.from.map_or(Duration::ZERO, |from| at.saturating_sub(from));
                    return;
                }
            }
        }
    }

    /// One does what there is to do.
    fn turn(&mut self, actor: usize, now: Duration) {
        let client = match &mut self.actors[actor] {
            Actor::Engine(engine) => {
                engine.turn();
                return;
            }
            Actor::Client(client) => client,
        };
        let Client { access, key, random, under_way, known } = &mut **client;
        let mut answered = Vec::new();
        let errors = &mut self.measured.errors;
        let turned = access.turn(&mut |reply| {
            let found = under_way.iter_mut().find(|(sequence, ..)| *sequence == reply.sequence);
            match found {
                Some((sequence, left, _)) if reply.bytes == sequence.to_le_bytes() => {
                    *left = left.without(reply.group);
                    if left.is_empty() {
                        answered.push(*sequence);
                    }
                }
                _ => errors.add("wrong_reply", || format!("{} to {}", reply.group, reply.sequence)),
            }
        });
        if let Err(error) = turned {
            errors.add("fabric", || error.to_string());
        }
        for sequence in answered {
            let at = under_way.iter().position(|(known, ..)| *known == sequence);
            let (.., since) = under_way.swap_remove(at.expect("just answered"));
            access.settle(*key, sequence);
            self.returned += 1;
            self.last_answer = now;
            self.strangers -= usize::from(!std::mem::replace(known, true));
            if self.from.is_some_and(|from| now >= from) {
                let took = now.saturating_sub(since).as_nanos() as u64;
                self.measured.latency_ns.saturating_record(took.max(1));
            }
        }
        while under_way.len() < self.plan.depth {
            let to = draw(random, self.plan);
            let payload = vec![0x5a; self.plan.payload_bytes];
            let Ok(sequence) = access.multicast(*key, to, &payload) else { break };
            under_way.push((sequence, to, now));
            // What was multicast is written at the turn's end.
            let _ = access.turn(&mut |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(groups: u16, clients: usize) -> Measured {
        let plan = Plan {
            groups,
            destinations: groups,
            payload_bytes: 64,
            clients,
            idle: 0,
            depth: 1,
            window: 64,
            rate: None,
            warm_up: Duration::from_micros(500),
            duration: Duration::from_millis(2),
            seed: 1,
        };
        run(&plan, &Layout::propose(topology(groups, 3)).unwrap(), &mut |_| true).unwrap()
    }

    #[test]
    fn a_message_takes_a_few_writes_and_more_clients_do_more() {
        let one = measure(1, 1);
        assert!(one.errors.total() == 0 && one.ended_early.is_none(), "{one:?}");
        let p50 = one.latency_ns.value_at_quantile(0.5);
        println!("1 group: p50 {p50} ns");
        assert!((3 * 1_700..12 * 1_700).contains(&p50), "{p50} ns");
        let many = measure(1, 16);
        assert!(many.latency_ns.len() > 3 * one.latency_ns.len());
        let two = measure(2, 1);
        assert!(two.errors.total() == 0, "{two:?}");
        let p50_of_two = two.latency_ns.value_at_quantile(0.5);
        println!("2 groups: p50 {p50_of_two} ns; 16 clients: {} messages", many.latency_ns.len());
        assert!(p50_of_two > p50, "groups that agree take longer than one that need not");
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let latencies = || {
            measure(2, 3)
                .latency_ns
                .iter_recorded()
                .map(|v| v.value_iterated_to())
                .collect::<Vec<_>>()
        };
        assert_eq!(latencies(), latencies());
    }
}
