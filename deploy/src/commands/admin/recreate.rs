//! `skein admin recreate`

mod survivors;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use skein_multicast::layout::Layout;
use skein_multicast::operate::{Recreation, ballot_counter_of, settled_clock_of};
use skein_multicast::protocol::ids::{GroupId, ReplicaId};
use skein_node::admin::{Action, CallError};
use skein_node::missing::is_missing;
use survivors::{discards, explain, has_stopped, is_lost, on_disk, stopped, survivor};

use super::view::{Running, View};
use super::{DONE_WITHIN, POLL};
use crate::args::Global;
use crate::exit::{Exit, usage};

/// How long the replicas of a group may take to agree that it is lost. Each receives the others'
/// new incarnations within a fraction of that.
const AGREE_WITHIN: Duration = Duration::from_secs(2);

/// Recreates a lost group: from a survivor's state, or empty
///
/// A group is lost when more of its replicas have lost their state than it tolerates: what it had
/// acknowledged is unknown, so it serves nothing until it is recreated. Without an option the
/// survivors and their states are listed, and nothing is changed. All nodes are asked first; if one
/// refuses, none acts. Other groups are not affected. Groups of a cluster with durability `sync` are
/// not recreated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_parser = super::group)]
    group: u16,

    /// Continues from this node's state of the group
    #[arg(long, value_name = "NODE", value_parser = super::node, conflicts_with = "accept_data_loss")]
    from: Option<u16>,

    /// Begins empty: the group's data may be lost for good
    #[arg(long)]
    accept_data_loss: bool,

    /// Also discards the states of survivors
    #[arg(long, requires = "accept_data_loss")]
    discard_survivors: bool,

    /// A node of another host that does not run and is not asked; may be repeated
    #[arg(long, value_name = "NODE", value_parser = super::node)]
    without: Vec<u16>,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let group = self.group;
        let running = Running::with_group(global, group)?;
        let view = running.view();
        let quorum = running.layout.topology().quorum();
        if running.is_on_disk() {
            let directory = &running.directory;
            let is_gone = |node| directory.node(node).is_none() && is_missing(directory, node);
            return Err(usage(on_disk(&running.layout, &view, group, is_gone)));
        }
        if !self.accept_data_loss && self.from.is_none() {
            return Err(usage(explain(&running.layout, &view, group)));
        }
        if self.from.is_some() && has_stopped(&view, group) {
            return Err(usage(stopped(&running.layout, &view, group)));
        }
        let from = self.from.map(|node| survivor(&running, &view, group, node)).transpose()?;
        self.check(&running, &view)?;
        if self.accept_data_loss
            && !self.discard_survivors
            && let Some(why) = discards(&running.layout, &view, group)
        {
            return Err(usage(why));
        }
        let answering: Vec<ReplicaId> = running
            .layout
            .topology()
            .replicas_of(GroupId(group))
            .filter(|id| view.replica(*id).is_some())
            .collect();
        if answering.len() < quorum {
            bail!(
                "group {group} cannot be recreated: {} of its {} replicas can be reached, and it takes \
                 {quorum}; `skein status` shows what the others do, and `skein supervise` or `skein \
                 node` starts those that do not run",
                answering.len(),
                running.layout.topology().replicas
            );
        }
        let token = rand::random();
        let prepare =
            Action::PrepareRecreate { group, token, plan: plan(&running, &view, group, from) };
        prepare_all(&running, &answering, &prepare)
            .with_context(|| format!("group {group} is not recreated, and nothing was changed"))?;
        commit_all(&running, &view, from, answering, Action::CommitRecreate { group, token })
            .with_context(|| {
                format!(
                    "group {group} is not recreated yet: run the command again, which continues where \
                     this one ended"
                )
            })?;
        let Some(ballot) = running.wait(|view| Some(view.leader(group)?.order.ballot.clone()))
        else {
            bail!(
                "the replicas of group {group} are recreated, but none leads it after {} seconds: \
                 `skein status` shows what they are doing",
                DONE_WITHIN.as_secs()
            );
        };
        let with = match self.from {
            Some(node) => format!("with the state of node {node}"),
            None => "empty".to_owned(),
        };
        crate::output::say(format!("group {group} serves again, {with}, in ballot {ballot}\n"))?;
        if let Some(left) = half_done(&running.layout, group) {
            crate::output::say(left)?;
        }
        Ok(Exit::Ok)
    }

    /// Refuses to discard a state that exists or may exist.
    fn check(&self, running: &Running, view: &View) -> anyhow::Result<()> {
        let group = self.group;
        // Nodes without a replica of the group are asked too: they may remember the highest ballot
        // of the group.
        for node in 0..running.layout.topology().nodes {
            let Err(error) = &view.nodes[usize::from(node)] else { continue };
            if let Some(address) = running.host_of(node)
                && !self.without.contains(&node)
            {
                if running.directory.socket(node).exists() {
                    bail!(
                        "{}; it may hold a state of group {group}; if it is certain that the node does \
                         not run, --without {node} continues without it",
                        running.unanswered(node, error)
                    );
                }
                bail!(
                    "node {node} belongs to another host, the one with the address {address}, and may \
                     hold a state of group {group}: forward its admin socket to {}, as `ssh -N -L` \
                     does; if it is certain that the node does not run, --without {node} continues \
                     without it",
                    running.directory.socket(node).display()
                );
            }
            if let CallError::Paused { .. } = error {
                bail!(
                    "node {node} may hold a state of group {group}: {error}, and then this command"
                );
            }
            if let Some(holder) = running.directory.node(node) {
                bail!(
                    "node {node} runs, as process {}, and does not report what it knows of group \
                     {group}: {error}; wait for it, or end it with `skein admin kill {node}`",
                    holder.pid
                );
            }
        }
        if view.replicas(group).count() > 0 && !is_lost(view, group) && !has_stopped(view, group) {
            bail!("group {group} is not lost: recreating it would discard its state for nothing");
        }
        Ok(())
    }
}

