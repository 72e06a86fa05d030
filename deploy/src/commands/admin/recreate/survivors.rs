//! The survivors of a group that no longer serves, and the report on them for an operator.

use std::fmt::Write as _;

use skein_multicast::layout::Layout;
use skein_multicast::operate::{ReplicaStatus, Role};
use skein_multicast::protocol::ids::{GroupId, ReplicaId};

use super::super::view::{Running, View};
use crate::exit::usage;

pub(super) fn is_lost(view: &View, group: u16) -> bool {
    view.replicas(group).any(|replica| replica.order.lost)
}

/// Whether no state is held by a quorum of the group's replicas, so that none can be trusted.
pub(super) fn has_stopped(view: &View, group: u16) -> bool {
    view.replicas(group).any(|replica| replica.order.is_stopped())
}

/// A replica that still has a state of the group.
struct Survivor<'a> {
    id: ReplicaId,
    order: &'a ReplicaStatus,
    keys: u64,
}

/// The replicas that still have a state of the group, the one with the best log first.
fn survivors<'a>(layout: &Layout, view: &'a View, group: u16) -> Vec<Survivor<'a>> {
    let ids = layout.topology().replicas_of(GroupId(group));
    let mut all: Vec<_> = ids
        .filter_map(|id| {
            let report = view.replica(id).filter(|report| report.order.holds_state)?;
            Some(Survivor { id, order: &report.order, keys: report.keys })
        })
        .collect();
    all.sort_by_key(|it| {
        std::cmp::Reverse((it.order.log_birth, it.order.log_index, it.order.delivered))
    });
    all
}

/// The slot of `node`'s replica, from whose state the group is to continue.
pub(super) fn survivor(
    running: &Running,
    view: &View,
    group: u16,
    node: u16,
) -> anyhow::Result<u8> {
    let layout = &running.layout;
    running.node(node)?;
    let all = survivors(layout, view, group);
    if let Some(found) = all.iter().find(|it| layout.node_of(it.id) == node) {
        return Ok(found.id.slot);
    }
    let nodes: Vec<_> = all.iter().map(|it| format!("n{}", layout.node_of(it.id))).collect();
    let which = match &nodes[..] {
        [] => "none of the nodes that answer holds one".to_owned(),
        _ => format!("these do: {}", nodes.join(", ")),
    };
    if layout.replica_on(node, GroupId(group)).is_none() {
        return Err(usage(format_args!(
            "node {node} has no replica of group {group}, and so no state of it; {which}"
        )));
    }
    match &view.nodes[usize::from(node)] {
        Ok(_) => Err(usage(format_args!("node {node} holds no state of group {group}; {which}"))),
        Err(error) => Err(running
            .unanswered(node, error)
            .context(format!("whether node {node} holds a state of group {group} is not known"))),
    }
}

/// The warning about what is lost if the group begins empty; `None` if there is nothing to lose.
pub(super) fn discards(layout: &Layout, view: &View, group: u16) -> Option<String> {
    let all = survivors(layout, view, group);
    let best = layout.node_of(all.first()?.id);
    if has_stopped(view, group) {
        return Some(stopped(layout, view, group));
    }
    Some(format!(
        "group {group} has survivors, and would lose their states: `skein admin recreate {group} --from \
         n{best}` continues from the best of them; add --discard-survivors to begin empty all the same"
    ))
}

fn has_diverged(layout: &Layout, group: u16) -> String {
    let quorum = layout.topology().quorum();
    format!(
        "group {group} has stopped: its replicas have diverged, and no state is held by {quorum} of them.\n"
    )
}

/// The report on a group that has stopped.
pub(super) fn stopped(layout: &Layout, view: &View, group: u16) -> String {
    let share = share(layout);
    let mut text = has_diverged(layout, group);
    let all = survivors(layout, view, group);
    if all.is_empty() {
        text.push_str("No replica that answers holds anything of it.\n");
    } else {
        text.push_str("These still hold data, each its own:\n");
    }
    for survivor in &all {
        line(&mut text, layout, survivor);
    }
    text.push_str(
        "It cannot be decided which of them is right, so the group cannot continue from any: --from is refused.\n",
    );
    let silent = silent(layout, view, group);
    if !silent.is_empty() {
        let _ = writeln!(
            text,
            "Not reached: {}. Start or resume it: it may hold the same as another one, and decide.",
            silent.join(", ")
        );
    }
    let discard = if all.is_empty() { "" } else { " --discard-survivors" };
    let _ = write!(
        text,
        "  skein admin recreate {group} --accept-data-loss{discard}     begins empty: every key \
         and value that\nthe group held, {share}, is gone"
    );
    text
}

