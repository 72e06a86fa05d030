//! The run itself: who does what next, drawn from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use skein_fabric::sim::{Rng, World};
use skein_protocol::ids::{ReplicaId, SessionId};
use skein_protocol::properties::Violation;

use super::Driven;
use super::checker::Onlooker;
use super::clients::Clients;
use super::injector::Injector;
use super::nodes::Nodes;
use super::{Coverage, Report, Scenario};
use crate::channel::Channel;
use crate::engine::Engine;
use crate::introductions::Purpose;
use crate::operate::ReplicaStatus;
use crate::replica::Replica;

/// Messages after which a run stops sending, lapped or not.
const MESSAGES_MAX: u64 = 20_000;
/// How long nothing may come of anything, in virtual time, while nothing holds it back; and for how many
/// steps, for who goes round in a circle may need no time for it.
const PATIENCE: Duration = Duration::from_secs(10);
const STEPS_MAX: u64 = 5_000_000;
/// For how many steps nothing may come of anything at least, whatever time has passed. Where most steps land
/// something that was long under way, time passes by that, and seconds of it are a few turns of each process:
/// a group that waits for a clock, or copies a state part by part, has not had the chance to.
const STEPS_MIN: u64 = 100_000;
/// Sessions that nobody has seen come back, though they have, would be ended within that time.
const ABSENCE: Duration = Duration::from_secs(7);
/// Faults are looked after once in so many steps, and memories once in so many.
const FAULTS_EVERY: u64 = 16;
const INSPECT_EVERY: u64 = 256;
/// The longest time that passes at once.
const NAP: Duration = Duration::from_millis(2);
/// Lines of trace that are kept.
const TRACE_MAX: usize = 4000;

/// What everybody in a run needs.
pub(super) struct Stage<O: Driven> {
    pub(super) scenario: Scenario,
    pub(super) world: World,
    pub(super) rng: Rng,
    pub(super) onlooker: Onlooker<O>,
    pub(super) trace: Option<Vec<String>>,
}

impl<O: Driven> Stage<O> {
    /// Keeps a line of trace, if a trace is kept.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:.3?} {}", self.world.now(), line()));
        }
    }
}

pub(super) struct Simulation<O: Driven> {
    stage: Stage<O>,
    nodes: Nodes<O>,
    clients: Clients,
    injector: Injector,
    steps: u64,
    /// Replies that were not sent, as last counted.
    drops: u64,
    /// As they were when sending ended.
    laps: u64,
    /// Turns in a row, of whomever, that found nothing.
    idle: usize,
    /// When something last came of something, and after how many steps.
    progress: Duration,
    progress_steps: u64,
    /// When a learner was last seen to have more of a state than it ever had, and after how many steps. Some
    /// machines are copied an entry at a time, and a state of many messages takes longer than anything else.
    learned: Duration,
    learned_steps: u64,
    /// The most that each incarnation of a replica was given of a state: one that begins anew has come no further.
    taken: BTreeMap<(ReplicaId, u32), u64>,
}

impl<O: Driven> Simulation<O> {
    pub(super) fn new(scenario: Scenario, trace: bool) -> Result<Self, Violation> {
        scenario.topology.check().expect("a scenario that can be");
        scenario.tuning.check().expect("sizes that can be");
        let schedule = scenario.reduction.schedule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let world = World::new(scenario.seed ^ schedule, scenario.world());
        let injector = Injector::new(&scenario.faults);
        let mut stage = Stage {
            rng: world.fork_rng(),
            scenario,
            world,
            onlooker: Onlooker::default(),
            trace: trace.then(Vec::new),
        };
        let nodes = Nodes::new(&mut stage)?;
        let clients = Clients::new(&mut stage);
        Ok(Self {
            stage,
            nodes,
            clients,
            injector,
            steps: 0,
            drops: 0,
            laps: 0,
            idle: 0,
            progress: Duration::ZERO,
            progress_steps: 0,
            learned: Duration::ZERO,
            learned_steps: 0,
            taken: BTreeMap::new(),
        })
    }

