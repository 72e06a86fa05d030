//! The nodes of a run: their engines, which die and begin new incarnations, are suspended, and resume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skein_fabric::Fabric as _;
use skein_fabric::sim::World;
use skein_fabric::wait::{Waiter, Waiting};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::Role;
use skein_protocol::ids::{GroupId, ReplicaId, SessionId};
use skein_protocol::ordering::Inspect as _;
use skein_protocol::properties::Violation;

use super::Coverage;
use super::Driven;
use super::checker::{Onlooker, SimEngine};
use super::clients::is_inherited;
use super::disks::Disks;
use super::faults::Target;
use super::machine::Machine;
use super::rules::{check_counted, check_memory, check_reach, check_unread};
use super::world::Stage;
use crate::application::Application;
use crate::config::endpoint_name;
use crate::engine::Engine;
use crate::introductions::Purpose;
use crate::layout::Layout;
use crate::operate::{Command, CommandError, Identity};
use crate::replica::Replica;
use crate::roster::{Roster, Seen};

/// The process of an engine.
pub(super) struct Process<O: Driven> {
    pub(super) name: String,
    pub(super) node: u16,
    number: u16,
    /// `None` while the process is dead.
    pub(super) engine: Option<SimEngine<O>>,
    /// A process that runs in its place, under an incarnation that is over: no other must count on it.
    impostor: Option<SimEngine<O>>,
    waiter: Waiter,
    pub(super) stands_still: bool,
    /// Number of turns in a row in which it found nothing to do.
    vain: u32,
}

/// The onlooker inspects one in so many turns that found nothing to do and reported nothing. Such a turn
/// changes nothing that a rule is about, but its clock has advanced, and others may have written to it.
/// Inspecting all of them took more time than all turns did.
const LOOKED_AT: u32 = 8;

/// All nodes of a run.
pub(super) struct Nodes<O: Driven> {
    layout: Layout,
    pub(super) processes: Vec<Process<O>>,
    /// Number of earlier starts of each node.
    incarnations: Vec<u32>,
    /// The last incarnation of each node that came to run.
    ran: Vec<u32>,
    /// Number of processes that were started.
    started: u64,
    /// Coverage of the engines that died.
    past: Coverage,
    /// Sessions that nodes reaped since the last [`Nodes::take_reaped`].
    reaped: Vec<SessionId>,
    /// Whether a group was recreated. Other groups keep what they had sent to it before, until it is done
    /// with a later message.
    recreated: bool,
    /// Position in front of which leaders may have overwritten the log, for each incarnation of a replica in
    /// each generation of its group.
    floors: BTreeMap<(ReplicaId, u32, u32), u64>,
}

impl<O: Driven> Process<O> {
    /// An engine of this process, in that incarnation.
    fn run(
        &mut self,
        layout: &Layout,
        incarnation: u32,
        roster: &Arc<Roster>,
        stage: &mut Stage<O>,
    ) -> SimEngine<O> {
        let me = Identity { node: self.node, engine: self.number, incarnation };
        let (fabric, tuning) = (stage.world.join(&self.name), stage.scenario.tuning);
        let seed = stage.scenario.seed;
        let disk = stage.scenario.durable.then(|| stage.disks.of(&self.name));
        let keeps = stage.scenario.keeps_checkpoints;
        let writer = stage.disks.checkpoints_of(&self.name, incarnation).filter(|_| keeps);
        let machine = move |id: ReplicaId| {
            let checkpoints = writer.as_ref().map(|writer| writer.of(id.group));
            Machine::new(id.group, seed).with_checkpoints(checkpoints)
        };
        self.waiter = Waiter::new(Waiting::Park);
        Engine::with_roster(fabric, layout, tuning, me, Arc::clone(roster), disk, machine)
            .expect("simulated memory does not run out")
    }

    fn turn_of_impostor(&mut self, stage: &mut Stage<O>) -> bool {
        let Some(engine) = self.impostor.as_mut().filter(|_| !stage.world.is_parked(&self.name))
        else {
            return false;
        };
        stage.world.stir(true);
        let worked = engine.turn();
        if worked {
            self.waiter.worked(engine.fabric());
        } else {
            engine.wait(&mut self.waiter, &|| true);
        }
        stage.world.stir(false);
        worked
    }
}

