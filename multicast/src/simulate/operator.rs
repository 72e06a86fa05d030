//! The operator of a run: when a group has lost more memories than it tolerates, looks that it says
//! so and does nothing, and then recreates it, accepting that what it held is gone.

use std::time::Duration;

use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::properties::Violation;

use super::machine::Machine;
use super::nodes::Nodes;
use super::world::Stage;
use crate::engine::Engine;
use crate::operate::Command;
use crate::replica::Replica;

/// For how long a group that has said that it is lost must keep still before it is recreated.
const LOOKED_AT_FOR: Duration = Duration::from_millis(100);

skein_protocol::paths! {
    /// What became of groups that lost more than they tolerate.
    LossCounts:
    /// A group lost more memories than it tolerates.
    groups_lost,
    /// A group whose every replica had lost its memory was recreated.
    empty_groups_recreated,
    /// A group some of whose replicas still had their memory was recreated.
    remains_recreated,
}

/// Looks after groups that are lost.
#[derive(Default)]
pub(super) struct Operator {
    lost: GroupSet,
    /// Those that said so: since when, and where their longest log ended then. A member that lags may
    /// learn yet what was committed before; nothing is committed after.
    said: Vec<(GroupId, Duration, u64)>,
    pub(super) counts: LossCounts,
}

impl Operator {
    /// Whether a group is lost now.
    pub(super) fn has_work(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Nodes have died: takes in which groups did not bear it.
    pub(super) fn count_losses(&mut self, nodes: &Nodes, stage: &mut Stage) {
        for group in nodes.groups() {
            if !self.lost.contains(group) && nodes.remember(group) < nodes.quorum() {
                self.lost = self.lost.with(group);
                self.counts.groups_lost += 1;
                stage.note(|| format!("{group} is lost"));
                stage.onlooker.loses(group);
            }
        }
    }

    /// Returns whether a group was recreated.
    pub(super) fn go_on(
        &mut self,
        nodes: &mut Nodes,
        stage: &mut Stage,
    ) -> Result<bool, Violation> {
        let now = stage.world.now();
        for group in self.lost.iter() {
            let said = self.said.iter().position(|(of, ..)| *of == group);
            let Some(at) = said else {
                if says_that_it_is_lost(nodes, group) {
                    stage.note(|| format!("{group} says that it is lost"));
                    let ends = replicas(nodes, group).map(|replica| replica.core.last_index());
                    self.said.push((group, now, ends.max().unwrap_or(0)));
                }
                continue;
            };
            let (_, since, end) = self.said[at];
            let committed = replicas(nodes, group).map(|replica| replica.core.commit_index());
            if let Some(index) = committed.max().filter(|index| *index > end) {
                let evidence =
                    format!("{group} is lost, its log ended at {end}, and it committed {index}");
                return Err(Violation { property: "a lost group keeps still", evidence });
            }
            if now >= since + LOOKED_AT_FOR {
                self.said.swap_remove(at);
                self.lost = self.lost.without(group);
                self.recreate(group, nodes, stage)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn recreate(
        &mut self,
        group: GroupId,
        nodes: &mut Nodes,
        stage: &mut Stage,
    ) -> Result<(), Violation> {
        stage.note(|| format!("{group} is recreated"));
        if nodes.remember(group) == 0 {
            self.counts.empty_groups_recreated += 1;
        } else {
            self.counts.remains_recreated += 1;
        }
        stage.onlooker.recreates(group);
        let members: Vec<ReplicaId> = nodes.members(group).collect();
        let of = |id: &ReplicaId| nodes.find(*id).expect("all of them run");
        let status = || nodes.engines().flat_map(Engine::status);
        let clock = status().map(|status| status.clock).max().unwrap_or(0);
        let ballots = members.iter().map(|id| of(id).core.ballot_counter());
        let command = Command::Recreate {
            group,
            incarnations: members.iter().map(|id| of(id).incarnation).collect(),
            ballot_counter: ballots.max().unwrap_or(0),
            clock,
        };
        nodes.command(group, &command, stage).map_err(|error| Violation {
            property: "a lost group can be recreated",
            evidence: format!("{group}: {error}"),
        })
    }
}

fn replicas(nodes: &Nodes, group: GroupId) -> impl Iterator<Item = &Replica<Machine>> {
    nodes.members(group).filter_map(|id| nodes.find(id))
}

/// Whether all replicas of the group run, and none of those that could know denies that it is lost:
/// one that has lost its own memory can only wait.
fn says_that_it_is_lost(nodes: &Nodes, group: GroupId) -> bool {
    let says =
        |id| nodes.runs(id) && nodes.find(id).is_some_and(|it| it.is_lost() || it.core.is_silent());
    let lost = |id| nodes.find(id).is_some_and(Replica::is_lost);
    nodes.members(group).all(says) && nodes.members(group).any(lost)
}
