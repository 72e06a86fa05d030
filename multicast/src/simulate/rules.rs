//! What replicas owe each other at any moment, whatever comes of it: looked at after each turn, so that
//! a guard that is missing shows where it is missing, and not only where something was lost by it.

use std::collections::BTreeMap;

use skein_fabric::sim::SimFabric;
use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::properties::Violation;

use super::checker::SimEngine;
use super::machine::Machine;
use crate::replica::Replica;

/// What replicas have bound themselves to, each in its present life.
#[derive(Default)]
pub(super) struct Rules {
    promised: BTreeMap<ReplicaId, Ballot>,
    said: BTreeMap<ReplicaId, Acceptance>,
}

impl Rules {
    /// A replica begins a life, in which it owes nobody anything.
    pub(super) fn begins(&mut self, id: ReplicaId) {
        self.promised.remove(&id);
        self.said.remove(&id);
    }

    /// A group begins anew.
    pub(super) fn recreates(&mut self, group: GroupId) {
        self.promised.retain(|id, _| id.group != group);
        self.said.retain(|id, _| id.group != group);
    }

    /// A replica has promised that nobody below a ballot may write its log any more.
    pub(super) fn promises(&mut self, by: ReplicaId, ballot: Ballot) -> Result<(), Violation> {
        match self.promised.insert(by, ballot).filter(|before| *before > ballot) {
            None => Ok(()),
            Some(before) => {
                let evidence = format!("{by} has promised {before}, and now {ballot}");
                Err(Violation { property: "a promise is kept", evidence })
            }
        }
    }

    /// A replica has said up to where its log goes: in the ballot that it has granted, and in no
    /// other.
    pub(super) fn says(&mut self, by: ReplicaId, word: Acceptance) -> Result<(), Violation> {
        self.said.insert(by, word);
        match self.promised.get(&by) {
            Some(promised) if promised.tag() == word.tag => Ok(()),
            promised => {
                let evidence = format!("{by} has promised {promised:?} and says {word:?}");
                Err(Violation { property: "words are of the ballot that was granted", evidence })
            }
        }
    }

    /// Holds of every replica of an engine that has done a turn.
    pub(super) fn look_at(&self, engine: &SimEngine, spoke: &[ReplicaId]) -> Result<(), Violation> {
        let (replicas, _) = engine.inside();
        replicas.iter().try_for_each(|replica| {
            let (id, core) = (replica.id, &replica.core);
            let violated = |property, evidence| Err(Violation { property, evidence });
            let promised = core.promised();
            if let Some(before) = self.promised.get(&id).filter(|before| **before > promised) {
                let evidence = format!("{id} has promised {before} and goes by {promised}");
                return violated("a promise is kept", evidence);
            }
            let view = core.view();
            if spoke.contains(&id) && !view.names(id.slot, replica.incarnation) {
                let evidence = format!("{id} acknowledges, and {view:?} is all that is committed");
                return violated("who is not let in says nothing", evidence);
            }
            let counted = view.members().iter().filter(|member| !member.evicted).count();
            if counted < view.members().len() / 2 + 1 {
                let evidence = format!("{id} waits for {counted} in {view:?}");
                return violated("a quorum is waited for", evidence);
            }
            let word = self.said.get(&id).filter(|word| word.tag == promised.tag());
            let kept = word.is_none_or(|word| core.leads() || core.last_index() >= word.index);
            if !kept {
                let evidence = format!("{id} said {word:?}, and holds up to {}", core.last_index());
                return violated("what was acknowledged is held", evidence);
            }
            Ok(())
        })
    }
}

/// Holds of a leader and a replica that lets it write its log: nothing is written where the other has
/// still to read.
pub(super) fn check_unread(
    leader: &Replica<Machine>,
    follower: &Replica<Machine>,
) -> Result<(), Violation> {
    let Some(written) = leader.written_to(follower.id.slot) else { return Ok(()) };
    let reads = follower.reads_at(leader.core.ballot());
    if reads.is_none_or(|at| written <= at + leader.log_bytes() as u64) {
        return Ok(());
    }
    let (one, other) = (leader.id, follower.id);
    let evidence = format!("{one} wrote up to {written} to {other}, which reads at {reads:?}");
    Err(Violation { property: "nothing unread is overwritten", evidence })
}

/// Holds of a leader and a replica that lets it write its log: what the one counts on, a candidate
/// would find with the other.
pub(super) fn check_counted(
    leader: &Replica<Machine>,
    follower: &Replica<Machine>,
    fabric: &SimFabric,
) -> Result<(), Violation> {
    let (ballot, counted) = (leader.core.ballot(), leader.core.counts_on(follower.id.slot));
    let lets_in = follower.core.promised() == ballot && !follower.core.is_silent();
    if !lets_in || counted <= follower.core.last_index() {
        return Ok(());
    }
    let (_, held) = follower.would_report(fabric);
    if counted <= held {
        return Ok(());
    }
    let (one, other) = (leader.id, follower.id);
    let evidence = format!("{one} counts on {other} up to {counted}, which holds up to {held}");
    Err(Violation { property: "what is counted on is there", evidence })
}

/// Holds when something was delivered that rests on an entry of `group`: whoever is elected next has it.
/// `members` are those of its replicas whose memory counts, `holds` says which of them hold the entry.
pub(super) fn check_elections<'a>(
    members: impl Iterator<Item = (&'a SimFabric, &'a Replica<Machine>)>,
    holds: impl Fn(ReplicaId) -> bool,
) -> Result<(), String> {
    let logs: Vec<_> = members.map(|(fabric, it)| (it, it.would_report(fabric))).collect();
    for (replica, log) in logs.iter().filter(|(replica, _)| !holds(replica.id)) {
        let behind = logs.iter().filter(|(_, other)| other <= log).count();
        if behind > usize::from(replica.replicas()) / 2 {
            return Err(format!(
                "{} lacks it, and may lead with its log up to {log:?}",
                replica.id
            ));
        }
    }
    Ok(())
}
