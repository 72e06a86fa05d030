//! `skein admin transfer-leader`

use std::time::Instant;

use anyhow::bail;
use skein_multicast::operate::Role;
use skein_multicast::protocol::ids::{GroupId, ReplicaId};
use skein_node::admin::Action;
use skein_node::status::ReplicaReport;

use super::DONE_WITHIN;
use super::view::{Running, View, name};
use crate::args::Global;
use crate::exit::{Exit, usage};

/// Transfers the leadership of a group, and returns when the new leader leads
///
/// Without --to and --node, the next follower by slot leads. On several hosts, run it on the host of
/// the replica that is to lead, or where the admin socket of its node is forwarded to.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_parser = super::group)]
    group: u16,

    /// The replica's slot in the group
    #[arg(long, value_name = "SLOT")]
    to: Option<u8>,

    /// The replica's node
    #[arg(long, value_parser = super::node, value_name = "NODE", conflicts_with = "to")]
    node: Option<u16>,
}

/// Why a replica cannot lead, and what to do about it.
fn obstacle(view: &View, to: ReplicaId) -> &'static str {
    match view.replica(to).map(|replica| replica.order.role) {
        None => "its node does not answer; `skein status` shows what it does",
        Some(Role::Learner) => {
            "it is receiving the state; ask again when `skein status` calls it a follower"
        }
        Some(Role::Candidate) => {
            "too few others of the group have voted for it; `skein status` shows whether there is a quorum"
        }
        Some(Role::Follower | Role::Leader) => {
            "another one leads; `skein status` shows which, and asking again may help"
        }
    }
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let running = Running::with_group(global, self.group)?;
        let view = running.view();
        let to = self.target(&running, &view)?;
        let name = name(&running.layout, to);
        if view.leader(self.group).is_some_and(|leader| leader.order.slot == to.slot) {
            crate::output::say(format!("{name}, leads it already\n"))?;
            return Ok(Exit::Ok);
        }
        let asked = Instant::now();
        running.ask(running.layout.node_of(to), Action::Lead { group: self.group })?;
        let ballot = running.wait(|view| {
            let leader = view.leader(self.group)?;
            (leader.order.slot == to.slot).then(|| leader.order.ballot.clone())
        });
        let Some(ballot) = ballot else {
            bail!(
                "{name}, was asked to lead and does not after {} seconds: {}",
                DONE_WITHIN.as_secs(),
                obstacle(&running.view(), to)
            );
        };
        let took = asked.elapsed().as_millis();
        crate::output::say(format!("{name}, leads it in ballot {ballot}, after {took} ms\n"))?;
        Ok(Exit::Ok)
    }

    fn target(&self, running: &Running, view: &View) -> anyhow::Result<ReplicaId> {
        let topology = running.layout.topology();
        let group = self.group;
        match (self.to, self.node) {
            (Some(slot), _) => running.replica(group, slot),
            (None, Some(node)) => {
                let node = running.node(node)?;
                running.layout.replica_on(node, GroupId(group)).ok_or_else(|| {
                    usage(format_args!("node {node} has no replica of group {group}"))
                })
            }
            (None, None) => {
                let from = view.leader(group).map_or(0, |leader| leader.order.slot);
                let slots = topology.replicas;
                let others = (1..slots).map(|ahead| (from + ahead) % slots);
                let mut others = others.map(|slot| ReplicaId::new(GroupId(group), slot));
                let follows = |id: &ReplicaId| view.replica(*id).is_some_and(ReplicaReport::serves);
                let Some(next) = others.find(follows) else {
                    if running.has_several_hosts() {
                        bail!(
                            "no replica of group {group} on this host follows its leader, and a transfer \
                             runs where the new leader is: give this command on the host of the one that \
                             is to lead; `skein status` there shows whether it follows"
                        );
                    }
                    bail!(
                        "no replica of group {group} follows its leader and could take over: \
                         `skein status` shows what they are doing"
                    );
                };
                Ok(next)
            }
        }
    }
}