impl<O: Driven> Nodes<O> {
    pub(super) fn new(stage: &mut Stage<O>) -> Result<Self, Violation> {
        let layout = stage.scenario.layout.clone();
        let topology = layout.topology();
        let ids = (0..topology.nodes)
            .flat_map(|node| (0..topology.engines).map(move |engine| (node, engine)))
            .filter(|(node, engine)| !layout.replicas_on(*node, *engine).is_empty());
        let process = |(node, number)| Process {
            name: endpoint_name(node, number),
            node,
            number,
            engine: None,
            impostor: None,
            waiter: Waiter::new(Waiting::Park),
            stands_still: false,
            vain: 0,
        };
        let processes = ids.map(process).collect();
        let incarnations = vec![0; usize::from(topology.nodes)];
        let ran = incarnations.clone();
        let past = Coverage::default();
        let reaped = Vec::new();
        let (started, recreated) = (0, false);
        let floors = BTreeMap::new();
        let mut nodes =
            Self { layout, processes, incarnations, ran, started, past, reaped, recreated, floors };
        for node in 0..topology.nodes {
            nodes.start(node, stage)?;
        }
        Ok(nodes)
    }

    /// Starts the engines of a node that are not running, in its present incarnation.
    fn start(&mut self, node: u16, stage: &mut Stage<O>) -> Result<(), Violation> {
        let incarnation = self.incarnations[usize::from(node)];
        self.ran[usize::from(node)] = incarnation;
        let roster = self.draw_roster(node, incarnation);
        let Self { layout, processes, .. } = self;
        for process in processes.iter_mut().filter(|process| process.node == node) {
            if process.engine.is_some() {
                continue;
            }
            let mut engine = process.run(layout, incarnation, &roster, stage);
            let resumes =
                |it: &Replica<Machine, O>| stage.disks.has_records(&process.name, it.id.group);
            let resumes: Vec<_> = engine.inside().0.iter().map(resumes).collect();
            engine.look_on();
            if let Err((id, why)) = engine.replay() {
                let evidence = format!("{id}: {why}");
                let property = "a node begins with what its disk holds";
                return Err(Violation { property, evidence });
            }
            let read = engine.take_journal();
            for (replica, resumes) in engine.inside().0.iter().zip(resumes) {
                let (gave_up, may) = stage.disks.has_read(&process.name, replica.id.group);
                if gave_up && !may {
                    let evidence =
                        format!("{} gives up its log, which no fault has hit", replica.id);
                    let property = "a node begins with what its disk holds";
                    return Err(Violation { property, evidence });
                }
                if resumes && !gave_up {
                    stage.onlooker.resumes(replica, &read)?;
                } else {
                    stage.onlooker.begins(replica.id)?;
                }
            }
            process.engine = Some(engine);
        }
        Ok(())
    }

    /// The roster of a new process of a node, which contains only itself.
    fn draw_roster(&mut self, node: u16, incarnation: u32) -> Arc<Roster> {
        self.started += 1;
        let own = Seen { replaced: 0, identity: 1, incarnation, process: self.started };
        Arc::new(Roster::new(node, own, BTreeMap::new()))
    }

    /// A dead node fails to start so many times.
    pub(super) fn start_in_vain(&mut self, node: u16, times: u32) {
        self.incarnations[usize::from(node)] += times;
    }

    /// Runs a dead node as if it had been started less often: in an incarnation that others have met, or an
    /// earlier one. An incarnation in which it failed to start would be as good as any. The onlooker ignores
    /// this process, since its replicas are none of their groups'. That is valid only if all other running
    /// engines have met that incarnation or a later one: an engine that has not would accept the process, and
    /// Skein guarantees nothing about what the two may do while the engines that have met it are away. If the
    /// condition does not hold, nothing is started. Returns whether the process was started.
    pub(super) fn start_wrongly(&mut self, node: u16, lacks: u32, stage: &mut Stage<O>) -> bool {
        let incarnation = self.ran[usize::from(node)].saturating_sub(lacks);
        let others = self.processes.iter().filter(|process| process.node != node);
        let knows =
            |engine: &SimEngine<O>| engine.life_of(node).is_some_and(|known| known >= incarnation);
        if !others.filter_map(|process| process.engine.as_ref()).all(knows) {
            return false;
        }
        let roster = self.draw_roster(node, incarnation);
        let Self { layout, processes, .. } = self;
        for process in processes.iter_mut().filter(|process| process.node == node) {
            process.impostor = Some(process.run(layout, incarnation, &roster, stage));
        }
        true
    }

