//! The operator of a run. When a group has lost more memories than it tolerates, it checks that the group
//! reports this and does nothing. Then it recreates the group: in every other run from the survivor with the
//! best log, if there is one, and otherwise empty, accepting the loss of what it held.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::ordering::Inspect as _;
use skein_protocol::properties::{History, Violation};

use super::Driven;
use super::machine::Machine;
use super::nodes::Nodes;
use super::world::Stage;
use crate::engine::Engine;
use crate::operate::{Command, Recreation, ballot_counter_of, settled_clock_of};
use crate::replica::Replica;

/// Time for which a group that has reported that it is lost must commit nothing before it is recreated.
const LOOKED_AT_FOR: Duration = Duration::from_millis(100);

skein_protocol::paths! {
    /// Counts of groups that lost more than they tolerate, by outcome.
    LossCounts:
    /// A group lost more memories than it tolerates.
    groups_lost,
    /// A group continued although more of its processes had died at once than it tolerates: the memory of
    /// some was written to until others were admitted.
    groups_that_went_on,
    /// A group was recreated, all of whose replicas had lost their memory.
    empty_groups_recreated,
    /// A group was recreated, some of whose replicas still had their memory.
    remains_recreated,
    /// A group resumed from the log of a survivor.
    revived,
}

impl LossCounts {
    /// Number of times that a group lost more than it tolerates at once.
    pub(super) fn losses(&self) -> u64 {
        self.groups_lost + self.groups_that_went_on
    }
}

/// Recreates groups that are lost.
#[derive(Default)]
pub(super) struct Operator {
    lost: GroupSet,
    /// For groups that may be lost, the time since which they have reported it without a break. A group may
    /// report it until a leader is elected that counts on an incarnation which has not learned yet that it
    /// was admitted.
    saying: BTreeMap<GroupId, Duration>,
    /// Groups that have reported that they are lost: since when, and the end of the longest log in any memory
    /// then, read or not, with its payloads or without. A member that lags may still learn that entries which
    /// it was sent before are committed, once it has their payloads; nothing is committed after them.
    said: Vec<(GroupId, Duration, u64)>,
    /// Number of recreations so far.
    attempts: u64,
    /// Messages that survivors held, and had not delivered, when their groups resumed from them.
    held: Vec<(GroupId, Vec<MessageId>)>,
    pub(super) counts: LossCounts,
}

impl Operator {
    /// Returns whether a group is lost now, or may be.
    pub(super) fn has_work<O: Driven>(&self, stage: &Stage<O>) -> bool {
        !self.lost.is_empty() || !stage.onlooker.endangered.is_empty()
    }

    /// Records, after nodes have died, the groups that did not tolerate it.
    pub(super) fn count_losses<O: Driven>(&mut self, nodes: &Nodes<O>, stage: &mut Stage<O>) {
        for group in nodes.groups() {
            if self.lost.contains(group) || nodes.remember(group) >= nodes.quorum() {
                continue;
            }
            if stage.scenario.memory_outlives > Duration::ZERO {
                stage.note(|| format!("{group} may be lost"));
                let endangered = &mut stage.onlooker.endangered;
                *endangered = endangered.with(group);
            } else {
                self.loses(group, stage);
            }
        }
    }

    fn loses<O: Driven>(&mut self, group: GroupId, stage: &mut Stage<O>) {
        self.lost = self.lost.with(group);
        self.counts.groups_lost += 1;
        stage.note(|| format!("{group} is lost"));
        stage.onlooker.loses(group);
    }

    /// Decides which of the groups that may be lost are lost, by what they report, and which have continued.
    fn look_at_endangered<O: Driven>(&mut self, nodes: &Nodes<O>, stage: &mut Stage<O>) {
        let now = stage.world.now();
        for group in stage.onlooker.endangered.iter() {
            let says = says_that_it_is_lost(nodes, group);
            let since = if says { *self.saying.entry(group).or_insert(now) } else { now };
            if !says {
                self.saying.remove(&group);
            }
            let lost = now >= since + LOOKED_AT_FOR;
            let all_run = nodes.members(group).all(|id| nodes.runs(id));
            if lost {
                self.loses(group, stage);
            } else if !says && all_run && nodes.remember(group) >= nodes.quorum() {
                stage.note(|| format!("{group} has resumed"));
                self.counts.groups_that_went_on += 1;
            } else {
                continue;
            }
            let endangered = &mut stage.onlooker.endangered;
            *endangered = endangered.without(group);
        }
    }

