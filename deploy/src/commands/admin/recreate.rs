//! `skein admin recreate`

use std::fmt::Write as _;

use anyhow::bail;
use skein_kvstore::node::admin::Action;
use skein_kvstore::node::status::ReplicaReport;
use skein_multicast::config::Topology;
use skein_multicast::operate::Role;
use skein_multicast::protocol::ids::{GroupId, ReplicaId};

use super::DONE_WITHIN;
use super::view::{Running, View};
use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::output::tell;

/// Begins a lost group anew, with nothing in it
///
/// A group is lost when more of its replicas have lost their memory than it tolerates: nobody can
/// tell what it had acknowledged, so it serves nothing until this is done. Other groups keep what
/// they have.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_parser = super::group)]
    group: u16,

    /// Says that what the group held may be lost for good
    #[arg(long)]
    accept_data_loss: bool,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let group = self.group;
        let running = Running::with_group(global, group)?;
        let view = running.view();
        let quorum = running.topology.quorum();
        if !self.accept_data_loss {
            return Err(usage(explain(running.topology, &view, group)));
        }
        self.check(&running, &view)?;
        let answering = view.replicas(group).count();
        if answering < quorum {
            bail!(
                "group {group} cannot be recreated: {answering} of its {} replicas run, and it \
                 takes {quorum}; `skein supervise` or `skein node` starts the others",
                running.topology.replicas
            );
        }
        let incarnations = incarnations(&running, &view, group);
        let action = plan(&view, group, incarnations.clone());
        let begun = |replica: &&ReplicaReport| has_begun_anew(replica, &incarnations);
        let mut taken = view.replicas(group).filter(begun).count();
        let mut left: Vec<_> = view.replicas(group).filter(|replica| !begun(replica)).collect();
        // Those that remember something first: a group of the others must not find them as they were.
        left.sort_by_key(|replica| replica.order.role == Role::Learner);
        for replica in left {
            let id = ReplicaId::new(GroupId(group), replica.order.slot);
            match running.ask(running.topology.node_of(id), action.clone()) {
                Ok(_) => taken += 1,
                Err(error) if replica.order.role == Role::Learner => {
                    tell(format_args!("{error:#}"));
                }
                Err(error) => {
                    return Err(error.context(format!("group {group} is not recreated")));
                }
            }
        }
        if taken < quorum {
            bail!(
                "group {group} is not recreated: {taken} replicas began anew, and it takes \
                 {quorum}; do it again when the others answer"
            );
        }
        let Some(ballot) = running.wait(|view| Some(view.leader(group)?.order.ballot.clone()))
        else {
            bail!(
                "the replicas of group {group} have begun anew, and none leads it after {} seconds: \
                 `skein status` shows what they are doing",
                DONE_WITHIN.as_secs()
            );
        };
        crate::output::say(format!("group {group} serves again, empty, in ballot {ballot}\n"))?;
        Ok(Exit::Ok)
    }

    /// Refuses what would throw away a state that is there, or that may still be.
    fn check(&self, running: &Running, view: &View) -> anyhow::Result<()> {
        let group = self.group;
        for replica in running.topology.replicas_of(GroupId(group)) {
            let node = running.topology.node_of(replica);
            let Err(error) = &view.nodes[usize::from(node)] else { continue };
            if let Some(holder) = running.directory.node(node) {
                bail!(
                    "node {node} runs, as process {}, and does not say what it has of group \
                     {group}: {error}; wait for it, or end it with `skein admin kill {node}`",
                    holder.pid
                );
            }
        }
        if view.replicas(group).count() > 0 && !is_lost(view, group) {
            bail!(
                "group {group} is not lost: recreating it would throw its state away for nothing"
            );
        }
        Ok(())
    }
}

/// Who shall count, by slot.
fn incarnations(running: &Running, view: &View, group: u16) -> Vec<u32> {
    let incarnation = |replica| match view.replica(replica) {
        Some(report) => report.order.incarnation,
        // Its node's first life is over: whoever comes back there is another, and a learner.
        None => 0,
    };
    running.topology.replicas_of(GroupId(group)).map(incarnation).collect()
}

/// Whether an earlier attempt, which did not reach all, has reached this one.
fn has_begun_anew(replica: &ReplicaReport, incarnations: &[u32]) -> bool {
    let counts = replica.order.view.iter().map(|member| member.incarnation);
    !replica.order.lost && counts.eq(incarnations.iter().copied())
}

/// What every replica of the group must be told alike.
fn plan(view: &View, group: u16, incarnations: Vec<u32>) -> Action {
    let all = || view.nodes.iter().flatten().flat_map(|status| &status.replicas);
    let highest = |of: fn(&ReplicaReport) -> u64| all().map(of).max().unwrap_or(0);
    let ballots = view.replicas(group).map(|replica| replica.order.ballot_counter);
    Action::Recreate {
        group,
        incarnations,
        ballot_counter: ballots.max().unwrap_or(0),
        clock: highest(|replica| replica.order.clock),
    }
}

fn is_lost(view: &View, group: u16) -> bool {
    view.replicas(group).any(|replica| replica.order.lost)
}

/// What recreating the group would do away with.
fn explain(topology: Topology, view: &View, group: u16) -> String {
    let Topology { replicas, groups, .. } = topology;
    let tolerated = topology.quorum() - 1;
    let keys = view.replicas(group).map(|replica| replica.keys).max().unwrap_or(0);
    let mut text = if is_lost(view, group) {
        format!(
            "group {group} is lost: more than {tolerated} of its {replicas} replicas have lost \
             their memory. Recreating it"
        )
    } else {
        format!(
            "group {group} is not lost, and only a group that is can be recreated: one of which \
             more than {tolerated} of the {replicas} replicas have lost their memory. That"
        )
    };
    let _ = write!(
        text,
        " gives up for good every key and value the group held, about one in {groups} of the whole \
         store, acknowledged or not"
    );
    if keys > 0 {
        let _ = write!(text, "; {keys} keys are still seen there, of a time that nobody can tell");
    }
    text + ". Of transactions over several groups, the others keep their part. --accept-data-loss \
            says that this is meant"
}
