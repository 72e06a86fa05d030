//! The multicast on simulated hardware: the same engines and sessions, in virtual time.
//!
//! Three kinds of resources take time. Each is a queue, and all work at the same time: the cores that engines and
//! sessions run on ([`cpu`]), network cards, and cables (`skein_fabric::sim`, by
//! [`Costs`](skein_fabric::sim::Costs)). A turn reads memory as it is when the turn begins, takes as long as the
//! instructions that it executes, and then posts its requests. [`profile`] has the costs of each hardware. Caches,
//! lost packets and jitter are not modelled.

mod actors;
pub mod cpu;
pub mod profile;
pub mod utilisation;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_fabric::FabricError;
use skein_fabric::counted::Counted;
use skein_fabric::sim::{SimConfig, World};
use skein_multicast::Links;
use skein_multicast::batches::Batches;
use skein_multicast::config::{Tuning, endpoint_name};
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::session_transport::SessionTransport;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::tram::Tram;

use self::actors::{Actor, Client, SimEngine, Tally};
use self::cpu::Cpu;
use self::profile::Hardware;
use self::utilisation::BusyTimes;
use super::destinations::Destinations;
use super::engines;
use super::load::{Measured, Plan};
use crate::generator::{Errors, Progress, histogram};

/// Pause after each turn until every session has had a reply: leaders are elected after milliseconds, and nothing is
/// measured before.
const POLL_AT_START: Duration = Duration::from_micros(20);

/// A run ends early if no message returns for so long.
const BLOCKED_AFTER: Duration = Duration::from_millis(500);
/// Number of steps between two calls of `watch`.
const WATCH_EVERY: u64 = 100_000;

/// The next step of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Posts the requests of the turn that is over.
    Post,
    /// Begins the next turn.
    Turn,
}

struct Simulation<'a, O: Links> {
    plan: &'a Plan,
    hardware: Hardware,
    world: World,
    names: Vec<String>,
    actors: Vec<Actor<O>>,
    cpus: Vec<Cpu>,
    measured: Measured,
    tally: Tally,
    /// Start of the measurement; `None` until every session has had a reply.
    from: Option<Duration>,
    /// Busy times at the start of the measurement.
    before: Option<BusyTimes>,
}

