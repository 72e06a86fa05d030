//! The run itself: which process acts next, drawn from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use skein_fabric::sim::{Rng, World};
use skein_protocol::ids::{ReplicaId, SessionId};
use skein_protocol::properties::Violation;

use super::Driven;
use super::checker::Onlooker;
use super::clients::Clients;
use super::disks::Disks;
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
/// Virtual time, and number of steps, for which a run may make no progress while no fault holds it back. The
/// limit of steps is for loops that take no virtual time.
const TIMEOUT: Duration = Duration::from_secs(10);
const STEPS_MAX: u64 = 5_000_000;
/// Number of steps for which a run may make no progress in any case. If most steps land events that were long
/// in flight, these advance the time, and seconds of it are only a few turns of each process: too few for a
/// group that waits for a clock, or that copies a state part by part.
const STEPS_MIN: u64 = 100_000;
/// Time within which a session that has come back unnoticed would be ended.
const ABSENCE: Duration = Duration::from_secs(7);
/// Faults are handled once in so many steps, and memories inspected once in so many.
const FAULTS_EVERY: u64 = 16;
const INSPECT_EVERY: u64 = 256;
/// The longest time that passes in one step.
const NAP: Duration = Duration::from_millis(2);
/// Lines of trace that are kept.
const TRACE_MAX: usize = 4000;

/// The shared parts of a run.
pub(super) struct Stage<O: Driven> {
    pub(super) scenario: Scenario,
    pub(super) world: World,
    pub(super) rng: Rng,
    pub(super) onlooker: Onlooker<O>,
    pub(super) disks: Disks,
    pub(super) trace: Option<Vec<String>>,
}

impl<O: Driven> Stage<O> {
    /// Adds a line of trace, if a trace is kept.
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
    /// Number of dropped replies at the last count.
    drops: u64,
    /// Laps at the end of sending.
    laps: u64,
    /// Number of turns in a row, of all processes, that found nothing.
    idle: usize,
    /// Time of the last progress, and number of steps then.
    progress: Duration,
    progress_steps: u64,
    /// Time at which a learner last had more of a state than ever before, and number of steps then. Some
    /// machines are copied an entry at a time, and the transfer of a state with many messages takes longer
    /// than anything else.
    learned: Duration,
    learned_steps: u64,
    /// The most bytes of a state that each incarnation of a replica has received: a transfer that begins
    /// again has not come further.
    taken: BTreeMap<(ReplicaId, u32), u64>,
}

