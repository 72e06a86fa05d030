//! `skein admin evict`

use anyhow::bail;
use skein_kvstore::node::admin::Action;
use skein_multicast::operate::MemberStatus;

use super::DONE_WITHIN;
use super::view::{Running, name};
use crate::args::Global;
use crate::exit::Exit;

/// Has a group's leader evict a replica, so that nothing waits for it any more
///
/// If its node runs, it comes back by itself: as a learner, which is given the state anew.
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
        let name = name(running.topology, id);
        let view = running.view();
        let Some(leader) = view.leader(group) else {
            bail!(
                "group {group} has no leader that could evict it: `skein status` shows what is \
                 missing"
            );
        };
        let member = |of: &[MemberStatus]| of.iter().find(|member| member.slot == slot).copied();
        let before = member(&leader.order.view);
        if before.is_some_and(|member| member.evicted) {
            crate::output::say(format!("{name}, is evicted already\n"))?;
            return Ok(Exit::Ok);
        }
        let at = running.replica(group, leader.order.slot)?;
        running.ask(running.topology.node_of(at), Action::Evict { group, slot })?;
        let evicted = running.wait(|view| {
            let now = member(&view.leader(group)?.order.view)?;
            // It may be back already.
            let before = before.map(|before| before.incarnation);
            (now.evicted || Some(now.incarnation) != before).then_some(())
        });
        if evicted.is_none() {
            bail!(
                "{name}, was to be evicted and is not after {} seconds: `skein status` shows \
                 whether the group has a leader and a quorum",
                DONE_WITHIN.as_secs()
            );
        }
        let then = match running.directory.node(running.topology.node_of(id)) {
            Some(_) => "it comes back as a learner",
            None => "it comes back as a learner when its node does",
        };
        crate::output::say(format!("{name}, is evicted; {then}\n"))?;
        Ok(Exit::Ok)
    }
}
