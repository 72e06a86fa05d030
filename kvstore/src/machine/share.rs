//! One group's share of a transaction.

use skein_protocol::ids::{GroupId, GroupSet};

use super::Memo;
use crate::command::Transaction;
use crate::rules;
use crate::slots::SlotMap;
use crate::wire::Bytes;

/// One group's share of a transaction, and the facts about the whole transaction that the group needs.
///
/// The owners of keys are determined here, once: hashing a key takes as long as a look-up.
pub(super) struct Share<'a> {
    /// The guards and operations on the group's keys, and all scans, in the order of the transaction.
    pub(super) ours: Transaction<Bytes<'a>>,
    /// Whether the transaction has a guard, in any group.
    pub(super) guarded: bool,
    /// Whether groups must exchange verdicts before any of them executes the transaction.
    pub(super) exchanged: bool,
    /// Whether the replies of all groups are retained.
    pub(super) memo: Memo,
}

impl<'a> Share<'a> {
    /// The share of `group` by the map `slots`, and the groups to which the transaction goes: the owners of its
    /// keys, or all groups if it scans.
    pub(super) fn of(
        mut transaction: Transaction<Bytes<'a>>,
        slots: &SlotMap,
        group: GroupId,
    ) -> (Self, GroupSet) {
        let (guarded, memo) = (!transaction.guards.is_empty(), Memo::of(&transaction));
        let exchanged = rules::needs_exchange(&transaction);
        let mut owners = GroupSet::EMPTY;
        let mut last = None;
        let mut owns = |key: &Bytes<'a>| {
            // A key that is guarded is usually written next.
            let owner = match last {
                Some((before, owner)) if before == *key => owner,
                _ => slots.owner(key.0),
            };
            last = Some((*key, owner));
            owners = owners.with(owner);
            owner == group
        };
        let mut scans = false;
        transaction.guards.retain(|guard| {
            scans |= guard.only_key().is_none();
            guard.only_key().is_none_or(&mut owns)
        });
        for branch in [&mut transaction.then, &mut transaction.otherwise] {
            branch.retain(|operation| {
                scans |= operation.key().is_none();
                operation.key().is_none_or(&mut owns)
            });
        }
        if scans {
            owners = slots.groups();
        }
        (Self { ours: transaction, guarded, exchanged, memo }, rules::somebody(owners))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Operation, Test};
    use crate::limits::Limits;
    use crate::plan::Plan;

    #[test]
    fn shares_of_all_groups_are_the_transaction_and_go_where_its_sender_sends_it() {
        let slots = SlotMap::even(3);
        let (get, put) = (
            |key: &str| Operation::Get { key: key.into() },
            |key: &str| Operation::Put { key: key.into(), value: b"1".to_vec() },
        );
        let scan = Operation::Scan { start: b"a".to_vec(), end: None, limit: 1 };
        let of = Transaction::of;
        let cases = [
            Transaction::default(),
            of(get("a")),
            of(get("a")).then(put("b")).then(get("c")).then(get("d")),
            of(put("a")).guard("b", Test::Exists).otherwise(get("c")).otherwise(put("a")),
            Transaction::default().guard("e", Test::Missing),
            of(get("a")).then(scan),
        ];
        for transaction in cases {
            let whole = transaction.borrowed();
            let plan = Plan::of(&transaction, &slots, &Limits::default()).expect("it can be done");
            let groups: Vec<_> = slots.groups().iter().collect();
            let mut parts = (0, 0);
            for group in groups {
                let (share, owners) = Share::of(whole.clone(), &slots, group);
                assert_eq!(owners, plan.destinations(), "{whole:?}");
                assert_eq!(share.guarded, !whole.guards.is_empty());
                assert_eq!(share.exchanged, rules::needs_exchange(&whole));
                assert_eq!(share.memo == Memo::OnlyRead, whole.has_no_effect());
                let all = share.ours.then.iter().chain(&share.ours.otherwise);
                for operation in all {
                    let owner = operation.key().map(|key| slots.owner(key.0));
                    assert_eq!(owner.unwrap_or(group), group, "{operation:?}");
                    parts.1 += usize::from(owner.is_some());
                }
                assert!(share.ours.guards.iter().all(|guard| slots.owner(guard.key.0) == group));
                parts.0 += share.ours.guards.len();
            }
            let keyed = whole.then.iter().chain(&whole.otherwise).filter(|it| it.key().is_some());
            assert_eq!(parts, (whole.guards.len(), keyed.count()), "each has one owner");
        }
    }
}