/// Runs `plan`, whose times are virtual, on `hardware`, with engines as `layout` places them, of the ordering that it
/// asks for. Along a tree, replies do not wait for the order of real time if `ungated`. `watch` receives the progress every
/// `WATCH_EVERY` steps. The run ends if it returns false.
///
/// # Errors
/// Fails if the simulated fabric refuses a region or a connection.
pub fn run(
    plan: &Plan,
    layout: &Layout,
    hardware: Hardware,
    ungated: bool,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<Measured, FabricError> {
    if layout.tree().is_none() {
        return run_with::<Ramcast>(plan, layout, hardware, &|_| {}, watch);
    }
    let ungate = |engine: &mut SimEngine<Tram>| {
        if ungated {
            engine.ungate();
        }
    };
    run_with(plan, layout, hardware, &ungate, watch)
}

fn run_with<O: Links>(
    plan: &Plan,
    layout: &Layout,
    hardware: Hardware,
    prepare: &dyn Fn(&mut SimEngine<O>),
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<Measured, FabricError> {
    let world = World::new(plan.seed, SimConfig::of_costs(hardware.costs()));
    let mut simulation = Simulation::<O> {
        plan,
        hardware,
        world,
        names: Vec::new(),
        actors: Vec::new(),
        cpus: Vec::new(),
        measured: Measured {
            measured_for: plan.duration,
            latency_ns: histogram(),
            errors: Errors::default(),
            ended_early: None,
            batches: Batches::default(),
            utilisation: None,
        },
        tally: Tally { without_reply: plan.clients, ..Tally::default() },
        from: None,
        before: None,
    };
    simulation.start(layout, prepare)?;
    simulation.drive(watch);
    simulation.measured.say_if_empty(plan);
    let busy = simulation.busy_times();
    let measured = &mut simulation.measured;
    measured.utilisation =
        simulation.before.as_ref().map(|before| busy.since(before, measured.measured_for));
    for actor in &simulation.actors {
        if let Actor::Engine(engine) = actor {
            measured.batches.add(&engine.batches());
        }
    }
    Ok(simulation.measured)
}

impl<O: Links> Simulation<'_, O> {
    /// Creates engines and sessions, and connects the engines.
    fn start(
        &mut self,
        layout: &Layout,
        prepare: &dyn Fn(&mut SimEngine<O>),
    ) -> Result<(), FabricError> {
        // A log that this load fills within milliseconds, like the log of a cluster that has run for long.
        let largest = Tuning::default().log_bytes;
        let log_bytes =
            (self.plan.payload_bytes << 10).next_power_of_two().clamp(256 << 10, largest);
        let tuning = Tuning { log_bytes, window: self.plan.window, ..Tuning::default() };
        let topology = layout.topology();
        for node in 0..topology.nodes {
            for engine in 0..topology.engines {
                let name = endpoint_name(node, engine);
                let (fabric, me) = (self.world.join(&name), Identity::first(node, engine));
                let mut engine = engines::engine(Counted::new(fabric), layout, tuning, me)?;
                prepare(&mut engine);
                self.add(name, Actor::Engine(Box::new(engine)));
            }
        }
        let met = |actor: &Actor<O>| matches!(actor, Actor::Engine(engine) if engine.connected());
        while !self.actors.iter().all(met) {
            self.world.advance(Duration::from_millis(tuning.heartbeat_ms));
            for (actor, name) in self.actors.iter_mut().zip(&self.names) {
                if let Actor::Engine(engine) = actor {
                    engine.turn();
                    self.world.post_all(name);
                }
            }
        }
        let engines = self.actors.len();
        let mut random = SmallRng::seed_from_u64(self.plan.seed);
        let destinations = Destinations::of(self.plan);
        let threads = if self.hardware.shares_cores() { 1 } else { self.plan.clients };
        for thread in 0..threads {
            let name = format!("client{thread}");
            let fabric = Counted::new(self.world.join(&name));
            let transport = SessionTransport::new(fabric, layout, tuning);
            let client = Client::new(
                transport,
                self.plan.clients / threads,
                destinations.clone(),
                &mut random,
            );
            self.add(name, Actor::Client(Box::new(client)));
        }
        self.place(engines);
        Ok(())
    }

    fn add(&mut self, name: String, actor: Actor<O>) {
        self.names.push(name);
        self.actors.push(actor);
    }

    /// Assigns cores. The first `engines` actors are engines, the others sessions.
    fn place(&mut self, engines: usize) {
        let all = self.actors.len();
        if !self.hardware.shares_cores() {
            self.cpus = (0..all).map(|actor| Cpu::new(vec![actor])).collect();
            return;
        }
        self.cpus = vec![Cpu::new((0..engines).collect()), Cpu::new((engines..all).collect())];
        for actors in [0..engines, engines..all] {
            for name in &self.names[actors.clone()] {
                self.world.share_host(name, &self.names[actors.start]);
            }
        }
    }

    fn drive(&mut self, watch: &mut dyn FnMut(Progress) -> bool) {
        let began = self.world.now();
        self.tally.last_reply = began;
        // No two cores begin at the same moment.
        let mut random = SmallRng::seed_from_u64(self.plan.seed);
        let mut steps: BinaryHeap<_> = (0..self.cpus.len())
            .map(|cpu| Reverse((began + POLL_AT_START.mul_f64(random.random()), Step::Turn, cpu)))
            .collect();
        let mut looks = 0_u64;
        while let Some(Reverse((at, step, cpu))) = steps.pop() {
            self.world.advance(at.saturating_sub(self.world.now()));
            if self.from.is_some_and(|from| at >= from + self.plan.duration) {
                return;
            }
            let next = match step {
                Step::Turn => (self.turn(cpu, at), Step::Post, cpu),
                Step::Post => (self.post(cpu, at), Step::Turn, cpu),
            };
            steps.push(Reverse(next));
            if self.tally.without_reply == 0 {
                self.from.get_or_insert(at + self.plan.warm_up);
            }
            if self.before.is_none() && self.from.is_some_and(|from| at >= from) {
                self.before = Some(self.busy_times());
            }
            looks += 1;
            if looks.is_multiple_of(WATCH_EVERY) {
                let (elapsed, errors) = (at.saturating_sub(began), self.measured.errors.total());
                let returned = self.tally.returned;
                let blocked = at > self.tally.last_reply + BLOCKED_AFTER;
                if blocked || !watch(Progress { elapsed, returned, errors }) {
                    let why =
                        if blocked { "no message has returned for 500 ms" } else { "interrupted" };
                    self.measured.ended_early = Some(why.to_owned());
                    self.measured.measured_for =
                        self.from.map_or(Duration::ZERO, |from| at.saturating_sub(from));
                    return;
                }
            }
        }
    }

    /// Runs one turn of the actor that is next on a core. Returns when the turn ends.
    fn turn(&mut self, cpu: usize, now: Duration) -> Duration {
        let actor = &mut self.actors[self.cpus[cpu].actor()];
        let before = actor.amounts();
        let measures = self.from.is_some_and(|from| now >= from);
        let worked = match actor {
            Actor::Engine(engine) => engine.turn(),
            Actor::Client(client) => {
                client.turn(self.plan, now, measures, &mut self.measured, &mut self.tally)
            }
        };
        let instructions = actor.instructions(self.hardware).of(&(actor.amounts() - before));
        let took = self.hardware.speed().time(instructions);
        if worked {
            self.cpus[cpu].busy += took;
        }
        now + took
    }

    /// Posts the requests of a core's last turn. Returns when its next turn begins.
    fn post(&mut self, cpu: usize, now: Duration) -> Duration {
        let name = &self.names[self.cpus[cpu].actor()];
        let posted = if self.world.has_unposted(name) { self.world.post_all(name) } else { now };
        self.cpus[cpu].busy += posted.saturating_sub(now);
        self.cpus[cpu].next_actor();
        if self.from.is_some() { posted } else { posted + POLL_AT_START }
    }

    fn busy_times(&self) -> BusyTimes {
        let mut all = BusyTimes::default();
        for cpu in &self.cpus {
            let is_engine = matches!(self.actors[cpu.actor()], Actor::Engine(_));
            let of = if is_engine { &mut all.engines } else { &mut all.sessions };
            of.push(cpu.busy, self.world.busy(&self.names[cpu.actor()]));
        }
        all
    }
}

#[cfg(test)]
mod tests;