    /// Handles lost groups. Returns whether a group was recreated.
    pub(super) fn go_on<O: Driven>(
        &mut self,
        nodes: &mut Nodes<O>,
        stage: &mut Stage<O>,
    ) -> Result<bool, Violation> {
        let now = stage.world.now();
        self.look_at_endangered(nodes, stage);
        for group in self.lost.iter() {
            let said = self.said.iter().position(|(of, ..)| *of == group);
            let Some(at) = said else {
                if says_that_it_is_lost(nodes, group) {
                    stage.note(|| format!("{group} reports that it is lost"));
                    self.said.push((group, now, nodes.written_up_to(group)));
                }
                continue;
            };
            let (_, since, end) = self.said[at];
            let committed = replicas(nodes, group).map(|replica| replica.core.log().commit_index());
            if let Some(index) = committed.max().filter(|index| *index > end) {
                let evidence =
                    format!("{group} is lost, its log ended at {end}, but it committed {index}");
                return Err(Violation { property: "a lost group commits nothing", evidence });
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

    /// Checks at the end that a group has delivered everything that the survivor held from which it resumed.
    pub(super) fn check_held(&self, history: &History) -> Result<(), Violation> {
        let all = self.held.iter().flat_map(|(group, held)| held.iter().map(move |m| (*group, *m)));
        let mut gone = all.filter(|(group, message)| !history.has_delivered(*group, *message));
        gone.next().map_or(Ok(()), |(group, message)| {
            let evidence = format!(
                "{group} resumed from a log that holds {message}, but has not delivered it"
            );
            Err(Violation { property: "a survivor's messages are not lost", evidence })
        })
    }

    fn recreate<O: Driven>(
        &mut self,
        group: GroupId,
        nodes: &mut Nodes<O>,
        stage: &mut Stage<O>,
    ) -> Result<(), Violation> {
        stage.note(|| format!("{group} is recreated"));
        if nodes.remember(group) == 0 {
            self.counts.empty_groups_recreated += 1;
        } else {
            self.counts.remains_recreated += 1;
        }
        let members: Vec<ReplicaId> = nodes.members(group).collect();
        let of = |id: &ReplicaId| nodes.find(*id).expect("all of them run");
        self.held.retain(|(held, _)| *held != group);
        let status: Vec<_> = nodes.engines().flat_map(Engine::status).collect();
        let settled_clock = settled_clock_of(group, status.iter());
        let serves = |id: &&ReplicaId| of(id).core.inspect().can_be_revived(settled_clock);
        let goes_on = stage.scenario.seed.is_multiple_of(2);
        let survivors = members.iter().filter(|id| goes_on && serves(id));
        let best = |id: &&ReplicaId| {
            (of(id).core.log().inspect().last_birth(), of(id).core.log().last_index())
        };
        let from = survivors.max_by_key(best).copied();
        match from {
            None => stage.onlooker.recreates(group),
            Some(survivor) => {
                stage.note(|| format!("it resumes from {survivor}"));
                self.counts.revived += 1;
                self.held.push((group, of(&survivor).core.inspect().undelivered()));
                let survivors = members.iter().filter(serves).map(of);
                let reached = survivors.map(|it| it.core.delivered()).max().unwrap_or(0);
                stage.onlooker.revives(group, reached);
            }
        }
        let clock = status.iter().map(|status| status.clock).max().unwrap_or(0);
        let plan = Recreation {
            from: from.map(|survivor| survivor.slot),
            incarnations: members.iter().map(|id| of(id).incarnation).collect(),
            ballot_counter: ballot_counter_of(group, status.iter()),
            clock,
            settled_clock,
        };
        self.attempts += 1;
        let token = self.attempts;
        let phases =
            [Command::PrepareRecreate { group, token, plan }, Command::Recreate { group, token }];
        phases.iter().try_for_each(|phase| nodes.command(group, phase, stage)).map_err(|error| {
            Violation {
                property: "a lost group can be recreated",
                evidence: format!("{group}: {error}"),
            }
        })
    }
}

fn replicas<O: Driven>(
    nodes: &Nodes<O>,
    group: GroupId,
) -> impl Iterator<Item = &Replica<Machine, O>> {
    nodes.members(group).filter_map(|id| nodes.find(id))
}

/// Returns whether all replicas of the group run, and none of those that could know denies that it is lost: a
/// replica that has lost its own memory can only wait.
fn says_that_it_is_lost<O: Driven>(nodes: &Nodes<O>, group: GroupId) -> bool {
    let says = |id| {
        nodes.runs(id) && nodes.find(id).is_some_and(|it| it.is_lost() || it.core.log().is_silent())
    };
    let lost = |id| nodes.find(id).is_some_and(Replica::is_lost);
    nodes.members(group).all(says) && nodes.members(group).any(lost)
}