/// The report on a group of a cluster that keeps its data on disk: it cannot be recreated. `is_gone` says of a node that
/// does not answer whether its data is gone.
pub(super) fn on_disk(
    layout: &Layout,
    view: &View,
    group: u16,
    is_gone: impl Fn(u16) -> bool,
) -> String {
    let topology = layout.topology();
    let tolerated = topology.quorum() - 1;
    let of_group = topology.replicas_of(GroupId(group));
    let nodes = of_group.filter(|id| view.replica(*id).is_none()).map(|id| layout.node_of(id));
    let (gone, silent): (Vec<_>, Vec<_>) = nodes.partition(|node| is_gone(*node));
    let names = |nodes: &[u16]| {
        let names: Vec<_> = nodes.iter().map(|node| format!("n{node}")).collect();
        names.join(", ")
    };
    let mut text = if has_stopped(view, group) {
        has_diverged(layout, group)
    } else if is_lost(view, group) || gone.len() > tolerated {
        format!(
            "group {group} is lost: the data of more than {tolerated} of its replicas is gone.\n"
        )
    } else if view.replicas(group).count() > 0 {
        return not_lost(layout, group);
    } else {
        format!("No replica of group {group} answers.\n")
    };
    let all = survivors(layout, view, group);
    if !all.is_empty() {
        text.push_str("These still hold a state of it:\n");
    }
    for survivor in &all {
        line(&mut text, layout, survivor);
    }
    if !gone.is_empty() {
        let found = "If it is found, put it back before they are started.";
        let _ = writeln!(text, "Without their data: {}. {found}", names(&gone));
    }
    if !silent.is_empty() {
        let names = names(&silent);
        let _ = writeln!(text, "Not reached: {names}. Start those that have data of it.");
    }
    text.push_str(
        "This cluster keeps its data on disk (durability \"sync\"), and its groups are not recreated: a \
         group that begins\nwithout what it acknowledged would contradict the others' disks. Copy what you need \
         from the other groups, and\nrestore a backup, or what you have copied, into a new cluster: `skein restore`.",
    );
    text
}

/// The nodes with a replica of the group that do not report it.
fn silent(layout: &Layout, view: &View, group: u16) -> Vec<String> {
    let ids = layout.topology().replicas_of(GroupId(group));
    let silent = ids.filter(|id| view.replica(*id).is_none());
    silent.map(|id| format!("n{}", layout.node_of(id))).collect()
}

fn not_lost(layout: &Layout, group: u16) -> String {
    let replicas = layout.topology().replicas;
    format!(
        "group {group} is not lost, and only a lost group can be recreated: one of which more \
         than {} of the {replicas} replicas have lost their state. --accept-data-loss would be \
         refused",
        layout.topology().quorum() - 1
    )
}

/// The list of survivors: keys and log of each, and the nodes that do not answer.
pub(super) fn explain(layout: &Layout, view: &View, group: u16) -> String {
    let replicas = layout.topology().replicas;
    let quorum = layout.topology().quorum();
    if has_stopped(view, group) {
        return stopped(layout, view, group);
    }
    if view.replicas(group).count() > 0 && !is_lost(view, group) {
        return not_lost(layout, group);
    }
    let mut text = format!(
        "group {group} is lost: more than {} of its {replicas} replicas have lost their state.\n",
        quorum - 1
    );
    let all = survivors(layout, view, group);
    let Some(best) = all.first() else {
        let _ = write!(
            text,
            "No replica that answers holds anything of it. `skein admin recreate {group} \
             --accept-data-loss` begins it\nempty: every key and value it held, {}, is gone.",
            share(layout)
        );
        return text;
    };
    let _ = writeln!(text, "These still hold a state of it, the best first:");
    for survivor in &all {
        line(&mut text, layout, survivor);
    }
    let highest = all.iter().map(|it| it.order.ballot_counter).max().unwrap_or(0);
    let leads = best.order.role == Role::Leader && best.order.ballot_counter == highest;
    let node = layout.node_of(best.id);
    let counts = |it: &&Survivor<'_>| {
        let named = best.order.view.get(usize::from(it.id.slot));
        named.is_some_and(|named| named.incarnation == it.order.incarnation)
    };
    let missing = if all.iter().filter(counts).count() >= quorum {
        "One of them is in every quorum: nothing that was acknowledged is missing.".to_owned()
    } else if leads {
        format!(
            "n{node} led the group: all that it acknowledged as the leader is there. If the \
             others had\nelected another leader, unnoticed by all of these, only what that one \
             acknowledged is missing."
        )
    } else {
        format!(
            "Entries after {} that a quorum without them acknowledged may be missing.",
            best.order.log_index
        )
    };
    let _ = write!(
        text,
        "{missing}\n  skein admin recreate {group} --from n{node}     continues from there\n  skein admin \
         recreate {group} --accept-data-loss --discard-survivors     begins empty"
    );
    text
}