    /// Runs to the end, and checks everything.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        while !self.has_sent_enough() {
            self.step(true)?;
            self.check_progress()?;
        }
        self.laps = self.laps();
        self.clients.stop_reading();
        self.injector.end_all(&mut self.nodes, &mut self.stage)?;
        self.takes_heart();
        // A copy that is under way may be the second of a state that was given before, and is as slow as that one.
        self.taken.clear();
        while !self.clients.all_answered() {
            self.step(false)?;
            // Clients ask again now and then. Here it would hide replies that are never repeated, so
            // they do only if one was not sent because they had not read the last ones.
            if self.stage.world.now() > self.progress + PATIENCE / 2 && self.reply_was_dropped() {
                (0..self.clients.len()).for_each(|client| self.clients.resend(client));
                self.takes_heart();
            }
            self.check_progress()?;
        }
        if self.stage.scenario.network {
            let until = self.stage.world.now() + ABSENCE;
            self.cut_clients_off();
            while self.stage.world.now() < until {
                self.step(false)?;
            }
        }
        self.clients.close();
        self.takes_heart();
        loop {
            self.step(false)?;
            if self.steps.is_multiple_of(INSPECT_EVERY) {
                let Some(left) = self.nodes.leftover() else { break };
                if self.is_out_of_patience() {
                    return Err(Violation { property: "nothing is left", evidence: left });
                }
            }
            self.check_progress()?;
        }
        self.nodes.inspect(self.sessions())?;
        self.stage.onlooker.history.check_complete()?;
        self.check_spread()?;
        self.injector.operator.check_held(&self.stage.onlooker.history)?;
        Onlooker::compare(self.nodes.engines())
    }

    /// Leaders spread by few requests, however often leadership has changed.
    fn check_spread(&self) -> Result<(), Violation> {
        for replica in self.nodes.engines().flat_map(|engine| engine.inside().0.iter()) {
            let paths = replica.core.log().inspect().paths();
            if paths.spread > 3 * paths.led {
                let (id, spread, led) = (replica.id, paths.spread, paths.led);
                let evidence =
                    format!("{id} was elected {led} times, and handed over {spread} times");
                return Err(Violation { property: "leaders spread in no loop", evidence });
            }
        }
        Ok(())
    }

    /// Something has come of something.
    fn takes_heart(&mut self) {
        (self.progress, self.progress_steps) = (self.stage.world.now(), self.steps);
    }

    /// Breaks every connection of every client, while none of them waits for anything.
    fn cut_clients_off(&self) {
        for client in 0..self.clients.len() {
            for process in &self.nodes.processes {
                self.stage.world.flap(self.clients.name(client), &process.name);
            }
        }
    }

    /// Takes note of how far states that are given away have come.
    fn look_at_transfers(&mut self) {
        for (id, incarnation, bytes) in self.nodes.taken() {
            let most = self.taken.entry((id, incarnation)).or_default();
            if *most < bytes {
                *most = bytes;
                (self.learned, self.learned_steps) = (self.stage.world.now(), self.steps);
            }
        }
    }

    fn reply_was_dropped(&mut self) -> bool {
        let drops: u64 = self.nodes.engines().map(|it| it.inside().1.paths.reply_dropped).sum();
        std::mem::replace(&mut self.drops, drops) < drops
    }

    /// Whether all messages were sent, and what was to happen meanwhile has.
    fn has_sent_enough(&self) -> bool {
        let Scenario { messages, laps, leader_falls, held_up, .. } = self.stage.scenario;
        let waited_long = self.stage.world.now() > self.progress + PATIENCE / 4;
        if held_up && waited_long {
            return true; // Where so much is late, nobody may ever lead for long.
        }
        if self.clients.sent < messages || !self.steps.is_multiple_of(FAULTS_EVERY) {
            return false;
        }
        let fallen = !leader_falls || self.stage.onlooker.leader_changes > 0 || waited_long;
        let lapped = || !laps || self.clients.sent >= MESSAGES_MAX || self.laps() >= 2;
        fallen && lapped()
    }

    /// Lands something, or lets somebody do a turn.
    fn step(&mut self, sending: bool) -> Result<(), Violation> {
        self.steps += 1;
        if self.stage.rng.below(100) < self.stage.scenario.landing_percent {
            self.stage.world.step();
        } else {
            self.turn(sending)?;
        }
        self.stand_still()?;
        if (self.injector.aims() || self.steps.is_multiple_of(FAULTS_EVERY))
            && self.injector.go_on(&mut self.nodes, &mut self.clients, &mut self.stage)?
        {
            self.takes_heart();
        }
        if self.steps.is_multiple_of(INSPECT_EVERY) {
            self.nodes.inspect(self.sessions())?;
            self.look_at_transfers();
            if let Some(trace) = &mut self.stage.trace {
                let excess = trace.len().saturating_sub(TRACE_MAX);
                trace.drain(..excess);
            }
        }
        Ok(())
    }

    /// Lets one process, chosen at random, do a turn.
    fn turn(&mut self, sending: bool) -> Result<(), Violation> {
        let engines = self.nodes.processes.len();
        let chosen = self.stage.rng.index(engines + self.clients.len());
        let worked = match chosen.checked_sub(engines) {
            None => {
                let worked = self.nodes.turn(chosen, &mut self.stage)?;
                let reaped = self.nodes.take_mourned();
                let incarnations =
                    |session: &SessionId| self.clients.open_sessions().any(|s| s == *session);
                if let Some(session) = reaped.into_iter().find(incarnations) {
                    let evidence = format!("{session} was ended, and its process lives");
                    return Err(Violation {
                        property: "sessions end with their processes",
                        evidence,
                    });
                }
                worked
            }
            Some(client) => {
                let messages = self.stage.scenario.messages;
                let laps = self.stage.scenario.laps;
                let sending = sending && (laps || self.clients.sent < 2 * messages);
                let before = self.clients.sent + self.clients.answers;
                self.stage.world.stir(true);
                let worked = self.clients.turn(client, sending, &mut self.stage)?;
                self.stage.world.stir(false);
                if self.clients.sent + self.clients.answers > before {
                    self.takes_heart();
                }
                worked
            }
        };
        self.idle = if worked { 0 } else { self.idle + 1 };
        Ok(())
    }

    /// When nothing is under way and nobody finds anything to do, time passes; and whoever sleeps
    /// has nothing to read, or a wake-up was lost.
    fn stand_still(&mut self) -> Result<(), Violation> {
        if self.idle < 4 * (self.nodes.processes.len() + self.clients.len()) {
            return Ok(());
        }
        self.idle = 0;
        let world = &self.stage.world;
        if world.next_due().is_some() {
            world.step();
            return Ok(());
        }
        if !self.injector.holds_back(&self.stage)
            && !self.owes_a_wake_up()
            && let Some(name) = self.nodes.oversleeps(&self.stage)
        {
            let evidence = format!("{name} sleeps, and has something to read");
            return Err(Violation { property: "no lost wake-up", evidence });
        }
        let alarm = self.nodes.first_alarm(&self.stage);
        let until_alarm = alarm.and_then(|alarm| alarm.checked_sub(world.now()));
        let until_alarm = until_alarm.filter(|it| !it.is_zero()).unwrap_or(NAP);
        world.advance(until_alarm.min(NAP));
        Ok(())
    }

    /// Whether somebody who is awake has written what it has woken nobody for yet. It wakes them in its next turn,
    /// which it need not have had: turns are drawn, and a session can be closed, or a command given, in between.
    /// Whoever sleeps with a wake-up owed never has that turn: the reader has lost it.
    fn owes_a_wake_up(&self) -> bool {
        let world = &self.stage.world;
        self.clients.owe_wake_ups(world) || self.nodes.owe_wake_ups(world)
    }

    /// Whether nothing has come of anything for long, in time and in turns.
    fn is_out_of_patience(&self) -> bool {
        let waited = self.stage.world.now() > self.progress.max(self.learned) + PATIENCE;
        waited && self.steps > self.progress_steps.max(self.learned_steps) + STEPS_MIN
    }

    /// Something must come of something now and then, unless a fault holds it back.
    fn check_progress(&self) -> Result<(), Violation> {
        if self.steps <= self.progress_steps.max(self.learned_steps) + STEPS_MAX
            && !self.is_out_of_patience()
        {
            return Ok(());
        }
        let now = self.stage.world.now();
        let (sent, steps) = (self.clients.sent, self.steps);
        let mut evidence = format!("after {sent} messages, {now:?} and {steps} steps");
        for (message, groups) in self.clients.unanswered().take(6) {
            let _ = write!(evidence, "; {message} has no answer of {groups}");
        }
        for status in self.nodes.engines().flat_map(Engine::status) {
            let ReplicaStatus { group, slot, role, ballot, log_index, commit_index, .. } = &status;
            let ReplicaStatus { incarnation, pending, lost, leader, delivered, learners, .. } =
                &status;
            let _ = write!(
                evidence,
                "\n  g{group}.{slot} incarnation {incarnation} {role:?} of {leader:?} in {ballot}: log \
                {log_index}, commit {commit_index}, delivered {delivered}, pending {pending}, \
                lost {lost} {learners:?}"
            );
        }
        for engine in self.nodes.engines() {
            for replica in engine.inside().0 {
                let _ = write!(evidence, "\n  {}", replica.describe_waiting());
            }
        }
        for engine in self.nodes.engines() {
            for (_, channel) in engine.inside().1.iter().filter(|(_, it)| !it.sent_all()) {
                let _ = write!(evidence, "\n  channel for {}", channel.describe());
            }
        }
        if let Some(left) = self.nodes.leftover() {
            let _ = write!(evidence, "\n  left: {left}");
        }
        Err(Violation { property: "liveness", evidence })
    }

    /// Sessions that can have sent anything, those of nodes included.
    fn sessions(&self) -> usize {
        self.clients.sessions + self.clients.sent as usize / 16 + 20 * self.clients.crashes
    }

    /// How often the least lapped log went round, or the least lapped ring: a session's, a reply
    /// ring that anything came through, or one by which leaders propose to each other.
    fn laps(&self) -> u64 {
        let logs = self.nodes.engines().flat_map(|engine| engine.inside().0.iter());
        let logs = logs.map(Replica::laps);
        let open: BTreeSet<_> = self.clients.open_sessions().map(|session| session.0).collect();
        let rings = |(_, channel): (u32, &Channel)| {
            let (position, capacity) = (channel.incoming.position(), channel.incoming.capacity());
            let counts = match channel.purpose {
                Purpose::Session { session, .. } => open.contains(&session),
                Purpose::Engine { .. } => true,
                Purpose::Replica { .. } => false,
            };
            (counts && position > 0).then(|| position / capacity.max(1))
        };
        let engines = self.nodes.engines().flat_map(|e| e.inside().1.iter().filter_map(rings));
        let clients = self.clients.accesses().flat_map(|it| it.endpoint().iter().filter_map(rings));
        logs.chain(engines).chain(clients).min().unwrap_or(0)
    }

    pub(super) fn report(&self) -> Report {
        let world = self.stage.world.counters();
        let (faults, losses) = (self.injector.counts, self.injector.operator.counts);
        let mut coverage = Coverage { faults, losses, world, ..Coverage::default() };
        self.nodes.cover(&mut coverage);
        self.clients.cover(&mut coverage);
        Report {
            scenario: self.stage.scenario.clone(),
            fingerprint: self.stage.world.fingerprint(),
            messages: self.clients.sent,
            laps: self.laps,
            leader_changes: self.stage.onlooker.leader_changes,
            simulated: self.stage.world.now(),
            coverage,
            trace: Vec::new(),
        }
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        self.stage.trace.take().unwrap_or_default()
    }
}
