//! `skein admin evict`

use anyhow::bail;
use skein_node::admin::Action;
use skein_node::status::ReplicaReport;

use super::DONE_WITHIN;
use super::view::{Running, name};
use crate::args::Global;
use crate::exit::Exit;

/// Has a group's leader evict a replica, so that the group no longer waits for it
///
/// If its node runs, the replica rejoins by itself, as a learner that receives the state again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_parser = super::group)]
    group: u16,

    /// The replica's slot in the group
    slot: u8,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let Self { group, slot } = self;
        let running = Running::with_group(global, group)?;
        let id = running.replica(group, slot)?;
        let name = name(&running.layout, id);
        let view = running.view();
        let Some(leader) = view.leader(group) else {
            bail!(
                "group {group} has no leader that could evict it: `skein status` shows what is \
                 missing"
            );
        };
        let is_evicted = |replica: &ReplicaReport| {
            let member = replica.order.view.iter().find(|member| member.slot == slot);
            member.is_some_and(|member| member.evicted)
        };
        if is_evicted(leader) {
            crate::output::say(format!("{name}, is evicted already\n"))?;
            return Ok(Exit::Ok);
        }
        let at = running.replica(group, leader.order.slot)?;
        let told = running.ask(running.layout.node_of(at), Action::Evict { group, slot })?;
        // The eviction is logged by now, and takes effect when it is committed.
        let logged = told.replicas.iter().find(|replica| replica.order.group == group);
        let logged = logged.map_or(0, |replica| replica.order.log_index);
        let evicted = running.wait(|view| {
            let leader = view.leader(group).filter(|leader| leader.order.commit_index >= logged)?;
            Some(is_evicted(leader))
        });
        let Some(evicted) = evicted else {
            bail!(
                "{name}, was to be evicted and is not after {} seconds: `skein status` shows \
                 whether the group has a leader and a quorum",
                DONE_WITHIN.as_secs()
            );
        };
        let then = match running.directory.node(running.layout.node_of(id)) {
            Some(_) if !evicted => "it is back already",
            Some(_) => "it comes back as a learner",
            None => "it comes back as a learner when its node does",
        };
        crate::output::say(format!("{name}, is evicted; {then}\n"))?;
        Ok(Exit::Ok)
    }
}
