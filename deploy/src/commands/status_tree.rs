//! The part of `skein status` about the tree of groups: its edges, and which destinations are closed.

use skein_multicast::operate::{EdgesStatus, Role};

use super::status::{GroupView, Snapshot};
use crate::output::names;

/// A row for each edge of the tree, below a head; `None` without a tree. A number is `-` where no leader tells it.
pub(super) fn edges(snapshot: &Snapshot) -> Option<Vec<Vec<String>>> {
    let parents = snapshot.parents.as_ref()?;
    let head = ["edge", "numbered", "acknowledged", "kept", "sent", "taken", "closed"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (child, parent) in (0_u16..).zip(parents) {
        let Some(parent) = *parent else { continue };
        let above = snapshot.groups.get(usize::from(parent)).and_then(edges_of);
        let below = snapshot.groups.get(usize::from(child)).and_then(edges_of);
        let to = above.and_then(|it| it.children.iter().find(|to| to.group == child));
        let taken = below.and_then(|it| it.taken);
        let or_dash = |known: Option<String>| known.unwrap_or_else(|| "-".to_owned());
        let number = |known: Option<u64>| or_dash(known.map(|number| number.to_string()));
        rows.push(vec![
            format!("g{parent} to g{child}"),
            number(to.map(|to| to.numbered)),
            number(to.map(|to| to.acknowledged)),
            number(to.map(|to| to.unacknowledged)),
            number(to.map(|to| to.sent)),
            or_dash(taken.map(|taken| match taken.generation {
                0 => taken.number.to_string(),
                generation => format!("{} of generation {generation}", taken.number),
            })),
            or_dash(
                to.filter(|to| !to.closed.is_empty())
                    .map(|to| names(&to.closed.iter().copied().collect())),
            ),
        ]);
    }
    Some(rows)
}

/// A sentence for each group that holds up messages, and for each leader that refuses some for want of room.
pub(super) fn notes(snapshot: &Snapshot) -> Vec<String> {
    let held = snapshot.held_up.iter().flatten().map(ToString::to_string);
    let closed = snapshot.groups.iter().filter_map(|view| {
        let EdgesStatus { closed, refused, .. } = edges_of(view)?;
        let closed = names(&closed.iter().copied().collect());
        (!closed.is_empty()).then(|| {
            format!(
                "g{} orders no messages of several groups to {closed} for now: what it has passed on there is not \
                 acknowledged. {refused} messages wait for that.",
                view.group
            )
        })
    });
    held.chain(closed).collect()
}

/// The edges of a group, as its leader tells them.
fn edges_of(view: &GroupView) -> Option<&EdgesStatus> {
    let orders = view.replicas.iter().map(|replica| &replica.report.order);
    let leads = orders.filter(|order| order.role == Role::Leader);
    leads.max_by_key(|order| (order.available, order.ballot_counter))?.edges.as_ref()
}
