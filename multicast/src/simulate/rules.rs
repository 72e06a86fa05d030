//! What replicas owe each other at any moment, whatever comes of it: looked at after each turn, so that
//! a guard that is missing shows where it is missing, and not only where something was lost by it.

use std::collections::BTreeMap;

use skein_fabric::sim::SimFabric;
use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::log::{Cursor, Remote};
use skein_protocol::properties::Violation;
use skein_protocol::runs::Runs;

use super::checker::SimEngine;
use super::machine::Machine;
use crate::replica::Replica;

/// What replicas have bound themselves to, each in its present life; and what each group has.
#[derive(Default)]
pub(super) struct Rules {
    promised: BTreeMap<ReplicaId, Ballot>,
    said: BTreeMap<ReplicaId, Acceptance>,
    /// The longest log that any replica of a group took to be committed, and the ballot that this one
    /// had promised then.
    committed: BTreeMap<GroupId, (Runs, Ballot)>,
    /// Where each group's entries end: by birth and index.
    ends: BTreeMap<(GroupId, Ballot, u64), u64>,
    /// Index of the first entry of each ballot of each group.
    firsts: BTreeMap<(GroupId, Ballot), u64>,
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
        self.committed.remove(&group);
        self.ends.retain(|(of, ..), _| *of != group);
        self.firsts.retain(|(of, _), _| *of != group);
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

    /// A replica has logged another group's proposal, to be counted on when words of its ballot cover it:
    /// they may, below the ballot's first entry, and the proposal be lost all the same.
    pub(super) fn counts_on(&self, by: ReplicaId, remote: &Remote) -> Result<(), Violation> {
        match self.firsts.get(&(remote.group(), remote.ballot)) {
            Some(first) if remote.index < *first => {
                let evidence = format!("{by} logs {remote:?} of a ballot that begins at {first}");
                Err(Violation { property: "proposals count from their ballot on", evidence })
            }
            _ => Ok(()),
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

    /// Holds of every replica of an engine that has done a turn: an entry ends in the same place in every
    /// log; what is committed for one is committed for all, and no quorum could choose a log without it;
    /// and whoever leads holds it. `members` are the replicas of a group whose memory counts.
    pub(super) fn look_at_logs<'a, Members>(
        &mut self,
        engine: &SimEngine,
        members: impl Fn(GroupId) -> Members,
    ) -> Result<(), Violation>
    where
        Members: Iterator<Item = (&'a SimFabric, &'a Replica<Machine>)>,
    {
        let (replicas, _) = engine.inside();
        replicas.iter().try_for_each(|replica| {
            let (id, core, runs) = (replica.id, &replica.core, replica.runs());
            let (last, end) = ((runs.last_birth(), runs.end().index - 1), runs.end().position);
            let known = *self.ends.entry((id.group, last.0, last.1)).or_insert(end);
            if known != end {
                let evidence = format!("{id} has {last:?} end at {end}, and another at {known}");
                return Err(Violation { property: "an entry has one place", evidence });
            }
            if core.leads() {
                self.firsts.insert((id.group, core.ballot()), core.first_index());
            }
            let (commit, birth) = (core.commit_index(), core.commit_birth());
            let (committed, ballot) =
                self.committed.entry(id.group).or_insert((Runs::EMPTY, Ballot::ZERO));
            let most = committed.end().index - 1;
            if commit <= most && commit > 0 && !committed.holds(birth, commit) {
                let evidence = format!("{id} commits {commit} of {birth}, others {committed:?}");
                return Err(Violation { property: "one log is committed", evidence });
            }
            if commit > most {
                let holds = |runs: &Runs| runs.holds(birth, commit);
                if let Err(why) = check_elections(members(id.group), |_, runs| holds(runs)) {
                    let evidence = format!("{id} commits {commit} of {birth}, but {why}");
                    let property = "what is committed outlives elections";
                    return Err(Violation { property, evidence });
                }
                committed.clone_from(runs);
                committed.truncate(Cursor { index: commit + 1, position: 0 });
                *ballot = core.promised();
            }
            let (birth, most) = (committed.last_birth(), committed.end().index - 1);
            if core.leads() && core.ballot() > *ballot && most > 0 && !runs.holds(birth, most) {
                let evidence = format!("{id} leads with {runs:?}, and {committed:?} is committed");
                return Err(Violation { property: "leaders hold what is committed", evidence });
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
    let held = follower.holds(fabric);
    if counted <= held {
        return Ok(());
    }
    let (one, other) = (leader.id, follower.id);
    let evidence = format!("{one} counts on {other} up to {counted}, which holds up to {held}");
    Err(Violation { property: "what is counted on is there", evidence })
}

/// Holds of an entry of a group that something rests on: whoever is elected next has it. `members` are
/// those of its replicas whose memory counts, `holds` says which of them hold the entry, going by what
/// they would report.
pub(super) fn check_elections<'a>(
    members: impl Iterator<Item = (&'a SimFabric, &'a Replica<Machine>)>,
    holds: impl Fn(ReplicaId, &Runs) -> bool,
) -> Result<(), String> {
    let logs: Vec<_> = members.map(|(fabric, it)| (it, it.would_report(fabric))).collect();
    let rank = |log: &Runs| (log.last_birth(), log.end().index);
    for (replica, log) in logs.iter().filter(|(replica, log)| !holds(replica.id, log)) {
        let behind = logs.iter().filter(|(_, other)| rank(other) <= rank(log)).count();
        if behind > usize::from(replica.replicas()) / 2 {
            let (id, birth, last) = (replica.id, log.last_birth(), log.end().index - 1);
            return Err(format!(
                "{id} lacks it, and may lead with its log up to {last}, born in {birth}"
            ));
        }
    }
    Ok(())
}
