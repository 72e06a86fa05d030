//! Starts the faults of a scenario, and ends them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::properties::Violation;

use super::Driven;
use super::clients::Clients;
use super::faults::{FOR_EVER, Fault, Kind, Target, some_of};
use super::nodes::Nodes;
use super::operator::Operator;
use super::world::Stage;
use crate::operate::Command;

skein_protocol::paths! {
    /// Counts of the faults that happened, by kind.
    FaultCounts:
    node_crashes,
    /// A dead node was started again.
    node_restarts,
    /// All nodes lost their power at once.
    power_failures,
    /// All nodes lost their power, and one disk was an older one, of the same start.
    old_copies,
    /// Another node was there alone for long before that.
    ahead_of_old_copies,
    /// All nodes lost their power, and one its disk, when a replica of a group counted again.
    power_failures_at_joins,
    /// A node lost its disk.
    disk_losses,
    /// A replica's log on disk was damaged.
    damaged_logs,
    /// The damage of a log was put off until its group could tolerate it.
    damages_put_off,
    /// A replica's checkpoints on disk were damaged.
    damaged_checkpoints,
    /// A replica's checkpoints were gone by themselves.
    lost_checkpoints,
    /// A checkpoint that was removed was there again after a loss of power.
    returned_checkpoints,
    /// A flush failed.
    failed_flushes,
    /// A disk was full.
    full_disks,
    /// An old copy of a disk was put back.
    old_disks,
    /// The crash of a node was put off until its groups could tolerate it.
    crashes_put_off,
    /// A node was suspended.
    pauses,
    /// A node was suspended, and its connections broke meanwhile.
    pauses_with_flaps,
    slow_nodes,
    /// Two nodes were cut off from each other, in one direction.
    cuts_one_way,
    /// Two nodes were cut off from each other, in both directions.
    cuts_both_ways,
    /// A node was cut off from all others, in one direction.
    isolations_one_way,
    /// A node was cut off from all others.
    isolations,
    /// A replica was cut off from all nodes but its leader's.
    severed_replicas,
    /// All replicas of a group died but a quorum, most of which were evicted and kept their logs.
    keepers_left,
    /// A leader died when a learner had received its state and the followers lagged behind that state.
    senders_killed,
    /// A node was cut off from all clients.
    deaf_nodes,
    /// The connections between two nodes broke.
    node_flaps,
    /// A clock ran at another rate.
    skews,
    client_crashes,
    /// A client died right after it had written, before any of that arrived.
    client_crashes_midway,
    /// A client's successor sent again what its predecessor had sent.
    late_retries,
    /// The connections between a client and a node broke.
    client_flaps,
    /// A client sent its messages in flight again.
    duplicate_retries,
    /// A new leader was hit before its first entry was committed.
    new_leaders_hit,
    /// An operator made a replica lead.
    transfers,
    /// An operator had a replica evicted.
    evictions,
    /// An operator made a replica lead that had just been admitted.
    promotions,
    /// A learner was suspended for the rest of the load.
    learners_stopped,
    /// A node was stopped in the middle of a turn.
    stops_inside_turns,
    /// A node got no memory.
    scarcities,
    /// A clock stood still.
    clock_stops,
    /// A clock was put forward.
    clock_jumps,
    /// A start of a node failed.
    failed_starts,
    /// A node was started with a count of its starts that was out of date.
    wrong_lives,
    /// A replica received a ballot that many elections had led to.
    elections_heard_of,
}

/// The end of a fault.
enum Undo {
    Restart(u16),
    Resume(u16),
    Fast(u16),
    Plenty(u16),
    Clock(u16),
    /// The node ends because its disk has failed, and is started again after that time.
    End(u16, Duration),
    Room(u16),
    Heal(Vec<(String, String)>),
}

impl Undo {
    fn resumes(&self, whom: u16) -> bool {
        matches!(self, Self::Resume(node) if *node == whom)
    }
}