/// The share of the store that one group holds.
fn share(layout: &Layout) -> String {
    match layout.topology().groups {
        1 => "the whole store".to_owned(),
        groups => format!("about one in {groups} of the whole store"),
    }
}

/// Adds the line of one survivor.
fn line(text: &mut String, layout: &Layout, survivor: &Survivor<'_>) {
    let Survivor { id, order, keys } = survivor;
    let evicted = order.view.iter().any(|it| it.slot == id.slot && it.evicted);
    let _ = writeln!(
        text,
        "  n{}  {keys} keys, log up to entry {}, {} delivered, in ballot {}{}",
        layout.node_of(*id),
        order.log_index,
        order.delivered,
        order.ballot,
        if evicted { ", evicted" } else { "" },
    );
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;
    use skein_multicast::operate::{Diverged, DivergenceStatus};
    use skein_node::admin::CallError;
    use skein_node::status::{NodeStatus, ReplicaReport};

    use super::*;
    use crate::data::example_replica;

    fn layout() -> Layout {
        Layout::propose(Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 }).unwrap()
    }

    fn node(number: u16, replica: ReplicaReport) -> NodeStatus {
        NodeStatus {
            node: number,
            life: 0,
            incarnation: 0,
            pid: 1,
            cluster: "c".into(),
            build: skein_cluster::BUILD.owned(),
            uptime_ms: 1,
            ready: false,
            draining: false,
            resident_bytes: 0,
            log_lines_lost: 0,
            log_lines_left_out: 0,
            directory_problem: None,
            disk: None,
            points: None,
            replicas: vec![replica],
            gone: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Three replicas with as many keys as their slot numbers. Their states have diverged if
    /// `diverged`.
    fn view(diverged: bool, lost: bool) -> View {
        let one = |slot: u8| {
            let mut replica = example_replica(0, slot, Role::Follower);
            replica.keys = slot.into();
            replica.order.lost = lost;
            replica.order.divergence = diverged.then(|| DivergenceStatus {
                what: Diverged::All,
                slots: vec![0, 1, 2],
                position: 7,
                ago_ms: 1,
                recovered: false,
            });
            Ok(node(slot.into(), replica))
        };
        View { nodes: (0..3).map(one).collect() }
    }

    #[test]
    fn a_stopped_group_holds_data_that_must_be_discarded_by_name() {
        let mut view = view(true, false);
        let told = explain(&layout(), &view, 0);
        for part in ["has stopped", "n2  2 keys", "--from is refused", "--discard-survivors"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("Not reached"), "{told}");
        assert_eq!(discards(&layout(), &view, 0), Some(told));

        view.nodes[1] = Err(CallError::Paused { node: 1, pid: 1 });
        let told = explain(&layout(), &view, 0);
        assert!(told.contains("Not reached: n1."), "{told}");
    }

    #[test]
    fn a_group_on_disk_is_not_recreated_and_what_still_holds_it_is_named() {
        for (diverged, lost, because) in [(true, false, "diverged"), (false, true, "is gone")] {
            let mut view = view(diverged, lost);
            view.nodes[1] = Err(CallError::Paused { node: 1, pid: 1 });
            let told = on_disk(&layout(), &view, 0, |_| false);
            for part in [because, "n2  2 keys", "Not reached: n1.", "`skein restore`"] {
                assert!(told.contains(part), "{part}: {told}");
            }
            assert!(!told.contains("admin recreate"), "it would be refused: {told}");
        }
        assert!(on_disk(&layout(), &view(false, false), 0, |_| false).contains("is not lost"));
    }

    #[test]
    fn a_group_on_disk_is_lost_when_too_much_of_its_data_is_gone_though_the_nodes_do_not_run() {
        let mut view = view(false, false);
        view.nodes[1] = Err(CallError::Paused { node: 1, pid: 1 });
        let told = on_disk(&layout(), &view, 0, |_| true);
        assert!(told.contains("is not lost"), "one is tolerated: {told}");
        view.nodes[2] = Err(CallError::Paused { node: 2, pid: 1 });
        let told = on_disk(&layout(), &view, 0, |_| true);
        for part in ["is lost", "n0  0 keys", "Without their data: n1, n2."] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = on_disk(&layout(), &view, 0, |node| node == 1);
        assert!(told.contains("is not lost"), "n2 may have its own: {told}");
    }

    #[test]
    fn a_lost_group_goes_on_from_the_best_of_its_survivors() {
        let told = discards(&layout(), &view(false, true), 0).unwrap();
        assert!(told.contains("--from n0") && told.contains("--discard-survivors"), "{told}");
        assert!(explain(&layout(), &view(false, false), 0).contains("is not lost"));
    }
}