    /// A node dies and loses its memory.
    pub(super) fn crash(&mut self, node: u16, stage: &mut Stage<O>) {
        for process in self.processes.iter_mut().filter(|process| process.node == node) {
            if let Some(engine) = process.engine.take() {
                let endpoint = engine.inside().1;
                let late = endpoint.wakes.by_tick().iter();
                for sleeper in late.filter_map(|peer| endpoint.fabric.name_of(*peer)) {
                    stage.world.leave_asleep(&sleeper);
                }
                stage.world.crash(&process.name);
                stage.disks.lose_power(&process.name);
                stage.onlooker.ends(&engine, &stage.disks);
                cover(&engine, &mut self.past);
                process.stands_still = false;
                // What a disk does not hold is lost, whatever stands in the memory of the dead.
                if stage.scenario.memory_outlives > Duration::ZERO && !stage.scenario.durable {
                    stage.onlooker.keeps_remains(engine);
                }
            }
            if process.impostor.take().is_some() {
                stage.world.crash(&process.name);
            }
        }
    }

    /// A dead node begins its next incarnation.
    pub(super) fn restart(&mut self, node: u16, stage: &mut Stage<O>) -> Result<(), Violation> {
        for process in self.processes.iter_mut().filter(|process| process.node == node) {
            if process.impostor.take().is_some() {
                stage.world.crash(&process.name);
            }
        }
        if self.processes.iter().any(|p| p.node == node && p.engine.is_none()) {
            self.incarnations[usize::from(node)] += 1;
            self.start(node, stage)?;
        }
        Ok(())
    }

    /// Returns whether each group tolerates the loss of this node's memory, besides what is lost now: a
    /// replica's memory is lost until its group has admitted its next incarnation.
    pub(super) fn may_crash(&self, node: u16, stage: &Stage<O>) -> bool {
        let here = self.groups().flat_map(|group| self.members(group));
        here.filter(|id| self.layout.node_of(*id) == node).all(|id| self.may_lose(id, stage))
    }

    /// Returns whether a group tolerates the loss of what this replica's node holds of it, besides what is lost now.
    pub(super) fn may_lose(&self, id: ReplicaId, stage: &Stage<O>) -> bool {
        let node = self.node_of(id);
        let counts = |id: ReplicaId| {
            self.counts(id, Some(node))
                && (!stage.scenario.durable || self.counts_on_disk(id, node, &stage.disks))
        };
        let tolerated = usize::from(self.layout.topology().replicas) / 2;
        let members = self.members(id.group);
        members.filter(|id| !counts(*id) || self.node_of(*id) == node).count() <= tolerated
    }

    /// Suspends the processes of a node.
    pub(super) fn stop(&mut self, node: u16) {
        for process in self.processes.iter_mut().filter(|process| process.node == node) {
            process.stands_still = true;
        }
    }

    /// The node of a learner in this group that is receiving a state, or, with `has_state`, that has received one.
    pub(super) fn learner(&self, group: u16, has_state: bool) -> Option<u16> {
        let silent = self.members(GroupId(group)).filter_map(|id| self.find(id));
        let mut silent = silent.filter(|it| it.core.log().is_silent() && self.runs(it.id));
        let learner = silent.find(|it| match it.core.log().role() {
            Role::Blank => !has_state && it.takes_state(),
            _ => has_state,
        });
        learner.map(|it| self.layout.node_of(it.id))
    }

    /// Number of replicas of its group that a replica knows to be evicted.
    pub(super) fn evictions_known_to(&self, id: ReplicaId) -> usize {
        let view = self.find(id).map(|it| it.core.log().view());
        view.map_or(0, |view| view.members().iter().filter(|member| member.evicted).count())
    }

    /// Returns whether a learner of a group has received a state that contains more than any follower that runs
    /// has delivered.
    pub(super) fn has_served(&self, group: u16) -> bool {
        let Some(leader) = self.leader(group) else { return false };
        let others = self.members(GroupId(group)).filter(|id| *id != leader && self.runs(*id));
        let others = others.filter_map(|id| self.find(id));
        let (learners, followers): (Vec<_>, _) = others.partition(|it| it.core.log().is_silent());
        let delivered = |it: &&Replica<Machine, O>| it.core.delivered();
        let most = followers.iter().map(delivered).max().unwrap_or(0);
        learners.iter().any(|it| it.core.log().role() != Role::Blank && it.core.delivered() > most)
    }