/// The faults that are to come, and those in progress.
pub(super) struct Injector {
    /// In their order.
    coming: VecDeque<Fault>,
    /// Faults whose message was sent, and the times at which they happen.
    due: Vec<(Duration, Kind)>,
    ends: Vec<(Duration, Undo)>,
    /// For each group, the last ballot whose new leader was hit: one hit is enough.
    hit: BTreeMap<u16, Ballot>,
    /// For each group, the ballot of its new leader, and the number of scans when it was first seen; and the
    /// number of scans so far.
    began: BTreeMap<u16, (Ballot, u64)>,
    looks: u64,
    /// Replicas that were seen as not admitted, while a fault waits for an admission.
    learning: BTreeSet<ReplicaId>,
    /// Replicas that were seen not to count fully, while a fault waits for one that does.
    away: BTreeSet<ReplicaId>,
    /// The node that started ahead of all others, and until when they are not to start.
    alone_until: Option<(u16, Duration)>,
    pub(super) counts: FaultCounts,
    pub(super) operator: Operator,
}

impl Injector {
    pub(super) fn new(faults: &[Fault]) -> Self {
        Self {
            coming: faults.iter().cloned().collect(),
            due: Vec::new(),
            ends: Vec::new(),
            hit: BTreeMap::new(),
            began: BTreeMap::new(),
            looks: 0,
            learning: BTreeSet::new(),
            away: BTreeSet::new(),
            alone_until: None,
            counts: FaultCounts::default(),
            operator: Operator::default(),
        }
    }

    /// Returns whether a fault waits for a moment that is soon over.
    pub(super) fn aims(&self) -> bool {
        self.due.iter().any(|(_, kind)| is_aimed(kind))
    }

    /// Returns whether the moment that a fault waits for has not come.
    fn misses<O: Driven>(&mut self, target: Target, nodes: &Nodes<O>) -> bool {
        match target {
            Target::Node(_) => false,
            Target::Leader(group) => nodes.leader(group).is_none(),
            Target::NewLeader { group, steps } => {
                let Some((_, ballot)) = nodes.new_leader(group) else { return true };
                let (seen, since) = self.began.entry(group).or_insert((ballot, self.looks));
                if *seen != ballot {
                    (*seen, *since) = (ballot, self.looks);
                }
                self.looks < *since + steps || self.hit.get(&group) == Some(&ballot)
            }
            Target::Sender(group) => !nodes.has_served(group),
        }
    }

    /// A replica of the group that was admitted since the last scan, if there is one.
    fn newly_admitted<O: Driven>(&mut self, group: u16, nodes: &Nodes<O>) -> Option<ReplicaId> {
        let members = nodes.members(GroupId(group)).filter_map(|id| nodes.find(id));
        let (silent, named): (Vec<_>, _) = members.partition(|it| it.core.log().is_silent());
        self.learning.extend(silent.iter().map(|it| it.id));
        named.iter().map(|it| it.id).find(|id| self.learning.remove(id))
    }

    /// A replica of the group that counts fully since the last scan, if there is one.
    fn counts_again<O: Driven>(
        &mut self,
        group: u16,
        nodes: &Nodes<O>,
        stage: &Stage<O>,
    ) -> Option<ReplicaId> {
        let members = nodes.members(GroupId(group));
        let (counting, others): (Vec<_>, _) =
            members.partition(|id| nodes.counts_fully(*id, stage));
        self.away.extend::<Vec<_>>(others);
        counting.into_iter().find(|id| self.away.remove(id))
    }

    /// A node of another replica of the group, whose disk each group can spare; if there is one.
    fn spare_disk<O: Driven>(id: ReplicaId, nodes: &Nodes<O>, stage: &mut Stage<O>) -> Option<u16> {
        let others = nodes.members(id.group).filter(|other| *other != id);
        let spare = others.map(|other| nodes.node_of(other));
        let spare: Vec<_> = spare.filter(|node| nodes.may_crash(*node, stage)).collect();
        (!spare.is_empty()).then(|| spare[stage.rng.index(spare.len())])
    }

    /// Returns whether something in progress holds messages back.
    pub(super) fn holds_back<O: Driven>(&self, stage: &Stage<O>) -> bool {
        !self.ends.is_empty() || self.operator.has_work(stage)
    }