impl<O: Driven> Simulation<O> {
    pub(super) fn new(scenario: Scenario, trace: bool) -> Result<Self, Violation> {
        scenario.tuning.check().expect("sizes that can be");
        let schedule = scenario.reduction.schedule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let world = World::new(scenario.seed ^ schedule, scenario.world());
        let injector = Injector::new(&scenario.faults);
        let disks = Rng::new(scenario.seed ^ 0xd15c_0f1e);
        let checkpoints = Rng::new(scenario.seed ^ 0xc4ec_1901);
        let removals = scenario.checkpoints_fail.then(|| Rng::new(scenario.seed ^ 0xc4ec_4e70));
        let reads = Rng::new(scenario.seed ^ 0xfeed_0f10);
        let onlooker = Onlooker::new(scenario.layout.tree().as_ref());
        let mut stage = Stage {
            rng: world.fork_rng(),
            scenario,
            world,
            onlooker,
            disks: Disks::new(disks, checkpoints, removals, reads),
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
        // A transfer that is under way may repeat an earlier one, and is as slow as that one was.
        self.taken.clear();
        while !self.clients.all_answered() {
            self.step(false)?;
            // Clients usually repeat messages now and then. Here that would hide replies that are never
            // repeated, so they do so only if a reply was dropped because they had not read the last ones.
            if self.stage.world.now() > self.progress + TIMEOUT / 2 && self.reply_was_dropped() {
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
                if self.has_timed_out() {
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

    /// Checks that leaders spread by few requests, however often leadership has changed.
    fn check_spread(&self) -> Result<(), Violation> {
        for replica in self.nodes.engines().flat_map(|engine| engine.inside().0.iter()) {
            let paths = replica.core.log().inspect().paths();
            if paths.spread > 3 * paths.led {
                let (id, spread, led) = (replica.id, paths.spread, paths.led);
                let evidence =
                    format!("{id} was elected {led} times, and handed over {spread} times");
                return Err(Violation { property: "the spreading of leaders ends", evidence });
            }
        }
        Ok(())
    }

    /// Records progress.
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

    /// Records how far state transfers have come.
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

    /// Returns whether all messages were sent, and everything that must happen meanwhile has happened.
    fn has_sent_enough(&self) -> bool {
        let Scenario { messages, laps, leader_falls, held_up, .. } = self.stage.scenario;
        let waited_long = self.stage.world.now() > self.progress + TIMEOUT / 4
            || self.steps > self.progress_steps + STEPS_MAX / 2;
        if held_up && waited_long {
            return true; // If so much is late, no replica may ever lead for long.
        }
        if self.clients.sent < messages || !self.steps.is_multiple_of(FAULTS_EVERY) {
            return false;
        }
        let fallen = !leader_falls || self.stage.onlooker.leader_changes > 0 || waited_long;
        let lapped = || !laps || self.clients.sent >= MESSAGES_MAX || self.laps() >= 2;
        fallen && lapped()
    }

    /// Lands an event, or lets a process take a turn.
    fn step(&mut self, sending: bool) -> Result<(), Violation> {
        self.steps += 1;
        if self.stage.rng.below(100) < self.stage.scenario.landing_percent {
            self.stage.world.step();
        } else {
            self.turn(sending)?;
        }
        for process in self.stage.disks.go_on(self.stage.world.now()) {
            if self.stage.world.is_alive(&process) {
                self.stage.world.wake(&process);
            }
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

    /// Lets one process, chosen at random, take a turn.
    fn turn(&mut self, sending: bool) -> Result<(), Violation> {
        let engines = self.nodes.processes.len();
        let chosen = self.stage.rng.index(engines + self.clients.len());
        let worked = match chosen.checked_sub(engines) {
            None => {
                let worked = self.nodes.turn(chosen, &mut self.stage)?;
                let reaped = self.nodes.take_reaped();
                let incarnations =
                    |session: &SessionId| self.clients.open_sessions().any(|s| s == *session);
                if let Some(session) = reaped.into_iter().find(incarnations) {
                    let evidence = format!("{session} was ended, but its process is alive");
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

    /// If nothing is in flight and no process finds anything to do, advances the time; and checks that
    /// sleeping processes have nothing to read, or a wake-up was lost.
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
            let evidence = format!("{name} sleeps, but has something to read");
            return Err(Violation { property: "no lost wake-up", evidence });
        }
        let alarm = self.nodes.first_alarm(&self.stage);
        let until_alarm = alarm.and_then(|alarm| alarm.checked_sub(world.now()));
        let until_alarm = until_alarm.filter(|it| !it.is_zero()).unwrap_or(NAP);
        let flushed = self.stage.disks.next_due().and_then(|due| due.checked_sub(world.now()));
        let flushed = flushed.unwrap_or(NAP).max(Duration::from_micros(1));
        world.advance(until_alarm.min(NAP).min(flushed));
        Ok(())
    }

    /// Returns whether a process that is awake has written something for which it has not woken the reader
    /// yet. It wakes the reader in its next turn, which it need not have had: turns are drawn, and a session
    /// can be closed, or a command given, in between. A process that sleeps with a wake-up due never has that
    /// turn: the reader has lost the wake-up.
    fn owes_a_wake_up(&self) -> bool {
        let world = &self.stage.world;
        self.clients.owe_wake_ups(world) || self.nodes.owe_wake_ups(world)
    }

    /// Returns whether the run has made no progress for long, in time and in steps.
    fn has_timed_out(&self) -> bool {
        let waited = self.stage.world.now() > self.progress.max(self.learned) + TIMEOUT;
        waited && self.steps > self.progress_steps.max(self.learned_steps) + STEPS_MIN
    }

    /// Checks that the run makes progress.
    fn check_progress(&self) -> Result<(), Violation> {
        if self.steps <= self.progress_steps.max(self.learned_steps) + STEPS_MAX
            && !self.has_timed_out()
        {
            return Ok(());
        }
        let now = self.stage.world.now();
        let (sent, steps) = (self.clients.sent, self.steps);
        let mut evidence = format!("after {sent} messages, {now:?} and {steps} steps");
        for (message, groups) in self.clients.unanswered().take(6) {
            let _ = write!(evidence, "; {message} has no answer from {groups}");
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

    /// Number of sessions that can have sent anything, those of nodes included.
    fn sessions(&self) -> usize {
        self.clients.sessions + self.clients.sent as usize / 16 + 20 * self.clients.crashes
    }

    /// Number of times that the least lapped log went round, or the least lapped ring: a session's, a reply
    /// ring in use, or a ring by which leaders propose to each other.
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
        let (mut faults, losses) = (self.injector.counts, self.injector.operator.counts);
        faults.returned_checkpoints = self.stage.disks.returned;
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
