//! Genuineness: only a message's sender and its destinations read or write anything for it. (RamCast, section 2.2.
//! Heartbeats are exempt.)
//!
//! An acceptance word stands for its writer's log. So it may be written to another group only if that log contains a
//! message that both groups share, or did before its writer received a state.
//!
//! Along a tree, the groups on a message's path take part as its destinations do, and reports go from a group to its
//! parent, to its children, and to the other destinations of its messages.

use alloc::collections::BTreeMap;
use alloc::format;

use super::{About, History, Touch, Violation};
use crate::ballot::Acceptance;
use crate::ids::{GroupId, GroupSet, ReplicaId};

/// The groups with which a replica or a group shares a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// By the replica's own log.
    of_replica: BTreeMap<ReplicaId, GroupSet>,
    /// By any log of the group.
    of_group: BTreeMap<GroupId, GroupSet>,
}

impl Shares {
    pub(super) fn logged(&mut self, by: ReplicaId, destinations: GroupSet) {
        if !destinations.contains(by.group) {
            return; // A group on the path shares nothing with them.
        }
        let of_replica = self.of_replica.entry(by).or_default();
        *of_replica = destinations.iter().fold(*of_replica, GroupSet::with);
        let of_group = self.of_group.entry(by.group).or_default();
        *of_group = destinations.iter().fold(*of_group, GroupSet::with);
    }

    /// A state can contain everything that any log of its group contained.
    pub(super) fn restored(&mut self, replica: ReplicaId) {
        let of_group = self.of_group.get(&replica.group).copied().unwrap_or_default();
        self.of_replica.insert(replica, of_group);
    }

    pub(super) fn forget(&mut self, replica: ReplicaId) {
        self.of_replica.remove(&replica);
    }
}

/// Checks every write to another replica.
pub(super) fn check(history: &History, touch: &Touch) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "genuineness", evidence });
    let Touch { by, to, about } = *touch;
    match about {
        About::Message(message) => {
            let Some(multicast) = history.multicasts.get(&message) else { return Ok(()) };
            let destinations = multicast.destinations;
            let parties = history.tree.map_or(destinations, |tree| tree.path(destinations));
            if [by, to].iter().any(|party| !parties.contains(party.group)) {
                return violated(format!("{by} wrote to {to} about {message} to {destinations}"));
            }
        }
        About::Passed => {
            // A request about what was passed may be the first sign that the groups share a message.
            let shares = |of: GroupId, with| {
                history.shares.of_group.get(&of).is_some_and(|all| all.contains(with))
            };
            let (by_group, to_group) = (by.group, to.group);
            let near = history.tree.is_some_and(|tree| {
                let parent = |of, is| tree.parent(of) == Some(is);
                parent(by_group, to_group) || parent(to_group, by_group)
            });
            let shared = near || shares(by_group, to_group) || shares(to_group, by_group);
            if by_group != to_group && !shared {
                return violated(format!(
                    "{by} sent {to} what it passed, but neither their messages nor a tree connect their groups"
                ));
            }
        }
        About::Log(Acceptance { index, .. }) => {
            let shares = history.shares.of_replica.get(&by).copied().unwrap_or_default();
            if by.group != to.group && !shares.contains(to.group) {
                return violated(format!(
                    "{by} acknowledged its log to {to} up to {index}, but it holds no message to both groups"
                ));
            }
        }
    }
    Ok(())
}