    /// Starts and ends the faults that are due. Returns whether there were any.
    pub(super) fn go_on<O: Driven>(
        &mut self,
        nodes: &mut Nodes<O>,
        clients: &mut Clients,
        stage: &mut Stage<O>,
    ) -> Result<bool, Violation> {
        let now = stage.world.now();
        self.looks += 1;
        while let Some(fault) = self.coming.pop_front_if(|fault| fault.after <= clients.sent) {
            self.due.push((now + fault.delay, fault.kind));
        }
        let mut any = self.operator.go_on(nodes, stage)?;
        while let Some(at) = self.ends.iter().position(|(end, _)| *end <= now) {
            any = true;
            let (_, undo) = self.ends.swap_remove(at);
            self.undo(undo, nodes, stage)?;
        }
        for (at, kind) in std::mem::take(&mut self.due) {
            if at > now {
                self.due.push((at, kind));
            } else if let Some(target) = kind.waits_for()
                && self.misses(target, nodes)
            {
                let wait = if is_aimed(&kind) { Duration::ZERO } else { Duration::from_millis(1) };
                self.due.push((now + wait, kind));
            } else if let Kind::Sever { group, slot, evicted, .. } = kind
                && nodes.evictions_known_to(ReplicaId::new(GroupId(group), slot)) < evicted
            {
                self.due.push((now, kind));
            } else if let Kind::LeaveKeepers { group, back_after } = kind {
                let doomed = nodes.all_but_keepers(GroupId(group));
                if doomed.is_empty() {
                    self.due.push((now, kind));
                } else {
                    any = true;
                    stage.note(|| format!("fault: {kind:?}: the nodes {doomed:?} die"));
                    self.counts.keepers_left += 1;
                    for node in doomed {
                        nodes.crash(node, stage);
                        self.counts.node_crashes += 1;
                        self.ends.push((now + back_after, Undo::Restart(node)));
                    }
                }
            } else if let Kind::PowerAtJoin { group, back_within } = kind {
                if let Some(id) = self.counts_again(group, nodes, stage) {
                    any = true;
                    let victim = Self::spare_disk(id, nodes, stage);
                    stage.note(|| format!("fault: {id} counts again, {victim:?} loses its disk, and all their power"));
                    self.counts.power_failures_at_joins += u64::from(victim.is_some());
                    if let Some(node) = victim {
                        self.lose_disk(node, back_within, nodes, stage);
                    }
                    self.lose_power(back_within, nodes, stage);
                } else {
                    self.due.push((now, kind));
                }
            } else if let Kind::Promote { group } = kind {
                match self.newly_admitted(group, nodes) {
                    Some(id) => {
                        any = true;
                        stage.note(|| format!("fault: {id} is admitted, and asked to lead"));
                        let done = nodes.tell(id, &Command::Lead(id.group), stage)?;
                        self.counts.promotions += u64::from(done);
                    }
                    None => self.due.push((now, kind)),
                }
            } else if let Kind::Stall { group, has_state } = kind {
                match nodes.learner(group, has_state) {
                    Some(node) => {
                        any = true;
                        stage.note(|| {
                            format!("fault: n{node} is suspended for the rest of the load")
                        });
                        nodes.stop(node);
                        self.counts.learners_stopped += 1;
                        self.ends.push((now + FOR_EVER, Undo::Resume(node)));
                    }
                    None => self.due.push((now, kind)),
                }
            } else if let Kind::Loss { group, .. } = kind
                && self.operator.counts.losses() > 0
                && (self.operator.has_work(stage) || !nodes.all_serve(group, stage))
            {
                // Not before the group serves again.
                self.due.push((now + Duration::from_millis(1), kind));
            } else if let Kind::Rot { group, slot } | Kind::SpoilCheckpoints { group, slot, .. } =
                kind
                && !nodes.may_lose(ReplicaId::new(GroupId(group), slot), stage)
            {
                self.counts.damages_put_off += 1;
                self.due.push((now + Duration::from_millis(1), kind));
            } else if let Some(node) = kind.kills()
                && kind.loses_memory(stage.scenario.durable)
                && !nodes.may_crash(nodes.node(node), stage)
            {
                self.counts.crashes_put_off += 1;
                self.due.push((now + Duration::from_millis(1), kind));
            } else {
                any = true;
                stage.note(|| format!("fault: {kind:?}"));
                if let Some(Target::NewLeader { group, .. }) = kind.waits_for()
                    && let Some((_, ballot)) = nodes.new_leader(group)
                {
                    self.counts.new_leaders_hit += 1;
                    self.hit.insert(group, ballot);
                }
                self.happen(kind, nodes, clients, stage)?;
            }
        }
        Ok(any)
    }