/// A warning about commands that went through the group; `None` if it had no part in the order of others.
fn half_done(layout: &Layout, group: u16) -> Option<String> {
    (layout.topology().groups > 1).then(|| {
        format!(
            "Commands of several groups that were under way through group {group} may be done in some of their groups and \
             not in others: no session sends them again if its process has ended. Those that wait for a verdict of the \
             group are refused after a second\n"
        )
    })
}

/// Asks every replica of the group to prepare. A replica that refuses is asked again for a while,
/// because it may not have received the new incarnations of the others yet. Nothing changes in this
/// phase.
fn prepare_all(running: &Running, replicas: &[ReplicaId], prepare: &Action) -> anyhow::Result<()> {
    let deadline = Instant::now() + AGREE_WITHIN;
    for id in replicas {
        let node = running.layout.node_of(*id);
        while let Err(error) = running.ask(node, prepare.clone()) {
            if Instant::now() >= deadline {
                return Err(error);
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

/// Has every replica commit what it prepared: first the one whose state the group continues from,
/// then others that hold a state, so that the rest, which may form a quorum, does not begin without
/// them.
fn commit_all(
    running: &Running,
    view: &View,
    from: Option<u8>,
    mut replicas: Vec<ReplicaId>,
    commit: Action,
) -> anyhow::Result<()> {
    let holds = |id: &ReplicaId| view.replica(*id).is_some_and(|it| it.order.holds_state);
    replicas.sort_by_key(|id| (Some(id.slot) != from, !holds(id)));
    replicas
        .into_iter()
        .try_for_each(|id| running.ask(running.layout.node_of(id), commit.clone()).map(drop))
}

/// Time in microseconds since 1970. Versions in the recreated group start there. This is above all
/// versions of the group's former incarnation, of which the highest may be unknown, because it
/// delivered fewer than a million messages a second.
fn microseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The plan, which must be the same for every replica of the group.
fn plan(running: &Running, view: &View, group: u16, from: Option<u8>) -> Recreation {
    // A node that does not run returns in another incarnation, as a learner.
    let incarnation = |id| view.replica(id).map_or(0, |report| report.order.incarnation);
    let all = || view.nodes.iter().flatten().flat_map(|status| &status.replicas);
    Recreation {
        from,
        incarnations: running
            .layout
            .topology()
            .replicas_of(GroupId(group))
            .map(incarnation)
            .collect(),
        ballot_counter: ballot_counter_of(GroupId(group), all().map(|replica| &replica.order)),
        settled_clock: settled_clock_of(GroupId(group), all().map(|replica| &replica.order)),
        clock: all().map(|replica| replica.order.clock).max().unwrap_or(0).max(microseconds()),
    }
}
