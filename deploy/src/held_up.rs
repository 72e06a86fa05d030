//! Groups of a tree that do not serve hold up messages: this says which, for people and programs.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use skein_client::{GroupId, GroupSet};
use skein_multicast::protocol::tram::held_up::held_up;
use skein_multicast::protocol::tram::tree::Tree;

use crate::output::names;

/// Why a group does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Because {
    NoQuorum,
    NoLeader,
    Lost,
    Diverged,
}

/// A group that does not serve, and the messages that wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HeldUpBy {
    pub(crate) by: u16,
    because: Because,
    /// Its subtree. Messages of several groups to these groups wait.
    groups: BTreeSet<u16>,
    /// Parts of the subtree: messages whose groups are all in one of them do not wait.
    apart: Vec<BTreeSet<u16>>,
}

/// Groups of a tree that hold something up, and what. `because` says of each group why it does not serve, if it does not.
pub(crate) fn held_up_by(
    tree: &Tree,
    because: impl Fn(GroupId) -> Option<Because>,
) -> Vec<HeldUpBy> {
    let all = GroupSet::first(tree.groups());
    let unavailable = all.iter().filter(|group| because(*group).is_some()).collect();
    let numbers = |groups: GroupSet| groups.iter().map(|group| group.0).collect();
    let of = held_up(tree, unavailable).into_iter().filter_map(|held| {
        Some(HeldUpBy {
            by: held.by.0,
            because: because(held.by)?,
            groups: numbers(held.groups),
            apart: held.apart.into_iter().map(numbers).collect(),
        })
    });
    of.collect()
}

impl fmt::Display for HeldUpBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.because {
            Because::NoQuorum => "has no quorum",
            Because::NoLeader => "has no leader",
            Because::Lost => "is LOST",
            Because::Diverged => "has stopped, because its replicas have diverged",
        };
        let groups = names(&self.groups);
        write!(f, "g{} {why}: it holds up messages of several groups to {groups}", self.by)?;
        for (at, part) in self.apart.iter().enumerate() {
            let but = if at == 0 { ", but for those" } else { ", and those" };
            write!(f, "{but} that go only to {}", names(part))?;
        }
        f.write_str(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_group_its_subtree_and_what_goes_on() {
        let tree = Tree::of(&[None, Some(0), Some(0), Some(1), Some(3), Some(1)]).unwrap();
        let because = |group: GroupId| match group.0 {
            1 => Some(Because::NoQuorum),
            2 => Some(Because::Lost),
            _ => None,
        };
        let held = held_up_by(&tree, because);
        let told: Vec<_> = held.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "g1 has no quorum: it holds up messages of several groups to g1, g3, g4 and g5, but for those that go \
                 only to g3 and g4.",
                "g2 is LOST: it holds up messages of several groups to g2.",
            ]
        );
        assert_eq!(
            serde_json::to_value(&held[0]).unwrap(),
            serde_json::json!(
                { "by": 1, "because": "no_quorum", "groups": [1, 3, 4, 5], "apart": [[3, 4]] }
            )
        );
        assert_eq!(held_up_by(&tree, |_| None), []);
    }
}