    fn happen<O: Driven>(
        &mut self,
        kind: Kind,
        nodes: &mut Nodes<O>,
        clients: &mut Clients,
        stage: &mut Stage<O>,
    ) -> Result<(), Violation> {
        let now = stage.world.now();
        match kind {
            Kind::Crash { node, back_after } => {
                self.counts.senders_killed += u64::from(matches!(node, Target::Sender(_)));
                let node = nodes.node(node);
                nodes.crash(node, stage);
                self.counts.node_crashes += 1;
                // A node that is not to meet the one that started ahead does not begin because it "dies" once more.
                let alone = self.alone_until.filter(|(first, _)| *first != node);
                let until = alone.map_or(now, |(_, until)| until.max(now));
                self.ends.push((until.max(now + back_after), Undo::Restart(node)));
            }
            Kind::DiskLoss { node, back_after } => {
                self.lose_disk(nodes.node(node), back_after, nodes, stage);
            }
            Kind::PowerFailure { back_within } => {
                self.lose_power(back_within, nodes, stage);
            }
            Kind::OldCopy { node, ahead, back_within } => {
                let node = nodes.node(node);
                self.lose_power(back_within, nodes, stage);
                if let Some((first, alone)) = ahead {
                    self.starts_ahead(nodes.node(first), alone, stage);
                }
                for name in nodes.names_of(node) {
                    if stage.disks.put_back_older(&name) {
                        self.counts.old_copies += 1;
                        for id in nodes.replicas_of(&name) {
                            stage.onlooker.puts_back(id);
                        }
                    }
                }
            }
            Kind::Rot { group, slot } => {
                let group = GroupId(group);
                for name in nodes.names_of(nodes.node_of(ReplicaId::new(group, slot))) {
                    stage.disks.rot(&name, group);
                }
                self.counts.damaged_logs += 1;
            }
            Kind::SpoilCheckpoints { group, slot, gone } => {
                let group = GroupId(group);
                for name in nodes.names_of(nodes.node_of(ReplicaId::new(group, slot))) {
                    let any = stage.disks.spoil(&name, group, gone);
                    self.counts.lost_checkpoints += u64::from(any && gone);
                    self.counts.damaged_checkpoints += u64::from(any && !gone);
                }
            }
            Kind::FlushFails { node, ends_after, back_after } => {
                let node = nodes.node(node);
                for name in nodes.names_of(node) {
                    stage.disks.fail(&name);
                }
                self.counts.failed_flushes += 1;
                self.ends.push((now + ends_after, Undo::End(node, back_after)));
            }
            Kind::DiskFull { node, lasts } => {
                let node = nodes.node(node);
                for name in nodes.names_of(node) {
                    stage.disks.fill(&name, true);
                }
                self.counts.full_disks += 1;
                self.ends.push((now + lasts, Undo::Room(node)));
            }
            Kind::OldDisk { node, times, empty, back_after } => {
                let node = nodes.node(node);
                self.counts.old_disks += 1;
                if empty {
                    self.lose_disk(node, back_after, nodes, stage);
                } else {
                    nodes.crash(node, stage);
                    self.ends.push((now + back_after, Undo::Restart(node)));
                }
                nodes.start_in_vain(node, times);
            }
            Kind::Loss { group, replicas, back_after } => {
                for node in nodes.nodes_of(group, replicas) {
                    nodes.crash(node, stage);
                    self.counts.node_crashes += 1;
                    self.ends.push((now + back_after, Undo::Restart(node)));
                }
                self.operator.count_losses(nodes, stage);
            }
            Kind::Pause { node, lasts, flaps } => {
                let node = nodes.node(node);
                nodes.stop(node);
                self.counts.pauses += 1;
                if flaps {
                    self.counts.pauses_with_flaps += 1;
                    flap_all(node, nodes, stage);
                }
                self.ends.push((now + lasts, Undo::Resume(node)));
            }
            Kind::Slow { node, factor, lasts } => {
                let node = nodes.node(node);
                for name in nodes.names_of(node) {
                    stage.world.slow(&name, factor);
                }
                self.counts.slow_nodes += 1;
                self.ends.push((now + lasts, Undo::Fast(node)));
            }
            Kind::Cut { from, to, both_ways, lasts } => {
                let (from, to) = (nodes.node(from), nodes.node(to));
                if from != to {
                    self.counts.cuts_one_way += u64::from(!both_ways);
                    self.counts.cuts_both_ways += u64::from(both_ways);
                    self.cut(pairs(nodes, from, Some(to), true, both_ways), now + lasts, stage);
                }
            }
            Kind::Isolate { node, outbound, inbound, lasts } => {
                let node = nodes.node(node);
                let both = outbound && inbound;
                self.counts.isolations += u64::from(both);
                self.counts.isolations_one_way += u64::from(!both);
                self.cut(pairs(nodes, node, None, outbound, inbound), now + lasts, stage);
            }
            Kind::Deaf { node, lasts } => {
                let mut pairs = Vec::new();
                for name in nodes.names_of(nodes.node(node)) {
                    for client in clients.names() {
                        pairs.push((client.to_owned(), name.clone()));
                        pairs.push((name.clone(), client.to_owned()));
                    }
                }
                self.counts.deaf_nodes += 1;
                self.cut(pairs, now + lasts, stage);
            }
            Kind::Flap { one, other } => {
                let (one, other) = (nodes.node(one), nodes.node(other));
                for (one, other) in pairs(nodes, one, Some(other), one != other, false) {
                    stage.world.flap(&one, &other);
                    self.counts.node_flaps += 1;
                }
            }
            Kind::Skew { node, per_mille } => {
                for process in nodes.processes.iter().filter(|it| it.node == nodes.node(node)) {
                    stage.world.skew(&process.name, per_mille);
                }
                self.counts.skews += 1;
            }
            Kind::ClientCrash { client, midway, again } => {
                self.counts.client_crashes += 1;
                self.counts.client_crashes_midway += u64::from(midway);
                self.counts.late_retries += u64::from(again);
                clients.doom(client, midway, again, stage);
            }
            Kind::ClientFlap { client, node } => {
                self.counts.client_flaps += 1;
                for engine in nodes.names_of(nodes.node(node)) {
                    stage.world.flap(clients.name(client), &engine);
                }
            }
            Kind::Resend { client } => {
                self.counts.duplicate_retries += 1;
                clients.resend(client);
            }
            Kind::Transfer { group, slot } => {
                let id = ReplicaId::new(GroupId(group), slot);
                let done = nodes.tell(id, &Command::Lead(id.group), stage)?;
                self.counts.transfers += u64::from(done);
            }
            Kind::StopInside { node, looks, clock_looks, lasts } => {
                let node = nodes.node(node);
                nodes.stop(node);
                for name in nodes.names_of(node) {
                    stage.world.stop_inside(&name, looks, clock_looks);
                }
                self.counts.stops_inside_turns += 1;
                self.ends.push((now + lasts, Undo::Resume(node)));
            }
            Kind::Scarce { node, lasts } => {
                let node = nodes.node(node);
                for name in nodes.names_of(node) {
                    stage.world.scarce(&name, true);
                }
                self.counts.scarcities += 1;
                self.ends.push((now + lasts, Undo::Plenty(node)));
            }
            Kind::ClockStop { node, lasts } => {
                let node = nodes.node(node);
                for name in nodes.names_of(node) {
                    stage.world.skew(&name, 0);
                }
                self.counts.clock_stops += 1;
                self.ends.push((now + lasts, Undo::Clock(node)));
            }
            Kind::ClockJump { node, by } => {
                for name in nodes.names_of(nodes.node(node)) {
                    stage.world.jump(&name, by);
                }
                self.counts.clock_jumps += 1;
            }
            Kind::FailedStarts { node, times, back_after } => {
                let node = nodes.node(node);
                nodes.crash(node, stage);
                nodes.start_in_vain(node, times);
                self.counts.node_crashes += 1;
                self.counts.failed_starts += u64::from(times);
                self.ends.push((now + back_after, Undo::Restart(node)));
            }
            Kind::WrongLife { node, lacks, lasts } => {
                let node = nodes.node(node);
                nodes.crash(node, stage);
                self.counts.node_crashes += 1;
                self.counts.wrong_lives += u64::from(nodes.start_wrongly(node, lacks, stage));
                self.ends.push((now + lasts, Undo::Restart(node)));
            }
            Kind::Elections { group, slot, count } => {
                let id = ReplicaId::new(GroupId(group), slot);
                self.counts.elections_heard_of +=
                    u64::from(nodes.hear_of_elections(id, count, stage)?);
            }
            Kind::Sever { group, slot, lasts, .. } => {
                let (id, leader) = (ReplicaId::new(GroupId(group), slot), nodes.leader(group));
                if let Some(leader) = leader.filter(|leader| *leader != id) {
                    let (from, to) = (nodes.node_of(leader), nodes.node_of(id));
                    let mut pairs = pairs(nodes, to, None, false, true);
                    let spared = nodes.names_of(from);
                    pairs.retain(|(from, _)| !spared.contains(from));
                    self.counts.severed_replicas += 1;
                    self.cut(pairs, now + lasts, stage);
                }
            }
            // `go_on` finds their moment.
            Kind::Promote { .. }
            | Kind::Stall { .. }
            | Kind::LeaveKeepers { .. }
            | Kind::PowerAtJoin { .. } => {}
            Kind::Evict { group, slot } => {
                let whom = ReplicaId::new(GroupId(group), slot);
                if let Some(leader) = nodes.leader(group) {
                    let done = nodes.tell(leader, &Command::Evict(whom), stage)?;
                    self.counts.evictions += u64::from(done);
                }
            }
        }
        Ok(())
    }