    /// If a quorum of a group consists of one replica and of others that it knows to be evicted and that keep
    /// their logs: the nodes of all replicas outside that quorum, the leader's among them. A replica keeps its
    /// log if the log ends behind what the one knows to be committed, and if the part that the replica has not
    /// freed is too long to be written by a new leader.
    pub(super) fn all_but_keepers(&self, group: GroupId) -> Vec<u16> {
        let Some(leader) = self.leader(group.0) else { return Vec::new() };
        let counts = |id: &ReplicaId| *id != leader && self.counts(*id, None);
        let followers: Vec<_> = self.members(group).filter(counts).collect();
        for last in followers.iter().filter_map(|id| self.find(*id)) {
            let log = last.core.log();
            let keeps = |id: &&ReplicaId| {
                id.slot != last.id.slot
                    && log.view().member(id.slot).evicted
                    && self.find(**id).is_some_and(|it| {
                        it.core.log().last_index() > log.commit_index() && it.keeps_too_much()
                    })
            };
            let keepers: Vec<_> = followers.iter().filter(keeps).copied().collect();
            if keepers.len() + 1 == self.quorum() {
                let rest = self.members(group).filter(|id| *id != last.id && !keepers.contains(id));
                return rest.map(|id| self.layout.node_of(id)).collect();
            }
        }
        Vec::new()
    }

    /// Returns whether a replica's memory counts in its group if the node `without` is left out. A replica
    /// that has not read that its `Join` is committed counts as soon as another of its group has, since that
    /// one says so when it stands for election.
    fn counts(&self, id: ReplicaId, without: Option<u16>) -> bool {
        let of_group =
            self.members(id.group).filter(|id| Some(self.layout.node_of(*id)) != without);
        let mut known =
            of_group.filter_map(|id| self.find(id)).filter(|it| !it.core.log().is_silent());
        self.find(id).is_some_and(|it| {
            let names = |other: &Replica<Machine, O>| {
                other.core.log().view().names(id.slot, it.incarnation)
            };
            // A replica that an operator has told to take a survivor's state counts once it has it.
            let has_state = it.core.log().role() != Role::Blank && !it.core.log().is_suspended();
            !it.core.log().is_silent() || has_state && known.any(names)
        })
    }

    /// Returns whether a replica's disk counts in its group if the node `without` is left out. After a loss of power,
    /// what replicas knew besides what their disks hold is gone. So some disk must hold that the replica's `Join` is
    /// committed: its own, or that of a replica whose own `Join` is known there. A `Join` that is merely in a log admits
    /// nobody, since its leader may have been deposed before it logged it.
    fn counts_on_disk(&self, id: ReplicaId, without: u16, disks: &Disks) -> bool {
        let of_group = self.engines().flat_map(|engine| {
            let (replicas, endpoint) = engine.inside();
            let of_group = replicas.iter().filter(|replica| replica.id.group == id.group);
            let name = endpoint.fabric.name();
            let whole = of_group.filter(move |_| !disks.is_rotten(&name, id.group));
            whole.map(move |it| (it, disks.log_end(&endpoint.fabric.name(), id.group).commit))
        });
        let of_group: Vec<_> = of_group.collect();
        let Some((it, _)) = of_group.iter().find(|(it, _)| it.id == id) else { return false };
        of_group.iter().any(|(other, commit)| {
            let log = other.core.log();
            let knows = |it: &Replica<Machine, O>| {
                let (slot, joined) = (it.id.slot, log.inspect().joined_at(it.id.slot));
                // A replica that has the `Join` from a state knows of it when that state is on its disk.
                let from_state = joined == 0 && it.incarnation > 0;
                let known_at = if from_state { other.memory.begun_at.index - 1 } else { joined };
                log.view().names(slot, it.incarnation) && *commit >= known_at
            };
            let stays = other.id == id || self.layout.node_of(other.id) != without;
            stays && knows(it) && knows(other)
        })
    }

