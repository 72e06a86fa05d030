//! Real time along a tree: answers of whole groups and reads, against the properties of the crate.

use std::collections::{BTreeMap, BTreeSet};

use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::{AnswerTo, OrderingProtocol as _};
use skein_protocol::properties::{History, Violation};
use skein_protocol::rank::Rank;
use skein_protocol::step::Deliver;

use crate::stage::{message, replica};
use crate::tram::{Cluster, TREES};

/// An unordered read at a leader.
#[derive(Clone, Copy)]
struct Read {
    by: ReplicaId,
    ballot: Ballot,
    asked_at: u64,
    from: (u64, u64),
    /// The deliveries that it saw and the rank on which it rests, once it was executed.
    saw: Option<(u64, Rank)>,
}

/// A cluster, what clients and an observer saw of it, and what leaders have yet to answer.
struct Observed {
    cluster: Cluster,
    history: History,
    /// Answers that rest on a rank, by leader, ballot and message.
    held: BTreeMap<(ReplicaId, Ballot, u64), Rank>,
    answered: BTreeSet<(GroupId, u64)>,
    reads: Vec<Read>,
    seen: BTreeMap<ReplicaId, usize>,
}

impl Observed {
    fn send(&mut self, destinations: GroupSet) {
        let number = self.cluster.send(destinations);
        self.history.multicast(message(number), destinations);
    }

    /// Whether a replica leads its group, and not only believes so.
    fn leads(&self, id: ReplicaId) -> bool {
        let log = self.cluster.stage.nodes[&id].core.log();
        let promised =
            |slot| self.cluster.stage.nodes[&replica(id.group.0, slot)].core.log().promised();
        log.leads() && (0..3).all(|slot| promised(slot) <= log.ballot())
    }

    fn read(&mut self, by: ReplicaId) {
        if self.leads(by) {
            let core = self.cluster.stage.core(by);
            let (ballot, from) = (core.log().ballot(), core.read_from());
            let asked_at = self.history.asks();
            self.reads.push(Read { by, ballot, asked_at, from, saw: None });
        }
    }

    /// Notes what a replica has delivered, and answers what it may.
    fn look(&mut self, id: ReplicaId) -> Result<(), Violation> {
        let seen = self.seen.entry(id).or_default();
        let new = self.cluster.stage.nodes[&id].delivered[*seen..].to_vec();
        for (number, rank) in new {
            *seen += 1;
            let destinations = self.cluster.sent[&number];
            let (message, position) = (message(number), *seen as u64);
            let (low_water, clock, time_ms) = (1, rank.number(), 0);
            let next = Deliver { message, low_water, destinations, rank, position, clock, time_ms };
            self.history.delivers(id, &next)?;
        }
        let core = &self.cluster.stage.nodes[&id].core;
        if core.log().leads() {
            let ballot = core.log().ballot();
            for (number, _) in &self.cluster.stage.nodes[&id].delivered {
                if self.answered.contains(&(id.group, *number)) {
                    continue;
                }
                let rests = || core.reply_dependency(AnswerTo::Message(message(*number)));
                let rests = *self.held.entry((id, ballot, *number)).or_insert_with(rests);
                if core.has_passed(rests) {
                    self.answered.insert((id.group, *number));
                    self.history.answered(message(*number), id.group)?;
                }
            }
        }
        for mut read in std::mem::take(&mut self.reads) {
            if read.by != id {
                self.reads.push(read);
                continue;
            }
            let leads = self.leads(id);
            let core = self.cluster.stage.core(id);
            if !leads || core.log().ballot() != read.ballot {
                continue; // Its session asks another leader.
            }
            if read.saw.is_none() && core.has_caught_up(read.from) {
                read.saw = Some((core.delivered(), core.reply_dependency(AnswerTo::Read)));
            }
            match read.saw {
                Some((position, rests)) if core.has_passed(rests) => {
                    self.history.read(id.group, read.asked_at, position);
                }
                _ => self.reads.push(read),
            }
        }
        Ok(())
    }

    fn settle(&mut self, rounds: usize) -> Result<(), Violation> {
        for _ in 0..rounds {
            self.cluster.settle(1);
            for id in self.cluster.up() {
                self.look(id)?;
            }
        }
        Ok(())
    }
}

fn schedule(seed: u64) -> Result<u64, Violation> {
    let mut state = seed ^ 0x5eed;
    let mut random = move |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let tree = TREES[(seed % 3) as usize](3);
    let mut observed = Observed {
        cluster: Cluster::new(&tree),
        history: History::along(&tree),
        held: BTreeMap::new(),
        answered: BTreeSet::new(),
        reads: Vec::new(),
        seen: BTreeMap::new(),
    };
    let changes = random(3);
    // A group that is slow has fewer turns.
    let slow = random(3);
    for _ in 0..400 {
        let (group, slot) = (random(3), random(3));
        let id = replica(group as u16, slot as u8);
        match random(40) {
            0..5 => {
                let bits = 1 + random(7);
                let groups = (0..3).filter(|group| bits >> group & 1 == 1).map(GroupId);
                observed.send(groups.collect());
            }
            5..8 => observed.read(id),
            8 if changes > 0 => observed.cluster.change_leader(group as u16),
            9..11 => observed.cluster.stage.pass(1 + random(5), &[]),
            it if group == slow && it % 3 > 0 => {}
            it => {
                if it < 30 {
                    observed.cluster.stage.turn(id);
                } else {
                    observed.cluster.stage.complete(id);
                }
                observed.look(id)?;
            }
        }
    }
    observed.cluster.heal();
    observed.settle(80)?;
    observed.history.check_complete()?;
    let sent = observed.cluster.sent.iter();
    let due: usize = sent.map(|(_, groups)| groups.len()).sum();
    assert_eq!(observed.answered.len(), due, "seed {seed}: every group answers in the end");
    observed.cluster.check();
    Ok(observed.history.reads())
}

#[test]
fn answers_and_reads_of_whole_groups_keep_real_time() {
    let mut reads = 0;
    for seed in 0..400 {
        reads += schedule(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(reads > 500, "only {reads} reads were answered");
}

#[cfg(feature = "mutants")]
#[test]
fn each_guard_of_the_gate_that_is_taken_out_is_noticed() {
    use skein_protocol::mutants::{Mutant, plant};

    for mutant in
        [Mutant::NotGatedAlongTree, Mutant::UpIgnored, Mutant::DownIgnored, Mutant::ReadsUngated]
    {
        plant(Some(mutant));
        let noticed = (0..400).find(|seed| schedule(*seed).is_err());
        plant(None);
        println!("{}: {noticed:?}", mutant.name());
        assert!(noticed.is_some(), "{} survives", mutant.name());
    }
}