    fn cut<O: Driven>(&mut self, pairs: Vec<(String, String)>, end: Duration, stage: &Stage<O>) {
        for (from, to) in &pairs {
            stage.world.partition(from, to);
        }
        self.ends.push((end, Undo::Heal(pairs)));
    }

    /// All nodes lose their power.
    fn lose_power<O: Driven>(
        &mut self,
        back_within: Duration,
        nodes: &mut Nodes<O>,
        stage: &mut Stage<O>,
    ) {
        self.counts.power_failures += 1;
        for node in 0..stage.scenario.topology().nodes {
            nodes.crash(node, stage);
            let back_after = some_of(&mut stage.rng, back_within);
            self.ends.push((stage.world.now() + back_after, Undo::Restart(node)));
        }
    }

    /// The node `first` starts at once, and all others that are to start do so later by `alone`.
    fn starts_ahead<O: Driven>(&mut self, first: u16, alone: Duration, stage: &Stage<O>) {
        self.counts.ahead_of_old_copies += 1;
        self.alone_until = Some((first, stage.world.now() + alone));
        for (at, undo) in &mut self.ends {
            match undo {
                Undo::Restart(node) if *node == first => *at = stage.world.now(),
                Undo::Restart(_) => *at += alone,
                _ => {}
            }
        }
    }