    /// Returns whether a replica counts, by its memory and by what is on disks, and its leader's log waits for it.
    pub(super) fn counts_fully(&self, id: ReplicaId, stage: &Stage<O>) -> bool {
        let leader = self.leader(id.group.0).and_then(|leader| self.find(leader));
        leader.is_some_and(|leader| !leader.core.log().view().member(id.slot).evicted)
            && self.counts(id, None)
            && self.counts_on_disk(id, u16::MAX, &stage.disks)
    }

    /// All groups.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> + use<O> {
        self.layout.topology().all_groups().iter()
    }

    /// The replicas of a group.
    pub(super) fn members(&self, group: GroupId) -> impl Iterator<Item = ReplicaId> + use<O> {
        self.layout.topology().replicas_of(group)
    }

    /// Number of replicas in a quorum.
    pub(super) fn quorum(&self) -> usize {
        self.layout.topology().quorum()
    }

    /// Returns whether a group has a leader; and, in scenarios that hit many groups at once, whether no group
    /// is being recreated.
    pub(super) fn all_serve(&self, group: u16, stage: &Stage<O>) -> bool {
        let many = stage.scenario.memory_outlives > Duration::ZERO;
        let serves = |group| self.remember(group) >= self.quorum();
        self.leader(group).is_some() && (!many || self.groups().all(serves))
    }

    /// Number of replicas of a group whose memory counts.
    pub(super) fn remember(&self, group: GroupId) -> usize {
        self.members(group).filter(|id| self.counts(*id, None)).count()
    }

    /// The nodes of so many replicas of a group, its leader's first.
    pub(super) fn nodes_of(&self, group: u16, replicas: u8) -> Vec<u16> {
        let first = self.leader(group).map_or(0, |leader| leader.slot);
        let slots = (0..replicas).map(|step| (first + step) % self.layout.topology().replicas);
        slots.map(|slot| self.node_of(ReplicaId::new(GroupId(group), slot))).collect()
    }

    /// Returns whether the process of a replica is alive and not suspended.
    pub(super) fn runs(&self, id: ReplicaId) -> bool {
        let node = self.layout.node_of(id);
        let mut of_node = self.processes.iter().filter(|process| process.node == node);
        of_node.all(|process| process.engine.is_some() && !process.stands_still)
    }

    /// Gives a command to every replica of a group.
    pub(super) fn command(
        &mut self,
        group: GroupId,
        command: &Command,
        stage: &Stage<O>,
    ) -> Result<(), CommandError> {
        self.recreated |= matches!(command, Command::Recreate { .. });
        for Process { name, engine, .. } in &mut self.processes {
            let has =
                |engine: &SimEngine<O>| engine.inside().0.iter().any(|it| it.id.group == group);
            if let Some(engine) = engine.as_mut().filter(|engine| has(engine)) {
                engine.command(command)?;
                stage.world.wake(name);
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, id: ReplicaId) -> Option<&Replica<Machine, O>> {
        self.engines().flat_map(|engine| engine.inside().0).find(|replica| replica.id == id)
    }

    /// The engines that are alive.
    pub(super) fn engines(&self) -> impl Iterator<Item = &SimEngine<O>> {
        self.processes.iter().filter_map(|process| process.engine.as_ref())
    }

    /// Index up to which any replica of a group has its log in its memory.
    pub(super) fn written_up_to(&self, group: GroupId) -> u64 {
        let of_group = self.engines().flat_map(|engine| {
            let (replicas, endpoint) = engine.inside();
            let ours = replicas.iter().filter(move |replica| replica.id.group == group);
            ours.map(|replica| replica.written_up_to(&endpoint.fabric))
        });
        of_group.max().unwrap_or(0)
    }

    /// For each incarnation of a replica that has no state yet, the bytes of the state that it has received.
    pub(super) fn taken(&self) -> impl Iterator<Item = (ReplicaId, u32, u64)> {
        let replicas = self.engines().flat_map(|engine| engine.inside().0);
        replicas.filter_map(|it| Some((it.id, it.incarnation, it.taken_bytes()?)))
    }

    /// Names of the processes of a node.
    pub(super) fn names_of(&self, node: u16) -> Vec<String> {
        let of_node = self.processes.iter().filter(|process| process.node == node);
        of_node.map(|process| process.name.clone()).collect()
    }

    /// The replicas of a process, which may be dead.
    pub(super) fn replicas_of(&self, process: &str) -> Vec<ReplicaId> {
        let process = self.processes.iter().find(|it| it.name == process);
        process.map_or_else(Vec::new, |it| self.layout.replicas_on(it.node, it.number))
    }

    /// The node of a replica that a fault names. Faults are drawn before some profiles change the number of groups, and
    /// one of a group that the cluster does not have hits some node.
    pub(super) fn node_of(&self, id: ReplicaId) -> u16 {
        let topology = self.layout.topology();
        if topology.has(id) {
            self.layout.node_of(id)
        } else {
            (id.group.0 + u16::from(id.slot)) % topology.nodes
        }
    }

    /// The node that a target denotes now.
    pub(super) fn node(&self, target: Target) -> u16 {
        match target {
            Target::Node(node) => node,
            Target::Leader(group) | Target::Sender(group) => {
                let first = ReplicaId::new(GroupId(group), 0);
                self.node_of(self.leader(group).unwrap_or(first))
            }
            Target::NewLeader { group, .. } => {
                let first = ReplicaId::new(GroupId(group), 0);
                self.node_of(self.new_leader(group).map_or(first, |(leader, _)| leader))
            }
        }
    }

    /// The leader of a group, with its first entry committed.
    pub(super) fn leader(&self, group: u16) -> Option<ReplicaId> {
        let members = self.layout.topology().replicas_of(GroupId(group));
        let leading =
            members.filter_map(|id| self.find(id)).filter(|r| r.core.log().won().is_some());
        leading.max_by_key(|replica| replica.core.log().ballot()).map(|replica| replica.id)
    }

    /// The new leader of a group, which has not committed its first entry, and its ballot.
    pub(super) fn new_leader(&self, group: u16) -> Option<(ReplicaId, Ballot)> {
        let members = self.layout.topology().replicas_of(GroupId(group));
        let leading = members.filter_map(|id| self.find(id)).filter(|it| it.core.log().leads());
        let new = leading.filter(|it| it.core.log().won().is_none());
        new.map(|it| (it.id, it.core.log().ballot())).max_by_key(|(_, ballot)| *ballot)
    }

    /// Gives a command to a replica's engine. Returns whether it was carried out.
    pub(super) fn tell(
        &mut self,
        id: ReplicaId,
        command: &Command,
        stage: &mut Stage<O>,
    ) -> Result<bool, Violation> {
        let has = |engine: &SimEngine<O>| engine.inside().0.iter().any(|it| it.id == id);
        let runs = |p: &Process<O>| !p.stands_still && p.engine.as_ref().is_some_and(has);
        let Some(at) = self.processes.iter().position(runs) else { return Ok(false) };
        let process = &mut self.processes[at];
        stage.world.wake(&process.name);
        let done = process.engine.as_mut().is_some_and(|engine| engine.command(command).is_ok());
        process.vain = 0;
        self.look_at(at, stage)?;
        Ok(done)
    }

    /// A replica receives a ballot that so many elections have led to. Returns whether the replica runs.
    pub(super) fn hear_of_elections(
        &mut self,
        id: ReplicaId,
        count: u32,
        stage: &mut Stage<O>,
    ) -> Result<bool, Violation> {
        let has = |engine: &SimEngine<O>| engine.inside().0.iter().any(|it| it.id == id);
        let runs = |p: &Process<O>| !p.stands_still && p.engine.as_ref().is_some_and(has);
        let Some(at) = self.processes.iter().position(runs) else { return Ok(false) };
        let process = &mut self.processes[at];
        stage.world.wake(&process.name);
        process.engine.as_mut().expect("it runs").hear_of_elections(id, count);
        process.vain = 0;
        self.look_at(at, stage)?;
        Ok(true)
    }

    /// Lets the onlooker inspect what an engine has just done.
    fn look_at(&mut self, at: usize, stage: &mut Stage<O>) -> Result<(), Violation> {
        let engine = self.processes[at].engine.as_mut().expect("it just did something");
        let notes = engine.take_journal();
        if notes.is_empty() && !self.processes[at].vain.is_multiple_of(LOOKED_AT) {
            return Ok(());
        }
        let turned = self.processes[at].engine.as_ref().expect("it just did something");
        let engines = || -> Box<dyn Iterator<Item = &SimEngine<O>>> { Box::new(self.engines()) };
        let now = stage.world.now();
        let trace = stage.trace.as_mut().map(|trace| (trace, now));
        stage.onlooker.look_at(engines, turned, notes, trace)?;
        let leaders = turned.inside().0.iter().filter(|replica| replica.core.log().leads());
        let mut floors = Vec::new();
        for leader in leaders {
            let all = self.engines().flat_map(|engine| {
                let (replicas, endpoint) = engine.inside();
                replicas.iter().map(move |replica| (replica, &endpoint.fabric))
            });
            let members: Vec<_> = all.filter(|(it, _)| it.id.group == leader.id.group).collect();
            let followers = members.iter().filter(|(it, _)| it.id != leader.id);
            followers.into_iter().try_for_each(|(it, fabric)| check_counted(leader, it, fabric))?;
            check_reach(leader, &members)?;
            let ballot = leader.core.log().ballot();
            let wrote_to = |it: &&Replica<Machine, O>| {
                leader.written_to(it.id.slot).is_some() || it.core.log().promised() == ballot
            };
            for it in members.iter().map(|(it, _)| *it).filter(wrote_to) {
                let of = (it.id, it.incarnation, ballot.generation());
                floors.push((of, leader.overwrites_to(it.id.slot)));
            }
        }
        for (of, overwritten) in floors {
            let floor = self.floors.entry(of).or_default();
            *floor = overwritten.max(*floor);
        }
        Ok(())
    }

    /// Lets a process take a turn. Returns whether it found anything to do.
    pub(super) fn turn(&mut self, at: usize, stage: &mut Stage<O>) -> Result<bool, Violation> {
        let process = &mut self.processes[at];
        if process.impostor.is_some() {
            return Ok(process.turn_of_impostor(stage));
        }
        let Some(engine) = process.engine.as_mut().filter(|_| !process.stands_still) else {
            return Ok(false);
        };
        if stage.world.is_parked(&process.name) {
            return Ok(false);
        }
        stage.world.stir(true);
        let worked = engine.turn();
        for session in engine.take_dead_sessions(1) {
            if !is_inherited(session) {
                self.reaped.push(session);
                engine.originate(&session.0.to_le_bytes());
            }
        }
        if worked {
            process.waiter.worked(engine.fabric());
        } else {
            engine.wait(&mut process.waiter, &|| true);
        }
        stage.world.stir(false);
        let vain = &mut self.processes[at].vain;
        *vain = if worked { 0 } else { *vain + 1 };
        self.look_at(at, stage)?;
        Ok(worked)
    }

    /// Takes the sessions that nodes considered dead, and whose end they have multicast.
    pub(super) fn take_reaped(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.reaped)
    }

    /// A process that sleeps although there is something to read, if there is one and the process that should
    /// have woken it is alive.
    pub(super) fn oversleeps(&self, stage: &Stage<O>) -> Option<&str> {
        let sleeper = self.processes.iter().find(|process| {
            let engine = process.engine.as_ref().filter(|_| !process.stands_still);
            let sleeps = |name| stage.world.is_parked(name) && !stage.world.is_left_asleep(name);
            engine.is_some_and(|it| sleeps(&process.name) && it.has_news())
        });
        sleeper.map(|process| process.name.as_str())
    }

    /// Returns whether an engine has written something for which it has not woken the reader yet: it is
    /// awake, or will wake the reader at its next tick.
    pub(super) fn owe_wake_ups(&self, world: &World) -> bool {
        let goes_on = self.processes.iter().filter(|process| !process.stands_still);
        goes_on.filter_map(|it| Some((&it.name, it.engine.as_ref()?.inside().1))).any(
            |(name, endpoint)| {
                !endpoint.wakes.by_tick().is_empty()
                    || endpoint.has_untold() && !world.is_parked(name)
            },
        )
    }

    /// The earliest time at which a sleeping process wakes by itself.
    pub(super) fn first_alarm(&self, stage: &Stage<O>) -> Option<Duration> {
        let awake = |process: &&Process<O>| process.engine.is_some() && !process.stands_still;
        let sleeping = self.processes.iter().filter(awake);
        sleeping.filter_map(|process| stage.world.parked_until(&process.name)).min()
    }

    /// An error message for what should not be left when the replicas have nothing to do, if there is anything.
    pub(super) fn leftover(&self) -> Option<String> {
        for engine in self.engines() {
            let (replicas, endpoint) = engine.inside();
            for replica in replicas {
                let (id, core) = (replica.id, &replica.core);
                let (pending, held) = (core.inspect().pending(), replica.payloads.len());
                if pending + held > 0 {
                    let known = |message| if core.is_logged(message) { "logged" } else { "new" };
                    let held = replica.payloads.messages();
                    let held: Vec<_> =
                        held.iter().map(|m| format!("{m} ({})", known(*m))).collect();
                    return Some(format!("{id}: {pending} messages pending, and holds {held:?}"));
                }
                if replica.held_replies() > 0 {
                    return Some(format!("{id} holds {} replies", replica.held_replies()));
                }
                if replica.reads_waiting() > 0 {
                    return Some(format!("{id} has {} reads", replica.reads_waiting()));
                }
                if core.log().is_silent() {
                    return Some(format!("{id} was never admitted"));
                }
                if replica.writes_snapshot() {
                    return Some(format!("{id} has not finished a snapshot"));
                }
                if replica.awaits_snapshot() {
                    return Some(format!("{id} has a snapshot that is not on its disk"));
                }
                if let Some(number) = replica.application.lacks_checkpoint() {
                    return Some(format!("{id} lacks checkpoint {number} of its last snapshot"));
                }
                let view = core.log().view();
                if view.members().iter().any(|member| member.evicted) {
                    return Some(format!("{id} has evicted members in {view:?}"));
                }
                let owes = core.inspect().retained() + replica.results();
                if owes > 0 && !self.recreated {
                    return Some(format!("{id} keeps {owes} messages and results for others"));
                }
                if replica.application.under_way() > 0 {
                    return Some(format!("the machine of {id} waits for results"));
                }
                let most = self
                    .layout
                    .topology()
                    .replicas_of(id.group)
                    .filter_map(|other| self.find(other));
                let most = most.map(|other| other.core.delivered()).max().unwrap_or(0);
                if core.delivered() < most {
                    let delivered = core.delivered();
                    return Some(format!(
                        "{id} has delivered {delivered}, and another replica {most}"
                    ));
                }
            }
            let session = |purpose| matches!(purpose, Purpose::Session { .. });
            if let Some((_, channel)) = endpoint.iter().find(|(_, c)| session(c.purpose)) {
                let (leaving, dying, silent) = (channel.leaving, channel.dying, channel.silent);
                return Some(format!(
                    "a channel for {:?}, leaving {leaving}, dying {dying}, silent {silent}",
                    channel.purpose
                ));
            }
        }
        None
    }

    /// Checks each replica's memory.
    pub(super) fn inspect(&self, sessions: usize) -> Result<(), Violation> {
        self.engines().try_for_each(|engine| Onlooker::inspect(engine, sessions))?;
        if let Some((by, session)) = self.engines().find_map(SimEngine::<O>::taken_for_gone) {
            let evidence = format!("{by} has a connection from {session}, but counts it as dead");
            return Err(Violation {
                property: "a connected session is not counted as dead",
                evidence,
            });
        }
        let replicas = || self.engines().flat_map(|engine| engine.inside().0);
        for leader in replicas().filter(|replica| replica.core.log().leads()) {
            let followers =
                self.layout.topology().replicas_of(leader.id.group).filter(|id| *id != leader.id);
            followers.filter_map(|id| self.find(id)).try_for_each(|it| check_unread(leader, it))?;
        }
        self.engines().map(SimEngine::<O>::inside).try_for_each(|(replicas, endpoint)| {
            replicas.iter().try_for_each(|it| {
                let of = (it.id, it.incarnation, it.core.log().promised().generation());
                let floor = self.floors.get(&of).copied().unwrap_or(0);
                check_memory(it, floor, &endpoint.fabric)
            })
        })
    }

    pub(super) fn cover(&self, coverage: &mut Coverage) {
        coverage.add(&self.past);
        self.engines().for_each(|engine| cover(engine, coverage));
    }
}

fn cover<O: Driven>(engine: &SimEngine<O>, coverage: &mut Coverage) {
    let (replicas, endpoint) = engine.inside();
    coverage.endpoints.add(&endpoint.paths);
    for replica in replicas {
        coverage.group.add(replica.core.log().inspect().paths());
        replica.core.cover(coverage);
        coverage.replicas.add(&replica.paths);
    }
}