    /// A node dies and loses its disk.
    fn lose_disk<O: Driven>(
        &mut self,
        node: u16,
        back_after: Duration,
        nodes: &mut Nodes<O>,
        stage: &mut Stage<O>,
    ) {
        nodes.crash(node, stage);
        for name in nodes.names_of(node) {
            stage.disks.lose(&name);
        }
        self.counts.disk_losses += 1;
        self.ends.push((stage.world.now() + back_after, Undo::Restart(node)));
    }

    fn undo<O: Driven>(
        &mut self,
        undo: Undo,
        nodes: &mut Nodes<O>,
        stage: &mut Stage<O>,
    ) -> Result<(), Violation> {
        match undo {
            Undo::Restart(node) => {
                self.counts.node_restarts += 1;
                stage.note(|| format!("fault: n{node} restarts"));
                nodes.restart(node, stage)?;
            }
            // The node stays suspended until the last of its pauses is over.
            Undo::Resume(node) if self.ends.iter().any(|(_, it)| it.resumes(node)) => {}
            Undo::Resume(node) => {
                stage.note(|| format!("fault: n{node} resumes"));
                for process in nodes.processes.iter_mut().filter(|it| it.node == node) {
                    process.stands_still = false;
                }
            }
            Undo::Fast(node) => {
                for name in nodes.names_of(node) {
                    stage.world.slow(&name, 1);
                }
            }
            Undo::Plenty(node) => {
                stage.note(|| format!("fault: n{node} gets memory again"));
                for name in nodes.names_of(node) {
                    stage.world.scarce(&name, false);
                }
            }
            Undo::End(node, back_after) => {
                stage.note(|| format!("fault: n{node} ends, since its disk has failed"));
                nodes.crash(node, stage);
                self.counts.node_crashes += 1;
                self.ends.push((stage.world.now() + back_after, Undo::Restart(node)));
            }
            Undo::Room(node) => {
                stage.note(|| format!("fault: the disk of n{node} has room again"));
                for name in nodes.names_of(node) {
                    stage.disks.fill(&name, false);
                }
            }
            Undo::Clock(node) => {
                stage.note(|| format!("fault: the clock of n{node} resumes"));
                for name in nodes.names_of(node) {
                    stage.world.skew(&name, 1000);
                }
            }
            Undo::Heal(pairs) => {
                stage.note(|| format!("fault: {pairs:?} are no longer cut"));
                for (from, to) in &pairs {
                    stage.world.heal(from, to);
                }
            }
        }
        Ok(())
    }

    /// Ends all faults, for good.
    pub(super) fn end_all<O: Driven>(
        &mut self,
        nodes: &mut Nodes<O>,
        stage: &mut Stage<O>,
    ) -> Result<(), Violation> {
        self.coming.clear();
        self.due.clear();
        while !self.ends.is_empty() {
            for (_, undo) in std::mem::take(&mut self.ends) {
                self.undo(undo, nodes, stage)?;
            }
        }
        stage.world.heal_all();
        if stage.scenario.held_up {
            stage.world.complete_in_time();
        }
        for process in &nodes.processes {
            stage.world.skew(&process.name, 1000);
        }
        stage.note(|| "all faults end".to_owned());
        Ok(())
    }
}

/// Returns whether a fault waits for a moment that is soon over.
fn is_aimed(kind: &Kind) -> bool {
    let target = matches!(kind.waits_for(), Some(Target::NewLeader { .. } | Target::Sender(_)));
    let aimed = matches!(
        kind,
        Kind::Sever { evicted: 1.., .. } | Kind::LeaveKeepers { .. } | Kind::PowerAtJoin { .. }
    );
    target || aimed
}

/// The pairs of names between which nothing passes: from all processes of `node` to those of `other`, or of
/// every other node; and, with `inbound`, in the other direction.
fn pairs<O: Driven>(
    nodes: &Nodes<O>,
    node: u16,
    other: Option<u16>,
    outbound: bool,
    inbound: bool,
) -> Vec<(String, String)> {
    let is_other = |it: u16| it != node && other.is_none_or(|other| other == it);
    let mut pairs = Vec::new();
    for ours in nodes.processes.iter().filter(|it| it.node == node) {
        for theirs in nodes.processes.iter().filter(|it| is_other(it.node)) {
            if outbound {
                pairs.push((ours.name.clone(), theirs.name.clone()));
            }
            if inbound {
                pairs.push((theirs.name.clone(), ours.name.clone()));
            }
        }
    }
    pairs
}

fn flap_all<O: Driven>(node: u16, nodes: &Nodes<O>, stage: &Stage<O>) {
    for (one, other) in pairs(nodes, node, None, true, false) {
        stage.world.flap(&one, &other);
    }
}
